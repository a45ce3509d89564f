//! What is special about each kind when it is created or changed.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    errors::FieldError,
    meta::{NOT_A_LABEL_VALUE, NOT_A_QUALIFIED_NAME, is_label_value, is_qualified_name},
    object::{copy, list, map_mut, number, set, text, texts, unset},
    options::Options,
    resources::{
        ENDPOINT_SLICES, ENDPOINTS, EVENTS, EVENTS_GROUP, LEASES, NAMESPACES, NODES, PODS,
        Resource, SECRETS,
    },
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Limits of `pkg/apis/core/validation/events.go`.
const MAX_EVENT_WORD: usize = 128;
const MAX_EVENT_NOTE: usize = 1024;

/// Defaults of a new object of any kind but Service. With `keep_status` the given status
/// stays, as an administrator of the store may set it.
pub(crate) fn prepare_create(
    resource: &Resource,
    object: &mut Value,
    keep_status: bool,
    options: &Options,
) {
    match resource.storage {
        NODES => {
            align_pod_cidrs(object);
            default_allocatable(object);
            required_status(object);
            if options.taint_new_nodes {
                add_not_ready_taint(object);
            }
        }
        NAMESPACES => {
            let name = text(object, "/metadata/name").to_owned();
            set(
                object,
                &["metadata", "labels", "kubernetes.io/metadata.name"],
                name,
            );
            set(object, &["spec", "finalizers"], json!(["kubernetes"]));
            set(object, &["status"], json!({"phase": "Active"}));
        }
        SECRETS => {
            if text(object, "/type").is_empty() {
                set(object, &["type"], "Opaque");
            }
            encode_string_data(object);
        }
        PODS => {
            set(object, &["metadata", "generation"], 1);
            if !keep_status {
                set(object, &["status"], json!({"phase": "Pending"}));
            }
        }
        ENDPOINT_SLICES => set(object, &["metadata", "generation"], 1),
        LEASES => {
            map_mut(object, &["spec"]);
        }
        ENDPOINTS => default_protocols(object),
        EVENTS => event_defaults(object),
        _ => {}
    }
}

/// Fields of the core form that the real type always writes.
fn event_defaults(event: &mut Value) {
    map_mut(event, &["source"]);
    for field in ["reportingComponent", "reportingInstance"] {
        if event.get(field).is_none() {
            set(event, &[field], "");
        }
    }
}

fn default_protocols(endpoints: &mut Value) {
    let subsets = endpoints.get_mut("subsets").and_then(Value::as_array_mut);
    for subset in subsets.into_iter().flatten() {
        let ports = subset.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
            port.entry("protocol").or_insert_with(|| json!("TCP"));
        }
    }
}

/// The singular field wins where the two disagree; an absent one is filled from the other.
fn align_pod_cidrs(node: &mut Value) {
    let single = text(node, "/spec/podCIDR").to_owned();
    let first = texts(node, "/spec/podCIDRs")
        .first()
        .map(|s| (*s).to_owned());
    match first {
        Some(first) if single.is_empty() => set(node, &["spec", "podCIDR"], first),
        Some(first) if first == single => {}
        _ if single.is_empty() => {}
        _ => set(node, &["spec", "podCIDRs"], json!([single])),
    }
}

/// What a write to the main resource may not change, for any kind but Service.
pub(crate) fn prepare_update(resource: &Resource, object: &mut Value, old: &Value) {
    match resource.storage {
        NODES => {
            align_pod_cidrs(object);
            copy(object, old, &["status"]);
        }
        PODS => copy(object, old, &["status"]),
        LEASES => {
            map_mut(object, &["spec"]);
        }
        ENDPOINTS => default_protocols(object),
        EVENTS => event_defaults(object),
        NAMESPACES => {
            copy(object, old, &["status"]);
            copy(object, old, &["spec", "finalizers"]);
        }
        SECRETS => encode_string_data(object),
        _ => {}
    }
    let counted = matches!(resource.storage, PODS | ENDPOINT_SLICES);
    let content = |o: &Value| -> Value {
        let mut content = o.clone();
        unset(&mut content, &["metadata"]);
        unset(&mut content, &["status"]);
        content
    };
    if counted && content(object) != content(old) {
        let generation = number(old, "/metadata/generation") + 1;
        set(object, &["metadata", "generation"], generation);
    }
}

/// What a write to the status subresource may not change.
pub(crate) fn prepare_status(resource: &Resource, object: &mut Value, old: &Value) {
    copy(object, old, &["spec"]);
    match resource.storage {
        NODES => default_allocatable(object),
        PODS => copy(object, old, &["metadata", "ownerReferences"]),
        _ => {}
    }
}

/// Rules of a kind, for a create (no `old`) or an update.
pub(crate) fn validate(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    match resource.storage {
        NODES => node(object, old),
        EVENTS => event(resource, object, old),
        LEASES => lease(object),
        _ => Vec::new(),
    }
}

