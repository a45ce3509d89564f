//! Requests, as the rules and the record see them.

use ccm_kubesim::Verb;
use http::Method;
use serde_json::Value;

use crate::trace::Kind;

/// A request, as the rules and the record see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiCall {
    /// What it wants to do.
    pub verb: Verb,
    /// Plural with group, `leases.coordination.k8s.io`.
    pub resource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// The body, `Null` without one.
    pub body: Value,
    /// Which process sends it.
    pub process: u32,
}

impl ApiCall {
    pub(super) fn of(process: u32, method: &Method, uri: &http::Uri, body: &[u8]) -> Self {
        let mut words = uri.path().split('/').filter(|word| !word.is_empty());
        let group = match words.next() {
            Some("apis") => {
                let group = words.next().unwrap_or_default();
                words.next();
                format!(".{group}")
            }
            Some("api") => {
                words.next();
                String::new()
            }
            _ => String::new(),
        };
        let mut rest: Vec<&str> = words.collect();
        let mut namespace = String::new();
        if rest.first() == Some(&"namespaces") && rest.len() > 2 {
            namespace = rest.remove(1).to_owned();
            rest.remove(0);
        }
        let word = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        let (resource, name, subresource) = (word(0) + &group, word(1), word(2));
        let watches = uri
            .query()
            .is_some_and(|query| query.split('&').any(|part| part.starts_with("watch=")));
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ if watches => Verb::Watch,
            _ if name.is_empty() => Verb::List,
            _ => Verb::Get,
        };
        Self {
            verb,
            resource,
            namespace,
            name,
            subresource,
            body: serde_json::from_slice(body).unwrap_or(Value::Null),
            process,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        // Reviews ask and change nothing.
        let asks = self.resource.contains("reviews.");
        if self.verb.is_write() && !asks {
            Kind::ApiWrite
        } else {
            Kind::ApiRead
        }
    }

    /// The request in one line.
    pub fn text(&self) -> String {
        let slash = |text: &str| if text.is_empty() { "" } else { "/" };
        let mut text = format!(
            "{} {}{}{} {}{}{}",
            self.verb.as_str(),
            self.resource,
            slash(&self.subresource),
            self.subresource,
            self.namespace,
            slash(&self.namespace),
            self.name,
        );
        match self.verb {
            Verb::Patch => {
                let mut fields = Vec::new();
                fields_of(&self.body, "", 2, &mut fields);
                text = format!("{text} {}", fields.join(","));
            }
            Verb::Create => {
                let reason = self.body.get("reason").and_then(Value::as_str);
                text = format!("{text} {}", reason.unwrap_or_default());
            }
            _ => {}
        }
        text
    }
}

/// The paths of the fields of a patch.
fn fields_of(value: &Value, path: &str, depth: usize, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) if depth > 0 && !fields.is_empty() => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                fields_of(value, &format!("{path}{dot}{name}"), depth - 1, into);
            }
        }
        _ => into.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let text = |method: Method, uri: &str, body: &str| {
            ApiCall::of(1, &method, &uri.parse().unwrap(), body.as_bytes()).text()
        };
        assert_eq!(
            text(
                Method::PATCH,
                "/api/v1/namespaces/shop/services/web/status?",
                r#"{"metadata":{"uid":"1","finalizers":["a"]}}"#
            ),
            "patch services/status shop/web metadata.finalizers,metadata.uid"
        );
        assert_eq!(
            text(Method::GET, "/api/v1/nodes?watch=true", ""),
            "watch nodes "
        );
        assert_eq!(
            text(
                Method::GET,
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm",
                ""
            ),
            "get leases.coordination.k8s.io kube-system/ccm"
        );
    }
}
