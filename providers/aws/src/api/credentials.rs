//! Who we are to the cloud (specification: aws §1.4).
//!
//! Keys in the given environment come first; otherwise the SDK's default chain looks for web
//! identity, profile files, container and instance roles. With `RoleARN` these credentials only
//! serve to assume that role.

use aws_config::{
    Region, default_provider::credentials::DefaultCredentialsChain, provider_config::ProviderConfig,
};
use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider, error::CredentialsError, future},
};
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_runtime_api::{
    box_error::BoxError, client::interceptors::context::BeforeTransmitInterceptorContextMut,
};
use aws_types::SdkConfig;

use super::{
    ApiCalls, ApiMetrics, Connect,
    client::{endpoint_url, sleep, time_source},
};
use crate::config::account_of_arn;

/// How the assumed session is called in the cloud's logs.
const SESSION_NAME: &str = "kubernetes-cloud-controller-manager";
/// Where credentials from the environment come from, for messages.
const ENVIRONMENT: &str = "environment";

/// The configuration with the credentials that all clients use.
pub(super) async fn with_credentials(
    connect: &Connect<'_>,
    base: SdkConfig,
    metrics: &ApiMetrics,
) -> SdkConfig {
    let own = match from_env(connect) {
        Some(keys) => SharedCredentialsProvider::new(keys),
        None => from_chain(connect).await,
    };
    let base = base.into_builder().credentials_provider(own).build();
    if connect.config.role_arn.is_empty() {
        return base;
    }
    let role = AssumeRole::new(connect, &base, metrics);
    base.into_builder()
        .credentials_provider(SharedCredentialsProvider::new(role))
        .build()
}

fn from_env(connect: &Connect<'_>) -> Option<Credentials> {
    let env = connect.env;
    let key = env.get("AWS_ACCESS_KEY_ID")?;
    let secret = env.get("AWS_SECRET_ACCESS_KEY")?;
    let token = env.get("AWS_SESSION_TOKEN").map(str::to_owned);
    Some(Credentials::new(key, secret, token, None, ENVIRONMENT))
}

async fn from_chain(connect: &Connect<'_>) -> SharedCredentialsProvider {
    let region = Region::new(connect.region.to_owned());
    let config = ProviderConfig::empty()
        .with_region(Some(region.clone()))
        .with_http_client(connect.http.clone())
        .with_sleep_impl(sleep())
        .with_time_source(time_source(&connect.clock));
    let chain = DefaultCredentialsChain::builder()
        .configure(config)
        .region(region)
        .build()
        .await;
    SharedCredentialsProvider::new(chain)
}

/// Credentials of `RoleARN`. The clients' identity cache keeps them until they expire.
#[derive(Debug)]
struct AssumeRole {
    client: aws_sdk_sts::Client,
    calls: ApiCalls,
    role: String,
}

impl AssumeRole {
    fn new(connect: &Connect<'_>, base: &SdkConfig, metrics: &ApiMetrics) -> Self {
        let role = connect.config.role_arn.clone();
        let headers = SourceHeaders {
            account: account_of_arn(&role).unwrap_or_default().to_owned(),
            arn: connect.config.source_arn.clone(),
        };
        let mut sts = aws_sdk_sts::config::Builder::from(base).interceptor(headers);
        sts.set_endpoint_url(endpoint_url(connect.env, "STS"));
        Self {
            client: aws_sdk_sts::Client::from_conf(sts.build()),
            calls: ApiCalls::new("STS", metrics.clone()),
            role,
        }
    }

    async fn assume(&self) -> Result<Credentials, CredentialsError> {
        let send = self
            .client
            .assume_role()
            .role_arn(&self.role)
            .role_session_name(SESSION_NAME)
            .send();
        let answer = self
            .calls
            .call("AssumeRole", send)
            .await
            .map_err(CredentialsError::provider_error)?;
        let Some(keys) = answer.credentials else {
            return Err(CredentialsError::unhandled(
                "AssumeRole answered without credentials",
            ));
        };
        let expiry = (*keys.expiration()).try_into().ok();
        Ok(Credentials::new(
            keys.access_key_id,
            keys.secret_access_key,
            Some(keys.session_token),
            expiry,
            "AssumeRole",
        ))
    }
}

impl ProvideCredentials for AssumeRole {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.assume())
    }
}

/// Tells the role's trust policy for whom the role is assumed ("confused deputy" protection).
#[derive(Debug)]
struct SourceHeaders {
    account: String,
    arn: String,
}

impl Intercept for SourceHeaders {
    fn name(&self) -> &'static str {
        "SourceHeaders"
    }

    /// Before signing: the cloud refuses unsigned headers of its own.
    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request_mut().headers_mut();
        headers.try_insert("x-amz-source-account", self.account.clone())?;
        if !self.arn.is_empty() {
            headers.try_insert("x-amz-source-arn", self.arn.clone())?;
        }
        Ok(())
    }
}
