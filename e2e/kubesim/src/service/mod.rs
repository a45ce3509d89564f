//! Services: defaults, what an update drops or keeps, validation and allocation,
//! as `pkg/registry/core/service` does it.

mod alloc;
mod validate;

use serde_json::{Value, json};

pub(crate) use self::validate::validate_status;
use crate::{
    errors::{ApiError, FieldError},
    object::{list, number, set, text, texts, unset},
    options::Options,
};

/// Default of `sessionAffinityConfig.clientIP.timeoutSeconds`.
const CLIENT_IP_SECONDS: u64 = 10_800;

/// Addresses and ports that other Services hold.
pub(crate) use self::alloc::Taken;

/// Makes a new Service complete, or says what is wrong with it.
pub(crate) fn create(
    service: &mut Value,
    keep_status: bool,
    taken: &Taken,
    options: &Options,
    rng: &mut fastrand::Rng,
) -> Result<Vec<FieldError>, ApiError> {
    validate::types(service)?;
    if !keep_status {
        unset(service, &["status"]);
    }
    defaults(service);
    if !text(service, "/spec/clusterIP").is_empty() && list(service, "/spec/clusterIPs").is_empty()
    {
        let ip = text(service, "/spec/clusterIP").to_owned();
        set(service, &["spec", "clusterIPs"], json!([ip]));
    }
    let mut errors = alloc::allocate(service, None, taken, options, rng)?;
    if errors.is_empty() {
        errors = validate::service(service, None);
    }
    Ok(errors)
}

/// Makes a changed Service complete, or says what is wrong with it. With `keep_status`
/// the status is the caller's, else it is the stored one.
pub(crate) fn update(
    service: &mut Value,
    old: &Value,
    keep_status: bool,
    taken: &Taken,
    options: &Options,
    rng: &mut fastrand::Rng,
) -> Result<Vec<FieldError>, ApiError> {
    validate::types(service)?;
    if !keep_status {
        crate::object::copy(service, old, &["status"]);
    }
    defaults(service);
    keep_allocated(service, old);
    align_cluster_ips(service, old);
    drop_type_dependent(service, old);
    let mut errors = alloc::allocate(service, Some(old), taken, options, rng)?;
    if errors.is_empty() {
        errors = validate::service(service, Some(old));
    }
    Ok(errors)
}

/// Defaults of a status write: `ipMode` of addresses.
pub(crate) fn status_defaults(service: &mut Value) {
    if service.pointer("/status/loadBalancer").is_none() {
        set(service, &["status", "loadBalancer"], json!({}));
    }
    if text(service, "/spec/type") != "LoadBalancer" {
        return;
    }
    let Some(ingress) = service
        .pointer_mut("/status/loadBalancer/ingress")
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    for entry in ingress.iter_mut().filter_map(Value::as_object_mut) {
        let has_ip = entry
            .get("ip")
            .and_then(Value::as_str)
            .is_some_and(|ip| !ip.is_empty());
        if has_ip && !entry.contains_key("ipMode") {
            entry.insert("ipMode".to_owned(), json!("VIP"));
        }
    }
}

fn default(service: &mut Value, field: &str, value: Value) {
    if service.pointer(&format!("/spec/{field}")).is_none() {
        set(service, &["spec", field], value);
    }
}

fn defaults(service: &mut Value) {
    for field in ["type", "sessionAffinity"] {
        if text(service, &format!("/spec/{field}")).is_empty() {
            unset(service, &["spec", field]);
        }
    }
    default(service, "sessionAffinity", json!("None"));
    if text(service, "/spec/sessionAffinity") == "ClientIP" {
        if service
            .pointer("/spec/sessionAffinityConfig/clientIP/timeoutSeconds")
            .is_none()
        {
            let config = json!({"clientIP": {"timeoutSeconds": CLIENT_IP_SECONDS}});
            set(service, &["spec", "sessionAffinityConfig"], config);
        }
    } else if text(service, "/spec/sessionAffinity") == "None" {
        unset(service, &["spec", "sessionAffinityConfig"]);
    }
    default(service, "type", json!("ClusterIP"));
    if let Some(ports) = service
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut)
    {
        for port in ports.iter_mut().filter_map(Value::as_object_mut) {
            if port.get("protocol").is_none_or(|p| p == "") {
                port.insert("protocol".to_owned(), json!("TCP"));
            }
            let number = port.get("port").cloned().unwrap_or_else(|| json!(0));
            let unset = match port.get("targetPort") {
                None => true,
                Some(target) => target.as_i64() == Some(0) || target.as_str() == Some(""),
            };
            if unset {
                port.insert("targetPort".to_owned(), number);
            }
        }
    }
    if externally_accessible(service) {
        default(service, "externalTrafficPolicy", json!("Cluster"));
    }
    if text(service, "/spec/type") != "ExternalName" {
        default(service, "internalTrafficPolicy", json!("Cluster"));
    }
    if text(service, "/spec/type") == "LoadBalancer" {
        default(service, "allocateLoadBalancerNodePorts", json!(true));
    }
    status_defaults(service);
}

