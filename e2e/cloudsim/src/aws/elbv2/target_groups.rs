//! Target groups.

use super::super::model::{HealthCheck, TargetGroup};
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{
    attributes, check_name, configuration, group_not_found, limited, page_size, tags, validation,
};
use crate::control::CloudError;

const PROTOCOLS: &[&str] = &["TCP", "UDP", "TLS", "TCP_UDP"];
const TARGET_TYPES: &[&str] = &["instance", "ip", "alb"];

/// A number within the bounds that AWS documents for network load balancers.
fn bounded(params: &Params, key: &str, min: u32, max: u32) -> Result<Option<u32>, CloudError> {
    let value = params.number(key)?;
    match value {
        Some(value) if !(min..=max).contains(&value) => Err(validation(format!(
            "{key} '{value}' must be from {min} to {max}"
        ))),
        value => Ok(value),
    }
}

/// Path and status codes, which only HTTP and HTTPS checks have.
fn path_and_matcher(
    params: &Params,
    http: bool,
    old: Option<&HealthCheck>,
) -> Result<(Option<String>, Option<String>), CloudError> {
    let path = params
        .get("HealthCheckPath")
        .filter(|path| !path.is_empty());
    let matcher = params
        .get("Matcher.HttpCode")
        .filter(|codes| !codes.is_empty());
    if !http && (path.is_some() || matcher.is_some()) {
        let text =
            "Health check path and matcher are not supported for health checks with protocol TCP";
        return Err(configuration(text));
    }
    if path.is_some_and(|path| !path.starts_with('/')) {
        return Err(validation(
            "Health check path must begin with a '/' character",
        ));
    }
    let old_path = old
        .and_then(|old| old.path.clone())
        .unwrap_or_else(|| "/".to_owned());
    let old_matcher = old
        .and_then(|old| old.matcher.clone())
        .unwrap_or_else(|| "200-399".to_owned());
    let path = path.map_or(old_path, str::to_owned);
    let matcher = matcher.map_or(old_matcher, str::to_owned);
    Ok((http.then_some(path), http.then_some(matcher)))
}

/// The requested health check on top of `old`, or of the defaults.
fn health_check(params: &Params, old: Option<&HealthCheck>) -> Result<HealthCheck, CloudError> {
    let protocol = params
        .get("HealthCheckProtocol")
        .or_else(|| old.map(|old| old.protocol.as_str()))
        .unwrap_or("TCP");
    if !["TCP", "HTTP", "HTTPS"].contains(&protocol) {
        let text = format!("Health check protocol '{protocol}' must be one of 'TCP, HTTP, HTTPS'");
        return Err(validation(text));
    }
    let http = protocol != "TCP";
    let (path, matcher) = path_and_matcher(params, http, old)?;
    let port = params
        .get("HealthCheckPort")
        .or_else(|| old.map(|old| old.port.as_str()))
        .unwrap_or("traffic-port");
    if port != "traffic-port" && !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(validation(format!(
            "Health check port '{port}' must be a number or 'traffic-port'"
        )));
    }
    let interval = bounded(params, "HealthCheckIntervalSeconds", 5, 300)?;
    let interval = interval
        .or_else(|| old.map(|old| old.interval))
        .unwrap_or(30);
    // The default depends on the protocol, and gives way to a shorter interval.
    let default = if protocol == "HTTP" { 6 } else { 10 };
    let timeout = bounded(params, "HealthCheckTimeoutSeconds", 2, 120)?;
    let timeout = timeout.unwrap_or_else(|| old.map_or(default, |old| old.timeout).min(interval));
    if timeout > interval {
        let text = format!(
            "Health check interval {interval} must not be smaller than the timeout {timeout}"
        );
        return Err(validation(text));
    }
    let healthy = bounded(params, "HealthyThresholdCount", 2, 10)?;
    let unhealthy = bounded(params, "UnhealthyThresholdCount", 2, 10)?;
    Ok(HealthCheck {
        protocol: protocol.to_owned(),
        port: port.to_owned(),
        path,
        matcher,
        interval,
        timeout,
        healthy: healthy.or_else(|| old.map(|old| old.healthy)).unwrap_or(5),
        unhealthy: unhealthy
            .or_else(|| old.map(|old| old.unhealthy))
            .unwrap_or(2),
    })
}

fn wanted(state: &State, params: &Params) -> Result<TargetGroup, CloudError> {
    let name = params.need("Name")?;
    check_name("target group", name)?;
    let target_type = params.get("TargetType").unwrap_or("instance");
    if !TARGET_TYPES.contains(&target_type) {
        return Err(validation(format!(
            "TargetType '{target_type}' must be one of 'instance, ip, alb'"
        )));
    }
    let protocol = params.need("Protocol")?;
    if !PROTOCOLS.contains(&protocol) {
        let text =
            format!("Protocol '{protocol}' is not emulated: use one of 'TCP, UDP, TLS, TCP_UDP'");
        return Err(validation(text));
    }
    params.need("Port")?;
    let port = params.number("Port")?.filter(|port| *port > 0);
    let port = port.ok_or_else(|| validation("Port must be from 1 to 65535"))?;
    let vpc_id = params.need("VpcId")?;
    if !state.all.vpcs.contains_key(vpc_id) {
        return Err(validation(format!("The VPC ID '{vpc_id}' is not found")));
    }
    Ok(TargetGroup {
        arn: String::new(),
        name: name.to_owned(),
        protocol: protocol.to_owned(),
        port,
        vpc_id: vpc_id.to_owned(),
        target_type: target_type.to_owned(),
        ip_address_type: params.get("IpAddressType").unwrap_or("ipv4").to_owned(),
        health_check: health_check(params, None)?,
        targets: Vec::new(),
        attributes: attributes::target_group_defaults(target_type, protocol),
        tags: tags::read(params)?,
    })
}

