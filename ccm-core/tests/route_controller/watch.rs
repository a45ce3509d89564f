//! Passes that changes of Nodes begin.

use std::time::Duration;

use ccm_core::cloud::Class;
use ccm_kubesim::{Fault, Target, Verb};

use crate::{
    cloud::route,
    world::{World, millis, seconds, watch},
};

/// Seconds from the first list to each.
fn starts(world: &World) -> Vec<u64> {
    let calls = world.cloud.calls("list");
    calls
        .iter()
        .map(|c| (c.at - calls[0].at).as_secs())
        .collect()
}

/// REQ-ROUTE-14
#[tokio::test(start_paused = true)]
async fn only_changes_of_ranges_and_addresses_begin_a_pass() {
    let world = World::new();
    world.cloud.knows_addresses();
    world.join("a", &["10.64.1.0/24"]);
    world.join("b", &[]);
    let world = world.start(watch());
    seconds(20).await;
    assert_eq!(starts(&world), [0]);
    for beat in 0..10 {
        world.heartbeat("a", beat);
        seconds(5).await;
    }
    assert_eq!(starts(&world), [0], "a heartbeat is no reason");
    world.move_to("a", "10.1.0.77");
    millis(100).await;
    assert_eq!(starts(&world).len(), 2);
    let table = world.cloud.table();
    assert_eq!(table[0].target_node_addresses[0].address, "10.1.0.77");
    seconds(20).await;
    world.edit("b", |node| {
        node["spec"]["podCIDR"] = "10.64.2.0/24".into();
        node["spec"]["podCIDRs"] = ["10.64.2.0/24"].as_slice().into();
    });
    millis(100).await;
    assert_eq!(world.network("b"), "False/RouteCreated");
    seconds(20).await;
    world.leave("a");
    millis(100).await;
    assert_eq!(world.cloud.pairs(), ["b 10.64.2.0/24"]);
    assert_eq!(world.cloud.calls("list").len(), 4);
    assert_eq!(world.passes("changed", "node_change"), 4);
}

/// REQ-ROUTE-14, REQ-ROUTE-20
#[tokio::test(start_paused = true)]
async fn a_burst_of_changes_is_a_pass_every_ten_seconds_and_leaves_no_debt() {
    let world = World::new();
    let world = world.start(watch());
    seconds(30).await;
    let before = world.cloud.calls("list").len();
    for n in 0..100 {
        world.join(&format!("n{n:03}"), &[&format!("10.64.{n}.0/24")]);
        millis(250).await;
    }
    // 25 s of events: at once, after 10 s, after 20 s, after 30 s.
    seconds(15).await;
    let calls = world.cloud.calls("list");
    let burst: Vec<_> = calls[before..]
        .iter()
        .map(|c| (c.at - calls[before].at).as_secs())
        .collect();
    assert_eq!(burst, [0, 10, 20, 30]);
    assert_eq!(world.cloud.table().len(), 100);
    let quiet = calls.len();
    world.join("late", &["10.65.0.0/24"]);
    millis(100).await;
    assert_eq!(world.cloud.calls("list").len(), quiet + 1, "at once");
    assert_eq!(world.network("late"), "False/RouteCreated");
}

/// REQ-ROUTE-15
#[tokio::test(start_paused = true)]
async fn a_change_during_a_pass_begins_another_one() {
    let world = World::new();
    world.cloud.latency("create", Duration::from_secs(30));
    world.join("a", &["10.64.1.0/24"]);
    let world = world.start(watch());
    seconds(5).await;
    world.join("b", &["10.64.2.0/24"]);
    seconds(27).await;
    assert_eq!(starts(&world), [0, 30]);
    seconds(30).await;
    assert_eq!(world.network("b"), "False/RouteCreated");
}

/// REQ-ROUTE-16
#[tokio::test(start_paused = true)]
async fn what_failed_is_tried_again_with_growing_pauses() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    world
        .cloud
        .fail_for("create", "10.64.1.0/24", Class::Transient, "reset");
    let world = world.start(watch());
    seconds(155).await;
    assert_eq!(starts(&world), [0, 10, 30, 70, 150]);
    assert_eq!(world.events_about("a").len(), 5);
    world.cloud.mend();
    seconds(160).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
    let passes = world.cloud.calls("list").len();
    seconds(300).await;
    assert_eq!(world.cloud.calls("list").len(), passes, "done");
    // The back-off is forgotten.
    world
        .cloud
        .fail_for("create", "10.64.2.0/24", Class::Transient, "reset");
    world.join("b", &["10.64.2.0/24"]);
    seconds(11).await;
    assert_eq!(world.cloud.calls("list").len(), passes + 2);
}

