//! The node lifecycle controller's series (specification: controllers §8.1, REQ-LIFE-23).

use prometheus::{CounterVec, Histogram, HistogramOpts, Opts, Registry};

use crate::cloud::{CloudResult, Presence};

const EXISTS: &str = "instance_exists";
const SHUTDOWN: &str = "instance_shutdown";

pub(super) struct Metrics {
    /// One sample a round.
    pub(super) round_duration: Histogram,
    calls: CounterVec,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 15)?;
        let round_duration = Histogram::with_opts(
            HistogramOpts::new(
                "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
                "Seconds that one round over all Nodes took",
            )
            .buckets(buckets),
        )?;
        let calls = CounterVec::new(
            Opts::new(
                "cloud_node_lifecycle_controller_cloud_provider_calls_total",
                "Questions to the cloud, one for each Node asked about",
            ),
            &["operation", "result"],
        )?;
        registry.register(Box::new(round_duration.clone()))?;
        registry.register(Box::new(calls.clone()))?;
        Ok(Self {
            round_duration,
            calls,
        })
    }

    /// Counts one answer. It holds what the Go framework asks in two calls: whether the machine
    /// exists and, if so, whether it is shut down.
    pub(super) fn count(&self, answer: &CloudResult<Presence>) {
        let exists = match answer {
            Ok(Presence::Present(_)) => "success",
            Ok(Presence::Absent) => "instance_not_found",
            Err(error) if error.is_not_found() => "instance_not_found",
            Err(_) => "error",
        };
        self.calls.with_label_values(&[EXISTS, exists]).inc();
        if matches!(answer, Ok(Presence::Present(_))) {
            self.calls.with_label_values(&[SHUTDOWN, "success"]).inc();
        }
    }
}

/// Registers the series with one sample each, for the reference.
pub(crate) fn sample_metrics(registry: &Registry) -> prometheus::Result<()> {
    Metrics::new(registry)?.count(&Ok(Presence::Absent));
    Ok(())
}
