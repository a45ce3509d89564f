//! From an observed classic load balancer to the desired one (specification: aws §4.7.3). Pure.
//!
//! Stages, each begun only when the one before plans nothing. The order is the safety argument: the
//! security group lets clients in before the load balancer exists, whatever changes how traffic is
//! sent is done before instances come, and instances come before others leave.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::converge::Plan;

use super::{
    absorb,
    desired::{FirstGroups, Phase, Want, is_tls},
    health_check::is_same,
};
use crate::{
    api::{
        elb::{
            AccessLog, Attributes, Draining, HealthCheck, ListenerSpec, LoadBalancer,
            NewLoadBalancer, Policy,
        },
        network::{NewSecurityGroup, Rule, Rules, SecurityGroup},
    },
    load_balancer::nlb::desired::missing_rules,
    tags::Tags,
};

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Have {
    /// The load balancer.
    pub load_balancer: Option<LoadBalancer>,
    /// The security group made for it, attached or not.
    pub managed_group: Option<SecurityGroup>,
    /// The cluster tags that the managed group lacks.
    pub managed_group_lacks: Tags,
    /// Its attributes; `None` when they are not known.
    pub attributes: Option<Attributes>,
    /// Its tags; `None` when they cannot be read or do not matter.
    pub tags: Option<Tags>,
    /// Tags written where they cannot be read.
    pub blind_tags: Tags,
    /// Keys of tags that we wrote before.
    pub written_keys: BTreeSet<String>,
    /// Instances that AWS refused during this pass: they are not tried again.
    pub refused: BTreeSet<String>,
}

/// One change. All but those of security groups are of the load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make the managed security group.
    CreateSecurityGroup(NewSecurityGroup),
    /// Put the cluster's tags onto the managed security group.
    TagSecurityGroup(String, Tags),
    /// Let clients in.
    Authorize(String, Rules),
    /// Let others out.
    Revoke(String, BTreeSet<Rule>),
    /// Make the load balancer.
    CreateLoadBalancer(NewLoadBalancer),
    /// Take subnets away.
    DetachSubnets(BTreeSet<String>),
    /// Add subnets.
    AttachSubnets(BTreeSet<String>),
    /// Replace the security groups.
    ApplySecurityGroups(Vec<String>),
    /// Delete the listeners of these ports.
    DeleteListeners(BTreeSet<i32>),
    /// Make listeners.
    CreateListeners(Vec<ListenerSpec>),
    /// Make a policy.
    CreatePolicy(Policy),
    /// Replace the policies of a port of the instances.
    SetBackendPolicies(i32, BTreeSet<String>),
    /// Replace the policies of a listener.
    SetListenerPolicies(i32, BTreeSet<String>),
    /// Change attributes.
    ModifyAttributes(Attributes),
    /// Replace the health check.
    ConfigureHealthCheck(HealthCheck),
    /// Register instances.
    Register(BTreeSet<String>),
    /// Deregister instances.
    Deregister(BTreeSet<String>),
    /// Add or overwrite tags.
    Tag(Tags),
    /// Remove tags.
    Untag(BTreeSet<String>),
}

/// What AWS answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// Nothing to remember.
    Nothing,
    /// The managed security group.
    SecurityGroup(SecurityGroup),
    /// The load balancer's DNS name.
    DnsName(String),
    /// A load balancer of that name was there.
    Found(Box<LoadBalancer>),
    /// The subnets that are attached now.
    Subnets(BTreeSet<String>),
    /// The instances that were refused.
    Refused(BTreeSet<String>),
}

/// The planner of classic load balancers.
#[derive(Debug)]
pub struct Clb;

type Stage = fn(&Want, &Have, &LoadBalancer) -> Vec<Action>;

impl Plan for Clb {
    type Want = Want;
    type Have = Have;
    type Action = Action;
    type Made = Made;

