//! What the cloud has of a Service's network load balancer: reads only.
//!
//! A pass that follows a complete one reads load balancer, listeners and target groups, and takes
//! targets, attributes and tags from what the pass before left; what is asked to change is read
//! again. From time to time everything is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_core::cloud::{Class, CloudError, CloudResult};
use futures::future::{try_join, try_join_all};

use super::{
    desired::{KIND, SecurityGroups, Want},
    listing::Listing,
    plan::{Have, HaveTargetGroup},
};
use crate::{
    api::{
        elbv2::{Elbv2Api, Listener, LoadBalancer, Target, TargetGroup},
        network::{Groups, NetworkApi, SecurityGroup},
    },
    load_balancer::{node_groups::Optional, quoted, vpc::VpcSnapshot},
    names::NLB_SECURITY_GROUP_DESCRIPTION,
    tags::{ClusterTags, Lifecycle, SERVICE_NAME, Tags},
};

/// Characters of the hash at the end of a computed name.
const HASH: usize = 10;

/// The network load balancer's head: itself, its listeners and target groups.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The load balancer.
    pub load_balancer: Option<LoadBalancer>,
    /// Its listeners.
    pub listeners: Vec<Listener>,
    /// Its target groups.
    pub target_groups: Vec<TargetGroup>,
}

/// Who reads.
#[derive(Clone)]
pub struct Observer {
    /// Load balancers.
    pub elb: Arc<dyn Elbv2Api>,
    /// Security groups.
    pub network: Arc<dyn NetworkApi>,
    /// What all Services share.
    pub vpc: Arc<VpcSnapshot>,
    /// The cluster's identity.
    pub tags: ClusterTags,
    /// Reading tags needs a permission of its own.
    pub read_tags: Arc<Optional>,
    /// All target groups, shared by all Services.
    pub listing: Arc<Listing>,
}

impl Observer {
    /// The load balancer of that name.
    ///
    /// # Errors
    /// The name belongs to a load balancer of another type.
    pub async fn load_balancer(&self, name: &str) -> CloudResult<Option<LoadBalancer>> {
        let found = self.elb.load_balancer(name).await.map_err(|e| {
            quoted("error describing load balancer", e)
                .context(format!("error describing load balancer {name}"))
        })?;
        match found {
            Some(lb) if lb.kind != KIND => Err(CloudError::new(
                Class::Conflict,
                format!(
                    "NLB '{name}' could not be found: the name belongs to a load balancer of type \
                     {}",
                    lb.kind
                ),
            )),
            found => Ok(found),
        }
    }

    /// Load balancer, listeners and target groups: three calls.
    ///
    /// # Errors
    /// The cloud could not be asked, or the name belongs to another type.
    pub async fn head(&self, name: &str) -> CloudResult<Head> {
        let Some(lb) = self.load_balancer(name).await? else {
            return Ok(Head::default());
        };
        let listeners = async {
            let found = self.elb.listeners(&lb.arn).await;
            found.map_err(|e| quoted("error describing listeners", e))
        };
        let target_groups = async {
            let found = self.elb.target_groups_of(&lb.arn).await;
            found.map_err(|e| quoted("error listing target groups", e))
        };
        let (listeners, target_groups) = try_join(listeners, target_groups).await?;
        Ok(Head {
            load_balancer: Some(lb),
            listeners,
            target_groups,
        })
    }

