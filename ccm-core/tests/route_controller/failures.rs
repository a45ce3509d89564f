//! A cloud that fails, refuses, or asks for a pause.

use std::time::Duration;

use ccm_core::{cloud::Class, kube::EventType};

use crate::{
    cloud::{blackhole, route},
    world::{World, classic, seconds, watch},
};

fn throttled(seconds: u64) -> Class {
    Class::Throttled {
        after: Some(Duration::from_secs(seconds)),
    }
}

/// REQ-ROUTE-02, REQ-ROUTE-18
#[tokio::test(start_paused = true)]
async fn a_list_that_failed_changes_nothing() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    world.cloud.put(route("gone", "10.64.9.0/24"));
    world.cloud.fail("list", &[Class::Transient, Class::Denied]);
    let world = world.start(classic());
    seconds(15).await;
    assert_eq!(world.cloud.all_calls().len(), 2, "two lists");
    assert_eq!((world.network("a"), world.patches("a")), ("-".into(), 0));
    assert_eq!(world.passes("error", "periodic"), 2);
    let error = world.report().last_error.unwrap();
    assert_eq!(error, "list routes: injected");
    seconds(10).await;
    assert_eq!(world.cloud.pairs(), ["a 10.64.1.0/24"]);
    assert_eq!(world.passes("changed", "periodic"), 1);
}

/// REQ-ROUTE-10
#[tokio::test(start_paused = true)]
async fn a_route_that_is_refused_is_told_on_its_node_and_holds_up_no_other() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    world.join("b", &["10.64.2.0/24"]);
    world.cloud.latency("create", Duration::from_millis(1500));
    let text = "InvalidInstance: the machine is not there";
    world
        .cloud
        .fail_for("create", "10.64.1.0/24", Class::NotFound, text);
    let world = world.start(classic());
    seconds(5).await;
    let uid = world.uid("a");
    let events = world.events_about("a");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].source, "route_controller");
    assert_eq!(events[0].type_, EventType::Warning);
    assert_eq!(events[0].reason, "FailedToCreateRoute");
    assert_eq!(events[0].object.uid, uid);
    assert_eq!(
        events[0].message,
        format!("Could not create route {uid} 10.64.1.0/24 for node a after 1.5s: {text}")
    );
    assert_eq!(world.network("a"), "True/NoRouteCreated");
    assert_eq!(world.network("b"), "False/RouteCreated");
    assert!(world.events_about("b").is_empty());
    assert!(world.report().last_error.unwrap().contains(text));
    // One try and one event a pass; the condition is written once.
    seconds(20).await;
    assert_eq!(world.events_about("a").len(), 3);
    assert_eq!(world.patches("a"), 1);
    world.cloud.mend();
    seconds(10).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
}

/// REQ-ROUTE-17
#[tokio::test(start_paused = true)]
async fn a_dual_stack_node_is_available_only_with_both_routes() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24", "fd00:10:0:1::/64"]);
    world
        .cloud
        .fail_for("create", "fd00:10:0:1::/64", Class::Transient, "reset");
    let world = world.start(classic());
    seconds(5).await;
    assert_eq!(world.cloud.pairs(), ["a 10.64.1.0/24"]);
    assert_eq!(world.network("a"), "True/NoRouteCreated");
    world.cloud.mend();
    seconds(10).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
}

/// CASE-RT-04
#[tokio::test(start_paused = true)]
async fn a_create_whose_answer_was_lost_is_no_failure_twice() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    world.cloud.lose_an_answer();
    let world = world.start(classic());
    seconds(5).await;
    assert_eq!(world.network("a"), "True/NoRouteCreated");
    seconds(25).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
    assert_eq!(world.events.reasons(), ["FailedToCreateRoute"]);
    assert_eq!(world.cloud.pairs(), ["a 10.64.1.0/24"]);
}

/// CASE-RT-04
#[tokio::test(start_paused = true)]
async fn a_route_that_is_there_when_it_is_made_is_as_good_as_made() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    world.cloud.latency("create", Duration::from_secs(3));
    let world = world.start(classic());
    seconds(1).await;
    // The list did not show it: it came since, or the cloud's lists lag.
    world.cloud.put(route("a", "10.64.1.0/24"));
    seconds(4).await;
    assert_eq!(world.cloud.calls("create").len(), 1);
    assert_eq!(world.cloud.pairs(), ["a 10.64.1.0/24"]);
    assert_eq!(world.network("a"), "False/RouteCreated");
    assert_eq!(world.events.reasons(), [""; 0]);
}

