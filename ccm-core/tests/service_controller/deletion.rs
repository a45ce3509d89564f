//! Load balancers go when nobody wants them any more, and never come back by accident.

use std::time::Duration;

use ccm_core::cloud::CloudError;
use ccm_testkit::always;
use serde_json::json;

use crate::{
    bench::{Bench, FINALIZER, SOON, pass, service},
    cloud::Op,
};

/// REQ-SVC-04, REQ-SVC-40, TS5
#[tokio::test(start_paused = true)]
async fn a_deleted_service_leaves_with_its_load_balancer() {
    let bench = Bench::ready().await;
    bench.cloud.forget_calls();
    let mark = bench.sim.mark();
    bench.delete("web");
    bench
        .until("the Service is gone", SOON, |b| b.service("web").is_none())
        .await;
    assert!(bench.cloud.balancers().is_empty());
    let order: Vec<_> = bench.cloud.calls().iter().map(|call| call.op).collect();
    assert_eq!(order, [Op::Get, Op::Delete]);
    assert_eq!(
        bench.sim.count_writes_since(&mark),
        2,
        "status and finalizer"
    );
    assert_eq!(
        bench.events.reasons()[2..],
        ["DeletingLoadBalancer", "DeletedLoadBalancer"]
    );
    bench.cloud.forget_calls();
    bench.put_node("c");
    pass(600).await;
    assert!(
        bench.cloud.calls().is_empty(),
        "nothing of it is remembered"
    );
}

/// Another controller's finalizer holds the Service after ours has left.
/// REQ-SVC-04
#[tokio::test(start_paused = true)]
async fn the_status_of_a_service_that_others_hold_is_cleared() {
    let bench = Bench::running();
    let mut new = service("web");
    new["metadata"]["finalizers"] = json!(["example.com/other"]);
    bench.put(new);
    bench.until_ready("web").await;
    bench.delete("web");
    pass(300).await;
    assert_eq!(bench.finalizers("web"), ["example.com/other"]);
    assert_eq!(bench.address("web"), None);
    assert!(bench.cloud.balancers().is_empty());
    assert_eq!(bench.told("DeletedLoadBalancer").len(), 1);
}

/// REQ-SVC-06, TS4
#[tokio::test(start_paused = true)]
async fn a_service_that_changes_its_type_loses_its_load_balancer() {
    let bench = Bench::ready().await;
    bench.patch("web", &json!({"spec": {"type": "ClusterIP"}}));
    pass(300).await;
    assert!(bench.cloud.balancers().is_empty());
    assert!(!bench.has_finalizer("web"));
    assert_eq!(bench.address("web"), None);
    assert_eq!(bench.cloud.count(Op::Delete, "web"), 1);
    assert_eq!(bench.told("DeletedLoadBalancer").len(), 1);
}

/// CASE-LB-01, REQ-SVC-07
#[tokio::test(start_paused = true)]
async fn a_type_changed_while_the_controller_was_down_is_seen_at_the_start() {
    let mut bench = Bench::ready().await;
    bench.stop().await;
    bench.patch("web", &json!({"spec": {"type": "ClusterIP"}}));
    bench.start();
    bench
        .until("cleaned up", Duration::from_secs(15), |b| {
            b.cloud.balancers().is_empty() && !b.has_finalizer("web")
        })
        .await;
    pass(120).await;
    assert_eq!(bench.told("DeletingLoadBalancer").len(), 1);
    assert_eq!(bench.told("DeletedLoadBalancer").len(), 1);
    let service = bench.service("web").unwrap();
    assert_eq!(service["status"]["loadBalancer"], json!({}));
    assert_eq!(service["spec"]["ports"][0]["port"], 80);
}

/// CASE-LB-02
#[tokio::test(start_paused = true)]
async fn a_service_that_changes_its_mind_never_shows_the_address_given_up() {
    let bench = Bench::ready().await;
    assert_eq!(bench.address("web").as_deref(), Some("198.51.100.1"));
    bench.cloud.slow(Op::Delete, Duration::from_secs(40));
    bench.patch("web", &json!({"spec": {"type": "ClusterIP"}}));
    pass(5).await;
    assert_eq!(
        bench.cloud.count(Op::Delete, "web"),
        1,
        "the delete is under way"
    );
    bench.patch("web", &json!({"spec": {"type": "LoadBalancer"}}));
    always(
        "the old address stays away",
        Duration::from_secs(120),
        || async {
            match bench.address("web").as_deref() {
                Some("198.51.100.1") => Err("198.51.100.1 is shown".to_owned()),
                _ => Ok(()),
            }
        },
    )
    .await;
    assert_eq!(bench.address("web").as_deref(), Some("198.51.100.2"));
    assert_eq!(bench.cloud.balancers().len(), 1);
    assert!(bench.has_finalizer("web"));
    assert_eq!(bench.cloud.lock().overlaps, 0);
}

