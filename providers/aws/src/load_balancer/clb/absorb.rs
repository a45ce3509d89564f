//! The observed state after a change: the model that plans and fakes share. Pure.

use super::plan::{Action, Have, Made, described};
use crate::api::elb::{Attributes, Listener, ListenerSpec, LoadBalancer};

/// The observed state after a successful action.
pub(super) fn absorb(have: &mut Have, action: &Action, made: Made) {
    match (action, made) {
        (Action::CreateSecurityGroup(_), Made::SecurityGroup(group)) => {
            have.managed_group = Some(group);
        }
        (Action::TagSecurityGroup(..), _) => have.managed_group_lacks.clear(),
        (Action::Authorize(_, rules), _) => {
            if let Some(group) = &mut have.managed_group {
                group.rules.extend(rules.clone());
            }
        }
        (Action::Revoke(_, rules), _) => {
            if let Some(group) = &mut have.managed_group {
                group.rules.retain(|rule, _| !rules.contains(rule));
            }
        }
        (Action::CreateLoadBalancer(new), Made::DnsName(name)) => {
            have.load_balancer = Some(described(new, name));
            have.tags = Some(new.tags.clone());
        }
        // Attributes and tags of one that was found are not known.
        (Action::CreateLoadBalancer(_), Made::Found(lb)) => have.load_balancer = Some(*lb),
        (Action::ModifyAttributes(changed), _) => change(have, changed),
        (Action::Register(ids), Made::Refused(refused)) => {
            if let Some(lb) = &mut have.load_balancer {
                let done = ids.iter().filter(|id| !refused.contains(*id));
                lb.instances.extend(done.cloned());
            }
            have.refused.extend(refused);
        }
        (Action::Tag(written), _) => {
            let tags = have.tags.as_mut().unwrap_or(&mut have.blind_tags);
            tags.extend(written.clone());
        }
        (Action::Untag(keys), _) => {
            if let Some(tags) = &mut have.tags {
                tags.retain(|key, _| !keys.contains(key));
            }
        }
        (action, made) => {
            if let Some(lb) = &mut have.load_balancer {
                absorb_into(lb, action, made);
            }
        }
    }
}

fn absorb_into(lb: &mut LoadBalancer, action: &Action, made: Made) {
    match (action, made) {
        (Action::AttachSubnets(_) | Action::DetachSubnets(_), Made::Subnets(now)) => {
            lb.subnets = now;
        }
        (Action::ApplySecurityGroups(groups), _) => lb.security_groups.clone_from(groups),
        (Action::DeleteListeners(ports), _) => {
            lb.listeners.retain(|port, _| !ports.contains(port));
        }
        (Action::CreateListeners(specs), _) => {
            lb.listeners
                .extend(specs.iter().map(|spec| (spec.port, plain(spec))));
        }
        (Action::CreatePolicy(policy), _) => {
            lb.policies.insert(policy.name.clone());
        }
        (Action::SetBackendPolicies(port, policies), _) => {
            lb.backend_policies.insert(*port, policies.clone());
        }
        (Action::SetListenerPolicies(port, policies), _) => {
            if let Some(listener) = lb.listeners.get_mut(port) {
                listener.policies.clone_from(policies);
            }
        }
        (Action::ConfigureHealthCheck(check), _) => lb.health = Some(check.clone()),
        (Action::Deregister(ids), _) => lb.instances.retain(|id| !ids.contains(id)),
        _ => {}
    }
}

fn change(have: &mut Have, changed: &Attributes) {
    let attributes = have.attributes.get_or_insert_default();
    if changed.access_log.is_some() {
        attributes.access_log.clone_from(&changed.access_log);
    }
    if changed.draining.is_some() {
        attributes.draining = changed.draining;
    }
    if changed.idle_timeout.is_some() {
        attributes.idle_timeout = changed.idle_timeout;
    }
    if changed.cross_zone.is_some() {
        attributes.cross_zone = changed.cross_zone;
    }
}

/// A listener without any policy that we know of.
pub(super) fn plain(spec: &ListenerSpec) -> Listener {
    Listener {
        spec: spec.clone(),
        ..Listener::default()
    }
}
