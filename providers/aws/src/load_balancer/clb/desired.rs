//! What a classic load balancer should be (specification: aws §4.7). Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{groups::once, request::Request};
use crate::{
    api::{
        elb::{Attributes, HealthCheck, ListenerSpec, NewLoadBalancer, Policy},
        network::{NewSecurityGroup, Rule},
    },
    load_balancer::settings::Settings,
    names::{PROXY_PROTOCOL_POLICY, ssl_negotiation_policy},
    tags::Tags,
};

/// How far the plan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Until there are a security group and a load balancer without instances: the Nodes are to let
    /// in what comes from that group before anything does.
    Entrance,
    /// To the end.
    Complete,
}

/// The first of the load balancer's security groups; the Nodes let in what comes from the very
/// first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstGroups {
    /// The user's, or the one of the cloud config.
    Given(Vec<String>),
    /// One that we make, with exactly these rules.
    Managed {
        /// How it is made.
        new: NewSecurityGroup,
        /// Its rules.
        rules: BTreeSet<Rule>,
    },
}

/// The desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// How far to go.
    pub phase: Phase,
    /// How the load balancer is made. The scheme of an existing one is never changed, and its
    /// security groups come from the fields below.
    pub new: NewLoadBalancer,
    /// The subnets of an existing one; `None` leaves them alone.
    pub subnets: Option<BTreeSet<String>>,
    /// The zone of each subnet.
    pub zones: BTreeMap<String, String>,
    /// Its first security groups.
    pub first_groups: FirstGroups,
    /// Those that come after.
    pub extra_groups: Vec<String>,
    /// Its listeners, by port.
    pub listeners: BTreeMap<i32, ListenerSpec>,
    /// The policy for every port of the instances.
    pub backend_policy: Option<Policy>,
    /// The policy for every TLS listener.
    pub listener_policy: Option<Policy>,
    /// Attributes.
    pub attributes: Attributes,
    /// How instances are checked.
    pub health: HealthCheck,
    /// The instances behind it.
    pub instances: BTreeSet<String>,
    /// Those of its tags that the user gave: all that is written where tags cannot be read.
    pub user_tags: Tags,
}

/// The desired state of a request.
pub fn desired(
    request: &Request,
    settings: &Settings,
    subnets: Option<BTreeSet<String>>,
    instances: BTreeSet<String>,
) -> Want {
    let listeners: BTreeMap<i32, ListenerSpec> = request
        .listeners
        .iter()
        .map(|listener| (listener.port, listener.clone()))
        .collect();
    let tls = listeners.values().any(is_tls);
    Want {
        phase: Phase::Complete,
        new: NewLoadBalancer {
            name: request.name.to_string(),
            internal: request.internal,
            subnets: subnets.clone().unwrap_or_default(),
            security_groups: Vec::new(),
            listeners: request.listeners.clone(),
            tags: request.tags.clone(),
        },
        subnets,
        zones: BTreeMap::new(),
        first_groups: first_groups(request, settings),
        extra_groups: request.extra_security_groups.clone(),
        listeners,
        backend_policy: request.proxy_protocol.then(|| Policy {
            name: PROXY_PROTOCOL_POLICY.to_owned(),
            kind: "ProxyProtocolPolicyType",
            attribute: ("ProxyProtocol", "true".to_owned()),
        }),
        listener_policy: request
            .ssl_policy
            .as_ref()
            .filter(|_| tls)
            .map(|predefined| Policy {
                name: ssl_negotiation_policy(predefined),
                kind: "SSLNegotiationPolicyType",
                attribute: ("Reference-Security-Policy", predefined.clone()),
            }),
        attributes: request.attributes.clone(),
        health: request.health.clone(),
        instances,
        user_tags: request.user_tags.clone(),
    }
}

fn first_groups(request: &Request, settings: &Settings) -> FirstGroups {
    if !request.security_groups.is_empty() {
        return FirstGroups::Given(request.security_groups.clone());
    }
    if let Some(group) = &settings.elb_security_group {
        return FirstGroups::Given(vec![group.clone()]);
    }
    FirstGroups::Managed {
        new: NewSecurityGroup {
            name: request.group.clone(),
            description: request.group_description.clone(),
            vpc_id: settings.vpc_id.clone(),
            tags: request.group_tags.clone(),
        },
        rules: managed_rules(request),
    }
}

/// One rule for each listener and source, and one for "fragmentation needed" for each source.
fn managed_rules(request: &Request) -> BTreeSet<Rule> {
    request
        .sources
        .iter()
        .flat_map(|cidr| {
            request
                .listeners
                .iter()
                .map(|listener| Rule::port("tcp", listener.port, *cidr))
                .chain([Rule::mtu(*cidr)])
        })
        .collect()
}

