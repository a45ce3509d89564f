//! The pass that removes everything of a Service, and the question whether something is left.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::{
    cloud::{CloudError, CloudResult, LoadBalancerName},
    converge::{ConvergeError, converge},
    kube::{LoadBalancerStatus, Service},
};

use super::{
    AwsLoadBalancers,
    nlb::{
        apply::IN_USE_RETRY,
        listing::Removed,
        removal::{Leftovers, Removal, Remove},
    },
    preflight, status_of,
    vpc::GroupMap,
};
use crate::{
    annotations::{self, Flavour},
    api::elbv2::LoadBalancer,
    names::NLB_SECURITY_GROUP_DESCRIPTION,
    tags::Tags,
};

/// Whose the load balancer of the computed name is.
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
        let holder = self.holder(service, &name).await?;
        if let Holder::Own(lb) = &holder {
            return Ok(Some(status_of(lb)));
        }
        let leftovers = self.leftovers(service, &name, &holder).await?;
        Ok((!leftovers.is_empty()).then(LoadBalancerStatus::default))
    }

    /// Removes everything.
    pub(super) async fn remove(&self, service: &Service) -> CloudResult<()> {
        let name = preflight::name(service)?;
        let holder = self.holder(service, &name).await?;
        let leftovers = self.leftovers(service, &name, &holder).await?;
        self.memories.write(&name, |memory| {
            memory
                .deleting
                .extend(leftovers.security_groups.iter().cloned());
        });
        let groups = leftovers.security_groups.clone();
        let apply = |removal: Removal| self.applier.remove(removal, &name);
        let answer = converge::<Remove, CloudError, _, _>(&(), leftovers, apply).await;
        // Other Services must not take up a target group that is gone.
        self.observer.listing.doubt().await;
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
        let found = self.observer.elb.load_balancer(name.as_str()).await?;
        let Some(lb) = found.filter(|lb| lb.kind == super::nlb::desired::KIND) else {
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

    async fn leftovers(
        &self,
        service: &Service,
        name: &LoadBalancerName,
        holder: &Holder,
    ) -> CloudResult<Leftovers> {
        let (lb, foreign) = match holder {
            Holder::Nobody => (None, None),
            Holder::Own(lb) => (Some(lb), None),
            Holder::Foreign(arn) => (None, Some(arn.as_str())),
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
        let arn = lb.map(|lb| lb.arn.as_str());
        let key = preflight::service_key(service);
        let removed = Removed {
            name: name.as_str(),
            load_balancer: arn,
            foreign,
            managed_group: &managed,
            service: &key,
        };
        let target_groups = self.observer.all_target_groups(&removed, &names).await?;
        let all = self.nodes.all().await?;
        let node_rules = if self.settings.disable_node_rules {
            BTreeMap::new()
        } else {
            let own_ports = preflight::own_ports(service);
            self.nodes.leftovers(name, &own_ports, &all)
        };
        Ok(Leftovers {
            load_balancer: arn.map(str::to_owned),
            target_groups,
            node_rules,
            security_groups: self.security_groups(service, name, &managed, lb, &all)?,
        })
    }

    /// Attached groups, the one of the computed name, and those that an earlier try could not
    /// delete: as far as they were made for a load balancer, are owned by the cluster and not the
    /// user's. The tag alone does not make a group ours: users tag their own so.
    fn security_groups(
        &self,
        service: &Service,
        name: &LoadBalancerName,
        managed: &str,
        lb: Option<&LoadBalancer>,
        all: &GroupMap,
    ) -> CloudResult<BTreeSet<String>> {
        let mut candidates: BTreeSet<String> = self
            .memories
            .read(name, |m| m.deleting.union(&m.detached).cloned().collect());
        candidates.extend(
            lb.into_iter()
                .flat_map(|lb| lb.security_groups.iter().cloned()),
        );
        candidates.extend(
            all.values()
                .filter(|g| g.name == managed)
                .map(|g| g.id.clone()),
        );
        let users: BTreeSet<String> = [
            &annotations::SECURITY_GROUPS,
            &annotations::EXTRA_SECURITY_GROUPS,
        ]
        .into_iter()
        .map(|annotation| annotation.get(service))
        .collect::<CloudResult<Vec<_>>>()?
        .into_iter()
        .flatten()
        .flatten()
        .collect();
        candidates.retain(|id| {
            let Some(group) = all.get(id) else {
                return false;
            };
            if users.contains(id) || self.settings.elb_security_group.as_ref() == Some(id) {
                return false;
            }
            let ours = group.description == NLB_SECURITY_GROUP_DESCRIPTION
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
