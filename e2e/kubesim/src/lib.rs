//! A Kubernetes API server in the process: sandbox, simulation and controller tests.
//!
//! It keeps its objects in memory and runs on tokio's clock, so a test with paused time
//! controls every timeout. It is spoken to in three ways:
//!
//! - [`KubeSim::service`], a tower service for `kube::Client::new`: no socket, virtual time;
//! - [`KubeSim::serve`], HTTP/1.1 on a listener: for kubectl;
//! - directly ([`KubeSim::get`], [`KubeSim::apply_direct`], …): for tests that arrange or
//!   inspect the store without leaving traces in the request log.
//!
//! Behaviour and wording follow kube-apiserver; where this server knows less (server-side
//! apply, schemas, RBAC, protobuf) it says so in its answer instead of guessing.

mod clock;
mod direct;
mod discovery;
mod errors;
mod faults;
mod handler;
mod inner;
mod kinds;
mod listing;
mod log;
mod meta;
mod object;
mod options;
mod patch;
mod protobuf;
mod represent;
mod request;
mod resources;
mod reviews;
mod schema;
mod selector;
mod serve;
mod service;
mod state;
mod store;
mod table;
mod watch;
mod write;

pub use self::{
    direct::{Faults, KubeSim},
    errors::{ApiError, FieldError},
    faults::{ExpiredStyle, Fault, Outage, Target},
    log::{CountKey, Entry, Mark, Requests},
    options::{Options, User},
    request::Verb,
    resources::Resource,
    serve::{ConnectionError, SimService},
};
