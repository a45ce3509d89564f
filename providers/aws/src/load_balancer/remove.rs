//! The pass that removes everything of a Service, and the question whether something is left.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::{
    cloud::{CloudError, CloudResult, LoadBalancerName},
    converge::{ConvergeError, converge},
    kube::{LoadBalancerStatus, Service},
};

use super::{
    AwsLoadBalancers,
    classic_rules::{entrances, refers_to},
    classic_status,
    clb::groups::{is_made, sorted},
    gone_is_done,
    nlb::{desired::KIND, listing::Removed},
    other_kind::tolerated,
    own_groups::IN_USE_RETRY,
    preflight, quoted,
    removal::{Leftovers, Removal, Remove},
    status_of,
    vpc::GroupMap,
};
use crate::{
    annotations::{self, Annotation, Flavour},
    api::{elb, elbv2::LoadBalancer, network::Rule},
    names::{NLB_SECURITY_GROUP_DESCRIPTION, classic_security_group},
    tags::Tags,
};

/// What is there under the computed name.
struct Heads {
    network: Holder,
    /// The Service's classic load balancer.
    classic: Option<elb::LoadBalancer>,
}

impl Heads {
    fn network(&self) -> Option<&LoadBalancer> {
        match &self.network {
            Holder::Own(lb) => Some(lb),
            Holder::Nobody | Holder::Foreign(_) => None,
        }
    }
}

/// Whose the network load balancer of the computed name is.
enum Holder {
    /// There is none.
    Nobody,
    /// The Service's.
    Own(LoadBalancer),
    /// Someone else's, with this ARN.
    Foreign(String),
}

/// The tags of a load balancer that was just found. That there are none means that it vanished in
/// between or is not shown to every call yet, not that it is someone else's.
///
/// # Errors
/// It is to be looked up again.
pub(super) fn shown<'a>(
    tags: &'a BTreeMap<String, Tags>,
    lb: &LoadBalancer,
) -> CloudResult<&'a Tags> {
    tags.get(&lb.arn).ok_or_else(|| {
        CloudError::transient(format!(
            "the tags of load balancer {} are not shown: it was made or deleted just now",
            lb.name
        ))
    })
}

impl AwsLoadBalancers {
    /// The status while anything is left.
    pub(super) async fn find(&self, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        let name = preflight::name(service)?;
        // The kind that is annotated is looked up first: it is there nearly always.
        let asked = annotations::flavour(service) == Flavour::Classic;
        let mut classic = None;
        if asked {
            classic = self.classic_holder(service, &name).await?;
            if let Some(lb) = &classic {
                return Ok(Some(classic_status(lb)));
            }
        }
        let network = self.holder(service, &name).await?;
        if let Holder::Own(lb) = &network {
            return Ok(Some(status_of(lb)));
        }
        if !asked {
            classic = self.classic_holder(service, &name).await?;
        }
        let heads = Heads { network, classic };
        if let Some(lb) = &heads.classic {
            return Ok(Some(classic_status(lb)));
        }
        let leftovers = self.leftovers(service, &name, &heads).await?;
        Ok((!leftovers.is_empty()).then(LoadBalancerStatus::default))
    }

    /// Removes everything.
    pub(super) async fn remove(&self, service: &Service) -> CloudResult<()> {
        let name = preflight::name(service)?;
        let heads = Heads {
            network: self.holder(service, &name).await?,
            classic: self.classic_holder(service, &name).await?,
        };
        let leftovers = self.leftovers(service, &name, &heads).await?;
        self.memories.write(&name, |memory| {
            memory
                .deleting
                .extend(leftovers.security_groups.iter().cloned());
        });
        let groups = leftovers.security_groups.clone();
        let apply = |removal: Removal| self.carry_out(removal, &name);
        let answer = converge::<Remove, CloudError, _, _>(&(), leftovers, apply).await;
        // Other Services must not take up a target group that is gone.
        self.observer.listing.doubt().await;
        self.classic.observer.heads.forget(name.as_str()).await;
        match answer {
            Ok(_) => {
                self.nodes.forget(&name);
                self.memories.forget(&name);
                Ok(())
            }
            Err(error) => {
                self.vpc.doubt_groups().await;
                Err(self.explain(service, &name, &groups, error))
            }
        }
    }

