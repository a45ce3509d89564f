//! The calls of one process to the cloud: the only way from a provider to the cloud.
//!
//! Every call passes the same points: the process lives, the fence lets a change pass, the call is
//! recorded, its fate is asked for, it takes its time, the judge looks at what it does.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ccm_core::{
    cloud::{Class, CloudError, CloudResult},
    runtime::Fence,
};
use tokio::time::{Instant, sleep};

use super::{Craft, MemCloud, Model};
use crate::{
    fate::{Blow, Fates, Latency},
    judge::Judge,
    process::Process,
    trace::{Kind, Trace},
};

/// What all calls of a run share.
#[derive(Clone)]
pub struct Lines {
    /// The record.
    pub trace: Trace,
    /// The blows.
    pub fates: Fates,
    /// How long operations take.
    pub latency: Latency,
    /// The rules.
    pub judge: Judge,
}

/// The calls of one process.
#[derive(Clone)]
pub struct Session {
    cloud: MemCloud,
    lines: Lines,
    process: Arc<Process>,
    fence: Fence,
    craft: Arc<dyn Craft>,
    /// When this process last changed something: it sees its own changes.
    own: Arc<Mutex<Option<Instant>>>,
}

impl Session {
    /// The calls of this process.
    pub fn new(
        cloud: MemCloud,
        lines: Lines,
        process: Arc<Process>,
        fence: Fence,
        craft: Arc<dyn Craft>,
    ) -> Self {
        Self {
            cloud,
            lines,
            process,
            fence,
            craft,
            own: Arc::default(),
        }
    }

    /// The provider's decisions.
    pub fn craft(&self) -> &dyn Craft {
        self.craft.as_ref()
    }

    /// A call that changes nothing.
    ///
    /// # Errors
    /// What `read` says, or what strikes the call.
    pub async fn read<T>(
        &self,
        what: String,
        read: impl FnOnce(&Model) -> CloudResult<T>,
    ) -> CloudResult<T> {
        self.lines.judge.tried(&what);
        self.process.gate().await;
        self.call(Kind::CloudRead, what, |_| {
            let own = *self.own.lock().unwrap_or_else(PoisonError::into_inner);
            read(&self.cloud.seen(own))
        })
        .await
    }

    /// A call that changes the cloud.
    ///
    /// # Errors
    /// The fence, what `write` says, or what strikes the call.
    pub async fn write<T: Send + 'static>(
        &self,
        what: String,
        write: impl FnOnce(&mut Model) -> CloudResult<T> + Send + 'static,
    ) -> CloudResult<T> {
        self.lines.judge.tried(&what);
        self.rest(self.craft.pause()).await;
        self.process.gate().await;
        if self.craft.heeds_fence() {
            self.fence.check()?;
        }
        let passable = self.fence.is_passable();
        self.lines
            .judge
            .cloud_write_begins(&self.process, &what, passable);
        let text = what.clone();
        self.call(Kind::CloudWrite, what, |late| match late {
            None => {
                let result = self.change(&text, write, false);
                *self.own.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                result
            }
            Some(time) => {
                let session = self.clone();
                self.lines.fates.later(time, async move {
                    let how = match session.change(&text, write, true) {
                        Ok(_) => "ok".to_owned(),
                        Err(error) => error.to_string(),
                    };
                    let trace = &session.lines.trace;
                    trace.world(format!(
                        "{text} takes place, long after its time-out: {how}"
                    ));
                });
                Err(CloudError::transient("not yet"))
            }
        })
        .await
    }

    fn change<T>(
        &self,
        what: &str,
        write: impl FnOnce(&mut Model) -> CloudResult<T>,
        late: bool,
    ) -> CloudResult<T> {
        let before = self.cloud.now();
        let result = self.cloud.change(write);
        self.lines.judge.cloud_written(what, &before, late);
        result
    }

    /// `act` is told how late it is to take effect, if it is.
    async fn call<T>(
        &self,
        kind: Kind,
        what: String,
        act: impl FnOnce(Option<Duration>) -> CloudResult<T>,
    ) -> CloudResult<T> {
        let Lines {
            trace,
            fates,
            latency,
            ..
        } = &self.lines;
        let index = trace.op(self.process.number, kind, what.clone());
        let blow = fates.strike(index, kind, &what);
        let end = |how: &str| trace.end(index, how);
        match blow {
            Some(Blow::CrashBefore) => {
                end("process died before");
                self.process.die().await;
            }
            Some(Blow::Slow(time)) => self.rest(time).await,
            _ => {}
        }
        let half = latency.of(index, kind) / 2;
        self.rest(half).await;
        if let Some(error) = blow.and_then(|blow| refusal(blow, &what)) {
            self.rest(half).await;
            end(&format!("struck: {error}"));
            return Err(error);
        }
        let late = match blow {
            Some(Blow::Late(time)) => Some(time),
            _ => None,
        };
        let result = act(late);
        if blow == Some(Blow::CrashAfter) {
            end("done, process died");
            self.process.die().await;
        }
        self.rest(half).await;
        self.process.gate().await;
        if matches!(blow, Some(Blow::Lost | Blow::BrokenAfter | Blow::Late(_))) {
            end(match late {
                None => "done, answer lost",
                Some(_) => "timed out, to be done later",
            });
            return Err(CloudError::transient(format!("{what}: timed out")));
        }
        match &result {
            Ok(_) => end("ok"),
            Err(error) => end(&format!("{}: {error}", error.class().as_str())),
        }
        result
    }

    /// Time passes; a process that died meanwhile does not go on.
    async fn rest(&self, time: Duration) {
        if !time.is_zero() {
            sleep(time).await;
        }
        if self.process.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}

/// What the caller is told although nothing was done.
fn refusal(blow: Blow, what: &str) -> Option<CloudError> {
    let (class, text) = match blow {
        Blow::Conflict => (Class::Conflict, "somebody else is at it"),
        Blow::Gone | Blow::Internal => (Class::Transient, "internal error"),
        Blow::Throttled(after) => (Class::Throttled { after: Some(after) }, "slow down"),
        Blow::Denied => (Class::Quota, "limit reached"),
        Blow::Broken => (Class::Transient, "connection reset"),
        Blow::CrashBefore
        | Blow::CrashAfter
        | Blow::Lost
        | Blow::Late(_)
        | Blow::BrokenAfter
        | Blow::Slow(_) => return None,
    };
    Some(CloudError::new(class, format!("{what}: {text}")))
}