/// CreateTargetGroup. The same request again returns the existing target group.
pub(crate) fn create(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let mut group = wanted(state, params)?;
    let present = state
        .all
        .target_groups
        .values()
        .find(|other| other.name == group.name);
    let arn = if let Some(other) = present {
        let key = |group: &TargetGroup| {
            let kind = (group.target_type.clone(), group.ip_address_type.clone());
            (
                group.protocol.clone(),
                group.port,
                group.vpc_id.clone(),
                kind,
                group.health_check.clone(),
            )
        };
        if key(other) != key(&group) {
            let name = &group.name;
            let text = format!(
                "A target group with the same name '{name}' exists, but with different settings"
            );
            return Err(CloudError::new("DuplicateTargetGroupName", text));
        }
        other.arn.clone()
    } else {
        if state.all.target_groups.len() >= state.quotas.target_groups {
            let text = "The maximum number of target groups has been reached";
            return Err(CloudError::new("TooManyTargetGroups", text));
        }
        let hash = state.hex16();
        group.arn = state.elb_arn(&format!("targetgroup/{}/{hash}", group.name));
        let arn = group.arn.clone();
        state.all.target_groups.insert(arn.clone(), group);
        arn
    };
    let group = state.target_group(&arn)?.clone();
    xml.list("TargetGroups", "member", [group], |xml, group| {
        write(xml, state, &group);
    });
    Ok(())
}

/// DescribeTargetGroups. A load balancer without target groups gives an empty list.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let (names, arns) = (
        limited(params, "Names")?,
        limited(params, "TargetGroupArns")?,
    );
    let of_lb = params.get("LoadBalancerArn");
    if let Some(arn) = of_lb {
        state.load_balancer(arn)?;
    }
    let seen: Vec<&TargetGroup> = state
        .all
        .target_groups
        .values()
        .filter(|group| state.visible(&group.arn))
        .collect();
    let unknown_name = names
        .iter()
        .any(|name| seen.iter().all(|group| group.name != *name));
    if unknown_name
        || arns
            .iter()
            .any(|arn| seen.iter().all(|group| group.arn != *arn))
    {
        return Err(CloudError::new(
            "TargetGroupNotFound",
            "One or more target groups not found",
        ));
    }
    let asked = |group: &TargetGroup| {
        (names.is_empty() || names.contains(&group.name))
            && (arns.is_empty() || arns.contains(&group.arn))
            && (of_lb.is_none() || state.user_of(&group.arn) == of_lb)
    };
    let items = seen
        .into_iter()
        .filter(|group| asked(group))
        .map(|group| (group.arn.clone(), group))
        .collect();
    let (page, next) = state.page(items, params.get("Marker"), page_size(params)?)?;
    xml.list("TargetGroups", "member", page, |xml, group| {
        write(xml, state, group);
    });
    xml.opt("NextMarker", next);
    Ok(())
}

fn write(xml: &mut Xml, state: &State, group: &TargetGroup) {
    xml.text("TargetGroupArn", &group.arn);
    xml.text("TargetGroupName", &group.name);
    xml.text("Protocol", &group.protocol);
    xml.text("Port", group.port);
    xml.text("VpcId", &group.vpc_id);
    let check = &group.health_check;
    xml.text("HealthCheckProtocol", &check.protocol);
    xml.text("HealthCheckPort", &check.port);
    xml.text("HealthCheckEnabled", true);
    xml.text("HealthCheckIntervalSeconds", check.interval);
    xml.text("HealthCheckTimeoutSeconds", check.timeout);
    xml.text("HealthyThresholdCount", check.healthy);
    xml.text("UnhealthyThresholdCount", check.unhealthy);
    xml.opt("HealthCheckPath", check.path.as_ref());
    if let Some(codes) = &check.matcher {
        xml.el("Matcher", |xml| xml.text("HttpCode", codes));
    }
    xml.texts("LoadBalancerArns", "member", state.user_of(&group.arn));
    xml.text("TargetType", &group.target_type);
    xml.text("IpAddressType", &group.ip_address_type);
}

/// ModifyTargetGroup changes the health check.
pub(crate) fn modify(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let strict = state.settings.strict_health_check_change;
    let group = state.target_group(params.need("TargetGroupArn")?)?;
    let check = health_check(params, Some(&group.health_check))?;
    if strict && check.protocol != group.health_check.protocol {
        let text = format!(
            "You cannot change the health check protocol of a target group with the {} protocol",
            group.protocol
        );
        return Err(configuration(text));
    }
    group.health_check = check;
    let group = group.clone();
    xml.list("TargetGroups", "member", [group], |xml, group| {
        write(xml, state, &group);
    });
    Ok(())
}

/// DeleteTargetGroup. Deleting what does not exist succeeds.
pub(crate) fn delete(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let arn = params.need("TargetGroupArn")?;
    match state.target_group(arn) {
        Err(error) if error.code == group_not_found(arn).code => return Ok(()),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    if state.user_of(arn).is_some() {
        let text = format!("Target group '{arn}' is currently in use by a listener or a rule");
        return Err(CloudError::new("ResourceInUse", text));
    }
    state.all.target_groups.remove(arn);
    Ok(())
}
