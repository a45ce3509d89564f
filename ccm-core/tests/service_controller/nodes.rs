//! Nodes come and go behind the load balancers.

use std::time::Duration;

use ccm_core::cloud::{Class, CloudError};
use serde_json::{Value, json};

use crate::{
    bench::{Bench, SOON, node, pass, service},
    cloud::Op,
};

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

fn label(key: &str, value: &str) -> Value {
    json!({"metadata": {"labels": {key: value}}})
}

fn taint(key: &str) -> Value {
    json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})
}

/// REQ-SVC-24, TH2
#[tokio::test(start_paused = true)]
async fn a_new_node_becomes_a_backend_and_a_deleted_one_leaves() {
    let bench = Bench::ready().await;
    bench.put_node("c");
    bench
        .until("c is a backend", SOON, |b| {
            b.targets("web") == ["a", "b", "c"]
        })
        .await;
    bench.delete_node("a");
    bench
        .until("a is none", SOON, |b| b.targets("web") == ["b", "c"])
        .await;
    assert_eq!(bench.cloud.count(Op::Ensure, "web"), 1);
    assert_eq!(bench.cloud.count(Op::Update, "web"), 2);
    assert_eq!(bench.events.reasons()[2..], ["UpdatedLoadBalancer"; 2]);
    assert_eq!(
        bench.metric("service_controller_loadbalancer_sync_total"),
        2.0
    );
    assert_eq!(bench.metric("service_controller_nodesync_error_total"), 0.0);
    assert!(bench.metric("service_controller_nodesync_latency_seconds") >= 2.0);
    let updates = bench.metric("service_controller_update_loadbalancer_host_latency_seconds");
    assert_eq!(updates, 2.0);
}

