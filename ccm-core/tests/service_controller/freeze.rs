//! A load balancer that stands follows the Nodes whatever else fails for its Service.

use std::time::Duration;

use ccm_core::cloud::{Class, CloudError};
use serde_json::json;

use crate::{
    bench::{Bench, SOON, pass, service},
    cloud::Op,
};

const HOUR: Duration = Duration::from_secs(3600);

/// A ready Service that then got an annotation which the cloud refuses for good.
async fn with_bad_annotation() -> Bench {
    let bench = Bench::ready().await;
    bench.cloud.fail_always(Op::Ensure, "web", || {
        CloudError::invalid("InvalidAnnotation: not a number")
    });
    bench.patch("web", &json!({"metadata": {"annotations": {"bad": "x"}}}));
    pass(20).await;
    assert_eq!(bench.cloud.count(Op::Update, "web"), 0, "no new backends");
    bench.cloud.forget_calls();
    bench
}

fn replace_nodes(bench: &Bench) {
    bench.put_node("c");
    bench.delete_node("a");
    bench.delete_node("b");
}

fn ensures(bench: &Bench) -> Vec<u64> {
    let calls = bench.cloud.calls();
    let ensures: Vec<_> = calls.iter().filter(|call| call.op == Op::Ensure).collect();
    let waits = ensures.windows(2).map(|w| (w[1].at - w[0].at).as_secs());
    waits.collect()
}

/// REQ-SVC-24, REQ-SVC-26, CASE-LB-16
#[tokio::test(start_paused = true)]
async fn a_refused_annotation_does_not_freeze_the_backends() {
    let bench = with_bad_annotation().await;
    replace_nodes(&bench);
    bench
        .until("only c is a backend", SOON, |b| b.targets("web") == ["c"])
        .await;
    pass(1).await;
    assert_eq!(
        bench.cloud.count(Op::Ensure, "web"),
        0,
        "a node change does not cut the back-off short"
    );
    let updates = bench.cloud.count(Op::Update, "web");
    assert!((1..=3).contains(&updates), "{updates}");
    pass(1000).await;
    assert_eq!(bench.cloud.count(Op::Update, "web"), updates, "once a set");
    assert_eq!(
        ensures(&bench),
        [40, 80, 160, 300, 300],
        "the failures are not forgotten"
    );
    assert_eq!(bench.cloud.lock().overlaps, 0);

    bench.cloud.heal();
    bench.cloud.forget_calls();
    bench.patch("web", &json!({"metadata": {"annotations": {"bad": null}}}));
    bench
        .until("a corrected Service is ensured at once", SOON, |b| {
            b.cloud.count(Op::Ensure, "web") == 1
        })
        .await;
    bench.put_node("d");
    bench
        .until("d is a backend", SOON, |b| b.targets("web") == ["c", "d"])
        .await;
}

/// REQ-SVC-24: the cloud is asked in the name of the Service that it accepted.
#[tokio::test(start_paused = true)]
async fn backends_are_given_in_the_name_of_the_accepted_service() {
    let bench = Bench::ready().await;
    bench.cloud.fail_always(Op::Ensure, "web", || {
        CloudError::invalid("port 81 is taken")
    });
    bench.patch(
        "web",
        &json!({"spec": {"ports": [{"name": "http", "port": 81}]}}),
    );
    pass(1).await;
    bench.put_node("c");
    bench
        .until("c is a backend", SOON, |b| b.targets("web").len() == 3)
        .await;
    let calls = bench.cloud.calls();
    let update = calls.iter().find(|call| call.op == Op::Update).unwrap();
    assert_eq!(update.ports, [80]);
}

/// REQ-SVC-24: the Node appears while the ensure that fails is under way.
#[tokio::test(start_paused = true)]
async fn a_node_that_appears_during_a_failing_ensure_is_not_lost() {
    let bench = Bench::ready().await;
    bench.cloud.slow(Op::Ensure, Duration::from_secs(10));
    bench
        .cloud
        .fail_always(Op::Ensure, "web", || CloudError::invalid("no"));
    bench.patch("web", &json!({"metadata": {"annotations": {"bad": "x"}}}));
    pass(5).await;
    bench.put_node("c");
    pass(6).await;
    assert_eq!(bench.targets("web"), ["a", "b", "c"]);
    assert_eq!(bench.cloud.count(Op::Update, "web"), 1);
    assert_eq!(bench.cloud.lock().overlaps, 0);
}

/// REQ-SVC-24, REQ-SVC-27: a host update that fails too is tried once more with each failed ensure.
#[tokio::test(start_paused = true)]
async fn a_host_update_refused_during_a_back_off_comes_after_the_next_failed_ensure() {
    let bench = with_bad_annotation().await;
    bench
        .cloud
        .fail_next(Op::Update, || CloudError::transient("boom"));
    bench.put_node("c");
    pass(5).await;
    assert_eq!(bench.targets("web"), ["a", "b"]);
    assert_eq!(bench.told("UpdateLoadBalancerFailed").len(), 1);
    assert_eq!(bench.cloud.calls().len(), 1);
    pass(40).await;
    assert_eq!(bench.targets("web"), ["a", "b", "c"]);
    let order: Vec<_> = bench.cloud.calls().iter().map(|call| call.op).collect();
    assert_eq!(order, [Op::Update, Op::Ensure, Op::Update]);
}

/// REQ-SVC-24: the periodic verification fails, the Nodes change before it is tried again.
#[tokio::test(start_paused = true)]
async fn a_failing_verification_does_not_hold_up_node_changes() {
    let mut bench = Bench::stopped();
    bench.settings.verify_period = HOUR;
    bench.put_node("a");
    bench.put_node("b");
    bench.put(service("web"));
    bench.start();
    bench.until_ready("web").await;
    bench.cloud.forget_calls();
    let ensuring = bench.told("EnsuringLoadBalancer").len();
    bench
        .cloud
        .fail_always(Op::Ensure, "web", || CloudError::transient("boom"));
    pass(5420).await;
    let tries = bench.cloud.count(Op::Ensure, "web");
    assert!(tries >= 2, "{tries}");
    replace_nodes(&bench);
    bench
        .until("only c is a backend", SOON, |b| b.targets("web") == ["c"])
        .await;
    bench.cloud.forget_calls();
    pass(1000).await;
    assert!((3..=4).contains(&bench.cloud.calls().len()));
    assert!(ensures(&bench).iter().all(|wait| *wait >= 160));
    assert_eq!(
        bench.told("EnsuringLoadBalancer").len(),
        ensuring,
        "a verification is quiet"
    );
    bench.cloud.heal();
    pass(310).await;
    bench.cloud.forget_calls();
    pass(3000).await;
    assert!(
        bench.cloud.calls().is_empty(),
        "then it rests until the next verification"
    );
}

/// REQ-SVC-16: a cloud that asks for patience is not asked for new backends either.
#[tokio::test(start_paused = true)]
async fn a_throttled_ensure_holds_host_updates_for_the_named_wait() {
    let bench = Bench::ready().await;
    bench.cloud.fail_next(Op::Ensure, || {
        let after = Some(Duration::from_secs(120));
        CloudError::new(Class::Throttled { after }, "slow down")
    });
    bench.cloud.forget_calls();
    bench.patch("web", &json!({"metadata": {"annotations": {"a": "b"}}}));
    pass(5).await;
    bench.put_node("c");
    pass(100).await;
    assert_eq!(bench.cloud.calls().len(), 1, "nothing in the window");
    pass(30).await;
    assert_eq!(bench.targets("web"), ["a", "b", "c"]);
}
