//! Rules in the Nodes' security groups.

use std::collections::BTreeMap;

use ccm_cloudsim::{aws::RunInstance, control::Fault};
use ccm_core::{cloud::Class, kube::Service};

use super::bench::{Bench, nodes, other_service, writes};
use crate::{
    config::{HealthProbe, HealthProbeMode},
    load_balancer::testing::{LB, service},
    tags::Tags,
};

fn narrow(mut service: Service) -> Service {
    service.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
    service
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(rule, text)| ((*rule).to_owned(), (*text).to_owned()))
        .collect()
}

fn shared() -> HealthProbe {
    HealthProbe {
        mode: HealthProbeMode::Shared,
        port: 10256,
        path: "/healthz".to_owned(),
    }
}

const HEALTH_RULE: &str = "tcp 10256 10.20.0.0/20";

/// REQ-AWS-SG-18, REQ-AWS-SG-22, REQ-AWS-SG-23, REQ-AWS-SG-24
#[tokio::test(start_paused = true)]
async fn rules_follow_the_sources_and_go_with_the_load_balancer() {
    let bench = Bench::new(3).await;
    let client = format!("kubernetes.io/rule/nlb/client={LB}");
    let health = format!("kubernetes.io/rule/nlb/health={LB}");
    let mtu = "kubernetes.io/rule/nlb/mtu";
    let open = texts(&[
        ("tcp 30080 0.0.0.0/0", &client),
        ("icmp 3-4 0.0.0.0/0", mtu),
    ]);
    let closed = texts(&[
        ("tcp 30080 10.0.0.0/8", &client),
        ("tcp 30080 10.20.0.0/20", &health),
        ("tcp 30080 10.20.16.0/20", &health),
        ("tcp 30080 10.20.32.0/20", &health),
        ("icmp 3-4 10.0.0.0/8", mtu),
    ]);
    let wide = service(&[(80, 30080)]);
    for (service, want) in [
        (wide.clone(), &open),
        (narrow(wide.clone()), &closed),
        (wide.clone(), &open),
    ] {
        let (_, calls) = bench.calls(bench.ensure(&service)).await;
        assert_eq!(bench.node_rules(), *want);
        let order: Vec<&str> = writes(&calls)
            .into_iter()
            .filter(|action| action.ends_with("Ingress"))
            .collect();
        let grant_first = [
            "AuthorizeSecurityGroupIngress",
            "RevokeSecurityGroupIngress",
        ]
        .starts_with(&order);
        assert!(grant_first, "{order:?}");
    }
    bench.delete(&wide).await;
    assert!(bench.node_rules().is_empty());
}

/// REQ-AWS-SG-17
#[tokio::test(start_paused = true)]
async fn node_rules_can_be_switched_off() {
    let bench = Bench::with(2, |s| s.disable_node_rules = true).await;
    let service = service(&[(80, 30080)]);
    let work = async {
        bench.ensure(&service).await;
        bench
            .ensure_on(&service, &nodes(&bench.cluster.instance_ids[..1]))
            .await
            .unwrap();
        bench.delete(&service).await;
    };
    let ((), calls) = bench.calls(work).await;
    assert!(calls.iter().all(|call| !call.action.ends_with("Ingress")));
}

/// REQ-AWS-SG-25: the manager knows the second load balancer.
#[tokio::test(start_paused = true)]
async fn a_shared_health_rule_stays_for_the_second_load_balancer() {
    let bench = Bench::with(2, |s| s.health_probe = shared()).await;
    let (first, second) = (service(&[(80, 30080)]), other_service("second", 30081));
    bench.ensure(&first).await;
    bench.ensure(&second).await;
    assert!(bench.node_rules()[HEALTH_RULE].ends_with(LB));
    bench.delete(&first).await;
    let rules = bench.node_rules();
    assert!(
        rules[HEALTH_RULE].contains("=a00030081"),
        "handed over: {rules:?}"
    );
    assert!(!rules.contains_key("tcp 30080 0.0.0.0/0"));
    assert!(rules.contains_key("icmp 3-4 0.0.0.0/0"));
    let (_, calls) = bench.calls(bench.ensure(&second)).await;
    assert_eq!(writes(&calls), [""; 0]);
    bench.delete(&second).await;
    assert!(bench.node_rules().is_empty());
}

