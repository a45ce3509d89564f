//! The rules of `ValidateService`, `ValidateServiceUpdate` and `ValidateServiceStatusUpdate`.

use std::{collections::BTreeSet, net::IpAddr};

use serde_json::{Value, json};

use super::{is_headless, needs_cluster_ip, needs_health_port};
use crate::{
    errors::{ApiError, FieldError},
    meta::{
        NOT_A_LABEL, NOT_A_LABEL_VALUE, NOT_A_QUALIFIED_NAME, NOT_A_SUBDOMAIN, is_dns_label,
        is_dns_subdomain, is_label_value, is_qualified_name,
    },
    object::{list, number, text, texts},
};

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const NOT_A_NETWORK: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const LOAD_BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";

/// JSON types that the rest of this module relies on: a wrong one is a decoding error.
pub(super) fn types(service: &Value) -> Result<(), ApiError> {
    let wrong = |field: &str, want: &str| {
        Err(ApiError::bad_request(format!(
            "Service in version \"v1\" cannot be handled as a Service: {field} must be {want}"
        )))
    };
    for field in ["spec", "status"] {
        if service.get(field).is_some_and(|v| !v.is_object()) {
            return wrong(field, "an object");
        }
    }
    for field in [
        "type",
        "clusterIP",
        "sessionAffinity",
        "externalTrafficPolicy",
        "internalTrafficPolicy",
        "loadBalancerClass",
        "externalName",
        "ipFamilyPolicy",
    ] {
        let value = service.pointer(&format!("/spec/{field}"));
        if value.is_some_and(|v| !v.is_string()) {
            return wrong(&format!("spec.{field}"), "a string");
        }
    }
    for field in [
        "ports",
        "clusterIPs",
        "ipFamilies",
        "externalIPs",
        "loadBalancerSourceRanges",
    ] {
        let value = service.pointer(&format!("/spec/{field}"));
        if value.is_some_and(|v| !v.is_array()) {
            return wrong(&format!("spec.{field}"), "a list");
        }
    }
    for (index, port) in list(service, "/spec/ports").iter().enumerate() {
        if !port.is_object() {
            return wrong(&format!("spec.ports[{index}]"), "an object");
        }
        for field in ["port", "nodePort"] {
            if port.get(field).is_some_and(|v| v.as_i64().is_none()) {
                return wrong(&format!("spec.ports[{index}].{field}"), "a number");
            }
        }
    }
    Ok(())
}

pub(super) fn service(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(service, "/spec/type");
    if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported("spec.type", &json!(kind), TYPES));
    }
    if let Some(old) = old {
        update(service, old, &mut errors);
    }
    if list(service, "/spec/ports").is_empty() && !is_headless(service) && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    by_type(service, kind, &mut errors);
    ports(service, kind, &mut errors);
    let affinity = text(service, "/spec/sessionAffinity");
    if !["ClientIP", "None"].contains(&affinity) {
        errors.push(FieldError::not_supported(
            "spec.sessionAffinity",
            &json!(affinity),
            &["ClientIP", "None"],
        ));
    }
    sessions_and_selector(service, &mut errors);
    external_ips(service, &mut errors);
    load_balancer_fields(service, kind, &mut errors);
    traffic_policies(service, kind, &mut errors);
    errors
}

fn update(service: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let both_need_ip = needs_cluster_ip(old) && needs_cluster_ip(service);
    let (was, is) = (
        texts(old, "/spec/clusterIPs"),
        texts(service, "/spec/clusterIPs"),
    );
    if both_need_ip && !was.is_empty() {
        for (index, (a, b)) in was.iter().zip(&is).enumerate() {
            if a != b {
                errors.push(FieldError::invalid(
                    format!("spec.clusterIPs[{index}]"),
                    &json!(is),
                    if index == 0 {
                        "may not change once set"
                    } else {
                        "may not change once set, except to clear it"
                    },
                ));
            }
        }
    }
    let both_balanced =
        text(old, "/spec/type") == "LoadBalancer" && text(service, "/spec/type") == "LoadBalancer";
    let class = "/spec/loadBalancerClass";
    if both_balanced && old.pointer(class) != service.pointer(class) {
        errors.push(FieldError::invalid(
            "spec.loadBalancerClass",
            service.pointer(class).unwrap_or(&Value::Null),
            "may not change once set",
        ));
    }
    let health = "/spec/healthCheckNodePort";
    if needs_health_port(old)
        && needs_health_port(service)
        && number(old, health) != number(service, health)
    {
        errors.push(FieldError::forbidden(
            "spec.healthCheckNodePort",
            "field is immutable",
        ));
    }
}

