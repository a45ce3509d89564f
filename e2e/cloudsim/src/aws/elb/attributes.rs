//! Attributes.

use super::super::query::{Params, Xml};
use super::super::state::State;
use super::model::ClassicAttributes;
use super::{configuration, flag, need, number, validation};
use crate::control::CloudError;

const DESYNC: &str = "elb.http.desyncmitigationmode";

/// The parts of the attributes that a request may change one by one.
const PARTS: [&str; 5] = [
    "AccessLog",
    "AdditionalAttributes",
    "ConnectionDraining",
    "ConnectionSettings",
    "CrossZoneLoadBalancing",
];

fn under(part: &str, field: &str) -> String {
    format!("LoadBalancerAttributes.{part}.{field}")
}

fn write(xml: &mut Xml, attributes: &ClassicAttributes, shown: impl Fn(&str) -> bool) {
    xml.el("LoadBalancerAttributes", |xml| {
        for part in PARTS.into_iter().filter(|part| shown(part)) {
            xml.el(part, |xml| write_part(xml, attributes, part));
        }
    });
}

fn write_part(xml: &mut Xml, attributes: &ClassicAttributes, part: &str) {
    match part {
        "AccessLog" => {
            xml.text("Enabled", attributes.access_log);
            xml.opt("S3BucketName", attributes.access_log_bucket.as_ref());
            xml.opt("EmitInterval", attributes.access_log_interval);
            xml.opt("S3BucketPrefix", attributes.access_log_prefix.as_ref());
        }
        "AdditionalAttributes" => xml.el("member", |xml| {
            xml.text("Key", DESYNC);
            xml.text("Value", &attributes.desync_mitigation);
        }),
        "ConnectionDraining" => {
            xml.text("Enabled", attributes.draining);
            xml.text("Timeout", attributes.draining_timeout);
        }
        "ConnectionSettings" => xml.text("IdleTimeout", attributes.idle_timeout),
        _ => xml.text("Enabled", attributes.cross_zone),
    }
}

/// DescribeLoadBalancerAttributes.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let lb = state.named_classic(params)?;
    write(xml, &lb.attributes, |_| true);
    Ok(())
}

/// ModifyLoadBalancerAttributes changes the given parts and answers with them.
pub(crate) fn modify(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let mut lb = state.named_classic(params)?;
    let given = |part: &str| params.has(&format!("LoadBalancerAttributes.{part}"));
    if !PARTS.into_iter().any(given) {
        need(params, "LoadBalancerAttributes")?;
    }
    let attributes = &mut lb.attributes;
    if given("CrossZoneLoadBalancing") {
        attributes.cross_zone = enabled(params, "CrossZoneLoadBalancing")?;
    }
    if given("ConnectionDraining") {
        attributes.draining = enabled(params, "ConnectionDraining")?;
        let timeout = number(params, &under("ConnectionDraining", "Timeout"), 1..=3600)?;
        attributes.draining_timeout = timeout.unwrap_or(attributes.draining_timeout);
    }
    if given("ConnectionSettings") {
        let key = under("ConnectionSettings", "IdleTimeout");
        need(params, &key)?;
        let timeout = number(params, &key, 1..=3600)?;
        attributes.idle_timeout = timeout.unwrap_or(attributes.idle_timeout);
    }
    if given("AccessLog") {
        modify_access_log(params, attributes)?;
    }
    for item in params.structs("LoadBalancerAttributes.AdditionalAttributes.member") {
        let (key, value) = (need(&item, "Key")?, need(&item, "Value")?);
        if key != DESYNC {
            let text = format!("The load balancer attribute '{key}' is not known: use {DESYNC}");
            return Err(CloudError::new("LoadBalancerAttributeNotFound", text));
        }
        if !["monitor", "defensive", "strictest"].contains(&value) {
            let text = format!("{key} must be monitor, defensive or strictest, got '{value}'");
            return Err(configuration(text));
        }
        value.clone_into(&mut attributes.desync_mitigation);
    }
    xml.text("LoadBalancerName", &lb.name);
    write(xml, &lb.attributes, given);
    state.store_classic(lb);
    Ok(())
}

fn enabled(params: &Params, part: &str) -> Result<bool, CloudError> {
    let key = under(part, "Enabled");
    need(params, &key)?;
    Ok(flag(params, &key)?.unwrap_or_default())
}

fn modify_access_log(
    params: &Params,
    attributes: &mut ClassicAttributes,
) -> Result<(), CloudError> {
    let field = |field| params.get(&under("AccessLog", field)).map(str::to_owned);
    let on = enabled(params, "AccessLog")?;
    let interval = number(params, &under("AccessLog", "EmitInterval"), 0..=60)?;
    if interval.is_some_and(|minutes| ![5, 60].contains(&minutes)) {
        return Err(validation("EmitInterval must be 5 or 60 minutes"));
    }
    if on && field("S3BucketName").is_none_or(|name| name.is_empty()) {
        return Err(configuration(
            "S3BucketName must be given while access logs are enabled",
        ));
    }
    attributes.access_log = on;
    if on {
        attributes.access_log_interval = interval.or(Some(60));
        attributes.access_log_bucket = field("S3BucketName");
        attributes.access_log_prefix = field("S3BucketPrefix");
    } else {
        attributes.access_log_interval = None;
        attributes.access_log_bucket = None;
        attributes.access_log_prefix = None;
    }
    Ok(())
}
