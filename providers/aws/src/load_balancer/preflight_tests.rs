use super::*;
use crate::load_balancer::{
    clb::request::preflight as classic_preflight,
    testing::{alb, annotate, classic, node, service as ports_of, settings, with_status},
};

fn refused(service: &Service) -> String {
    let error = preflight(service, &settings()).unwrap_err();
    assert_eq!(error.class(), ccm_core::cloud::Class::Invalid);
    error.to_string()
}

fn accepted(service: &Service) -> Request {
    preflight(service, &settings()).unwrap()
}

fn plain() -> Service {
    ports_of(&[(80, 30080)])
}

fn udp() -> Service {
    let mut service = plain();
    service.spec.ports[0].protocol = Some("UDP".to_owned());
    service
}

/// REQ-AWS-VAL-1, REQ-AWS-VAL-4, REQ-AWS-VAL-6, REQ-AWS-VAL-34
#[test]
fn a_network_load_balancer_does_not_replace_a_classic_one() {
    let mut service = plain();
    for hosts in [
        &[][..],
        &["x.elb.ap-southeast-1.amazonaws.com"][..],
        &[
            "x.elb.us-east-1.amazonaws.com",
            "y.us-east-1.elb.amazonaws.com",
        ][..],
        &["x.elb.cn-north-1.amazonaws.com.cn"][..],
    ] {
        with_status(&mut service, hosts);
        accepted(&service);
    }
    with_status(&mut service, &["x.us-east-1.elb.amazonaws.com"]);
    assert_eq!(
        refused(&service),
        "cannot update Load Balancer Type annotation \
         \"service.beta.kubernetes.io/aws-load-balancer-type\" after creation for NLB"
    );
}

/// REQ-AWS-VAL-2, REQ-AWS-VAL-3, REQ-AWS-VAL-5
#[test]
fn a_classic_load_balancer_does_not_replace_a_network_one() {
    let mut service = classic(&[(80, 30080)]);
    for value in [None, Some("clb")] {
        if let Some(value) = value {
            alb(&mut service, "type", value);
        }
        with_status(&mut service, &["x.elb.us-east-1.amazonaws.com"]);
        let error = classic_preflight(&service, &settings()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("cannot update Load Balancer Type annotation"),
            "{text}"
        );
        for host in [
            "internal-x.eu-west-1.elb.amazonaws.com",
            "x.cn-north-1.elb.amazonaws.com.cn",
        ] {
            with_status(&mut service, &[host]);
            classic_preflight(&service, &settings()).unwrap();
        }
    }
}

/// REQ-AWS-VAL-7
#[test]
fn extra_security_groups_are_refused() {
    let mut service = plain();
    alb(&mut service, "security-groups", "sg-1");
    alb(&mut service, "extra-security-groups", "");
    assert_eq!(
        refused(&service),
        "BYO extra security group annotation \
         \"service.beta.kubernetes.io/aws-load-balancer-extra-security-groups\" is not supported \
         by NLB"
    );
}

/// REQ-AWS-VAL-10, REQ-AWS-VAL-11, REQ-AWS-VAL-32
#[test]
fn target_group_attributes_are_checked() {
    let mut service = plain();
    for (value, want) in [
        ("", Attributes::new()),
        (
            "preserve_client_ip.enabled=true",
            Attributes::from([("preserve_client_ip.enabled".to_owned(), "true".to_owned())]),
        ),
    ] {
        alb(&mut service, "target-group-attributes", value);
        assert_eq!(accepted(&service).target_group_attributes, want);
    }
    for (value, want) in [
        (
            "preserve_client_ip.enabled=",
            "attribute value is empty for",
        ),
        (
            "preserve_client_ip.enabled=True",
            "invalid attribute value for",
        ),
        (
            "deregistration_delay.timeout_seconds=3601",
            "(accepted: seconds from 0 to 3600)",
        ),
        (
            "foo=bar",
            "is not supported by the controller or is invalid",
        ),
    ] {
        alb(&mut service, "target-group-attributes", value);
        let text = refused(&service);
        assert!(
            text.starts_with("error validating target group attributes: "),
            "{text}"
        );
        assert!(text.contains(want), "{text}");
    }
    let mut service = udp();
    alb(
        &mut service,
        "target-group-attributes",
        "preserve_client_ip.enabled=false",
    );
    assert!(refused(&service).contains("can't be disabled for UDP ports"));
}

