//! From an observed network load balancer to the desired one (specification: aws §4.8.4). Pure.
//!
//! Stages, each begun only when the one before plans nothing. The order is the safety argument:
//! what is referred to is made first, a listener gets a target group only when its targets are
//! registered, and nothing is taken away before its replacement works.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::converge::Plan;

use super::{
    absorb,
    desired::{Phase, SecurityGroups, Want, WantPort, missing_rules},
    observe::stem,
};
use crate::{
    api::{
        elbv2::{
            Attributes, HealthChange, Listener, ListenerSpec, LoadBalancer, NewLoadBalancer,
            NewTargetGroup, TARGETS_PER_CALL, Target, TargetGroup,
        },
        network::{NewSecurityGroup, Rule, Rules, SecurityGroup},
    },
    tags::{CLUSTER_PREFIX, LEGACY_CLUSTER, SERVICE_NAME, Tags},
};

/// A target group as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HaveTargetGroup {
    /// The group.
    pub group: TargetGroup,
    /// Its targets, without those that are being deregistered.
    pub targets: BTreeSet<Target>,
    /// Targets that AWS refused during this pass: they are not tried again.
    pub refused: BTreeSet<Target>,
    /// How many targets AWS takes, once it refused more.
    pub limit: Option<usize>,
    /// Its attributes, when they were read.
    pub attributes: Option<Attributes>,
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Have {
    /// The load balancer.
    pub load_balancer: Option<LoadBalancer>,
    /// The security group made for it, attached or not.
    pub managed_group: Option<SecurityGroup>,
    /// The cluster tags that the managed group lacks.
    pub managed_group_lacks: Tags,
    /// Its target groups, by ARN, and unattached ones that carry a desired name.
    pub target_groups: BTreeMap<String, HaveTargetGroup>,
    /// Its listeners, by ARN.
    pub listeners: BTreeMap<String, Listener>,
    /// Its attributes, when they were read.
    pub attributes: Option<Attributes>,
    /// The tags of everything, by ARN; only what could be read.
    pub tags: BTreeMap<String, Tags>,
    /// Keys of tags that we wrote before.
    pub written_keys: BTreeSet<String>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make the managed security group.
    CreateSecurityGroup(NewSecurityGroup),
    /// Put the cluster's tags onto the managed security group.
    TagSecurityGroup(String, Tags),
    /// Make the load balancer.
    CreateLoadBalancer(NewLoadBalancer),
    /// Let clients in.
    Authorize(String, Rules),
    /// Let others out.
    Revoke(String, BTreeSet<Rule>),
    /// Replace the load balancer's security groups.
    SetSecurityGroups(String, BTreeSet<String>),
    /// Make a target group.
    CreateTargetGroup(NewTargetGroup),
    /// Change a health check.
    ModifyTargetGroup(String, HealthChange),
    /// Deregister targets.
    Deregister(String, Vec<Target>),
    /// Register targets.
    Register(String, Vec<Target>),
    /// Make a listener on the load balancer.
    CreateListener(String, ListenerSpec, Tags),
    /// Change a listener.
    ModifyListener(String, ListenerSpec),
    /// Delete a listener.
    DeleteListener(String),
    /// Delete a target group.
    DeleteTargetGroup(String),
    /// Change load balancer attributes.
    ModifyAttributes(String, Attributes),
    /// Change target group attributes.
    ModifyTargetGroupAttributes(String, Attributes),
    /// Add or overwrite tags.
    Tag(String, Tags),
    /// Remove tags.
    Untag(String, BTreeSet<String>),
}

/// What AWS answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// Nothing to remember.
    Nothing,
    /// The managed security group.
    SecurityGroup(SecurityGroup),
    /// The load balancer.
    LoadBalancer(LoadBalancer),
    /// A target group.
    TargetGroup(TargetGroup),
    /// A listener.
    Listener(Listener),
    /// What became of targets to be registered.
    Registered {
        /// Refused because of what they are.
        refused: BTreeSet<Target>,
        /// Refused because the target group is full.
        over_limit: BTreeSet<Target>,
    },
}

