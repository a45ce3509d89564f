//! The service controller as a whole: informers, queues, workers and writes against a Kubernetes
//! API in the process and a cloud in memory, on virtual time.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this is how a test fails; the helpers of a test binary are not recognised as tests"
)]

mod bench;
mod cloud;
mod deletion;
mod failures;
mod foreign;
mod freeze;
mod lifecycle;
mod nodes;
mod repair;
