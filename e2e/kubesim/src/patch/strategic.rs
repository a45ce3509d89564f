//! Strategic merge patch, as `k8s.io/apimachinery/pkg/util/strategicpatch` applies it.

use serde_json::{Map, Value};

use crate::{
    errors::ApiError,
    resources::{NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, SERVICES},
};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    /// Replaced as a whole.
    Atomic,
    /// A set of scalars.
    Primitives,
    /// Items are matched by this field.
    ByKey(&'static str),
}

/// The `patchStrategy` and `patchMergeKey` tags of the stored types. Node taints carry none:
/// they are replaced as a whole.
fn strategy(storage: &str, path: &str) -> Strategy {
    use Strategy::{Atomic, ByKey, Primitives};
    match (storage, path) {
        (_, "metadata.finalizers") | (NODES, "spec.podCIDRs") => Primitives,
        (_, "metadata.ownerReferences") => ByKey("uid"),
        (NODES, "status.addresses" | "status.conditions")
        | (SERVICES | NAMESPACES | PODS, "status.conditions") => ByKey("type"),
        (SERVICES, "spec.ports") => ByKey("port"),
        (SERVICE_ACCOUNTS, "secrets")
        | (
            PODS,
            "spec.containers"
            | "spec.initContainers"
            | "spec.ephemeralContainers"
            | "spec.volumes"
            | "spec.imagePullSecrets",
        ) => ByKey("name"),
        (PODS, "spec.hostAliases" | "status.podIPs" | "status.hostIPs") => ByKey("ip"),
        (PODS, "spec.topologySpreadConstraints") => ByKey("topologyKey"),
        (PODS, container) if container.contains("ontainers.") => {
            match container.rsplit('.').next().unwrap_or_default() {
                "env" => ByKey("name"),
                "ports" => ByKey("containerPort"),
                "volumeMounts" => ByKey("mountPath"),
                "volumeDevices" => ByKey("devicePath"),
                _ => Atomic,
            }
        }
        _ => Atomic,
    }
}

pub(super) fn apply(storage: &str, current: &Value, body: &Value) -> Result<Value, ApiError> {
    if body.is_null() {
        return Ok(current.clone());
    }
    let (Some(original), Some(patch)) = (current.as_object(), body.as_object()) else {
        return Err(ApiError::bad_request(
            "error decoding patch: a strategic merge patch must be a JSON object",
        ));
    };
    let merger = Merger { storage };
    Ok(Value::Object(merger.map(original, patch, "")?))
}

struct Merger<'a> {
    storage: &'a str,
}

