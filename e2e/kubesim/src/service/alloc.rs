//! Cluster IPs, node ports and health check node ports.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{allocates_node_ports, needs_cluster_ip, needs_health_port};
use crate::{
    errors::{ApiError, FieldError},
    object::{list, number, set, text, texts},
    options::Options,
};

/// What the other Services hold. It is read from the stored objects each time, so a release
/// can never be forgotten.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<(String, i64)>,
}

impl Taken {
    /// Collects from all Services but `except` (namespace, name).
    pub(crate) fn collect<'a>(
        services: impl Iterator<Item = &'a Value>,
        except: (&str, &str),
    ) -> Self {
        let mut taken = Self::default();
        for service in services {
            let id = (
                crate::object::namespace(service),
                crate::object::name(service),
            );
            if id == except {
                continue;
            }
            taken.addresses.extend(
                texts(service, "/spec/clusterIPs")
                    .iter()
                    .filter_map(|ip| ip.parse::<IpAddr>().ok()),
            );
            for port in list(service, "/spec/ports") {
                let node_port = number(port, "/nodePort");
                if node_port != 0 {
                    taken
                        .ports
                        .insert((text(port, "/protocol").to_owned(), node_port));
                }
            }
            let health = number(service, "/spec/healthCheckNodePort");
            if health != 0 {
                taken.ports.insert(("TCP".to_owned(), health));
            }
        }
        taken
    }
}

/// Fills in what is missing and checks what was asked for.
pub(super) fn allocate(
    service: &mut Value,
    old: Option<&Value>,
    taken: &Taken,
    options: &Options,
    rng: &mut fastrand::Rng,
) -> Result<Vec<FieldError>, ApiError> {
    let mut errors = Vec::new();
    if needs_cluster_ip(service) {
        match families(service, old, options) {
            Ok(families) => cluster_ips(service, &families, taken, options, rng, &mut errors),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        let own = node_ports(service, taken, options, rng, &mut errors);
        health_port(service, taken, &own, options, rng)?;
    }
    Ok(errors)
}

fn family_of(net: &IpNet) -> &'static str {
    match net {
        IpNet::V4(_) => "IPv4",
        IpNet::V6(_) => "IPv6",
    }
}

/// Settles ipFamilyPolicy and ipFamilies.
fn families(
    service: &mut Value,
    old: Option<&Value>,
    options: &Options,
) -> Result<Vec<String>, FieldError> {
    let served: Vec<&str> = options.service_cidrs.iter().map(family_of).collect();
    let headless = text(service, "/spec/clusterIP") == "None";
    let selectorless = service
        .pointer("/spec/selector")
        .and_then(Value::as_object)
        .is_none_or(serde_json::Map::is_empty);
    if text(service, "/spec/ipFamilyPolicy").is_empty() {
        let before = old.map_or("", |o| text(o, "/spec/ipFamilyPolicy"));
        let policy = if !before.is_empty() {
            before
        } else if headless && selectorless {
            "RequireDualStack"
        } else {
            "SingleStack"
        };
        set(service, &["spec", "ipFamilyPolicy"], policy.to_owned());
    }
    let policy = text(service, "/spec/ipFamilyPolicy").to_owned();
    if !["SingleStack", "PreferDualStack", "RequireDualStack"].contains(&policy.as_str()) {
        return Err(FieldError::not_supported(
            "spec.ipFamilyPolicy",
            &json!(policy),
            &["PreferDualStack", "RequireDualStack", "SingleStack"],
        ));
    }
    // A headless Service without a selector gets both families, whatever the cluster has.
    if headless && selectorless && old.is_none() && policy == "RequireDualStack" {
        let first = served.first().copied().unwrap_or("IPv4");
        let second = if first == "IPv4" { "IPv6" } else { "IPv4" };
        set(service, &["spec", "ipFamilies"], json!([first, second]));
        return Ok(vec![first.to_owned(), second.to_owned()]);
    }
    if headless && selectorless {
        let kept = texts(service, "/spec/ipFamilies");
        return Ok(kept.into_iter().map(str::to_owned).collect());
    }
    if policy == "RequireDualStack" && served.len() < 2 {
        return Err(FieldError::invalid(
            "spec.ipFamilyPolicy",
            &json!(policy),
            "this cluster is not configured for dual-stack services",
        ));
    }
    let mut families: Vec<String> = texts(service, "/spec/ipFamilies")
        .iter()
        .map(|f| (*f).to_owned())
        .collect();
    families_are_sound(service, old, &policy, &families)?;
    for (index, family) in families.iter().enumerate() {
        if !served.contains(&family.as_str()) {
            return Err(FieldError::invalid(
                format!("spec.ipFamilies[{index}]"),
                &json!(family),
                "not configured on this cluster",
            ));
        }
    }
    for ip in texts(service, "/spec/clusterIPs") {
        let family = match ip.parse() {
            Ok(IpAddr::V4(_)) => "IPv4",
            Ok(IpAddr::V6(_)) => "IPv6",
            Err(_) => continue,
        };
        if !families.iter().any(|f| f == family) {
            families.push(family.to_owned());
        }
    }
    let want = if policy == "SingleStack" {
        1
    } else {
        served.len().min(2)
    };
    for family in served {
        if families.len() < want && !families.iter().any(|f| f == family) {
            families.push(family.to_owned());
        }
    }
    if policy == "SingleStack" && families.len() > 1 {
        if list(service, "/spec/clusterIPs").len() > 1 && old.is_none() {
            return Err(FieldError::invalid(
                "spec.ipFamilyPolicy",
                &json!(policy),
                "must be RequireDualStack or PreferDualStack when multiple ipFamilies are specified",
            ));
        }
        families.truncate(1);
    }
    set(service, &["spec", "ipFamilies"], json!(families));
    Ok(families)
}

