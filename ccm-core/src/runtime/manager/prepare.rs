//! What is read and made before the first request.

use std::{net::SocketAddr, time::Duration};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Build, Factory, Manager, ManagerError, RunningControllers, start};
use crate::{
    cloud::Writes,
    kube::{ClientError, ClientFactory, fenced},
    runtime::{
        BuildInfo, Fence, LeaderMetrics, Loops, PermissionCheck, QueueMetrics, SecureServing,
        TakeOver, leader::Fences, register_process_metrics,
    },
};

/// Where clients come from.
pub(super) enum Clients {
    /// One for all, given by a test or a simulation.
    Given(kube::Client),
    /// One for each use.
    Made(Box<ClientFactory>),
}

impl Clients {
    /// A client with the manager's own identity.
    pub(super) fn client(&self, suffix: &str) -> Result<kube::Client, ClientError> {
        match self {
            Self::Given(client) => Ok(client.clone()),
            Self::Made(factory) => factory.client(suffix),
        }
    }

    /// The client of a controller, which writes only while `fence` lets pass.
    pub(super) fn controller(&self, name: &str, fence: Fence) -> Result<kube::Client, ClientError> {
        match self {
            Self::Given(client) => Ok(fenced(client.clone(), fence)),
            Self::Made(factory) => factory.controller_client(name, fence),
        }
    }

    /// The client of leader election.
    pub(super) fn lease(&self, renew_deadline: Duration) -> Result<kube::Client, ClientError> {
        match self {
            Self::Given(client) => Ok(client.clone()),
            Self::Made(factory) => factory.lease_client(renew_deadline),
        }
    }

    pub(super) fn server(&self) -> String {
        match self {
            Self::Given(_) => "(given client)".to_owned(),
            Self::Made(factory) => factory.server(),
        }
    }
}

/// Everything that was read and made before the first request.
pub(super) struct Prepared {
    pub(super) factory: Factory,
    pub(super) build: Build,
    pub(super) clients: Clients,
    pub(super) queues: QueueMetrics,
    pub(super) running: RunningControllers,
    pub(super) permissions: PermissionCheck,
    pub(super) leader: LeaderMetrics,
    pub(super) fences: Fences,
    pub(super) loops: Loops,
    pub(super) took_over: TakeOver,
    pub(super) plain: Option<TcpListener>,
    pub(super) secure: Option<SecureServing>,
}

impl Manager {
    /// Reads and makes everything that can be wrong. All errors are fatal.
    pub(super) async fn prepare(
        &mut self,
        background: CancellationToken,
    ) -> Result<Prepared, ManagerError> {
        let factory = self.clouds.get(&self.settings.cloud.provider)?.clone();
        let config = start::read_cloud_config(self.settings.cloud.config.as_deref())?;
        let clients = match self.client.take() {
            Some(client) => Clients::Given(client),
            None => Clients::Made(Box::new(self.client_factory().await?)),
        };
        register_process_metrics(&self.registry, &self.build_info())?;
        let secure = match &self.settings.serving {
            Some(settings) => Some(SecureServing::bind(settings, &self.clock).await?),
            None => None,
        };
        let plain = match self.settings.health_address {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let election = self.settings.leader_election.is_some();
        let fences = Fences::new(election, self.settings.leader_migration.is_some());
        let build = Build {
            config,
            cluster_name: self.settings.cloud.cluster_name.clone(),
            env: self.env.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            metrics: self.registry.clone(),
            fence: fences.of_cloud(),
            writes: Writes::Real,
            shutdown: background,
        };
        Ok(Prepared {
            factory,
            build,
            clients,
            queues: QueueMetrics::new(&self.registry)?,
            running: RunningControllers::new(&self.registry)?,
            permissions: PermissionCheck::new(&self.registry)?,
            leader: LeaderMetrics::new(&self.registry)?,
            fences,
            loops: Loops::new(self.clock.clone()),
            took_over: TakeOver::default(),
            plain,
            secure,
        })
    }

    async fn client_factory(&self) -> Result<ClientFactory, ManagerError> {
        self.warn_of_proxies();
        let factory = ClientFactory::new(&self.settings.api, &self.registry).await?;
        let own_accounts = self.settings.use_service_account_credentials;
        Ok(factory
            .with_build_info(self.build_info())
            .with_service_account_credentials(own_accounts, self.clock.clone()))
    }

    fn build_info(&self) -> BuildInfo {
        BuildInfo::current().reporting(self.settings.reported_version.as_deref())
    }

    fn warn_of_proxies(&self) {
        for name in ["HTTPS_PROXY", "https_proxy"] {
            if self.env.get(name).is_some() {
                tracing::warn!(
                    variable = name,
                    "the API server is reached directly, the proxy variable is for calls to the cloud only"
                );
            }
        }
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ManagerError> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| ManagerError::Listen {
            address,
            problem: error.to_string(),
        })?;
    let bound = listener.local_addr().unwrap_or(address);
    tracing::info!(address = %bound, "serving health and metrics in the clear");
    Ok(listener)
}
