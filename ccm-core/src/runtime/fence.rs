//! The fence: a call that changes the cloud starts only while the lease is provably ours.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::cloud::{Class, CloudError, CloudResult};

/// Until when we may change the cloud. Cheap to clone; all clones are one fence.
///
/// The time is of the monotonic clock and counted from before the last renewal was sent, so that
/// it ends before anybody else can take the lease. Closed for good once the lease is lost.
#[derive(Clone, Debug)]
pub struct Fence {
    state: Arc<Mutex<State>>,
    /// Another one that has to let pass as well.
    and: Option<Arc<Self>>,
    /// Whether it lets pass before it was ever extended.
    idle: bool,
}

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
        Self::new(State::Open)
    }

    /// A fence that lets nothing pass before [`extend`](Self::extend).
    pub fn waiting() -> Self {
        Self::new(State::Waiting)
    }

    fn new(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
            and: None,
            idle: false,
        }
    }

    /// A fence that lets pass only while this one and the other do. Extending or closing it is
    /// extending or closing this one.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let and = match &self.and {
            Some(and) => and.and(other),
            None => other.clone(),
        };
        Self {
            state: Arc::clone(&self.state),
            and: Some(Arc::new(and)),
            idle: self.idle,
        }
    }

    /// The same fence, but before it is extended for the first time it lets pass: for work that
    /// does not need this lease, yet must not go on once it was had and lost.
    #[must_use]
    pub fn once_acquired(&self) -> Self {
        Self {
            idle: true,
            ..self.clone()
        }
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
        let passable = match *self.lock() {
            State::Open => true,
            State::Until(until) => Instant::now() < until,
            State::Waiting => self.idle,
            State::Closed => false,
        };
        passable && self.and.as_ref().is_none_or(|and| and.is_passable())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[tokio::test(start_paused = true)]
    async fn a_joint_fence_lets_pass_only_while_all_its_parts_do() {
        let (main, second, third) = (Fence::waiting(), Fence::waiting(), Fence::open());
        let joint = main.and(&second).and(&third);
        main.extend(Instant::now() + Duration::from_secs(10));
        assert!(!joint.is_passable());
        second.extend(Instant::now() + Duration::from_secs(5));
        assert!(joint.is_passable());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(main.is_passable() && !joint.is_passable());
        second.extend(Instant::now() + Duration::from_secs(5));
        assert!(joint.is_passable());
        third.close();
        assert!(!joint.is_passable());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_that_is_not_needed_counts_once_it_was_acquired() {
        let second = Fence::waiting();
        let idle = second.once_acquired();
        assert!(idle.is_passable() && !second.is_passable());
        second.extend(Instant::now() + Duration::from_secs(5));
        assert!(idle.is_passable());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!idle.is_passable());
        second.close();
        assert!(!idle.is_passable());
    }
}
