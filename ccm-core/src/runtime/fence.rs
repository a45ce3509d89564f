//! The fence: a call that changes the cloud starts only while the lease is provably ours.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::cloud::{Class, CloudError, CloudResult};

/// Until when we may change the cloud. Cheap to clone; all clones are one fence.
///
/// The time is of the monotonic clock and counted from before the last renewal was sent, so that
/// it ends before anybody else can take the lease. Closed for good once the lease is lost.
#[derive(Clone, Debug)]
pub struct Fence(Arc<Mutex<State>>);

#[derive(Clone, Copy, Debug)]
enum State {
    /// Without leader election.
    Open,
    /// Not leading yet.
    Waiting,
    /// Leading, at least until then.
    Until(Instant),
    /// The lease was lost or given back.
    Closed,
}

impl Fence {
    /// A fence that always lets pass: there is no leader election.
    pub fn open() -> Self {
        Self(Arc::new(Mutex::new(State::Open)))
    }

    /// A fence that lets nothing pass before [`extend`](Self::extend).
    pub fn waiting() -> Self {
        Self(Arc::new(Mutex::new(State::Waiting)))
    }

    /// Lets pass until `until`, unless the fence was closed.
    pub fn extend(&self, until: Instant) {
        let mut state = self.lock();
        if !matches!(*state, State::Closed | State::Open) {
            *state = State::Until(until);
        }
    }

    /// Lets nothing pass from now on.
    pub fn close(&self) {
        *self.lock() = State::Closed;
    }

    /// Whether a call that changes the cloud may start now.
    ///
    /// # Errors
    /// It may not: class `Transient`, the text says that the lease could be another's.
    pub fn check(&self) -> CloudResult<()> {
        if self.is_passable() {
            return Ok(());
        }
        Err(CloudError::new(
            Class::Transient,
            "not sent: this replica does not hold the leader election lease",
        )
        .with_code("NotLeading"))
    }

    /// Whether a call that changes the cloud may start now.
    pub fn is_passable(&self) -> bool {
        match *self.lock() {
            State::Open => true,
            State::Until(until) => Instant::now() < until,
            State::Waiting | State::Closed => false,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fence_lets_pass_only_until_the_time_of_the_last_renewal_is_over() {
        let fence = Fence::waiting();
        assert!(fence.check().is_err());
        fence.extend(Instant::now() + Duration::from_secs(10));
        assert!(fence.check().is_ok());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(fence.check().is_err());
        fence.extend(Instant::now() + Duration::from_secs(10));
        assert!(fence.check().is_ok());
        fence.close();
        fence.extend(Instant::now() + Duration::from_secs(10));
        assert!(!fence.is_passable());
        assert!(Fence::open().is_passable());
    }
}
