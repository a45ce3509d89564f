//! Wall clock on tokio's time: a paused runtime pauses it too.

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Duration, Instant};

/// `start` plus what tokio's clock has run since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Timestamp,
    origin: Instant,
}

impl Clock {
    pub(crate) fn new(start: Timestamp) -> Self {
        Self {
            start,
            origin: Instant::now(),
        }
    }

    /// The wall clock now.
    pub(crate) fn now(&self) -> Timestamp {
        let elapsed =
            SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX);
        self.start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// `metav1.Time`: whole seconds.
    pub(crate) fn stamp(&self) -> String {
        seconds(self.now())
    }

    /// A stamp some time ahead.
    pub(crate) fn stamp_in(&self, ahead: Duration) -> String {
        let ahead = SignedDuration::try_from(ahead).unwrap_or(SignedDuration::MAX);
        seconds(self.now().checked_add(ahead).unwrap_or(Timestamp::MAX))
    }
}

fn seconds(at: Timestamp) -> String {
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
    whole.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
