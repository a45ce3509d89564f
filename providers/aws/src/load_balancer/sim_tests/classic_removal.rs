//! Removal of classic load balancers: complete, resumable, and never of what is not ours.

use std::{collections::BTreeSet, time::Duration};

use ccm_cloudsim::control::Fault;
use ccm_core::{
    cloud::{Class, Ensured, LoadBalancers},
    kube::LoadBalancerStatus,
};

use super::{
    bench::{Bench, host, writes},
    classic::{another, clb},
};
use crate::{
    load_balancer::{
        classic_rules::entrance,
        testing::{LB, alb, classic, service, with_status},
    },
    tags::Tags,
};

/// Nothing of the Service's is left.
pub(super) fn assert_clean(bench: &Bench) {
    let state = bench.state();
    assert!(state.load_balancers.is_empty() && state.classic_load_balancers.is_empty());
    assert!(state.target_groups.is_empty(), "{:?}", state.target_groups);
    let groups = state.security_groups.values();
    let ours: Vec<_> = groups
        .filter(|group| group.name.starts_with("k8s-"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
    assert!(bench.node_rules().is_empty(), "{:?}", bench.node_rules());
}

/// REQ-AWS-DEL-5, REQ-AWS-DEL-1, REQ-AWS-SG-16
#[tokio::test(start_paused = true)]
async fn rules_go_then_the_load_balancer_then_its_group() {
    let bench = Bench::new(2).await;
    let service = classic(&[(80, 30080)]);
    assert_eq!(bench.lbs.get(&service).await.unwrap(), None);
    let (answer, calls) = bench.calls(bench.lbs.delete(&service)).await;
    answer.unwrap();
    assert_eq!(writes(&calls), [""; 0]);
    let status = bench.ensure(&service).await;
    assert_eq!(bench.lbs.get(&service).await.unwrap(), Some(status));
    let (answer, calls) = bench.calls(bench.lbs.delete(&service)).await;
    answer.unwrap();
    assert_eq!(
        writes(&calls),
        [
            "RevokeSecurityGroupIngress",
            "DeleteLoadBalancer",
            "DeleteSecurityGroup"
        ]
    );
    assert_clean(&bench);
    assert_eq!(bench.lbs.get(&service).await.unwrap(), None);
}

/// REQ-AWS-DEL-6, REQ-AWS-DEL-5 and CASE-LB-23: an untagged group of the Nodes is opened and shut
/// alike.
#[tokio::test(start_paused = true)]
async fn an_untagged_group_of_the_nodes_is_shut_and_a_group_in_use_waited_for() {
    let bench = Bench::new(1).await;
    let aws = bench.sim.aws();
    let node = &bench.cluster.security_group_id;
    aws.remove_tags(node, &["kubernetes.io/cluster/kite"])
        .unwrap();
    aws.configure(|s| s.eni_release_delay = Duration::from_secs(30));
    let service = classic(&[(80, 30080)]);
    bench.ensure(&service).await;
    assert_eq!(bench.node_rules().len(), 1);
    let start = tokio::time::Instant::now();
    let mut tries = 0;
    while let Err(error) = bench.lbs.delete(&service).await {
        assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
        let text = error.to_string();
        assert!(
            text.starts_with("could not delete security groups [sg-"),
            "{text}"
        );
        let left = bench.lbs.get(&service).await.unwrap();
        assert_eq!(
            left,
            Some(LoadBalancerStatus::default()),
            "the finalizer must stay"
        );
        tries += 1;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert!(tries >= 1 && start.elapsed() < Duration::from_secs(60));
    assert_clean(&bench);
}

/// REQ-AWS-DEL-13, REQ-AWS-DEL-4 and CASE-LB-06, CASE-LB-07
#[tokio::test(start_paused = true)]
async fn leftovers_are_found_by_a_new_process_although_the_load_balancer_is_gone() {
    for again in [false, true] {
        let mut bench = Bench::new(2).await;
        let service = classic(&[(80, 30080)]);
        let neighbour = another("b", 31000);
        bench.ensure(&service).await;
        bench.ensure(&neighbour).await;
        let group = clb(&bench).security_groups;
        let elb = &bench.lbs.classic.observer.elb;
        elb.delete_load_balancer(LB).await.unwrap();
        bench.restart().await;
        if again {
            // The Service lives on: the same group is used again.
            bench.ensure(&service).await;
            assert_eq!(clb(&bench).security_groups, group);
        }
        assert!(bench.lbs.get(&service).await.unwrap().is_some());
        bench.lbs.delete(&service).await.unwrap();
        assert_eq!(bench.lbs.get(&service).await.unwrap(), None);
        assert_eq!(bench.state().classic_load_balancers.len(), 1);
        assert_eq!(bench.node_rules().len(), 1, "the neighbour's");
        bench.delete(&neighbour).await;
        assert_clean(&bench);
    }
}

/// CASE-LB-03: the load balancer was never made, but its group was.
#[tokio::test(start_paused = true)]
async fn what_was_made_before_a_quota_was_hit_is_used_again_and_removed() {
    let bench = Bench::new(1).await;
    let aws = bench.sim.aws();
    aws.set_quotas(|quotas| quotas.classic_load_balancers = 0);
    let service = classic(&[(7007, 30707)]);
    for _ in 0..2 {
        let error = bench.try_ensure(&service).await.unwrap_err();
        assert_eq!(error.class(), Class::Quota);
        assert!(
            error.to_string().contains("TooManyLoadBalancers"),
            "{error}"
        );
        let groups = bench.state().security_groups;
        let ours = groups.values().filter(|g| g.name.starts_with("k8s-elb-"));
        assert_eq!(ours.count(), 1);
        assert!(bench.node_rules().is_empty());
    }
    assert!(
        bench.lbs.get(&service).await.unwrap().is_some(),
        "the group is left"
    );
    bench.delete(&service).await;
    assert_clean(&bench);
}

/// REQ-AWS-DEL-8, REQ-AWS-DEL-9, REQ-AWS-DEL-7, REQ-AWS-SG-32
#[tokio::test(start_paused = true)]
async fn only_groups_that_were_made_for_it_and_are_owned_are_deleted() {
    let bench = Bench::new(1).await;
    let aws = bench.sim.aws();
    let tag =
        |value: &str| Tags::from([("kubernetes.io/cluster/kite".to_owned(), value.to_owned())]);
    let vpc = &bench.cluster.vpc_id;
    let groups: Vec<String> = [
        ("owned", tag("owned")),
        ("shared", tag("shared")),
        ("none", Tags::new()),
    ]
    .map(|(name, tags)| aws.create_security_group(vpc, name, tags).unwrap())
    .to_vec();
    let mut service = classic(&[(80, 30080)]);
    alb(&mut service, "extra-security-groups", &groups.join(","));
    bench.ensure(&service).await;
    // Not annotated any more, and nothing was synced since.
    service.metadata.annotations = None;
    bench.delete(&service).await;
    assert_clean(&bench);
    for id in &groups {
        assert!(bench.state().security_groups.contains_key(id), "{id}");
    }
    // The one of the name, given to others by its tag: kept, and no obstacle.
    bench.ensure(&service).await;
    let own = clb(&bench).security_groups.into_iter().next().unwrap();
    aws.set_tags(&own, &tag("shared")).unwrap();
    bench.delete(&service).await;
    let state = bench.state();
    assert!(state.classic_load_balancers.is_empty());
    assert!(state.security_groups.contains_key(&own));
    assert!(bench.node_rules().is_empty());
}

/// REQ-AWS-DEL-12 and CASE-LB-19: the kind is known by what is there, not by what is annotated now.
#[tokio::test(start_paused = true)]
async fn a_service_under_another_annotation_still_finds_its_load_balancer() {
    for kind in ["nlb", "clb", ""] {
        let mut bench = Bench::new(2).await;
        let mut service = classic(&[(80, 30080)]);
        bench.ensure(&service).await;
        bench.restart().await;
        alb(&mut service, "type", kind);
        service.spec.type_ = Some("ClusterIP".to_owned());
        assert!(bench.lbs.get(&service).await.unwrap().is_some());
        bench.delete(&service).await;
        assert_clean(&bench);
    }
    // One of that name whose tags do not name the Service is not touched then.
    let bench = Bench::new(1).await;
    bench.ensure(&classic(&[(80, 30080)])).await;
    let keys = BTreeSet::from(["kubernetes.io/service-name".to_owned()]);
    let elb = &bench.lbs.classic.observer.elb;
    elb.remove_tags(LB, &keys).await.unwrap();
    let _ = bench.lbs.delete(&service(&[(80, 30080)])).await;
    assert!(bench.state().classic_load_balancers.contains_key(LB));
}

/// The classic API may be out of reach where only network load balancers are used.
#[tokio::test(start_paused = true)]
async fn a_network_load_balancer_needs_no_right_on_classic_ones() {
    let bench = Bench::new(1).await;
    let denied = Fault::error(403, "AccessDenied", "no");
    let faults = bench.sim.faults();
    faults.always("elb:DescribeLoadBalancers", denied).unwrap();
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    bench.delete(&service).await;
    assert_clean(&bench);
}

/// REQ-AWS-DIV-4
#[tokio::test(start_paused = true)]
async fn what_was_made_for_a_service_that_is_anothers_by_now_stays_unless_it_is_to_go() {
    for switch in [false, true] {
        let mut bench = Bench::new(1).await;
        bench.reconfigure(|s| s.delete_released = switch).await;
        let mut service = classic(&[(80, 30080)]);
        alb(&mut service, "internal", "true");
        let status = bench.ensure(&service).await;
        with_status(&mut service, &[host(&status).unwrap()]);
        alb(&mut service, "type", "external");
        bench.restart().await;
        let answer = bench.lbs.ensure(&service, &bench.nodes()).await.unwrap();
        let Ensured::ImplementedElsewhere { notes } = answer else {
            panic!("{answer:?}");
        };
        if switch {
            assert_eq!(notes, vec![]);
            assert_clean(&bench);
        } else {
            assert_eq!(notes[0].reason, "LoadBalancerReleased");
            assert!(bench.state().classic_load_balancers.contains_key(LB));
        }
    }
}

/// A rule that a user made for the load balancer's group means nothing without it. In groups that
/// are not the cluster's it stays, and holds the group.
#[tokio::test(start_paused = true)]
async fn rules_of_users_from_the_managed_group_go_where_the_group_is_the_clusters() {
    let bench = Bench::new(1).await;
    let aws = bench.sim.aws();
    let service = classic(&[(80, 30080)]);
    bench.ensure(&service).await;
    let own = clb(&bench).security_groups.into_iter().next().unwrap();
    let port = crate::api::network::Rule {
        protocol: "tcp".to_owned(),
        from: Some(9100),
        to: Some(9100),
        ..entrance(&own)
    };
    let rules = [(port.clone(), String::new())].into();
    let network = &bench.lbs.observer.network;
    let node = &bench.cluster.security_group_id;
    network.authorize(node, &rules).await.unwrap();
    let foreign = aws
        .create_security_group(&bench.cluster.vpc_id, "foreign", Tags::new())
        .unwrap();
    network.authorize(&foreign, &rules).await.unwrap();
    let error = bench.lbs.delete(&service).await.unwrap_err();
    assert_eq!(error.code(), Some("DependencyViolation"));
    assert!(bench.node_rules().is_empty());
    network
        .revoke(&foreign, &BTreeSet::from([port]))
        .await
        .unwrap();
    bench.delete(&service).await;
    assert_clean(&bench);
}
