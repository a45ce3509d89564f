//! Routes against the simulated cloud, through the real SDK.

mod bench;
mod calls;
mod controller;
mod crash;
mod world;
