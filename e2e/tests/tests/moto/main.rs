//! The manager as a process against a real kube-apiserver and moto, an emulator of AWS that others
//! wrote: nodes, the network load balancer of a Service, a restart.

#![expect(clippy::unwrap_used, reason = "a failed expectation ends the test")]

use std::{collections::BTreeMap, time::Duration};

use ccm_e2e_tests::{Bench, CLUSTER_ID, Moto, service, tainted};
use ccm_envtest::Manager;
use ccm_testkit::{always, eventually};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

/// Generous: what happens at all happens within seconds on an idle machine.
const SOON: Duration = Duration::from_secs(60);

/// A bench whose manager works on moto.
struct World {
    bench: Bench,
    moto: Moto,
}

impl World {
    /// Starts moto with three machines and the manager; all Nodes are initialised.
    async fn new() -> Self {
        let bench = Bench::new(0).await.unwrap();
        let moto = Moto::start(CLUSTER_ID, 3).await.unwrap();
        let config = moto.cloud_config(CLUSTER_ID).unwrap();
        std::fs::write(bench.path("moto.conf"), config).unwrap();
        let mut world = Self { bench, moto };
        world.start_manager().await;
        for machine in world.moto.machines() {
            let node = tainted(&machine.name);
            world.bench.create_node(&node, "True").await.unwrap();
        }
        for machine in world.moto.machines() {
            world.bench.initialised(&machine.name).await;
        }
        world
    }

    async fn start_manager(&mut self) {
        let mut options = self.bench.manager_options(&["--node-monitor-period=1s"]);
        options.cloud_config = self.bench.path("moto.conf");
        let mut manager = Manager::start(&options).unwrap();
        manager.wait_until_ready(SOON).await.unwrap();
        self.bench.manager = Some(manager);
    }

    /// How often an event of that reason was told of the Service.
    async fn told(&self, name: &str, reason: &str) -> i32 {
        let events = self.bench.events(name).await.unwrap();
        let of_reason = events.iter().filter(|(_, r, _, _)| r == reason);
        of_reason.map(|(_, _, _, count)| count).sum()
    }

    async fn told_times(&self, name: &str, reason: &str, times: i32) {
        eventually("the event is told again", SOON, || async {
            let told = self.told(name, reason).await;
            if told >= times {
                return Ok(());
            }
            let events = self.bench.events(name).await.unwrap();
            Err(format!(
                "{told} of {times} times: {events:#?}\n{}",
                self.log_tail()
            ))
        })
        .await;
    }

    fn log_tail(&self) -> String {
        let manager = self.bench.manager.as_ref();
        manager.map(|m| m.process.tail(30)).unwrap_or_default()
    }

    /// The warnings about an object.
    async fn warnings(&self, name: &str) -> Vec<String> {
        let events = self.bench.events(name).await.unwrap();
        let warnings = events
            .into_iter()
            .filter(|(kind, _, _, _)| kind == "Warning");
        warnings.map(|(_, _, message, _)| message).collect()
    }

    /// The instance ids in order.
    fn machine_ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.moto.machines().into_iter().map(|m| m.id).collect();
        ids.sort();
        ids
    }
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    let labels = node.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

/// Listener port → (protocol, port of the target group it forwards to).
fn forwards(state: &Value) -> BTreeMap<u64, (String, u64)> {
    let all = |field: &str| state[field].as_array().cloned().unwrap_or_default();
    let groups: BTreeMap<String, u64> = all("target_groups")
        .iter()
        .map(|g| {
            (
                g["arn"].as_str().unwrap().to_owned(),
                g["port"].as_u64().unwrap(),
            )
        })
        .collect();
    all("listeners")
        .iter()
        .map(|one| {
            let group = one["to"].as_str().unwrap();
            let protocol = one["protocol"].as_str().unwrap().to_owned();
            (
                one["port"].as_u64().unwrap(),
                (protocol, groups.get(group).copied().unwrap_or(0)),
            )
        })
        .collect()
}

