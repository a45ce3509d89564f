//! Targets and their health.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::ec2::Kind;
use super::super::model::{InstanceState, Target, TargetGroup};
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::validation;
use crate::clock::later;
use crate::control::CloudError;

/// Id and port of the requested targets; without a port the one of the target group counts.
fn requested(params: &Params, default: u16) -> Result<Vec<(String, Option<u16>, u16)>, CloudError> {
    let read = |target: Params| {
        let id = target.need("Id")?.to_owned();
        let port: Option<u16> = target.number("Port")?;
        if port == Some(0) {
            return Err(validation("Port must be from 1 to 65535"));
        }
        Ok((id, port, port.unwrap_or(default)))
    };
    params
        .structs("Targets.member")
        .into_iter()
        .map(read)
        .collect()
}

fn quoted<'a>(ids: impl IntoIterator<Item = &'a String>) -> String {
    let ids: BTreeSet<&String> = ids.into_iter().collect();
    ids.into_iter()
        .map(|id| format!("'{id}'"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn invalid(text: String) -> CloudError {
    CloudError::new("InvalidTarget", text)
}

/// One bad target refuses them all.
fn check_targets(state: &State, group: &TargetGroup, ids: &[&String]) -> Result<(), CloudError> {
    if group.target_type == "ip" {
        let bad = ids
            .iter()
            .filter(|id| id.parse::<std::net::IpAddr>().is_err());
        let bad = quoted(bad.copied());
        return if bad.is_empty() {
            Ok(())
        } else {
            Err(validation(format!(
                "The following IP addresses are not valid: {bad}"
            )))
        };
    }
    if group.target_type != "instance" {
        return Ok(());
    }
    let known = |id: &&&String| {
        Kind::Instance.well_formed(id)
            && state.all.instances.contains_key(**id)
            && state.visible(id)
    };
    let unknown = quoted(ids.iter().filter(|id| !known(id)).copied());
    if !unknown.is_empty() {
        return Err(invalid(format!(
            "The following targets do not exist: {unknown}"
        )));
    }
    let instance = |id: &str| state.all.instances.get(id);
    let idle = ids
        .iter()
        .filter(|id| instance(id).is_none_or(|at| at.state != InstanceState::Running));
    let idle = quoted(idle.copied());
    if !idle.is_empty() {
        let text = format!(
            "The following targets are not in a running state and cannot be registered: {idle}"
        );
        return Err(invalid(text));
    }
    let foreign = ids
        .iter()
        .filter(|id| instance(id).is_none_or(|at| at.vpc_id != group.vpc_id));
    let foreign = quoted(foreign.copied());
    if foreign.is_empty() {
        Ok(())
    } else {
        let vpc = &group.vpc_id;
        Err(invalid(format!(
            "The following targets are not in the target group VPC '{vpc}': {foreign}"
        )))
    }
}

/// RegisterTargets. A draining target becomes active again.
pub(crate) fn register(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let arn = params.need("TargetGroupArn")?;
    params.need("Targets.member.1.Id")?;
    let mut group = state.target_group(arn)?.clone();
    let wanted = requested(params, group.port)?;
    let ids: Vec<&String> = wanted.iter().map(|(id, ..)| id).collect();
    check_targets(state, &group, &ids)?;
    for (id, _, port) in wanted {
        let known_at = later(state.now, state.settings.target_initial);
        let present = group
            .targets
            .iter_mut()
            .find(|target| target.id == id && target.port == port);
        match present {
            Some(target) if target.draining => {
                target.draining = false;
                target.gone_at = None;
                target.known_at = known_at;
            }
            Some(_) => {}
            None => group.targets.push(Target {
                id,
                port,
                draining: false,
                known_at,
                gone_at: None,
            }),
        }
    }
    let active = group
        .targets
        .iter()
        .filter(|target| !target.draining)
        .count();
    let limit = state.quotas.targets_per_target_group;
    if active > limit {
        let text = format!(
            "The maximum number of targets, {limit}, has been reached on target group '{arn}'"
        );
        return Err(CloudError::new("TooManyTargets", text));
    }
    group
        .targets
        .sort_by(|a, b| (&a.id, a.port).cmp(&(&b.id, b.port)));
    *state.target_group(arn)? = group;
    Ok(())
}

/// DeregisterTargets. Targets that are not registered are passed over.
pub(crate) fn deregister(
    state: &mut State,
    params: &Params,
    _: &mut Xml,
) -> Result<(), CloudError> {
    let arn = params.need("TargetGroupArn")?;
    params.need("Targets.member.1.Id")?;
    let (now, fixed) = (state.now, state.settings.deregistration_delay);
    let in_use = state.user_of(arn).is_some();
    let group = state.target_group(arn)?;
    let wanted = requested(params, group.port)?;
    let attribute = group.attributes.get("deregistration_delay.timeout_seconds");
    let seconds = attribute
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(300);
    let delay = fixed.unwrap_or_else(|| Duration::from_secs(seconds));
    for target in &mut group.targets {
        // Without a port the id is meant with whatever port it has.
        let named = wanted
            .iter()
            .any(|(id, port, _)| *id == target.id && port.is_none_or(|port| port == target.port));
        if named && !target.draining {
            target.draining = true;
            target.gone_at = Some(later(now, delay));
        }
    }
    // Nothing flows through an unused group, so there is nothing to drain.
    group
        .targets
        .retain(|target| !target.draining || in_use && target.gone_at.is_some_and(|at| at > now));
    Ok(())
}

/// State, reason and description of a target.
fn health(
    state: &State,
    group: &TargetGroup,
    target: &Target,
) -> (&'static str, Option<(&'static str, String)>) {
    if target.draining {
        let text = "Target deregistration is in progress".to_owned();
        return ("draining", Some(("Target.DeregistrationInProgress", text)));
    }
    if state.user_of(&group.arn).is_none() {
        let text =
            "Target group is not configured to receive traffic from the load balancer".to_owned();
        return ("unused", Some(("Target.NotInUse", text)));
    }
    if group.target_type == "instance" {
        let instance = state
            .all
            .instances
            .get(&target.id)
            .map_or(InstanceState::Terminated, |at| at.state);
        if instance != InstanceState::Running {
            let text = format!("Target is in the {} state", instance.name());
            return ("unused", Some(("Target.InvalidState", text)));
        }
    }
    if state.now < target.known_at {
        let text = "Target registration is in progress".to_owned();
        return ("initial", Some(("Elb.RegistrationInProgress", text)));
    }
    ("healthy", None)
}

/// DescribeTargetHealth.
pub(crate) fn describe_health(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let group = state.target_group(params.need("TargetGroupArn")?)?.clone();
    let asked = requested(params, group.port)?;
    let mut rows: Vec<(String, u16, _)> = Vec::new();
    for target in &group.targets {
        if asked.is_empty()
            || asked
                .iter()
                .any(|(id, _, port)| *id == target.id && *port == target.port)
        {
            rows.push((
                target.id.clone(),
                target.port,
                health(state, &group, target),
            ));
        }
    }
    for (id, _, port) in asked {
        if !group
            .targets
            .iter()
            .any(|target| target.id == id && target.port == port)
        {
            let text = "Target is not registered to the target group".to_owned();
            rows.push((id, port, ("unused", Some(("Target.NotRegistered", text)))));
        }
    }
    xml.list(
        "TargetHealthDescriptions",
        "member",
        rows,
        |xml, (id, port, (code, reason))| {
            xml.el("Target", |xml| {
                xml.text("Id", id);
                xml.text("Port", port);
            });
            let check = &group.health_check.port;
            let check_port = if check == "traffic-port" {
                port.to_string()
            } else {
                check.clone()
            };
            xml.text("HealthCheckPort", check_port);
            xml.el("TargetHealth", |xml| {
                xml.text("State", code);
                if let Some((reason, text)) = reason {
                    xml.text("Reason", reason);
                    xml.text("Description", text);
                }
            });
        },
    );
    Ok(())
}