fn default_allocatable(node: &mut Value) {
    if node.pointer("/status/allocatable").is_none()
        && let Some(capacity) = node.pointer("/status/capacity").cloned()
    {
        set(node, &["status", "allocatable"], capacity);
    }
}

/// Fields that the real type always writes, empty or not.
fn required_status(node: &mut Value) {
    if node.pointer("/status/daemonEndpoints").is_none() {
        let endpoints = json!({"kubeletEndpoint": {"Port": 0}});
        set(node, &["status", "daemonEndpoints"], endpoints);
    }
    if let Some(info) = map_mut(node, &["status", "nodeInfo"]) {
        for field in [
            "architecture",
            "bootID",
            "containerRuntimeVersion",
            "kernelVersion",
            "kubeProxyVersion",
            "kubeletVersion",
            "machineID",
            "operatingSystem",
            "osImage",
            "systemUUID",
        ] {
            info.entry(field).or_insert_with(|| json!(""));
        }
    }
}

fn add_not_ready_taint(node: &mut Value) {
    let mut taints = list(node, "/spec/taints").to_vec();
    let there = taints
        .iter()
        .any(|t| text(t, "/key") == NOT_READY && text(t, "/effect") == "NoSchedule");
    if !there {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        set(node, &["spec", "taints"], taints);
    }
}

fn node(node: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = taints(node);
    let mut seen = BTreeSet::new();
    for (index, address) in list(node, "/status/addresses").iter().enumerate() {
        let id = (text(address, "/type"), text(address, "/address"));
        if !seen.insert(id) && old.is_some() {
            errors.push(FieldError::duplicate(
                format!("status.addresses[{index}]"),
                address,
            ));
        }
    }
    let cidrs = texts(node, "/spec/podCIDRs");
    for (index, cidr) in cidrs.iter().enumerate() {
        if cidr.parse::<ipnet::IpNet>().is_err() {
            errors.push(FieldError::invalid(
                format!("spec.podCIDRs[{index}]"),
                &json!(cidr),
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ));
        }
    }
    let Some(old) = old else {
        return errors;
    };
    let before = texts(old, "/spec/podCIDRs");
    if !before.is_empty() && before != cidrs {
        errors.push(FieldError::forbidden(
            "spec.podCIDRs",
            "node updates may not change podCIDR except from \"\" to valid",
        ));
    }
    let (was, is) = (
        text(old, "/spec/providerID"),
        text(node, "/spec/providerID"),
    );
    if !was.is_empty() && was != is {
        let detail = if is.is_empty() {
            "field cannot be cleared once set"
        } else {
            "field cannot be modified once set"
        };
        errors.push(FieldError::invalid("spec.providerID", &Value::Null, detail));
    }
    errors
}

fn taints(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, taint) in list(node, "/spec/taints").iter().enumerate() {
        // The real server reports taints below metadata, and so do we.
        let path = format!("metadata.taints[{index}]");
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        if !is_qualified_name(key) {
            errors.push(FieldError::invalid(
                format!("{path}.key"),
                &json!(key),
                NOT_A_QUALIFIED_NAME,
            ));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{path}.effect"), ""));
        } else if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            errors.push(FieldError::not_supported(
                format!("{path}.effect"),
                &json!(effect),
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            ));
        }
        let value = text(taint, "/value");
        if !is_label_value(value) {
            errors.push(FieldError::invalid(
                format!("{path}.value"),
                &json!(value),
                NOT_A_LABEL_VALUE,
            ));
        }
        if !seen.insert((key, effect)) {
            errors.push(FieldError::duplicate(path, taint));
        }
    }
    errors
}

fn lease(lease: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let duration = lease.pointer("/spec/leaseDurationSeconds");
    if let Some(value) = duration
        && value.as_i64().is_none_or(|n| n <= 0)
    {
        errors.push(FieldError::invalid(
            "spec.leaseDurationSeconds",
            value,
            "must be greater than 0",
        ));
    }
    let transitions = lease.pointer("/spec/leaseTransitions");
    if let Some(value) = transitions
        && value.as_i64().is_none_or(|n| n < 0)
    {
        errors.push(FieldError::invalid(
            "spec.leaseTransitions",
            value,
            "must be greater than or equal to 0",
        ));
    }
    errors
}

