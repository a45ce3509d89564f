//! Classic ELB, version 2012-06-01. No classic load balancer can exist yet, so only the question whether one
//! exists is answered.

use super::Handler;
use super::query::{Params, Xml};
use super::state::State;
use crate::control::CloudError;

/// Every implemented action.
pub(crate) const ACTIONS: &[(&str, Handler)] = &[("DescribeLoadBalancers", describe)];

fn describe(_: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    if let Some(name) = params.members("LoadBalancerNames").first() {
        let text = format!("There is no ACTIVE Load Balancer named '{name}'");
        return Err(CloudError::new("LoadBalancerNotFound", text));
    }
    xml.list("LoadBalancerDescriptions", "member", [(); 0], |_, ()| {});
    Ok(())
}
