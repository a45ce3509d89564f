//! Everything about a Service with a classic load balancer that can be judged without asking the
//! cloud (specification: aws §4.4, §4.7.1). The first error wins and nothing was called before.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::{
    cloud::{CloudError, CloudResult, LoadBalancerName},
    kube::{Service, ServicePort},
};
use ipnet::Ipv4Net;

use super::health_check::health_check;
use crate::{
    annotations::{self, PortSet},
    api::elb::{AccessLog, Attributes, Draining, HealthCheck, ListenerSpec},
    load_balancer::{
        preflight::{
            name, no_address, no_affinity, no_node_port, one_protocol, sources, tags, type_change,
            user_tags,
        },
        settings::Settings,
    },
    names,
    tags::{Lifecycle, Tags},
};

/// Seconds after which an idle connection is closed, unless annotated.
const IDLE_TIMEOUT: i32 = 60;

/// What the annotation of the protocol towards the Nodes takes beside a certificate.
const BACKEND_PROTOCOLS: &str = "https, http, ssl or tcp";

/// A Service that passed: all that is wanted, before the cloud was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The load balancer's name.
    pub name: LoadBalancerName,
    /// The name of the security group made for it.
    pub group: String,
    /// That group's description.
    pub group_description: String,
    /// Whether the load balancer is internal.
    pub internal: bool,
    /// Its listeners, in the order of the Service's ports.
    pub listeners: Vec<ListenerSpec>,
    /// Clients.
    pub sources: BTreeSet<Ipv4Net>,
    /// How instances are checked.
    pub health: HealthCheck,
    /// Subnets by id or name.
    pub subnets: Option<Vec<String>>,
    /// The user's security groups instead of one made for it.
    pub security_groups: Vec<String>,
    /// The user's security groups beside that.
    pub extra_security_groups: Vec<String>,
    /// Tags of the load balancer.
    pub tags: Tags,
    /// Tags of its security group.
    pub group_tags: Tags,
    /// Those that the user gave.
    pub user_tags: Tags,
    /// Attributes.
    pub attributes: Attributes,
    /// Whether instances get the PROXY protocol.
    pub proxy_protocol: bool,
    /// The predefined policy of TLS listeners; `None` leaves it alone.
    pub ssl_policy: Option<String>,
    /// Which Nodes are targets.
    pub node_labels: BTreeMap<String, String>,
}

/// Checks the Service.
///
/// # Errors
/// Class `Invalid`; the text names field or annotation.
pub fn preflight(service: &Service, settings: &Settings) -> CloudResult<Request> {
    type_change(service)?;
    if annotations::TARGET_GROUP_ATTRIBUTES.is_present(service) {
        return Err(CloudError::invalid(
            "target group attributes annotation is only supported for NLB",
        ));
    }
    no_affinity(service)?;
    one_protocol(service, &["TCP"])?;
    let sources = sources(service)?;
    let listeners = listeners(service)?;
    no_address(service)?;
    let name = name(service)?;
    let node_port = listeners
        .first()
        .map(|listener| listener.instance_port)
        .unwrap_or_default();
    let user_tags = user_tags(service)?;
    Ok(Request {
        group: names::classic_security_group(&name),
        group_description: names::classic_security_group_description(
            &name,
            service.namespace(),
            service.name(),
        ),
        internal: annotations::INTERNAL.get(service)?.unwrap_or(false),
        listeners,
        sources,
        proxy_protocol: annotations::PROXY_PROTOCOL.get(service)?.is_some(),
        attributes: attributes(service)?,
        health: health_check(service, &settings.health_probe, &name, node_port)?,
        subnets: annotations::SUBNETS.get(service)?,
        security_groups: annotations::SECURITY_GROUPS
            .get(service)?
            .unwrap_or_default(),
        extra_security_groups: annotations::EXTRA_SECURITY_GROUPS
            .get(service)?
            .unwrap_or_default(),
        tags: tags(service, settings, user_tags.clone()),
        group_tags: settings.tags.build(Lifecycle::Owned, user_tags.clone()),
        user_tags,
        ssl_policy: ssl_policy(service)?,
        node_labels: annotations::TARGET_NODE_LABELS
            .get(service)?
            .unwrap_or_default(),
        name,
    })
}

