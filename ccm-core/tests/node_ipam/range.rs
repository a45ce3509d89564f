//! The range allocator.

use ccm_kubesim::Verb;
use serde_json::json;

use crate::world::{World, millis, pool, seconds};

const POOL: &str = "10.64.0.0/22";

/// REQ-IPAM-01, REQ-IPAM-03, REQ-IPAM-13
#[tokio::test(start_paused = true)]
async fn nodes_get_one_block_a_family_apart_from_the_services_and_the_series_count_them() {
    let world = World::new();
    let mut settings = pool("10.64.0.0/22,2001:db8::/56");
    "10.64.0.0/24".clone_into(&mut settings.service_cluster_ip_range);
    let process = world.start(&settings);
    seconds(1).await;
    world.create("n1", &[]);
    seconds(1).await;
    assert_eq!(world.cidrs("n1"), ["10.64.1.0/24", "2001:db8::/64"]);
    assert_eq!(world.raw("n1")["spec"]["podCIDR"], "10.64.1.0/24");
    assert_eq!(world.patches("n1"), [200]);
    assert_eq!(world.sim.requests().count(Verb::Get, "nodes"), 0);
    let allocations = "node_ipam_controller_cidrset_cidrs_allocations_total";
    let releases = "node_ipam_controller_cidrset_cidrs_releases_total";
    let tries = "node_ipam_controller_cidrset_allocation_tries_per_request";
    let max = "node_ipam_controller_cirdset_max_cidrs";
    assert_eq!(process.metric(allocations, POOL), 2.0);
    assert_eq!(process.metric(releases, POOL), 0.0);
    assert_eq!(process.metric(tries, POOL), 1.0);
    assert_eq!(process.metric(max, POOL), 4.0);
    assert_eq!(process.usage(POOL), 0.5);
    assert_eq!(process.metric(max, "2001:db8::/56"), 256.0);
    world.delete("n1");
    seconds(1).await;
    assert_eq!(process.metric(releases, POOL), 1.0);
    assert_eq!(process.usage(POOL), 0.25);
    process.stop().await;
}

/// CASE-IPAM-01; REQ-IPAM-07
#[tokio::test(start_paused = true)]
async fn beside_another_allocator_all_ranges_are_disjoint_and_a_warning_tells_of_it() {
    let (mut foreign_ones, mut lost_races) = (0, 0);
    for delay in [0, 1, 20, 50] {
        let world = World::new();
        let process = world.start(&pool("10.64.0.0/14"));
        seconds(1).await;
        // Our watch is behind, so that the other allocator is faster than we see.
        world
            .sim
            .faults()
            .delay_watches(Some("nodes"), std::time::Duration::from_millis(30));
        for n in 0..40 {
            let name = format!("n{n}");
            world.create(&name, &[]);
            if n % 2 == 0 {
                millis(delay).await;
                // As the kube-controller-manager: only a Node without ranges gets one.
                if world.cidrs(&name).is_empty() {
                    let range = format!("10.67.{n}.0/24");
                    let spec = json!({ "podCIDR": range, "podCIDRs": [range] });
                    world.change(&name, &json!({ "spec": spec }));
                }
            }
        }
        seconds(60).await;
        assert_eq!(world.disjoint().len(), 40);
        let mut hints = 0;
        for n in 0..40 {
            let name = format!("n{n}");
            let refused = world.patches(&name).iter().filter(|s| **s != 200).count();
            assert!(refused <= 1, "{name}: {refused}");
            lost_races += refused;
            if world.cidrs(&name)[0].starts_with("10.67.") {
                assert!(!world.patches(&name).contains(&200), "{name} was patched");
            }
            hints += world.events(&name, "AnotherAllocator");
        }
        let all = world.disjoint().into_iter();
        let foreign = all.filter(|r| r.to_string().starts_with("10.67.")).count();
        assert_eq!(hints, usize::from(foreign > 0), "after {delay} ms");
        foreign_ones += foreign;
        assert_eq!(
            process.usage("10.64.0.0/14"),
            40.0 / 1024.0,
            "nothing leaked"
        );
        process.stop().await;
    }
    assert!(
        foreign_ones > 0 && lost_races > 0,
        "{foreign_ones} {lost_races}"
    );
}

