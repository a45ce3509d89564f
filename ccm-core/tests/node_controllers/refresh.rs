//! Initialised Nodes: addresses, labels, the periodic pass.

use std::time::Duration;

use ccm_core::{cloud::Class, config::NodeSettings};
use ccm_kubesim::Verb;
use serde_json::json;

use crate::{
    cloud::{Machine, addresses},
    world::{NewNode, World, seconds},
};

const PERIOD: u64 = 300;

fn world() -> World {
    World::new().with_node_controller(NodeSettings::default())
}

fn known(name: &str) -> NewNode {
    NewNode::named(name).id(&format!("sim://{name}"))
}

fn machine(name: &str) -> Machine {
    Machine::running(&format!("sim://{name}"))
}

/// CASE-NODE-06; REQ-NODE-16, REQ-NODE-17
#[tokio::test(start_paused = true)]
async fn the_stored_list_follows_the_clouds_in_content_and_order() {
    let steps = [
        "Int 10.0.0.1, Int 10.0.0.2",
        "Int 10.0.0.1",
        "Int 10.0.0.3, Int 10.0.0.4",
        "Int 10.0.0.4, Int 10.0.0.3",
        "Int fd00::1, Int fd00::2, Int 10.0.0.3",
        "Int fd00::2, Int 10.0.0.3, Int fd00::1",
        "Ext 5.5.5.5, Int 10.0.0.3",
    ];
    let world = world();
    world.join(&known("a"), machine("a").at(steps[0]));
    let world = world.start();
    for (number, step) in steps.iter().enumerate() {
        world.cloud.put("a", machine("a").at(step));
        seconds(if number == 0 { 1 } else { PERIOD }).await;
        assert_eq!(world.addresses("a"), addresses(step));
        assert_eq!(world.patches("a").len(), number + 1, "one write a step");
        // U4: the same answer writes nothing, dual-stack included.
        seconds(PERIOD).await;
        assert_eq!(world.patches("a").len(), number + 1, "{step}");
    }
    assert!(
        world
            .patches("a")
            .iter()
            .all(|(part, status)| part == "status" && *status == 200)
    );
}

/// REQ-NODE-13, REQ-NODE-20, REQ-NODE-21
#[tokio::test(start_paused = true)]
async fn a_pass_skips_tainted_nodes_and_one_failure_costs_one_node() {
    let world = world();
    for name in ["a", "b", "c"] {
        world.join(&known(name).at("Int 10.9.9.9"), machine(name));
    }
    world.cloud.put("c", machine("c").at(""));
    world.cloud.fail_for("b", Some(Class::Transient));
    world.join(&NewNode::fresh("new"), machine("new"));
    world.cloud.fail_for("new", Some(Class::Denied));
    let world = world.start();
    seconds(1).await;
    assert_eq!(world.addresses("a"), addresses("Int 10.0.0.1"));
    assert_eq!(world.addresses("b"), addresses("Int 10.9.9.9"));
    assert_eq!(
        world.addresses("c"),
        addresses("Int 10.9.9.9"),
        "never cleared"
    );
    assert!(world.addresses("new").is_empty());
    assert!(!world.initialised("new"));
    let questions = world.cloud.questions("metadata");
    let pass: Vec<_> = questions.iter().filter(|q| q.nodes.len() > 1).collect();
    assert_eq!(pass.len(), 1);
    assert_eq!(pass[0].nodes, ["a", "b", "c"]);
    world.cloud.fail_for("b", None);
    seconds(PERIOD).await;
    assert_eq!(world.addresses("b"), addresses("Int 10.0.0.1"));
}

/// REQ-NODE-24
#[tokio::test(start_paused = true)]
async fn a_pass_asks_in_slices_and_the_flag_bounds_how_many_at_once() {
    for (status_updates, took) in [(0, 10), (1, 10), (5, 2), (30, 1)] {
        let world = World::new().with_node_controller(NodeSettings {
            status_updates,
            ..NodeSettings::default()
        });
        world.cloud.batch_size(10);
        world.cloud.latency("metadata", Duration::from_secs(1));
        for n in 0..100 {
            let name = format!("n{n:02}");
            world.join(&known(&name).at("Int 10.0.0.1"), machine(&name));
        }
        let world = world.start();
        seconds(PERIOD + took + 1).await;
        let questions = world.cloud.questions("metadata");
        assert!(questions[..10].iter().all(|q| q.nodes.len() == 10));
        let start = questions[0].at;
        // The period counts from the end of the pass.
        let second = questions[10].at - start;
        assert_eq!(second.as_secs(), PERIOD + took, "{status_updates}");
        assert_eq!(world.cloud.most_in_flight(), status_updates.clamp(1, 10));
        assert_eq!(world.writes(), 0);
    }
}

