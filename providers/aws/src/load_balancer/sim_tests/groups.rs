//! Security groups of the load balancer itself.

use std::{collections::BTreeSet, time::Duration};

use ccm_cloudsim::control::Fault;
use ccm_core::cloud::Class;

use super::bench::{Bench, writes};
use crate::{
    load_balancer::testing::{alb, service},
    tags::Tags,
};

/// The managed group of `shop/web` under `--cluster-name kubernetes`.
fn managed() -> String {
    let name = crate::names::nlb_security_group(
        "kubernetes",
        "shop",
        "web",
        crate::load_balancer::testing::UID,
    );
    assert!(name.starts_with("k8s-shop-web-"));
    name
}

async fn bench() -> Bench {
    Bench::with(2, |s| s.managed_security_groups = true).await
}

fn managed_id(bench: &Bench) -> Option<String> {
    bench
        .state()
        .security_group(&managed())
        .map(|group| group.id.clone())
}

fn users(bench: &Bench, name: &str, tags: Tags) -> String {
    bench
        .sim
        .aws()
        .create_security_group(&bench.cluster.vpc_id, name, tags)
        .unwrap()
}

fn owned() -> Tags {
    Tags::from([("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())])
}

/// REQ-AWS-SG-33, REQ-AWS-SG-6, REQ-AWS-SG-7, REQ-AWS-TAG-16
#[tokio::test(start_paused = true)]
async fn a_managed_group_has_tcp_rules_for_tls_listeners() {
    let bench = bench().await;
    let mut service = service(&[(443, 30443)]);
    alb(
        &mut service,
        "ssl-cert",
        "arn:aws:acm:us-west-2:123456789012:certificate/c",
    );
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert!(calls.iter().all(|call| call.action != "CreateTags"));
    let id = managed_id(&bench).unwrap();
    assert_eq!(bench.attached(), BTreeSet::from([id.clone()]));
    let rules: Vec<String> = bench.rules(&id).into_keys().collect();
    assert_eq!(rules, ["icmp 3-4 0.0.0.0/0", "tcp 443 0.0.0.0/0"]);
    assert_eq!(bench.state().security_groups[&id].tags, owned());
    service.spec.load_balancer_source_ranges =
        Some(vec!["10.0.0.0/8".to_owned(), "192.168.0.0/16".to_owned()]);
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    let own: Vec<&str> = calls
        .iter()
        .filter(|call| call.params.values().any(|value| *value == id))
        .map(|call| call.action.as_str())
        .collect();
    assert_eq!(
        own,
        [
            "AuthorizeSecurityGroupIngress",
            "RevokeSecurityGroupIngress"
        ]
    );
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
}

/// REQ-AWS-SG-36, REQ-AWS-SG-37 and CASE-LB-22
#[tokio::test(start_paused = true)]
async fn the_users_groups_are_attached_and_never_touched() {
    let bench = bench().await;
    let (a, b) = (users(&bench, "a", Tags::new()), users(&bench, "b", owned()));
    let mut service = service(&[(80, 30080)]);
    let plain = service.clone();
    alb(&mut service, "security-groups", &format!("{a}, {b}"));
    let work = async {
        bench.ensure(&service).await;
        assert_eq!(bench.attached(), BTreeSet::from([a.clone(), b.clone()]));
        assert_eq!(managed_id(&bench), None);
        bench.ensure(&plain).await;
        assert_eq!(
            bench.attached(),
            BTreeSet::from([managed_id(&bench).unwrap()])
        );
        bench.ensure(&service).await;
        assert_eq!(
            managed_id(&bench),
            None,
            "the managed one is not needed any more"
        );
        bench.delete(&service).await;
    };
    let ((), calls) = bench.calls(work).await;
    for call in calls
        .iter()
        .filter(|call| call.is_write() && call.service == "ec2")
    {
        assert!(call.params.values().all(|v| *v != a && *v != b), "{call:?}");
    }
    assert!(bench.state().security_groups.contains_key(&a));
    assert!(bench.state().security_groups.contains_key(&b));
}

/// REQ-AWS-SG-34, REQ-AWS-SG-35, REQ-AWS-SG-38
#[tokio::test(start_paused = true)]
async fn the_mode_may_change_while_a_load_balancer_exists() {
    let mut bench = Bench::new(1).await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    bench
        .reconfigure(|s| s.managed_security_groups = true)
        .await;
    bench.ensure(&service).await;
    assert!(bench.attached().is_empty() && managed_id(&bench).is_none());
    bench.delete(&service).await;
    bench.ensure(&service).await;
    let id = managed_id(&bench).unwrap();
    bench
        .reconfigure(|s| s.managed_security_groups = false)
        .await;
    bench.ensure(&service).await;
    assert_eq!(bench.attached(), BTreeSet::from([id]));
    bench.delete(&service).await;
    assert_eq!(managed_id(&bench), None);
}

/// REQ-AWS-SG-40, REQ-AWS-SG-41, REQ-AWS-SG-43
#[tokio::test(start_paused = true)]
async fn a_detached_managed_group_is_cleaned_up_until_it_is_gone() {
    let mut bench = bench().await;
    let service_plain = service(&[(80, 30080)]);
    bench.ensure(&service_plain).await;
    let old = managed_id(&bench).unwrap();
    let byo = users(&bench, "byo", owned());
    let shared = users(&bench, "elb", owned());
    bench
        .reconfigure(|s| {
            s.disable_node_rules = true;
            s.elb_security_group = Some(shared.clone());
        })
        .await;
    // The old group is a source in a group of the cluster.
    let reference = crate::api::network::Rule {
        protocol: "-1".to_owned(),
        from: None,
        to: None,
        source: crate::api::network::Source::Group {
            id: old.clone(),
            account: None,
        },
    };
    let rules = crate::api::network::Rules::from([(reference, String::new())]);
    let network = &bench.lbs.observer.network;
    network
        .authorize(&bench.cluster.security_group_id, &rules)
        .await
        .unwrap();
    bench
        .sim
        .aws()
        .configure(|s| s.eni_release_delay = Duration::from_secs(30));
    let mut service = service_plain;
    alb(&mut service, "security-groups", &byo);
    bench
        .sim
        .faults()
        .next(
            "DeleteSecurityGroup",
            1,
            Fault::error(400, "DependencyViolation", "in use"),
        )
        .unwrap();
    bench.ensure(&service).await;
    assert_eq!(bench.attached(), BTreeSet::from([byo.clone()]));
    assert_eq!(managed_id(&bench), Some(old), "its deletion failed once");
    assert!(!bench.node_rules().keys().any(|rule| rule.starts_with("-1")));
    tokio::time::advance(Duration::from_secs(60)).await;
    bench.restart().await;
    bench.ensure(&service).await;
    assert_eq!(managed_id(&bench), None);
    for kept in [byo, shared] {
        assert!(bench.state().security_groups.contains_key(&kept));
    }
}

/// REQ-AWS-NAME-11
#[tokio::test(start_paused = true)]
async fn another_cluster_name_keeps_the_attached_group() {
    let mut bench = bench().await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let before = bench.state();
    bench
        .reconfigure(|s| s.cluster_name = "renamed".to_owned())
        .await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    assert_eq!(bench.state(), before);
    bench.delete(&service).await;
    assert_eq!(managed_id(&bench), None);
}

/// REQ-AWS-TAG-13, REQ-AWS-TAG-14, REQ-AWS-TAG-22
#[tokio::test(start_paused = true)]
async fn a_group_of_the_computed_name_is_adopted_unless_it_is_someone_elses() {
    for (tags, adopted) in [
        (Tags::new(), true),
        (owned(), true),
        (
            Tags::from([("kubernetes.io/cluster/kite".to_owned(), "shared".to_owned())]),
            false,
        ),
    ] {
        let bench = bench().await;
        let id = users(&bench, &managed(), tags.clone());
        let mut service = service(&[(80, 30080)]);
        alb(&mut service, "additional-resource-tags", "a=b");
        let (answer, calls) = bench.calls(bench.try_ensure(&service)).await;
        let tagged = calls
            .iter()
            .filter(|call| call.action == "CreateTags")
            .count();
        if adopted {
            answer.unwrap();
            assert_eq!(bench.state().security_groups[&id].tags, owned());
            assert_eq!(bench.attached(), BTreeSet::from([id]));
            assert_eq!(tagged, usize::from(tags.is_empty()));
        } else {
            let error = answer.unwrap_err();
            assert_eq!(error.class(), Class::Conflict);
            assert!(
                error
                    .to_string()
                    .contains("has tag belonging to another cluster"),
                "{error}"
            );
            assert_eq!(writes(&calls), [""; 0]);
        }
    }
}

/// REQ-AWS-TAG-20
#[tokio::test(start_paused = true)]
async fn a_found_group_that_is_not_visible_yet_is_tagged_by_a_later_pass() {
    let bench = bench().await;
    let id = users(&bench, &managed(), Tags::new());
    let service = service(&[(80, 30080)]);
    let unseen = || Fault::error(400, "InvalidGroup.NotFound", "not yet");
    let faults = bench.sim.faults();
    faults.next("CreateTags", 9, unseen()).unwrap();
    for wait in (0..8)
        .map(|n| Some(Duration::from_secs(1 << n)))
        .chain([None])
    {
        let start = tokio::time::Instant::now();
        let error = bench.try_ensure(&service).await.unwrap_err();
        assert_eq!(error.retry_after(), wait);
        assert_eq!(error.code(), Some("InvalidGroup.NotFound"));
        assert!(start.elapsed() < Duration::from_secs(1), "no worker waits");
        tokio::time::advance(wait.unwrap_or_default()).await;
    }
    faults
        .next(
            "CreateTags",
            1,
            Fault::error(403, "UnauthorizedOperation", "no"),
        )
        .unwrap();
    let error = bench.try_ensure(&service).await.unwrap_err();
    assert_eq!(error.retry_after(), None, "another error");
    bench.ensure(&service).await;
    assert_eq!(bench.state().security_groups[&id].tags, owned());
    assert_eq!(bench.attached(), BTreeSet::from([id]));
}
