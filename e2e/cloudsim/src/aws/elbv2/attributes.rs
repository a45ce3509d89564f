//! Attributes of load balancers and target groups, with the keys and defaults that AWS has for NLBs.

use std::collections::BTreeMap;

use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{configuration, validation};
use crate::control::CloudError;

type Attributes = BTreeMap<String, String>;

fn owned(pairs: &[(&str, &str)]) -> Attributes {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// What a new network load balancer has.
pub(crate) fn load_balancer_defaults(scheme: &str) -> Attributes {
    let deny = if scheme == "internal" {
        "true"
    } else {
        "false"
    };
    owned(&[
        ("access_logs.s3.bucket", ""),
        ("access_logs.s3.enabled", "false"),
        ("access_logs.s3.prefix", ""),
        ("deletion_protection.enabled", "false"),
        ("dns_record.client_routing_policy", "any_availability_zone"),
        ("ipv6.deny_all_igw_traffic", deny),
        ("load_balancing.cross_zone.enabled", "false"),
        ("secondary_ips.auto_assigned.per_subnet", "0"),
        ("zonal_shift.config.enabled", "false"),
    ])
}

/// What a new target group has. Client addresses are kept for instances, and for UDP always.
pub(crate) fn target_group_defaults(target_type: &str, protocol: &str) -> Attributes {
    let preserve = target_type == "instance" || matches!(protocol, "UDP" | "TCP_UDP");
    owned(&[
        (
            "deregistration_delay.connection_termination.enabled",
            "false",
        ),
        ("deregistration_delay.timeout_seconds", "300"),
        (
            "load_balancing.cross_zone.enabled",
            "use_load_balancer_configuration",
        ),
        (
            "preserve_client_ip.enabled",
            if preserve { "true" } else { "false" },
        ),
        ("proxy_protocol_v2.enabled", "false"),
        ("stickiness.enabled", "false"),
        ("stickiness.type", "source_ip"),
        (
            "target_group_health.dns_failover.minimum_healthy_targets.count",
            "1",
        ),
        (
            "target_group_health.dns_failover.minimum_healthy_targets.percentage",
            "off",
        ),
        (
            "target_group_health.unhealthy_state_routing.minimum_healthy_targets.count",
            "1",
        ),
        (
            "target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage",
            "off",
        ),
        (
            "target_health_state.unhealthy.connection_termination.enabled",
            "true",
        ),
        (
            "target_health_state.unhealthy.draining_interval_seconds",
            "0",
        ),
    ])
}

fn write(xml: &mut Xml, attributes: &Attributes) {
    xml.list("Attributes", "member", attributes, |xml, (key, value)| {
        xml.text("Key", key);
        xml.text("Value", value);
    });
}

/// The requested changes, checked against the known keys.
fn changes(params: &Params, what: &str, known: &Attributes) -> Result<Attributes, CloudError> {
    params.need("Attributes.member.1.Key")?;
    let mut changes = Attributes::new();
    for attribute in params.structs("Attributes.member") {
        let key = attribute.need("Key")?;
        if !known.contains_key(key) {
            return Err(configuration(format!(
                "{what} attribute key '{key}' is not recognized"
            )));
        }
        let value = attribute.get("Value").unwrap_or_default();
        check_value(key, value)?;
        changes.insert(key.to_owned(), value.to_owned());
    }
    Ok(changes)
}

fn check_value(key: &str, value: &str) -> Result<(), CloudError> {
    let one_of = |words: &[&str]| words.contains(&value);
    let seconds = |max: u32| value.parse::<u32>().is_ok_and(|number| number <= max);
    let valid = match key {
        "load_balancing.cross_zone.enabled" => {
            one_of(&["true", "false", "use_load_balancer_configuration"])
        }
        "deregistration_delay.timeout_seconds" => seconds(3600),
        "target_health_state.unhealthy.draining_interval_seconds" => seconds(360_000),
        "dns_record.client_routing_policy" => one_of(&[
            "any_availability_zone",
            "availability_zone_affinity",
            "partial_availability_zone_affinity",
        ]),
        "stickiness.type" => one_of(&["source_ip"]),
        key if key.ends_with(".enabled") || key == "ipv6.deny_all_igw_traffic" => {
            one_of(&["true", "false"])
        }
        _ => true,
    };
    if valid {
        Ok(())
    } else {
        Err(validation(format!(
            "Attribute value '{value}' is not valid for '{key}'"
        )))
    }
}

/// DescribeLoadBalancerAttributes.
pub(crate) fn describe_load_balancer(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    write(
        xml,
        &state
            .load_balancer(params.need("LoadBalancerArn")?)?
            .attributes,
    );
    Ok(())
}

/// ModifyLoadBalancerAttributes.
pub(crate) fn modify_load_balancer(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let lb = state.load_balancer(params.need("LoadBalancerArn")?)?;
    let changes = changes(params, "Load balancer", &lb.attributes)?;
    let mut wanted = lb.attributes.clone();
    wanted.extend(changes);
    let is = |key: &str, value: &str| wanted.get(key).is_some_and(|have| have == value);
    if is("access_logs.s3.enabled", "true") && is("access_logs.s3.bucket", "") {
        let text =
            "The value of 'access_logs.s3.bucket' cannot be empty while access logs are enabled";
        return Err(configuration(text));
    }
    if is(
        "load_balancing.cross_zone.enabled",
        "use_load_balancer_configuration",
    ) {
        return Err(validation(
            "Use true or false for 'load_balancing.cross_zone.enabled'",
        ));
    }
    lb.attributes = wanted;
    write(xml, &lb.attributes);
    Ok(())
}

/// DescribeTargetGroupAttributes.
pub(crate) fn describe_target_group(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    write(
        xml,
        &state
            .target_group(params.need("TargetGroupArn")?)?
            .attributes,
    );
    Ok(())
}

/// ModifyTargetGroupAttributes.
pub(crate) fn modify_target_group(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let group = state.target_group(params.need("TargetGroupArn")?)?;
    let changes = changes(params, "Target group", &group.attributes)?;
    let keeps = matches!(group.protocol.as_str(), "UDP" | "TCP_UDP");
    if keeps
        && changes
            .get("preserve_client_ip.enabled")
            .is_some_and(|value| value == "false")
    {
        let text = format!(
            "Client IP preservation cannot be disabled for protocol {}",
            group.protocol
        );
        return Err(configuration(text));
    }
    group.attributes.extend(changes);
    write(xml, &group.attributes);
    Ok(())
}