/// REQ-AWS-VAL-12, REQ-AWS-VAL-13, REQ-AWS-VAL-14, REQ-AWS-VAL-15, REQ-AWS-VAL-16, REQ-AWS-VAL-17
#[test]
fn unsupported_specs_are_refused() {
    let mut service = plain();
    service.spec.session_affinity = Some("ClientIP".to_owned());
    assert_eq!(
        refused(&service),
        "unsupported load balancer affinity: ClientIP"
    );
    assert_eq!(
        refused(&ports_of(&[])),
        "requested load balancer with no ports"
    );
    let two = ports_of(&[(80, 30080), (81, 30081)]);
    accepted(&two);
    let mut mixed = two;
    mixed.spec.ports[1].protocol = Some("UDP".to_owned());
    assert_eq!(
        refused(&mixed),
        "mixed protocol is not supported for LoadBalancer"
    );
    assert!(accepted(&udp()).udp);
    let mut sctp = plain();
    sctp.spec.ports[0].protocol = Some("SCTP".to_owned());
    assert_eq!(
        refused(&sctp),
        "Protocol SCTP not supported by LoadBalancer"
    );
    let mut service = plain();
    service.spec.load_balancer_ip = Some("203.0.113.250".to_owned());
    assert_eq!(
        refused(&service),
        "LoadBalancerIP cannot be specified for AWS ELB"
    );
}

/// REQ-AWS-VAL-19, REQ-AWS-VAL-20, REQ-AWS-VAL-21, REQ-AWS-VAL-22, REQ-AWS-VAL-33
#[test]
fn source_ranges_are_normalised_and_ipv6_is_refused() {
    let key = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let sources = |service: &Service| -> Vec<String> {
        accepted(service)
            .sources
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let mut service = plain();
    assert_eq!(sources(&service), ["0.0.0.0/0"]);
    annotate(&mut service, key, " 10.0.0.0/8 , 192.168.0.0/16");
    assert_eq!(sources(&service), ["10.0.0.0/8", "192.168.0.0/16"]);
    service.spec.load_balancer_source_ranges = Some(vec!["10.0.0.5/8".to_owned()]);
    assert_eq!(sources(&service), ["10.0.0.0/8"]);
    service.spec.load_balancer_source_ranges = None;
    annotate(&mut service, key, "10.0.0.0/8,");
    assert!(refused(&service).contains(key));
    annotate(&mut service, key, "fd00::/8");
    assert!(refused(&service).contains("fd00::/8 is IPv6"));
}

/// REQ-AWS-VAL-23
#[test]
fn every_text_but_false_makes_it_internal() {
    let mut service = plain();
    for (value, want) in [
        ("", false),
        ("false", false),
        ("true", true),
        ("0.0.0.0/0", true),
        ("False", true),
    ] {
        alb(&mut service, "internal", value);
        assert_eq!(accepted(&service).internal, want, "{value}");
    }
}

/// REQ-AWS-VAL-26, REQ-AWS-NLB-6, REQ-AWS-NLB-8, REQ-AWS-NLB-9
#[test]
fn the_certificate_makes_the_selected_tcp_ports_tls() {
    let mut service = ports_of(&[(80, 30080), (443, 30443)]);
    alb(&mut service, "ssl-cert", "arn:cert");
    let protocols = |service: &Service| -> Vec<&'static str> {
        accepted(service)
            .ports
            .iter()
            .map(|port| port.listener_protocol)
            .collect()
    };
    for (value, want) in [
        ("*", ["TLS", "TLS"]),
        ("", ["TLS", "TLS"]),
        ("443", ["TCP", "TLS"]),
        ("p80", ["TLS", "TCP"]),
        ("8080, 443", ["TCP", "TLS"]),
        ("8080, p443", ["TCP", "TLS"]),
        ("P443", ["TCP", "TCP"]),
    ] {
        alb(&mut service, "ssl-ports", value);
        assert_eq!(protocols(&service), want, "{value}");
    }
    alb(&mut service, "ssl-ports", "443");
    alb(&mut service, "ssl-negotiation-policy", "P");
    alb(&mut service, "backend-protocol", "ssl");
    let request = accepted(&service);
    let tls = &request.ports[1];
    assert_eq!(tls.target_protocol, "TLS");
    assert_eq!(tls.certificate.as_deref(), Some("arn:cert"));
    assert_eq!(tls.ssl_policy.as_deref(), Some("P"));
    assert_eq!(request.ports[0].ssl_policy, None);
    let mut service = udp();
    alb(&mut service, "ssl-cert", "arn:cert");
    assert_eq!(protocols(&service), ["UDP"]);
}

