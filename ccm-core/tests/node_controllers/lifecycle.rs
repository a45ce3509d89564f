//! Monitor rounds: deletion, shutdown taint, metrics.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_core::{
    cloud::{Class, Power},
    config::NodeLifecycleSettings,
    controllers::node_lifecycle::NodeLifecycleController,
    kube::EventType,
};
use ccm_kubesim::{Fault, Target, Verb};
use serde_json::json;

use crate::{
    cloud::Machine,
    world::{CLOUD_TAINT, NewNode, SHUTDOWN_TAINT, World, millis, seconds},
};

const ROUNDS: &str = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds";
const CALLS: &str = "cloud_node_lifecycle_controller_cloud_provider_calls_total";

/// A lifecycle controller that is not started yet.
fn world() -> World {
    World::new().with_lifecycle(NodeLifecycleSettings::default())
}

fn not_ready(name: &str) -> NewNode {
    NewNode::named(name)
        .id(&format!("sim://{name}"))
        .ready("Unknown")
}

fn machine(name: &str) -> Machine {
    Machine::running(&format!("sim://{name}"))
}

/// Starts when the Nodes are older than any grace.
async fn start_later(world: World) -> World {
    seconds(600).await;
    world.start()
}

/// REQ-LIFE-01, REQ-LIFE-03, REQ-LIFE-04, REQ-LIFE-05, REQ-LIFE-07, REQ-LIFE-09 (TL1 to TL10)
#[tokio::test(start_paused = true)]
async fn what_happens_to_a_node_depends_on_ready_and_on_the_cloud() {
    #[derive(Debug, PartialEq)]
    enum End {
        Kept,
        Tainted,
        Deleted,
    }
    let stopped = Ok(Some(Power::Stopped));
    let running = Ok(Some(Power::Running));
    let cases = [
        // (Ready, the cloud, end)
        (Some("False"), Ok(None), End::Deleted),
        (Some("Unknown"), Ok(None), End::Deleted),
        (None, Ok(None), End::Deleted),
        (Some("False"), Err(Class::Transient), End::Kept),
        (Some("False"), Err(Class::NotFound), End::Kept),
        (Some("False"), running, End::Kept),
        (Some("Unknown"), running, End::Kept),
        (Some("Unknown"), Ok(Some(Power::Unknown)), End::Kept),
        (Some("True"), Ok(None), End::Kept),
        (Some("False"), stopped, End::Tainted),
        (None, stopped, End::Tainted),
        (Some("True"), stopped, End::Kept),
    ];
    for (ready, cloud, end) in cases {
        let world = world();
        let node = match ready {
            Some(status) => not_ready("a").ready(status),
            None => not_ready("a").without_conditions(),
        };
        world.create(&node);
        match cloud {
            Ok(Some(power)) => world.cloud.put("a", machine("a").power(power)),
            Ok(None) => {}
            Err(class) => world.cloud.fail_for("a", Some(class)),
        }
        let world = start_later(world).await;
        let before = world.raw("a");
        seconds(31).await;
        let context = format!("{ready:?} {cloud:?}");
        match end {
            End::Deleted => assert!(!world.exists("a"), "{context}"),
            End::Kept => assert_eq!(world.raw("a"), before, "{context}"),
            End::Tainted => {
                assert_eq!(
                    world.raw("a").unwrap()["spec"]["taints"],
                    json!([{ "key": SHUTDOWN_TAINT, "effect": "NoSchedule" }]),
                    "{context}"
                );
            }
        }
        assert_eq!(world.writes(), u64::from(end != End::Kept), "{context}");
        assert_eq!(world.requested(Verb::Get), 0, "{context}");
        if ready == Some("True") {
            assert_eq!(world.cloud.asked(), 0, "{context}");
        }
    }
}

/// REQ-LIFE-05, REQ-LIFE-16, REQ-LIFE-18, REQ-LIFE-19 (TL11)
#[tokio::test(start_paused = true)]
async fn two_rounds_prove_absence_then_one_event_and_one_delete() {
    let world = world();
    world.create(&not_ready("a").taint("anything", None));
    let world = start_later(world).await;
    millis(100).await;
    assert_eq!(world.cloud.questions("shared").len(), 1);
    assert!(world.exists("a"), "the first proof is only remembered");
    assert!(world.reasons().is_empty());
    assert_eq!(world.writes(), 0);
    millis(4_800).await;
    assert!(world.exists("a"), "one period apart");
    millis(200).await;
    assert!(!world.exists("a"));
    seconds(60).await;
    assert_eq!(world.requested(Verb::Delete), 1);
    assert_eq!(world.cloud.questions("shared").len(), 1);
    assert_eq!(world.cloud.questions("direct").len(), 1);
    let events = world.events_about("a");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].source, "cloud-node-lifecycle-controller");
    assert_eq!(events[0].type_, EventType::Normal);
    assert_eq!(events[0].reason, "DeletingNode");
    assert_eq!(
        events[0].message,
        "Deleting node a because it does not exist in the cloud provider"
    );
    assert_eq!(events[0].object.api_version, "v1");
    assert_eq!(events[0].object.kind, "Node");
    assert!(!events[0].object.uid.is_empty());
}

