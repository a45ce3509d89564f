//! The node IPAM controller: gives every Node its pod address ranges, `spec.podCIDRs`
//! (specification: controllers §6).
//!
//! | File | What it answers for |
//! |---|---|
//! | `config` | what the flags mean and which combinations are faults (§6.1). Pure |
//! | `cidr_set` | the blocks of one cluster CIDR (§6.2). Pure |
//! | `allocator` | who holds which blocks and what is to be done for a Node (§6.3). Pure |
//! | `range` | ranges allocated here: the shell around the allocator (§6.3, §6.5) |
//! | `copied` | ranges that the cloud gave to the machine (§6.4) |
//! | `batch` | workers that take several Nodes at once, so that the cloud is asked about many |
//! | `controller` | the constructor, start-up and end |
//!
//! Blocks in use are known from the Nodes alone: the informer's first list is complete before the
//! first allocation, every `podCIDRs` in it is occupied, and nothing is stored elsewhere. So a
//! restart counts nothing twice (REQ-IPAM-02, CASE-IPAM-02).

mod allocator;
mod batch;
mod cidr_set;
mod config;
mod controller;
mod copied;
mod metrics;
mod range;

pub use config::NodeIpamStartError;
pub use controller::{NodeIpamController, NodeIpamError};
pub(crate) use metrics::sample_metrics;
