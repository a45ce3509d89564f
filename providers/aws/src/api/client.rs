//! The SDK clients: regions, endpoints, credentials, time limits (specification: aws §1.3, §1.4).
//!
//! Everything is set from the given configuration and environment; nothing is left to what the SDK
//! would find by itself, except for credentials that are not in the environment.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, identity::IdentityCache};
use aws_sdk_ec2::config::{
    AppName, AsyncSleep, RuntimeComponents, SharedAsyncSleep, SharedHttpClient, Sleep,
    StalledStreamProtectionConfig, endpoint::EndpointFuture,
};
use aws_smithy_http_client::{
    Builder as HttpBuilder, Connector,
    proxy::ProxyConfig,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_types::{
    endpoint::{Endpoint, EndpointAuthScheme},
    retry::RetryConfig,
    timeout::TimeoutConfig,
};
use aws_types::{
    SdkConfig,
    sdk_config::{SharedTimeSource, TimeSource},
};
use ccm_core::{
    config::Env,
    runtime::{Clock, Fence},
};
use prometheus::Registry;

use super::{ApiCalls, ApiMetrics, credentials, fence::Fenced};
use crate::config::{CloudConfig, EndpointService, unmatched};

/// How long a connection may take to open. The SDK's value for calls within a region.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1100);
/// How long one attempt may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an operation may take: three attempts, the waits between them, and credentials.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(150);
/// How long credentials may take: they may need calls of their own.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(30);
/// Attempts when `AWS_MAX_ATTEMPTS` does not say otherwise.
const MAX_ATTEMPTS: u32 = 3;
/// What our calls are known as in the cloud's logs.
const APP_NAME: &str = concat!("kubernetes-ccm-", env!("CARGO_PKG_VERSION"));

/// What the clients are made from.
pub struct Connect<'a> {
    /// The cloud-config file.
    pub config: &'a CloudConfig,
    /// The environment.
    pub env: &'a Env,
    /// The region of all clients.
    pub region: &'a str,
    /// How requests leave the process; see [`http_client`].
    pub http: SharedHttpClient,
    /// The wall clock, for signatures.
    pub clock: Clock,
    /// Where the series go.
    pub registry: &'a Registry,
    /// Asked before every attempt of a call that changes something.
    pub fence: Fence,
}

/// The clients, each with its door.
#[derive(Clone, Debug)]
pub struct Clients {
    /// EC2.
    pub ec2: aws_sdk_ec2::Client,
    /// Every EC2 call goes through it.
    pub ec2_calls: ApiCalls,
    /// Classic load balancers.
    pub elb: aws_sdk_elasticloadbalancing::Client,
    /// Every call about classic load balancers goes through it.
    pub elb_calls: ApiCalls,
    /// Network load balancers.
    pub elbv2: aws_sdk_elasticloadbalancingv2::Client,
    /// Every call about network load balancers goes through it.
    pub elbv2_calls: ApiCalls,
    /// The region of all of them.
    pub region: String,
}

impl Clients {
    /// Makes the clients; no call is made.
    ///
    /// # Errors
    /// The series could not be registered.
    pub async fn connect(connect: Connect<'_>) -> prometheus::Result<Self> {
        let metrics = ApiMetrics::register(connect.registry)?;
        for warning in unmatched(&connect.config.overrides, connect.region) {
            tracing::warn!("{warning}");
        }
        let base = credentials::with_credentials(&connect, base(&connect), &metrics).await;
        let (config, env, region) = (connect.config, connect.env, connect.region);

        let mut ec2 =
            aws_sdk_ec2::config::Builder::from(&base).interceptor(Fenced(connect.fence.clone()));
        ec2.set_endpoint_url(endpoint_url(env, "EC2"));
        if let Some(fixed) = FixedEndpoint::find(config, EndpointService::Ec2, region) {
            ec2 = ec2.endpoint_url(fixed.0.url()).endpoint_resolver(fixed);
        }
        let mut elb = aws_sdk_elasticloadbalancing::config::Builder::from(&base)
            .interceptor(Fenced(connect.fence.clone()));
        elb.set_endpoint_url(endpoint_url(env, "ELASTIC_LOAD_BALANCING"));
        if let Some(fixed) = FixedEndpoint::find(config, EndpointService::ClassicElb, region) {
            elb = elb.endpoint_url(fixed.0.url()).endpoint_resolver(fixed);
        }
        let mut elbv2 = aws_sdk_elasticloadbalancingv2::config::Builder::from(&base)
            .interceptor(Fenced(connect.fence.clone()));
        elbv2.set_endpoint_url(endpoint_url(env, "ELASTIC_LOAD_BALANCING_V2"));
        if let Some(fixed) = FixedEndpoint::find(config, EndpointService::Elbv2, region) {
            elbv2 = elbv2.endpoint_url(fixed.0.url()).endpoint_resolver(fixed);
        }
        Ok(Self {
            ec2: aws_sdk_ec2::Client::from_conf(ec2.build()),
            ec2_calls: ApiCalls::new(EndpointService::Ec2.id(), metrics.clone()),
            elb: aws_sdk_elasticloadbalancing::Client::from_conf(elb.build()),
            elb_calls: ApiCalls::new(EndpointService::ClassicElb.id(), metrics.clone()),
            elbv2: aws_sdk_elasticloadbalancingv2::Client::from_conf(elbv2.build()),
            elbv2_calls: ApiCalls::new(EndpointService::Elbv2.id(), metrics),
            region: region.to_owned(),
        })
    }
}

