//! The route controller: one route in the cloud for each range of pod addresses of each Node
//! (specification: controllers §5).
//!
//! | File | What it decides |
//! |---|---|
//! | `start` | whether the controller runs, and for which ranges |
//! | `plan` | which routes go and come, and what each Node still misses |
//! | `schedule` | in which calls, and in which order: what is in a route's way goes first |
//! | `condition` | the condition `NetworkUnavailable`, and whether it is to be written |
//! | `trigger` | what begins a pass, and how far apart passes are |
//! | `pass` | one pass. All calls to the cloud are there |
//! | `announce` | its last part. All calls to the API server are there |
//! | `planned` | what would be done, for those who only want to know |
//! | `controller` | when: by the clock, or by changes of Nodes |

mod announce;
mod condition;
mod controller;
mod metrics;
mod pass;
mod plan;
mod planned;
mod schedule;
mod start;
mod trigger;

pub use controller::RouteController;
pub(crate) use metrics::sample_metrics;
pub(crate) use planned::{Planned, planned};
#[doc(hidden)]
pub use start::ClusterCidrs;
pub use start::{RouteStart, RouteStartError};
