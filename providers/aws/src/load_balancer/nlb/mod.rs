//! Network load balancers with instance targets (specification: aws §4.8).
//!
//! | File | |
//! |---|---|
//! | [`desired`] | what a Service wants, pure |
//! | [`observe`] | what the cloud has |
//! | [`listing`] | target groups that a dead process left |
//! | [`plan`] | from one to the other, pure |
//! | [`apply`] | one action, one call |

mod absorb;
pub mod apply;
pub mod desired;
pub mod listing;
pub mod observe;
pub mod plan;
