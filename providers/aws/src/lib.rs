//! The AWS provider of the cloud controller manager: instances, load balancers and routes.
//!
//! [`provider`] is the way in. The configuration file is read by [`config`]; [`api`] holds the
//! cloud's calls; [`instances`] answers the node controllers, [`load_balancer`] the service
//! controller, [`routes`] the route controller. What must stay compatible with the Go manager is data
//! in [`names`], [`tags`] and [`annotations`]; what AWS must allow is data in [`iam`].

pub mod annotations;
pub mod api;
pub mod config;
pub mod error;
pub mod iam;
pub mod instances;
pub mod load_balancer;
pub mod names;
mod notes;
mod optional;
mod provider;
pub mod routes;
pub mod tags;

use std::sync::Arc;

use aws_sdk_ec2::config::SharedHttpClient;
use ccm_core::cloud::{Build, Factory};

pub use api::sample_metrics;
pub use notes::NOTES;
pub use provider::{Aws, NAME, Site};

/// The provider, speaking HTTPS.
pub fn provider() -> Factory {
    Factory {
        name: NAME,
        build: Arc::new(|build: Build| Box::pin(provider::build(build, api::http_client()))),
    }
}

/// The provider over another way out of the process: simulations and tests.
pub fn provider_with(http: SharedHttpClient) -> Factory {
    Factory {
        name: NAME,
        build: Arc::new(move |build: Build| Box::pin(provider::build(build, http.clone()))),
    }
}
