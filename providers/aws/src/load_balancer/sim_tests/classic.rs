//! Classic load balancers: what a pass makes, keeps and changes.

use std::{collections::BTreeSet, time::Duration};

use ccm_cloudsim::{
    aws::ClassicLoadBalancer,
    control::{Call, Fault},
};
use ccm_core::{
    cloud::{Class, LoadBalancers},
    kube::Service,
};

use super::bench::{Bench, host, nodes, other_service, writes};
use crate::{
    api::{
        elb::{AccessLog, Attributes, Draining, HealthCheck, ListenerSpec, NewLoadBalancer},
        network::{NewSecurityGroup, Rule, Rules},
    },
    load_balancer::{
        classic_rules::entrance,
        memory::FULL_VERIFICATION,
        testing::{LB, alb, classic, service, with_status},
    },
    tags::Tags,
};

const CERT: &str = "arn:aws:acm:us-west-2:123456789012:certificate/c";
const PROXY: &str = "k8s-proxyprotocol-enabled";

pub(super) fn clb(bench: &Bench) -> ClassicLoadBalancer {
    bench.state().classic_load_balancers[LB].clone()
}

pub(super) fn another(name: &str, node_port: i32) -> Service {
    let mut service = other_service(name, node_port);
    service.metadata.annotations = None;
    service
}

fn reads<'a>(calls: &'a [Call], action: &str) -> Vec<&'a Call> {
    calls.iter().filter(|call| call.action == action).collect()
}

fn ids(bench: &Bench) -> BTreeSet<String> {
    bench.cluster.instance_ids.iter().cloned().collect()
}

/// REQ-AWS-CLB-10, REQ-AWS-TAG-10, REQ-AWS-SG-1, REQ-AWS-SG-5, REQ-AWS-SG-14, REQ-AWS-CLB-17,
/// REQ-AWS-DIV-1
#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_made_in_order_with_tags_and_host_name() {
    for kind in [None, Some("clb"), Some("NLB")] {
        let bench = Bench::new(3).await;
        let mut service = classic(&[(80, 30080), (443, 30443)]);
        if let Some(kind) = kind {
            alb(&mut service, "type", kind);
        }
        alb(
            &mut service,
            "additional-resource-tags",
            "Key1=Val1, Key2=Val2",
        );
        let ranges = ["10.0.0.0/8", "192.168.0.0/16"].map(str::to_owned);
        service.spec.load_balancer_source_ranges = Some(ranges.to_vec());
        let (status, calls) = bench.calls(bench.ensure(&service)).await;
        let mut order = writes(&calls);
        // Attributes and health check do not depend on each other.
        order[4..6].sort_unstable();
        assert_eq!(
            order,
            [
                "CreateSecurityGroup",
                "AuthorizeSecurityGroupIngress",
                "CreateLoadBalancer",
                "AuthorizeSecurityGroupIngress",
                "ConfigureHealthCheck",
                "ModifyLoadBalancerAttributes",
                "RegisterInstancesWithLoadBalancer",
            ]
        );
        let create = reads(&calls, "CreateLoadBalancer")[0];
        assert!(create.params.keys().all(|key| key != "Scheme"));
        let lb = clb(&bench);
        assert_eq!(host(&status), Some(lb.dns_name.as_str()));
        assert_eq!(
            (lb.subnets.len(), lb.scheme.as_str()),
            (3, "internet-facing")
        );
        assert_eq!(lb.instances, ids(&bench));
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
        let state = bench.state();
        let group = state.security_group(&format!("k8s-elb-{LB}")).unwrap();
        assert_eq!(lb.security_groups, BTreeSet::from([group.id.clone()]));
        assert_eq!(
            group.description,
            format!("Security group for Kubernetes ELB {LB} (shop/web)")
        );
        assert_eq!(group.vpc_id, bench.cluster.vpc_id);
        assert!(group.tags.contains_key("kubernetes.io/cluster/kite"));
        let rules: Vec<String> = bench.rules(&group.id).into_keys().collect();
        assert_eq!(
            rules,
            [
                "icmp 3-4 10.0.0.0/8",
                "icmp 3-4 192.168.0.0/16",
                "tcp 443 10.0.0.0/8",
                "tcp 443 192.168.0.0/16",
                "tcp 80 10.0.0.0/8",
                "tcp 80 192.168.0.0/16",
            ]
        );
        let node_rules: Vec<String> = bench.node_rules().into_keys().collect();
        assert_eq!(node_rules.len(), 1);
        assert!(node_rules[0].starts_with("-1 ") && node_rules[0].contains(&group.id));
        assert!(!lb.attributes.cross_zone && !lb.attributes.draining);
        assert_eq!(lb.attributes.idle_timeout, 60);
        assert_eq!(lb.health_check.target, "TCP:30080");
        assert!(state.load_balancers.is_empty());
    }
}

