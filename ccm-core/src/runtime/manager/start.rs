//! The steps before the first controller: the cloud-config file, the API server, the provider.

use std::{path::Path, sync::Arc, time::Duration};

use super::{Build, Cloud, ConfigFile, Factory, ManagerError};
use crate::{cloud::BuildError, kube::error_chain};

/// The gate of readiness for the API server.
pub(super) const API_SERVER: &str = "api-server";
/// The gate of readiness for the provider.
pub(super) const CLOUD: &str = "cloud-provider";

/// The first wait for something that is not there yet; it doubles with each try.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// One question whether the API server is there.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Reads the file of `--cloud-config`. Without the flag the provider gets none (REQ-APP-06).
pub(crate) fn read_cloud_config(path: Option<&Path>) -> Result<Option<ConfigFile>, ManagerError> {
    let Some(path) = path else { return Ok(None) };
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(ConfigFile {
            path: path.display().to_string(),
            text,
        })),
        Err(error) => Err(ManagerError::CloudConfig {
            path: path.to_owned(),
            problem: error.to_string(),
        }),
    }
}

/// Doubling waits.
struct Waits(Duration);

impl Waits {
    const fn new() -> Self {
        Self(FIRST_WAIT)
    }

    fn next(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST_WAIT);
        wait
    }
}

/// Returns once the API server answers. Never gives up: a process that restarts itself would not
/// reach it earlier.
pub(super) async fn wait_for_api_server(client: &kube::Client, server: &str) {
    let mut waits = Waits::new();
    loop {
        let problem = match tokio::time::timeout(ANSWER_WITHIN, client.apiserver_version()).await {
            Ok(Ok(version)) => {
                tracing::info!(server, version = version.git_version, "API server reached");
                return;
            }
            // It is there; whether we may do our work is told by the work.
            Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => return,
            Ok(Err(error)) => error_chain(&error),
            Err(_) => format!("no answer within {} seconds", ANSWER_WITHIN.as_secs()),
        };
        let wait = waits.next();
        tracing::warn!(
            server,
            error = problem,
            retry_in_seconds = wait.as_secs(),
            "waiting for the API server"
        );
        tokio::time::sleep(wait).await;
    }
}

/// Builds the provider; waits while the cloud cannot be reached.
pub(super) async fn build_provider(
    factory: &Factory,
    build: &Build,
) -> Result<Arc<dyn Cloud>, ManagerError> {
    let mut waits = Waits::new();
    loop {
        let problem = match (factory.build)(build.clone()).await {
            Ok(cloud) => {
                tracing::info!(provider = factory.name, "cloud provider built");
                return Ok(cloud);
            }
            Err(BuildError::Config(problem)) => {
                return Err(ManagerError::CloudRefused {
                    name: factory.name,
                    problem,
                });
            }
            Err(BuildError::Unreachable(problem)) => problem,
        };
        let wait = waits.next();
        tracing::warn!(
            provider = factory.name,
            error = problem,
            retry_in_seconds = wait.as_secs(),
            "waiting for the cloud"
        );
        tokio::time::sleep(wait).await;
    }
}
