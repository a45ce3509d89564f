//! Fault cases of Services that fit no stage of their life.

use std::{collections::BTreeMap, time::Duration};

use ccm_e2e_tests::service;
use ccm_testkit::{always, eventually};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    setup::{
        LIMIT, annotated, annotation, elbv2, finalized, hostname, join, leave, manager_writes,
        published, quiet, ready, ready_with, ready_with_config, requests, told_times, warnings,
        with_spec,
    },
    view::{View, lb_name, rules, same, targets_are},
};

/// CASE-LB-04: a change of the Service does not wait for the back-off of what it
/// replaces.
#[tokio::test]
async fn a_corrected_service_replaces_the_failing_one_at_once() {
    let bench = ready(1).await;
    // Each range takes a rule for clients and one for path MTU discovery; three are for checks.
    bench
        .cloud
        .sim
        .aws()
        .set_quotas(|quotas| quotas.rules_per_security_group = 90);
    let range = |n: usize| format!("198.18.{n}.0/24");
    let all: Vec<String> = (0..70).map(range).collect();
    let web = json!({ "loadBalancerSourceRanges": all });
    let web = with_spec(&service("web", &[(80, 30080)]), web);
    let web = bench.create_service(&web).await.unwrap();
    told_times(&bench, "web", "SyncLoadBalancerFailed", 2).await;
    for (_, message, _) in warnings(&bench, "web").await {
        assert!(
            message.contains("RulesPerSecurityGroupLimitExceeded"),
            "{message}"
        );
    }

    // The next try of the old one would come 10 s after the last.
    let mark = bench.cloud.sim.calls().mark();
    let fewer = json!({ "spec": { "loadBalancerSourceRanges": all[..40] } });
    bench.patch_service("web", fewer).await.unwrap();
    let limit = Duration::from_secs(8);
    View::within(&bench, &web, "the listener is there", limit, |view| {
        same(&view.forwards(), &BTreeMap::from([(80, 30080)]))
    })
    .await;
    bench.hostname("web").await;
    let client = format!("kubernetes.io/rule/nlb/client={}", lb_name(&web));
    let have = rules(&bench);
    let have: Vec<&String> = have.iter().filter(|rule| rule.ends_with(&client)).collect();
    assert_eq!(have.len(), 40, "{have:?}");
    for call in bench.cloud.sim.calls().writes_since(mark) {
        let old = call.params.values().find(|value| all[40..].contains(value));
        assert!(
            call.action != "AuthorizeSecurityGroupIngress" || old.is_none(),
            "{call:?}"
        );
    }
}

/// CASE-LB-06 (i): a change of the Service notices.
#[tokio::test]
async fn a_load_balancer_deleted_by_hand_is_made_again() {
    let bench = ready(2).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let old = View::now(&bench, &web);
    elbv2(
        &bench,
        "DeleteLoadBalancer",
        &[("LoadBalancerArn", &old.lb.arn)],
    )
    .await;
    bench
        .patch_service("web", annotation("note", Some("x")))
        .await
        .unwrap();
    made_again(&bench, &web, &old).await;
}

/// CASE-LB-06 (ii): a restart notices.
#[tokio::test]
async fn a_load_balancer_deleted_by_hand_is_made_again_after_a_restart() {
    let mut bench = ready(2).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let old = View::now(&bench, &web);
    elbv2(
        &bench,
        "DeleteLoadBalancer",
        &[("LoadBalancerArn", &old.lb.arn)],
    )
    .await;
    bench.kill_manager().await.unwrap();
    bench.start_manager(&[]).await.unwrap();
    made_again(&bench, &web, &old).await;
}

async fn made_again(
    bench: &ccm_e2e_tests::Bench,
    web: &k8s_openapi::api::core::v1::Service,
    old: &View,
) {
    told_times(bench, "web", "EnsuredLoadBalancer", 2).await;
    let new = View::now(bench, web);
    assert_eq!((&new.lb.name, &new.lb.tags), (&old.lb.name, &old.lb.tags));
    assert_ne!(new.lb.arn, old.lb.arn);
    // The event comes before the status is written.
    eventually("the status names the new one", LIMIT, || async {
        let shown = bench.services().get("web").await;
        let shown = shown.map_err(|error| error.to_string())?;
        same(&hostname(&shown), &Some(new.lb.dns_name.clone()))
    })
    .await;
    let state = bench.cloud.sim.aws().snapshot();
    assert_eq!(
        (state.load_balancers.len(), state.target_groups.len()),
        (1, 1)
    );
    assert_eq!(
        new.group(80).arn,
        old.group(80).arn,
        "the target group is adopted"
    );
    targets_are(bench, web, bench.machines()).await;
    quiet(bench, Duration::from_secs(2)).await;
    bench.delete_service("web").await.unwrap();
    bench.nothing_left().unwrap();
}

