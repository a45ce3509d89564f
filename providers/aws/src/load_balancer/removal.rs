//! How everything that belongs to a Service is removed (specification: aws §4.10). Pure.
//!
//! A network load balancer goes first and alone: while AWS refuses that, because it is protected,
//! nothing else is touched and traffic keeps flowing. A classic one, which nothing protects, goes
//! after the rules that let it in, as by the Go manager: whose they are shows only as long as it is
//! there. What the parts are is known by name, tags and rules, so that a removal that died half-way
//! is finished by the next one.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::converge::Plan;

use crate::{api::network::Rule, load_balancer::node_rules::CleanUp};

/// What is left of a Service's load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// The load balancer's ARN.
    pub load_balancer: Option<String>,
    /// ARNs of its target groups.
    pub target_groups: BTreeSet<String>,
    /// Its rules in the Nodes' security groups.
    pub node_rules: BTreeMap<String, CleanUp>,
    /// The rules that let a classic load balancer in, by the group that holds them.
    pub classic_rules: BTreeMap<String, BTreeSet<Rule>>,
    /// The classic load balancer's name.
    pub classic: Option<String>,
    /// Security groups that were made for it.
    pub security_groups: BTreeSet<String>,
}

impl Leftovers {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Delete the load balancer.
    LoadBalancer(String),
    /// Delete a target group.
    TargetGroup(String),
    /// Clean up a Node group.
    NodeRules(String, CleanUp),
    /// Shut a group to a classic load balancer.
    ClassicRules(String, BTreeSet<Rule>),
    /// Delete the classic load balancer.
    Classic(String),
    /// Delete a security group.
    SecurityGroup(String),
}

/// The planner of removals. There is nothing to want.
#[derive(Debug)]
pub struct Remove;

impl Plan for Remove {
    type Want = ();
    type Have = Leftovers;
    type Action = Removal;
    type Made = ();

    fn next((): &(), have: &Leftovers) -> Vec<Removal> {
        if let Some(arn) = &have.load_balancer {
            return vec![Removal::LoadBalancer(arn.clone())];
        }
        let groups = have
            .target_groups
            .iter()
            .map(|arn| Removal::TargetGroup(arn.clone()));
        let rules = have
            .node_rules
            .iter()
            .map(|(group, plan)| Removal::NodeRules(group.clone(), plan.clone()));
        let classic = have
            .classic_rules
            .iter()
            .map(|(group, rules)| Removal::ClassicRules(group.clone(), rules.clone()));
        let parts: Vec<Removal> = groups.chain(rules).chain(classic).collect();
        if !parts.is_empty() {
            return parts;
        }
        if let Some(name) = &have.classic {
            return vec![Removal::Classic(name.clone())];
        }
        // Last: they are in use until the load balancer's interfaces are gone.
        have.security_groups
            .iter()
            .map(|id| Removal::SecurityGroup(id.clone()))
            .collect()
    }

    fn absorb(have: &mut Leftovers, action: &Removal, (): ()) {
        match action {
            Removal::LoadBalancer(_) => have.load_balancer = None,
            Removal::TargetGroup(arn) => {
                have.target_groups.remove(arn);
            }
            Removal::NodeRules(group, _) => {
                have.node_rules.remove(group);
            }
            Removal::ClassicRules(group, _) => {
                have.classic_rules.remove(group);
            }
            Removal::Classic(_) => have.classic = None,
            Removal::SecurityGroup(id) => {
                have.security_groups.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leftovers() -> impl Strategy<Value = Leftovers> {
        let names = || proptest::collection::btree_set("[a-d]", 0..4);
        let kinds = (any::<bool>(), any::<bool>());
        (kinds, names(), names(), names(), names()).prop_map(
            |((lb, classic), target_groups, rules, sources, groups)| {
                let rule = BTreeSet::from([Rule::port("tcp", 80, "0.0.0.0/0".parse().unwrap())]);
                let plan = CleanUp {
                    revoke: rule.clone(),
                    ..CleanUp::default()
                };
                Leftovers {
                    load_balancer: lb.then(|| "lb".to_owned()),
                    target_groups,
                    node_rules: rules.into_iter().map(|id| (id, plan.clone())).collect(),
                    classic_rules: sources.into_iter().map(|id| (id, rule.clone())).collect(),
                    classic: classic.then(|| "classic".to_owned()),
                    security_groups: groups,
                }
            },
        )
    }

    proptest! {
        /// REQ-AWS-DEL-2, REQ-AWS-DEL-4, REQ-AWS-DEL-5, REQ-AWS-DEL-11, REQ-AWS-DEL-13: a removal
        /// ends with nothing left wherever the one before stopped, touches nothing while there is a
        /// network load balancer, and deletes a classic one between its rules and its groups.
        #[test]
        fn a_removal_is_finished_from_wherever_it_stopped(mut have in leftovers(), stop in 0..20usize) {
            let mut left = stop;
            for _ in 0..2 {
                for _ in 0..8 {
                    let batch = Remove::next(&(), &have);
                    prop_assert_eq!(batch.is_empty(), have.is_empty());
                    for action in batch {
                        let first = have.load_balancer.is_none()
                            || matches!(action, Removal::LoadBalancer(_));
                        prop_assert!(first);
                        if matches!(action, Removal::Classic(_)) {
                            prop_assert!(have.classic_rules.is_empty());
                        }
                        if matches!(action, Removal::SecurityGroup(_)) {
                            prop_assert!(have.classic.is_none());
                        }
                        if left > 0 {
                            Remove::absorb(&mut have, &action, ());
                            left -= 1;
                        }
                    }
                }
                left = usize::MAX;
            }
            prop_assert!(have.is_empty());
        }
    }
}
