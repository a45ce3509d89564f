//! What a pass makes, keeps and changes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_cloudsim::control::Fault;
use ccm_core::{
    cloud::{Class, Ensured, LoadBalancers, Updated},
    kube::LoadBalancerStatus,
};

use super::bench::{Bench, host, nodes, other_service, writes};
use crate::load_balancer::{
    memory::FULL_VERIFICATION,
    testing::{LB, alb, annotate, service, with_status},
};

/// REQ-AWS-NLB-1, REQ-AWS-NLB-2, REQ-AWS-NLB-24, REQ-AWS-TAG-11
#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_made_in_order_with_tags_and_host_name() {
    let bench = Bench::new(3).await;
    let mut service = service(&[(80, 30080)]);
    alb(
        &mut service,
        "additional-resource-tags",
        "Key1=Val1, Key2=Val2",
    );
    let (status, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(
        writes(&calls),
        [
            "CreateLoadBalancer",
            "CreateTargetGroup",
            "RegisterTargets",
            "AuthorizeSecurityGroupIngress",
            "CreateListener"
        ]
    );
    let create = calls
        .iter()
        .find(|call| call.action == "CreateLoadBalancer")
        .unwrap();
    assert!(
        create.params.keys().all(|key| key != "Scheme"),
        "{:?}",
        create.params
    );
    let state = bench.state();
    let lb = state.load_balancer(LB).unwrap();
    assert_eq!(host(&status), Some(lb.dns_name.as_str()));
    assert_eq!(lb.subnets.len(), 3);
    let tags: Vec<String> = lb.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        tags,
        [
            "Key1=Val1",
            "Key2=Val2",
            "kubernetes.io/cluster/kite=owned",
            "kubernetes.io/service-name=shop/web"
        ]
    );
    assert!(
        state
            .target_groups
            .values()
            .all(|group| group.tags == lb.tags)
    );
    assert!(
        state
            .listeners
            .values()
            .all(|listener| listener.tags == lb.tags)
    );
    let want: BTreeSet<String> = bench.cluster.instance_ids.iter().cloned().collect();
    assert_eq!(bench.targets(80), want);
    tokio::time::advance(Duration::from_secs(300)).await;
    assert_eq!(
        bench.ensure(&service).await,
        status,
        "active as well as provisioning"
    );
}

/// REQ-AWS-NLB-2
#[tokio::test(start_paused = true)]
async fn an_internal_load_balancer_says_so() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    alb(&mut service, "internal", "true");
    bench.ensure(&service).await;
    assert_eq!(bench.state().load_balancer(LB).unwrap().scheme, "internal");
}

/// REQ-AWS-NLB-28: three reads and no write when nothing changed.
#[tokio::test(start_paused = true)]
async fn an_unchanged_service_costs_three_reads() {
    let bench = Bench::new(3).await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    let actions: BTreeSet<&str> = calls.iter().map(|call| call.action.as_str()).collect();
    assert_eq!(calls.len(), 3, "{actions:?}");
    assert_eq!(writes(&calls), [""; 0]);
}

/// REQ-AWS-NLB-29, REQ-AWS-NLB-15, REQ-AWS-NLB-7, REQ-AWS-NLB-20
#[tokio::test(start_paused = true)]
async fn a_restarted_manager_writes_nothing() {
    let mut bench = Bench::with(3, |s| s.managed_security_groups = true).await;
    let mut service = service(&[(80, 30080), (443, 30443)]);
    alb(&mut service, "healthcheck-protocol", "http");
    alb(
        &mut service,
        "ssl-cert",
        "arn:aws:acm:us-west-2:123456789012:certificate/c",
    );
    alb(&mut service, "ssl-ports", "443");
    alb(&mut service, "cross-zone-load-balancing-enabled", "true");
    alb(
        &mut service,
        "target-group-attributes",
        "preserve_client_ip.enabled=true",
    );
    bench.ensure(&service).await;
    let before = bench.state();
    bench.restart().await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    assert_eq!(bench.state(), before);
}

/// REQ-AWS-VAL-18
#[tokio::test(start_paused = true)]
async fn what_preflight_refuses_costs_no_call() {
    let bench = Bench::new(1).await;
    let no_ports = service(&[]);
    let no_node_port = service(&[(80, 30080), (81, 0)]);
    for service in [no_ports, no_node_port] {
        let (answer, calls) = bench.calls(bench.try_ensure(&service)).await;
        assert_eq!(answer.unwrap_err().class(), Class::Invalid);
        assert!(calls.is_empty());
    }
}

