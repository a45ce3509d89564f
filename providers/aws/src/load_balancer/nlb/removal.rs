//! How everything that belongs to a Service is removed (specification: aws §4.10). Pure.
//!
//! The load balancer goes first and alone: while AWS refuses that, because it is protected, nothing
//! else is touched and traffic keeps flowing. What its parts are is known by name, tags and rule
//! descriptions, so that a removal that died half-way is finished by the next one.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::converge::Plan;

use crate::load_balancer::node_rules::CleanUp;

/// What is left of a Service's load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// The load balancer's ARN.
    pub load_balancer: Option<String>,
    /// ARNs of its target groups.
    pub target_groups: BTreeSet<String>,
    /// Its rules in the Nodes' security groups.
    pub node_rules: BTreeMap<String, CleanUp>,
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
        let parts: Vec<Removal> = groups.chain(rules).collect();
        if !parts.is_empty() {
            return parts;
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
    use crate::api::network::Rule;

    fn leftovers() -> impl Strategy<Value = Leftovers> {
        let names = || proptest::collection::btree_set("[a-d]", 0..4);
        (any::<bool>(), names(), names(), names()).prop_map(|(lb, target_groups, rules, groups)| {
            let plan = CleanUp {
                revoke: BTreeSet::from([Rule::port("tcp", 80, "0.0.0.0/0".parse().unwrap())]),
                ..CleanUp::default()
            };
            Leftovers {
                load_balancer: lb.then(|| "lb".to_owned()),
                target_groups,
                node_rules: rules.into_iter().map(|id| (id, plan.clone())).collect(),
                security_groups: groups,
            }
        })
    }

    proptest! {
        /// REQ-AWS-DEL-2, REQ-AWS-DEL-4, REQ-AWS-DEL-11, REQ-AWS-DEL-13: a removal ends with
        /// nothing left wherever the one before stopped, and touches nothing while there is a load
        /// balancer.
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
