//! Why the manager ended by itself.

use std::{net::SocketAddr, path::PathBuf};

use crate::{
    cloud::RegistryError,
    config::ControllerName,
    controllers::{
        node_ipam::{NodeIpamError, NodeIpamStartError},
        route::RouteStartError,
    },
    kube::ClientError,
    runtime::{LeadershipLost, ServingError},
};

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
    /// The secure port cannot be served.
    #[error(transparent)]
    Serving(#[from] ServingError),
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
    /// The route controller cannot start.
    #[error("error running controllers: {0}")]
    Route(#[from] RouteStartError),
    /// The node IPAM controller cannot start.
    #[error("error running controllers: {0}")]
    NodeIpam(#[from] NodeIpamStartError),
    /// A controller that only the provider has cannot start.
    #[error("error running controllers: {problem}")]
    Own {
        /// The controller.
        name: ControllerName,
        /// The provider's text: the flag and the fix.
        problem: String,
    },
    /// The node IPAM controller cannot work.
    #[error("node-ipam-controller: {0}")]
    NodeIpamEnded(#[from] NodeIpamError),
    /// Another replica may work now.
    #[error(transparent)]
    LeadershipLost(#[from] LeadershipLost),
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

impl ManagerError {
    /// Whether the Go managers log this end as fatal and exit with 255: a provider or a controller
    /// that cannot be made, a controller that ended. What was given wrongly, and a lost lease, is
    /// 1 (specification: controllers §7.1).
    pub const fn is_fatal(&self) -> bool {
        match self {
            Self::CloudConfig { .. }
            | Self::CloudRefused { .. }
            | Self::NoClusterId(_)
            | Self::Route(_)
            | Self::NodeIpam(_)
            | Self::Own { .. }
            | Self::NodeIpamEnded(_)
            | Self::ControllerEnded { .. } => true,
            // An unknown name in a flag is a wrong flag.
            Self::Provider(_)
            | Self::Client(_)
            | Self::Serving(_)
            | Self::Listen { .. }
            | Self::LeadershipLost(_)
            | Self::Metrics(_) => false,
        }
    }
}