/// REQ-AWS-DIV-2
#[tokio::test(start_paused = true)]
async fn services_of_other_controllers_cost_no_call() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    for value in ["external", "nlb-ip"] {
        alb(&mut service, "type", value);
        let work = async {
            let lbs = &bench.lbs;
            let nodes = bench.nodes();
            assert_eq!(
                lbs.ensure(&service, &nodes).await.unwrap(),
                Ensured::ImplementedElsewhere { notes: vec![] }
            );
            assert_eq!(
                lbs.update(&service, &nodes).await.unwrap(),
                Updated::ImplementedElsewhere { notes: vec![] }
            );
            assert_eq!(lbs.get(&service).await.unwrap(), None);
            lbs.delete(&service).await.unwrap();
        };
        let ((), calls) = bench.calls(work).await;
        assert!(calls.is_empty());
    }
}

/// REQ-AWS-SUB-23
#[tokio::test(start_paused = true)]
async fn fifty_services_read_the_network_once() {
    let bench = Bench::new(3).await;
    bench
        .sim
        .aws()
        .set_quotas(|quotas| quotas.rules_per_security_group = 1_000);
    let services: Vec<_> = (0..50)
        .map(|n| other_service(&format!("s{n}"), 31000 + n))
        .collect();
    let passes = services.iter().map(|service| bench.try_ensure(service));
    let (answers, calls) = bench.calls(futures::future::join_all(passes)).await;
    assert!(answers.iter().all(Result::is_ok));
    for action in [
        "DescribeSubnets",
        "DescribeRouteTables",
        "DescribeAvailabilityZones",
    ] {
        assert_eq!(
            calls.iter().filter(|call| call.action == action).count(),
            1,
            "{action}"
        );
    }
    let groups = calls
        .iter()
        .filter(|call| call.action == "DescribeSecurityGroups")
        .count();
    assert_eq!(groups, 1);
    assert_eq!(bench.state().load_balancers.len(), 50);
}

/// REQ-AWS-SUB-22 and CASE-LB-26
#[tokio::test(start_paused = true)]
async fn a_new_subnet_changes_nothing_of_an_existing_load_balancer() {
    let bench = Bench::new(3).await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let before = bench.state().load_balancers;
    let own = &bench.state().subnets[&bench.cluster.subnet_ids[0]];
    let added = bench
        .sim
        .aws()
        .create_subnet(
            &bench.cluster.vpc_id,
            "10.20.48.0/20",
            &own.zone,
            own.tags.clone(),
        )
        .unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    assert_eq!(bench.state().load_balancers, before);

    // A new load balancer is placed by what is there now, without a restart: the role tag decides.
    let role = ["kubernetes.io/role/elb"];
    bench.sim.aws().remove_tags(&own.id, &role).unwrap();
    tokio::time::advance(Duration::from_secs(61)).await;
    bench.ensure(&other_service("late", 31000)).await;
    let state = bench.state();
    let late = state.load_balancers.values().find(|lb| lb.name != LB);
    let ids: BTreeSet<&str> = late
        .unwrap()
        .subnets
        .iter()
        .map(|subnet| subnet.subnet_id.as_str())
        .collect();
    assert!(ids.contains(added.as_str()) && !ids.contains(own.id.as_str()));
}

/// CASE-LB-28: only then does a label change of a Node make its backends be compared.
#[tokio::test(start_paused = true)]
async fn node_labels_matter_to_services_that_choose_by_them() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    assert!(!bench.lbs.node_labels_matter(&service));
    alb(&mut service, "target-node-labels", "pool=edge");
    assert!(bench.lbs.node_labels_matter(&service));
}

/// REQ-AWS-NLB-3
#[tokio::test(start_paused = true)]
async fn too_few_addresses_are_refused_before_anything_is_made() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    alb(&mut service, "eip-allocations", "eipalloc-1,eipalloc-2");
    let (answer, calls) = bench.calls(bench.try_ensure(&service)).await;
    assert_eq!(
        answer.unwrap_err().to_string(),
        "error creating load balancer: Must have same number of EIP AllocationIDs (2) and \
         SubnetIDs (3)"
    );
    assert_eq!(writes(&calls), [""; 0]);
}