    async fn carry_out(&self, removal: Removal, name: &LoadBalancerName) -> CloudResult<()> {
        match removal {
            Removal::LoadBalancer(arn) => {
                self.applier.delete_load_balancer(&arn, name.as_str()).await
            }
            Removal::TargetGroup(arn) => {
                let answer = self.applier.delete_target_group(&arn).await;
                answer.map_err(|e| {
                    quoted(
                        "error deleting target groups after deleting load balancer",
                        e,
                    )
                })
            }
            Removal::NodeRules(group, plan) => {
                let answer = self.nodes.clean_one(name, group, plan).await;
                answer.map_err(|e| e.context("error deleting instance security group rules"))
            }
            Removal::ClassicRules(group, rules) => {
                self.nodes
                    .shut(name, BTreeMap::from([(group, rules)]))
                    .await
            }
            Removal::Classic(lb) => {
                let elb = &self.classic.applier.elb;
                gone_is_done(elb.delete_load_balancer(&lb).await)
            }
            Removal::SecurityGroup(id) => self.groups.delete(&id).await,
        }
    }

    fn explain(
        &self,
        service: &Service,
        name: &LoadBalancerName,
        groups: &BTreeSet<String>,
        error: ConvergeError<CloudError>,
    ) -> CloudError {
        let error = match error {
            ConvergeError::Action(error) => error,
            ConvergeError::Endless { .. } => return CloudError::transient(error.to_string()),
        };
        if error.code() != Some("DependencyViolation") {
            return error;
        }
        let soon = self.memories.may_retry_soon(name);
        let text = |inner: &str| {
            let ids: Vec<&str> = groups.iter().map(String::as_str).collect();
            format!(
                "could not delete security groups [{}] for Load Balancer {:?}: still in use: {inner}",
                ids.join(" "),
                service.name()
            )
        };
        if soon {
            return error.map_message(text).retry_in(IN_USE_RETRY);
        }
        // Without the exact wait: the ordinary back-off.
        CloudError::new(error.class(), text(&error.to_string())).with_code("DependencyViolation")
    }

    /// Whose the load balancer of the name is. Without the annotation it is the Service's only if its
    /// tags say so: the name could belong to anything.
    async fn holder(&self, service: &Service, name: &LoadBalancerName) -> CloudResult<Holder> {
        if annotations::flavour(service) == Flavour::Network {
            let found = self.observer.load_balancer(name.as_str()).await?;
            return Ok(found.map_or(Holder::Nobody, Holder::Own));
        }
        let found = self.observer.elb.load_balancer(name.as_str()).await;
        let found = tolerated("network", found)?;
        let Some(lb) = found.filter(|lb| lb.kind == KIND) else {
            return Ok(Holder::Nobody);
        };
        if !self.observer.read_tags.is_allowed() {
            return Ok(Holder::Own(lb));
        }
        let answer = self
            .observer
            .elb
            .resource_tags(&BTreeSet::from([lb.arn.clone()]))
            .await;
        let tags = self.observer.read_tags.check("DescribeTags", answer)?;
        let key = preflight::service_key(service);
        let ours = match tags {
            Some(tags) => self.observer.is_of_service(shown(&tags, &lb)?, &key),
            None => true,
        };
        Ok(if ours {
            Holder::Own(lb)
        } else {
            Holder::Foreign(lb.arn)
        })
    }

