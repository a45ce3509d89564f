//! The `rest_client_…` series (specification: controllers §8.2).
//!
//! As in the Go library: `rest_client_requests_total` counts every try, watches included; duration
//! and sizes are those of whole requests and leave watches out, whose bodies are endless. The
//! label `verb` is the HTTP method.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// The Go library's word for a request without an answer.
const NO_ANSWER: &str = "<error>";

/// Seconds.
const LATENCIES: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// Bytes.
const SIZES: [f64; 11] = [
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

/// The series of all clients of one process.
#[derive(Clone)]
pub(super) struct Series {
    requests: IntCounterVec,
    retries: IntCounterVec,
    duration: HistogramVec,
    rate_limiter: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
}

impl Series {
    /// Registers them.
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            prometheus::Result::Ok(counter)
        };
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let histogram = HistogramVec::new(opts, &["verb", "host"])?;
            registry.register(Box::new(histogram.clone()))?;
            prometheus::Result::Ok(histogram)
        };
        Ok(Self {
            requests: counter(
                "rest_client_requests_total",
                "Number of HTTP requests, partitioned by status code, method, and host.",
                &["code", "method", "host"],
            )?,
            retries: counter(
                "rest_client_request_retries_total",
                "Number of request retries, partitioned by status code, verb, and host.",
                &["code", "verb", "host"],
            )?,
            duration: histogram(
                "rest_client_request_duration_seconds",
                "Request latency in seconds. Broken down by verb, and host.",
                &LATENCIES,
            )?,
            rate_limiter: histogram(
                "rest_client_rate_limiter_duration_seconds",
                "Client side rate limiter latency in seconds. Broken down by verb, and host.",
                &LATENCIES,
            )?,
            request_size: histogram(
                "rest_client_request_size_bytes",
                "Request size in bytes. Broken down by verb and host.",
                &SIZES,
            )?,
            response_size: histogram(
                "rest_client_response_size_bytes",
                "Response size in bytes. Broken down by verb and host.",
                &SIZES,
            )?,
        })
    }

    /// One try of one request: `None` is no answer.
    pub(super) fn tried(&self, code: Option<u16>, verb: &str, host: &str) {
        self.requests
            .with_label_values(&[code_text(code).as_str(), verb, host])
            .inc();
    }

    /// The answer with this code is followed by another try.
    pub(super) fn retried(&self, code: u16, verb: &str, host: &str) {
        self.retries
            .with_label_values(&[code.to_string().as_str(), verb, host])
            .inc();
    }

    /// A whole request, retries and the body of the answer included.
    pub(super) fn took(&self, verb: &str, host: &str, time: Duration) {
        self.duration
            .with_label_values(&[verb, host])
            .observe(time.as_secs_f64());
    }

    /// The wait for the client-side rate.
    pub(super) fn throttled(&self, verb: &str, host: &str, time: Duration) {
        self.rate_limiter
            .with_label_values(&[verb, host])
            .observe(time.as_secs_f64());
    }

    /// The body that was sent.
    pub(super) fn sent(&self, verb: &str, host: &str, bytes: u64) {
        self.request_size
            .with_label_values(&[verb, host])
            .observe(approximately(bytes));
    }

    /// The body that was received, to its end.
    pub(super) fn received(&self, verb: &str, host: &str, bytes: u64) {
        self.response_size
            .with_label_values(&[verb, host])
            .observe(approximately(bytes));
    }
}

fn code_text(code: Option<u16>) -> String {
    code.map_or_else(|| NO_ANSWER.to_owned(), |code| code.to_string())
}

/// Sizes as the metrics library wants them.
fn approximately(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Registers the series with one sample each, for the reference.
pub(crate) fn sample_client_metrics(registry: &Registry) -> prometheus::Result<()> {
    let series = Series::new(registry)?;
    series.tried(Some(200), "GET", "");
    series.retried(429, "GET", "");
    series.took("GET", "", Duration::ZERO);
    series.throttled("GET", "", Duration::ZERO);
    series.sent("GET", "", 0);
    series.received("GET", "", 0);
    Ok(())
}
