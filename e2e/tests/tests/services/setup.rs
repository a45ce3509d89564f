//! How a test begins, and what it does to the cluster and to the cloud.

use std::{collections::BTreeMap, time::Duration};

use ccm_cloudsim::RunInstance;
use ccm_e2e_tests::{Bench, CLUSTER_ID, node, tainted};
use ccm_testkit::{always, eventually};
use k8s_openapi::api::core::v1::Service;
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// What all annotations of AWS load balancers begin with.
pub const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

/// Generous: what happens at all happens within seconds on an idle machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A manager that has initialised a Node for each of the machines.
pub async fn ready(machines: usize) -> Bench {
    ready_with(machines, &[]).await
}

/// As [`ready`], with flags for the manager.
pub async fn ready_with(machines: usize, flags: &[&str]) -> Bench {
    let mut bench = Bench::new(machines).await.unwrap();
    start(&mut bench, flags).await;
    bench
}

/// As [`ready`], with one more line in the section `Global` of the cloud-config file.
pub async fn ready_with_config(machines: usize, line: &str) -> Bench {
    let mut bench = Bench::new(machines).await.unwrap();
    let path = bench.manager_options(&[]).cloud_config;
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("[Global]\n", &format!("[Global]\n{line}\n"));
    std::fs::write(&path, text).unwrap();
    start(&mut bench, &[]).await;
    bench
}

async fn start(bench: &mut Bench, flags: &[&str]) {
    let names = bench.join_all().await.unwrap();
    bench.start_manager(flags).await.unwrap();
    for name in names {
        bench.initialised(&name).await;
        // The last word: what is counted from here on is not about this Node.
        bench.event(&name, "Synced").await;
    }
}

/// Adds annotations, named without [`PREFIX`].
pub fn annotated(mut service: Service, annotations: &[(&str, &str)]) -> Service {
    for (key, value) in annotations {
        service
            .annotations_mut()
            .insert(format!("{PREFIX}{key}"), (*value).to_owned());
    }
    service
}

/// Replaces fields of the spec.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers pass `json!` as it stands"
)]
pub fn with_spec(service: &Service, fields: Value) -> Service {
    let mut object = serde_json::to_value(service).unwrap();
    let spec = object["spec"].as_object_mut().unwrap();
    for (key, value) in fields.as_object().unwrap() {
        spec.insert(key.clone(), value.clone());
    }
    serde_json::from_value(object).unwrap()
}

/// A merge patch that sets one annotation, named without [`PREFIX`]; `None` removes it.
pub fn annotation(key: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { (format!("{PREFIX}{key}")): value } } })
}

/// Creates the Service and waits for its load balancer. Returns it as it then is.
pub async fn published(bench: &Bench, service: &Service) -> Service {
    let name = bench.create_service(service).await.unwrap().name_any();
    bench.hostname(&name).await;
    bench.services().get(&name).await.unwrap()
}

/// A machine as those of the cluster, without a Node.
pub fn new_machine(bench: &Bench) -> String {
    let cluster = &bench.cloud.cluster;
    let tag = (
        format!("kubernetes.io/cluster/{CLUSTER_ID}"),
        "owned".to_owned(),
    );
    bench
        .cloud
        .sim
        .aws()
        .run_instance(RunInstance {
            subnet: cluster.subnet_ids[0].clone(),
            security_groups: vec![cluster.security_group_id.clone()],
            tags: BTreeMap::from([tag]),
            public_ip: true,
            ..RunInstance::default()
        })
        .unwrap()
}

/// The provider id of a machine.
pub fn provider_id(bench: &Bench, machine: &str) -> String {
    let zone = bench.cloud.sim.aws().instance(machine).unwrap().zone;
    format!("aws:///{zone}/{machine}")
}

/// A new machine whose Node is initialised already. Returns machine and Node.
pub async fn join(bench: &Bench) -> (String, String) {
    let machine = new_machine(bench);
    let name = bench.dns_name(&machine).unwrap();
    let id = provider_id(bench, &machine);
    let initialised = node(json!({ "metadata": { "name": name }, "spec": { "providerID": id } }));
    bench.create_node(&initialised, "True").await.unwrap();
    (machine, name)
}

/// A new machine whose Node the manager has to initialise. Returns machine and Node.
pub async fn join_tainted(bench: &Bench) -> (String, String) {
    let machine = new_machine(bench);
    let name = bench.dns_name(&machine).unwrap();
    bench.create_node(&tainted(&name), "True").await.unwrap();
    (machine, name)
}

/// Deletes the Node of a machine that goes on.
pub async fn leave(bench: &Bench, machine: &str) {
    let name = bench.dns_name(machine).unwrap();
    let params = DeleteParams::default();
    bench.nodes().delete(&name, &params).await.unwrap();
}

/// Merge-patches the Node of a machine.
pub async fn patch_node(bench: &Bench, machine: &str, patch: Value) {
    let name = bench.dns_name(machine).unwrap();
    let params = PatchParams::default();
    let patch = Patch::Merge(&patch);
    bench.nodes().patch(&name, &params, &patch).await.unwrap();
}

