//! A real kube-apiserver with etcd, and the manager as a process: for the integration tests and
//! for `cargo xtask sandbox --real`.
//!
//! The Go modules beside this crate pin the versions; `cargo xtask setup` builds them. Everything
//! listens on 127.0.0.1 on free ports, keeps its files in a temporary folder and ends with its
//! owner, also when the owner is killed.

mod access;
mod api_server;
mod authority;
mod binaries;
mod kubeconfig;
mod manager;
mod process;

pub use access::{MANAGER_ACCOUNT, account_token, account_user, apply, wait_until_granted};
pub use api_server::{ApiServer, AuditCounts, is_write};
pub use authority::{Authority, Pair};
pub use binaries::{Binaries, go_leader, variable};
pub use kubeconfig::kubeconfig;
pub use manager::{Manager, ManagerOptions, cloud_config};
pub use process::{Process, free_port};
