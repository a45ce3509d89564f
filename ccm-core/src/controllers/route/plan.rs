//! Which routes go and come, and what each Node still misses (specification: controllers §5.3).

use std::{cmp::Ordering, sync::Arc};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::NodeAddress;

use super::start::ClusterCidrs;
use crate::{cloud::Route, kube::Node};

/// A route to make, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Create {
    /// Among the Nodes.
    pub(super) node: usize,
    /// Among the Node's `spec.podCIDRs`.
    pub(super) cidr: usize,
}

/// What one pass is to do. Positions, not copies: an idle pass over many Nodes allocates little.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Positions of the routes to remove, as listed.
    pub(super) deletes: Vec<usize>,
    /// Routes to make, in the order of the Nodes.
    pub(super) creates: Vec<Create>,
    /// For each Node, how many of its ranges have no good route yet; `None` for one whose
    /// condition is not ours to say.
    pub(super) missing: Vec<Option<u32>>,
}

/// What is done for one range of one Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Keep,
    /// There is none.
    Add,
    /// There is one, and it is to be made anew.
    Replace,
}

impl Plan {
    /// Decides. `routes` is everything that the cloud has, `nodes` all Nodes.
    pub(super) fn new(nodes: &[Arc<Node>], routes: &[Route], ours: &ClusterCidrs) -> Self {
        let index = Index::new(routes);
        let mut plan = Self {
            missing: Vec::with_capacity(nodes.len()),
            ..Self::default()
        };
        let mut kept = vec![false; routes.len()];
        for (at, node) in nodes.iter().enumerate() {
            let missing = plan.decide_node(at, node, &index, ours, &mut kept);
            plan.missing.push(missing);
        }
        plan.deletes = routes
            .iter()
            .zip(kept)
            .enumerate()
            .filter(|(_, (route, kept))| !kept && ours.covers(&route.destination_cidr))
            .map(|(at, _)| at)
            .collect();
        plan
    }

    fn decide_node(
        &mut self,
        at: usize,
        node: &Node,
        index: &Index<'_>,
        ours: &ClusterCidrs,
        kept: &mut [bool],
    ) -> Option<u32> {
        let own = index.of(node.name());
        let ranges = &node.spec.pod_cidrs;
        if ranges.is_empty() {
            // A route without a range: someone has to look at it.
            return (!own.is_empty()).then_some(1);
        }
        let mut missing = 0;
        for (cidr, range) in ranges.iter().enumerate() {
            let is_repeated = ranges.iter().take(cidr).any(|r| is_same_range(r, range));
            if is_repeated {
                continue;
            }
            let same = own.iter().filter_map(|at| {
                let route = index.routes.get(*at)?;
                is_same_range(&route.destination_cidr, range).then_some((*at, route))
            });
            if decide(node, same.clone().map(|(_, route)| route), ours) == Action::Keep {
                for (at, route) in same {
                    if let Some(kept) = kept.get_mut(at) {
                        *kept = !route.blackhole;
                    }
                }
            } else {
                missing += 1;
                self.creates.push(Create { node: at, cidr });
            }
        }
        Some(missing)
    }
}

/// What is done, given the Node's routes to one of its ranges.
fn decide<'a>(
    node: &Node,
    mut same: impl Iterator<Item = &'a Route> + Clone,
    ours: &ClusterCidrs,
) -> Action {
    let Some(first) = same.clone().next() else {
        return Action::Add;
    };
    // A black hole serves nobody; one that is not ours to remove stays, and so nothing is made.
    let Some(route) = same.find(|route| !route.blackhole) else {
        return if ours.covers(&first.destination_cidr) {
            Action::Replace
        } else {
            Action::Keep
        };
    };
    let is_current = !route.has_node_addresses
        || is_same_set(&route.target_node_addresses, &node.status.addresses);
    if is_current {
        Action::Keep
    } else {
        Action::Replace
    }
}

/// The listed routes by target. Positions only.
struct Index<'a> {
    routes: &'a [Route],
    /// By target, then as listed.
    order: Vec<usize>,
}

impl<'a> Index<'a> {
    fn new(routes: &'a [Route]) -> Self {
        let mut order: Vec<usize> = (0..routes.len())
            .filter(|at| !target(routes, *at).is_empty())
            .collect();
        order.sort_by(|a, b| target(routes, *a).cmp(target(routes, *b)));
        Self { routes, order }
    }

    /// Positions of the routes to this Node, as listed.
    fn of(&self, node: &str) -> &[usize] {
        let before = |at: &usize| target(self.routes, *at).cmp(node) == Ordering::Less;
        let start = self.order.partition_point(before);
        let rest = self.order.get(start..).unwrap_or_default();
        let count = rest.partition_point(|at| target(self.routes, *at) == node);
        rest.get(..count).unwrap_or_default()
    }
}

fn target(routes: &[Route], at: usize) -> &str {
    routes.get(at).map_or("", |route| &route.target_node)
}

/// Whether two spellings mean one range. A cloud may write an IPv6 range in another way than
/// Kubernetes; taken for a difference, the route would be replaced in each pass.
fn is_same_range(a: &str, b: &str) -> bool {
    a == b
        || a.contains(':') == b.contains(':')
            && matches!((range(a), range(b)), (Some(a), Some(b)) if a == b)
}

/// The range without host bits; `None` when it cannot be read.
pub(super) fn range(text: &str) -> Option<IpNet> {
    text.parse().ok().map(|net: IpNet| net.trunc())
}

fn is_same_set(a: &[NodeAddress], b: &[NodeAddress]) -> bool {
    a.len() == b.len() && b.iter().all(|address| a.contains(address))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
