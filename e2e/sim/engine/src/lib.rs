//! Deterministic simulation: the real manager, with its flags and its controllers, over an API
//! server and a cloud in memory, on virtual time, one seed deciding everything.
//!
//! ```text
//!   steps ──> world ──> kubesim  <── tap ─────┐
//!   (plan)      │                             │ every request and call: process, trace,
//!               ├─────> cloud    <── session ─┤ fate, latency, judge
//!               └─────> managers ─────────────┘
//! ```
//!
//! - [`steps`]: what happens (work of people and machines) and what goes wrong. A plan is a list.
//! - [`world`]: carries steps out, starts managers, lets time pass.
//! - [`cloud`]: the cloud, the honest provider for it, and the decisions that can be replaced.
//! - [`tap`] and [`cloud::session`]: the only ways from a manager to the outside; both pass the
//!   same points. [`process`] ends a life at once, [`fate`] strikes, [`trace`] records.
//! - [`judge`]: rules that hold at every moment. [`goal`]: the state at the end. [`run`]: both, for
//!   one plan.
//! - [`random`]: from a seed to a plan. [`shrink`], [`report`]: from a failure to few events and the
//!   command that shows it again.
//! - [`scenarios`] and [`crash`]: every crash point of every canonical scenario.
//!
//! A run is on one thread with paused time; runs are independent of each other and go on all
//! processors.

pub mod cloud;
pub mod crash;
pub mod fate;
pub mod goal;
pub mod judge;
pub mod objects;
pub mod process;
pub mod random;
pub mod report;
pub mod run;
pub mod scenarios;
pub mod shrink;
pub mod steps;
pub mod tap;
pub mod trace;
pub mod world;
