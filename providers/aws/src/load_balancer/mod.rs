//! Load balancers: network ones with instance targets, and classic ones (specification: aws §4).
//!
//! | Module | What it answers for |
//! |---|---|
//! | [`preflight`] | everything that can be judged without the cloud |
//! | [`health_check`], [`subnets`], [`node_rules`], [`classic_rules`] | single decisions, pure |
//! | `backends` | which instances are targets, and what their groups must let in |
//! | [`vpc`] | what all Services read of the network, read once |
//! | [`node_groups`] | rules in the Nodes' security groups |
//! | [`own_groups`] | security groups made for load balancers |
//! | `doors` | what the Nodes let in of a classic load balancer |
//! | `other_kind` | load balancers of the other kind under a Service's name |
//! | [`nlb`], [`clb`] | desired state, reads, plan and writes of each kind |
//! | [`memory`] | what is known from the pass before |
//! | [`ensure`], [`ensure_classic`], [`remove`] | the passes |
//! | [`removal`] | what is left and the order in which it goes, pure |
//! | [`released`] | what we made for a Service that another controller serves by now |
//!
//! Services that another controller serves cost no call, unless they were ours.

mod backends;
pub mod classic_rules;
pub mod clb;
mod doors;
pub mod ensure;
pub mod ensure_classic;
pub mod health_check;
pub mod memory;
pub mod nlb;
pub mod node_groups;
pub mod node_rules;
mod other_kind;
pub mod own_groups;
pub mod preflight;
mod registration;
pub mod released;
pub mod removal;
pub mod remove;
pub mod settings;
pub mod subnets;
mod tries;
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
    own_groups::OwnGroups,
    settings::Settings,
    vpc::VpcSnapshot,
};
use crate::{
    annotations::{self, Flavour},
    api::{
        elb::{self, ElbApi},
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
    groups: Arc<OwnGroups>,
    observer: Observer,
    applier: Applier,
    classic: Classic,
    memories: Memories,
}

/// What is of classic load balancers only.
struct Classic {
    observer: clb::observe::Observer,
    applier: clb::apply::Applier,
}

impl AwsLoadBalancers {
    /// Load balancers behind these APIs.
    pub fn new(
        elb: Arc<dyn Elbv2Api>,
        classic: Arc<dyn ElbApi>,
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
        let groups = Arc::new(OwnGroups::new(Arc::clone(&network), Arc::clone(&vpc)));
        let (read_tags, write_tags) = (Arc::<Optional>::default(), Arc::<Optional>::default());
        let observer = Observer {
            elb: Arc::clone(&elb),
            network: Arc::clone(&network),
            vpc: Arc::clone(&vpc),
            tags: settings.tags.clone(),
            read_tags: Arc::clone(&read_tags),
            listing: Arc::default(),
        };
        let applier = Applier {
            elb,
            groups: Arc::clone(&groups),
            write_tags: Arc::clone(&write_tags),
        };
        let classic = Classic {
            observer: clb::observe::Observer {
                elb: Arc::clone(&classic),
                network,
                vpc: Arc::clone(&vpc),
                tags: settings.tags.clone(),
                read_tags,
                heads: Arc::default(),
            },
            applier: clb::apply::Applier {
                elb: classic,
                groups: Arc::clone(&groups),
                write_tags,
            },
        };
        Self {
            settings,
            instances,
            vpc,
            nodes,
            groups,
            observer,
            applier,
            classic,
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
        let (status, notes) = match annotations::flavour(service) {
            Flavour::Elsewhere => {
                let notes = self.ensure_released(service).await?;
                return Ok(Ensured::ImplementedElsewhere { notes });
            }
            Flavour::Network => Box::pin(self.ensure_network(service, nodes, false)).await?,
            Flavour::Classic => Box::pin(self.ensure_classic(service, nodes, false)).await?,
        };
        Ok(Ensured::Ready { status, notes })
    }

    async fn update(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Updated> {
        let (_, notes) = match annotations::flavour(service) {
            Flavour::Elsewhere => {
                let notes = self.released_note(service).into_iter().collect();
                return Ok(Updated::ImplementedElsewhere { notes });
            }
            Flavour::Network => Box::pin(self.ensure_network(service, nodes, true)).await?,
            Flavour::Classic => Box::pin(self.ensure_classic(service, nodes, true)).await?,
        };
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
    if !usable {
        return LoadBalancerStatus::default();
    }
    host_status(&lb.dns_name)
}

/// The same of a classic one, which has no state.
fn classic_status(lb: &elb::LoadBalancer) -> LoadBalancerStatus {
    host_status(&lb.dns_name)
}

fn host_status(dns_name: &str) -> LoadBalancerStatus {
    if dns_name.is_empty() {
        return LoadBalancerStatus::default();
    }
    LoadBalancerStatus {
        ingress: Some(vec![LoadBalancerIngress {
            hostname: Some(dns_name.to_owned()),
            ..LoadBalancerIngress::default()
        }]),
    }
}

/// What is not there need not be removed.
fn gone_is_done(answer: CloudResult<()>) -> CloudResult<()> {
    match answer {
        Err(error) if error.is_not_found() => Ok(()),
        answer => answer,
    }
}

/// `prefix: "inner"`, as the Go manager words it.
fn quoted(prefix: &str, error: CloudError) -> CloudError {
    error.map_message(|inner| format!("{prefix}: {inner:?}"))
}
