//! One door for every call: delay after refusals, error conversion, series
//! (specification: aws §7.1, §7.2).

use std::{future::Future, sync::Arc};

use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use ccm_core::cloud::{Class, CloudError, CloudResult};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, core::Collector};
use tokio::time::Instant;

use super::Throttle;
use crate::error;

/// The series of the cloud calls. Names and labels must not change: dashboards depend on them.
#[derive(Clone, Debug)]
pub struct ApiMetrics {
    duration: HistogramVec,
    errors: IntCounterVec,
    throttled: IntCounterVec,
    status: IntCounterVec,
}

impl ApiMetrics {
    /// Makes and registers the series. A second registration replaces the first: a provider that
    /// could not reach its cloud is built again with the same registry.
    ///
    /// # Errors
    /// Another part of the process registered one of these names with other labels.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            duration: HistogramVec::new(
                HistogramOpts::new(
                    "cloudprovider_aws_api_request_duration_seconds",
                    "Latency of successful AWS API calls",
                ),
                &["request"],
            )?,
            errors: IntCounterVec::new(
                Opts::new("cloudprovider_aws_api_request_errors", "AWS API errors"),
                &["request"],
            )?,
            throttled: IntCounterVec::new(
                Opts::new(
                    "cloudprovider_aws_api_throttled_requests_total",
                    "AWS API throttled requests",
                ),
                &["operation_name"],
            )?,
            status: IntCounterVec::new(
                Opts::new(
                    "cloudprovider_aws_api_response_status_total",
                    "AWS API operations that finally failed, by HTTP status",
                ),
                &["service", "operation", "status_code"],
            )?,
        };
        replace(registry, &metrics.duration)?;
        replace(registry, &metrics.errors)?;
        replace(registry, &metrics.throttled)?;
        replace(registry, &metrics.status)?;
        Ok(metrics)
    }
}

/// Registers the series with one sample each, for the reference.
///
/// # Errors
/// As [`ApiMetrics::register`].
pub fn sample_metrics(registry: &Registry) -> prometheus::Result<()> {
    let metrics = ApiMetrics::register(registry)?;
    metrics.duration.with_label_values(&[""]);
    metrics.errors.with_label_values(&[""]);
    metrics.throttled.with_label_values(&[""]);
    metrics.status.with_label_values(&["", "", ""]);
    Ok(())
}

