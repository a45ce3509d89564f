//! Initialisation of new Nodes.

use std::{sync::Arc, time::Duration};

use ccm_core::{
    cloud::{Class, Power, ProviderId},
    config::NodeSettings,
    kube::EventType,
};
use ccm_kubesim::{Fault, Target, Verb};
use serde_json::json;

use crate::{
    cloud::{Machine, addresses},
    world::{CLOUD_TAINT, NODE_IP, NewNode, World, edit, millis, seconds},
};

const TAINT_DELAY: &str = "node_controller_cloud_provider_taint_removal_delay_seconds";
const SYNC_DELAY: &str = "node_controller_initial_node_sync_delay_seconds";

fn world() -> World {
    World::new().with_node_controller(NodeSettings::default())
}

/// REQ-NODE-02, REQ-NODE-03, REQ-NODE-07, REQ-NODE-12, REQ-NODE-15, REQ-NODE-16, REQ-NODE-19,
/// REQ-NODE-25, REQ-NODE-26, REQ-NODE-29
#[tokio::test(start_paused = true)]
async fn a_new_node_is_initialised_by_one_patch_and_one_status_patch() {
    let world = world();
    let node = NewNode::fresh("heron-1")
        .taint("boot.example/wait", None)
        .label("mine", "x")
        .annotate("mine", "y")
        .at("Int 10.9.9.9, Host heron-1")
        .set("/spec", "podCIDRs", json!(["10.64.1.0/24"]))
        .set("/spec", "podCIDR", json!("10.64.1.0/24"))
        .set("/status", "capacity", json!({ "cpu": "4" }));
    world.join(
        &node,
        Machine::running("sim:///z-1/i-1").at("Int 10.0.0.1, Ext 5.5.5.5"),
    );
    let before = world.raw("heron-1").unwrap();
    let world = world.start();
    seconds(1).await;

    let mut expected = before.clone();
    let after = world.raw("heron-1").unwrap();
    expected["spec"]["providerID"] = json!("sim:///z-1/i-1");
    expected["spec"]["taints"] = json!([{ "key": "boot.example/wait", "effect": "NoSchedule" }]);
    expected["metadata"]["labels"] = json!({
        "mine": "x",
        "beta.kubernetes.io/instance-type": "m6.large",
        "node.kubernetes.io/instance-type": "m6.large",
        "failure-domain.beta.kubernetes.io/zone": "z-1",
        "topology.kubernetes.io/zone": "z-1",
        "failure-domain.beta.kubernetes.io/region": "r-1",
        "topology.kubernetes.io/region": "r-1",
    });
    expected["status"]["addresses"] = json!(addresses("Int 10.0.0.1, Ext 5.5.5.5, Host heron-1"));
    for changing in ["resourceVersion", "managedFields"] {
        expected["metadata"][changing] = after["metadata"][changing].clone();
    }
    assert_eq!(after, expected, "nothing else has changed");
    assert_eq!(
        world.patches("heron-1"),
        [(String::new(), 200), ("status".to_owned(), 200)]
    );
    assert_eq!(world.writes(), 2);
    let events = world.events_about("heron-1");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].source, "cloud-node-controller");
    assert_eq!(events[0].type_, EventType::Normal);
    assert_eq!(events[0].reason, "Synced");
    assert_eq!(events[0].message, "Node synced successfully");
    assert_eq!(events[0].object.api_version, "v1");
    for name in [TAINT_DELAY, SYNC_DELAY] {
        assert_eq!(world.metric(name, &[]), 1, "{name}");
        let buckets = world.buckets(name);
        assert_eq!(buckets, [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]);
    }
}

/// REQ-NODE-01, REQ-NODE-20 (TN4)
#[tokio::test(start_paused = true)]
async fn a_node_without_the_taint_is_not_initialised() {
    let world = world();
    let node = NewNode::named("heron-1").taint("other", None);
    let machine = Machine::running("sim://1").with(|m| m.addresses.clear());
    world.join(&node, machine);
    let before = world.raw("heron-1");
    let world = world.start();
    seconds(60).await;
    assert_eq!(world.raw("heron-1"), before);
    assert_eq!(world.writes(), 0);
    assert!(world.reasons().is_empty());
}