/// What the families may not be, alone or with the policy.
fn families_are_sound(
    service: &Value,
    old: Option<&Value>,
    policy: &str,
    families: &[String],
) -> Result<(), FieldError> {
    let mut seen = BTreeSet::new();
    for (index, family) in families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        if !["IPv4", "IPv6"].contains(&family.as_str()) {
            let known = &["IPv4", "IPv6"];
            return Err(FieldError::not_supported(field, &json!(family), known));
        }
        if !seen.insert(family) {
            return Err(FieldError::duplicate(field, &json!(family)));
        }
    }
    // A change of the policy alone drops the second family.
    let kept = old
        .is_some_and(|old| old.pointer("/spec/ipFamilies") == service.pointer("/spec/ipFamilies"));
    if policy == "SingleStack" && families.len() > 1 && !kept {
        return Err(FieldError::invalid(
            "spec.ipFamilyPolicy",
            &json!(policy),
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
        ));
    }
    for (index, (family, ip)) in families
        .iter()
        .zip(texts(service, "/spec/clusterIPs"))
        .enumerate()
    {
        let other = match ip.parse::<IpAddr>() {
            Ok(ip) => ip.is_ipv4() != (family == "IPv4"),
            Err(_) => false,
        };
        if other {
            return Err(FieldError::invalid(
                format!("spec.clusterIPs[{index}]"),
                &json!(ip),
                &format!("expected an {family} value as indicated by `ipFamilies[{index}]`"),
            ));
        }
    }
    Ok(())
}

fn cluster_ips(
    service: &mut Value,
    families: &[String],
    taken: &Taken,
    options: &Options,
    rng: &mut fastrand::Rng,
    errors: &mut Vec<FieldError>,
) {
    if text(service, "/spec/clusterIP") == "None" {
        return;
    }
    let (single, all) = (
        text(service, "/spec/clusterIP"),
        texts(service, "/spec/clusterIPs"),
    );
    if !single.is_empty() && all.first().is_some_and(|first| *first != single) {
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            &json!(all),
            "first value must match `clusterIP`",
        ));
        return;
    }
    let mut addresses: Vec<String> = texts(service, "/spec/clusterIPs")
        .iter()
        .map(|ip| (*ip).to_owned())
        .collect();
    addresses.truncate(families.len());
    for (index, text) in addresses.iter().enumerate() {
        let field = format!("spec.clusterIPs[{index}]");
        match text.parse::<IpAddr>() {
            Err(_) => errors.push(FieldError::invalid(
                field,
                &json!(text),
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            )),
            Ok(ip) if !options.service_cidrs.iter().any(|net| net.contains(&ip)) => {
                errors.push(FieldError::invalid(
                    "spec.clusterIPs",
                    &json!([text]),
                    &format!("failed to allocate IP {text}: the provided network does not match the current range"),
                ));
            }
            Ok(ip) if taken.addresses.contains(&ip) => errors.push(FieldError::invalid(
                "spec.clusterIPs",
                &json!([text]),
                &format!("failed to allocate IP {text}: provided IP is already allocated"),
            )),
            Ok(_) => {}
        }
    }
    for family in families.iter().skip(addresses.len()) {
        let free = options
            .service_cidrs
            .iter()
            .find(|net| family_of(net) == family)
            .and_then(|net| free_address(net, taken, rng));
        match free {
            Some(ip) => addresses.push(ip.to_string()),
            None => errors.push(FieldError::invalid(
                "spec.clusterIPs",
                &json!(addresses),
                &format!("failed to allocate a serviceIP: range is full for {family}"),
            )),
        }
    }
    if let Some(first) = addresses.first().cloned() {
        set(service, &["spec", "clusterIP"], first);
        set(service, &["spec", "clusterIPs"], json!(addresses));
    }
}

