//! What others break is put back.

use std::time::Duration;

use ccm_core::cloud::CloudError;
use serde_json::json;

use crate::{
    bench::{Bench, FINALIZER, SOON, pass, service},
    cloud::Op,
};

const HOUR: Duration = Duration::from_secs(3600);

async fn ready_with_verification() -> Bench {
    let mut bench = Bench::stopped();
    bench.settings.verify_period = HOUR;
    bench.put_node("a");
    bench.put(service("web"));
    bench.start();
    bench.until_ready("web").await;
    bench
}

/// CASE-LB-06
#[tokio::test(start_paused = true)]
async fn a_load_balancer_deleted_behind_our_back_comes_back() {
    for cause in ["annotation", "restart", "verification"] {
        let mut bench = ready_with_verification().await;
        bench.cloud.lock().balancers.clear();
        match cause {
            "annotation" => bench.patch("web", &json!({"metadata": {"annotations": {"a": "b"}}})),
            "restart" => {
                bench.stop().await;
                bench.start();
            }
            _ => pass(5400).await,
        }
        bench
            .until("the new address is published", SOON, |b| {
                b.address("web").as_deref() == Some("198.51.100.2")
            })
            .await;
        pass(1).await;
        assert_eq!(bench.cloud.balancers().len(), 1);
        assert_eq!(bench.told("EnsuredLoadBalancer").len(), 2, "{cause}");
        let mark = bench.sim.mark();
        bench.cloud.forget_calls();
        pass(600).await;
        assert!(bench.cloud.calls().is_empty(), "quiet: {cause}");
        assert_eq!(bench.sim.count_writes_since(&mark), 0);
        bench.stop().await;
    }
}

