//! What a type needs to be kept by an informer.

use std::{borrow::Cow, fmt};

use k8s_openapi::{api::core::v1, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use super::{Node, Service};

/// A kind of objects that an informer keeps.
pub trait Cached:
    Clone + fmt::Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
    /// The API's own type: kind, version and path.
    type Api: Resource<DynamicType = ()>;

    /// The namespace; empty for cluster-scoped kinds.
    fn namespace(&self) -> &str;

    /// The name.
    fn name(&self) -> &str;

    /// `metadata.resourceVersion`.
    fn version(&self) -> &Option<String>;

    /// The same, to change it.
    fn version_mut(&mut self) -> &mut Option<String>;

    /// Drops what nothing here reads and what is big. Every object that is kept goes through this,
    /// from a watch or from the answer to a write: else the two would seem to differ.
    fn trim(&mut self);
}

/// Big, and nothing here reads it.
const DROPPED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl Cached for Node {
    type Api = v1::Node;

    fn namespace(&self) -> &str {
        ""
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn version(&self) -> &Option<String> {
        &self.metadata.resource_version
    }

    fn version_mut(&mut self) -> &mut Option<String> {
        &mut self.metadata.resource_version
    }

    fn trim(&mut self) {
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.remove(DROPPED_ANNOTATION);
        }
    }
}

impl Cached for Service {
    type Api = v1::Service;

    fn namespace(&self) -> &str {
        Self::namespace(self)
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn version(&self) -> &Option<String> {
        &self.metadata.resource_version
    }

    fn version_mut(&mut self) -> &mut Option<String> {
        &mut self.metadata.resource_version
    }

    fn trim(&mut self) {
        self.metadata.managed_fields = None;
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.remove(DROPPED_ANNOTATION);
        }
    }
}

/// An object on its way from the client library, which wants metadata of its own type and reads
/// nothing of it but the version.
#[derive(Clone, Debug)]
pub(crate) struct Wire<K> {
    meta: ObjectMeta,
    /// The object, trimmed.
    pub(crate) object: K,
}

impl<'de, K: Cached> Deserialize<'de> for Wire<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = K::deserialize(deserializer)?;
        object.trim();
        Ok(Self {
            meta: ObjectMeta {
                resource_version: object.version().clone(),
                ..ObjectMeta::default()
            },
            object,
        })
    }
}

impl<K: Cached> Resource for Wire<K> {
    type DynamicType = ();
    type Scope = <K::Api as Resource>::Scope;

    fn kind(dt: &()) -> Cow<'_, str> {
        K::Api::kind(dt)
    }

    fn group(dt: &()) -> Cow<'_, str> {
        K::Api::group(dt)
    }

    fn version(dt: &()) -> Cow<'_, str> {
        K::Api::version(dt)
    }

    fn plural(dt: &()) -> Cow<'_, str> {
        K::Api::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