impl Merger<'_> {
    fn map(
        &self,
        original: &Map<String, Value>,
        patch: &Map<String, Value>,
        path: &str,
    ) -> Result<Map<String, Value>, ApiError> {
        let mut merged = original.clone();
        match patch.get(DIRECTIVE).map(Value::as_str) {
            None | Some(Some("merge")) => {}
            Some(Some("replace")) => merged.clear(),
            Some(Some("delete")) => return Ok(Map::new()),
            Some(other) => return Err(bad_directive(other.unwrap_or("not a string"))),
        }
        if let Some(retain) = patch.get(RETAIN_KEYS) {
            let keep = retain.as_array().ok_or_else(|| {
                ApiError::bad_request("invalid patch format of retainKeys: it must be a list")
            })?;
            merged.retain(|key, _| keep.iter().any(|k| k.as_str() == Some(key)));
        }
        for (key, value) in patch {
            if key == DIRECTIVE || key == RETAIN_KEYS || key.starts_with(SET_ORDER) {
                continue;
            }
            if let Some(field) = key.strip_prefix(DELETE_PRIMITIVES) {
                delete_primitives(&mut merged, field, value)?;
                continue;
            }
            let order = patch.get(&format!("{SET_ORDER}{key}"));
            self.field(&mut merged, key, value, order, path)?;
        }
        for (key, order) in patch {
            // An order without a list of its own: only the live list is re-ordered.
            if let Some(field) = key.strip_prefix(SET_ORDER)
                && !patch.contains_key(field)
                && let Some(live) = merged.get(field).and_then(Value::as_array)
            {
                let live = live.clone();
                let way = strategy(self.storage, &join(path, field));
                let sorted = reorder(&live, &live, order, way)?;
                merged.insert(field.to_owned(), Value::Array(sorted));
            }
        }
        Ok(merged)
    }

    fn field(
        &self,
        merged: &mut Map<String, Value>,
        key: &str,
        value: &Value,
        order: Option<&Value>,
        path: &str,
    ) -> Result<(), ApiError> {
        let path = join(path, key);
        let fresh = match value {
            Value::Null => {
                merged.remove(key);
                return Ok(());
            }
            Value::Object(patch) => {
                let empty = Map::new();
                let original = merged.get(key).and_then(Value::as_object).unwrap_or(&empty);
                let deleted = patch.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
                let result = self.map(original, patch, &path)?;
                if deleted {
                    merged.remove(key);
                    return Ok(());
                }
                Value::Object(result)
            }
            Value::Array(patch) => {
                let original = merged.get(key).and_then(Value::as_array).cloned();
                let way = strategy(self.storage, &path);
                Value::Array(self.array(original, patch, order, way, &path)?)
            }
            scalar => scalar.clone(),
        };
        merged.insert(key.to_owned(), fresh);
        Ok(())
    }

    fn array(
        &self,
        original: Option<Vec<Value>>,
        patch: &[Value],
        order: Option<&Value>,
        way: Strategy,
        path: &str,
    ) -> Result<Vec<Value>, ApiError> {
        if way == Strategy::Atomic && original.is_some() {
            // Directives mean nothing here; decoding drops them from the items.
            return Ok(patch.to_vec());
        }
        let directive = |item: &Value| item.get(DIRECTIVE).cloned();
        if let Some(unknown) = patch
            .iter()
            .filter_map(directive)
            .find(|d| !["merge", "replace", "delete"].contains(&d.as_str().unwrap_or_default()))
        {
            return Err(bad_directive(&unknown.to_string()));
        }
        let plain = || -> Vec<Value> {
            patch
                .iter()
                .filter(|item| directive(item).is_none())
                .cloned()
                .collect()
        };
        let replaces = patch
            .iter()
            .filter_map(directive)
            .any(|d| d.as_str() == Some("replace"));
        // Where there is nothing to merge with, the list is taken as it is.
        let Some(original) = original.filter(|_| !replaces) else {
            return Ok(plain());
        };
        let items = self.list(&original, patch, way, path)?;
        // Without an order of its own the patch is the order.
        let implied = Value::Array(plain());
        reorder(&items, &original, order.unwrap_or(&implied), way)
    }

    fn list(
        &self,
        original: &[Value],
        patch: &[Value],
        way: Strategy,
        path: &str,
    ) -> Result<Vec<Value>, ApiError> {
        match way {
            Strategy::Atomic => Ok(patch
                .iter()
                .filter(|item| item.get(DIRECTIVE).is_none())
                .cloned()
                .collect()),
            Strategy::Primitives => {
                let mut merged: Vec<Value> = Vec::new();
                for item in original.iter().chain(patch) {
                    if !merged.contains(item) {
                        merged.push(item.clone());
                    }
                }
                Ok(merged)
            }
            Strategy::ByKey(key) => self.keyed(original, patch, key, path),
        }
    }

    fn keyed(
        &self,
        original: &[Value],
        patch: &[Value],
        key: &'static str,
        path: &str,
    ) -> Result<Vec<Value>, ApiError> {
        let mut merged: Vec<Value> = original.to_vec();
        for item in patch {
            let Some(fields) = item.as_object() else {
                return Err(ApiError::bad_request(format!(
                    "expected the items of {path} to be objects with the merge key {key}"
                )));
            };
            if fields.get(DIRECTIVE).and_then(Value::as_str) == Some("delete") {
                let id = merge_key(fields, key)?;
                merged.retain(|have| have.get(key) != Some(id));
                continue;
            }
            let id = merge_key(fields, key)?;
            match merged.iter_mut().find(|have| have.get(key) == Some(id)) {
                Some(have) => {
                    let empty = Map::new();
                    let merged_item = self.map(have.as_object().unwrap_or(&empty), fields, path)?;
                    *have = Value::Object(merged_item);
                }
                None => merged.push(Value::Object(self.map(&Map::new(), fields, path)?)),
            }
        }
        Ok(merged)
    }
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

fn bad_directive(directive: &str) -> ApiError {
    ApiError::unclassified(format!("unknown patch type: {directive}"))
}

fn merge_key<'a>(item: &'a Map<String, Value>, key: &str) -> Result<&'a Value, ApiError> {
    item.get(key).ok_or_else(|| {
        ApiError::unclassified(format!(
            "map: {} does not contain declared merge key: {key}",
            Value::Object(item.clone())
        ))
    })
}

fn delete_primitives(
    merged: &mut Map<String, Value>,
    field: &str,
    gone: &Value,
) -> Result<(), ApiError> {
    let gone = gone.as_array().ok_or_else(|| {
        ApiError::bad_request("invalid patch format of primitive list: it must be a list")
    })?;
    if let Some(live) = merged.get_mut(field).and_then(Value::as_array_mut) {
        live.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// Puts the items named in `order` into that order; items only the server has keep their
/// place relative to their neighbours in the original list.
fn reorder(
    items: &[Value],
    original: &[Value],
    order: &Value,
    way: Strategy,
) -> Result<Vec<Value>, ApiError> {
    let order = order.as_array().ok_or_else(|| {
        ApiError::bad_request("invalid patch format of setElementOrder list: it must be a list")
    })?;
    let key = match way {
        Strategy::Atomic => return Ok(items.to_vec()),
        Strategy::Primitives => None,
        Strategy::ByKey(key) => Some(key),
    };
    let identity = |item: &Value| -> Value {
        key.map_or_else(
            || item.clone(),
            |key| item.get(key).cloned().unwrap_or(Value::Null),
        )
    };
    let position = |list: &[Value], item: &Value| {
        let id = identity(item);
        list.iter().position(|other| identity(other) == id)
    };
    let (mut ordered, server_only): (Vec<Value>, Vec<Value>) = items
        .iter()
        .cloned()
        .partition(|item| position(order, item).is_some());
    ordered.sort_by_key(|item| position(order, item));
    let mut from = 0;
    for item in server_only {
        let place = position(original, &item);
        let at = ordered
            .iter()
            .enumerate()
            .skip(from)
            .find(|(_, other)| {
                matches!((position(original, other), place), (Some(o), Some(p)) if o > p)
            })
            .map_or(ordered.len(), |(index, _)| index);
        ordered.insert(at, item);
        from = at + 1;
    }
    Ok(ordered)
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
