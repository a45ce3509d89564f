//! Whether a changed Service needs its load balancer looked at (specification: controllers §4.3).

use super::predicates::wants_load_balancer;
use crate::kube::{Service, ServicePort};

/// Compares every field that a load balancer is made from. Fields that are not named here
/// (selector, labels, cluster IPs, status, finalizers, …) never trigger. Status and finalizers
/// have a repair of their own.
pub fn needs_update(old: &Service, new: &Service) -> bool {
    let (wanted, wants) = (wants_load_balancer(old), wants_load_balancer(new));
    if !wanted && !wants {
        return false;
    }
    let (a, b) = (&old.spec, &new.spec);
    wanted != wants
        || a.load_balancer_source_ranges != b.load_balancer_source_ranges
        || ports_differ(&a.ports, &b.ports)
        || text(&a.session_affinity) != text(&b.session_affinity)
        || a.session_affinity_config != b.session_affinity_config
        || text(&a.load_balancer_ip) != text(&b.load_balancer_ip)
        || a.external_ips != b.external_ips
        || annotations_differ(old, new)
        || old.uid() != new.uid()
        || text(&a.external_traffic_policy) != text(&b.external_traffic_policy)
        || a.health_check_node_port.unwrap_or(0) != b.health_check_node_port.unwrap_or(0)
        // Only the number of families: a swap of equal length changes no load balancer upstream.
        || a.ip_families.len() != b.ip_families.len()
}

fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

/// Pairwise by index: a reorder counts as a change, as in the Go manager.
fn ports_differ(old: &[ServicePort], new: &[ServicePort]) -> bool {
    old.len() != new.len()
        || old.iter().zip(new).any(|(a, b)| {
            text(&a.name) != text(&b.name)
                || a.protocol() != b.protocol()
                || a.port != b.port
                || a.allocated_node_port() != b.allocated_node_port()
                || a.target_port != b.target_port
                || a.app_protocol != b.app_protocol
        })
}

