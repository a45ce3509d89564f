//! Columns and cells of each kind (`pkg/printers/internalversion`).

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age_of;
use crate::{
    object::{list, name, number, text, texts},
    resources::{
        ENDPOINT_SLICES, ENDPOINTS, EVENTS, LEASES, NAMESPACES, NODES, PODS, Resource, SECRETS,
        SERVICES,
    },
};

/// One column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// Shown only with `-o wide`.
    pub(super) wide: bool,
}

const fn col(name: &'static str) -> Column {
    Column { name, wide: false }
}

const fn wide(name: &'static str) -> Column {
    Column { name, wide: true }
}

pub(super) fn columns(resource: &Resource) -> Vec<Column> {
    match resource.storage {
        NODES => vec![
            col("Name"),
            col("Status"),
            col("Roles"),
            col("Age"),
            col("Version"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ],
        SERVICES => vec![
            col("Name"),
            col("Type"),
            col("Cluster-IP"),
            col("External-IP"),
            col("Port(s)"),
            col("Age"),
            wide("Selector"),
        ],
        EVENTS => vec![
            col("Last Seen"),
            col("Type"),
            col("Reason"),
            col("Object"),
            wide("Subobject"),
            wide("Source"),
            col("Message"),
            wide("First Seen"),
            wide("Count"),
            wide("Name"),
        ],
        NAMESPACES => vec![col("Name"), col("Status"), col("Age")],
        PODS => vec![
            col("Name"),
            col("Ready"),
            col("Status"),
            col("Restarts"),
            col("Age"),
            wide("IP"),
            wide("Node"),
        ],
        "configmaps" => vec![col("Name"), col("Data"), col("Age")],
        SECRETS => vec![col("Name"), col("Type"), col("Data"), col("Age")],
        LEASES => vec![col("Name"), col("Holder"), col("Age")],
        ENDPOINTS => vec![col("Name"), col("Endpoints"), col("Age")],
        ENDPOINT_SLICES => vec![
            col("Name"),
            col("AddressType"),
            col("Ports"),
            col("Endpoints"),
            col("Age"),
        ],
        _ => vec![col("Name"), col("Age")],
    }
}

pub(super) fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let age = json!(age_of(object, "/metadata/creationTimestamp", now));
    let first = json!(name(object));
    let size = |field: &str| {
        let map = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_object)
                .map_or(0, serde_json::Map::len)
        };
        json!(map(field) + map("/binaryData"))
    };
    match resource.storage {
        NODES => node(object, first, age),
        SERVICES => vec![
            first,
            json!(text(object, "/spec/type")),
            json!(or(texts(object, "/spec/clusterIPs").first(), "<none>")),
            json!(external_ip(object)),
            json!(service_ports(object)),
            age,
            json!(selector(object)),
        ],
        EVENTS => event(object, now),
        NAMESPACES => vec![first, json!(text(object, "/status/phase")), age],
        PODS => pod(object, first, age),
        "configmaps" => vec![first, size("/data"), age],
        SECRETS => vec![first, json!(text(object, "/type")), size("/data"), age],
        LEASES => vec![first, json!(text(object, "/spec/holderIdentity")), age],
        ENDPOINTS => vec![first, json!(endpoints(object)), age],
        ENDPOINT_SLICES => vec![
            first,
            json!(text(object, "/addressType")),
            json!(joined(
                list(object, "/ports")
                    .iter()
                    .map(|p| number(p, "/port").to_string())
            )),
            json!(joined(
                list(object, "/endpoints")
                    .iter()
                    .flat_map(|e| texts(e, "/addresses"))
                    .map(str::to_owned)
            )),
            age,
        ],
        _ => vec![first, age],
    }
}

fn or(value: Option<&&str>, fallback: &str) -> String {
    match value {
        Some(text) if !text.is_empty() => (*text).to_owned(),
        _ => fallback.to_owned(),
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    let text = parts.collect::<Vec<_>>().join(",");
    or(Some(&text.as_str()), "<none>")
}

fn node(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let ready = list(object, "/status/conditions")
        .iter()
        .rev()
        .find(|c| text(c, "/type") == "Ready");
    let mut status = match ready {
        Some(condition) if text(condition, "/status") == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        list(object, "/status/addresses")
            .iter()
            .find(|a| text(a, "/type") == kind)
            .map_or_else(|| "<none>".to_owned(), |a| text(a, "/address").to_owned())
    };
    let info = |field: &str| {
        let value = text(object, &format!("/status/nodeInfo/{field}"));
        or(Some(&value), "<unknown>")
    };
    let mut kernel = info("kernelVersion");
    let architecture = text(object, "/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        name,
        json!(status),
        json!(roles(object)),
        age,
        json!(text(object, "/status/nodeInfo/kubeletVersion")),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ]
}

fn roles(object: &Value) -> String {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let roles: BTreeSet<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
                return (!role.is_empty()).then(|| role.to_owned());
            }
            let named = key == "kubernetes.io/role";
            value
                .as_str()
                .filter(|role| named && !role.is_empty())
                .map(str::to_owned)
        })
        .collect();
    joined(roles.into_iter())
}