/// Whether clients speak TLS with the listener.
pub fn is_tls(listener: &ListenerSpec) -> bool {
    ["ssl", "https"]
        .iter()
        .any(|tls| listener.protocol.eq_ignore_ascii_case(tls))
}

impl Want {
    /// All security groups in order, given the id of the managed one; `None` while that is not made.
    pub fn groups(&self, managed: Option<&str>) -> Option<Vec<String>> {
        let first = match &self.first_groups {
            FirstGroups::Given(groups) => groups.clone(),
            FirstGroups::Managed { .. } => vec![managed?.to_owned()],
        };
        Some(once(
            first.into_iter().chain(self.extra_groups.iter().cloned()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_balancer::{
        clb::request::preflight,
        testing::{LB, alb, classic, settings},
    };

    fn want(pairs: &[(&str, &str)], settings: &Settings, ranges: &[&str]) -> Want {
        let mut service = classic(&[(80, 30080), (443, 30443)]);
        for (key, value) in pairs {
            alb(&mut service, key, value);
        }
        service.spec.load_balancer_source_ranges =
            Some(ranges.iter().map(|r| (*r).to_owned()).collect());
        let request = preflight(&service, settings).unwrap();
        desired(&request, settings, None, BTreeSet::new())
    }

    /// REQ-AWS-SG-2, REQ-AWS-SG-3, REQ-AWS-SG-4
    #[test]
    fn annotations_then_the_cloud_config_then_one_of_our_own() {
        let plain = settings();
        let given = Settings {
            elb_security_group: Some("sg-g".to_owned()),
            ..settings()
        };
        let two = ("security-groups", "sg-000001, sg-000002");
        let extra = ("extra-security-groups", "sg-000001, sg-000002");
        let blank = ("extra-security-groups", ", ,,");
        for (pairs, settings, groups) in [
            (&[][..], &plain, &["managed"][..]),
            (&[blank][..], &plain, &["managed"][..]),
            (&[extra][..], &plain, &["managed", "sg-000001", "sg-000002"]),
            (&[][..], &given, &["sg-g"][..]),
            (&[extra][..], &given, &["sg-g", "sg-000001", "sg-000002"]),
            (&[two][..], &plain, &["sg-000001", "sg-000002"]),
            (&[two, extra][..], &given, &["sg-000001", "sg-000002"]),
        ] {
            let want = want(pairs, settings, &[]);
            assert_eq!(want.groups(Some("managed")).unwrap(), groups);
            let made = matches!(want.first_groups, FirstGroups::Managed { .. });
            assert_eq!(made, groups[0] == "managed");
            assert_eq!(want.groups(None).is_none(), made);
        }
    }

    /// REQ-AWS-SG-1, REQ-AWS-SG-5
    #[test]
    fn the_managed_group_lets_every_range_into_every_port() {
        let ranges = ["10.0.0.0/8", "192.168.0.0/16"];
        let want = want(&[], &settings(), &ranges);
        let FirstGroups::Managed { new, rules } = want.first_groups else {
            panic!();
        };
        let mut expected = BTreeSet::new();
        for range in ranges {
            let range = range.parse().unwrap();
            expected.extend([
                Rule::port("tcp", 80, range),
                Rule::port("tcp", 443, range),
                Rule::mtu(range),
            ]);
        }
        assert_eq!(rules, expected);
        assert_eq!(new.name, format!("k8s-elb-{LB}"));
        assert_eq!(
            new.description,
            format!("Security group for Kubernetes ELB {LB} (shop/web)")
        );
        assert_eq!(new.vpc_id, "vpc-1");
        let tags: Vec<_> = new.tags.into_iter().collect();
        assert_eq!(
            tags,
            [("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())]
        );
    }

    /// REQ-AWS-CLB-15
    #[test]
    fn a_tls_policy_needs_a_tls_listener() {
        let policy = ("ssl-negotiation-policy", "P");
        assert_eq!(want(&[policy], &settings(), &[]).listener_policy, None);
        let tls = want(&[policy, ("ssl-cert", "arn")], &settings(), &[]);
        let policy = tls.listener_policy.unwrap();
        assert_eq!(policy.name, "k8s-SSLNegotiationPolicy-P");
        assert_eq!(policy.kind, "SSLNegotiationPolicyType");
        assert_eq!(
            policy.attribute,
            ("Reference-Security-Policy", "P".to_owned())
        );
    }
}
