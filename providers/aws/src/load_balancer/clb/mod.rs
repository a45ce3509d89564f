//! Classic load balancers (specification: aws §4.7).
//!
//! | File | |
//! |---|---|
//! | [`request`] | everything that can be judged without the cloud, pure |
//! | [`health_check`] | how instances are checked, pure |
//! | [`groups`] | which security group's traffic the Nodes must let in, pure |
//! | [`desired`] | what a Service wants, pure |
//! | [`heads`] | load balancers read twenty at a time |
//! | [`observe`] | what the cloud has |
//! | [`plan`] | from one to the other, pure |
//! | [`apply`] | one action, one call |

mod absorb;
pub mod apply;
pub mod desired;
pub mod groups;
pub mod heads;
pub mod health_check;
pub mod observe;
pub mod plan;
pub mod request;
