//! One action, one call: with AWS's peculiar answers turned into what they mean, and the error
//! texts that users know (specification: aws §4.15, §8.3).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_core::cloud::{Class, CloudError, CloudResult, LoadBalancerName};

use super::{
    desired::KIND,
    plan::{Action, Made},
    removal::Removal,
    tag_tries::TagTries,
};
use crate::{
    api::{
        elbv2::{Elbv2Api, NewLoadBalancer, Target},
        network::{Groups, NetworkApi, NewSecurityGroup, Rules, SecurityGroup},
    },
    load_balancer::{
        node_groups::{NodeGroups, Optional, authorize, revoke},
        quoted,
        vpc::VpcSnapshot,
    },
};

/// The wait for something that AWS will let go of soon.
pub const IN_USE_RETRY: Duration = Duration::from_secs(5);

/// The wait for something that AWS says exists but does not show yet.
const NOT_VISIBLE_RETRY: Duration = Duration::from_secs(1);

/// Register calls spent on one slice of targets, of which AWS refuses some: enough to single out
/// one in a hundred several times over.
const MAX_REGISTER_CALLS: usize = 32;

/// Who writes.
#[derive(Clone)]
pub struct Applier {
    /// Load balancers.
    pub elb: Arc<dyn Elbv2Api>,
    /// Security groups.
    pub network: Arc<dyn NetworkApi>,
    /// What all Services share.
    pub vpc: Arc<VpcSnapshot>,
    /// The Nodes' security groups.
    pub nodes: Arc<NodeGroups>,
    /// Writing tags needs a permission of its own.
    pub write_tags: Arc<Optional>,
    /// Tries to tag a security group that AWS does not show yet.
    pub tag_tries: Arc<TagTries>,
}

impl Applier {
    /// Carries out an action. `creating` says that the load balancer is made in this pass.
    ///
    /// # Errors
    /// AWS refused, with the text for the user.
    pub async fn apply(&self, action: Action, creating: bool) -> CloudResult<Made> {
        let part = matches!(
            action,
            Action::CreateTargetGroup(_) | Action::Register(..) | Action::CreateListener(..)
        );
        let answer = self.run(action).await;
        if creating && part {
            return answer.map_err(|e| quoted("error creating listener", e));
        }
        answer
    }

    async fn run(&self, action: Action) -> CloudResult<Made> {
        match action {
            Action::CreateSecurityGroup(_)
            | Action::TagSecurityGroup(..)
            | Action::Authorize(..)
            | Action::Revoke(..) => self.run_group(action).await,
            Action::CreateLoadBalancer(new) => self.create(&new).await,
            Action::SetSecurityGroups(arn, groups) => {
                let answer = self.elb.set_security_groups(&arn, &groups).await;
                done(
                    answer.map_err(|e| e.context("error setting security groups on load balancer")),
                )
            }
            Action::ModifyAttributes(arn, attributes) => {
                let answer = self
                    .elb
                    .modify_load_balancer_attributes(&arn, &attributes)
                    .await;
                done(answer.map_err(|e| {
                    quoted(
                        "unable to update load balancer attributes during attribute sync",
                        e,
                    )
                }))
            }
            Action::Tag(arn, tags) => {
                if self.write_tags.is_allowed() {
                    let answer = self.elb.add_tags(&arn, &tags).await;
                    self.write_tags.check("AddTags", answer)?;
                }
                Ok(Made::Nothing)
            }
            Action::Untag(arn, keys) => {
                if self.write_tags.is_allowed() {
                    let answer = self.elb.remove_tags(&arn, &keys).await;
                    self.write_tags.check("RemoveTags", answer)?;
                }
                Ok(Made::Nothing)
            }
            action => self.run_part(action).await,
        }
    }

    /// Listeners and target groups.
    async fn run_part(&self, action: Action) -> CloudResult<Made> {
        match action {
            Action::CreateTargetGroup(new) => {
                let made = self.elb.create_target_group(&new).await;
                made.map(Made::TargetGroup)
                    .map_err(|e| quoted("error creating load balancer target group", e))
            }
            Action::ModifyTargetGroup(arn, change) => {
                let answer = self.elb.modify_target_group(&arn, &change).await;
                done(answer.map_err(|e| quoted("error modifying target group health check", e)))
            }
            Action::ModifyTargetGroupAttributes(arn, changed) => {
                let answer = self
                    .elb
                    .modify_target_group_attributes(&arn, &changed)
                    .await;
                done(answer.map_err(|e| {
                    quoted("error reconciling target group attributes", e.context(&arn))
                }))
            }
            Action::DeleteTargetGroup(arn) => {
                let answer = self.delete_target_group(&arn).await;
                done(answer.map_err(|e| quoted("error deleting load balancer target group", e)))
            }
            Action::Register(arn, targets) => self.register(&arn, targets).await,
            Action::Deregister(arn, targets) => {
                let answer = self.elb.deregister(&arn, &targets).await;
                done(
                    gone_is_done(answer).map_err(|e| {
                        quoted("error trying to deregister targets in target group", e)
                    }),
                )
            }
            Action::CreateListener(lb, spec, tags) => {
                let made = self.elb.create_listener(&lb, &spec, &tags).await;
                made.map(Made::Listener)
                    .map_err(|e| quoted("error creating load balancer listener", e))
            }
            Action::ModifyListener(arn, spec) => {
                let made = self.elb.modify_listener(&arn, &spec).await;
                made.map(Made::Listener)
                    .map_err(|e| quoted("error updating load balancer listener", e))
            }
            Action::DeleteListener(arn) => {
                let answer = gone_is_done(self.elb.delete_listener(&arn).await);
                done(answer.map_err(|e| quoted("error deleting load balancer listener", e)))
            }
            _ => Ok(Made::Nothing),
        }
    }

