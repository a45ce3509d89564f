//! Randomness, passed in so that a run can be repeated from its seed.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A shared source of random numbers for jitter. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(Arc<Mutex<fastrand::Rng>>);

impl Random {
    /// The same numbers for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// Other numbers in every process.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that takes a seed from the system"
    )]
    pub fn from_system() -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// A number in `[0, 1)`.
    pub fn fraction(&self) -> f64 {
        self.with(fastrand::Rng::f64)
    }

    /// Any number.
    pub fn number(&self) -> u64 {
        self.with(|rng| rng.u64(..))
    }

    /// `duration × [1, 1 + factor)`, as the Go library's jitter.
    pub fn jitter(&self, duration: Duration, factor: f64) -> Duration {
        duration.mul_f64(1.0 + self.fraction() * factor)
    }

    fn with<T>(&self, f: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let random = Random::seeded(seed);
            (0..8).map(|_| random.number()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn jitter_stays_in_its_range() {
        let random = Random::seeded(1);
        for _ in 0..1000 {
            let d = random.jitter(Duration::from_millis(50), 1.0);
            assert!(d >= Duration::from_millis(50) && d < Duration::from_millis(100));
        }
    }
}