fn replace(
    registry: &Registry,
    collector: &(impl Collector + Clone + 'static),
) -> prometheus::Result<()> {
    // Fails when it was not registered before, which is the usual case.
    let _ = registry.unregister(Box::new(collector.clone()));
    registry.register(Box::new(collector.clone()))
}

/// The door to one service.
#[derive(Clone, Debug)]
pub struct ApiCalls {
    service: &'static str,
    throttle: Arc<Throttle>,
    metrics: ApiMetrics,
}

impl ApiCalls {
    /// The door to the service of this SDK id, e.g. `EC2`.
    pub fn new(service: &'static str, metrics: ApiMetrics) -> Self {
        Self {
            service,
            throttle: Arc::new(Throttle::new(Instant::now())),
            metrics,
        }
    }

    /// One whole operation, e.g. `CreateSecurityGroup`: one observation.
    ///
    /// # Errors
    /// The cloud refused, or gave no answer.
    pub fn call<'a, T, E>(
        &'a self,
        operation: &'static str,
        send: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'a,
    ) -> impl Future<Output = CloudResult<T>> + Send + 'a
    where
        T: Send + 'a,
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        self.paged(operation, self.page(operation, send))
    }

    /// One page of an operation, inside of [`Self::paged`]: no observation of its own.
    ///
    /// # Errors
    /// The cloud refused, or gave no answer.
    pub fn page<'a, T, E>(
        &'a self,
        operation: &'static str,
        send: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'a,
    ) -> impl Future<Output = CloudResult<T>> + Send + 'a
    where
        T: Send + 'a,
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        // The SDK's futures are large: on the heap before anything awaits them.
        let send = Box::pin(send);
        async move {
            self.wait(operation).await;
            send.await.map_err(|error| self.failed(operation, error))
        }
    }

    /// All pages of an operation: one observation for the whole.
    ///
    /// # Errors
    /// Whatever `pages` fails with.
    pub fn paged<'a, T: Send + 'a>(
        &'a self,
        operation: &'static str,
        pages: impl Future<Output = CloudResult<T>> + Send + 'a,
    ) -> impl Future<Output = CloudResult<T>> + Send + 'a {
        let pages = Box::pin(pages);
        async move {
            let start = Instant::now();
            let answer = pages.await;
            let label = label(operation);
            match &answer {
                Ok(_) => {
                    let seconds = start.elapsed().as_secs_f64();
                    self.metrics
                        .duration
                        .with_label_values(&[&label])
                        .observe(seconds);
                }
                Err(_) => self.metrics.errors.with_label_values(&[&label]).inc(),
            }
            answer
        }
    }

    /// Waits when many of the last calls were refused.
    async fn wait(&self, operation: &'static str) {
        let delay = self.throttle.delay(Instant::now());
        if delay.is_zero() {
            return;
        }
        tracing::warn!(
            service = self.service,
            operation,
            delay_seconds = delay.as_secs(),
            "delayed a cloud call because recent ones were throttled"
        );
        tokio::time::sleep(delay).await;
    }

    fn failed<E>(&self, operation: &'static str, error: SdkError<E, HttpResponse>) -> CloudError
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let status = error
            .raw_response()
            .map(|response| response.status().as_u16());
        let error = error::from_sdk(self.service, operation, error);
        if let Some(status) = status.filter(|status| *status >= 400) {
            let labels = [self.service, operation, &status.to_string()];
            self.metrics.status.with_label_values(&labels).inc();
        }
        if matches!(error.class(), Class::Throttled { .. }) {
            self.throttle.refused();
            self.metrics.throttled.with_label_values(&[operation]).inc();
        }
        error
    }
}

