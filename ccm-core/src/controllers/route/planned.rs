//! What a pass would do, for those who only want to know. Pure.

use std::sync::Arc;

use super::{
    condition::{Network, Written},
    plan::Plan,
    start::ClusterCidrs,
};
use crate::{cloud::Route, kube::Node};

/// What one pass would change.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// Routes to make: range and Node.
    pub(crate) create: Vec<(String, String)>,
    /// Routes to remove.
    pub(crate) delete: Vec<Route>,
    /// The Nodes whose condition would be written: line of difference.
    pub(crate) conditions: Vec<(Arc<Node>, String)>,
}

/// The pass over these Nodes and routes, if every call succeeds.
pub(crate) fn planned(nodes: &[Arc<Node>], routes: &[Route], ours: &ClusterCidrs) -> Planned {
    let plan = Plan::new(nodes, routes, ours);
    let mut missing = plan.missing;
    let mut planned = Planned::default();
    for create in &plan.creates {
        let Some(node) = nodes.get(create.node) else {
            continue;
        };
        let Some(range) = node.spec.pod_cidrs.get(create.cidr) else {
            continue;
        };
        planned.create.push((range.clone(), node.name().to_owned()));
        if let Some(Some(count)) = missing.get_mut(create.node) {
            *count = count.saturating_sub(1);
        }
    }
    planned.delete = plan
        .deletes
        .iter()
        .filter_map(|at| routes.get(*at).cloned())
        .collect();
    let mut written = Written::default();
    for (node, missing) in nodes.iter().zip(missing) {
        let Some(network) = Network::of(missing) else {
            continue;
        };
        if written.is_due(node, network) {
            let line = format!(
                "status.conditions[NetworkUnavailable]: {} -> {}",
                node.condition(crate::kube::NETWORK_UNAVAILABLE)
                    .unwrap_or("none"),
                network.status()
            );
            planned.conditions.push((Arc::clone(node), line));
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_route_is_made_its_condition_set_and_an_orphan_removed() {
        let mut node = Node::default();
        node.metadata.name = Some("a".to_owned());
        node.metadata.uid = Some("u".to_owned());
        node.spec.pod_cidrs = vec!["10.244.1.0/24".to_owned()];
        let nodes = [Arc::new(node)];
        let ours = ClusterCidrs::parse("10.244.0.0/16").unwrap();
        let orphan = Route {
            name: "r".to_owned(),
            target_node: "b".to_owned(),
            destination_cidr: "10.244.2.0/24".to_owned(),
            ..Route::default()
        };
        let planned = planned(&nodes, std::slice::from_ref(&orphan), &ours);
        assert_eq!(
            planned.create,
            [("10.244.1.0/24".to_owned(), "a".to_owned())]
        );
        assert_eq!(planned.delete, [orphan]);
        assert_eq!(planned.conditions.len(), 1);
        assert_eq!(
            planned.conditions[0].1,
            "status.conditions[NetworkUnavailable]: none -> False"
        );
    }
}