/// REQ-NODE-06 (TN7)
#[tokio::test(start_paused = true)]
async fn a_node_that_the_cloud_leaves_alone_keeps_its_taint_without_retries() {
    let world = world();
    let alone = Machine {
        metadata: None,
        power: Power::Running,
    };
    world.join(&NewNode::fresh("alone"), alone.clone());
    world.join(&NewNode::named("alone-2").at("Int 10.9.9.9"), alone);
    let world = world.start();
    seconds(700).await;
    assert!(!world.initialised("alone"));
    assert_eq!(world.addresses("alone-2"), addresses("Int 10.9.9.9"));
    assert_eq!(world.writes(), 0);
    assert!(world.reasons().is_empty());
    let about = |name: &str| {
        let all = world.cloud.questions("metadata");
        all.iter()
            .filter(|q| q.nodes.contains(&name.to_owned()))
            .count()
    };
    assert_eq!(about("alone"), 1, "no retry");
    assert_eq!(about("alone-2"), 3, "passes at 0, 300 and 600 s");
    // The next event on the Node asks again.
    world.set_ready("alone", "True");
    seconds(1).await;
    assert_eq!(about("alone"), 2);
}

/// REQ-NODE-04, REQ-NODE-05 (TN12, TN13)
#[tokio::test(start_paused = true)]
async fn without_any_provider_id_only_a_cloud_that_has_none_untaints() {
    let nameless = || Machine::running("sim://1").with(|m| m.provider_id = None);
    let strict = world();
    strict.join(&NewNode::fresh("heron-1"), nameless());
    let strict = strict.start();
    seconds(2).await;
    assert!(!strict.initialised("heron-1"));
    assert!(strict.cloud.asked() > 3, "it is retried");
    assert_eq!(strict.writes(), 0);

    let lenient = world();
    lenient.cloud.without_provider_ids();
    lenient.join(&NewNode::fresh("heron-1"), nameless());
    let lenient = lenient.start();
    seconds(2).await;
    assert!(lenient.initialised("heron-1"));
    assert_eq!(lenient.node("heron-1").provider_id(), None);
}

/// CASE-NODE-02; REQ-NODE-19
#[tokio::test(start_paused = true)]
async fn the_taint_goes_only_together_with_everything_else() {
    let world = world();
    world.cloud.fail("metadata", &[Class::Transient; 3]);
    world.join(
        &NewNode::fresh("heron-2"),
        Machine::running("sim://2").at(""),
    );
    let world = world.start();
    for _ in 0..20 {
        seconds(1).await;
        assert!(!world.initialised("heron-2"));
    }
    assert_eq!(world.writes(), 0);
    let tries = world.cloud.asked();
    assert!((8..=16).contains(&tries), "retries back off: {tries}");
    world.cloud.put("heron-2", Machine::running("sim://2"));
    seconds(22).await;
    assert!(world.initialised("heron-2"));
    assert_eq!(world.node("heron-2").provider_id(), Some("sim://2"));
    assert_eq!(world.addresses("heron-2"), addresses("Int 10.0.0.1"));
    assert_eq!(world.labels("heron-2").len(), 6);
    assert_eq!(world.reasons(), ["Synced"]);
}

/// CASE-NODE-04; REQ-NODE-11
#[tokio::test(start_paused = true)]
async fn both_families_of_a_dual_stack_node_ip_are_honoured() {
    let world = world();
    world.join(
        &NewNode::fresh("heron-4").annotate(NODE_IP, "2001:db8:4::7,10.20.0.44"),
        Machine::running("sim://4").at(
            "Int 10.20.0.40, Int 10.20.0.44, Int 2001:db8:4::6, Int 2001:db8:4::7, Host heron-4",
        ),
    );
    let world = world.start();
    seconds(1).await;
    assert!(world.initialised("heron-4"));
    assert_eq!(
        world.addresses("heron-4"),
        addresses("Int 2001:db8:4::7, Int 10.20.0.44, Host heron-4")
    );
}

