//! What every controller is given.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{Clock, Loops, QueueMetrics, Random};
use crate::kube::{EventRecorder, EventSink};

/// The surroundings of a controller. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The API client: bounded in time, throttled by its flags.
    pub client: kube::Client,
    /// Where events go.
    pub events: Arc<dyn EventSink>,
    /// The wall clock.
    pub clock: Clock,
    /// Randomness.
    pub random: Random,
    /// Where metrics are registered.
    pub registry: prometheus::Registry,
    /// The work queue series.
    pub queues: QueueMetrics,
    /// Where loops tell of their passes.
    pub loops: Loops,
    /// Whether another replica led until now.
    pub took_over: TakeOver,
}

/// Whether another replica worked until now, so that what is only done from time to time need not
/// be done at once: a take-over does not read the whole cloud. Cheap to clone; `false` at first.
#[derive(Clone, Debug, Default)]
pub struct TakeOver(Arc<AtomicBool>);

impl TakeOver {
    /// Says that it did.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it did.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Context {
    /// A recorder whose events carry this source component.
    pub fn recorder(&self, source: &'static str) -> EventRecorder {
        EventRecorder::new(source, Arc::clone(&self.events))
    }
}
