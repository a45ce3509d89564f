//! Services of type LoadBalancer: the real manager as a process, a real kube-apiserver, an emulated
//! AWS over HTTP. Each module is a stage of a Service's life; `cases` has the fault cases that fit
//! none.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed expectation ends the test"
)]

mod cases;
mod change;
mod clients;
mod create;
mod delete;
mod groups;
mod nodes;
mod restart;
mod setup;
mod view;
