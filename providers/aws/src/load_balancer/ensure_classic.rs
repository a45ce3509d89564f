//! The pass that makes a classic load balancer as its Service asks.

use std::{collections::BTreeSet, sync::Arc};

use ccm_core::{
    cloud::{Class, CloudError, CloudResult, Note},
    converge::{ConvergeError, converge},
    kube::{LoadBalancerStatus, Node, Service},
};
use tokio::time::Instant;

use super::{
    AwsLoadBalancers,
    backends::Backends,
    classic_status,
    clb::{
        desired::{Phase, Want, desired},
        observe::Known,
        plan::{Action, Clb, Have},
        request::{Request, preflight},
    },
    ensure::scheme_note,
    memory::Settled,
};
use crate::{annotations, api::elb::LoadBalancer};

/// What a pass left, and the first trouble that did not keep the rest from being done.
struct Outcome {
    have: Have,
    trouble: CloudResult<()>,
}

impl AwsLoadBalancers {
    /// One pass. `must_exist` is the update of backends, which never makes a load balancer.
    pub(super) async fn ensure_classic(
        &self,
        service: &Service,
        nodes: &[Arc<Node>],
        must_exist: bool,
    ) -> CloudResult<(LoadBalancerStatus, Vec<Note>)> {
        let request = preflight(service, &self.settings)?;
        let name = &request.name;
        let settled = self.memories.take_classic(name);
        let read_at = settled
            .as_ref()
            .map_or_else(Instant::now, |settled| settled.read_at);
        let mut notes = Vec::new();
        let backends = self
            .backends(&request.node_labels, nodes, &mut notes)
            .await?;
        let likely = !service.ingress().is_empty();
        let heads = &self.classic.observer.heads;
        let elb = self.classic.observer.elb.as_ref();
        let answer = match heads.get(elb, name.as_str(), likely).await {
            Ok(None) if must_exist => {
                Err(CloudError::new(Class::NotFound, "Load balancer not found"))
            }
            Ok(head) => {
                let known = settled.map(|settled| settled.have);
                self.classic_pass(&request, &backends, head, known).await
            }
            Err(error) => Err(error),
        };
        let there = answer
            .as_ref()
            .is_ok_and(|outcome| outcome.have.load_balancer.is_some());
        heads.done(name.as_str(), there).await;
        let Outcome { have, trouble } = match answer {
            Ok(outcome) => outcome,
            Err(error) => {
                // What a failed write did is not known.
                self.vpc.doubt_groups().await;
                return Err(error);
            }
        };
        notes.extend(self.classic_notes(&request, &have));
        let status = have.load_balancer.as_ref().map(classic_status);
        let known = Known {
            attributes: have.attributes,
            tags: have.tags,
            blind_tags: have.blind_tags,
        };
        let settled = Settled {
            have: known,
            read_at,
        };
        self.memories.settle_classic(name, settled);
        trouble?;
        Ok((status.unwrap_or_default(), notes))
    }

    async fn classic_pass(
        &self,
        request: &Request,
        backends: &Backends,
        head: Option<LoadBalancer>,
        known: Option<Known>,
    ) -> CloudResult<Outcome> {
        if head.is_none() {
            self.no_network_one(&request.name).await?;
        }
        let before = head.clone();
        let (subnets, placed) = self.classic_subnets(request, head.as_ref()).await?;
        let registered = head.as_ref().map(|lb| lb.instances.clone());
        let registered = registered.unwrap_or_default();
        let targets = backends.targets(&registered);
        let mut want = desired(request, &self.settings, subnets, targets);
        if want.subnets.is_some() {
            let all = self.vpc.subnets().await?;
            want.zones = all.iter().map(|s| (s.id.clone(), s.zone.clone())).collect();
        }
        let written = self
            .memories
            .read(&request.name, |m| m.written_keys.clone());
        let observer = &self.classic.observer;
        let have = observer.rest(head, &want, known.as_ref(), written).await?;
        let entrance = Want {
            phase: Phase::Entrance,
            ..want.clone()
        };
        let have = self.converge_classic(&entrance, have).await?;
        // The Nodes let in the traffic of a security group before the load balancer gets it, and
        // shut out that of another one when it is gone.
        let (doors, opened) = self.open_doors(request, &want, &have, backends).await?;
        let swaps = doors.as_ref().zip(before.as_ref());
        let swaps = swaps.is_some_and(|(doors, before)| {
            let attached = &before.security_groups;
            !attached.is_empty() && !attached.contains(&doors.source)
        });
        let opened = if swaps {
            opened?;
            Ok(())
        } else {
            opened
        };
        if let Err(error) = &opened {
            tracing::warn!(load_balancer = %request.name, %error, "not every node lets traffic in");
        }
        let mut have = self.converge_classic(&want, have).await?;
        have.written_keys = want.new.tags.keys().cloned().collect();
        self.memories.write(&request.name, |memory| {
            memory.written_keys.clone_from(&have.written_keys);
        });
        let shut = match &opened {
            Ok(()) => {
                self.shut_doors(request, &want, &have, doors, before.as_ref())
                    .await
            }
            Err(_) => Ok(()),
        };
        let placed = placed.and_then(|()| is_placed(&want, &have));
        Ok(Outcome {
            have,
            trouble: opened.and(placed).and(shut),
        })
    }