/// REQ-AWS-VAL-27, REQ-AWS-VAL-28
#[test]
fn subnet_lists_are_trimmed_and_an_empty_list_counts_as_present() {
    let mut service = plain();
    assert_eq!(accepted(&service).subnets, None);
    alb(&mut service, "subnets", "\t, ,,");
    assert_eq!(accepted(&service).subnets, Some(vec![]));
    alb(&mut service, "subnets", "subnet-1, subnet-2, My Subnet ");
    let want = ["subnet-1", "subnet-2", "My Subnet"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(accepted(&service).subnets, Some(want));
}

/// REQ-AWS-VAL-29, REQ-AWS-NLB-18, REQ-AWS-NLB-19
#[test]
fn load_balancer_attributes_are_read_before_any_call() {
    let mut service = plain();
    alb(&mut service, "cross-zone-load-balancing-enabled", "true");
    alb(&mut service, "access-log-s3-bucket-name", "b");
    alb(&mut service, "access-log-s3-bucket-prefix", "p");
    let pairs = |service: &Service| -> Vec<String> {
        accepted(service)
            .attributes
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect()
    };
    assert_eq!(
        pairs(&service),
        [
            "access_logs.s3.enabled=false",
            "load_balancing.cross_zone.enabled=true"
        ]
    );
    alb(&mut service, "access-log-enabled", "true");
    assert_eq!(
        pairs(&service),
        [
            "access_logs.s3.bucket=b",
            "access_logs.s3.enabled=true",
            "access_logs.s3.prefix=p",
            "load_balancing.cross_zone.enabled=true"
        ]
    );
    for key in ["access-log-enabled", "cross-zone-load-balancing-enabled"] {
        let mut service = plain();
        alb(&mut service, key, "maybe");
        assert_eq!(
            refused(&service),
            format!(
                "error parsing service annotation: \
                 service.beta.kubernetes.io/aws-load-balancer-{key}=maybe (accepted: true or false)"
            )
        );
    }
}

/// REQ-AWS-TAG-12, REQ-AWS-TAG-16, REQ-AWS-TAG-21, REQ-AWS-NLB-5
#[test]
fn reserved_tags_cannot_be_set_and_addresses_are_trimmed() {
    let mut service = plain();
    alb(
        &mut service,
        "additional-resource-tags",
        "team=blue,kubernetes.io/cluster/kite=shared,kubernetes.io/service-name=x,aws:a=b",
    );
    alb(&mut service, "eip-allocations", "e1, e2");
    let request = accepted(&service);
    let pairs: Vec<String> = request
        .tags
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(
        pairs,
        [
            "kubernetes.io/cluster/kite=owned",
            "kubernetes.io/service-name=shop/web",
            "team=blue"
        ]
    );
    assert!(!request.group_tags.contains_key(SERVICE_NAME));
    assert_eq!(request.allocations, ["e1", "e2"]);
}

/// CASE-LB-10: a Service with a port that has no node port is refused as a whole.
#[test]
fn a_port_without_node_port_is_named() {
    let service = ports_of(&[(443, 0), (8443, 31443)]);
    let text = refused(&service);
    assert!(
        text.contains("port \"p443\" (443/TCP) has no node port"),
        "{text}"
    );
}

/// REQ-AWS-NODE-1, REQ-AWS-NODE-2, REQ-AWS-NODE-3, REQ-AWS-NODE-4, REQ-AWS-NODE-5
#[test]
fn nodes_are_chosen_by_labels() {
    let mut labelled = (*node("i-1")).clone();
    labelled.metadata.labels = Some(
        [("k1", "v1"), ("k2", "v2")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
    );
    let mut one = labelled.clone();
    one.metadata.labels.as_mut().unwrap().remove("k2");
    for (node, value, want) in [
        (&labelled, None, true),
        (&labelled, Some("k1=v1,k2=v2"), true),
        (&labelled, Some("k1,k2"), true),
        (&one, Some("k1=v1,k2"), false),
        (&labelled, Some("k3=v3"), false),
    ] {
        let mut service = plain();
        if let Some(value) = value {
            alb(&mut service, "target-node-labels", value);
        }
        assert_eq!(
            node_matches(node, &accepted(&service).node_labels),
            want,
            "{value:?}"
        );
    }
}
