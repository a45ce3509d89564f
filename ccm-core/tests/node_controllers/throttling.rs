//! A cloud that is slow, or that asks for fewer calls.

use std::time::Duration;

use ccm_core::{
    cloud::Class,
    config::{NodeLifecycleSettings, NodeSettings},
};
use serde_json::json;

use crate::{
    cloud::Machine,
    world::{NewNode, World, millis, seconds},
};

fn throttled(seconds: Option<u64>) -> Class {
    Class::Throttled {
        after: seconds.map(Duration::from_secs),
    }
}

/// CASE-THR-03
#[tokio::test(start_paused = true)]
async fn no_node_is_asked_about_before_the_wait_that_the_cloud_named_is_over() {
    let world = World::new().with_node_controller(NodeSettings {
        syncs: 3,
        ..NodeSettings::default()
    });
    world.cloud.fail("metadata", &[throttled(Some(120))]);
    world.join(&NewNode::fresh("heron-1"), Machine::running("sim://1"));
    let world = world.start();
    seconds(10).await;
    world.join(&NewNode::fresh("heron-2"), Machine::running("sim://2"));
    for beat in 0..50 {
        seconds(2).await;
        world.edit("heron-1", |node| {
            node["status"]["conditions"][0]["lastHeartbeatTime"] =
                json!(format!("2026-01-01T00:00:{beat:02}Z"));
        });
    }
    assert_eq!(world.cloud.asked(), 1);
    seconds(12).await;
    assert!(world.initialised("heron-1") && world.initialised("heron-2"));
    let at: Vec<_> = world
        .cloud
        .questions("metadata")
        .iter()
        .map(|q| q.at)
        .collect();
    assert!(at[1] - at[0] >= Duration::from_secs(120));
}

/// CASE-THR-03
#[tokio::test(start_paused = true)]
async fn a_throttling_cloud_without_a_wait_is_asked_at_most_once_a_second() {
    let world = World::new().with_node_controller(NodeSettings::default());
    world.cloud.fail("metadata", &[throttled(None); 100]);
    world.join(&NewNode::fresh("heron-1"), Machine::running("sim://1"));
    let world = world.start();
    seconds(30).await;
    let at: Vec<_> = world
        .cloud
        .questions("metadata")
        .iter()
        .map(|q| q.at)
        .collect();
    assert!((5..=31).contains(&at.len()), "{}", at.len());
    assert!(at.windows(2).all(|w| w[1] - w[0] >= Duration::from_secs(1)));
}

/// CASE-THR-03; REQ-LIFE-16: the pause proves nothing, absence is proved anew after it.
#[tokio::test(start_paused = true)]
async fn the_lifecycle_asks_nothing_during_the_wait_and_begins_its_proofs_anew() {
    let world = World::new().with_lifecycle(NodeLifecycleSettings::default());
    world.create(&NewNode::named("gone").id("sim://gone").ready("Unknown"));
    world.cloud.fail("direct", &[throttled(Some(60))]);
    let world = world.start();
    // One proof, then a refusal.
    seconds(50).await;
    let kinds = || {
        let kind = |kind| world.cloud.questions(kind).len();
        (kind("shared"), kind("direct"))
    };
    assert_eq!(kinds(), (1, 1));
    assert!(world.exists("gone"));
    while kinds().0 < 2 {
        millis(100).await;
    }
    let refused = world.cloud.questions("direct")[0].at;
    let again = world.cloud.questions("shared")[1].at;
    assert!(again - refused >= Duration::from_secs(60));
    assert!(world.exists("gone"), "one proof is not enough");
    seconds(20).await;
    assert!(!world.exists("gone"));
}