/// CASE-LB-09, REQ-SVC-01, REQ-SVC-46: a Service of another class is invisible.
#[tokio::test]
async fn a_service_of_another_class_costs_nothing() {
    let bench = ready(1).await;
    let (mark, writes) = (bench.cloud.sim.calls().mark(), manager_writes(&bench).await);
    let class = json!({ "loadBalancerClass": "example.com/other" });
    let web = with_spec(&service("web", &[(80, 30080)]), class);
    bench.create_service(&web).await.unwrap();
    let ports = json!({ "spec": { "ports": [{ "name": "p", "port": 81, "nodePort": 30081 }] } });
    bench.patch_service("web", ports).await.unwrap();
    let (machine, _) = join(&bench).await;
    leave(&bench, &machine).await;
    always(
        "nothing is done or told",
        Duration::from_secs(2),
        || async {
            let calls = bench.cloud.sim.calls().counts_since(mark);
            let events = bench.events("web").await.map_err(|e| e.to_string())?;
            let writes = manager_writes(&bench).await - writes;
            same(&(calls, events.len(), writes), &(BTreeMap::new(), 0, 0))
        },
    )
    .await;
    assert!(!finalized(&bench.services().get("web").await.unwrap()));
    bench.delete_service("web").await.unwrap();
    assert_eq!(bench.cloud.sim.calls().writes_since(mark), []);
    assert_eq!(manager_writes(&bench).await, writes);
}

/// CASE-LB-09, REQ-SVC-18, REQ-SVC-19, REQ-AWS-DIV-2: another controller serves the annotation `external`.
#[tokio::test]
async fn a_service_served_elsewhere_keeps_its_status_and_can_be_deleted() {
    let bench = ready(1).await;
    let mark = bench.cloud.sim.calls().mark();
    let web = annotated(service("web", &[(80, 30080)]), &[("type", "external")]);
    bench.create_service(&web).await.unwrap();
    told_times(&bench, "web", "EnsuringLoadBalancer", 1).await;
    let theirs =
        json!({ "status": { "loadBalancer": { "ingress": [{ "hostname": "theirs.example" }] } } });
    let params = kube::api::PatchParams::default();
    let patch = kube::api::Patch::Merge(&theirs);
    bench
        .services()
        .patch_status("web", &params, &patch)
        .await
        .unwrap();
    bench
        .patch_service("web", annotation("note", Some("x")))
        .await
        .unwrap();
    let (machine, _) = join(&bench).await;
    leave(&bench, &machine).await;
    always(
        "the status stays theirs",
        Duration::from_secs(2),
        || async {
            let web = bench
                .services()
                .get("web")
                .await
                .map_err(|e| e.to_string())?;
            same(&hostname(&web).as_deref(), &Some("theirs.example"))
        },
    )
    .await;
    assert!(finalized(&bench.services().get("web").await.unwrap()));
    bench.delete_service("web").await.unwrap();
    assert_eq!(bench.cloud.sim.calls().writes_since(mark), []);
    assert_eq!(warnings(&bench, "web").await, []);
}

/// REQ-AWS-DIV-4: the annotation gives the Service to another controller. The load balancer stays,
/// and that is told.
#[tokio::test]
async fn a_load_balancer_that_was_given_away_stays_and_is_told() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let (before, open) = (View::now(&bench, &web), rules(&bench));
    bench
        .patch_service("web", annotation("type", Some("external")))
        .await
        .unwrap();
    let told = bench.event("web", "LoadBalancerReleased").await;
    assert!(told.contains(&lb_name(&web)), "{told}");
    bench.delete_service("web").await.unwrap();
    let after = View::now(&bench, &web);
    assert_eq!((after.lb, after.ports), (before.lb, before.ports));
    assert_eq!(rules(&bench), open);
}

/// REQ-AWS-DIV-4: with the clean-up switched on it goes.
#[tokio::test]
async fn a_load_balancer_that_was_given_away_goes_when_the_clean_up_is_on() {
    let bench = ready_with_config(1, "DeleteReleasedLoadBalancers = true").await;
    published(&bench, &service("web", &[(80, 30080)])).await;
    bench
        .patch_service("web", annotation("type", Some("external")))
        .await
        .unwrap();
    bench
        .cloud_until("nothing is left", |_| bench.nothing_left())
        .await;
    assert_eq!(warnings(&bench, "web").await, []);
    bench.delete_service("web").await.unwrap();
}

