//! Monitor rounds under faults of the cloud.

use std::time::Duration;

use ccm_core::{
    cloud::{Class, Power},
    config::NodeLifecycleSettings,
};
use ccm_kubesim::Verb;

use crate::{
    cloud::Machine,
    world::{NewNode, World, seconds},
};

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

/// CASE-LIFE-01; REQ-LIFE-04, REQ-LIFE-09
#[tokio::test(start_paused = true)]
async fn no_error_of_any_class_deletes_or_taints() {
    let world = world();
    for n in 0..10 {
        let name = format!("n{n}");
        world.join(&not_ready(&name), machine(&name));
    }
    let classes = [
        Class::Transient,
        Class::Throttled { after: None },
        Class::Throttled {
            after: Some(Duration::from_secs(1)),
        },
        Class::Denied,
        Class::NotFound,
        Class::Invalid,
        Class::Conflict,
        Class::Quota,
    ];
    for _ in 0..5 {
        world.cloud.fail("shared", &classes);
    }
    seconds(600).await;
    let world = world.start();
    seconds(180).await;
    assert_eq!(world.cloud.questions("shared").len(), 36);
    // The reads work again.
    seconds(60).await;
    assert_eq!(world.sim.list("nodes").len(), 10);
    assert!(world.reasons().is_empty());
    assert_eq!(world.writes(), 0);
    assert!(world.cloud.questions("direct").is_empty());
}

/// CASE-LIFE-05
#[tokio::test(start_paused = true)]
async fn a_machine_removed_while_it_is_asked_about_gets_no_taint_and_goes_next() {
    let world = world();
    world.join(&not_ready("a"), machine("a").power(Power::Stopped));
    // "Exists", then its state is not found: the provider's answer is an error.
    world.cloud.fail("shared", &[Class::NotFound]);
    seconds(600).await;
    let world = world.start();
    seconds(1).await;
    assert!(world.exists("a"));
    assert!(world.taints("a").is_empty());
    world.cloud.terminate("a");
    seconds(10).await;
    assert!(!world.exists("a"));
    assert_eq!(world.requested(Verb::Delete), 1);
    assert_eq!(world.writes(), 1);
}

/// CASE-LIFE-06; REQ-LIFE-20
#[tokio::test(start_paused = true)]
async fn a_new_node_whose_machine_is_not_visible_yet_stays() {
    let world = world();
    for n in 0..50 {
        let name = format!("n{n}");
        world.join(&NewNode::fresh(&name), machine(&name));
        world.cloud.hide(&name, Duration::from_secs(60));
    }
    // Initialised by hand, without provider id; and one whose machine never comes.
    world.join(&NewNode::named("bare").ready("False"), machine("bare"));
    world.cloud.hide("bare", Duration::from_secs(110));
    world.create(&NewNode::fresh("never"));
    let world = world.start();
    seconds(119).await;
    assert_eq!(world.sim.list("nodes").len(), 52);
    assert!(world.reasons().is_empty());
    assert_eq!(world.writes(), 0);
    seconds(15).await;
    assert!(!world.exists("never"), "after the grace as any other");
    assert_eq!(world.sim.list("nodes").len(), 51);
}

/// CASE-LIFE-09; REQ-LIFE-16
#[tokio::test(start_paused = true)]
async fn a_reclaimed_spot_machine_goes_two_ticks_after_its_terminal_state() {
    let world = world();
    world.join(&not_ready("a").ready("True"), machine("a"));
    let world = world.start();
    seconds(120).await;
    world.cloud.power("a", Power::Unknown); // shutting down
    seconds(5).await;
    world.set_ready("a", "Unknown");
    seconds(25).await;
    assert!(world.exists("a"));
    assert_eq!(world.writes(), 0, "no shutdown taint");
    world.cloud.terminate("a"); // terminal state: absent, although the API lists it
    seconds(10).await;
    assert!(!world.exists("a"));
    assert_eq!(world.reasons(), ["DeletingNode"]);
}

/// CASE-LIFE-10; REQ-LIFE-22
#[tokio::test(start_paused = true)]
async fn many_nodes_that_are_not_ready_are_asked_about_in_batches() {
    let world = world();
    for n in 0..1_000 {
        let name = format!("n{n:03}");
        let ready = if n < 300 { "Unknown" } else { "True" };
        world.join(&not_ready(&name).ready(ready), machine(&name));
    }
    let world = world.start();
    seconds(1).await;
    assert_eq!(world.cloud.questions("shared").len(), 3, "one round");
    seconds(300).await;
    let before = world.cloud.asked();
    assert_eq!(before, 3 * 61);
    assert_eq!(world.writes(), 0);
    // A machine that is truly gone costs one more question, and is noticed.
    world.cloud.terminate("n123");
    seconds(30).await;
    assert!(!world.exists("n123"));
    assert_eq!(world.sim.list("nodes").len(), 999);
    assert_eq!(world.cloud.questions("direct").len(), 1);
}

/// CASE-LIFE-08: a machine of a kind of its own among those of many sets. Its absence is found with
/// two questions, one together with all others that are in doubt and one of its own, and no Node
/// that is Ready is asked about.
#[tokio::test(start_paused = true)]
async fn one_machine_that_is_gone_costs_two_questions_however_many_others_there_are() {
    let world = world();
    for n in 0..400 {
        let name = format!("set-{:02}-{n:03}", n % 40);
        world.join(&not_ready(&name).ready("True"), machine(&name));
    }
    world.join(&not_ready("lone-1").ready("True"), machine("lone-1"));
    let world = world.start();
    seconds(150).await;
    assert_eq!(world.cloud.asked(), 0);
    world.cloud.terminate("lone-1");
    world.set_ready("lone-1", "Unknown");
    seconds(11).await;
    assert!(!world.exists("lone-1"), "two ticks");
    seconds(300).await;
    for kind in ["shared", "direct"] {
        let questions = world.cloud.questions(kind);
        assert_eq!(questions.len(), 1, "{questions:?}");
        assert_eq!(questions[0].nodes, ["lone-1"]);
    }
    assert_eq!(world.reasons(), ["DeletingNode"]);
    assert_eq!(world.sim.list("nodes").len(), 400);
}