/// REQ-AWS-NODE-7
#[tokio::test(start_paused = true)]
async fn an_instance_that_is_not_running_is_no_target() {
    let bench = Bench::new(3).await;
    let stopped = &bench.cluster.instance_ids[1];
    bench.sim.aws().stop(stopped).unwrap();
    bench.ensure(&service(&[(80, 30080)])).await;
    let targets = bench.targets(80);
    assert_eq!(targets.len(), 2);
    assert!(!targets.contains(stopped));
}

/// REQ-AWS-ID-14
#[tokio::test(start_paused = true)]
async fn a_node_with_a_bad_provider_id_does_not_keep_out_the_others() {
    let bench = Bench::new(3).await;
    let mut some = bench.nodes();
    for (index, id) in [
        (0, Some("aws:///us-west-2a/vol-12345678")),
        (1, Some("gce://project/zone/name")),
        (2, None),
    ] {
        let mut bad = (*some[index]).clone();
        bad.metadata.name = Some(format!("bad-{index}"));
        bad.spec.provider_id = id.map(str::to_owned);
        some.push(Arc::new(bad));
    }
    let service = service(&[(80, 30080)]);
    bench.ensure_on(&service, &some).await.unwrap();
    let all = bench.cluster.instance_ids.iter().cloned().collect();
    assert_eq!(bench.targets(80), all);
}

/// REQ-AWS-NODE-8
#[tokio::test(start_paused = true)]
async fn an_instance_that_aws_refuses_does_not_keep_out_the_others() {
    let bench = Bench::new(3).await;
    bench.ensure(&service(&[(80, 30080)])).await;
    // The manager still believes that it runs.
    let stopped = &bench.cluster.instance_ids[1];
    bench.sim.aws().stop(stopped).unwrap();
    let second = service(&[(80, 30080), (81, 30081)]);
    let (_, notes) = bench.try_ensure(&second).await.unwrap();
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].reason, "TargetsNotRegistered");
    assert!(
        notes[0].message.contains(stopped.as_str()),
        "{}",
        notes[0].message
    );
    assert_eq!(bench.targets(81).len(), 2);
    // Now it knows: what is registered stays, and nothing is registered that does not run.
    let (_, calls) = bench.calls(bench.ensure(&second)).await;
    assert_eq!(writes(&calls), [""; 0]);
    assert_eq!(bench.targets(80).len(), 3);
    assert_eq!(bench.targets(81).len(), 2);
}

/// REQ-AWS-NODE-14, REQ-AWS-NODE-11
#[tokio::test(start_paused = true)]
async fn nodes_leave_and_come_back_while_they_are_still_draining() {
    let bench = Bench::new(3).await;
    let service = service(&[(80, 30080)]);
    for (count, reads) in [(3, None), (2, Some(1)), (3, Some(1))] {
        let some = nodes(&bench.cluster.instance_ids[..count]);
        let (answer, calls) = bench.calls(bench.ensure_on(&service, &some)).await;
        answer.unwrap();
        assert_eq!(bench.targets(80).len(), count);
        let health = calls
            .iter()
            .filter(|call| call.action == "DescribeTargetHealth")
            .count();
        assert!(reads.is_none_or(|reads| reads == health));
    }
}

/// CASE-LB-27: 510 wanted where 500 are allowed.
#[tokio::test(start_paused = true)]
async fn a_target_group_takes_what_it_can_and_the_choice_is_stable() {
    let bench = Bench::new(51).await;
    bench
        .sim
        .aws()
        .set_quotas(|quotas| quotas.targets_per_target_group = 50);
    let service = service(&[(80, 30080)]);
    let (_, notes) = bench.try_ensure(&service).await.unwrap();
    assert_eq!(notes[0].reason, "TooManyTargets");
    let chosen = bench.targets(80);
    assert_eq!(chosen.len(), 50);
    let ((_, notes), calls) = bench
        .calls(async { bench.try_ensure(&service).await.unwrap() })
        .await;
    assert_eq!(notes.len(), 1, "the user is told as long as it is so");
    assert_eq!(writes(&calls), [""; 0]);
    assert_eq!(calls.len(), 3);
    assert_eq!(bench.targets(80), chosen);
    // The limit is exactly reached: swapping works, because the old one leaves first.
    let rest: Vec<String> = bench
        .cluster
        .instance_ids
        .iter()
        .filter(|id| **id != *chosen.first().unwrap())
        .cloned()
        .collect();
    let (_, notes) = bench.ensure_on(&service, &nodes(&rest)).await.unwrap();
    assert_eq!(bench.targets(80), rest.into_iter().collect());
    assert_eq!(notes, vec![]);
}