/// CASE-NODE-05; REQ-NODE-09, REQ-NODE-23
#[tokio::test(start_paused = true)]
async fn a_node_ip_that_the_machine_does_not_have_blocks_only_that_node() {
    let world = world();
    let vip = "Int 10.20.0.5, Int 10.20.0.51";
    for (name, ip) in [("right", "10.20.0.51"), ("wrong", "10.20.0.99")] {
        world.join(
            &NewNode::fresh(name).annotate(NODE_IP, ip),
            Machine::running(&format!("sim://{name}")).at(vip),
        );
    }
    world.join(
        &NewNode::fresh("unparsable").annotate(NODE_IP, "1.2.3.4, ::1"),
        Machine::running("sim://u"),
    );
    let before = world.raw("wrong");
    let world = world.start();
    seconds(60).await;
    assert_eq!(world.addresses("right"), addresses("Int 10.20.0.51"));
    assert!(world.initialised("right"));
    assert_eq!(world.raw("wrong"), before);
    assert!(!world.initialised("unparsable"));
    let warnings = world.events_about("wrong");
    // 5 ms doubling: try n is 5 ms × (2^n − 1) after the first.
    assert_eq!(warnings.len(), 14, "one a try");
    let tries = world.cloud.questions("metadata");
    let tries = tries
        .iter()
        .filter(|q| q.nodes.contains(&"wrong".to_owned()));
    assert_eq!(tries.count(), 14);
    let warning = &warnings[0];
    assert_eq!(warning.type_, EventType::Warning);
    assert_eq!(warning.reason, "FailedToInitialise");
    assert_eq!(warning.source, "cloud-node-controller");
    for part in ["10.20.0.99", "10.20.0.5,", "10.20.0.51"] {
        assert!(warning.message.contains(part), "{}", warning.message);
    }
    // The kubelet is given the right address: no waiting for the back-off.
    world.edit("wrong", |node| {
        node["metadata"]["annotations"][NODE_IP] = json!("10.20.0.5");
    });
    seconds(1).await;
    assert_eq!(world.addresses("wrong"), addresses("Int 10.20.0.5"));
}

/// REQ-NODE-23
#[tokio::test(start_paused = true)]
async fn failures_back_off_and_heartbeats_do_not_cut_the_back_off_short() {
    let world = world();
    world.join(&NewNode::fresh("heron-1"), Machine::running("sim://1"));
    world.cloud.fail_for("heron-1", Some(Class::Transient));
    let world = world.start();
    for beat in 0..30 {
        seconds(1).await;
        world.edit("heron-1", |node| {
            node["status"]["conditions"][0]["lastHeartbeatTime"] =
                json!(format!("2026-01-01T00:00:{beat:02}Z"));
        });
    }
    let at: Vec<_> = world
        .cloud
        .questions("metadata")
        .iter()
        .map(|q| q.at)
        .collect();
    let waits: Vec<u128> = at.windows(2).map(|w| (w[1] - w[0]).as_millis()).collect();
    let doubling: Vec<u128> = (0..waits.len()).map(|n| 5 << n).collect();
    assert_eq!(waits, doubling);
    assert_eq!(waits.len(), 12);
    world.cloud.fail_for("heron-1", None);
    seconds(20).await;
    assert!(world.initialised("heron-1"));
}

/// REQ-NODE-14
#[tokio::test(start_paused = true)]
async fn conflicts_are_retried_up_to_twenty_times_on_a_fresh_read() {
    let world = world();
    world.join(&NewNode::fresh("heron-1"), Machine::running("sim://1"));
    let patch = Target::new(Verb::Patch, "nodes").subresource("");
    world
        .sim
        .faults()
        .fail_next(19, patch.clone(), Fault::Conflict);
    let start = tokio::time::Instant::now();
    let world = world.start();
    while !world.initialised("heron-1") {
        millis(5).await;
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(19 * 50), "{took:?}");
    assert!(took <= Duration::from_millis(19 * 100 + 100), "{took:?}");
    assert_eq!(world.requested(Verb::Get), 19);
    assert_eq!(world.cloud.asked(), 1);

    // The twentieth conflict gives the Node back to the queue, which asks the cloud anew.
    world.join(&NewNode::fresh("heron-2"), Machine::running("sim://2"));
    world.sim.faults().fail_next(20, patch, Fault::Conflict);
    seconds(10).await;
    assert!(world.initialised("heron-2"));
    assert_eq!(world.cloud.asked(), 3);
    assert_eq!(world.patches("heron-2").len(), 20 + 2);
    assert_eq!(world.reasons(), ["Synced", "Synced"]);
}