    fn next(want: &Want, have: &Have) -> Vec<Action> {
        let entrance = entrance(want, have);
        let (Some(lb), true, Phase::Complete) =
            (&have.load_balancer, entrance.is_empty(), want.phase)
        else {
            return entrance;
        };
        let stages: &[Stage] = &[
            subnets,
            security_groups,
            // AWS has one listener a port, and changes none in place.
            delete_listeners,
            create_listeners,
            create_policies,
            settings,
            register,
            deregister,
            // Nothing depends on these.
            finish,
        ];
        stages
            .iter()
            .map(|stage| stage(want, have, lb))
            .find(|actions| !actions.is_empty())
            .unwrap_or_default()
    }

    fn absorb(have: &mut Have, action: &Action, made: Made) {
        absorb::absorb(have, action, made);
    }
}

/// The managed group, its rules, the load balancer.
fn entrance(want: &Want, have: &Have) -> Vec<Action> {
    if let FirstGroups::Managed { new, rules } = &want.first_groups {
        let Some(group) = &have.managed_group else {
            return vec![Action::CreateSecurityGroup(new.clone())];
        };
        if !have.managed_group_lacks.is_empty() {
            let lacks = have.managed_group_lacks.clone();
            return vec![Action::TagSecurityGroup(group.id.clone(), lacks)];
        }
        let missing = missing_rules(rules, &group.rules);
        if !missing.is_empty() {
            return vec![Action::Authorize(group.id.clone(), missing)];
        }
    }
    if have.load_balancer.is_some() {
        return vec![];
    }
    vec![Action::CreateLoadBalancer(NewLoadBalancer {
        security_groups: wanted_groups(want, have).unwrap_or_default(),
        ..want.new.clone()
    })]
}

fn wanted_groups(want: &Want, have: &Have) -> Option<Vec<String>> {
    want.groups(have.managed_group.as_ref().map(|group| group.id.as_str()))
}

/// Subnets leave before others come. But AWS keeps the last one, and takes one a zone: where nothing
/// stays, those come first whose zone is free, and if there is no such zone the old ones make room
/// one after the other. A single subnet cannot be replaced in its zone; then nothing is done.
fn subnets(want: &Want, _: &Have, lb: &LoadBalancer) -> Vec<Action> {
    let Some(wanted) = want.subnets.as_ref().filter(|wanted| !wanted.is_empty()) else {
        return vec![];
    };
    let zone = |id: &String| want.zones.get(id).unwrap_or(id).clone();
    let occupied: BTreeSet<String> = lb.subnets.iter().map(zone).collect();
    let surplus: BTreeSet<String> = lb.subnets.difference(wanted).cloned().collect();
    if !surplus.is_empty() && surplus != lb.subnets {
        return vec![Action::DetachSubnets(surplus)];
    }
    let missing: BTreeSet<String> = wanted.difference(&lb.subnets).cloned().collect();
    let free: BTreeSet<String> = missing
        .iter()
        .filter(|id| !occupied.contains(&zone(id)))
        .cloned()
        .collect();
    if !free.is_empty() {
        return vec![Action::AttachSubnets(free)];
    }
    let zones: BTreeSet<String> = missing.iter().map(zone).collect();
    let mut in_the_way: BTreeSet<String> = surplus
        .into_iter()
        .filter(|id| zones.contains(&zone(id)))
        .collect();
    if in_the_way == lb.subnets {
        in_the_way.pop_last();
    }
    if in_the_way.is_empty() {
        return vec![];
    }
    vec![Action::DetachSubnets(in_the_way)]
}

fn security_groups(want: &Want, have: &Have, lb: &LoadBalancer) -> Vec<Action> {
    let Some(groups) = wanted_groups(want, have).filter(|groups| !groups.is_empty()) else {
        return vec![];
    };
    let attached: BTreeSet<&String> = lb.security_groups.iter().collect();
    if attached == groups.iter().collect() {
        return vec![];
    }
    vec![Action::ApplySecurityGroups(groups)]
}