/// REQ-LIFE-17
#[tokio::test(start_paused = true)]
async fn anything_else_in_between_sets_the_count_back() {
    type Step = fn(&World);
    let interruptions: [(&str, Step, Step); 4] = [
        (
            "exists",
            |w| w.cloud.put("a", machine("a")),
            |w| w.cloud.terminate("a"),
        ),
        (
            "error",
            |w| {
                w.cloud
                    .fail_for("a", Some(Class::Throttled { after: None }));
            },
            |w| w.cloud.fail_for("a", None),
        ),
        (
            "ready",
            |w| w.set_ready("a", "True"),
            |w| w.set_ready("a", "False"),
        ),
        (
            "uid",
            |w| {
                w.sim.delete_direct("nodes", "", "a").unwrap();
                w.create(&not_ready("a"));
            },
            |_| {},
        ),
    ];
    for (what, begin, end) in interruptions {
        let world = world();
        world.create(&not_ready("a"));
        let world = start_later(world).await;
        seconds(1).await; // the first proof, at 0 s
        begin(&world);
        seconds(5).await; // the interruption, at 5 s
        assert!(world.exists("a"), "{what}");
        end(&world);
        seconds(5).await; // a first proof again, at 10 s (for another UID: the second)
        assert_eq!(world.exists("a"), what != "uid", "{what}");
        seconds(5).await; // the second, at 15 s
        assert!(!world.exists("a"), "{what}");
        assert_eq!(world.reasons(), ["DeletingNode"], "{what}");
    }
}

/// REQ-LIFE-17: counts do not survive a restart.
#[tokio::test(start_paused = true)]
async fn a_restart_begins_at_zero() {
    let first = world();
    first.create(&not_ready("a"));
    let first = start_later(first).await;
    seconds(1).await;
    first.stop().await;
    let second = first
        .restarted()
        .with_lifecycle(NodeLifecycleSettings::default())
        .start();
    seconds(4).await;
    assert!(second.exists("a"));
    seconds(2).await;
    assert!(!second.exists("a"));
}

/// REQ-LIFE-18 (CASE-LIFE-07 c)
#[tokio::test(start_paused = true)]
async fn a_list_that_omits_a_machine_deletes_nothing() {
    let world = world();
    for name in ["a", "b", "c"] {
        world.join(&not_ready(name), machine(name));
    }
    world.cloud.omit_from_lists("b");
    let world = start_later(world).await;
    seconds(300).await;
    assert!(world.exists("b"));
    assert_eq!(world.writes(), 0);
    let direct = world.cloud.questions("direct");
    assert!(
        direct.iter().all(|q| q.nodes == ["b"]),
        "only those with a first proof"
    );
    assert!(!direct.is_empty());
}

/// REQ-LIFE-06, REQ-LIFE-19
#[tokio::test(start_paused = true)]
async fn a_failed_delete_is_told_and_the_next_proof_tries_again() {
    let world = world();
    world.create(&not_ready("a"));
    world.create(&not_ready("b"));
    let only_a = Target::new(Verb::Delete, "nodes").named("a");
    world.sim.faults().fail_next(1, only_a, Fault::Forbidden);
    let world = start_later(world).await;
    seconds(6).await;
    assert!(world.exists("a"));
    assert!(!world.exists("b"), "the others go on");
    seconds(5).await;
    assert!(!world.exists("a"));
    seconds(60).await;
    let events = world.events_about("a");
    let reasons: Vec<_> = events.iter().map(|e| e.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["DeletingNode", "DeletingNodeFailed", "DeletingNode"]
    );
    assert_eq!(events[1].type_, EventType::Warning);
    let message = &events[1].message;
    assert!(message.starts_with("Failed deleting node a: "), "{message}");
    assert!(message.contains("forbidden"), "{message}");
}

