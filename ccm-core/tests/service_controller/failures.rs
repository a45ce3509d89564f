//! What fails is told and tried again, at the right pace.

use std::time::Duration;

use ccm_core::{
    cloud::{Class, CloudError},
    kube::EventType,
};
use ccm_kubesim::{Fault, Target, Verb};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    bench::{Bench, SOON, pass, service},
    cloud::Op,
};

fn status_patch() -> Target {
    Target::new(Verb::Patch, "services").subresource("status")
}

/// CASE-LB-05, REQ-SVC-17
#[tokio::test(start_paused = true)]
async fn an_impossible_request_is_tried_at_the_pace_of_the_back_off_until_it_is_deleted() {
    let bench = Bench::running();
    bench.cloud.fail_always(Op::Ensure, "web", || {
        CloudError::invalid("InvalidAddress: 203.0.113.250 is not yours")
    });
    bench.put(service("web"));
    let start = Instant::now();
    // Node changes and resyncs must not add tries.
    for n in 0..30 {
        bench.put_node(&format!("new-{n}"));
        pass(60).await;
    }
    let tries: Vec<_> = bench
        .cloud
        .calls()
        .into_iter()
        .map(|call| call.at - start)
        .collect();
    let waits: Vec<_> = tries.windows(2).map(|w| (w[1] - w[0]).as_secs()).collect();
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300, 300]);
    assert!(tries.len() <= 12);
    let warnings = bench.told("SyncLoadBalancerFailed");
    assert_eq!(warnings.len(), tries.len(), "one Warning a try");
    for warning in warnings {
        assert_eq!(warning.type_, EventType::Warning);
        assert_eq!(
            warning.message,
            "Error syncing load balancer: failed to ensure load balancer: InvalidAddress: \
             203.0.113.250 is not yours"
        );
    }
    bench.delete("web");
    bench
        .until("gone at once", SOON, |b| b.service("web").is_none())
        .await;
    bench.cloud.forget_calls();
    let events = bench.events.all().len();
    pass(1200).await;
    assert!(bench.cloud.calls().is_empty());
    assert_eq!(bench.events.all().len(), events);
}

/// CASE-LB-04
#[tokio::test(start_paused = true)]
async fn a_corrected_service_is_tried_at_once_with_what_it_says_now() {
    let bench = Bench::running();
    bench.cloud.fail_always(Op::Ensure, "web", || {
        CloudError::new(Class::Quota, "RulesPerSecurityGroupLimitExceeded: 60 rules")
    });
    bench.put(service("web"));
    pass(20).await;
    assert_eq!(bench.cloud.count(Op::Ensure, "web"), 3);
    let warnings = bench.told("SyncLoadBalancerFailed");
    assert!(
        warnings
            .iter()
            .all(|w| w.message.contains("RulesPerSecurityGroupLimitExceeded"))
    );
    bench.cloud.heal();
    bench.patch(
        "web",
        &json!({"spec": {"ports": [{"name": "http", "port": 81}]}}),
    );
    bench
        .until("ready at once", SOON, |b| b.address("web").is_some())
        .await;
    let calls = bench.cloud.calls();
    let seen: Vec<_> = calls.iter().map(|call| call.ports.clone()).collect();
    assert_eq!(seen, [vec![80], vec![80], vec![80], vec![81]]);
}

/// REQ-SVC-16, TS12
#[tokio::test(start_paused = true)]
async fn an_ensure_that_asks_for_a_wait_gets_exactly_that_wait() {
    let bench = Bench::running();
    bench
        .cloud
        .fail_next(Op::Ensure, || CloudError::transient("reset"));
    bench.cloud.fail_next(Op::Ensure, || {
        CloudError::transient("provisioning")
            .retry_in(Duration::from_secs(42))
            .context("waiting for the address")
    });
    bench.cloud.fail_next(Op::Ensure, || {
        let after = Some(Duration::from_secs(7));
        CloudError::new(Class::Throttled { after }, "slow down")
    });
    bench
        .cloud
        .fail_next(Op::Ensure, || CloudError::transient("reset"));
    bench.put(service("web"));
    pass(120).await;
    let calls = bench.cloud.calls();
    let waits: Vec<_> = calls
        .windows(2)
        .map(|w| (w[1].at - w[0].at).as_secs())
        .collect();
    assert_eq!(
        waits,
        [5, 42, 7, 10],
        "the count of failures stood still meanwhile"
    );
    assert_eq!(
        bench.told("SyncLoadBalancerFailed")[1].message,
        "Error syncing load balancer: failed to ensure load balancer: waiting for the address: \
         provisioning"
    );
    assert_eq!(bench.told("SyncLoadBalancerFailed").len(), 4);
}

/// REQ-SVC-02
#[tokio::test(start_paused = true)]
async fn without_a_finalizer_the_cloud_is_not_called() {
    let bench = Bench::running();
    bench
        .sim
        .faults()
        .fail_next(2, status_patch(), Fault::Forbidden);
    bench.put(service("web"));
    pass(10).await;
    assert!(bench.cloud.calls().is_empty());
    let told = bench.told("SyncLoadBalancerFailed");
    assert_eq!(told.len(), 2);
    assert!(
        told[0].message.starts_with(
            "Error syncing load balancer: failed to add load balancer cleanup finalizer: "
        ),
        "{}",
        told[0].message
    );
    pass(10).await;
    assert!(bench.cloud.balancer("web").is_some());
}

