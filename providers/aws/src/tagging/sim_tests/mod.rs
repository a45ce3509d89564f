//! The tagging controller in a whole manager, between an API server in the process and the simulated
//! cloud.

mod batching;
mod nodes;
mod start;
mod world;
