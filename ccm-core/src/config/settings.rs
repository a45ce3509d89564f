//! What the flags mean: typed, validated, one structure a consumer.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use super::{ControllerName, FeatureGates, OwnFlags};
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
    /// Those of them that `--controllers` names: they run also where the provider has them off by
    /// default.
    pub named_controllers: BTreeSet<ControllerName>,
    /// The flags that only the selected provider has.
    pub own_flags: OwnFlags,
    /// The way to the API server.
    pub api: ApiSettings,
    /// The node controller.
    pub node: NodeSettings,
    /// The node lifecycle controller.
    pub node_lifecycle: NodeLifecycleSettings,
    /// The service controller.
    pub service: ServiceSettings,
    /// The route controller.
    pub route: RouteSettings,
    /// The node IPAM controller.
    pub node_ipam: NodeIpamSettings,
    /// Leader election; `None` is off (`--leader-elect=false`).
    pub leader_election: Option<LeaderElectionSettings>,
    /// Leader migration; `None` is off, as it always is without leader election
    /// (`--enable-leader-migration`, `--leader-migration-config`).
    pub leader_migration: Option<LeaderMigrationSettings>,
    /// The secure port; `None` is off (`--secure-port=0`).
    pub serving: Option<ServingSettings>,
    /// Who is asking at the secure port.
    pub authentication: AuthenticationSettings,
    /// Who may ask at the secure port.
    pub authorization: AuthorizationSettings,
    /// `--controller-start-interval`: the pause after each controller's start, times 1 to 2.
    pub controller_start_interval: Duration,
    /// `--use-service-account-credentials`.
    pub use_service_account_credentials: bool,
    /// `--profiling`: whether the secure port serves `/debug/…`.
    pub profiling: bool,
    /// `--contention-profiling`: accepted, there is no such profile.
    pub contention_profiling: bool,
    /// `--feature-gates`.
    pub feature_gates: FeatureGates,
    /// `--version=v1.2.3`: what to report instead of the build's version.
    pub reported_version: Option<String>,
    /// The body of `/configz` (specification: controllers §7.4).
    pub configz: serde_json::Value,
    /// Where health and metrics are served over plain HTTP; `None`, the default, is off
    /// (`--health-bind-address`).
    pub health_address: Option<SocketAddr>,
    /// Logs.
    pub logging: LoggingSettings,
    /// `--shutdown-grace-period`.
    pub shutdown_grace: Duration,
    /// What was accepted although it is deprecated or changes nothing, one line each; to be logged
    /// at the start.
    pub warnings: Vec<String>,
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

/// Settings of the route controller (specification: controllers §5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSettings {
    /// `--configure-cloud-routes`: `false` skips the controller.
    pub configure: bool,
    /// `--cluster-cidr` as given: whether it is wrong depends on whether the controller runs.
    pub cluster_cidr: String,
    /// `--route-reconciliation-period`.
    pub period: Duration,
    /// The feature gate `CloudControllerManagerWatchBasedRoutesReconciliation`.
    pub watch: bool,
}

impl Default for RouteSettings {
    fn default() -> Self {
        Self {
            configure: true,
            cluster_cidr: String::new(),
            period: Duration::from_secs(10),
            watch: false,
        }
    }
}

/// Settings of the node IPAM controller (specification: controllers §6.1). As given: what a wrong
/// combination does depends on the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIpamSettings {
    /// `--allocate-node-cidrs`: `false` skips the controller.
    pub allocate: bool,
    /// `--cluster-cidr`.
    pub cluster_cidr: String,
    /// `--service-cluster-ip-range`.
    pub service_cluster_ip_range: String,
    /// `--cidr-allocator-type`.
    pub allocator_type: String,
    /// `--node-cidr-mask-size`; 0 is not given.
    pub mask_size: i32,
    /// `--node-cidr-mask-size-ipv4`; 0 is not given.
    pub mask_size_ipv4: i32,
    /// `--node-cidr-mask-size-ipv6`; 0 is not given.
    pub mask_size_ipv6: i32,
}

impl Default for NodeIpamSettings {
    fn default() -> Self {
        Self {
            allocate: false,
            cluster_cidr: String::new(),
            service_cluster_ip_range: String::new(),
            allocator_type: "RangeAllocator".to_owned(),
            mask_size: 0,
            mask_size_ipv4: 0,
            mask_size_ipv6: 0,
        }
    }
}