/// REQ-SVC-26: what the process does not keep of an object, the annotation of `kubectl apply`, makes
/// no difference between a watch event and the answer to a write.
#[tokio::test(start_paused = true)]
async fn a_service_applied_by_kubectl_is_ensured_once() {
    let bench = Bench::running();
    let mut applied = service("web");
    applied["metadata"]["annotations"] =
        json!({ "kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "blue" });
    bench.put(applied);
    bench.until_ready("web").await;
    bench.put_node("c");
    bench
        .until("c is a backend", SOON, |b| {
            b.targets("web") == ["a", "b", "c"]
        })
        .await;
    pass(10).await;
    assert_eq!(bench.cloud.count(Op::Ensure, "web"), 1);
    assert_eq!(bench.cloud.count(Op::Update, "web"), 1);
}

/// CASE-LB-15, REQ-SVC-22, REQ-SVC-23, REQ-SVC-25, REQ-SVC-26
#[tokio::test(start_paused = true)]
async fn readiness_and_the_autoscaler_taint_touch_no_load_balancer() {
    let mut bench = Bench::stopped();
    for n in 0..20 {
        bench.put_node(&format!("n{n:02}"));
    }
    for n in 0..3 {
        let mut new = service(&format!("web-{n}"));
        let policy = if n == 0 { "Local" } else { "Cluster" };
        new["spec"]["externalTrafficPolicy"] = json!(policy);
        bench.put(new);
    }
    bench.start();
    pass(10).await;
    let all = |b: &Bench, want: usize| (0..3).all(|n| b.targets(&format!("web-{n}")).len() == want);
    assert!(all(&bench, 20), "the traffic policy does not matter");
    bench.cloud.forget_calls();
    for ready in ["False", "True"] {
        for n in 0..15 {
            let conditions =
                json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
            bench.patch_node(&format!("n{n:02}"), &conditions);
        }
        pass(90).await;
    }
    for n in 0..4 {
        bench.patch_node(
            &format!("n{n:02}"),
            &taint("ToBeDeletedByClusterAutoscaler"),
        );
    }
    bench.patch_node("n10", &json!({"spec": {"unschedulable": true}}));
    bench.patch_node("n11", &label(EXCLUDE, "false"));
    pass(120).await;
    assert!(bench.cloud.calls().is_empty());

    bench.patch("web-1", &json!({"metadata": {"annotations": {"a": "b"}}}));
    pass(5).await;
    assert_eq!(
        bench.targets("web-1").len(),
        16,
        "tainted Nodes are left out by the way"
    );
    assert_eq!(bench.targets("web-2").len(), 20);
    for (n, value) in [(15, ""), (16, "true"), (17, "garbage")] {
        bench.patch_node(&format!("n{n:02}"), &label(EXCLUDE, value));
    }
    bench
        .until("excluded Nodes leave", SOON, |b| all(b, 13))
        .await;
    bench.delete_node("n18");
    bench
        .until("a deleted Node leaves", SOON, |b| all(b, 12))
        .await;
    assert!(
        bench.targets("web-0").contains(&"n11".to_owned()),
        "false does not exclude"
    );
}

/// CASE-LB-16, TH4
#[tokio::test(start_paused = true)]
async fn a_provider_id_that_comes_late_reaches_all_load_balancers() {
    let bench = Bench::running();
    for n in 0..5 {
        let mut new = service(&format!("web-{n}"));
        if n < 3 {
            new["spec"]["externalTrafficPolicy"] = json!("Local");
        }
        bench.put(new);
    }
    pass(10).await;
    for old in ["a", "b"] {
        let new = format!("{old}-new");
        let mut fresh = node(&new);
        fresh["spec"] = json!({});
        bench.put(fresh);
        pass(20).await;
        bench.patch_node(
            &new,
            &json!({"spec": {"providerID": format!("fake:///{new}")}}),
        );
        bench
            .until("the id is known everywhere", SOON, |b| {
                let id = format!("fake:///{new}");
                let all = b.cloud.balancers();
                all.iter().all(|lb| lb.nodes.get(&new) == Some(&id))
            })
            .await;
        bench.delete_node(old);
        pass(5).await;
    }
    for balancer in bench.cloud.balancers() {
        let ids: Vec<_> = balancer.nodes.values().cloned().collect();
        assert_eq!(ids, ["fake:///a-new", "fake:///b-new"]);
    }
    assert!(
        bench
            .cloud
            .calls()
            .iter()
            .all(|call| !call.nodes.is_empty())
    );
}

/// CASE-LB-28
#[tokio::test(start_paused = true)]
async fn a_label_change_matters_where_labels_choose_the_backends() {
    let bench = Bench::ready().await;
    bench.patch_node("a", &label("pool", "edge"));
    pass(120).await;
    assert_eq!(
        bench.cloud.count(Op::Update, "web"),
        0,
        "labels do not matter here"
    );
    bench.cloud.lock().labels_matter = true;
    bench.put(service("edge"));
    bench.until_ready("edge").await;
    bench.patch_node("b", &label("pool", "edge"));
    bench
        .until("the relabelled Node is compared", SOON, |b| {
            b.cloud.count(Op::Update, "edge") == 1
        })
        .await;
    pass(60).await;
    assert_eq!(bench.cloud.count(Op::Update, "edge"), 1);
    assert_eq!(
        bench.cloud.count(Op::Update, "web"),
        0,
        "its labels do not matter"
    );
}

/// REQ-SVC-20
#[tokio::test(start_paused = true)]
async fn without_nodes_there_is_a_warning_and_a_load_balancer() {
    let mut bench = Bench::stopped();
    bench.start();
    bench.put(service("web"));
    bench.until_ready("web").await;
    assert_eq!(
        bench.events.reasons(),
        [
            "EnsuringLoadBalancer",
            "UnAvailableLoadBalancer",
            "EnsuredLoadBalancer"
        ]
    );
    bench.put_node("a");
    bench
        .until("a is a backend", SOON, |b| b.targets("web") == ["a"])
        .await;
    bench.delete_node("a");
    bench
        .until("no backend", SOON, |b| b.targets("web").is_empty())
        .await;
    pass(1).await;
    assert_eq!(
        bench.events.reasons()[3..],
        ["UpdatedLoadBalancer", "UnAvailableLoadBalancer"]
    );
}

/// REQ-SVC-27, REQ-SVC-34, TH3
#[tokio::test(start_paused = true)]
async fn a_failed_update_is_told_and_followed_by_an_ensure_at_once() {
    let bench = Bench::ready().await;
    bench
        .cloud
        .fail_next(Op::Update, || CloudError::transient("boom"));
    bench.cloud.forget_calls();
    bench.put_node("c");
    bench
        .until("c is a backend", SOON, |b| b.targets("web").len() == 3)
        .await;
    pass(120).await;
    let order: Vec<_> = bench.cloud.calls().iter().map(|call| call.op).collect();
    assert_eq!(order, [Op::Update, Op::Get, Op::Ensure]);
    assert_eq!(
        bench.told("UpdateLoadBalancerFailed")[0].message,
        "Error updating load balancer with new hosts [a b c] [node names limited, total number of \
         nodes: 3], error: boom"
    );
    assert_eq!(bench.metric("service_controller_nodesync_error_total"), 1.0);
    assert!(bench.told("SyncLoadBalancerFailed").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_update_waits_as_long_as_the_cloud_asks() {
    let bench = Bench::ready().await;
    bench.cloud.fail_next(Op::Update, || {
        let after = Some(Duration::from_secs(120));
        CloudError::new(Class::Throttled { after }, "slow down")
    });
    bench.cloud.forget_calls();
    bench.put_node("c");
    pass(10).await;
    bench.put_node("d");
    pass(100).await;
    assert_eq!(
        bench.cloud.calls().len(),
        1,
        "nothing in the window, whatever happens"
    );
    pass(30).await;
    assert_eq!(bench.targets("web").len(), 4);
}

/// REQ-SVC-28: the load balancer that was deleted behind our back is made again, without a
/// Warning.
#[tokio::test(start_paused = true)]
async fn an_update_of_a_missing_load_balancer_is_no_failure() {
    for class in [Class::NotFound, Class::Transient] {
        let bench = Bench::ready().await;
        bench.cloud.lock().balancers.clear();
        bench
            .cloud
            .fail_next(Op::Update, move || CloudError::new(class, "missing"));
        bench.put_node("c");
        bench
            .until("made again", SOON, |b| b.targets("web").len() == 3)
            .await;
        assert!(bench.told("UpdateLoadBalancerFailed").is_empty());
        assert_eq!(bench.metric("service_controller_nodesync_error_total"), 0.0);
    }
}

/// REQ-SVC-30, TS13: the Node appears while the Service is being ensured with the older set.
#[tokio::test(start_paused = true)]
async fn a_node_that_appears_during_an_ensure_is_not_lost_and_not_sent_twice() {
    let bench = Bench::running();
    bench.cloud.slow(Op::Ensure, Duration::from_secs(10));
    bench.put(service("web"));
    pass(5).await;
    bench.put_node("c");
    pass(60).await;
    let seen: Vec<_> = bench
        .cloud
        .calls()
        .into_iter()
        .map(|c| (c.op, c.nodes.len()))
        .collect();
    assert_eq!(seen, [(Op::Ensure, 2), (Op::Update, 3)]);
    assert_eq!(bench.cloud.lock().overlaps, 0);

    bench.put(service("late"));
    pass(60).await;
    assert_eq!(
        bench.cloud.count(Op::Update, "late"),
        0,
        "it was ensured with all three"
    );
}

/// REQ-SVC-29
#[tokio::test(start_paused = true)]
async fn a_burst_of_nodes_costs_few_updates_and_none_overlap() {
    let bench = Bench::ready().await;
    bench.cloud.slow(Op::Update, Duration::from_secs(2));
    for n in 0..50 {
        bench.put_node(&format!("new-{n:02}"));
    }
    pass(60).await;
    assert_eq!(bench.targets("web").len(), 52);
    let updates = bench.cloud.count(Op::Update, "web");
    assert!(updates <= 3, "{updates}");
    assert_eq!(bench.cloud.lock().overlaps, 0);
}

/// REQ-SVC-24, REQ-SVC-29: a cluster that grows faster than the cloud updates is no failure.
#[tokio::test(start_paused = true)]
async fn nodes_that_join_without_end_do_not_hold_a_service_in_one_run() {
    let bench = Bench::ready().await;
    bench.cloud.slow(Op::Update, Duration::from_secs(2));
    for n in 0..60 {
        bench.put_node(&format!("new-{n:02}"));
        pass(1).await;
    }
    pass(10).await;
    assert_eq!(bench.targets("web").len(), 62);
    assert!(bench.told("SyncLoadBalancerFailed").is_empty());
    let updates = bench.cloud.count(Op::Update, "web");
    assert!(updates <= 35, "{updates}");
    assert_eq!(bench.cloud.lock().overlaps, 0);
}

/// CASE-THR-01: one update a Service, and only for what changed.
#[tokio::test(start_paused = true)]
async fn one_node_costs_one_call_a_service() {
    let bench = Bench::running();
    for n in 0..100 {
        bench.put(service(&format!("web-{n}")));
    }
    pass(30).await;
    bench.cloud.forget_calls();
    let mark = bench.sim.mark();
    bench.put_node("c");
    pass(30).await;
    let calls = bench.cloud.calls();
    assert_eq!(calls.len(), 100);
    assert!(calls.iter().all(|call| call.op == Op::Update));
    assert_eq!(bench.sim.count_writes_since(&mark), 0);
}
