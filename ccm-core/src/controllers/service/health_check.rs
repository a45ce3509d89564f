//! How the backends of a Service with local traffic are checked: a helper for providers
//! (specification: controllers §4.10).

use super::predicates::is_load_balancer;
use crate::kube::Service;

/// The path that kube-proxy answers health checks on.
const PATH: &str = "/healthz";

/// Where kube-proxy tells whether a Node has endpoints of the Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The HTTP path.
    pub path: &'static str,
    /// The port on every Node.
    pub port: i32,
}

fn is_local(service: &Service) -> bool {
    service.spec.external_traffic_policy.as_deref() == Some("Local")
}

/// Whether the Service asks for a health check of its own: type `LoadBalancer` and local traffic.
pub fn needs_health_check(service: &Service) -> bool {
    is_load_balancer(service) && is_local(service)
}

/// The health check of the Service; `None` when it needs none or no port is allocated yet.
pub fn health_check(service: &Service) -> Option<HealthCheck> {
    let port = service
        .spec
        .health_check_node_port
        .filter(|port| *port != 0);
    needs_health_check(service)
        .then_some(port)
        .flatten()
        .map(|port| HealthCheck { path: PATH, port })
}

/// Whether traffic from outside may only go to Nodes that have endpoints.
pub fn requests_only_local_traffic(service: &Service) -> bool {
    (is_load_balancer(service) || service.spec.type_.as_deref() == Some("NodePort"))
        && is_local(service)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::service::fixtures;

    /// REQ-SVC-37
    #[test]
    fn a_health_check_needs_a_load_balancer_local_traffic_and_a_port() {
        for (type_, policy, port, check, only_local) in [
            ("LoadBalancer", "Local", Some(31000), Some(31000), true),
            ("LoadBalancer", "Local", Some(0), None, true),
            ("LoadBalancer", "Local", None, None, true),
            ("LoadBalancer", "Cluster", Some(31000), None, false),
            ("NodePort", "Local", Some(31000), None, true),
            ("ClusterIP", "Local", Some(31000), None, false),
        ] {
            let mut service = fixtures::service();
            service.spec.type_ = Some(type_.to_owned());
            service.spec.external_traffic_policy = Some(policy.to_owned());
            service.spec.health_check_node_port = port;
            let want = check.map(|port| HealthCheck {
                path: "/healthz",
                port,
            });
            assert_eq!(health_check(&service), want, "{type_} {policy} {port:?}");
            assert_eq!(requests_only_local_traffic(&service), only_local);
            assert_eq!(
                needs_health_check(&service),
                type_ == "LoadBalancer" && policy == "Local"
            );
        }
    }
}
