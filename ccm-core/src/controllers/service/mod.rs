//! Load balancers for Services of type LoadBalancer (specification: controllers §4).
//!
//! | Module | What it answers for |
//! |---|---|
//! | `controller` | which change puts which key into which queue |
//! | `sync` | what to do about one key: pure |
//! | `worker` | doing it: cloud calls, writes, events |
//! | `backends` | the Nodes behind all load balancers, worked out once |
//! | `planned` | what would be done, for those who only want to know |
//! | `memory` | what is kept of each Service between two runs |
//! | [`predicates`] | which Services are ours |
//! | [`needs_update()`] | which changes of a Service matter |
//! | [`targets`] | which Nodes are backends, which changes of a Node matter |
//! | [`source_ranges`], [`health_check`] | helpers for providers |

mod backends;
mod controller;
mod events;
#[cfg(test)]
mod fixtures;
pub mod health_check;
mod memory;
mod metrics;
mod needs_update;
mod planned;
pub mod predicates;
pub mod source_ranges;
mod status;
mod sync;
pub mod targets;
mod worker;

pub use controller::ServiceController;
pub(crate) use metrics::sample_metrics;
pub use needs_update::needs_update;
pub(crate) use planned::{Intent, finalizer_added, finalizer_removed, intent, status_changed};
pub(crate) use worker::OWN_MANAGERS;
