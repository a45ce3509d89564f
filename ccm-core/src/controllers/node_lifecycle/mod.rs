//! The node lifecycle controller: deletes Nodes whose machine is gone and marks those whose machine
//! is shut down (specification: controllers §3).
//!
//! | File | What it decides |
//! |---|---|
//! | `proofs` | when the absence of a machine is proved (§3.4) |
//! | `taints` | the shutdown taint |
//! | `planned` | what would be done, for those who only want to know |
//! | `controller` | the monitor rounds. All I/O is there |

mod controller;
mod metrics;
mod planned;
mod proofs;
mod taints;

pub use controller::NodeLifecycleController;
pub(crate) use metrics::sample_metrics;
pub(crate) use planned::{Planned, planned};
pub use taints::SHUTDOWN_TAINT;