    async fn converge_classic(&self, want: &Want, have: Have) -> CloudResult<Have> {
        let name = want.new.name.as_str();
        let apply = |action: Action| self.classic.applier.apply(name, action);
        converge::<Clb, CloudError, _, _>(want, have, apply)
            .await
            .map_err(|error| match error {
                ConvergeError::Action(error) => error,
                ConvergeError::Endless { .. } => CloudError::transient(error.to_string()),
            })
    }

    /// The subnets, `None` when those of an existing load balancer are right. That they cannot be
    /// told keeps a new one from being made and is trouble of an existing one, which keeps what it
    /// has.
    async fn classic_subnets(
        &self,
        request: &Request,
        head: Option<&LoadBalancer>,
    ) -> CloudResult<(Option<BTreeSet<String>>, CloudResult<()>)> {
        let none = BTreeSet::new();
        let attached = head.map_or(&none, |lb| &lb.subnets);
        if head.is_some() {
            let chosen = self.chosen(request, attached).await;
            if chosen.is_ok_and(|chosen| chosen == *attached) {
                return Ok((None, Ok(())));
            }
        }
        // What was read of the network a while ago must not move a load balancer.
        self.vpc.renew_for_placement().await;
        match self.chosen(request, attached).await {
            Ok(chosen) => Ok((Some(chosen), Ok(()))),
            Err(error) if head.is_some() => Ok((None, Err(error))),
            Err(error) => Err(error),
        }
    }

    async fn chosen(
        &self,
        request: &Request,
        attached: &BTreeSet<String>,
    ) -> CloudResult<BTreeSet<String>> {
        let names = request.subnets.as_ref();
        let chosen = self
            .choose_subnets(names, request.internal, attached)
            .await?;
        Ok(chosen.into_iter().map(|subnet| subnet.id).collect())
    }

    fn classic_notes(&self, request: &Request, have: &Have) -> Vec<Note> {
        let lb = have.load_balancer.as_ref();
        let mut notes = Vec::new();
        notes.extend(lb.and_then(|lb| scheme_note(&lb.scheme, request.internal)));
        let refused = have.refused.iter().map(String::as_str).collect();
        notes.extend(self.refused_note("InvalidInstance", &refused));
        notes
    }
}

/// That a single subnet cannot be replaced by another one of its zone is trouble too.
fn is_placed(want: &Want, have: &Have) -> CloudResult<()> {
    let (Some(wanted), Some(lb)) = (&want.subnets, &have.load_balancer) else {
        return Ok(());
    };
    if *wanted == lb.subnets {
        return Ok(());
    }
    let list = |ids: &BTreeSet<String>| ids.iter().cloned().collect::<Vec<_>>().join(", ");
    Err(CloudError::new(
        Class::Conflict,
        format!(
            "the load balancer stays in subnet {}: AWS keeps the last subnet and takes one a zone, \
             so {} cannot replace it; add a subnet of another zone, e.g. with the annotation {}",
            list(&lb.subnets),
            list(wanted),
            annotations::SUBNETS.key
        ),
    ))
}
