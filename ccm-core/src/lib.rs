//! The cloud-neutral half of the cloud controller manager.
//!
//! | Module | What it answers for |
//! |---|---|
//! | [`cloud`] | the seam: what a provider implements |
//! | [`controllers`] | node, node lifecycle, service: one folder each |
//! | [`kube`] | slim API types, informers, writes, events |
//! | [`runtime`] | manager, work queue, clock, randomness, metrics, serving, shutdown |
//! | [`config`] | one item per flag, typed settings out of them |
//! | [`session`] | one look at cluster and cloud with the manager's flags |
//! | [`plan`] | what the manager would change |
//! | [`gc`] | what the cluster left behind in the cloud |
//! | [`converge`] | the plan-apply loop that every provider shares |
//!
//! Nothing here knows a cloud, and nothing reads the clock, the environment or randomness except
//! through [`runtime::Clock`], [`runtime::Random`] and [`config::Env`].

pub mod cloud;
pub mod config;
pub mod controllers;
pub mod converge;
pub mod gc;
pub mod kube;
pub mod plan;
pub mod runtime;
pub mod session;
