//! Which replica works (specification: controllers §7.2).
//!
//! An [`Elector`] takes and holds one Lease together with the Go library's electors: the same
//! fields, the same waits, and expiry judged by how long we saw no change, never by the times in
//! the Lease. Three rules go further:
//!
//! - We lead only after a successful write of our own that named the version it replaces. Our
//!   name in a Lease alone proves nothing.
//! - The [`Fence`](super::Fence) counts from before that write was sent and ends with the renew
//!   deadline, so it is shut before any observer's lease duration is over.
//! - A lease that another took is lost at once, and for good.
//!
//! [`Leadership`] runs one elector, or two under leader migration.

mod elector;
mod fences;
mod leadership;
mod metrics;
mod notes;
mod record;

#[cfg(test)]
mod elector_tests;
#[cfg(test)]
mod fixtures_tests;
#[cfg(test)]
mod leadership_tests;
#[cfg(test)]
mod simulation_tests;

pub use elector::{Acquired, Elector, ElectorParts, Lost, identity};
pub(super) use fences::Fences;
pub use leadership::{Leadership, LeadershipLost};
pub use metrics::LeaderMetrics;
