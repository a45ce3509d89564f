//! The health check of a network load balancer (specification: aws §4.8.3). Pure.

use ccm_core::{
    cloud::{CloudError, CloudResult},
    kube::Service,
};

use crate::{
    annotations,
    api::elbv2::HealthCheck,
    config::{HealthProbe, HealthProbeMode},
};

/// The port text for "the port that traffic goes to".
pub const TRAFFIC_PORT: &str = "traffic-port";

/// Whether only Nodes with a pod of the Service get traffic.
pub fn is_local(service: &Service) -> bool {
    service.spec.external_traffic_policy.as_deref() == Some("Local")
}

/// The check that the Service asks for.
///
/// # Errors
/// Class `Invalid`: an annotation that does not parse, an unknown protocol, port or probe mode.
pub fn health_check(service: &Service, probe: &HealthProbe) -> CloudResult<HealthCheck> {
    let base = base(service);
    let protocol = match annotations::HEALTHCHECK_PROTOCOL.get(service)? {
        None => base.protocol.clone(),
        Some(text) => known_protocol(&text)?,
    };
    let path = path(service, &base, &protocol)?;
    let mut check = HealthCheck {
        protocol,
        path,
        port: annotations::HEALTHCHECK_PORT
            .get(service)?
            .unwrap_or(base.port),
        interval: annotations::HEALTHCHECK_INTERVAL
            .get(service)?
            .unwrap_or(base.interval),
        timeout: annotations::HEALTHCHECK_TIMEOUT.get(service)?,
        healthy: annotations::HEALTHCHECK_HEALTHY_THRESHOLD
            .get(service)?
            .unwrap_or(base.healthy),
        unhealthy: annotations::HEALTHCHECK_UNHEALTHY_THRESHOLD
            .get(service)?
            .unwrap_or(base.unhealthy),
    };
    match &probe.mode {
        HealthProbeMode::Shared if !is_local(service) => {
            "HTTP".clone_into(&mut check.protocol);
            check.port = probe.port.to_string();
            check.path = Some(probe.path.clone());
        }
        HealthProbeMode::Unsupported(mode) => {
            return Err(CloudError::invalid(format!(
                "unsupported ClusterServiceLoadBalancerHealthProbeMode {mode:?}: use Shared or \
                 ServiceNodePort"
            )));
        }
        HealthProbeMode::Shared | HealthProbeMode::ServiceNodePort => {}
    }
    if check.port != TRAFFIC_PORT && check.port.parse::<i32>().is_err() {
        return Err(CloudError::invalid(format!(
            "Invalid health check port '{}' (annotation {} accepts {TRAFFIC_PORT} or a number)",
            check.port,
            annotations::HEALTHCHECK_PORT.key
        )));
    }
    Ok(check)
}

fn base(service: &Service) -> HealthCheck {
    if is_local(service) {
        HealthCheck {
            protocol: "HTTP".to_owned(),
            port: service
                .spec
                .health_check_node_port
                .unwrap_or_default()
                .to_string(),
            path: Some("/healthz".to_owned()),
            interval: 10,
            timeout: None,
            healthy: 2,
            unhealthy: 2,
        }
    } else {
        HealthCheck {
            protocol: "TCP".to_owned(),
            port: TRAFFIC_PORT.to_owned(),
            path: None,
            interval: 30,
            timeout: None,
            healthy: 3,
            unhealthy: 3,
        }
    }
}

fn known_protocol(text: &str) -> CloudResult<String> {
    let protocol = text.to_uppercase();
    if matches!(protocol.as_str(), "TCP" | "HTTP" | "HTTPS") {
        Ok(protocol)
    } else {
        Err(CloudError::invalid(format!(
            "Unsupported health check protocol {protocol} (annotation {} accepts TCP, HTTP or HTTPS)",
            annotations::HEALTHCHECK_PROTOCOL.key
        )))
    }
}