fn annotations_differ(old: &Service, new: &Service) -> bool {
    let none = Default::default();
    old.metadata.annotations.as_ref().unwrap_or(&none)
        != new.metadata.annotations.as_ref().unwrap_or(&none)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    use super::*;
    use crate::{
        controllers::service::{fixtures, predicates::CLEANUP_FINALIZER},
        kube::{ClientIpConfig, LoadBalancerIngress, SessionAffinityConfig},
    };

    type Edit = fn(&mut Service);

    fn check(cases: &[(&str, Edit, Edit)], want: bool) {
        for (what, before, after) in cases {
            let mut old = fixtures::service();
            before(&mut old);
            let mut new = old.clone();
            after(&mut new);
            assert_eq!(needs_update(&old, &new), want, "{what}");
            assert_eq!(needs_update(&new, &old), want, "{what}, back");
        }
    }

    fn nothing(_: &mut Service) {}

    fn affinity(seconds: i32) -> Option<SessionAffinityConfig> {
        Some(SessionAffinityConfig {
            client_ip: Some(ClientIpConfig {
                timeout_seconds: Some(seconds),
            }),
        })
    }

    /// REQ-SVC-09, REQ-SVC-11
    #[test]
    fn every_compared_field_triggers() {
        check(
            &[
                ("type", nothing, |s| {
                    s.spec.type_ = Some("ClusterIP".to_owned());
                }),
                ("class", nothing, |s| {
                    s.spec.load_balancer_class = Some("x/y".to_owned());
                }),
                (
                    "source range",
                    |s| s.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]),
                    |s| s.spec.load_balancer_source_ranges = Some(vec!["11.0.0.0/8".to_owned()]),
                ),
                ("source ranges, nil and empty", nothing, |s| {
                    s.spec.load_balancer_source_ranges = Some(vec![]);
                }),
                (
                    "source ranges, order",
                    |s| {
                        s.spec.load_balancer_source_ranges =
                            Some(vec!["10.0.0.0/8".to_owned(), "11.0.0.0/8".to_owned()]);
                    },
                    |s| {
                        if let Some(all) = &mut s.spec.load_balancer_source_ranges {
                            all.reverse();
                        }
                    },
                ),
                ("port count", nothing, |s| {
                    s.spec.ports.push(ServicePort::default());
                }),
                ("port name", nothing, |s| {
                    s.spec.ports[0].name = Some("tls".to_owned());
                }),
                ("port protocol", nothing, |s| {
                    s.spec.ports[0].protocol = Some("UDP".to_owned());
                }),
                ("port", nothing, |s| s.spec.ports[0].port = 81),
                ("node port", nothing, |s| {
                    s.spec.ports[0].node_port = Some(30085);
                }),
                ("target port number", nothing, |s| {
                    s.spec.ports[0].target_port = Some(IntOrString::Int(8081));
                }),
                ("target port name", nothing, |s| {
                    s.spec.ports[0].target_port = Some(IntOrString::String("web".to_owned()));
                }),
                ("app protocol set", nothing, |s| {
                    s.spec.ports[0].app_protocol = Some("http".to_owned());
                }),
                (
                    "app protocol changed",
                    |s| s.spec.ports[0].app_protocol = Some("http".to_owned()),
                    |s| s.spec.ports[0].app_protocol = Some("https".to_owned()),
                ),
                (
                    "port order",
                    |s| {
                        s.spec.ports.push(ServicePort {
                            name: Some("b".to_owned()),
                            port: 443,
                            ..ServicePort::default()
                        });
                    },
                    |s| s.spec.ports.reverse(),
                ),
                ("session affinity", nothing, |s| {
                    s.spec.session_affinity = Some("ClientIP".to_owned());
                }),
                (
                    "session affinity time-out",
                    |s| s.spec.session_affinity_config = affinity(600),
                    |s| s.spec.session_affinity_config = affinity(60),
                ),
                ("load balancer address", nothing, |s| {
                    s.spec.load_balancer_ip = Some("198.51.100.7".to_owned());
                }),
                ("external address count", nothing, |s| {
                    s.spec.external_ips.push("203.0.113.1".to_owned());
                }),
                (
                    "external address",
                    |s| s.spec.external_ips.push("203.0.113.1".to_owned()),
                    |s| s.spec.external_ips[0] = "203.0.113.2".to_owned(),
                ),
                ("annotation set", nothing, |s| {
                    fixtures::annotate(s, "example.com/tool", "1");
                }),
                (
                    "annotation changed",
                    |s| fixtures::annotate(s, "example.com/tool", "1"),
                    |s| fixtures::annotate(s, "example.com/tool", "2"),
                ),
                ("uid", nothing, |s| {
                    s.metadata.uid = Some("other".to_owned());
                }),
                ("external traffic policy", nothing, |s| {
                    s.spec.external_traffic_policy = Some("Local".to_owned());
                }),
                ("health check node port", nothing, |s| {
                    s.spec.health_check_node_port = Some(31000);
                }),
                (
                    "one more family",
                    |s| s.spec.ip_families = vec!["IPv4".to_owned()],
                    |s| s.spec.ip_families.push("IPv6".to_owned()),
                ),
            ],
            true,
        );
    }

    /// REQ-SVC-09, REQ-SVC-10
    #[test]
    fn what_is_not_compared_does_not_trigger() {
        check(
            &[
                ("nothing", nothing, nothing),
                (
                    "families swapped",
                    |s| s.spec.ip_families = vec!["IPv4".to_owned(), "IPv6".to_owned()],
                    |s| s.spec.ip_families.reverse(),
                ),
                ("label", nothing, |s| {
                    s.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
                }),
                ("finalizer", nothing, |s| {
                    s.metadata.finalizers = Some(vec![CLEANUP_FINALIZER.to_owned()]);
                }),
                ("deletion", nothing, fixtures::delete),
                ("status", nothing, |s| {
                    s.status.load_balancer.ingress = Some(vec![LoadBalancerIngress {
                        ip: Some("198.51.100.7".to_owned()),
                        ..LoadBalancerIngress::default()
                    }]);
                }),
                ("node port allocation", nothing, |s| {
                    s.spec.allocate_load_balancer_node_ports = Some(false);
                }),
                ("resource version", nothing, |s| {
                    s.metadata.resource_version = Some("99".to_owned());
                }),
            ],
            false,
        );
        let mut old = fixtures::service();
        old.spec.type_ = Some("ClusterIP".to_owned());
        let mut new = old.clone();
        new.spec.ports[0].port = 81;
        assert!(!needs_update(&old, &new), "nobody wants a load balancer");
    }
}
