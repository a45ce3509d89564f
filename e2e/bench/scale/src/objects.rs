//! The objects of the scenario, as a kubelet, a CNI plugin and a CSI driver leave a Node.

use serde_json::{Value, json};

/// The taint of a Node that waits for the cloud controller manager.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The type of all machines.
pub const INSTANCE_TYPE: &str = "m6i.2xlarge";

/// The region of all machines.
pub const REGION: &str = "eu-central-1";

/// What the machines and Nodes of one number have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The Node's name: the machine's private host name.
    pub name: String,
    /// `spec.providerID`.
    pub provider_id: String,
    /// The private address.
    pub internal_ip: String,
    /// The public address.
    pub external_ip: String,
    /// The zone.
    pub zone: String,
}

impl Machine {
    /// The machine of a number below 2^24.
    #[must_use]
    pub fn number(n: usize) -> Self {
        let (a, b, c) = (n >> 16 & 255, n >> 8 & 255, n & 255);
        let zone = ["a", "b", "c"].get(n % 3).copied().unwrap_or("a");
        Self {
            name: format!("ip-10-{a}-{b}-{c}.eu-central-1.compute.internal"),
            provider_id: format!("bench:///eu-central-1{zone}/i-0{n:016x}"),
            internal_ip: format!("10.{a}.{b}.{c}"),
            external_ip: format!("198.{a}.{b}.{c}"),
            zone: format!("eu-central-1{zone}"),
        }
    }

    /// The addresses that the cloud reports.
    #[must_use]
    pub fn addresses(&self) -> Value {
        json!([
            { "type": "InternalIP", "address": self.internal_ip },
            { "type": "ExternalIP", "address": self.external_ip },
            { "type": "InternalDNS", "address": self.name },
            { "type": "Hostname", "address": self.name },
        ])
    }

    /// The machine with this private host name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("ip-10-")?.split('.').next()?;
        let mut n = 0;
        for part in digits.split('-') {
            n = n << 8 | part.parse::<u8>().ok().map(usize::from)?;
        }
        Some(Self::number(n)).filter(|machine| machine.name == name)
    }
}

/// The same Node initialised.
#[must_use]
pub fn initialised_node(n: usize) -> Value {
    let machine = Machine::number(n);
    let mut node = node(n);
    let change = json!({
        "metadata": { "labels": {
            "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
            "failure-domain.beta.kubernetes.io/region": REGION,
            "failure-domain.beta.kubernetes.io/zone": machine.zone,
            "node.kubernetes.io/instance-type": INSTANCE_TYPE,
            "topology.kubernetes.io/region": REGION,
            "topology.kubernetes.io/zone": machine.zone,
        } },
        "spec": { "providerID": machine.provider_id },
    });
    for part in ["/metadata/labels", "/spec"] {
        let to = node.pointer_mut(part).and_then(Value::as_object_mut);
        let from = change.pointer(part).and_then(Value::as_object);
        if let (Some(to), Some(from)) = (to, from) {
            to.extend(from.clone());
            to.remove("taints");
        }
    }
    if let Some(status) = node.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("addresses".to_owned(), machine.addresses());
    }
    node
}

