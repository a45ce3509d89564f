//! Load balancers.

use std::collections::{BTreeMap, BTreeSet};

use super::super::elbv2::{check_groups, check_name, page_size};
use super::super::query::{Params, Xml};
use super::super::state::{State, iso};
use super::model::{ClassicAttributes, ClassicListener, ClassicLoadBalancer};
use super::{health, listeners, need, not_found, placement, tags, validation};
use crate::clock::later;
use crate::control::CloudError;

/// `Scheme`; internet-facing unless the request says `internal`.
fn scheme(params: &Params) -> Result<String, CloudError> {
    let scheme = params.get("Scheme").filter(|scheme| !scheme.is_empty());
    match scheme.unwrap_or("internet-facing") {
        known @ ("internet-facing" | "internal") => Ok(known.to_owned()),
        other => Err(CloudError::new(
            "InvalidScheme",
            format!("The scheme '{other}' is not valid: use internal or internet-facing"),
        )),
    }
}

/// The load balancer that the request describes. Its subnets are returned apart, to be placed.
fn wanted(
    state: &mut State,
    params: &Params,
) -> Result<(ClassicLoadBalancer, BTreeSet<String>), CloudError> {
    let name = need(params, "LoadBalancerName")?.to_owned();
    check_name("load balancer", &name)?;
    let scheme = scheme(params)?;
    let read = listeners::read(state, params)?;
    let first = read.first().map_or(0, |listener| listener.instance_port);
    let subnets: BTreeSet<String> = params.members("Subnets").into_iter().collect();
    if subnets.is_empty() {
        return Err(validation(
            "Subnets must be specified: availability zones need a default VPC, which this account has not",
        ));
    }
    let own = state.all.classic_load_balancers.get(&name);
    let attached = own.map(|lb| lb.subnets.clone()).unwrap_or_default();
    // Subnets of the same load balancer may be full: the request may be a repetition.
    let settled: BTreeSet<String> = attached.intersection(&subnets).cloned().collect();
    let vpc_id = placement::check_subnets(state, &subnets, &settled, &scheme)?;
    let mut groups: BTreeSet<String> = params.members("SecurityGroups").into_iter().collect();
    if groups.is_empty() {
        groups.extend(state.default_group(&vpc_id));
    }
    check_groups(state, &groups, &vpc_id)?;
    let mut lb = ClassicLoadBalancer {
        name,
        dns_name: String::new(),
        scheme,
        vpc_id,
        subnets: BTreeSet::new(),
        security_groups: groups,
        listeners: BTreeMap::new(),
        policies: BTreeMap::new(),
        backend_policies: BTreeMap::new(),
        health_check: health::default_check(first),
        instances: BTreeSet::new(),
        attributes: ClassicAttributes::default(),
        tags: tags::read(params)?,
        created: state.now,
        known_at: BTreeMap::new(),
        ghost_until: None,
    };
    listeners::add(&mut lb, read)?;
    Ok((lb, subnets))
}

/// CreateLoadBalancer. The same request again returns the existing load balancer.
pub(crate) fn create(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let (mut lb, subnets) = wanted(state, params)?;
    if let Some(present) = state.all.classic_load_balancers.get(&lb.name) {
        let pairs = || present.listeners.values().zip(lb.listeners.values());
        let same = present.scheme == lb.scheme
            && present.subnets == subnets
            && present.security_groups == lb.security_groups
            && present.listeners.len() == lb.listeners.len()
            && pairs().all(|(a, b)| listeners::same(a, b));
        if !same {
            let text = format!(
                "Load Balancer named {} already exists and it is configured with different parameters.",
                lb.name
            );
            return Err(CloudError::new("DuplicateLoadBalancerName", text));
        }
        xml.text("DNSName", &present.dns_name);
        return Ok(());
    }
    if state.all.classic_load_balancers.len() >= state.quotas.classic_load_balancers {
        let text = "Exceeded quota of account";
        return Err(CloudError::new("TooManyLoadBalancers", text));
    }
    state.settings.service_linked_role = true;
    lb.dns_name = state.classic_dns_name(&lb.name, &lb.scheme);
    xml.text("DNSName", &lb.dns_name);
    state.place_classic(lb, subnets)
}

