//! The only place where the process reads the wall clock.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use tokio::time::Instant;

/// The wall clock. For durations use [`tokio::time::Instant`], which obeys virtual time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's clock.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the wall clock is read"
    )]
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock that shows `start` now and runs with tokio's time: for simulations.
    pub fn anchored(start: Timestamp) -> Self {
        let origin = Instant::now();
        Self(Arc::new(move || {
            let elapsed = origin.elapsed();
            start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
        }))
    }

    /// A clock that shows what `now` says: for simulations of clocks that jump.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_anchored_clock_runs_with_virtual_time() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::anchored(start);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T00:01:30Z");
    }

    #[test]
    fn a_clock_from_a_function_can_jump() {
        let hours = Arc::new(std::sync::atomic::AtomicI64::new(5));
        let shown = Arc::clone(&hours);
        let clock = Clock::from_fn(move || {
            let hours = shown.load(std::sync::atomic::Ordering::Relaxed);
            Timestamp::from_second(hours * 3600).unwrap()
        });
        assert_eq!(clock.now().as_second(), 18_000);
        hours.store(1, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(clock.now().as_second(), 3_600);
    }
}
