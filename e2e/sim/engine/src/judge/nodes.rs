//! Nodes, their ranges of pod addresses, and the routes to them.

use ccm_kubesim::Verb;
use serde_json::Value;

use super::{Judge, Rule};
use crate::{
    cloud::model::TableRoute,
    objects::{ranges, text},
    tap::ApiCall,
};

impl Judge {
    pub(super) fn node_written(
        &self,
        call: &ApiCall,
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        let Some(before) = before else { return };
        let Some(after) = after else {
            // Somebody else's deletion may have waited for a finalizer.
            let leaves = before.pointer("/metadata/deletionTimestamp").is_some();
            if call.verb == Verb::Delete || !leaves {
                self.node_deleted(before);
            }
            return;
        };
        self.compare_marks(before, after);
        self.compare_ranges(before, after);
    }

    fn compare_ranges(&self, before: &Value, after: &Value) {
        let (was, is) = (ranges(before), ranges(after));
        if was == is {
            return;
        }
        let name = text(after, "/metadata/name");
        let nodes = self.kube.list("nodes");
        let shares = |node: &&Value| ranges(node).iter().any(|range| is.contains(range));
        let other = nodes
            .iter()
            .filter(|node| text(node, "/metadata/name") != name)
            .find(shares)
            .map(|node| text(node, "/metadata/name"));
        if !was.is_empty() || other.is_some() {
            self.violated(
                Rule::SharedRange,
                format!("{name} gets {is:?}, had {was:?}, other owner: {other:?}"),
            );
        }
    }

    fn node_deleted(&self, node: &Value) {
        let name = text(node, "/metadata/name");
        let id = text(node, "/spec/providerID");
        let cloud = self.cloud.now();
        let machine = if id.is_empty() {
            cloud.machine_named(name)
        } else {
            cloud.machine_of(id)
        };
        if let Some(machine) = machine {
            self.violated(
                Rule::WrongDeletion,
                format!("Node {name} was deleted, its machine is {machine:?}"),
            );
        }
    }

    pub(super) fn route_deleted(&self, route: &TableRoute) {
        let cloud = self.cloud.now();
        let nodes = self.kube.list("nodes");
        let good = nodes.iter().find(|node| {
            let machine = cloud.machine_of(text(node, "/spec/providerID"));
            ranges(node).contains(&route.cidr.as_str())
                && machine.is_some_and(|machine| machine.id == route.machine)
        });
        if let Some(node) = good {
            let name = text(node, "/metadata/name");
            self.violated(Rule::WrongRoute, format!("{route:?}, {name} needs it"));
        }
    }
}
