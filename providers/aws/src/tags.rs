//! Cluster tags: which cluster we are, what is ours, and what we write (specification: aws §2).

use std::collections::BTreeMap;

use ccm_core::cloud::CloudError;

/// Tags of a cloud resource.
pub type Tags = BTreeMap<String, String>;

/// The prefix of the cluster tag's key; the cluster id follows.
pub const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
/// The key of the legacy cluster tag; its value is the cluster id.
pub const LEGACY_CLUSTER: &str = "KubernetesCluster";
/// The tag on load balancers that names the Service as `<namespace>/<name>`.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The role tag of subnets for internet-facing load balancers; its value does not matter.
pub const ROLE_ELB: &str = "kubernetes.io/role/elb";
/// The role tag of subnets for internal load balancers; its value does not matter.
pub const ROLE_INTERNAL_ELB: &str = "kubernetes.io/role/internal-elb";

/// The value of the cluster tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// The resource lives and dies with the cluster's object.
    Owned,
    /// Others use it too.
    Shared,
}

impl Lifecycle {
    /// The tag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owned => "owned",
            Self::Shared => "shared",
        }
    }
}

/// Why the cluster cannot be determined from configuration or tags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// The legacy id and the id differ.
    #[error("clusterID tags did not match: {id:?} vs {legacy:?}; set both to the same cluster id")]
    Mismatch {
        /// From `kubernetes.io/cluster/<id>` or `KubernetesClusterID`.
        id: String,
        /// From `KubernetesCluster` or `KubernetesClusterTag`.
        legacy: String,
    },
    /// More than one cluster claims the instance.
    #[error(
        "Found multiple cluster tags with prefix {CLUSTER_PREFIX} ({first:?} and {second:?}); \
         keep one, or set KubernetesClusterID in the cloud config"
    )]
    Several {
        /// The first id.
        first: String,
        /// The second id.
        second: String,
    },
    /// The legacy tag is there twice.
    #[error("Found multiple {LEGACY_CLUSTER} tags ({first:?} and {second:?})")]
    SeveralLegacy {
        /// The first value.
        first: String,
        /// The second value.
        second: String,
    },
    /// An operation that needs the cluster id was asked without one.
    #[error("cluster id is empty: cannot tell whether the resource is owned by this cluster")]
    NoClusterId,
}

/// The cluster's identity in tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTags {
    id: String,
    legacy: bool,
}

impl ClusterTags {
    /// The identity from a legacy id and an id, as given by the configuration or found in tags.
    /// Empty texts count as absent. `None` when both are absent.
    ///
    /// # Errors
    /// Both are given and differ.
    pub fn new(legacy: &str, id: &str) -> Result<Option<Self>, TagError> {
        if legacy.is_empty() {
            return Ok((!id.is_empty()).then(|| Self {
                id: id.to_owned(),
                legacy: false,
            }));
        }
        if !id.is_empty() && id != legacy {
            return Err(TagError::Mismatch {
                id: id.to_owned(),
                legacy: legacy.to_owned(),
            });
        }
        Ok(Some(Self {
            id: legacy.to_owned(),
            legacy: true,
        }))
    }

    /// The identity from the tags of the own instance. `None` when they name no cluster.
    ///
    /// # Errors
    /// The tags name two clusters.
    pub fn from_tags<'a>(
        tags: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<Option<Self>, TagError> {
        let mut id: Option<&str> = None;
        let mut legacy: Option<&str> = None;
        for (key, value) in tags {
            if let Some(second) = key.strip_prefix(CLUSTER_PREFIX) {
                if let Some(first) = id {
                    return Err(TagError::Several {
                        first: first.to_owned(),
                        second: second.to_owned(),
                    });
                }
                id = Some(second);
            }
            if key == LEGACY_CLUSTER {
                if let Some(first) = legacy {
                    return Err(TagError::SeveralLegacy {
                        first: first.to_owned(),
                        second: value.clone(),
                    });
                }
                legacy = Some(value);
            }
        }
        Self::new(legacy.unwrap_or_default(), id.unwrap_or_default())
    }

    /// The cluster id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether the legacy tag is written too.
    pub const fn uses_legacy(&self) -> bool {
        self.legacy
    }

    /// The key of the cluster tag.
    pub fn key(&self) -> String {
        format!("{CLUSTER_PREFIX}{}", self.id)
    }

    /// Whether the resource belongs to the cluster in any way: the cluster tag is there with any
    /// value, or the legacy tag names the cluster. Other clusters' tags do not matter. True for
    /// everything when the cluster id is empty.
    pub fn has_cluster_tag(&self, tags: &Tags) -> bool {
        self.id.is_empty() || self.is_legacy_ours(tags) || tags.contains_key(&self.key())
    }