/// The planner of network load balancers.
#[derive(Debug)]
pub struct Nlb;

impl Plan for Nlb {
    type Want = Want;
    type Have = Have;
    type Action = Action;
    type Made = Made;

    fn next(want: &Want, have: &Have) -> Vec<Action> {
        let backends: &[fn(&Want, &Have) -> Vec<Action>] = &[
            // The load balancer is made with its group, and the group must let clients in first.
            managed_group,
            load_balancer,
            managed_rules,
            security_groups,
            // Target groups before what forwards to them.
            target_groups,
            health_checks,
            // A full target group takes new targets only after old ones left.
            deregister,
            register,
        ];
        let complete: &[fn(&Want, &Have) -> Vec<Action>] = &[
            // In place where the port stays: AWS refuses a second listener on a port.
            change_listeners,
            create_listeners,
            // Only what no listener forwards to any more.
            delete_target_groups,
            // Nothing depends on these.
            finish,
        ];
        let stages = backends.iter().chain(if want.phase == Phase::Complete {
            complete
        } else {
            &[]
        });
        stages
            .map(|stage| stage(want, have))
            .find(|actions| !actions.is_empty())
            .unwrap_or_default()
    }

    fn absorb(have: &mut Have, action: &Action, made: Made) {
        absorb::absorb(have, action, made);
    }
}

fn managed_group(want: &Want, have: &Have) -> Vec<Action> {
    match (&want.security_groups, &have.managed_group) {
        (SecurityGroups::Managed { new, .. }, None) => {
            vec![Action::CreateSecurityGroup(new.clone())]
        }
        (SecurityGroups::Managed { .. }, Some(group)) if !have.managed_group_lacks.is_empty() => {
            vec![Action::TagSecurityGroup(
                group.id.clone(),
                have.managed_group_lacks.clone(),
            )]
        }
        _ => vec![],
    }
}

/// The security groups that should be attached; `None` keeps what is.
fn wanted_groups(want: &Want, have: &Have) -> Option<BTreeSet<String>> {
    match &want.security_groups {
        SecurityGroups::Keep => None,
        SecurityGroups::Exactly(groups) => Some(groups.clone()),
        SecurityGroups::Managed { .. } => Some(
            have.managed_group
                .iter()
                .map(|group| group.id.clone())
                .collect(),
        ),
    }
}

fn load_balancer(want: &Want, have: &Have) -> Vec<Action> {
    if have.load_balancer.is_some() {
        return vec![];
    }
    vec![Action::CreateLoadBalancer(NewLoadBalancer {
        security_groups: wanted_groups(want, have).unwrap_or_default(),
        ..want.new.clone()
    })]
}

fn managed_rules(want: &Want, have: &Have) -> Vec<Action> {
    let (SecurityGroups::Managed { rules, .. }, Some(group)) =
        (&want.security_groups, &have.managed_group)
    else {
        return vec![];
    };
    let missing = missing_rules(rules, &group.rules);
    if missing.is_empty() {
        return vec![];
    }
    vec![Action::Authorize(group.id.clone(), missing)]
}

fn security_groups(want: &Want, have: &Have) -> Vec<Action> {
    let (Some(lb), Some(groups)) = (&have.load_balancer, wanted_groups(want, have)) else {
        return vec![];
    };
    if groups.is_empty() || groups == lb.security_groups {
        return vec![];
    }
    vec![Action::SetSecurityGroups(lb.arn.clone(), groups)]
}

fn fits(want: &WantPort, group: &TargetGroup) -> bool {
    group.port == want.port.node_port && group.protocol == want.port.target_protocol
}

