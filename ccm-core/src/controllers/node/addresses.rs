//! Which addresses a Node gets (specification: controllers §2.4, §2.6). Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::api::core::v1::NodeAddress;

use crate::kube::{Addresses, Node};

/// Written by a kubelet that runs with `--node-ip`: the address it serves, or one of each family.
pub(super) const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

const HOSTNAME: &str = "Hostname";
const INTERNAL_IP: &str = "InternalIP";

/// Why the node IP that the kubelet asks for cannot be honoured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeIpError {
    /// An element is not an IP address.
    #[error(
        "annotation {PROVIDED_NODE_IP}: {element:?} in {text:?} is not an IP address; \
         set --node-ip of the kubelet to one address, or to one of each family separated by a comma without spaces"
    )]
    NotAnAddress {
        /// The element.
        element: String,
        /// The annotation's value.
        text: String,
    },
    /// More than two addresses.
    #[error(
        "annotation {PROVIDED_NODE_IP}: {text:?} holds {count} addresses; \
         set --node-ip of the kubelet to one address, or to one of each family"
    )]
    TooMany {
        /// The annotation's value.
        text: String,
        /// How many it holds.
        count: usize,
    },
    /// Two addresses of the same family.
    #[error(
        "annotation {PROVIDED_NODE_IP}: both addresses in {text:?} are of the same family; \
         set --node-ip of the kubelet to one IPv4 and one IPv6 address"
    )]
    SameFamily {
        /// The annotation's value.
        text: String,
    },
    /// `0.0.0.0` or `::` beside another address.
    #[error(
        "annotation {PROVIDED_NODE_IP}: {text:?} holds an unspecified address; \
         set --node-ip of the kubelet to two real addresses"
    )]
    Unspecified {
        /// The annotation's value.
        text: String,
    },
    /// The machine does not have the address.
    #[error(
        "the cloud does not report node IP {wanted} (annotation {PROVIDED_NODE_IP}); \
         it reports: {available}; set --node-ip of the kubelet to one of them"
    )]
    NotReported {
        /// The address asked for.
        wanted: IpAddr,
        /// What there is, as `type address` separated by commas.
        available: String,
    },
}

/// The list that `status.addresses` should be. `None`: the cloud reports nothing, keep what is
/// there (REQ-NODE-13).
pub(super) fn wanted(
    node: &Node,
    cloud: &[NodeAddress],
) -> Result<Option<Vec<NodeAddress>>, NodeIpError> {
    if cloud.is_empty() {
        return Ok(None);
    }
    let all = with_hostnames(cloud, &node.status.addresses);
    match requested(node)? {
        Some(ips) => honour(&ips, &all).map(Some),
        None => Ok(Some(all)),
    }
}

/// The node IPs that the kubelet asks for, in order of preference.
pub(super) fn requested(node: &Node) -> Result<Option<Vec<IpAddr>>, NodeIpError> {
    node.annotation(PROVIDED_NODE_IP)
        .map(parse_node_ips)
        .transpose()
}

/// Whether the Node's own status has an address inside the cluster's network.
pub(super) fn has_internal_ip(node: &Node) -> bool {
    node.status
        .addresses
        .iter()
        .any(|(type_, _)| type_ == INTERNAL_IP)
}

/// The addresses as a text for people.
fn listed(addresses: &[NodeAddress]) -> String {
    if addresses.is_empty() {
        return "none".to_owned();
    }
    let all: Vec<String> = addresses
        .iter()
        .map(|a| format!("{} {}", a.type_, a.address))
        .collect();
    all.join(", ")
}

/// A cloud without host names leaves the Node's own at the end (REQ-NODE-12).
fn with_hostnames(cloud: &[NodeAddress], current: &Addresses) -> Vec<NodeAddress> {
    let mut all = cloud.to_vec();
    if !cloud.iter().any(|a| a.type_ == HOSTNAME) {
        all.extend(current.to_vec().into_iter().filter(|a| a.type_ == HOSTNAME));
    }
    all
}

