//! Reading a request: path, verb, query, representation.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::{
    errors::ApiError,
    protobuf,
    resources::{self, Resource},
};

/// What a request wants to do, as Kubernetes names it in audit logs and RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// Lower-case name, `deletecollection`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether the verb changes something.
    #[must_use]
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// How the client wants objects to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Table,
    PartialMetadata,
}

impl Form {
    /// The first form of the Accept header that is served; none when none is.
    pub(crate) fn of(accept: &str) -> Option<Self> {
        if accept.trim().is_empty() {
            return Some(Self::Object);
        }
        accept.split(',').find_map(|range| {
            let media = range.split(';').next().unwrap_or_default().trim();
            if !["application/json", "application/*", "*/*"].contains(&media) {
                return None;
            }
            let kind = range
                .split(';')
                .find_map(|parameter| parameter.trim().strip_prefix("as="));
            match kind {
                None => Some(Self::Object),
                Some("Table") => Some(Self::Table),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
                    Some(Self::PartialMetadata)
                }
                Some(_) => None,
            }
        })
    }
}

/// A request for a resource.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    query: BTreeMap<String, String>,
    pub(crate) user_agent: String,
    pub(crate) content_type: String,
    pub(crate) form: Form,
    pub(crate) body: Bytes,
}

impl Call {
    /// A query parameter, empty when absent.
    pub(crate) fn query(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// A boolean query parameter.
    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.query(name), "true" | "1")
    }

    /// `dryRun=All`.
    pub(crate) fn dry_run(&self) -> bool {
        self.query("dryRun") == "All"
    }

    /// The body as JSON; YAML is read too. An empty body is null.
    pub(crate) fn json(&self) -> Result<Value, ApiError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        if self.content_type.contains("protobuf") {
            return protobuf::decode(&self.body).map_err(|error| {
                ApiError::unsupported_media_type(format!(
                    "the body of the request was in an unknown format: {error}"
                ))
            });
        }
        let bad = |error: String| {
            ApiError::bad_request(format!("the object provided is unrecognized: {error}"))
        };
        if self.content_type.contains("yaml") {
            let text = std::str::from_utf8(&self.body).map_err(|e| bad(e.to_string()))?;
            return serde_saphyr::from_str(text).map_err(|e| bad(e.to_string()));
        }
        serde_json::from_slice(&self.body).map_err(|e| bad(e.to_string()))
    }
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Route {
    Resource {
        resource: &'static Resource,
        namespace: Option<String>,
        name: Option<String>,
        subresource: Option<String>,
    },
    /// Discovery, version, health and the like: for the handler to look at.
    Other,
    /// A resource that is not served.
    Unknown,
    /// A group that is not served.
    Foreign,
}

/// Finds the resource behind a path.
pub(crate) fn route(path: &str) -> Route {
    let parts: Vec<String> = path
        .split('/')
        .filter(|p| !p.is_empty())
        .map(decode)
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Route::Other,
    };
    let (namespace, rest) = match rest {
        // `namespaces/x`, `namespaces/x/status`: the namespace itself.
        ["namespaces", _, "status" | "finalize"] | ["namespaces"] | ["namespaces", _] => {
            (None, rest)
        }
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        rest => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some((*name).to_owned()), None),
        [plural, name, sub] => (*plural, Some((*name).to_owned()), Some((*sub).to_owned())),
        _ => return Route::Unknown,
    };
    let Some(resource) = resources::find(group, version, plural) else {
        let foreign = !group.is_empty() && !resources::groups().contains(&group);
        return if foreign {
            Route::Foreign
        } else {
            Route::Unknown
        };
    };
    let scoped = resource.namespaced == namespace.is_some();
    // Only collections of namespaced kinds exist at cluster scope.
    let collection_of_all = resource.namespaced && namespace.is_none() && name.is_none();
    let known_sub = subresource
        .as_deref()
        .is_none_or(|sub| resource.has_subresource(sub));
    if !(scoped || collection_of_all) || !known_sub {
        return Route::Unknown;
    }
    Route::Resource {
        resource,
        namespace,
        name,
        subresource,
    }
}