/// CASE-IPAM-02; REQ-IPAM-02, REQ-IPAM-05
#[tokio::test(start_paused = true)]
async fn restarts_and_a_kill_in_mid_allocation_count_nothing_twice() {
    let world = World::new();
    world.create("n1", &["10.64.2.0/24"]);
    world.create("n2", &["10.64.0.0/24"]);
    let settings = pool(POOL);
    for _ in 0..5 {
        let process = world.start(&settings);
        seconds(2).await;
        assert_eq!(process.usage(POOL), 0.5);
        process.stop().await;
    }
    let fault = ccm_kubesim::Fault::Delay(std::time::Duration::from_secs(5));
    let target = ccm_kubesim::Target::new(Verb::Patch, "nodes");
    world.sim.faults().fail_next(1, target, fault);
    let process = world.start(&settings);
    seconds(1).await;
    world.create("n3", &[]);
    seconds(1).await;
    process.kill();
    let process = world.start(&settings);
    seconds(10).await;
    world.create("n4", &[]);
    seconds(10).await;
    assert_eq!(world.disjoint().len(), 4);
    assert_eq!(world.cidrs("n1"), ["10.64.2.0/24"]);
    assert_eq!(world.cidrs("n2"), ["10.64.0.0/24"]);
    assert_eq!(process.usage(POOL), 1.0);
    process.stop().await;
}

/// CASE-IPAM-03; REQ-IPAM-06, REQ-IPAM-09
#[tokio::test(start_paused = true)]
async fn an_exhausted_pool_is_told_with_back_off_and_heals_when_a_node_is_gone() {
    let world = World::new();
    let mut settings = pool("10.64.0.0/21");
    "10.64.4.0/22".clone_into(&mut settings.service_cluster_ip_range);
    let process = world.start(&settings);
    seconds(1).await;
    for n in 1..=6 {
        world.create(&format!("n{n}"), &[]);
        seconds(1).await;
    }
    // Long waits: the back-off is far beyond 30 s by now.
    seconds(1000).await;
    for name in ["n5", "n6"] {
        assert!(world.cidrs(name).is_empty());
        let told = world.events(name, "CIDRNotAvailable");
        assert!((10..=20).contains(&told), "{told} in 1000 s");
    }
    // While a finalizer holds the Node its range is not free (REQ-IPAM-09).
    world.change(
        "n2",
        &json!({ "metadata": { "finalizers": ["x.io/hold"] } }),
    );
    let freed = world.cidrs("n2");
    world.delete("n2");
    seconds(60).await;
    assert!(world.cidrs("n5").is_empty() && world.cidrs("n6").is_empty());
    world.change("n2", &json!({ "metadata": { "finalizers": null } }));
    seconds(30).await;
    assert_eq!(world.cidrs("n5"), freed);
    assert!(world.cidrs("n6").is_empty());
    for range in world.disjoint() {
        assert!(range.to_string().as_str() < "10.64.4", "{range}");
    }
    // Two at once serve all that wait.
    world.create("n7", &[]);
    seconds(500).await;
    world.delete("n1");
    world.delete("n3");
    seconds(30).await;
    assert!(!world.cidrs("n6").is_empty() && !world.cidrs("n7").is_empty());
    process.stop().await;
}

/// REQ-IPAM-15
#[tokio::test(start_paused = true)]
async fn a_node_under_deletion_gets_nothing_and_a_new_one_of_its_name_does() {
    let world = World::new();
    world.create("n1", &[]);
    world.change(
        "n1",
        &json!({ "metadata": { "finalizers": ["x.io/hold"] } }),
    );
    world.delete("n1");
    let process = world.start(&pool(POOL));
    seconds(60).await;
    assert!(world.cidrs("n1").is_empty());
    assert!(world.patches("n1").is_empty());
    world.change("n1", &json!({ "metadata": { "finalizers": null } }));
    world.create("n1", &[]);
    seconds(5).await;
    assert_eq!(world.cidrs("n1"), ["10.64.0.0/24"]);
    // Re-created with another range of its own.
    world.delete("n1");
    world.create("n1", &["10.64.3.0/24"]);
    seconds(5).await;
    assert_eq!(process.usage(POOL), 0.25);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_about_ranges_costs_no_request() {
    let world = World::new();
    let process = world.start(&pool(POOL));
    seconds(1).await;
    world.create("n1", &[]);
    seconds(1).await;
    let mark = world.sim.mark();
    for n in 0..20 {
        let labels = json!({ "beat": n.to_string() });
        world.change("n1", &json!({ "metadata": { "labels": labels } }));
        seconds(1).await;
    }
    let since = world.sim.since(&mark);
    assert_eq!(since.writes() + since.count(Verb::Get, "nodes"), 0);
    process.stop().await;
}
