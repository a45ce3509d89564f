//! The bench of the integration tests: a real kube-apiserver and etcd shared by all tests of the
//! process, an emulated AWS and a manager process of its own for each test.
//!
//! There is no kubelet: Nodes and their Ready condition are written by the tests. Tests take turns,
//! since the manager looks at every Node and Service of the cluster; each begins with an empty one.

mod audit;
mod bench;
mod caller;
mod idle;
mod moto;
mod objects;
mod ports;
mod relay;
mod shared;

pub use audit::{AuditMark, Request};
pub use bench::{Bench, CLUSTER_ID, Cloud};
pub use caller::{Caller, Who};
pub use idle::Idle;
pub use moto::{Machine, Moto};
pub use objects::{SCRAPERS, node, node_named, service, tainted};
pub use ports::listening_ports;
pub use relay::Relay;
pub use shared::{Api, api};
