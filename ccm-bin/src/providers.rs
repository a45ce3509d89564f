//! The clouds of this binary: the one place where features decide anything.

use ccm_core::{
    cloud::Factory,
    runtime::{EventRow, SampleMetrics},
};

/// All providers that were compiled in.
pub fn all() -> Vec<Factory> {
    vec![
        #[cfg(feature = "aws")]
        ccm_aws::provider(),
    ]
}

/// What the reference pages say of a cloud.
pub(crate) struct Pages {
    /// The name in `docs PAGE CLOUD`.
    pub(crate) cloud: &'static str,
    /// The page of its annotations.
    pub(crate) annotations: fn() -> String,
    /// The page of its cloud-config file.
    pub(crate) config: fn() -> String,
    /// The page of the permissions that it needs from its cloud.
    pub(crate) permissions: fn() -> String,
    /// A policy with such permissions, by its name.
    pub(crate) policy: fn(&str) -> Option<String>,
    /// Its series.
    pub(crate) metrics: SampleMetrics,
    /// Its events.
    pub(crate) notes: &'static [EventRow],
}

/// The pages of all providers that were compiled in.
pub(crate) fn pages() -> Vec<Pages> {
    vec![
        #[cfg(feature = "aws")]
        Pages {
            cloud: ccm_aws::NAME,
            annotations: ccm_aws::annotations::reference,
            config: ccm_aws::config::config_reference,
            permissions: ccm_aws::iam::iam_reference,
            policy: ccm_aws::iam::policy_named,
            metrics: ccm_aws::sample_metrics,
            notes: ccm_aws::NOTES,
        },
    ]
}
