//! What a route of the table is to us, and what a wanted one takes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_core::{cloud::Route, kube::Node};
use ipnet::IpNet;

use crate::{
    api::{
        Instance,
        routes::{NextHop, Table, TableRoute, Target},
    },
    instances::InstanceId,
};

/// Why no Node stands for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNode {
    /// No Node has the machine's provider id.
    #[error("no Node has this machine")]
    None,
    /// Several Nodes have it.
    #[error("several Nodes have this machine")]
    Several,
}

/// Nodes by their machine.
pub struct Machines<'a>(BTreeMap<InstanceId, Vec<&'a Node>>);

impl<'a> Machines<'a> {
    /// By provider id; for Nodes that have none yet by the machines of `named`, by Node name.
    pub fn new(nodes: &'a [Arc<Node>], named: &BTreeMap<String, InstanceId>) -> Self {
        let mut machines: BTreeMap<InstanceId, Vec<&Node>> = BTreeMap::new();
        for node in nodes {
            let id = match node.provider_id() {
                Some(text) => InstanceId::from_provider_id(text).ok(),
                None => named.get(node.name()).cloned(),
            };
            if let Some(id) = id {
                machines.entry(id).or_default().push(node);
            }
        }
        Self(machines)
    }

    /// The one Node of a machine.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn node(&self, id: &InstanceId) -> Result<&'a Node, NoNode> {
        match self.0.get(id).map(Vec::as_slice) {
            Some([only]) => Ok(only),
            None | Some([]) => Err(NoNode::None),
            Some(_) => Err(NoNode::Several),
        }
    }

    /// The Node that a route to this machine serves. A Node that came back under another name
    /// stands beside the old one for a while: then the range decides.
    pub fn served(&self, id: &InstanceId, to: &IpNet) -> Option<&'a Node> {
        let nodes = self.0.get(id)?;
        let owner = nodes.iter().find(|node| has_range(node, to));
        owner.copied().or_else(|| self.node(id).ok())
    }
}

/// Whether the Node's pods have this range.
pub fn has_range(node: &Node, range: &IpNet) -> bool {
    let mut ranges = node.spec.pod_cidrs.iter();
    ranges.any(|text| text.parse().is_ok_and(|net: IpNet| net.trunc() == *range))
}

/// The instances that live routes of the table lead to.
pub fn targets(table: &Table) -> BTreeSet<&InstanceId> {
    let live = table.routes.values().filter(|route| !route.blackhole);
    live.filter_map(|route| match &route.target {
        Target::Machine { instance, .. } => instance.as_ref(),
        Target::Other(_) => None,
    })
    .collect()
}

/// The table as the route controller sees it.
#[derive(Debug, Default, PartialEq)]
pub struct Listed {
    /// Our routes.
    pub routes: Vec<Route>,
    /// Destinations whose Node has that range: nobody else may take them.
    pub serving: BTreeSet<IpNet>,
}

/// Routes to machines. One whose machine is no Node of ours may be someone's appliance and is left
/// out; a black hole tells no longer whose it was, so that the controller judges it by its range.
pub fn listed(table: &Table, machines: &Machines<'_>, cluster_name: &str) -> Listed {
    let mut listed = Listed::default();
    for (to, route) in &table.routes {
        let Target::Machine { instance, .. } = &route.target else {
            continue;
        };
        let shown = Route {
            name: format!("{cluster_name}-{to}"),
            destination_cidr: to.to_string(),
            blackhole: route.blackhole,
            ..Route::default()
        };
        if route.blackhole {
            listed.routes.push(shown);
            continue;
        }
        let node = instance.as_ref().and_then(|id| machines.served(id, to));
        let Some(node) = node else {
            tracing::debug!(
                route = shown.name,
                ?instance,
                "left alone a route to a machine that is no Node of the cluster"
            );
            continue;
        };
        if has_range(node, to) {
            listed.serving.insert(*to);
        }
        listed.routes.push(Route {
            target_node: node.name().to_owned(),
            ..shown
        });
    }
    listed
}

/// Where a route to this instance has to lead. EC2 refuses an instance with several interfaces; pods
/// are behind the one that it was started with.
pub fn next_hop(instance: &Instance) -> NextHop {
    match instance.primary_interface() {
        Some(primary) if instance.interfaces.len() > 1 => NextHop::Interface(primary.id.clone()),
        _ => NextHop::Instance(instance.id.clone()),
    }
}

/// Whether the instance forwards packets of pods already.
pub fn forwards(instance: &Instance) -> bool {
    let primary = instance.primary_interface();
    primary.is_some_and(|primary| !primary.source_dest_check)
}

/// What is known of the machine that a route in the way leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// Nobody asked yet.
    Unknown,
    /// It is gone, or belongs to the cluster.
    Removable,
    /// It belongs to someone else.
    Foreign,
}

/// What a wanted route takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is there.
    Done,
    /// There is nothing in the way.
    Create,
    /// A black hole is in the way: it goes first.
    Clear,
    /// A former machine's route is in the way.
    Replace,
    /// Find out whose this machine is, then decide again.
    Ask(InstanceId),
    /// What is in the way is not ours to remove.
    Refuse(String),
}

/// Decides. `have` is the route of the wanted destination; `serving` says whether a Node that has
/// this range is behind it.
pub fn step(
    have: Option<&TableRoute>,
    machine: &InstanceId,
    serving: bool,
    occupant: Occupant,
) -> Step {
    let Some(route) = have else {
        return Step::Create;
    };
    let instance = match &route.target {
        Target::Other(target) => {
            return Step::Refuse(format!("{target:?}, which is not a machine"));
        }
        Target::Machine { .. } if route.blackhole => return Step::Clear,
        Target::Machine {
            instance: None,
            interface,
        } => {
            let interface = interface.as_deref().unwrap_or_default();
            return Step::Refuse(format!("interface {interface:?}, which no instance has"));
        }
        Target::Machine {
            instance: Some(instance),
            ..
        } => instance,
    };
    if instance == machine {
        return Step::Done;
    }
    if serving {
        return Step::Refuse(format!("{instance}, whose Node has the same range"));
    }
    match occupant {
        Occupant::Unknown => Step::Ask(instance.clone()),
        Occupant::Removable => Step::Replace,
        Occupant::Foreign => Step::Refuse(format!("{instance}, which is not of this cluster")),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