/// Which target group serves which port: the one of the computed name; else one of ours for that
/// node port whose health check differs in nothing that would need another group.
fn assign(want: &Want, have: &Have) -> Vec<Option<String>> {
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut chosen: Vec<Option<&str>> = Vec::with_capacity(want.ports.len());
    for port in &want.ports {
        let hit = have
            .target_groups
            .values()
            .find(|found| found.group.name == port.port.target_group && fits(port, &found.group));
        let arn = hit
            .map(|found| found.group.arn.as_str())
            .filter(|arn| taken.insert(*arn));
        chosen.push(arn);
    }
    for (port, slot) in want.ports.iter().zip(&mut chosen) {
        if slot.is_some() {
            continue;
        }
        let current = have
            .listeners
            .values()
            .find(|listener| listener.spec.port == port.port.port)
            .map(|listener| listener.spec.target_group.as_str());
        let mut candidates: Vec<&str> = have
            .target_groups
            .values()
            .map(|found| &found.group)
            .filter(|group| {
                fits(port, group)
                    && group
                        .health
                        .protocol
                        .eq_ignore_ascii_case(&port.health.protocol)
                    && group.health.interval == port.health.interval
                    && is_ours(have, group)
            })
            .map(|group| group.arn.as_str())
            .filter(|arn| !taken.contains(arn))
            .collect();
        candidates.sort_by_key(|arn| Some(*arn) != current);
        if let Some(arn) = candidates.first() {
            taken.insert(arn);
            *slot = Some(arn);
        }
    }
    chosen
        .into_iter()
        .map(|arn| arn.map(str::to_owned))
        .collect()
}

/// Whether our load balancer forwards to the group.
fn is_ours(have: &Have, group: &TargetGroup) -> bool {
    is_used(have, &group.arn)
        || have
            .load_balancer
            .as_ref()
            .is_some_and(|lb| group.load_balancers.contains(&lb.arn))
}

fn is_used(have: &Have, target_group: &str) -> bool {
    have.listeners.values().any(|listener| {
        listener.spec.target_group == target_group
            || listener.also_forwards_to.contains(target_group)
    })
}

/// Whether name or tags say that the group was made for this Service. Others may be attached to our
/// load balancer by hand.
fn is_made_here(want: &Want, have: &Have, group: &TargetGroup) -> bool {
    let named = want
        .ports
        .iter()
        .any(|port| group.name.starts_with(stem(&port.port.target_group)));
    let tagged = || {
        let tags = have.tags.get(&group.arn)?;
        let service = tags.get(SERVICE_NAME)? == want.tags.get(SERVICE_NAME)?;
        let cluster = want.tags.keys().any(|key| {
            (key.starts_with(CLUSTER_PREFIX) || key == LEGACY_CLUSTER) && tags.contains_key(key)
        });
        Some(service && cluster)
    };
    named || tagged().unwrap_or(false)
}

fn target_groups(want: &Want, have: &Have) -> Vec<Action> {
    let vpc = have
        .load_balancer
        .as_ref()
        .map_or(&want.vpc_id, |lb| &lb.vpc_id);
    want.ports
        .iter()
        .zip(assign(want, have))
        .filter(|(_, arn)| arn.is_none())
        .map(|(port, _)| {
            // A group of that name that cannot serve is in the way.
            let blocker = have.target_groups.values().find(|found| {
                found.group.name == port.port.target_group && !is_used(have, &found.group.arn)
            });
            match blocker {
                Some(found) => Action::DeleteTargetGroup(found.group.arn.clone()),
                None => Action::CreateTargetGroup(NewTargetGroup {
                    name: port.port.target_group.clone(),
                    port: port.port.node_port,
                    protocol: port.port.target_protocol.to_owned(),
                    vpc_id: vpc.clone(),
                    health: port.health.clone(),
                    tags: want.tags.clone(),
                }),
            }
        })
        .collect()
}

/// The ports whose target group is there.
fn served<'a>(
    want: &'a Want,
    have: &'a Have,
) -> impl Iterator<Item = (&'a WantPort, &'a HaveTargetGroup)> {
    want.ports
        .iter()
        .zip(assign(want, have))
        .filter_map(|(port, arn)| Some((port, have.target_groups.get(&arn?)?)))
}

fn health_checks(want: &Want, have: &Have) -> Vec<Action> {
    served(want, have)
        .filter_map(|(port, found)| {
            let change = health_change(port, &found.group)?;
            Some(Action::ModifyTargetGroup(found.group.arn.clone(), change))
        })
        .collect()
}