/// The same with a cloud that answers at once and asks for patience.
/// CASE-LB-02
#[tokio::test(start_paused = true)]
async fn a_delete_that_was_begun_is_finished_before_the_next_ensure() {
    let bench = Bench::ready().await;
    bench.cloud.fail_always(Op::Delete, "web", || {
        CloudError::transient("still deleting").retry_in(Duration::from_secs(10))
    });
    bench.patch("web", &json!({"spec": {"type": "ClusterIP"}}));
    pass(5).await;
    bench.patch("web", &json!({"spec": {"type": "LoadBalancer"}}));
    pass(35).await;
    assert_eq!(
        bench.cloud.count(Op::Ensure, "web"),
        1,
        "no ensure meanwhile"
    );
    assert_eq!(bench.address("web"), None);
    assert!(bench.has_finalizer("web"));
    bench.cloud.heal();
    bench
        .until("the new one is published", Duration::from_secs(11), |b| {
            b.address("web").as_deref() == Some("198.51.100.2")
        })
        .await;
    let order: Vec<_> = bench.cloud.calls().iter().map(|call| call.op).collect();
    assert_eq!(order.last(), Some(&Op::Ensure));
    assert_eq!(bench.told("DeletingLoadBalancer").len(), 1, "told once");
}

/// CASE-LB-02: no delete was sent yet, so the load balancer and its address are kept.
#[tokio::test(start_paused = true)]
async fn a_change_of_mind_before_the_delete_keeps_the_load_balancer() {
    let bench = Bench::ready().await;
    bench.cloud.slow(Op::Get, Duration::from_secs(10));
    bench.patch("web", &json!({"spec": {"type": "ClusterIP"}}));
    pass(5).await;
    assert_eq!(bench.cloud.count(Op::Get, "web"), 1);
    bench.patch("web", &json!({"spec": {"type": "LoadBalancer"}}));
    pass(60).await;
    assert_eq!(bench.cloud.count(Op::Delete, "web"), 0);
    assert_eq!(bench.address("web").as_deref(), Some("198.51.100.1"));
}

/// A Service that is being deleted does not show an address that is given up.
/// CASE-LB-02
#[tokio::test(start_paused = true)]
async fn the_status_is_cleared_before_a_slow_delete() {
    let bench = Bench::ready().await;
    bench.cloud.slow(Op::Delete, Duration::from_secs(40));
    bench.delete("web");
    bench
        .until("the delete is under way", SOON, |b| {
            b.cloud.count(Op::Delete, "web") == 1
        })
        .await;
    assert_eq!(bench.address("web"), None);
    assert!(bench.has_finalizer("web"));
}

