//! What the cloud has of a Service's classic load balancer: reads only.
//!
//! The load balancer itself is read in every pass, together with others. Attributes, and tags where
//! they matter, are taken from what the pass before left; from time to time they are read too.

use std::{collections::BTreeSet, sync::Arc};

use ccm_core::cloud::{CloudError, CloudResult};

use super::{
    desired::{FirstGroups, Want},
    heads::Heads,
    plan::Have,
};
use crate::{
    api::{
        elb::{Attributes, ElbApi, LoadBalancer},
        network::{Groups, NetworkApi, NewSecurityGroup, SecurityGroup},
    },
    load_balancer::{node_groups::Optional, quoted, vpc::VpcSnapshot},
    tags::{ClusterTags, Lifecycle, Tags},
};

/// What a complete pass left of what the load balancer's own description does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Attributes.
    pub attributes: Option<Attributes>,
    /// Tags.
    pub tags: Option<Tags>,
    /// Tags written where they cannot be read.
    pub blind_tags: Tags,
}

/// Who reads.
#[derive(Clone)]
pub struct Observer {
    /// Load balancers.
    pub elb: Arc<dyn ElbApi>,
    /// Security groups.
    pub network: Arc<dyn NetworkApi>,
    /// What all Services share.
    pub vpc: Arc<VpcSnapshot>,
    /// The cluster's identity.
    pub tags: ClusterTags,
    /// Reading tags needs a permission of its own.
    pub read_tags: Arc<Optional>,
    /// Load balancers, read for all Services.
    pub heads: Arc<Heads>,
}

impl Observer {
    /// The load balancer of that name, read now and for it alone.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn find(&self, name: &str) -> CloudResult<Option<LoadBalancer>> {
        let names = BTreeSet::from([name.to_owned()]);
        match self.elb.load_balancers(&names).await {
            Ok(found) => Ok(found.into_iter().find(|lb| lb.name == name)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Everything else that the desired state speaks of.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn rest(
        &self,
        mut load_balancer: Option<LoadBalancer>,
        want: &Want,
        known: Option<&Known>,
        written_keys: BTreeSet<String>,
    ) -> CloudResult<Have> {
        if let Some(lb) = &mut load_balancer {
            self.look_for_policy(lb, want).await?;
        }
        let (managed_group, managed_group_lacks) = self.managed_group(want).await?;
        let name = load_balancer.as_ref().map(|lb| lb.name.as_str());
        Ok(Have {
            attributes: match (name, known.and_then(|known| known.attributes.clone())) {
                (Some(name), None) => Some(self.elb.attributes(name).await?),
                (Some(_), known) => known,
                (None, _) => None,
            },
            tags: match name {
                Some(name) => self.tags(name, want, known, &written_keys).await?,
                None => None,
            },
            blind_tags: known
                .map(|known| known.blind_tags.clone())
                .unwrap_or_default(),
            load_balancer,
            managed_group,
            managed_group_lacks,
            written_keys,
            refused: BTreeSet::new(),
        })
    }

    /// The description names all policies. Before one is made it is asked for all the same.
    async fn look_for_policy(&self, lb: &mut LoadBalancer, want: &Want) -> CloudResult<()> {
        let Some(policy) = &want.listener_policy else {
            return Ok(());
        };
        if lb.policies.contains(&policy.name) {
            return Ok(());
        }
        let there = self.elb.has_policy(&lb.name, &policy.name).await;
        let error = |e| quoted("error describing security policies on load balancer", e);
        if there.map_err(error)? {
            lb.policies.insert(policy.name.clone());
        }
        Ok(())
    }

    /// Tags matter when the user gives some, or gave some that are to go.
    async fn tags(
        &self,
        name: &str,
        want: &Want,
        known: Option<&Known>,
        written_keys: &BTreeSet<String>,
    ) -> CloudResult<Option<Tags>> {
        let stale = written_keys
            .iter()
            .any(|key| !want.new.tags.contains_key(key));
        let known = known.and_then(|known| known.tags.clone());
        if known.is_some() || want.user_tags.is_empty() && !stale {
            return Ok(known);
        }
        if !self.read_tags.is_allowed() {
            return Ok(None);
        }
        let answer = self.elb.tags(name).await;
        self.read_tags.check("DescribeTags", answer)
    }

    /// The security group of the computed name.
    async fn managed_group(&self, want: &Want) -> CloudResult<(Option<SecurityGroup>, Tags)> {
        let FirstGroups::Managed { new, .. } = &want.first_groups else {
            return Ok((None, Tags::new()));
        };
        let Some(group) = self.group_named(new).await? else {
            return Ok((None, Tags::new()));
        };
        let lacks = self
            .tags
            .missing(&group.id, Lifecycle::Owned, &group.tags)?;
        Ok((Some(group), lacks))
    }

    async fn group_named(
        &self,
        new: &NewSecurityGroup,
    ) -> Result<Option<SecurityGroup>, CloudError> {
        let tagged = self.vpc.tagged_groups().await?;
        if let Some(group) = tagged.values().find(|group| group.name == new.name) {
            return Ok(Some(group.clone()));
        }
        let which = Groups::Named {
            vpc: &new.vpc_id,
            name: &new.name,
        };
        let found = self.network.security_groups(&which).await?;
        Ok(found.into_iter().next())
    }
}