/// REQ-AWS-NLB-10, REQ-AWS-NLB-11 and CASE-LB-25, CASE-LB-13
#[tokio::test(start_paused = true)]
async fn the_traffic_policy_changes_behind_the_same_name() {
    let bench = Bench::new(3).await;
    let mut service = service(&[(80, 30080)]);
    let before = bench.ensure(&service).await;
    service.spec.external_traffic_policy = Some("Local".to_owned());
    service.spec.health_check_node_port = Some(32213);
    let (after, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(before, after);
    assert_eq!(
        writes(&calls),
        [
            "CreateTargetGroup",
            "RegisterTargets",
            "AuthorizeSecurityGroupIngress",
            "ModifyListener",
            "DeleteTargetGroup"
        ]
    );
    let check = bench.target_group(80).health_check;
    assert_eq!((check.port.as_str(), check.interval), ("32213", 10));
    service.spec.ports[0].node_port = Some(30085);
    bench.ensure(&service).await;
    assert_eq!(bench.target_group(80).port, 30085);
    assert_eq!(bench.state().target_groups.len(), 1);
    let rules = bench.node_rules();
    assert!(
        rules.contains_key("tcp 30085 0.0.0.0/0") && !rules.contains_key("tcp 30080 0.0.0.0/0")
    );
}

/// REQ-AWS-NLB-6, REQ-AWS-NLB-17
#[tokio::test(start_paused = true)]
async fn a_listener_becomes_tls_and_tcp_again() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(443, 30443)]);
    bench.ensure(&service).await;
    let group = bench.target_group(443).arn;
    let plain = service.clone();
    alb(
        &mut service,
        "ssl-cert",
        "arn:aws:acm:us-west-2:123456789012:certificate/c",
    );
    for (service, protocol) in [(&service, "TLS"), (&plain, "TCP")] {
        bench.ensure(service).await;
        let state = bench.state();
        let listeners: Vec<_> = state.listeners.values().collect();
        assert_eq!(listeners.len(), 1);
        assert_eq!(listeners[0].protocol, protocol);
        assert_eq!(bench.target_group(443).arn, group);
        let (_, calls) = bench.calls(bench.ensure(service)).await;
        assert_eq!(writes(&calls), [""; 0]);
    }
}

/// REQ-AWS-NLB-18, REQ-AWS-NLB-21, REQ-AWS-NLB-22, REQ-AWS-HCN-12 and CASE-LB-20
#[tokio::test(start_paused = true)]
async fn attributes_and_checks_are_right_after_the_first_pass() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    for (key, value) in [
        ("cross-zone-load-balancing-enabled", "true"),
        ("access-log-enabled", "true"),
        ("access-log-s3-bucket-name", "b"),
        ("access-log-s3-bucket-prefix", "p"),
        ("healthcheck-interval", "10"),
        ("healthcheck-protocol", "http"),
        ("healthcheck-path", "/live"),
        ("healthcheck-port", "31555"),
        ("healthcheck-timeout", "6"),
        (
            "target-group-attributes",
            "preserve_client_ip.enabled=false,deregistration_delay.timeout_seconds=30",
        ),
    ] {
        alb(&mut service, key, value);
    }
    bench.ensure(&service).await;
    let state = bench.state();
    let lb = &state.load_balancer(LB).unwrap().attributes;
    for (key, want) in [
        ("load_balancing.cross_zone.enabled", "true"),
        ("access_logs.s3.enabled", "true"),
        ("access_logs.s3.bucket", "b"),
        ("access_logs.s3.prefix", "p"),
    ] {
        assert_eq!(lb[key], want, "{key}");
    }
    let group = bench.target_group(80);
    assert_eq!(group.attributes["preserve_client_ip.enabled"], "false");
    assert_eq!(
        group.attributes["deregistration_delay.timeout_seconds"],
        "30"
    );
    let check = &group.health_check;
    assert_eq!(
        (check.protocol.as_str(), check.port.as_str()),
        ("HTTP", "31555")
    );
    assert_eq!(
        (check.path.as_deref(), check.interval, check.timeout),
        (Some("/live"), 10, 6)
    );
    service
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .retain(|k, _| !k.ends_with("-attributes"));
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
}

