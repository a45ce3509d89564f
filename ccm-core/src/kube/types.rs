//! Slim API types: the fields this process uses, nothing else. Unlisted fields are skipped while
//! parsing and never allocated, which is what keeps thousands of Nodes small. Never send one of
//! these as a whole (REQ-NODE-29): writes are patches.

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, Time},
        util::intstr::IntOrString,
    },
};
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    packed::{Addresses, StringMap},
    word::Word,
};

pub use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus};

/// A Node as the controllers need it. There may be 100,000 of them: every field and every
/// allocation counts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Node {
    /// Name, UID, labels, annotations, timestamps.
    pub metadata: NodeMeta,
    /// Provider id, pod ranges, taints.
    #[serde(default)]
    pub spec: NodeSpec,
    /// Addresses and conditions.
    #[serde(default)]
    pub status: NodeStatus,
}

/// The used part of a Node's metadata.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMeta {
    /// The name.
    #[serde(default)]
    pub name: Option<String>,
    /// The UID: another Node of the same name has another one.
    #[serde(default)]
    pub uid: Option<String>,
    /// The version of the object, for writes that must not overwrite another one.
    #[serde(default)]
    pub resource_version: Option<String>,
    /// When the Node registered.
    #[serde(default)]
    pub creation_timestamp: Option<Time>,
    /// When its deletion was asked for.
    #[serde(default)]
    pub deletion_timestamp: Option<Time>,
    /// All labels.
    #[serde(default)]
    pub labels: Option<StringMap>,
    /// All annotations, but for kubectl's copy of the whole object.
    #[serde(default)]
    pub annotations: Option<StringMap>,
}

/// The used part of a Node's spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    /// The cloud's id of the machine, immutable once set.
    #[serde(default, rename = "providerID")]
    pub provider_id: Option<String>,
    /// Pod address ranges, one a family.
    #[serde(default, rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
    /// All taints, in order.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

/// The used part of a Node's status.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct NodeStatus {
    /// Addresses, in order.
    #[serde(default)]
    pub addresses: Addresses,
    /// The conditions that a controller reads, see [`READ_CONDITIONS`], without timestamps: a
    /// kubelet's heartbeat changes nothing.
    #[serde(default, deserialize_with = "read_conditions")]
    pub conditions: Vec<NodeCondition>,
}

/// The types of conditions that are kept of a Node. Whoever reads another one adds it here.
pub const READ_CONDITIONS: [&str; 2] = ["Ready", NETWORK_UNAVAILABLE];

/// The type of the condition that keeps pods away from a Node without routes.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

fn read_conditions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<NodeCondition>, D::Error> {
    let mut conditions = Vec::<NodeCondition>::deserialize(from)?;
    conditions.retain(|c| READ_CONDITIONS.contains(&&*c.type_));
    conditions.shrink_to_fit();
    Ok(conditions)
}

/// A condition's type and status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct NodeCondition {
    /// `Ready`, `NetworkUnavailable`, …
    #[serde(rename = "type")]
    pub type_: Word,
    /// `True`, `False` or `Unknown`.
    pub status: Word,
    /// The reason that its owner gave.
    #[serde(default)]
    pub reason: Option<Word>,
}

impl Node {
    /// The name; empty only for an object that never came from an API server.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// `spec.providerID`, `None` when absent or empty.
    pub fn provider_id(&self) -> Option<&str> {
        self.spec.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key)
    }

    /// The status of the condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&str> {
        self.status
            .conditions
            .iter()
            .find(|c| c.type_ == type_)
            .map(|c| &*c.status)
    }
}

/// A Service as the controllers need it.
#[derive(Resource, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Service")]
pub struct Service {
    /// Name, namespace, UID, annotations, finalizers.
    pub metadata: ObjectMeta,
    /// What the load balancer is made from.
    #[serde(default)]
    pub spec: ServiceSpec,
    /// Where the load balancer's address stands.
    #[serde(default)]
    pub status: ServiceStatus,
}

/// The used part of a Service's spec: the fields of the needs-update comparison
/// (specification: controllers §4.3).
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer`, `ExternalName`.
    #[serde(default, rename = "type")]
    pub type_: Option<String>,
    /// Any value opts out of this controller.
    #[serde(default)]
    pub load_balancer_class: Option<String>,
    /// Ports in the user's order.
    #[serde(default)]
    pub ports: Vec<ServicePort>,
    /// Allowed client ranges; `None` and empty differ for the change comparison.
    #[serde(default)]
    pub load_balancer_source_ranges: Option<Vec<String>>,
    /// `None` (the word) or `ClientIP`.
    #[serde(default)]
    pub session_affinity: Option<String>,
    /// The affinity's time-out.
    #[serde(default)]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// An address asked for.
    #[serde(default, rename = "loadBalancerIP")]
    pub load_balancer_ip: Option<String>,
    /// Addresses routed by the user.
    #[serde(default, rename = "externalIPs")]
    pub external_ips: Vec<String>,
    /// `Cluster` or `Local`.
    #[serde(default)]
    pub external_traffic_policy: Option<String>,
    /// Port of the kube-proxy health check for `Local`.
    #[serde(default)]
    pub health_check_node_port: Option<i32>,
    /// `IPv4`, `IPv6`, in order of preference.
    #[serde(default)]
    pub ip_families: Vec<String>,
    /// Whether the API server gives node ports.
    #[serde(default)]
    pub allocate_load_balancer_node_ports: Option<bool>,
}

/// One port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// The port's name; may be absent when it is the only one.
    #[serde(default)]
    pub name: Option<String>,
    /// `TCP`, `UDP`, `SCTP`.
    #[serde(default)]
    pub protocol: Option<String>,
    /// The port the load balancer listens on.
    pub port: i32,
    /// The port on every Node; absent or 0 when none is allocated.
    #[serde(default)]
    pub node_port: Option<i32>,
    /// The pods' port, number or name.
    #[serde(default)]
    pub target_port: Option<IntOrString>,
    /// The application protocol.
    #[serde(default)]
    pub app_protocol: Option<String>,
}

impl ServicePort {
    /// The protocol, `TCP` when absent as the API server defaults it.
    pub fn protocol(&self) -> &str {
        self.protocol.as_deref().unwrap_or("TCP")
    }

    /// The node port, `None` when none is allocated.
    pub fn allocated_node_port(&self) -> Option<i32> {
        self.node_port.filter(|port| *port != 0)
    }
}

/// Session affinity settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionAffinityConfig {
    /// Settings of `ClientIP`.
    #[serde(default, rename = "clientIP")]
    pub client_ip: Option<ClientIpConfig>,
}

/// Settings of the affinity `ClientIP`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpConfig {
    /// Seconds.
    #[serde(default)]
    pub timeout_seconds: Option<i32>,
}

/// The used part of a Service's status.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// The load balancer's addresses.
    #[serde(default)]
    pub load_balancer: LoadBalancerStatus,
}

impl Service {
    /// The name; empty only for an object that never came from an API server.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// Whether a finalizer of that name is on the object.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.metadata
            .finalizers
            .as_ref()
            .is_some_and(|all| all.iter().any(|f| f == name))
    }

    /// Whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The addresses in the status.
    pub fn ingress(&self) -> &[LoadBalancerIngress] {
        self.status
            .load_balancer
            .ingress
            .as_deref()
            .unwrap_or_default()
    }
}
