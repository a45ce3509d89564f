//! What is a leftover, and why. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::cloud::{Leftover, LeftoverKind};

use super::owners::{Claim, Claims};
use crate::{
    api::{
        all_load_balancers::ListedLoadBalancer,
        dry_run::rule_text,
        elbv2::TargetGroup,
        network::{Rule, SecurityGroup},
    },
    load_balancer::{nlb::desired::KIND, settings::Settings},
    names::{NLB_CLIENT_RULE_PREFIX, NLB_HEALTH_RULE_PREFIX, NLB_SECURITY_GROUP_DESCRIPTION},
    tags::{ClusterTags, Lifecycle, SERVICE_NAME, Tags},
};

/// Digits of a load balancer's name after its first letter.
const DIGITS: usize = 31;

/// What the names of our target groups and security groups begin with.
const PREFIX: &str = "k8s-";

/// What the tags of another controller begin with, which gives its security groups the same
/// description.
const OTHER_CONTROLLER: &str = "elbv2.k8s.aws/";

/// Everything that was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// All load balancers, of any type.
    pub(super) load_balancers: Vec<ListedLoadBalancer>,
    /// All target groups.
    pub(super) target_groups: Vec<TargetGroup>,
    /// All security groups of the VPC.
    pub(super) groups: Vec<SecurityGroup>,
    /// The tags of [`candidates`](Self::candidates).
    pub(super) tags: BTreeMap<String, Tags>,
}

impl Shown {
    /// ARNs of what the name alone does not rule out: the tags of others are not read.
    pub(super) fn candidates(&self) -> BTreeSet<String> {
        let load_balancers = self
            .load_balancers
            .iter()
            .map(|listed| &listed.load_balancer)
            .filter(|lb| lb.kind == KIND && is_our_name(&lb.name))
            .map(|lb| &lb.arn);
        let groups = self.target_groups.iter();
        let groups = groups.filter(|group| group.name.starts_with(PREFIX));
        load_balancers
            .chain(groups.map(|group| &group.arn))
            .cloned()
            .collect()
    }

    /// The Service in the tags, if the tags say that the cluster alone owns it.
    fn made_for(&self, arn: &str, cluster: &ClusterTags) -> Option<&str> {
        let tags = self.tags.get(arn)?;
        let service = tags.get(SERVICE_NAME)?;
        is_owned(cluster, tags).then_some(service.as_str())
    }

    fn is_listed(&self, load_balancer: &str) -> bool {
        let mut all = self.load_balancers.iter();
        all.any(|listed| listed.load_balancer.name == load_balancer)
    }
}

/// Whether the cluster alone owns it. The legacy tag does not outweigh the word `shared`.
fn is_owned(cluster: &ClusterTags, tags: &Tags) -> bool {
    let shared = tags
        .get(&cluster.key())
        .is_some_and(|value| value == Lifecycle::Shared.as_str());
    !shared && cluster.has_cluster_tag_owned(tags).unwrap_or(false)
}