/// A Node as it registered: the cloud taint, no provider id, no address but its host name.
#[must_use]
pub fn node(n: usize) -> Value {
    let machine = Machine::number(n);
    let name = &machine.name;
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels(name),
            "annotations": {
                "alpha.kubernetes.io/provided-node-ip": machine.internal_ip,
                "csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"i-0{n:016x}\"}}"),
                "node.alpha.kubernetes.io/ttl": "0",
                "projectcalico.org/IPv4Address": format!("{}/16", machine.internal_ip),
                "projectcalico.org/IPv4IPIPTunnelAddr": "192.168.11.64",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": managed_fields(),
        },
        "spec": {
            "podCIDR": format!("100.{}.{}.0/24", n >> 8 & 255, n & 255),
            "podCIDRs": [format!("100.{}.{}.0/24", n >> 8 & 255, n & 255)],
            "taints": [{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }],
        },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": machine.internal_ip },
                          { "type": "Hostname", "address": name }],
            "allocatable": resources("7910m", "30817284Ki"),
            "capacity": resources("8", "32386052Ki"),
            "conditions": conditions(0),
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
            "images": images(),
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "e6b3c9c4-6c4b-4d0e-9f4b-6a2c5d1f7a10",
                "containerRuntimeVersion": "containerd://1.7.27",
                "kernelVersion": "6.1.134-152.225.amzn2023.x86_64",
                "kubeProxyVersion": "v1.33.1",
                "kubeletVersion": "v1.33.1",
                "machineID": format!("ec2{n:029x}"),
                "operatingSystem": "linux",
                "osImage": "Amazon Linux 2023.7.20250512",
                "systemUUID": format!("ec2a1b2c-0000-4000-8000-{n:012x}"),
            },
            "volumesAttached": [{
                "name": format!("kubernetes.io/csi/ebs.csi.aws.com^vol-0{n:016x}"),
                "devicePath": "",
            }],
            "volumesInUse": [format!("kubernetes.io/csi/ebs.csi.aws.com^vol-0{n:016x}")],
        },
    })
}

fn labels(name: &str) -> Value {
    json!({
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "cluster.example.com/environment": "production",
        "cluster.example.com/name": "heron-eu-central-1",
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
        "eks.amazonaws.com/nodegroup": "general-purpose-large",
        "eks.amazonaws.com/nodegroup-image": "ami-0a1b2c3d4e5f60718",
        "k8s.io/cloud-provider-aws": "5553ae84a0d29114870f67bbabd07d44",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.example.com/team": "platform",
        "node.kubernetes.io/lifecycle": "normal",
        "topology.ebs.csi.aws.com/zone": "eu-central-1a",
    })
}

fn resources(cpu: &str, memory: &str) -> Value {
    json!({
        "attachable-volumes-aws-ebs": "39",
        "cpu": cpu,
        "ephemeral-storage": "104779756Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": memory,
        "pods": "110",
    })
}

/// A heartbeat: the conditions, with the time of the beat that has this number.
#[must_use]
pub fn heartbeat(beat: usize) -> Value {
    json!({ "status": { "conditions": conditions(beat) } })
}

fn conditions(beat: usize) -> Value {
    let at = format!(
        "2026-01-{:02}T{:02}:{:02}:{:02}Z",
        1 + beat / 86_400 % 28,
        beat / 3_600 % 24,
        beat / 60 % 60,
        beat % 60
    );
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": at,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    json!([
        {
            "type": "NetworkUnavailable",
            "status": "False",
            "reason": "CalicoIsUp",
            "message": "Calico is running on this node",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        },
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ])
}

fn images() -> Value {
    const NAMES: [&str; 14] = [
        "602401143452.dkr.ecr.eu-central-1.amazonaws.com/eks/livenessprobe",
        "docker.io/grafana/promtail",
        "docker.io/istio/proxyv2",
        "registry.example.com/platform/search-indexer",
        "registry.example.com/platform/payment-service",
        "602401143452.dkr.ecr.eu-central-1.amazonaws.com/eks/kube-proxy",
        "602401143452.dkr.ecr.eu-central-1.amazonaws.com/eks/aws-ebs-csi-driver",
        "602401143452.dkr.ecr.eu-central-1.amazonaws.com/eks/csi-node-driver-registrar",
        "docker.io/calico/node",
        "docker.io/calico/cni",
        "quay.io/prometheus/node-exporter",
        "registry.k8s.io/ingress-nginx/controller",
        "registry.example.com/platform/web-frontend",
        "registry.example.com/platform/order-service",
    ];
    let image = |(n, name): (usize, &&str)| {
        json!({
            "names": [
                format!("{name}@sha256:{:064x}", (n as u128 + 1) * 0x0123_4567_89ab_cdef_fedc_ba98),
                format!("{name}:v1.{n}.0"),
            ],
            "sizeBytes": 31_415_926 * (n + 1),
        })
    };
    NAMES.iter().enumerate().map(image).collect()
}

