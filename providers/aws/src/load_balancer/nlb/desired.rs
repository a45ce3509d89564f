//! What a network load balancer should be (specification: aws §4.8.1 to §4.8.3). Pure.

use std::collections::BTreeSet;

use ccm_core::cloud::{CloudError, CloudResult};

use crate::{
    api::{
        elbv2::{Attributes, HealthCheck, LoadBalancer, NewLoadBalancer, SubnetMapping},
        network::{NewSecurityGroup, Rule, Rules, Subnet},
    },
    load_balancer::{
        preflight::{Port, Request},
        settings::Settings,
    },
    names::NLB_SECURITY_GROUP_DESCRIPTION,
    tags::Tags,
};

/// The type that AWS gives to network load balancers.
pub const KIND: &str = "network";

/// How far the plan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Up to the registered targets: no listener changes, so that the Nodes' security groups can
    /// be opened first.
    Backends,
    /// To the end.
    Complete,
}

/// The load balancer's own security groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityGroups {
    /// Whatever is attached.
    Keep,
    /// The user's.
    Exactly(BTreeSet<String>),
    /// One that we make, with these rules.
    Managed {
        /// How it is made.
        new: NewSecurityGroup,
        /// Its rules.
        rules: BTreeSet<Rule>,
    },
}

/// A listener with its target group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantPort {
    /// Ports, protocols, certificate, name of the target group.
    pub port: Port,
    /// How its targets are checked.
    pub health: HealthCheck,
}

/// The desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// How far to go.
    pub phase: Phase,
    /// How the load balancer is made. Subnets and scheme of an existing one are never changed.
    pub new: NewLoadBalancer,
    /// The VPC of the target groups.
    pub vpc_id: String,
    /// Its security groups.
    pub security_groups: SecurityGroups,
    /// Its listeners and target groups.
    pub ports: Vec<WantPort>,
    /// The instances behind it.
    pub instances: BTreeSet<String>,
    /// Load balancer attributes, of those that we own.
    pub attributes: Attributes,
    /// Target group attributes, of those that the user set.
    pub target_group_attributes: Attributes,
    /// Tags of load balancer, listeners and target groups.
    pub tags: Tags,
}

/// The desired state of a request, given the load balancer that exists and the subnets for a new
/// one.
pub fn desired(
    request: &Request,
    settings: &Settings,
    existing: Option<&LoadBalancer>,
    subnets: Vec<SubnetMapping>,
    instances: BTreeSet<String>,
) -> Want {
    Want {
        phase: Phase::Complete,
        new: NewLoadBalancer {
            name: request.name.to_string(),
            internal: request.internal,
            subnets,
            security_groups: BTreeSet::new(),
            tags: request.tags.clone(),
        },
        vpc_id: existing.map_or_else(|| settings.vpc_id.clone(), |lb| lb.vpc_id.clone()),
        security_groups: security_groups(request, settings, existing),
        ports: request
            .ports
            .iter()
            .map(|port| WantPort {
                port: port.clone(),
                health: request.health.clone(),
            })
            .collect(),
        instances,
        attributes: request.attributes.clone(),
        target_group_attributes: request.target_group_attributes.clone(),
        tags: request.tags.clone(),
    }
}

/// AWS cannot add security groups to a network load balancer that was made without any.
fn security_groups(
    request: &Request,
    settings: &Settings,
    existing: Option<&LoadBalancer>,
) -> SecurityGroups {
    let without = existing.is_some_and(|lb| lb.security_groups.is_empty());
    if !settings.managed_security_groups || without {
        return SecurityGroups::Keep;
    }
    if !request.security_groups.is_empty() {
        return SecurityGroups::Exactly(request.security_groups.clone());
    }
    SecurityGroups::Managed {
        new: NewSecurityGroup {
            name: request.managed_group.clone(),
            description: NLB_SECURITY_GROUP_DESCRIPTION.to_owned(),
            vpc_id: settings.vpc_id.clone(),
            tags: request.group_tags.clone(),
        },
        rules: managed_rules(request),
    }
}

/// One rule for each listener and source, and one for "fragmentation needed" for each source. EC2
/// knows no protocol `tls`: a TLS listener is TCP.
fn managed_rules(request: &Request) -> BTreeSet<Rule> {
    let protocol = if request.udp { "udp" } else { "tcp" };
    request
        .sources
        .iter()
        .flat_map(|cidr| {
            request
                .ports
                .iter()
                .map(|port| Rule::port(protocol, port.port, *cidr))
                .chain([Rule::mtu(*cidr)])
        })
        .collect()
}

