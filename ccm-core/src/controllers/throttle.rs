//! The wait that a cloud asks for: until it is over no question is asked (CASE-THR-03).

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::cloud::{Class, CloudError};

/// A throttling cloud is left alone at least this long, named or not.
const AT_LEAST: Duration = Duration::from_secs(1);

/// A longer wait than this is taken for a fault of the cloud or of its clock.
const AT_MOST: Duration = Duration::from_secs(5 * 60);

/// The wait that the error asks for, within bounds. `None`: it asks for none.
pub(crate) fn wait_named(error: &CloudError) -> Option<Duration> {
    let named = error.retry_after().filter(|after| !after.is_zero())?;
    let floor = match error.class() {
        Class::Throttled { .. } => AT_LEAST,
        _ => Duration::ZERO,
    };
    Some(named.max(floor).min(AT_MOST))
}

/// Until when the cloud is left alone.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    /// Leaves the cloud alone as this error asks for, if it says that there are too many calls.
    pub(crate) fn heed(&self, error: &CloudError) {
        if matches!(error.class(), Class::Throttled { .. }) {
            self.hold(wait_named(error).unwrap_or(AT_LEAST));
        }
    }

    /// Leaves the cloud alone for this time; an end that is later already stays.
    pub(crate) fn hold(&self, wait: Duration) {
        let until = Instant::now() + wait.min(AT_MOST);
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *end = (*end).max(Some(until));
    }

    /// How long the cloud is left alone from now. `None`: it may be asked.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let end = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Returns when the cloud may be asked.
    pub(crate) async fn wait(&self) {
        while let Some(left) = self.remaining() {
            tokio::time::sleep(left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled(after: Option<u64>) -> CloudError {
        let after = after.map(Duration::from_secs);
        CloudError::new(Class::Throttled { after }, "slow down")
    }

    /// CASE-THR-03
    #[tokio::test(start_paused = true)]
    async fn the_longest_wait_counts_within_bounds() {
        let left = |throttle: &Throttle| throttle.remaining().map(|left| left.as_secs());
        let throttle = Throttle::default();
        throttle.heed(&CloudError::transient("reset"));
        assert_eq!(left(&throttle), None);
        throttle.heed(&throttled(None));
        assert_eq!(left(&throttle), Some(1));
        throttle.heed(&throttled(Some(120)));
        throttle.heed(&throttled(Some(7)));
        assert_eq!(left(&throttle), Some(120));
        throttle.heed(&throttled(Some(86_400)));
        assert_eq!(left(&throttle), Some(300));
        throttle.wait().await;
        assert_eq!(left(&throttle), None);
    }

    #[test]
    fn only_a_wait_that_is_named_is_answered() {
        assert_eq!(wait_named(&throttled(None)), None);
        assert_eq!(wait_named(&throttled(Some(0))), None);
        assert_eq!(
            wait_named(&throttled(Some(9))),
            Some(Duration::from_secs(9))
        );
        let soon = CloudError::transient("soon").retry_in(Duration::from_millis(20));
        assert_eq!(wait_named(&soon), Some(Duration::from_millis(20)));
    }
}
