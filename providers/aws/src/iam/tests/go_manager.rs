//! A cluster that comes from the Go manager has the policy that its documentation prints.

use super::world::World;
use crate::iam::{Need, PolicyName, rights};

/// The actions of that policy which this provider has a use for.
const DOCUMENTED: [&str; 44] = [
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:CreateRoute",
    "ec2:CreateSecurityGroup",
    "ec2:CreateTags",
    "ec2:DeleteRoute",
    "ec2:DeleteSecurityGroup",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceTopology",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:ModifyInstanceAttribute",
    "ec2:RevokeSecurityGroupIngress",
    "elasticloadbalancing:AddTags",
    "elasticloadbalancing:ApplySecurityGroupsToLoadBalancer",
    "elasticloadbalancing:AttachLoadBalancerToSubnets",
    "elasticloadbalancing:ConfigureHealthCheck",
    "elasticloadbalancing:CreateListener",
    "elasticloadbalancing:CreateLoadBalancer",
    "elasticloadbalancing:CreateLoadBalancerListeners",
    "elasticloadbalancing:CreateLoadBalancerPolicy",
    "elasticloadbalancing:CreateTargetGroup",
    "elasticloadbalancing:DeleteListener",
    "elasticloadbalancing:DeleteLoadBalancer",
    "elasticloadbalancing:DeleteLoadBalancerListeners",
    "elasticloadbalancing:DeleteTargetGroup",
    "elasticloadbalancing:DeregisterInstancesFromLoadBalancer",
    "elasticloadbalancing:DeregisterTargets",
    "elasticloadbalancing:DescribeListeners",
    "elasticloadbalancing:DescribeLoadBalancerAttributes",
    "elasticloadbalancing:DescribeLoadBalancerPolicies",
    "elasticloadbalancing:DescribeLoadBalancers",
    "elasticloadbalancing:DescribeTargetGroups",
    "elasticloadbalancing:DescribeTargetHealth",
    "elasticloadbalancing:DetachLoadBalancerFromSubnets",
    "elasticloadbalancing:ModifyListener",
    "elasticloadbalancing:ModifyLoadBalancerAttributes",
    "elasticloadbalancing:ModifyTargetGroup",
    "elasticloadbalancing:RegisterInstancesWithLoadBalancer",
    "elasticloadbalancing:RegisterTargets",
    "elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer",
    "elasticloadbalancing:SetLoadBalancerPoliciesOfListener",
    "iam:CreateServiceLinkedRole",
];

/// What the Go manager calls too, although its documentation does not say so. All of them are for annotations
/// or controllers that are off by default.
const FORGOTTEN: [&str; 4] = [
    "ec2:DeleteTags",
    "elasticloadbalancing:DescribeTargetGroupAttributes",
    "elasticloadbalancing:ModifyTargetGroupAttributes",
    "elasticloadbalancing:SetSecurityGroups",
];

#[test]
fn nothing_is_required_that_the_go_manager_does_not_call() {
    let required = rights().iter().filter(|right| right.need == Need::Required);
    for right in required {
        let known = DOCUMENTED.contains(&right.action) || FORGOTTEN.contains(&right.action);
        assert!(known, "{} must be optional", right.action);
    }
    let all: Vec<&str> = PolicyName::All.rights().map(|right| right.action).collect();
    for action in DOCUMENTED.iter().chain(&FORGOTTEN) {
        assert!(all.contains(action), "{action} is of no use");
    }
}

#[tokio::test(start_paused = true)]
async fn its_documented_policy_is_enough_for_nodes_and_plain_services() {
    let mut world = World::new();
    let actions = serde_json::to_string(&DOCUMENTED[..]).unwrap();
    let document = format!(
        r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Action": {actions}, "Resource": ["*"]}}]}}"#
    );
    world.sim.iam().attach("go", &document).unwrap();
    world.day_of_nodes().await;
    world.day_of_a_plain_network_load_balancer().await;
    let lost = |error: &&String| !error.contains("ec2:DescribeNetworkInterfaces");
    let errors: Vec<_> = world.errors.iter().filter(lost).collect();
    assert_eq!(errors, [""; 0]);
}
