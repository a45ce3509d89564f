//! The desired state: what the cluster and the cloud must look like once all faults are over.
//!
//! It is computed from what people and clouds did, never from what a manager did.

use std::collections::BTreeSet;

use ccm_kubesim::KubeSim;
use serde_json::Value;

use crate::{
    cloud::{
        Model,
        model::{FOREIGN, FOREIGN_MACHINE, PartKind, Port, Spec, State},
    },
    objects::{
        CLOUD_TAINT, EXCLUDE, FINALIZER, SHUTDOWN_TAINT, addresses, condition, finalizers,
        has_taint, is_of_pods, ranges, text,
    },
    world::Network,
};

/// What is not as it should be; `Ok` when all is. `forgiven`: see [`leftover`].
///
/// # Errors
/// The first difference.
pub fn reached(
    kube: &KubeSim,
    cloud: &Model,
    network: Network,
    forgiven: &BTreeSet<String>,
) -> Result<(), String> {
    let nodes = kube.list("nodes");
    for node in &nodes {
        check_node(node, cloud)?;
    }
    let mut machines = cloud.machines.values();
    let alone = machines.find(|machine| {
        let named = |node: &Value| text(node, "/metadata/name") == machine.name;
        machine.name != FOREIGN_MACHINE && !nodes.iter().any(named)
    });
    if let Some(machine) = alone {
        return Err(format!("machine {} has no Node", machine.name));
    }
    match network {
        Network::None => {}
        Network::Copied => check_copies(&nodes, cloud)?,
        Network::Dual => check_routes(&nodes, cloud, &[false, true])?,
        Network::Routes | Network::Watched | Network::Allocated => {
            check_routes(&nodes, cloud, &[false])?;
        }
    }
    let services = kube.list("services");
    let members = backends(&nodes);
    for service in &services {
        let forgotten = forgiven.contains(text(service, "/metadata/uid"));
        if !forgotten || wants_load_balancer(service) {
            check_service(service, &members, cloud)?;
        }
    }
    leftover(&services, cloud, forgiven)
}

/// What is in the cloud although no Service wants it; what belonged to the forgiven may be.
///
/// # Errors
/// The first part that nobody owns.
pub fn leftover(
    services: &[Value],
    cloud: &Model,
    forgiven: &BTreeSet<String>,
) -> Result<(), String> {
    let owners: BTreeSet<&str> = services
        .iter()
        .filter(|service| wants_load_balancer(service))
        .map(|service| text(service, "/metadata/uid"))
        .collect();
    let mut parts = cloud.parts.values();
    let orphan = parts.find(|part| {
        part.owner != FOREIGN
            && !owners.contains(part.owner.as_str())
            && !forgiven.contains(&part.owner)
    });
    match orphan {
        Some(part) => Err(format!(
            "{} {} is left in the cloud",
            part.spec.kind().as_str(),
            part.name
        )),
        None => Ok(()),
    }
}

fn check_node(node: &Value, cloud: &Model) -> Result<(), String> {
    let name = text(node, "/metadata/name");
    let id = text(node, "/spec/providerID");
    let machine = if id.is_empty() {
        cloud.machine_named(name)
    } else {
        cloud.machine_of(id)
    };
    let Some(machine) = machine else {
        return Err(format!("Node {name} is there, its machine is not"));
    };
    let must = |holds: bool, what: &str| {
        if holds {
            Ok(())
        } else {
            Err(format!("Node {name}: {what}"))
        }
    };
    must(!has_taint(node, CLOUD_TAINT), "is not initialised")?;
    must(id == machine.provider_id(), "has another provider id")?;
    let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
    let has_ip = addresses
        .into_iter()
        .flatten()
        .any(|address| text(address, "/address") == machine.ip);
    must(has_ip, "has not its machine's address")?;
    let zone = "/metadata/labels/topology.kubernetes.io~1zone";
    must(text(node, zone) == "mem-1a", "has no zone label")?;
    let marked = has_taint(node, SHUTDOWN_TAINT);
    match machine.state {
        State::Running => must(!marked, "is marked as shut down"),
        // A Ready Node is not asked about.
        State::Stopped => must(
            marked || condition(node, "Ready") == "True",
            "is not marked as shut down",
        ),
    }
}

/// The ranges that the cloud gave to its machine for each Node, and no route.
fn check_copies(nodes: &[Value], cloud: &Model) -> Result<(), String> {
    for node in nodes {
        let name = text(node, "/metadata/name");
        let machine = cloud.machine_of(text(node, "/spec/providerID"));
        let given = machine.map_or(&[][..], |machine| &machine.ranges);
        if ranges(node) != given {
            let has = ranges(node);
            return Err(format!("Node {name} has {has:?}, its machine {given:?}"));
        }
        if condition(node, "NetworkUnavailable") != "False" {
            return Err(format!("Node {name} is told to have no network"));
        }
    }
    let mut routes = cloud.routes.values();
    match routes.find(|route| is_of_pods(&route.cidr)) {
        Some(route) => Err(format!("nobody wants {route:?}")),
        None => Ok(()),
    }
}

