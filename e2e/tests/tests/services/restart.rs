//! The manager ends and starts again, at rest and in the middle of its work.

use std::time::Duration;

use ccm_cloudsim::Fault;
use ccm_e2e_tests::service;
use kube::{ResourceExt, api::DeleteParams};

use crate::{
    setup::{
        called, finalized, manager_writes, published, quiet, ready, requests, told_times, warnings,
    },
    view::{View, same},
};

/// REQ-SVC-43, REQ-SVC-14
#[tokio::test]
async fn a_restart_writes_nothing() {
    let mut bench = ready(3).await;
    let names: Vec<String> = (0..4).map(|n| format!("web-{n}")).collect();
    for (n, name) in (0..).zip(&names) {
        published(&bench, &service(name, &[(80, 30080 + n), (443, 30180 + n)])).await;
    }
    bench.stop_manager().await.unwrap();
    let (mark, writes) = (bench.cloud.sim.calls().mark(), manager_writes(&bench).await);
    bench.start_manager(&[]).await.unwrap();
    for name in &names {
        told_times(&bench, name, "EnsuredLoadBalancer", 2).await;
    }
    quiet(&bench, Duration::from_secs(2)).await;
    assert_eq!(bench.cloud.sim.calls().writes_since(mark), []);
    assert_eq!(manager_writes(&bench).await, writes);
    for name in &names {
        assert_eq!(warnings(&bench, name).await, []);
    }
}

/// A call that takes effect and is never answered: whoever sent it can only die.
const UNANSWERED: Fault = Fault::CommitThenTimeout {
    gateway_timeout_after_ms: Some(600_000),
};

/// CASE-LEAD-01 in the form of one replica: killed right after the call took effect, started again.
async fn killed_while_creating(action: &str, nth: u64) {
    let mut bench = ready(2).await;
    bench
        .cloud
        .sim
        .faults()
        .nth(action, nth, UNANSWERED)
        .unwrap();
    let web = service("web", &[(80, 30080), (443, 30443)]);
    let web = bench.create_service(&web).await.unwrap();
    called(&bench, action, usize::try_from(nth).unwrap()).await;
    bench.kill_manager().await.unwrap();
    bench.start_manager(&[]).await.unwrap();
    bench.hostname("web").await;

    let view = View::now(&bench, &web);
    assert_eq!(view.forwards(), [(80, 30080), (443, 30443)].into());
    for port in [80, 443] {
        assert_eq!(
            view.targets(port),
            bench.machines().iter().cloned().collect()
        );
    }
    let state = bench.cloud.sim.aws().snapshot();
    let made = (
        state.load_balancers.len(),
        state.listeners.len(),
        state.target_groups.len(),
    );
    assert_eq!(made, (1, 2, 2));
    same(&crate::view::rules(&bench).len(), &3).unwrap();
    assert_eq!(warnings(&bench, "web").await, []);
    quiet(&bench, Duration::from_secs(1)).await;
    bench.delete_service("web").await.unwrap();
    bench.nothing_left().unwrap();
}

/// CASE-LEAD-01 for the way back.
async fn killed_while_deleting(action: &str, nth: u64) {
    let mut bench = ready(2).await;
    published(&bench, &service("web", &[(80, 30080), (443, 30443)])).await;
    bench
        .cloud
        .sim
        .faults()
        .nth(action, nth, UNANSWERED)
        .unwrap();
    bench
        .services()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    called(&bench, action, usize::try_from(nth).unwrap()).await;
    bench.kill_manager().await.unwrap();
    assert!(finalized(&bench.services().get("web").await.unwrap()));
    bench.start_manager(&[]).await.unwrap();
    bench.service_gone("web").await;
    bench.nothing_left().unwrap();
    assert_eq!(warnings(&bench, "web").await, []);
}

/// CASE-LEAD-01
#[tokio::test]
async fn killed_after_the_load_balancer_was_made() {
    killed_while_creating("CreateLoadBalancer", 1).await;
}

/// CASE-LEAD-01
#[tokio::test]
async fn killed_after_the_first_target_group_was_made() {
    killed_while_creating("CreateTargetGroup", 1).await;
}

/// CASE-LEAD-01
#[tokio::test]
async fn killed_after_the_second_target_group_was_made() {
    killed_while_creating("CreateTargetGroup", 2).await;
}

/// CASE-LEAD-01
#[tokio::test]
async fn killed_after_targets_were_registered() {
    killed_while_creating("RegisterTargets", 1).await;
}

/// CASE-LEAD-01
#[tokio::test]
async fn killed_after_a_rule_was_written() {
    killed_while_creating("AuthorizeSecurityGroupIngress", 1).await;
}

/// CASE-LEAD-01
#[tokio::test]
async fn killed_after_the_first_listener_was_made() {
    killed_while_creating("CreateListener", 1).await;
}

/// CASE-LEAD-01
#[tokio::test]
async fn killed_after_the_last_listener_was_made() {
    killed_while_creating("CreateListener", 2).await;
}

/// CASE-LEAD-01, REQ-AWS-DEL-4
#[tokio::test]
async fn killed_after_the_load_balancer_was_deleted() {
    killed_while_deleting("DeleteLoadBalancer", 1).await;
}

/// CASE-LEAD-01, REQ-AWS-DEL-4
#[tokio::test]
async fn killed_after_the_first_target_group_was_deleted() {
    killed_while_deleting("DeleteTargetGroup", 1).await;
}

/// CASE-LEAD-01, REQ-AWS-DEL-4
#[tokio::test]
async fn killed_after_the_rules_were_removed() {
    killed_while_deleting("RevokeSecurityGroupIngress", 1).await;
}

/// CASE-LEAD-01 at the finalizer: it is stored, nothing else happened.
#[tokio::test]
async fn killed_after_the_finalizer_was_stored() {
    let mut bench = ready(1).await;
    // The first read of load balancers comes after the finalizer.
    let hang = Fault::Hang { millis: 600_000 };
    bench.cloud.sim.faults().next("elbv2:*", 1, hang).unwrap();
    let before = requests(&bench, "patch", "services/status").await;
    let web = bench
        .create_service(&service("web", &[(80, 30080)]))
        .await
        .unwrap();
    called(&bench, "DescribeLoadBalancers", 1).await;
    bench.kill_manager().await.unwrap();
    assert_eq!(
        requests(&bench, "patch", "services/status").await,
        before + 1
    );
    assert!(finalized(&bench.services().get("web").await.unwrap()));
    let calls = bench.cloud.sim.calls();
    let writes = calls.writes_since(calls.start());
    assert_eq!(writes, []);
    bench.start_manager(&[]).await.unwrap();
    bench.hostname("web").await;
    assert_eq!(View::now(&bench, &web).targets(80).len(), 1);
    bench.delete_service(&web.name_any()).await.unwrap();
    bench.nothing_left().unwrap();
}
