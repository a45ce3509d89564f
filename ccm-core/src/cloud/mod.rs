//! The seam between the controllers and a cloud: what a provider implements.
//!
//! Signatures take many where a cloud can answer for many. *Absent* is proved, never inferred from
//! a partial or failed answer: a read that failed in any part is an error for the whole read.
//! Mirrors the provider interface of the Go framework (specification: controllers §1).

mod error;
mod fenced;
mod instances;
mod leftovers;
mod load_balancers;
mod names;
mod own;
mod pod_cidrs;
mod registry;
mod routes;
mod writes;

pub use error::{Class, CloudError, CloudResult};
pub(crate) use fenced::{fenced_load_balancers, fenced_routes};
pub use instances::{InstanceMetadata, Instances, Power, Presence, Read};
pub use leftovers::{Leftover, LeftoverKind, Leftovers, Owners, Removal};
pub use load_balancers::{Ensured, LoadBalancers, Note, Updated};
pub use names::{ClusterName, LoadBalancerName, NameError, NodeName, ProviderId};
pub use own::{Own, OwnContext, OwnController, OwnRule, OwnRun};
pub use pod_cidrs::{
    CloudPodCidrs, MachineMasks, MachinePodCidrs, NodeIpamPolicy, NodeMasks, PodCidrs,
};
pub use registry::{Build, BuildError, ConfigFile, Factory, Registry, RegistryError};
pub use routes::{Route, Routes, WantedRoute};
pub use writes::{KNOWN_AFTER_APPLY, RecordedWrite, Recorder, Writes};

use std::sync::Arc;

use crate::config::ControllerName;

/// A cloud, as the manager sees it. A capability that is `None` means that the controller that
/// needs it is skipped; the others run.
pub trait Cloud: Send + Sync + 'static {
    /// The name under which `--cloud-provider` selects it.
    fn name(&self) -> &'static str;

    /// Whether the provider knows which cluster it serves. `false` ends the process unless
    /// `--allow-untagged-cloud` is given.
    fn has_cluster_id(&self) -> bool {
        true
    }

    /// The machines behind the Nodes.
    fn instances(&self) -> Option<Arc<dyn Instances>> {
        None
    }

    /// The load balancers behind Services of type LoadBalancer.
    fn load_balancers(&self) -> Option<Arc<dyn LoadBalancers>> {
        None
    }

    /// The routes to the pods of every Node.
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        None
    }

    /// Pod address ranges that the cloud hands out, for `--cidr-allocator-type=CloudAllocator`.
    fn pod_cidrs(&self) -> Option<PodCidrs> {
        None
    }

    /// The controllers that this provider's Go manager does not run, or only when
    /// `--controllers` names them: `*` does not start them.
    fn off_by_default(&self) -> &'static [ControllerName] {
        &[]
    }

    /// What wrong combinations of the node IPAM flags do.
    fn node_ipam_policy(&self) -> NodeIpamPolicy {
        NodeIpamPolicy::default()
    }

    /// What the cluster left behind.
    fn leftovers(&self) -> Option<Arc<dyn Leftovers>> {
        None
    }

    /// Whether the provider was built with [`Writes::Recorded`] and keeps to it: what it is asked
    /// to change it records and does not change.
    fn records_writes(&self) -> bool {
        false
    }

    /// Makes a controller of [`Factory::own`](Factory). The error names the flag and the fix, and
    /// ends the process: the provider said itself that it has this controller.
    ///
    /// # Errors
    /// The provider's flags do not fit together, or there is no such controller.
    fn own_controller(&self, name: ControllerName, _: &OwnContext<'_>) -> Result<OwnRun, String> {
        Err(format!("{} has no controller {name}", self.name()))
    }

    /// Called once on the replica that leads, before the first controller runs (REQ-APP-16).
    fn initialize(&self) {}
}
