//! The tagging controller: gives the instances of Nodes tags of the user's choice (specification:
//! aws §3.8). Only AWS has it, and it runs only when `--controllers` names it.
//!
//! | File | What it answers for |
//! |---|---|
//! | `flags` | its flags, and what of them fits together |
//! | `plan` | which Nodes need tags, and what an error means. Pure |
//! | `batch` | joining the calls of several workers |
//! | `controller` | events, queue and workers |

mod batch;
mod controller;
mod flags;
mod metrics;
mod plan;
#[cfg(test)]
mod sim_tests;

use ccm_core::{
    cloud::{OwnController, OwnRule},
    config::ControllerName,
};

pub use controller::{Setup, TaggingController};
pub use flags::{FLAGS, InputError, TaggingSettings};
pub use metrics::sample_metrics;

/// The name in `--controllers`.
pub const TAGGING: ControllerName = ControllerName::own("tagging", "tagging");

/// What it needs of the manager.
pub const CONTROLLER: OwnController = OwnController {
    name: TAGGING,
    account: "tagging-controller",
    rules: &[OwnRule {
        resource: "nodes",
        verbs: &["patch"],
        why: "the label that says with which tags a machine was tagged",
    }],
};
