//! Passes against the simulated cloud, through the real SDK.

mod bench;
mod classic;
mod classic_groups;
mod classic_removal;
mod crash;
mod groups;
mod passes;
mod released;
mod removal;
mod rules;
mod target_groups;
mod waiting;