/// Whether a name could come from a Service's UID.
fn is_our_name(name: &str) -> bool {
    name.strip_prefix('a').is_some_and(|rest| {
        rest.len() == DIGITS && rest.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// All leftovers, by kind and id.
pub(super) fn judge(shown: &Shown, claims: &Claims, settings: &Settings) -> Vec<Leftover> {
    let mut heads = load_balancers(shown, claims, settings);
    let mut found = target_groups(shown, claims, settings, &mut heads);
    found.extend(security_groups(shown, claims, settings, &mut heads));
    found.extend(rules(shown, claims, settings, &mut heads));
    found.extend(heads.into_values());
    found.sort_by(|a, b| (a.kind, &a.id).cmp(&(b.kind, &b.id)));
    found
}

/// Reason, and why it is kept all the same; `None` for what has an owner.
fn reason(claim: Claim, settings: &Settings) -> Option<(String, Option<String>)> {
    match claim {
        Claim::Owns => None,
        Claim::Nobody(why) => Some((why, None)),
        Claim::Released(why) => {
            let kept = (!settings.delete_released).then(|| {
                "it may have been detached on purpose; set DeleteReleasedLoadBalancers in the \
                 cloud config to have it removed"
                    .to_owned()
            });
            Some((why.to_owned(), kept))
        }
    }
}

/// By ARN.
fn load_balancers(
    shown: &Shown,
    claims: &Claims,
    settings: &Settings,
) -> BTreeMap<String, Leftover> {
    let mut found = BTreeMap::new();
    for listed in &shown.load_balancers {
        let lb = &listed.load_balancer;
        if lb.kind != KIND || !is_our_name(&lb.name) {
            continue;
        }
        let Some(service) = shown.made_for(&lb.arn, &settings.tags) else {
            continue;
        };
        let Some((reason, kept)) = reason(claims.of_load_balancer(&lb.name, service), settings)
        else {
            continue;
        };
        let leftover = Leftover {
            kind: LeftoverKind::LoadBalancer,
            id: lb.arn.clone(),
            name: lb.name.clone(),
            made_for: Some(service.to_owned()),
            created: listed.created,
            reason,
            parts: Vec::new(),
            kept,
        };
        found.insert(lb.arn.clone(), leftover);
    }
    found
}

/// Those of a leftover load balancer go with it; others are leftovers of their own.
fn target_groups(
    shown: &Shown,
    claims: &Claims,
    settings: &Settings,
    heads: &mut BTreeMap<String, Leftover>,
) -> Vec<Leftover> {
    let mut found = Vec::new();
    for group in &shown.target_groups {
        let Some(service) = shown.made_for(&group.arn, &settings.tags) else {
            continue;
        };
        for arn in &group.load_balancers {
            if let Some(head) = heads.get_mut(arn) {
                head.parts.push(format!("target group {}", group.name));
            }
        }
        if !group.load_balancers.is_empty() {
            continue;
        }
        let Some((reason, kept)) = reason(claims.of_service(service), settings) else {
            continue;
        };
        found.push(Leftover {
            kind: LeftoverKind::TargetGroup,
            id: group.arn.clone(),
            name: group.name.clone(),
            made_for: Some(service.to_owned()),
            created: None,
            reason: format!("no load balancer uses it, and {reason}"),
            parts: Vec::new(),
            kept,
        });
    }
    found
}

fn security_groups(
    shown: &Shown,
    claims: &Claims,
    settings: &Settings,
    heads: &mut BTreeMap<String, Leftover>,
) -> Vec<Leftover> {
    let mut found = Vec::new();
    for group in shown.groups.iter().filter(|g| is_managed(g, settings)) {
        let users: Vec<&str> = shown
            .load_balancers
            .iter()
            .filter(|listed| listed.load_balancer.security_groups.contains(&group.id))
            .map(|listed| listed.load_balancer.arn.as_str())
            .collect();
        for arn in &users {
            if let Some(head) = heads.get_mut(*arn) {
                head.parts
                    .push(format!("security group {} ({})", group.id, group.name));
            }
        }
        if !users.is_empty() || claims.claims_group(&group.id, &group.name) {
            continue;
        }
        found.push(Leftover {
            kind: LeftoverKind::SecurityGroup,
            id: group.id.clone(),
            name: group.name.clone(),
            made_for: None,
            created: None,
            reason: "no load balancer uses it, and no Service has it by name".to_owned(),
            parts: Vec::new(),
            kept: None,
        });
    }
    found
}

/// Whether the group was made for a network load balancer of the cluster.
fn is_managed(group: &SecurityGroup, settings: &Settings) -> bool {
    group.description == NLB_SECURITY_GROUP_DESCRIPTION
        && group.name.starts_with(PREFIX)
        && is_owned(&settings.tags, &group.tags)
        && settings.elb_security_group.as_ref() != Some(&group.id)
        && !group
            .tags
            .keys()
            .any(|key| key.starts_with(OTHER_CONTROLLER))
}

fn rules(
    shown: &Shown,
    claims: &Claims,
    settings: &Settings,
    heads: &mut BTreeMap<String, Leftover>,
) -> Vec<Leftover> {
    let mut found = Vec::new();
    if settings.disable_node_rules {
        return found;
    }
    let groups = shown.groups.iter();
    for group in groups.filter(|group| is_owned(&settings.tags, &group.tags)) {
        let names: BTreeSet<&str> = group.rules.values().filter_map(|t| named(t)).collect();
        for name in names {
            if let Some(head) = heads.values_mut().find(|head| head.name == name) {
                head.parts
                    .push(format!("its rules in security group {}", group.id));
                continue;
            }
            if shown.is_listed(name) || claims.claims(name) {
                continue;
            }
            let stale = stale_rules(group, name, claims);
            if stale.is_empty() {
                continue;
            }
            let parts = stale.iter().map(|rule| rule_text(rule, ""));
            found.push(Leftover {
                kind: LeftoverKind::Rule,
                id: format!("{}/{name}", group.id),
                name: format!("of {name} in security group {}", group.id),
                made_for: None,
                created: None,
                reason: format!("there is no load balancer {name}"),
                parts: parts.collect(),
                kept: None,
            });
        }
    }
    found
}

/// The load balancer that a rule's description names.
fn named(text: &str) -> Option<&str> {
    let client = text.strip_prefix(NLB_CLIENT_RULE_PREFIX);
    let name = client.and_then(|rest| rest.strip_prefix('='));
    name.or_else(|| text.strip_prefix(NLB_HEALTH_RULE_PREFIX))
        .filter(|name| is_our_name(name))
}

fn is_client(text: &str) -> bool {
    text.starts_with(NLB_CLIENT_RULE_PREFIX)
}

/// The rules that name this load balancer and that no other one can need: two rules may not differ
/// in their description alone, so one that carries this name may serve another load balancer too.
pub(super) fn stale_rules(
    group: &SecurityGroup,
    load_balancer: &str,
    claims: &Claims,
) -> BTreeSet<Rule> {
    let of = |text: &str| named(text) == Some(load_balancer);
    let own = client_ports(group, load_balancer);
    let alone = !group
        .rules
        .values()
        .any(|text| is_client(text) && named(text).is_some_and(|name| name != load_balancer));
    group
        .rules
        .iter()
        .filter(|(_, text)| of(text))
        .filter(|(rule, _)| {
            rule.from
                .is_some_and(|port| !claims.claims_port(port) && (own.contains(&port) || alone))
        })
        .map(|(rule, _)| rule.clone())
        .collect()
}

/// Node ports: only one Service has one of them at a time.
fn client_ports(group: &SecurityGroup, load_balancer: &str) -> BTreeSet<i32> {
    let rules = group.rules.iter();
    rules
        .filter(|(_, text)| is_client(text) && named(text) == Some(load_balancer))
        .filter_map(|(rule, _)| rule.from)
        .collect()
}

/// The node ports of a load balancer whose Service is gone, as its rules tell, without those that
/// other Services have by now.
pub(super) fn own_ports(shown: &Shown, load_balancer: &str, claims: &Claims) -> BTreeSet<i32> {
    let groups = shown.groups.iter();
    groups
        .flat_map(|group| client_ports(group, load_balancer))
        .filter(|port| !claims.claims_port(*port))
        .collect()
}
