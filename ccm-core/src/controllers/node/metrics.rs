//! The node controller's series (specification: controllers §8.1).

use prometheus::{Histogram, HistogramOpts, Registry};

/// Both delays, counted from the Node's creation, once for each initialisation (REQ-NODE-25).
pub(super) struct Metrics {
    /// Until the cloud taint was removed.
    pub(super) taint_removal_delay: Histogram,
    /// Until the initialisation was complete.
    pub(super) initial_sync_delay: Histogram,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let histogram = |name: &str, help: &str| {
            let buckets = prometheus::exponential_buckets(1.0, 4.0, 6)?;
            let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        Ok(Self {
            taint_removal_delay: histogram(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "Seconds from the creation of a Node until its cloud taint was removed",
            )?,
            initial_sync_delay: histogram(
                "node_controller_initial_node_sync_delay_seconds",
                "Seconds from the creation of a Node until it was initialised",
            )?,
        })
    }
}

/// Registers the series, for the reference.
pub(crate) fn sample_metrics(registry: &Registry) -> prometheus::Result<()> {
    Metrics::new(registry).map(drop)
}
