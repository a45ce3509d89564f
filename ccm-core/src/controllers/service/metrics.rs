//! The series of this controller (specification: controllers §8.1).

use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};
use tokio::time::Instant;

/// 1 s doubling fifteen times, as the Go manager's.
const BUCKETS: (f64, f64, usize) = (1.0, 2.0, 15);

/// The series.
#[derive(Clone)]
pub(super) struct Metrics {
    /// Host updates sent. Ensures do not count, as upstream.
    pub syncs: IntCounter,
    /// Host updates that failed.
    pub node_sync_errors: IntCounter,
    /// From a node change until every load balancer has the new backends.
    pub node_sync_latency: Histogram,
    /// One host update.
    pub update_latency: Histogram,
}

impl Metrics {
    /// Registers the series.
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let histogram = |name: &str, help: &str| {
            let (start, factor, count) = BUCKETS;
            let buckets = prometheus::exponential_buckets(start, factor, count)?;
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))
        };
        let metrics = Self {
            syncs: IntCounter::new(
                "service_controller_loadbalancer_sync_total",
                "Backend updates sent to load balancers because of node changes",
            )?,
            node_sync_errors: IntCounter::new(
                "service_controller_nodesync_error_total",
                "Backend updates of load balancers that failed",
            )?,
            node_sync_latency: histogram(
                "service_controller_nodesync_latency_seconds",
                "Seconds from a node change until all load balancers were given the new backends",
            )?,
            update_latency: histogram(
                "service_controller_update_loadbalancer_host_latency_seconds",
                "Seconds that the backend update of one load balancer took",
            )?,
        };
        registry.register(Box::new(metrics.syncs.clone()))?;
        registry.register(Box::new(metrics.node_sync_errors.clone()))?;
        registry.register(Box::new(metrics.node_sync_latency.clone()))?;
        registry.register(Box::new(metrics.update_latency.clone()))?;
        Ok(metrics)
    }
}

/// Registers the series, for the reference.
pub(crate) fn sample_metrics(registry: &Registry) -> prometheus::Result<()> {
    Metrics::new(registry).map(drop)
}

/// One node change on its way through all Services. The latency is observed when the last one
/// that waits for it lets go.
#[derive(Debug)]
pub(super) struct Pass {
    start: Instant,
    latency: Histogram,
}

impl Pass {
    pub(super) fn start(metrics: &Metrics) -> Self {
        Self {
            start: Instant::now(),
            latency: metrics.node_sync_latency.clone(),
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.latency.observe(self.start.elapsed().as_secs_f64());
    }
}
