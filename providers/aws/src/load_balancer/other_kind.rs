//! Load balancers of the other kind under the Service's name. They are told apart by the API that
//! knows them; AWS lets both be there at once.

use ccm_core::cloud::{Class, CloudError, CloudResult, LoadBalancerName};

use super::{AwsLoadBalancers, nlb::desired::KIND};
use crate::annotations;

impl AwsLoadBalancers {
    /// A network load balancer of the name was made when the annotation asked for one, and no status
    /// tells of it. The new one would leave it behind.
    ///
    /// # Errors
    /// There is one.
    pub(super) async fn no_network_one(&self, name: &LoadBalancerName) -> CloudResult<()> {
        let found = self.observer.elb.load_balancer(name.as_str()).await;
        let found = tolerated("network", found)?.is_some_and(|lb| lb.kind == KIND);
        refuse_other_kind(found, "Classic Load Balancer", "network", name)
    }

    /// The same for a classic one that is in the way of a network one.
    ///
    /// # Errors
    /// There is one.
    pub(super) async fn no_classic_one(&self, name: &LoadBalancerName) -> CloudResult<()> {
        let found = self.classic.observer.find(name.as_str()).await;
        let found = tolerated("classic", found)?.is_some();
        refuse_other_kind(found, "NLB", "classic", name)
    }
}

/// A region or credentials without the other kind have none of it.
pub(super) fn tolerated<T: Default>(kind: &str, answer: CloudResult<T>) -> CloudResult<T> {
    match answer {
        Err(error) if matches!(error.class(), Class::Denied | Class::Invalid) => {
            tracing::warn!(kind, %error, "load balancers of the other kind cannot be looked up");
            Ok(T::default())
        }
        answer => answer,
    }
}

fn refuse_other_kind(
    found: bool,
    kind: &str,
    other: &str,
    name: &LoadBalancerName,
) -> CloudResult<()> {
    if !found {
        return Ok(());
    }
    Err(CloudError::new(
        Class::Conflict,
        format!(
            "cannot update Load Balancer Type annotation {:?} after creation for {kind}: a {other} \
             load balancer {name} exists; set the annotation back, or re-create the Service",
            annotations::TYPE.key
        ),
    ))
}
