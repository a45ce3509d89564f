//! The pass that makes a network load balancer as its Service asks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_core::{
    cloud::{Class, CloudError, CloudResult, Note},
    converge::{ConvergeError, converge},
    kube::{LoadBalancerStatus, Node, Service},
};
use ipnet::Ipv4Net;
use tokio::time::Instant;

use super::{
    AwsLoadBalancers,
    memory::Settled,
    nlb::{
        desired::{Phase, Want, desired, mappings},
        plan::{Have, Nlb},
    },
    node_rules::{Needs, node_group},
    preflight::{Request, node_matches, preflight},
    status_of,
    subnets::{Network, discover, named},
};
use crate::{
    annotations,
    api::{
        Instance,
        elbv2::{LoadBalancer, SCHEME_INTERNAL, SubnetMapping},
        network::Subnet,
    },
    instances::InstanceId,
    names::NLB_SECURITY_GROUP_DESCRIPTION,
    notes,
};

type Instances = BTreeMap<InstanceId, Arc<Instance>>;

impl AwsLoadBalancers {
    /// One pass. `must_exist` is the update of backends, which never makes a load balancer.
    pub(super) async fn ensure_network(
        &self,
        service: &Service,
        nodes: &[Arc<Node>],
        must_exist: bool,
    ) -> CloudResult<(LoadBalancerStatus, Vec<Note>)> {
        let request = preflight(service, &self.settings)?;
        let settled = self.memories.take_settled(&request.name);
        let mut notes = Vec::new();
        let instances = self.targets(&request, nodes, &mut notes).await?;
        let answer = self.pass(&request, &instances, settled, must_exist).await;
        let settled = match answer {
            Ok(settled) => settled,
            Err(error) => {
                // What a failed write did is not known.
                self.vpc.doubt_groups().await;
                self.observer.listing.doubt().await;
                return Err(error);
            }
        };
        notes.extend(self.notes(&request, &settled.have, instances.len()));
        let status = settled
            .have
            .load_balancer
            .as_ref()
            .map(status_of)
            .unwrap_or_default();
        self.memories.settle(&request.name, settled);
        Ok((status, notes))
    }

    async fn pass(
        &self,
        request: &Request,
        instances: &Instances,
        settled: Option<Settled>,
        must_exist: bool,
    ) -> CloudResult<Settled> {
        let head = self.observer.head(request.name.as_str()).await?;
        let existing = head.load_balancer.clone();
        if must_exist && existing.is_none() {
            return Err(CloudError::new(Class::NotFound, "Load balancer not found"));
        }
        let creating = existing.is_none();
        let subnets = if creating {
            self.new_subnets(request).await?
        } else {
            Vec::new()
        };
        let ids = instances.keys().map(|id| id.as_str().to_owned()).collect();
        let want = desired(request, &self.settings, existing.as_ref(), subnets, ids);
        let read_at = settled
            .as_ref()
            .map_or_else(Instant::now, |settled| settled.read_at);
        let known = settled.map(|settled| settled.have);
        let mut have = self.observer.rest(head, &want, known.as_ref()).await?;
        have.written_keys = self
            .memories
            .read(&request.name, |m| m.written_keys.clone());

        let backends = Want {
            phase: Phase::Backends,
            ..want.clone()
        };
        let have = self.converge(&backends, have, creating).await?;
        // Traffic and health checks are let in before a listener sends them, and what is not used
        // any more is shut out after the last listener stopped.
        let rules = self.node_rules(request, instances, &have).await?;
        if let Some((groups, needs)) = &rules {
            self.nodes.open(&request.name, groups, needs).await?;
        }
        let mut have = self.converge(&want, have, creating).await?;
        if let Some((groups, needs)) = &rules {
            self.nodes
                .close(&request.name, groups, needs, &request.own_ports)
                .await?;
        }
        self.retire_detached(request, existing.as_ref(), &have)
            .await?;
        have.written_keys = want.tags.keys().cloned().collect();
        Ok(Settled { have, read_at })
    }

    async fn converge(&self, want: &Want, have: Have, creating: bool) -> CloudResult<Have> {
        let apply = |action| self.applier.apply(action, creating);
        converge::<Nlb, CloudError, _, _>(want, have, apply)
            .await
            .map_err(|error| match error {
                ConvergeError::Action(error) => error,
                ConvergeError::Endless { .. } => CloudError::transient(error.to_string()),
            })
    }

    /// The running instances of the chosen Nodes.
    async fn targets(
        &self,
        request: &Request,
        nodes: &[Arc<Node>],
        notes: &mut Vec<Note>,
    ) -> CloudResult<Instances> {
        let chosen: Vec<&Arc<Node>> = nodes
            .iter()
            .filter(|node| node_matches(node, &request.node_labels))
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
        let mut found = self.instances.target_instances(&ids).await?;
        found.retain(|_, instance| instance.is_running());
        Ok(found)
    }

