//! The health check of a classic load balancer (specification: aws §4.7.4). Pure.

use ccm_core::{
    cloud::{CloudError, CloudResult, LoadBalancerName},
    kube::Service,
};

use crate::{
    annotations,
    api::elb::HealthCheck,
    config::{HealthProbe, HealthProbeMode},
    load_balancer::health_check::{TRAFFIC_PORT, is_local},
};

/// Successes until healthy, unless annotated.
const HEALTHY: i32 = 2;
/// Failures until unhealthy, unless annotated.
const UNHEALTHY: i32 = 6;
/// Seconds that a check may take, unless annotated.
const TIMEOUT: i32 = 5;
/// Seconds between checks, unless annotated.
const INTERVAL: i32 = 10;

/// The protocols that AWS knows.
const PROTOCOLS: &[&str] = &["TCP", "SSL", "HTTP", "HTTPS"];

/// Where the check goes when no annotation says otherwise.
struct Base {
    protocol: &'static str,
    port: i32,
    path: String,
}

/// The check that the Service asks for. `node_port` is that of its first port.
///
/// # Errors
/// Class `Invalid`: an annotation that does not parse, or a number that AWS does not take.
pub fn health_check(
    service: &Service,
    probe: &HealthProbe,
    name: &LoadBalancerName,
    node_port: i32,
) -> CloudResult<HealthCheck> {
    let local = local_port(service);
    let base = base(service, probe, node_port)?;
    let port = base.port;
    checked(service, base, name).map_err(|error| match local {
        Some(_) => error.context(format!(
            "Failed to ensure health check for localized service {name} on node port {port}"
        )),
        None => error,
    })
}

/// The port on which kube-proxy tells whether a Node has a pod of the Service.
fn local_port(service: &Service) -> Option<i32> {
    service
        .spec
        .health_check_node_port
        .filter(|port| *port != 0 && is_local(service))
}

fn base(service: &Service, probe: &HealthProbe, node_port: i32) -> CloudResult<Base> {
    if let Some(port) = local_port(service) {
        let given = annotations::HEALTHCHECK_PORT.get(service)?;
        let traffic = given.as_deref() == Some(TRAFFIC_PORT);
        return Ok(Base {
            protocol: "HTTP",
            port: if traffic { node_port } else { port },
            path: "/healthz".to_owned(),
        });
    }
    // Unlike network load balancers, an unknown mode is taken for the default one.
    if probe.mode == HealthProbeMode::Shared {
        return Ok(Base {
            protocol: "HTTP",
            port: probe.port,
            path: probe.path.clone(),
        });
    }
    let backend = annotations::BACKEND_PROTOCOL.get(service)?;
    let tls = backend
        .is_some_and(|text| text.eq_ignore_ascii_case("https") || text.eq_ignore_ascii_case("ssl"));
    Ok(Base {
        protocol: if tls { "SSL" } else { "TCP" },
        port: node_port,
        path: String::new(),
    })
}

fn checked(service: &Service, base: Base, name: &LoadBalancerName) -> CloudResult<HealthCheck> {
    let target = target(service, base)?;
    let number = |annotation: &annotations::Annotation<i32>, default| {
        let given = annotation.get(service);
        let given = given.map_err(|e| {
            failed(
                name,
                &format!("failed parsing health check annotation value: {e}"),
            )
        })?;
        Ok::<_, CloudError>(given.unwrap_or(default))
    };
    let check = HealthCheck {
        target,
        healthy: number(&annotations::HEALTHCHECK_HEALTHY_THRESHOLD, HEALTHY)?,
        unhealthy: number(&annotations::HEALTHCHECK_UNHEALTHY_THRESHOLD, UNHEALTHY)?,
        timeout: number(&annotations::HEALTHCHECK_TIMEOUT, TIMEOUT)?,
        interval: number(&annotations::HEALTHCHECK_INTERVAL, INTERVAL)?,
    };
    let wrong: Vec<String> = [
        ("HealthyThreshold", check.healthy, 2),
        ("Interval", check.interval, 5),
        ("Timeout", check.timeout, 2),
        ("UnhealthyThreshold", check.unhealthy, 2),
    ]
    .into_iter()
    .filter(|(_, value, least)| value < least)
    .map(|(what, _, least)| format!("{what} must be at least {least}"))
    .collect();
    if wrong.is_empty() {
        return Ok(check);
    }
    Err(failed(
        name,
        &format!(
            "some of the load balancer health check parameters are invalid: HealthCheck \
             validation errors: {}",
            wrong.join("; ")
        ),
    ))
}

fn failed(name: &LoadBalancerName, inner: &str) -> CloudError {
    CloudError::invalid(format!(
        "cannot update health check for load balancer {:?}: {inner:?}",
        name.as_str()
    ))
}

