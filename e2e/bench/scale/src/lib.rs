//! What the manager costs with up to 100,000 Nodes. Started by `cargo xtask bench scale`.
//!
//! The manager is a process of its own, so that memory and CPU seconds are its own: the real
//! `ccm-core` with the clients, flags and log of the shipped binary, and a cloud that is small
//! enough not to be what is measured ([`provider`]). API server and cloud are emulated in this
//! process and spoken to over loopback HTTP.

pub mod cloud;
pub mod manager;
pub mod objects;
pub mod provider;
pub mod report;
pub mod run;

pub use self::run::{Options, run};
