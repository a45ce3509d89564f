//! The kinds that are served, in one table.

/// How a kind is served and stored.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group, empty for core.
    pub group: &'static str,
    /// Version inside the group.
    pub version: &'static str,
    /// Lower-case plural as in paths.
    pub plural: &'static str,
    /// Lower-case singular for kubectl.
    pub singular: &'static str,
    /// CamelCase kind.
    pub kind: &'static str,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Short names for kubectl.
    pub short: &'static [&'static str],
    /// Subresources, with the kind each of them speaks.
    pub subresources: &'static [(&'static str, &'static str)],
    /// Key of the table the objects are stored in: two resources may share one (events).
    pub storage: &'static str,
    /// Whether objects are only created and never stored (reviews).
    pub create_only: bool,
    /// Whether a PUT of an unknown name creates.
    pub create_on_update: bool,
    /// Whether a PUT may leave out the resourceVersion.
    pub unconditional_update: bool,
    /// Whether DELETE answers with the object instead of a Status.
    pub returns_deleted: bool,
}

impl Resource {
    /// `services`, or `leases.coordination.k8s.io` outside core.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `Service`, or `Lease.coordination.k8s.io` outside core.
    #[must_use]
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_owned()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// `v1` or `coordination.k8s.io/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether the subresource exists.
    #[must_use]
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources.iter().any(|(n, _)| *n == name)
    }
}

const BASE: Resource = Resource {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    namespaced: true,
    short: &[],
    subresources: &[],
    storage: "",
    create_only: false,
    create_on_update: false,
    unconditional_update: true,
    returns_deleted: false,
};

/// Stands for `ListOptions` in errors about query parameters.
pub(crate) static LIST_OPTIONS: Resource = Resource {
    group: "meta.k8s.io",
    kind: "ListOptions",
    ..BASE
};

/// Storage key of Services.
pub(crate) const SERVICES: &str = "services";
/// Storage key of Nodes.
pub(crate) const NODES: &str = "nodes";
/// Storage key of Namespaces.
pub(crate) const NAMESPACES: &str = "namespaces";
/// Storage key of both kinds of events.
pub(crate) const EVENTS: &str = "events";
/// Storage key of Secrets.
pub(crate) const SECRETS: &str = "secrets";
/// Storage key of Pods.
pub(crate) const PODS: &str = "pods";
/// Storage key of Leases.
pub(crate) const LEASES: &str = "leases";
/// Storage key of ServiceAccounts.
pub(crate) const SERVICE_ACCOUNTS: &str = "serviceaccounts";
/// Storage key of Endpoints.
pub(crate) const ENDPOINTS: &str = "endpoints";
/// Storage key of EndpointSlices.
pub(crate) const ENDPOINT_SLICES: &str = "endpointslices";
/// API group of the newer events.
pub(crate) const EVENTS_GROUP: &str = "events.k8s.io";

/// All resources, core first, then by group.
pub(crate) static RESOURCES: &[Resource] = &[
    Resource {
        plural: "configmaps",
        singular: "configmap",
        kind: "ConfigMap",
        short: &["cm"],
        storage: "configmaps",
        ..BASE
    },
    Resource {
        plural: "endpoints",
        singular: "endpoints",
        kind: "Endpoints",
        short: &["ep"],
        storage: ENDPOINTS,
        create_on_update: true,
        ..BASE
    },
    Resource {
        plural: "events",
        singular: "event",
        kind: "Event",
        short: &["ev"],
        storage: EVENTS,
        create_on_update: true,
        ..BASE
    },
    Resource {
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        namespaced: false,
        short: &["ns"],
        subresources: &[("finalize", "Namespace"), ("status", "Namespace")],
        storage: NAMESPACES,
        returns_deleted: true,
        ..BASE
    },
    Resource {
        plural: "nodes",
        singular: "node",
        kind: "Node",
        namespaced: false,
        short: &["no"],
        subresources: &[("status", "Node")],
        storage: NODES,
        ..BASE
    },
    Resource {
        plural: "pods",
        singular: "pod",
        kind: "Pod",
        short: &["po"],
        subresources: &[("status", "Pod")],
        storage: PODS,
        returns_deleted: true,
        ..BASE
    },
    Resource {
        plural: "secrets",
        singular: "secret",
        kind: "Secret",
        storage: SECRETS,
        ..BASE
    },
    Resource {
        plural: "serviceaccounts",
        singular: "serviceaccount",
        kind: "ServiceAccount",
        short: &["sa"],
        subresources: &[("token", "TokenRequest")],
        storage: SERVICE_ACCOUNTS,
        returns_deleted: true,
        ..BASE
    },
    Resource {
        plural: "services",
        singular: "service",
        kind: "Service",
        short: &["svc"],
        subresources: &[("status", "Service")],
        storage: SERVICES,
        create_on_update: true,
        returns_deleted: true,
        ..BASE
    },
    Resource {
        group: "authentication.k8s.io",
        plural: "tokenreviews",
        singular: "tokenreview",
        kind: "TokenReview",
        namespaced: false,
        create_only: true,
        ..BASE
    },
    Resource {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        namespaced: false,
        create_only: true,
        ..BASE
    },
    Resource {
        group: "authorization.k8s.io",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        kind: "SubjectAccessReview",
        namespaced: false,
        create_only: true,
        ..BASE
    },
    Resource {
        group: "coordination.k8s.io",
        plural: "leases",
        singular: "lease",
        kind: "Lease",
        storage: LEASES,
        create_on_update: true,
        unconditional_update: false,
        ..BASE
    },
    Resource {
        group: "discovery.k8s.io",
        plural: "endpointslices",
        singular: "endpointslice",
        kind: "EndpointSlice",
        storage: ENDPOINT_SLICES,
        ..BASE
    },
    Resource {
        group: EVENTS_GROUP,
        plural: "events",
        singular: "event",
        kind: "Event",
        short: &["ev"],
        storage: EVENTS,
        create_on_update: true,
        ..BASE
    },
];

/// The resource behind group, version and plural.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|r| r.group == group && r.version == version && r.plural == plural)
}

/// The stored resource called `services`, or `leases.coordination.k8s.io` where the group matters.
pub(crate) fn by_name(name: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|r| !r.create_only && (r.plural == name || r.qualified() == name))
}

/// The resource of an object's apiVersion and kind.
pub(crate) fn by_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|r| r.kind == kind && r.api_version() == api_version)
}

/// All groups but core, in order, without repetition.
pub(crate) fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&'static str> = RESOURCES
        .iter()
        .map(|r| r.group)
        .filter(|g| !g.is_empty())
        .collect();
    groups.dedup();
    groups
}
