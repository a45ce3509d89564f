//! The machines behind the Nodes (specification: aws §1.5, §3).
//!
//! [`AwsInstances`] answers the node controllers, [`InstanceStore`] the load balancers. Both read
//! through one [`Describer`], which joins concurrent look-ups into few calls and survives ids that
//! EC2 no longer knows.

mod addresses;
mod batch;
mod describe;
mod fargate;
mod ids;
mod metadata;
mod presence;
mod provider;
mod store;
mod topology;
mod zones;

pub use batch::Batcher;
pub use describe::{Describer, Found};
pub(crate) use describe::{copy, no_answer};
pub use ids::InstanceId;
pub use provider::{AwsInstances, Setup};
pub use store::InstanceStore;
pub use zones::ZoneCache;

#[cfg(test)]
pub(crate) mod fake;
