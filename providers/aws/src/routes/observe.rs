//! The table as the route controller sees it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_core::{
    cloud::{CloudResult, Route},
    kube::Node,
};

use super::{
    AwsRoutes,
    plan::{Machines, listed, targets},
};
use crate::{
    api::routes::Table,
    instances::{InstanceId, copy},
};

impl AwsRoutes {
    /// The cluster's routes. One call, unless a Node without provider id may be behind a route.
    pub(super) async fn observe(&self, nodes: &[Arc<Node>]) -> CloudResult<Vec<Route>> {
        let table = self.table.read().await?;
        let mut machines = Machines::new(nodes, &BTreeMap::new());
        let named = self.by_name(nodes, &table, &machines).await?;
        if !named.is_empty() {
            machines = Machines::new(nodes, &named);
        }
        let listed = listed(&table, &machines, &self.cluster_name);
        self.table.set_serving(listed.serving).await;
        Ok(listed.routes)
    }

    /// The machines of Nodes that have no provider id yet, as far as a route may lead to one.
    async fn by_name(
        &self,
        nodes: &[Arc<Node>],
        table: &Table,
        machines: &Machines<'_>,
    ) -> CloudResult<BTreeMap<String, InstanceId>> {
        let unnamed = nodes.iter().filter(|node| node.provider_id().is_none());
        let names: BTreeSet<String> = unnamed.map(|node| node.name().to_owned()).collect();
        let is_known = targets(table)
            .into_iter()
            .all(|id| machines.node(id).is_ok());
        if names.is_empty() || is_known {
            return Ok(BTreeMap::new());
        }
        let (mut found, mut asked) = (BTreeMap::new(), BTreeSet::new());
        for name in names {
            match InstanceId::from_node_name(&name) {
                Some(id) => {
                    found.insert(name, id);
                }
                None => {
                    asked.insert(name);
                }
            }
        }
        for (name, answer) in self.describer.by_names(asked).await {
            // A route that is taken for someone else's would be made a second time.
            if let Some(instance) = answer.map_err(|error| copy(&error))? {
                found.insert(name, instance.id.clone());
            }
        }
        Ok(found)
    }
}
