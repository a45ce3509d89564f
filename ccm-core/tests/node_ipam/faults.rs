//! Writes whose outcome is not known or that fail, and starts that fail.

use std::{sync::Arc, time::Duration};

use ccm_core::cloud::{Class, CloudPodCidrs, NodeIpamPolicy, NodeMasks, PodCidrs};
use ccm_kubesim::{Fault, Outage, Target, Verb};

use crate::world::{FakeMachines, World, pool, seconds};

const POOL: &str = "10.64.0.0/22";

/// REQ-IPAM-08, REQ-IPAM-10
#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_keeps_the_block_until_the_node_was_read() {
    for fault in [
        Fault::TimeoutWithEffect,
        Fault::DropWithEffect,
        Fault::Drop,
        Fault::Internal,
        Fault::Unavailable(None),
    ] {
        let world = World::new();
        let process = world.start(&pool(POOL));
        seconds(1).await;
        let patch = || Target::new(Verb::Patch, "nodes").named("n1");
        let read = || Target::new(Verb::Get, "nodes");
        world.sim.faults().fail_next(3, patch(), fault);
        world
            .sim
            .faults()
            .fail_next(12, read(), Fault::Unavailable(None));
        // The watch shows no write for a long time. The fifth Node takes any block that is freed.
        let behind = Duration::from_secs(30);
        world.sim.faults().delay_watches(Some("nodes"), behind);
        for n in 1..=5 {
            world.create(&format!("n{n}"), &[]);
        }
        seconds(58).await;
        assert!(world.cidrs("n5").is_empty(), "{fault:?}");
        assert_eq!(process.usage(POOL), 1.0, "{fault:?}");
        seconds(120).await;
        assert_eq!(world.disjoint().len(), 4, "{fault:?}");
        assert_eq!(world.cidrs("n1"), ["10.64.0.0/24"], "{fault:?}");
        assert!(world.cidrs("n5").is_empty(), "{fault:?}");
        assert_eq!(process.usage(POOL), 1.0, "{fault:?}");
        process.stop().await;
    }
}

/// REQ-IPAM-10
#[tokio::test(start_paused = true)]
async fn a_refused_write_frees_the_block_and_the_retry_picks_anew() {
    let world = World::new();
    let process = world.start(&pool(POOL));
    seconds(1).await;
    let target = Target::new(Verb::Patch, "nodes").named("n1");
    world.sim.faults().fail_next(9, target, Fault::Forbidden);
    world.create("n1", &[]);
    seconds(20).await;
    assert_eq!(
        world.events("n1", "CIDRAssignmentFailed"),
        3,
        "three tries each"
    );
    assert_eq!(world.patches("n1").len(), 10);
    assert_eq!(world.cidrs("n1"), ["10.64.3.0/24"]);
    assert_eq!(process.usage(POOL), 0.25);
    process.stop().await;
}

/// REQ-IPAM-12
#[tokio::test(start_paused = true)]
async fn existing_ranges_that_do_not_fit_end_the_start_but_for_azure_outside_ones_do_not() {
    let world = World::new();
    world.create("old", &["10.99.0.0/24"]);
    let error = world.start(&pool(POOL)).ended().await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("Node old: cidr 10.99.0.0/24 is out the range"),
        "{text}"
    );
    assert!(text.contains("--cluster-cidr"), "{text}");
    let gcp = world.start_with(&pool(POOL), NodeIpamPolicy::Gcp, None);
    gcp.ended().await.unwrap_err();

    let azure = world.start_with(&pool(POOL), NodeIpamPolicy::Azure, None);
    seconds(5).await;
    world.create("new", &[]);
    seconds(5).await;
    assert!(azure.is_running());
    assert_eq!(world.cidrs("new"), ["10.64.0.0/24"]);
    azure.stop().await;

    let world = World::new();
    world.create("dual", &["10.64.0.0/24", "2001:db8::/64"]);
    for policy in [NodeIpamPolicy::Kubernetes, NodeIpamPolicy::Azure] {
        let ended = world.start_with(&pool(POOL), policy, None).ended().await;
        let text = ended.unwrap_err().to_string();
        assert!(text.contains("it has 2 pod ranges"), "{text}");
    }
}