/// Reads the annotation's value. Strict, as the kubelet writes it: no spaces, one address or one of
/// each family.
///
/// # Errors
/// All but [`NodeIpError::NotReported`].
pub fn parse_node_ips(text: &str) -> Result<Vec<IpAddr>, NodeIpError> {
    let text_of = || text.to_owned();
    let ips = text
        .split(',')
        .map(|element| {
            parse_ip(element).ok_or_else(|| NodeIpError::NotAnAddress {
                element: element.to_owned(),
                text: text_of(),
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    match ips.as_slice() {
        [_] => {}
        [first, second] => {
            if first.is_ipv4() == second.is_ipv4() {
                return Err(NodeIpError::SameFamily { text: text_of() });
            }
            if first.is_unspecified() || second.is_unspecified() {
                return Err(NodeIpError::Unspecified { text: text_of() });
            }
        }
        more => {
            return Err(NodeIpError::TooMany {
                text: text_of(),
                count: more.len(),
            });
        }
    }
    Ok(ips)
}

/// An address as the Go library reads it: leading zeros in IPv4 octets are decimal, and an IPv4
/// address mapped into IPv6 is the IPv4 address.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let (head, tail) = match text.rfind(':') {
        Some(colon) => text.split_at(colon + 1),
        None => ("", text),
    };
    let tail = if tail.contains('.') {
        without_leading_zeros(tail)?
    } else {
        tail.to_owned()
    };
    if head.is_empty() {
        tail.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
    } else {
        let ip = format!("{head}{tail}").parse::<Ipv6Addr>().ok()?;
        Some(IpAddr::V6(ip).to_canonical())
    }
}

fn without_leading_zeros(dotted: &str) -> Option<String> {
    let octets = dotted
        .split('.')
        .map(|octet| {
            let digits = !octet.is_empty() && octet.bytes().all(|b| b.is_ascii_digit());
            let value = octet.trim_start_matches('0');
            digits.then_some(if value.is_empty() { "0" } else { value })
        })
        .collect::<Option<Vec<_>>>()?;
    Some(octets.join("."))
}

/// Keeps of every address type that has a requested address only those, in the requested order;
/// the other types follow as they are (REQ-NODE-11).
fn honour(ips: &[IpAddr], all: &[NodeAddress]) -> Result<Vec<NodeAddress>, NodeIpError> {
    let mut kept: Vec<NodeAddress> = Vec::new();
    for ip in ips {
        let before = kept.len();
        kept.extend(
            all.iter()
                .filter(|a| parse_ip(&a.address) == Some(*ip))
                .cloned(),
        );
        if kept.len() == before {
            return Err(NodeIpError::NotReported {
                wanted: *ip,
                available: listed(all),
            });
        }
    }
    let others: Vec<NodeAddress> = all
        .iter()
        .filter(|a| kept.iter().all(|k| k.type_ != a.type_))
        .cloned()
        .collect();
    kept.extend(others);
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `Int 10.1.1.1, Host h` in short.
    fn list(text: &str) -> Vec<NodeAddress> {
        text.split(", ")
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (kind, address) = part.split_once(' ').unwrap();
                let type_ = match kind {
                    "Int" => "InternalIP",
                    "Ext" => "ExternalIP",
                    "Host" => "Hostname",
                    "IntDNS" => "InternalDNS",
                    "ExtDNS" => "ExternalDNS",
                    other => panic!("{other}"),
                };
                NodeAddress {
                    type_: type_.to_owned(),
                    address: address.to_owned(),
                }
            })
            .collect()
    }

    fn node(annotation: Option<&str>, addresses: &str) -> Node {
        let mut node = Node::default();
        node.metadata.annotations =
            annotation.map(|ip| [(PROVIDED_NODE_IP.to_owned(), ip.to_owned())].into());
        node.status.addresses = list(addresses).into();
        node
    }

    /// REQ-NODE-10
    #[test]
    fn the_annotation_is_one_address_or_one_of_each_family() {
        for good in [
            "10.1.1.1",
            "010.001.1.01",
            "0.0.0.0",
            "::",
            "fd00::1",
            "10.1.1.1,fd00::1",
            "fd00::1,10.1.1.1",
            "fd00::1,::ffff:10.1.1.1",
        ] {
            assert!(parse_node_ips(good).is_ok(), "{good}");
        }
        let named = |text: &str| match parse_node_ips(text) {
            Ok(ips) => format!("{ips:?}"),
            Err(NodeIpError::NotAnAddress { .. }) => "not an address".to_owned(),
            Err(NodeIpError::TooMany { .. }) => "too many".to_owned(),
            Err(NodeIpError::SameFamily { .. }) => "same family".to_owned(),
            Err(NodeIpError::Unspecified { .. }) => "unspecified".to_owned(),
            Err(NodeIpError::NotReported { .. }) => "not reported".to_owned(),
        };
        for (text, why) in [
            ("", "not an address"),
            (" ", "not an address"),
            ("10.1.1.1, fd00::1", "not an address"),
            (" 10.1.1.1", "not an address"),
            ("10.1.1.1,", "not an address"),
            ("10.1.1.256", "not an address"),
            ("10.1.1", "not an address"),
            ("10.1..1", "not an address"),
            ("10.+1.1.1", "not an address"),
            ("fd00::1%eth0", "not an address"),
            ("heron-1", "not an address"),
            ("10.1.1.1,fd00::1,10.1.1.2", "too many"),
            ("10.1.1.1,10.1.1.2", "same family"),
            ("fd00::1,fd00::2", "same family"),
            ("10.1.1.1,::ffff:10.1.1.2", "same family"),
            ("0.0.0.0,fd00::1", "unspecified"),
            ("10.1.1.1,::", "unspecified"),
        ] {
            assert_eq!(named(text), why, "{text:?}");
        }
    }

    /// REQ-NODE-11, CASE-NODE-03, CASE-NODE-04, CASE-NODE-05
    #[test]
    fn the_requested_node_ip_comes_first_and_alone_in_its_type() {
        let (short, long) = (
            "2600:1f14:1d4:d101::ba3d",
            "2600:1f14:01d4:d101:0000:0000:0000:ba3d",
        );
        let v6_cloud = format!("Int 10.1.1.1, Int {long}, Host h");
        let v6_result = format!("Int {long}, Host h");
        for (provided, cloud, result) in [
            ("10.1.1.1", "Int 10.1.1.1, Host h", "Int 10.1.1.1, Host h"),
            (
                "55.55.55.55",
                "Int 10.1.1.1, Ext 55.55.55.55, Host h",
                "Ext 55.55.55.55, Int 10.1.1.1, Host h",
            ),
            (
                "55.55.55.55",
                "Int 44.44.44.44, Ext 44.44.44.44, Int 55.55.55.55, Ext 55.55.55.55, Host h",
                "Int 55.55.55.55, Ext 55.55.55.55, Host h",
            ),
            (
                "10.1.1.1",
                "Int 10.1.1.1, Ext 55.55.55.55, IntDNS i, ExtDNS e, Host h",
                "Int 10.1.1.1, Ext 55.55.55.55, IntDNS i, ExtDNS e, Host h",
            ),
            (
                "10.1.1.1",
                "Int 10.3.1.1, Int 10.1.1.1, Int 10.2.1.1, Ext 55.55.55.55, Host h",
                "Int 10.1.1.1, Ext 55.55.55.55, Host h",
            ),
            (short, v6_cloud.as_str(), v6_result.as_str()),
            (
                "10.1.1.1,fd00::1",
                "Int 10.1.1.1, Int fd00::1, Host h",
                "Int 10.1.1.1, Int fd00::1, Host h",
            ),
            (
                "10.1.1.1,fd00::1",
                "Int fd00::1, Int 10.1.1.1, Host h",
                "Int 10.1.1.1, Int fd00::1, Host h",
            ),
            (
                "10.1.1.1,fd00::1",
                "Int 10.1.1.1, Int 10.1.1.2, Int fd00::1, Int fd00::2, Host h",
                "Int 10.1.1.1, Int fd00::1, Host h",
            ),
            (
                "10.1.1.1,fd00::1",
                "Int 10.1.1.1, Int fd00::1, Ext 55.55.55.55, Host h",
                "Int 10.1.1.1, Int fd00::1, Ext 55.55.55.55, Host h",
            ),
            (
                "fd00::1,10.1.1.1",
                "Int 10.1.1.1, Int fd00::1, Ext 55.55.55.55, Ext 2001:db8::1, Host h",
                "Int fd00::1, Int 10.1.1.1, Ext 55.55.55.55, Ext 2001:db8::1, Host h",
            ),
            (
                "55.55.55.55,fd00::1",
                "Int 10.1.1.1, Ext 55.55.55.55, Int fd00::1, Ext 2001:db8::1, Host h",
                "Ext 55.55.55.55, Int fd00::1, Host h",
            ),
            ("010.1.1.01", "Int 10.1.1.1, Host h", "Int 10.1.1.1, Host h"),
        ] {
            let got = wanted(&node(Some(provided), ""), &list(cloud)).unwrap();
            assert_eq!(got, Some(list(result)), "{provided} of {cloud}");
        }
        for (provided, cloud) in [
            ("10.2.2.2", "Int 10.1.1.1, Ext 55.55.55.55, Host h"),
            ("10.1.1.1,fd00::1", "Int 10.1.1.1, Host h"),
        ] {
            let error = wanted(&node(Some(provided), ""), &list(cloud)).unwrap_err();
            assert!(matches!(error, NodeIpError::NotReported { .. }), "{error}");
        }
    }

    /// REQ-NODE-09: the user reads both sides of the mismatch.
    #[test]
    fn a_mismatch_names_the_wanted_and_the_available_addresses() {
        let error = wanted(
            &node(Some("10.20.0.99"), ""),
            &list("Int 10.20.0.5, Int 10.20.0.51, Host h"),
        )
        .unwrap_err()
        .to_string();
        for part in [
            "10.20.0.99",
            "InternalIP 10.20.0.5",
            "InternalIP 10.20.0.51",
            PROVIDED_NODE_IP,
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    /// REQ-NODE-12
    #[test]
    fn the_hostname_of_the_node_stays_last_when_the_cloud_has_none() {
        let own = node(None, "Host mine, Int 10.9.9.9");
        assert_eq!(
            wanted(&own, &list("Int 10.1.1.1, Ext 55.55.55.55")).unwrap(),
            Some(list("Int 10.1.1.1, Ext 55.55.55.55, Host mine"))
        );
        assert_eq!(
            wanted(&own, &list("Int 10.1.1.1, Host theirs")).unwrap(),
            Some(list("Int 10.1.1.1, Host theirs"))
        );
        let asked = node(Some("10.1.1.1"), "Host mine");
        assert_eq!(
            wanted(&asked, &list("Ext 55.55.55.55, Int 10.1.1.1")).unwrap(),
            Some(list("Int 10.1.1.1, Ext 55.55.55.55, Host mine"))
        );
    }

    /// REQ-NODE-13
    #[test]
    fn a_cloud_without_addresses_changes_nothing() {
        assert_eq!(wanted(&node(None, "Int 10.1.1.1"), &[]).unwrap(), None);
        assert_eq!(
            wanted(&node(Some("10.1.1.1"), "Int 10.1.1.1"), &[]).unwrap(),
            None
        );
    }

    /// REQ-NODE-17: change detection is equality of the ordered lists.
    #[test]
    fn equal_lists_are_equal_and_every_difference_counts() {
        let same = |current: &str, cloud: &str| {
            let node = node(None, current);
            wanted(&node, &list(cloud)).unwrap() == Some(node.status.addresses.to_vec())
        };
        assert!(same(
            "Int 10.1.1.1, Ext 5.5.5.5",
            "Int 10.1.1.1, Ext 5.5.5.5"
        ));
        assert!(same(
            "Int 10.1.1.1, Int fd00::1, Host h",
            "Int 10.1.1.1, Int fd00::1"
        ));
        assert!(!same(
            "Int 10.1.1.1, Ext 5.5.5.5",
            "Int 10.1.1.2, Ext 5.5.5.5"
        ));
        assert!(!same("Int 10.1.1.1", "Int 10.1.1.1, Ext 5.5.5.5"));
        assert!(!same("Int 10.1.1.1, Ext 5.5.5.5", "Int 10.1.1.1"));
        assert!(!same(
            "Int 10.1.1.1, Ext 5.5.5.5",
            "Int 5.5.5.5, Ext 10.1.1.1"
        ));
        assert!(!same(
            "Int 10.1.1.1, Int 10.1.1.2",
            "Int 10.1.1.2, Int 10.1.1.1"
        ));
    }

    proptest! {
        #[test]
        fn no_annotation_makes_the_reader_panic(text in "[0-9a-f:.,%/ ]{0,24}|.{0,24}") {
            if let Ok(ips) = parse_node_ips(&text) {
                prop_assert_eq!(ips.len(), text.split(',').count());
            }
        }

        /// REQ-NODE-10
        #[test]
        fn addresses_are_read_back(first: IpAddr, second: IpAddr) {
            let (first, second) = (first.to_canonical(), second.to_canonical());
            prop_assert_eq!(parse_node_ips(&first.to_string()), Ok(vec![first]));
            let both = parse_node_ips(&format!("{first},{second}"));
            let fits = first.is_ipv4() != second.is_ipv4()
                && !first.is_unspecified()
                && !second.is_unspecified();
            prop_assert_eq!(both.ok(), fits.then(|| vec![first, second]));
        }

        #[test]
        fn leading_zeros_are_decimal(ip: Ipv4Addr, zeros in 0..4_usize) {
            let octets = ip.octets().map(|octet| format!("{}{octet}", "0".repeat(zeros)));
            prop_assert_eq!(parse_ip(&octets.join(".")), Some(ip.into()));
            // Mapped into IPv6, it is the same address.
            prop_assert_eq!(parse_ip(&format!("::ffff:{}", octets.join("."))), Some(ip.into()));
        }
    }
}
