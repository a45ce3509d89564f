//! Security groups of classic load balancers, and the Nodes' groups that let them in.

use std::{collections::BTreeSet, time::Duration};

use ccm_cloudsim::{aws::RunInstance, control::Fault};
use ccm_core::cloud::{Class, LoadBalancers};

use super::{
    bench::{Bench, nodes, writes},
    classic::{another, clb},
};
use crate::{
    api::network::{Rule, Rules, Source},
    load_balancer::{
        classic_rules::{entrance, entrances},
        testing::{LB, alb, classic},
    },
    tags::Tags,
};

fn managed(bench: &Bench) -> Option<String> {
    let name = format!("k8s-elb-{LB}");
    bench.state().security_group(&name).map(|g| g.id.clone())
}

fn group(bench: &Bench, name: &str, tags: Tags) -> String {
    let vpc = &bench.cluster.vpc_id;
    bench
        .sim
        .aws()
        .create_security_group(vpc, name, tags)
        .unwrap()
}

fn owned() -> Tags {
    Tags::from([("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())])
}

async fn rules(bench: &Bench, id: &str) -> Rules {
    let ids = BTreeSet::from([id.to_owned()]);
    let which = crate::api::network::Groups::Ids(&ids);
    let found = bench.lbs.observer.network.security_groups(&which).await;
    found.unwrap().remove(0).rules
}

/// The security groups from which the group lets everything in.
async fn sources(bench: &Bench, id: &str) -> BTreeSet<String> {
    let rules = rules(bench, id).await;
    rules
        .keys()
        .filter_map(|rule| match &rule.source {
            Source::Group { id, .. } if entrances(&rules, id).contains(rule) => Some(id.clone()),
            _ => None,
        })
        .collect()
}

async fn allow(bench: &Bench, holder: &str, rule: Rule) {
    let rules = Rules::from([(rule, String::new())]);
    let network = &bench.lbs.observer.network;
    network.authorize(holder, &rules).await.unwrap();
}

fn set(ids: &[&String]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).clone()).collect()
}

/// REQ-AWS-SG-2
#[tokio::test(start_paused = true)]
async fn the_group_of_the_cloud_config_is_used_and_never_touched() {
    let mut bench = Bench::new(2).await;
    let shared = group(&bench, "elb", owned());
    let config = Some(shared.clone());
    bench
        .reconfigure(|s| s.elb_security_group.clone_from(&config))
        .await;
    let service = classic(&[(80, 30080)]);
    let work = async {
        bench.ensure(&service).await;
        assert_eq!(clb(&bench).security_groups, set(&[&shared]));
        assert_eq!(managed(&bench), None);
        let node = &bench.cluster.security_group_id;
        assert_eq!(sources(&bench, node).await, set(&[&shared]));
        bench.delete(&service).await;
        assert!(sources(&bench, node).await.is_empty());
    };
    let ((), calls) = bench.calls(work).await;
    let touched = calls.iter().filter(|call| {
        call.is_write() && call.service == "ec2" && call.params.get("GroupId") == Some(&shared)
    });
    assert_eq!(touched.count(), 0);
    assert!(bench.state().security_groups.contains_key(&shared));
}

/// REQ-AWS-SG-3, REQ-AWS-SG-4, REQ-AWS-DEL-7 and CASE-LB-22
#[tokio::test(start_paused = true)]
async fn the_users_groups_are_sacred_and_shared() {
    for restart in [false, true] {
        let mut bench = Bench::new(2).await;
        let (user, extra) = (
            group(&bench, "user", owned()),
            group(&bench, "x", Tags::new()),
        );
        let own = Rule::port("tcp", 22, "10.0.0.0/8".parse().unwrap());
        allow(&bench, &user, own.clone()).await;
        let start = bench.sim.calls().mark();
        let mut a = classic(&[(80, 30080)]);
        let mut b = another("b", 31000);
        for service in [&mut a, &mut b] {
            alb(service, "security-groups", &user);
        }
        alb(&mut a, "extra-security-groups", &extra);
        bench.ensure(&a).await;
        bench.ensure(&b).await;
        assert_eq!(clb(&bench).security_groups, set(&[&user, &extra]));
        let node = bench.cluster.security_group_id.clone();
        assert_eq!(sources(&bench, &node).await, set(&[&user]));
        if restart {
            bench.restart().await;
        }
        bench.delete(&a).await;
        assert_eq!(sources(&bench, &node).await, set(&[&user]), "b needs it");
        b.spec.ports[0].port = 81;
        bench.ensure(&b).await;
        bench.delete(&b).await;
        assert!(sources(&bench, &node).await.is_empty());
        let state = bench.state();
        assert!(state.security_groups.contains_key(&extra));
        assert!(
            state
                .security_groups
                .values()
                .all(|g| !g.name.starts_with("k8s-elb-"))
        );
        assert!(rules(&bench, &user).await.keys().eq([&own]));
        let touched = bench.sim.calls().calls_since(start);
        let touched = touched.iter().filter(|call| {
            matches!(
                call.action.as_str(),
                "RevokeSecurityGroupIngress" | "DeleteSecurityGroup"
            ) && call.params.values().any(|value| *value == user)
                && call.params.get("GroupId") != Some(&node)
        });
        assert_eq!(touched.count(), 0);
    }
}

/// REQ-AWS-SG-6, REQ-AWS-SG-7 and CASE-LB-04
#[tokio::test(start_paused = true)]
async fn the_managed_group_follows_ports_and_ranges() {
    let bench = Bench::new(1).await;
    let mut service = classic(&[(80, 30080)]);
    bench.ensure(&service).await;
    let ranges = ["10.0.0.0/8", "192.168.0.0/16"].map(str::to_owned);
    service.spec.load_balancer_source_ranges = Some(ranges.to_vec());
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(
        writes(&calls),
        [
            "AuthorizeSecurityGroupIngress",
            "RevokeSecurityGroupIngress"
        ]
    );
    let id = managed(&bench).unwrap();
    let shown: Vec<String> = bench.rules(&id).into_keys().collect();
    assert_eq!(
        shown,
        [
            "icmp 3-4 10.0.0.0/8",
            "icmp 3-4 192.168.0.0/16",
            "tcp 80 10.0.0.0/8",
            "tcp 80 192.168.0.0/16"
        ]
    );
    let many: Vec<String> = (0..70).map(|n| format!("10.0.{n}.0/24")).collect();
    service.spec.load_balancer_source_ranges = Some(many);
    let error = bench.try_ensure(&service).await.unwrap_err();
    assert_eq!(error.class(), Class::Quota);
    let text = error.to_string();
    assert!(
        text.starts_with(&format!(
            "creating ingress rules for security group \"{id}\": error authorizing security group \
             ingress: \""
        )),
        "{text}"
    );
    assert!(
        text.contains("RulesPerSecurityGroupLimitExceeded"),
        "{text}"
    );
    let few: Vec<String> = (0..20).map(|n| format!("10.0.{n}.0/24")).collect();
    service.spec.load_balancer_source_ranges = Some(few);
    bench.ensure(&service).await;
    assert_eq!(bench.rules(&id).len(), 40);
}

/// REQ-AWS-SG-8
#[tokio::test(start_paused = true)]
async fn a_group_that_exists_and_is_not_shown_yet_is_looked_for_again() {
    let bench = Bench::new(1).await;
    let service = classic(&[(80, 30080)]);
    let fault = || Fault::error(400, "InvalidGroup.Duplicate", "exists");
    let faults = bench.sim.faults();
    faults.next("CreateSecurityGroup", 2, fault()).unwrap();
    for _ in 0..2 {
        let error = bench.try_ensure(&service).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    }
    // It is shown now: someone else made it.
    let there = group(&bench, &format!("k8s-elb-{LB}"), owned());
    bench.ensure(&service).await;
    assert_eq!(clb(&bench).security_groups, set(&[&there]));
}

/// REQ-AWS-TAG-13, REQ-AWS-TAG-14, REQ-AWS-TAG-15
#[tokio::test(start_paused = true)]
async fn a_group_of_the_name_is_adopted_unless_it_is_someone_elses() {
    let other = Tags::from([("kubernetes.io/cluster/other".to_owned(), "owned".to_owned())]);
    let shared = Tags::from([("kubernetes.io/cluster/kite".to_owned(), "shared".to_owned())]);
    for (tags, adopted) in [(Tags::new(), true), (other, true), (shared, false)] {
        let bench = Bench::new(1).await;
        let id = group(&bench, &format!("k8s-elb-{LB}"), tags);
        let answer = bench.try_ensure(&classic(&[(80, 30080)])).await;
        if adopted {
            answer.unwrap();
            assert_eq!(clb(&bench).security_groups, set(&[&id]));
            let tags = &bench.state().security_groups[&id].tags;
            assert_eq!(tags["kubernetes.io/cluster/kite"], "owned");
        } else {
            let error = answer.unwrap_err().to_string();
            assert!(
                error.contains("has tag belonging to another cluster"),
                "{error}"
            );
        }
    }
}

/// REQ-AWS-SG-15
#[tokio::test(start_paused = true)]
async fn the_rule_follows_the_nodes_to_other_groups() {
    let bench = Bench::new(1).await;
    let aws = bench.sim.aws();
    let service = classic(&[(80, 30080)]);
    let old = bench.cluster.security_group_id.clone();
    let (next, plain) = (
        group(&bench, "next", owned()),
        group(&bench, "plain", Tags::new()),
    );
    let instance = |group: &String| {
        let wanted = RunInstance {
            subnet: bench.cluster.subnet_ids[0].clone(),
            security_groups: vec![group.clone()],
            tags: owned(),
            ..RunInstance::default()
        };
        nodes(&[aws.run_instance(wanted).unwrap()])
    };
    bench.ensure(&service).await;
    let id = managed(&bench).unwrap();
    let both = [
        "AuthorizeSecurityGroupIngress",
        "RevokeSecurityGroupIngress",
    ];
    for (holder, before, takes) in [
        (&next, &old, true),
        (&plain, &next, true),
        (&old, &plain, false),
    ] {
        let (answer, calls) = bench
            .calls(bench.ensure_on(&service, &instance(holder)))
            .await;
        answer.unwrap();
        let mut rules = writes(&calls);
        rules.retain(|action| action.ends_with("Ingress"));
        assert_eq!(rules, both[..=usize::from(takes)]);
        assert_eq!(sources(&bench, holder).await, set(&[&id]));
        // From an untagged one, which may be anybody's, nothing is taken.
        assert_eq!(sources(&bench, before).await.is_empty(), takes);
    }
    bench.delete(&service).await;
    assert!(
        sources(&bench, &plain).await.is_empty(),
        "its source is gone"
    );
}

/// REQ-AWS-SG-28, REQ-AWS-SG-30, REQ-AWS-SG-31, REQ-AWS-SG-43
#[tokio::test(start_paused = true)]
async fn a_managed_group_is_replaced_without_a_gap_and_deleted_when_it_is_free() {
    let bench = Bench::new(2).await;
    let mut service = classic(&[(80, 30080)]);
    bench.ensure(&service).await;
    bench.ensure(&another("b", 31000)).await;
    let node = bench.cluster.security_group_id.clone();
    allow(&bench, &node, entrance(&node)).await;
    let others = sources(&bench, &node).await;
    let old = managed(&bench).unwrap();
    let byo = group(&bench, "byo", Tags::new());
    alb(&mut service, "security-groups", &byo);
    let fault = || Fault::error(400, "DependencyViolation", "in use");
    let faults = bench.sim.faults();
    faults.next("DeleteSecurityGroup", 2, fault()).unwrap();
    let (answer, calls) = bench.calls(bench.try_ensure(&service)).await;
    assert_eq!(
        writes(&calls),
        [
            "AuthorizeSecurityGroupIngress",
            "ApplySecurityGroupsToLoadBalancer",
            "RevokeSecurityGroupIngress",
            "DeleteSecurityGroup"
        ]
    );
    let error = answer.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
    let text = error.to_string();
    assert!(
        text.starts_with("error removing owned security groups: ["),
        "{text}"
    );
    let mut want = others;
    want.remove(&old);
    want.insert(byo.clone());
    assert_eq!(sources(&bench, &node).await, want);
    assert_eq!(clb(&bench).security_groups, set(&[&byo]));
    bench.try_ensure(&service).await.unwrap_err();
    // Another Service is not kept waiting meanwhile; a new process finds the group by its name.
    bench.ensure(&another("c", 32000)).await;
    let mut bench = bench;
    bench.restart().await;
    bench.ensure(&service).await;
    assert_eq!(managed(&bench), None);
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    // And back.
    service.metadata.annotations = None;
    bench.ensure(&service).await;
    let id = managed(&bench).unwrap();
    assert_eq!(clb(&bench).security_groups, set(&[&id]));
    let now = sources(&bench, &node).await;
    assert!(now.contains(&id) && !now.contains(&byo));
    assert!(bench.state().security_groups.contains_key(&byo));
}

/// REQ-AWS-SG-30: while a Node cannot be opened for it, the load balancer keeps its group.
#[tokio::test(start_paused = true)]
async fn a_group_that_the_nodes_do_not_let_in_is_not_applied() {
    let bench = Bench::new(2).await;
    let mut service = classic(&[(80, 30080)]);
    bench.ensure(&service).await;
    let old = managed(&bench).unwrap();
    let byo = group(&bench, "byo", Tags::new());
    alb(&mut service, "security-groups", &byo);
    let full = Fault::error(400, "RulesPerSecurityGroupLimitExceeded", "full");
    let faults = bench.sim.faults();
    faults
        .next("AuthorizeSecurityGroupIngress", 1, full)
        .unwrap();
    let error = bench.try_ensure(&service).await.unwrap_err();
    assert_eq!(error.class(), Class::Quota);
    assert_eq!(clb(&bench).security_groups, set(&[&old]));
    bench.ensure(&service).await;
    assert_eq!(clb(&bench).security_groups, set(&[&byo]));
    assert_eq!(managed(&bench), None);
}

/// REQ-AWS-SG-29, REQ-AWS-SG-41
#[tokio::test(start_paused = true)]
async fn a_users_group_is_replaced_and_only_our_rule_goes() {
    let bench = Bench::new(2).await;
    let (a, b) = (group(&bench, "a", owned()), group(&bench, "b", owned()));
    let node = bench.cluster.security_group_id.clone();
    let mut service = classic(&[(80, 30080)]);
    alb(&mut service, "security-groups", &a);
    bench.ensure(&service).await;
    let port = Rule {
        protocol: "tcp".to_owned(),
        from: Some(8080),
        to: Some(8080),
        ..entrance(&a)
    };
    allow(&bench, &node, port).await;
    alb(&mut service, "security-groups", &b);
    bench.ensure(&service).await;
    assert_eq!(sources(&bench, &node).await, set(&[&b]));
    let left = rules(&bench, &node).await;
    assert!(left.keys().any(|rule| rule.from == Some(8080)));
    assert!(bench.state().security_groups.contains_key(&a));
}

/// REQ-AWS-SG-42, REQ-AWS-SG-16
#[tokio::test(start_paused = true)]
async fn a_rule_of_an_untagged_group_holds_the_managed_group_until_it_goes() {
    let bench = Bench::new(1).await;
    let mut service = classic(&[(80, 30080)]);
    bench.ensure(&service).await;
    let old = managed(&bench).unwrap();
    let foreign = group(&bench, "foreign", Tags::new());
    allow(&bench, &foreign, entrance(&old)).await;
    let byo = group(&bench, "byo", Tags::new());
    alb(&mut service, "security-groups", &byo);
    let error = bench.try_ensure(&service).await.unwrap_err();
    assert_eq!(error.code(), Some("DependencyViolation"));
    assert_eq!(sources(&bench, &foreign).await, set(&[&old]));
    // After ten minutes that is no trouble of the Service any more.
    tokio::time::advance(Duration::from_secs(601)).await;
    bench.ensure(&service).await;
    assert_eq!(managed(&bench), Some(old));
    // When the load balancer goes for good, so does the rule: its source would be gone.
    bench.delete(&service).await;
    assert!(sources(&bench, &foreign).await.is_empty());
    assert_eq!(managed(&bench), None);
}

/// REQ-AWS-SG-17, REQ-AWS-SG-40
#[tokio::test(start_paused = true)]
async fn groups_of_nodes_are_left_alone_when_the_cloud_config_says_so() {
    let mut bench = Bench::new(2).await;
    bench.reconfigure(|s| s.disable_node_rules = true).await;
    let node = bench.cluster.security_group_id.clone();
    let mut service = classic(&[(80, 30080)]);
    let work = async {
        bench.ensure(&service).await;
        bench
            .lbs
            .update(&service, &nodes(&bench.cluster.instance_ids[..1]))
            .await
            .unwrap();
    };
    let ((), calls) = bench.calls(work).await;
    assert!(
        calls
            .iter()
            .all(|call| call.params.get("GroupId") != Some(&node))
    );
    let old = managed(&bench).unwrap();
    allow(&bench, &node, entrance(&old)).await;
    let byo = group(&bench, "byo", Tags::new());
    alb(&mut service, "security-groups", &byo);
    // The rule is younger than what was read of the groups: found at the second try.
    let error = bench.try_ensure(&service).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
    bench.ensure(&service).await;
    assert_eq!(managed(&bench), None);
    allow(&bench, &node, entrance(&byo)).await;
    bench.delete(&service).await;
    assert_eq!(sources(&bench, &node).await, set(&[&byo]));
}

/// CASE-LB-24: Nodes come and go while calls fail; unchanged rules are never missing.
#[tokio::test(start_paused = true)]
async fn scaling_does_not_disturb_rules() {
    let bench = Bench::new(6).await;
    let mut service = classic(&[(80, 30080)]);
    service.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
    bench.ensure(&service).await;
    let id = managed(&bench).unwrap();
    let (own, node) = (bench.rules(&id), bench.node_rules());
    let all = &bench.cluster.instance_ids;
    for round in 0..6_usize {
        let some = nodes(&all[round % 3..round % 3 + 3]);
        let action = ["DescribeInstances", "DescribeSecurityGroups", "*"][round % 3];
        let fault = Fault::error(500, "InternalError", "no");
        bench.sim.faults().next(action, 3, fault).unwrap();
        tokio::time::advance(Duration::from_secs(3600)).await;
        let mark = bench.sim.calls().mark();
        let _ = bench.lbs.update(&service, &some).await;
        bench.sim.faults().clear_all();
        bench.lbs.update(&service, &some).await.unwrap();
        let calls = bench.sim.calls().calls_since(mark);
        assert!(
            calls
                .iter()
                .all(|call| !call.action.contains("SecurityGroupIngress"))
        );
        assert_eq!((&bench.rules(&id), &bench.node_rules()), (&own, &node));
        assert_eq!(clb(&bench).instances.len(), 3);
    }
}

/// REQ-AWS-SG-43, REQ-AWS-SG-29: also when the load balancer goes before it was cleaned up.
#[tokio::test(start_paused = true)]
async fn the_rule_of_a_former_group_goes_with_the_load_balancer_at_the_latest() {
    for again in [true, false] {
        let bench = Bench::new(1).await;
        let node = bench.cluster.security_group_id.clone();
        let (a, b) = (group(&bench, "a", owned()), group(&bench, "b", owned()));
        let mut service = classic(&[(80, 30080)]);
        alb(&mut service, "security-groups", &a);
        bench.ensure(&service).await;
        alb(&mut service, "security-groups", &b);
        let fault = Fault::error(400, "ValidationError", "no");
        let faults = bench.sim.faults();
        faults.next("RevokeSecurityGroupIngress", 1, fault).unwrap();
        bench.try_ensure(&service).await.unwrap_err();
        assert_eq!(clb(&bench).security_groups, set(&[&b]));
        assert_eq!(sources(&bench, &node).await, set(&[&a, &b]));
        if again {
            bench.ensure(&service).await;
            assert_eq!(sources(&bench, &node).await, set(&[&b]));
        }
        bench.delete(&service).await;
        assert!(sources(&bench, &node).await.is_empty());
    }
}

/// REQ-AWS-SG-30, REQ-AWS-SG-31: wherever a swap is cut off, a new process ends it.
#[tokio::test(start_paused = true)]
async fn a_swap_cut_off_at_any_call_is_continued_to_the_same_end() {
    for fault in [Fault::DropConnection, Fault::commit_then_close()] {
        let mut ended = false;
        for n in 1..40 {
            let mut bench = Bench::new(1).await;
            let mut service = classic(&[(80, 30080)]);
            bench.ensure(&service).await;
            let byo = group(&bench, "byo", Tags::new());
            alb(&mut service, "security-groups", &byo);
            let faults = bench.sim.faults();
            faults.from_nth("*", n, fault.clone()).unwrap();
            let answer = bench.try_ensure(&service).await;
            bench.sim.faults().clear_all();
            bench.restart().await;
            bench.ensure(&service).await;
            assert_eq!(clb(&bench).security_groups, set(&[&byo]), "call {n}");
            assert_eq!(managed(&bench), None, "call {n}");
            let node = &bench.cluster.security_group_id;
            assert_eq!(sources(&bench, node).await, set(&[&byo]), "call {n}");
            if answer.is_ok() {
                ended = true;
                break;
            }
        }
        assert!(ended, "more calls than expected");
    }
}