/// One route for each Node and family (whether the second: `families`), from its range to its
/// machine, and no other one.
fn check_routes(nodes: &[Value], cloud: &Model, families: &[bool]) -> Result<(), String> {
    let mut wanted = BTreeSet::new();
    for node in nodes {
        let (name, has) = (text(node, "/metadata/name"), ranges(node));
        let is_second = has.iter().map(|range| range.contains(':'));
        if !has.iter().all(|range| is_of_pods(range)) || !is_second.eq(families.iter().copied()) {
            return Err(format!("Node {name} has the ranges {has:?}"));
        }
        if condition(node, "NetworkUnavailable") != "False" {
            return Err(format!("Node {name} is told to have no network"));
        }
        let machine = cloud.machine_of(text(node, "/spec/providerID"));
        let machine = machine.map_or("", |machine| machine.id.as_str());
        wanted.extend(has.into_iter().map(|range| (range, machine)));
    }
    let routes = cloud
        .routes
        .values()
        .filter(|route| is_of_pods(&route.cidr));
    let have: Vec<(&str, &str)> = routes
        .map(|route| (route.cidr.as_str(), route.machine.as_str()))
        .collect();
    if have.len() == wanted.len() && have.iter().all(|route| wanted.contains(route)) {
        Ok(())
    } else {
        Err(format!("routes are {have:?}, wanted {wanted:?}"))
    }
}

/// Whether our load balancer belongs to the Service.
pub fn wants_load_balancer(service: &Value) -> bool {
    text(service, "/spec/type") == "LoadBalancer"
        && service.pointer("/spec/loadBalancerClass").is_none()
        && service.pointer("/metadata/deletionTimestamp").is_none()
}

/// The provider ids of the Nodes that stand behind every load balancer.
fn backends(nodes: &[Value]) -> BTreeSet<String> {
    let eligible = |node: &&Value| {
        let label = format!("/metadata/labels/{}", EXCLUDE.replace('/', "~1"));
        node.pointer(&label).is_none() && node.pointer("/metadata/deletionTimestamp").is_none()
    };
    let ids = nodes
        .iter()
        .filter(eligible)
        .map(|node| text(node, "/spec/providerID"));
    ids.filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

fn check_service(service: &Value, members: &BTreeSet<String>, cloud: &Model) -> Result<(), String> {
    let name = text(service, "/metadata/name");
    let uid = text(service, "/metadata/uid");
    let must = |holds: bool, what: &str| {
        if holds {
            Ok(())
        } else {
            Err(format!("Service {name}: {what}"))
        }
    };
    let held = finalizers(service).contains(&FINALIZER);
    let shown = addresses(service);
    if !wants_load_balancer(service) {
        let gone = cloud.parts_of(uid).next().is_none();
        must(gone, "something of its load balancer is left")?;
        must(!held, "the finalizer is left")?;
        return must(shown.is_empty(), "shows an address without a load balancer");
    }
    must(held, "has no finalizer")?;
    let part = |kind: PartKind| cloud.parts_of(uid).find(|part| part.spec.kind() == kind);
    let (Some(address), Some(firewall), Some(backends), Some(head)) = (
        part(PartKind::Address),
        part(PartKind::Firewall),
        part(PartKind::Backends),
        part(PartKind::Head),
    ) else {
        return Err(format!("Service {name}: its load balancer is not complete"));
    };
    let given: Vec<&str> = if is_dual(service) {
        vec![&address.ip, &address.ip6]
    } else {
        vec![&address.ip]
    };
    must(shown == given, "does not show its addresses")?;
    let wanted = ports(service);
    let listens = matches!(&head.spec, Spec::Head { ports, .. } if *ports == wanted);
    must(listens, "listens on other ports")?;
    let lets_in = matches!(&firewall.spec, Spec::Firewall { ports, ranges }
        if ports.iter().eq(wanted.iter().map(|port| &port.port)) && *ranges == allowed(service));
    must(lets_in, "lets in others")?;
    match &backends.spec {
        Spec::Backends { members: behind } if behind == members => Ok(()),
        Spec::Backends { members: behind } => Err(format!(
            "Service {name}: has {behind:?} behind it, wanted {members:?}"
        )),
        _ => Err(format!("Service {name}: has no backends")),
    }
}

fn is_dual(service: &Value) -> bool {
    let families = service
        .pointer("/spec/ipFamilies")
        .and_then(Value::as_array);
    families.is_some_and(|families| families.len() > 1)
}

fn ports(service: &Value) -> Vec<Port> {
    let number = |port: &Value, field: &str| {
        let number = port.get(field).and_then(Value::as_i64).unwrap_or_default();
        i32::try_from(number).unwrap_or_default()
    };
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let port = |port: &Value| Port {
        port: number(port, "port"),
        protocol: text(port, "/protocol").to_owned(),
        node_port: number(port, "nodePort"),
    };
    ports.into_iter().flatten().map(port).collect()
}

fn allowed(service: &Value) -> Vec<String> {
    let ranges = service
        .pointer("/spec/loadBalancerSourceRanges")
        .and_then(Value::as_array);
    let ranges = ranges.into_iter().flatten().filter_map(Value::as_str);
    let ranges: Vec<String> = ranges.map(str::to_owned).collect();
    if ranges.is_empty() && is_dual(service) {
        vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()]
    } else if ranges.is_empty() {
        vec!["0.0.0.0/0".to_owned()]
    } else {
        ranges
    }
}