impl State {
    /// `name-1234567890.us-west-2.elb.amazonaws.com`: region before `elb`, other than for ELBv2.
    fn classic_dns_name(&mut self, name: &str, scheme: &str) -> String {
        let number = self.rng.u64(1_000_000_000..10_000_000_000);
        let prefix = if scheme == "internal" {
            "internal-"
        } else {
            ""
        };
        let suffix = self.dns_suffix();
        format!("{prefix}{name}-{number}.{}.elb.{suffix}", self.region)
    }
}

/// DescribeLoadBalancers. One missing name fails the whole call.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let all = &state.all.classic_load_balancers;
    let ghosts = state
        .classic_ghosts
        .iter()
        .filter(|ghost| !all.contains_key(&ghost.name));
    let seen: BTreeMap<&String, &ClassicLoadBalancer> = all
        .values()
        .chain(ghosts)
        .filter(|lb| state.visible(&lb.name))
        .map(|lb| (&lb.name, lb))
        .collect();
    let names = params.members("LoadBalancerNames");
    if let Some(name) = names.iter().find(|name| !seen.contains_key(name)) {
        return Err(not_found(name));
    }
    let items = seen
        .into_iter()
        .filter(|(name, _)| names.is_empty() || names.contains(name))
        .map(|(name, lb)| (name.clone(), lb))
        .collect();
    let (page, next) = state.page(items, params.get("Marker"), page_size(params)?)?;
    xml.list("LoadBalancerDescriptions", "member", page, |xml, lb| {
        write(xml, state, lb);
    });
    xml.opt("NextMarker", next);
    Ok(())
}

fn write(xml: &mut Xml, state: &State, lb: &ClassicLoadBalancer) {
    xml.text("LoadBalancerName", &lb.name);
    xml.text("DNSName", &lb.dns_name);
    if lb.scheme == "internet-facing" {
        xml.text("CanonicalHostedZoneName", &lb.dns_name);
    }
    xml.text("CanonicalHostedZoneNameID", "Z1H1FL5HABSF5");
    let all = lb.listeners.values();
    xml.list("ListenerDescriptions", "member", all, write_listener);
    xml.el("Policies", |xml| {
        for none in ["AppCookieStickinessPolicies", "LBCookieStickinessPolicies"] {
            xml.list(none, "member", [(); 0], |_, ()| {});
        }
        xml.texts("OtherPolicies", "member", lb.policies.keys());
    });
    let backends = &lb.backend_policies;
    xml.list(
        "BackendServerDescriptions",
        "member",
        backends,
        |xml, (port, names)| {
            xml.text("InstancePort", port);
            xml.texts("PolicyNames", "member", names);
        },
    );
    let subnets = lb.subnets.iter();
    let zones: BTreeSet<&String> = subnets
        .filter_map(|id| state.all.subnets.get(id).map(|subnet| &subnet.zone))
        .collect();
    xml.texts("AvailabilityZones", "member", zones);
    xml.texts("Subnets", "member", &lb.subnets);
    xml.text("VPCId", &lb.vpc_id);
    xml.list("Instances", "member", &lb.instances, |xml, id| {
        xml.text("InstanceId", id);
    });
    health::write(xml, &lb.health_check);
    let groups = lb.security_groups.iter();
    let source = groups
        .clone()
        .find_map(|id| state.all.security_groups.get(id));
    xml.el("SourceSecurityGroup", |xml| {
        xml.text("OwnerAlias", &state.account);
        xml.opt("GroupName", source.map(|group| &group.name));
    });
    xml.texts("SecurityGroups", "member", groups);
    xml.text("CreatedTime", iso(lb.created));
    xml.text("Scheme", &lb.scheme);
}

fn write_listener(xml: &mut Xml, listener: &ClassicListener) {
    xml.el("Listener", |xml| {
        xml.text("Protocol", &listener.protocol);
        xml.text("LoadBalancerPort", listener.port);
        xml.text("InstanceProtocol", &listener.instance_protocol);
        xml.text("InstancePort", listener.instance_port);
        xml.opt("SSLCertificateId", listener.certificate.as_ref());
    });
    xml.texts("PolicyNames", "member", &listener.policies);
}

/// DeleteLoadBalancer. Deleting what does not exist succeeds; reads may still show it for a time.
pub(crate) fn delete(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let name = need(params, "LoadBalancerName")?;
    let Some(mut lb) = state.all.classic_load_balancers.remove(name) else {
        return Ok(());
    };
    state.release_classic(name);
    if !state.settings.lb_deletion_lag.is_zero() {
        lb.ghost_until = Some(later(state.now, state.settings.lb_deletion_lag));
        state.classic_ghosts.push(lb);
    }
    Ok(())
}
