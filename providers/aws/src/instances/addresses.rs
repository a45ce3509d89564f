//! A Node's addresses from what EC2 knows (specification: aws §3.5). Pure.

use std::net::{Ipv4Addr, Ipv6Addr};

use ccm_core::cloud::{CloudError, CloudResult};
use k8s_openapi::api::core::v1::NodeAddress;

use crate::{
    api::{Instance, Interface, InterfaceStatus},
    config::IpFamily,
};

const INTERNAL_IP: &str = "InternalIP";
const EXTERNAL_IP: &str = "ExternalIP";
const INTERNAL_DNS: &str = "InternalDNS";
const EXTERNAL_DNS: &str = "ExternalDNS";
const HOSTNAME: &str = "Hostname";

/// The addresses of an instance, family by family in the configured order.
///
/// # Errors
/// An address that does not parse: then there are no addresses at all.
pub fn of_instance(instance: &Instance, families: &[IpFamily]) -> CloudResult<Vec<NodeAddress>> {
    let mut interfaces: Vec<&Interface> = instance
        .interfaces
        .iter()
        .filter(|i| i.status == InterfaceStatus::InUse)
        .collect();
    // Without attachment last. Upstream sorts only when IPv4 is asked for: an accident.
    interfaces.sort_by_key(|i| i.device_index.unwrap_or(i32::MAX));
    let mut addresses = Vec::new();
    for family in families {
        match family {
            IpFamily::V4 => ipv4(instance, &interfaces, &mut addresses)?,
            IpFamily::V6 => {
                for first in interfaces.iter().filter_map(|i| i.ipv6.first()) {
                    addresses.push(address(INTERNAL_IP, parse_v6(first)?));
                }
            }
        }
    }
    Ok(addresses)
}

/// The addresses of a Fargate Node's interface.
///
/// # Errors
/// An address that does not parse.
pub fn of_fargate(interface: &Interface, families: &[IpFamily]) -> CloudResult<Vec<NodeAddress>> {
    let mut addresses = Vec::new();
    for family in families {
        let ip = match family {
            IpFamily::V4 => interface
                .private_ips
                .first()
                .map(|ip| private_v4(ip))
                .transpose()?,
            IpFamily::V6 => interface.ipv6.first().map(|ip| parse_v6(ip)).transpose()?,
        };
        let Some(ip) = ip else {
            tracing::error!(
                interface = interface.id,
                ?family,
                "interface has no such address"
            );
            continue;
        };
        addresses.push(address(INTERNAL_IP, ip));
        if !interface.private_dns_name.is_empty() {
            addresses.push(address(INTERNAL_DNS, interface.private_dns_name.clone()));
        }
    }
    Ok(addresses)
}

fn ipv4(
    instance: &Instance,
    interfaces: &[&Interface],
    addresses: &mut Vec<NodeAddress>,
) -> CloudResult<()> {
    for ip in interfaces.iter().flat_map(|i| &i.private_ips) {
        addresses.push(address(INTERNAL_IP, private_v4(ip)?));
    }
    if !instance.public_ip.is_empty() {
        let ip: Ipv4Addr = instance.public_ip.parse().map_err(|_| {
            CloudError::transient(format!(
                "EC2 instance had invalid public address: {} ({:?})",
                instance.id, instance.public_ip
            ))
        })?;
        addresses.push(address(EXTERNAL_IP, ip.to_string()));
    }
    if !instance.private_dns_name.is_empty() {
        addresses.push(address(INTERNAL_DNS, instance.private_dns_name.clone()));
        addresses.push(address(HOSTNAME, instance.private_dns_name.clone()));
    }
    if !instance.public_dns_name.is_empty() {
        addresses.push(address(EXTERNAL_DNS, instance.public_dns_name.clone()));
    }
    Ok(())
}

fn private_v4(text: &str) -> CloudResult<String> {
    let ip: Result<Ipv4Addr, _> = text.parse();
    ip.map(|ip| ip.to_string()).map_err(|_| {
        CloudError::transient(format!(
            "EC2 instance had invalid private address: {text:?}"
        ))
    })
}

fn parse_v6(text: &str) -> CloudResult<String> {
    let ip: Result<Ipv6Addr, _> = text.parse();
    ip.map(|ip| ip.to_string()).map_err(|_| {
        CloudError::transient(format!("EC2 instance had invalid IPv6 address: {text:?}"))
    })
}

