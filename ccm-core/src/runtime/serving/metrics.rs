//! The series of the secure port (specification: controllers §8.3).

use std::time::Duration;

use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::runtime::Probe;

/// The bounds of upstream.
const BUCKETS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];

/// Requests for reviews by the status of the answer: `apiserver_delegated_authn_…` and
/// `apiserver_delegated_authz_…` (specification: controllers §8.3).
#[derive(Clone)]
pub struct DelegatedMetrics {
    pub(super) authentication: ReviewMetrics,
    pub(super) authorization: ReviewMetrics,
}

#[derive(Clone)]
pub(super) struct ReviewMetrics {
    requests: IntCounterVec,
    duration: HistogramVec,
}

impl ReviewMetrics {
    fn new(
        registry: &Registry,
        requests: prometheus::Result<IntCounterVec>,
        duration: prometheus::Result<HistogramVec>,
    ) -> prometheus::Result<Self> {
        let series = Self {
            requests: requests?,
            duration: duration?,
        };
        registry.register(Box::new(series.requests.clone()))?;
        registry.register(Box::new(series.duration.clone()))?;
        Ok(series)
    }

    pub(super) fn observe(&self, code: &str, took: Duration) {
        self.requests.with_label_values(&[code]).inc();
        let duration = self.duration.with_label_values(&[code]);
        duration.observe(took.as_secs_f64());
    }
}

impl DelegatedMetrics {
    /// Registers the series.
    ///
    /// # Errors
    /// A series of that name is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name: &str| {
            let opts = Opts::new(name, "Number of HTTP requests partitioned by status code.");
            IntCounterVec::new(opts, &["code"])
        };
        let histogram = |name: &str| {
            let help = "Request latency in seconds. Broken down by status code.";
            let opts = HistogramOpts::new(name, help).buckets(BUCKETS.to_vec());
            HistogramVec::new(opts, &["code"])
        };
        Ok(Self {
            authentication: ReviewMetrics::new(
                registry,
                counter("apiserver_delegated_authn_request_total"),
                histogram("apiserver_delegated_authn_request_duration_seconds"),
            )?,
            authorization: ReviewMetrics::new(
                registry,
                counter("apiserver_delegated_authz_request_total"),
                histogram("apiserver_delegated_authz_request_duration_seconds"),
            )?,
        })
    }
}

/// The results of the health checks as told by `/metrics/slis`. They have a registry of their own.
#[derive(Clone)]
pub(super) struct HealthMetrics {
    last: GaugeVec,
    total: IntCounterVec,
}

impl HealthMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let last = GaugeVec::new(
            Opts::new(
                "kubernetes_healthcheck",
                "This metric records the result of a single healthcheck.",
            ),
            &["name", "type"],
        )?;
        let total = IntCounterVec::new(
            Opts::new(
                "kubernetes_healthchecks_total",
                "This metric records the results of all healthcheck.",
            ),
            &["name", "type", "status"],
        )?;
        registry.register(Box::new(last.clone()))?;
        registry.register(Box::new(total.clone()))?;
        Ok(Self { last, total })
    }

    pub(super) fn observe(&self, probe: Probe, checks: &[(String, bool)]) {
        for (name, passed) in checks {
            let labels = [name.as_str(), probe.name()];
            let last = self.last.with_label_values(&labels);
            last.set(f64::from(u8::from(*passed)));
            let status = if *passed { "success" } else { "error" };
            let labels = [name.as_str(), probe.name(), status];
            self.total.with_label_values(&labels).inc();
        }
    }

    pub(super) fn reset(&self) {
        self.last.reset();
        self.total.reset();
    }
}

/// Registers the series with one sample each, for the reference.
pub(in crate::runtime) fn sample_serving_metrics(registry: &Registry) -> prometheus::Result<()> {
    let delegated = DelegatedMetrics::new(registry)?;
    for series in [delegated.authentication, delegated.authorization] {
        series.observe("201", Duration::ZERO);
    }
    HealthMetrics::new(registry)?.observe(Probe::Health, &[("ping".to_owned(), true)]);
    Ok(())
}