/// Puts a call together from a routed request.
pub(crate) fn call(
    parts: &http::request::Parts,
    route: Route,
    body: Bytes,
) -> Result<Call, ApiError> {
    let (resource, namespace, name, subresource) = match route {
        Route::Resource {
            resource,
            namespace,
            name,
            subresource,
        } => (resource, namespace, name, subresource),
        Route::Foreign => return Err(ApiError::page_not_found()),
        Route::Other | Route::Unknown => return Err(ApiError::no_such_path()),
    };
    let query = parse_query(parts.uri.query().unwrap_or_default());
    let watching = matches!(query.get("watch").map(String::as_str), Some("true" | "1"));
    let verb = match (&parts.method, name.is_some()) {
        (&Method::GET, true) => Verb::Get,
        (&Method::GET, false) if watching => Verb::Watch,
        (&Method::GET, false) => Verb::List,
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, true) => Verb::Update,
        (&Method::PATCH, true) => Verb::Patch,
        (&Method::DELETE, true) => Verb::Delete,
        (&Method::DELETE, false) => Verb::DeleteCollection,
        _ => return Err(ApiError::method_not_allowed()),
    };
    let post_to_object =
        verb == Verb::Create && name.is_some() && subresource.as_deref() != Some("token");
    let post_to_all = verb == Verb::Create && resource.namespaced && namespace.is_none();
    let delete_all = verb == Verb::DeleteCollection
        && (resource.storage == resources::NAMESPACES
            || resource.namespaced && namespace.is_none());
    let delete_part = verb == Verb::Delete && subresource.is_some();
    let review = resource.create_only && verb != Verb::Create;
    if post_to_object || post_to_all || delete_all || delete_part || review {
        return Err(ApiError::method_not_allowed());
    }
    Ok(Call {
        verb,
        resource,
        namespace,
        name,
        subresource,
        query,
        user_agent: header(parts, &http::header::USER_AGENT).to_owned(),
        content_type: header(parts, &http::header::CONTENT_TYPE).to_owned(),
        form: Form::of(header(parts, &http::header::ACCEPT))
            .ok_or_else(ApiError::not_acceptable)?,
        body,
    })
}

/// A header as text, empty when absent.
pub(crate) fn header<'a>(parts: &'a http::request::Parts, name: &http::HeaderName) -> &'a str {
    parts
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn parse_query(query: &str) -> BTreeMap<String, String> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(&value.replace('+', " ")))
        })
        .collect()
}

/// Percent-decoding; what is not valid stays as it is.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = (*first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_resources() {
        for (path, want) in [
            ("/api/v1/nodes", "nodes - - -"),
            ("/api/v1/nodes/a/status", "nodes - a status"),
            ("/api/v1/services", "services - - -"),
            ("/api/v1/namespaces/x/services/s", "services x s -"),
            ("/api/v1/namespaces/x", "namespaces - x -"),
            ("/api/v1/namespaces/x/finalize", "namespaces - x finalize"),
            (
                "/apis/coordination.k8s.io/v1/namespaces/k/leases/l",
                "leases k l -",
            ),
        ] {
            let Route::Resource {
                resource,
                namespace,
                name,
                subresource,
            } = route(path)
            else {
                panic!("{path} leads nowhere");
            };
            let shown = |o: Option<String>| o.unwrap_or_else(|| "-".to_owned());
            let got = format!(
                "{} {} {} {}",
                resource.plural,
                shown(namespace),
                shown(name),
                shown(subresource)
            );
            assert_eq!(got, want, "{path}");
        }
        for path in [
            "/api/v1/services/s",
            "/api/v1/namespaces/x/nodes",
            "/api/v1/nodes/a/scale",
        ] {
            assert!(matches!(route(path), Route::Unknown), "{path}");
        }
        assert!(matches!(route("/apis/apps/v1/deployments"), Route::Foreign));
        for path in ["/api", "/apis/coordination.k8s.io/v1", "/version"] {
            assert!(matches!(route(path), Route::Other), "{path}");
        }
    }

    #[test]
    fn the_query_is_decoded() {
        let query = parse_query("fieldSelector=metadata.name%3Da%2Cb&x=1+2&broken=%zz");
        assert_eq!(query.get("fieldSelector").unwrap(), "metadata.name=a,b");
        assert_eq!(query.get("x").unwrap(), "1 2");
        assert_eq!(query.get("broken").unwrap(), "%zz");
    }

    #[test]
    fn the_first_served_form_of_the_accept_header_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(Form::of(kubectl), Some(Form::Table));
        assert_eq!(
            Form::of("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
            Some(Form::PartialMetadata)
        );
        assert_eq!(Form::of(""), Some(Form::Object));
        assert_eq!(
            Form::of("application/json;as=Unknown,application/json"),
            Some(Form::Object)
        );
        assert_eq!(Form::of("application/json;as=Unknown"), None);
        assert_eq!(Form::of("text/plain"), None);
    }
}
