//! The observed state after a change: the model that plans and fakes share. Pure.

use super::plan::{Action, Have, HaveTargetGroup, Made};
use crate::api::elbv2::{
    Attributes, HealthChange, HealthCheck, Listener, ListenerSpec, TargetGroup,
};

/// What AWS sets on a new network load balancer, of the attributes that we own.
const NEW_LOAD_BALANCER: &[(&str, &str)] = &[
    ("access_logs.s3.enabled", "false"),
    ("load_balancing.cross_zone.enabled", "false"),
];

/// What AWS sets on a new target group of instances, of the attributes that we own.
const NEW_TARGET_GROUP: &[(&str, &str)] = &[
    ("deregistration_delay.timeout_seconds", "300"),
    ("preserve_client_ip.enabled", "true"),
    ("proxy_protocol_v2.enabled", "false"),
];

/// The observed state after a successful action.
pub(super) fn absorb(have: &mut Have, action: &Action, made: Made) {
    match (action, made) {
        (Action::CreateSecurityGroup(_), Made::SecurityGroup(group)) => {
            have.managed_group = Some(group);
        }
        (Action::TagSecurityGroup(..), _) => have.managed_group_lacks.clear(),
        (Action::CreateLoadBalancer(new), Made::LoadBalancer(lb)) => {
            have.attributes = Some(defaults(NEW_LOAD_BALANCER));
            have.tags.insert(lb.arn.clone(), new.tags.clone());
            have.load_balancer = Some(lb);
        }
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
        (Action::SetSecurityGroups(_, groups), _) => {
            if let Some(lb) = &mut have.load_balancer {
                lb.security_groups.clone_from(groups);
            }
        }
        (Action::ModifyAttributes(_, changed), _) => {
            have.attributes
                .get_or_insert_default()
                .extend(changed.clone());
        }
        (Action::Tag(arn, tags), _) => {
            have.tags
                .entry(arn.clone())
                .or_default()
                .extend(tags.clone());
        }
        (Action::Untag(arn, keys), _) => {
            have.tags
                .entry(arn.clone())
                .or_default()
                .retain(|key, _| !keys.contains(key));
        }
        (action, made) => absorb_parts(have, action, made),
    }
}

/// Listeners and target groups.
fn absorb_parts(have: &mut Have, action: &Action, made: Made) {
    match (action, made) {
        (Action::CreateTargetGroup(new), Made::TargetGroup(made)) => {
            have.tags.insert(made.arn.clone(), new.tags.clone());
            let group = TargetGroup {
                name: new.name.clone(),
                port: new.port,
                protocol: new.protocol.clone(),
                health: HealthCheck {
                    timeout: made.health.timeout,
                    ..new.health.clone()
                },
                ..made
            };
            let found = HaveTargetGroup {
                group,
                attributes: Some(defaults(NEW_TARGET_GROUP)),
                ..HaveTargetGroup::default()
            };
            have.target_groups.insert(found.group.arn.clone(), found);
        }
        (Action::CreateListener(_, spec, tags), Made::Listener(made)) => {
            have.tags.insert(made.arn.clone(), tags.clone());
            put_listener(have, spec, made);
        }
        (Action::ModifyListener(_, spec), Made::Listener(made)) => put_listener(have, spec, made),
        (Action::DeleteListener(arn), _) => {
            have.listeners.remove(arn);
        }
        (Action::DeleteTargetGroup(arn), _) => {
            have.target_groups.remove(arn);
        }
        (action, made) => absorb_target_group(have, action, made),
    }
}

/// What was asked for counts, not how AWS words it: a success is never planned again in this pass.
fn put_listener(have: &mut Have, spec: &ListenerSpec, made: Listener) {
    let ssl_policy = spec.ssl_policy.clone().or(made.spec.ssl_policy);
    let spec = ListenerSpec {
        ssl_policy,
        ..spec.clone()
    };
    have.listeners.insert(
        made.arn.clone(),
        Listener {
            arn: made.arn,
            spec,
            // What we send forwards to one group.
            ..Listener::default()
        },
    );
}

fn absorb_target_group(have: &mut Have, action: &Action, made: Made) {
    let (Action::ModifyTargetGroup(arn, _)
    | Action::ModifyTargetGroupAttributes(arn, _)
    | Action::Deregister(arn, _)
    | Action::Register(arn, _)) = action
    else {
        return;
    };
    let Some(found) = have.target_groups.get_mut(arn) else {
        return;
    };
    match (action, made) {
        (Action::ModifyTargetGroup(_, change), _) => apply_health(found, change),
        (Action::ModifyTargetGroupAttributes(_, changed), _) => {
            found
                .attributes
                .get_or_insert_default()
                .extend(changed.clone());
        }
        (Action::Deregister(_, targets), _) => {
            found.targets.retain(|target| !targets.contains(target));
        }
        (
            Action::Register(_, targets),
            Made::Registered {
                refused,
                over_limit,
            },
        ) => {
            let done = targets
                .iter()
                .filter(|t| !refused.contains(t) && !over_limit.contains(t));
            found.targets.extend(done.cloned());
            found.refused.extend(refused);
            if !over_limit.is_empty() {
                found.limit = Some(found.targets.len());
            }
        }
        _ => {}
    }
}

fn apply_health(found: &mut HaveTargetGroup, change: &HealthChange) {
    let health = &mut found.group.health;
    if let Some(protocol) = &change.protocol {
        health.protocol.clone_from(protocol);
    }
    if let Some(port) = &change.port {
        health.port.clone_from(port);
    }
    if change.path.is_some() {
        health.path.clone_from(&change.path);
    }
    if let Some(interval) = change.interval {
        health.interval = interval;
    }
    if change.timeout.is_some() {
        health.timeout = change.timeout;
    }
    if let Some((healthy, unhealthy)) = change.thresholds {
        health.healthy = healthy;
        health.unhealthy = unhealthy;
    }
}

fn defaults(pairs: &[(&str, &str)]) -> Attributes {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}
