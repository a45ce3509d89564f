//! The table of actions.

use std::fmt;

/// Who asks AWS for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Every process, before any controller runs.
    Start,
    /// The controllers of Nodes.
    Node,
    /// The service controller, for load balancers of any kind.
    Service,
    /// The service controller, for network load balancers.
    Network,
    /// The service controller, for classic load balancers.
    Classic,
    /// The route controller.
    Route,
    /// The tagging controller.
    Tagging,
}

impl Part {
    /// All parts in the table's order.
    pub const ALL: [Self; 7] = [
        Self::Start,
        Self::Node,
        Self::Service,
        Self::Network,
        Self::Classic,
        Self::Route,
        Self::Tagging,
    ];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "every process",
            Self::Node => "Nodes",
            Self::Service => "load balancers",
            Self::Network => "network load balancers",
            Self::Classic => "classic load balancers",
            Self::Route => "routes",
            Self::Tagging => "tagging",
        })
    }
}

/// Whether something works without the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// No.
    Required,
    /// Yes, but for this.
    Optional(&'static str),
    /// It is asked for with this setting only, and for a resource that only the user knows: in no policy.
    Configured(&'static str),
}

/// On what an action is allowed. Each scope is a statement of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Reads, which AWS does not divide by resource.
    Reads,
    /// Security groups.
    SecurityGroups,
    /// Security groups that do not exist yet, and their VPC.
    NewSecurityGroups,
    /// Network load balancers with their listeners and target groups.
    NetworkLoadBalancers,
    /// Classic load balancers. Their ARNs have a pattern that fits every kind of load balancer.
    ClassicLoadBalancers,
    /// The role that the first load balancer of an account makes.
    ServiceRole,
    /// Route tables.
    RouteTables,
    /// Instances.
    Instances,
    /// Network interfaces.
    NetworkInterfaces,
}

impl Scope {
    /// The name of the statement.
    pub(super) const fn sid(self) -> &'static str {
        match self {
            Self::Reads => "Reads",
            Self::SecurityGroups => "SecurityGroups",
            Self::NewSecurityGroups => "NewSecurityGroups",
            Self::NetworkLoadBalancers => "NetworkLoadBalancers",
            Self::ClassicLoadBalancers => "ClassicLoadBalancers",
            Self::ServiceRole => "ServiceRole",
            Self::RouteTables => "RouteTables",
            Self::Instances => "Instances",
            Self::NetworkInterfaces => "NetworkInterfaces",
        }
    }

    /// Patterns of ARNs in the partition `aws`.
    pub const fn resources(self) -> &'static [&'static str] {
        match self {
            Self::Reads => &["*"],
            Self::SecurityGroups => &["arn:aws:ec2:*:*:security-group/*"],
            Self::NewSecurityGroups => {
                &["arn:aws:ec2:*:*:security-group/*", "arn:aws:ec2:*:*:vpc/*"]
            }
            Self::NetworkLoadBalancers => &[
                "arn:aws:elasticloadbalancing:*:*:listener/net/*",
                "arn:aws:elasticloadbalancing:*:*:loadbalancer/net/*",
                "arn:aws:elasticloadbalancing:*:*:targetgroup/*",
            ],
            Self::ClassicLoadBalancers => &["arn:aws:elasticloadbalancing:*:*:loadbalancer/*"],
            Self::ServiceRole => {
                &["arn:aws:iam::*:role/aws-service-role/elasticloadbalancing.amazonaws.com/*"]
            }
            Self::RouteTables => &["arn:aws:ec2:*:*:route-table/*"],
            Self::Instances => &["arn:aws:ec2:*:*:instance/*"],
            Self::NetworkInterfaces => &["arn:aws:ec2:*:*:network-interface/*"],
        }
    }

    /// A condition key and the one value it must have.
    pub(super) const fn condition(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::ServiceRole => Some(("iam:AWSServiceName", "elasticloadbalancing.amazonaws.com")),
            _ => None,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// Who asks.
    pub part: Part,
    /// With its service: `ec2:CreateTags`.
    pub action: &'static str,
    /// On what.
    pub scope: Scope,
    /// Whether it may be missing.
    pub need: Need,
    /// For what, as a half sentence.
    pub why: &'static str,
}

const fn required(part: Part, scope: Scope, action: &'static str, why: &'static str) -> Right {
    Right {
        part,
        action,
        scope,
        need: Need::Required,
        why,
    }
}