/// CASE-LB-10: a port without node port is named, nothing is half-built, and a node port heals.
#[tokio::test]
async fn a_port_without_node_port_is_refused_by_name_and_healed_by_one() {
    let bench = ready(1).await;
    let mark = bench.cloud.sim.calls().mark();
    let spec = json!({
        "allocateLoadBalancerNodePorts": false,
        "ports": [{ "name": "a", "port": 443 }, { "name": "b", "port": 8443, "nodePort": 31443 }],
    });
    let web = with_spec(&service("web", &[]), spec);
    let web = bench.create_service(&web).await.unwrap();
    let told = bench.event("web", "SyncLoadBalancerFailed").await;
    assert!(
        told.contains("port \"a\" (443/TCP) has no node port"),
        "{told}"
    );
    assert_eq!(bench.cloud.sim.calls().writes_since(mark), []);
    let ports = json!({ "spec": { "ports": [
        { "name": "a", "port": 443, "nodePort": 31444 },
        { "name": "b", "port": 8443, "nodePort": 31443 },
    ]}});
    bench.patch_service("web", ports).await.unwrap();
    bench.hostname("web").await;
    let want = BTreeMap::from([(443, 31444), (8443, 31443)]);
    assert_eq!(View::now(&bench, &web).forwards(), want);
}

/// CASE-LB-17, REQ-SVC-14, REQ-AWS-NLB-20, REQ-AWS-NLB-28: what does not differ is not written.
#[tokio::test]
async fn twenty_syncs_that_change_nothing_write_nothing() {
    let bench = ready(1).await;
    published(&bench, &service("web", &[(80, 30080)])).await;
    let patches = requests(&bench, "patch", "services/status").await;
    let calls = bench.cloud.sim.calls();
    let mark = calls.mark();
    for n in 0..20 {
        let before = calls.mark();
        let value = n.to_string();
        bench
            .patch_service("web", annotation("note", Some(&value)))
            .await
            .unwrap();
        // Each sync looks for the load balancer; events are too many for the limit of Events.
        eventually("the Service is synced", LIMIT, || async {
            let counts = calls.counts_since(before);
            let looked = counts.contains_key("DescribeLoadBalancers");
            same(&looked, &true)
        })
        .await;
    }
    quiet(&bench, Duration::from_secs(1)).await;
    assert_eq!(requests(&bench, "patch", "services/status").await, patches);
    assert_eq!(calls.writes_since(mark), []);
    let reads = calls.counts_since(mark);
    assert!(reads.values().sum::<usize>() <= 3 * 20, "{reads:?}");
}

/// CASE-THR-01, REQ-SVC-43: calls grow with what changed, not with what there is.
#[tokio::test]
async fn one_more_node_costs_two_reads_of_instances_for_thirty_services() {
    let flags = ["--concurrent-service-syncs=10"];
    let mut bench = ready_with(20, &flags).await;
    let mut services = Vec::new();
    for n in 0..30 {
        let web = service(&format!("web-{n}"), &[(80, 30100 + n)]);
        services.push(bench.create_service(&web).await.unwrap());
    }
    for web in &services {
        bench.hostname(&web.name_any()).await;
    }
    let calls = bench.cloud.sim.calls();
    let mark = calls.mark();
    let (machine, _) = join(&bench).await;
    let mut want = bench.machines().to_vec();
    want.push(machine.clone());
    for web in &services {
        targets_are(&bench, web, &want).await;
    }
    let counts = calls.counts_since(mark);
    assert!(counts["DescribeInstances"] <= 2, "{counts:?}");
    assert_eq!(counts["RegisterTargets"], 30, "{counts:?}");
    for call in calls.writes_since(mark) {
        assert_eq!(call.action, "RegisterTargets");
        let ids = call.params.iter().filter(|(key, _)| key.ends_with(".Id"));
        let ids: Vec<&String> = ids.map(|(_, id)| id).collect();
        assert_eq!(ids, [&machine], "{call:?}");
    }

    told_times(&bench, "web-29", "UpdatedLoadBalancer", 1).await;
    bench.stop_manager().await.unwrap();
    let mark = bench.cloud.sim.calls().mark();
    bench.start_manager(&flags).await.unwrap();
    for web in &services {
        told_times(&bench, &web.name_any(), "EnsuredLoadBalancer", 2).await;
    }
    let calls = bench.cloud.sim.calls();
    let counts = calls.counts_since(mark);
    assert!(counts["DescribeInstances"] <= 3, "{counts:?}");
    assert_eq!(calls.writes_since(mark), [], "{counts:?}");
}
