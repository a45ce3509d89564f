//! A cloud in memory, and the provider that an honest manager would have for it.
//!
//! The cloud ([`MemCloud`], [`model`]) keeps machines, the parts of load balancers and a route
//! table, refuses what a cloud refuses, and remembers its past, so that reads can lag behind. The
//! provider ([`provider`]) makes a load balancer of several parts, each by a call of its own
//! through a [`Session`], so that a crash or a fault between two calls leaves a half-made thing.
//! What the provider decides is in [`craft`]: a planted defect replaces one decision.

pub mod craft;
mod instances;
mod load_balancers;
pub mod model;
pub mod provider;
mod routes;
pub mod session;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

pub use self::{craft::Craft, model::Model, provider::factory, session::Session};

/// How long the past is kept: longer than any lag.
const PAST: Duration = Duration::from_secs(120);

#[derive(Debug)]
struct Inner {
    /// The states with the moment since which they hold, oldest first; never empty.
    states: VecDeque<(Instant, Arc<Model>)>,
    lag: Duration,
}

/// The cloud. Clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct MemCloud(Arc<Mutex<Inner>>);

impl MemCloud {
    /// A cloud in this state.
    pub fn new(model: Model) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            states: VecDeque::from([(Instant::now(), Arc::new(model))]),
            lag: Duration::ZERO,
        })))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The cloud as it is.
    pub fn now(&self) -> Arc<Model> {
        self.with(|inner| inner.newest())
    }

    /// The cloud as a client sees it that made its last change at `own`: not older than that, and
    /// not older than the lag.
    pub fn seen(&self, own: Option<Instant>) -> Arc<Model> {
        self.with(|inner| {
            let now = Instant::now();
            let lagging = now.checked_sub(inner.lag).unwrap_or(now);
            let at = own.map_or(lagging, |own| own.max(lagging));
            let seen = inner.states.iter().rev().find(|(since, _)| *since <= at);
            // Before the beginning: the oldest that is kept.
            let seen = seen.or_else(|| inner.states.front());
            seen.map(|(_, model)| Arc::clone(model)).unwrap_or_default()
        })
    }

    /// Changes the cloud.
    pub fn change<T>(&self, f: impl FnOnce(&mut Model) -> T) -> T {
        self.with(|inner| {
            let mut model = Model::clone(&inner.newest());
            let result = f(&mut model);
            let now = Instant::now();
            inner.states.push_back((now, Arc::new(model)));
            while inner.states.len() > 1
                && inner
                    .states
                    .get(1)
                    .is_some_and(|(since, _)| now.duration_since(*since) > PAST)
            {
                inner.states.pop_front();
            }
            result
        })
    }

    /// Reads lag behind by this from now on.
    pub fn set_lag(&self, lag: Duration) {
        self.with(|inner| inner.lag = lag);
    }
}

impl Inner {
    fn newest(&self) -> Arc<Model> {
        let newest = self.states.back();
        newest
            .map(|(_, model)| Arc::clone(model))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reads_lag_behind_but_never_behind_what_the_client_wrote() {
        let cloud = MemCloud::new(Model::default());
        cloud.set_lag(Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(10)).await;
        cloud.change(|model| model.launch("a"));
        let machines = |own| cloud.seen(own).machines.len();
        assert_eq!(machines(None), 0);
        assert_eq!(machines(Some(Instant::now())), 1);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(machines(None), 1);
    }
}
