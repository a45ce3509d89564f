//! A delay before a call when the cloud refused many of the last ones (specification: aws §7.2).
//!
//! One state a service, shared by everything that calls it: the budgets of EC2 and of the load
//! balancing API are apart. The state is pure: time is passed in.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Counters are halved, roughly, every three of these.
const DECAY_INTERVAL: Duration = Duration::from_secs(20);
/// What is left of the counters after one interval.
const DECAY: f64 = 0.8;
/// The delay when every call is refused.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// Refusals below this share are ignored, so that they can fade.
const IGNORED_SHARE: f64 = 0.1;
/// Requests counted in advance, so that one early refusal is not "every call".
const BIAS: f64 = 4.0;

/// Recent requests and refusals of one service.
#[derive(Debug)]
pub struct Throttle(Mutex<State>);

#[derive(Debug)]
struct State {
    requests: f64,
    refusals: f64,
    decayed: Instant,
}

impl Throttle {
    /// Nothing has been asked or refused so far.
    pub fn new(now: Instant) -> Self {
        Self(Mutex::new(State {
            requests: BIAS,
            refusals: 0.0,
            decayed: now,
        }))
    }

    /// Counts a request and tells how long to wait before it is sent, in whole seconds.
    pub fn delay(&self, now: Instant) -> Duration {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_duration_since(state.decayed);
        if since > DECAY_INTERVAL {
            let left = DECAY.powf(since.as_secs_f64() / DECAY_INTERVAL.as_secs_f64());
            state.requests *= left;
            state.refusals *= left;
            state.decayed = now;
        }
        state.requests += 1.0;
        let share = state.refusals / state.requests;
        if share < IGNORED_SHARE {
            return Duration::ZERO;
        }
        Duration::from_secs(MAX_DELAY.mul_f64(share.min(1.0)).as_secs())
    }

    /// Counts an operation that ended refused, after all its attempts.
    pub fn refused(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.refusals += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Run {
        throttle: Throttle,
        now: Instant,
    }

    impl Run {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                throttle: Throttle::new(now),
                now,
            }
        }

        fn request(&mut self, after: u64, refused: bool) -> Duration {
            self.now += Duration::from_secs(after);
            let delay = self.throttle.delay(self.now);
            if refused {
                self.throttle.refused();
            }
            delay
        }
    }

    /// REQ-AWS-RETRY-1
    #[tokio::test(start_paused = true)]
    async fn without_refusals_nothing_is_delayed() {
        let mut run = Run::new();
        for _ in 0..100 {
            assert_eq!(run.request(1, false), Duration::ZERO);
        }
    }

    /// REQ-AWS-RETRY-2
    #[tokio::test(start_paused = true)]
    async fn refused_requests_delay_the_next_ones() {
        let mut run = Run::new();
        for _ in 0..10 {
            run.request(0, true);
        }
        for _ in 0..100 {
            assert!(run.request(0, true) >= Duration::from_secs(5));
        }
    }

    /// REQ-AWS-RETRY-3, REQ-AWS-RETRY-4
    #[tokio::test(start_paused = true)]
    async fn the_delay_nears_its_maximum_and_fades_again() {
        let mut run = Run::new();
        for _ in 0..100 {
            run.request(1, true);
        }
        for _ in 0..10 {
            assert!(run.request(1, true) >= Duration::from_secs(57));
        }
        for _ in 0..100 {
            run.request(3, false);
        }
        assert_eq!(run.request(3, false), Duration::ZERO);
    }

    /// REQ-AWS-RETRY-5
    #[tokio::test(start_paused = true)]
    async fn one_early_refusal_is_not_taken_for_all() {
        let mut run = Run::new();
        run.request(0, true);
        assert_eq!(run.request(0, false), Duration::from_secs(10));
    }
}