fn by_type(service: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let ips = texts(service, "/spec/clusterIPs");
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(service) => errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            &json!("None"),
            &format!("may not be set to 'None' for {kind} services"),
        )),
        "ExternalName" => {
            for field in ["ipFamilyPolicy", "ipFamilies"] {
                if service.pointer(&format!("/spec/{field}")).is_some() {
                    errors.push(FieldError::forbidden(
                        format!("spec.{field}"),
                        "may not be set for ExternalName services",
                    ));
                }
            }
            if !ips.is_empty() {
                errors.push(FieldError::forbidden(
                    "spec.clusterIPs",
                    "may not be set for ExternalName services",
                ));
            }
            let name = text(service, "/spec/externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.push(FieldError::required("spec.externalName", ""));
            } else if !is_dns_subdomain(name) {
                errors.push(FieldError::invalid(
                    "spec.externalName",
                    &json!(name),
                    NOT_A_SUBDOMAIN,
                ));
            }
        }
        _ => {}
    }
    let single = text(service, "/spec/clusterIP");
    if !ips.is_empty() && ips.first() != Some(&single) {
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            &json!(ips),
            "first value must match `clusterIP`",
        ));
    }
}

fn ports(service: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let ports = list(service, "/spec/ports");
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    let mut node_ports = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let name = text(port, "/name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(format!("{path}.name"), ""));
            }
        } else if !is_dns_label(name) {
            errors.push(FieldError::invalid(
                format!("{path}.name"),
                &json!(name),
                NOT_A_LABEL,
            ));
        } else if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
        }
        let in_range = |n: i64| (1..=65_535).contains(&n);
        let port_number = number(port, "/port");
        let range = "must be between 1 and 65535, inclusive";
        if !in_range(port_number) {
            errors.push(FieldError::invalid(
                format!("{path}.port"),
                &json!(port_number),
                range,
            ));
        }
        let protocol = text(port, "/protocol");
        if !PROTOCOLS.contains(&protocol) {
            errors.push(FieldError::not_supported(
                format!("{path}.protocol"),
                &json!(protocol),
                PROTOCOLS,
            ));
        }
        if let Some(target) = port.get("targetPort").and_then(Value::as_i64)
            && !in_range(target)
        {
            errors.push(FieldError::invalid(
                format!("{path}.targetPort"),
                &json!(target),
                range,
            ));
        }
        if let Some(target) = port.get("targetPort").and_then(Value::as_str)
            && let Some(why) = no_port_name(target)
        {
            errors.push(FieldError::invalid(
                format!("{path}.targetPort"),
                &json!(target),
                why,
            ));
        }
        let protocol_name = text(port, "/appProtocol");
        if !protocol_name.is_empty() && !is_qualified_name(protocol_name) {
            errors.push(FieldError::invalid(
                format!("{path}.appProtocol"),
                &json!(protocol_name),
                NOT_A_QUALIFIED_NAME,
            ));
        }
        let node_port = number(port, "/nodePort");
        if kind == "ClusterIP" && node_port != 0 {
            errors.push(FieldError::forbidden(
                format!("{path}.nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            ));
        }
        if node_port != 0 && !node_ports.insert((protocol, node_port)) {
            errors.push(FieldError::duplicate(
                format!("{path}.nodePort"),
                &json!(node_port),
            ));
        }
        if !numbers.insert((protocol, port_number)) {
            let shown = json!({"protocol": protocol, "port": port_number});
            errors.push(FieldError::duplicate(path, &shown));
        }
    }
}

/// What is wrong with the name of a container port, if anything.
fn no_port_name(name: &str) -> Option<&'static str> {
    /// Of `IsValidPortName`.
    const LONGEST: usize = 15;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.len() > LONGEST {
        Some("must be no more than 15 characters")
    } else if !name.chars().all(fits) {
        Some("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    } else if !name.chars().any(|c| c.is_ascii_lowercase()) {
        Some("must contain at least one letter (a-z)")
    } else if name.contains("--") {
        Some("must not contain consecutive hyphens")
    } else if name.starts_with('-') || name.ends_with('-') {
        Some("must not begin or end with a hyphen")
    } else {
        None
    }
}

fn sessions_and_selector(service: &Value, errors: &mut Vec<FieldError>) {
    let seconds = service.pointer("/spec/sessionAffinityConfig/clientIP/timeoutSeconds");
    if let Some(seconds) = seconds
        && !seconds.as_i64().is_some_and(|s| (1..=86_400).contains(&s))
    {
        errors.push(FieldError::invalid(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            seconds,
            "must be greater than 0 and less than 86400",
        ));
    }
    let selector = service.pointer("/spec/selector").and_then(Value::as_object);
    for (key, value) in selector.into_iter().flatten() {
        if !is_qualified_name(key) {
            let error = FieldError::invalid("spec.selector", &json!(key), NOT_A_QUALIFIED_NAME);
            errors.push(error);
        }
        if !value.as_str().is_some_and(is_label_value) {
            errors.push(FieldError::invalid(
                "spec.selector",
                value,
                NOT_A_LABEL_VALUE,
            ));
        }
    }
    let distribution = text(service, "/spec/trafficDistribution");
    let known = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    if !distribution.is_empty() && !known.contains(&distribution) {
        errors.push(FieldError::not_supported(
            "spec.trafficDistribution",
            &json!(distribution),
            known,
        ));
    }
}

fn external_ips(service: &Value, errors: &mut Vec<FieldError>) {
    for (index, text) in texts(service, "/spec/externalIPs").iter().enumerate() {
        let link_local = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        let why = match text.parse::<IpAddr>() {
            Err(_) => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            Ok(ip) if ip.is_unspecified() => "may not be unspecified",
            Ok(ip) if ip.is_loopback() => "may not be in the loopback range",
            Ok(ip) if link_local(&ip) => "may not be in the link-local range",
            Ok(_) => continue,
        };
        let field = format!("spec.externalIPs[{index}]");
        errors.push(FieldError::invalid(field, &json!(text), why));
    }
}

/// A CIDR without bits below its prefix length.
fn is_network(text: &str) -> bool {
    text.parse::<ipnet::IpNet>()
        .is_ok_and(|net| net.addr() == net.network())
}

fn annotated_ranges(service: &Value, balanced: bool, errors: &mut Vec<FieldError>) {
    let annotations = service.pointer("/metadata/annotations");
    let Some(ranges) = annotations
        .and_then(|all| all.get(RANGES_ANNOTATION))
        .and_then(Value::as_str)
    else {
        return;
    };
    let field = format!("metadata.annotations[{RANGES_ANNOTATION}]");
    if !balanced {
        errors.push(FieldError::forbidden(field, LOAD_BALANCER_ONLY));
        return;
    }
    for range in ranges.split(',').map(str::trim) {
        if !ranges.trim().is_empty() && !is_network(range) {
            let error = FieldError::invalid(field.clone(), &json!(range), NOT_A_NETWORK);
            errors.push(error);
        }
    }
}

fn load_balancer_fields(service: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let balanced = kind == "LoadBalancer";
    let ranges = texts(service, "/spec/loadBalancerSourceRanges");
    if !balanced && !ranges.is_empty() {
        errors.push(FieldError::forbidden(
            "spec.LoadBalancerSourceRanges",
            LOAD_BALANCER_ONLY,
        ));
    }
    for (index, range) in ranges.iter().enumerate() {
        if !is_network(range.trim()) {
            errors.push(FieldError::invalid(
                format!("spec.LoadBalancerSourceRanges[{index}]"),
                &json!(range.trim()),
                NOT_A_NETWORK,
            ));
        }
    }
    if ranges.is_empty() {
        annotated_ranges(service, balanced, errors);
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if !balanced && service.pointer(&format!("/spec/{field}")).is_some() {
            errors.push(FieldError::forbidden(
                format!("spec.{field}"),
                LOAD_BALANCER_ONLY,
            ));
        }
    }
    if balanced
        && let Some(class) = service.pointer("/spec/loadBalancerClass")
        && !class.as_str().is_some_and(is_qualified_name)
    {
        errors.push(FieldError::invalid(
            "spec.loadBalancerClass",
            class,
            NOT_A_QUALIFIED_NAME,
        ));
    }
}

fn traffic_policies(service: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let policy = text(service, "/spec/externalTrafficPolicy");
    let accessible = super::externally_accessible(service);
    if !policy.is_empty() && !accessible {
        errors.push(FieldError::invalid(
            "spec.externalTrafficPolicy",
            &json!(policy),
            "may only be set for externally-accessible services",
        ));
    } else if accessible && !["Cluster", "Local"].contains(&policy) {
        errors.push(FieldError::not_supported(
            "spec.externalTrafficPolicy",
            &json!(policy),
            &["Cluster", "Local"],
        ));
    }
    if number(service, "/spec/healthCheckNodePort") != 0 && !needs_health_port(service) {
        errors.push(FieldError::invalid(
            "spec.healthCheckNodePort",
            &json!(number(service, "/spec/healthCheckNodePort")),
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ));
    }
    let internal = text(service, "/spec/internalTrafficPolicy");
    if kind != "ExternalName" && !["Cluster", "Local"].contains(&internal) {
        errors.push(FieldError::not_supported(
            "spec.internalTrafficPolicy",
            &json!(internal),
            &["Cluster", "Local"],
        ));
    }
}

/// `ValidateLoadBalancerStatus`.
pub(crate) fn validate_status(service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = "status.loadBalancer.ingress";
    let ingress = list(service, "/status/loadBalancer/ingress");
    if text(service, "/spec/type") != "LoadBalancer" && !ingress.is_empty() {
        return vec![FieldError::forbidden(
            path,
            "may only be used when `spec.type` is 'LoadBalancer'",
        )];
    }
    for (index, entry) in ingress.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let (ip, hostname) = (text(entry, "/ip"), text(entry, "/hostname"));
        if !ip.is_empty() && ip.parse::<IpAddr>().is_err() {
            errors.push(FieldError::invalid(
                format!("{path}.ip"),
                &json!(ip),
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ));
        }
        match entry.get("ipMode") {
            None if !ip.is_empty() => errors.push(FieldError::required(
                format!("{path}.ipMode"),
                "must be specified when `ip` is set",
            )),
            Some(_) if ip.is_empty() => errors.push(FieldError::forbidden(
                format!("{path}.ipMode"),
                "may not be specified when `ip` is not set",
            )),
            Some(mode) if !["VIP", "Proxy"].contains(&mode.as_str().unwrap_or_default()) => {
                errors.push(FieldError::not_supported(
                    format!("{path}.ipMode"),
                    mode,
                    &["Proxy", "VIP"],
                ));
            }
            _ => {}
        }
        if !hostname.is_empty() {
            if hostname.parse::<IpAddr>().is_ok() {
                errors.push(FieldError::invalid(
                    format!("{path}.hostname"),
                    &json!(hostname),
                    "must be a DNS name, not an IP address",
                ));
            } else if !is_dns_subdomain(hostname) {
                errors.push(FieldError::invalid(
                    format!("{path}.hostname"),
                    &json!(hostname),
                    NOT_A_SUBDOMAIN,
                ));
            }
        }
    }
    errors
}
