//! Ranges copied from the machines.

use std::sync::Arc;

use ccm_core::cloud::{CloudPodCidrs, NodeIpamPolicy, PodCidrs};
use serde_json::json;

use crate::world::{FakeMachines, Process, World, pool, seconds};

type Machines = Arc<FakeMachines<CloudPodCidrs>>;

fn start(world: &World, machines: &Machines) -> Process {
    let mut settings = pool("10.64.0.0/14");
    "CloudAllocator".clone_into(&mut settings.allocator_type);
    let copied = PodCidrs::Copied(machines.clone());
    world.start_with(&settings, NodeIpamPolicy::Gcp, Some(copied))
}

fn ranges(cidrs: &[&str], routed: bool) -> CloudPodCidrs {
    CloudPodCidrs {
        cidrs: cidrs.iter().map(|&c| c.to_owned()).collect(),
        routed,
    }
}

fn network_condition(world: &World, name: &str) -> Option<serde_json::Value> {
    let node = world.raw(name);
    let mut conditions = node["status"]["conditions"].as_array().unwrap().iter();
    conditions
        .find(|c| c["type"] == "NetworkUnavailable")
        .cloned()
}

#[tokio::test(start_paused = true)]
async fn ranges_are_copied_and_a_routed_machine_makes_the_network_available() {
    let world = World::new();
    let machines = Machines::default();
    machines.put("n1", ranges(&["10.0.1.0/24", "2001:db8::/112"], true));
    machines.put("n2", ranges(&["10.0.2.0/24"], false));
    world.create("n1", &[]);
    world.create("n2", &[]);
    let process = start(&world, &machines);
    seconds(5).await;
    assert_eq!(world.cidrs("n1"), ["10.0.1.0/24", "2001:db8::/112"]);
    assert_eq!(world.cidrs("n2"), ["10.0.2.0/24"]);
    let condition = network_condition(&world, "n1").unwrap();
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "RouteCreated");
    assert_eq!(condition["message"], "NodeController create implicit route");
    assert!(condition["lastTransitionTime"].is_string());
    assert!(network_condition(&world, "n2").is_none());
    // Nothing is left to do, and heartbeats ask nothing.
    let (asked, writes) = (machines.questions().len(), world.sim.requests().writes());
    for n in 0..20 {
        for name in ["n1", "n2"] {
            let labels = json!({ "beat": n.to_string() });
            world.change(name, &json!({ "metadata": { "labels": labels } }));
        }
        seconds(1).await;
    }
    assert_eq!(machines.questions().len(), asked);
    assert_eq!(world.sim.requests().writes(), writes);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_ranges_is_given_up_after_twenty_tries_until_its_node_changes() {
    let world = World::new();
    let machines = Machines::default();
    world.create("n1", &[]);
    let process = start(&world, &machines);
    seconds(600).await;
    assert_eq!(world.events("n1", "CIDRNotAvailable"), 21);
    assert_eq!(machines.questions().len(), 21);
    let dropped = "ccm_node_ipam_dropped_nodes_total";
    assert_eq!(process.metric(dropped, ""), 1.0);
    machines.put("n1", ranges(&["10.0.1.0/24"], false));
    seconds(600).await;
    assert!(world.cidrs("n1").is_empty());
    world.change("n1", &json!({ "metadata": { "labels": { "a": "b" } } }));
    seconds(5).await;
    assert_eq!(world.cidrs("n1"), ["10.0.1.0/24"]);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ranges_that_differ_from_the_machines_are_never_patched() {
    let world = World::new();
    let machines = Machines::default();
    machines.put("n1", ranges(&["10.0.1.0/24"], false));
    machines.put("n2", ranges(&["10.0.2.0/24", "10.0.3.0/24"], false));
    world.create("n1", &["10.0.9.0/24"]);
    world.create("n2", &[]);
    world.create_with("n3", &json!({}));
    let process = start(&world, &machines);
    seconds(60).await;
    assert!(world.events("n1", "CIDRAssignmentFailed") > 0);
    assert!(
        world.events("n2", "CIDRNotAvailable") > 0,
        "two of one family"
    );
    for name in ["n1", "n2", "n3"] {
        assert!(world.patches(name).is_empty());
    }
    // The machine of the third becomes known.
    machines.put("n3", ranges(&["10.0.4.0/24"], false));
    world.change("n3", &json!({ "spec": { "providerID": "sim://n3" } }));
    seconds(20).await;
    assert_eq!(world.cidrs("n3"), ["10.0.4.0/24"]);
    process.stop().await;
}
