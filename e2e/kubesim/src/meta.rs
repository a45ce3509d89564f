//! Object metadata: names, labels, what an update may change, managed fields.

use serde_json::{Map, Value, json};

use crate::{
    errors::FieldError,
    object::{is_deleting, list, map_mut, set, text, texts, unset},
    resources::{NAMESPACES, Resource, SERVICES},
};

/// Says that a name is no RFC 1123 label.
pub(crate) const NOT_A_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// Says that a name is no RFC 1123 subdomain.
pub(crate) const NOT_A_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// Says that a text is no label value.
pub(crate) const NOT_A_LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
/// Says that a key is no qualified name.
pub(crate) const NOT_A_QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
/// Managers remembered per object: the real server merges older ones at ten.
const MAX_MANAGERS: usize = 10;
/// The longest base of a generated name: 63 less the five random characters.
pub(crate) const MAX_GENERATE_BASE: usize = 58;
/// All annotations of an object together.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Finalizers without a domain that the real server knows.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// Letters of generated names: no vowels and nothing that is easily confused.
const NAME_LETTERS: &[char] = &[
    'b', 'c', 'd', 'f', 'g', 'h', 'j', 'k', 'l', 'm', 'n', 'p', 'q', 'r', 's', 't', 'v', 'w', 'x',
    'z', '2', '4', '5', '6', '7', '8', '9',
];

/// Five random characters.
pub(crate) fn name_suffix(rng: &mut fastrand::Rng) -> String {
    (0..5)
        .filter_map(|_| rng.choice(NAME_LETTERS.iter()).copied())
        .collect()
}

/// Checks name, labels and annotations of an object.
pub(crate) fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(object, "/metadata/name");
    let label_only = matches!(resource.storage, SERVICES | NAMESPACES);
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else if label_only && !is_dns_label(name) {
        errors.push(FieldError::invalid(
            "metadata.name",
            &json!(name),
            NOT_A_LABEL,
        ));
    } else if !label_only && !is_dns_subdomain(name) {
        errors.push(FieldError::invalid(
            "metadata.name",
            &json!(name),
            NOT_A_SUBDOMAIN,
        ));
    }
    if let Some(labels) = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
    {
        for (key, value) in labels {
            check_key(key, "metadata.labels", &mut errors);
            if !value.as_str().is_some_and(is_label_value) {
                errors.push(FieldError::invalid(
                    "metadata.labels",
                    value,
                    NOT_A_LABEL_VALUE,
                ));
            }
        }
    }
    if let Some(annotations) = object
        .pointer("/metadata/annotations")
        .and_then(Value::as_object)
    {
        let mut bytes = 0;
        for (key, value) in annotations {
            check_key(&key.to_lowercase(), "metadata.annotations", &mut errors);
            bytes += key.len() + value.as_str().map_or(0, str::len);
        }
        if bytes > MAX_ANNOTATION_BYTES {
            errors.push(FieldError {
                field: "metadata.annotations".to_owned(),
                reason: "FieldValueTooLong",
                message: format!("Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"),
            });
        }
    }
    for (index, finalizer) in texts(object, "/metadata/finalizers").iter().enumerate() {
        check_key(finalizer, "metadata.finalizers", &mut errors);
        if resource.group.is_empty()
            && !finalizer.contains('/')
            && !STANDARD_FINALIZERS.contains(finalizer)
        {
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{index}]"),
                &json!(finalizer),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    for (index, owner) in list(object, "/metadata/ownerReferences").iter().enumerate() {
        for field in ["kind", "name", "uid"] {
            if text(owner, &format!("/{field}")).is_empty() {
                errors.push(FieldError::required(
                    format!("metadata.ownerReferences[{index}].{field}"),
                    "must not be empty",
                ));
            }
        }
    }
    errors
}

fn check_key(key: &str, field: &str, errors: &mut Vec<FieldError>) {
    if !is_qualified_name(key) {
        errors.push(FieldError::invalid(
            field,
            &json!(key),
            NOT_A_QUALIFIED_NAME,
        ));
    }
}

/// `name` or `prefix/name`.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        None => !key.is_empty() && is_label_value(key),
        Some((prefix, name)) => {
            is_dns_subdomain(prefix) && !name.is_empty() && is_label_value(name)
        }
    }
}

/// A label value; empty is one.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.len() <= 63
        && (value.is_empty()
            || (value
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                && value.starts_with(|c: char| c.is_ascii_alphanumeric())
                && value.ends_with(|c: char| c.is_ascii_alphanumeric())))
}

/// An RFC 1123 label.
pub(crate) fn is_dns_label(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !name.is_empty()
        && name.len() <= 63
        && name.chars().all(|c| fits(c) || c == '-')
        && name.starts_with(fits)
        && name.ends_with(fits)
}

