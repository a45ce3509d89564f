//! Resident memory of the release binary.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use ccm_cloudsim::CloudSim;
use ccm_envtest::{Manager, ManagerOptions, cloud_config, kubeconfig};
use ccm_kubesim::KubeSim;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

const NODES: usize = 50;
/// The budget, in bytes.
const LIMIT: u64 = 40 * 1024 * 1024;

/// Starts the binary against emulators in another process, waits until it is idle and measures.
///
/// # Errors
/// The manager does not become ready, or is over its budget.
pub(crate) fn run() -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let bytes = runtime.block_on(measure())?;
    let mib = bytes / 1024 / 1024;
    println!("resident memory with {NODES} Nodes, idle: {mib} MiB ({bytes} bytes)");
    ensure!(bytes < LIMIT, "over the budget of {LIMIT} bytes");
    Ok(json!({ "nodes": NODES, "residentBytes": bytes }))
}

async fn measure() -> Result<u64> {
    ccm_testkit::install_tls();
    let cloud = CloudSim::new(ccm_cloudsim::Options::default());
    let cluster = cloud
        .aws()
        .standard_cluster("kite", NODES)
        .map_err(|error| anyhow!("emulated AWS: {error:?}"))?;
    let kube = KubeSim::new(ccm_kubesim::Options::default());
    for id in &cluster.instance_ids {
        let machine = cloud.aws().instance(id).context("no such machine")?;
        kube.apply_direct(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": machine.private_dns_name },
            "spec": { "taints": [{ "key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        }))
        .map_err(|error| anyhow!("{error:?}"))?;
    }
    let cloud_listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let kube_listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let cloud_url = format!("http://{}", cloud_listener.local_addr()?);
    let kube_url = format!("http://{}", kube_listener.local_addr()?);
    tokio::spawn(async move { cloud.serve(cloud_listener, std::future::pending()).await });
    let server = kube.clone();
    tokio::spawn(async move { server.serve(kube_listener, std::future::pending()).await });
    let dir = TempDir::with_prefix("ccm-bench-")?;
    let (config, access) = (dir.path().join("cloud.conf"), dir.path().join("kubeconfig"));
    let subnet = cluster.subnet_ids.first().context("no subnet")?;
    std::fs::write(
        &config,
        cloud_config(&cloud_url, "us-west-2", &cluster.vpc_id, subnet, "kite"),
    )?;
    std::fs::write(&access, kubeconfig(&kube_url, None, "manager", None))?;
    let mut manager = Manager::start(&ManagerOptions {
        kubeconfig: access,
        cloud_config: config,
        flags: vec!["-v=0".to_owned()],
        environment: Vec::new(),
    })?;
    manager.wait_until_ready(Duration::from_secs(60)).await?;
    // Real time: the process under measurement has no other.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let waiting = kube
        .list("nodes")
        .into_iter()
        .filter(|node| node.pointer("/spec/providerID").is_none())
        .count();
    ensure!(waiting == 0, "{waiting} Nodes are not initialised");
    manager.resident_bytes()
}
