use serde_json::json;

use super::*;

fn check(storage: &str, original: &Value, patch: &Value, want: &Value) {
    let got = apply(storage, original, patch).unwrap();
    assert_eq!(got, *want, "original {original} patch {patch}");
}

#[test]
fn taints_are_replaced_as_a_whole() {
    check(
        NODES,
        &json!({"spec": {"taints": [{"key": "a"}, {"key": "b"}]}}),
        &json!({"$setElementOrder/taints": [], "spec": {"taints": [{"key": "c"}]}}),
        &json!({"spec": {"taints": [{"key": "c"}]}}),
    );
}

#[test]
fn addresses_merge_by_type_in_the_order_of_the_patch() {
    check(
        NODES,
        &json!({"status": {"addresses": [{"type": "InternalIP", "address": "1"}, {"type": "Hostname", "address": "h"}]}}),
        &json!({"status": {"addresses": [{"type": "InternalIP", "address": "2"}, {"type": "ExternalIP", "address": "3"}]}}),
        &json!({"status": {"addresses": [{"type": "InternalIP", "address": "2"}, {"type": "ExternalIP", "address": "3"},
            {"type": "Hostname", "address": "h"}]}}),
    );
}

#[test]
fn a_replace_item_replaces_the_whole_list() {
    check(
        NODES,
        &json!({"status": {"addresses": [{"type": "InternalIP", "address": "1"}]}}),
        &json!({"status": {"addresses": [{"$patch": "replace"}, {"type": "InternalIP", "address": "2"},
            {"type": "InternalDNS", "address": "d"}]}}),
        &json!({"status": {"addresses": [{"type": "InternalIP", "address": "2"}, {"type": "InternalDNS", "address": "d"}]}}),
    );
}

#[test]
fn a_delete_item_removes_by_key_and_order_is_followed() {
    check(
        SERVICES,
        &json!({"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}, {"port": 82, "name": "c"}]}}),
        &json!({"spec": {"$setElementOrder/ports": [{"port": 82}, {"port": 80}],
            "ports": [{"port": 81, "$patch": "delete"}, {"port": 80, "name": "z"}]}}),
        &json!({"spec": {"ports": [{"port": 82, "name": "c"}, {"port": 80, "name": "z"}]}}),
    );
}

#[test]
fn finalizers_are_a_set_with_order_and_deletion() {
    check(
        SERVICES,
        &json!({"metadata": {"finalizers": ["foo"]}}),
        &json!({"metadata": {"$setElementOrder/finalizers": ["foo", "lb"], "finalizers": ["lb"]}}),
        &json!({"metadata": {"finalizers": ["foo", "lb"]}}),
    );
    check(
        SERVICES,
        &json!({"metadata": {"finalizers": ["foo", "lb"]}}),
        &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["lb"], "$setElementOrder/finalizers": ["foo"]}}),
        &json!({"metadata": {"finalizers": ["foo"]}}),
    );
    check(
        SERVICES,
        &json!({"metadata": {"finalizers": ["lb"], "name": "x"}}),
        &json!({"metadata": {"finalizers": null}}),
        &json!({"metadata": {"name": "x"}}),
    );
}

#[test]
fn items_only_the_server_has_keep_their_place() {
    check(
        SERVICES,
        &json!({"metadata": {"finalizers": ["a", "s", "b"]}}),
        &json!({"metadata": {"$setElementOrder/finalizers": ["a", "b", "c"], "finalizers": ["c"]}}),
        &json!({"metadata": {"finalizers": ["a", "s", "b", "c"]}}),
    );
}

#[test]
fn owner_references_merge_by_uid() {
    check(
        SERVICES,
        &json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}}),
        &json!({"metadata": {"ownerReferences": [{"uid": "2", "name": "b"}, {"uid": "1", "name": "c"}]}}),
        &json!({"metadata": {"ownerReferences": [{"uid": "2", "name": "b"}, {"uid": "1", "name": "c"}]}}),
    );
}

#[test]
fn load_balancer_ingress_is_atomic() {
    check(
        SERVICES,
        &json!({"status": {"loadBalancer": {"ingress": [{"ip": "1"}, {"ip": "2"}]}}}),
        &json!({"status": {"loadBalancer": {"ingress": [{"hostname": "h"}]}}}),
        &json!({"status": {"loadBalancer": {"ingress": [{"hostname": "h"}]}}}),
    );
}

#[test]
fn maps_can_be_replaced_deleted_and_reduced_to_kept_keys() {
    check(
        "configmaps",
        &json!({"data": {"a": "1", "b": "2"}}),
        &json!({"data": {"$patch": "replace", "c": "3"}}),
        &json!({"data": {"c": "3"}}),
    );
    check(
        "configmaps",
        &json!({"data": {"a": "1"}, "kind": "ConfigMap"}),
        &json!({"data": {"$patch": "delete"}}),
        &json!({"kind": "ConfigMap"}),
    );
    check(
        PODS,
        &json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
        &json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}),
        &json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
    );
}

#[test]
fn null_deletes_and_directives_never_reach_the_object() {
    check(
        NODES,
        &json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        &json!({"metadata": {"labels": {"a": null, "c": "3"}, "annotations": {"x": "y", "z": null}}}),
        &json!({"metadata": {"labels": {"b": "2", "c": "3"}, "annotations": {"x": "y"}}}),
    );
}

#[test]
fn bad_patches_name_what_is_wrong() {
    let no_key = apply(
        NODES,
        &json!({"status": {"addresses": []}}),
        &json!({"status": {"addresses": [{"address": "1"}]}}),
    )
    .unwrap_err();
    assert!(no_key.message.contains("merge key: type"), "{no_key}");
    let directive = apply(NODES, &json!({}), &json!({"$patch": "explode"})).unwrap_err();
    assert_eq!(directive.code, 500);
    let list = apply(NODES, &json!({}), &json!([])).unwrap_err();
    assert_eq!(list.code, 400);
}
