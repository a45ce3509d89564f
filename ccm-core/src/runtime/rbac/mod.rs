//! What the API server must allow, as a table: from it come the manifest, the reference page and
//! the check at start (specification: controllers §7.6).
//!
//! Least privilege: the table has what the code asks for and nothing else. Nodes and Services are
//! only patched, never replaced; only `core/v1` events are written; a Lease, a configmap and
//! service accounts are named wherever the API server can check a name. Two things that every
//! authenticated user may do are not in it: `/version`, and to ask what oneself may do.

mod check;
mod manifest;
mod page;
mod table;

pub(super) use check::sample_metrics;
pub use check::{Missing, PermissionCheck, check_permissions};
pub use manifest::rbac_manifest;
pub use page::rbac_reference;
pub use table::{Identity, LeaseName, Part, Permission, RbacOptions, permissions};

#[cfg(test)]
mod tests;
