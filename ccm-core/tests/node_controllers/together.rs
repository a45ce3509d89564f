//! Both controllers in one process.

use std::time::Duration;

use ccm_core::config::{NodeLifecycleSettings, NodeSettings};

use crate::{
    cloud::{Machine, addresses},
    world::{NewNode, World, seconds},
};

fn world() -> World {
    World::new()
        .with_node_controller(NodeSettings::default())
        .with_lifecycle(NodeLifecycleSettings::default())
}

/// CASE-NODE-01
#[tokio::test(start_paused = true)]
async fn a_node_that_is_still_being_initialised_is_not_deleted() {
    let world = world();
    world.join(&NewNode::fresh("heron-1"), Machine::running("sim://1"));
    world.cloud.latency("metadata", Duration::from_secs(8));
    let uid = world.node("heron-1").uid().to_owned();
    let world = world.start();
    for _ in 0..15 {
        seconds(1).await;
        assert_eq!(world.node("heron-1").uid(), uid);
    }
    assert!(world.initialised("heron-1"));
    assert_eq!(world.node("heron-1").provider_id(), Some("sim://1"));
    assert_eq!(world.addresses("heron-1"), addresses("Int 10.0.0.1"));
    assert_eq!(world.labels("heron-1").len(), 6);
    assert_eq!(world.reasons(), ["Synced"]);
    assert!(
        !world.cloud.questions("shared").is_empty(),
        "looked up by name"
    );
}

/// CASE-LIFE-06
#[tokio::test(start_paused = true)]
async fn a_machine_that_becomes_visible_late_is_initialised_within_fifteen_seconds() {
    let world = world();
    for n in 0..100 {
        let name = format!("n{n:02}");
        world.join(
            &NewNode::fresh(&name),
            Machine::running(&format!("sim://{n}")),
        );
        world.cloud.hide(&name, Duration::from_secs(60));
    }
    let world = world.start();
    seconds(40).await;
    for n in 0..100 {
        world.set_ready(&format!("n{n:02}"), "True");
    }
    seconds(35).await;
    for n in 0..100 {
        assert!(world.initialised(&format!("n{n:02}")), "{n}");
    }
    assert_eq!(world.sim.list("nodes").len(), 100);
    assert_eq!(world.reasons(), vec!["Synced"; 100]);
    let questions = world.cloud.questions("metadata").len();
    assert!(
        questions < 60,
        "waiting together costs few calls: {questions}"
    );
}

/// CASE-NODE-10; REQ-NODE-21
#[tokio::test(start_paused = true)]
async fn malformed_provider_ids_stop_nobody_else() {
    let world = world();
    for n in 1..=5 {
        let name = format!("ok-{n}");
        world.join(
            &NewNode::named(&name)
                .id(&format!("sim://{n}"))
                .ready("False"),
            Machine::running(&format!("sim://{n}")),
        );
    }
    let bad = ["sim", "sim://", "kwok://x", "gce://p/z/n"];
    for (n, id) in bad.iter().enumerate() {
        world.create(&NewNode::named(&format!("bad-{n}")).id(id).ready("False"));
        world.create(&NewNode::fresh(&format!("new-{n}")).id(id));
    }
    seconds(600).await;
    let before: Vec<_> = (0..4).map(|n| world.raw(&format!("bad-{n}"))).collect();
    let world = world.start();
    seconds(600).await;
    for n in 1..=5 {
        assert_eq!(
            world.addresses(&format!("ok-{n}")),
            addresses("Int 10.0.0.1")
        );
    }
    for (n, id) in bad.iter().enumerate() {
        assert_eq!(world.raw(&format!("bad-{n}")), before[n], "untouched");
        let new = format!("new-{n}");
        assert!(!world.initialised(&new));
        assert_eq!(world.node(&new).provider_id(), Some(*id));
        let events = world.events_about(&new);
        // 5 ms doubling for 600 s.
        assert_eq!(events.len(), 17, "one a back-off step");
        assert!(events.iter().all(|e| e.reason == "FailedToInitialise"));
        assert!(events[0].message.contains(id), "{}", events[0].message);
    }
    // The lifecycle controller goes on for the others.
    world.cloud.terminate("ok-3");
    seconds(11).await;
    assert!(!world.exists("ok-3"));
    assert_eq!(world.sim.list("nodes").len(), 4 + 4 + 4);
}

/// CASE-NODE-09: a machine that its cloud spells in another case than its Node is the provider's to
/// find. Nothing here compares names: the Node's own goes to the provider, the provider's stay as
/// they are.
#[tokio::test(start_paused = true)]
async fn a_machine_spelt_in_another_case_than_its_node_is_served_like_any_other() {
    let name = "kite-pool00000q";
    let id = "sim://virtualMachineScaleSets/kite-pool/virtualMachines/26";
    let world = world();
    let machine = Machine::running(id).at("Int 10.0.0.1, Host kite-pool00000Q");
    world.join(&NewNode::fresh(name), machine);
    let world = world.start();
    seconds(15).await;
    assert!(world.initialised(name));
    assert_eq!(world.node(name).provider_id(), Some(id));
    assert_eq!(
        world.addresses(name),
        addresses("Int 10.0.0.1, Host kite-pool00000Q")
    );
    seconds(300).await;
    world.set_ready(name, "Unknown");
    seconds(60).await;
    assert!(world.exists(name));
    world.set_ready(name, "True");
    seconds(600).await;
    assert!(world.exists(name) && world.taints(name).is_empty());
    assert!(!world.reasons().contains(&"DeletingNode".to_owned()));
    for kind in ["metadata", "shared", "direct"] {
        let questions = world.cloud.questions(kind);
        let mut names = questions.iter().flat_map(|question| &question.nodes);
        assert!(names.all(|asked| asked == name), "{questions:?}");
    }
}
