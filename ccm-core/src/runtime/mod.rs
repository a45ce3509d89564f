//! The process around the controllers: clock, randomness, work queue, metrics, serving, shutdown.

mod build_info;
mod clock;
mod context;
mod fence;
mod health;
mod leader;
mod loops;
mod manager;
mod metrics;
mod queue;
mod random;
mod rbac;
mod reference;
mod serving;
mod shutdown;

pub use build_info::BuildInfo;
pub use clock::Clock;
pub use context::{Context, TakeOver};
pub use fence::Fence;
pub use health::{Gate, Health, Probe, ProbeQuery, ProbeReport};
pub use leader::{
    Acquired, Elector, ElectorParts, LeaderMetrics, Leadership, LeadershipLost, Lost, identity,
};
pub use loops::{LoopReport, LoopReporter, Loops};
pub(crate) use manager::read_cloud_config;
pub use manager::{Manager, ManagerError};
pub use metrics::{names_without_home, register_process_metrics};
pub use queue::{Backoff, Outcome, QueueMetrics, Work, WorkQueue, run_workers};
pub use random::Random;
pub use rbac::{
    Identity, LeaseName, Missing, Part, Permission, PermissionCheck, RbacOptions,
    check_permissions, permissions, rbac_manifest, rbac_reference,
};
pub use reference::{EVENTS, EventRow, SampleMetrics, events_reference, metrics_reference, note};
pub use serving::{
    Authenticator, Authorizer, Caller, DelegatedMetrics, Endpoints, Gatekeeper, HeaderNames,
    Inspection, SecureServing, ServingError, SetVerbosity, bearer_token, serve,
};
pub use shutdown::{Ended, Ending, Tasks};
