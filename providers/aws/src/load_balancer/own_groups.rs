//! Security groups that we make for load balancers: made, found, tagged, filled and deleted the same
//! way for both kinds. The snapshot of the VPC learns of every change. Callers word the errors.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_core::cloud::CloudResult;

use super::{
    classic_rules::refers_to,
    node_groups::{authorize, revoke},
    tries::Tries,
    vpc::VpcSnapshot,
};
use crate::{
    api::network::{Groups, NetworkApi, NewSecurityGroup, Rule, Rules, SecurityGroup},
    tags::Tags,
};

/// The wait for something that AWS will let go of soon.
pub const IN_USE_RETRY: Duration = Duration::from_secs(5);

/// See the module documentation.
pub struct OwnGroups {
    network: Arc<dyn NetworkApi>,
    vpc: Arc<VpcSnapshot>,
    tagging: Tries,
    finding: Tries,
}

impl OwnGroups {
    /// Through this API.
    pub fn new(network: Arc<dyn NetworkApi>, vpc: Arc<VpcSnapshot>) -> Self {
        Self {
            network,
            vpc,
            tagging: Tries::of_tagging(),
            finding: Tries::of_finding(),
        }
    }

    /// Makes a group. One of that name that someone made in between is taken over.
    ///
    /// # Errors
    /// AWS refused, or does not show yet what it says exists; then with the wait until the next try.
    pub async fn create(&self, new: NewSecurityGroup) -> CloudResult<SecurityGroup> {
        let group = match self.network.create_security_group(&new).await {
            Ok(id) => SecurityGroup {
                id,
                name: new.name,
                description: new.description,
                vpc_id: new.vpc_id,
                tags: new.tags,
                rules: Rules::new(),
            },
            Err(error) if error.code() == Some("InvalidGroup.Duplicate") => {
                let which = Groups::Named {
                    vpc: &new.vpc_id,
                    name: &new.name,
                };
                let found = self.network.security_groups(&which).await?;
                let found = found.into_iter().next();
                let found = found.ok_or_else(|| self.finding.again(&new.name, error))?;
                self.finding.end(&new.name);
                found
            }
            Err(error) => return Err(error),
        };
        self.vpc.add_group(group.clone()).await;
        Ok(group)
    }

    /// Puts the cluster's tags onto a group that was found by name.
    ///
    /// # Errors
    /// AWS refused; a group that is not visible yet is to be tried again soon.
    pub async fn tag(&self, id: &str, tags: &Tags) -> CloudResult<()> {
        let answer = self.network.tag_resource(id, tags).await;
        let answer = self.tagging.judge(id, answer);
        self.vpc.doubt_groups().await;
        answer
    }

    /// Adds rules.
    ///
    /// # Errors
    /// AWS refused.
    pub async fn authorize(&self, id: &str, rules: Rules) -> CloudResult<()> {
        authorize(self.network.as_ref(), id, &rules).await?;
        self.vpc
            .change_group(id, |group| group.rules.extend(rules))
            .await;
        Ok(())
    }

    /// Removes rules.
    ///
    /// # Errors
    /// AWS refused.
    pub async fn revoke(&self, id: &str, rules: &BTreeSet<Rule>) -> CloudResult<()> {
        revoke(self.network.as_ref(), id, rules).await?;
        let change = |group: &mut SecurityGroup| {
            group.rules.retain(|rule, _| !rules.contains(rule));
        };
        self.vpc.change_group(id, change).await;
        Ok(())
    }

    /// Deletes a security group. One that is in use is to be tried again soon.
    ///
    /// # Errors
    /// AWS refused.
    pub async fn delete(&self, id: &str) -> CloudResult<()> {
        match self.network.delete_security_group(id).await {
            Err(error) if error.code() == Some("DependencyViolation") => {
                return Err(error.retry_in(IN_USE_RETRY));
            }
            Err(error) if error.is_not_found() => {}
            answer => answer?,
        }
        self.vpc.remove_group(id).await;
        Ok(())
    }

    /// Takes a security group that is not attached any more out of the cluster's groups and deletes
    /// it.
    ///
    /// # Errors
    /// AWS refused; it is to be tried again.
    pub async fn retire(&self, id: &str) -> CloudResult<()> {
        let tagged = self.vpc.tagged_groups().await?;
        let holders: BTreeMap<&String, BTreeSet<_>> = tagged
            .values()
            .filter(|group| group.id != id)
            .map(|group| {
                let rules = group.rules.keys();
                let rules = rules.filter(|rule| refers_to(rule, id)).cloned();
                (&group.id, rules.collect::<BTreeSet<_>>())
            })
            .filter(|(_, rules)| !rules.is_empty())
            .collect();
        for (holder, rules) in holders {
            self.revoke(holder, &rules).await?;
        }
        self.delete(id).await
    }
}
