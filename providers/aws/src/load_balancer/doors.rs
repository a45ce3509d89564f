//! The Nodes' side of a classic load balancer: its security group is let in before it has it, and
//! one that it had before is shut out afterwards and deleted if it was made for it.

use std::collections::BTreeSet;

use ccm_core::cloud::{CloudResult, LoadBalancerName};

use super::{
    AwsLoadBalancers,
    backends::Backends,
    clb::{
        desired::{FirstGroups, Want},
        groups::{is_made, sorted},
        plan::Have,
        request::Request,
    },
    own_groups::IN_USE_RETRY,
};
use crate::api::elb::LoadBalancer;

/// The Nodes' side of a load balancer.
pub(super) struct Doors {
    /// The security group whose traffic they let in.
    pub source: String,
    /// Whether it was made for this load balancer.
    is_own: bool,
    /// The groups of the Nodes.
    groups: BTreeSet<String>,
    /// Whether a group that is not listed may be in use all the same.
    has_hidden: bool,
}

impl AwsLoadBalancers {
    /// Lets the load balancer in, where the Nodes' groups are ours to write.
    pub(super) async fn open_doors(
        &self,
        request: &Request,
        want: &Want,
        have: &Have,
        backends: &Backends,
    ) -> CloudResult<(Option<Doors>, CloudResult<()>)> {
        if self.settings.disable_node_rules {
            return Ok((None, Ok(())));
        }
        let managed = have.managed_group.as_ref().map(|group| group.id.as_str());
        let source = want.groups(managed).and_then(|ids| ids.into_iter().next());
        let (Some(source), Some(lb)) = (source, &have.load_balancer) else {
            return Ok((None, Ok(())));
        };
        let mut side = self.node_side(backends, &lb.instances).await?;
        // The group of the cloud config is the user's, also where a Node has it.
        if let Some(group) = &self.settings.elb_security_group {
            side.groups.remove(group);
        }
        let opened = self
            .nodes
            .let_in(&request.name, &source, &side.groups)
            .await;
        let doors = Doors {
            source,
            is_own: matches!(want.first_groups, FirstGroups::Managed { .. }),
            groups: side.groups,
            has_hidden: side.has_hidden,
        };
        Ok((Some(doors), side.odd.and(opened)))
    }

    /// Removes what is not needed any more: rules in groups that no Node uses, those of a security
    /// group that the load balancer had before, and that group itself if it was made for it.
    pub(super) async fn shut_doors(
        &self,
        request: &Request,
        want: &Want,
        have: &Have,
        doors: Option<Doors>,
        before: Option<&LoadBalancer>,
    ) -> CloudResult<()> {
        let name = &request.name;
        let managed = have.managed_group.as_ref().map(|group| group.id.as_str());
        let wanted: BTreeSet<String> = want.groups(managed).into_iter().flatten().collect();
        let mut candidates = self.memories.read(name, |m| m.detached.clone());
        candidates.extend(
            self.former_source(request, doors.as_ref(), before, &wanted)
                .await?,
        );
        candidates.retain(|id| !wanted.contains(id));
        // A group that could not be cleaned up is not attached any more: nobody else knows it.
        self.memories
            .write(name, |memory| memory.detached.clone_from(&candidates));
        if let Some(doors) = doors.filter(|doors| !doors.has_hidden) {
            self.shut(name, &doors.source, &doors.groups, doors.is_own)
                .await?;
            self.nodes.settle_entrance(name, &doors.groups);
        }
        let trouble = self.retire_classic(request, &wanted, candidates).await;
        self.retry_soon(name, trouble)
    }

