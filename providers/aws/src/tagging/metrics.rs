//! The series of the tagging controller. Names and labels must not change: dashboards depend on them.

use prometheus::{
    Histogram, HistogramOpts, IntCounterVec, Opts, Registry, core::Collector, exponential_buckets,
};

/// An item failed.
pub(super) const TOTAL: &str = "total_errors";
/// An item was given up.
pub(super) const EXHAUSTED: &str = "errors_after_retries_exhausted";

#[derive(Clone)]
pub(super) struct Metrics {
    errors: IntCounterVec,
    delay: Histogram,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            errors: IntCounterVec::new(
                Opts::new(
                    "cloudprovider_aws_tagging_controller_work_item_errors_total",
                    "Work items of the tagging controller that failed, while the Node is there",
                ),
                &["error_type", "instance_id"],
            )?,
            delay: Histogram::with_opts(
                HistogramOpts::new(
                    // The slip in the name is part of it.
                    "tagging_controller_inital_node_tagging_delay_seconds",
                    "Seconds from the creation of a Node to its first tagging",
                )
                .buckets(exponential_buckets(1.0, 4.0, 6)?),
            )?,
        };
        register(registry, &metrics.errors)?;
        register(registry, &metrics.delay)?;
        Ok(metrics)
    }

    pub(super) fn count(&self, kind: &str, instance: &str) {
        self.errors.with_label_values(&[kind, instance]).inc();
    }

    /// Drops the series of an instance: there would be ever more of them.
    pub(super) fn forget(&self, instance: &str) {
        for kind in [TOTAL, EXHAUSTED] {
            // Fails when the instance never failed.
            let _ = self.errors.remove_label_values(&[kind, instance]);
        }
    }

    pub(super) fn observe_delay(&self, seconds: f64) {
        self.delay.observe(seconds);
    }
}

fn register(
    registry: &Registry,
    collector: &(impl Collector + Clone + 'static),
) -> prometheus::Result<()> {
    registry.register(Box::new(collector.clone()))
}

/// Registers the series with one sample each, for the reference.
///
/// # Errors
/// A series of that name is registered already.
pub fn sample_metrics(registry: &Registry) -> prometheus::Result<()> {
    Metrics::new(registry)?.count(TOTAL, "");
    Ok(())
}