/// CASE-NODE-11; REQ-NODE-30, REQ-NODE-02
#[tokio::test(start_paused = true)]
async fn taints_and_labels_changed_meanwhile_survive() {
    let world = World::new().with_node_controller(NodeSettings {
        syncs: 10,
        ..NodeSettings::default()
    });
    for n in 0..200 {
        world.join(
            &NewNode::fresh(&format!("n{n}"))
                .taint("csi.example/agent-not-ready", None)
                .taint("boot.example/wait", None),
            Machine::running(&format!("sim://{n}")),
        );
    }
    // Between the read and the write of each Node, at ever different moments.
    world.cloud.latency("metadata", Duration::from_millis(10));
    world.sim.faults().fail_next(
        1_000,
        Target::new(Verb::Patch, "nodes").subresource(""),
        Fault::Delay(Duration::from_millis(7)),
    );
    let world = world.start();
    let mut rng = fastrand::Rng::with_seed(11);
    let editors: Vec<_> = (0..200)
        .map(|n| {
            let sim = Arc::clone(&world.sim);
            let wait = Duration::from_millis(rng.u64(0..400));
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                edit(&sim, &format!("n{n}"), |node| {
                    let taints = node["spec"]["taints"].as_array_mut().unwrap();
                    taints.retain(|t| t["key"] != "csi.example/agent-not-ready");
                    taints.push(json!({ "key": "team", "value": "blue", "effect": "NoSchedule" }));
                    node["metadata"]["labels"]["late"] = json!("yes");
                });
            })
        })
        .collect();
    for editor in editors {
        editor.await.unwrap();
    }
    seconds(10).await;
    for n in 0..200 {
        let name = format!("n{n}");
        assert_eq!(world.taints(&name), ["boot.example/wait", "team"], "{name}");
        assert_eq!(world.labels(&name)["late"], "yes", "{name}");
        assert_eq!(
            world.node(&name).provider_id(),
            Some(format!("sim://{n}").as_str())
        );
    }
    let requests = world.requests();
    let conflicts = requests.entries.iter().filter(|e| e.status == 409).count();
    assert!(conflicts > 0, "the test has to hit the gap");
    // A conflict is settled by a fresh read, not by another round through queue and cloud.
    let asked: usize = world
        .cloud
        .questions("metadata")
        .iter()
        .map(|q| q.nodes.len())
        .sum();
    assert_eq!(asked, 200);
}

/// REQ-NODE-18
#[tokio::test(start_paused = true)]
async fn failed_addresses_neither_fail_nor_undo_the_initialisation() {
    let world = world();
    world.join(&NewNode::fresh("heron-1"), Machine::running("sim://1"));
    let status = Target::new(Verb::Patch, "nodes").subresource("status");
    world
        .sim
        .faults()
        .fail_next(3, status.clone(), Fault::Forbidden);
    let world = world.start();
    seconds(10).await;
    assert!(world.initialised("heron-1"));
    assert_eq!(world.reasons(), ["Synced"]);
    assert!(world.addresses("heron-1").is_empty());
    assert_eq!(world.patches("heron-1").len(), 1 + 3);
    seconds(300).await;
    assert_eq!(
        world.addresses("heron-1"),
        addresses("Int 10.0.0.1"),
        "next pass"
    );

    // One lost request does not cost a period.
    world.join(&NewNode::fresh("heron-2"), Machine::running("sim://2"));
    world.sim.faults().fail_next(1, status, Fault::Internal);
    seconds(2).await;
    assert_eq!(world.addresses("heron-2"), addresses("Int 10.0.0.1"));
}

