//! Leftovers of the simulated cloud.

use std::sync::Arc;

use ccm_cloudsim::aws::Snapshot;
use ccm_core::{
    cloud::{Leftover, LeftoverKind, Leftovers, LoadBalancers, Owners, Removal, Writes},
    kube::Service,
};

use crate::{
    load_balancer::testing::{LB, alb, node, service},
    sim_world::{SimWorld, View, owners},
};

fn other() -> Service {
    let mut other = service(&[(80, 30090)]);
    other.metadata.name = Some("other".to_owned());
    other.metadata.uid = Some("00000000-0000-0000-0000-000000000000".to_owned());
    other
}

/// Two load balancers, of `shop/web` and `shop/other`.
async fn two() -> (SimWorld, View) {
    let world = SimWorld::new(2, |settings| settings.managed_security_groups = true);
    let view = world.view(&Writes::Real).await;
    let nodes = world.nodes();
    for service in [service(&[(80, 30080), (81, 30081)]), other()] {
        view.load_balancers.ensure(&service, &nodes).await.unwrap();
    }
    // Nothing is remembered by whoever looks for leftovers.
    let view = world.view(&Writes::Real).await;
    (world, view)
}

fn all(services: &[&Service]) -> Vec<Arc<Service>> {
    services.iter().map(|s| Arc::new((*s).clone())).collect()
}

fn kinds(found: &[Leftover]) -> Vec<LeftoverKind> {
    found.iter().map(|leftover| leftover.kind).collect()
}

