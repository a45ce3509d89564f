//! Label and field selectors.

use serde_json::Value;

use crate::{
    errors::ApiError,
    meta::is_label_value,
    object::text,
    resources::{EVENTS, EVENTS_GROUP, NAMESPACES, NODES, PODS, Resource, SECRETS, SERVICES},
};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Above(String, i64),
    Below(String, i64),
}

/// What a list, a watch or a collection delete asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(&'static str, bool, String)>,
}

impl Selector {
    /// Parses the query parameters; 400 for what cannot be read or is not selectable.
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, ApiError> {
        Ok(Self {
            labels: parse_labels(labels)?,
            fields: parse_fields(resource, fields)?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| {
            object
                .pointer("/metadata/labels")
                .and_then(|labels| labels.get(key))
                .and_then(Value::as_str)
        };
        self.labels.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => {
                label(key).is_some_and(|v| values.iter().any(|w| w == v))
            }
            Requirement::NotIn(key, values) => {
                label(key).is_none_or(|v| values.iter().all(|w| w != v))
            }
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
            Requirement::Above(key, limit) => number_of(label(key)).is_some_and(|n| n > *limit),
            Requirement::Below(key, limit) => number_of(label(key)).is_some_and(|n| n < *limit),
        }) && self
            .fields
            .iter()
            .all(|(field, equal, want)| (field_value(field, object) == *want) == *equal)
    }
}

fn number_of(label: Option<&str>) -> Option<i64> {
    label.and_then(|text| text.parse().ok())
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, ApiError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    split_outside_brackets(text)
        .into_iter()
        .map(str::trim)
        .map(|part| {
            parse_requirement(part).ok_or_else(|| {
                ApiError::bad_request(format!(
                    "unable to parse requirement: found '{part}', expected key, key=value, \
                     key!=value, key in (a,b) or key notin (a,b)"
                ))
            })
        })
        .collect()
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn parse_requirement(part: &str) -> Option<Requirement> {
    if let Some(key) = part.strip_prefix('!') {
        return key_of(key).map(Requirement::Absent);
    }
    if let Some((head, values)) = part.split_once('(') {
        let values: Vec<String> = values
            .strip_suffix(')')?
            .split(',')
            .map(value_of)
            .collect::<Option<_>>()?;
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        let key = key_of(key)?;
        return match operator {
            "in" => Some(Requirement::In(key, values)),
            "notin" => Some(Requirement::NotIn(key, values)),
            _ => None,
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Requirement::NotIn(key_of(key)?, vec![value_of(value)?]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Requirement::In(key_of(key)?, vec![value_of(value)?]));
    }
    if let Some((key, value)) = part.split_once('>') {
        return Some(Requirement::Above(key_of(key)?, value.trim().parse().ok()?));
    }
    if let Some((key, value)) = part.split_once('<') {
        return Some(Requirement::Below(key_of(key)?, value.trim().parse().ok()?));
    }
    key_of(part).map(Requirement::Exists)
}

fn key_of(text: &str) -> Option<String> {
    let key = text.trim();
    let good = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    good.then(|| key.to_owned())
}

fn value_of(text: &str) -> Option<String> {
    let value = text.trim();
    is_label_value(value).then(|| value.to_owned())
}

fn parse_fields(
    resource: &Resource,
    text: &str,
) -> Result<Vec<(&'static str, bool, String)>, ApiError> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, equal, value) = if let Some((name, value)) = part.split_once("!=") {
                (name, false, value)
            } else if let Some((name, value)) =
                part.split_once("==").or_else(|| part.split_once('='))
            {
                (name, true, value)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}': expected field=value or field!=value"
                )));
            };
            let field = selectable(resource, name.trim()).ok_or_else(|| {
                ApiError::bad_request(format!("field label not supported: {}", name.trim()))
            })?;
            Ok((field, equal, value.trim().to_owned()))
        })
        .collect()
}

/// The stored field behind a name, if it may be selected on.
fn selectable(resource: &Resource, name: &str) -> Option<&'static str> {
    const CORE_EVENT: &[&str] = &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ];
    let known: &[&'static str] = match resource.storage {
        SERVICES => &["spec.clusterIP", "spec.type"],
        NODES => &["spec.unschedulable"],
        NAMESPACES => &["status.phase"],
        SECRETS => &["type"],
        PODS => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        EVENTS => CORE_EVENT,
        _ => &[],
    };
    // The newer events name the same stored fields differently.
    let stored = if resource.group == EVENTS_GROUP {
        match name {
            old if old.starts_with("involvedObject.") || old == "reportingComponent" => {
                return None;
            }
            "reportingController" => "reportingComponent".to_owned(),
            other => other.replace("regarding.", "involvedObject."),
        }
    } else {
        name.to_owned()
    };
    ["metadata.name", "metadata.namespace"]
        .iter()
        .chain(known)
        .find(|field| **field == stored)
        .copied()
}

fn field_value(field: &str, object: &Value) -> String {
    if field == "source" {
        let component = text(object, "/source/component");
        let component = if component.is_empty() {
            text(object, "/reportingComponent")
        } else {
            component
        };
        return component.to_owned();
    }
    let pointer = format!("/{}", field.replace('.', "/"));
    match object.pointer(&pointer) {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Bool(b)) => b.to_string(),
        _ if field == "spec.unschedulable" => "false".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::find;

    fn matches(labels: &str, fields: &str) -> bool {
        let services = find("", "v1", "services").unwrap();
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web", "tier": "front"}},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"},
        });
        Selector::parse(services, labels, fields)
            .unwrap()
            .matches(&object)
    }

    #[test]
    fn label_selectors_follow_the_documented_operators() {
        for good in [
            "",
            "app",
            "app=web",
            "app==web,tier!=back",
            "app in (api, web),tier notin (back)",
            "!missing",
            "missing!=x",
            "missing notin (x,y)",
        ] {
            assert!(matches(good, ""), "{good}");
        }
        for bad in [
            "!app",
            "app=api",
            "app notin (web)",
            "missing in (x)",
            "missing",
        ] {
            assert!(!matches(bad, ""), "{bad}");
        }
    }

    #[test]
    fn field_selectors_know_the_fields_of_the_kind() {
        assert!(matches("", "spec.type=LoadBalancer,metadata.name==web"));
        assert!(matches("", "spec.clusterIP!=None"));
        assert!(!matches("", "metadata.namespace=default"));
    }

    #[test]
    fn unknown_fields_and_broken_selectors_are_bad_requests() {
        let services = find("", "v1", "services").unwrap();
        for (labels, fields) in [
            ("", "spec.ports=80"),
            ("a b", ""),
            ("a in (b", ""),
            ("", "metadata.name"),
        ] {
            let error = Selector::parse(services, labels, fields).unwrap_err();
            assert_eq!(error.code, 400, "{labels} {fields}");
        }
    }

    #[test]
    fn the_newer_events_select_by_their_own_names() {
        let events = find(EVENTS_GROUP, "v1", "events").unwrap();
        let selector =
            Selector::parse(events, "", "regarding.name=n1,reportingController=ccm").unwrap();
        let stored = json!({"involvedObject": {"name": "n1"}, "reportingComponent": "ccm"});
        assert!(selector.matches(&stored));
    }
}
