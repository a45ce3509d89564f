//! One look at the cluster and its cloud with the manager's own flags and files, for commands that
//! start no controller: `plan` and `gc`.
//!
//! What a session asks of the API server it asks through one client whose fence is shut for good:
//! no write can leave it, whatever is built on top.

mod list;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

use futures::FutureExt as _;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    cloud::{Build, BuildError, Cloud, CloudError, Registry, RegistryError, Writes},
    config::{ControllerName, Env, LockOf, Settings},
    kube::{ClientFactory, Node, Service, fenced},
    runtime::{BuildInfo, Clock, Fence, ManagerError, Random, read_cloud_config},
};

pub use list::ListError;
pub(crate) use list::list;

/// The end of the user agent.
const CLIENT: &str = "command";

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// What is wrong for the manager as well.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// The cloud cannot be reached.
    #[error("the cloud provider {name:?} cannot be built: {problem}")]
    Unreachable {
        /// The provider.
        name: &'static str,
        /// The provider's text.
        problem: String,
    },
    /// The API server did not list objects.
    #[error(transparent)]
    List(#[from] ListError),
    /// The cloud did not answer.
    #[error("{0}")]
    Cloud(#[from] CloudError),
    /// The provider cannot do it.
    #[error("the cloud provider {name:?} has no {what}")]
    Unsupported {
        /// The provider.
        name: &'static str,
        /// What it lacks.
        what: &'static str,
    },
    /// Whatever is found may belong to Services that are not seen here.
    #[error(
        "nothing is removed: no Node of the API server is a machine of this cluster in the cloud; \
         check that --kubeconfig and --cloud-config are of the same cluster, and that it has a Node"
    )]
    NotAtHome,
}

impl From<RegistryError> for SessionError {
    fn from(error: RegistryError) -> Self {
        Self::Manager(error.into())
    }
}

/// What a session is opened from: what the manager is made from.
pub struct Inputs {
    /// The flags.
    pub settings: Settings,
    /// The clouds of this binary.
    pub clouds: Registry,
    /// The environment.
    pub env: Env,
    /// The wall clock.
    pub clock: Clock,
    /// Randomness.
    pub random: Random,
    /// A client to use instead of one made from the settings.
    pub client: Option<kube::Client>,
}

/// An open session.
pub struct Session {
    /// The flags.
    pub(crate) settings: Settings,
    /// The clock.
    pub(crate) clock: Clock,
    /// The provider.
    pub(crate) cloud: Arc<dyn Cloud>,
    /// Reads; every write is refused.
    pub(crate) api: kube::Client,
    _background: DropGuard,
}

/// Whether a controller of the manager would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    Yes,
    /// `--controllers` or the provider's default leaves it out.
    No,
    /// Leader migration gives it to another component.
    Elsewhere,
}

impl Session {
    /// Reads flags and files as the manager does and builds the provider. `fence` is asked before
    /// each call that changes the cloud.
    ///
    /// # Errors
    /// What the manager would end with, and a cloud that cannot be reached: nothing is waited for.
    pub async fn open(inputs: Inputs, writes: Writes, fence: Fence) -> Result<Self, SessionError> {
        let Inputs {
            settings,
            clouds,
            env,
            clock,
            random,
            client,
        } = inputs;
        let factory = clouds.get(&settings.cloud.provider)?.clone();
        let config = read_cloud_config(settings.cloud.config.as_deref())?;
        let metrics = prometheus::Registry::new();
        let shut = Fence::waiting();
        let api = match client {
            Some(client) => fenced(client, shut),
            // With the manager's own identity: to get a controller's would be a write.
            None => ClientFactory::new(&settings.api, &metrics)
                .await
                .map_err(ManagerError::from)?
                .with_build_info(
                    BuildInfo::current().reporting(settings.reported_version.as_deref()),
                )
                .controller_client(CLIENT, shut)
                .map_err(ManagerError::from)?,
        };
        let stop = CancellationToken::new();
        let build = Build {
            config,
            cluster_name: settings.cloud.cluster_name.clone(),
            env,
            clock: clock.clone(),
            random,
            metrics,
            fence,
            writes,
            shutdown: stop.clone(),
        };
        let built = (factory.build)(build).await;
        let cloud = built.map_err(|error| match error {
            BuildError::Config(problem) => SessionError::Manager(ManagerError::CloudRefused {
                name: factory.name,
                problem,
            }),
            BuildError::Unreachable(problem) => SessionError::Unreachable {
                name: factory.name,
                problem,
            },
        })?;
        if !cloud.has_cluster_id() && !settings.cloud.allow_untagged {
            return Err(ManagerError::NoClusterId(cloud.name()).into());
        }
        Ok(Self {
            settings,
            clock,
            cloud,
            api,
            _background: stop.drop_guard(),
        })
    }

    /// All Nodes, by name.
    pub(crate) async fn nodes(&self) -> Result<Vec<Arc<Node>>, ListError> {
        list(&self.api, |_| true).boxed().await
    }

    /// The Services that `keep` says are worth keeping, by namespace and name; and how many there
    /// are.
    pub(crate) async fn services(
        &self,
        keep: impl Fn(&Service) -> bool + Send,
    ) -> Result<Vec<Arc<Service>>, ListError> {
        list(&self.api, keep).boxed().await
    }

    /// Whether the manager would run this controller with these flags.
    pub(crate) fn runs(&self, name: ControllerName) -> Runs {
        let off = self.cloud.off_by_default().contains(&name);
        let named = self.settings.named_controllers.contains(&name);
        if !self.settings.controllers.contains(&name) || (off && !named) {
            return Runs::No;
        }
        let migration = self.settings.leader_migration.as_ref();
        match migration.map(|migration| migration.lock_of(name)) {
            Some(LockOf::Elsewhere) => Runs::Elsewhere,
            _ => Runs::Yes,
        }
    }
}