    /// The Service's classic load balancer. Under another annotation it is the Service's only if its
    /// tags say so, as above.
    async fn classic_holder(
        &self,
        service: &Service,
        name: &LoadBalancerName,
    ) -> CloudResult<Option<elb::LoadBalancer>> {
        let found = self.classic.observer.find(name.as_str()).await;
        if annotations::flavour(service) == Flavour::Classic {
            return found;
        }
        let Some(lb) = tolerated("classic", found)? else {
            return Ok(None);
        };
        let read_tags = &self.classic.observer.read_tags;
        if !read_tags.is_allowed() {
            return Ok(Some(lb));
        }
        let answer = self.classic.observer.elb.tags(name.as_str()).await;
        let key = preflight::service_key(service);
        let ours = match read_tags.check("DescribeTags", answer)? {
            Some(tags) => self.observer.is_of_service(&tags, &key),
            None => true,
        };
        Ok(Some(lb).filter(|_| ours))
    }

    async fn leftovers(
        &self,
        service: &Service,
        name: &LoadBalancerName,
        heads: &Heads,
    ) -> CloudResult<Leftovers> {
        let foreign = match &heads.network {
            Holder::Foreign(arn) => Some(arn.as_str()),
            Holder::Nobody | Holder::Own(_) => None,
        };
        let managed = preflight::managed_group(service, &self.settings);
        // Only needed where tags cannot be read; a Service that does not pass has made nothing now.
        let names = preflight::preflight(service, &self.settings)
            .map(|request| {
                request
                    .ports
                    .into_iter()
                    .map(|port| port.target_group)
                    .collect()
            })
            .unwrap_or_default();
        let arn = heads.network().map(|lb| lb.arn.as_str());
        let key = preflight::service_key(service);
        let removed = Removed {
            name: name.as_str(),
            load_balancer: arn,
            foreign,
            managed_group: &managed,
            service: &key,
        };
        let target_groups = self.observer.all_target_groups(&removed, &names).await;
        let target_groups = if annotations::flavour(service) == Flavour::Classic {
            tolerated("network", target_groups)?
        } else {
            target_groups?
        };
        let all = self.nodes.all().await?;
        let node_rules = if self.settings.disable_node_rules {
            BTreeMap::new()
        } else {
            let own_ports = preflight::own_ports(service);
            self.nodes.leftovers(name, &own_ports, &all)
        };
        let security_groups = self.security_groups(service, name, heads, &all)?;
        Ok(Leftovers {
            load_balancer: arn.map(str::to_owned),
            target_groups,
            node_rules,
            classic_rules: self
                .classic_rules(
                    service,
                    name,
                    heads.classic.as_ref(),
                    &all,
                    &security_groups,
                )
                .await?,
            classic: heads.classic.as_ref().map(|lb| lb.name.clone()),
            security_groups,
        })
    }

    /// The rules that let a classic load balancer in: from a group that is to be deleted wherever
    /// they are, also such of others in the cluster's groups, because they mean nothing without it;
    /// from a group of the user's only ours, and only if nobody else needs it.
    async fn classic_rules(
        &self,
        service: &Service,
        name: &LoadBalancerName,
        lb: Option<&elb::LoadBalancer>,
        all: &GroupMap,
        deleted: &BTreeSet<String>,
    ) -> CloudResult<BTreeMap<String, BTreeSet<Rule>>> {
        let mut found: BTreeMap<String, BTreeSet<Rule>> = BTreeMap::new();
        if self.settings.disable_node_rules {
            return Ok(found);
        }
        let is_tagged = |id: &str| {
            let group = all.get(id);
            group.is_some_and(|group| self.settings.tags.has_cluster_tag(&group.tags))
        };
        let made = deleted.iter().filter(|id| {
            let group = all.get(*id);
            group.is_some_and(|group| is_made(group, name, &self.settings.tags))
        });
        for id in made {
            for holder in all.values().filter(|holder| holder.id != *id) {
                let rules = if is_tagged(&holder.id) {
                    let rules = holder.rules.keys().filter(|rule| refers_to(rule, id));
                    rules.cloned().collect()
                } else {
                    entrances(&holder.rules, id)
                };
                found.entry(holder.id.clone()).or_default().extend(rules);
            }
        }
        let attached = lb.map(|lb| lb.security_groups.as_slice());
        let annotated = list(&annotations::SECURITY_GROUPS, service)?;
        let extra = list(&annotations::EXTRA_SECURITY_GROUPS, service)?;
        let first = sorted(attached.unwrap_or_default(), &annotated, &extra, is_tagged);
        // One that it had before may not be cleaned up yet.
        let mut sources = self.memories.read(name, |m| m.detached.clone());
        sources.extend(first.into_iter().next().cloned());
        sources.retain(|id| !deleted.contains(id));
        for (holder, rules) in self.users_entrances(name, &sources, all).await? {
            found.entry(holder).or_default().extend(rules);
        }
        if let Some(group) = &self.settings.elb_security_group {
            found.remove(group);
        }
        found.retain(|_, rules| !rules.is_empty());
        Ok(found)
    }