/// REQ-NODE-27
#[tokio::test(start_paused = true)]
async fn a_deleted_node_causes_no_cloud_call() {
    let world = world();
    world.join(
        &NewNode::named("ready").id("sim://1").at("Int 10.0.0.1"),
        Machine::running("sim://1"),
    );
    world.join(&NewNode::fresh("failing"), Machine::running("sim://2"));
    world.cloud.fail_for("failing", Some(Class::Denied));
    let world = world.start();
    seconds(1).await;
    let asked = world.cloud.asked();
    for name in ["ready", "failing"] {
        world.sim.delete_direct("nodes", "", name).unwrap();
    }
    seconds(200).await;
    assert_eq!(world.cloud.asked(), asked);
    assert_eq!(world.writes(), 0);
}

/// REQ-NODE-24
#[tokio::test(start_paused = true)]
async fn nodes_that_wait_together_share_cloud_calls_and_the_flag_bounds_the_writes() {
    for (syncs, expected) in [(1, 240), (10, 24)] {
        let world = World::new().with_node_controller(NodeSettings {
            syncs,
            ..NodeSettings::default()
        });
        for n in 0..120 {
            let name = format!("n{n:03}");
            world.join(
                &NewNode::fresh(&name),
                Machine::running(&format!("sim://{n}")),
            );
        }
        let slow = Fault::Delay(Duration::from_secs(1));
        world
            .sim
            .faults()
            .fail_next(1_000, Target::new(Verb::Patch, "nodes"), slow);
        let start = tokio::time::Instant::now();
        let world = world.start();
        while world.reasons().len() < 120 {
            millis(100).await;
        }
        let took = start.elapsed().as_secs();
        assert!(
            (expected..=expected + 1).contains(&took),
            "{syncs}: {took} s"
        );
        let sizes: Vec<_> = world
            .cloud
            .questions("metadata")
            .iter()
            .map(|q| q.nodes.len())
            .collect();
        assert_eq!(sizes, [100, 20]);
    }
}

/// REQ-NODE-03 (TN11)
#[tokio::test(start_paused = true)]
async fn an_existing_provider_id_is_kept() {
    let world = world();
    world.join(
        &NewNode::fresh("heron-1").id("sim://old"),
        Machine::running("sim://new"),
    );
    let world = world.start();
    seconds(1).await;
    assert!(world.initialised("heron-1"));
    assert_eq!(world.node("heron-1").provider_id(), Some("sim://old"));
}

/// REQ-NODE-08 (TN15, TN16)
#[tokio::test(start_paused = true)]
async fn additional_labels_are_added_beside_the_known_ones() {
    let world = world();
    let machine = Machine::running("sim://1").with(|m| {
        m.additional_labels = [
            ("example.com/rack", "9"),
            ("example.com/taken", "theirs"),
            ("kubernetes.io/region", "x"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        m.provider_id = Some(ProviderId::new("sim://1").unwrap());
    });
    world.join(
        &NewNode::fresh("heron-1").label("example.com/taken", "mine"),
        machine,
    );
    let world = world.start();
    seconds(1).await;
    let labels = world.labels("heron-1");
    assert_eq!(labels["example.com/rack"], "9");
    assert_eq!(labels["example.com/taken"], "mine");
    assert!(!labels.contains_key("kubernetes.io/region"));
    assert!(!world.taints("heron-1").contains(&CLOUD_TAINT.to_owned()));
}

/// A Node that was replaced by another of the same name does not get what was read for the old.
#[tokio::test(start_paused = true)]
async fn a_replaced_node_does_not_get_the_old_machines_id() {
    let world = world();
    world.join(&NewNode::fresh("heron-1"), Machine::running("sim://old"));
    world.cloud.latency("metadata", Duration::from_secs(1));
    let sim = Arc::clone(&world.sim);
    let cloud = Arc::clone(&world.cloud);
    world.sim.faults().fail_next(
        1,
        Target::new(Verb::Patch, "nodes"),
        Fault::Delay(Duration::from_secs(1)),
    );
    let world = world.start();
    millis(1_500).await;
    sim.delete_direct("nodes", "", "heron-1").unwrap();
    cloud.put("heron-1", Machine::running("sim://new"));
    world.create(&NewNode::fresh("heron-1"));
    seconds(10).await;
    assert_eq!(world.node("heron-1").provider_id(), Some("sim://new"));
    assert_eq!(world.reasons(), ["Synced"]);
}