fn externally_accessible(service: &Value) -> bool {
    match text(service, "/spec/type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(service, "/spec/externalIPs").is_empty(),
        _ => false,
    }
}

fn needs_cluster_ip(service: &Value) -> bool {
    text(service, "/spec/type") != "ExternalName"
}

/// Whether the type has node ports; those that are there stay, whatever is allocated.
fn has_node_ports(service: &Value) -> bool {
    matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer")
}

/// Whether missing node ports are allocated.
fn allocates_node_ports(service: &Value) -> bool {
    match text(service, "/spec/type") {
        "NodePort" => true,
        "LoadBalancer" => service
            .pointer("/spec/allocateLoadBalancerNodePorts")
            .and_then(Value::as_bool)
            .unwrap_or(true),
        _ => false,
    }
}

fn needs_health_port(service: &Value) -> bool {
    text(service, "/spec/type") == "LoadBalancer"
        && text(service, "/spec/externalTrafficPolicy") == "Local"
}

fn same(a: &Value, b: &Value, pointer: &str) -> bool {
    a.pointer(pointer) == b.pointer(pointer)
}

fn node_ports(service: &Value) -> Vec<i64> {
    list(service, "/spec/ports")
        .iter()
        .map(|p| number(p, "/nodePort"))
        .filter(|p| *p != 0)
        .collect()
}

/// `patchAllocatedValues`: a client that does not send what was allocated keeps it.
fn keep_allocated(service: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(service) {
        for field in ["clusterIP", "clusterIPs"] {
            let pointer = format!("/spec/{field}");
            if let (None, Some(value)) = (service.pointer(&pointer), old.pointer(&pointer)) {
                set(service, &["spec", field], value.clone());
            }
        }
    }
    if allocates_node_ports(old) && allocates_node_ports(service) {
        let new = node_ports(service);
        let used: Vec<i64> = node_ports(old)
            .into_iter()
            .filter(|p| new.contains(p))
            .collect();
        if let Some(ports) = service
            .pointer_mut("/spec/ports")
            .and_then(Value::as_array_mut)
        {
            for port in ports.iter_mut().filter(|p| number(p, "/nodePort") == 0) {
                let before = list(old, "/spec/ports")
                    .iter()
                    .rev()
                    .find(|p| text(p, "/name") == text(port, "/name"))
                    .map_or(0, |p| number(p, "/nodePort"));
                if before != 0 && !used.contains(&before) {
                    set(port, &["nodePort"], before);
                }
            }
        }
    }
    if needs_health_port(old)
        && needs_health_port(service)
        && number(service, "/spec/healthCheckNodePort") == 0
    {
        crate::object::copy(service, old, &["spec", "healthCheckNodePort"]);
    }
}

/// `normalizeClusterIPs`: clients that know only the singular field.
fn align_cluster_ips(service: &mut Value, old: &Value) {
    if !same(service, old, "/spec/clusterIP") && same(service, old, "/spec/clusterIPs") {
        let ip = text(service, "/spec/clusterIP").to_owned();
        if ip.is_empty() {
            unset(service, &["spec", "clusterIPs"]);
        } else {
            set(service, &["spec", "clusterIPs"], json!([ip]));
        }
    }
}

/// `dropTypeDependentFields`: what the new type has no use for and the client did not touch.
fn drop_type_dependent(service: &mut Value, old: &Value) {
    let drop_if_same = |service: &mut Value, field: &str| {
        if same(service, old, &format!("/spec/{field}")) {
            unset(service, &["spec", field]);
        }
    };
    if needs_cluster_ip(old) && !needs_cluster_ip(service) {
        if same(service, old, "/spec/clusterIP") && same(service, old, "/spec/clusterIPs") {
            unset(service, &["spec", "clusterIP"]);
            unset(service, &["spec", "clusterIPs"]);
        }
        drop_if_same(service, "ipFamilies");
        drop_if_same(service, "ipFamilyPolicy");
    }
    if has_node_ports(old)
        && !has_node_ports(service)
        && node_ports(old) == node_ports(service)
        && let Some(ports) = service
            .pointer_mut("/spec/ports")
            .and_then(Value::as_array_mut)
    {
        for port in ports {
            unset(port, &["nodePort"]);
        }
    }
    if needs_health_port(old) && !needs_health_port(service) {
        drop_if_same(service, "healthCheckNodePort");
    }
    let was = text(old, "/spec/type") == "LoadBalancer";
    let is = text(service, "/spec/type") == "LoadBalancer";
    if was && !is {
        drop_if_same(service, "allocateLoadBalancerNodePorts");
        drop_if_same(service, "loadBalancerClass");
    }
    if !needs_cluster_ip(service) && needs_cluster_ip(old) {
        drop_if_same(service, "internalTrafficPolicy");
    }
    if externally_accessible(old) && !externally_accessible(service) {
        drop_if_same(service, "externalTrafficPolicy");
    }
    if !is {
        set(service, &["status", "loadBalancer"], json!({}));
    }
}

/// Whether the Service is headless.
fn is_headless(service: &Value) -> bool {
    texts(service, "/spec/clusterIPs").first() == Some(&"None")
}