fn address(type_: &str, address: String) -> NodeAddress {
    NodeAddress {
        type_: type_.to_owned(),
        address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::fake::{instance, interface};

    const V4: &[IpFamily] = &[IpFamily::V4];
    const V6: &[IpFamily] = &[IpFamily::V6];

    fn bare() -> Instance {
        Instance {
            private_dns_name: String::new(),
            public_dns_name: String::new(),
            public_ip: String::new(),
            interfaces: vec![],
            ..instance("i-1")
        }
    }

    fn text(addresses: &[NodeAddress]) -> Vec<String> {
        addresses
            .iter()
            .map(|a| format!("{} {}", a.type_, a.address))
            .collect()
    }

    fn of(instance: &Instance, families: &[IpFamily]) -> Vec<String> {
        text(&of_instance(instance, families).unwrap())
    }

    /// REQ-AWS-ADDR-1
    #[test]
    fn an_instance_has_its_addresses_in_this_order() {
        let instance = Instance {
            interfaces: vec![interface(0, &["192.168.0.1"], &[])],
            public_ip: "1.2.3.4".into(),
            private_dns_name: "a.ec2.internal".into(),
            public_dns_name: "a.ec2.external".into(),
            ..bare()
        };
        assert_eq!(
            of(&instance, V4),
            [
                "InternalIP 192.168.0.1",
                "ExternalIP 1.2.3.4",
                "InternalDNS a.ec2.internal",
                "Hostname a.ec2.internal",
                "ExternalDNS a.ec2.external",
            ]
        );
    }

    /// REQ-AWS-ADDR-2, REQ-AWS-ADDR-3
    #[test]
    fn without_interfaces_names_and_public_address_remain() {
        let named = Instance {
            private_dns_name: "a".into(),
            ..bare()
        };
        assert_eq!(of(&named, V4), ["InternalDNS a", "Hostname a"]);
        let public = Instance {
            public_ip: "1.2.3.4".into(),
            ..named
        };
        assert_eq!(
            of(&public, V4),
            ["ExternalIP 1.2.3.4", "InternalDNS a", "Hostname a"]
        );
    }

    /// REQ-AWS-ADDR-4, REQ-AWS-ADDR-10
    #[test]
    fn of_each_interface_only_the_first_ipv6_address_counts() {
        let instance = Instance {
            interfaces: vec![
                interface(1, &[], &["2001:db8::2"]),
                interface(0, &[], &["2001:DB8:0::1", "2001:db8::9"]),
            ],
            private_dns_name: "a".into(),
            ..bare()
        };
        assert_eq!(
            of(&instance, V6),
            ["InternalIP 2001:db8::1", "InternalIP 2001:db8::2"]
        );
    }

    /// REQ-AWS-ADDR-5, REQ-AWS-ADDR-6, REQ-AWS-ADDR-7, REQ-AWS-ADDR-8
    #[test]
    fn interfaces_are_sorted_by_index_and_must_be_in_use() {
        let loose = Interface {
            device_index: None,
            ..interface(0, &["10.0.0.9"], &[])
        };
        let attaching = Interface {
            status: InterfaceStatus::Other,
            ..interface(0, &["10.0.0.8"], &[])
        };
        let instance = Instance {
            interfaces: vec![
                loose,
                attaching,
                interface(2, &["10.0.0.3"], &[]),
                interface(0, &["10.0.0.1", "10.0.0.11", "10.0.0.10"], &[]),
                interface(1, &["10.0.0.2"], &[]),
            ],
            ..bare()
        };
        let want = [
            "10.0.0.1",
            "10.0.0.11",
            "10.0.0.10",
            "10.0.0.2",
            "10.0.0.3",
            "10.0.0.9",
        ];
        assert_eq!(of(&instance, V4), want.map(|ip| format!("InternalIP {ip}")));
    }

    /// REQ-AWS-ADDR-9
    #[test]
    fn families_follow_each_other_in_the_configured_order() {
        let instance = Instance {
            interfaces: vec![interface(0, &["10.0.0.1"], &["2001:db8::1"])],
            private_dns_name: "a".into(),
            ..bare()
        };
        assert_eq!(
            of(&instance, &[IpFamily::V6, IpFamily::V4]),
            [
                "InternalIP 2001:db8::1",
                "InternalIP 10.0.0.1",
                "InternalDNS a",
                "Hostname a"
            ]
        );
    }

    /// REQ-AWS-ADDR-11
    #[test]
    fn one_bad_address_is_an_error_for_all() {
        for (instance, what) in [
            (
                Instance {
                    interfaces: vec![interface(0, &["bad"], &[])],
                    ..bare()
                },
                "invalid private address",
            ),
            (
                Instance {
                    public_ip: "bad".into(),
                    ..bare()
                },
                "invalid public address",
            ),
        ] {
            let error = of_instance(&instance, V4).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let bad = Instance {
            interfaces: vec![interface(0, &[], &["bad"])],
            ..bare()
        };
        let error = of_instance(&bad, V6).unwrap_err().to_string();
        assert!(error.contains("invalid IPv6 address"), "{error}");
    }

    /// REQ-AWS-ADDR-12
    #[test]
    fn resource_names_are_names_like_others() {
        for name in ["i-00000000000000004.ec2.internal", "i-00000000000000005"] {
            let instance = Instance {
                interfaces: vec![interface(0, &["192.168.0.1"], &[])],
                public_ip: "1.2.3.4".into(),
                private_dns_name: name.into(),
                ..bare()
            };
            assert_eq!(
                of(&instance, V4),
                [
                    "InternalIP 192.168.0.1".to_owned(),
                    "ExternalIP 1.2.3.4".into(),
                    format!("InternalDNS {name}"),
                    format!("Hostname {name}"),
                ]
            );
        }
    }

    /// REQ-AWS-ADDR-13, REQ-AWS-ADDR-14
    #[test]
    fn a_fargate_node_has_the_addresses_of_its_interface() {
        let fargate = Interface {
            private_dns_name: "d".into(),
            ..interface(0, &["192.168.164.88"], &["2001:db8::1"])
        };
        let of = |families| text(&of_fargate(&fargate, families).unwrap());
        assert_eq!(of(V4), ["InternalIP 192.168.164.88", "InternalDNS d"]);
        assert_eq!(of(V6), ["InternalIP 2001:db8::1", "InternalDNS d"]);
        let v4_only = interface(0, &["192.168.164.88"], &[]);
        assert_eq!(of_fargate(&v4_only, V6).unwrap(), []);
    }
}