/// An RFC 1123 subdomain.
pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part = |p: &str| {
        !p.is_empty()
            && p.chars().all(|c| fits(c) || c == '-')
            && p.starts_with(fits)
            && p.ends_with(fits)
    };
    name.len() <= 253 && name.split('.').all(part)
}

/// Brings the metadata of an update in line with the stored object, as
/// `rest.BeforeUpdate` and `ValidateObjectMetaUpdate` do.
pub(crate) fn before_update(fresh: &mut Value, current: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let uid = text(fresh, "/metadata/uid");
    if !uid.is_empty() && uid != text(current, "/metadata/uid") {
        errors.push(FieldError::invalid(
            "metadata.uid",
            &json!(uid),
            "field is immutable",
        ));
    }
    for field in ["name", "namespace"] {
        let pointer = format!("/metadata/{field}");
        let new = text(fresh, &pointer);
        if !new.is_empty() && new != text(current, &pointer) {
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                &json!(new),
                "field is immutable",
            ));
        }
    }
    if is_deleting(current) {
        let old = texts(current, "/metadata/finalizers");
        let added: Vec<String> = texts(fresh, "/metadata/finalizers")
            .into_iter()
            .filter(|f| !old.contains(f))
            .map(|f| format!("\"{f}\""))
            .collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                &format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.join(", ")
                ),
            ));
        }
    } else if is_deleting(fresh) {
        errors.push(FieldError::invalid(
            "metadata.deletionTimestamp",
            &json!(text(fresh, "/metadata/deletionTimestamp")),
            "field is immutable",
        ));
    }
    for field in [
        "uid",
        "name",
        "namespace",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "managedFields",
    ] {
        crate::object::copy(fresh, current, &["metadata", field]);
    }
    unset(fresh, &["metadata", "selfLink"]);
    errors
}

/// Who writes, for `metadata.managedFields`.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) manager: String,
    pub(crate) subresource: Option<String>,
}

/// Records a change by `writer`. Fields are not tracked, but for finalizers: their last
/// writer is what people look for when an object does not go away.
pub(crate) fn record_manager(
    resource: &Resource,
    object: &mut Value,
    before: Option<&Value>,
    writer: &Writer,
    stamp: &str,
) {
    let old = before.map_or(&[][..], |b| list(b, "/metadata/finalizers"));
    let finalizers_changed = old != list(object, "/metadata/finalizers");
    let mut entries = list(object, "/metadata/managedFields").to_vec();
    let same = |entry: &Value| {
        text(entry, "/manager") == writer.manager
            && text(entry, "/operation") == "Update"
            && text(entry, "/subresource") == writer.subresource.as_deref().unwrap_or_default()
    };
    let mut fields = entries
        .iter()
        .find(|e| same(e))
        .and_then(|e| e.get("fieldsV1").cloned())
        .unwrap_or_else(|| Value::Object(Map::new()));
    if finalizers_changed {
        if let Some(map) = map_mut(&mut fields, &["f:metadata"]) {
            map.insert("f:finalizers".to_owned(), json!({}));
        }
        for entry in entries.iter_mut().filter(|e| !same(e)) {
            unset(entry, &["fieldsV1", "f:metadata", "f:finalizers"]);
        }
    }
    entries.retain(|e| !same(e));
    let mut entry = json!({
        "manager": writer.manager,
        "operation": "Update",
        "apiVersion": resource.api_version(),
        "time": stamp,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    });
    if let Some(subresource) = &writer.subresource {
        set(&mut entry, &["subresource"], subresource.as_str());
    }
    entries.push(entry);
    let surplus = entries.len().saturating_sub(MAX_MANAGERS);
    entries.drain(..surplus);
    set(object, &["metadata", "managedFields"], entries);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_dns_rules() {
        for good in ["a", "ip-10-0-0-1.ec2.internal", "0a"] {
            assert!(is_dns_subdomain(good), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b", "ä"] {
            assert!(!is_dns_subdomain(bad), "{bad}");
        }
        assert!(!is_dns_label("a.b"));
        assert!(is_qualified_name(
            "service.kubernetes.io/load-balancer-cleanup"
        ));
        assert!(!is_qualified_name("Bad Domain/x"));
    }

    #[test]
    fn the_last_writer_of_finalizers_is_named() {
        let services = crate::resources::find("", "v1", "services").unwrap();
        let before = json!({"metadata": {"name": "a"}});
        let mut object = json!({"metadata": {"name": "a", "finalizers": ["x/y"]}});
        let writer = Writer {
            manager: "ccm".to_owned(),
            subresource: Some("status".to_owned()),
        };
        record_manager(
            services,
            &mut object,
            Some(&before),
            &writer,
            "2026-01-01T00:00:00Z",
        );
        let entries = list(&object, "/metadata/managedFields");
        assert_eq!(entries.len(), 1);
        assert_eq!(text(&entries[0], "/subresource"), "status");
        assert!(
            entries[0]
                .pointer("/fieldsV1/f:metadata/f:finalizers")
                .is_some()
        );
    }
}
