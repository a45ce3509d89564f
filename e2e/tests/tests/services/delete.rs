//! A Service goes, or asks for no load balancer any more.

use std::time::Duration;

use ccm_cloudsim::Fault;
use ccm_e2e_tests::{Bench, service};
use ccm_testkit::{always, eventually};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::{
    setup::{
        LIMIT, annotation, called, elbv2, finalized, hostname, join, leave, no_hostname, published,
        quiet, ready, told, told_times, warnings, with_spec,
    },
    view::{View, lb_name, rules, same, targets_are},
};

/// REQ-SVC-04, REQ-AWS-DEL-2, REQ-AWS-SG-22: check U2 of the fault cases. The neighbour is not
/// touched.
#[tokio::test]
async fn a_deleted_service_leaves_nothing() {
    let bench = ready(2).await;
    let web = published(&bench, &service("web", &[(80, 30080), (443, 30443)])).await;
    let other = published(&bench, &service("other", &[(80, 30090)])).await;
    let before = View::now(&bench, &other);
    bench.delete_service("web").await.unwrap();
    assert!(View::of(&bench.cloud.sim.aws().snapshot(), &lb_name(&web)).is_err());
    assert_eq!(bench.cloud.sim.aws().snapshot().target_groups.len(), 1);
    let after = View::now(&bench, &other);
    assert_eq!((after.lb, after.ports), (before.lb, before.ports));
    let name = lb_name(&other);
    let want = [
        format!("tcp 30090..30090 0.0.0.0/0 kubernetes.io/rule/nlb/client={name}"),
        "icmp 3..4 0.0.0.0/0 kubernetes.io/rule/nlb/mtu".to_owned(),
    ];
    assert_eq!(rules(&bench), want.into());
    bench.delete_service("other").await.unwrap();
    bench.nothing_left().unwrap();
    for name in ["web", "other"] {
        assert_eq!(
            bench.event(name, "DeletingLoadBalancer").await,
            "Deleting load balancer"
        );
        assert_eq!(
            bench.event(name, "DeletedLoadBalancer").await,
            "Deleted load balancer"
        );
        assert_eq!(warnings(&bench, name).await, []);
    }
    quiet(&bench, Duration::from_secs(2)).await;
}

/// REQ-SVC-05, REQ-SVC-33: a Service is not let go while its load balancer cannot be deleted.
#[tokio::test]
async fn the_finalizer_stays_until_the_load_balancer_is_gone() {
    let bench = ready(1).await;
    published(&bench, &service("web", &[(80, 30080)])).await;
    let denied = Fault::error(403, "AccessDenied", "no");
    bench
        .cloud
        .sim
        .faults()
        .always("DeleteTargetGroup", denied)
        .unwrap();
    bench
        .services()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    let told = bench.event("web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("AccessDenied"), "{told}");
    assert!(finalized(&bench.services().get("web").await.unwrap()));
    bench.cloud.sim.faults().clear_all();
    bench.service_gone("web").await;
    bench.nothing_left().unwrap();
}

/// CASE-LB-01, REQ-SVC-06, REQ-SVC-07
#[tokio::test]
async fn a_type_that_changed_while_the_manager_was_down_is_seen_at_start() {
    let mut bench = ready(1).await;
    published(&bench, &service("web", &[(80, 30080)])).await;
    bench.stop_manager().await.unwrap();
    bench
        .patch_service("web", json!({ "spec": { "type": "ClusterIP" } }))
        .await
        .unwrap();
    bench.start_manager(&[]).await.unwrap();
    bench.event("web", "DeletedLoadBalancer").await;
    bench.nothing_left().unwrap();
    let web = bench.services().get("web").await.unwrap();
    assert!(!finalized(&web));
    assert_eq!(hostname(&web), None);
    assert_eq!(web.spec.unwrap().ports.unwrap()[0].port, 80);
    assert_eq!(told(&bench, "web", "DeletingLoadBalancer").await, 1);
    assert_eq!(told(&bench, "web", "DeletedLoadBalancer").await, 1);
    assert_eq!(warnings(&bench, "web").await, []);
}

/// CASE-LB-02: the address of a load balancer whose delete was sent is not shown again.
#[tokio::test]
async fn a_service_that_changes_its_mind_never_shows_a_stale_address() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let old = hostname(&web).unwrap();
    bench
        .cloud
        .sim
        .latency()
        .set("DeleteLoadBalancer", Duration::from_secs(3));
    bench
        .patch_service("web", json!({ "spec": { "type": "ClusterIP" } }))
        .await
        .unwrap();
    called(&bench, "DeleteLoadBalancer", 1).await;
    let back = json!({ "spec": { "type": "LoadBalancer" } });
    bench.patch_service("web", back).await.unwrap();
    let new = eventually("there is a new address", LIMIT, || async {
        let web = bench
            .services()
            .get("web")
            .await
            .map_err(|e| e.to_string())?;
        let shown = hostname(&web);
        assert_ne!(shown.as_ref(), Some(&old), "the stale address is shown");
        shown.ok_or_else(|| bench.log())
    })
    .await;
    let view = View::now(&bench, &web);
    assert_eq!(view.lb.dns_name, new);
    assert_eq!(bench.cloud.sim.aws().snapshot().load_balancers.len(), 1);
    targets_are(&bench, &web, bench.machines()).await;
    bench.delete_service("web").await.unwrap();
    bench.nothing_left().unwrap();
}