/// Everything of `shop/web` is gone and everything of `shop/other` is there.
fn assert_only_other_is_left(state: &Snapshot) {
    assert_eq!(state.load_balancers.len(), 1);
    assert!(state.load_balancer(LB).is_none());
    assert_eq!(state.target_groups.len(), 1);
    let groups = state.security_groups.values();
    let names: Vec<&str> = groups.map(|group| group.name.as_str()).collect();
    let managed = names.iter().filter(|name| name.starts_with("k8s-"));
    assert_eq!(managed.count(), 1, "{names:?}");
    let rules: Vec<String> = state
        .security_groups
        .values()
        .flat_map(|group| group.rules.iter().map(|rule| format!("{rule:?}")))
        .collect();
    assert!(
        !rules.iter().any(|rule| rule.contains("30080")),
        "{rules:#?}"
    );
    assert!(!rules.iter().any(|rule| rule.contains(LB)), "{rules:#?}");
    assert!(
        rules.iter().any(|rule| rule.contains("30090")),
        "{rules:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_has_an_owner_is_no_leftover() {
    let (_world, view) = two().await;
    let web = service(&[(80, 30080), (81, 30081)]);
    let mut leaving = other();
    leaving.spec.type_ = Some("ClusterIP".to_owned());
    leaving.metadata.finalizers = Some(vec![
        "service.kubernetes.io/load-balancer-cleanup".to_owned(),
    ]);
    for services in [all(&[&web, &other()]), all(&[&web, &leaving])] {
        let found = view.leftovers.list(owners(&services)).await.unwrap();
        assert_eq!(found, []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_without_a_service_goes_with_all_its_parts_and_no_other() {
    let (world, view) = two().await;
    let services = all(&[&other()]);
    let found = view.leftovers.list(owners(&services)).await.unwrap();
    assert_eq!(kinds(&found), [LeftoverKind::LoadBalancer]);
    let lost = &found[0];
    assert_eq!(
        (lost.name.as_str(), lost.made_for.as_deref()),
        (LB, Some("shop/web"))
    );
    assert!(lost.created.is_some());
    assert!(
        lost.reason.contains("there is no Service shop/web"),
        "{}",
        lost.reason
    );
    for part in [
        "target group k8s-shop-web",
        "security group sg-",
        "its rules in",
    ] {
        assert!(
            lost.parts.iter().any(|line| line.starts_with(part)),
            "{:?}",
            lost.parts
        );
    }
    let removed = view
        .leftovers
        .remove(lost, owners(&services))
        .await
        .unwrap();
    assert_eq!(removed, Removal::Removed);
    assert_only_other_is_left(&world.state());
    assert_eq!(view.leftovers.list(owners(&services)).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_appears_before_the_removal_keeps_everything() {
    let (world, view) = two().await;
    let services = all(&[&other()]);
    let found = view.leftovers.list(owners(&services)).await.unwrap();
    let before = world.state();
    let web = service(&[(80, 30080), (81, 30081)]);
    let services = all(&[&web, &other()]);
    let answer = view
        .leftovers
        .remove(&found[0], owners(&services))
        .await
        .unwrap();
    assert!(matches!(answer, Removal::Kept(_)), "{answer:?}");
    assert_eq!(world.state(), before);
}

#[tokio::test(start_paused = true)]
async fn parts_without_a_head_are_leftovers_of_unknown_age() {
    let (world, view) = two().await;
    let lb = view.elb.load_balancer(LB).await.unwrap().unwrap();
    view.elb.delete_load_balancer(&lb.arn).await.unwrap();
    let services = all(&[&other()]);
    let found = view.leftovers.list(owners(&services)).await.unwrap();
    use LeftoverKind::{Rule, SecurityGroup, TargetGroup};
    assert_eq!(
        kinds(&found),
        [TargetGroup, TargetGroup, SecurityGroup, Rule]
    );
    assert!(found.iter().all(|leftover| leftover.created.is_none()));
    for leftover in &found {
        let removed = view.leftovers.remove(leftover, owners(&services)).await;
        assert_eq!(removed.unwrap(), Removal::Removed, "{leftover:?}");
    }
    // The rule for "fragmentation needed" is shared and stays.
    assert_only_other_is_left(&world.state());
}

#[tokio::test(start_paused = true)]
async fn shared_tags_and_other_clusters_are_never_touched() {
    let (_world, view) = two().await;
    let lb = view.elb.load_balancer(LB).await.unwrap().unwrap();
    let groups = view.elb.target_groups_of(&lb.arn).await.unwrap();
    let arns: Vec<&String> = std::iter::once(&lb.arn)
        .chain(groups.iter().map(|g| &g.arn))
        .collect();
    let ours = "kubernetes.io/cluster/kite".to_owned();
    let services = all(&[&other()]);
    for tags in [
        [(ours.clone(), "shared".to_owned())].into(),
        [("kubernetes.io/cluster/heron".to_owned(), "owned".to_owned())].into(),
    ] {
        for arn in &arns {
            view.elb
                .remove_tags(arn, &[ours.clone()].into())
                .await
                .unwrap();
            view.elb.add_tags(arn, &tags).await.unwrap();
        }
        let found = view.leftovers.list(owners(&services)).await.unwrap();
        assert_eq!(found, [], "{tags:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_controller_serves_by_now_may_be_detached_on_purpose() {
    for delete in [false, true] {
        let (mut world, _) = two().await;
        world.settings.delete_released = delete;
        let view = world.view(&Writes::Real).await;
        let mut web = service(&[(80, 30080), (81, 30081)]);
        alb(&mut web, "type", "external");
        let services = all(&[&web, &other()]);
        let found = view.leftovers.list(owners(&services)).await.unwrap();
        assert_eq!(kinds(&found), [LeftoverKind::LoadBalancer]);
        assert_eq!(found[0].kept.is_none(), delete);
        let answer = view
            .leftovers
            .remove(&found[0], owners(&services))
            .await
            .unwrap();
        if delete {
            assert_eq!(answer, Removal::Removed);
            assert_only_other_is_left(&world.state());
        } else {
            assert!(matches!(answer, Removal::Kept(_)), "{answer:?}");
            assert!(world.state().load_balancer(LB).is_some());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_machines_of_the_cluster_make_a_home() {
    let (world, view) = two().await;
    let nodes = world.nodes();
    for (nodes, home) in [
        (&nodes[..], true),
        (&[], false),
        (&[node("i-0123456789abcdef0")], false),
    ] {
        assert_eq!(view.leftovers.is_home_of(nodes).await.unwrap(), home);
    }
    let owners = Owners {
        services: &[],
        nodes: &nodes,
    };
    assert_eq!(view.leftovers.list(owners).await.unwrap().len(), 2);
}