/// REQ-ROUTE-16
#[tokio::test(start_paused = true)]
async fn a_list_and_a_write_that_failed_are_tried_again() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    world.cloud.fail("list", &[Class::Transient]);
    let target = Target::new(Verb::Patch, "nodes");
    world.sim.faults().fail_next(1, target, Fault::Internal);
    let world = world.start(watch());
    seconds(15).await;
    assert_eq!(world.cloud.pairs(), ["a 10.64.1.0/24"]);
    assert_eq!(world.network("a"), "-");
    seconds(10).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
    assert_eq!(starts(&world), [0, 10, 20]);
    assert_eq!(world.passes("error", "node_change"), 1);
}

/// The watch breaks, and what it missed is no longer known: all Nodes are listed again.
fn list_again(world: &World, beat: u64) {
    world.sim.faults().cut_watches();
    world.heartbeat("c", beat);
    world.sim.faults().compact();
}

/// REQ-ROUTE-19
#[tokio::test(start_paused = true)]
async fn a_new_list_of_nodes_is_a_periodic_pass_under_the_same_limit() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    world.join("c", &[]);
    let world = world.start(watch());
    seconds(20).await;
    assert_eq!(world.passes("changed", "node_change"), 1);
    list_again(&world, 1);
    seconds(15).await;
    assert_eq!(world.passes("noop", "periodic"), 1);
    // Both at once are one pass, and it is that of the change.
    list_again(&world, 2);
    world.join("b", &["10.64.2.0/24"]);
    seconds(15).await;
    assert_eq!(world.cloud.calls("list").len(), 3);
    assert_eq!(world.passes("changed", "node_change"), 2);
    // One begins only when the other's ten seconds are over.
    list_again(&world, 3);
    seconds(5).await;
    world.join("d", &["10.64.4.0/24"]);
    seconds(20).await;
    let calls = world.cloud.calls("list");
    assert_eq!(calls.len(), 5);
    assert!(calls[4].at - calls[3].at >= Duration::from_secs(10));
    assert_eq!(world.passes("noop", "periodic"), 2);
    assert_eq!(world.passes("changed", "node_change"), 3);
}

#[tokio::test(start_paused = true)]
async fn drift_in_the_cloud_is_repaired_without_any_change_of_a_node() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    let world = world.start(watch());
    seconds(20).await;
    world.cloud.change(Vec::clear);
    seconds(9 * 60).await;
    assert_eq!(starts(&world), [0]);
    seconds(7 * 60).await;
    assert_eq!(world.cloud.pairs(), ["a 10.64.1.0/24"]);
    assert_eq!(world.passes("changed", "periodic"), 1);
    // Idle it costs four to six lists an hour and no write.
    let (mark, lists) = (world.sim.mark(), world.cloud.all_calls().len());
    seconds(4 * 3600).await;
    let lists = world.cloud.all_calls().len() - lists;
    assert!((16..=24).contains(&lists), "{lists}");
    assert_eq!(world.sim.count_writes_since(&mark), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_nodes_is_cleaned_at_the_start() {
    let world = World::new();
    world.cloud.put(route("gone", "10.64.1.0/24"));
    let world = world.start(watch());
    seconds(1).await;
    assert_eq!(world.cloud.pairs(), [""; 0]);
    assert_eq!(world.passes("changed", "periodic"), 1);
    assert_eq!(world.report().period_seconds, Some(600));
}

#[tokio::test(start_paused = true)]
async fn in_watch_mode_too_nothing_begins_after_shutdown() {
    let world = World::new();
    world.cloud.latency("create", Duration::from_secs(5));
    world.join("a", &["10.64.1.0/24"]);
    let world = world.start(watch());
    seconds(1).await;
    world.join("b", &["10.64.2.0/24"]);
    world.stop().await;
    assert_eq!(world.cloud.pairs(), ["a 10.64.1.0/24"]);
    let calls = world.cloud.all_calls().len();
    seconds(120).await;
    assert_eq!(world.cloud.all_calls().len(), calls);
}
