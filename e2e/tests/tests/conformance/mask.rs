//! Makes answers of two servers comparable: what each server chooses by itself (UIDs, versions,
//! times, addresses) is replaced by a placeholder, numbered by first appearance, so that equal
//! values stay equal and different ones different.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// The placeholders of one run of a case.
#[derive(Default)]
pub(crate) struct Mask {
    /// Kind and value to placeholder.
    names: BTreeMap<(&'static str, String), String>,
    counts: BTreeMap<&'static str, usize>,
    /// Node ports by the UID of the Service that holds them.
    ports: BTreeMap<String, BTreeSet<String>>,
    /// Everything sent so far: what the case itself chose is not replaced.
    sent: String,
}

impl Mask {
    /// Remembers a request body.
    pub(crate) fn sent(&mut self, body: &str) {
        self.sent.push_str(body);
        self.sent.push('\n');
    }

    fn name(&mut self, kind: &'static str, value: &str) -> String {
        let key = (kind, value.to_owned());
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let chosen = format!("\"{value}\"");
        let number = format!(":{value}");
        if kind != "version" && (self.sent.contains(&chosen) || self.sent.contains(&number)) {
            return value.to_owned();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let name = format!("<{kind} {count}>");
        self.names.insert(key, name.clone());
        name
    }

    /// Replaces what the server chose in an answer.
    pub(crate) fn apply(&mut self, value: &mut Value) {
        self.forget_released_ports(value);
        self.structured(value);
        self.texts(value);
    }

    /// A port that a Service gave up may be given out again by chance: it then counts as new.
    fn forget_released_ports(&mut self, service: &Value) {
        let spec = &service["spec"];
        if service["kind"] != "Service" || !spec.is_object() {
            return;
        }
        let ports = spec["ports"].as_array().into_iter().flatten();
        let ports: BTreeSet<String> = ports
            .map(|port| port["nodePort"].to_string())
            .chain([spec["healthCheckNodePort"].to_string()])
            .collect();
        let uid = service["metadata"]["uid"].to_string();
        let before = self.ports.insert(uid, ports.clone()).unwrap_or_default();
        for released in before.difference(&ports) {
            self.names.remove(&("port", released.clone()));
        }
    }

    fn structured(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                if map.get("kind") == Some(&json!("Status")) {
                    failure(map);
                }
                // Null and absent are the same to every client.
                map.retain(|_, item| !item.is_null());
                if map.contains_key("generateName") && map.contains_key("name") {
                    let name = self.name("generated", map["name"].as_str().unwrap_or_default());
                    map.insert("name".to_owned(), json!(name));
                }
                let is_list = map.contains_key("items") || map.contains_key("rows");
                let is_bookmark = map.get("type") == Some(&json!("BOOKMARK"));
                for (key, item) in map.iter_mut() {
                    match key.as_str() {
                        // kubesim does not track who owns which field.
                        "managedFields" => *item = Value::Null,
                        "uid" if item.is_string() => self.put("uid", item),
                        "metadata" if is_list => {
                            mask_version(item);
                            self.structured(item);
                        }
                        "object" if is_bookmark => mask_version(&mut item["metadata"]),
                        "resourceVersion" if item != "<some version>" => self.put("version", item),
                        "creationTimestamp" | "deletionTimestamp" | "timeAdded"
                            if item.is_string() =>
                        {
                            *item = json!("<time>");
                        }
                        "continue" if item != "" => *item = json!("<continue>"),
                        "clusterIP" if item != "None" && item != "" => self.put("ip", item),
                        "clusterIPs" => {
                            let addresses = item.as_array_mut().into_iter().flatten();
                            addresses
                                .filter(|i| *i != "None")
                                .for_each(|i| self.put("ip", i));
                        }
                        "nodePort" | "healthCheckNodePort" if item != 0 => self.put("port", item),
                        // Text for people that no program reads.
                        "description" => *item = Value::Null,
                        "cells" => item.as_array_mut().into_iter().flatten().for_each(age),
                        _ => self.structured(item),
                    }
                }
                map.retain(|key, _| key != "managedFields" && key != "description");
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.structured(item)),
            _ => {}
        }
    }

    fn put(&mut self, kind: &'static str, item: &mut Value) {
        let plain = match &*item {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        *item = json!(self.name(kind, &plain));
    }

    /// Values that were seen before, inside texts: messages and table cells.
    fn texts(&self, value: &mut Value) {
        match value {
            Value::Object(map) => map.values_mut().for_each(|item| self.texts(item)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.texts(item)),
            Value::String(text) => {
                for ((kind, plain), name) in &self.names {
                    // Versions are short numbers: they would be found where they are not.
                    if *kind != "version" && text.contains(plain.as_str()) {
                        *text = text.replace(plain.as_str(), name);
                    }
                }
                let lower = text.to_lowercase();
                if lower.contains("resource version") || lower.contains("resourceversion in") {
                    *text = without_numbers(text);
                }
            }
            _ => {}
        }
    }
}

/// Of a failure, code, reason and the causes' fields and reasons count. Its text is compared only
/// where clients read it; elsewhere kubesim may say it in its own words.
fn failure(status: &mut Map<String, Value>) {
    let code = status
        .get("code")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    if ![404, 409, 410].contains(&code) {
        status.remove("message");
    }
    let causes = status
        .get_mut("details")
        .and_then(|details| details.get_mut("causes"))
        .and_then(Value::as_array_mut);
    if let Some(causes) = causes {
        // One rule may be reported in several sentences, and in any order.
        let kinds: BTreeSet<(String, String)> = causes
            .iter()
            .map(|cause| (cause["field"].to_string(), cause["reason"].to_string()))
            .collect();
        *causes = kinds
            .into_iter()
            .map(|(field, reason)| json!(format!("{field} {reason}")))
            .collect();
    }
    if status.get("details") == Some(&json!({})) {
        status.remove("details");
    }
}

/// The version of a list or bookmark is that of the whole server, not of an object.
fn mask_version(metadata: &mut Value) {
    if metadata.get("resourceVersion").is_some() {
        metadata["resourceVersion"] = json!("<some version>");
    }
}

/// An age in a table cell.
fn age(cell: &mut Value) {
    let is_age = cell.as_str().is_some_and(|text| {
        text.starts_with(|c: char| c.is_ascii_digit())
            && text.ends_with(|c: char| "smhdy".contains(c))
            && text
                .chars()
                .all(|c| c.is_ascii_digit() || "smhdy".contains(c))
    });
    if is_age {
        *cell = json!("<age>");
    }
}

fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if !c.is_ascii_digit() {
            out.push(c);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}
