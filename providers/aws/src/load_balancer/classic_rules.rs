//! The rule in the Nodes' security groups that lets a classic load balancer in: everything that
//! comes from its security group (specification: aws §4.9.1). Pure.
//!
//! It carries no description. A group of the user's, or the one of the cloud config, may be the
//! source for several load balancers, which then share one rule.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::cloud::LoadBalancerName;

use super::vpc::GroupMap;
use crate::api::network::{Rule, Rules, Source};

/// The protocol that means all.
const ALL: &str = "-1";

/// Everything from that security group.
pub fn entrance(source: &str) -> Rule {
    Rule {
        protocol: ALL.to_owned(),
        from: None,
        to: None,
        source: Source::Group {
            id: source.to_owned(),
            account: None,
        },
    }
}

/// Whether the rule lets in something from that security group.
pub fn refers_to(rule: &Rule, source: &str) -> bool {
    matches!(&rule.source, Source::Group { id, .. } if id == source)
}

/// The rules of that kind that a group holds; EC2 shows the account as well.
pub fn entrances(rules: &Rules, source: &str) -> BTreeSet<Rule> {
    rules
        .keys()
        .filter(|rule| refers_to(rule, source) && rule.protocol == ALL)
        .cloned()
        .collect()
}

/// What one load balancer needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entrance {
    /// Its security group.
    pub source: String,
    /// The groups of its Nodes.
    pub groups: BTreeSet<String>,
}

/// All load balancers whose needs are known.
pub type Entrances = BTreeMap<LoadBalancerName, Entrance>;

/// The rules that nobody who is known needs, in the cluster's groups; `keep` are the groups that the
/// load balancer itself uses.
pub fn stale(
    name: &LoadBalancerName,
    source: &str,
    keep: &BTreeSet<String>,
    known: &Entrances,
    tagged: &GroupMap,
) -> BTreeMap<String, BTreeSet<Rule>> {
    let others: BTreeSet<&String> = known
        .iter()
        .filter(|(other, entrance)| *other != name && entrance.source == source)
        .flat_map(|(_, entrance)| &entrance.groups)
        .collect();
    tagged
        .values()
        .filter(|group| !keep.contains(&group.id) && !others.contains(&group.id))
        .map(|group| (group.id.clone(), entrances(&group.rules, source)))
        .filter(|(_, rules)| !rules.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::network::SecurityGroup;

    fn group(id: &str, sources: &[&str]) -> (String, SecurityGroup) {
        let rules = sources.iter().map(|source| {
            let mut rule = entrance(source);
            if let Source::Group { account, .. } = &mut rule.source {
                *account = Some("123456789012".to_owned());
            }
            (rule, String::new())
        });
        let group = SecurityGroup {
            id: id.to_owned(),
            rules: rules.collect(),
            ..SecurityGroup::default()
        };
        (id.to_owned(), group)
    }

    fn holders(keep: &[&str], known: &Entrances, tagged: &GroupMap) -> Vec<String> {
        let name = LoadBalancerName::new("own").unwrap();
        let keep = keep.iter().map(|id| (*id).to_owned()).collect();
        stale(&name, "lb", &keep, known, tagged)
            .into_iter()
            .inspect(|(_, rules)| assert!(rules.iter().all(|rule| refers_to(rule, "lb"))))
            .map(|(id, _)| id)
            .collect()
    }

    /// REQ-AWS-SG-15, REQ-AWS-SG-28
    #[test]
    fn only_the_own_pair_goes_and_only_where_nobody_needs_it() {
        let mut tagged: GroupMap = [
            group("a", &["lb", "a", "other"]),
            group("b", &["lb"]),
            group("c", &["other"]),
        ]
        .into();
        let port = Rule {
            protocol: "tcp".to_owned(),
            from: Some(22),
            to: Some(22),
            ..entrance("lb")
        };
        for group in tagged.values_mut() {
            group.rules.insert(port.clone(), "user".to_owned());
        }
        let mut known = Entrances::new();
        assert_eq!(holders(&["a"], &known, &tagged), ["b"]);
        assert_eq!(holders(&[], &known, &tagged), ["a", "b"]);
        assert_eq!(entrances(&tagged["a"].rules, "lb").len(), 1);
        let needs = Entrance {
            source: "lb".to_owned(),
            groups: BTreeSet::from(["b".to_owned()]),
        };
        known.insert(LoadBalancerName::new("second").unwrap(), needs.clone());
        assert_eq!(holders(&[], &known, &tagged), ["a"]);
        let same = LoadBalancerName::new("own").unwrap();
        assert_eq!(
            holders(&[], &Entrances::from([(same, needs)]), &tagged),
            ["a", "b"]
        );
    }
}
