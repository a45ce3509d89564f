//! Which instances are targets, and what their security groups must let in.
//!
//! Only running instances are registered. One that stopped, or that EC2 does not show for a moment,
//! stays registered while its Node exists: nothing would bring it back when it runs again, and a
//! load balancer sends nothing to it as long as its health check fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_core::{
    cloud::{CloudError, CloudResult, Note},
    kube::Node,
};
use ipnet::Ipv4Net;

use super::{
    AwsLoadBalancers,
    nlb::plan::{Action, Have, Made},
    node_groups::Access,
    node_rules::{Needs, node_group},
    preflight::{Request, node_matches},
};
use crate::{
    annotations,
    api::{Instance, InstanceState, elbv2::LoadBalancer, network::Subnet},
    instances::{Found, InstanceId},
    notes,
};

/// The instances of the chosen Nodes.
#[derive(Debug, Default)]
pub(super) struct Backends {
    /// To be registered.
    running: BTreeMap<InstanceId, Arc<Instance>>,
    /// Neither to be registered nor to be deregistered.
    waiting: BTreeMap<InstanceId, Found>,
}

impl Backends {
    fn new(found: BTreeMap<InstanceId, Found>) -> Self {
        let mut backends = Self::default();
        for (id, found) in found {
            match found {
                Some(instance) if instance.is_running() => {
                    backends.running.insert(id, instance);
                }
                Some(instance) if is_gone(&instance) => {}
                found => {
                    backends.waiting.insert(id, found);
                }
            }
        }
        backends
    }

    /// The targets wanted: what runs, and what waits and is registered.
    pub(super) fn targets(&self, registered: &BTreeSet<String>) -> BTreeSet<String> {
        let running = self.running.keys();
        running
            .chain(self.kept(registered).map(|(id, _)| id))
            .map(|id| id.as_str().to_owned())
            .collect()
    }

    /// Whether the target must not be registered now.
    pub(super) fn is_waiting(&self, target: &str) -> bool {
        self.waiting.keys().any(|id| id.as_str() == target)
    }

    /// Takes those that must not be registered now out of a registration. They count as refused:
    /// they are in another target group of the load balancer, but not in this one.
    pub(super) fn hold_back(&self, action: &mut Action) -> Option<Made> {
        let Action::Register(_, targets) = action else {
            return None;
        };
        let (held, rest): (Vec<_>, Vec<_>) = std::mem::take(targets)
            .into_iter()
            .partition(|target| self.is_waiting(&target.id));
        *targets = rest;
        (!held.is_empty()).then(|| Made::Registered {
            refused: held.into_iter().collect(),
            over_limit: BTreeSet::new(),
        })
    }

    fn kept<'a>(
        &'a self,
        registered: &'a BTreeSet<String>,
    ) -> impl Iterator<Item = (&'a InstanceId, &'a Found)> {
        self.waiting
            .iter()
            .filter(|(id, _)| registered.contains(id.as_str()))
    }
}

/// The instances in any target group.
pub(super) fn registered(have: &Have) -> BTreeSet<String> {
    have.target_groups
        .values()
        .flat_map(|group| &group.targets)
        .map(|target| target.id.clone())
        .collect()
}

/// The security groups of the Nodes behind a load balancer.
#[derive(Debug)]
pub(super) struct NodeSide {
    /// The groups.
    pub groups: BTreeSet<String>,
    /// Whether there are targets whose group is not known.
    pub has_hidden: bool,
    /// The first instance whose group cannot be told.
    pub odd: CloudResult<()>,
}

fn is_gone(instance: &Instance) -> bool {
    matches!(
        instance.state,
        Some(InstanceState::ShuttingDown | InstanceState::Terminated)
    )
}

/// Both answers of a registration that was split.
pub(super) fn joined(made: Made, held: Option<Made>) -> Made {
    match (made, held) {
        (
            Made::Registered {
                mut refused,
                over_limit,
            },
            Some(Made::Registered { refused: held, .. }),
        ) => {
            refused.extend(held);
            Made::Registered {
                refused,
                over_limit,
            }
        }
        (made, _) => made,
    }
}

