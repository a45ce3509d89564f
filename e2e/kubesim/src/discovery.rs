//! Discovery, version, and as much OpenAPI as kubectl needs.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::{
    errors::ApiError,
    options::Options,
    resources::{self, RESOURCES, Resource},
};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PROTO_V2: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// An answer that is not an object.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

impl Document {
    fn json(value: &Value) -> Self {
        Self {
            content_type: "application/json",
            body: value.to_string().into(),
        }
    }
}

/// The document at a path.
pub(crate) fn document(path: &str, accept: &str, options: &Options) -> Result<Document, ApiError> {
    let aggregated = accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2;")
        || accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2,");
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    match parts.as_slice() {
        ["healthz" | "readyz" | "livez", ..] => Ok(Document {
            content_type: "text/plain; charset=utf-8",
            body: Bytes::from_static(b"ok"),
        }),
        ["version"] => Ok(Document::json(&version(options))),
        ["api" | "apis"] if aggregated => {
            let core = parts.first() == Some(&"api");
            Ok(Document {
                content_type: AGGREGATED,
                body: aggregated_groups(core).to_string().into(),
            })
        }
        ["api"] => Ok(Document::json(&json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }))),
        ["apis"] => {
            let groups: Vec<Value> = resources::groups().into_iter().map(group).collect();
            Ok(Document::json(&json!({
                "kind": "APIGroupList", "apiVersion": "v1", "groups": groups,
            })))
        }
        ["api", "v1"] => Ok(Document::json(&resource_list("", "v1"))),
        ["apis", name] if resources::groups().contains(name) => {
            let mut found = group(name);
            crate::object::set(&mut found, &["kind"], "APIGroup");
            crate::object::set(&mut found, &["apiVersion"], "v1");
            Ok(Document::json(&found))
        }
        ["apis", name, "v1"] if resources::groups().contains(name) => {
            Ok(Document::json(&resource_list(name, "v1")))
        }
        ["openapi", "v2"] => Ok(openapi_v2(accept)),
        ["openapi", "v3"] => Ok(Document::json(&openapi_v3_index())),
        ["openapi", "v3", "api", "v1"] => Ok(Document::json(&openapi_v3(""))),
        ["openapi", "v3", "apis", name, "v1"] if resources::groups().contains(name) => {
            Ok(Document::json(&openapi_v3(name)))
        }
        ["api", ..] => Err(ApiError::no_such_path()),
        _ => Err(ApiError::page_not_found()),
    }
}

fn version(options: &Options) -> Value {
    let number = options.version.trim_start_matches('v');
    let mut parts = number.split('.');
    json!({
        "major": parts.next().unwrap_or_default(),
        "minor": parts.next().unwrap_or_default(),
        "gitVersion": options.version,
        "gitCommit": "kubesim",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": "linux/amd64",
    })
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn verbs(resource: &Resource) -> &'static [&'static str] {
    if resource.create_only {
        &["create"]
    } else if resource.storage == resources::NAMESPACES {
        &[
            "create", "delete", "get", "list", "patch", "update", "watch",
        ]
    } else {
        &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
    }
}

fn sub_verbs(name: &str) -> &'static [&'static str] {
    match name {
        "token" => &["create"],
        "finalize" => &["update"],
        _ => &["get", "patch", "update"],
    }
}

/// Whether `kubectl get all` shows the kind.
fn in_all(resource: &Resource) -> bool {
    matches!(resource.storage, resources::SERVICES | resources::PODS)
}

fn served(group: &str) -> impl Iterator<Item = &'static Resource> + use<'_> {
    RESOURCES.iter().filter(move |r| r.group == group)
}

fn sub_group(kind: &str) -> Option<(&'static str, &'static str)> {
    (kind == "TokenRequest").then_some(("authentication.k8s.io", "v1"))
}

