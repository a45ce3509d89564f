//! Security groups: those of the Nodes, those of load balancers, and those of other people.

use std::{collections::BTreeSet, time::Duration};

use ccm_cloudsim::{Fault, aws::Tags};
use ccm_e2e_tests::{Bench, service};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    setup::{
        annotated, ec2, join, leave, published, quiet, ready, ready_with_config, told_times,
        warnings, with_spec,
    },
    view::{View, Watch, lb_name, rules, rules_in, same, targets_are},
};

/// A bench whose manager makes a security group for each load balancer.
async fn managing(machines: usize) -> Bench {
    ready_with_config(machines, "NLBSecurityGroupMode = Managed").await
}

/// REQ-AWS-SG-33: the load balancer's own group is made with it and goes with it.
#[tokio::test]
async fn a_managed_group_lets_clients_in_and_goes_with_its_load_balancer() {
    let bench = managing(1).await;
    let before = bench.cloud.sim.aws().snapshot().security_groups.len();
    let web = annotated(
        service("web", &[(80, 30080), (443, 30443)]),
        &[
            (
                "ssl-cert",
                "arn:aws:acm:us-west-2:123456789012:certificate/kite",
            ),
            ("ssl-ports", "443"),
        ],
    );
    let ranges = json!({ "loadBalancerSourceRanges": ["10.0.0.0/8"] });
    let web = published(&bench, &with_spec(&web, ranges)).await;
    let state = bench.cloud.sim.aws().snapshot();
    let attached = View::now(&bench, &web).lb.security_groups.unwrap();
    assert_eq!(attached.len(), 1);
    let group = &state.security_groups[attached.first().unwrap()];
    assert!(group.name.starts_with("k8s-shop-web-"), "{}", group.name);
    assert_eq!(
        group.description,
        "[k8s] Managed SecurityGroup for LoadBalancer"
    );
    assert_eq!(group.tags["kubernetes.io/cluster/kite"], "owned");
    let want =
        ["icmp 3..4", "tcp 80..80", "tcp 443..443"].map(|rule| format!("{rule} 10.0.0.0/8 "));
    assert_eq!(rules_in(&state, &group.id), want.into());
    quiet(&bench, Duration::from_secs(1)).await;
    bench.delete_service("web").await.unwrap();
    bench.nothing_left().unwrap();
    assert_eq!(
        bench.cloud.sim.aws().snapshot().security_groups.len(),
        before
    );
}

/// CASE-LB-22, REQ-AWS-SG-36, REQ-AWS-DEL-7: a group that the user chose is attached, and nothing
/// else ever happens to it.
#[tokio::test]
async fn the_security_groups_of_a_user_are_sacred() {
    let bench = managing(1).await;
    let vpc = &bench.cloud.cluster.vpc_id;
    let aws = bench.cloud.sim.aws();
    let users = aws
        .create_security_group(vpc, "sg-user1", Tags::new())
        .unwrap();
    for port in ["80", "443", "8443"] {
        let rule = [
            ("GroupId", users.as_str()),
            ("IpPermissions.1.IpProtocol", "tcp"),
            ("IpPermissions.1.FromPort", port),
            ("IpPermissions.1.ToPort", port),
            ("IpPermissions.1.IpRanges.1.CidrIp", "10.0.0.0/8"),
        ];
        ec2(&bench, "AuthorizeSecurityGroupIngress", &rule).await;
    }
    let before = aws.snapshot().security_groups[&users].clone();
    let groups = aws.snapshot().security_groups.len();
    let mark = bench.cloud.sim.calls().mark();
    for (name, port) in [("a", 30080), ("b", 30090)] {
        let web = annotated(service(name, &[(80, port)]), &[("security-groups", &users)]);
        let web = published(&bench, &web).await;
        let attached = View::now(&bench, &web).lb.security_groups;
        assert_eq!(attached, Some(BTreeSet::from([users.clone()])));
    }
    bench.delete_service("a").await.unwrap();
    let ports = json!({ "spec": { "ports": [{ "name": "p", "port": 81, "nodePort": 30091 }] } });
    let b = bench.patch_service("b", ports).await.unwrap();
    told_times(&bench, "b", "EnsuredLoadBalancer", 2).await;
    let open = format!("kubernetes.io/rule/nlb/client={}", lb_name(&b));
    assert!(rules(&bench).iter().any(|rule| rule.ends_with(&open)));
    bench.delete_service("b").await.unwrap();
    assert_eq!(rules(&bench), BTreeSet::new());
    let state = aws.snapshot();
    assert_eq!(state.security_groups[&users], before);
    assert_eq!(state.security_groups.len(), groups);
    for call in bench.cloud.sim.calls().writes_since(mark) {
        let of_group = call.action.contains("SecurityGroup") && call.service == "ec2";
        assert!(
            !of_group || !call.params.values().any(|value| *value == users),
            "{call:?}"
        );
    }
}

/// CASE-LB-23 for network load balancers, REQ-AWS-SG-26: the only group of a Node
/// needs no tag, neither on the way in nor on the way out, also over a restart.
#[tokio::test]
async fn rules_in_an_untagged_group_of_nodes_are_added_and_removed() {
    let mut bench = Bench::new(2).await.unwrap();
    let group = bench.cloud.cluster.security_group_id.clone();
    let aws = bench.cloud.sim.aws();
    aws.remove_tags(&group, &["kubernetes.io/cluster/kite"])
        .unwrap();
    let names = bench.join_all().await.unwrap();
    bench.start_manager(&[]).await.unwrap();
    for name in names {
        bench.initialised(&name).await;
    }
    published(&bench, &service("web", &[(80, 30080)])).await;
    assert_eq!(rules(&bench).len(), 2);
    bench.kill_manager().await.unwrap();
    bench.start_manager(&[]).await.unwrap();
    bench.delete_service("web").await.unwrap();
    bench.nothing_left().unwrap();
    assert_eq!(warnings(&bench, "web").await, []);
}

/// CASE-LB-24: Nodes come and go while reads fail now and then; no rule is ever missing.
#[tokio::test]
async fn scaling_nodes_does_not_disturb_the_rules() {
    let bench = ready(3).await;
    let ranges = json!({ "loadBalancerSourceRanges": ["10.0.0.0/8", "192.168.0.0/16"] });
    let mut services = Vec::new();
    for n in 0..3 {
        let web = service(&format!("web-{n}"), &[(80, 30080 + n)]);
        services.push(published(&bench, &with_spec(&web, ranges.clone())).await);
    }
    let (want, group) = (rules(&bench), bench.cloud.cluster.security_group_id.clone());
    let steady = want.clone();
    let watch = Watch::start(&bench.cloud.sim, move |state| {
        same(&rules_in(state, &group), &steady)
    });
    let faults = bench.cloud.sim.faults();
    let mut current = bench.machines().to_vec();
    for round in 0..3 {
        for action in [
            "DescribeInstances",
            "DescribeTargetHealth",
            "RegisterTargets",
        ] {
            faults
                .nth(action, 2 + round, Fault::internal_error())
                .unwrap();
        }
        for _ in 0..3 {
            current.push(join(&bench).await.0);
        }
        leave(&bench, &current.remove(0)).await;
        for web in &services {
            targets_are(&bench, web, &current).await;
        }
    }
    watch.end().await;
    assert_eq!(rules(&bench), want);
    for web in &services {
        bench.delete_service(&web.name_any()).await.unwrap();
    }
    bench.nothing_left().unwrap();
}