/// CASE-RT-08
#[tokio::test(start_paused = true)]
async fn a_full_table_serves_what_fits_and_says_why_the_rest_waits() {
    for settings in [classic(), watch()] {
        let world = World::new();
        world.cloud.quota(50);
        world.cloud.put(route("", "0.0.0.0/0"));
        world.cloud.put(route("", "172.30.0.0/16"));
        for n in 0..52 {
            world.join(&format!("n{n:02}"), &[&format!("10.64.{n}.0/24")]);
        }
        let world = world.start(settings);
        seconds(5).await;
        let waiting = || -> Vec<String> {
            let names = (0..52).map(|n| format!("n{n:02}"));
            names
                .filter(|n| world.sim.get("nodes", "", n).is_some())
                .filter(|n| world.network(n) == "True/NoRouteCreated")
                .collect()
        };
        let first = waiting();
        assert_eq!(first.len(), 4);
        let events = world.events_about(&first[0]);
        assert_eq!(events[0].reason, "FailedToCreateRoute");
        assert!(events[0].message.contains("RouteLimitExceeded"));
        let before = world.cloud.calls("create").len();
        seconds(60).await;
        let tries = world.cloud.calls("create").len() - before;
        assert!((4..=6 * 4).contains(&tries), "{tries}");
        assert_eq!(world.cloud.calls("delete"), [], "no room is made");
        assert_eq!(waiting(), first);
        world.leave("n07");
        // Two passes.
        seconds(21).await;
        assert_eq!(waiting().len(), 3);
        assert_eq!(world.cloud.table().len(), 50);
    }
}

/// CASE-THR-03
#[tokio::test(start_paused = true)]
async fn no_call_is_made_before_the_wait_that_the_cloud_named_is_over() {
    for settings in [classic(), watch()] {
        // As many as are in flight before the first answer.
        for (kind, refused) in [("list", 1), ("create", 5)] {
            let world = World::new();
            world.cloud.latency("create", Duration::from_millis(100));
            world.cloud.fail(kind, &vec![throttled(120); refused]);
            for n in 0..40 {
                world.join(&format!("n{n:02}"), &[&format!("10.64.{n}.0/24")]);
            }
            let world = world.start(settings.clone());
            seconds(2).await;
            let calls = world.cloud.all_calls();
            assert_eq!(world.cloud.calls(kind).len(), refused, "no burst");
            if kind == "create" {
                assert_eq!(world.network("n00"), "True/NoRouteCreated");
                assert_eq!(world.events.reasons().len(), 5, "only what was tried");
            } else {
                assert_eq!(world.network("n00"), "-");
            }
            for n in 0..20 {
                world.join(&format!("m{n:02}"), &[&format!("10.65.{n}.0/24")]);
                seconds(5).await;
            }
            assert_eq!(world.cloud.all_calls(), calls);
            seconds(20).await;
            let again = world.cloud.all_calls()[calls.len()].at;
            let wait = (again - calls[calls.len() - 1].at).as_secs();
            assert_eq!(wait, 120, "{kind}");
            assert_eq!(world.cloud.table().len(), 60);
            assert_eq!(world.network("m19"), "False/RouteCreated");
        }
    }
}

/// CASE-RT-01
#[tokio::test(start_paused = true)]
async fn a_route_is_not_made_while_the_old_one_of_its_range_stays() {
    let world = World::new();
    world.cloud.put(blackhole("10.64.1.0/24"));
    world
        .cloud
        .fail_for("delete", "10.64.1.0/24", Class::Denied, "AccessDenied: no");
    world.join("a", &["10.64.1.0/24"]);
    world.join("b", &["10.64.2.0/24"]);
    let world = world.start(classic());
    seconds(5).await;
    let made: Vec<_> = world.cloud.calls("create");
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].cidrs, ["10.64.2.0/24"]);
    assert_eq!(world.network("a"), "True/NoRouteCreated");
    let message = &world.events_about("a")[0].message;
    assert!(message.contains("is in the way"), "{message}");
    assert!(message.contains("AccessDenied: no"), "{message}");
    world.cloud.mend();
    seconds(10).await;
    assert_eq!(world.network("a"), "False/RouteCreated");
}
