//! A new Service gets its load balancer.

use std::{collections::BTreeMap, time::Duration};

use ccm_e2e_tests::{Bench, service};
use serde_json::json;

use crate::{
    setup::{
        annotated, annotation, called, finalized, first_status_write, hostname, published, quiet,
        ready, told, warnings, with_spec,
    },
    view::{View, lb_name, rules},
};

fn tags() -> BTreeMap<String, String> {
    [
        ("kubernetes.io/cluster/kite", "owned"),
        ("kubernetes.io/service-name", "shop/web"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// The lines of rules that health checks from the three subnets need.
fn health_rules(name: &str, port: u16) -> Vec<String> {
    ["10.20.0.0/20", "10.20.16.0/20", "10.20.32.0/20"]
        .map(|net| format!("tcp {port}..{port} {net} kubernetes.io/rule/nlb/health={name}"))
        .into()
}

fn assert_rules(bench: &Bench, want: impl IntoIterator<Item = String>) {
    assert_eq!(rules(bench), want.into_iter().collect());
}

/// REQ-SVC-35, REQ-SVC-32, REQ-AWS-NODE-1, REQ-AWS-HCN-1, REQ-AWS-SG-19: everything of a plain
/// Service.
#[tokio::test]
async fn a_new_service_gets_a_complete_load_balancer() {
    let bench = ready(3).await;
    let web = published(&bench, &service("web", &[(80, 30080), (443, 30443)])).await;
    let (name, view) = (lb_name(&web), View::now(&bench, &web));

    assert_eq!(view.lb.scheme, "internet-facing");
    assert_eq!(view.lb.tags, tags());
    let subnets: Vec<_> = view
        .lb
        .subnets
        .iter()
        .map(|s| s.subnet_id.clone())
        .collect();
    assert_eq!(subnets, bench.cloud.cluster.subnet_ids);
    assert_eq!(
        view.lb.attributes["load_balancing.cross_zone.enabled"],
        "false"
    );
    assert_eq!(view.forwards(), BTreeMap::from([(80, 30080), (443, 30443)]));
    for (port, target_group) in [
        (80, "k8s-shop-web-621607061a"),
        (443, "k8s-shop-web-315d3a57e9"),
    ] {
        let (listener, group) = &view.ports[&port];
        assert_eq!(
            (listener.protocol.as_str(), &listener.tags),
            ("TCP", &tags())
        );
        assert_eq!(
            (group.name.as_str(), group.protocol.as_str()),
            (target_group, "TCP")
        );
        assert_eq!(
            (group.target_type.as_str(), &group.tags),
            ("instance", &tags())
        );
        let check = &group.health_check;
        assert_eq!(
            (check.protocol.as_str(), check.port.as_str()),
            ("TCP", "traffic-port")
        );
        assert_eq!((check.interval, check.healthy, check.unhealthy), (30, 3, 3));
        assert_eq!(
            view.targets(port),
            bench.machines().iter().cloned().collect()
        );
    }
    let client =
        |port| format!("tcp {port}..{port} 0.0.0.0/0 kubernetes.io/rule/nlb/client={name}");
    let mtu = "icmp 3..4 0.0.0.0/0 kubernetes.io/rule/nlb/mtu".to_owned();
    assert_rules(&bench, [client(30080), client(30443), mtu]);

    assert_eq!(hostname(&web), Some(view.lb.dns_name));
    assert!(finalized(&web));
    assert_eq!(
        bench.event("web", "EnsuringLoadBalancer").await,
        "Ensuring load balancer"
    );
    assert_eq!(
        bench.event("web", "EnsuredLoadBalancer").await,
        "Ensured load balancer"
    );
    assert_eq!(warnings(&bench, "web").await, []);
    quiet(&bench, Duration::from_secs(3)).await;
}

/// REQ-SVC-02, REQ-SVC-03, REQ-AWS-NLB-1: check U6 of the fault cases.
#[tokio::test]
async fn the_finalizer_is_stored_before_the_first_write_to_the_cloud() {
    let bench = ready(1).await;
    let calls = bench.cloud.sim.calls();
    // No status can have been written yet when the finalizer is looked at.
    let slow = Duration::from_secs(1);
    bench.cloud.sim.latency().set("CreateLoadBalancer", slow);
    let order = service("order", &[(80, 30080)]);
    bench.create_service(&order).await.unwrap();
    called(&bench, "CreateLoadBalancer", 1).await;
    let order = bench.services().get("order").await.unwrap();
    assert!(finalized(&order));
    assert_eq!(hostname(&order), None);
    bench.hostname("order").await;
    let first_write = calls.writes_since(calls.start())[0].at;
    let finalizer = first_status_write(&bench, "order").await;
    assert!(finalizer < first_write, "{finalizer} {first_write}");
    let writes = calls.writes_since(calls.start());
    let made = writes.iter().filter(|call| call.service == "elbv2");
    let made: Vec<&str> = made.map(|call| call.action.as_str()).collect();
    let order = [
        "CreateLoadBalancer",
        "CreateTargetGroup",
        "RegisterTargets",
        "CreateListener",
    ];
    assert_eq!(made, order);
}

/// REQ-AWS-NLB-9, REQ-AWS-SG-21: a certificate is not for UDP.
#[tokio::test]
async fn a_udp_service_gets_udp_listeners_and_tcp_health_checks() {
    let bench = ready(2).await;
    let port = json!([{ "name": "dns", "port": 53, "nodePort": 30053, "protocol": "UDP" }]);
    let dns = with_spec(&service("dns", &[]), json!({ "ports": port }));
    let certificate = "arn:aws:acm:us-west-2:123456789012:certificate/kite";
    let dns = annotated(dns, &[("ssl-cert", certificate)]);
    let dns = published(&bench, &dns).await;
    let (name, view) = (lb_name(&dns), View::now(&bench, &dns));
    let (listener, group) = &view.ports[&53];
    assert_eq!(
        (listener.protocol.as_str(), group.protocol.as_str()),
        ("UDP", "UDP")
    );
    assert_eq!(group.name, "k8s-shop-dns-854dfeac9a");
    assert_eq!(group.health_check.protocol, "TCP");
    let mut want = health_rules(&name, 30053);
    want.push(format!(
        "udp 30053..30053 0.0.0.0/0 kubernetes.io/rule/nlb/client={name}"
    ));
    want.push("icmp 3..4 0.0.0.0/0 kubernetes.io/rule/nlb/mtu".to_owned());
    assert_rules(&bench, want);
}

/// REQ-AWS-NLB-6, REQ-AWS-NLB-8
#[tokio::test]
async fn tls_is_ended_on_the_chosen_ports_only() {
    let bench = ready(1).await;
    let certificate = "arn:aws:acm:us-west-2:123456789012:certificate/kite";
    let policy = "ELBSecurityPolicy-TLS13-1-2-2021-06";
    let web = annotated(
        service("web", &[(80, 30080), (443, 30443)]),
        &[
            ("ssl-cert", certificate),
            ("ssl-ports", "443"),
            ("ssl-negotiation-policy", policy),
            ("backend-protocol", "ssl"),
        ],
    );
    let web = published(&bench, &web).await;
    let view = View::now(&bench, &web);
    let (plain, plain_group) = &view.ports[&80];
    assert_eq!(
        (plain.protocol.as_str(), plain_group.protocol.as_str()),
        ("TCP", "TCP")
    );
    assert!(plain.certificates.is_empty());
    let (secure, secure_group) = &view.ports[&443];
    assert_eq!(
        (secure.protocol.as_str(), secure_group.protocol.as_str()),
        ("TLS", "TLS")
    );
    assert_eq!(secure.certificates, [certificate]);
    assert_eq!(secure.ssl_policy.as_deref(), Some(policy));
    quiet(&bench, Duration::from_secs(2)).await;
}

/// REQ-AWS-NLB-2
#[tokio::test]
async fn an_internal_service_gets_an_internal_load_balancer() {
    let bench = ready(1).await;
    let web = annotated(service("web", &[(80, 30080)]), &[("internal", "true")]);
    let web = published(&bench, &web).await;
    let view = View::now(&bench, &web);
    assert_eq!(view.lb.scheme, "internal");
    assert_eq!(view.lb.subnets.len(), 3);
    assert_eq!(hostname(&web), Some(view.lb.dns_name));
}

/// REQ-AWS-SG-18, REQ-SVC-36
#[tokio::test]
async fn source_ranges_become_rules_of_the_nodes() {
    let bench = ready(1).await;
    let ranges = json!({ "loadBalancerSourceRanges": ["10.0.0.0/8", "192.168.7.0/24"] });
    let web = published(&bench, &with_spec(&service("web", &[(80, 30080)]), ranges)).await;
    let name = lb_name(&web);
    let mut want = health_rules(&name, 30080);
    for range in ["10.0.0.0/8", "192.168.7.0/24"] {
        want.push(format!(
            "tcp 30080..30080 {range} kubernetes.io/rule/nlb/client={name}"
        ));
        want.push(format!("icmp 3..4 {range} kubernetes.io/rule/nlb/mtu"));
    }
    assert_rules(&bench, want);
}

/// CASE-LB-20, REQ-AWS-NLB-21, REQ-AWS-HCN-12: one sync brings all of it.
#[tokio::test]
async fn attributes_and_health_check_are_there_after_the_first_sync() {
    let bench = ready(2).await;
    let web = annotated(
        service("web", &[(80, 30080)]),
        &[
            ("cross-zone-load-balancing-enabled", "true"),
            ("healthcheck-interval", "10"),
            ("healthcheck-timeout", "6"),
            ("healthcheck-protocol", "http"),
            ("healthcheck-path", "/live"),
            ("healthcheck-port", "31555"),
            (
                "target-group-attributes",
                "proxy_protocol_v2.enabled=true,deregistration_delay.timeout_seconds=30",
            ),
        ],
    );
    let web = published(&bench, &web).await;
    let view = View::now(&bench, &web);
    assert_eq!(
        view.lb.attributes["load_balancing.cross_zone.enabled"],
        "true"
    );
    let group = view.group(80);
    assert_eq!(group.attributes["proxy_protocol_v2.enabled"], "true");
    assert_eq!(group.attributes["preserve_client_ip.enabled"], "true");
    let delay = &group.attributes["deregistration_delay.timeout_seconds"];
    assert_eq!(delay, "30");
    let check = &group.health_check;
    assert_eq!(
        (check.protocol.as_str(), check.port.as_str()),
        ("HTTP", "31555")
    );
    assert_eq!(check.path.as_deref(), Some("/live"));
    assert_eq!((check.interval, check.timeout), (10, 6));
    bench.event("web", "EnsuredLoadBalancer").await;
    assert_eq!(told(&bench, "web", "EnsuringLoadBalancer").await, 1);
    quiet(&bench, Duration::from_secs(2)).await;
}

/// What cannot be made is told, names what to change, and stops nobody.
#[tokio::test]
async fn a_service_with_a_bad_value_is_told_so_and_stops_no_other() {
    let bench = ready(1).await;
    let bad = annotated(
        service("bad", &[(81, 30081)]),
        &[("cross-zone-load-balancing-enabled", "sure")],
    );
    bench.create_service(&bad).await.unwrap();
    let mixed = json!({ "ports": [
        { "name": "a", "port": 82, "protocol": "TCP" },
        { "name": "b", "port": 82, "protocol": "UDP" },
    ]});
    let mixed = with_spec(&service("mixed", &[]), mixed);
    bench.create_service(&mixed).await.unwrap();
    let sctp = json!({ "ports": [{ "name": "a", "port": 83, "protocol": "SCTP" }] });
    let sctp = with_spec(&service("sctp", &[]), sctp);
    bench.create_service(&sctp).await.unwrap();

    let told = bench.event("bad", "SyncLoadBalancerFailed").await;
    assert!(
        told.contains("aws-load-balancer-cross-zone-load-balancing-enabled"),
        "{told}"
    );
    assert!(told.contains("sure"), "{told}");
    let told = bench.event("mixed", "SyncLoadBalancerFailed").await;
    assert!(
        told.contains("mixed protocol is not supported for LoadBalancer"),
        "{told}"
    );
    let told = bench.event("sctp", "SyncLoadBalancerFailed").await;
    assert!(
        told.contains("Protocol SCTP not supported by LoadBalancer"),
        "{told}"
    );
    published(&bench, &service("web", &[(80, 30080)])).await;
    assert_eq!(bench.cloud.sim.aws().snapshot().load_balancers.len(), 1);

    // Corrected, it is served; not before its back-off, but at once.
    bench
        .patch_service(
            "bad",
            annotation("cross-zone-load-balancing-enabled", Some("true")),
        )
        .await
        .unwrap();
    bench.hostname("bad").await;
    for name in ["bad", "mixed", "sctp", "web"] {
        bench.delete_service(name).await.unwrap();
    }
    bench.nothing_left().unwrap();
}