fn health_change(want: &WantPort, have: &TargetGroup) -> Option<HealthChange> {
    let (want, have) = (&want.health, &have.health);
    let thresholds = (want.healthy, want.unhealthy);
    let change = HealthChange {
        protocol: (!want.protocol.eq_ignore_ascii_case(&have.protocol))
            .then(|| want.protocol.clone()),
        port: (want.port != have.port).then(|| want.port.clone()),
        path: want
            .path
            .clone()
            .filter(|path| Some(path) != have.path.as_ref()),
        interval: (want.interval != have.interval).then_some(want.interval),
        timeout: want
            .timeout
            .filter(|timeout| Some(*timeout) != have.timeout),
        thresholds: (thresholds != (have.healthy, have.unhealthy)).then_some(thresholds),
    };
    (change != HealthChange::default()).then_some(change)
}

fn wanted_targets(want: &Want, port: i32) -> BTreeSet<Target> {
    want.instances
        .iter()
        .map(|id| Target {
            id: id.clone(),
            port,
        })
        .collect()
}

fn deregister(want: &Want, have: &Have) -> Vec<Action> {
    served(want, have)
        .filter_map(|(port, found)| {
            let wanted = wanted_targets(want, port.port.node_port);
            let gone = found.targets.difference(&wanted).take(TARGETS_PER_CALL);
            let gone: Vec<Target> = gone.cloned().collect();
            (!gone.is_empty()).then(|| Action::Deregister(found.group.arn.clone(), gone))
        })
        .collect()
}

/// The targets to register now: one call's worth, in order, so that the choice at a limit is the
/// same each time.
fn register(want: &Want, have: &Have) -> Vec<Action> {
    served(want, have)
        .filter_map(|(port, found)| {
            let wanted = wanted_targets(want, port.port.node_port);
            let room = found.limit.map_or(usize::MAX, |limit| {
                limit.saturating_sub(found.targets.len())
            });
            let new = wanted
                .difference(&found.targets)
                .filter(|target| !found.refused.contains(target))
                .take(room.min(TARGETS_PER_CALL));
            let new: Vec<Target> = new.cloned().collect();
            (!new.is_empty()).then(|| Action::Register(found.group.arn.clone(), new))
        })
        .collect()
}

/// Each desired port with its listener: the one of the same port and protocol, else the one that
/// has the port.
fn pair_listeners<'a>(want: &'a Want, have: &'a Have) -> Vec<(ListenerSpec, Option<&'a Listener>)> {
    served(want, have)
        .map(|(port, found)| {
            let spec = ListenerSpec {
                port: port.port.port,
                protocol: port.port.listener_protocol.to_owned(),
                ssl_policy: port.port.ssl_policy.clone(),
                certificate: port.port.certificate.clone(),
                target_group: found.group.arn.clone(),
            };
            let mut there: Vec<&Listener> = have
                .listeners
                .values()
                .filter(|l| l.spec.port == spec.port)
                .collect();
            there.sort_by_key(|listener| listener.spec.protocol != spec.protocol);
            let listener = there.first().copied();
            (spec, listener)
        })
        .collect()
}

fn listener_differs(want: &ListenerSpec, have: &ListenerSpec) -> bool {
    let policy = want.ssl_policy.is_some() && want.ssl_policy != have.ssl_policy;
    want.protocol != have.protocol
        || want.target_group != have.target_group
        || want.certificate != have.certificate
        || policy
}

fn change_listeners(want: &Want, have: &Have) -> Vec<Action> {
    let pairs = pair_listeners(want, have);
    let kept: BTreeSet<&str> = pairs
        .iter()
        .filter_map(|(_, listener)| listener.map(|l| l.arn.as_str()))
        .collect();
    let surplus = have
        .listeners
        .keys()
        .filter(|arn| !kept.contains(arn.as_str()))
        .map(|arn| Action::DeleteListener(arn.clone()));
    let changed = pairs.iter().filter_map(|(spec, listener)| {
        let listener = listener.filter(|listener| listener_differs(spec, &listener.spec))?;
        Some(Action::ModifyListener(listener.arn.clone(), spec.clone()))
    });
    surplus.chain(changed).collect()
}