fn external_ip(object: &Value) -> String {
    let external = texts(object, "/spec/externalIPs")
        .into_iter()
        .map(str::to_owned);
    match text(object, "/spec/type") {
        "ClusterIP" | "NodePort" => joined(external),
        "LoadBalancer" => {
            let balancers: BTreeSet<String> = list(object, "/status/loadBalancer/ingress")
                .iter()
                .map(|i| {
                    let ip = text(i, "/ip");
                    let shown = if ip.is_empty() {
                        text(i, "/hostname")
                    } else {
                        ip
                    };
                    shown.to_owned()
                })
                .collect();
            let all = balancers
                .into_iter()
                .chain(external)
                .collect::<Vec<_>>()
                .join(",");
            or(Some(&all.as_str()), "<pending>")
        }
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn service_ports(object: &Value) -> String {
    joined(list(object, "/spec/ports").iter().map(|port| {
        let (number_, node_port) = (number(port, "/port"), number(port, "/nodePort"));
        let protocol = text(port, "/protocol");
        if node_port > 0 {
            format!("{number_}:{node_port}/{protocol}")
        } else {
            format!("{number_}/{protocol}")
        }
    }))
}

fn selector(object: &Value) -> String {
    let selector = object.pointer("/spec/selector").and_then(Value::as_object);
    joined(
        selector
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())),
    )
}

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let seen = |pointers: &[&str]| {
        pointers
            .iter()
            .find(|p| !text(object, p).is_empty())
            .map_or_else(|| "<unknown>".to_owned(), |p| age_of(object, p, now))
    };
    let first = seen(&["/firstTimestamp", "/eventTime"]);
    let last = seen(&[
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/firstTimestamp",
    ]);
    let about = format!(
        "{}/{}",
        text(object, "/involvedObject/kind").to_lowercase(),
        text(object, "/involvedObject/name")
    );
    let component = text(object, "/source/component");
    let source = if component.is_empty() {
        let instance = text(object, "/reportingInstance");
        joined(
            [text(object, "/reportingComponent"), instance]
                .into_iter()
                .filter(|s| !s.is_empty())
                .map(str::to_owned),
        )
    } else {
        let parts = [component, text(object, "/source/host")].map(str::to_owned);
        let shown: Vec<String> = parts.into_iter().filter(|s| !s.is_empty()).collect();
        shown.join(", ")
    };
    let count = match (number(object, "/series/count"), number(object, "/count")) {
        (0, 0) => 1,
        (0, count) | (count, _) => count,
    };
    vec![
        json!(last),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(about),
        json!(text(object, "/involvedObject/fieldPath")),
        json!(source),
        json!(text(object, "/message").trim()),
        json!(first),
        json!(count),
        json!(name(object)),
    ]
}

fn pod(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let statuses = list(object, "/status/containerStatuses");
    let ready = statuses
        .iter()
        .filter(|s| s.get("ready") == Some(&json!(true)))
        .count();
    let restarts: i64 = statuses.iter().map(|s| number(s, "/restartCount")).sum();
    let phase = if crate::object::is_deleting(object) {
        "Terminating"
    } else {
        text(object, "/status/phase")
    };
    vec![
        name,
        json!(format!(
            "{ready}/{}",
            list(object, "/spec/containers").len()
        )),
        json!(phase),
        json!(restarts.to_string()),
        age,
        json!(or(Some(&text(object, "/status/podIP")), "<none>")),
        json!(or(Some(&text(object, "/spec/nodeName")), "<none>")),
    ]
}

fn endpoints(object: &Value) -> String {
    joined(list(object, "/subsets").iter().flat_map(|subset| {
        let ports = list(subset, "/ports");
        list(subset, "/addresses")
            .iter()
            .flat_map(|address| {
                let ip = text(address, "/ip");
                ports
                    .iter()
                    .map(move |port| format!("{ip}:{}", number(port, "/port")))
            })
            .collect::<Vec<_>>()
    }))
}
