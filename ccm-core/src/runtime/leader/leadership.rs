//! All locks of a process: the main one and, under leader migration, the second one.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::elector::{Acquired, Elector, Lost};
use crate::config::LockOf;

/// The lease that was lost, and why. The process has to end with exit code 1 (REQ-APP-12).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lost the leader election lease {lease}: {reason}")]
pub struct LeadershipLost {
    /// `namespace/name`.
    pub lease: String,
    /// Why, for people.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Leading,
    Lost(Lost),
}

/// One elector at work in its own task.
struct Campaign {
    lease: String,
    healthy: Arc<dyn Fn() -> bool + Send + Sync>,
    another_led: Arc<AtomicBool>,
    state: watch::Receiver<State>,
    task: AbortOnDropHandle<Elector>,
}

impl Campaign {
    /// `after`: the campaign that has to win first.
    fn start(mut elector: Elector, after: Option<&Self>, stop: CancellationToken) -> Self {
        let (sender, state) = watch::channel(State::Waiting);
        let first = after.map(|campaign| campaign.state.clone());
        let lease = elector.lease();
        let healthy = Arc::new(elector.health());
        let another_led = elector.another_led();
        let task = async move {
            let first = async {
                if let Some(state) = first {
                    leading(state).await;
                }
            };
            let may_start = tokio::select! {
                biased;
                () = stop.cancelled() => false,
                () = first => true,
            };
            if may_start && elector.acquire(&stop).await == Acquired::Leading {
                sender.send_replace(State::Leading);
                let lost = elector.hold(&stop).await;
                if lost != Lost::Stopped {
                    sender.send_replace(State::Lost(lost));
                }
            }
            // The sender stays until the end of the task: its end is no loss.
            stop.cancelled().await;
            elector
        };
        Self {
            lease,
            healthy,
            another_led,
            state,
            task: AbortOnDropHandle::new(tokio::spawn(task)),
        }
    }

    async fn lost(&self) -> LeadershipLost {
        let mut state = self.state.clone();
        let reason = match state
            .wait_for(|state| matches!(state, State::Lost(_)))
            .await
        {
            Ok(state) => match &*state {
                State::Lost(lost) => lost.to_string(),
                State::Waiting | State::Leading => String::new(),
            },
            Err(_) => "the elector ended by itself".to_owned(),
        };
        LeadershipLost {
            lease: self.lease.clone(),
            reason,
        }
    }

    async fn release(self, give_back: bool) {
        let is_lost = matches!(*self.state.borrow(), State::Lost(_));
        // An elector that panicked has nothing that could be given back.
        if let Ok(mut elector) = self.task.await {
            if give_back && !is_lost {
                Box::pin(elector.release()).await;
            } else {
                elector.let_run_out();
            }
        }
    }
}

/// Returns once it is led; never if that does not come.
async fn leading(mut state: watch::Receiver<State>) {
    if state
        .wait_for(|state| *state == State::Leading)
        .await
        .is_err()
    {
        pending::<()>().await;
    }
}

/// The locks of one process, each held by an elector in a task of its own. Dropping it without
/// [`release`](Self::release) ends the renewals; the fences then run out.
pub struct Leadership {
    locks: Option<(Campaign, Option<Campaign>)>,
    stop: CancellationToken,
}

impl Leadership {
    /// Without leader election: every lock is ours, always.
    pub fn without_election() -> Self {
        Self {
            locks: None,
            stop: CancellationToken::new(),
        }
    }

    /// Starts to wait for the main lock, and after it for the migration lock if there is one.
    /// Each elector needs a fence of its own. Needs a tokio runtime.
    pub fn start(main: Elector, migration: Option<Elector>) -> Self {
        let stop = CancellationToken::new();
        let main = Campaign::start(main, None, stop.clone());
        let migration =
            migration.map(|elector| Campaign::start(elector, Some(&main), stop.clone()));
        Self {
            locks: Some((main, migration)),
            stop,
        }
    }

    /// The check `leaderElection`: all locks of this process (REQ-APP-29).
    pub fn health(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let locks = self.locks.iter();
        let checks: Vec<_> = locks
            .flat_map(|(main, migration)| std::iter::once(main).chain(migration))
            .map(|campaign| Arc::clone(&campaign.healthy))
            .collect();
        move || checks.iter().all(|healthy| healthy())
    }

    /// Returns once this lock, and the main lock before it, was acquired. Never for
    /// [`LockOf::Elsewhere`], and never if one is lost before: see [`lost`](Self::lost).
    pub async fn acquired(&self, lock: LockOf) {
        let state = match (&self.locks, lock) {
            (_, LockOf::Elsewhere) => return pending().await,
            (None, _) => return,
            (Some((_, Some(migration))), LockOf::Migration) => migration.state.clone(),
            (Some((main, _)), LockOf::Main | LockOf::Migration) => main.state.clone(),
        };
        leading(state).await;
    }

    /// Whether another process was seen at work while this one waited for the main lock.
    pub fn took_over(&self) -> bool {
        let main = self.locks.as_ref().map(|(main, _)| &main.another_led);
        main.is_some_and(|another_led| another_led.load(Ordering::Acquire))
    }

    /// Returns when a lock that was held is lost: the process must end (REQ-APP-12). Its fence is
    /// shut by then. May be dropped and called again.
    pub async fn lost(&self) -> LeadershipLost {
        match &self.locks {
            None => pending().await,
            Some((main, None)) => main.lost().await,
            Some((main, Some(migration))) => tokio::select! {
                biased;
                lost = main.lost() => lost,
                lost = migration.lost() => lost,
            },
        }
    }

    /// Gives all locks back, those that were lost excepted. To be called after the controllers
    /// have ended; until then the locks are renewed. Takes at most half the renew deadline (one
    /// second at least).
    pub async fn release(self) {
        self.end(true).await;
    }

    /// Stops the renewals and gives nothing back: work that was cut off may still take effect, and
    /// the rest of the lease keeps the next replica from it.
    pub async fn let_run_out(self) {
        self.end(false).await;
    }

    async fn end(self, give_back: bool) {
        self.stop.cancel();
        if let Some((main, migration)) = self.locks {
            let second = async {
                if let Some(migration) = migration {
                    migration.release(give_back).await;
                }
            };
            tokio::join!(second, main.release(give_back));
        }
    }
}
