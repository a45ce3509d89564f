//! The cloud-config file exactly as the Go manager reads it, validated at start
//! (specification: aws §1.2, §1.3).

mod gcfg;
mod keys;
mod overrides;
mod read;

use ccm_core::cloud::ConfigFile;
use regex::Regex;

pub use gcfg::{Entry, SyntaxError};
pub use keys::config_reference;
pub use overrides::{EndpointService, ServiceOverride, unmatched};
pub(crate) use read::account_of_arn;

/// Instance types whose topology answer is mandatory for a Node's initialisation.
pub const DEFAULT_TOPOLOGY_PATTERN: &str = r"^(hpc|trn|p)[0-9]+[a-z]*(-[a-z0-9]+)?(\.[0-9a-z]*)$";

/// kube-proxy's health check port.
pub const DEFAULT_SHARED_HEALTH_PORT: i32 = 10256;
/// kube-proxy's health check path.
pub const DEFAULT_SHARED_HEALTH_PATH: &str = "/healthz";

/// Why the configuration is refused. The text names section, line and key, and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// An address family of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamily {
    /// `ipv4`.
    V4,
    /// `ipv6`.
    V6,
}

/// Where the health checks of Services with the traffic policy Cluster go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthProbeMode {
    /// To each Service's own node port.
    ServiceNodePort,
    /// To kube-proxy's health check, one for all Services.
    Shared,
    /// Something else: network load balancers are refused with this text, classic ones ignore it.
    Unsupported(String),
}

/// The shared health check, used when the mode is [`HealthProbeMode::Shared`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthProbe {
    /// `ClusterServiceLoadBalancerHealthProbeMode`.
    pub mode: HealthProbeMode,
    /// `ClusterServiceSharedLoadBalancerHealthProbePort`.
    pub port: i32,
    /// `ClusterServiceSharedLoadBalancerHealthProbePath`.
    pub path: String,
}

/// The cloud-config file. Texts that are not set are empty.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    /// `Zone`: only the region is derived from it.
    pub zone: String,
    /// `Region`.
    pub region: String,
    /// `VPC`.
    pub vpc: String,
    /// `SubnetID`.
    pub subnet_id: String,
    /// `RouteTableID`.
    pub route_table_id: String,
    /// `RoleARN`.
    pub role_arn: String,
    /// `SourceARN`.
    pub source_arn: String,
    /// `KubernetesClusterTag`: the legacy cluster id.
    pub kubernetes_cluster_tag: String,
    /// `KubernetesClusterID`.
    pub kubernetes_cluster_id: String,
    /// `DisableSecurityGroupIngress`: security groups of Nodes are left alone.
    pub disable_security_group_ingress: bool,
    /// `DeleteReleasedLoadBalancers`, a key of our own: what was made for a Service that another
    /// controller serves by now is removed.
    pub delete_released_load_balancers: bool,
    /// `ElbSecurityGroup`: the group of classic load balancers; never deleted.
    pub elb_security_group: String,
    /// `NodeIPFamilies`, in order.
    pub node_ip_families: Vec<IpFamily>,
    /// `ClusterService…HealthProbe…`.
    pub health_probe: HealthProbe,
    /// `SupportedTopologyInstanceTypePattern`.
    pub topology_pattern: Regex,
    /// `NLBSecurityGroupMode = Managed`: network load balancers get security groups.
    pub nlb_security_group_managed: bool,
    /// `[ServiceOverride "…"]`, in the order of the file.
    pub overrides: Vec<ServiceOverride>,
    /// What the user should know although the start goes on.
    pub warnings: Vec<String>,
    /// Keys that are set and belong to features that this version does not have.
    pub without_effect: Vec<&'static str>,
}

impl CloudConfig {
    /// Reads and validates the file; no file means all defaults.
    ///
    /// # Errors
    /// Syntax, a value of the wrong type, or a value that can never work.
    pub fn load(file: Option<&ConfigFile>) -> Result<Self, ConfigError> {
        let (path, text) = file.map_or(("", ""), |file| (file.path.as_str(), file.text.as_str()));
        read::read(path, text)
    }

    /// Whether no self instance is looked up: VPC, cluster id and (subnet or role) are all given.
    pub fn is_off_instance(&self) -> bool {
        let one_of = |a: &str, b: &str| !a.is_empty() || !b.is_empty();
        !self.vpc.is_empty()
            && one_of(&self.subnet_id, &self.role_arn)
            && one_of(&self.kubernetes_cluster_tag, &self.kubernetes_cluster_id)
    }

    /// The region that the file names: derived from `Zone`, else `Region`. `None` when it must come
    /// from the instance metadata service.
    pub fn configured_region(&self) -> Option<String> {
        if !self.zone.is_empty() {
            return read::region_of_zone(&self.zone);
        }
        (!self.region.is_empty()).then(|| self.region.clone())
    }
}