fn listeners(service: &Service) -> CloudResult<Vec<ListenerSpec>> {
    let certificate = annotations::SSL_CERT
        .get(service)?
        .filter(|arn| !arn.is_empty());
    let selected = annotations::SSL_PORTS.get(service)?.unwrap_or(PortSet::All);
    let backend = annotations::BACKEND_PROTOCOL
        .get(service)?
        .unwrap_or_default();
    let listener = |port: &ServicePort| {
        let instance_port = port
            .allocated_node_port()
            .ok_or_else(|| no_node_port(port))?;
        let certificate = certificate.clone().filter(|_| selects(&selected, port));
        let (protocol, instance_protocol) = protocols(certificate.as_deref(), &backend)?;
        Ok(ListenerSpec {
            port: port.port,
            protocol: protocol.to_owned(),
            instance_port,
            instance_protocol: instance_protocol.to_owned(),
            certificate,
        })
    };
    service.spec.ports.iter().map(listener).collect()
}

/// Names are compared in lower case.
fn selects(ports: &PortSet, port: &ServicePort) -> bool {
    let name = port.name.as_deref().map(str::to_lowercase);
    ports.contains(port.port, name.as_deref())
}

/// The protocols of the listener and towards the Nodes.
fn protocols(
    certificate: Option<&str>,
    backend: &str,
) -> CloudResult<(&'static str, &'static str)> {
    let Some(certificate) = certificate else {
        return Ok(if backend == "http" {
            ("http", "http")
        } else {
            ("tcp", "tcp")
        });
    };
    match backend {
        "" | "tcp" => Ok(("ssl", "tcp")),
        "ssl" => Ok(("ssl", "ssl")),
        "http" => Ok(("https", "http")),
        "https" => Ok(("https", "https")),
        other => Err(CloudError::invalid(format!(
            "Invalid backend protocol {other} for {certificate} in {} (accepted: \
             {BACKEND_PROTOCOLS})",
            annotations::BACKEND_PROTOCOL.key
        ))),
    }
}

/// An empty value would make AWS refuse the policy, but only after the load balancer is made.
fn ssl_policy(service: &Service) -> CloudResult<Option<String>> {
    let annotation = &annotations::SSL_NEGOTIATION_POLICY;
    let policy = annotation.get(service)?;
    if policy.as_deref() == Some("") {
        return Err(CloudError::invalid(format!(
            "annotation {} must not be empty: name a predefined policy or remove it",
            annotation.key
        )));
    }
    Ok(policy)
}