/// CASE-LB-03: two failures at a quota, then the Service goes.
#[tokio::test]
async fn a_service_that_never_got_its_load_balancer_leaves_nothing() {
    let bench = ready(1).await;
    bench
        .cloud
        .sim
        .aws()
        .set_quotas(|quotas| quotas.load_balancers = 0);
    bench
        .create_service(&service("quote", &[(7007, 30077)]))
        .await
        .unwrap();
    told_times(&bench, "quote", "SyncLoadBalancerFailed", 2).await;
    let warned = warnings(&bench, "quote").await;
    assert!(warned[0].1.contains("TooManyLoadBalancers"), "{warned:?}");
    assert_eq!(told(&bench, "quote", "SyncLoadBalancerFailed").await, 2);
    let calls = bench.cloud.sim.calls();
    let counts = calls.counts_since(calls.start());
    assert_eq!(counts["CreateLoadBalancer"], 2, "{counts:?}");
    bench.delete_service("quote").await.unwrap();
    bench.nothing_left().unwrap();
    bench.event("quote", "DeletedLoadBalancer").await;
}

/// CASE-LB-03 with the quota of target groups: the load balancer is there, half of it is missing.
#[tokio::test]
async fn a_half_made_load_balancer_goes_with_its_service() {
    let bench = ready(1).await;
    bench
        .cloud
        .sim
        .aws()
        .set_quotas(|quotas| quotas.target_groups = 1);
    let two = service("two", &[(80, 30080), (443, 30443)]);
    bench.create_service(&two).await.unwrap();
    let told = bench.event("two", "SyncLoadBalancerFailed").await;
    assert!(told.contains("TooManyTargetGroups"), "{told}");
    assert_eq!(bench.cloud.sim.aws().snapshot().load_balancers.len(), 1);
    bench.delete_service("two").await.unwrap();
    bench.nothing_left().unwrap();
}

/// CASE-LB-07, REQ-AWS-DEL-1, REQ-AWS-DEL-13: somebody was faster.
#[tokio::test]
async fn a_load_balancer_that_is_gone_already_does_not_hold_the_service() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080), (443, 30443)])).await;
    let view = View::now(&bench, &web);
    elbv2(
        &bench,
        "DeleteLoadBalancer",
        &[("LoadBalancerArn", &view.lb.arn)],
    )
    .await;
    let half = &view.group(80).arn;
    elbv2(&bench, "DeleteTargetGroup", &[("TargetGroupArn", half)]).await;
    bench.delete_service("web").await.unwrap();
    bench.nothing_left().unwrap();
    assert_eq!(warnings(&bench, "web").await, []);
}