/// Settings of leader election (specification: controllers §7.2). Always lease > deadline >
/// 1.2 × retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionSettings {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// `--leader-elect-resource-name`.
    pub name: String,
    /// `--leader-elect-lease-duration`.
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`.
    pub retry_period: Duration,
}

impl Default for LeaderElectionSettings {
    fn default() -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            name: "cloud-controller-manager".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Which lock a controller needs under leader migration (specification: controllers §7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOf {
    /// The lock of every replica.
    Main,
    /// The migration lock, taken after the main one.
    Migration,
    /// Another component runs it.
    Elsewhere,
}

/// Leader migration: a second lock for some controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderMigrationSettings {
    /// The name of the second Lease, in the namespace of the first.
    pub leader_name: String,
    /// The controllers that the configuration lists, by canonical name.
    pub controllers: BTreeMap<String, LockOf>,
}

impl LeaderMigrationSettings {
    /// The lock that a controller needs; unlisted ones the main one.
    pub fn lock_of(&self, controller: ControllerName) -> LockOf {
        self.controllers
            .get(controller.as_str())
            .copied()
            .unwrap_or(LockOf::Main)
    }
}

/// The secure port (specification: controllers §7.3, §7.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingSettings {
    /// `--bind-address`.
    pub address: IpAddr,
    /// `--secure-port`, not 0. (A test gives 0 for any free port.)
    pub port: u16,
    /// Where the certificate comes from.
    pub certificate: CertificateSettings,
    /// `--tls-sni-cert-key`, in order.
    pub sni: Vec<SniSettings>,
    /// Whether TLS 1.2 is refused (`--tls-min-version=VersionTLS13`).
    pub tls13_only: bool,
    /// `--tls-cipher-suites`, by Go's names; empty: all that are supported.
    pub cipher_suites: Vec<String>,
    /// `--tls-curve-preferences`, by their numbers; empty: all that are supported.
    pub curves: Vec<i32>,
    /// Not `--disable-http2-serving`.
    pub http2: bool,
    /// `--http2-max-streams-per-connection`; `None`: the default.
    pub http2_max_streams: Option<u32>,
    /// `--permit-address-sharing`: `SO_REUSEADDR`.
    pub permit_address_sharing: bool,
    /// `--permit-port-sharing`: `SO_REUSEPORT`.
    pub permit_port_sharing: bool,
}

/// Where a serving certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSettings {
    /// `--tls-cert-file` and `--tls-private-key-file`, read again when they change.
    Files {
        /// The certificate chain, PEM.
        certificate: PathBuf,
        /// The key, PEM.
        key: PathBuf,
    },
    /// `--cert-dir`: the pair `<pair>.crt` and `<pair>.key` in it, made self-signed if missing.
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The name of the pair.
        pair: &'static str,
    },
    /// Self-signed, in memory.
    SelfSigned,
}

/// One value of `--tls-sni-cert-key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniSettings {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// The key, PEM.
    pub key: PathBuf,
    /// Server names, also `*.example.com`; empty: those of the certificate.
    pub names: Vec<String>,
}

/// Who may ask the secure port (specification: controllers §7.3, §7.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationSettings {
    /// `--authentication-kubeconfig`; `None`: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `--authentication-skip-lookup`: the cluster's configuration is not read.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`.
    pub token_cache: Duration,
    /// `--client-ca-file`.
    pub client_ca: Option<PathBuf>,
    /// The `--requestheader-…` flags.
    pub request_header: RequestHeaderSettings,
}

/// Identities in request headers that a proxy in front vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderSettings {
    /// `--requestheader-client-ca-file`; `None`: what the cluster says.
    pub client_ca: Option<PathBuf>,
    /// `--requestheader-allowed-names`; empty: any.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`.
    pub username: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_prefix: Vec<String>,
}

/// What a caller of the secure port may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationSettings {
    /// `--authorization-kubeconfig`; `None`: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `--authorization-always-allow-paths`: exact, or a prefix when it ends in `*`.
    pub always_allow: Vec<String>,
    /// `--authorization-webhook-cache-authorized-ttl`.
    pub allow_cache: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`.
    pub deny_cache: Duration,
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
