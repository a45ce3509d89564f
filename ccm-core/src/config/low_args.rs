//! The flags as given, typed but not yet validated.

use std::{collections::BTreeMap, net::IpAddr};

use super::GoDuration;

/// What the command line says. Every field is one flag; what they mean together is decided by
/// [`Settings::from_args`](super::Settings::from_args).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LowArgs {
    pub(super) help: bool,
    pub(super) version: Option<VersionForm>,
    pub(super) cloud_provider: String,
    pub(super) cloud_config: String,
    pub(super) cluster_name: String,
    pub(super) allow_untagged_cloud: bool,
    pub(super) configure_cloud_routes: bool,
    pub(super) allocate_node_cidrs: bool,
    pub(super) cluster_cidr: String,
    pub(super) controllers: Vec<String>,
    pub(super) concurrent_node_syncs: i32,
    pub(super) concurrent_node_status_updates: i32,
    pub(super) node_status_update_frequency: GoDuration,
    pub(super) node_label_refresh: bool,
    pub(super) concurrent_node_lifecycle_syncs: i32,
    pub(super) node_monitor_period: GoDuration,
    pub(super) node_deletion_confirmations: i32,
    pub(super) node_deletion_max_share: Option<f64>,
    pub(super) concurrent_service_syncs: i32,
    pub(super) service_verify_period: GoDuration,
    pub(super) min_resync_period: GoDuration,
    pub(super) kubeconfig: String,
    pub(super) master: String,
    pub(super) kube_api_qps: Option<f64>,
    pub(super) kube_api_burst: Option<i32>,
    pub(super) use_service_account_credentials: bool,
    pub(super) leader_elect: bool,
    pub(super) leader_elect_lease_duration: GoDuration,
    pub(super) leader_elect_renew_deadline: GoDuration,
    pub(super) leader_elect_retry_period: GoDuration,
    pub(super) leader_elect_resource_lock: String,
    pub(super) leader_elect_resource_name: String,
    pub(super) leader_elect_resource_namespace: String,
    pub(super) secure_port: i32,
    pub(super) bind_address: Option<IpAddr>,
    pub(super) health_bind_address: String,
    pub(super) shutdown_grace_period: GoDuration,
    pub(super) verbosity: i32,
    pub(super) logging_format: String,
    /// Deprecated flags that were used, with the reason.
    pub(super) warnings: Vec<String>,
    /// The effective value of every flag, for the log.
    pub(super) effective: BTreeMap<&'static str, String>,
}

/// What `--version` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionForm {
    /// One line for people.
    Text,
    /// All that is known of the build.
    Raw,
}

impl LowArgs {
    /// Whether `--help` was given.
    pub const fn help(&self) -> bool {
        self.help
    }

    /// What `--version` asks for, if it was given.
    pub const fn version(&self) -> Option<VersionForm> {
        self.version
    }

    /// One text for each deprecated flag that was used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Every flag with the value in force, by name.
    pub fn effective(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.effective
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
    }
}
