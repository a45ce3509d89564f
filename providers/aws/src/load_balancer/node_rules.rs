//! The rules in the Nodes' security groups that let a network load balancer's traffic and health
//! checks in (specification: aws §4.9.2). Pure.
//!
//! Rules are found by their description, which names the load balancer. EC2 refuses two rules that
//! differ only in the description, so a rule that several load balancers need carries the name of
//! one: before it is removed the others are asked, and it is handed over.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::cloud::{CloudError, CloudResult, LoadBalancerName};
use ipnet::Ipv4Net;

use crate::{
    api::network::{Rule, Rules, SecurityGroup},
    names::{NLB_CLIENT_RULE_PREFIX, NLB_MTU_RULE_DESCRIPTION, nlb_client_rule, nlb_health_rule},
};

/// The description of health rules up to the load balancer's name.
const HEALTH_PREFIX: &str = "kubernetes.io/rule/nlb/health=";

/// The rules that one load balancer needs in every Node group it uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// From the clients to the node ports.
    pub client: BTreeSet<Rule>,
    /// From the load balancer's subnets to the health check ports.
    pub health: BTreeSet<Rule>,
}

impl Needs {
    /// The rules for the given ports.
    ///
    /// `ports` are pairs of node port and health check port text; `subnets` the IPv4 ranges of the
    /// load balancer's subnets. No health rule is needed when the world may reach the very same
    /// TCP ports.
    pub fn new(
        ports: &[(i32, &str)],
        udp: bool,
        sources: &BTreeSet<Ipv4Net>,
        subnets: &BTreeSet<Ipv4Net>,
    ) -> Self {
        let protocol = if udp { "udp" } else { "tcp" };
        let client_ports: BTreeSet<i32> = ports.iter().map(|(node_port, _)| *node_port).collect();
        let health_ports: BTreeSet<i32> = ports
            .iter()
            .map(|(node_port, health)| health.parse().unwrap_or(*node_port))
            .collect();
        let client = product(protocol, &client_ports, sources);
        let world = sources.len() == 1 && sources.first().is_some_and(|net| net.prefix_len() == 0);
        let health = if world && !udp && health_ports == client_ports {
            BTreeSet::new()
        } else {
            product("tcp", &health_ports, subnets)
        };
        Self { client, health }
    }

    /// Whether the rule is one of them.
    pub fn contains(&self, rule: &Rule) -> bool {
        self.client.contains(rule) || self.health.contains(rule)
    }

    fn described(&self, name: &LoadBalancerName) -> Rules {
        let client = self
            .client
            .iter()
            .map(|r| (r.clone(), nlb_client_rule(name)));
        let health = self
            .health
            .iter()
            .map(|r| (r.clone(), nlb_health_rule(name)));
        let cidrs: BTreeSet<Ipv4Net> = self.client.iter().filter_map(Rule::cidr).collect();
        let mtu = cidrs
            .into_iter()
            .map(|cidr| (Rule::mtu(cidr), NLB_MTU_RULE_DESCRIPTION.to_owned()));
        // A rule that is both is a client rule: that description decides over the MTU rule.
        health.chain(client).chain(mtu).collect()
    }
}

fn product(protocol: &str, ports: &BTreeSet<i32>, from: &BTreeSet<Ipv4Net>) -> BTreeSet<Rule> {
    ports
        .iter()
        .flat_map(|port| from.iter().map(|cidr| Rule::port(protocol, *port, *cidr)))
        .collect()
}

/// What is known of one load balancer's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The rules.
    pub needs: Needs,
    /// The groups of its Nodes.
    pub groups: BTreeSet<String>,
}

/// All load balancers whose rules are known, by name.
pub type AllKnown = BTreeMap<LoadBalancerName, Known>;

/// The rules to add to a group that Nodes of this load balancer use. A rule that is there counts,
/// whatever its description.
pub fn grants(have: &Rules, needs: &Needs, name: &LoadBalancerName) -> Rules {
    let mut rules = needs.described(name);
    rules.retain(|rule, _| !have.contains_key(rule));
    rules
}

/// What is to be cleaned up in one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanUp {
    /// Rules to remove.
    pub revoke: BTreeSet<Rule>,
    /// Rules to hand over to another load balancer: their new descriptions.
    pub hand_over: Rules,
}

impl CleanUp {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.revoke.is_empty() && self.hand_over.is_empty()
    }
}

