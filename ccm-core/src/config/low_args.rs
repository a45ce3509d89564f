//! The flags as given, typed but not yet validated.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{ControllerName, FeatureGates, GoDuration, SniSettings, own::OwnFlag};

/// What the command line says. Every field is one flag; what they mean together is decided by
/// [`Settings::from_args`](super::Settings::from_args).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LowArgs {
    pub(super) help: bool,
    pub(super) version: Option<VersionForm>,
    pub(super) reported_version: Option<String>,
    pub(super) allocate_node_cidrs: bool,
    pub(super) allow_untagged_cloud: bool,
    pub(super) cidr_allocator_type: String,
    pub(super) cloud_config: String,
    pub(super) cloud_provider: String,
    pub(super) cluster_cidr: String,
    pub(super) cluster_name: String,
    pub(super) configure_cloud_routes: bool,
    pub(super) controller_start_interval: GoDuration,
    pub(super) controllers: Vec<String>,
    pub(super) external_cloud_volume_plugin: String,
    pub(super) feature_gates: FeatureGates,
    pub(super) kube_api_burst: Option<i32>,
    pub(super) kube_api_content_type: String,
    pub(super) kube_api_qps: Option<f64>,
    pub(super) leader_elect: bool,
    pub(super) leader_elect_lease_duration: GoDuration,
    pub(super) leader_elect_renew_deadline: GoDuration,
    pub(super) leader_elect_resource_lock: String,
    pub(super) leader_elect_resource_name: String,
    pub(super) leader_elect_resource_namespace: String,
    pub(super) leader_elect_retry_period: GoDuration,
    pub(super) min_resync_period: GoDuration,
    pub(super) node_cidr_mask_size: i32,
    pub(super) node_cidr_mask_size_ipv4: i32,
    pub(super) node_cidr_mask_size_ipv6: i32,
    pub(super) node_sync_period: GoDuration,
    pub(super) route_reconciliation_period: GoDuration,
    pub(super) service_cluster_ip_range: String,
    pub(super) shutdown_grace_period: GoDuration,
    pub(super) use_service_account_credentials: bool,
    pub(super) concurrent_node_syncs: i32,
    pub(super) concurrent_node_status_updates: i32,
    pub(super) node_label_refresh: bool,
    pub(super) node_status_update_frequency: GoDuration,
    pub(super) concurrent_node_lifecycle_syncs: i32,
    pub(super) node_deletion_confirmations: i32,
    pub(super) node_deletion_max_share: Option<f64>,
    pub(super) node_monitor_period: GoDuration,
    pub(super) concurrent_service_syncs: i32,
    pub(super) service_verify_period: GoDuration,
    pub(super) profiling: bool,
    pub(super) contention_profiling: bool,
    pub(super) enable_leader_migration: bool,
    pub(super) leader_migration_config: String,
    pub(super) secure: ServingArgs,
    pub(super) authentication: AuthenticationArgs,
    pub(super) authorization: AuthorizationArgs,
    pub(super) webhooks: Vec<String>,
    pub(super) webhook: ServingArgs,
    pub(super) health_bind_address: String,
    pub(super) kubeconfig: String,
    pub(super) master: String,
    pub(super) logging: LoggingArgs,
    /// The flags of all providers of the binary, by name.
    pub(super) own_flags: BTreeMap<&'static str, OwnFlag>,
    /// The controllers that only one provider has, with that provider's name.
    pub(super) own_controllers: Vec<(&'static str, ControllerName)>,
    /// Deprecated flags that were used, with the reason.
    pub(super) warnings: Vec<String>,
    /// What could not be read, one line each.
    pub(super) errors: Vec<String>,
    /// The flags whose value could not be read; their fields hold the default.
    pub(super) unreadable: BTreeSet<&'static str>,
    /// The effective value of every flag, for the log.
    pub(super) effective: BTreeMap<&'static str, String>,
}

/// The flags of one TLS listener: the secure port's and the webhooks'.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ServingArgs {
    pub(super) bind_address: Option<IpAddr>,
    pub(super) port: i32,
    pub(super) cert_dir: String,
    pub(super) cert_file: String,
    pub(super) key_file: String,
    pub(super) cipher_suites: Vec<String>,
    pub(super) curves: Vec<i32>,
    pub(super) min_version: String,
    pub(super) sni: Vec<SniSettings>,
    pub(super) disable_http2: bool,
    pub(super) http2_max_streams: i32,
    pub(super) permit_address_sharing: bool,
    pub(super) permit_port_sharing: bool,
}

/// The flags that say who is asking.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AuthenticationArgs {
    pub(super) kubeconfig: String,
    pub(super) skip_lookup: bool,
    pub(super) token_cache_ttl: GoDuration,
    pub(super) tolerate_lookup_failure: bool,
    pub(super) client_ca_file: String,
    pub(super) allowed_names: Vec<String>,
    pub(super) requestheader_ca_file: String,
    pub(super) extra_prefix: Vec<String>,
    pub(super) group_headers: Vec<String>,
    pub(super) uid_headers: Vec<String>,
    pub(super) username_headers: Vec<String>,
}

/// The flags that say who may ask.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AuthorizationArgs {
    pub(super) always_allow_paths: Vec<String>,
    pub(super) kubeconfig: String,
    pub(super) authorized_ttl: GoDuration,
    pub(super) unauthorized_ttl: GoDuration,
}

/// The flags of the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LoggingArgs {
    pub(super) format: String,
    pub(super) verbosity: i32,
    pub(super) vmodule: String,
    pub(super) flush_frequency: GoDuration,
    pub(super) text_split_stream: bool,
    pub(super) json_split_stream: bool,
    pub(super) text_buffer: u64,
    pub(super) json_buffer: u64,
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

    /// Whether everything could be read. If not, [`Settings::from_args`](super::Settings::from_args)
    /// tells what is wrong, together with all that does not fit.
    pub const fn is_readable(&self) -> bool {
        self.errors.is_empty()
    }

    /// Every flag with the value in force, by name.
    pub fn effective(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.effective
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
    }
}
