//! Protobuf bodies, as far as kubectl sends them: `kubectl create namespace`, `configmap`,
//! `secret`, `serviceaccount`, `service` and `token`. Answers are always JSON. A field that is
//! not known here is refused rather than lost.

use serde_json::{Map, Value, json};

use crate::kinds::base64;

/// The envelope of all Kubernetes protobuf bodies starts with this.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Clone, Copy, Debug)]
enum Type {
    Text,
    Number,
    Flag,
    Texts,
    TextMap,
    BytesMap,
    IntOrString,
    Message(&'static [Field]),
    Messages(&'static [Field]),
    /// Set by the server alone, so a client's value does not matter.
    Ignored,
}

/// Number, JSON name and type.
type Field = (u64, &'static str, Type);

const METADATA: &[Field] = &[
    (1, "name", Type::Text),
    (2, "generateName", Type::Text),
    (3, "namespace", Type::Text),
    (4, "selfLink", Type::Ignored),
    (5, "uid", Type::Text),
    (6, "resourceVersion", Type::Text),
    (7, "generation", Type::Ignored),
    (8, "creationTimestamp", Type::Ignored),
    (11, "labels", Type::TextMap),
    (12, "annotations", Type::TextMap),
    (14, "finalizers", Type::Texts),
];
const NAMESPACE: &[Field] = &[
    (1, "metadata", Type::Message(METADATA)),
    (2, "spec", Type::Ignored),
    (3, "status", Type::Ignored),
];
const CONFIG_MAP: &[Field] = &[
    (1, "metadata", Type::Message(METADATA)),
    (2, "data", Type::TextMap),
    (3, "binaryData", Type::BytesMap),
    (4, "immutable", Type::Flag),
];
const SECRET: &[Field] = &[
    (1, "metadata", Type::Message(METADATA)),
    (2, "data", Type::BytesMap),
    (3, "type", Type::Text),
    (4, "stringData", Type::TextMap),
    (5, "immutable", Type::Flag),
];
const REFERENCE: &[Field] = &[(1, "name", Type::Text)];
const SERVICE_ACCOUNT: &[Field] = &[
    (1, "metadata", Type::Message(METADATA)),
    (3, "imagePullSecrets", Type::Messages(REFERENCE)),
    (4, "automountServiceAccountToken", Type::Flag),
];
const PORT: &[Field] = &[
    (1, "name", Type::Text),
    (2, "protocol", Type::Text),
    (3, "port", Type::Number),
    (4, "targetPort", Type::IntOrString),
    (5, "nodePort", Type::Number),
    (6, "appProtocol", Type::Text),
];
const SERVICE_SPEC: &[Field] = &[
    (1, "ports", Type::Messages(PORT)),
    (2, "selector", Type::TextMap),
    (3, "clusterIP", Type::Text),
    (4, "type", Type::Text),
    (5, "externalIPs", Type::Texts),
    (7, "sessionAffinity", Type::Text),
    (8, "loadBalancerIP", Type::Text),
    (9, "loadBalancerSourceRanges", Type::Texts),
    (10, "externalName", Type::Text),
    (11, "externalTrafficPolicy", Type::Text),
    (12, "healthCheckNodePort", Type::Number),
    (13, "publishNotReadyAddresses", Type::Flag),
    (17, "ipFamilyPolicy", Type::Text),
    (18, "clusterIPs", Type::Texts),
    (19, "ipFamilies", Type::Texts),
    (20, "allocateLoadBalancerNodePorts", Type::Flag),
    (21, "loadBalancerClass", Type::Text),
    (22, "internalTrafficPolicy", Type::Text),
    (23, "trafficDistribution", Type::Text),
];
const SERVICE: &[Field] = &[
    (1, "metadata", Type::Message(METADATA)),
    (2, "spec", Type::Message(SERVICE_SPEC)),
    (3, "status", Type::Ignored),
];
const TOKEN_SPEC: &[Field] = &[
    (1, "audiences", Type::Texts),
    (4, "expirationSeconds", Type::Number),
];
const TOKEN_REQUEST: &[Field] = &[
    (1, "metadata", Type::Message(METADATA)),
    (2, "spec", Type::Message(TOKEN_SPEC)),
    (3, "status", Type::Ignored),
];
const TYPE_META: &[Field] = &[(1, "apiVersion", Type::Text), (2, "kind", Type::Text)];

/// The body as JSON, or why it cannot be read.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    let envelope = body
        .strip_prefix(MAGIC)
        .ok_or("the protobuf envelope is missing")?;
    let mut meta = Value::Null;
    let mut raw: &[u8] = &[];
    for entry in Reader(envelope) {
        match entry? {
            (1, Wire::Bytes(bytes)) => meta = message(bytes, TYPE_META)?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let kind = meta.get("kind").and_then(Value::as_str).unwrap_or_default();
    let schema = match kind {
        "Namespace" => NAMESPACE,
        "ConfigMap" => CONFIG_MAP,
        "Secret" => SECRET,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "Service" => SERVICE,
        "TokenRequest" => TOKEN_REQUEST,
        other => {
            return Err(format!(
                "protobuf of kind {other} is not read here, send JSON"
            ));
        }
    };
    let mut object = message(raw, schema)?;
    if let (Some(object), Some(meta)) = (object.as_object_mut(), meta.as_object()) {
        object.extend(meta.clone());
    }
    Ok(object)
}

fn message(bytes: &[u8], schema: &[Field]) -> Result<Value, String> {
    let mut object = Map::new();
    for entry in Reader(bytes) {
        let (number, wire) = entry?;
        let (_, name, kind) = schema
            .iter()
            .find(|(known, _, _)| *known == number)
            .ok_or_else(|| format!("protobuf field {number} is not known here, send JSON"))?;
        add(&mut object, name, *kind, &wire)?;
    }
    Ok(Value::Object(object))
}

fn add(
    object: &mut Map<String, Value>,
    name: &str,
    kind: Type,
    wire: &Wire<'_>,
) -> Result<(), String> {
    let value = match (kind, wire) {
        (Type::Ignored, _) => return Ok(()),
        // The encoder writes zero values of optional fields: they mean "not given".
        (Type::Text, Wire::Bytes([])) | (Type::Number, Wire::Varint(0)) => return Ok(()),
        (Type::Text, Wire::Bytes(bytes)) => json!(text(bytes)?),
        (Type::Number, Wire::Varint(number)) => json!(number.cast_signed()),
        (Type::Flag, Wire::Varint(number)) => json!(*number != 0),
        (Type::Message(schema), Wire::Bytes(bytes)) => message(bytes, schema)?,
        (Type::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes)?,
        (Type::Texts, Wire::Bytes(bytes)) => return push(object, name, json!(text(bytes)?)),
        (Type::Messages(schema), Wire::Bytes(bytes)) => {
            let item = message(bytes, schema)?;
            return push(object, name, item);
        }
        (Type::TextMap | Type::BytesMap, Wire::Bytes(bytes)) => {
            let (key, value) = pair(bytes)?;
            let value = if matches!(kind, Type::BytesMap) {
                base64(value)
            } else {
                text(value)?
            };
            let map = object.entry(name).or_insert_with(|| json!({}));
            if let Some(map) = map.as_object_mut() {
                map.insert(key, json!(value));
            }
            return Ok(());
        }
        _ => return Err(format!("protobuf field {name} has another wire type")),
    };
    object.insert(name.to_owned(), value);
    Ok(())
}

fn push(object: &mut Map<String, Value>, name: &str, item: Value) -> Result<(), String> {
    object
        .entry(name)
        .or_insert_with(|| json!([]))
        .as_array_mut()
        .ok_or_else(|| format!("protobuf field {name} is not a list"))?
        .push(item);
    Ok(())
}

fn text(bytes: &[u8]) -> Result<String, String> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|e| format!("protobuf string: {e}"))
}

fn pair(bytes: &[u8]) -> Result<(String, &[u8]), String> {
    let (mut key, mut value): (String, &[u8]) = (String::new(), &[]);
    for entry in Reader(bytes) {
        match entry? {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, Wire::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

/// `util/intstr`: type (0 a number, 1 a string), number, string.
fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut name) = (false, 0, String::new());
    for entry in Reader(bytes) {
        match entry? {
            (1, Wire::Varint(kind)) => is_text = kind == 1,
            (2, Wire::Varint(n)) => number = n.cast_signed(),
            (3, Wire::Bytes(bytes)) => name = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { json!(name) } else { json!(number) })
}

#[derive(Debug)]
enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order of the bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            // No Kubernetes type has fields of fixed width.
            _ => return None,
        };
        Some((key >> 3, wire))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Wire<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| "the protobuf body is broken".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        let mut meta = vec![0x0a, 2, b'v', b'1', 0x12, u8::try_from(kind.len()).unwrap()];
        meta.extend(kind.bytes());
        let mut body = MAGIC.to_vec();
        body.extend([0x0a, u8::try_from(meta.len()).unwrap()]);
        body.extend(meta);
        body.extend([0x12, u8::try_from(raw.len()).unwrap()]);
        body.extend(raw);
        body
    }

    #[test]
    fn a_config_map_is_read_with_its_maps() {
        let raw = b"\x0a\x03\x0a\x01c\x12\x06\x0a\x01a\x12\x01b\x1a\x06\x0a\x01x\x12\x01f";
        assert_eq!(
            decode(&envelope("ConfigMap", raw)),
            Ok(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
                "data": {"a": "b"}, "binaryData": {"x": "Zg=="},
            }))
        );
    }

    #[test]
    fn unknown_fields_kinds_and_broken_bodies_are_refused() {
        assert!(
            decode(&envelope("ConfigMap", b"\x7a\x00"))
                .unwrap_err()
                .contains("field 15")
        );
        assert!(decode(&envelope("Pod", b"")).unwrap_err().contains("Pod"));
        assert!(decode(&envelope("ConfigMap", b"\x0a\x7f")).is_err());
        assert!(decode(b"{}").is_err());
    }
}
