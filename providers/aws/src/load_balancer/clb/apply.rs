//! One action, one call: with AWS's peculiar answers turned into what they mean, and the error
//! texts that users know (specification: aws §4.15, §8.2).

use std::sync::Arc;

use ccm_core::cloud::CloudResult;

use super::plan::{Action, Made};
use crate::{
    api::elb::{ElbApi, NewLoadBalancer, Policy},
    load_balancer::{node_groups::Optional, own_groups::OwnGroups, quoted, registration::register},
    names::PROXY_PROTOCOL_POLICY,
};

/// AWS's code for "there is no such instance to be registered".
const INVALID_INSTANCE: &str = "InvalidInstance";

/// Who writes.
#[derive(Clone)]
pub struct Applier {
    /// Load balancers.
    pub elb: Arc<dyn ElbApi>,
    /// The load balancers' security groups.
    pub groups: Arc<OwnGroups>,
    /// Removing tags, and tags that the user did not give, need a permission of its own.
    pub write_tags: Arc<Optional>,
}

impl Applier {
    /// Carries out an action on the load balancer of that name.
    ///
    /// # Errors
    /// AWS refused, with the text for the user.
    pub async fn apply(&self, name: &str, action: Action) -> CloudResult<Made> {
        match action {
            Action::CreateSecurityGroup(_)
            | Action::TagSecurityGroup(..)
            | Action::Authorize(..)
            | Action::Revoke(..) => self.run_group(action).await,
            Action::CreateLoadBalancer(new) => self.create(&new).await,
            Action::DetachSubnets(subnets) => {
                let answer = self.elb.detach_subnets(name, &subnets).await;
                answer
                    .map(Made::Subnets)
                    .map_err(|e| quoted("error detaching AWS loadbalancer from subnets", e))
            }
            Action::AttachSubnets(subnets) => {
                let answer = self.elb.attach_subnets(name, &subnets).await;
                answer
                    .map(Made::Subnets)
                    .map_err(|e| quoted("error attaching AWS loadbalancer to subnets", e))
            }
            Action::Register(instances) => {
                let call = |ids: Vec<String>| async move { self.elb.register(name, &ids).await };
                let all = instances.into_iter().collect();
                let done = register(all, INVALID_INSTANCE, String::as_str, call).await?;
                Ok(Made::Refused(done.refused))
            }
            Action::Deregister(instances) => {
                // One that is gone from EC2 is gone from here.
                let call = |ids: Vec<String>| async move { self.elb.deregister(name, &ids).await };
                let all = instances.into_iter().collect();
                register(all, INVALID_INSTANCE, String::as_str, call).await?;
                Ok(Made::Nothing)
            }
            action => self.change(name, action).await.map(|()| Made::Nothing),
        }
    }

    async fn change(&self, name: &str, action: Action) -> CloudResult<()> {
        let elb = &self.elb;
        match action {
            Action::ApplySecurityGroups(groups) => {
                let answer = elb.apply_security_groups(name, &groups).await;
                answer.map_err(|e| quoted("error applying AWS loadbalancer security groups", e))
            }
            Action::DeleteListeners(ports) => {
                let answer = elb.delete_listeners(name, &ports).await;
                answer.map_err(|e| quoted("error deleting AWS loadbalancer listeners", e))
            }
            Action::CreateListeners(listeners) => {
                let answer = elb.create_listeners(name, &listeners).await;
                answer.map_err(|e| quoted("error creating AWS loadbalancer listeners", e))
            }
            Action::CreatePolicy(policy) => self.create_policy(name, &policy).await,
            Action::SetBackendPolicies(port, policies) => {
                let answer = elb.set_backend_policies(name, port, &policies).await;
                answer.map_err(|e| quoted("error adjusting AWS loadbalancer backend policies", e))
            }
            Action::SetListenerPolicies(port, policies) => {
                let answer = elb.set_listener_policies(name, port, &policies).await;
                let policies: Vec<&str> = policies.iter().map(String::as_str).collect();
                let text = format!(
                    "error setting SSL negotiation policy '{}' on load balancer",
                    policies.join(", ")
                );
                answer.map_err(|e| quoted(&text, e))
            }
            Action::ModifyAttributes(attributes) => {
                let answer = elb.modify_attributes(name, &attributes).await;
                answer.map_err(|e| {
                    quoted(
                        "Unable to update load balancer attributes during attribute sync",
                        e,
                    )
                })
            }
            Action::ConfigureHealthCheck(check) => {
                let answer = elb.configure_health_check(name, &check).await;
                let text = format!("error configuring load balancer health check for {name:?}");
                answer.map_err(|e| quoted(&text, e))
            }
            action => self.tag(name, action).await,
        }
    }

    async fn tag(&self, name: &str, action: Action) -> CloudResult<()> {
        if !self.write_tags.is_allowed() {
            return Ok(());
        }
        match action {
            Action::Tag(tags) => {
                let answer = self.elb.add_tags(name, &tags).await;
                let answer = answer.map_err(|e| {
                    e.context(
                        "unable to create additional load balancer tags: error adding tags to \
                         load balancer",
                    )
                });
                self.write_tags.check("AddTags", answer).map(drop)
            }
            Action::Untag(keys) => {
                let answer = self.elb.remove_tags(name, &keys).await;
                self.write_tags.check("RemoveTags", answer).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The managed security group.
    async fn run_group(&self, action: Action) -> CloudResult<Made> {
        let done = |answer: CloudResult<()>| answer.map(|()| Made::Nothing);
        match action {
            Action::CreateSecurityGroup(new) => {
                self.groups.create(new).await.map(Made::SecurityGroup)
            }
            Action::TagSecurityGroup(id, tags) => done(self.groups.tag(&id, &tags).await),
            Action::Authorize(id, rules) => {
                let answer = self.groups.authorize(&id, rules).await;
                done(answer.map_err(|e| {
                    quoted("error authorizing security group ingress", e)
                        .context(format!("creating ingress rules for security group {id:?}"))
                }))
            }
            Action::Revoke(id, rules) => {
                let answer = self.groups.revoke(&id, &rules).await;
                done(answer.map_err(|e| {
                    quoted("error revoking security group ingress", e)
                        .context(format!("creating ingress rules for security group {id:?}"))
                }))
            }
            _ => Ok(Made::Nothing),
        }
    }

    /// A load balancer of that name that someone made in between is taken over.
    async fn create(&self, new: &NewLoadBalancer) -> CloudResult<Made> {
        let error = match self.elb.create_load_balancer(new).await {
            Ok(dns_name) => return Ok(Made::DnsName(dns_name)),
            Err(error) => error,
        };
        if error.code() == Some("DuplicateLoadBalancerName") {
            let names = std::collections::BTreeSet::from([new.name.clone()]);
            let found = self.elb.load_balancers(&names).await?;
            if let Some(found) = found.into_iter().find(|lb| lb.name == new.name) {
                return Ok(Made::Found(Box::new(found)));
            }
        }
        Err(error)
    }

    /// A policy of that name says what the name says: one that is there is the one wanted.
    async fn create_policy(&self, name: &str, policy: &Policy) -> CloudResult<()> {
        let error = match self.elb.create_policy(name, policy).await {
            Err(error) if error.code() == Some("DuplicatePolicyName") => return Ok(()),
            Err(error) => error,
            Ok(()) => return Ok(()),
        };
        let what = if policy.name == PROXY_PROTOCOL_POLICY {
            "error creating proxy protocol policy on load balancer"
        } else {
            "error creating security policy on load balancer"
        };
        Err(quoted(what, error))
    }
}