/// A random free address; the first two (network, and the API server's own) and the last are kept out.
fn free_address(net: &IpNet, taken: &Taken, rng: &mut fastrand::Rng) -> Option<IpAddr> {
    /// Enough for any test; it keeps the arithmetic of wide IPv6 ranges in u32.
    const WIDEST: u32 = 1 << 20;
    let host_bits = u32::from(net.max_prefix_len() - net.prefix_len());
    let size = 1_u32
        .checked_shl(host_bits)
        .map_or(WIDEST, |s| s.min(WIDEST));
    let usable = size.checked_sub(3).filter(|u| *u > 0)?;
    let start = rng.u32(0..usable);
    (0..usable)
        .map(|step| 2 + (start + step) % usable)
        .filter_map(|offset| match net.network() {
            IpAddr::V4(ip) => u32::from(ip)
                .checked_add(offset)
                .map(|n| IpAddr::V4(n.into())),
            IpAddr::V6(ip) => u128::from(ip)
                .checked_add(u128::from(offset))
                .map(|n| IpAddr::V6(n.into())),
        })
        .find(|ip| !taken.addresses.contains(ip))
}

fn node_ports(
    service: &mut Value,
    taken: &Taken,
    options: &Options,
    rng: &mut fastrand::Rng,
    errors: &mut Vec<FieldError>,
) -> BTreeSet<(String, i64)> {
    let wants = allocates_node_ports(service);
    let mut own: BTreeSet<(String, i64)> = BTreeSet::new();
    let mut ports = list(service, "/spec/ports").to_vec();
    // One number serves TCP and UDP of the same service port, as on a real server.
    let mut shared: BTreeMap<i64, i64> = BTreeMap::new();
    for (index, port) in ports.iter().enumerate() {
        let node_port = number(port, "/nodePort");
        let protocol = text(port, "/protocol").to_owned();
        if node_port == 0 {
            continue;
        }
        check_port(
            &format!("spec.ports[{index}].nodePort"),
            &protocol,
            node_port,
            taken,
            options,
            errors,
        );
        if !own.insert((protocol, node_port)) {
            errors.push(FieldError::invalid(
                format!("spec.ports[{index}].nodePort"),
                &json!(node_port),
                "provided port is already allocated",
            ));
        }
        shared.insert(number(port, "/port"), node_port);
    }
    for port in ports
        .iter_mut()
        .filter(|p| wants && number(p, "/nodePort") == 0)
    {
        let protocol = text(port, "/protocol").to_owned();
        let service_port = number(port, "/port");
        let same_number = shared.get(&service_port).copied().filter(|port| {
            let key = (protocol.clone(), *port);
            !taken.ports.contains(&key) && !own.contains(&key)
        });
        match same_number.or_else(|| free_port(&protocol, taken, &own, options, rng)) {
            Some(free) => {
                set(port, &["nodePort"], free);
                own.insert((protocol, free));
                shared.insert(service_port, free);
            }
            None => errors.push(full_range()),
        }
    }
    if !ports.is_empty() {
        set(service, &["spec", "ports"], json!(ports));
    }
    own
}

/// The real server answers a health check port that it cannot give with 500.
fn health_port(
    service: &mut Value,
    taken: &Taken,
    own: &BTreeSet<(String, i64)>,
    options: &Options,
    rng: &mut fastrand::Rng,
) -> Result<(), ApiError> {
    if !needs_health_port(service) {
        return Ok(());
    }
    match number(service, "/spec/healthCheckNodePort") {
        0 => {
            let free = free_port("TCP", taken, own, options, rng).ok_or_else(|| {
                ApiError::internal("failed to allocate a HealthCheck NodePort: range is full")
            })?;
            set(service, &["spec", "healthCheckNodePort"], free);
        }
        given => {
            let mut errors = Vec::new();
            check_port("", "TCP", given, taken, options, &mut errors);
            if let Some(error) = errors.first() {
                return Err(ApiError::internal(&format!(
                    "failed to allocate requested HealthCheck NodePort {given}: {}",
                    error.message
                )));
            }
        }
    }
    Ok(())
}

fn full_range() -> FieldError {
    FieldError::invalid(
        "spec.ports",
        &Value::Null,
        "failed to allocate a nodePort: range is full",
    )
}

fn check_port(
    field: &str,
    protocol: &str,
    port: i64,
    taken: &Taken,
    options: &Options,
    errors: &mut Vec<FieldError>,
) {
    let (low, high) = (
        i64::from(*options.node_port_range.start()),
        i64::from(*options.node_port_range.end()),
    );
    if !(low..=high).contains(&port) {
        errors.push(FieldError::invalid(
            field,
            &json!(port),
            &format!(
                "provided port is not in the valid range. The range of valid ports is {low}-{high}"
            ),
        ));
    } else if taken.ports.contains(&(protocol.to_owned(), port)) {
        errors.push(FieldError::invalid(
            field,
            &json!(port),
            "provided port is already allocated",
        ));
    }
}

fn free_port(
    protocol: &str,
    taken: &Taken,
    own: &BTreeSet<(String, i64)>,
    options: &Options,
    rng: &mut fastrand::Rng,
) -> Option<i64> {
    let (low, high) = (
        i64::from(*options.node_port_range.start()),
        i64::from(*options.node_port_range.end()),
    );
    let size = (high - low).checked_add(1).filter(|s| *s > 0)?;
    let start = rng.i64(0..size);
    (0..size)
        .map(|step| low + (start + step) % size)
        .find(|port| {
            let key = (protocol.to_owned(), *port);
            !taken.ports.contains(&key) && !own.contains(&key)
        })
}