    /// Whether the resource is the cluster's alone: cluster tag `owned`, or the legacy tag names
    /// the cluster.
    ///
    /// # Errors
    /// The cluster id is empty.
    pub fn has_cluster_tag_owned(&self, tags: &Tags) -> Result<bool, TagError> {
        if self.id.is_empty() {
            return Err(TagError::NoClusterId);
        }
        Ok(self.is_legacy_ours(tags)
            || tags
                .get(&self.key())
                .is_some_and(|value| value == Lifecycle::Owned.as_str()))
    }

    /// `extra` with the cluster's own tags, which win over user tags of the same key.
    #[must_use]
    pub fn build(&self, lifecycle: Lifecycle, mut extra: Tags) -> Tags {
        if self.id.is_empty() {
            return extra;
        }
        if self.legacy {
            extra.insert(LEGACY_CLUSTER.to_owned(), self.id.clone());
        }
        extra.insert(self.key(), lifecycle.as_str().to_owned());
        extra
    }

    /// The cluster's own tags that `have` lacks, to be written onto a resource found by name.
    /// A present but empty value counts as lacking.
    ///
    /// # Errors
    /// A tag is there with another value (class `Conflict`): the resource is someone else's.
    pub fn missing(
        &self,
        resource: &str,
        lifecycle: Lifecycle,
        have: &Tags,
    ) -> Result<Tags, CloudError> {
        let mut missing = self.build(lifecycle, Tags::new());
        for (key, want) in &missing {
            match have.get(key).map(String::as_str) {
                None | Some("") => {}
                Some(value) if value == want => {}
                Some(value) => {
                    return Err(CloudError::new(
                        ccm_core::cloud::Class::Conflict,
                        format!(
                            "resource {resource:?} has tag belonging to another cluster: \
                             {key:?}={value:?} (expected {want:?})"
                        ),
                    ));
                }
            }
        }
        missing.retain(|key, want| have.get(key) != Some(want));
        Ok(missing)
    }

    fn is_legacy_ours(&self, tags: &Tags) -> bool {
        tags.get(LEGACY_CLUSTER) == Some(&self.id)
    }
}

