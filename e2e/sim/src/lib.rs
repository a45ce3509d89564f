//! The real manager, with its flags and its AWS provider, in the process: kubesim and cloudsim
//! instead of the network, virtual time, and one seed for everything that is random.
//!
//! Run it on a current-thread runtime with paused time. The same seed gives the same log of
//! requests and calls, byte for byte; a test says so.

mod world;

pub use world::{Costs, Start, World};