/// Whose rules are looked for, and who else may need them.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The load balancer.
    pub name: &'a LoadBalancerName,
    /// Ports that no other Service can have: node ports and the health check node port. A rule for
    /// another port is kept while there are load balancers whose needs are not known.
    pub own_ports: &'a BTreeSet<i32>,
    /// All load balancers whose needs are known.
    pub known: &'a AllKnown,
}

/// The rules of this load balancer that the group does not need any more; `needs` is `None` when
/// no Node of it uses the group. Health rules whose load balancer has nothing else here go too.
pub fn clean_up(group: &str, have: &Rules, needs: Option<&Needs>, owner: Owner<'_>) -> CleanUp {
    let (client, health) = (nlb_client_rule(owner.name), nlb_health_rule(owner.name));
    let clients: BTreeSet<&str> = have.values().filter_map(|text| client_of(text)).collect();
    let strangers = clients.iter().any(|name| {
        *name != owner.name.as_str() && !owner.known.keys().any(|known| known.as_str() == *name)
    });
    let mut found = CleanUp::default();
    for (rule, text) in have {
        let ours = *text == client || *text == health;
        if !ours && !is_orphan(text, &clients, owner) {
            continue;
        }
        if needs.is_some_and(|needs| needs.contains(rule)) {
            // Ours and needed; an orphan that we need becomes ours.
            if !ours {
                found.hand_over.insert(rule.clone(), health.clone());
            }
            continue;
        }
        match heir(group, rule, owner) {
            Some(text) => {
                found.hand_over.insert(rule.clone(), text);
            }
            None if strangers && !is_own(rule, owner.own_ports) => {}
            None => {
                found.revoke.insert(rule.clone());
            }
        }
    }
    let served: BTreeSet<Ipv4Net> = have
        .iter()
        .filter(|(rule, text)| {
            text.contains(NLB_CLIENT_RULE_PREFIX) && !found.revoke.contains(*rule)
        })
        .filter_map(|(rule, _)| rule.cidr())
        .chain(
            needs
                .into_iter()
                .flat_map(|n| n.client.iter().filter_map(Rule::cidr)),
        )
        .collect();
    let stale = have.iter().filter(|(rule, text)| {
        *text == NLB_MTU_RULE_DESCRIPTION && rule.cidr().is_some_and(|c| !served.contains(&c))
    });
    found.revoke.extend(stale.map(|(rule, _)| rule.clone()));
    found
}

/// Whether the group holds a rule that names this load balancer.
pub fn names_load_balancer(have: &Rules, name: &LoadBalancerName) -> bool {
    let (client, health) = (nlb_client_rule(name), nlb_health_rule(name));
    have.values().any(|text| *text == client || *text == health)
}

fn client_of(text: &str) -> Option<&str> {
    text.strip_prefix(NLB_CLIENT_RULE_PREFIX)?.strip_prefix('=')
}

/// A health rule whose load balancer lets no client in here and is not known: it was left behind
/// when the one that made it went.
fn is_orphan(text: &str, clients: &BTreeSet<&str>, owner: Owner<'_>) -> bool {
    text.strip_prefix(HEALTH_PREFIX).is_some_and(|name| {
        !clients.contains(name) && !owner.known.keys().any(|known| known.as_str() == name)
    })
}

fn heir(group: &str, rule: &Rule, owner: Owner<'_>) -> Option<String> {
    let (name, known) = owner.known.iter().find(|(name, known)| {
        *name != owner.name && known.groups.contains(group) && known.needs.contains(rule)
    })?;
    Some(if known.needs.client.contains(rule) {
        nlb_client_rule(name)
    } else {
        nlb_health_rule(name)
    })
}

fn is_own(rule: &Rule, own_ports: &BTreeSet<i32>) -> bool {
    rule.from.is_some_and(|port| own_ports.contains(&port))
}

