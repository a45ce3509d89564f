//! Routes to the pods of Nodes, in one route table of the VPC (specification: aws §5).
//!
//! | File | What it answers for |
//! |---|---|
//! | `plan` | what a route of the table is to us, and what a wanted one takes. Pure |
//! | `table` | the one table of the cluster: found once a pass, kept in step with our own writes |
//! | `observe` | the table as the route controller sees it |
//! | `apply` | making and removing one route |
//!
//! What a gateway, a peering or a machine of someone else is the target of is never touched.

mod apply;
mod observe;
mod plan;
#[cfg(test)]
mod sim_tests;
mod table;

use std::sync::Arc;

use async_trait::async_trait;
use ccm_core::{
    cloud::{CloudResult, Route, Routes, WantedRoute},
    kube::Node,
};

use crate::{
    api::routes::RoutesApi, instances::Describer, optional::Optional, routes::table::TableCache,
    tags::ClusterTags,
};

/// What the routes are made from.
pub struct Setup {
    /// The calls.
    pub api: Arc<dyn RoutesApi>,
    /// Look-ups of instances.
    pub describer: Arc<Describer>,
    /// The cluster's identity in tags.
    pub cluster: ClusterTags,
    /// `--cluster-name`: part of the names of routes, and of error texts.
    pub cluster_name: String,
    /// `RouteTableID` of the cloud config; `None` finds the table by its tag.
    pub table_id: Option<String>,
}

/// The routes of AWS.
pub struct AwsRoutes {
    api: Arc<dyn RoutesApi>,
    describer: Arc<Describer>,
    cluster: ClusterTags,
    cluster_name: String,
    table: TableCache,
    replace: Optional,
}

impl AwsRoutes {
    /// Nothing is asked for yet.
    pub fn new(setup: Setup) -> Self {
        let Setup {
            api,
            describer,
            cluster,
            cluster_name,
            table_id,
        } = setup;
        let table = TableCache::new(
            Arc::clone(&api),
            cluster.clone(),
            cluster_name.clone(),
            table_id,
        );
        Self {
            api,
            describer,
            cluster,
            cluster_name,
            table,
            replace: Optional::default(),
        }
    }
}

#[async_trait]
impl Routes for AwsRoutes {
    async fn list(&self, nodes: &[Arc<Node>]) -> CloudResult<Vec<Route>> {
        self.observe(nodes).await
    }

    async fn create(&self, routes: &[WantedRoute]) -> Vec<CloudResult<()>> {
        let mut answers = Vec::with_capacity(routes.len());
        // EC2 takes one route in a call; the controller makes many calls at once.
        for route in routes {
            answers.push(self.make(route).await);
        }
        answers
    }

    async fn delete(&self, routes: &[Route]) -> Vec<CloudResult<()>> {
        let mut answers = Vec::with_capacity(routes.len());
        for route in routes {
            answers.push(self.remove(route).await);
        }
        answers
    }
}