/// REQ-SVC-05, REQ-SVC-33
#[tokio::test(start_paused = true)]
async fn a_failed_delete_keeps_the_finalizer_and_backs_off() {
    let bench = Bench::ready().await;
    bench
        .cloud
        .fail_always(Op::Delete, "web", || CloudError::transient("in use"));
    bench.delete("web");
    pass(300).await;
    assert_eq!(bench.finalizers("web"), [FINALIZER]);
    let told = bench.told("SyncLoadBalancerFailed");
    assert_eq!(
        told[0].message,
        "Error syncing load balancer: failed to delete load balancer: in use"
    );
    // 0, 5, 15, 35, 75, 155 s: the resync every 30 s must not add any.
    assert_eq!(bench.cloud.count(Op::Delete, "web"), 6);
    assert_eq!(told.len(), 6, "one Warning a try");
    bench.cloud.heal();
    pass(160).await;
    assert!(bench.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_failed_look_before_a_delete_keeps_everything() {
    let bench = Bench::ready().await;
    bench
        .cloud
        .fail_next(Op::Get, || CloudError::transient("throttled"));
    bench.delete("web");
    pass(2).await;
    assert_eq!(
        bench.told("SyncLoadBalancerFailed")[0].message,
        "Error syncing load balancer: failed to check if load balancer exists before cleanup: \
         throttled"
    );
    assert!(bench.has_finalizer("web"));
    assert_eq!(bench.cloud.count(Op::Delete, "web"), 0);
    pass(10).await;
    assert!(bench.service("web").is_none());
}

/// REQ-SVC-16
#[tokio::test(start_paused = true)]
async fn a_delete_that_asks_for_a_wait_gets_exactly_that_wait() {
    let bench = Bench::ready().await;
    for _ in 0..3 {
        bench.cloud.fail_next(Op::Delete, || {
            CloudError::transient("in progress").retry_in(Duration::from_secs(42))
        });
    }
    bench.delete("web");
    pass(300).await;
    let deletes: Vec<_> = bench
        .cloud
        .calls()
        .into_iter()
        .filter(|c| c.op == Op::Delete)
        .collect();
    let waits: Vec<_> = deletes
        .windows(2)
        .map(|w| (w[1].at - w[0].at).as_secs())
        .collect();
    assert_eq!(waits, [42, 42, 42]);
    assert_eq!(bench.told("SyncLoadBalancerFailed").len(), 3);
    assert!(bench.service("web").is_none());
}

/// REQ-SVC-16, REQ-SVC-41, TS10, TS11
#[tokio::test(start_paused = true)]
async fn a_service_that_vanished_without_finalizer_still_loses_its_load_balancer() {
    let bench = Bench::ready().await;
    bench
        .cloud
        .fail_next(Op::Delete, || CloudError::transient("in use"));
    bench.cloud.fail_next(Op::Delete, || {
        CloudError::transient("in progress").retry_in(Duration::from_secs(42))
    });
    // Both in one moment: the repair of the finalizer comes too late.
    bench.patch("web", &json!({"metadata": {"finalizers": null}}));
    bench.delete("web");
    assert!(bench.service("web").is_none());
    pass(4).await;
    let told = bench.told("DeleteLoadBalancerFailed");
    assert_eq!(told[0].message, "Error deleting load balancer: in use");
    assert_eq!(bench.cloud.balancers().len(), 1);
    pass(120).await;
    assert!(bench.cloud.balancers().is_empty());
    let calls = bench.cloud.calls();
    let deletes: Vec<_> = calls.iter().filter(|c| c.op == Op::Delete).collect();
    let waits: Vec<_> = deletes
        .windows(2)
        .map(|w| (w[1].at - w[0].at).as_secs())
        .collect();
    assert_eq!(waits, [5, 42]);
    assert_eq!(bench.told("DeletingLoadBalancer").len(), 1);
    assert_eq!(bench.told("DeletedLoadBalancer").len(), 1);
    assert!(bench.told("SyncLoadBalancerFailed").is_empty());
}

/// CASE-LB-08, REQ-SVC-29, REQ-SVC-30
#[tokio::test(start_paused = true)]
async fn node_changes_do_not_bring_a_deleted_load_balancer_back() {
    let bench = Bench::ready().await;
    bench.put(service("other"));
    bench.until_ready("other").await;
    bench.cloud.slow(Op::Delete, Duration::from_secs(20));
    bench.cloud.slow(Op::Update, Duration::from_secs(1));
    bench.delete("web");
    for n in 0..20 {
        bench.put_node(&format!("new-{n:02}"));
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    for n in 0..10 {
        bench.delete_node(&format!("new-{n:02}"));
    }
    pass(120).await;
    let calls = bench.cloud.calls();
    let of_web: Vec<_> = calls.iter().filter(|call| call.service == "web").collect();
    let first_delete = of_web
        .iter()
        .position(|call| call.op == Op::Delete)
        .unwrap();
    assert!(
        of_web[first_delete..]
            .iter()
            .all(|call| matches!(call.op, Op::Delete | Op::Get)),
        "{of_web:?}"
    );
    assert!(bench.service("web").is_none());
    assert_eq!(bench.cloud.balancers().len(), 1);
    assert_eq!(bench.targets("other").len(), 12);
    assert_eq!(bench.cloud.lock().overlaps, 0);
}