/// The rules of the node group as `protocol from..to source`, in order.
fn rules(state: &Value) -> Vec<String> {
    let all = state["rules"].as_array().cloned().unwrap_or_default();
    let mut shown: Vec<String> = all
        .iter()
        .map(|rule| {
            let (protocol, cidr) = (
                rule["protocol"].as_str().unwrap(),
                rule["cidr"].as_str().unwrap(),
            );
            format!("{protocol} {}..{} {cidr}", rule["from"], rule["to"])
        })
        .collect();
    shown.sort();
    shown
}

/// `Ok` when both are equal, else says what they are.
fn same<T: PartialEq + std::fmt::Debug>(have: &T, want: &T) -> Result<(), String> {
    if have == want {
        Ok(())
    } else {
        Err(format!("{have:?} is not {want:?}"))
    }
}

fn forward_to(ports: &[(u64, u64)]) -> BTreeMap<u64, (String, u64)> {
    let tcp = |to: u64| ("TCP".to_owned(), to);
    ports.iter().map(|(port, to)| (*port, tcp(*to))).collect()
}

/// REQ-NODE-02, REQ-NODE-07
#[tokio::test]
async fn machines_of_moto_become_initialised_nodes() {
    let world = World::new().await;
    for machine in world.moto.machines() {
        let node = world.bench.nodes().get(&machine.name).await.unwrap();
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
        let want = format!("aws:///{}/{}", machine.zone, machine.id);
        assert_eq!(provider_id, Some(want));
        for (key, value) in [
            ("topology.kubernetes.io/zone", machine.zone.as_str()),
            ("topology.kubernetes.io/region", "us-west-2"),
            ("node.kubernetes.io/instance-type", "m5.large"),
        ] {
            assert_eq!(label(&node, key), Some(value), "{key}");
        }
        let addresses = node.status.and_then(|status| status.addresses).unwrap();
        let of_kind = |kind: &str| -> Vec<&str> {
            let fits = addresses.iter().filter(|address| address.type_ == kind);
            fits.map(|address| address.address.as_str()).collect()
        };
        assert_eq!(of_kind("InternalIP"), [machine.ip.as_str()]);
        assert!(
            of_kind("InternalDNS").contains(&machine.name.as_str()),
            "{addresses:?}"
        );
    }
    assert_eq!(world.moto.writes().await.unwrap(), BTreeMap::new());
}

/// REQ-LIFE-05: the Node of a machine that is gone goes, the others stay.
#[tokio::test]
async fn the_node_of_a_terminated_machine_goes() {
    let world = World::new().await;
    let machines = world.moto.machines();
    let (gone, stay) = machines.split_first().unwrap();
    world.moto.terminate(&gone.id).await.unwrap();
    world.bench.set_ready(&gone.name, "Unknown").await.unwrap();
    // One more is not ready, but its machine is there.
    world
        .bench
        .set_ready(&stay[0].name, "Unknown")
        .await
        .unwrap();
    world.bench.node_gone(&gone.name).await;
    always("the other Nodes stay", Duration::from_secs(3), || async {
        for machine in stay {
            let node = world.bench.nodes().get_opt(&machine.name).await;
            if node.map_err(|error| error.to_string())?.is_none() {
                return Err(format!("{} is gone", machine.name));
            }
        }
        Ok(())
    })
    .await;
}

