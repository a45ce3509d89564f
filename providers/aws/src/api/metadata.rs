//! The instance metadata service: who and where we are, when the configuration does not say so
//! (specification: aws §1.4).

use std::time::Duration;

use aws_config::{imds, provider_config::ProviderConfig};
use aws_sdk_ec2::config::SharedHttpClient;
use ccm_core::{
    cloud::{CloudError, CloudResult},
    config::Env,
    runtime::Clock,
};
use serde::Deserialize;

use super::client::{is_true, sleep, time_source};
use crate::{
    config::{CloudConfig, EndpointService},
    error::causes,
    instances::InstanceId,
};

/// The service is in the same machine: whatever takes longer is a dropped packet.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);
/// One answer.
const READ_TIMEOUT: Duration = Duration::from_millis(500);
/// One look-up with all its attempts.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts of one request.
const MAX_ATTEMPTS: u32 = 3;

const IPV4: &str = "http://169.254.169.254";
const IPV6: &str = "http://[fd00:ec2::254]";

/// A client of the service. Nothing is sent before something is asked.
#[derive(Clone, Debug)]
pub struct InstanceMetadataService {
    client: Option<imds::Client>,
    endpoint: String,
}

#[derive(Deserialize)]
struct IdentityDocument {
    #[serde(default)]
    region: String,
}

impl InstanceMetadataService {
    /// The endpoint comes from `[ServiceOverride]` for `ec2imds`, else from
    /// `AWS_EC2_METADATA_SERVICE_ENDPOINT` and `…_ENDPOINT_MODE`, else it is the usual one.
    ///
    /// # Errors
    /// Class `Invalid`: the endpoint is no URL.
    pub fn new(
        config: &CloudConfig,
        env: &Env,
        http: &SharedHttpClient,
        clock: &Clock,
    ) -> CloudResult<Self> {
        let endpoint = endpoint(config, env);
        if is_true(env, "AWS_EC2_METADATA_DISABLED") {
            return Ok(Self {
                client: None,
                endpoint,
            });
        }
        let provider = ProviderConfig::empty()
            .with_http_client(http.clone())
            .with_sleep_impl(sleep())
            .with_time_source(time_source(clock));
        let client = imds::Client::builder()
            .configure(&provider)
            .endpoint(&endpoint)
            .map_err(|e| {
                CloudError::invalid(format!(
                    "instance metadata endpoint {endpoint:?} is not a URL; correct \
                     AWS_EC2_METADATA_SERVICE_ENDPOINT: {e}"
                ))
            })?
            .max_attempts(MAX_ATTEMPTS)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .operation_attempt_timeout(CONNECT_TIMEOUT + READ_TIMEOUT)
            .operation_timeout(OPERATION_TIMEOUT)
            .build();
        Ok(Self {
            client: Some(client),
            endpoint,
        })
    }

    /// The id of the own instance.
    ///
    /// # Errors
    /// The service could not be reached or is switched off.
    pub async fn instance_id(&self) -> CloudResult<InstanceId> {
        let id = self.get("/latest/meta-data/instance-id").await?;
        Ok(InstanceId::from_cloud(id.trim()))
    }

    /// The region of the own instance.
    ///
    /// # Errors
    /// The service could not be reached or is switched off, or its answer names no region.
    pub async fn region(&self) -> CloudResult<String> {
        let text = self
            .get("/latest/dynamic/instance-identity/document")
            .await?;
        let document: IdentityDocument = serde_json::from_str(&text).map_err(|e| {
            CloudError::transient(format!("instance identity document does not parse: {e}"))
        })?;
        if document.region.is_empty() {
            return Err(CloudError::transient(
                "instance identity document names no region",
            ));
        }
        Ok(document.region)
    }

    async fn get(&self, path: &str) -> CloudResult<String> {
        let Some(client) = &self.client else {
            return Err(CloudError::invalid(
                "the instance metadata service is switched off by AWS_EC2_METADATA_DISABLED",
            ));
        };
        let answer = client.get(path).await.map_err(|e| {
            CloudError::transient(format!(
                "instance metadata service {}{path}: {e}: {}",
                self.endpoint,
                causes(&e)
            ))
        })?;
        Ok(answer.as_ref().to_owned())
    }
}

fn endpoint(config: &CloudConfig, env: &Env) -> String {
    let overridden = config
        .overrides
        .iter()
        .find(|o| o.applies(EndpointService::Imds, ""));
    if let Some(overridden) = overridden {
        return overridden.url.clone();
    }
    if let Some(url) = env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
        return url.to_owned();
    }
    let mode = env
        .get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE")
        .unwrap_or_default();
    if mode.eq_ignore_ascii_case("ipv6") {
        IPV6.to_owned()
    } else {
        IPV4.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(config: &str, env: &[(&str, &str)]) -> String {
        let file = ccm_core::cloud::ConfigFile {
            path: "c".into(),
            text: config.into(),
        };
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        endpoint(&CloudConfig::load(Some(&file)).unwrap(), &Env::new(env))
    }

    #[test]
    fn the_endpoint_comes_from_the_file_then_from_the_environment() {
        let url = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://localhost:1");
        let mode = ("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6");
        let file = "[ServiceOverride \"1\"]\nService = ec2imds\nRegion = any\n\
                    URL = http://imds\nSigningRegion = any";
        assert_eq!(found("", &[]), IPV4);
        assert_eq!(found("", &[mode]), IPV6);
        assert_eq!(found("", &[url, mode]), "http://localhost:1");
        assert_eq!(found(file, &[url]), "http://imds");
    }
}