/// The group whose rules count for an instance: the cluster-tagged one, or its only one. `None`
/// for an instance without groups.
///
/// # Errors
/// Several groups and not exactly one of them is tagged.
pub fn node_group(
    instance: &str,
    groups: &[String],
    tagged: &BTreeMap<String, SecurityGroup>,
) -> CloudResult<Option<String>> {
    let ours: BTreeSet<&String> = groups
        .iter()
        .filter(|id| tagged.contains_key(*id))
        .collect();
    let all: BTreeSet<&String> = groups.iter().collect();
    match (ours.len(), all.len()) {
        (1, _) => Ok(ours.first().map(|id| (*id).clone())),
        (0, 0) => Ok(None),
        (0, 1) => Ok(all.first().map(|id| (*id).clone())),
        (0, _) => Err(CloudError::new(
            ccm_core::cloud::Class::Conflict,
            format!(
                "Multiple untagged security groups found for instance {instance}; ensure the k8s \
                 security group is tagged"
            ),
        )),
        _ => {
            let names: Vec<String> = ours
                .iter()
                .filter_map(|id| tagged.get(*id))
                .map(|group| format!("{}({})", group.id, group.name))
                .collect();
            Err(CloudError::new(
                ccm_core::cloud::Class::Conflict,
                format!(
                    "Multiple tagged security groups found for instance {instance}; ensure only \
                     the k8s security group is tagged; the tagged groups were {}",
                    names.join(" ")
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    fn nets(texts: &[&str]) -> BTreeSet<Ipv4Net> {
        texts.iter().map(|t| net(t)).collect()
    }

    fn lb(name: &str) -> LoadBalancerName {
        LoadBalancerName::new(name).unwrap()
    }

    fn rules(needs: &Needs, name: &str) -> Rules {
        grants(&Rules::new(), needs, &lb(name))
    }

    fn owner<'a>(
        name: &'a LoadBalancerName,
        own_ports: &'a BTreeSet<i32>,
        known: &'a AllKnown,
    ) -> Owner<'a> {
        Owner {
            name,
            own_ports,
            known,
        }
    }

    fn shared(node_port: i32) -> Needs {
        Needs::new(
            &[(node_port, "10256")],
            false,
            &nets(&["0.0.0.0/0"]),
            &nets(&["172.31.0.0/20"]),
        )
    }

    /// REQ-AWS-SG-18
    #[test]
    fn narrow_sources_get_client_health_and_mtu_rules() {
        let needs = Needs::new(
            &[(30080, "traffic-port")],
            false,
            &nets(&["10.0.0.0/8"]),
            &nets(&["172.31.0.0/20"]),
        );
        let got = rules(&needs, "lb");
        let want: Rules = [
            (
                Rule::port("tcp", 30080, net("10.0.0.0/8")),
                "kubernetes.io/rule/nlb/client=lb",
            ),
            (
                Rule::port("tcp", 30080, net("172.31.0.0/20")),
                "kubernetes.io/rule/nlb/health=lb",
            ),
            (Rule::mtu(net("10.0.0.0/8")), "kubernetes.io/rule/nlb/mtu"),
        ]
        .into_iter()
        .map(|(rule, text)| (rule, text.to_owned()))
        .collect();
        assert_eq!(got, want);
        assert!(
            grants(&got, &needs, &lb("other")).is_empty(),
            "descriptions do not count"
        );
    }

    /// REQ-AWS-SG-19, REQ-AWS-SG-20, REQ-AWS-SG-21
    #[test]
    fn health_rules_are_left_out_only_when_the_world_reaches_the_same_tcp_ports() {
        let world = nets(&["0.0.0.0/0"]);
        let subnets = nets(&["172.31.0.0/20"]);
        let open = Needs::new(&[(30080, "traffic-port")], false, &world, &subnets);
        assert!(open.health.is_empty());
        assert_eq!(rules(&open, "lb").len(), 2);
        let local = Needs::new(&[(30080, "32213")], false, &world, &subnets);
        assert_eq!(
            local.health,
            BTreeSet::from([Rule::port("tcp", 32213, net("172.31.0.0/20"))])
        );
        let udp = Needs::new(&[(30053, "traffic-port")], true, &world, &subnets);
        assert_eq!(
            udp.client,
            BTreeSet::from([Rule::port("udp", 30053, net("0.0.0.0/0"))])
        );
        assert_eq!(
            udp.health,
            BTreeSet::from([Rule::port("tcp", 30053, net("172.31.0.0/20"))])
        );
    }

    /// REQ-AWS-SG-22
    #[test]
    fn a_group_that_is_not_used_loses_every_rule_of_the_load_balancer() {
        let needs = Needs::new(
            &[(30080, "traffic-port")],
            false,
            &nets(&["10.0.0.0/8"]),
            &nets(&["172.31.0.0/20"]),
        );
        let mut have = rules(&needs, "lb");
        have.insert(Rule::port("tcp", 22, net("10.0.0.0/8")), "ssh".to_owned());
        let (name, own, known) = (lb("lb"), BTreeSet::from([30080]), AllKnown::new());
        let found = clean_up("sg", &have, None, owner(&name, &own, &known));
        assert_eq!(found.revoke.len(), 3);
        assert!(
            !found
                .revoke
                .contains(&Rule::port("tcp", 22, net("10.0.0.0/8")))
        );

        have.extend(rules(
            &Needs::new(
                &[(31000, "traffic-port")],
                false,
                &nets(&["10.0.0.0/8"]),
                &nets(&[]),
            ),
            "other",
        ));
        let found = clean_up("sg", &have, None, owner(&name, &own, &known));
        assert!(
            !found.revoke.contains(&Rule::mtu(net("10.0.0.0/8"))),
            "the other load balancer's clients still come from there"
        );
        assert_eq!(found.revoke.len(), 2);
    }

    /// REQ-AWS-SG-23, REQ-AWS-SG-24
    #[test]
    fn changed_ranges_change_the_rules_both_ways() {
        let subnets = nets(&["172.31.0.0/20"]);
        let ports = [(30080, "traffic-port")];
        let wide = Needs::new(&ports, false, &nets(&["0.0.0.0/0"]), &subnets);
        let narrow = Needs::new(&ports, false, &nets(&["10.0.0.0/8"]), &subnets);
        let (name, own, known) = (lb("lb"), BTreeSet::from([30080]), AllKnown::new());
        for (before, after) in [(&wide, &narrow), (&narrow, &wide)] {
            let mut have = rules(before, "lb");
            have.extend(grants(&have, after, &name));
            let found = clean_up("sg", &have, Some(after), owner(&name, &own, &known));
            have.retain(|rule, _| !found.revoke.contains(rule));
            assert_eq!(have, rules(after, "lb"));
        }
    }

    /// REQ-AWS-SG-25
    #[test]
    fn a_shared_health_rule_is_handed_over_to_a_load_balancer_that_needs_it() {
        let mut have = rules(&shared(30080), "first");
        have.extend(grants(&have.clone(), &shared(30081), &lb("second")));
        let rule = Rule::port("tcp", 10256, net("172.31.0.0/20"));
        assert_eq!(have[&rule], "kubernetes.io/rule/nlb/health=first");
        let known = AllKnown::from([(
            lb("second"),
            Known {
                needs: shared(30081),
                groups: BTreeSet::from(["sg".to_owned()]),
            },
        )]);
        let (first, own) = (lb("first"), BTreeSet::from([30080]));
        let found = clean_up("sg", &have, None, owner(&first, &own, &known));
        assert!(!found.revoke.contains(&rule));
        assert_eq!(
            found.hand_over[&rule],
            "kubernetes.io/rule/nlb/health=second"
        );
    }

    /// REQ-AWS-SG-25
    #[test]
    fn a_shared_health_rule_is_kept_while_a_load_balancer_is_not_known_and_goes_with_the_last() {
        let mut have = rules(&shared(30080), "first");
        have.extend(grants(&have.clone(), &shared(30081), &lb("second")));
        let rule = Rule::port("tcp", 10256, net("172.31.0.0/20"));
        let (first, second, none) = (lb("first"), lb("second"), AllKnown::new());
        let own = BTreeSet::from([30080]);
        let found = clean_up("sg", &have, None, owner(&first, &own, &none));
        assert!(found.hand_over.is_empty() && !found.revoke.contains(&rule));
        have.retain(|rule, _| !found.revoke.contains(rule));
        // The rule still names the first; the second goes and takes it along.
        let own = BTreeSet::from([30081]);
        let found = clean_up("sg", &have, None, owner(&second, &own, &none));
        have.retain(|rule, _| !found.revoke.contains(rule));
        assert!(have.is_empty(), "{have:?}");
    }

    /// REQ-AWS-SG-13
    #[test]
    fn the_node_group_is_the_tagged_one_or_the_only_one() {
        let group = |id: &str| SecurityGroup {
            id: id.to_owned(),
            ..Default::default()
        };
        let tagged: BTreeMap<String, SecurityGroup> = ["t1", "t2"]
            .into_iter()
            .map(|id| (id.to_owned(), group(id)))
            .collect();
        let of = |ids: &[&str]| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            node_group("i-1", &ids, &tagged)
        };
        assert_eq!(of(&["u1"]).unwrap(), Some("u1".to_owned()));
        assert_eq!(of(&["u1", "t1"]).unwrap(), Some("t1".to_owned()));
        assert_eq!(of(&[]).unwrap(), None);
        let error = of(&["t1", "t2"]).unwrap_err().to_string();
        assert!(error.starts_with("Multiple tagged security groups found for instance i-1"));
        let error = of(&["u1", "u2"]).unwrap_err().to_string();
        assert!(error.starts_with("Multiple untagged security groups found for instance i-1"));
    }
}