/// REQ-SVC-35, REQ-SVC-36, REQ-AWS-NLB-10, REQ-AWS-NLB-24, REQ-AWS-SG-18: created, changed, deleted.
#[tokio::test]
async fn a_service_gets_a_network_load_balancer_that_follows_it_and_goes_with_it() {
    let world = World::new().await;
    let (bench, moto) = (&world.bench, &world.moto);
    let made = bench
        .create_service(&service("web", &[(80, 30080)]))
        .await
        .unwrap();
    let uid = made.metadata.uid.unwrap().replace('-', "");
    let hostname = bench.hostname("web").await;
    let state = moto.state().await.unwrap();
    let balancers = state["load_balancers"].as_array().unwrap();
    assert_eq!(balancers.len(), 1, "{state:#}");
    let balancer = &balancers[0];
    let name: String = format!("a{uid}").chars().take(32).collect();
    assert_eq!(balancer["name"], json!(name));
    assert_eq!(balancer["dns"], json!(hostname));
    assert_eq!(balancer["type"], "network");
    assert_eq!(balancer["scheme"], "internet-facing");
    assert_eq!(balancer["tags"]["kubernetes.io/service-name"], "shop/web");
    assert_eq!(balancer["tags"]["kubernetes.io/cluster/kite"], "owned");
    assert_eq!(balancer["subnets"].as_array().unwrap().len(), 2);
    assert_eq!(forwards(&state), forward_to(&[(80, 30080)]));
    let targets: Vec<Value> = world
        .machine_ids()
        .iter()
        .map(|id| json!([id, 30080]))
        .collect();
    assert_eq!(state["target_groups"][0]["targets"], json!(targets));
    let open = |port: u64| format!("tcp {port}..{port} 0.0.0.0/0");
    let mtu = "icmp 3..4 0.0.0.0/0".to_owned();
    assert_eq!(rules(&state), [mtu.clone(), open(30080)]);
    assert_eq!(world.warnings("web").await, [""; 0]);

    let two = json!({ "spec": { "ports": [
        { "name": "p80", "port": 80, "nodePort": 30080, "protocol": "TCP" },
        { "name": "p443", "port": 443, "nodePort": 30443, "protocol": "TCP" },
    ] } });
    bench.patch_service("web", two).await.unwrap();
    moto.until("the port is added", |state| {
        same(&forwards(state), &forward_to(&[(80, 30080), (443, 30443)]))?;
        same(&rules(state), &vec![mtu.clone(), open(30080), open(30443)])?;
        let groups = state["target_groups"].as_array().unwrap();
        let full = groups
            .iter()
            .all(|g| g["targets"].as_array().is_some_and(|t| t.len() == 3));
        same(&full, &true)
    })
    .await;

    let ranges = json!({ "spec": { "loadBalancerSourceRanges": ["192.0.2.0/24"] } });
    bench.patch_service("web", ranges).await.unwrap();
    // The range for clients, the subnets of the load balancer for its health checks.
    let mut narrow = vec!["icmp 3..4 192.0.2.0/24".to_owned()];
    for port in [30080, 30443] {
        let sources = ["10.0.0.0/24", "10.0.1.0/24", "192.0.2.0/24"];
        narrow.extend(sources.map(|source| format!("tcp {port}..{port} {source}")));
    }
    moto.until("only the range may come in", |state| {
        same(&rules(state), &narrow)
    })
    .await;

    let one = json!({ "spec": { "ports": [
        { "name": "p443", "port": 443, "nodePort": 30444, "protocol": "TCP" },
    ] } });
    bench.patch_service("web", one).await.unwrap();
    moto.until("one port goes, the other moves", |state| {
        same(&forwards(state), &forward_to(&[(443, 30444)]))?;
        same(&state["target_groups"].as_array().map(Vec::len), &Some(1))
    })
    .await;
    assert_eq!(world.warnings("web").await, [""; 0]);

    bench.delete_service("web").await.unwrap();
    let nothing =
        json!({ "load_balancers": [], "listeners": [], "target_groups": [], "rules": [] });
    assert_eq!(moto.state().await.unwrap(), nothing);
}

/// REQ-SVC-43
#[tokio::test]
async fn a_restart_writes_nothing_to_moto() {
    let mut world = World::new().await;
    for (name, port) in [("web", 30080), ("shop", 30090)] {
        let made = service(name, &[(80, port), (443, port + 1)]);
        world.bench.create_service(&made).await.unwrap();
        world.bench.hostname(name).await;
    }
    for name in ["web", "shop"] {
        world.told_times(name, "EnsuredLoadBalancer", 1).await;
    }
    let told = world.told("web", "EnsuredLoadBalancer").await;
    let before = world.moto.writes().await.unwrap();
    assert_eq!(before["CreateLoadBalancer"], 2);
    world.bench.stop_manager().await.unwrap();
    world.start_manager().await;
    for name in ["web", "shop"] {
        world
            .told_times(name, "EnsuredLoadBalancer", told + 1)
            .await;
    }
    always("nothing is written", Duration::from_secs(3), || async {
        let now = world
            .moto
            .writes()
            .await
            .map_err(|error| error.to_string())?;
        same(&now, &before)
    })
    .await;
    for name in ["web", "shop"] {
        assert_eq!(world.warnings(name).await, [""; 0]);
    }
}