/// CASE-LB-07: it vanishes between the look and the delete.
#[tokio::test]
async fn a_load_balancer_that_vanishes_during_the_delete_is_no_failure() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let arn = View::now(&bench, &web).lb.arn;
    bench
        .cloud
        .sim
        .latency()
        .set("DeleteLoadBalancer", Duration::from_millis(500));
    bench
        .services()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    called(&bench, "DeleteLoadBalancer", 1).await;
    // The latency of a call in flight is fixed; this one overtakes it.
    bench.cloud.sim.latency().clear();
    elbv2(&bench, "DeleteLoadBalancer", &[("LoadBalancerArn", &arn)]).await;
    bench.service_gone("web").await;
    bench.nothing_left().unwrap();
    assert_eq!(warnings(&bench, "web").await, []);
}

/// CASE-LB-08: Nodes come and go while a load balancer goes, whose deletion is slow to
/// be seen.
#[tokio::test]
async fn changes_of_nodes_do_not_bring_a_deleted_load_balancer_back() {
    let bench = ready(2).await;
    bench
        .cloud
        .sim
        .aws()
        .configure(|s| s.lb_deletion_lag = Duration::from_secs(2));
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let other = published(&bench, &service("other", &[(80, 30090)])).await;
    let arn = View::now(&bench, &web).lb.arn;
    let mark = bench.cloud.sim.calls().mark();
    bench
        .services()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    let mut current = bench.machines().to_vec();
    for n in 0..6 {
        let (machine, _) = join(&bench).await;
        if n % 2 == 0 {
            leave(&bench, &machine).await;
        } else {
            current.push(machine);
        }
    }
    bench.service_gone("web").await;
    targets_are(&bench, &other, &current).await;
    let writes = bench.cloud.sim.calls().writes_since(mark);
    let of_web = |call: &ccm_cloudsim::Call| call.params.values().any(|value| *value == arn);
    let delete = writes
        .iter()
        .position(|call| call.action == "DeleteLoadBalancer")
        .unwrap();
    let after: Vec<_> = writes[delete + 1..]
        .iter()
        .filter(|call| {
            of_web(call) && call.action != "DeleteLoadBalancer"
                || call.action.starts_with("Create")
                || call.params.values().any(|value| value == "30080")
                    && call.action != "RevokeSecurityGroupIngress"
        })
        .collect();
    assert!(after.is_empty(), "{after:#?}");
    bench.delete_service("other").await.unwrap();
    bench.nothing_left().unwrap();
}

/// CASE-LB-18, REQ-AWS-DEL-11: a protected load balancer goes on working until it may go.
#[tokio::test]
async fn nothing_of_a_protected_load_balancer_is_removed() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let (before, open) = (View::now(&bench, &web), rules(&bench));
    let aws = bench.cloud.sim.aws();
    aws.set_deletion_protection(&before.lb.arn, true).unwrap();
    bench
        .services()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    let told = bench.event("web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("OperationNotPermitted"), "{told}");
    assert!(told.contains("deletion protection"), "{told}");
    always("all of it stays", Duration::from_secs(2), || async {
        same(&View::now(&bench, &web).ports, &before.ports)?;
        same(&rules(&bench), &open)
    })
    .await;
    assert!(finalized(&bench.services().get("web").await.unwrap()));
    aws.set_deletion_protection(&before.lb.arn, false).unwrap();
    bench.service_gone("web").await;
    bench.nothing_left().unwrap();
}