impl AwsLoadBalancers {
    /// The instances of the chosen Nodes.
    pub(super) async fn backends(
        &self,
        labels: &BTreeMap<String, String>,
        nodes: &[Arc<Node>],
        notes: &mut Vec<Note>,
    ) -> CloudResult<Backends> {
        let chosen: Vec<&Arc<Node>> = nodes
            .iter()
            .filter(|node| node_matches(node, labels))
            .collect();
        if chosen.is_empty() && !nodes.is_empty() {
            notes.push(Note {
                reason: notes::NO_TARGETS,
                message: format!(
                    "There are no available nodes for LoadBalancer: none has the labels of the \
                     annotation {}",
                    annotations::TARGET_NODE_LABELS.key
                ),
            });
        }
        let mut ids = BTreeSet::new();
        for node in chosen {
            match node.provider_id().map(InstanceId::from_provider_id) {
                Some(Ok(id)) => {
                    ids.insert(id);
                }
                Some(Err(error)) => {
                    tracing::warn!(node = node.name(), %error, "node is no target");
                }
                None => tracing::warn!(node = node.name(), "node without provider id is no target"),
            }
        }
        Ok(Backends::new(self.instances.look_up(&ids).await?))
    }

    /// What the Nodes' security groups must let in, `None` when they are not ours to write; and the
    /// first instance whose group cannot be told.
    pub(super) async fn access(
        &self,
        request: &Request,
        backends: &Backends,
        have: &Have,
    ) -> CloudResult<(Option<Access>, CloudResult<()>)> {
        let Some(lb) = have
            .load_balancer
            .as_ref()
            .filter(|_| !self.settings.disable_node_rules)
        else {
            return Ok((None, Ok(())));
        };
        let side = self.node_side(backends, &registered(have)).await?;
        let ports: Vec<(i32, &str)> = request
            .ports
            .iter()
            .map(|port| (port.node_port, request.health.port.as_str()))
            .collect();
        let ranges = self.subnet_ranges(lb).await?;
        let access = Access {
            groups: side.groups,
            needs: Needs::new(&ports, request.udp, &request.sources, &ranges),
            has_hidden: side.has_hidden,
        };
        Ok((Some(access), side.odd))
    }

    /// The security groups of the instances wanted.
    pub(super) async fn node_side(
        &self,
        backends: &Backends,
        registered: &BTreeSet<String>,
    ) -> CloudResult<NodeSide> {
        let tagged = self.vpc.tagged_groups().await?;
        let mut side = NodeSide {
            groups: BTreeSet::new(),
            has_hidden: false,
            odd: Ok(()),
        };
        let running = backends.running.iter();
        let all = running.map(|(id, instance)| (id, Some(instance))).chain(
            backends
                .kept(registered)
                .map(|(id, found)| (id, found.as_ref())),
        );
        for (id, instance) in all {
            let Some(instance) = instance else {
                side.has_hidden = true;
                continue;
            };
            match node_group(id.as_str(), &instance.security_groups, &tagged) {
                Ok(group) => side.groups.extend(group),
                Err(error) => side.odd = side.odd.and(Err(error)),
            }
        }
        Ok(side)
    }

    /// The IPv4 ranges of the load balancer's subnets: health checks come from there.
    async fn subnet_ranges(&self, lb: &LoadBalancer) -> CloudResult<BTreeSet<Ipv4Net>> {
        if lb.subnets.is_empty() {
            return Err(CloudError::transient(format!(
                "did not find ensured subnets on LB {}",
                lb.name
            )));
        }
        let mut subnets = self.vpc.subnets().await?;
        let of_lb = |all: &[Subnet]| -> Vec<Option<Ipv4Net>> {
            all.iter()
                .filter(|s| lb.subnets.contains(&s.id))
                .map(|s| s.cidr)
                .collect()
        };
        if of_lb(&subnets).len() != lb.subnets.len() && self.vpc.doubt_subnets().await {
            subnets = self.vpc.subnets().await?;
        }
        let found = of_lb(&subnets);
        if found.len() != lb.subnets.len() {
            let ids: Vec<&str> = lb.subnets.iter().map(String::as_str).collect();
            return Err(CloudError::transient(format!(
                "error querying Subnet for ELB, got {} subnets for [{}]",
                found.len(),
                ids.join(" ")
            )));
        }
        Ok(found.into_iter().flatten().collect())
    }
}
