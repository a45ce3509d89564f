//! All load balancers of the account and region: for what looks for those without an owner.

use std::time::SystemTime;

use async_trait::async_trait;
use ccm_core::cloud::CloudResult;

use super::elbv2::LoadBalancer;

/// A load balancer as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLoadBalancer {
    /// The load balancer.
    pub load_balancer: LoadBalancer,
    /// When it was made.
    pub created: Option<SystemTime>,
}

/// The call that lists them.
#[async_trait]
pub trait AllLoadBalancers: Send + Sync {
    /// All load balancers of version 2, of any type, to the last page.
    async fn all_load_balancers(&self) -> CloudResult<Vec<ListedLoadBalancer>>;
}