/// CASE-LB-19 (b): without the annotation a classic load balancer is asked for. That is refused and
/// the network load balancer goes on.
#[tokio::test]
async fn the_kind_of_a_load_balancer_does_not_change_under_it() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let before = View::now(&bench, &web);
    bench
        .patch_service("web", annotation("type", None))
        .await
        .unwrap();
    let told = bench.event("web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("aws-load-balancer-type"), "{told}");
    let after = View::now(&bench, &web);
    assert_eq!((&after.lb, &after.ports), (&before.lb, &before.ports));
    let shown = bench.services().get("web").await.unwrap();
    assert_eq!(hostname(&shown), Some(before.lb.dns_name));
    bench.delete_service("web").await.unwrap();
    bench.nothing_left().unwrap();
}

/// CASE-LB-19 (c), REQ-AWS-DEL-12: the annotation that tells the kind goes together with the type.
#[tokio::test]
async fn an_nlb_is_found_and_deleted_without_its_annotation() {
    let bench = ready(1).await;
    published(&bench, &service("web", &[(80, 30080)])).await;
    let mut patch = annotation("type", None);
    patch["spec"] = json!({ "type": "ClusterIP" });
    bench.patch_service("web", patch).await.unwrap();
    bench.event("web", "DeletedLoadBalancer").await;
    bench.nothing_left().unwrap();
    no_hostname(&bench, "web").await;
    assert!(!finalized(&bench.services().get("web").await.unwrap()));
}

/// CASE-LB-05, REQ-SVC-17: what cannot be done is tried ever more rarely, told in one Event, and
/// ends with the Service.
#[tokio::test]
async fn an_impossible_request_is_told_in_one_event_and_ends_with_the_service() {
    let bench = ready(1).await;
    let fixed = json!({ "loadBalancerIP": "203.0.113.250" });
    let start = tokio::time::Instant::now();
    let mark = bench.cloud.sim.calls().mark();
    let web = with_spec(&service("web", &[(80, 30080)]), fixed);
    bench.create_service(&web).await.unwrap();
    told_times(&bench, "web", "SyncLoadBalancerFailed", 3).await;
    // At once, after 5 s, after 10 s more.
    let passed = start.elapsed().as_secs();
    assert!((14..45).contains(&passed), "{passed} s");
    let warned = warnings(&bench, "web").await;
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(
        warned[0]
            .1
            .contains("LoadBalancerIP cannot be specified for AWS ELB"),
        "{warned:?}"
    );
    assert_eq!(bench.cloud.sim.calls().writes_since(mark), []);

    bench.delete_service("web").await.unwrap();
    bench.event("web", "DeletedLoadBalancer").await;
    let mark = bench.cloud.sim.calls().mark();
    let told = bench.events("web").await.unwrap();
    always(
        "nothing more is tried or told",
        Duration::from_secs(3),
        || async {
            let calls = bench.cloud.sim.calls().counts_since(mark);
            let now = bench.events("web").await.map_err(|e| e.to_string())?;
            same(&(calls, now), &(Default::default(), told.clone()))
        },
    )
    .await;
    bench.nothing_left().unwrap();
}

/// REQ-SVC-41: without its finalizer a Service vanishes at once; its load balancer goes all the
/// same.
#[tokio::test]
async fn a_service_that_lost_its_finalizer_leaves_nothing() {
    let bench = ready(1).await;
    published(&bench, &service("web", &[(80, 30080)])).await;
    bench
        .services()
        .delete("web", &slowly(&bench))
        .await
        .unwrap();
    strip_finalizers(&bench, "web").await;
    bench.service_gone("web").await;
    bench
        .cloud_until("nothing is left", |_| bench.nothing_left())
        .await;
    bench.event("web", "DeletedLoadBalancer").await;
}