fn path(service: &Service, base: &HealthCheck, protocol: &str) -> CloudResult<Option<String>> {
    if protocol == "TCP" {
        return Ok(None);
    }
    let annotation = &annotations::HEALTHCHECK_PATH;
    match annotation.get(service)? {
        // AWS would refuse it, but only after the load balancer is made.
        Some(path) if path.is_empty() => Err(CloudError::invalid(format!(
            "annotation {} must not be empty for an {protocol} health check",
            annotation.key
        ))),
        Some(path) => Ok(Some(path)),
        None => Ok(Some(base.path.clone().unwrap_or_else(|| "/".to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_balancer::testing::{annotate, service};

    const P: &str = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-";

    fn check_with(
        base: &Service,
        pairs: &[(&str, &str)],
        probe: &HealthProbe,
    ) -> Result<HealthCheck, String> {
        let mut service = base.clone();
        for (key, value) in pairs {
            annotate(&mut service, &format!("{P}{key}"), value);
        }
        health_check(&service, probe).map_err(|error| error.to_string())
    }

    fn text(check: &HealthCheck) -> String {
        let HealthCheck {
            protocol,
            port,
            path,
            interval,
            timeout,
            healthy,
            unhealthy,
        } = check;
        let path = path.as_deref().unwrap_or("-");
        let timeout = timeout.map_or("-".to_owned(), |t| t.to_string());
        format!("{protocol} {port} {path} {interval}s t{timeout} {healthy}/{unhealthy}")
    }

    fn local() -> Service {
        let mut service = service(&[(80, 30080)]);
        service.spec.external_traffic_policy = Some("Local".to_owned());
        service.spec.health_check_node_port = Some(32213);
        service
    }

    fn probe(mode: HealthProbeMode, port: i32, path: &str) -> HealthProbe {
        HealthProbe {
            mode,
            port,
            path: path.to_owned(),
        }
    }

    fn shared(port: i32, path: &str) -> HealthProbe {
        probe(HealthProbeMode::Shared, port, path)
    }

    fn own() -> HealthProbe {
        probe(HealthProbeMode::ServiceNodePort, 10256, "/healthz")
    }

    /// REQ-AWS-HCN-1, REQ-AWS-HCN-2, REQ-AWS-HCN-3, REQ-AWS-HCN-4, REQ-AWS-HCN-5, REQ-AWS-HCN-6,
    /// REQ-AWS-HCN-7, REQ-AWS-HCN-8, REQ-AWS-HCN-10, REQ-AWS-HCN-12
    #[test]
    fn the_check_follows_traffic_policy_annotations_and_probe_mode() {
        let plain = service(&[(80, 30080)]);
        let own = own();
        let kube_proxy = shared(10256, "/healthz");
        let given: &[(&str, &str)] = &[
            ("protocol", "HTTP"),
            ("port", "41233"),
            ("path", "/healthz"),
            ("healthy-threshold", "5"),
            ("unhealthy-threshold", "5"),
            ("interval", "30"),
            ("timeout", "6"),
        ];
        let tcp: &[(&str, &str)] = &[
            ("protocol", "TCP"),
            ("port", "8001"),
            ("healthy-threshold", "4"),
            ("unhealthy-threshold", "4"),
            ("interval", "10"),
            ("timeout", "5"),
        ];
        let thresholds: &[(&str, &str)] =
            &[("healthy-threshold", "7"), ("unhealthy-threshold", "5")];
        for (service, pairs, probe, want) in [
            (&plain, &[][..], &own, "TCP traffic-port - 30s t- 3/3"),
            (
                &plain,
                &[][..],
                &kube_proxy,
                "HTTP 10256 /healthz 30s t- 3/3",
            ),
            (
                &plain,
                &[][..],
                &shared(8080, "/healthz"),
                "HTTP 8080 /healthz 30s t- 3/3",
            ),
            (
                &plain,
                &[][..],
                &shared(10256, "/custom"),
                "HTTP 10256 /custom 30s t- 3/3",
            ),
            (&local(), &[][..], &own, "HTTP 32213 /healthz 10s t- 2/2"),
            (
                &local(),
                &[][..],
                &kube_proxy,
                "HTTP 32213 /healthz 10s t- 2/2",
            ),
            (&local(), tcp, &own, "TCP 8001 - 10s t5 4/4"),
            (&plain, given, &own, "HTTP 41233 /healthz 30s t6 5/5"),
            (
                &plain,
                &[("protocol", "Http")][..],
                &own,
                "HTTP traffic-port / 30s t- 3/3",
            ),
            (
                &plain,
                &[("interval", "23")][..],
                &own,
                "TCP traffic-port - 23s t- 3/3",
            ),
            (&plain, thresholds, &own, "TCP traffic-port - 30s t- 7/5"),
            (&plain, tcp, &kube_proxy, "HTTP 10256 /healthz 10s t5 4/4"),
        ] {
            let check = check_with(service, pairs, probe).unwrap();
            assert_eq!(text(&check), want, "{pairs:?} {probe:?}");
        }
    }

    /// REQ-AWS-HCN-9, REQ-AWS-HCN-11, REQ-AWS-HCN-13, REQ-AWS-VAL-30, REQ-AWS-VAL-31
    #[test]
    fn wrong_values_are_refused_with_the_text_of_the_go_manager() {
        let plain = service(&[(80, 30080)]);
        let own = own();
        let kube_proxy = shared(10256, "/healthz");
        let bogus = probe(
            HealthProbeMode::Unsupported("Bogus".to_owned()),
            10256,
            "/healthz",
        );
        for (pair, probe, want) in [
            (
                ("timeout", "non-numeric"),
                &own,
                "failed to parse annotation",
            ),
            (("interval", ""), &own, "failed to parse annotation"),
            (("port", "abc"), &own, "Invalid health check port 'abc'"),
            (("port", ""), &own, "Invalid health check port ''"),
            (
                ("protocol", "UDP"),
                &own,
                "Unsupported health check protocol UDP",
            ),
            (("protocol", ""), &own, "Unsupported health check protocol "),
            (
                ("protocol", "UDP"),
                &kube_proxy,
                "Unsupported health check protocol UDP",
            ),
            (("interval", "10"), &bogus, "\"Bogus\""),
        ] {
            let error = check_with(&plain, &[pair], probe).unwrap_err();
            assert!(error.contains(want), "{pair:?}: {error}");
        }
    }
}
