//! The cloud's wall clock, driven by tokio's time so that virtual time moves it too.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

#[derive(Clone, Debug)]
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

    pub(crate) fn now(&self) -> Timestamp {
        later(self.start, self.origin.elapsed())
    }
}

/// `at + by`, held at the end of time instead of overflowing.
pub(crate) fn later(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by)
        .ok()
        .and_then(|by| at.checked_add(by).ok())
        .unwrap_or(Timestamp::MAX)
}

/// For `#[serde(serialize_with)]`: anything as its text.
pub(crate) fn as_text<T: ToString, S: serde::Serializer>(
    value: &T,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.serialize_str(&value.to_string())
}
