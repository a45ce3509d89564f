//! Writes that are applied although their answer is lost, and writes that come too late.

use std::{sync::Arc, time::Duration};

use ccm_core::{cloud::Class, config::NodeSettings};
use ccm_kubesim::{Fault, Target, Verb};

use crate::{
    cloud::{Machine, addresses},
    world::{NewNode, World, millis, seconds},
};

const DELAYS: [&str; 2] = [
    "node_controller_cloud_provider_taint_removal_delay_seconds",
    "node_controller_initial_node_sync_delay_seconds",
];

fn world() -> World {
    World::new().with_node_controller(NodeSettings::default())
}

fn main_patch() -> Target {
    Target::new(Verb::Patch, "nodes").subresource("")
}

fn assert_complete_once(world: &World, name: &str) {
    assert!(world.initialised(name));
    assert_eq!(world.addresses(name), addresses("Int 10.0.0.1"));
    assert_eq!(world.reasons(), ["Synced"]);
    for series in DELAYS {
        assert_eq!(world.metric(series, &[]), 1, "{series}");
    }
}

/// CASE-NODE-02; REQ-NODE-19, REQ-NODE-25
#[tokio::test(start_paused = true)]
async fn an_initialisation_whose_answer_is_lost_is_completed_once() {
    for fault in [Fault::TimeoutWithEffect, Fault::DropWithEffect] {
        let world = world();
        world.join(&NewNode::fresh("heron-1"), Machine::running("sim://1"));
        world.sim.faults().fail_next(1, main_patch(), fault);
        let world = world.start();
        seconds(2).await;
        assert_complete_once(&world, "heron-1");
        assert_eq!(world.cloud.asked(), 1);
        seconds(20).await;
        assert_complete_once(&world, "heron-1");
        assert_eq!(world.patches("heron-1").len(), 2, "no second write");
    }
}

/// CASE-NODE-02; REQ-NODE-19, REQ-NODE-25
#[tokio::test(start_paused = true)]
async fn it_is_completed_even_if_the_read_after_it_fails_too() {
    let world = world();
    world.join(&NewNode::fresh("heron-1"), Machine::running("sim://1"));
    let faults = world.sim.faults();
    faults.fail_next(1, main_patch(), Fault::TimeoutWithEffect);
    faults.fail_next(1, Target::new(Verb::Get, "nodes"), Fault::Internal);
    let world = world.start();
    seconds(5).await;
    assert_complete_once(&world, "heron-1");
    seconds(20).await;
    assert_complete_once(&world, "heron-1");
}

/// REQ-NODE-25: what others did is not reported as ours.
#[tokio::test(start_paused = true)]
async fn a_taint_that_someone_else_removed_is_not_our_initialisation() {
    let world = world();
    world.join(&NewNode::fresh("heron-1"), Machine::running("sim://1"));
    let faults = world.sim.faults();
    faults.fail_next(1, main_patch(), Fault::Drop);
    faults.fail_next(
        1,
        Target::new(Verb::Get, "nodes"),
        Fault::Delay(Duration::from_secs(1)),
    );
    let world = world.start();
    millis(500).await;
    world.edit("heron-1", |node| {
        node["spec"].as_object_mut().unwrap().remove("taints");
    });
    seconds(10).await;
    assert!(world.initialised("heron-1"));
    assert_eq!(world.node("heron-1").provider_id(), None);
    assert!(world.reasons().is_empty());
    assert_eq!(world.metric(DELAYS[0], &[]), 0);
}

/// REQ-NODE-16, REQ-NODE-22: addresses and labels of a machine never reach the next Node of that
/// name.
#[tokio::test(start_paused = true)]
async fn late_addresses_and_labels_do_not_land_on_a_new_node_of_the_same_name() {
    let (beta, stable) = (
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    );
    let world = world();
    world.join(
        &NewNode::named("a").id("sim://a").label(beta, "old"),
        Machine::running("sim://a"),
    );
    world.sim.faults().fail_next(
        2,
        Target::new(Verb::Patch, "nodes"),
        Fault::Delay(Duration::from_secs(2)),
    );
    let world = world.start();
    seconds(1).await;
    let sim = Arc::clone(&world.sim);
    sim.delete_direct("nodes", "", "a").unwrap();
    world.cloud.fail_for("a", Some(Class::Transient));
    world.create(&NewNode::fresh("a"));
    seconds(10).await;
    assert!(world.addresses("a").is_empty());
    assert!(
        !world
            .node("a")
            .metadata
            .labels
            .unwrap_or_default()
            .contains_key(stable)
    );
    let patches = world.patches("a");
    assert_eq!(patches.len(), 2, "{patches:?}");
    assert!(
        patches.iter().all(|(_, status)| *status == 422),
        "{patches:?}"
    );
}

/// CASE-NODE-08; REQ-NODE-22 (U8)
#[tokio::test(start_paused = true)]
async fn a_refused_label_repair_backs_off_and_heartbeats_do_not_hurry_it() {
    let world = world();
    world.join(
        &NewNode::named("a")
            .id("sim://a")
            .at("Int 10.0.0.1")
            .label("beta.kubernetes.io/instance-type", "v"),
        Machine::running("sim://a"),
    );
    world
        .sim
        .faults()
        .fail_next(1_000, main_patch(), Fault::Forbidden);
    let world = world.start();
    for beat in 0..60 {
        seconds(1).await;
        world.edit("a", |node| {
            node["status"]["conditions"][0]["lastHeartbeatTime"] =
                serde_json::json!(format!("2026-01-01T00:00:{beat:02}Z"));
        });
    }
    let tries = world.patches("a").len();
    // 5 ms doubling: try n is 5 ms × (2^n − 1) after the first.
    assert_eq!(tries, 14);
}