    /// The security groups that the load balancer had before and that may be the source of rules,
    /// or were made for it.
    async fn former_source(
        &self,
        request: &Request,
        doors: Option<&Doors>,
        before: Option<&LoadBalancer>,
        wanted: &BTreeSet<String>,
    ) -> CloudResult<BTreeSet<String>> {
        let tagged = self.vpc.tagged_groups().await?;
        let ours = |id: &str| {
            let group = tagged.get(id);
            group.is_some_and(|group| is_made(group, &request.name, &self.settings.tags))
        };
        let attached = before.map(|lb| lb.security_groups.as_slice());
        let attached = attached.unwrap_or_default();
        let mut found: BTreeSet<String> = attached.iter().filter(|id| ours(id)).cloned().collect();
        // A process that died after the swap left the group under its computed name.
        found.extend(
            tagged
                .values()
                .filter(|group| group.name == request.group && ours(&group.id))
                .map(|group| group.id.clone()),
        );
        if doors.is_some_and(|doors| !attached.contains(&doors.source)) {
            let gone: Vec<String> = attached
                .iter()
                .filter(|id| !wanted.contains(*id))
                .cloned()
                .collect();
            let first = sorted(
                &gone,
                &request.security_groups,
                &request.extra_security_groups,
                |id| tagged.contains_key(id),
            );
            found.extend(first.into_iter().next().cloned());
        }
        Ok(found)
    }

    /// Cleans up after groups that are not attached any more. Every one is tried.
    async fn retire_classic(
        &self,
        request: &Request,
        wanted: &BTreeSet<String>,
        candidates: BTreeSet<String>,
    ) -> CloudResult<()> {
        let name = &request.name;
        let mut left = BTreeSet::new();
        let mut trouble = Ok(());
        for id in candidates {
            let tagged = self.vpc.tagged_groups().await?;
            let is_config = self.settings.elb_security_group.as_ref() == Some(&id);
            let ours = tagged
                .get(&id)
                .is_some_and(|group| is_made(group, name, &self.settings.tags));
            let answer = if ours && !is_config && !wanted.contains(&id) {
                self.groups.retire(&id).await
            } else if self.settings.disable_node_rules {
                Ok(())
            } else {
                self.shut(name, &id, &BTreeSet::new(), false).await
            };
            if let Err(error) = answer {
                tracing::warn!(group = %id, %error, "detached security group is not cleaned up yet");
                left.insert(id);
                trouble = trouble.and(Err(error));
            }
        }
        if trouble.is_err() {
            // Somebody may have made a rule that holds the group since it was read.
            self.vpc.doubt_groups().await;
        }
        self.memories.write(name, |memory| memory.detached = left);
        trouble.map_err(|error| {
            error.map_message(|inner| format!("error removing owned security groups: [{inner}]"))
        })
    }

    /// A security group that is still in use is tried again soon, and after a while only by passes
    /// that come anyway: the load balancer itself is fine.
    fn retry_soon(&self, name: &LoadBalancerName, trouble: CloudResult<()>) -> CloudResult<()> {
        match trouble {
            Err(error) if error.code() == Some("DependencyViolation") => {
                if self.memories.may_retry_soon(name) {
                    return Err(error.retry_in(IN_USE_RETRY));
                }
                Ok(())
            }
            Ok(()) => {
                self.memories.is_let_go(name);
                Ok(())
            }
            trouble => trouble,
        }
    }

    /// Removes rules that let a source in for nobody. One that is not this load balancer's own may
    /// be that of others too: they are asked for before anything is removed.
    pub(super) async fn shut(
        &self,
        name: &LoadBalancerName,
        source: &str,
        keep: &BTreeSet<String>,
        is_own: bool,
    ) -> CloudResult<()> {
        let tagged = self.vpc.tagged_groups().await?;
        let mut rules = self.nodes.needless(name, source, keep, &tagged);
        if let Some(group) = &self.settings.elb_security_group {
            rules.remove(group);
        }
        if rules.is_empty() || !is_own && self.is_used_by_others(name, source).await? {
            return Ok(());
        }
        self.nodes.shut(name, rules).await
    }

    /// Whether another classic load balancer, of whose Nodes nothing is known yet, has the group.
    pub(super) async fn is_used_by_others(
        &self,
        name: &LoadBalancerName,
        source: &str,
    ) -> CloudResult<bool> {
        let all = self.classic.observer.elb.all_load_balancers().await?;
        Ok(all.iter().any(|lb| {
            lb.name != name.as_str()
                && lb.security_groups.iter().any(|id| id == source)
                && !self.nodes.knows_entrance(&lb.name)
        }))
    }
}