/// REQ-IPAM-14
#[tokio::test(start_paused = true)]
async fn nodes_that_cannot_be_listed_for_ten_minutes_end_the_process() {
    let world = World::new();
    world.sim.faults().unavailable(Outage::Status503);
    let process = world.start(&pool(POOL));
    seconds(590).await;
    assert!(process.is_running());
    seconds(11).await;
    assert!(!process.is_running());
    let text = process.ended().await.unwrap_err().to_string();
    assert!(text.contains("10 minutes"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn sizes_of_the_machines_are_asked_for_many_nodes_at_once() {
    let world = World::new();
    let machines = Arc::new(FakeMachines::<NodeMasks>::default());
    let mut settings = pool("10.64.0.0/16");
    "CloudAllocator".clone_into(&mut settings.allocator_type);
    for n in 0..50 {
        let name = format!("n{n:02}");
        let ipv4 = Some(if n % 2 == 0 { 26 } else { 24 });
        machines.put(&name, NodeMasks { ipv4, ipv6: None });
        world.create(&name, &[]);
    }
    world.create_with("without", &serde_json::json!({}));
    let sized = PodCidrs::Sized(machines.clone());
    let process = world.start_with(&settings, NodeIpamPolicy::Azure, Some(sized));
    seconds(10).await;
    assert_eq!(world.disjoint().len(), 50);
    for n in 0..50 {
        let ranges = world.cidrs(&format!("n{n:02}"));
        let end = if n % 2 == 0 { "/26" } else { "/24" };
        assert!(ranges[0].ends_with(end), "{ranges:?}");
    }
    assert_eq!(machines.questions(), [50]);
    // A machine without a size is asked for again; one that appears later is found.
    assert!(world.cidrs("without").is_empty());
    let id = serde_json::json!({ "spec": { "providerID": "sim://without" } });
    world.change("without", &id);
    seconds(5).await;
    assert!(world.events("without", "CIDRNotAvailable") > 0);
    machines.put("without", NodeMasks::default());
    seconds(60).await;
    assert_eq!(world.cidrs("without").len(), 1);
    process.stop().await;
}

/// The cloud asks for a pause with the first of several questions; Nodes that come meanwhile wait
/// too, and afterwards nobody is forgotten.
async fn the_pause_is_kept(world: &World, questions: impl Fn() -> Vec<usize>) {
    for n in 0..250 {
        world.create(&format!("n{n:03}"), &[]);
    }
    seconds(5).await;
    for n in 250..260 {
        world.create(&format!("n{n:03}"), &[]);
        seconds(5).await;
    }
    assert_eq!(questions().len(), 1, "{:?}", questions());
    assert!(world.disjoint().is_empty());
    seconds(80).await;
    assert_eq!(world.disjoint().len(), 260);
    // All once after the pause, and where ranges are copied once more after they were written.
    let all = questions();
    let after: usize = all.iter().skip(1).sum();
    assert!(after <= 2 * 260, "{all:?}");
}

const A_MINUTE: Class = Class::Throttled {
    after: Some(Duration::from_secs(60)),
};

/// CASE-THR-03
#[tokio::test(start_paused = true)]
async fn no_machine_is_asked_about_before_the_wait_that_the_cloud_named_is_over() {
    let mut settings = pool("10.64.0.0/14");
    "CloudAllocator".clone_into(&mut settings.allocator_type);

    let (world, machines) = (World::new(), Arc::new(FakeMachines::default()));
    for n in 0..260 {
        let of = CloudPodCidrs {
            cidrs: vec![format!("10.64.{}.{}/28", n / 16, n % 16 * 16)],
            routed: false,
        };
        machines.put(&format!("n{n:03}"), of);
    }
    machines.fail_next(A_MINUTE);
    let copied = PodCidrs::Copied(machines.clone());
    let process = world.start_with(&settings, NodeIpamPolicy::Gcp, Some(copied));
    the_pause_is_kept(&world, || machines.questions()).await;
    process.stop().await;

    let (world, machines) = (World::new(), Arc::new(FakeMachines::default()));
    for n in 0..260 {
        machines.put(&format!("n{n:03}"), NodeMasks::default());
    }
    machines.fail_next(A_MINUTE);
    let sized = PodCidrs::Sized(machines.clone());
    let process = world.start_with(&settings, NodeIpamPolicy::Azure, Some(sized));
    the_pause_is_kept(&world, || machines.questions()).await;
    process.stop().await;
}
