//! Each policy is enough, and no row of it can go.

use std::collections::BTreeSet;

use super::world::World;
use crate::iam::{Need, Part, PolicyName, policy, rights};

/// The parts of the table whose days are told in `world`.
const SHOWN: [Part; 5] = [
    Part::Start,
    Part::Node,
    Part::Service,
    Part::Network,
    Part::Route,
];

fn attach(world: &World, name: PolicyName, without: &[&str]) {
    let text = policy(name).unwrap();
    let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let statements = document["Statement"].as_array_mut().unwrap();
    for statement in &mut *statements {
        let actions = statement["Action"].as_array_mut().unwrap();
        actions.retain(|action| !without.contains(&action.as_str().unwrap()));
    }
    // IAM takes no statement without actions.
    statements.retain(|statement| !statement["Action"].as_array().unwrap().is_empty());
    world.sim.iam().attach("p", &document.to_string()).unwrap();
}

async fn live(world: &mut World, name: PolicyName) {
    if name.parts().contains(&Part::Node) {
        world.day_of_nodes().await;
    }
    if name.parts().contains(&Part::Network) {
        world.day_of_network_load_balancers().await;
    }
    if name.parts().contains(&Part::Route) {
        world.day_of_routes().await;
    }
}

/// The actions of the policy's shown rows whose need is as wanted. An action that another row of the same policy
/// requires is not optional.
fn actions(name: PolicyName, optional: bool) -> BTreeSet<&'static str> {
    let shown = || name.rights().filter(|right| SHOWN.contains(&right.part));
    let required: BTreeSet<&str> = shown()
        .filter(|right| right.need == Need::Required)
        .map(|right| right.action)
        .collect();
    if !optional {
        return required;
    }
    let all = shown().map(|right| right.action);
    all.filter(|action| !required.contains(action)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_policy_is_enough_and_all_of_it_is_used() {
    for name in [
        PolicyName::Node,
        PolicyName::Service,
        PolicyName::Route,
        PolicyName::All,
    ] {
        let mut world = World::new();
        attach(&world, name, &[]);
        live(&mut world, name).await;
        assert_eq!(world.denied(), BTreeSet::new(), "{name:?}");
        assert_eq!(world.errors, [""; 0], "{name:?}");
        let mut expected: BTreeSet<&str> = actions(name, false);
        expected.extend(actions(name, true));
        // AWS itself asks for this one, when it makes the first load balancer.
        expected.remove("iam:CreateServiceLinkedRole");
        let called = world.called();
        let called: BTreeSet<&str> = called.iter().map(String::as_str).collect();
        assert_eq!(called, expected, "{name:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_any_one_required_action_some_call_is_denied() {
    for name in [PolicyName::Node, PolicyName::Service, PolicyName::Route] {
        let required = actions(name, false);
        assert!(!required.is_empty());
        for action in required {
            let mut world = World::new();
            world.ends_when_denied = true;
            attach(&world, name, &[action]);
            live(&mut world, name).await;
            assert!(
                world.denied().contains(action),
                "{name:?} works without {action}"
            );
            assert!(
                !world.errors.is_empty(),
                "nobody would notice that {action} is missing"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_optional_actions_everything_else_works() {
    for name in [PolicyName::Node, PolicyName::Service, PolicyName::Route] {
        let optional = actions(name, true);
        let mut world = World::settled();
        attach(&world, name, &optional.iter().copied().collect::<Vec<_>>());
        live(&mut world, name).await;
        let denied = world.denied();
        assert!(!denied.is_empty(), "{name:?} asks for what is optional");
        let beyond: Vec<_> = denied
            .iter()
            .filter(|it| !optional.contains(it.as_str()))
            .collect();
        assert_eq!(beyond, [""; 0], "{name:?}");
        // A Fargate node is nothing but its interface, and a route to one of several interfaces needs that one.
        let known = [
            "ec2:DescribeNetworkInterfaces",
            "ec2:ModifyNetworkInterfaceAttribute",
        ];
        let lost = |error: &&String| !known.iter().any(|known| error.contains(known));
        let errors: Vec<_> = world.errors.iter().filter(lost).collect();
        assert_eq!(errors, [""; 0], "{name:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_load_balancer_of_an_account_needs_the_service_role() {
    let mut world = World::new();
    attach(
        &world,
        PolicyName::Service,
        &["iam:CreateServiceLinkedRole"],
    );
    world.day_of_a_plain_network_load_balancer().await;
    assert!(world.denied().contains("iam:CreateServiceLinkedRole"));
    let mut world = World::new();
    attach(&world, PolicyName::Service, &[]);
    world.day_of_a_plain_network_load_balancer().await;
    assert_eq!(world.errors, [""; 0]);
}

#[test]
fn every_part_is_shown_or_known_not_to_be() {
    let hidden = [Part::Classic, Part::Tagging];
    for right in rights() {
        assert_ne!(
            SHOWN.contains(&right.part),
            hidden.contains(&right.part),
            "{right:?}"
        );
    }
}
