//! The documents and the page themselves.

use std::collections::{BTreeMap, BTreeSet};

use ccm_cloudsim::{CloudSim, Options};
use serde_json::Value;

use crate::iam::{Need, PolicyName, iam_reference, policy, policy_named, rights};

/// Each allowed action with the resources that it is allowed on.
fn allowed(name: PolicyName) -> BTreeMap<String, BTreeSet<String>> {
    let document: Value = serde_json::from_str(&policy(name).unwrap()).unwrap();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    for statement in document["Statement"].as_array().unwrap() {
        assert_eq!(statement["Effect"], "Allow");
        for action in texts(&statement["Action"]) {
            let on = all.entry(action).or_default();
            on.extend(texts(&statement["Resource"]));
        }
    }
    all
}

#[test]
fn iam_takes_every_document() {
    let sim = CloudSim::new(Options::default());
    for name in PolicyName::ALL {
        let text = policy(name).unwrap();
        sim.iam().attach(name.as_str(), &text).unwrap();
        assert!(text.ends_with("}\n"), "{name:?}");
        assert_eq!(policy_named(name.as_str()), Some(text));
    }
    assert_eq!(policy_named("nothing"), None);
}

#[test]
fn only_reads_are_allowed_on_everything() {
    for (action, on) in allowed(PolicyName::All) {
        let read = action.contains(":Describe");
        assert_eq!(on.contains("*"), read, "{action} on {on:?}");
        assert!(
            !action.contains('*'),
            "{action} allows more than one action"
        );
    }
    // A policy cannot name the role of a cluster that it does not know.
    assert!(!allowed(PolicyName::All).contains_key("sts:AssumeRole"));
}

#[test]
fn the_policy_of_all_controllers_is_the_sum_of_the_others() {
    let mut sum: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in PolicyName::ALL {
        if name != PolicyName::All {
            for (action, on) in allowed(name) {
                sum.entry(action).or_default().extend(on);
            }
        }
    }
    assert_eq!(allowed(PolicyName::All), sum);
    let tagging = allowed(PolicyName::Tagging);
    let own: Vec<&str> = tagging.keys().map(String::as_str).collect();
    assert_eq!(
        own,
        [
            "ec2:CreateTags",
            "ec2:DeleteTags",
            "ec2:DescribeAvailabilityZones",
            "ec2:DescribeInstances"
        ]
    );
    let instances = BTreeSet::from(["arn:aws:ec2:*:*:instance/*".to_owned()]);
    assert_eq!(tagging["ec2:CreateTags"], instances);
}

#[test]
fn what_one_controller_requires_is_not_optional_because_of_another() {
    let document: Value = serde_json::from_str(&policy(PolicyName::All).unwrap()).unwrap();
    let optional = document["Statement"].as_array().unwrap().iter();
    let optional = optional.filter(|it| it["Sid"].as_str().unwrap().ends_with("Optional"));
    let actions: BTreeSet<&str> = optional
        .flat_map(|statement| statement["Action"].as_array().unwrap())
        .map(|action| action.as_str().unwrap())
        .collect();
    assert!(actions.contains("ec2:ReplaceRoute") && !actions.contains("ec2:DescribeInstances"));
    for right in rights() {
        let known = match right.need {
            Need::Required => !actions.contains(right.action),
            Need::Optional(_) => true,
            Need::Configured(_) => !actions.contains(right.action),
        };
        assert!(known, "{right:?}");
    }
}

#[test]
fn the_page_names_every_file_and_has_a_row_for_each_right() {
    let page = iam_reference();
    let rows = page.lines().filter(|line| line.starts_with("| ")).count();
    assert_eq!(rows, 2 + PolicyName::ALL.len() + rights().len());
    for name in PolicyName::ALL {
        assert!(page.contains(&format!("[{0}]({0})", name.file())));
    }
    assert!(page.contains(
        "| network load balancers | `elasticloadbalancing:CreateListener` | yes | `listener/net/*`, \
         `loadbalancer/net/*`, `targetgroup/*` | a new port |\n"
    ));
    assert!(page.contains("| every process | `sts:AssumeRole` | with `RoleARN`"));
}
