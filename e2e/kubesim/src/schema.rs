//! Decoding: whether an object has the shape of its type, and what of it the type does not know.
//!
//! The types are those of `k8s-openapi`, at the oldest minor that is supported: fields that came
//! later are dropped, as a server of that minor drops them.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{
        ConfigMap, Endpoints, Event as CoreEvent, Namespace, Node, Pod, Secret, Service,
        ServiceAccount,
    },
    discovery::v1::EndpointSlice,
    events::v1::Event,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::resources::{
    ENDPOINT_SLICES, ENDPOINTS, EVENTS, EVENTS_GROUP, LEASES, NAMESPACES, NODES, PODS, Resource,
    SECRETS, SERVICE_ACCOUNTS, SERVICES,
};

/// Maps of quantities: the server takes numbers there and keeps them as text.
const QUANTITIES: &[&str] = &["/status/capacity", "/status/allocatable"];

/// Drops the fields that the type does not have and returns their paths; fails with the decoder's
/// words when a value has the wrong JSON type.
pub(crate) fn decode(resource: &Resource, object: &mut Value) -> Result<Vec<String>, String> {
    for pointer in QUANTITIES {
        let values = object.pointer_mut(pointer).and_then(Value::as_object_mut);
        for (_, value) in values.into_iter().flatten() {
            if value.is_number() {
                *value = Value::String(value.to_string());
            }
        }
    }
    match resource.storage {
        NODES => typed::<Node>(object),
        SERVICES => typed::<Service>(object),
        EVENTS if resource.group == EVENTS_GROUP => typed::<Event>(object),
        EVENTS => typed::<CoreEvent>(object),
        LEASES => typed::<Lease>(object),
        NAMESPACES => typed::<Namespace>(object),
        SECRETS => typed::<Secret>(object),
        PODS => typed::<Pod>(object),
        SERVICE_ACCOUNTS => typed::<ServiceAccount>(object),
        ENDPOINTS => typed::<Endpoints>(object),
        ENDPOINT_SLICES => typed::<EndpointSlice>(object),
        "configmaps" => typed::<ConfigMap>(object),
        _ => Ok(Vec::new()),
    }
}

fn typed<T: Serialize + DeserializeOwned>(object: &mut Value) -> Result<Vec<String>, String> {
    let mut complete = object.clone();
    if let Some(map) = complete.as_object_mut() {
        // The type is known from the path; what the object says about it is checked before.
        map.remove("apiVersion");
        map.remove("kind");
    }
    let shape: T = serde_json::from_value(complete).map_err(|e| e.to_string())?;
    let known = serde_json::to_value(shape).map_err(|e| e.to_string())?;
    let mut unknown = Vec::new();
    prune(object, &known, "", &mut unknown);
    unknown.sort();
    Ok(unknown)
}

fn prune(object: &mut Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (object, known) {
        (Value::Object(map), Value::Object(known)) => {
            map.retain(|key, value| {
                let below = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let kept = match known.get(key) {
                    Some(known) => {
                        prune(value, known, &below, unknown);
                        true
                    }
                    // An optional field that is null is not written, but known.
                    None => value.is_null(),
                };
                if !kept {
                    unknown.push(below);
                }
                kept
            });
            for (key, value) in known {
                // A required text that is missing is written as an empty one.
                if value.as_str() == Some("") && !map.contains_key(key) {
                    map.insert(key.clone(), value.clone());
                }
            }
        }
        (Value::Array(items), Value::Array(known)) => {
            for (index, (item, known)) in items.iter_mut().zip(known).enumerate() {
                prune(item, known, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::find;

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let nodes = find("", "v1", "nodes").unwrap();
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"any": "key"}},
            "spec": {"providerID": "x", "wings": 2, "taints": [{"key": "k", "effect": "NoExecute", "size": 1}]},
            "status": {"capacity": {"cpu": 4}},
        });
        let unknown = decode(nodes, &mut node).unwrap();
        assert_eq!(unknown, ["spec.taints[0].size", "spec.wings"]);
        assert_eq!(node["spec"]["providerID"], "x");
        assert_eq!(node["metadata"]["labels"], json!({"any": "key"}));
        assert_eq!(node["status"]["capacity"]["cpu"], "4");
    }

    #[test]
    fn values_of_the_wrong_type_fail() {
        let services = find("", "v1", "services").unwrap();
        for spec in [
            json!({"ports": "x"}),
            json!({"ports": [{"port": "80"}]}),
            json!({"selector": {"a": 1}}),
        ] {
            let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
            assert!(decode(services, &mut service).is_err(), "{service}");
        }
    }

    #[test]
    fn both_kinds_of_events_are_decoded_in_their_own_form() {
        let newer = find(EVENTS_GROUP, "v1", "events").unwrap();
        let mut event =
            json!({"metadata": {"name": "e"}, "note": "n", "message": "not of this form"});
        assert_eq!(decode(newer, &mut event).unwrap(), ["message"]);
    }
}