const fn optional(
    part: Part,
    scope: Scope,
    action: &'static str,
    why: &'static str,
    without: &'static str,
) -> Right {
    Right {
        need: Need::Optional(without),
        ..required(part, scope, action, why)
    }
}

use Part::{Classic, Network, Node, Route, Service, Start, Tagging};
use Scope::{
    ClassicLoadBalancers, Instances, NetworkInterfaces, NetworkLoadBalancers, NewSecurityGroups,
    Reads, RouteTables, SecurityGroups, ServiceRole,
};

/// Everything that the code asks AWS for.
static RIGHTS: &[Right] = &[
    required(
        Start,
        Reads,
        "ec2:DescribeAvailabilityZones",
        "whether endpoint and credentials are good",
    ),
    optional(
        Start,
        Reads,
        "ec2:DescribeInstances",
        "the cluster and the VPC of the machine that the process runs on",
        "the cloud-config must say them",
    ),
    Right {
        need: Need::Configured("with `RoleARN` in the cloud-config, for that role"),
        ..required(Start, Reads, "sts:AssumeRole", "to work as another role")
    },
    required(
        Node,
        Reads,
        "ec2:DescribeInstances",
        "addresses, type, zone and state of machines",
    ),
    required(
        Node,
        Reads,
        "ec2:DescribeAvailabilityZones",
        "ids of zones, for labels",
    ),
    optional(
        Node,
        Reads,
        "ec2:DescribeInstanceTopology",
        "labels of the network above machines for tightly coupled work",
        "those labels are missing",
    ),
    optional(
        Node,
        Reads,
        "ec2:DescribeNetworkInterfaces",
        "Fargate nodes, which have no machine",
        "Fargate nodes stay uninitialised",
    ),
    required(
        Service,
        Reads,
        "ec2:DescribeInstances",
        "the machines behind the Nodes and their security groups",
    ),
    required(
        Service,
        Reads,
        "ec2:DescribeSubnets",
        "where a load balancer can be",
    ),
    required(
        Service,
        Reads,
        "ec2:DescribeRouteTables",
        "which subnets are public",
    ),
    required(
        Service,
        Reads,
        "ec2:DescribeAvailabilityZones",
        "which zones take load balancers",
    ),
    required(
        Service,
        Reads,
        "ec2:DescribeSecurityGroups",
        "the rules that are there",
    ),
    required(
        Service,
        NewSecurityGroups,
        "ec2:CreateSecurityGroup",
        "the security group of a load balancer, where it has one of its own",
    ),
    required(
        Service,
        SecurityGroups,
        "ec2:DeleteSecurityGroup",
        "the same, when its Service goes",
    ),
    required(
        Service,
        SecurityGroups,
        "ec2:AuthorizeSecurityGroupIngress",
        "traffic to load balancers and from them to the Nodes",
    ),
    required(
        Service,
        SecurityGroups,
        "ec2:RevokeSecurityGroupIngress",
        "the same, when it is no longer wanted",
    ),
    required(
        Service,
        SecurityGroups,
        "ec2:CreateTags",
        "the cluster's tag on security groups, by which they are found again",
    ),
    optional(
        Service,
        SecurityGroups,
        "ec2:UpdateSecurityGroupRuleDescriptionsIngress",
        "a rule that several load balancers share names one that exists",
        "the old description stays",
    ),
    optional(
        Service,
        ServiceRole,
        "iam:CreateServiceLinkedRole",
        "the first load balancer of an account",
        "the account must have had one already",
    ),
    required(
        Network,
        Reads,
        "elasticloadbalancing:DescribeLoadBalancers",
        "whether it exists and how it is",
    ),
    required(
        Network,
        Reads,
        "elasticloadbalancing:DescribeLoadBalancerAttributes",
        "the same",
    ),
    required(
        Network,
        Reads,
        "elasticloadbalancing:DescribeListeners",
        "the same",
    ),
    required(
        Network,
        Reads,
        "elasticloadbalancing:DescribeTargetGroups",
        "the same",
    ),
    required(
        Network,
        Reads,
        "elasticloadbalancing:DescribeTargetGroupAttributes",
        "the same, where an annotation is about them",
    ),
    required(
        Network,
        Reads,
        "elasticloadbalancing:DescribeTargetHealth",
        "which machines are registered",
    ),
    optional(
        Network,
        Reads,
        "elasticloadbalancing:DescribeTags",
        "whose a load balancer is, and what an interrupted run left behind; needed with `DeleteReleasedLoadBalancers = true`",
        "tags stay as they were made, and leftovers are found by name only",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:CreateLoadBalancer",
        "a new Service",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:CreateTargetGroup",
        "a new port",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:CreateListener",
        "a new port",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:AddTags",
        "the tags that all of these are made with",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:ModifyLoadBalancerAttributes",
        "annotations about attributes",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:SetSecurityGroups",
        "other security groups in the annotation",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:ModifyListener",
        "another certificate, policy or target group of a port",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:ModifyTargetGroup",
        "another health check",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:ModifyTargetGroupAttributes",
        "annotations about attributes",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:RegisterTargets",
        "a machine that comes",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:DeregisterTargets",
        "a machine that goes",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:DeleteListener",
        "a port that goes",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:DeleteTargetGroup",
        "a port that goes",
    ),
    required(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:DeleteLoadBalancer",
        "a Service that goes",
    ),
    optional(
        Network,
        NetworkLoadBalancers,
        "elasticloadbalancing:RemoveTags",
        "a tag that left the annotation",
        "it stays on the load balancer",
    ),
    required(
        Classic,
        Reads,
        "elasticloadbalancing:DescribeLoadBalancers",
        "whether it exists and how it is",
    ),
    required(
        Classic,
        Reads,
        "elasticloadbalancing:DescribeLoadBalancerAttributes",
        "the same",
    ),
    required(
        Classic,
        Reads,
        "elasticloadbalancing:DescribeLoadBalancerPolicies",
        "the same, where an annotation is about them",
    ),
    optional(
        Classic,
        Reads,
        "elasticloadbalancing:DescribeTags",
        "whose a load balancer is",
        "tags stay as they were made",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:CreateLoadBalancer",
        "a new Service",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:AddTags",
        "the tags that it is made with",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:AttachLoadBalancerToSubnets",
        "another subnet",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:DetachLoadBalancerFromSubnets",
        "a subnet that goes",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:ApplySecurityGroupsToLoadBalancer",
        "other security groups in the annotation",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:CreateLoadBalancerListeners",
        "a new port",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:DeleteLoadBalancerListeners",
        "a port that goes",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:CreateLoadBalancerPolicy",
        "annotations about the proxy protocol and ciphers",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer",
        "the proxy protocol",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:SetLoadBalancerPoliciesOfListener",
        "ciphers",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:ModifyLoadBalancerAttributes",
        "annotations about attributes",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:ConfigureHealthCheck",
        "the health check",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:RegisterInstancesWithLoadBalancer",
        "a machine that comes",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:DeregisterInstancesFromLoadBalancer",
        "a machine that goes",
    ),
    required(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:DeleteLoadBalancer",
        "a Service that goes",
    ),
    optional(
        Classic,
        ClassicLoadBalancers,
        "elasticloadbalancing:RemoveTags",
        "a tag that left the annotation",
        "it stays on the load balancer",
    ),
    required(
        Route,
        Reads,
        "ec2:DescribeInstances",
        "the machines that routes lead to",
    ),
    required(
        Route,
        Reads,
        "ec2:DescribeRouteTables",
        "the routes that are there",
    ),
    required(
        Route,
        RouteTables,
        "ec2:CreateRoute",
        "the pod range of a Node",
    ),
    required(
        Route,
        RouteTables,
        "ec2:DeleteRoute",
        "the pod range of a Node that is gone",
    ),
    optional(
        Route,
        RouteTables,
        "ec2:ReplaceRoute",
        "the route of a former machine",
        "it is deleted and made anew, in two calls",
    ),
    required(
        Route,
        Instances,
        "ec2:ModifyInstanceAttribute",
        "machines may forward traffic that is not theirs",
    ),
    optional(
        Route,
        NetworkInterfaces,
        "ec2:ModifyNetworkInterfaceAttribute",
        "the same, of machines with several network interfaces",
        "these get no routes",
    ),
    required(
        Tagging,
        Instances,
        "ec2:CreateTags",
        "the tags of a new Node's machine",
    ),
    required(
        Tagging,
        Instances,
        "ec2:DeleteTags",
        "the same, when the Node goes",
    ),
];

/// The rows of the table in its order.
pub fn rights() -> &'static [Right] {
    RIGHTS
}
