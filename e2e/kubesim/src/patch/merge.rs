//! JSON merge patch.

use serde_json::Value;

use crate::errors::ApiError;

pub(super) fn apply(current: &Value, body: &Value) -> Result<Value, ApiError> {
    if !body.is_object() {
        return Err(ApiError::bad_request(
            "error decoding patch: a merge patch must be a JSON object",
        ));
    }
    let mut patched = current.clone();
    json_patch::merge(&mut patched, body);
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_removes_and_lists_are_replaced() {
        let got = apply(
            &json!({"a": 1, "b": [1, 2], "c": {"d": 1}}),
            &json!({"a": null, "b": [3], "c": {"e": 2}}),
        );
        assert_eq!(got, Ok(json!({"b": [3], "c": {"d": 1, "e": 2}})));
    }

    #[test]
    fn a_patch_that_is_no_object_is_a_bad_request() {
        assert_eq!(apply(&json!({}), &json!([1])).unwrap_err().code, 400);
    }
}
