//! Machines and Nodes come, go and change; the targets follow.

use std::{collections::BTreeSet, time::Duration};

use ccm_e2e_tests::{Bench, node, service};
use ccm_testkit::always;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::{
    setup::{
        annotated, annotation, join, join_tainted, leave, new_machine, patch_node, provider_id,
        published, ready, told, told_times, warnings, with_spec,
    },
    view::{View, Watch, lb_name, live, same, targets_are},
};

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

fn label(key: &str, value: Option<&str>) -> serde_json::Value {
    json!({ "metadata": { "labels": { key: value } } })
}

/// All of the cluster's machines but these.
fn without(bench: &Bench, gone: &[&String]) -> Vec<String> {
    let kept = bench
        .machines()
        .iter()
        .filter(|machine| !gone.contains(machine));
    kept.cloned().collect()
}

/// REQ-SVC-24: a Node joins, one leaves.
#[tokio::test]
async fn nodes_that_join_and_leave_become_targets_and_go() {
    let bench = ready(2).await;
    let web = published(&bench, &service("web", &[(80, 30080), (443, 30443)])).await;
    let (machine, name) = join_tainted(&bench).await;
    bench.initialised(&name).await;
    let mut want = bench.machines().to_vec();
    want.push(machine);
    targets_are(&bench, &web, &want).await;
    told_times(&bench, "web", "UpdatedLoadBalancer", 1).await;

    let first = want.remove(0);
    let mark = bench.cloud.sim.calls().mark();
    leave(&bench, &first).await;
    targets_are(&bench, &web, &want).await;
    let writes = bench.cloud.sim.calls().writes_since(mark);
    let actions: Vec<&str> = writes.iter().map(|call| call.action.as_str()).collect();
    assert_eq!(actions, ["DeregisterTargets", "DeregisterTargets"]);
    assert_eq!(told(&bench, "web", "EnsuredLoadBalancer").await, 1);
}

/// REQ-SVC-20: without Nodes the load balancer is made all the same, and the user is told.
#[tokio::test]
async fn a_service_without_any_node_gets_an_empty_load_balancer_and_a_warning() {
    let bench = ready(0).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let told = bench.event("web", "UnAvailableLoadBalancer").await;
    assert_eq!(told, "There are no available nodes for LoadBalancer");
    assert_eq!(View::now(&bench, &web).targets(80), BTreeSet::new());
    let (machine, _) = join(&bench).await;
    targets_are(&bench, &web, &[machine]).await;
    told_times(&bench, "web", "UpdatedLoadBalancer", 1).await;
}

/// CASE-LB-15, REQ-SVC-21, REQ-SVC-25, REQ-SVC-26: health checks decide about readiness, not we.
#[tokio::test]
async fn nodes_that_are_not_ready_stay_targets_and_excluded_ones_go() {
    let bench = ready(6).await;
    let mut services: Vec<Service> = Vec::new();
    for n in 0..3 {
        services.push(published(&bench, &service(&format!("web-{n}"), &[(80, 30080 + n)])).await);
    }
    let machines = bench.machines().to_vec();
    let mark = bench.cloud.sim.calls().mark();
    for machine in &machines[..4] {
        bench
            .set_ready(&bench.dns_name(machine).unwrap(), "False")
            .await
            .unwrap();
    }
    let scaled_down = &machines[5];
    let taints = json!({ "spec": { "taints": [
        { "key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule" }
    ]}});
    patch_node(&bench, scaled_down, taints).await;
    patch_node(&bench, &machines[3], label(EXCLUDE, Some("false"))).await;
    always(
        "no load balancer is touched",
        Duration::from_secs(3),
        || async {
            let calls = bench.cloud.sim.calls().calls_since(mark);
            let touched: Vec<_> = calls
                .iter()
                .filter(|call| call.service == "elbv2")
                .collect();
            if touched.is_empty() {
                Ok(())
            } else {
                Err(format!("{touched:#?}"))
            }
        },
    )
    .await;
    for machine in &machines[..4] {
        bench
            .set_ready(&bench.dns_name(machine).unwrap(), "True")
            .await
            .unwrap();
    }

    // What is no boolean excludes; the Node about to be scaled away goes with the next pass.
    patch_node(&bench, &machines[0], label(EXCLUDE, Some(""))).await;
    patch_node(&bench, &machines[1], label(EXCLUDE, Some("perhaps"))).await;
    let left = without(&bench, &[&machines[0], &machines[1], scaled_down]);
    for service in &services {
        targets_are(&bench, service, &left).await;
    }
    patch_node(&bench, &machines[0], label(EXCLUDE, None)).await;
    let left = without(&bench, &[&machines[1], scaled_down]);
    for service in &services {
        targets_are(&bench, service, &left).await;
        assert_eq!(
            warnings(&bench, service.metadata.name.as_deref().unwrap()).await,
            []
        );
    }
}

