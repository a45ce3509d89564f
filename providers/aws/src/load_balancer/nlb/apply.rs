//! One action, one call: with AWS's peculiar answers turned into what they mean, and the error
//! texts that users know (specification: aws §4.15, §8.3).

use std::sync::Arc;

use ccm_core::cloud::{Class, CloudError, CloudResult};

use super::{
    desired::KIND,
    plan::{Action, Made},
};
use crate::{
    api::elbv2::{Elbv2Api, NewLoadBalancer, Target},
    load_balancer::{
        gone_is_done,
        node_groups::Optional,
        own_groups::{IN_USE_RETRY, OwnGroups},
        quoted,
        registration::{Registration, register},
    },
};

/// Who writes.
#[derive(Clone)]
pub struct Applier {
    /// Load balancers.
    pub elb: Arc<dyn Elbv2Api>,
    /// The load balancers' security groups.
    pub groups: Arc<OwnGroups>,
    /// Writing tags needs a permission of its own.
    pub write_tags: Arc<Optional>,
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
            Action::CreateSecurityGroup(new) => {
                let made = self.groups.create(new).await;
                made.map(Made::SecurityGroup).map_err(|e| {
                    e.context("unable to create security group for NLB")
                        .context("error ensuring NLB security group")
                })
            }
            Action::TagSecurityGroup(id, tags) => {
                let answer = self.groups.tag(&id, &tags).await;
                done(answer.map_err(|e| e.context("error ensuring NLB security group")))
            }
            Action::Authorize(id, rules) => {
                done(self.groups.authorize(&id, rules).await.map_err(rules_error))
            }
            Action::Revoke(id, rules) => {
                done(self.groups.revoke(&id, &rules).await.map_err(rules_error))
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

    /// Deletes a target group. One that is in use is to be tried again soon.
    ///
    /// # Errors
    /// AWS refused.
    pub async fn delete_target_group(&self, arn: &str) -> CloudResult<()> {
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
        let call = |slice: Vec<Target>| async move { self.elb.register(arn, &slice).await };
        let answer = register(targets, "InvalidTarget", |target| &target.id, call).await;
        let Registration { refused, beyond } =
            answer.map_err(|e| quoted("error trying to register targets in target group", e))?;
        Ok(Made::Registered {
            refused,
            over_limit: beyond,
        })
    }

    /// Deletes a network load balancer with its listeners.
    ///
    /// # Errors
    /// AWS refused, with the text for the user.
    pub async fn delete_load_balancer(&self, arn: &str, name: &str) -> CloudResult<()> {
        let answer = gone_is_done(self.elb.delete_load_balancer(arn).await);
        answer.map_err(|e| refused_deletion(e, name))
    }
}

fn done(answer: CloudResult<()>) -> CloudResult<Made> {
    answer.map(|()| Made::Nothing)
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
