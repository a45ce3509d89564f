//! Classic ELB, version 2012-06-01: load balancers in a VPC, known by their names.
//!
//! Error codes and HTTP statuses are those of the published description of the API.

mod attributes;
mod health;
mod instances;
mod listeners;
mod load_balancers;
mod model;
mod placement;
mod policies;
mod tags;

pub use model::{
    ClassicAttributes, ClassicHealthCheck, ClassicListener, ClassicLoadBalancer, ClassicPolicy,
};

use super::Handler;
use super::query::Params;
use super::state::State;
use crate::control::CloudError;

/// Every implemented action.
pub(crate) const ACTIONS: &[(&str, Handler)] = &[
    ("AddTags", tags::add),
    ("ApplySecurityGroupsToLoadBalancer", placement::apply_groups),
    ("AttachLoadBalancerToSubnets", placement::attach),
    ("ConfigureHealthCheck", health::configure),
    ("CreateLoadBalancer", load_balancers::create),
    ("CreateLoadBalancerListeners", listeners::create),
    ("CreateLoadBalancerPolicy", policies::create),
    ("DeleteLoadBalancer", load_balancers::delete),
    ("DeleteLoadBalancerListeners", listeners::delete),
    ("DeregisterInstancesFromLoadBalancer", instances::deregister),
    ("DescribeInstanceHealth", health::describe_instances),
    ("DescribeLoadBalancerAttributes", attributes::describe),
    ("DescribeLoadBalancerPolicies", policies::describe),
    ("DescribeLoadBalancers", load_balancers::describe),
    ("DescribeTags", tags::describe),
    ("DetachLoadBalancerFromSubnets", placement::detach),
    ("ModifyLoadBalancerAttributes", attributes::modify),
    ("RegisterInstancesWithLoadBalancer", instances::register),
    ("RemoveTags", tags::remove),
    (
        "SetLoadBalancerPoliciesForBackendServer",
        policies::set_of_backend,
    ),
    (
        "SetLoadBalancerPoliciesOfListener",
        policies::set_of_listener,
    ),
];

fn validation(text: impl Into<String>) -> CloudError {
    CloudError::new("ValidationError", text)
}

/// This API, unlike ELBv2, answers 409 here.
fn configuration(text: impl Into<String>) -> CloudError {
    CloudError::new("InvalidConfigurationRequest", text).with_status(409)
}

fn not_found(name: &str) -> CloudError {
    let text = format!("There is no ACTIVE Load Balancer named '{name}'");
    CloudError::new("LoadBalancerNotFound", text)
}

/// A parameter that the API demands.
fn need<'a>(params: &'a Params, key: &str) -> Result<&'a str, CloudError> {
    params.need(key).map_err(|_| {
        let mut field = key.to_owned();
        if let Some(first) = field.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        validation(format!(
            "1 validation error detected: Value null at '{field}' failed to satisfy constraint: Member must not be null"
        ))
    })
}

/// A number within a range, or nothing.
fn number(
    params: &Params,
    key: &str,
    range: std::ops::RangeInclusive<u32>,
) -> Result<Option<u32>, CloudError> {
    let value: Option<u32> = params
        .number(key)
        .map_err(|error| validation(error.message))?;
    match value {
        Some(value) if !range.contains(&value) => Err(validation(format!(
            "{key} must be an integer between {} and {}, got {value}",
            range.start(),
            range.end()
        ))),
        value => Ok(value),
    }
}

/// A port that the API demands.
fn port(params: &Params, key: &str) -> Result<u16, CloudError> {
    need(params, key)?;
    let value = number(params, key, 1..=65_535)?.unwrap_or_default();
    u16::try_from(value).map_err(|_| validation(format!("{key} must be a port")))
}

/// A boolean, or nothing.
fn flag(params: &Params, key: &str) -> Result<Option<bool>, CloudError> {
    params.flag(key).map_err(|error| validation(error.message))
}

impl State {
    /// A classic load balancer that is not deleted.
    fn classic(&mut self, name: &str) -> Result<&mut ClassicLoadBalancer, CloudError> {
        self.all
            .classic_load_balancers
            .get_mut(name)
            .ok_or_else(|| not_found(name))
    }

    /// A copy of the load balancer that the request names, to be changed and stored as a whole.
    fn named_classic(&mut self, params: &Params) -> Result<ClassicLoadBalancer, CloudError> {
        let name = need(params, "LoadBalancerName")?;
        self.classic(name).cloned()
    }

    fn store_classic(&mut self, lb: ClassicLoadBalancer) {
        self.all.classic_load_balancers.insert(lb.name.clone(), lb);
    }
}
