//! What the emulator does beyond the form of its answers, seen through plain HTTP requests.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy allows them in test functions only, not in what those call"
)]

mod client;
mod ec2;
mod elb;
mod elbv2;
mod faults;
mod iam;
mod routes;
mod security_groups;
mod server;
mod sts;