/// REQ-SVC-31: another Service under the same name gets another load balancer, the old one goes.
#[tokio::test]
async fn a_service_replaced_under_its_name_gets_its_own_load_balancer() {
    let bench = ready(1).await;
    let old = published(&bench, &service("web", &[(80, 30080)])).await;
    bench
        .services()
        .delete("web", &slowly(&bench))
        .await
        .unwrap();
    strip_finalizers(&bench, "web").await;
    bench.service_gone("web").await;
    let new = published(&bench, &service("web", &[(80, 30081)])).await;
    assert_ne!(lb_name(&old), lb_name(&new));
    View::until(&bench, &new, "the new one is there", |view| {
        same(&view.forwards(), &[(80, 30081)].into())
    })
    .await;
    bench
        .cloud_until("one is left", |state| same(&state.load_balancers.len(), &1))
        .await;
    let calls = bench.cloud.sim.calls();
    let writes = calls.writes_since(calls.start());
    let order = writes.iter().map(|call| call.action.as_str());
    let order: Vec<&str> = order
        .filter(|action| action.ends_with("LoadBalancer"))
        .collect();
    let want = [
        "CreateLoadBalancer",
        "DeleteLoadBalancer",
        "CreateLoadBalancer",
    ];
    assert_eq!(order, want);
    bench.delete_service("web").await.unwrap();
    bench.nothing_left().unwrap();
}

/// REQ-SVC-42: what somebody takes away from the Service is put back, and the cloud is
/// not written to.
#[tokio::test]
async fn a_cleared_status_and_a_stripped_finalizer_are_put_back() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let mark = bench.cloud.sim.calls().mark();
    let cleared = Patch::Merge(json!({ "status": { "loadBalancer": null } }));
    let params = PatchParams::default();
    bench
        .services()
        .patch_status("web", &params, &cleared)
        .await
        .unwrap();
    assert_eq!(Some(bench.hostname("web").await), hostname(&web));
    strip_finalizers(&bench, "web").await;
    eventually("the finalizer is back", LIMIT, || async {
        let web = bench.services().get("web").await;
        same(&finalized(&web.map_err(|e| e.to_string())?), &true)
    })
    .await;
    assert_eq!(bench.cloud.sim.calls().writes_since(mark), []);
}

/// REQ-SVC-08, REQ-SVC-44: the Service got another class while nobody looked. What we made goes;
/// the status belongs to the other controller.
#[tokio::test]
async fn a_load_balancer_of_ours_goes_when_its_service_has_another_class() {
    let mut bench = ready(1).await;
    published(&bench, &service("web", &[(80, 30080)])).await;
    bench.stop_manager().await.unwrap();
    let cluster_ip = json!({ "spec": { "type": "ClusterIP" } });
    bench.patch_service("web", cluster_ip).await.unwrap();
    let class =
        json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": "example.com/other" } });
    bench.patch_service("web", class).await.unwrap();
    let ingress = json!([{ "hostname": "theirs.example" }]);
    let theirs = Patch::Merge(json!({ "status": { "loadBalancer": { "ingress": ingress } } }));
    let params = PatchParams::default();
    bench
        .services()
        .patch_status("web", &params, &theirs)
        .await
        .unwrap();
    bench.start_manager(&[]).await.unwrap();
    bench.event("web", "DeletedLoadBalancer").await;
    bench.nothing_left().unwrap();
    let web = bench.services().get("web").await.unwrap();
    assert_eq!(hostname(&web).as_deref(), Some("theirs.example"));
    assert!(!finalized(&web));
}

/// Takes all finalizers away, as a user with `kubectl edit` does.
async fn strip_finalizers(bench: &Bench, name: &str) {
    let patch = json!({ "metadata": { "finalizers": null } });
    // The manager may have been faster.
    if let Err(error) = bench.patch_service(name, patch).await {
        let gone = matches!(error.downcast_ref(), Some(kube::Error::Api(s)) if s.is_not_found());
        assert!(gone, "{error:#}");
    }
}

/// Holds the manager's deletion up, so that the Service is gone first.
fn slowly(bench: &Bench) -> DeleteParams {
    let slow = Duration::from_secs(1);
    bench.cloud.sim.latency().set("DeleteLoadBalancer", slow);
    DeleteParams::default()
}
