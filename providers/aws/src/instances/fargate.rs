//! Fargate Nodes: EC2 knows their network interface, not an instance (specification: aws §3.2).

use std::sync::Arc;

use ccm_core::cloud::{Class, CloudError, CloudResult};

use super::InstanceId;
use crate::api::{Ec2, Filter, Interface};

/// Looks for the interface of Fargate Nodes in the cluster's VPC.
pub struct Fargate {
    ec2: Arc<dyn Ec2>,
    vpc: String,
}

impl Fargate {
    /// In this VPC.
    pub fn new(ec2: Arc<dyn Ec2>, vpc: String) -> Self {
        Self { ec2, vpc }
    }

    /// The attached interface of the Node; `None` when there is none.
    ///
    /// # Errors
    /// The cloud could not be asked, or several interfaces have the address.
    pub async fn interface(&self, id: &InstanceId) -> CloudResult<Option<Interface>> {
        let address = id.fargate_address().unwrap_or_default();
        let filters = [
            Filter::new("attachment.status", ["attached"]),
            Filter::new("vpc-id", [self.vpc.as_str()]),
            Filter::new("private-ip-address", [address.as_str()]),
        ];
        let mut found = self.ec2.describe_network_interfaces(&filters).await?;
        if found.len() > 1 {
            return Err(CloudError::new(
                Class::Conflict,
                format!(
                    "multiple interfaces found for Fargate node {id} with address {address} in {}",
                    self.vpc
                ),
            ));
        }
        Ok(found.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::fake::{FakeEc2, interface};

    fn fargate(ec2: &Arc<FakeEc2>) -> Fargate {
        Fargate::new(Arc::clone(ec2) as Arc<dyn Ec2>, "vpc-1".into())
    }

    /// REQ-AWS-INST-10, REQ-AWS-INST-11
    #[tokio::test(start_paused = true)]
    async fn the_interface_is_found_by_its_address() {
        let ec2 = FakeEc2::with([]);
        ec2.put_interface(interface(0, &["192.168.164.88"], &[]));
        for text in [
            "fargate-ip-192-168-164-88.internal",
            "fargate-192.168.164.88",
        ] {
            let id = InstanceId::from_provider_id(text).unwrap();
            assert!(fargate(&ec2).interface(&id).await.unwrap().is_some());
        }
        let call = "DescribeNetworkInterfaces attachment.status=attached vpc-id=vpc-1 \
                    private-ip-address=192.168.164.88";
        assert_eq!(ec2.calls(), [call, call]);
    }

    /// REQ-AWS-INST-12
    #[tokio::test(start_paused = true)]
    async fn two_interfaces_are_an_error() {
        let ec2 = FakeEc2::with([]);
        ec2.put_interface(interface(0, &["10.0.0.1"], &[]));
        ec2.put_interface(interface(1, &["10.0.0.1"], &[]));
        let id = InstanceId::from_cloud("fargate-10.0.0.1");
        assert!(fargate(&ec2).interface(&id).await.is_err());
    }
}
