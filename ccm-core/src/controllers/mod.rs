//! The controllers. None of them knows a cloud.

pub mod node;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod route;
pub mod service;
mod throttle;

pub(crate) use throttle::{Throttle, wait_named};