/// In upper case, as AWS answers it.
fn target(service: &Service, base: Base) -> CloudResult<String> {
    let protocol = match annotations::HEALTHCHECK_PROTOCOL.get(service)? {
        None => base.protocol.to_owned(),
        Some(text) => text.to_uppercase(),
    };
    if !PROTOCOLS.contains(&protocol.as_str()) {
        return Err(CloudError::invalid(format!(
            "Unsupported health check protocol {protocol} (annotation {} accepts {})",
            annotations::HEALTHCHECK_PROTOCOL.key,
            PROTOCOLS.join(", ")
        )));
    }
    let port = match annotations::HEALTHCHECK_PORT.get(service)? {
        Some(text) if text != TRAFFIC_PORT => text.parse().map_err(|_| {
            CloudError::invalid(format!(
                "Invalid health check port '{text}' (annotation {} accepts {TRAFFIC_PORT} or a \
                 number)",
                annotations::HEALTHCHECK_PORT.key
            ))
        })?,
        _ => base.port,
    };
    let path = if protocol.starts_with("HTTP") {
        let given = annotations::HEALTHCHECK_PATH.get(service)?;
        given
            .into_iter()
            .chain([base.path, "/".to_owned()])
            .find(|path| !path.is_empty())
            .unwrap_or_default()
    } else {
        String::new()
    };
    Ok(format!("{protocol}:{port}{path}"))
}