/// Whether no cluster at all claims the resource. The legacy tag is not looked at.
pub fn has_no_cluster_prefix_tag(tags: &Tags) -> bool {
    !tags.keys().any(|key| key.starts_with(CLUSTER_PREFIX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn cluster(id: &str) -> ClusterTags {
        ClusterTags {
            id: id.to_owned(),
            legacy: false,
        }
    }

    fn found(pairs: &[(&str, &str)]) -> Result<Option<ClusterTags>, TagError> {
        ClusterTags::from_tags(&tags(pairs))
    }

    /// REQ-AWS-TAG-1, REQ-AWS-TAG-2, REQ-AWS-TAG-3, REQ-AWS-TAG-4
    #[test]
    fn the_cluster_is_read_from_the_tags_of_the_own_instance() {
        assert_eq!(found(&[]), Ok(None));
        let legacy = found(&[("KubernetesCluster", "a")]).unwrap().unwrap();
        assert_eq!((legacy.id(), legacy.uses_legacy()), ("a", true));
        for value in ["owned", "shared", ""] {
            let new = found(&[("kubernetes.io/cluster/a", value)])
                .unwrap()
                .unwrap();
            assert_eq!((new.id(), new.uses_legacy()), ("a", false));
        }
        let both = found(&[
            ("KubernetesCluster", "a"),
            ("kubernetes.io/cluster/a", "owned"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!((both.id(), both.uses_legacy()), ("a", true));
        assert_eq!(found(&[("kubernetes.io/cluster/", "owned")]), Ok(None));
    }

    /// REQ-AWS-TAG-5, REQ-AWS-TAG-6, REQ-AWS-CFG-13
    #[test]
    fn two_clusters_in_the_tags_are_an_error() {
        let error = found(&[
            ("kubernetes.io/cluster/a", "owned"),
            ("kubernetes.io/cluster/b", "owned"),
        ])
        .unwrap_err()
        .to_string();
        assert!(
            error.starts_with("Found multiple cluster tags with prefix"),
            "{error}"
        );
        let error = found(&[
            ("KubernetesCluster", "a"),
            ("kubernetes.io/cluster/b", "owned"),
        ])
        .unwrap_err()
        .to_string();
        assert!(error.contains("clusterID tags did not match"), "{error}");
        assert!(
            ClusterTags::new("a", "b")
                .unwrap_err()
                .to_string()
                .contains("did not match")
        );
        let (key, a, b) = (LEGACY_CLUSTER.to_owned(), "a".to_owned(), "b".to_owned());
        assert!(matches!(
            ClusterTags::from_tags([(&key, &a), (&key, &b)]),
            Err(TagError::SeveralLegacy { .. })
        ));
    }

    /// REQ-AWS-TAG-7
    #[test]
    fn a_cluster_tag_of_any_value_makes_it_ours() {
        let ours = cluster("cl1");
        let c = "kubernetes.io/cluster/cl1";
        for (pairs, want) in [
            (&[][..], false),
            (&[("KubernetesCluster", "cl1")][..], true),
            (&[("KubernetesCluster", "a")][..], false),
            (&[(c, "owned")][..], true),
            (&[(c, "")][..], true),
            (&[("KubernetesCluster", "a"), (c, "shared")][..], true),
            (
                &[(c, "shared"), ("kubernetes.io/cluster/b", "shared")][..],
                true,
            ),
        ] {
            assert_eq!(ours.has_cluster_tag(&tags(pairs)), want, "{pairs:?}");
        }
        assert!(cluster("").has_cluster_tag(&Tags::new()));
    }

    /// REQ-AWS-TAG-8
    #[test]
    fn resources_without_any_cluster_tag_are_recognised() {
        assert!(has_no_cluster_prefix_tag(&tags(&[])));
        assert!(has_no_cluster_prefix_tag(&tags(&[("x", "y")])));
        assert!(!has_no_cluster_prefix_tag(&tags(&[
            ("x", "y"),
            ("kubernetes.io/cluster/test.cluster", "owned")
        ])));
    }

    /// REQ-AWS-TAG-9
    #[test]
    fn ownership_needs_the_value_owned_or_the_legacy_tag() {
        assert_eq!(
            cluster("").has_cluster_tag_owned(&Tags::new()),
            Err(TagError::NoClusterId)
        );
        let c = "kubernetes.io/cluster/cl1";
        for (pairs, want) in [
            (&[("KubernetesCluster", "cl1")][..], true),
            (&[("KubernetesCluster", "other")][..], false),
            (&[(c, "owned")][..], true),
            (&[(c, "shared")][..], false),
            (&[("kubernetes.io/cluster/other", "owned")][..], false),
            (&[][..], false),
            (&[("KubernetesCluster", "cl1"), (c, "shared")][..], true),
            (&[("KubernetesCluster", "other"), (c, "owned")][..], true),
            (&[("KubernetesCluster", "other"), (c, "shared")][..], false),
        ] {
            let owned = cluster("cl1").has_cluster_tag_owned(&tags(pairs));
            assert_eq!(owned, Ok(want), "{pairs:?}");
        }
    }

    /// REQ-AWS-TAG-11, REQ-AWS-TAG-12
    #[test]
    fn cluster_tags_win_over_user_tags() {
        let user = tags(&[("kubernetes.io/cluster/cl1", "shared"), ("k", "v")]);
        let built = cluster("cl1").build(Lifecycle::Owned, user.clone());
        assert_eq!(
            built,
            tags(&[("kubernetes.io/cluster/cl1", "owned"), ("k", "v")])
        );
        let legacy = ClusterTags::new("cl1", "").unwrap().unwrap();
        let built = legacy.build(Lifecycle::Owned, user);
        assert_eq!(
            built,
            tags(&[
                ("KubernetesCluster", "cl1"),
                ("kubernetes.io/cluster/cl1", "owned"),
                ("k", "v")
            ])
        );
    }

    /// REQ-AWS-TAG-13, REQ-AWS-TAG-14, REQ-AWS-TAG-15
    #[test]
    fn only_missing_or_empty_cluster_tags_are_repaired() {
        let ours = cluster("cl1");
        let want = tags(&[("kubernetes.io/cluster/cl1", "owned")]);
        for have in [
            tags(&[]),
            tags(&[("kubernetes.io/cluster/cl1", "")]),
            tags(&[("kubernetes.io/cluster/other", "owned")]),
        ] {
            assert_eq!(ours.missing("sg-1", Lifecycle::Owned, &have).unwrap(), want);
        }
        assert!(
            ours.missing("sg-1", Lifecycle::Owned, &want)
                .unwrap()
                .is_empty()
        );
        let shared = tags(&[("kubernetes.io/cluster/cl1", "shared")]);
        let error = ours.missing("sg-1", Lifecycle::Owned, &shared).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("has tag belonging to another cluster")
        );
    }

    proptest! {
        #[test]
        fn no_tags_make_the_reader_panic(
            have in proptest::collection::btree_map(
                "(kubernetes.io/cluster/[ab]?|KubernetesCluster|.{0,8})", "[ab]?|owned|shared|.{0,8}", 0..4),
        ) {
            let Ok(Some(cluster)) = ClusterTags::from_tags(&have) else {
                return Ok(());
            };
            prop_assert!(cluster.has_cluster_tag(&have));
            // What we write names us again.
            let written = cluster.build(Lifecycle::Owned, Tags::new());
            prop_assert_eq!(ClusterTags::from_tags(&written), Ok(Some(cluster.clone())));
            prop_assert_eq!(cluster.has_cluster_tag_owned(&written), Ok(true));
            prop_assert!(cluster.missing("r", Lifecycle::Owned, &written).unwrap().is_empty());
            // What is missing, once written, is missing no more.
            if let Ok(missing) = cluster.missing("r", Lifecycle::Owned, &have) {
                let mut all = have.clone();
                all.extend(missing);
                prop_assert!(cluster.missing("r", Lifecycle::Owned, &all).unwrap().is_empty());
            }
        }
    }
}
