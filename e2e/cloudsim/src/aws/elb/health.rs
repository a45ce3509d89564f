//! The health check, and what it finds.

use super::super::ec2::Kind;
use super::super::model::InstanceState;
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::instances::{invalid_instance, requested};
use super::model::{ClassicHealthCheck, ClassicLoadBalancer};
use super::{need, number, validation};
use crate::control::CloudError;

/// Longest path of an HTTP health check.
const MAX_PATH: usize = 1024;

/// What a new load balancer has: a TCP check of the first listener's instance port.
pub(super) fn default_check(instance_port: u16) -> ClassicHealthCheck {
    ClassicHealthCheck {
        target: format!("TCP:{instance_port}"),
        interval: 30,
        timeout: 5,
        unhealthy: 2,
        healthy: 10,
    }
}

/// `TCP:80`, `SSL:443`, `HTTP:80/path` or `HTTPS:443/path`; the protocol in any case, answered in upper case.
fn target(text: &str) -> Result<String, CloudError> {
    let (protocol, rest) = text.split_once(':').unwrap_or((text, ""));
    let protocol = protocol.to_ascii_uppercase();
    let with_path = match protocol.as_str() {
        "HTTP" | "HTTPS" => true,
        "TCP" | "SSL" => false,
        _ => {
            return Err(validation(
                "HealthCheck Target must begin with one of HTTP, TCP, HTTPS, SSL",
            ));
        }
    };
    let at = rest.find('/').unwrap_or(rest.len());
    let (port, path) = rest.split_at_checked(at).unwrap_or((rest, ""));
    if port.parse::<u16>().ok().is_none_or(|port| port == 0) {
        let text = format!("HealthCheck Target '{text}' must specify a port from 1 to 65535");
        return Err(validation(text));
    }
    if with_path && path.is_empty() {
        let text = format!(
            "HealthCheck {protocol} Target must specify a port followed by a path that begins with '/'. e.g. HTTP:80/ping"
        );
        return Err(validation(text));
    }
    if !with_path && !path.is_empty() {
        let text = format!("HealthCheck {protocol} Target must specify only a port. e.g. TCP:80");
        return Err(validation(text));
    }
    if path.len() > MAX_PATH {
        let text = format!("HealthCheck Target path is longer than {MAX_PATH} characters");
        return Err(validation(text));
    }
    Ok(format!("{protocol}:{port}{path}"))
}

fn read(params: &Params) -> Result<ClassicHealthCheck, CloudError> {
    let field = |field: &str, range| {
        let key = format!("HealthCheck.{field}");
        need(params, &key)?;
        Ok::<u32, CloudError>(number(params, &key, range)?.unwrap_or_default())
    };
    let check = ClassicHealthCheck {
        target: target(need(params, "HealthCheck.Target")?)?,
        interval: field("Interval", 5..=300)?,
        timeout: field("Timeout", 2..=60)?,
        unhealthy: field("UnhealthyThreshold", 2..=10)?,
        healthy: field("HealthyThreshold", 2..=10)?,
    };
    if check.timeout >= check.interval {
        let text = format!(
            "HealthCheck timeout must be less than interval, got timeout {} and interval {}",
            check.timeout, check.interval
        );
        return Err(validation(text));
    }
    Ok(check)
}

pub(super) fn write(xml: &mut Xml, check: &ClassicHealthCheck) {
    xml.el("HealthCheck", |xml| {
        xml.text("Target", &check.target);
        xml.text("Interval", check.interval);
        xml.text("Timeout", check.timeout);
        xml.text("UnhealthyThreshold", check.unhealthy);
        xml.text("HealthyThreshold", check.healthy);
    });
}

/// ConfigureHealthCheck.
pub(crate) fn configure(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let mut lb = state.named_classic(params)?;
    lb.health_check = read(params)?;
    write(xml, &lb.health_check);
    state.store_classic(lb);
    Ok(())
}

/// State, reason and description of an instance, in AWS's words.
fn health(
    state: &State,
    lb: &ClassicLoadBalancer,
    id: &str,
) -> (&'static str, &'static str, &'static str) {
    const OUT: &str = "OutOfService";
    if !lb.instances.contains(id) {
        let text = "Instance is not currently registered with the LoadBalancer.";
        return (OUT, "Instance", text);
    }
    let Some(instance) = state.all.instances.get(id) else {
        return (OUT, "Instance", "Instance is in terminated state.");
    };
    match instance.state {
        InstanceState::Running => {}
        InstanceState::Pending => return (OUT, "Instance", "Instance is in pending state."),
        InstanceState::Stopping | InstanceState::Stopped => {
            return (OUT, "Instance", "Instance is in stopped state.");
        }
        InstanceState::ShuttingDown | InstanceState::Terminated => {
            return (OUT, "Instance", "Instance is in terminated state.");
        }
    }
    if state.now < lb.known_at.get(id).copied().unwrap_or(lb.created) {
        let text = "Instance registration is still in progress.";
        return (OUT, "ELB", text);
    }
    let zones = |subnet: &String| state.all.subnets.get(subnet).map(|subnet| &subnet.zone);
    if lb
        .subnets
        .iter()
        .filter_map(zones)
        .all(|zone| *zone != instance.zone)
    {
        let text = "Instance is in the EC2 Availability Zone for which LoadBalancer is not configured to route traffic to.";
        return (OUT, "ELB", text);
    }
    ("InService", "N/A", "N/A")
}

/// DescribeInstanceHealth of the given instances, or of all registered ones.
pub(crate) fn describe_instances(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let lb = state.named_classic(params)?;
    let asked = requested(params);
    for id in &asked {
        if !Kind::Instance.well_formed(id) || !state.all.instances.contains_key(id) {
            return Err(invalid_instance(id));
        }
    }
    let ids: Vec<String> = if asked.is_empty() {
        lb.instances.iter().cloned().collect()
    } else {
        asked
    };
    xml.list("InstanceStates", "member", ids, |xml, id| {
        let (code, reason, text) = health(state, &lb, &id);
        xml.text("InstanceId", &id);
        xml.text("State", code);
        xml.text("ReasonCode", reason);
        xml.text("Description", text);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn a_target_is_a_protocol_a_port_and_for_http_a_path() {
        for good in ["TCP:1", "SSL:65535", "HTTP:80/", "HTTPS:443/a/b?c"] {
            assert_eq!(target(good).unwrap(), good);
        }
        assert_eq!(target("http:80/healthz").unwrap(), "HTTP:80/healthz");
        let long = format!("HTTP:80/{}", "x".repeat(1024));
        for bad in [
            "",
            "TCP",
            "TCP:",
            "TCP:0",
            "TCP:65536",
            "TCP:80/",
            "HTTP:80",
            "UDP:53",
            "HTTP:/x",
            &long,
        ] {
            assert_eq!(target(bad).unwrap_err().code, "ValidationError", "{bad}");
        }
    }
}