fn create_listeners(want: &Want, have: &Have) -> Vec<Action> {
    let Some(lb) = &have.load_balancer else {
        return vec![];
    };
    pair_listeners(want, have)
        .into_iter()
        .filter(|(_, listener)| listener.is_none())
        .map(|(spec, _)| Action::CreateListener(lb.arn.clone(), spec, want.tags.clone()))
        .collect()
}

fn delete_target_groups(want: &Want, have: &Have) -> Vec<Action> {
    let serving: BTreeSet<String> = assign(want, have).into_iter().flatten().collect();
    have.target_groups
        .iter()
        .filter(|(arn, found)| {
            !serving.contains(*arn) && !is_used(have, arn) && is_made_here(want, have, &found.group)
        })
        .map(|(arn, _)| Action::DeleteTargetGroup(arn.clone()))
        .collect()
}

fn finish(want: &Want, have: &Have) -> Vec<Action> {
    let mut actions = Vec::new();
    if let (SecurityGroups::Managed { rules, .. }, Some(group)) =
        (&want.security_groups, &have.managed_group)
    {
        let surplus: BTreeSet<Rule> = group
            .rules
            .keys()
            .filter(|rule| !rules.contains(*rule))
            .cloned()
            .collect();
        if !surplus.is_empty() {
            actions.push(Action::Revoke(group.id.clone(), surplus));
        }
    }
    if let (Some(lb), Some(attributes)) = (&have.load_balancer, &have.attributes) {
        let changed = attribute_diff(&want.attributes, attributes);
        if !changed.is_empty() {
            actions.push(Action::ModifyAttributes(lb.arn.clone(), changed));
        }
    }
    for (_, found) in served(want, have) {
        let Some(attributes) = &found.attributes else {
            continue;
        };
        // Keys that AWS does not know for this group are left out.
        let mut changed = attribute_diff(&want.target_group_attributes, attributes);
        changed.retain(|key, _| attributes.contains_key(key));
        if !changed.is_empty() {
            actions.push(Action::ModifyTargetGroupAttributes(
                found.group.arn.clone(),
                changed,
            ));
        }
    }
    actions.extend(tags(want, have));
    actions
}

fn attribute_diff(want: &Attributes, have: &Attributes) -> Attributes {
    want.iter()
        .filter(|(key, value)| have.get(*key).map(String::as_str).unwrap_or_default() != *value)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Tags that others put there stay; what we wrote before and is not wanted any more goes.
fn tags(want: &Want, have: &Have) -> Vec<Action> {
    let ours = |arn: &str| {
        have.load_balancer.as_ref().is_some_and(|lb| lb.arn == arn)
            || have.listeners.contains_key(arn)
            || have
                .target_groups
                .get(arn)
                .is_some_and(|found| is_made_here(want, have, &found.group))
    };
    let there = || have.tags.iter().filter(|(arn, _)| ours(arn));
    let lacking: Vec<&String> = there()
        .filter(|(_, tags)| {
            want.tags
                .iter()
                .any(|(key, value)| tags.get(key) != Some(value))
        })
        .map(|(arn, _)| arn)
        .collect();
    let stale: BTreeSet<String> = have
        .written_keys
        .iter()
        .filter(|key| !want.tags.contains_key(*key))
        .cloned()
        .collect();
    let surplus: Vec<&String> = there()
        .filter(|(_, tags)| stale.iter().any(|key| tags.contains_key(key)))
        .map(|(arn, _)| arn)
        .collect();
    let tag = lacking
        .into_iter()
        .map(|arn| Action::Tag(arn.clone(), want.tags.clone()));
    let untag = surplus
        .into_iter()
        .map(|arn| Action::Untag(arn.clone(), stale.clone()));
    tag.chain(untag).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
