//! No call that changes the cloud starts without the lease, no attempt of one either.

use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{Intercept, context::BeforeTransmitInterceptorContextRef},
        orchestrator::Metadata,
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::ConfigBag;
use ccm_core::runtime::Fence;

/// How the names of operations begin that only read.
const READS: [&str; 4] = ["Describe", "Get", "List", "AssumeRole"];

/// Asks the fence just before each attempt of a call that changes something is sent: the waits
/// between two attempts, and for credentials, may outlast the lease.
#[derive(Debug)]
pub(super) struct Fenced(pub(super) Fence);

impl Intercept for Fenced {
    fn name(&self) -> &'static str {
        "LeaseFence"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let reads = bag
            .load::<Metadata>()
            .is_some_and(|call| is_read(call.name()));
        if reads {
            return Ok(());
        }
        Ok(self.0.check()?)
    }
}

fn is_read(operation: &str) -> bool {
    READS.iter().any(|prefix| operation.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_read_by_name_changes_something() {
        for (operation, reads) in [
            ("DescribeInstances", true),
            ("GetCallerIdentity", true),
            ("CreateLoadBalancer", false),
            ("RevokeSecurityGroupIngress", false),
            ("SetSubnets", false),
            ("", false),
        ] {
            assert_eq!(is_read(operation), reads, "{operation}");
        }
    }
}