    /// The rules in the cluster's groups that let users' groups in for nobody else.
    async fn users_entrances(
        &self,
        name: &LoadBalancerName,
        sources: &BTreeSet<String>,
        all: &GroupMap,
    ) -> CloudResult<BTreeMap<String, BTreeSet<Rule>>> {
        let tagged: GroupMap = all
            .iter()
            .filter(|(_, group)| self.settings.tags.has_cluster_tag(&group.tags))
            .map(|(id, group)| (id.clone(), group.clone()))
            .collect();
        let mut found: BTreeMap<String, BTreeSet<Rule>> = BTreeMap::new();
        for source in sources {
            let rules = self.nodes.needless(name, source, &BTreeSet::new(), &tagged);
            if rules.is_empty() || self.is_used_by_others(name, source).await? {
                continue;
            }
            for (holder, rules) in rules {
                found.entry(holder).or_default().extend(rules);
            }
        }
        Ok(found)
    }

    /// Attached groups, the one of the computed name, and those that an earlier try could not
    /// delete: as far as they were made for a load balancer, are owned by the cluster and not the
    /// user's. The tag alone does not make a group ours: users tag their own so.
    fn security_groups(
        &self,
        service: &Service,
        name: &LoadBalancerName,
        heads: &Heads,
        all: &GroupMap,
    ) -> CloudResult<BTreeSet<String>> {
        let mut candidates: BTreeSet<String> = self
            .memories
            .read(name, |m| m.deleting.union(&m.detached).cloned().collect());
        let network = heads.network().map(|lb| &lb.security_groups);
        let classic = heads.classic.as_ref().map(|lb| &lb.security_groups);
        candidates.extend(network.into_iter().flatten().cloned());
        candidates.extend(classic.into_iter().flatten().cloned());
        let named = [
            preflight::managed_group(service, &self.settings),
            classic_security_group(name),
        ];
        candidates.extend(
            all.values()
                .filter(|group| named.contains(&group.name))
                .map(|group| group.id.clone()),
        );
        let mut users = list(&annotations::SECURITY_GROUPS, service)?;
        users.extend(list(&annotations::EXTRA_SECURITY_GROUPS, service)?);
        candidates.retain(|id| {
            let Some(group) = all.get(id) else {
                return false;
            };
            if users.contains(id) || self.settings.elb_security_group.as_ref() == Some(id) {
                return false;
            }
            let ours = is_made(group, name, &self.settings.tags)
                || group.description == NLB_SECURITY_GROUP_DESCRIPTION
                    && self.observer.is_owned(group);
            if !ours {
                tracing::warn!(
                    group = %id,
                    "security group is kept: it was not made for a load balancer of the cluster"
                );
            }
            ours
        });
        Ok(candidates)
    }
}

fn list(annotation: &Annotation<Vec<String>>, service: &Service) -> CloudResult<Vec<String>> {
    Ok(annotation.get(service)?.unwrap_or_default())
}
