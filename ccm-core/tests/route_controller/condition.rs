//! The condition `NetworkUnavailable`.

use std::time::Duration;

use ccm_core::cloud::Class;
use ccm_kubesim::{Fault, Target, Verb};
use serde_json::json;

use crate::world::{World, classic, seconds};

/// REQ-ROUTE-11, REQ-ROUTE-12; CASE-RT-07
#[tokio::test(start_paused = true)]
async fn a_foreign_reason_is_replaced_once_and_nothing_else_is_changed() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    world.edit("a", |node| {
        let all = node["status"]["conditions"].as_array_mut().unwrap();
        all.push(json!({
            "type": "NetworkUnavailable",
            "status": "False",
            "reason": "CniIsUp",
            "message": "the CNI is up",
        }));
    });
    let ready = world.raw("a")["status"]["conditions"][0].clone();
    let world = world.start(classic());
    seconds(60).await;
    let condition = world.condition("a").unwrap();
    assert_eq!(
        condition,
        json!({
            "type": "NetworkUnavailable",
            "status": "False",
            "reason": "RouteCreated",
            "message": "RouteController created a route",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    );
    let node = world.raw("a");
    let all = node["status"]["conditions"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    assert!(all.contains(&ready), "others are as they were");
    assert_eq!(world.patches("a"), 1);
    let entries = world.sim.requests().entries;
    let patch = entries.iter().find(|e| e.key.verb == Verb::Patch).unwrap();
    assert_eq!(patch.key.subresource, "status");
    // The CNI is back: so are we.
    world.edit("a", |node| {
        let all = node["status"]["conditions"].as_array_mut().unwrap();
        for condition in all.iter_mut().filter(|c| c["type"] == "NetworkUnavailable") {
            condition["reason"] = json!("CniIsUp");
        }
    });
    seconds(30).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
    assert_eq!(world.patches("a"), 2);
}

/// REQ-ROUTE-10, REQ-ROUTE-11
#[tokio::test(start_paused = true)]
async fn the_message_of_a_failure_is_that_of_the_go_managers() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    world
        .cloud
        .fail_for("create", "10.64.1.0/24", Class::Transient, "reset");
    let world = world.start(classic());
    seconds(5).await;
    let condition = world.condition("a").unwrap();
    assert_eq!(condition["status"], "True");
    assert_eq!(
        condition["message"],
        "RouteController failed to create a route"
    );
}

/// REQ-ROUTE-12
#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_does_not_repeat_the_write() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    let world = world.start(classic());
    world
        .sim
        .faults()
        .delay_watches(Some("nodes"), Duration::from_secs(45));
    seconds(125).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
    assert_eq!(world.patches("a"), 1);
    assert_eq!(world.passes("noop", "periodic"), 12);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_tried_again_within_the_pass() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    let target = Target::new(Verb::Patch, "nodes").subresource("status");
    world.sim.faults().fail_next(4, target, Fault::Conflict);
    let world = world.start(classic());
    seconds(5).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
    assert_eq!(world.patches("a"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_failed_is_tried_again_by_the_next_pass() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    let target = Target::new(Verb::Patch, "nodes");
    world.sim.faults().fail_next(1, target, Fault::Internal);
    let world = world.start(classic());
    seconds(5).await;
    assert_eq!(world.network("a"), "-");
    let error = world.report().last_error.unwrap();
    assert!(
        error.contains("set NetworkUnavailable of node a"),
        "{error}"
    );
    seconds(10).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn the_condition_is_never_written_to_another_node_of_the_same_name() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    world.cloud.latency("create", Duration::from_secs(3));
    let world = world.start(classic());
    world
        .sim
        .faults()
        .delay_watches(Some("nodes"), Duration::from_secs(20));
    seconds(1).await;
    world.leave("a");
    world.join("a", &["10.64.2.0/24"]);
    seconds(5).await;
    assert_eq!(world.patches("a"), 1);
    assert_eq!(world.network("a"), "-", "meant for the former one");
    seconds(40).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
    assert_eq!(world.cloud.pairs(), ["a 10.64.2.0/24"]);
}