/// REQ-AWS-NLB-23
#[tokio::test(start_paused = true)]
async fn one_target_group_that_fails_does_not_stop_the_other() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080), (81, 30081)]);
    bench.ensure(&service).await;
    alb(
        &mut service,
        "target-group-attributes",
        "proxy_protocol_v2.enabled=true",
    );
    let fault = Fault::error(400, "InvalidConfigurationRequest", "not today");
    bench
        .sim
        .faults()
        .next("ModifyTargetGroupAttributes", 1, fault)
        .unwrap();
    let text = bench.try_ensure(&service).await.unwrap_err().to_string();
    let arns: Vec<String> = [80, 81].map(|port| bench.target_group(port).arn).into();
    assert!(
        text.starts_with("error reconciling target group attributes"),
        "{text}"
    );
    assert!(arns.iter().any(|arn| text.contains(arn.as_str())), "{text}");
    let on = |bench: &Bench| {
        [80, 81]
            .into_iter()
            .filter(|port| {
                bench.target_group(*port).attributes["proxy_protocol_v2.enabled"] == "true"
            })
            .count()
    };
    assert_eq!(on(&bench), 1);
    bench.ensure(&service).await;
    assert_eq!(on(&bench), 2);
}

/// REQ-AWS-NLB-26
#[tokio::test(start_paused = true)]
async fn every_page_is_read() {
    let mut bench = Bench::new(2).await;
    bench
        .sim
        .aws()
        .configure(|settings| settings.page_cap = Some(1));
    let service = service(&[(80, 30080), (81, 30081), (82, 30082)]);
    bench.ensure(&service).await;
    bench.restart().await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    bench.delete(&service).await;
    assert!(bench.state().target_groups.is_empty());
}

/// REQ-AWS-TAG-17 and CASE-LB-21
#[tokio::test(start_paused = true)]
async fn tags_follow_the_annotation() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    alb(
        &mut service,
        "additional-resource-tags",
        "team=blue,cost=17",
    );
    bench.ensure(&service).await;
    alb(&mut service, "additional-resource-tags", "team=green,env=t");
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    let mut calls = writes(&calls);
    calls.sort_unstable();
    // One call for each of load balancer, listener and target group.
    let each = ["AddTags", "RemoveTags"].map(|action| [action; 3]);
    assert_eq!(calls, each.concat());
    let state = bench.state();
    let lb = state.load_balancers.values().map(|lb| &lb.tags);
    let groups = state.target_groups.values().map(|group| &group.tags);
    let listeners = state.listeners.values().map(|listener| &listener.tags);
    for tags in lb.chain(groups).chain(listeners) {
        assert_eq!(
            (tags["team"].as_str(), tags["env"].as_str()),
            ("green", "t")
        );
        assert!(!tags.contains_key("cost"));
        assert_eq!(tags["kubernetes.io/service-name"], "shop/web");
    }
}

/// REQ-AWS-TAG-17
#[tokio::test(start_paused = true)]
async fn tags_that_may_not_be_read_are_left_alone_for_a_day() {
    let mut bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    bench.restart().await;
    bench
        .sim
        .faults()
        .always("DescribeTags", Fault::error(403, "AccessDenied", "no"))
        .unwrap();
    alb(&mut service, "additional-resource-tags", "team=blue");
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    tokio::time::advance(FULL_VERIFICATION).await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert!(calls.iter().all(|call| call.action != "DescribeTags"));
}

/// CASE-LB-29
#[tokio::test(start_paused = true)]
async fn a_changed_scheme_is_a_warning() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    alb(&mut service, "internal", "true");
    let (_, notes) = bench.try_ensure(&service).await.unwrap();
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].message.contains("scheme cannot change"),
        "{}",
        notes[0].message
    );
    assert_eq!(
        bench.state().load_balancer(LB).unwrap().scheme,
        "internet-facing"
    );
}

/// CASE-LB-28
#[tokio::test(start_paused = true)]
async fn node_labels_choose_the_targets_and_none_is_a_warning() {
    let bench = Bench::new(3).await;
    let mut service = service(&[(80, 30080)]);
    alb(&mut service, "target-node-labels", "pool=edge");
    let mut all = bench.nodes();
    let (_, notes) = bench.ensure_on(&service, &all).await.unwrap();
    assert_eq!(notes[0].reason, "UnAvailableLoadBalancer");
    assert!(bench.targets(80).is_empty());
    for node in all.iter_mut().take(2) {
        let node = Arc::make_mut(node);
        node.metadata
            .labels
            .get_or_insert_default()
            .insert("pool".to_owned(), "edge".to_owned());
    }
    let (_, notes) = bench.ensure_on(&service, &all).await.unwrap();
    assert_eq!(notes, vec![]);
    assert_eq!(bench.targets(80).len(), 2);
}

