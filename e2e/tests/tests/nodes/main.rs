//! Nodes on a real API server with an emulated AWS: initialisation, addresses, life cycle.

#![expect(clippy::panic, reason = "a failed expectation ends the test")]

mod addresses;
mod initialisation;
mod lifecycle;

use std::{collections::BTreeSet, net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, anyhow};
use ccm_cloudsim::{
    Call,
    aws::{RunInstance, Tags},
    control::Mark,
};
use ccm_e2e_tests::{Bench, CLUSTER_ID, node};
use ccm_testkit::eventually;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// A real API server puts it on every new Node; no controller takes it away here.
const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
const NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// As the defaults, faster.
const FAST: [&str; 2] = [
    "--node-monitor-period=1s",
    "--node-status-update-frequency=1s",
];

/// For what takes a few rounds or a back-off.
const SOON: Duration = Duration::from_secs(30);

/// The addresses of a Node as `type address`.
fn addresses(node: &Node) -> Vec<String> {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    addresses
        .into_iter()
        .flatten()
        .map(|address| format!("{} {}", address.type_, address.address))
        .collect()
}

/// The keys of a Node's taints, without those of the API server.
fn taints(node: &Node) -> Vec<&str> {
    let spec = node.spec.as_ref();
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    taints
        .into_iter()
        .flatten()
        .map(|taint| taint.key.as_str())
        .filter(|key| *key != NOT_READY_TAINT)
        .collect()
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    let labels = node.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

fn uid(node: &Node) -> Option<&str> {
    node.metadata.uid.as_deref()
}

/// What the machine's Node has as its provider id.
fn provider_id_of(bench: &Bench, machine: &str) -> Result<String> {
    let instance = bench.cloud.sim.aws().instance(machine);
    let zone = instance.context("no such machine")?.zone;
    Ok(format!("aws:///{zone}/{machine}"))
}

/// Launches a machine of the cluster in its first subnet.
fn launch(bench: &Bench, wanted: RunInstance) -> Result<String> {
    let owned = Tags::from([(
        format!("kubernetes.io/cluster/{CLUSTER_ID}"),
        "owned".to_owned(),
    )]);
    let subnet = bench.cloud.cluster.subnet_ids.first();
    let wanted = RunInstance {
        subnet: subnet.context("no subnet")?.clone(),
        tags: owned,
        ..wanted
    };
    let machine = bench.cloud.sim.aws().run_instance(wanted);
    machine.map_err(|error| anyhow!("launch: {error}"))
}

/// Launches a machine without public address whose first interface has these addresses.
fn launch_with(bench: &Bench, ips: &[Ipv4Addr]) -> Result<String> {
    let (first, more) = ips.split_first().context("no address")?;
    let machine = launch(
        bench,
        RunInstance {
            private_ip: Some(*first),
            ..RunInstance::default()
        },
    )?;
    let aws = bench.cloud.sim.aws();
    aws.add_addresses(&machine, more, &[])
        .map_err(|error| anyhow!("add addresses: {error}"))?;
    Ok(machine)
}

/// An initialised Node of the machine, as it stands in the API server. Returns its name.
async fn register(bench: &Bench, machine: &str, ready: &str) -> Result<String> {
    let name = bench.dns_name(machine)?;
    register_as(bench, &name, &provider_id_of(bench, machine)?, ready).await?;
    Ok(name)
}

/// An initialised Node of any name and provider id.
async fn register_as(bench: &Bench, name: &str, provider_id: &str, ready: &str) -> Result<Node> {
    let node = node(json!({
        "metadata": { "name": name },
        "spec": { "providerID": provider_id },
        "status": { "conditions": [{ "type": "Ready", "status": ready, "reason": "Test" }] },
    }));
    Ok(bench.nodes().create(&Default::default(), &node).await?)
}

/// The look-ups of instances since a mark.
fn lookups(bench: &Bench, mark: Mark) -> Vec<Call> {
    let calls = bench.cloud.sim.calls().calls_since(mark).into_iter();
    calls
        .filter(|call| call.action == "DescribeInstances")
        .collect()
}

/// The look-ups that named this value: an id or a name.
fn lookups_of(bench: &Bench, mark: Mark, value: &str) -> Vec<Call> {
    let calls = lookups(bench, mark).into_iter();
    calls
        .filter(|call| call.params.values().any(|param| param == value))
        .collect()
}

/// Waits until the cloud was asked `n` times more.
async fn asked(bench: &Bench, n: usize) {
    let mark = bench.cloud.sim.calls().mark();
    eventually("the cloud is asked", SOON, || async {
        let calls = lookups(bench, mark);
        // An answer has to be there, not only the question.
        let answered = calls
            .iter()
            .filter(|call| call.status.is_some() || call.error.is_some())
            .count();
        if answered >= n {
            Ok(())
        } else {
            Err(format!("{answered} of {n}"))
        }
    })
    .await;
}

/// Waits until the first address pass has written what the test left out.
async fn all_addressed(bench: &Bench) {
    eventually("every Node has addresses", SOON, || async {
        let nodes = bench.nodes().list(&Default::default()).await;
        let nodes = nodes.map_err(|error| error.to_string())?;
        let without: Vec<_> = nodes
            .iter()
            .filter(|node| addresses(node).is_empty())
            .map(|node| &node.metadata.name)
            .collect();
        without
            .is_empty()
            .then_some(())
            .ok_or_else(|| format!("{without:?}"))
    })
    .await;
}

/// How many events of this reason there are about a Node, repetitions counted.
async fn count_events(bench: &Bench, name: &str, reason: &str) -> Result<i32> {
    let events = bench.events(name).await?;
    let of_reason = events.iter().filter(|(_, r, _, _)| r == reason);
    Ok(of_reason.map(|(_, _, _, count)| count).sum())
}

/// The Nodes that are there now, by UID.
async fn uids(bench: &Bench) -> Result<BTreeSet<String>> {
    let nodes = bench.nodes().list(&Default::default()).await?;
    Ok(nodes
        .into_iter()
        .filter_map(|node| node.metadata.uid)
        .collect())
}

/// A cloud operation of the test that must work.
fn done<T>(outcome: Result<T, ccm_cloudsim::CloudError>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("the emulated cloud refuses the test: {error}"),
    }
}