fn managed_fields() -> Value {
    let keyed = |key: &str, names: &[&str], fields: &[&str]| -> Value {
        let mut all = serde_json::Map::new();
        for name in names {
            let of: serde_json::Map<String, Value> = fields
                .iter()
                .map(|f| (format!("f:{f}"), json!({})))
                .collect();
            all.insert(format!("k:{{\"{key}\":\"{name}\"}}"), Value::Object(of));
        }
        Value::Object(all)
    };
    let set = |names: &[&str]| -> Value {
        names
            .iter()
            .map(|n| (format!("f:{n}"), json!({})))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let pressures = ["DiskPressure", "MemoryPressure", "PIDPressure", "Ready"];
    let beats = [
        "lastHeartbeatTime",
        "lastTransitionTime",
        "message",
        "reason",
        "status",
        "type",
    ];
    let amounts = [
        "cpu",
        "ephemeral-storage",
        "hugepages-1Gi",
        "hugepages-2Mi",
        "memory",
        "pods",
    ];
    json!([
        {
            "manager": "kubelet",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": { "f:metadata": { "f:annotations": { ".": {},
                "f:alpha.kubernetes.io/provided-node-ip": {},
                "f:volumes.kubernetes.io/controller-managed-attach-detach": {} },
                "f:labels": set(&["beta.kubernetes.io/arch", "beta.kubernetes.io/os",
                    "eks.amazonaws.com/capacityType", "eks.amazonaws.com/nodegroup",
                    "kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os"]) } },
        },
        {
            "manager": "calico-node",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": { "f:annotations": set(&["projectcalico.org/IPv4Address",
                    "projectcalico.org/IPv4IPIPTunnelAddr"]) },
                "f:status": { "f:conditions": keyed("type", &["NetworkUnavailable"], &beats) },
            },
            "subresource": "status",
        },
        {
            "manager": "kubelet",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": { "f:metadata": { "f:annotations": set(&["csi.volume.kubernetes.io/nodeid"]),
                    "f:labels": set(&["topology.ebs.csi.aws.com/zone"]) },
                "f:status": {
                    "f:allocatable": set(&amounts),
                    "f:capacity": set(&amounts),
                    "f:conditions": keyed("type", &pressures, &beats),
                    "f:images": {},
                    "f:nodeInfo": set(&["architecture", "bootID", "kernelVersion", "kubeletVersion"]),
                    "f:volumesInUse": {},
                } },
            "subresource": "status",
        },
    ])
}

/// A Service with two ports.
#[must_use]
pub fn service(n: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": format!("web-{n}"),
            "namespace": "default",
            "labels": { "app.kubernetes.io/name": format!("web-{n}"), "app.kubernetes.io/part-of": "shop" },
            "annotations": { "service.beta.kubernetes.io/aws-load-balancer-type": "nlb" },
        },
        "spec": {
            "type": "LoadBalancer",
            "selector": { "app.kubernetes.io/name": format!("web-{n}") },
            "ports": [
                { "name": "http", "port": 80, "targetPort": 8080 },
                { "name": "https", "port": 443, "targetPort": 8443 },
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_as_large_as_real_ones() {
        for n in [0, 99_999] {
            let bytes = node(n).to_string().len();
            assert!((8 * 1024..=10 * 1024).contains(&bytes), "{bytes} bytes");
        }
    }

    #[test]
    fn a_machine_is_found_by_its_name() {
        for n in [0, 255, 256, 99_999] {
            let machine = Machine::number(n);
            assert_eq!(Machine::named(&machine.name), Some(machine));
        }
        assert_eq!(
            Machine::named("ip-10-0-0.eu-central-1.compute.internal"),
            None
        );
        assert_eq!(Machine::named("heron-1"), None);
    }
}
