//! Equality of load balancer statuses (specification: controllers §4.6).

use crate::kube::{LoadBalancerIngress, LoadBalancerStatus};

/// The mode that the API server fills in for an address without one.
const DEFAULT_MODE: &str = "VIP";

/// Whether two statuses say the same. Only the ingress list counts; none and empty are equal, and
/// an unset mode of an address is the `VIP` that the API server makes of it.
pub fn equal(a: &LoadBalancerStatus, b: &LoadBalancerStatus) -> bool {
    let (a, b) = (ingress(a), ingress(b));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| entries_equal(a, b))
}

/// Whether there is no address.
pub fn is_empty(status: &LoadBalancerStatus) -> bool {
    ingress(status).is_empty()
}

/// The status as it may be written: the API server refuses a mode on an entry without an address.
#[must_use]
pub fn publishable(mut status: LoadBalancerStatus) -> LoadBalancerStatus {
    for entry in status.ingress.iter_mut().flatten() {
        if text(entry.ip.as_ref()).is_empty() {
            entry.ip_mode = None;
        }
    }
    status
}

fn ingress(status: &LoadBalancerStatus) -> &[LoadBalancerIngress] {
    status.ingress.as_deref().unwrap_or_default()
}

fn entries_equal(a: &LoadBalancerIngress, b: &LoadBalancerIngress) -> bool {
    text(a.ip.as_ref()) == text(b.ip.as_ref())
        && text(a.hostname.as_ref()) == text(b.hostname.as_ref())
        && mode(a) == mode(b)
        && a.ports.as_deref().unwrap_or_default() == b.ports.as_deref().unwrap_or_default()
}

fn text(value: Option<&String>) -> &str {
    value.map_or("", String::as_str)
}

fn mode(entry: &LoadBalancerIngress) -> Option<&str> {
    let has_address = !text(entry.ip.as_ref()).is_empty();
    entry
        .ip_mode
        .as_deref()
        .or_else(|| has_address.then_some(DEFAULT_MODE))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PortStatus;

    use super::*;

    fn status(entries: Vec<LoadBalancerIngress>) -> LoadBalancerStatus {
        LoadBalancerStatus {
            ingress: Some(entries),
        }
    }

    fn ip(ip: &str, mode: Option<&str>) -> LoadBalancerIngress {
        LoadBalancerIngress {
            ip: Some(ip.to_owned()),
            ip_mode: mode.map(str::to_owned),
            ..LoadBalancerIngress::default()
        }
    }

    fn host(name: &str, mode: Option<&str>) -> LoadBalancerIngress {
        LoadBalancerIngress {
            hostname: Some(name.to_owned()),
            ip_mode: mode.map(str::to_owned),
            ..LoadBalancerIngress::default()
        }
    }

    fn with_port(protocol: &str) -> LoadBalancerIngress {
        LoadBalancerIngress {
            ports: Some(vec![PortStatus {
                port: 80,
                protocol: protocol.to_owned(),
                error: None,
            }]),
            ..ip("198.51.100.7", None)
        }
    }

    /// REQ-SVC-14
    #[test]
    fn addresses_modes_and_ports_are_part_of_equality() {
        let none = LoadBalancerStatus::default();
        let seven = || ip("198.51.100.7", None);
        for (a, b, want) in [
            (none.clone(), status(vec![]), true),
            (none, status(vec![seven()]), false),
            (status(vec![seven()]), status(vec![seven()]), true),
            (
                status(vec![seven()]),
                status(vec![ip("198.51.100.7", Some("VIP"))]),
                true,
            ),
            (
                status(vec![seven()]),
                status(vec![ip("198.51.100.7", Some("Proxy"))]),
                false,
            ),
            (
                status(vec![ip("198.51.100.7", Some("VIP"))]),
                status(vec![ip("198.51.100.7", Some("Proxy"))]),
                false,
            ),
            (
                status(vec![seven()]),
                status(vec![ip("198.51.100.9", None)]),
                false,
            ),
            (
                status(vec![host("a.example", None)]),
                status(vec![host("a.example", Some("VIP"))]),
                false,
            ),
            (status(vec![with_port("TCP")]), status(vec![seven()]), false),
            (
                status(vec![with_port("TCP")]),
                status(vec![with_port("UDP")]),
                false,
            ),
            (
                status(vec![LoadBalancerIngress {
                    ports: Some(vec![]),
                    ..seven()
                }]),
                status(vec![seven()]),
                true,
            ),
        ] {
            assert_eq!(equal(&a, &b), want, "{a:?} {b:?}");
            assert_eq!(equal(&b, &a), want, "{b:?} {a:?}");
        }
    }

    /// CASE-LB-17
    #[test]
    fn a_mode_is_written_with_an_address_only() {
        let written = publishable(status(vec![
            host("a.example", Some("Proxy")),
            ip("198.51.100.7", Some("Proxy")),
        ]));
        let modes: Vec<_> = written
            .ingress
            .iter()
            .flatten()
            .map(|entry| entry.ip_mode.as_deref())
            .collect();
        assert_eq!(modes, [None, Some("Proxy")]);
    }
}