/// CASE-LB-06: the load balancer was deleted by hand.
#[tokio::test(start_paused = true)]
async fn a_deleted_load_balancer_is_made_again_and_its_parts_are_adopted() {
    let bench = Bench::new(2).await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let group = bench.target_group(80).arn;
    let arn = bench.state().load_balancer(LB).unwrap().arn.clone();
    bench
        .lbs
        .observer
        .elb
        .delete_load_balancer(&arn)
        .await
        .unwrap();
    let (status, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), ["CreateLoadBalancer", "CreateListener"]);
    let state = bench.state();
    assert_eq!(
        host(&status),
        Some(state.load_balancer(LB).unwrap().dns_name.as_str())
    );
    assert_eq!(bench.target_group(80).arn, group);
    assert_eq!(state.target_groups.len(), 1);
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_update_never_makes_a_load_balancer() {
    let bench = Bench::new(2).await;
    let service = service(&[(80, 30080)]);
    let (answer, calls) = bench
        .calls(bench.lbs.update(&service, &bench.nodes()))
        .await;
    let error = answer.unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "Load balancer not found");
    assert_eq!(writes(&calls), [""; 0]);
    bench.ensure(&service).await;
    let one = nodes(&bench.cluster.instance_ids[..1]);
    let done = bench.lbs.update(&service, &one).await.unwrap();
    assert_eq!(done, Updated::Done { notes: vec![] });
    assert_eq!(bench.targets(80).len(), 1);
}

/// REQ-AWS-VAL-2 and CASE-LB-19: the change is refused and the load balancer goes on working.
#[tokio::test(start_paused = true)]
async fn removing_the_annotation_is_refused_and_changes_nothing() {
    let bench = Bench::new(2).await;
    let mut service = service(&[(80, 30080)]);
    let status = bench.ensure(&service).await;
    let before = bench.state();
    with_status(&mut service, &[host(&status).unwrap()]);
    service.metadata.annotations = None;
    let (answer, calls) = bench.calls(bench.try_ensure(&service)).await;
    let text = answer.unwrap_err().to_string();
    assert!(
        text.contains("cannot update Load Balancer Type annotation"),
        "{text}"
    );
    assert!(calls.is_empty());
    assert_eq!(bench.state(), before);
    let found = bench.lbs.get(&service).await.unwrap();
    assert_eq!(found, Some(status), "found although the annotation is gone");
}

/// CASE-LB-04
#[tokio::test(start_paused = true)]
async fn a_smaller_list_of_sources_replaces_one_that_was_too_long() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    let list = |n: usize| -> String {
        (0..n)
            .map(|i| format!("10.{i}.0.0/16"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let key = "service.beta.kubernetes.io/load-balancer-source-ranges";
    annotate(&mut service, key, &list(70));
    let error = bench.try_ensure(&service).await.unwrap_err();
    assert_eq!(error.class(), Class::Quota);
    assert!(
        error
            .to_string()
            .contains("RulesPerSecurityGroupLimitExceeded"),
        "{error}"
    );
    annotate(&mut service, key, &list(20));
    bench.ensure(&service).await;
    let rules = bench.node_rules();
    assert_eq!(
        rules
            .keys()
            .filter(|rule| rule.starts_with("tcp 30080 10."))
            .count(),
        20 + 3
    );
}

/// REQ-AWS-NLB-24
#[test]
fn a_load_balancer_that_failed_has_no_host_name() {
    let lb = crate::api::elbv2::LoadBalancer {
        dns_name: "x.elb.us-west-2.amazonaws.com".to_owned(),
        ..Default::default()
    };
    for (state, want) in [
        ("active", Some("x.elb.us-west-2.amazonaws.com")),
        ("provisioning", Some("x.elb.us-west-2.amazonaws.com")),
        ("failed", None),
        ("active_impaired", None),
    ] {
        let lb = crate::api::elbv2::LoadBalancer {
            state: state.to_owned(),
            ..lb.clone()
        };
        let status: LoadBalancerStatus = crate::load_balancer::status_of(&lb);
        assert_eq!(host(&status), want, "{state}");
    }
}