/// REQ-AWS-CLB-10 and CASE-LB-29
#[tokio::test(start_paused = true)]
async fn an_internal_load_balancer_says_so_and_the_scheme_stays() {
    let bench = Bench::new(1).await;
    let mut service = classic(&[(80, 30080)]);
    alb(&mut service, "internal", "true");
    let (status, calls) = bench.calls(bench.ensure(&service)).await;
    let create = reads(&calls, "CreateLoadBalancer")[0];
    assert_eq!(
        create.params.get("Scheme").map(String::as_str),
        Some("internal")
    );
    assert!(
        host(&status)
            .unwrap()
            .starts_with(&format!("internal-{LB}-"))
    );
    alb(&mut service, "internal", "false");
    let ((_, notes), calls) = bench
        .calls(async { bench.try_ensure(&service).await.unwrap() })
        .await;
    assert_eq!(notes[0].reason, "SchemeNotChanged");
    assert!(
        notes[0].message.contains("stays internal"),
        "{}",
        notes[0].message
    );
    assert_eq!(writes(&calls), [""; 0]);
}

/// REQ-AWS-CLB-20, REQ-AWS-CLB-18, REQ-AWS-CLB-13, REQ-AWS-CLB-22, REQ-AWS-HCC-8, REQ-AWS-SG-14
#[tokio::test(start_paused = true)]
async fn an_unchanged_service_costs_one_read_and_a_restarted_manager_writes_nothing() {
    let mut bench = Bench::new(3).await;
    let mut service = classic(&[(80, 30080), (443, 30443)]);
    alb(&mut service, "ssl-cert", CERT);
    alb(&mut service, "ssl-ports", "443");
    alb(
        &mut service,
        "ssl-negotiation-policy",
        "ELBSecurityPolicy-TLS-1-2-2017-01",
    );
    alb(&mut service, "proxy-protocol", "*");
    alb(&mut service, "healthcheck-protocol", "http");
    alb(&mut service, "additional-resource-tags", "a=b");
    bench.ensure(&service).await;
    let before = bench.state();
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    let actions: Vec<&str> = calls.iter().map(|call| call.action.as_str()).collect();
    assert_eq!(actions, ["DescribeLoadBalancers"]);
    tokio::time::advance(FULL_VERIFICATION).await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    bench.restart().await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    let own: Vec<&Call> = calls.iter().filter(|call| call.service == "elb").collect();
    assert_eq!(
        own.len(),
        3,
        "itself, attributes, and tags because some are given"
    );
    assert_eq!(
        bench.state().classic_load_balancers,
        before.classic_load_balancers
    );
    assert_eq!(bench.state().security_groups, before.security_groups);
}

