//! Removal: complete, resumable, and never of what is protected or foreign.

use std::{collections::BTreeSet, time::Duration};

use ccm_cloudsim::control::Fault;
use ccm_core::{
    cloud::{Class, CloudError, CloudResult, LoadBalancers},
    kube::{LoadBalancerStatus, Service},
};

use super::bench::{Bench, other_service, writes};
use crate::{
    load_balancer::testing::{LB, alb, service},
    tags::Tags,
};

async fn managed(nodes: usize) -> Bench {
    Bench::with(nodes, |s| s.managed_security_groups = true).await
}

/// Nothing of the Service's is left.
fn assert_clean(bench: &Bench) {
    let state = bench.state();
    assert!(state.load_balancers.is_empty() && state.listeners.is_empty());
    assert!(state.target_groups.is_empty(), "{:?}", state.target_groups);
    let groups = state.security_groups.values();
    let ours: Vec<_> = groups
        .filter(|group| group.name.starts_with("k8s-"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
    assert!(bench.node_rules().is_empty(), "{:?}", bench.node_rules());
}

/// REQ-AWS-DEL-1 and CASE-LB-07
#[tokio::test(start_paused = true)]
async fn nothing_to_remove_is_success() {
    let bench = Bench::new(1).await;
    let service = service(&[(80, 30080)]);
    let work = async {
        assert_eq!(bench.lbs.get(&service).await.unwrap(), None);
        bench.lbs.delete(&service).await.unwrap();
    };
    let ((), calls) = bench.calls(work).await;
    assert_eq!(writes(&calls), [""; 0]);
}

/// REQ-AWS-DEL-2, REQ-AWS-SG-22
#[tokio::test(start_paused = true)]
async fn everything_goes_and_the_load_balancer_first() {
    let bench = managed(2).await;
    let service = service(&[(80, 30080), (81, 30081)]);
    bench.ensure(&service).await;
    let (answer, calls) = bench.calls(bench.lbs.delete(&service)).await;
    answer.unwrap();
    let writes = writes(&calls);
    assert_eq!(writes[0], "DeleteLoadBalancer");
    let mut middle = writes[1..4].to_vec();
    middle.sort_unstable();
    assert_eq!(
        middle,
        [
            "DeleteTargetGroup",
            "DeleteTargetGroup",
            "RevokeSecurityGroupIngress"
        ]
    );
    assert_eq!(writes[4..], ["DeleteSecurityGroup"]);
    assert_clean(&bench);
    assert_eq!(bench.lbs.get(&service).await.unwrap(), None);
}

/// REQ-AWS-DEL-3
#[tokio::test(start_paused = true)]
async fn a_target_group_in_use_is_tried_again_soon() {
    let bench = Bench::new(1).await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let fault = Fault::error(400, "ResourceInUse", "in use");
    bench
        .sim
        .faults()
        .next("DeleteTargetGroup", 1, fault)
        .unwrap();
    let error = bench.lbs.delete(&service).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
    assert!(
        error
            .to_string()
            .starts_with("error deleting target groups after deleting"),
        "{error}"
    );
    let left = bench.lbs.get(&service).await.unwrap();
    assert_eq!(
        left,
        Some(LoadBalancerStatus::default()),
        "the finalizer must stay"
    );
    bench.lbs.delete(&service).await.unwrap();
    assert_clean(&bench);
}

/// REQ-AWS-DEL-4, REQ-AWS-DEL-13
#[tokio::test(start_paused = true)]
async fn leftovers_are_found_by_a_new_process_although_the_load_balancer_is_gone() {
    let mut bench = managed(2).await;
    let service = service(&[(80, 30080), (81, 30081)]);
    let neighbour = other_service("web-2", 30082);
    bench.ensure(&service).await;
    bench.ensure(&neighbour).await;
    let arn = bench.state().load_balancer(LB).unwrap().arn.clone();
    bench
        .lbs
        .observer
        .elb
        .delete_load_balancer(&arn)
        .await
        .unwrap();
    bench.restart().await;
    assert!(bench.lbs.get(&service).await.unwrap().is_some());
    bench.lbs.delete(&service).await.unwrap();
    assert_eq!(bench.lbs.get(&service).await.unwrap(), None);
    let state = bench.state();
    assert_eq!(
        (state.load_balancers.len(), state.target_groups.len()),
        (1, 1)
    );
    assert!(
        bench
            .node_rules()
            .keys()
            .all(|rule| !rule.contains("3008") || rule.contains("30082"))
    );
    bench.delete(&neighbour).await;
    assert_clean(&bench);
}

/// REQ-AWS-DEL-13: target groups of ports that the Service no longer has, made just before a crash.
#[tokio::test(start_paused = true)]
async fn an_orphaned_target_group_of_a_former_port_is_found_by_its_tags() {
    for ensure in [true, false] {
        let mut bench = Bench::new(1).await;
        let fault = Fault::error(400, "ValidationError", "no");
        bench.sim.faults().always("RegisterTargets", fault).unwrap();
        bench
            .try_ensure(&service(&[(81, 30081)]))
            .await
            .unwrap_err();
        bench.sim.faults().clear_all();
        bench.restart().await;
        let now = service(&[(80, 30080)]);
        if ensure {
            bench.ensure(&now).await;
            assert_eq!(bench.state().target_groups.len(), 1);
        }
        bench.delete(&now).await;
        assert_clean(&bench);
    }
}

/// REQ-AWS-DEL-6, REQ-AWS-DEL-10 and CASE-LB-23
#[tokio::test(start_paused = true)]
async fn a_security_group_in_use_is_waited_for_without_blocking() {
    let bench = managed(1).await;
    bench
        .sim
        .aws()
        .configure(|s| s.eni_release_delay = Duration::from_secs(30));
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let start = tokio::time::Instant::now();
    let mut tries = 0;
    let error = loop {
        match bench.lbs.delete(&service).await {
            Ok(()) => break None,
            Err(error) if error.retry_after() == Some(Duration::from_secs(5)) => {
                assert!(bench.lbs.get(&service).await.unwrap().is_some());
                let text = error.to_string();
                assert!(
                    text.starts_with("could not delete security groups [sg-"),
                    "{text}"
                );
                assert!(text.contains("for Load Balancer \"web\""), "{text}");
                tries += 1;
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            Err(error) => break Some(error),
        }
    };
    assert!(error.is_none() && tries >= 1, "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_clean(&bench);
}

/// REQ-AWS-DEL-6
#[tokio::test(start_paused = true)]
async fn after_ten_minutes_the_ordinary_back_off_takes_over() {
    let bench = managed(1).await;
    bench
        .sim
        .aws()
        .configure(|s| s.eni_release_delay = Duration::from_secs(3600));
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    assert!(
        bench
            .lbs
            .delete(&service)
            .await
            .unwrap_err()
            .retry_after()
            .is_some()
    );
    tokio::time::advance(Duration::from_secs(601)).await;
    let error = bench.lbs.delete(&service).await.unwrap_err();
    assert_eq!(error.retry_after(), None);
    assert_eq!(error.code(), Some("DependencyViolation"));
    tokio::time::advance(Duration::from_secs(3600)).await;
    bench.delete(&service).await;
    assert_clean(&bench);
}

/// REQ-AWS-DEL-7, REQ-AWS-DEL-9
#[tokio::test(start_paused = true)]
async fn groups_of_the_user_and_groups_without_tag_are_kept() {
    let bench = managed(1).await;
    let aws = bench.sim.aws();
    let owned = Tags::from([("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())]);
    let vpc = &bench.cluster.vpc_id;
    let named = aws.create_security_group(vpc, "named", owned).unwrap();
    let plain = aws
        .create_security_group(vpc, "plain", Tags::new())
        .unwrap();
    let mut service = service(&[(80, 30080)]);
    alb(&mut service, "security-groups", &format!("{named},{plain}"));
    bench.ensure(&service).await;
    let arn = bench.state().load_balancer(LB).unwrap().arn.clone();
    // The annotation loses the untagged one, and nothing was synced since.
    alb(&mut service, "security-groups", &named);
    bench.delete(&service).await;
    let state = bench.state();
    assert!(!state.load_balancers.contains_key(&arn));
    assert!(state.security_groups.contains_key(&named));
    assert!(state.security_groups.contains_key(&plain));
}

/// REQ-AWS-DEL-11 and CASE-LB-18
#[tokio::test(start_paused = true)]
async fn a_protected_load_balancer_stays_whole() {
    let bench = managed(2).await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let arn = bench.state().load_balancer(LB).unwrap().arn.clone();
    bench.sim.aws().set_deletion_protection(&arn, true).unwrap();
    let before = bench.state();
    let error = bench.lbs.delete(&service).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    assert!(
        error.to_string().contains("OperationNotPermitted"),
        "{error}"
    );
    assert!(error.to_string().contains("deletion protection"), "{error}");
    assert_eq!(error.retry_after(), None, "the ordinary back-off");
    assert_eq!(bench.state(), before);
    bench
        .sim
        .aws()
        .set_deletion_protection(&arn, false)
        .unwrap();
    bench.delete(&service).await;
    assert_clean(&bench);
}

/// REQ-AWS-DEL-12 and CASE-LB-19
#[tokio::test(start_paused = true)]
async fn a_service_without_annotation_still_finds_its_load_balancer() {
    for keep in [true, false] {
        let bench = managed(1).await;
        let mut service = service(&[(80, 30080)]);
        bench.ensure(&service).await;
        service.spec.type_ = Some("ClusterIP".to_owned());
        if !keep {
            service.metadata.annotations = None;
        }
        bench.delete(&service).await;
        assert_clean(&bench);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_annotation_only_what_our_tags_name_is_removed() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let arn = bench.state().load_balancer(LB).unwrap().arn.clone();
    let keys = BTreeSet::from(["kubernetes.io/cluster/kite".to_owned()]);
    bench
        .lbs
        .observer
        .elb
        .remove_tags(&arn, &keys)
        .await
        .unwrap();
    service.metadata.annotations = None;
    let _ = bench.lbs.delete(&service).await;
    assert!(bench.state().load_balancers.contains_key(&arn));
}

/// CASE-LB-03: the load balancer was never made, but its group and rules may have been.
#[tokio::test(start_paused = true)]
async fn what_was_made_before_a_quota_was_hit_is_used_again_and_removed() {
    let bench = managed(1).await;
    bench
        .sim
        .aws()
        .set_quotas(|quotas| quotas.load_balancers = 0);
    let service = service(&[(7007, 30707)]);
    for _ in 0..2 {
        let error = bench.try_ensure(&service).await.unwrap_err();
        assert_eq!(error.class(), Class::Quota);
        assert!(
            error
                .to_string()
                .starts_with("error creating load balancer: \""),
            "{error}"
        );
        assert!(
            error.to_string().contains("TooManyLoadBalancers"),
            "{error}"
        );
        let groups = bench.state().security_groups;
        assert_eq!(
            groups
                .values()
                .filter(|group| group.name.starts_with("k8s-"))
                .count(),
            1
        );
    }
    assert!(
        bench.lbs.get(&service).await.unwrap().is_some(),
        "the group is left"
    );
    bench.delete(&service).await;
    assert_clean(&bench);
}

/// An account in which an application load balancer has the name.
struct Taken;

macro_rules! unused {
    ($($name:ident($($arg:ty),*) -> $out:ty;)*) => {
        #[async_trait::async_trait]
        impl crate::api::elbv2::Elbv2Api for Taken {
            async fn load_balancer(
                &self,
                name: &str,
            ) -> CloudResult<Option<crate::api::elbv2::LoadBalancer>> {
                Ok(Some(crate::api::elbv2::LoadBalancer {
                    name: name.to_owned(),
                    kind: "application".to_owned(),
                    ..Default::default()
                }))
            }
            $(async fn $name(&self, $(_: $arg),*) -> CloudResult<$out> {
                Err(CloudError::transient("not to be called"))
            })*
        }
    };
}

use crate::api::elbv2 as e;
unused! {
    create_load_balancer(&e::NewLoadBalancer) -> e::LoadBalancer;
    delete_load_balancer(&str) -> ();
    set_security_groups(&str, &BTreeSet<String>) -> ();
    load_balancer_attributes(&str) -> e::Attributes;
    modify_load_balancer_attributes(&str, &e::Attributes) -> ();
    listeners(&str) -> Vec<e::Listener>;
    create_listener(&str, &e::ListenerSpec, &Tags) -> e::Listener;
    modify_listener(&str, &e::ListenerSpec) -> e::Listener;
    delete_listener(&str) -> ();
    target_groups_of(&str) -> Vec<e::TargetGroup>;
    target_group_named(&str) -> Option<e::TargetGroup>;
    all_target_groups() -> Vec<e::TargetGroup>;
    create_target_group(&e::NewTargetGroup) -> e::TargetGroup;
    modify_target_group(&str, &e::HealthChange) -> ();
    delete_target_group(&str) -> ();
    targets(&str) -> BTreeSet<e::Target>;
    register(&str, &[e::Target]) -> ();
    deregister(&str, &[e::Target]) -> ();
    target_group_attributes(&str) -> e::Attributes;
    modify_target_group_attributes(&str, &e::Attributes) -> ();
    resource_tags(&BTreeSet<String>) -> std::collections::BTreeMap<String, Tags>;
    add_tags(&str, &Tags) -> ();
    remove_tags(&str, &BTreeSet<String>) -> ();
}

/// REQ-AWS-NLB-25, REQ-AWS-DEL-14
#[tokio::test(start_paused = true)]
async fn a_load_balancer_of_another_type_is_never_ours() {
    let mut bench = Bench::new(1).await;
    let elb = std::sync::Arc::new(Taken);
    bench.lbs.observer.elb = elb.clone();
    bench.lbs.applier.elb = elb;
    let service: Service = service(&[(80, 30080)]);
    let want = format!("NLB '{LB}' could not be found");
    for error in [
        bench.try_ensure(&service).await.err(),
        bench.lbs.get(&service).await.err(),
        bench.lbs.delete(&service).await.err(),
        bench.lbs.update(&service, &[]).await.err(),
    ] {
        let text = error.unwrap().to_string();
        assert!(text.starts_with(&want), "{text}");
    }
}