/// The value of the label `request`: snake case. `DescribeInstances` has a singular one, for
/// reasons lost in the Go manager's history.
fn label(operation: &str) -> String {
    if operation == "DescribeInstances" {
        return "describe_instance".to_owned();
    }
    let mut label = String::new();
    for c in operation.chars() {
        if c.is_ascii_uppercase() && !label.is_empty() {
            label.push('_');
        }
        label.push(c.to_ascii_lowercase());
    }
    label
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_sdk_ec2::operation::describe_instances::DescribeInstancesError;
    use aws_smithy_runtime_api::{client::result::ConnectorError, http::StatusCode};
    use aws_smithy_types::{body::SdkBody, error::ErrorMetadata};

    use super::*;

    type Failed = SdkError<DescribeInstancesError, HttpResponse>;

    fn refused(status: u16, code: &str) -> Failed {
        let status = StatusCode::try_from(status).unwrap();
        let meta = ErrorMetadata::builder().code(code).build();
        SdkError::service_error(
            DescribeInstancesError::generic(meta),
            HttpResponse::new(status, SdkBody::empty()),
        )
    }

    fn door(service: &'static str) -> (ApiCalls, Registry) {
        let registry = Registry::new();
        let metrics = ApiMetrics::register(&registry).unwrap();
        (ApiCalls::new(service, metrics), registry)
    }

    fn text(registry: &Registry) -> String {
        prometheus::TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap()
    }

    /// REQ-AWS-MET-1
    #[tokio::test(start_paused = true)]
    async fn three_pages_are_one_observation() {
        let (calls, registry) = door("EC2");
        let pages = async {
            for _ in 0..3 {
                calls
                    .page("DescribeInstances", async { Ok::<_, Failed>(()) })
                    .await?;
            }
            Ok(())
        };
        calls.paged("DescribeInstances", pages).await.unwrap();
        let series = text(&registry);
        assert!(
            series.contains(
                "cloudprovider_aws_api_request_duration_seconds_count{request=\"describe_instance\"} 1\n"
            ),
            "{series}"
        );
        assert!(!series.contains("response_status_total{"), "{series}");
    }

    /// REQ-AWS-MET-2, REQ-AWS-MET-3
    #[tokio::test(start_paused = true)]
    async fn a_failed_operation_is_counted_by_name_and_by_status() {
        let (calls, registry) = door("EC2");
        let failed = async { Err::<(), _>(refused(400, "InvalidParameterValue")) };
        calls.call("DescribeInstances", failed).await.unwrap_err();
        let series = text(&registry);
        for line in [
            "cloudprovider_aws_api_request_errors{request=\"describe_instance\"} 1",
            "cloudprovider_aws_api_response_status_total{operation=\"DescribeInstances\",service=\"EC2\",status_code=\"400\"} 1",
        ] {
            assert!(series.contains(line), "{line}\n{series}");
        }
        assert!(!series.contains("throttled_requests_total{"), "{series}");
    }

    /// REQ-AWS-MET-4, REQ-AWS-MET-5
    #[tokio::test(start_paused = true)]
    async fn every_throttling_code_is_counted_and_delays_the_next_call() {
        for (service, code, status) in [
            ("EC2", "RequestLimitExceeded", 503),
            ("Elastic Load Balancing v2", "Throttling", 400),
            ("Elastic Load Balancing v2", "ThrottlingException", 400),
        ] {
            let (calls, registry) = door(service);
            let failed = async { Err::<(), _>(refused(status, code)) };
            calls
                .call("DescribeTargetHealth", failed)
                .await
                .unwrap_err();
            let line = "throttled_requests_total{operation_name=\"DescribeTargetHealth\"} 1";
            assert!(text(&registry).contains(line));
            let start = Instant::now();
            calls
                .call("DescribeTargetHealth", async { Ok::<_, Failed>(()) })
                .await
                .unwrap();
            assert_eq!(start.elapsed(), Duration::from_secs(10));
        }
    }

    /// REQ-AWS-RETRY-7
    #[tokio::test(start_paused = true)]
    async fn a_delayed_call_ends_at_once_when_its_caller_ends() {
        let (calls, _) = door("EC2");
        let failed = async { Err::<(), _>(refused(503, "RequestLimitExceeded")) };
        calls.call("DescribeInstances", failed).await.unwrap_err();
        let sent = std::sync::atomic::AtomicBool::new(false);
        let next = calls.call("DescribeInstances", async {
            sent.store(true, std::sync::atomic::Ordering::Relaxed);
            Ok::<_, Failed>(())
        });
        let ended = tokio::time::timeout(Duration::from_secs(1), next).await;
        assert!(ended.is_err() && !sent.into_inner());
    }

    /// REQ-AWS-MET-6
    #[tokio::test(start_paused = true)]
    async fn a_call_without_answer_has_no_status() {
        let (calls, registry) = door("EC2");
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let failed: Failed = SdkError::dispatch_failure(ConnectorError::io(refused.into()));
        calls
            .call("DescribeInstances", async { Err::<(), _>(failed) })
            .await
            .unwrap_err();
        assert!(!text(&registry).contains("response_status_total{"));
    }

    #[test]
    fn a_second_registration_replaces_the_first() {
        let registry = Registry::new();
        ApiMetrics::register(&registry).unwrap();
        ApiMetrics::register(&registry).unwrap();
    }

    #[test]
    fn labels_are_snake_case() {
        assert_eq!(label("DescribeInstances"), "describe_instance");
        assert_eq!(
            label("DescribeNetworkInterfaces"),
            "describe_network_interfaces"
        );
        assert_eq!(label("CreateTags"), "create_tags");
    }
}