/// Pairs subnets with Elastic IPs and private addresses, in order.
///
/// # Errors
/// A list of addresses that is not as long as the list of subnets.
pub fn mappings(request: &Request, subnets: &[&Subnet]) -> CloudResult<Vec<SubnetMapping>> {
    for (what, count) in [
        ("EIP AllocationIDs", request.allocations.len()),
        ("Private IPv4Addresses", request.private_ipv4.len()),
    ] {
        if count != 0 && count != subnets.len() {
            return Err(CloudError::invalid(format!(
                "error creating load balancer: Must have same number of {what} ({count}) and \
                 SubnetIDs ({})",
                subnets.len()
            )));
        }
    }
    Ok(subnets
        .iter()
        .enumerate()
        .map(|(n, subnet)| SubnetMapping {
            subnet_id: subnet.id.clone(),
            allocation_id: request.allocations.get(n).cloned(),
            private_ipv4: request.private_ipv4.get(n).cloned(),
        })
        .collect())
}

/// The rules of the managed group that are missing in `have`; descriptions do not count.
pub fn missing_rules(rules: &BTreeSet<Rule>, have: &Rules) -> Rules {
    rules
        .iter()
        .filter(|rule| !have.contains_key(*rule))
        .map(|rule| (rule.clone(), String::new()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_balancer::{
        preflight::preflight,
        testing::{alb, service, settings},
    };

    fn managed() -> Settings {
        Settings {
            managed_security_groups: true,
            ..settings()
        }
    }

    fn groups_of(
        annotation: Option<&str>,
        settings: &Settings,
        attached: Option<&[&str]>,
    ) -> SecurityGroups {
        let mut service = service(&[(80, 30080)]);
        if let Some(value) = annotation {
            alb(&mut service, "security-groups", value);
        }
        let request = preflight(&service, settings).unwrap();
        let existing = attached.map(|ids| LoadBalancer {
            security_groups: ids.iter().map(|id| (*id).to_owned()).collect(),
            ..LoadBalancer::default()
        });
        desired(
            &request,
            settings,
            existing.as_ref(),
            Vec::new(),
            BTreeSet::new(),
        )
        .security_groups
    }

    /// REQ-AWS-SG-34, REQ-AWS-SG-35, REQ-AWS-SG-36, REQ-AWS-SG-37
    #[test]
    fn the_mode_and_what_is_attached_decide_over_security_groups() {
        let off = settings();
        assert_eq!(
            groups_of(Some("sg-a"), &off, Some(&["sg-1"])),
            SecurityGroups::Keep
        );
        assert_eq!(groups_of(Some("sg-a"), &off, None), SecurityGroups::Keep);
        assert_eq!(
            groups_of(Some("sg-a"), &managed(), Some(&[])),
            SecurityGroups::Keep
        );
        let both = BTreeSet::from(["sg-a".to_owned(), "sg-b".to_owned()]);
        for attached in [None, Some(&["sg-1"][..])] {
            let groups = groups_of(Some("sg-a, sg-b"), &managed(), attached);
            assert_eq!(groups, SecurityGroups::Exactly(both.clone()));
        }
        for attached in [None, Some(&["sg-byo"][..])] {
            let groups = groups_of(None, &managed(), attached);
            assert!(matches!(groups, SecurityGroups::Managed { .. }));
        }
    }

    /// REQ-AWS-SG-33
    #[test]
    fn a_tls_listener_is_tcp_for_its_security_group() {
        let mut service = service(&[(443, 30443)]);
        alb(&mut service, "ssl-cert", "arn:cert");
        let request = preflight(&service, &managed()).unwrap();
        let any = "0.0.0.0/0".parse().unwrap();
        assert_eq!(
            managed_rules(&request),
            BTreeSet::from([Rule::port("tcp", 443, any), Rule::mtu(any)])
        );
    }

    /// REQ-AWS-NLB-3, REQ-AWS-NLB-4
    #[test]
    fn addresses_are_paired_with_subnets_in_order() {
        let subnet = |id: &str| Subnet {
            id: id.to_owned(),
            ..Subnet::default()
        };
        let (s1, s2, s3) = (subnet("s1"), subnet("s2"), subnet("s3"));
        let mut service = service(&[(80, 30080)]);
        alb(&mut service, "eip-allocations", "e1,e2");
        alb(&mut service, "private-ipv4-addresses", "p1,p2");
        let request = preflight(&service, &settings()).unwrap();
        let pairs: Vec<_> = mappings(&request, &[&s1, &s2])
            .unwrap()
            .into_iter()
            .map(|m| {
                (
                    m.subnet_id,
                    m.allocation_id.unwrap(),
                    m.private_ipv4.unwrap(),
                )
            })
            .collect();
        let want = [("s1", "e1", "p1"), ("s2", "e2", "p2")]
            .map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
        assert_eq!(pairs, want);
        assert_eq!(
            mappings(&request, &[&s1, &s2, &s3])
                .unwrap_err()
                .to_string(),
            "error creating load balancer: Must have same number of EIP AllocationIDs (2) and \
             SubnetIDs (3)"
        );
    }
}
