//! The provider of the cloud in memory: what the manager gets.

use std::sync::Arc;

use ccm_core::cloud::{Cloud, Factory, Instances, LoadBalancers, NodeIpamPolicy, PodCidrs, Routes};

use super::{Craft, MemCloud, Session, session::Lines};
use crate::process::Process;

/// The name under which `--cloud-provider` selects it.
pub const NAME: &str = "memory";

/// The capabilities; clones share the session.
#[derive(Clone)]
pub struct Provider {
    /// The way to the cloud.
    pub session: Session,
    /// Whether the ranges of pods are the cloud's: not every manager may have them from there.
    pub policy: NodeIpamPolicy,
}

impl Cloud for Provider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn instances(&self) -> Option<Arc<dyn Instances>> {
        Some(Arc::new(self.clone()))
    }

    fn load_balancers(&self) -> Option<Arc<dyn LoadBalancers>> {
        Some(Arc::new(self.clone()))
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(Arc::new(self.clone()))
    }

    fn pod_cidrs(&self) -> Option<PodCidrs> {
        Some(PodCidrs::Copied(Arc::new(self.clone())))
    }

    fn node_ipam_policy(&self) -> NodeIpamPolicy {
        self.policy
    }
}

/// The factory for one process.
pub fn factory(
    cloud: MemCloud,
    lines: Lines,
    process: Arc<Process>,
    craft: Arc<dyn Craft>,
    policy: NodeIpamPolicy,
) -> Factory {
    Factory::new(
        NAME,
        Arc::new(move |build| {
            let session = Session::new(
                cloud.clone(),
                lines.clone(),
                Arc::clone(&process),
                build.fence,
                Arc::clone(&craft),
            );
            Box::pin(async move { Ok(Arc::new(Provider { session, policy }) as Arc<dyn Cloud>) })
        }),
    )
}