/// CASE-LB-16, REQ-SVC-22: Nodes are replaced one by one, each shows its provider id late.
#[tokio::test]
async fn a_node_becomes_a_target_when_its_provider_id_appears() {
    let bench = ready(2).await;
    let local = json!({ "externalTrafficPolicy": "Local" });
    let near = with_spec(&service("near", &[(80, 30080)]), local);
    let near = published(&bench, &near).await;
    let far = published(&bench, &service("far", &[(80, 30090)])).await;
    let names = [lb_name(&near), lb_name(&far)];
    let watch = Watch::start(&bench.cloud.sim, move |state| {
        names.iter().try_for_each(|name| {
            let view = View::of(state, name)?;
            same(&live(view.group(80)).is_empty(), &false)
        })
    });
    let mut current = bench.machines().to_vec();
    for old in bench.machines().to_vec() {
        let machine = new_machine(&bench);
        let name = bench.dns_name(&machine).unwrap();
        let late = node(json!({ "metadata": { "name": name } }));
        bench.create_node(&late, "True").await.unwrap();
        // Seen without provider id: a set that was compared, and that must not hide the id later.
        always("it is no target", Duration::from_secs(1), || async {
            same(
                &View::now(&bench, &near).targets(80).contains(&machine),
                &false,
            )
        })
        .await;
        let id = provider_id(&bench, &machine);
        patch_node(&bench, &machine, json!({ "spec": { "providerID": id } })).await;
        current.push(machine);
        targets_are(&bench, &near, &current).await;
        targets_are(&bench, &far, &current).await;
        leave(&bench, &old).await;
        current.retain(|machine| *machine != old);
    }
    targets_are(&bench, &near, &current).await;
    targets_are(&bench, &far, &current).await;
    watch.end().await;
}

/// CASE-LB-28: the labels of the annotation choose, also when they change later.
#[tokio::test]
async fn nodes_are_chosen_by_label_and_relabelling_is_followed() {
    let bench = ready(4).await;
    let machines = bench.machines().to_vec();
    let (a, b, c, d) = (&machines[0], &machines[1], &machines[2], &machines[3]);
    for (machine, pool) in [(a, "edge"), (b, "edge"), (d, "core")] {
        patch_node(&bench, machine, label("pool", Some(pool))).await;
    }
    let web = annotated(
        service("web", &[(80, 30080)]),
        &[("target-node-labels", "pool=edge")],
    );
    let web = published(&bench, &web).await;
    targets_are(&bench, &web, &[a.clone(), b.clone()]).await;
    patch_node(&bench, c, label("pool", Some("edge"))).await;
    targets_are(&bench, &web, &[a.clone(), b.clone(), c.clone()]).await;
    patch_node(&bench, a, label("pool", None)).await;
    targets_are(&bench, &web, &[b.clone(), c.clone()]).await;
    bench
        .patch_service("web", annotation("target-node-labels", Some("pool=core")))
        .await
        .unwrap();
    targets_are(&bench, &web, std::slice::from_ref(d)).await;
    assert_eq!(warnings(&bench, "web").await, []);

    bench
        .patch_service("web", annotation("target-node-labels", Some("pool=none")))
        .await
        .unwrap();
    let told = bench.event("web", "UnAvailableLoadBalancer").await;
    assert!(
        told.starts_with("There are no available nodes for LoadBalancer"),
        "{told}"
    );
    targets_are(&bench, &web, &[]).await;
}

/// CASE-LB-27: a target group at its limit lets dead targets go before new ones come; what is too
/// much is told once and stays out.
#[tokio::test]
async fn nodes_are_replaced_at_the_limit_of_targets() {
    let mut bench = ready(10).await;
    let aws = bench.cloud.sim.aws();
    aws.set_quotas(|quotas| quotas.targets_per_target_group = 10);
    aws.configure(|settings| settings.deregistration_delay = Some(Duration::ZERO));
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    targets_are(&bench, &web, bench.machines()).await;

    // Meanwhile nobody looks, so that both come in one pass.
    bench.stop_manager().await.unwrap();
    let mut current = bench.machines().to_vec();
    for gone in current.drain(..3).collect::<Vec<_>>() {
        leave(&bench, &gone).await;
    }
    for _ in 0..3 {
        current.push(join(&bench).await.0);
    }
    let mark = bench.cloud.sim.calls().mark();
    bench.start_manager(&[]).await.unwrap();
    targets_are(&bench, &web, &current).await;
    let writes = bench.cloud.sim.calls().writes_since(mark);
    let actions: Vec<&str> = writes.iter().map(|call| call.action.as_str()).collect();
    assert_eq!(actions, ["DeregisterTargets", "RegisterTargets"]);
    assert_eq!(warnings(&bench, "web").await, []);

    bench.stop_manager().await.unwrap();
    for _ in 0..2 {
        current.push(join(&bench).await.0);
    }
    bench.start_manager(&[]).await.unwrap();
    let told = bench.event("web", "TooManyTargets").await;
    assert!(told.contains("10 targets"), "{told}");
    let current: BTreeSet<String> = current.into_iter().collect();
    let live = View::now(&bench, &web).targets(80);
    assert_eq!(live.len(), 10);
    assert!(live.is_subset(&current));
    // The Nodes that joined meanwhile still get their addresses: only the cloud is at rest.
    let mark = bench.cloud.sim.calls().mark();
    always("no target is moved", Duration::from_secs(3), || async {
        same(&bench.cloud.sim.calls().writes_since(mark), &Vec::new())
    })
    .await;
    assert_eq!(warnings(&bench, "web").await.len(), 1);
}
