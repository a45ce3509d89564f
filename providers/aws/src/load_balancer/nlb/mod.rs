//! Network load balancers with instance targets (specification: aws §4.8).
//!
//! | File | |
//! |---|---|
//! | [`desired`] | what a Service wants, pure |
//! | [`observe`] | what the cloud has |
//! | [`listing`] | target groups that a dead process left |
//! | [`plan`] | from one to the other, pure |
//! | [`removal`] | what is left and the order in which it goes, pure |
//! | [`tag_tries`] | how often tagging a group that is not visible yet is tried |
//! | [`apply`] | one action, one call |

mod absorb;
pub mod apply;
pub mod desired;
pub mod listing;
pub mod observe;
pub mod plan;
pub mod removal;
pub mod tag_tries;