    /// The managed security group.
    async fn run_group(&self, action: Action) -> CloudResult<Made> {
        let rules_error = |e: CloudError| e.context("error ensuring NLB security group rules");
        match action {
            Action::CreateSecurityGroup(new) => self.create_group(new).await.map_err(|e| {
                e.context("unable to create security group for NLB")
                    .context("error ensuring NLB security group")
            }),
            Action::TagSecurityGroup(id, tags) => {
                let answer = self.network.tag_resource(&id, &tags).await;
                let answer = self.tag_tries.judge(&id, answer);
                self.vpc.doubt_groups().await;
                done(answer.map_err(|e| e.context("error ensuring NLB security group")))
            }
            Action::Authorize(id, rules) => {
                authorize(self.network.as_ref(), &id, &rules)
                    .await
                    .map_err(rules_error)?;
                self.vpc
                    .change_group(&id, |group| group.rules.extend(rules))
                    .await;
                Ok(Made::Nothing)
            }
            Action::Revoke(id, rules) => {
                revoke(self.network.as_ref(), &id, &rules)
                    .await
                    .map_err(rules_error)?;
                let change = |group: &mut SecurityGroup| {
                    group.rules.retain(|rule, _| !rules.contains(rule));
                };
                self.vpc.change_group(&id, change).await;
                Ok(Made::Nothing)
            }
            _ => Ok(Made::Nothing),
        }
    }

    /// A load balancer of that name that someone made in between is taken over.
    async fn create(&self, new: &NewLoadBalancer) -> CloudResult<Made> {
        let error = match self.elb.create_load_balancer(new).await {
            Ok(made) => return Ok(Made::LoadBalancer(made)),
            Err(error) => error,
        };
        if error.code() == Some("DuplicateLoadBalancerName") {
            let found = self.elb.load_balancer(&new.name).await?;
            if let Some(found) = found.filter(|lb| lb.kind == KIND) {
                return Ok(Made::LoadBalancer(found));
            }
        }
        Err(quoted("error creating load balancer", error))
    }