/// REQ-LIFE-14
#[tokio::test(start_paused = true)]
async fn a_new_node_of_the_same_name_is_not_deleted_for_the_old_one() {
    let world = world();
    world.create(&not_ready("a"));
    let old = world.node("a");
    // The cache does not show the exchange in time.
    let sim = Arc::clone(&world.sim);
    world.cloud.on_question(move |question| {
        if question.kind == "direct" {
            sim.faults().delay_watches(None, Duration::from_secs(30));
            sim.delete_direct("nodes", "", "a").unwrap();
            let mut fresh = serde_json::to_value(&old).unwrap();
            fresh["apiVersion"] = json!("v1");
            fresh["kind"] = json!("Node");
            fresh["metadata"] = json!({ "name": "a" });
            sim.apply_direct(fresh).unwrap();
        }
    });
    let world = start_later(world).await;
    seconds(6).await;
    assert!(world.exists("a"), "the new one stays");
    assert_eq!(world.reasons(), ["DeletingNode", "DeletingNodeFailed"]);
    let requests = world.requests().entries;
    let delete = requests
        .iter()
        .find(|e| e.key.verb == Verb::Delete)
        .unwrap();
    assert_eq!(delete.status, 409);
}

/// REQ-LIFE-01, REQ-LIFE-16: Ready while the last answer is on its way.
#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_during_the_last_question_stays() {
    let world = world();
    world.create(&not_ready("a"));
    world.cloud.latency("direct", Duration::from_secs(2));
    let world = start_later(world).await;
    seconds(6).await;
    assert_eq!(world.cloud.questions("direct").len(), 1);
    world.set_ready("a", "True");
    seconds(60).await;
    assert!(world.exists("a"));
    assert_eq!(world.writes(), 0);
    assert!(world.reasons().is_empty());
}

/// REQ-LIFE-02
#[tokio::test(start_paused = true)]
async fn a_ready_node_loses_the_shutdown_taint_without_a_question() {
    let world = world();
    world.create(
        &not_ready("a")
            .ready("True")
            .taint("first", None)
            .taint(SHUTDOWN_TAINT, None)
            .taint("last", Some("x")),
    );
    world.create(&not_ready("b").ready("True"));
    let world = start_later(world).await;
    seconds(60).await;
    assert_eq!(world.taints("a"), ["first", "last"]);
    assert_eq!(world.writes(), 1);
    assert_eq!(world.requested(Verb::Get), 0);
    assert_eq!(world.cloud.asked(), 0);
}

/// CASE-LIFE-03; REQ-LIFE-07, REQ-LIFE-08
#[tokio::test(start_paused = true)]
async fn the_shutdown_taint_falls_as_soon_as_the_machine_runs_again() {
    let world = world();
    world.join(
        &not_ready("a").taint("other", None),
        machine("a").power(Power::Stopped),
    );
    let world = start_later(world).await;
    seconds(61).await;
    assert_eq!(world.taints("a"), ["other", SHUTDOWN_TAINT]);
    assert_eq!(world.writes(), 1, "once, however many rounds");
    assert_eq!(world.requested(Verb::Get), 0);
    world.cloud.power("a", Power::Unknown); // starting
    seconds(30).await;
    assert_eq!(world.taints("a"), ["other", SHUTDOWN_TAINT], "no flapping");
    world.cloud.power("a", Power::Running);
    seconds(10).await;
    assert_eq!(world.taints("a"), ["other"], "although it is not Ready");
    seconds(240).await;
    assert_eq!(world.writes(), 2);
    assert!(world.reasons().is_empty());
}

/// CASE-LIFE-02; REQ-LIFE-11
#[tokio::test(start_paused = true)]
async fn a_stopped_machine_is_not_gone() {
    let world = world();
    world.join(&not_ready("a"), machine("a"));
    let world = start_later(world).await;
    // stopping, stopped, pending, running; and a cloud that cannot tell
    for (power, tainted) in [
        (Power::Unknown, false),
        (Power::Stopped, true),
        (Power::Unknown, true),
        (Power::Running, false),
        (Power::Unknown, false),
    ] {
        world.cloud.power("a", power);
        seconds(30).await;
        assert!(world.exists("a"));
        let taints = world.taints("a");
        assert_eq!(
            taints.contains(&SHUTDOWN_TAINT.to_owned()),
            tainted,
            "{power:?}"
        );
    }
    assert!(world.reasons().is_empty());
    world.cloud.terminate("a");
    seconds(10).await;
    assert!(!world.exists("a"), "within two ticks");
}