/// What all clients have in common, without credentials.
fn base(connect: &Connect<'_>) -> SdkConfig {
    let env = connect.env;
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(OPERATION_TIMEOUT)
        .build();
    let attempts = env
        .get("AWS_MAX_ATTEMPTS")
        .and_then(|text| text.parse().ok());
    let retries =
        RetryConfig::standard().with_max_attempts(attempts.unwrap_or(MAX_ATTEMPTS).max(1));
    let mut builder = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(connect.region.to_owned()))
        .http_client(connect.http.clone())
        .sleep_impl(sleep())
        .time_source(time_source(&connect.clock))
        .identity_cache(
            IdentityCache::lazy()
                .load_timeout(CREDENTIALS_TIMEOUT)
                .build(),
        )
        .timeout_config(timeouts)
        .retry_config(retries)
        // The attempt's time limit bounds a stalled answer too.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .use_fips(is_true(env, "AWS_USE_FIPS_ENDPOINT"))
        .use_dual_stack(is_true(env, "AWS_USE_DUALSTACK_ENDPOINT"));
    builder.set_app_name(AppName::new(APP_NAME).ok());
    builder.build()
}

/// How requests leave the process: HTTPS with ring, and as the Go manager does through the proxy of
/// `HTTPS_PROXY` or `HTTP_PROXY`, except to the hosts of `NO_PROXY`.
pub fn http_client() -> SharedHttpClient {
    // The one place where the environment is not passed in: the SDK cannot be told one proxy for
    // HTTP and another one for HTTPS in any other way.
    let proxy = ProxyConfig::from_env();
    HttpBuilder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder()
            .proxy_config(proxy.clone())
            .tls_provider(Provider::Rustls(CryptoMode::Ring));
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
        connector.build()
    })
}

/// `AWS_ENDPOINT_URL_<service>`, else `AWS_ENDPOINT_URL`.
pub(super) fn endpoint_url(env: &Env, service: &str) -> Option<String> {
    if is_true(env, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") {
        return None;
    }
    let url = env
        .get(&format!("AWS_ENDPOINT_URL_{service}"))
        .or_else(|| env.get("AWS_ENDPOINT_URL"));
    url.map(str::to_owned)
}

pub(super) fn is_true(env: &Env, name: &str) -> bool {
    env.get(name)
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// The SDK sleeps on tokio's clock, which may be virtual.
#[derive(Debug)]
struct TokioSleep;

impl AsyncSleep for TokioSleep {
    fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::new(tokio::time::sleep(duration))
    }
}

pub(super) fn sleep() -> SharedAsyncSleep {
    SharedAsyncSleep::new(TokioSleep)
}

/// The SDK signs with our wall clock, which may be virtual.
#[derive(Debug)]
struct ClockSource(Clock);

impl TimeSource for ClockSource {
    fn now(&self) -> std::time::SystemTime {
        self.0.now().into()
    }
}

pub(super) fn time_source(clock: &Clock) -> SharedTimeSource {
    SharedTimeSource::new(ClockSource(clock.clone()))
}

/// The endpoint of a matching `[ServiceOverride]`: used as it is, whatever region, FIPS or
/// dual-stack say.
#[derive(Clone, Debug)]
struct FixedEndpoint(Endpoint);

impl FixedEndpoint {
    fn find(config: &CloudConfig, client: EndpointService, region: &str) -> Option<Self> {
        let found = config
            .overrides
            .iter()
            .find(|one| one.applies(client, region))?;
        let mut scheme = EndpointAuthScheme::with_capacity("sigv4", 2)
            .put("signingRegion", found.signing_region.clone());
        if !found.signing_name.is_empty() {
            scheme = scheme.put("signingName", found.signing_name.clone());
        }
        Some(Self(
            Endpoint::builder()
                .url(found.url.clone())
                .auth_scheme(scheme)
                .build(),
        ))
    }
}

impl aws_sdk_ec2::config::endpoint::ResolveEndpoint for FixedEndpoint {
    fn resolve_endpoint(&self, _: &aws_sdk_ec2::config::endpoint::Params) -> EndpointFuture<'_> {
        EndpointFuture::ready(Ok(self.0.clone()))
    }
}

impl aws_sdk_elasticloadbalancingv2::config::endpoint::ResolveEndpoint for FixedEndpoint {
    fn resolve_endpoint(
        &self,
        _: &aws_sdk_elasticloadbalancingv2::config::endpoint::Params,
    ) -> EndpointFuture<'_> {
        EndpointFuture::ready(Ok(self.0.clone()))
    }
}

impl aws_sdk_elasticloadbalancing::config::endpoint::ResolveEndpoint for FixedEndpoint {
    fn resolve_endpoint(
        &self,
        _: &aws_sdk_elasticloadbalancing::config::endpoint::Params,
    ) -> EndpointFuture<'_> {
        EndpointFuture::ready(Ok(self.0.clone()))
    }
}