    async fn create_group(&self, new: NewSecurityGroup) -> CloudResult<Made> {
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
                // Eventual consistency: it is there, but not shown yet.
                found
                    .into_iter()
                    .next()
                    .ok_or_else(|| error.retry_in(NOT_VISIBLE_RETRY))?
            }
            Err(error) => return Err(error),
        };
        self.vpc.add_group(group.clone()).await;
        Ok(Made::SecurityGroup(group))
    }

    async fn delete_target_group(&self, arn: &str) -> CloudResult<()> {
        gone_is_done(self.elb.delete_target_group(arn).await).map_err(|error| {
            if error.code() == Some("ResourceInUse") {
                error.retry_in(IN_USE_RETRY)
            } else {
                error
            }
        })
    }

    /// Registers what AWS takes. Instances that are not running, and those beyond the limit of the
    /// target group, make AWS refuse a whole call: they are singled out.
    async fn register(&self, arn: &str, targets: Vec<Target>) -> CloudResult<Made> {
        let mut refused = BTreeSet::new();
        let mut over_limit = BTreeSet::new();
        let mut slices = vec![targets];
        for _ in 0..MAX_REGISTER_CALLS {
            let Some(mut slice) = slices.pop() else {
                return Ok(Made::Registered {
                    refused,
                    over_limit,
                });
            };
            let error = match self.elb.register(arn, &slice).await {
                Ok(()) => continue,
                Err(error) => error,
            };
            match error.code() {
                Some("InvalidTarget") => {
                    let text = error.to_string();
                    let (bad, good): (Vec<_>, Vec<_>) = slice
                        .into_iter()
                        .partition(|target| names(&text, &target.id));
                    if !bad.is_empty() {
                        refused.extend(bad);
                        slices.extend(Some(good).filter(|good| !good.is_empty()));
                        continue;
                    }
                    slice = good;
                    if slice.len() == 1 {
                        refused.extend(slice);
                        continue;
                    }
                }
                Some("TooManyTargets") => {
                    if slice.len() == 1 {
                        over_limit.extend(slice);
                        // Nothing after it fits either.
                        over_limit.extend(slices.drain(..).flatten());
                        continue;
                    }
                }
                _ => {
                    return Err(quoted(
                        "error trying to register targets in target group",
                        error,
                    ));
                }
            }
            let rest = slice.split_off(slice.len().div_ceil(2));
            slices.push(rest);
            slices.push(slice);
        }
        Err(CloudError::transient(
            "error trying to register targets in target group: too many targets were refused one \
             by one",
        ))
    }

    /// Carries out a removal.
    ///
    /// # Errors
    /// AWS refused, with the text for the user.
    pub async fn remove(&self, removal: Removal, name: &LoadBalancerName) -> CloudResult<()> {
        match removal {
            Removal::LoadBalancer(arn) => {
                let answer = gone_is_done(self.elb.delete_load_balancer(&arn).await);
                answer.map_err(|e| refused_deletion(e, name.as_str()))
            }
            Removal::TargetGroup(arn) => self.delete_target_group(&arn).await.map_err(|e| {
                quoted(
                    "error deleting target groups after deleting load balancer",
                    e,
                )
            }),
            Removal::NodeRules(group, plan) => {
                let answer = self.nodes.clean_one(name, group, plan).await;
                answer.map_err(|e| e.context("error deleting instance security group rules"))
            }
            Removal::SecurityGroup(id) => self.delete_security_group(&id).await,
        }
    }

    /// Deletes a security group. One that is in use is to be tried again soon.
    ///
    /// # Errors
    /// AWS refused.
    pub async fn delete_security_group(&self, id: &str) -> CloudResult<()> {
        gone_is_done(self.network.delete_security_group(id).await).map_err(|error| {
            if error.code() == Some("DependencyViolation") {
                error.retry_in(IN_USE_RETRY)
            } else {
                error
            }
        })?;
        self.vpc.remove_group(id).await;
        Ok(())
    }

    /// Takes a security group that is not attached any more out of the cluster's groups and deletes
    /// it.
    ///
    /// # Errors
    /// AWS refused; it is to be tried again.
    pub async fn retire_group(&self, id: &str) -> CloudResult<()> {
        let tagged = self.vpc.tagged_groups().await?;
        let refers = |rule: &crate::api::network::Rule| matches!(&rule.source, crate::api::network::Source::Group { id: from, .. } if from == id);
        let holders: BTreeMap<&String, BTreeSet<_>> = tagged
            .values()
            .filter(|group| group.id != id)
            .map(|group| {
                let rules = group.rules.keys().filter(|rule| refers(rule)).cloned();
                (&group.id, rules.collect::<BTreeSet<_>>())
            })
            .filter(|(_, rules)| !rules.is_empty())
            .collect();
        for (holder, rules) in holders {
            revoke(self.network.as_ref(), holder, &rules).await?;
            self.vpc
                .change_group(holder, |group| {
                    group.rules.retain(|rule, _| !rules.contains(rule));
                })
                .await;
        }
        self.delete_security_group(id).await
    }
}

/// Whether AWS's text names the instance; one id may be the beginning of another.
fn names(text: &str, id: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .any(|word| word == id)
}

fn done(answer: CloudResult<()>) -> CloudResult<Made> {
    answer.map(|()| Made::Nothing)
}

fn gone_is_done(answer: CloudResult<()>) -> CloudResult<()> {
    match answer {
        Err(error) if error.is_not_found() => Ok(()),
        answer => answer,
    }
}

fn refused_deletion(error: CloudError, name: &str) -> CloudError {
    let hint = match (error.code(), error.class()) {
        (Some("OperationNotPermitted"), _) => {
            " (deletion protection is on: switch it off to let the load balancer go; nothing of it \
             was removed)"
        }
        (Some("ResourceInUse"), Class::Conflict) => {
            " (it is in use, e.g. by a VPC endpoint service; nothing of it was removed)"
        }
        _ => "",
    };
    error.map_message(|inner| format!("error deleting load balancer {name:?}: {inner}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_begins_another_is_not_named_by_it() {
        let text = "The following targets are not in a running state: 'i-0abc', 'i-0def'";
        assert!(names(text, "i-0abc") && names(text, "i-0def"));
        assert!(!names(text, "i-0ab"));
    }

    #[test]
    fn a_protected_load_balancer_is_explained() {
        let error = CloudError::new(Class::Conflict, "api error OperationNotPermitted: no")
            .with_code("OperationNotPermitted");
        let text = refused_deletion(error, "a1").to_string();
        assert!(
            text.starts_with("error deleting load balancer \"a1\": "),
            "{text}"
        );
        assert!(text.contains("deletion protection"), "{text}");
    }
}
