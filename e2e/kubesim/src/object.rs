//! Reading and changing objects that are kept as JSON.

use serde_json::{Map, Value};

/// The string at a JSON pointer, empty when absent.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The integer at a JSON pointer, 0 when absent.
pub(crate) fn number(object: &Value, pointer: &str) -> i64 {
    object
        .pointer(pointer)
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// The list at a JSON pointer, empty when absent.
pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The strings of a list at a JSON pointer.
pub(crate) fn texts<'a>(object: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(object, pointer)
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

/// The map at `path`, made on the way where it is missing or of another type.
pub(crate) fn map_mut<'a>(
    object: &'a mut Value,
    path: &[&str],
) -> Option<&'a mut Map<String, Value>> {
    let mut at = object;
    for step in path {
        at = as_map(at)?.entry((*step).to_owned()).or_insert(Value::Null);
    }
    as_map(at)
}

fn as_map(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Sets the last step of `path`.
pub(crate) fn set(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    if let Some((last, parents)) = path.split_last()
        && let Some(map) = map_mut(object, parents)
    {
        map.insert((*last).to_owned(), value.into());
    }
}

/// Removes the last step of `path`, if the way to it exists.
pub(crate) fn unset(object: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut at = object;
    for step in parents {
        at = at.get_mut(*step)?;
    }
    at.as_object_mut()?.remove(*last)
}

/// Copies a top-level or nested field from one object to another; an absent one is removed.
pub(crate) fn copy(to: &mut Value, from: &Value, path: &[&str]) {
    let pointer = format!("/{}", path.join("/"));
    match from.pointer(&pointer) {
        Some(value) => set(to, path, value.clone()),
        None => {
            unset(to, path);
        }
    }
}

/// Name of an object.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Namespace of an object, empty for cluster scope.
pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// Whether a deletion was asked for.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// Fields that the real types leave out when empty: the stored form must not depend on
/// whether a client sent `[]`, `""` or nothing.
const OMITTED_WHEN_EMPTY: &[&[&str]] = &[
    &["metadata", "labels"],
    &["metadata", "annotations"],
    &["metadata", "finalizers"],
    &["metadata", "ownerReferences"],
    &["metadata", "managedFields"],
    &["metadata", "generateName"],
    &["metadata", "namespace"],
    &["metadata", "selfLink"],
    &["spec", "taints"],
    &["spec", "podCIDR"],
    &["spec", "podCIDRs"],
    &["spec", "providerID"],
    &["spec", "unschedulable"],
    &["spec", "ports"],
    &["spec", "selector"],
    &["spec", "clusterIP"],
    &["spec", "clusterIPs"],
    &["spec", "externalIPs"],
    &["spec", "externalName"],
    &["spec", "externalTrafficPolicy"],
    &["spec", "healthCheckNodePort"],
    &["spec", "ipFamilies"],
    &["spec", "loadBalancerIP"],
    &["spec", "loadBalancerSourceRanges"],
    &["spec", "publishNotReadyAddresses"],
    &["spec", "finalizers"],
    &["status", "addresses"],
    &["status", "conditions"],
    &["status", "images"],
    &["status", "capacity"],
    &["status", "allocatable"],
    &["status", "volumesAttached"],
    &["status", "volumesInUse"],
    &["status", "loadBalancer", "ingress"],
    &["data"],
    &["binaryData"],
    &["stringData"],
    &["series"],
    &["reason"],
    &["message"],
    &["type"],
    &["action"],
    &["note"],
    &["related"],
];

/// The form the real server stores: no nulls, and no empty values of optional fields.
pub(crate) fn normalize(object: &mut Value) {
    drop_nulls(object);
    for path in OMITTED_WHEN_EMPTY {
        let pointer = format!("/{}", path.join("/"));
        if object.pointer(&pointer).is_some_and(is_empty) {
            unset(object, path);
        }
    }
    for (list, fields) in [
        ("/spec/ports", &["nodePort", "name"][..]),
        ("/spec/taints", &["value"][..]),
        ("/status/loadBalancer/ingress", &["ip", "hostname"][..]),
    ] {
        if let Some(items) = object.pointer_mut(list).and_then(Value::as_array_mut) {
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                for field in fields {
                    if item.get(*field).is_some_and(is_empty) {
                        item.remove(*field);
                    }
                }
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
