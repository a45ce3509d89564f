//! The controllers: one folder each.

pub mod node;
pub mod node_lifecycle;
pub mod service;
