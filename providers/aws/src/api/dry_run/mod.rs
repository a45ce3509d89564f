//! The cloud's APIs for a plan: reads pass, writes are recorded and answered as if they had been
//! made, so that the code above runs to its end.
//!
//! Answers carry invented ids of the right form. What was "made" is shown by later reads only
//! where one piece of work depends on another one's: security groups and their rules, which load
//! balancers share. Whatever else a pass makes it remembers by itself.
//!
//! What AWS would refuse is not known here: a plan supposes that every write succeeds.

mod elb;
mod elbv2;
mod network;
mod seen;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ccm_core::cloud::{Recorder, Writes};

pub(crate) use self::network::rule_text;
use self::{elb::RecordedElb, elbv2::RecordedElbv2, network::RecordedNetwork};
use super::{elb::ElbApi, elbv2::Elbv2Api, network::NetworkApi};

/// The load balancer API, version 2, as `writes` wants it. `vpc_id` is the VPC of what is made.
pub fn elbv2(inner: Arc<dyn Elbv2Api>, writes: &Writes, vpc_id: &str) -> Arc<dyn Elbv2Api> {
    match writes {
        Writes::Real => inner,
        Writes::Recorded(recorder) => Arc::new(RecordedElbv2::new(
            inner,
            Recorder::clone(recorder),
            vpc_id.to_owned(),
        )),
    }
}

/// The load balancer API of 2012 as `writes` wants it.
pub fn elb(inner: Arc<dyn ElbApi>, writes: &Writes) -> Arc<dyn ElbApi> {
    match writes {
        Writes::Real => inner,
        Writes::Recorded(recorder) => Arc::new(RecordedElb::new(inner, Recorder::clone(recorder))),
    }
}

/// The network side of EC2 as `writes` wants it.
pub fn network(inner: Arc<dyn NetworkApi>, writes: &Writes) -> Arc<dyn NetworkApi> {
    match writes {
        Writes::Real => inner,
        Writes::Recorded(recorder) => {
            Arc::new(RecordedNetwork::new(inner, Recorder::clone(recorder)))
        }
    }
}
