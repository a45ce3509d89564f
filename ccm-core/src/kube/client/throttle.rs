//! The client-side rate of requests (REQ-MET-05).

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::config::ApiRate;

/// A token bucket with the Go library's meaning of rate and burst, as a schedule: no timer task.
pub(super) struct Throttle {
    step: Duration,
    tolerance: Duration,
    next: Mutex<Option<Instant>>,
}

impl Throttle {
    pub(super) fn new(rate: ApiRate) -> Self {
        let step = Duration::from_secs_f64(1.0 / rate.qps);
        Self {
            step,
            tolerance: step * rate.burst.saturating_sub(1),
            next: Mutex::new(None),
        }
    }

    /// Takes a token and says how long the caller has to wait for it.
    pub(super) fn take(&self, now: Instant) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = next.map_or(now, |next| next.max(now));
        *next = Some(slot + self.step);
        slot.duration_since(now).saturating_sub(self.tolerance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REQ-MET-05
    #[tokio::test(start_paused = true)]
    async fn a_rate_lets_a_burst_through_and_then_so_many_a_second() {
        let throttle = Throttle::new(ApiRate {
            qps: 20.0,
            burst: 30,
        });
        let start = Instant::now();
        for _ in 0..30 {
            assert!(throttle.take(Instant::now()).is_zero());
        }
        for _ in 0..40 {
            tokio::time::sleep(throttle.take(Instant::now())).await;
        }
        assert_eq!(start.elapsed().as_secs(), 2, "40 more at 20 a second");
    }
}