/// Protocols and certificates are compared in any case, as AWS answers them in its own.
fn is_same_listener(one: &ListenerSpec, other: &ListenerSpec) -> bool {
    let certificate = |spec: &ListenerSpec| spec.certificate.as_deref().map(str::to_lowercase);
    one.port == other.port
        && one.instance_port == other.instance_port
        && one.protocol.eq_ignore_ascii_case(&other.protocol)
        && one
            .instance_protocol
            .eq_ignore_ascii_case(&other.instance_protocol)
        && certificate(one) == certificate(other)
}

fn delete_listeners(want: &Want, _: &Have, lb: &LoadBalancer) -> Vec<Action> {
    let wanted = |port: &i32, spec: &ListenerSpec| {
        let wanted = want.listeners.get(port);
        wanted.is_some_and(|wanted| is_same_listener(wanted, spec))
    };
    let ports: BTreeSet<i32> = lb
        .listeners
        .iter()
        .filter(|(port, listener)| !wanted(port, &listener.spec))
        .map(|(port, _)| *port)
        .collect();
    if ports.is_empty() {
        return vec![];
    }
    vec![Action::DeleteListeners(ports)]
}

fn create_listeners(want: &Want, _: &Have, lb: &LoadBalancer) -> Vec<Action> {
    let missing: Vec<ListenerSpec> = want
        .listeners
        .values()
        .filter(|spec| !lb.listeners.contains_key(&spec.port))
        .cloned()
        .collect();
    if missing.is_empty() {
        return vec![];
    }
    vec![Action::CreateListeners(missing)]
}

fn create_policies(want: &Want, _: &Have, lb: &LoadBalancer) -> Vec<Action> {
    want.backend_policy
        .iter()
        .chain(&want.listener_policy)
        .filter(|policy| !lb.policies.contains(&policy.name))
        .map(|policy| Action::CreatePolicy(policy.clone()))
        .collect()
}

/// Policies in force, attributes and health check: they do not depend on each other.
fn settings(want: &Want, have: &Have, lb: &LoadBalancer) -> Vec<Action> {
    let mut actions = backend_policies(want, lb);
    actions.extend(listener_policies(want, lb));
    let changed = changed_attributes(&want.attributes, have.attributes.as_ref());
    if changed != Attributes::default() {
        actions.push(Action::ModifyAttributes(changed));
    }
    let same = |check: &HealthCheck| is_same(check, &want.health);
    if !lb.health.as_ref().is_some_and(same) {
        actions.push(Action::ConfigureHealthCheck(want.health.clone()));
    }
    actions
}

/// The policy of the PROXY protocol comes and goes; others of a port that is used stay. A port that
/// no listener uses any more loses all: AWS keeps them.
fn backend_policies(want: &Want, lb: &LoadBalancer) -> Vec<Action> {
    let used: BTreeSet<i32> = want.listeners.values().map(|l| l.instance_port).collect();
    let none = BTreeSet::new();
    let ports: BTreeSet<i32> = used
        .iter()
        .chain(lb.backend_policies.keys())
        .copied()
        .collect();
    ports
        .into_iter()
        .filter_map(|port| {
            let have = lb.backend_policies.get(&port).unwrap_or(&none);
            let mut wanted = have.clone();
            if !used.contains(&port) {
                wanted.clear();
            } else if let Some(policy) = &want.backend_policy {
                wanted.insert(policy.name.clone());
            } else {
                wanted.remove(crate::names::PROXY_PROTOCOL_POLICY);
            }
            (wanted != *have).then_some(Action::SetBackendPolicies(port, wanted))
        })
        .collect()
}

fn listener_policies(want: &Want, lb: &LoadBalancer) -> Vec<Action> {
    let Some(policy) = &want.listener_policy else {
        // What was set before stays, as by the Go manager.
        return vec![];
    };
    lb.listeners
        .values()
        .filter(|listener| is_tls(&listener.spec) && !listener.policies.contains(&policy.name))
        .map(|listener| {
            let policies = BTreeSet::from([policy.name.clone()]);
            Action::SetListenerPolicies(listener.spec.port, policies)
        })
        .collect()
}