/// REQ-LIFE-13
#[tokio::test(start_paused = true)]
async fn a_taint_conflict_is_retried_on_a_fresh_read() {
    let world = world();
    world.join(&not_ready("a"), machine("a").power(Power::Stopped));
    let sim = Arc::clone(&world.sim);
    world
        .sim
        .faults()
        .delay_watches(None, Duration::from_secs(3));
    world.cloud.on_question(move |question| {
        if question.kind == "shared"
            && sim.get("nodes", "", "a").unwrap()["spec"]["taints"]
                .as_array()
                .is_none_or(Vec::is_empty)
        {
            let taints =
                json!({ "spec": { "taints": [{ "key": "late", "effect": "NoSchedule" }] } });
            sim.patch_merge("nodes", "", "a", &taints).unwrap();
        }
    });
    let world = start_later(world).await;
    seconds(4).await;
    assert_eq!(world.taints("a"), ["late", SHUTDOWN_TAINT]);
    assert_eq!(
        world.patches("a"),
        [(String::new(), 409), (String::new(), 200)]
    );
    assert_eq!(world.requested(Verb::Get), 1);

    // Bounded: five tries a round, then the next round.
    world.cloud.power("a", Power::Running);
    let patch = Target::new(Verb::Patch, "nodes");
    world.sim.faults().fail_next(5, patch, Fault::Conflict);
    seconds(6).await;
    assert_eq!(world.patches("a").len(), 2 + 5);
    assert_eq!(world.taints("a"), ["late", SHUTDOWN_TAINT]);
    seconds(6).await;
    assert_eq!(world.taints("a"), ["late"]);
}

/// REQ-LIFE-12, REQ-LIFE-22
#[tokio::test(start_paused = true)]
async fn the_first_round_is_immediate_and_rounds_do_not_overlap() {
    let world = World::new().with_lifecycle(NodeLifecycleSettings {
        monitor_period: Duration::from_secs(4),
        ..NodeLifecycleSettings::default()
    });
    world.join(&not_ready("a"), machine("a"));
    world.cloud.latency("shared", Duration::from_secs(7));
    let start = tokio::time::Instant::now();
    let world = world.start();
    seconds(34).await;
    let at: Vec<_> = world
        .cloud
        .questions("shared")
        .iter()
        .map(|q| (q.at - start).as_secs())
        .collect();
    assert_eq!(at, [0, 11, 22, 33]);
    assert_eq!(world.cloud.most_in_flight(), 1);
    assert_eq!(world.metric(ROUNDS, &[]), 3);
}

/// REQ-LIFE-22 (TL12)
#[tokio::test(start_paused = true)]
async fn the_flag_bounds_parallel_checks() {
    for syncs in [1, 5] {
        let world = World::new().with_lifecycle(NodeLifecycleSettings {
            syncs,
            ..NodeLifecycleSettings::default()
        });
        world.cloud.batch_size(1);
        world.cloud.latency("shared", Duration::from_secs(1));
        world.cloud.latency("direct", Duration::from_secs(1));
        for n in 0..20 {
            world.create(&not_ready(&format!("n{n}")));
        }
        let world = start_later(world).await;
        seconds(60).await;
        assert_eq!(world.cloud.most_in_flight(), syncs);
        assert_eq!(world.cloud.questions("direct").len(), 20);
        assert_eq!(world.requested(Verb::Delete), 20);
    }
    let world = World::new();
    let none = NodeLifecycleSettings {
        syncs: 0,
        ..NodeLifecycleSettings::default()
    };
    let made = NodeLifecycleController::new(
        &world.context(),
        world.informer(),
        Arc::clone(&world.cloud) as _,
        none,
    );
    let error = made.err().unwrap().to_string();
    assert!(
        error.contains("--concurrent-node-lifecycle-syncs"),
        "{error}"
    );
}

/// REQ-LIFE-23 (TL13)
#[tokio::test(start_paused = true)]
async fn rounds_and_cloud_calls_are_counted() {
    let world = world();
    for (name, ready) in [("a", "True"), ("b", "True"), ("c", "False")] {
        world.join(&not_ready(name).ready(ready), machine(name));
    }
    let world = start_later(world).await;
    seconds(1).await;
    let calls =
        |operation, result| world.metric(CALLS, &[("operation", operation), ("result", result)]);
    assert_eq!(calls("instance_exists", "success"), 1);
    assert_eq!(calls("instance_shutdown", "success"), 1);
    assert_eq!(world.metric(CALLS, &[]), 2);
    assert_eq!(world.metric(ROUNDS, &[]), 1);
    let buckets = world.buckets(ROUNDS);
    assert_eq!(buckets.len(), 15);
    assert_eq!((buckets[0], buckets[14]), (0.001, 16.384));

    world
        .cloud
        .fail_for("c", Some(Class::Throttled { after: None }));
    seconds(5).await;
    assert_eq!(calls("instance_exists", "error"), 1);
    world.cloud.fail_for("c", Some(Class::NotFound));
    seconds(5).await;
    assert_eq!(calls("instance_exists", "instance_not_found"), 1);
    world.cloud.fail_for("c", None);
    world.cloud.terminate("c");
    seconds(10).await;
    assert_eq!(calls("instance_exists", "instance_not_found"), 3);
    assert_eq!(calls("instance_shutdown", "success"), 1);
}