fn resource_list(group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    for resource in served(group) {
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": verbs(resource),
        });
        if !resource.short.is_empty() {
            crate::object::set(&mut entry, &["shortNames"], json!(resource.short));
        }
        if in_all(resource) {
            crate::object::set(&mut entry, &["categories"], json!(["all"]));
        }
        list.push(entry);
        for (name, kind) in resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": sub_verbs(name),
            });
            if let Some((group, version)) = sub_group(kind) {
                crate::object::set(&mut entry, &["group"], group);
                crate::object::set(&mut entry, &["version"], version);
            }
            list.push(entry);
        }
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut found = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version,
        "resources": list,
    });
    if !group.is_empty() {
        crate::object::set(&mut found, &["apiVersion"], "v1");
    }
    found
}

fn aggregated_groups(core: bool) -> Value {
    let groups = if core { vec![""] } else { resources::groups() };
    let items: Vec<Value> = groups
        .into_iter()
        .map(|name| {
            let resources: Vec<Value> = served(name).map(aggregated_resource).collect();
            let metadata = if name.is_empty() {
                json!({"creationTimestamp": null})
            } else {
                json!({"name": name, "creationTimestamp": null})
            };
            json!({
                "metadata": metadata,
                "versions": [{"version": "v1", "resources": resources, "freshness": "Current"}],
            })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(resource: &'static Resource) -> Value {
    let scope = if resource.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|(name, sub)| {
            // Left out where it is that of the list.
            let (group, version) = sub_group(sub).unwrap_or_default();
            json!({
                "subresource": name,
                "responseKind": kind(group, version, sub),
                "verbs": sub_verbs(name),
            })
        })
        .collect();
    let mut found = json!({
        "resource": resource.plural,
        "responseKind": kind("", "", resource.kind),
        "scope": scope,
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    if !resource.short.is_empty() {
        crate::object::set(&mut found, &["shortNames"], json!(resource.short));
    }
    if in_all(resource) {
        crate::object::set(&mut found, &["categories"], json!(["all"]));
    }
    if !subresources.is_empty() {
        crate::object::set(&mut found, &["subresources"], subresources);
    }
    found
}

/// An OpenAPI v2 document without content; kubectl needs it only as a fallback.
fn openapi_v2(accept: &str) -> Document {
    if accept.contains("protobuf") {
        // Field 1 (swagger) "2.0", field 2 (info) with title and version.
        return Document {
            content_type: PROTO_V2,
            body: Bytes::from_static(b"\x0a\x032.0\x12\x0e\x0a\x07kubesim\x12\x03\x31.0"),
        };
    }
    Document::json(&json!({
        "swagger": "2.0",
        "info": {"title": "kubesim", "version": "1.0"},
        "paths": {},
        "definitions": {},
    }))
}

fn openapi_v3_index() -> Value {
    let mut paths = Map::new();
    let mut add = |path: String| {
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    };
    add("api/v1".to_owned());
    for group in resources::groups() {
        add(format!("apis/{group}/v1"));
    }
    json!({"paths": paths})
}

/// The paths of a group with the query parameters of their operations: from them kubectl
/// learns that the server validates fields. Schemas are left out, so kubectl takes the merge
/// keys it was built with.
fn openapi_v3(group: &str) -> Value {
    let mut paths = Map::new();
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"]
        .iter()
        .map(|name| {
            let kind = if *name == "force" {
                "boolean"
            } else {
                "string"
            };
            json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
        })
        .collect();
    for resource in served(group) {
        let root = if group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{group}/v1")
        };
        let scope = if resource.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let kind = json!({"group": group, "version": resource.version, "kind": resource.kind});
        let operation = |action: &str| {
            json!({
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": kind,
                "parameters": parameters,
                "responses": {"200": {"description": "OK"}},
            })
        };
        let collection = format!("{root}{scope}/{}", resource.plural);
        if !resource.create_only {
            let item = json!({"patch": operation("patch"), "put": operation("put")});
            paths.insert(format!("{collection}/{{name}}"), item);
        }
        paths.insert(collection, json!({"post": operation("post")}));
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "kubesim", "version": "1.0"},
        "paths": paths,
        "components": {"schemas": {}},
    })
}