/// Events are stored in the core form; `resource` says which of the two a client used.
fn event(resource: &Resource, event: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let strict = resource.group == EVENTS_GROUP;
    let mut errors = Vec::new();
    let namespace = crate::object::namespace(event);
    let about = text(event, "/involvedObject/namespace");
    let timed = !text(event, "/eventTime").is_empty();
    let mismatch = if about.is_empty() {
        namespace != "default" && !(timed && namespace == "kube-system")
    } else {
        !timed && namespace != about
    };
    if mismatch {
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            &json!(about),
            "does not match event.namespace",
        ));
    }
    if timed {
        let controller = if strict {
            "reportingController"
        } else {
            "reportingComponent"
        };
        for (field, pointer) in [
            (controller, "/reportingComponent"),
            ("reportingInstance", "/reportingInstance"),
            ("action", "/action"),
            ("reason", "/reason"),
        ] {
            let value = text(event, pointer);
            if value.is_empty() {
                errors.push(FieldError::required(field, ""));
            } else if value.chars().count() > MAX_EVENT_WORD {
                errors.push(FieldError::invalid(
                    field,
                    &json!(""),
                    &format!("can have at most {MAX_EVENT_WORD} characters"),
                ));
            }
        }
        if text(event, "/message").len() > MAX_EVENT_NOTE {
            errors.push(FieldError::invalid(
                "message",
                &json!(""),
                &format!("can have at most {MAX_EVENT_NOTE} characters"),
            ));
        }
    }
    if strict {
        let controller = text(event, "/reportingComponent");
        if !is_qualified_name(controller) {
            errors.push(FieldError::invalid(
                "reportingController",
                &json!(controller),
                NOT_A_QUALIFIED_NAME,
            ));
        }
        if event.get("series").is_some() {
            if number(event, "/series/count") < 2 {
                let detail = "should be at least 2";
                errors.push(FieldError::invalid("series.count", &json!(""), detail));
            }
            if text(event, "/series/lastObservedTime").is_empty() {
                errors.push(FieldError::required("series.lastObservedTime", ""));
            }
        }
        strict_event(event, old, &mut errors);
    }
    errors
}

fn strict_event(event: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(old) = old else {
        if text(event, "/eventTime").is_empty() {
            errors.push(FieldError::required("eventTime", ""));
        }
        let kind = text(event, "/type");
        if !["Normal", "Warning"].contains(&kind) {
            errors.push(FieldError::invalid(
                "type",
                &json!(""),
                &format!("has invalid value: {kind}"),
            ));
        }
        for field in ["firstTimestamp", "lastTimestamp", "count"] {
            if event.get(field).is_some_and(|v| !v.is_null() && v != 0) {
                errors.push(FieldError::invalid(field, &json!(""), "needs to be unset"));
            }
        }
        return;
    };
    for field in [
        "involvedObject",
        "reason",
        "message",
        "type",
        "eventTime",
        "action",
        "reportingComponent",
        "reportingInstance",
    ] {
        if event.get(field) != old.get(field) {
            let shown = event.get(field).unwrap_or(&Value::Null);
            errors.push(FieldError::invalid(field, shown, "field is immutable"));
        }
    }
}

fn encode_string_data(secret: &mut Value) {
    let Some(Value::Object(plain)) = unset(secret, &["stringData"]) else {
        return;
    };
    if let Some(data) = map_mut(secret, &["data"]) {
        for (key, value) in plain {
            let encoded = base64(value.as_str().unwrap_or_default().as_bytes());
            data.insert(key, json!(encoded));
        }
    }
}

/// Standard base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0_u8; 3];
        for (to, from) in group.iter_mut().zip(chunk) {
            *to = *from;
        }
        let [a, b, c] = group;
        let bits = (u32::from(a) << 16) | (u32::from(b) << 8) | u32::from(c);
        for index in 0..4_usize {
            let shift = 18 - 6 * index;
            let letter = usize::try_from((bits >> shift) & 63).unwrap_or_default();
            let shown = if index <= chunk.len() {
                ALPHABET.get(letter).copied().unwrap_or(b'=')
            } else {
                b'='
            };
            out.push(char::from(shown));
        }
    }
    out
}

/// The two forms of an event name the same fields differently.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// From the form a client speaks to the stored one.
pub(crate) fn to_stored(resource: &Resource, object: &mut Value) {
    if resource.group == EVENTS_GROUP {
        set(object, &["apiVersion"], "v1");
        rename(object, |(core, new)| (new, core));
    }
}

/// From the stored form to the one a client speaks.
pub(crate) fn to_served(resource: &Resource, object: &mut Value) {
    if resource.group == EVENTS_GROUP {
        set(object, &["apiVersion"], "events.k8s.io/v1");
        rename(object, |(core, new)| (core, new));
        for field in ["reportingController", "reportingInstance"] {
            if text(object, &format!("/{field}")).is_empty() {
                unset(object, &[field]);
            }
        }
    }
}

fn rename(
    object: &mut Value,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    for pair in EVENT_FIELDS {
        let (from, to) = direction(*pair);
        if let Some(value) = unset(object, &[from]) {
            set(object, &[to], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_as_the_standard_says() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn events_survive_the_round_trip_between_their_two_forms() {
        let events = crate::resources::find(EVENTS_GROUP, "v1", "events").unwrap();
        let original = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "n"},
            "note": "hello", "reportingController": "c", "deprecatedCount": 2,
        });
        let mut object = original.clone();
        to_stored(events, &mut object);
        assert_eq!(text(&object, "/message"), "hello");
        assert_eq!(text(&object, "/involvedObject/name"), "n");
        to_served(events, &mut object);
        assert_eq!(object, original);
    }
}
