//! Which clouds this binary knows, and how one is built (specification: controllers §1.8).

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Cloud, ClusterName, Own, Writes};
use crate::{
    config::{Env, flags},
    runtime::{Clock, Fence, Random},
};

/// The file named by `--cloud-config`, already read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// The path as given, for messages.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// What a provider gets to build itself from.
#[derive(Clone)]
pub struct Build {
    /// The cloud-config file; `None` when the flag is not set.
    pub config: Option<ConfigFile>,
    /// `--cluster-name`.
    pub cluster_name: ClusterName,
    /// The process environment.
    pub env: Env,
    /// The wall clock.
    pub clock: Clock,
    /// Randomness.
    pub random: Random,
    /// Where the provider's metrics go.
    pub metrics: prometheus::Registry,
    /// Asked before every call that changes the cloud, each attempt of it.
    pub fence: Fence,
    /// Whether such calls are made at all.
    pub writes: Writes,
    /// Ends the provider's background work.
    pub shutdown: CancellationToken,
}

/// Why a provider could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The configuration is wrong: trying again cannot help. The text names section, line and key.
    #[error("{0}")]
    Config(String),
    /// The cloud or its metadata service could not be reached or refused us: the manager waits and
    /// tries again.
    #[error("{0}")]
    Unreachable(String),
}

/// The function that builds a provider.
pub type BuildFn =
    Arc<dyn Fn(Build) -> BoxFuture<'static, Result<Arc<dyn Cloud>, BuildError>> + Send + Sync>;

/// A provider that can be built.
#[derive(Clone)]
pub struct Factory {
    /// The name under which `--cloud-provider` selects it.
    pub name: &'static str,
    /// Builds it.
    pub build: BuildFn,
    /// The flags and controllers that only this provider has.
    pub own: Own,
}

impl Factory {
    /// A provider without flags and controllers of its own.
    pub fn new(name: &'static str, build: BuildFn) -> Self {
        Self {
            name,
            build,
            own: Own::default(),
        }
    }

    /// The provider with flags and controllers of its own.
    #[must_use]
    pub const fn with_own(mut self, own: Own) -> Self {
        self.own = own;
        self
    }
}

/// Why a provider was not found or not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Two providers with one name.
    #[error("cloud provider {0:?} is registered twice")]
    Duplicate(&'static str),
    /// Two flags with one name.
    #[error("flag --{0} is registered twice")]
    DuplicateFlag(&'static str),
    /// The binary was built without any cloud.
    #[error(
        "no cloud was compiled into this binary; build it with --features aws (or another cloud)"
    )]
    Empty,
    /// Not one of ours.
    #[error("unknown cloud provider {name:?}; this binary knows: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What is there, comma separated.
        known: String,
    },
}

/// The providers compiled into the binary.
#[derive(Clone, Default)]
pub struct Registry {
    factories: Vec<Factory>,
}

impl Registry {
    /// A registry of the given providers.
    ///
    /// # Errors
    /// Two providers or two flags with one name.
    pub fn new(factories: Vec<Factory>) -> Result<Self, RegistryError> {
        let mut seen = std::collections::BTreeSet::new();
        let mut names: std::collections::BTreeSet<_> = flags().iter().map(|f| f.name).collect();
        for factory in &factories {
            if !seen.insert(factory.name) {
                return Err(RegistryError::Duplicate(factory.name));
            }
            for flag in factory.own.flags {
                if !names.insert(flag.name) {
                    return Err(RegistryError::DuplicateFlag(flag.name));
                }
            }
        }
        Ok(Self { factories })
    }

    /// The names, in the order of registration.
    pub fn names(&self) -> Vec<&'static str> {
        self.factories.iter().map(|f| f.name).collect()
    }

    /// What each provider has of its own, by the provider's name.
    pub fn own(&self) -> impl Iterator<Item = (&'static str, &Own)> {
        self.factories.iter().map(|f| (f.name, &f.own))
    }

    /// The provider of that name.
    ///
    /// # Errors
    /// No provider compiled in, or none of that name.
    pub fn get(&self, name: &str) -> Result<&Factory, RegistryError> {
        if self.factories.is_empty() {
            return Err(RegistryError::Empty);
        }
        self.factories
            .iter()
            .find(|f| f.name == name)
            .ok_or_else(|| RegistryError::Unknown {
                name: name.to_owned(),
                known: self.names().join(", "),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flag, Kind};

    fn factory(name: &'static str) -> Factory {
        Factory::new(
            name,
            Arc::new(|_| {
                Box::pin(async { Err(BuildError::Config("not built in this test".into())) })
            }),
        )
    }

    #[test]
    fn an_unknown_cloud_is_refused_with_the_known_ones() {
        let registry = Registry::new(vec![factory("aws"), factory("gcp")]).unwrap();
        assert!(registry.get("aws").is_ok());
        let error = registry.get("aws/v2").err().unwrap().to_string();
        assert_eq!(
            error,
            "unknown cloud provider \"aws/v2\"; this binary knows: aws, gcp"
        );
    }

    #[test]
    fn an_empty_registry_says_how_to_get_a_cloud() {
        let error = Registry::default().get("aws").err().unwrap();
        assert_eq!(error, RegistryError::Empty);
        assert!(error.to_string().contains("--features aws"));
    }

    #[test]
    fn a_flag_is_registered_once() {
        const TAGS: &[Flag] = &[Flag::of_provider("A", Kind::Pairs, "tags", "", "Tags.")];
        const MASTER: &[Flag] = &[Flag::of_provider("A", Kind::Text, "master", "", "M.")];
        let with = |name, flags| {
            factory(name).with_own(Own {
                flags,
                controllers: &[],
            })
        };
        assert!(Registry::new(vec![with("aws", TAGS)]).is_ok());
        for (factories, twice) in [
            (vec![with("aws", TAGS), with("gcp", TAGS)], "tags"),
            (vec![with("aws", MASTER)], "master"),
        ] {
            let error = Registry::new(factories).err();
            assert_eq!(error, Some(RegistryError::DuplicateFlag(twice)));
        }
    }

    #[test]
    fn a_name_is_registered_once() {
        assert_eq!(
            Registry::new(vec![factory("aws"), factory("aws")]).err(),
            Some(RegistryError::Duplicate("aws"))
        );
    }
}