/// Of access logs and draining the details count only when they are on: AWS answers them as it
/// likes otherwise.
fn attributes(service: &Service) -> CloudResult<Attributes> {
    let log = annotations::ACCESS_LOG_ENABLED
        .get(service)?
        .unwrap_or(false);
    let interval = annotations::ACCESS_LOG_EMIT_INTERVAL.get(service)?;
    let text = |annotation: &annotations::Annotation<String>| {
        let given = annotation.get(service)?;
        Ok::<_, CloudError>(given.filter(|text| log && !text.is_empty()))
    };
    let draining = annotations::CONNECTION_DRAINING_ENABLED
        .get(service)?
        .unwrap_or(false);
    let timeout = annotations::CONNECTION_DRAINING_TIMEOUT.get(service)?;
    Ok(Attributes {
        access_log: Some(AccessLog {
            enabled: log,
            emit_interval: interval.filter(|_| log),
            bucket: text(&annotations::ACCESS_LOG_S3_BUCKET_NAME)?,
            prefix: text(&annotations::ACCESS_LOG_S3_BUCKET_PREFIX)?,
        }),
        draining: Some(Draining {
            enabled: draining,
            timeout: timeout.filter(|_| draining),
        }),
        idle_timeout: Some(
            annotations::CONNECTION_IDLE_TIMEOUT
                .get(service)?
                .unwrap_or(IDLE_TIMEOUT),
        ),
        cross_zone: Some(
            annotations::CROSS_ZONE_LOAD_BALANCING_ENABLED
                .get(service)?
                .unwrap_or(false),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_balancer::testing::{alb, classic, settings};

    const CERT: &str = "arn:aws:acm:us-west-2:123456789012:certificate/c";

    fn refused(service: &Service) -> String {
        let error = preflight(service, &settings()).unwrap_err();
        assert_eq!(error.class(), ccm_core::cloud::Class::Invalid);
        error.to_string()
    }

    fn shown(pairs: &[(&str, &str)]) -> Vec<String> {
        let mut service = classic(&[(80, 30080), (443, 30443)]);
        service.spec.ports[1].name = Some("HTTPS".to_owned());
        for (key, value) in pairs {
            alb(&mut service, key, value);
        }
        let listeners = preflight(&service, &settings()).unwrap().listeners;
        listeners
            .iter()
            .map(|l| {
                assert_eq!(l.instance_port, 30000 + l.port);
                let certificate = l.certificate.as_deref();
                assert!(certificate.is_none_or(|arn| arn == CERT));
                let tls = matches!(l.protocol.as_str(), "ssl" | "https");
                assert_eq!(tls, certificate.is_some());
                format!("{} {}/{}", l.port, l.protocol, l.instance_protocol)
            })
            .collect()
    }

    /// REQ-AWS-CLB-1, REQ-AWS-CLB-2, REQ-AWS-CLB-4, REQ-AWS-CLB-5, REQ-AWS-CLB-6
    #[test]
    fn certificate_and_backend_protocol_say_what_listeners_speak() {
        for (backend, plain, tls) in [
            ("", "tcp/tcp", "ssl/tcp"),
            ("https", "tcp/tcp", "https/https"),
            ("http", "http/http", "https/http"),
            ("ssl", "tcp/tcp", "ssl/ssl"),
            ("tcp", "tcp/tcp", "ssl/tcp"),
        ] {
            let backend = ("backend-protocol", backend);
            let (on_80, on_443) = (format!("80 {plain}"), format!("443 {plain}"));
            assert_eq!(shown(&[backend]), [on_80.clone(), on_443]);
            let both = [format!("80 {tls}"), format!("443 {tls}")];
            assert_eq!(shown(&[backend, ("ssl-cert", CERT)]), both);
            let one = [on_80, format!("443 {tls}")];
            for selected in ["443", "https", "443, 8443", "x, https"] {
                let pairs = [backend, ("ssl-cert", CERT), ("ssl-ports", selected)];
                assert_eq!(shown(&pairs), one, "{selected}");
            }
        }
        assert_eq!(
            shown(&[("backend-protocol", "bacon"), ("ssl-cert", "")]),
            ["80 tcp/tcp", "443 tcp/tcp"]
        );
    }

    /// REQ-AWS-CLB-3
    #[test]
    fn an_unknown_backend_protocol_beside_a_certificate_is_refused() {
        let mut service = classic(&[(443, 30443)]);
        alb(&mut service, "ssl-cert", CERT);
        alb(&mut service, "backend-protocol", "bacon");
        let want = format!(
            "Invalid backend protocol bacon for {CERT} in \
             service.beta.kubernetes.io/aws-load-balancer-backend-protocol (accepted: "
        );
        assert!(refused(&service).starts_with(&want));
    }

    /// REQ-AWS-VAL-8, REQ-AWS-VAL-9, REQ-AWS-VAL-15, REQ-AWS-VAL-22, CASE-LB-10
    #[test]
    fn what_a_classic_load_balancer_cannot_be_is_refused() {
        let mut service = classic(&[(80, 30080)]);
        alb(&mut service, "security-groups", "sg-1");
        alb(&mut service, "extra-security-groups", "sg-2, sg-3");
        let request = preflight(&service, &settings()).unwrap();
        assert_eq!(request.security_groups, ["sg-1"]);
        assert_eq!(request.extra_security_groups, ["sg-2", "sg-3"]);

        let mut other = service.clone();
        alb(&mut other, "target-group-attributes", "");
        assert_eq!(
            refused(&other),
            "target group attributes annotation is only supported for NLB"
        );
        other = service.clone();
        other.spec.ports[0].protocol = Some("UDP".to_owned());
        assert_eq!(
            refused(&other),
            "Protocol UDP not supported by LoadBalancer"
        );
        other = service.clone();
        other.spec.ports[0].node_port = None;
        assert!(refused(&other).starts_with("port \"p80\" (80/TCP) has no node port"));
        other = service.clone();
        other.spec.load_balancer_source_ranges = Some(vec!["fd00::/8".to_owned()]);
        assert!(refused(&other).starts_with("source range fd00::/8 is IPv6"));
        other = service.clone();
        other.spec.load_balancer_ip = Some("192.0.2.1".to_owned());
        assert!(refused(&other).starts_with("LoadBalancerIP cannot be specified"));
        other = service;
        alb(&mut other, "ssl-negotiation-policy", "");
        assert!(refused(&other).contains("must not be empty"));
    }

    /// REQ-AWS-VAL-24, REQ-AWS-VAL-25
    #[test]
    fn values_of_the_wrong_type_are_refused_with_key_and_value() {
        let prefix = "service.beta.kubernetes.io/aws-load-balancer-";
        let mut service = classic(&[(80, 30080)]);
        assert!(!preflight(&service, &settings()).unwrap().proxy_protocol);
        alb(&mut service, "proxy-protocol", "*");
        assert!(preflight(&service, &settings()).unwrap().proxy_protocol);
        alb(&mut service, "proxy-protocol", "x");
        assert_eq!(
            refused(&service),
            format!(
                "annotation \"{prefix}proxy-protocol\"=\"x\" detected, but the only value \
                 supported currently is '*'"
            )
        );
        for (key, value) in [
            ("access-log-enabled", "maybe"),
            ("access-log-emit-interval", "5m"),
            ("connection-idle-timeout", "60s"),
            ("connection-draining-enabled", "on"),
            ("connection-draining-timeout", "x"),
            ("cross-zone-load-balancing-enabled", "y"),
        ] {
            let mut service = classic(&[(80, 30080)]);
            alb(&mut service, key, value);
            let want = format!("error parsing service annotation: {prefix}{key}={value}");
            assert!(refused(&service).starts_with(&want));
        }
    }

    /// REQ-AWS-CLB-17, REQ-AWS-CLB-19
    #[test]
    fn attributes_have_defaults_and_details_only_when_they_are_on() {
        let of = |pairs: &[(&str, &str)]| {
            let mut service = classic(&[(80, 30080)]);
            for (key, value) in pairs {
                alb(&mut service, key, value);
            }
            preflight(&service, &settings()).unwrap().attributes
        };
        let default = Attributes {
            access_log: Some(AccessLog::default()),
            draining: Some(Draining::default()),
            idle_timeout: Some(60),
            cross_zone: Some(false),
        };
        assert_eq!(of(&[]), default);
        let details = [
            ("access-log-emit-interval", "5"),
            ("access-log-s3-bucket-name", "bucket"),
            ("access-log-s3-bucket-prefix", "prefix"),
            ("connection-draining-timeout", "30"),
        ];
        assert_eq!(of(&details), default);
        let mut all = details.to_vec();
        all.extend([
            ("access-log-enabled", "true"),
            ("connection-draining-enabled", "true"),
            ("connection-idle-timeout", "120"),
            ("cross-zone-load-balancing-enabled", "true"),
        ]);
        let want = Attributes {
            access_log: Some(AccessLog {
                enabled: true,
                emit_interval: Some(5),
                bucket: Some("bucket".to_owned()),
                prefix: Some("prefix".to_owned()),
            }),
            draining: Some(Draining {
                enabled: true,
                timeout: Some(30),
            }),
            idle_timeout: Some(120),
            cross_zone: Some(true),
        };
        assert_eq!(of(&all), want);
    }

    /// REQ-AWS-TAG-10, REQ-AWS-TAG-21, REQ-AWS-SG-1
    #[test]
    fn group_and_tags_name_the_service_and_reserved_keys_are_ours() {
        let mut service = classic(&[(80, 30080)]);
        alb(
            &mut service,
            "additional-resource-tags",
            "Key1=Val1, Key2=Val2,kubernetes.io/service-name=x,kubernetes.io/cluster/kite=shared",
        );
        let request = preflight(&service, &settings()).unwrap();
        let shown =
            |tags: &Tags| -> Vec<String> { tags.iter().map(|(k, v)| format!("{k}={v}")).collect() };
        assert_eq!(
            shown(&request.tags),
            [
                "Key1=Val1",
                "Key2=Val2",
                "kubernetes.io/cluster/kite=owned",
                "kubernetes.io/service-name=shop/web"
            ]
        );
        assert_eq!(
            shown(&request.group_tags),
            ["Key1=Val1", "Key2=Val2", "kubernetes.io/cluster/kite=owned"]
        );
        assert_eq!(shown(&request.user_tags), ["Key1=Val1", "Key2=Val2"]);
        let name = crate::load_balancer::testing::LB;
        assert_eq!(request.group, format!("k8s-elb-{name}"));
        assert_eq!(
            request.group_description,
            format!("Security group for Kubernetes ELB {name} (shop/web)")
        );
    }
}