/// REQ-LIFE-15
#[tokio::test(start_paused = true)]
async fn many_machines_absent_at_once_trip_the_breaker_if_configured() {
    for (max_deletion_share, left) in [(None, 6), (Some(0.4), 6), (Some(0.3), 10)] {
        let world = World::new().with_lifecycle(NodeLifecycleSettings {
            max_deletion_share,
            ..NodeLifecycleSettings::default()
        });
        for n in 0..10 {
            let name = format!("n{n}");
            if n < 4 {
                world.create(&not_ready(&name));
            } else {
                world.join(&not_ready(&name), machine(&name));
            }
        }
        let world = start_later(world).await;
        seconds(60).await;
        let nodes = world.sim.list("nodes").len();
        assert_eq!(nodes, left, "{max_deletion_share:?}");
        if left == 10 {
            assert!(world.reasons().is_empty());
            // One machine turns up again: what remains is believed at once.
            world.cloud.put("n0", machine("n0"));
            seconds(6).await;
            assert_eq!(world.sim.list("nodes").len(), 7);
        }
    }
}

/// REQ-LIFE-21
#[tokio::test(start_paused = true)]
async fn one_confirmation_deletes_on_the_first_answer() {
    let world = World::new().with_lifecycle(NodeLifecycleSettings {
        deletion_confirmations: 1,
        ..NodeLifecycleSettings::default()
    });
    world.create(&NewNode::fresh("a"));
    let world = world.start();
    millis(500).await;
    assert!(!world.exists("a"), "new Nodes included");
    assert_eq!(world.reasons(), ["DeletingNode"]);
}

/// A Node that is on its way out is neither asked about nor deleted again.
#[tokio::test(start_paused = true)]
async fn a_node_held_by_a_finalizer_is_deleted_once() {
    let world = world();
    world.create(&not_ready("a").set("/metadata", "finalizers", json!(["example.com/hold"])));
    let world = start_later(world).await;
    seconds(60).await;
    assert!(world.exists("a"));
    assert_eq!(world.requested(Verb::Delete), 1);
    assert_eq!(world.reasons(), ["DeletingNode"]);
    assert_eq!(world.cloud.asked(), 2);
}

/// REQ-LIFE-19: a cache that is behind does not make a second attempt.
#[tokio::test(start_paused = true)]
async fn a_deleted_node_that_the_cache_still_shows_is_not_deleted_again() {
    let world = world();
    world.create(&not_ready("a"));
    let world = start_later(world).await;
    seconds(1).await;
    let late = Duration::from_secs(60);
    world.sim.faults().delay_watches(None, late);
    seconds(100).await;
    assert!(!world.exists("a"));
    assert_eq!(world.requested(Verb::Delete), 1);
    assert_eq!(world.reasons(), ["DeletingNode"]);
    assert_eq!(world.cloud.asked(), 2);
}

/// REQ-LIFE-10: an ID look-up by name that finds nothing is an answer, not an error.
/// CASE-LIFE-04
#[tokio::test(start_paused = true)]
async fn orphans_without_provider_id_and_without_machine_are_deleted() {
    let world = world();
    world.create(&NewNode::named("ghost-1").without_conditions());
    world.create(&NewNode::fresh("ghost-2"));
    world.create(&NewNode::named("unsure").without_conditions());
    world.cloud.fail_for("unsure", Some(Class::Denied));
    let created = tokio::time::Instant::now();
    let world = world.start();
    let mut gone: BTreeMap<&str, u64> = BTreeMap::new();
    while created.elapsed().as_secs() < 180 {
        seconds(1).await;
        for name in ["ghost-1", "ghost-2", "unsure"] {
            if !world.exists(name) {
                gone.entry(name)
                    .or_insert_with(|| created.elapsed().as_secs());
            }
        }
    }
    assert_eq!(gone.len(), 2);
    assert!(gone.values().all(|at| (120..=131).contains(at)), "{gone:?}");
    assert_eq!(world.reasons(), ["DeletingNode", "DeletingNode"]);
    assert!(world.taints("unsure").iter().all(|t| t != CLOUD_TAINT));
}
