//! Plays the kubelets: a machine that starts registers its Node with the cloud taint, one that
//! stops no longer reports Ready.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use ccm_cloudsim::CloudSim;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::Instant;

const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";

/// Tries of one write against others; the next step tries again.
const WRITE_TRIES: u32 = 10;

/// One machine's kubelet.
#[derive(Clone)]
struct Kubelet {
    /// The Node's name. A terminated machine has no DNS name any more.
    node: String,
    runs: bool,
}

/// The kubelets of all machines.
pub(crate) struct Kubelets {
    nodes: Api<Node>,
    cloud: CloudSim,
    /// By machine. A kubelet registers when it starts, never again.
    kubelets: Mutex<BTreeMap<String, Kubelet>>,
}

impl Kubelets {
    pub(crate) fn new(client: Client, cloud: CloudSim) -> Self {
        Self {
            nodes: Api::all(client),
            cloud,
            kubelets: Mutex::default(),
        }
    }

    /// Brings every Node's existence and readiness in line with its machine.
    pub(crate) async fn step(&self) -> Result<()> {
        for machine in self.cloud.aws().snapshot().instances.into_values() {
            let runs = machine.state == ccm_cloudsim::aws::InstanceState::Running;
            let known = self.known(&machine.id);
            if known.as_ref().map_or(!runs, |known| known.runs == runs) {
                continue;
            }
            let node = known.map_or(machine.private_dns_name, |known| known.node);
            if runs {
                self.register(&node).await?;
            }
            self.report(&node, runs).await?;
            if runs {
                self.unmark_not_ready(&node).await?;
            }
            self.kubelets
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(machine.id, Kubelet { node, runs });
        }
        Ok(())
    }

    /// Waits until no Node carries the cloud taint.
    pub(crate) async fn wait_until_initialised(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let nodes = self.nodes.list(&ListParams::default()).await?.items;
            let waiting: Vec<_> = nodes.iter().filter(|node| has_cloud_taint(node)).collect();
            if waiting.is_empty() {
                return Ok(());
            }
            if start.elapsed() > limit {
                bail!(
                    "{} Nodes are not initialised after {limit:?}",
                    waiting.len()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn known(&self, machine: &str) -> Option<Kubelet> {
        let kubelets = self.kubelets.lock().unwrap_or_else(PoisonError::into_inner);
        kubelets.get(machine).cloned()
    }

    async fn register(&self, name: &str) -> Result<()> {
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" },
            },
            "spec": { "taints": [{ "key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule" }] },
        }))?;
        match self.nodes.create(&PostParams::default(), &node).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(error).with_context(|| format!("register Node {name}")),
        }
    }

    /// Takes the taint away that admission gives to a new Node, as the node controller of
    /// kube-controller-manager does once the Node is Ready.
    async fn unmark_not_ready(&self, name: &str) -> Result<()> {
        for _ in 0..WRITE_TRIES {
            let Some(node) = self.nodes.get_opt(name).await? else {
                return Ok(());
            };
            let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let before = taints.len();
            taints.retain(|taint| taint.key != NOT_READY_TAINT);
            if taints.len() == before {
                return Ok(());
            }
            let patch = json!({
                "metadata": { "resourceVersion": node.metadata.resource_version },
                "spec": { "taints": taints },
            });
            let params = PatchParams::default();
            match self.nodes.patch(name, &params, &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                outcome => return outcome.map(|_| ()).map_err(Into::into),
            }
        }
        bail!("Node {name} changes too often")
    }

    /// Writes the Ready condition; a Node that is gone stays gone.
    async fn report(&self, name: &str, ready: bool) -> Result<()> {
        let (status, reason, message) = if ready {
            ("True", "KubeletReady", "kubelet is posting ready status")
        } else {
            (
                "Unknown",
                "NodeStatusUnknown",
                "Kubelet stopped posting node status.",
            )
        };
        let patch = json!({ "status": {
            "conditions": [{ "type": "Ready", "status": status, "reason": reason, "message": message }],
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.1.0-sandbox",
                "osImage": "Sandbox Linux", "containerRuntimeVersion": "none://0", "kubeletVersion": "v1.33.0",
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
        }});
        let params = PatchParams::default();
        match self
            .nodes
            .patch_status(name, &params, &Patch::Strategic(&patch))
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error).with_context(|| format!("report status of Node {name}")),
        }
    }
}

fn has_cloud_taint(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    taints
        .unwrap_or_default()
        .iter()
        .any(|taint| taint.key == CLOUD_TAINT)
}