/// The sequence of the Go manager, through the same API.
async fn as_the_go_manager_does(bench: &Bench, proxy: bool) {
    let elb = &bench.lbs.classic.observer.elb;
    let network = &bench.lbs.classic.observer.network;
    let owned = Tags::from([("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())]);
    let group = network
        .create_security_group(&NewSecurityGroup {
            name: format!("k8s-elb-{LB}"),
            description: format!("Security group for Kubernetes ELB {LB} (shop/web)"),
            vpc_id: bench.cluster.vpc_id.clone(),
            tags: owned.clone(),
        })
        .await
        .unwrap();
    let any = "0.0.0.0/0".parse().unwrap();
    let rules: Rules = [Rule::port("tcp", 80, any), Rule::mtu(any)]
        .map(|rule| (rule, String::new()))
        .into();
    network.authorize(&group, &rules).await.unwrap();
    let mut tags = owned;
    tags.insert(
        "kubernetes.io/service-name".to_owned(),
        "shop/web".to_owned(),
    );
    let new = NewLoadBalancer {
        name: LB.to_owned(),
        internal: false,
        subnets: bench.cluster.subnet_ids.iter().cloned().collect(),
        security_groups: vec![group.clone()],
        listeners: vec![ListenerSpec {
            port: 80,
            protocol: "tcp".to_owned(),
            instance_port: 30080,
            instance_protocol: "tcp".to_owned(),
            certificate: None,
        }],
        tags,
    };
    elb.create_load_balancer(&new).await.unwrap();
    if proxy {
        let policy = crate::api::elb::Policy {
            name: PROXY.to_owned(),
            kind: "ProxyProtocolPolicyType",
            attribute: ("ProxyProtocol", "true".to_owned()),
        };
        elb.create_policy(LB, &policy).await.unwrap();
        let set = BTreeSet::from([PROXY.to_owned()]);
        elb.set_backend_policies(LB, 30080, &set).await.unwrap();
    }
    let attributes = Attributes {
        access_log: Some(AccessLog::default()),
        draining: Some(Draining::default()),
        idle_timeout: Some(60),
        cross_zone: Some(false),
    };
    elb.modify_attributes(LB, &attributes).await.unwrap();
    let check = HealthCheck {
        target: "TCP:30080".to_owned(),
        interval: 10,
        timeout: 5,
        healthy: 2,
        unhealthy: 6,
    };
    elb.configure_health_check(LB, &check).await.unwrap();
    let rules = Rules::from([(entrance(&group), String::new())]);
    network
        .authorize(&bench.cluster.security_group_id, &rules)
        .await
        .unwrap();
    elb.register(LB, &bench.cluster.instance_ids).await.unwrap();
}

/// What the Go manager made is taken over without a write, and removed without a trace.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_of_the_go_manager_is_adopted_without_a_write() {
    for proxy in [false, true] {
        let bench = Bench::new(3).await;
        as_the_go_manager_does(&bench, proxy).await;
        let mut service = classic(&[(80, 30080)]);
        if proxy {
            alb(&mut service, "proxy-protocol", "*");
        }
        with_status(&mut service, &[&clb(&bench).dns_name]);
        let before = bench.state();
        let (status, calls) = bench.calls(bench.ensure(&service)).await;
        assert_eq!(writes(&calls), [""; 0]);
        assert_eq!(bench.state(), before);
        assert_eq!(host(&status), Some(clb(&bench).dns_name.as_str()));
        bench.delete(&service).await;
        super::classic_removal::assert_clean(&bench);
    }
}

/// REQ-AWS-CLB-11, REQ-AWS-CLB-12, REQ-AWS-CLB-14
#[tokio::test(start_paused = true)]
async fn the_proxy_protocol_is_put_on_every_port_and_taken_off_again() {
    let bench = Bench::new(1).await;
    let mut service = classic(&[(80, 30080), (81, 30081)]);
    alb(&mut service, "proxy-protocol", "*");
    bench.ensure(&service).await;
    let both = |lb: ClassicLoadBalancer| -> Vec<u16> {
        let proxied = lb.backend_policies.into_iter();
        proxied
            .filter(|(_, names)| names.contains(PROXY))
            .map(|(port, _)| port)
            .collect()
    };
    assert_eq!(both(clb(&bench)), [30080, 30081]);
    service.spec.ports[1].node_port = Some(30085);
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(both(clb(&bench)), [30080, 30085]);
    assert!(reads(&calls, "CreateLoadBalancerPolicy").is_empty());
    assert_eq!(
        reads(&calls, "SetLoadBalancerPoliciesForBackendServer").len(),
        2
    );
    service.metadata.annotations = None;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(both(clb(&bench)), [0_u16; 0]);
    assert_eq!(
        writes(&calls),
        ["SetLoadBalancerPoliciesForBackendServer"; 2]
    );
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
}

/// REQ-AWS-CLB-9 and CASE-LB-13, CASE-LB-14
#[tokio::test(start_paused = true)]
async fn listeners_and_health_check_follow_the_ports() {
    let bench = Bench::new(1).await;
    let mut service = classic(&[(80, 30080), (443, 30443), (9000, 30900)]);
    let before = bench.ensure(&service).await;
    service.spec.ports[0].node_port = Some(30085);
    let (after, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(before, after);
    assert_eq!(
        writes(&calls),
        [
            "DeleteLoadBalancerListeners",
            "CreateLoadBalancerListeners",
            "ConfigureHealthCheck"
        ]
    );
    let delete = reads(&calls, "DeleteLoadBalancerListeners")[0];
    let ports: Vec<&String> = delete
        .params
        .iter()
        .filter(|(key, _)| key.starts_with("LoadBalancerPorts"))
        .map(|(_, value)| value)
        .collect();
    assert_eq!(ports, ["80"]);
    assert_eq!(clb(&bench).health_check.target, "TCP:30085");
    service.spec.ports[2].name = Some("renamed".to_owned());
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    service.spec.ports.remove(0);
    bench.ensure(&service).await;
    let lb = clb(&bench);
    let listeners: Vec<(u16, u16)> = lb
        .listeners
        .values()
        .map(|listener| (listener.port, listener.instance_port))
        .collect();
    assert_eq!(listeners, [(443, 30443), (9000, 30900)]);
    assert_eq!(lb.health_check.target, "TCP:30443");
}

/// REQ-AWS-CLB-1, REQ-AWS-CLB-15, REQ-AWS-CLB-16
#[tokio::test(start_paused = true)]
async fn tls_listeners_get_certificate_and_policy() {
    let bench = Bench::new(1).await;
    let mut service = classic(&[(80, 30080), (443, 30443)]);
    alb(&mut service, "ssl-cert", CERT);
    alb(&mut service, "ssl-ports", "443");
    bench.ensure(&service).await;
    let value = "ELBSecurityPolicy-TLS-1-2-2017-01";
    alb(&mut service, "ssl-negotiation-policy", value);
    let fault = Fault::error(400, "ValidationError", "no");
    let faults = bench.sim.faults();
    faults
        .next("DescribeLoadBalancerPolicies", 1, fault)
        .unwrap();
    let (answer, calls) = bench.calls(bench.try_ensure(&service)).await;
    let error = answer.unwrap_err().to_string();
    assert!(
        error.starts_with("error describing security policies on load balancer: \""),
        "{error}"
    );
    assert_eq!(writes(&calls), [""; 0]);
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(
        writes(&calls),
        [
            "CreateLoadBalancerPolicy",
            "SetLoadBalancerPoliciesOfListener"
        ]
    );
    let lb = clb(&bench);
    let name = format!("k8s-SSLNegotiationPolicy-{value}");
    let policy = &lb.policies[&name];
    assert_eq!(policy.attributes["Reference-Security-Policy"], value);
    let tls = &lb.listeners[&443];
    assert_eq!(
        (tls.protocol.as_str(), &*tls.instance_protocol),
        ("SSL", "TCP")
    );
    assert_eq!(tls.certificate.as_deref(), Some(CERT));
    assert_eq!(tls.policies, BTreeSet::from([name]));
    assert!(lb.listeners[&80].policies.is_empty());
}

/// REQ-AWS-CLB-19
#[tokio::test(start_paused = true)]
async fn attributes_follow_the_annotations() {
    let bench = Bench::new(1).await;
    let mut service = classic(&[(80, 30080)]);
    bench.ensure(&service).await;
    for (key, value) in [
        ("connection-idle-timeout", "120"),
        ("cross-zone-load-balancing-enabled", "true"),
        ("connection-draining-enabled", "true"),
        ("connection-draining-timeout", "30"),
        ("access-log-enabled", "true"),
        ("access-log-emit-interval", "5"),
        ("access-log-s3-bucket-name", "bucket"),
        ("access-log-s3-bucket-prefix", "prefix"),
    ] {
        alb(&mut service, key, value);
    }
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), ["ModifyLoadBalancerAttributes"]);
    let found = clb(&bench).attributes;
    assert!(found.cross_zone && found.draining && found.access_log);
    assert_eq!((found.idle_timeout, found.draining_timeout), (120, 30));
    assert_eq!(found.access_log_interval, Some(5));
    assert_eq!(found.access_log_bucket.as_deref(), Some("bucket"));
    assert_eq!(found.access_log_prefix.as_deref(), Some("prefix"));
    service.metadata.annotations = None;
    bench.ensure(&service).await;
    let found = clb(&bench).attributes;
    assert!(!found.cross_zone && !found.draining && !found.access_log);
    assert_eq!(found.idle_timeout, 60);
}

/// REQ-AWS-HCC-10 and CASE-LB-13
#[tokio::test(start_paused = true)]
async fn the_health_check_follows_the_traffic_policy() {
    let bench = Bench::new(1).await;
    let mut service = classic(&[(80, 30080)]);
    bench.ensure(&service).await;
    let mut local = service.clone();
    local.spec.external_traffic_policy = Some("Local".to_owned());
    local.spec.health_check_node_port = Some(32213);
    for (service, want) in [(&local, "HTTP:32213/healthz"), (&service, "TCP:30080")] {
        let (_, calls) = bench.calls(bench.ensure(service)).await;
        assert_eq!(writes(&calls), ["ConfigureHealthCheck"]);
        assert_eq!(clb(&bench).health_check.target, want);
    }
    alb(&mut service, "healthcheck-timeout", "9");
    alb(&mut service, "healthcheck-interval", "15");
    bench.ensure(&service).await;
    let check = clb(&bench).health_check;
    assert_eq!((check.timeout, check.interval), (9, 15));
}

/// REQ-AWS-CLB-21, REQ-AWS-NODE-13 and CASE-LB-28
#[tokio::test(start_paused = true)]
async fn an_update_changes_instances_and_makes_nothing() {
    let bench = Bench::new(3).await;
    let service = classic(&[(80, 30080)]);
    let error = bench
        .lbs
        .update(&service, &bench.nodes())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "Load balancer not found");
    let all = &bench.cluster.instance_ids;
    bench.ensure_on(&service, &nodes(&all[..2])).await.unwrap();
    let some = nodes(&all[1..]);
    let (answer, calls) = bench.calls(bench.lbs.update(&service, &some)).await;
    answer.unwrap();
    assert_eq!(
        writes(&calls),
        [
            "RegisterInstancesWithLoadBalancer",
            "DeregisterInstancesFromLoadBalancer"
        ]
    );
    assert_eq!(clb(&bench).instances, all[1..].iter().cloned().collect());

    let mut chosen = service;
    alb(&mut chosen, "target-node-labels", "pool=edge");
    assert!(bench.lbs.node_labels_matter(&chosen));
    let mut some = bench.nodes();
    let mut edge = (*some[0]).clone();
    edge.metadata.labels = Some([("pool".to_owned(), "edge".to_owned())].into());
    some[0] = edge.into();
    bench.ensure_on(&chosen, &some).await.unwrap();
    assert_eq!(clb(&bench).instances, BTreeSet::from([all[0].clone()]));
    let (_, notes) = bench.ensure_on(&chosen, &bench.nodes()).await.unwrap();
    assert_eq!(notes[0].reason, "UnAvailableLoadBalancer");
    assert!(clb(&bench).instances.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_aws_refuses_does_not_keep_out_the_others() {
    let bench = Bench::new(3).await;
    let all = &bench.cluster.instance_ids;
    bench
        .ensure_on(&classic(&[(80, 30080)]), &[])
        .await
        .unwrap();
    // The manager has looked at all of them for another Service.
    bench.ensure(&another("web-2", 31000)).await;
    bench.sim.aws().terminate(&all[1]).unwrap();
    let (_, notes) = bench.try_ensure(&classic(&[(80, 30080)])).await.unwrap();
    assert_eq!(notes[0].reason, "TargetsNotRegistered");
    assert!(
        notes[0].message.contains(all[1].as_str()),
        "{}",
        notes[0].message
    );
    let want = BTreeSet::from([all[0].clone(), all[2].clone()]);
    assert_eq!(clb(&bench).instances, want);
    bench.ensure(&classic(&[(80, 30080)])).await;
    assert_eq!(clb(&bench).instances, want);
}

/// REQ-AWS-CLB-20: forty Services whose Nodes change are read twenty at a time.
#[tokio::test(start_paused = true)]
async fn reads_do_not_grow_with_services() {
    let bench = Bench::new(3).await;
    bench.sim.aws().set_quotas(|quotas| {
        quotas.classic_load_balancers = 100;
        quotas.rules_per_security_group = 100;
    });
    let services: Vec<Service> = (0..40)
        .map(|n| another(&format!("s{n}"), 31000 + n))
        .collect();
    for service in &services {
        bench.ensure(service).await;
    }
    tokio::time::advance(Duration::from_secs(120)).await;
    let some = nodes(&bench.cluster.instance_ids[..2]);
    let work = async {
        for service in &services {
            bench.lbs.update(service, &some).await.unwrap();
        }
    };
    let ((), calls) = bench.calls(work).await;
    assert_eq!(reads(&calls, "DescribeLoadBalancers").len(), 2);
    assert_eq!(
        reads(&calls, "DeregisterInstancesFromLoadBalancer").len(),
        40
    );
    let others: Vec<&str> = calls
        .iter()
        .map(|call| call.action.as_str())
        .filter(|action| action.starts_with("Describe") && *action != "DescribeLoadBalancers")
        .collect();
    assert!(others.len() <= 3, "{others:?}");
    // One that vanished spoils one answer, and is made anew. The others are read all the same.
    tokio::time::advance(Duration::from_secs(120)).await;
    let name = crate::load_balancer::preflight::name(&services[30]).unwrap();
    let elb = &bench.lbs.classic.observer.elb;
    elb.delete_load_balancer(name.as_str()).await.unwrap();
    let work = async {
        for service in &services {
            bench.ensure_on(service, &some).await.unwrap();
        }
    };
    let ((), calls) = bench.calls(work).await;
    assert_eq!(reads(&calls, "CreateLoadBalancer").len(), 1);
    assert!(
        bench
            .state()
            .classic_load_balancers
            .contains_key(name.as_str())
    );
}

/// REQ-AWS-SUB-21 and CASE-LB-26
#[tokio::test(start_paused = true)]
async fn subnets_are_kept_as_long_as_they_fit_and_follow_what_is_there() {
    let bench = Bench::new(1).await;
    let service = classic(&[(80, 30080)]);
    bench.ensure(&service).await;
    let own = clb(&bench).subnets;
    let aws = bench.sim.aws();
    let first = bench.state().subnets[&bench.cluster.subnet_ids[0]].clone();
    let vpc = &bench.cluster.vpc_id;
    let added = aws
        .create_subnet(vpc, "10.20.48.0/20", &first.zone, first.tags.clone())
        .unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    // The old one is given to another cluster.
    let theirs = Tags::from([("kubernetes.io/cluster/other".to_owned(), "owned".to_owned())]);
    let ours = ["kubernetes.io/cluster/kite"];
    aws.remove_tags(&first.id, &ours).unwrap();
    aws.set_tags(&first.id, &theirs).unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(
        writes(&calls),
        [
            "DetachLoadBalancerFromSubnets",
            "AttachLoadBalancerToSubnets"
        ]
    );
    let mut want = own;
    want.remove(&first.id);
    want.insert(added);
    assert_eq!(clb(&bench).subnets, want);
    // The annotation wins.
    let mut named = service;
    alb(&mut named, "subnets", &first.id);
    bench.ensure(&named).await;
    assert_eq!(clb(&bench).subnets, BTreeSet::from([first.id]));
}

/// That the network is in a state in which no subnet can be chosen does not keep a load balancer
/// that exists from following its Nodes.
#[tokio::test(start_paused = true)]
async fn trouble_with_subnets_does_not_keep_instances_from_changing() {
    let bench = Bench::new(2).await;
    let service = classic(&[(80, 30080)]);
    let all = &bench.cluster.instance_ids;
    bench.ensure_on(&service, &nodes(&all[..1])).await.unwrap();
    let own = clb(&bench).subnets;
    let mut named = service;
    alb(&mut named, "subnets", "nowhere");
    let error = bench.try_ensure(&named).await.unwrap_err();
    assert_eq!(error.to_string(), "expected to find 1, but found 0 subnets");
    assert_eq!(clb(&bench).instances, ids(&bench));
    assert_eq!(clb(&bench).subnets, own);
}

/// REQ-AWS-CLB-22, REQ-AWS-TAG-21 and CASE-LB-21
#[tokio::test(start_paused = true)]
async fn tags_follow_the_annotation() {
    let bench = Bench::new(1).await;
    let mut service = classic(&[(80, 30080)]);
    alb(
        &mut service,
        "additional-resource-tags",
        "team=blue,cost=17",
    );
    bench.ensure(&service).await;
    let elb = &bench.lbs.classic.observer.elb;
    let foreign = Tags::from([("owner".to_owned(), "secops".to_owned())]);
    elb.add_tags(LB, &foreign).await.unwrap();
    alb(
        &mut service,
        "additional-resource-tags",
        "team=green,env=t,kubernetes.io/service-name=x",
    );
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    let mut order = writes(&calls);
    order.sort_unstable();
    assert_eq!(order, ["AddTags", "RemoveTags"]);
    let tags: Vec<String> = clb(&bench)
        .tags
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(
        tags,
        [
            "env=t",
            "kubernetes.io/cluster/kite=owned",
            "kubernetes.io/service-name=shop/web",
            "owner=secops",
            "team=green"
        ]
    );
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
}

/// REQ-AWS-CLB-22: with the permissions of the Go manager, which may write tags but not read them.
#[tokio::test(start_paused = true)]
async fn tags_that_cannot_be_read_are_written_once() {
    let mut bench = Bench::new(1).await;
    let mut service = classic(&[(80, 30080)]);
    bench.ensure(&service).await;
    bench.restart().await;
    let denied = Fault::error(403, "AccessDenied", "no");
    bench.sim.faults().always("DescribeTags", denied).unwrap();
    alb(&mut service, "additional-resource-tags", "team=blue");
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), ["AddTags"]);
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
}

