//! The work queue series, label `name` (specification: controllers §8.2, REQ-MET-02).

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{
    CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, core::Collector,
};

type Refresh = Box<dyn Fn() -> bool + Send + Sync>;

/// The work queue series of one process, label `name` (specification: controllers §8.2).
#[derive(Clone)]
pub struct QueueMetrics(Arc<Families>);

struct Families {
    depth: GaugeVec,
    adds: CounterVec,
    retries: CounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    unfinished: GaugeVec,
    longest_running: GaugeVec,
    refresh: Mutex<Vec<Refresh>>,
}

pub(super) struct Series {
    pub(super) depth: prometheus::Gauge,
    pub(super) adds: prometheus::Counter,
    pub(super) retries: prometheus::Counter,
    pub(super) queue_duration: prometheus::Histogram,
    pub(super) work_duration: prometheus::Histogram,
    pub(super) unfinished: prometheus::Gauge,
    pub(super) longest_running: prometheus::Gauge,
}

impl QueueMetrics {
    /// Registers the series.
    ///
    /// # Errors
    /// A series of that name is registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        fn register<C: Collector + Clone + 'static>(
            registry: &Registry,
            collector: C,
        ) -> Result<C, prometheus::Error> {
            registry.register(Box::new(collector.clone()))?;
            Ok(collector)
        }
        let name = &["name"];
        let buckets = prometheus::exponential_buckets(1e-8, 10.0, 10)?;
        let gauge = |metric: &str, help: &str| GaugeVec::new(Opts::new(metric, help), name);
        let counter = |metric: &str, help: &str| CounterVec::new(Opts::new(metric, help), name);
        let histogram = |metric: &str, help: &str| {
            HistogramVec::new(
                HistogramOpts::new(metric, help).buckets(buckets.clone()),
                name,
            )
        };
        Ok(Self(Arc::new(Families {
            depth: register(
                registry,
                gauge("workqueue_depth", "Current depth of workqueue")?,
            )?,
            adds: register(
                registry,
                counter(
                    "workqueue_adds_total",
                    "Total number of adds handled by workqueue",
                )?,
            )?,
            retries: register(
                registry,
                counter(
                    "workqueue_retries_total",
                    "Total number of retries handled by workqueue",
                )?,
            )?,
            queue_duration: register(
                registry,
                histogram(
                    "workqueue_queue_duration_seconds",
                    "How long in seconds an item stays in workqueue before being requested",
                )?,
            )?,
            work_duration: register(
                registry,
                histogram(
                    "workqueue_work_duration_seconds",
                    "How long in seconds processing an item from workqueue takes",
                )?,
            )?,
            unfinished: register(
                registry,
                gauge(
                    "workqueue_unfinished_work_seconds",
                    "Seconds of work in progress that work_duration does not show yet",
                )?,
            )?,
            longest_running: register(
                registry,
                gauge(
                    "workqueue_longest_running_processor_seconds",
                    "Seconds that the longest running processor has been running",
                )?,
            )?,
            refresh: Mutex::default(),
        })))
    }

    /// Registers the series with one sample each, for the reference.
    pub(in crate::runtime) fn sample(registry: &Registry) -> prometheus::Result<()> {
        Self::new(registry)?.series("");
        Ok(())
    }

    /// Brings the series that depend on the time of reading up to date. Call before gathering.
    pub fn refresh(&self) {
        self.0
            .refresh
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|alive| alive());
    }

    pub(super) fn on_refresh(&self, refresh: Refresh) {
        self.0
            .refresh
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(refresh);
    }

    pub(super) fn series(&self, name: &str) -> Series {
        let label = &[name];
        Series {
            depth: self.0.depth.with_label_values(label),
            adds: self.0.adds.with_label_values(label),
            retries: self.0.retries.with_label_values(label),
            queue_duration: self.0.queue_duration.with_label_values(label),
            work_duration: self.0.work_duration.with_label_values(label),
            unfinished: self.0.unfinished.with_label_values(label),
            longest_running: self.0.longest_running.with_label_values(label),
        }
    }
}