    /// The subnets of a new load balancer.
    async fn new_subnets(&self, request: &Request) -> CloudResult<Vec<SubnetMapping>> {
        self.vpc.renew_for_placement().await;
        let subnets = self.vpc.subnets().await?;
        if let Some(names) = &request.subnets {
            let subnets = match named(&subnets, names) {
                // A subnet may be younger than the snapshot.
                Err(_) if self.vpc.doubt_subnets().await => self.vpc.subnets().await?,
                _ => subnets,
            };
            return mappings(request, &named(&subnets, names)?);
        }
        let topology = self.vpc.topology().await?;
        let network = Network {
            subnets: &subnets,
            tables: &topology.tables,
            zones: &topology.zones,
            tags: &self.settings.tags,
            fallback: self.settings.fallback_subnet.as_deref(),
        };
        mappings(request, &discover(network, request.internal)?)
    }

    /// The Nodes' security groups and the rules needed there; `None` when they are not ours to
    /// write.
    async fn node_rules(
        &self,
        request: &Request,
        instances: &Instances,
        have: &Have,
    ) -> CloudResult<Option<(BTreeSet<String>, Needs)>> {
        let Some(lb) = have
            .load_balancer
            .as_ref()
            .filter(|_| !self.settings.disable_node_rules)
        else {
            return Ok(None);
        };
        let tagged = self.vpc.tagged_groups().await?;
        let mut groups = BTreeSet::new();
        for (id, instance) in instances {
            groups.extend(node_group(id.as_str(), &instance.security_groups, &tagged)?);
        }
        let ports: Vec<(i32, &str)> = request
            .ports
            .iter()
            .map(|port| (port.node_port, request.health.port.as_str()))
            .collect();
        let ranges = self.subnet_ranges(lb).await?;
        Ok(Some((
            groups,
            Needs::new(&ports, request.udp, &request.sources, &ranges),
        )))
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

    /// Deletes security groups that we made and that are not attached any more. What fails is tried
    /// again by later passes: the load balancer itself is fine.
    async fn retire_detached(
        &self,
        request: &Request,
        before: Option<&LoadBalancer>,
        have: &Have,
    ) -> CloudResult<()> {
        if !self.settings.managed_security_groups {
            return Ok(());
        }
        let attached = have.load_balancer.as_ref().map(|lb| &lb.security_groups);
        let mut candidates = self.memories.read(&request.name, |m| m.detached.clone());
        candidates.extend(
            before
                .into_iter()
                .flat_map(|lb| lb.security_groups.iter().cloned()),
        );
        let tagged = self.vpc.tagged_groups().await?;
        // A process that died after the swap left the group under its computed name.
        candidates.extend(
            tagged
                .values()
                .filter(|g| g.name == request.managed_group)
                .map(|g| g.id.clone()),
        );
        let mut left = BTreeSet::new();
        for id in candidates {
            let in_use = attached.is_some_and(|groups| groups.contains(&id))
                || have
                    .managed_group
                    .as_ref()
                    .is_some_and(|group| group.id == id)
                || request.security_groups.contains(&id)
                || self.settings.elb_security_group.as_ref() == Some(&id);
            let ours = tagged.get(&id).is_some_and(|group| {
                group.description == NLB_SECURITY_GROUP_DESCRIPTION && self.observer.is_owned(group)
            });
            if in_use || !ours {
                continue;
            }
            if let Err(error) = self.applier.retire_group(&id).await {
                tracing::warn!(group = %id, %error, "detached security group is not deleted yet");
                left.insert(id);
            }
        }
        self.memories
            .write(&request.name, |memory| memory.detached = left);
        Ok(())
    }

    fn notes(&self, request: &Request, have: &Have, wanted: usize) -> Vec<Note> {
        let mut notes = Vec::new();
        let lb = have.load_balancer.as_ref();
        if let Some(lb) = lb.filter(|lb| (lb.scheme == SCHEME_INTERNAL) != request.internal) {
            notes.push(Note {
                reason: notes::SCHEME_NOT_CHANGED,
                message: format!(
                    "the load balancer stays {}: its scheme cannot change after creation, although \
                     the annotation {} asks for it; re-create the Service to get another one",
                    lb.scheme,
                    annotations::INTERNAL.key
                ),
            });
        }
        let groups = || have.target_groups.values();
        let refused: BTreeSet<&str> = groups()
            .flat_map(|found| &found.refused)
            .map(|target| target.id.as_str())
            .collect();
        if !refused.is_empty() {
            let ids: Vec<InstanceId> = refused
                .iter()
                .map(|id| InstanceId::from_cloud(*id))
                .collect();
            self.instances.forget(&ids);
            notes.push(Note {
                reason: notes::TARGETS_NOT_REGISTERED,
                message: format!(
                    "AWS refuses these instances as targets (InvalidTarget): {}",
                    refused.into_iter().collect::<Vec<_>>().join(", ")
                ),
            });
        }
        let limits = request.ports.iter().filter_map(|port| {
            let found = groups().find(|found| found.group.name == port.target_group)?;
            found
                .limit
                .filter(|limit| *limit < wanted)
                .map(|limit| (port.port, limit))
        });
        notes.extend(limits.map(|(port, limit)| Note {
            reason: notes::TOO_MANY_TARGETS,
            message: format!(
                "port {port} has {limit} targets and AWS takes no more (TooManyTargets): ask for a \
                 higher limit of targets per target group or narrow the Nodes with the annotation \
                 {}",
                annotations::TARGET_NODE_LABELS.key
            ),
        }));
        notes
    }
}