/// Whether both mean the same check: AWS may answer the protocol in another case.
pub fn is_same(one: &HealthCheck, other: &HealthCheck) -> bool {
    let split = |check: &HealthCheck| -> (String, String) {
        let (protocol, rest) = check.target.split_once(':').unwrap_or_default();
        (protocol.to_uppercase(), rest.to_owned())
    };
    let numbers = |check: &HealthCheck| {
        (
            check.interval,
            check.timeout,
            check.healthy,
            check.unhealthy,
        )
    };
    split(one) == split(other) && numbers(one) == numbers(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_balancer::testing::{LB, alb, service};

    fn plain() -> Service {
        service(&[(80, 8080)])
    }

    fn local(port: i32) -> Service {
        let mut service = plain();
        service.spec.external_traffic_policy = Some("Local".to_owned());
        service.spec.health_check_node_port = Some(port);
        service
    }

    fn probe(mode: HealthProbeMode, port: i32, path: &str) -> HealthProbe {
        HealthProbe {
            mode,
            port,
            path: path.to_owned(),
        }
    }

    fn own() -> HealthProbe {
        probe(HealthProbeMode::ServiceNodePort, 10256, "/healthz")
    }

    fn check(
        base: &Service,
        pairs: &[(&str, &str)],
        probe: &HealthProbe,
    ) -> Result<String, String> {
        let mut service = base.clone();
        for (key, value) in pairs {
            alb(&mut service, key, value);
        }
        let name = LoadBalancerName::new(LB).unwrap();
        health_check(&service, probe, &name, 8080)
            .map(|c| {
                format!(
                    "{} {}/{}/{}/{}",
                    c.target, c.healthy, c.unhealthy, c.timeout, c.interval
                )
            })
            .map_err(|error| {
                assert_eq!(error.class(), ccm_core::cloud::Class::Invalid);
                error.to_string()
            })
    }

    /// REQ-AWS-HCC-1, REQ-AWS-HCC-2, REQ-AWS-HCC-3, REQ-AWS-HCC-4, REQ-AWS-HCC-5, REQ-AWS-HCC-6,
    /// REQ-AWS-HCC-7, REQ-AWS-HCC-11, REQ-AWS-HCC-15
    #[test]
    fn annotations_change_one_thing_each() {
        let hc = |key: &str| format!("healthcheck-{key}");
        for (pairs, want) in [
            (&[][..], "TCP:8080 2/6/5/10"),
            (&[("healthy-threshold", "7")][..], "TCP:8080 7/6/5/10"),
            (&[("unhealthy-threshold", "7")][..], "TCP:8080 2/7/5/10"),
            (&[("timeout", "7")][..], "TCP:8080 2/6/7/10"),
            (&[("interval", "7")][..], "TCP:8080 2/6/5/7"),
            (&[("port", "2122")][..], "TCP:2122 2/6/5/10"),
            (&[("protocol", "HTTP")][..], "HTTP:8080/ 2/6/5/10"),
            (&[("protocol", "http")][..], "HTTP:8080/ 2/6/5/10"),
            (
                &[("protocol", "HTTP"), ("path", "")][..],
                "HTTP:8080/ 2/6/5/10",
            ),
            (
                &[
                    ("protocol", "HTTPS"),
                    ("path", "/healthz"),
                    ("port", "31224"),
                ][..],
                "HTTPS:31224/healthz 2/6/5/10",
            ),
            (
                &[("protocol", "SSL"), ("path", "/healthz"), ("port", "3124")][..],
                "SSL:3124 2/6/5/10",
            ),
            (
                &[("protocol", "TCP"), ("port", "traffic-port")][..],
                "TCP:8080 2/6/5/10",
            ),
        ] {
            let keys: Vec<(String, &str)> = pairs.iter().map(|(k, v)| (hc(k), *v)).collect();
            let pairs: Vec<(&str, &str)> = keys.iter().map(|(k, v)| (k.as_str(), *v)).collect();
            assert_eq!(check(&plain(), &pairs, &own()).unwrap(), want);
        }
        for backend in ["HTTPS", "ssl"] {
            let got = check(&plain(), &[("backend-protocol", backend)], &own());
            assert_eq!(got.unwrap(), "SSL:8080 2/6/5/10");
        }
    }

    /// REQ-AWS-HCC-10, REQ-AWS-HCC-12, REQ-AWS-HCC-13, REQ-AWS-HCC-16
    #[test]
    fn traffic_policy_and_probe_mode_say_where_the_check_goes() {
        let shared = probe(HealthProbeMode::Shared, 10256, "/healthz");
        let custom = probe(HealthProbeMode::Shared, 8080, "/c");
        let odd = probe(
            HealthProbeMode::Unsupported("x".to_owned()),
            10256,
            "/healthz",
        );
        let traffic: &[(&str, &str)] = &[("healthcheck-port", "traffic-port")];
        for (service, pairs, probe, want) in [
            (local(32213), &[][..], &own(), "HTTP:32213/healthz"),
            (local(32213), traffic, &own(), "HTTP:8080/healthz"),
            (local(0), &[][..], &own(), "TCP:8080"),
            (plain(), &[][..], &shared, "HTTP:10256/healthz"),
            (plain(), &[][..], &custom, "HTTP:8080/c"),
            (plain(), &[][..], &odd, "TCP:8080"),
            (local(32213), &[][..], &shared, "HTTP:32213/healthz"),
        ] {
            let got = check(&service, pairs, probe).unwrap();
            assert_eq!(got, format!("{want} 2/6/5/10"));
        }
    }

    /// REQ-AWS-HCC-9, REQ-AWS-HCC-17, REQ-AWS-VAL-30
    #[test]
    fn numbers_that_aws_does_not_take_are_refused_together() {
        let begin = format!("cannot update health check for load balancer \"{LB}\": \"");
        for (pairs, want) in [
            (
                &[("healthcheck-timeout", "1")][..],
                "Timeout must be at least 2",
            ),
            (
                &[("healthcheck-timeout", "3.3")][..],
                "failed parsing health check annotation value: ",
            ),
            (
                &[("healthcheck-timeout", "")][..],
                "failed parsing health check annotation value: ",
            ),
            (
                &[("healthcheck-healthy-threshold", "1")][..],
                "HealthyThreshold must be at least 2",
            ),
            (
                &[("healthcheck-interval", "4")][..],
                "Interval must be at least 5",
            ),
            (
                &[
                    ("healthcheck-healthy-threshold", "1"),
                    ("healthcheck-interval", "4"),
                ][..],
                "some of the load balancer health check parameters are invalid: HealthCheck \
                 validation errors: HealthyThreshold must be at least 2; Interval must be at least 5",
            ),
        ] {
            let error = check(&plain(), pairs, &own()).unwrap_err();
            assert!(error.starts_with(&begin) && error.contains(want), "{error}");
            let error = check(&local(32213), pairs, &own()).unwrap_err();
            let wrapped = format!(
                "Failed to ensure health check for localized service {LB} on node port 32213: \
                 {begin}"
            );
            assert!(error.starts_with(&wrapped), "{error}");
        }
        for (pair, want) in [
            (
                ("healthcheck-port", ""),
                "Invalid health check port '' (annotation ",
            ),
            (
                ("healthcheck-protocol", ""),
                "Unsupported health check protocol  (annotation ",
            ),
            (
                ("healthcheck-protocol", "UDP"),
                "Unsupported health check protocol UDP (annotation ",
            ),
        ] {
            let error = check(&plain(), &[pair], &own()).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        }
    }

    /// REQ-AWS-HCC-15
    #[test]
    fn only_the_protocol_is_compared_in_any_case() {
        let check = |target: &str| HealthCheck {
            target: target.to_owned(),
            ..HealthCheck::default()
        };
        assert!(is_same(&check("http:80/a"), &check("HTTP:80/a")));
        assert!(!is_same(&check("HTTP:80/A"), &check("HTTP:80/a")));
        assert!(!is_same(&check("HTTP:81/a"), &check("HTTP:80/a")));
        let slower = HealthCheck {
            interval: 1,
            ..check("TCP:1")
        };
        assert!(!is_same(&slower, &check("TCP:1")));
    }
}
