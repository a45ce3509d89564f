//! What this process serves: health and metrics in the clear, and everything an operator may ask
//! on the secure port (specification: controllers §7.3, §7.4).
//!
//! A request on the secure port passes, in this order: TLS ([`tls`], [`certificates`]), the bounds
//! of its connection ([`connection`]), who asks ([`authentication`]), whether they may
//! ([`authorization`]), and only then the routes ([`endpoints`]). Trust in a client certificate is
//! decided per request and not in the handshake, so that a replaced bundle counts at once.

mod answers;
mod authentication;
mod authorization;
mod certificates;
mod connection;
mod endpoints;
mod error;
mod exchange;
mod gatekeeper;
mod identity;
mod metrics;
mod request_header;
mod reviews;
mod secure;
mod sni;
mod tls;
mod trusts;
mod watched;

pub use authentication::{Authenticator, bearer_token};
pub use authorization::Authorizer;
pub use connection::serve;
pub use endpoints::{Endpoints, Inspection, SetVerbosity};
pub use error::ServingError;
pub use gatekeeper::Gatekeeper;
pub use identity::Identity as Caller;
pub use metrics::DelegatedMetrics;
pub(super) use metrics::sample_serving_metrics;
pub use request_header::HeaderNames;
pub use secure::SecureServing;

#[cfg(test)]
mod tests;
