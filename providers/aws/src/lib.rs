//! The AWS provider of the cloud controller manager: instances, load balancers, routes, and tags of
//! machines.
//!
//! [`provider`] is the way in. The configuration file is read by [`config`]; [`api`] holds the
//! cloud's calls; [`instances`] answers the node controllers, [`load_balancer`] the service
//! controller, [`routes`] the route controller; [`tagging`] is a controller of its own. What must
//! stay compatible with the Go manager is data in [`names`], [`tags`] and [`annotations`]; what AWS
//! must allow is data in [`iam`].

pub mod annotations;
pub mod api;
pub mod config;
pub mod error;
mod gc;
pub mod iam;
pub mod instances;
pub mod load_balancer;
pub mod names;
mod notes;
mod optional;
mod provider;
pub mod routes;
#[cfg(test)]
mod sim_world;
pub mod tagging;
pub mod tags;

use std::sync::Arc;

use aws_sdk_ec2::config::SharedHttpClient;
use ccm_core::cloud::{Build, Factory, Own};
pub use notes::NOTES;
pub use provider::{Aws, NAME, Site};

/// What only this provider has.
const OWN: Own = Own {
    flags: tagging::FLAGS,
    controllers: &[tagging::CONTROLLER],
};

/// Registers every series of this provider with one sample each, for the reference.
///
/// # Errors
/// A series of that name is registered already.
pub fn sample_metrics(registry: &prometheus::Registry) -> prometheus::Result<()> {
    api::sample_metrics(registry)?;
    tagging::sample_metrics(registry)
}

/// The provider, speaking HTTPS.
pub fn provider() -> Factory {
    Factory::new(
        NAME,
        Arc::new(|build: Build| Box::pin(provider::build(build, api::http_client()))),
    )
    .with_own(OWN)
}

/// The provider over another way out of the process: simulations and tests.
pub fn provider_with(http: SharedHttpClient) -> Factory {
    Factory::new(
        NAME,
        Arc::new(move |build: Build| Box::pin(provider::build(build, http.clone()))),
    )
    .with_own(OWN)
}
