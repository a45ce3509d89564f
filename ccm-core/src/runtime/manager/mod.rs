//! The process from start to end.
//!
//! Order (specification: controllers §7.1, as far as it is in this release): what can be wrong is
//! read first (provider name, cloud-config file, kubeconfig) and is fatal; then health and metrics
//! are served; then the API server is waited for and the provider is built, side by side, as long
//! as it takes; then the controllers are made, their caches filled, and they run until the end is
//! asked for or one of them ends by itself.

mod assemble;
mod start;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::assemble::Assembled;
use super::{
    Clock, Ending, Endpoints, Fence, Health, Loops, QueueMetrics, Random, Tasks,
    metrics::RunningControllers, register_process_metrics, serve,
};
use crate::{
    cloud::{Build, Cloud, ConfigFile, Factory, Registry, RegistryError},
    config::{ControllerName, Env, Settings},
    kube::{ApiEventSink, ClientError, ClientFactory, EventWorker},
};

/// After the controllers have ended, what is left for the last events: a little more than the
/// event worker allows itself.
const EVENTS_GRACE: Duration = Duration::from_secs(3);

/// Why the manager ended by itself. Every text says what to do where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// `--cloud-provider` names no provider of this binary.
    #[error("--cloud-provider: {0}")]
    Provider(#[from] RegistryError),
    /// The file of `--cloud-config` cannot be read.
    #[error(
        "--cloud-config {}: cannot be read: {problem}; check the path and the file's permissions",
        path.display()
    )]
    CloudConfig {
        /// The file.
        path: PathBuf,
        /// The system's word.
        problem: String,
    },
    /// There is no way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The address of `--health-bind-address` cannot be used.
    #[error(
        "--health-bind-address {address}: cannot listen: {problem}; choose a free port, or an \
         empty value to serve nothing"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's word.
        problem: String,
    },
    /// The provider refused its configuration.
    #[error("could not init cloud provider {name:?}: {problem}")]
    CloudRefused {
        /// The provider.
        name: &'static str,
        /// The provider's text: section, line and key.
        problem: String,
    },
    /// The provider does not know which cluster it serves.
    #[error(
        "no cluster id found: the cloud provider {0:?} needs one to tell its resources from those \
         of other clusters; tag the resources, set it in the cloud config, or give \
         --allow-untagged-cloud"
    )]
    NoClusterId(&'static str),
    /// A controller ended although nobody asked for it.
    #[error("controller {name} ended by itself: {problem}")]
    ControllerEnded {
        /// The controller's or another essential task's name.
        name: &'static str,
        /// What it said.
        problem: String,
    },
    /// Two metrics of one name.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// The manager. Make it, then [`run`](Self::run) it.
pub struct Manager {
    settings: Settings,
    clouds: Registry,
    env: Env,
    clock: Clock,
    random: Random,
    client: Option<kube::Client>,
    registry: prometheus::Registry,
    health: Health,
}

/// Where clients come from.
enum Clients {
    /// One for all, given by a test or a simulation.
    Given(kube::Client),
    /// One for each use.
    Made(Box<ClientFactory>),
}

impl Clients {
    fn client(&self, suffix: &str) -> Result<kube::Client, ClientError> {
        match self {
            Self::Given(client) => Ok(client.clone()),
            Self::Made(factory) => factory.client(suffix),
        }
    }

    fn server(&self) -> String {
        match self {
            Self::Given(_) => "(given client)".to_owned(),
            Self::Made(factory) => factory.server(),
        }
    }
}

/// Everything that was read and made before the first request.
struct Prepared {
    factory: Factory,
    build: Build,
    clients: Clients,
    queues: QueueMetrics,
    running: RunningControllers,
    loops: Loops,
    listener: Option<TcpListener>,
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
            client: None,
            registry: prometheus::Registry::new(),
            health,
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

    /// The checks of this manager, for those who do not ask over HTTP.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs until `shutdown`, then stops within `--shutdown-grace-period` and a little more for
    /// the last events. Starts no thread, handles no signal, and opens a socket only where the
    /// settings say so.
    ///
    /// # Errors
    /// See [`ManagerError`]. An API server or a cloud that cannot be reached is no error: the
    /// manager waits.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), ManagerError> {
        // Ends background work also when this future is dropped.
        let background = CancellationToken::new();
        let _ended_with_us = background.clone().drop_guard();
        let mut prepared = self.prepare(background.clone()).await?;
        let mut serving = Tasks::new();
        if let Some(listener) = prepared.listener.take() {
            let endpoints = Endpoints::new(
                self.health(),
                prepared.queues.clone(),
                self.registry.clone(),
            )?;
            let routes = endpoints.plain();
            serving.spawn("serving", serve(listener, routes, background.clone()));
        }
        let cloud = tokio::select! {
            biased;
            () = shutdown.cancelled() => {
                tracing::info!("shutting down before the start was complete");
                return Ok(());
            }
            cloud = Box::pin(self.reach_api_and_cloud(&prepared)) => cloud?,
        };
        self.check_cluster_id(cloud.as_ref())?;
        Box::pin(self.run_controllers(&prepared, cloud.as_ref(), shutdown)).await
    }

    /// Reads and makes everything that can be wrong. All errors are fatal.
    async fn prepare(&mut self, background: CancellationToken) -> Result<Prepared, ManagerError> {
        let factory = self.clouds.get(&self.settings.cloud.provider)?.clone();
        let config = start::read_cloud_config(self.settings.cloud.config.as_deref())?;
        let clients = match self.client.take() {
            Some(client) => Clients::Given(client),
            None => {
                self.warn_of_proxies();
                let factory = ClientFactory::new(&self.settings.api, &self.registry).await?;
                Clients::Made(Box::new(factory))
            }
        };
        register_process_metrics(&self.registry)?;
        let listener = match self.settings.health_address {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        Ok(Prepared {
            factory,
            build: Build {
                config,
                cluster_name: self.settings.cloud.cluster_name.clone(),
                env: self.env.clone(),
                clock: self.clock.clone(),
                random: self.random.clone(),
                metrics: self.registry.clone(),
                fence: Fence::open(),
                shutdown: background,
            },
            clients,
            queues: QueueMetrics::new(&self.registry)?,
            running: RunningControllers::new(&self.registry)?,
            loops: Loops::new(self.clock.clone()),
            listener,
        })
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

    async fn run_controllers(
        &self,
        prepared: &Prepared,
        cloud: &dyn Cloud,
        shutdown: CancellationToken,
    ) -> Result<(), ManagerError> {
        let (sink, worker) = ApiEventSink::new(
            prepared.clients.client("cloud-controller-manager")?,
            self.clock.clone(),
            self.random.clone(),
            &self.registry,
        )?;
        let events = Events::start(worker);
        let mut assembled = self.assemble(prepared, cloud, sink)?;
        let stop = CancellationToken::new();
        let _stopped_with_us = stop.clone().drop_guard();
        let client = prepared.clients.client("shared-informers")?;
        assembled.run_informers(&stop, client, &self.random);
        let outcome = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            outcome = self.supervise(&mut assembled, &prepared.running, &stop) => outcome,
        };
        match &outcome {
            Ok(()) => tracing::info!("shutting down"),
            Err(error) => tracing::error!(%error, "stopping all controllers"),
        }
        self.health.gate(assemble::CACHES).close();
        stop.cancel();
        let unfinished = assembled.tasks.finish(self.settings.shutdown_grace).await;
        if !unfinished.is_empty() {
            tracing::warn!(tasks = ?unfinished, "work was cut off at the end of the grace period");
        }
        for name in ControllerName::ALL {
            prepared.running.set(name, false);
        }
        events.finish().await;
        outcome
    }

    /// Waits for the caches, starts the controllers, and returns only when a task ends by itself.
    async fn supervise(
        &self,
        assembled: &mut Assembled,
        running: &RunningControllers,
        stop: &CancellationToken,
    ) -> Result<(), ManagerError> {
        let stores = assembled.stores();
        let ended = tokio::select! {
            biased;
            ended = assembled.tasks.next_ended() => Some(ended),
            () = stores.wait_until_synced() => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                self.health.gate(assemble::CACHES).open();
                assembled.run_controllers(stop, &self.health, running);
                assembled.tasks.next_ended().await
            }
        };
        let problem = match ended.ending {
            Ending::Returned => "it returned without being asked to".to_owned(),
            Ending::Panicked(text) => format!("it panicked: {text}"),
        };
        Err(ManagerError::ControllerEnded {
            name: ended.name,
            problem,
        })
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
    tracing::info!(address = %bound, "serving health and metrics");
    Ok(listener)
}

/// The event worker: it outlives the controllers, so that their last events are written.
struct Events {
    stop: CancellationToken,
    tasks: Tasks,
}

impl Events {
    fn start(worker: EventWorker) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new();
        tasks.spawn("events", worker.run(stop.clone()));
        Self { stop, tasks }
    }

    async fn finish(self) {
        self.stop.cancel();
        self.tasks.finish(EVENTS_GRACE).await;
    }
}

#[cfg(test)]
mod tests;