/// REQ-NODE-24
#[tokio::test(start_paused = true)]
async fn with_more_workers_a_slow_cloud_call_does_not_hold_up_the_next_node() {
    for (syncs, done) in [(1, false), (2, true)] {
        let world = World::new().with_node_controller(NodeSettings {
            syncs,
            ..NodeSettings::default()
        });
        world.cloud.latency("metadata", Duration::from_secs(30));
        world.join(&NewNode::fresh("slow"), Machine::running("sim://1"));
        let world = world.start();
        seconds(1).await;
        world.cloud.latency("metadata", Duration::ZERO);
        world.join(&NewNode::fresh("next"), Machine::running("sim://2"));
        seconds(2).await;
        assert_eq!(world.initialised("next"), done, "{syncs}");
        assert!(!world.initialised("slow"));
        seconds(30).await;
        assert!(world.initialised("slow") && world.initialised("next"));
    }
}

/// CASE-NODE-08; REQ-NODE-22
#[tokio::test(start_paused = true)]
async fn a_label_repair_does_not_wait_for_a_slow_cloud_call() {
    let (beta, stable) = (
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    );
    let world = World::new().with_node_controller(NodeSettings::default());
    world.join(
        &NewNode::named("old")
            .id("sim://old")
            .at("Int 10.0.0.1")
            .label(beta, "v")
            .label(stable, "v"),
        Machine::running("sim://old"),
    );
    let world = world.start();
    seconds(1).await;
    world.cloud.latency("metadata", Duration::from_secs(60));
    world.join(&NewNode::fresh("new"), Machine::running("sim://new"));
    seconds(1).await;
    world.edit("old", |node| {
        node["metadata"]["labels"][stable] = json!("other");
    });
    seconds(1).await;
    assert_eq!(world.labels("old")[stable], "v");
    assert!(!world.initialised("new"), "the call is still on its way");
}

/// CASE-THR-03: also within the round in which the cloud asked for it.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_round_is_not_asked_about_after_the_cloud_asked_for_a_pause() {
    for syncs in [1, 2] {
        let settings = NodeLifecycleSettings {
            syncs,
            ..NodeLifecycleSettings::default()
        };
        let world = World::new().with_lifecycle(settings);
        world.cloud.batch_size(10);
        // As long as an answer is under way, others may be asked for.
        world.cloud.latency("shared", Duration::from_secs(1));
        for n in 0..60 {
            let (name, id) = (format!("n{n:02}"), format!("sim://n{n:02}"));
            let node = NewNode::named(&name).id(&id).ready("Unknown");
            world.join(&node, Machine::running(&id));
        }
        world
            .cloud
            .fail("shared", &vec![throttled(Some(90)); syncs]);
        let world = world.start();
        seconds(80).await;
        assert_eq!(
            world.cloud.questions("shared").len(),
            syncs,
            "of six slices"
        );
        assert!(world.cloud.questions("direct").is_empty());
        seconds(30).await;
        let asked = world.cloud.questions("shared");
        assert!(asked.len() >= syncs + 6, "all slices of the next round");
        let (first, next) = (&asked[syncs - 1], &asked[syncs]);
        assert!(next.at - first.at >= Duration::from_secs(90));
        assert_eq!(world.writes(), 0);
    }
}

/// CASE-THR-03: the Nodes with a first proof are asked about one by one; a refusal of one of those
/// questions stops the others.
#[tokio::test(start_paused = true)]
async fn direct_questions_of_a_round_stop_too_after_the_cloud_asked_for_a_pause() {
    let world = World::new().with_lifecycle(NodeLifecycleSettings::default());
    for n in 0..5 {
        let name = format!("gone-{n}");
        let id = format!("sim://{name}");
        world.create(&NewNode::named(&name).id(&id).ready("Unknown"));
    }
    seconds(600).await;
    world.cloud.fail("direct", &[throttled(Some(60))]);
    let world = world.start();
    seconds(50).await;
    assert_eq!(world.cloud.questions("shared").len(), 1);
    assert_eq!(world.cloud.questions("direct").len(), 1, "of five");
    assert_eq!(world.writes(), 0, "one proof is not enough");
    seconds(60).await;
    assert_eq!(world.cloud.questions("direct").len(), 1 + 5);
    assert!(world.sim.list("nodes").is_empty());
}