/// REQ-AWS-SG-25: the manager was restarted, or may not change descriptions.
#[tokio::test(start_paused = true)]
async fn a_shared_health_rule_stays_while_not_everything_is_known() {
    for restart in [true, false] {
        let mut bench = Bench::with(2, |s| s.health_probe = shared()).await;
        let (first, second) = (service(&[(80, 30080)]), other_service("second", 30081));
        bench.ensure(&first).await;
        bench.ensure(&second).await;
        if restart {
            bench.restart().await;
        } else {
            let fault = Fault::unauthorized_operation();
            let action = "UpdateSecurityGroupRuleDescriptionsIngress";
            bench.sim.faults().always(action, fault).unwrap();
        }
        bench.delete(&first).await;
        assert!(bench.node_rules().contains_key(HEALTH_RULE));
        assert!(!bench.node_rules().contains_key("tcp 30080 0.0.0.0/0"));
        bench.ensure(&second).await;
        assert!(bench.node_rules().contains_key(HEALTH_RULE));
        bench.delete(&second).await;
        assert!(
            bench.node_rules().is_empty(),
            "restart {restart}: {:?}",
            bench.node_rules()
        );
    }
}

/// REQ-AWS-SG-26, REQ-AWS-SG-13: also when the Node is gone by then and the manager was restarted.
#[tokio::test(start_paused = true)]
async fn a_single_untagged_group_is_opened_and_closed() {
    let mut bench = Bench::new(1).await;
    let aws = bench.sim.aws();
    let group = aws
        .create_security_group(&bench.cluster.vpc_id, "plain", Tags::new())
        .unwrap();
    let instance = aws
        .run_instance(RunInstance {
            subnet: bench.cluster.subnet_ids[0].clone(),
            security_groups: vec![group.clone()],
            tags: Tags::from([("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())]),
            ..RunInstance::default()
        })
        .unwrap();
    let service = service(&[(80, 30080)]);
    bench
        .ensure_on(&service, &nodes(&[instance]))
        .await
        .unwrap();
    assert_eq!(bench.rules(&group).len(), 2);
    assert!(
        bench.node_rules().is_empty(),
        "not the group of another Node"
    );
    bench.restart().await;
    bench.delete(&service).await;
    assert!(bench.rules(&group).is_empty());
}

/// REQ-AWS-SG-27
#[tokio::test(start_paused = true)]
async fn rules_that_are_there_or_gone_already_count_as_done() {
    let bench = Bench::new(1).await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    // Someone else was quicker: one rule of the call is there, then one is gone.
    let elsewhere = &bench.lbs.observer.network;
    let group = &bench.cluster.security_group_id;
    let rule = crate::api::network::Rule::port("tcp", 30080, "10.0.0.0/8".parse().unwrap());
    let rules = crate::api::network::Rules::from([(rule, "by hand".to_owned())]);
    elsewhere.authorize(group, &rules).await.unwrap();
    bench.ensure(&narrow(service.clone())).await;
    assert_eq!(bench.node_rules().len(), 5);
    let gone = rules.into_keys().collect();
    elsewhere.revoke(group, &gone).await.unwrap();
    bench.ensure(&service).await;
    assert_eq!(bench.node_rules().len(), 2);
}

/// REQ-AWS-SG-39
#[tokio::test(start_paused = true)]
async fn a_full_group_does_not_stop_the_others() {
    let bench = Bench::new(1).await;
    let aws = bench.sim.aws();
    let owned = Tags::from([("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())]);
    let full = aws
        .create_security_group(&bench.cluster.vpc_id, "full", owned.clone())
        .unwrap();
    let instance = aws
        .run_instance(RunInstance {
            subnet: bench.cluster.subnet_ids[0].clone(),
            security_groups: vec![full.clone()],
            tags: owned,
            ..RunInstance::default()
        })
        .unwrap();
    let rule = crate::api::network::Rule::port("tcp", 22, "10.0.0.0/8".parse().unwrap());
    let rules = crate::api::network::Rules::from([(rule, String::new())]);
    bench
        .lbs
        .observer
        .network
        .authorize(&full, &rules)
        .await
        .unwrap();
    aws.set_quotas(|quotas| quotas.rules_per_security_group = 2);
    let both = nodes(&[instance, bench.cluster.instance_ids[0].clone()]);
    let error = bench
        .ensure_on(&service(&[(80, 30080)]), &both)
        .await
        .unwrap_err();
    assert_eq!(error.class(), Class::Quota);
    let text = error.to_string();
    assert!(
        text.starts_with("error authorizing security group ingress: \""),
        "{text}"
    );
    assert!(
        text.contains("RulesPerSecurityGroupLimitExceeded"),
        "{text}"
    );
    assert_eq!(bench.node_rules().len(), 2);
    bench.ensure(&other_service("second", 30080)).await;
}
