//! What the load balancers are told about cluster, network and configuration.

use crate::{config::HealthProbe, tags::ClusterTags};

/// Cluster, network and configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `--cluster-name`: part of the managed security group's name.
    pub cluster_name: String,
    /// The cluster's identity in tags.
    pub tags: ClusterTags,
    /// The cluster's VPC.
    pub vpc_id: String,
    /// The subnet used when every subnet is tagged for other clusters: `SubnetID`, or the one of
    /// the own instance.
    pub fallback_subnet: Option<String>,
    /// `DisableSecurityGroupIngress`: no rules in the Nodes' security groups.
    pub disable_node_rules: bool,
    /// `DeleteReleasedLoadBalancers`: what was made for a Service that another controller serves by
    /// now is removed.
    pub delete_released: bool,
    /// `ElbSecurityGroup`: never deleted.
    pub elb_security_group: Option<String>,
    /// `NLBSecurityGroupMode = Managed`.
    pub managed_security_groups: bool,
    /// `ClusterServiceLoadBalancerHealthProbeMode` and its port and path.
    pub health_probe: HealthProbe,
}