/// REQ-SVC-15, TS7
#[tokio::test(start_paused = true)]
async fn a_conflict_on_the_status_is_an_error_and_ensured_again() {
    let bench = Bench::running();
    let mut new = service("web");
    new["metadata"]["finalizers"] = json!([crate::bench::FINALIZER]);
    bench.put(new);
    bench
        .sim
        .faults()
        .fail_next(1, status_patch(), Fault::Conflict);
    pass(2).await;
    let told = bench.told("SyncLoadBalancerFailed");
    assert_eq!(told.len(), 1);
    assert!(
        told[0]
            .message
            .starts_with("Error syncing load balancer: failed to update load balancer status: "),
        "{}",
        told[0].message
    );
    assert_eq!(bench.address("web"), None);
    pass(10).await;
    assert_eq!(bench.cloud.count(Op::Ensure, "web"), 2);
    assert_eq!(bench.address("web").as_deref(), Some("198.51.100.1"));
}

/// REQ-SVC-15, TS8
#[tokio::test(start_paused = true)]
async fn a_service_that_vanishes_before_its_status_is_written_is_no_error() {
    let bench = Bench::running();
    bench.cloud.slow(Op::Ensure, Duration::from_secs(10));
    bench.put(service("web"));
    bench
        .until("the ensure is under way", SOON, |b| {
            b.cloud.count(Op::Ensure, "web") == 1
        })
        .await;
    bench
        .sim
        .faults()
        .delay_watches(None, Duration::from_secs(30));
    bench.patch("web", &json!({"metadata": {"finalizers": null}}));
    bench.delete("web");
    pass(20).await;
    let patches = bench.sim.requests();
    let last = patches
        .entries
        .iter()
        .rfind(|e| e.key.verb == Verb::Patch)
        .unwrap();
    assert_eq!(last.status, 404, "the status was written to nobody");
    assert!(bench.told("SyncLoadBalancerFailed").is_empty());
    pass(60).await;
    assert!(
        bench.cloud.balancers().is_empty(),
        "and it is deleted once seen"
    );
}

/// REQ-SVC-05
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_cannot_be_removed_is_tried_again() {
    let bench = Bench::ready().await;
    // The first write clears the status.
    bench
        .sim
        .faults()
        .fail_next(1, status_patch(), Fault::Delay(Duration::ZERO));
    bench
        .sim
        .faults()
        .fail_next(1, status_patch(), Fault::Internal);
    bench.delete("web");
    pass(2).await;
    let told = bench.told("SyncLoadBalancerFailed");
    assert_eq!(told.len(), 1);
    assert!(
        told[0].message.starts_with(
            "Error syncing load balancer: failed to remove load balancer cleanup finalizer: "
        ),
        "{}",
        told[0].message
    );
    pass(10).await;
    assert!(bench.service("web").is_none());
    assert_eq!(bench.cloud.count(Op::Delete, "web"), 1);
}

/// A write meant for a Service that was replaced under its name must not hit the new one.
#[tokio::test(start_paused = true)]
async fn a_write_for_the_old_service_is_refused_by_the_new_one() {
    let bench = Bench::running();
    bench.cloud.slow(Op::Ensure, Duration::from_secs(10));
    bench.put(service("web"));
    bench
        .until("the ensure is under way", SOON, |b| {
            b.cloud.count(Op::Ensure, "web") == 1
        })
        .await;
    bench
        .sim
        .faults()
        .delay_watches(None, Duration::from_secs(30));
    bench.patch("web", &json!({"metadata": {"finalizers": null}}));
    bench.delete("web");
    bench.put(service("web"));
    pass(20).await;
    assert_eq!(
        bench.address("web"),
        None,
        "the old address is not the new one's"
    );
    pass(90).await;
    assert_eq!(bench.address("web").as_deref(), Some("198.51.100.2"));
    assert_eq!(bench.cloud.balancers().len(), 1);
}

/// A Service that changes faster than it can be ensured does not keep a worker, and its user is told.
/// REQ-SVC-32
#[tokio::test(start_paused = true)]
async fn a_service_that_never_rests_is_backed_off_with_a_warning() {
    let bench = Bench::running();
    bench.cloud.slow(Op::Ensure, Duration::from_secs(1));
    bench.put(service("web"));
    for n in 0..40 {
        bench.patch(
            "web",
            &json!({"metadata": {"annotations": {"n": n.to_string()}}}),
        );
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let told = bench.told("SyncLoadBalancerFailed");
    assert_eq!(
        told.first().map(|event| event.message.as_str()),
        Some("Error syncing load balancer: the Service was not at rest after 8 steps")
    );
    pass(30).await;
    assert_eq!(bench.told("SyncLoadBalancerFailed").len(), told.len());
    assert!(bench.address("web").is_some());
}

/// REQ-SVC-02: an API server (or an admission webhook) that answers well but drops the finalizer.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_not_kept_is_an_error_and_the_cloud_is_not_called() {
    let mut bench = Bench::stopped();
    bench.put_node("a");
    bench.put(service("web"));
    let sim = bench.sim.service();
    let forgetful = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
        if request.method() == http::Method::PATCH {
            *request.method_mut() = http::Method::GET;
        }
        tower::ServiceExt::oneshot(sim.clone(), request)
    });
    bench.start_with(kube::Client::new(forgetful, "default"));
    pass(8).await;
    let told = bench.told("SyncLoadBalancerFailed");
    assert_eq!(told.len(), 2);
    assert_eq!(
        told[0].message,
        "Error syncing load balancer: failed to add load balancer cleanup finalizer: the API \
         server did not keep it"
    );
    assert!(bench.cloud.calls().is_empty());
}