/// REQ-AWS-VAL-25, REQ-AWS-HCC-9, REQ-AWS-VAL-18
#[tokio::test(start_paused = true)]
async fn what_preflight_refuses_costs_no_call() {
    let bench = Bench::new(1).await;
    for (key, value) in [
        ("access-log-enabled", "maybe"),
        ("connection-idle-timeout", "60s"),
        ("connection-draining-timeout", "x"),
        ("healthcheck-timeout", "1"),
        ("healthcheck-interval", "4"),
        ("proxy-protocol", "x"),
        ("target-group-attributes", ""),
    ] {
        let mut service = classic(&[(80, 30080)]);
        alb(&mut service, key, value);
        let (answer, calls) = bench.calls(bench.try_ensure(&service)).await;
        assert_eq!(answer.unwrap_err().class(), Class::Invalid);
        assert!(calls.is_empty(), "{key}");
    }
}

/// CASE-LB-19: the annotation may not change while there is a load balancer, be it that only the
/// cloud knows of it.
#[tokio::test(start_paused = true)]
async fn neither_kind_replaces_the_other() {
    let bench = Bench::new(2).await;
    let mut classic = classic(&[(80, 30080)]);
    let mut network = service(&[(80, 30080)]);
    let status = bench.ensure(&classic).await;
    let before = bench.state();
    for known in [true, false] {
        if known {
            with_status(&mut network, &[host(&status).unwrap()]);
        } else {
            with_status(&mut network, &[]);
        }
        let error = bench.try_ensure(&network).await.unwrap_err().to_string();
        assert!(
            error.contains("cannot update Load Balancer Type annotation"),
            "{error}"
        );
        assert!(error.contains("after creation for NLB"), "{error}");
    }
    assert_eq!(bench.state(), before);
    bench.delete(&classic).await;

    let status = bench.ensure(&network).await;
    let before = bench.state();
    for known in [true, false] {
        if known {
            with_status(&mut classic, &[host(&status).unwrap()]);
        } else {
            with_status(&mut classic, &[]);
        }
        let error = bench.try_ensure(&classic).await.unwrap_err().to_string();
        assert!(
            error.contains("after creation for Classic Load Balancer"),
            "{error}"
        );
    }
    assert_eq!(bench.state(), before);
}
