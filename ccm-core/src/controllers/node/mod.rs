//! The cloud-node controller: initialises new Nodes and keeps their addresses as the cloud has them
//! (specification: controllers §2).
//!
//! | File | What it decides |
//! |---|---|
//! | `initialise` | what one Node gets, and whether it may lose the cloud taint |
//! | `addresses` | the address list: node IP asked for by the kubelet, host names, order |
//! | `labels` | topology and type labels, additional labels, the old and new names of a label |
//! | `lost_answers` | Nodes whose initialisation was sent and not answered |
//! | `throttle` | until when the cloud wants no question |
//! | `planned` | what would be written, for those who only want to know |
//! | `controller` | when: queue, batches, retries, the periodic pass. All I/O is there |

mod addresses;
mod controller;
mod initialise;
mod labels;
mod lost_answers;
mod metrics;
mod planned;

pub use addresses::NodeIpError;
#[doc(hidden)]
pub use addresses::parse_node_ips;
pub use controller::NodeController;
pub use initialise::UNINITIALIZED_TAINT;

pub(crate) use controller::age;
pub(crate) use initialise::is_uninitialised;
pub(crate) use metrics::sample_metrics;
pub(crate) use planned::{Options as PlanOptions, planned, taint_lines};