/// A verification comes once between one and one and a half periods, and says nothing.
#[tokio::test(start_paused = true)]
async fn a_verification_is_one_quiet_ensure() {
    let bench = ready_with_verification().await;
    let events = bench.events.all().len();
    let mark = bench.sim.mark();
    pass(3590).await;
    // A node change meanwhile must not lose the planned verification.
    bench.put_node("b");
    pass(5).await;
    assert_eq!(
        bench.cloud.count(Op::Ensure, "web"),
        1,
        "not before the period"
    );
    pass(1805).await;
    assert_eq!(
        bench.cloud.count(Op::Ensure, "web"),
        2,
        "once within one and a half"
    );
    pass(5400).await;
    let ensures = bench.cloud.count(Op::Ensure, "web");
    assert!((3..=4).contains(&ensures), "{ensures}");
    assert_eq!(bench.events.reasons()[events..], ["UpdatedLoadBalancer"]);
    assert_eq!(bench.sim.count_writes_since(&mark), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_verification_is_told_and_tried_again() {
    let bench = ready_with_verification().await;
    bench
        .cloud
        .fail_next(Op::Ensure, || CloudError::transient("boom"));
    pass(5420).await;
    assert_eq!(bench.told("SyncLoadBalancerFailed").len(), 1);
    assert_eq!(bench.cloud.count(Op::Ensure, "web"), 3);
}

/// REQ-SVC-42
#[tokio::test(start_paused = true)]
async fn a_cleared_status_is_restored_without_a_cloud_call() {
    let bench = Bench::ready().await;
    bench.cloud.forget_calls();
    let mark = bench.sim.mark();
    bench.patch("web", &json!({"status": {"loadBalancer": null}}));
    bench
        .until("the address is back", SOON, |b| {
            b.address("web").as_deref() == Some("198.51.100.1")
        })
        .await;
    pass(60).await;
    assert!(bench.cloud.calls().is_empty());
    assert_eq!(bench.sim.count_writes_since(&mark), 1);
}

/// REQ-SVC-41
#[tokio::test(start_paused = true)]
async fn a_stripped_finalizer_is_put_back_without_a_cloud_call() {
    let bench = Bench::ready().await;
    bench.cloud.forget_calls();
    bench.patch(
        "web",
        &json!({"metadata": {"finalizers": ["example.com/other"]}}),
    );
    bench
        .until("the finalizer is back", SOON, |b| b.has_finalizer("web"))
        .await;
    assert_eq!(bench.finalizers("web"), ["example.com/other", FINALIZER]);
    pass(60).await;
    assert!(bench.cloud.calls().is_empty());
}

/// REQ-SVC-41: another finalizer holds the Service, ours was stripped just before.
#[tokio::test(start_paused = true)]
async fn a_service_being_deleted_without_our_finalizer_still_loses_its_load_balancer() {
    let bench = Bench::ready().await;
    bench.patch(
        "web",
        &json!({"metadata": {"finalizers": ["example.com/other"]}}),
    );
    bench.delete("web");
    pass(60).await;
    assert!(bench.cloud.balancers().is_empty());
    assert_eq!(bench.finalizers("web"), ["example.com/other"]);
    assert_eq!(bench.cloud.count(Op::Delete, "web"), 1);
}

/// The same, seen in one step by a watch that was cut.
/// REQ-SVC-41
#[tokio::test(start_paused = true)]
async fn a_finalizer_stripped_and_a_deletion_seen_at_once_end_the_load_balancer() {
    let bench = Bench::ready().await;
    bench.sim.faults().unavailable(ccm_kubesim::Outage::Refused);
    bench.patch(
        "web",
        &json!({"metadata": {"finalizers": ["example.com/other"]}}),
    );
    bench.delete("web");
    bench.sim.faults().compact();
    pass(5).await;
    bench.sim.faults().available();
    pass(90).await;
    assert!(bench.cloud.balancers().is_empty());
    assert_eq!(bench.finalizers("web"), ["example.com/other"]);
}

/// Writes are seen late: what we wrote ourselves is not written again meanwhile.
#[tokio::test(start_paused = true)]
async fn a_late_watch_causes_no_second_write_and_no_second_delete() {
    let bench = Bench::running();
    bench
        .sim
        .faults()
        .delay_watches(None, Duration::from_secs(8));
    bench.put(service("web"));
    pass(30).await;
    assert_eq!(bench.address("web").as_deref(), Some("198.51.100.1"));
    bench.put_node("c");
    pass(60).await;
    assert_eq!(bench.sim.requests().writes(), 2);
    assert_eq!(bench.cloud.count(Op::Ensure, "web"), 1);
    bench.patch("web", &json!({"spec": {"type": "ClusterIP"}}));
    pass(120).await;
    assert_eq!(bench.sim.requests().writes(), 3);
    assert_eq!(bench.told("DeletedLoadBalancer").len(), 1);
}

/// CASE-OPS-01
#[tokio::test(start_paused = true)]
async fn what_happens_while_the_watch_is_cut_is_seen_afterwards() {
    let bench = Bench::running();
    for name in ["changed", "deleted", "replaced", "same"] {
        bench.put(service(name));
        bench.until_ready(name).await;
    }
    bench.cloud.forget_calls();
    bench.sim.faults().unavailable(ccm_kubesim::Outage::Refused);
    pass(45).await;
    bench.patch(
        "changed",
        &json!({"spec": {"ports": [{"name": "http", "port": 81}]}}),
    );
    bench.delete("deleted");
    bench.patch("replaced", &json!({"metadata": {"finalizers": null}}));
    bench.delete("replaced");
    bench.put(service("replaced"));
    bench.put(service("created"));
    bench.delete_node("a");
    bench.put_node("c");
    bench.sim.faults().compact();
    pass(45).await;
    bench.sim.faults().available();
    pass(60).await;
    for name in ["changed", "replaced", "same", "created"] {
        assert_eq!(bench.targets(name), ["b", "c"], "{name}");
        assert_eq!(
            bench.address(name),
            bench.cloud.balancer(name).map(|lb| lb.address)
        );
    }
    assert_eq!(bench.cloud.balancer("changed").unwrap().ports, [81]);
    assert!(bench.service("deleted").is_none());
    assert_eq!(bench.cloud.balancers().len(), 4);
    assert_eq!(bench.cloud.count(Op::Ensure, "same"), 0);
    assert!(
        bench
            .cloud
            .calls()
            .iter()
            .all(|c| c.op != Op::Update || !c.nodes.is_empty())
    );
}
