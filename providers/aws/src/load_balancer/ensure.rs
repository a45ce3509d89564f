//! The pass that makes a network load balancer as its Service asks.

use std::{collections::BTreeSet, sync::Arc};

use ccm_core::{
    cloud::{Class, CloudError, CloudResult, Note},
    converge::{ConvergeError, converge},
    kube::{LoadBalancerStatus, Node, Service},
};
use tokio::time::Instant;

use super::{
    AwsLoadBalancers,
    backends::{Backends, joined, registered},
    memory::Settled,
    nlb::{
        desired::{Phase, Want, desired, mappings},
        plan::{Action, Have, Nlb},
    },
    node_groups::Access,
    preflight::{Request, preflight},
    status_of,
    subnets::{Network, discover, named},
};
use crate::{
    annotations,
    api::{
        elbv2::{LoadBalancer, SCHEME_INTERNAL, SubnetMapping},
        network::Subnet,
    },
    instances::InstanceId,
    names::NLB_SECURITY_GROUP_DESCRIPTION,
    notes,
};

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
        let backends = self
            .backends(&request.node_labels, nodes, &mut notes)
            .await?;
        let answer = self.pass(&request, &backends, settled, must_exist).await;
        let settled = match answer {
            Ok(settled) => settled,
            Err(error) => {
                // What a failed write did is not known.
                self.vpc.doubt_groups().await;
                self.observer.listing.doubt().await;
                return Err(error);
            }
        };
        notes.extend(self.notes(&request, &settled.have, &backends));
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
        backends: &Backends,
        settled: Option<Settled>,
        must_exist: bool,
    ) -> CloudResult<Settled> {
        let head = self.observer.head(request.name.as_str()).await?;
        let existing = head.load_balancer.clone();
        if must_exist && existing.is_none() {
            return Err(CloudError::new(Class::NotFound, "Load balancer not found"));
        }
        let creating = existing.is_none();
        if creating {
            self.no_classic_one(&request.name).await?;
        }
        let subnets = if creating {
            self.new_subnets(request).await?
        } else {
            Vec::new()
        };
        let known = settled.as_ref().map(|settled| &settled.have);
        let targets = backends.targets(&known.map(registered).unwrap_or_default());
        let mut want = desired(request, &self.settings, existing.as_ref(), subnets, targets);
        let read_at = settled
            .as_ref()
            .map_or_else(Instant::now, |settled| settled.read_at);
        let known = settled.map(|settled| settled.have);
        let mut have = self.observer.rest(head, &want, known.as_ref()).await?;
        have.written_keys = self
            .memories
            .read(&request.name, |m| m.written_keys.clone());

        want.instances = backends.targets(&registered(&have));
        let phase = Want {
            phase: Phase::Backends,
            ..want.clone()
        };
        let have = self.converge(&phase, have, backends, creating).await?;
        // Traffic and health checks are let in before a listener sends them, and what is not used
        // any more is shut out after the last listener stopped. What cannot be let in is the
        // trouble of single Nodes: the listeners follow the Service all the same.
        let (access, odd) = self.access(request, backends, &have).await?;
        let opened = odd.and(self.open(request, access.as_ref()).await);
        if let Err(error) = &opened {
            tracing::warn!(load_balancer = %request.name, %error, "not every node lets traffic in");
        }
        let mut have = self.converge(&want, have, backends, creating).await?;
        if let (Some(access), Ok(())) = (&access, &opened) {
            self.nodes
                .close(&request.name, access, &request.own_ports)
                .await?;
        }
        self.retire_detached(request, existing.as_ref(), &have)
            .await?;
        have.written_keys = want.tags.keys().cloned().collect();
        self.memories.write(&request.name, |memory| {
            memory.written_keys.clone_from(&have.written_keys);
        });
        opened?;
        Ok(Settled { have, read_at })
    }

    async fn open(&self, request: &Request, access: Option<&Access>) -> CloudResult<()> {
        match access {
            Some(access) => {
                self.nodes
                    .open(&request.name, access, &request.own_ports)
                    .await
            }
            None => Ok(()),
        }
    }

    async fn converge(
        &self,
        want: &Want,
        have: Have,
        backends: &Backends,
        creating: bool,
    ) -> CloudResult<Have> {
        let apply = |mut action: Action| async move {
            let held = backends.hold_back(&mut action);
            if let (Some(held), Action::Register(_, targets)) = (&held, &action)
                && targets.is_empty()
            {
                return Ok(held.clone());
            }
            let made = self.applier.apply(action, creating).await?;
            Ok(joined(made, held))
        };
        converge::<Nlb, CloudError, _, _>(want, have, apply)
            .await
            .map_err(|error| match error {
                ConvergeError::Action(error) => error,
                ConvergeError::Endless { .. } => CloudError::transient(error.to_string()),
            })
    }

    /// The subnets of a new load balancer.
    async fn new_subnets(&self, request: &Request) -> CloudResult<Vec<SubnetMapping>> {
        self.vpc.renew_for_placement().await;
        let names = request.subnets.as_ref();
        let none = BTreeSet::new();
        let chosen = self.choose_subnets(names, request.internal, &none).await?;
        mappings(request, &chosen.iter().collect::<Vec<_>>())
    }

    /// The subnets named, or the best of each zone; one that is attached stays in its zone.
    pub(super) async fn choose_subnets(
        &self,
        names: Option<&Vec<String>>,
        internal: bool,
        attached: &BTreeSet<String>,
    ) -> CloudResult<Vec<Subnet>> {
        let subnets = self.vpc.subnets().await?;
        if let Some(names) = names {
            let subnets = match named(&subnets, names) {
                // A subnet may be younger than the snapshot.
                Err(_) if self.vpc.doubt_subnets().await => self.vpc.subnets().await?,
                _ => subnets,
            };
            return Ok(named(&subnets, names)?.into_iter().cloned().collect());
        }
        let topology = self.vpc.topology().await?;
        let network = Network {
            subnets: &subnets,
            tables: &topology.tables,
            zones: &topology.zones,
            tags: &self.settings.tags,
            fallback: self.settings.fallback_subnet.as_deref(),
            attached,
        };
        Ok(discover(network, internal)?.into_iter().cloned().collect())
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
            if let Err(error) = self.groups.retire(&id).await {
                tracing::warn!(group = %id, %error, "detached security group is not deleted yet");
                left.insert(id);
            }
        }
        self.memories
            .write(&request.name, |memory| memory.detached = left);
        Ok(())
    }

    fn notes(&self, request: &Request, have: &Have, backends: &Backends) -> Vec<Note> {
        let wanted = backends.targets(&registered(have)).len();
        let mut notes = Vec::new();
        let lb = have.load_balancer.as_ref();
        notes.extend(lb.and_then(|lb| scheme_note(&lb.scheme, request.internal)));
        let groups = || have.target_groups.values();
        let refused: BTreeSet<&str> = groups()
            .flat_map(|found| &found.refused)
            .map(|target| target.id.as_str())
            .filter(|id| !backends.is_waiting(id))
            .collect();
        notes.extend(self.refused_note("InvalidTarget", &refused));
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

    /// Says which instances AWS does not take; what is believed of them is looked up again.
    pub(super) fn refused_note(&self, code: &str, refused: &BTreeSet<&str>) -> Option<Note> {
        if refused.is_empty() {
            return None;
        }
        let ids: Vec<InstanceId> = refused
            .iter()
            .map(|id| InstanceId::from_cloud(*id))
            .collect();
        self.instances.forget(&ids);
        let refused: Vec<&str> = refused.iter().copied().collect();
        Some(Note {
            reason: notes::TARGETS_NOT_REGISTERED,
            message: format!(
                "AWS refuses these instances as targets ({code}): {}",
                refused.join(", ")
            ),
        })
    }
}

/// Says that the load balancer has another scheme than the annotation asks for.
pub(super) fn scheme_note(scheme: &str, internal: bool) -> Option<Note> {
    ((scheme == SCHEME_INTERNAL) != internal).then(|| Note {
        reason: notes::SCHEME_NOT_CHANGED,
        message: format!(
            "the load balancer stays {scheme}: its scheme cannot change after creation, although \
             the annotation {} asks for it; re-create the Service to get another one",
            annotations::INTERNAL.key
        ),
    })
}