/// The parts that differ, of those that we own. All of them when it is not known what is there.
fn changed_attributes(want: &Attributes, have: Option<&Attributes>) -> Attributes {
    let unknown = Attributes::default();
    let have = have.unwrap_or(&unknown);
    let log = |wanted: &AccessLog| {
        let same = |have: &AccessLog| {
            wanted.enabled == have.enabled
                && is_met(&wanted.emit_interval, &have.emit_interval)
                && is_met(&wanted.bucket, &have.bucket)
                && is_met(&wanted.prefix, &have.prefix)
        };
        !have.access_log.as_ref().is_some_and(same)
    };
    let draining = |wanted: &Draining| {
        let same = |have: &Draining| {
            wanted.enabled == have.enabled && is_met(&wanted.timeout, &have.timeout)
        };
        !have.draining.as_ref().is_some_and(same)
    };
    Attributes {
        access_log: want.access_log.clone().filter(log),
        draining: want.draining.filter(draining),
        idle_timeout: want
            .idle_timeout
            .filter(|seconds| have.idle_timeout != Some(*seconds)),
        cross_zone: want
            .cross_zone
            .filter(|enabled| have.cross_zone != Some(*enabled)),
    }
}

fn is_met<T: PartialEq>(want: &Option<T>, have: &Option<T>) -> bool {
    want.is_none() || want == have
}

fn register(want: &Want, have: &Have, lb: &LoadBalancer) -> Vec<Action> {
    let new: BTreeSet<String> = want
        .instances
        .difference(&lb.instances)
        .filter(|id| !have.refused.contains(*id))
        .cloned()
        .collect();
    if new.is_empty() {
        return vec![];
    }
    vec![Action::Register(new)]
}

fn deregister(want: &Want, _: &Have, lb: &LoadBalancer) -> Vec<Action> {
    let gone: BTreeSet<String> = lb.instances.difference(&want.instances).cloned().collect();
    if gone.is_empty() {
        return vec![];
    }
    vec![Action::Deregister(gone)]
}

fn finish(want: &Want, have: &Have, _: &LoadBalancer) -> Vec<Action> {
    let mut actions = Vec::new();
    if let (FirstGroups::Managed { rules, .. }, Some(group)) =
        (&want.first_groups, &have.managed_group)
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
    actions.extend(tags(want, have));
    actions
}

/// Tags that others put there stay; what we wrote before and is not wanted any more goes. Where tags
/// cannot be read the user's are written once, as the Go manager does each time.
fn tags(want: &Want, have: &Have) -> Vec<Action> {
    let Some(there) = &have.tags else {
        let lacking = lacking(&want.user_tags, &have.blind_tags);
        return (!lacking.is_empty())
            .then_some(Action::Tag(lacking))
            .into_iter()
            .collect();
    };
    let lacking = lacking(&want.new.tags, there);
    let stale: BTreeSet<String> = have
        .written_keys
        .iter()
        .filter(|key| !want.new.tags.contains_key(*key) && there.contains_key(*key))
        .cloned()
        .collect();
    let tag = (!lacking.is_empty()).then_some(Action::Tag(lacking));
    let untag = (!stale.is_empty()).then_some(Action::Untag(stale));
    tag.into_iter().chain(untag).collect()
}

fn lacking(want: &Tags, have: &Tags) -> Tags {
    want.iter()
        .filter(|(key, value)| have.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The parts of a description by which a new load balancer is known before it is read.
pub(super) fn described(new: &NewLoadBalancer, dns_name: String) -> LoadBalancer {
    let listeners: BTreeMap<_, _> = new
        .listeners
        .iter()
        .map(|spec| (spec.port, absorb::plain(spec)))
        .collect();
    LoadBalancer {
        name: new.name.clone(),
        dns_name,
        scheme: if new.internal {
            crate::api::elbv2::SCHEME_INTERNAL.to_owned()
        } else {
            "internet-facing".to_owned()
        },
        subnets: new.subnets.clone(),
        security_groups: new.security_groups.clone(),
        listeners,
        ..LoadBalancer::default()
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
