//! ELBv2, version 2015-12-01: network load balancers only.

mod attributes;
mod listeners;
mod load_balancers;
mod placement;
mod tags;
mod target_groups;
mod targets;

pub(crate) use load_balancers::check_groups;
pub(crate) use tags::{put as put_tags, read as read_tags};

use super::Handler;
use super::model::{LoadBalancer, TargetGroup};
use super::query::Params;
use super::state::State;
use crate::control::CloudError;

/// Every implemented action.
pub(crate) const ACTIONS: &[(&str, Handler)] = &[
    ("AddTags", tags::add),
    ("CreateListener", listeners::create),
    ("CreateLoadBalancer", load_balancers::create),
    ("CreateTargetGroup", target_groups::create),
    ("DeleteListener", listeners::delete),
    ("DeleteLoadBalancer", load_balancers::delete),
    ("DeleteTargetGroup", target_groups::delete),
    ("DeregisterTargets", targets::deregister),
    ("DescribeListeners", listeners::describe),
    (
        "DescribeLoadBalancerAttributes",
        attributes::describe_load_balancer,
    ),
    ("DescribeLoadBalancers", load_balancers::describe),
    ("DescribeTags", tags::describe),
    (
        "DescribeTargetGroupAttributes",
        attributes::describe_target_group,
    ),
    ("DescribeTargetGroups", target_groups::describe),
    ("DescribeTargetHealth", targets::describe_health),
    ("ModifyListener", listeners::modify),
    (
        "ModifyLoadBalancerAttributes",
        attributes::modify_load_balancer,
    ),
    ("ModifyTargetGroup", target_groups::modify),
    (
        "ModifyTargetGroupAttributes",
        attributes::modify_target_group,
    ),
    ("RegisterTargets", targets::register),
    ("RemoveTags", tags::remove),
    ("SetIpAddressType", load_balancers::set_ip_address_type),
    ("SetSecurityGroups", load_balancers::set_security_groups),
    ("SetSubnets", load_balancers::set_subnets),
];

/// ELBv2's limit of names or ARNs in one Describe call.
const MAX_NAMES: usize = 20;
/// ELBv2's largest page, and the default.
const MAX_PAGE: usize = 400;
/// Longest name of a load balancer or target group.
const MAX_NAME: usize = 32;

fn validation(text: impl Into<String>) -> CloudError {
    CloudError::new("ValidationError", text)
}

fn configuration(text: impl Into<String>) -> CloudError {
    CloudError::new("InvalidConfigurationRequest", text)
}

/// A list of names or ARNs, at most 20.
fn limited(params: &Params, name: &str) -> Result<Vec<String>, CloudError> {
    let list = params.members(name);
    if list.len() > MAX_NAMES {
        let text = format!(
            "{name}: at most {MAX_NAMES} may be given, got {}",
            list.len()
        );
        return Err(validation(text));
    }
    Ok(list)
}

/// `PageSize`, 1 to 400.
pub(crate) fn page_size(params: &Params) -> Result<Option<usize>, CloudError> {
    let size = params.number("PageSize")?.unwrap_or(MAX_PAGE);
    if !(1..=MAX_PAGE).contains(&size) {
        return Err(validation(format!(
            "PageSize {size} must be from 1 to {MAX_PAGE}"
        )));
    }
    Ok(Some(size))
}

/// A name of a load balancer (`what`) or target group.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), CloudError> {
    if name.len() > MAX_NAME {
        let text =
            format!("The {what} name '{name}' cannot be longer than '{MAX_NAME}' characters");
        return Err(validation(text));
    }
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        || name.is_empty()
    {
        let text = format!(
            "The {what} name '{name}' can only contain characters that are alphanumeric characters and hyphens(-)"
        );
        return Err(validation(text));
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Err(validation(format!(
            "The {what} name '{name}' cannot begin or end with a hyphen(-)"
        )));
    }
    Ok(())
}

fn lb_not_found(arn: &str) -> CloudError {
    CloudError::new(
        "LoadBalancerNotFound",
        format!("Load balancer '{arn}' not found"),
    )
}

fn group_not_found(arn: &str) -> CloudError {
    CloudError::new(
        "TargetGroupNotFound",
        format!("Target group '{arn}' not found"),
    )
}

fn listener_not_found(arn: &str) -> CloudError {
    CloudError::new("ListenerNotFound", format!("Listener '{arn}' not found"))
}

impl State {
    /// A load balancer that is not deleted.
    pub(crate) fn load_balancer(&mut self, arn: &str) -> Result<&mut LoadBalancer, CloudError> {
        if !arn.contains(":loadbalancer/") {
            return Err(validation(format!(
                "'{arn}' is not a valid load balancer ARN"
            )));
        }
        self.all
            .load_balancers
            .get_mut(arn)
            .ok_or_else(|| lb_not_found(arn))
    }

    pub(crate) fn target_group(&mut self, arn: &str) -> Result<&mut TargetGroup, CloudError> {
        if !arn.contains(":targetgroup/") {
            return Err(validation(format!(
                "'{arn}' is not a valid target group ARN"
            )));
        }
        self.all
            .target_groups
            .get_mut(arn)
            .ok_or_else(|| group_not_found(arn))
    }

    /// The load balancer that forwards to a target group.
    fn user_of(&self, target_group_arn: &str) -> Option<&str> {
        let mut listeners = self.all.listeners.values();
        let using = listeners.find(|listener| listener.target_group_arn == target_group_arn);
        using.map(|listener| listener.load_balancer_arn.as_str())
    }
}
