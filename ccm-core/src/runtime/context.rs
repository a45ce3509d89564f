//! What every controller is given.

use std::sync::Arc;

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
}

impl Context {
    /// A recorder whose events carry this source component.
    pub fn recorder(&self, source: &'static str) -> EventRecorder {
        EventRecorder::new(source, Arc::clone(&self.events))
    }
}
