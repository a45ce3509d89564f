//! How retries are spaced.

use std::time::Duration;

use tokio::time::Instant;

/// How failures of one key are spaced.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The wait after the first failure; it doubles with each further one.
    pub base: Duration,
    /// The longest wait.
    pub max: Duration,
    /// A bucket shared by all keys that retries are charged to: (per second, burst).
    pub bucket: Option<(f64, f64)>,
}

impl Backoff {
    /// The default controller rate limiter: 5 ms doubling to 1000 s, and ten retries a second with
    /// a burst of 100 over all keys (specification: controllers §2.1).
    pub const CONTROLLER_DEFAULT: Self = Self {
        base: Duration::from_millis(5),
        max: Duration::from_secs(1000),
        bucket: Some((10.0, 100.0)),
    };

    /// The service controller's: 5 s doubling to 300 s, no bucket (specification: controllers §4.1).
    pub const SERVICE: Self = Self {
        base: Duration::from_secs(5),
        max: Duration::from_secs(300),
        bucket: None,
    };

    /// The wait after the next failure when there were so many before.
    pub(crate) fn delay(&self, failures: u32) -> Duration {
        let factor = 2_u32.checked_pow(failures).unwrap_or(u32::MAX);
        self.base
            .checked_mul(factor)
            .unwrap_or(self.max)
            .min(self.max)
    }
}

/// A token bucket on tokio's clock.
pub(super) struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    last: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(rate: f64, burst: f64) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            last: Instant::now(),
        }
    }

    /// Takes a token, in debt if need be, and says how long until it is there.
    pub(super) fn reserve(&mut self, now: Instant) -> Duration {
        let gained = now.duration_since(self.last).as_secs_f64() * self.rate;
        self.tokens = (self.tokens + gained).min(self.burst) - 1.0;
        self.last = now;
        if self.tokens >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(-self.tokens / self.rate)
        }
    }
}