/// Calls the load balancer API as somebody else does: unsigned, over HTTP.
pub async fn elbv2(bench: &Bench, action: &str, params: &[(&str, &str)]) {
    call(bench, "2015-12-01", action, params).await;
}

/// Calls EC2 as somebody else does: unsigned, over HTTP.
pub async fn ec2(bench: &Bench, action: &str, params: &[(&str, &str)]) {
    call(bench, "2016-11-15", action, params).await;
}

async fn call(bench: &Bench, version: &str, action: &str, params: &[(&str, &str)]) {
    let mut body = format!("Action={action}&Version={version}");
    for (key, value) in params {
        body.push_str(&format!("&{key}={}", value.replace('/', "%2F")));
    }
    let host = bench.cloud.url.strip_prefix("http://").unwrap();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{action}: {answer}");
}

/// Waits until the cloud has received `count` calls of the action since the test began.
pub async fn called(bench: &Bench, action: &str, count: usize) {
    let calls = bench.cloud.sim.calls();
    eventually("the call arrives", LIMIT, || async {
        let counts = calls.counts_since(calls.start());
        if counts.get(action).copied().unwrap_or_default() >= count {
            Ok(())
        } else {
            Err(format!(
                "{action} not {count} times in {counts:?}\n{}",
                bench.log()
            ))
        }
    })
    .await;
}

/// Nothing is written for that long, neither in the cloud nor, leases and events left out, at the
/// API server: check U4 of the fault cases.
pub async fn quiet(bench: &Bench, period: Duration) {
    let calls = bench.cloud.sim.calls();
    let (mark, writes) = (calls.mark(), manager_writes(bench).await);
    always("nothing is written", period, || async {
        let cloud = calls.writes_since(mark);
        let now = manager_writes(bench).await;
        if cloud.is_empty() && now == writes {
            Ok(())
        } else {
            Err(format!(
                "{} writes to the API server, {cloud:#?}",
                now - writes
            ))
        }
    })
    .await;
}

/// The manager's writes to the API server so far, those of earlier tests included.
pub async fn manager_writes(bench: &Bench) -> usize {
    bench.api.server().await.manager_writes().unwrap()
}

/// The manager's requests so far of that kind, those of earlier tests included.
pub async fn requests(bench: &Bench, verb: &str, resource: &str) -> usize {
    let counts = bench.api.audit().await.unwrap();
    let key = (verb.to_owned(), resource.to_owned());
    counts.get(&key).copied().unwrap_or_default()
}

/// When the manager first wrote `services/status` of the Service, by the audit log. No other test
/// may have a Service of that name.
pub async fn first_status_write(bench: &Bench, name: &str) -> jiff::Timestamp {
    let path = bench.api.server().await.dir().join("audit.log");
    let text = std::fs::read_to_string(path).unwrap();
    let write = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|event| {
            event["verb"] == "patch"
                && event["objectRef"]["subresource"] == "status"
                && event["objectRef"]["name"] == name
                && event["responseStatus"]["code"] == 200
        })
        .unwrap();
    write["stageTimestamp"].as_str().unwrap().parse().unwrap()
}

/// The Warnings about a Service: reason, message, count.
pub async fn warnings(bench: &Bench, name: &str) -> Vec<(String, String, i32)> {
    let events = bench.events(name).await.unwrap().into_iter();
    events
        .filter(|(kind, ..)| kind == "Warning")
        .map(|(_, reason, message, count)| (reason, message, count))
        .collect()
}

/// How often something was told about a Service.
pub async fn told(bench: &Bench, name: &str, reason: &str) -> i32 {
    let events = bench.events(name).await.unwrap().into_iter();
    events
        .filter(|(_, told, ..)| told == reason)
        .map(|(_, _, _, count)| count.max(1))
        .sum()
}

/// Waits until something was told that often.
pub async fn told_times(bench: &Bench, name: &str, reason: &str, count: i32) {
    eventually("it is told", LIMIT, || async {
        let now = told(bench, name, reason).await;
        if now >= count {
            Ok(())
        } else {
            Err(format!(
                "{reason} {now} times: {:#?}",
                bench.events(name).await
            ))
        }
    })
    .await;
}

/// Waits until the Service has no host name in its status.
pub async fn no_hostname(bench: &Bench, name: &str) {
    eventually("the status is empty", LIMIT, || async {
        let service = bench
            .services()
            .get(name)
            .await
            .map_err(|e| e.to_string())?;
        match hostname(&service) {
            None => Ok(()),
            Some(hostname) => Err(hostname),
        }
    })
    .await;
}

/// The host name in the Service's status.
pub fn hostname(service: &Service) -> Option<String> {
    let ingress = service.status.clone()?.load_balancer?.ingress?;
    ingress.first()?.hostname.clone()
}

/// Whether the finalizer of load balancers is on the Service.
pub fn finalized(service: &Service) -> bool {
    service
        .finalizers()
        .contains(&"service.kubernetes.io/load-balancer-cleanup".to_owned())
}
