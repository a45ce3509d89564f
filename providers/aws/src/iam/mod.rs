//! What AWS must allow, as a table: from it come the policies and the page under
//! `docs/reference/iam` (specification: aws §6.1).
//!
//! Least privilege: the table has what the code asks for and nothing else, and a policy for each
//! controller has the rows of that controller. Clusters that come from the Go manager carry the
//! policy that its documentation prints; what the code asks for beyond it is optional, and the table
//! says what is lost without.

mod document;
mod page;
mod table;

pub use document::{PolicyName, policy, policy_named};
pub use page::iam_reference;
pub use table::{Need, Part, Right, Scope, rights};

#[cfg(test)]
mod tests;
