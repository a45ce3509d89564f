//! What the flags mean: typed, validated, one structure a consumer.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;

use super::ControllerName;
use crate::cloud::ClusterName;

/// Settings of the node controller (specification: controllers §2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// `--concurrent-node-syncs`: Nodes worked on at once, at least 1.
    pub syncs: usize,
    /// `--concurrent-node-status-updates`: Nodes whose addresses are refreshed at once, at least 1
    /// (the flag's 0, "as many as `syncs`", is resolved already).
    pub status_updates: usize,
    /// `--node-status-update-frequency`: between two rounds of address refreshes.
    pub status_update_period: Duration,
    /// `--node-label-refresh`: whether labels of initialised Nodes follow the cloud (REQ-NODE-28).
    pub label_refresh: bool,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            syncs: 1,
            status_updates: 1,
            status_update_period: Duration::from_secs(5 * 60),
            label_refresh: false,
        }
    }
}

/// Settings of the node lifecycle controller (specification: controllers §3).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLifecycleSettings {
    /// `--concurrent-node-lifecycle-syncs`: Nodes worked on at once, at least 1.
    pub syncs: usize,
    /// `--node-monitor-period`: between two rounds.
    pub monitor_period: Duration,
    /// `--node-deletion-confirmations`: consecutive answers *absent* before a Node is deleted, at
    /// least 1 (specification: controllers §3.4).
    pub deletion_confirmations: u32,
    /// `--node-deletion-max-share`: no Node is deleted in a round in which more than this share of
    /// all Nodes looks absent. `None` is off.
    pub max_deletion_share: Option<f64>,
}

impl Default for NodeLifecycleSettings {
    fn default() -> Self {
        Self {
            syncs: 1,
            monitor_period: Duration::from_secs(5),
            deletion_confirmations: 2,
            max_deletion_share: None,
        }
    }
}

/// Settings of the service controller (specification: controllers §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// `--concurrent-service-syncs`: Services worked on at once, at least 1.
    pub syncs: usize,
    /// `--service-verify-period`: between two looks at the cloud for a Service that did not
    /// change, so that drift is repaired.
    pub verify_period: Duration,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            syncs: 1,
            verify_period: Duration::from_secs(30 * 60),
        }
    }
}

/// Everything the process needs to know, validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The cloud and how its provider is built.
    pub cloud: CloudSettings,
    /// The controllers that the flags ask for.
    pub controllers: BTreeSet<ControllerName>,
    /// The way to the API server.
    pub api: ApiSettings,
    /// The node controller.
    pub node: NodeSettings,
    /// The node lifecycle controller.
    pub node_lifecycle: NodeLifecycleSettings,
    /// The service controller.
    pub service: ServiceSettings,
    /// Pod networks and routes.
    pub network: NetworkSettings,
    /// Where health and metrics are served; `None` is off (`--health-bind-address`).
    pub health_address: Option<SocketAddr>,
    /// Logs.
    pub logging: LoggingSettings,
    /// `--shutdown-grace-period`.
    pub shutdown_grace: Duration,
}

/// What the provider is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudSettings {
    /// `--cloud-provider`, never empty.
    pub provider: String,
    /// `--cloud-config`; `None` when not given.
    pub config: Option<PathBuf>,
    /// `--cluster-name`.
    pub cluster_name: ClusterName,
    /// `--allow-untagged-cloud`.
    pub allow_untagged: bool,
}

/// The way to the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiSettings {
    /// `--kubeconfig`; `None` when not given.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`; `None` when not given.
    pub master: Option<String>,
    /// The client-side rate; `None` leaves it to the server's priority and fairness.
    pub rate: Option<ApiRate>,
}

/// A client-side request rate, per client (REQ-MET-05).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ApiRate {
    /// Requests a second, above 0.
    pub qps: f64,
    /// Requests that may go out at once, at least 1.
    pub burst: u32,
}

/// Pod networks and routes: what node-route-controller will start from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkSettings {
    /// `--allocate-node-cidrs`.
    pub allocate_node_cidrs: bool,
    /// `--configure-cloud-routes`.
    pub configure_cloud_routes: bool,
    /// `--cluster-cidr`.
    pub cluster_cidrs: Vec<IpNet>,
}

/// Logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggingSettings {
    /// `--logging-format`.
    pub format: LogFormat,
    /// `-v`.
    pub verbosity: i32,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}
