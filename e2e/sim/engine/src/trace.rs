//! What happened in a run, in order, with its virtual time: the operations of the managers,
//! numbered, and what the world did.
//!
//! Two runs of the same plan give the same trace, byte for byte.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Where an operation goes, and whether it changes something there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A request that reads or watches objects.
    ApiRead,
    /// A request that changes an object, events included.
    ApiWrite,
    /// A cloud call that changes nothing.
    CloudRead,
    /// A cloud call that changes something.
    CloudWrite,
}

impl Kind {
    /// Whether it is a cloud call.
    pub const fn is_cloud(self) -> bool {
        matches!(self, Self::CloudRead | Self::CloudWrite)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::ApiRead => "api",
            Self::ApiWrite => "api!",
            Self::CloudRead => "cloud",
            Self::CloudWrite => "cloud!",
        }
    }
}

/// One operation of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Its number in the run, from 0.
    pub index: u32,
    /// When it was begun.
    pub at: Duration,
    /// Which process began it.
    pub process: u32,
    /// Where it goes.
    pub kind: Kind,
    /// What it asks for.
    pub text: String,
    /// When it ended, and how; `None` when its answer never arrived.
    pub end: Option<(Duration, String)>,
}

#[derive(Debug)]
enum Line {
    Op(Op),
    World(Duration, String),
}

#[derive(Debug)]
struct Inner {
    origin: Instant,
    lines: Vec<Line>,
    /// Where the operations stand among the lines.
    ops: Vec<usize>,
}

/// The record of one run. Clones are handles of the same record.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Mutex<Inner>>);

impl Trace {
    /// An empty record that begins now.
    pub fn begin() -> Self {
        Self(Arc::new(Mutex::new(Inner {
            origin: Instant::now(),
            lines: Vec::new(),
            ops: Vec::new(),
        })))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Virtual time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.with(|inner| inner.origin.elapsed())
    }

    /// An operation begins; answers its number.
    pub fn op(&self, process: u32, kind: Kind, text: String) -> u32 {
        self.with(|inner| {
            let index = u32::try_from(inner.ops.len()).unwrap_or(u32::MAX);
            inner.ops.push(inner.lines.len());
            inner.lines.push(Line::Op(Op {
                index,
                at: inner.origin.elapsed(),
                process,
                kind,
                text,
                end: None,
            }));
            index
        })
    }

    /// An operation ends.
    pub fn end(&self, index: u32, how: impl Into<String>) {
        self.with(|inner| {
            let at = inner.origin.elapsed();
            let line = usize::try_from(index)
                .ok()
                .and_then(|index| inner.ops.get(index).copied())
                .and_then(|line| inner.lines.get_mut(line));
            if let Some(Line::Op(op)) = line {
                op.end = Some((at, how.into()));
            }
        });
    }

    /// The world did something, or something was done to it.
    pub fn world(&self, text: impl Into<String>) {
        self.with(|inner| {
            let at = inner.origin.elapsed();
            inner.lines.push(Line::World(at, text.into()));
        });
    }

    /// How many operations were begun.
    pub fn count(&self) -> u32 {
        self.with(|inner| u32::try_from(inner.ops.len()).unwrap_or(u32::MAX))
    }

    /// The operations from a number on.
    pub fn ops_from(&self, first: u32) -> Vec<Op> {
        self.with(|inner| {
            let ops = inner.lines.iter().filter_map(|line| match line {
                Line::Op(op) => Some(op),
                Line::World(..) => None,
            });
            ops.filter(|op| op.index >= first).cloned().collect()
        })
    }

    /// Everything, one event a line.
    pub fn text(&self) -> String {
        self.with(|inner| {
            let mut text = String::new();
            for line in &inner.lines {
                // Writing into a String cannot fail.
                let _ = match line {
                    Line::World(at, what) => writeln!(text, "{:>11}      -- {what}", seconds(*at)),
                    Line::Op(op) => {
                        let end = op.end.as_ref().map_or_else(
                            || "never answered".to_owned(),
                            |(at, how)| format!("{how} (after {:?})", at.saturating_sub(op.at)),
                        );
                        let (at, kind) = (seconds(op.at), op.kind.as_str());
                        let (index, process) = (op.index, op.process);
                        writeln!(
                            text,
                            "{at:>11} {index:>4} p{process} {kind:<6} {} => {end}",
                            op.text
                        )
                    }
                };
            }
            text
        })
    }
}

fn seconds(at: Duration) -> String {
    format!("{:.3}s", at.as_secs_f64())
}