/// CASE-NODE-08; REQ-NODE-22
#[tokio::test(start_paused = true)]
async fn a_label_pair_that_drifts_is_repaired_by_one_patch_without_the_cloud() {
    let pairs = [
        (
            "failure-domain.beta.kubernetes.io/zone",
            "topology.kubernetes.io/zone",
        ),
        (
            "failure-domain.beta.kubernetes.io/region",
            "topology.kubernetes.io/region",
        ),
        (
            "beta.kubernetes.io/instance-type",
            "node.kubernetes.io/instance-type",
        ),
    ];
    for (beta, stable) in pairs {
        let world = world();
        world.join(
            &known("a")
                .at("Int 10.0.0.1")
                .label(beta, "v-1")
                .label(stable, "v-1"),
            machine("a"),
        );
        let world = world.start();
        seconds(1).await;
        let asked = world.cloud.asked();
        assert_eq!(world.writes(), 0);
        world.edit("a", |node| {
            node["metadata"]["labels"][stable] = json!("v-9");
        });
        seconds(1).await;
        assert_eq!(world.labels("a")[stable], "v-1");
        assert_eq!(world.patches("a").len(), 1);
        world.edit("a", |node| {
            node["metadata"]["labels"]
                .as_object_mut()
                .unwrap()
                .remove(stable);
        });
        seconds(1).await;
        assert_eq!(world.labels("a")[stable], "v-1");
        assert_eq!(world.patches("a").len(), 2);
        world.edit("a", |node| {
            let labels = node["metadata"]["labels"].as_object_mut().unwrap();
            labels.remove(beta);
            labels.insert(stable.to_owned(), json!("v-7"));
        });
        seconds(1).await;
        assert_eq!(world.labels("a")[stable], "v-7");
        assert_eq!(world.patches("a").len(), 2);
        assert_eq!(world.cloud.asked(), asked);
        assert_eq!(world.requested(Verb::Get), 0);
    }
}

/// CASE-NODE-07; REQ-NODE-28
#[tokio::test(start_paused = true)]
async fn labels_follow_a_resized_machine_only_if_asked_to() {
    for label_refresh in [false, true] {
        let world = World::new().with_node_controller(NodeSettings {
            label_refresh,
            ..NodeSettings::default()
        });
        world.join(
            &NewNode::fresh("a").label("user", "own"),
            machine("a").with(|m| {
                m.additional_labels
                    .insert("example.com/rack".to_owned(), "r1".to_owned());
                m.additional_labels
                    .insert("example.com/gone".to_owned(), "stays".to_owned());
            }),
        );
        let world = world.start();
        seconds(PERIOD).await;
        let before = world.labels("a");
        let writes = world.writes();
        assert_eq!(before["node.kubernetes.io/instance-type"], "m6.large");
        world.cloud.put(
            "a",
            machine("a").with(|m| {
                m.instance_type = "m6.2xlarge".to_owned();
                for (key, value) in [
                    ("example.com/rack", "r2"),
                    ("kubernetes.io/evil", "x"),
                    ("user.k8s.io/evil", "x"),
                ] {
                    m.additional_labels.insert(key.to_owned(), value.to_owned());
                }
            }),
        );
        seconds(3 * PERIOD).await;
        let mut expected = before;
        if label_refresh {
            for (key, value) in [
                ("node.kubernetes.io/instance-type", "m6.2xlarge"),
                ("beta.kubernetes.io/instance-type", "m6.2xlarge"),
                ("example.com/rack", "r2"),
            ] {
                expected.insert(key.to_owned(), value.to_owned());
            }
        }
        assert_eq!(world.labels("a"), expected);
        assert_eq!(
            world.writes() - writes,
            u64::from(label_refresh),
            "one patch"
        );
    }
}

/// REQ-APP-09: whoever led until now has just looked at all machines.
#[tokio::test(start_paused = true)]
async fn after_a_take_over_the_first_pass_is_due_after_a_period_and_new_nodes_at_once() {
    for took_over in [false, true] {
        let world = world();
        for name in ["a", "b", "c"] {
            world.join(&known(name), machine(name));
        }
        world.join(&NewNode::fresh("new"), machine("new"));
        if took_over {
            world.took_over.set();
        }
        let world = world.start();
        seconds(10).await;
        assert!(world.initialised("new"));
        let asked = |name: &str| {
            let all = world.cloud.questions("metadata");
            all.iter()
                .filter(|question| question.nodes.iter().any(|node| node == name))
                .count()
        };
        assert_eq!(asked("a"), usize::from(!took_over));
        seconds(PERIOD).await;
        assert_eq!(asked("a"), 1 + usize::from(!took_over));
        assert_eq!(world.addresses("a"), addresses("Int 10.0.0.1"));
    }
}
