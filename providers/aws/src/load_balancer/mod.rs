//! Load balancers: network load balancers with instance targets (specification: aws §4).
//!
//! | Module | What it answers for |
//! |---|---|
//! | [`preflight`] | everything that can be judged without the cloud |
//! | [`health_check`], [`subnets`], [`node_rules`] | single decisions, pure |
//! | `backends` | which instances are targets, and what their groups must let in |
//! | [`vpc`] | what all Services read of the network, read once |
//! | [`node_groups`] | rules in the Nodes' security groups |
//! | [`nlb`] | desired state, reads, plan and writes of a network load balancer |
//! | [`memory`] | what is known from the pass before |
//! | [`ensure`], [`remove`] | the passes |
//! | [`released`] | what we made for a Service that another controller serves by now |
//!
//! Classic load balancers are refused with the annotation to set. Services that another controller
//! serves cost no call, unless they were ours.

mod backends;
pub mod ensure;
pub mod health_check;
pub mod memory;
pub mod nlb;
pub mod node_groups;
pub mod node_rules;
pub mod preflight;
pub mod released;
pub mod remove;
pub mod settings;
pub mod subnets;
pub mod vpc;

#[cfg(test)]
mod sim_tests;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

use async_trait::async_trait;
use ccm_core::{
    cloud::{CloudError, CloudResult, Ensured, LoadBalancers, Updated},
    kube::{LoadBalancerIngress, LoadBalancerStatus, Node, Service},
};

use self::{
    memory::Memories,
    nlb::{apply::Applier, observe::Observer},
    node_groups::{NodeGroups, Optional},
    settings::Settings,
    vpc::VpcSnapshot,
};
use crate::{
    annotations::{self, Flavour},
    api::{
        elbv2::{Elbv2Api, LoadBalancer},
        network::NetworkApi,
    },
    instances::InstanceStore,
};

/// The load balancers of AWS.
pub struct AwsLoadBalancers {
    settings: Settings,
    instances: Arc<InstanceStore>,
    vpc: Arc<VpcSnapshot>,
    nodes: Arc<NodeGroups>,
    observer: Observer,
    applier: Applier,
    memories: Memories,
}

impl AwsLoadBalancers {
    /// Load balancers behind these APIs.
    pub fn new(
        elb: Arc<dyn Elbv2Api>,
        network: Arc<dyn NetworkApi>,
        instances: Arc<InstanceStore>,
        settings: Settings,
    ) -> Self {
        let vpc = Arc::new(VpcSnapshot::new(
            Arc::clone(&network),
            settings.vpc_id.clone(),
            settings.tags.clone(),
        ));
        let nodes = Arc::new(NodeGroups::new(
            Arc::clone(&network),
            Arc::clone(&vpc),
            settings.vpc_id.clone(),
        ));
        let observer = Observer {
            elb: Arc::clone(&elb),
            network: Arc::clone(&network),
            vpc: Arc::clone(&vpc),
            tags: settings.tags.clone(),
            read_tags: Arc::new(Optional::default()),
            listing: Arc::default(),
        };
        let applier = Applier {
            elb,
            network,
            vpc: Arc::clone(&vpc),
            nodes: Arc::clone(&nodes),
            write_tags: Arc::new(Optional::default()),
            tag_tries: Arc::default(),
        };
        Self {
            settings,
            instances,
            vpc,
            nodes,
            observer,
            applier,
            memories: Memories::default(),
        }
    }
}

#[async_trait]
impl LoadBalancers for AwsLoadBalancers {
    async fn get(&self, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        if annotations::flavour(service) == Flavour::Elsewhere
            && !self.is_to_remove(service).await?
        {
            return Ok(None);
        }
        self.find(service).await
    }

    async fn ensure(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Ensured> {
        if annotations::flavour(service) == Flavour::Elsewhere {
            let notes = self.ensure_released(service).await?;
            return Ok(Ensured::ImplementedElsewhere { notes });
        }
        let (status, notes) = Box::pin(self.ensure_network(service, nodes, false)).await?;
        Ok(Ensured::Ready { status, notes })
    }

    async fn update(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Updated> {
        if annotations::flavour(service) == Flavour::Elsewhere {
            let notes = self.released_note(service).into_iter().collect();
            return Ok(Updated::ImplementedElsewhere { notes });
        }
        let (_, notes) = Box::pin(self.ensure_network(service, nodes, true)).await?;
        Ok(Updated::Done { notes })
    }

    async fn delete(&self, service: &Service) -> CloudResult<()> {
        if annotations::flavour(service) == Flavour::Elsewhere
            && !self.is_to_remove(service).await?
        {
            return Ok(());
        }
        self.remove(service).await
    }

    fn node_labels_matter(&self, service: &Service) -> bool {
        annotations::TARGET_NODE_LABELS.is_present(service)
    }
}

/// The status: the host name of a load balancer that works or is about to.
fn status_of(lb: &LoadBalancer) -> LoadBalancerStatus {
    let usable = matches!(lb.state.as_str(), "active" | "provisioning");
    if !usable || lb.dns_name.is_empty() {
        return LoadBalancerStatus::default();
    }
    LoadBalancerStatus {
        ingress: Some(vec![LoadBalancerIngress {
            hostname: Some(lb.dns_name.clone()),
            ..LoadBalancerIngress::default()
        }]),
    }
}

/// `prefix: "inner"`, as the Go manager words it.
fn quoted(prefix: &str, error: CloudError) -> CloudError {
    error.map_message(|inner| format!("{prefix}: {inner:?}"))
}
