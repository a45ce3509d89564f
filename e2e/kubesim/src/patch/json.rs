//! JSON patch.

use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::Value;

use crate::errors::ApiError;

/// The limit of the real server.
const MAX_OPERATIONS: usize = 10_000;

pub(super) fn apply(current: &Value, body: &Value) -> Result<Value, ApiError> {
    if body.is_null() {
        return Ok(current.clone());
    }
    let operations = body
        .as_array()
        .filter(|all| all.iter().all(Value::is_object));
    if operations.is_none() {
        return Err(ApiError::bad_request(
            "error decoding patch: a JSON patch must be a list of operations",
        ));
    }
    // An operation that is not known fails when it is applied, as on the real server.
    let patch: json_patch::Patch =
        serde_json::from_value(body.clone()).map_err(|_| ApiError::unprocessable_patch())?;
    if patch.0.len() > MAX_OPERATIONS {
        return Err(ApiError::too_large());
    }
    let mut patched = current.clone();
    for operation in patch.0 {
        // The library of the real server lets a replacement create the member of an object.
        let operation = match operation {
            PatchOperation::Replace(replace) if creates(&patched, &replace) => {
                PatchOperation::Add(AddOperation {
                    path: replace.path,
                    value: replace.value,
                })
            }
            other => other,
        };
        json_patch::patch(&mut patched, &[operation])
            .map_err(|_| ApiError::unprocessable_patch())?;
    }
    Ok(patched)
}

fn creates(object: &Value, replace: &ReplaceOperation) -> bool {
    let path = replace.path.as_str();
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    object.pointer(path).is_none() && object.pointer(parent).is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failed_test_operation_is_422_and_changes_nothing() {
        let error = apply(
            &json!({"a": 1}),
            &json!([{"op": "replace", "path": "/a", "value": 2}, {"op": "test", "path": "/a", "value": 1}]),
        )
        .unwrap_err();
        assert_eq!((error.code, error.reason), (422, "Invalid"));
    }

    #[test]
    fn an_unknown_operation_is_422_and_no_list_is_400() {
        let error = apply(&json!({}), &json!([{"op": "explode", "path": "/a"}])).unwrap_err();
        assert_eq!(error.code, 422);
        assert_eq!(apply(&json!({}), &json!({})).unwrap_err().code, 400);
    }

    #[test]
    fn removing_what_is_not_there_is_422() {
        let error = apply(&json!({}), &json!([{"op": "remove", "path": "/a"}])).unwrap_err();
        assert_eq!(error.code, 422);
    }
}
