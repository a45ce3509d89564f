//! Every crash point of a scenario, one after the other: before and after each API write and each
//! cloud call.

use std::{
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Result, bail};

use crate::{
    fate::Blow,
    run::{Plan, Report, run},
    trace::{Kind, Op},
    world::Plant,
};

/// A full quiet after each of a thousand crashes would show no more: two rounds of every loop that
/// writes, and a watch that ends.
const QUIET_AFTER_A_CRASH: Duration = Duration::from_secs(2 * 60);

/// One point where the manager dies.
#[derive(Clone, Debug)]
pub struct Point {
    /// The number of the operation, counted from the beginning of the part that is looked at.
    pub number: u32,
    /// Before or after it.
    pub blow: Blow,
    /// The operation, as the undisturbed run has it.
    pub op: String,
}

/// All crash points among the operations of an undisturbed run.
pub fn points(ops: &[Op]) -> Vec<Point> {
    let first = ops.first().map_or(0, |op| op.index);
    ops.iter()
        .filter(|op| op.kind != Kind::ApiRead)
        .flat_map(|op| {
            [Blow::CrashBefore, Blow::CrashAfter].map(|blow| Point {
                number: op.index - first,
                blow,
                op: op.text.clone(),
            })
        })
        .collect()
}

/// The plan with the manager dying at a point.
pub fn plan_at(plan: &Plan, point: &Point) -> Plan {
    Plan {
        blow: Some((point.number, point.blow)),
        quiet: if plan.replicas > 1 {
            QUIET_AFTER_A_CRASH / 2
        } else {
            QUIET_AFTER_A_CRASH
        },
        ..plan.clone()
    }
}

/// The crash points of a plan, from a run without any.
///
/// # Errors
/// The undisturbed run violates a rule already.
pub fn enumerate(plan: &Plan, plant: &Plant) -> Result<Vec<Point>> {
    let report = run(plan, plant)?;
    if let Some(violation) = report.violation {
        bail!("undisturbed: {violation}\n{}", report.trace);
    }
    Ok(points(&report.ops))
}

/// Does the work for every item on all processors; answers stand in the order of the items.
///
/// # Errors
/// The first error of the work.
pub fn in_parallel<I: Sync, T: Send>(
    items: &[I],
    work: impl Fn(&I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<T>)>> = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Runs all crash points of a plan; answers those at which a rule was violated.
///
/// # Errors
/// The undisturbed run violates a rule already.
pub fn failures(plan: &Plan, plant: &Plant) -> Result<(usize, Vec<(Point, Report)>)> {
    let points = enumerate(plan, plant)?;
    let reports = in_parallel(&points, |point| run(&plan_at(plan, point), plant))?;
    let count = points.len();
    let failed = points.into_iter().zip(reports);
    let failed = failed.filter(|(_, report)| report.violation.is_some());
    Ok((count, failed.collect()))
}