    /// Everything else that the desired state speaks of. `known` is what a complete pass left.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn rest(&self, head: Head, want: &Want, known: Option<&Have>) -> CloudResult<Have> {
        let Head {
            load_balancer,
            listeners,
            mut target_groups,
        } = head;
        let own = load_balancer.as_ref().map(|lb| lb.arn.as_str());
        target_groups.extend(self.unattached(&target_groups, want, own).await?);
        if known.is_none() {
            let orphans = self.orphans(want, &target_groups).await?;
            target_groups.extend(orphans);
        }
        let groups = target_groups
            .into_iter()
            .map(|group| self.target_group(group, want, known));
        let target_groups: BTreeMap<String, HaveTargetGroup> = try_join_all(groups)
            .await?
            .into_iter()
            .flatten()
            .map(|found| (found.group.arn.clone(), found))
            .collect();
        let listeners: BTreeMap<String, Listener> = listeners
            .into_iter()
            .map(|listener| (listener.arn.clone(), listener))
            .collect();
        let (managed_group, managed_group_lacks) =
            self.managed_group(want, load_balancer.as_ref()).await?;
        let mut have = Have {
            attributes: self.attributes(load_balancer.as_ref(), known).await?,
            load_balancer,
            managed_group,
            managed_group_lacks,
            target_groups,
            listeners,
            tags: BTreeMap::new(),
            written_keys: BTreeSet::new(),
        };
        have.tags = self.resource_tags(&have, known).await?;
        Ok(have)
    }

    /// Target groups of desired names that no listener forwards to yet. `own` is our load
    /// balancer's ARN.
    async fn unattached(
        &self,
        attached: &[TargetGroup],
        want: &Want,
        own: Option<&str>,
    ) -> CloudResult<Vec<TargetGroup>> {
        let names: BTreeSet<&str> = want
            .ports
            .iter()
            .map(|port| port.port.target_group.as_str())
            .filter(|name| attached.iter().all(|group| group.name != *name))
            .collect();
        let found = names
            .into_iter()
            .map(|name| self.elb.target_group_named(name));
        let found = try_join_all(found)
            .await
            .map_err(|e| quoted("error listing target groups", e))?;
        let found: Vec<TargetGroup> = found.into_iter().flatten().collect();
        for group in &found {
            let foreign = group
                .load_balancers
                .iter()
                .find(|arn| Some(arn.as_str()) != own && !is_named(arn, &want.new.name));
            if let Some(foreign) = foreign {
                return Err(CloudError::new(
                    Class::Conflict,
                    format!(
                        "target group {} cannot be used: load balancer {foreign} forwards to it; \
                         detach it there or delete it",
                        group.name
                    ),
                ));
            }
        }
        Ok(found)
    }

    /// `None` for one that nothing forwards to and that is gone since it was listed.
    async fn target_group(
        &self,
        group: TargetGroup,
        want: &Want,
        known: Option<&Have>,
    ) -> CloudResult<Option<HaveTargetGroup>> {
        let unattached = group.load_balancers.is_empty();
        match self.details(group, want, known).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if unattached && error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn details(
        &self,
        group: TargetGroup,
        want: &Want,
        known: Option<&Have>,
    ) -> CloudResult<HaveTargetGroup> {
        let known = known.and_then(|known| known.target_groups.get(&group.arn));
        let wanted: BTreeSet<Target> = want
            .instances
            .iter()
            .map(|id| Target {
                id: id.clone(),
                port: group.port,
            })
            .collect();
        let settled = known.filter(|known| {
            known.targets == wanted
                || known
                    .limit
                    .is_some_and(|limit| known.targets.len() == limit)
                    && known.targets.is_subset(&wanted)
        });
        let targets = match settled {
            Some(known) => known.targets.clone(),
            None => {
                let found = self.elb.targets(&group.arn).await;
                found.map_err(|e| quoted("error describing target group health", e))?
            }
        };
        let attributes = match known.and_then(|known| known.attributes.clone()) {
            None if !want.target_group_attributes.is_empty() => {
                let found = self.elb.target_group_attributes(&group.arn).await;
                let error = |e| quoted("error reconciling target group attributes", e);
                Some(found.map_err(error)?)
            }
            known => known,
        };
        let limit = known.and_then(|known| known.limit);
        Ok(HaveTargetGroup {
            group,
            targets,
            attributes,
            limit,
            refused: BTreeSet::new(),
        })
    }

    async fn attributes(
        &self,
        lb: Option<&LoadBalancer>,
        known: Option<&Have>,
    ) -> CloudResult<Option<crate::api::elbv2::Attributes>> {
        let Some(lb) = lb else {
            return Ok(None);
        };
        let same = |known: &&Have| {
            known
                .load_balancer
                .as_ref()
                .is_some_and(|k| k.arn == lb.arn)
        };
        if let Some(attributes) = known
            .filter(same)
            .and_then(|known| known.attributes.clone())
        {
            return Ok(Some(attributes));
        }
        let found = self.elb.load_balancer_attributes(&lb.arn).await;
        found.map(Some).map_err(|e| {
            quoted(
                "unable to retrieve load balancer attributes during attribute sync",
                e,
            )
        })
    }

    async fn resource_tags(
        &self,
        have: &Have,
        known: Option<&Have>,
    ) -> CloudResult<BTreeMap<String, Tags>> {
        let lb = have.load_balancer.iter().map(|lb| &lb.arn);
        let arns = lb
            .chain(have.target_groups.keys())
            .chain(have.listeners.keys());
        let mut tags: BTreeMap<String, Tags> = BTreeMap::new();
        let mut unknown = BTreeSet::new();
        for arn in arns {
            match known.and_then(|known| known.tags.get(arn)) {
                Some(known) => {
                    tags.insert(arn.clone(), known.clone());
                }
                None => {
                    unknown.insert(arn.clone());
                }
            }
        }
        if !unknown.is_empty() && self.read_tags.is_allowed() {
            let answer = self.elb.resource_tags(&unknown).await;
            tags.extend(
                self.read_tags
                    .check("DescribeTags", answer)?
                    .unwrap_or_default(),
            );
        }
        Ok(tags)
    }

    /// The managed security group: the attached one of ours, whatever its name, else the one of the
    /// computed name.
    async fn managed_group(
        &self,
        want: &Want,
        lb: Option<&LoadBalancer>,
    ) -> CloudResult<(Option<SecurityGroup>, Tags)> {
        let SecurityGroups::Managed { new, .. } = &want.security_groups else {
            return Ok((None, Tags::new()));
        };
        let tagged = self.vpc.tagged_groups().await?;
        let attached = lb.into_iter().flat_map(|lb| &lb.security_groups);
        let ours = attached
            .filter_map(|id| tagged.get(id))
            .find(|group| group.name == new.name || self.is_managed(group, &new.name));
        let named = || tagged.values().find(|group| group.name == new.name);
        if let Some(group) = ours.or_else(named) {
            return Ok((Some(group.clone()), self.lacks(group)?));
        }
        let which = Groups::Named {
            vpc: &new.vpc_id,
            name: &new.name,
        };
        let found = self
            .network
            .security_groups(&which)
            .await
            .map_err(ensuring)?;
        let Some(group) = found.into_iter().next() else {
            return Ok((None, Tags::new()));
        };
        let lacks = self.lacks(&group)?;
        Ok((Some(group), lacks))
    }

    fn lacks(&self, group: &SecurityGroup) -> CloudResult<Tags> {
        self.tags
            .missing(&group.id, Lifecycle::Owned, &group.tags)
            .map_err(ensuring)
    }

    /// Whether the group was made for this Service under another `--cluster-name`: owned, with our
    /// description, its name equal up to the hash.
    pub fn is_managed(&self, group: &SecurityGroup, name: &str) -> bool {
        group.description == NLB_SECURITY_GROUP_DESCRIPTION
            && group.name.starts_with(stem(name))
            && self.is_owned(group)
    }

    /// Whether the group is the cluster's alone.
    pub fn is_owned(&self, group: &SecurityGroup) -> bool {
        self.tags
            .has_cluster_tag_owned(&group.tags)
            .unwrap_or(false)
    }

    /// Whether the tags say that a load balancer or target group was made for this Service.
    pub fn is_of_service(&self, tags: &Tags, service: &str) -> bool {
        tags.get(SERVICE_NAME).is_some_and(|value| value == service)
            && self.tags.has_cluster_tag(tags)
    }
}

/// A computed name without its hash.
pub(super) fn stem(name: &str) -> &str {
    name.get(..name.len().saturating_sub(HASH)).unwrap_or(name)
}

/// Whether the ARN is of a network load balancer of that name, be it one that was deleted.
pub(super) fn is_named(arn: &str, load_balancer: &str) -> bool {
    arn.contains(&format!("/net/{load_balancer}/"))
}

fn ensuring(error: CloudError) -> CloudError {
    error.context("error ensuring NLB security group")
}
