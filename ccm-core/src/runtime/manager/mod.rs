//! The process from start to end.
//!
//! Order (specification: controllers §7.1): what can be wrong is read first (provider name,
//! cloud-config file, kubeconfig, certificates) and is fatal; then health and metrics are served,
//! on every replica; then the API server is waited for and the provider is built, side by side, as
//! long as it takes; then the controllers are made and their caches filled. A replica that does not
//! lead rests there, warm: its caches follow the API server and nothing else happens. With the
//! lease the provider is initialised and the controllers are told of every object and run, until
//! the end is asked for, the lease is lost, or one of them ends by itself.

mod assemble;
mod errors;
mod lead;
mod prepare;
mod serve;
mod start;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::prepare::Prepared;
use super::{Clock, Ending, Health, Random, SetVerbosity, Tasks, metrics::RunningControllers};
use crate::{
    cloud::{Build, Cloud, ConfigFile, Factory, Registry},
    config::{ControllerName, Env, LockOf, Settings},
};

pub use errors::ManagerError;
pub(crate) use start::read_cloud_config;

/// The manager. Make it, then [`run`](Self::run) it.
pub struct Manager {
    settings: Settings,
    clouds: Registry,
    env: Env,
    clock: Clock,
    random: Random,
    hostname: String,
    client: Option<kube::Client>,
    registry: prometheus::Registry,
    health: Health,
    set_verbosity: Option<SetVerbosity>,
}

impl Manager {
    /// A manager of the given clouds. Reads nothing yet.
    pub fn new(
        settings: Settings,
        clouds: Registry,
        env: Env,
        clock: Clock,
        random: Random,
    ) -> Self {
        let health = Health::new();
        // Not ready from the first moment on.
        for gate in [start::API_SERVER, start::CLOUD, assemble::CACHES] {
            health.gate(gate);
        }
        Self {
            settings,
            clouds,
            env,
            clock,
            random,
            hostname: "unknown".to_owned(),
            client: None,
            registry: prometheus::Registry::new(),
            health,
            set_verbosity: None,
        }
    }

    /// Uses this client for everything instead of making clients from the settings.
    #[must_use]
    pub fn with_client(mut self, client: kube::Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Registers metrics there.
    #[must_use]
    pub fn with_registry(mut self, registry: prometheus::Registry) -> Self {
        self.registry = registry;
        self
    }

    /// The first part of the name in leader election.
    #[must_use]
    pub fn with_hostname(mut self, hostname: String) -> Self {
        self.hostname = hostname;
        self
    }

    /// What a PUT of `/debug/flags/v` does.
    #[must_use]
    pub fn with_verbosity(mut self, set: SetVerbosity) -> Self {
        self.set_verbosity = Some(set);
        self
    }

    /// The checks of this manager, for those who do not ask over HTTP.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs until `shutdown`, then stops within `--shutdown-grace-period` and a little more for
    /// the lease and the last events. Starts no thread, handles no signal, and opens a socket only
    /// where the settings say so.
    ///
    /// # Errors
    /// See [`ManagerError`]. An API server or a cloud that cannot be reached is no error: the
    /// manager waits.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), ManagerError> {
        // Ends background work also when this future is dropped.
        let background = CancellationToken::new();
        let _ended_with_us = background.clone().drop_guard();
        let mut prepared = Box::pin(self.prepare(background.clone())).await?;
        let (plain, secure) = (prepared.plain.take(), prepared.secure.take());
        let started = async {
            let served = self.serve(&prepared, plain, secure, &background);
            tokio::try_join!(served, self.reach_api_and_cloud(&prepared))
        };
        let (mut serving, cloud) = tokio::select! {
            biased;
            () = shutdown.cancelled() => {
                tracing::info!("shutting down before the start was complete");
                return Ok(());
            }
            started = Box::pin(started) => started?,
        };
        self.check_cluster_id(cloud.as_ref())?;
        let work = Box::pin(self.work(&prepared, cloud.as_ref(), shutdown));
        tokio::select! {
            biased;
            outcome = work => outcome,
            // A replica that nobody can look into ends like one whose controller ended. What is
            // dropped here works no longer, and the lease runs out.
            ended = serving.next_ended() => Err(lead::unasked(ended)),
        }
    }

    /// Waits for the API server and builds the provider, side by side: a wrong configuration is
    /// told at once even while the API server is away.
    async fn reach_api_and_cloud(
        &self,
        prepared: &Prepared,
    ) -> Result<Arc<dyn Cloud>, ManagerError> {
        let client = prepared.clients.client("controller-discovery")?;
        let server = prepared.clients.server();
        let api = async {
            start::wait_for_api_server(&client, &server).await;
            self.health.gate(start::API_SERVER).open();
            Ok::<_, ManagerError>(())
        };
        let cloud = async {
            let cloud = start::build_provider(&prepared.factory, &prepared.build).await?;
            self.health.gate(start::CLOUD).open();
            Ok(cloud)
        };
        let ((), cloud) = tokio::try_join!(api, cloud)?;
        Ok(cloud)
    }

    fn check_cluster_id(&self, cloud: &dyn Cloud) -> Result<(), ManagerError> {
        if cloud.has_cluster_id() {
            return Ok(());
        }
        if !self.settings.cloud.allow_untagged {
            return Err(ManagerError::NoClusterId(cloud.name()));
        }
        tracing::warn!(
            provider = cloud.name(),
            "no cluster id found: resources of other clusters cannot be told apart"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests;
