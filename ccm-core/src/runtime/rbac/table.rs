//! The table, and what of it a process needs.

use std::{collections::BTreeSet, fmt};

use crate::{cloud::OwnController, config::ControllerName};

/// Where the controllers' own service accounts and the cluster's authentication settings are.
pub(super) const KUBE_SYSTEM: &str = "kube-system";

/// Account of the two node controllers and of node IPAM.
const NODES: &str = "node-controller";
/// Account of the service controller.
const SERVICES: &str = "service-controller";
/// Account of the route controller.
const ROUTES: &str = "route-controller";

/// A part of the process that needs a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Whatever runs.
    Process,
    /// A controller.
    Controller(ControllerName),
    /// `--leader-elect`.
    LeaderElection,
    /// `--use-service-account-credentials`.
    ServiceAccounts,
    /// The secure port: delegated authentication and authorization.
    Reviews,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => f.write_str("every process"),
            Self::Controller(name) => f.write_str(name.as_str()),
            Self::LeaderElection => f.write_str("leader election"),
            Self::ServiceAccounts => f.write_str("service account credentials"),
            Self::Reviews => f.write_str("secure port"),
        }
    }
}

/// As whom a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The manager's own.
    Manager,
    /// The service account `kube-system/<name>`, with `--use-service-account-credentials`; the
    /// manager's own otherwise.
    Account(&'static str),
}

/// Where a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Cluster,
    Namespace(&'static str),
    /// The namespaces of the Leases.
    Leases,
}

/// To which objects a rule is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Any,
    These(&'static [&'static str]),
    /// The Leases of leader election.
    Leases,
    /// The accounts of the controllers that run.
    Accounts,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) part: Part,
    pub(super) identity: Identity,
    pub(super) group: &'static str,
    /// With its subresource: `nodes/status`.
    pub(super) resource: &'static str,
    pub(super) verbs: &'static [&'static str],
    pub(super) scope: Scope,
    pub(super) names: Names,
    pub(super) why: &'static str,
}

const fn cluster(
    part: Part,
    identity: Identity,
    resource: &'static str,
    verbs: &'static [&'static str],
    why: &'static str,
) -> Rule {
    Rule {
        part,
        identity,
        group: "",
        resource,
        verbs,
        scope: Scope::Cluster,
        names: Names::Any,
        why,
    }
}

const fn reviews(group: &'static str, resource: &'static str, why: &'static str) -> Rule {
    Rule {
        group,
        ..cluster(Part::Reviews, Identity::Manager, resource, &["create"], why)
    }
}

const fn accounts(
    resource: &'static str,
    verbs: &'static [&'static str],
    names: Names,
    why: &'static str,
) -> Rule {
    Rule {
        scope: Scope::Namespace(KUBE_SYSTEM),
        names,
        ..cluster(
            Part::ServiceAccounts,
            Identity::Manager,
            resource,
            verbs,
            why,
        )
    }
}

const fn leases(verbs: &'static [&'static str], names: Names, why: &'static str) -> Rule {
    Rule {
        group: "coordination.k8s.io",
        scope: Scope::Leases,
        names,
        ..cluster(
            Part::LeaderElection,
            Identity::Manager,
            "leases",
            verbs,
            why,
        )
    }
}

const NODE: Part = Part::Controller(ControllerName::Node);
const LIFECYCLE: Part = Part::Controller(ControllerName::NodeLifecycle);
const SERVICE: Part = Part::Controller(ControllerName::Service);
const ROUTE: Part = Part::Controller(ControllerName::Route);
const IPAM: Part = Part::Controller(ControllerName::NodeIpam);

/// Everything that the code asks the API server for.
pub(super) static RULES: &[Rule] = &[
    cluster(
        Part::Process,
        Identity::Manager,
        "nodes",
        &["list", "watch"],
        "the cache of Nodes that all controllers stand on",
    ),
    cluster(
        Part::Process,
        Identity::Manager,
        "events",
        &["create", "patch"],
        "events about Nodes, Services and Leases; a repeated one is counted up by a patch",
    ),
    cluster(
        NODE,
        Identity::Account(NODES),
        "nodes",
        &["get", "patch"],
        "provider id, labels and taints of a new Node; it is read again after a conflict",
    ),
    cluster(
        NODE,
        Identity::Account(NODES),
        "nodes/status",
        &["patch"],
        "addresses",
    ),
    cluster(
        LIFECYCLE,
        Identity::Account(NODES),
        "nodes",
        &["get", "patch", "delete"],
        "the shutdown taint, and Nodes whose machine is gone: without `delete` they stay for ever",
    ),
    cluster(
        SERVICE,
        Identity::Manager,
        "services",
        &["list", "watch"],
        "the cache of Services",
    ),
    cluster(
        SERVICE,
        Identity::Account(SERVICES),
        "services",
        &["get"],
        "who put a finalizer of ours on a Service of another class",
    ),
    cluster(
        SERVICE,
        Identity::Account(SERVICES),
        "services/status",
        &["patch"],
        "the addresses of the load balancer, and the finalizer",
    ),
    cluster(
        ROUTE,
        Identity::Account(ROUTES),
        "nodes/status",
        &["patch"],
        "the condition NetworkUnavailable",
    ),
    cluster(
        IPAM,
        Identity::Account(NODES),
        "nodes",
        &["get", "patch"],
        "`spec.podCIDRs`; a Node is read again after a lost answer",
    ),
    cluster(
        IPAM,
        Identity::Account(NODES),
        "nodes/status",
        &["patch"],
        "the condition NetworkUnavailable, where the cloud allocates the ranges",
    ),
    leases(
        &["create"],
        Names::Any,
        "the first start in a cluster; a create cannot be limited to a name",
    ),
    leases(
        &["get", "update"],
        Names::Leases,
        "to take, renew and release the Lease",
    ),
    accounts(
        "serviceaccounts",
        &["create"],
        Names::Any,
        "an account that is missing; a create cannot be limited to a name",
    ),
    accounts(
        "serviceaccounts",
        &["get"],
        Names::Accounts,
        "whether an account is there",
    ),
    accounts(
        "serviceaccounts/token",
        &["create"],
        Names::Accounts,
        "tokens of the controllers' accounts",
    ),
    reviews(
        "authentication.k8s.io",
        "tokenreviews",
        "who asks for `/metrics` with a bearer token",
    ),
    reviews(
        "authorization.k8s.io",
        "subjectaccessreviews",
        "whether they may",
    ),
    Rule {
        scope: Scope::Namespace(KUBE_SYSTEM),
        names: Names::These(&["extension-apiserver-authentication"]),
        ..cluster(
            Part::Reviews,
            Identity::Manager,
            "configmaps",
            &["get"],
            "the authorities of client certificates and of front proxies",
        )
    },
];

/// The rows of controllers that only one provider has.
pub(super) fn own_rules(own: &[OwnController]) -> impl Iterator<Item = Rule> {
    own.iter().flat_map(|controller| {
        controller.rules.iter().map(|rule| {
            cluster(
                Part::Controller(controller.name),
                Identity::Account(controller.account),
                rule.resource,
                rule.verbs,
                rule.why,
            )
        })
    })
}

/// A Lease by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseName {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// `--leader-elect-resource-name`, or that of leader migration.
    pub name: String,
}

/// What of the process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbacOptions {
    /// The controllers.
    pub controllers: BTreeSet<ControllerName>,
    /// The controllers that only the provider has, for their rows.
    pub own: Vec<OwnController>,
    /// The Leases of leader election; empty when it is off.
    pub leases: Vec<LeaseName>,
    /// `--use-service-account-credentials`.
    pub service_account_credentials: bool,
    /// Whether the secure port is open.
    pub reviews: bool,
}

impl Default for RbacOptions {
    /// All controllers, with leader election on the default Lease and the secure port, under one
    /// identity.
    fn default() -> Self {
        Self {
            controllers: ControllerName::ALL.into(),
            own: Vec::new(),
            leases: vec![LeaseName {
                namespace: KUBE_SYSTEM.to_owned(),
                name: "cloud-controller-manager".to_owned(),
            }],
            service_account_credentials: false,
            reviews: true,
        }
    }
}

impl RbacOptions {
    /// Everything, and the controllers that only these providers have.
    pub fn with_own(own: Vec<OwnController>) -> Self {
        let mut options = Self::default();
        options.controllers.extend(own.iter().map(|own| own.name));
        options.own = own;
        options
    }

    /// The rows of what runs, in the table's order.
    fn rules(&self) -> Vec<Rule> {
        let all = RULES.iter().copied().chain(own_rules(&self.own));
        all.filter(|rule| self.runs(rule.part)).collect()
    }

    fn runs(&self, part: Part) -> bool {
        match part {
            Part::Process => true,
            Part::Controller(name) => self.controllers.contains(&name),
            Part::LeaderElection => !self.leases.is_empty(),
            Part::ServiceAccounts => self.service_account_credentials,
            Part::Reviews => self.reviews,
        }
    }

    /// The accounts of the controllers that run.
    fn accounts(&self) -> Vec<String> {
        let names: BTreeSet<&str> = self
            .rules()
            .iter()
            .filter_map(|rule| match rule.identity {
                Identity::Account(name) => Some(name),
                Identity::Manager => None,
            })
            .collect();
        names.into_iter().map(str::to_owned).collect()
    }
}

/// What one identity must be allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// As whom it is asked.
    pub identity: Identity,
    /// `None` is the whole cluster.
    pub namespace: Option<String>,
    /// The API group, empty for core.
    pub group: &'static str,
    /// With its subresource: `nodes/status`.
    pub resource: &'static str,
    /// The objects; empty is all.
    pub names: Vec<String>,
    /// The verbs.
    pub verbs: Vec<&'static str>,
    /// Who needs it.
    pub part: Part,
    /// For what, as a half sentence.
    pub why: &'static str,
}

impl Permission {
    /// Whether it covers a request. `namespace` and `name` are empty where the request has none.
    pub fn allows(&self, verb: &str, group: &str, resource: &str, of: (&str, &str)) -> bool {
        let (namespace, name) = of;
        self.verbs.contains(&verb)
            && self.group == group
            && self.resource == resource
            && self.namespace.as_deref().is_none_or(|own| own == namespace)
            && (self.names.is_empty() || self.names.iter().any(|own| own == name))
    }
}

/// The rows of the table that a process needs, in the table's order.
pub fn permissions(options: &RbacOptions) -> Vec<Permission> {
    let rules = options.rules();
    rules
        .iter()
        .flat_map(|rule| of_rule(rule, options))
        .collect()
}

fn of_rule(rule: &Rule, options: &RbacOptions) -> Vec<Permission> {
    let identity = match rule.identity {
        Identity::Account(_) if !options.service_account_credentials => Identity::Manager,
        identity => identity,
    };
    let permission = |namespace, names| Permission {
        identity,
        namespace,
        group: rule.group,
        resource: rule.resource,
        names,
        verbs: rule.verbs.to_vec(),
        part: rule.part,
        why: rule.why,
    };
    let names = |namespace: &str| match rule.names {
        Names::Any => Vec::new(),
        Names::These(names) => names.iter().map(|&name| name.to_owned()).collect(),
        Names::Accounts => options.accounts(),
        Names::Leases => options
            .leases
            .iter()
            .filter(|lease| lease.namespace == namespace)
            .map(|lease| lease.name.clone())
            .collect(),
    };
    match rule.scope {
        Scope::Cluster => vec![permission(None, names(""))],
        Scope::Namespace(namespace) => {
            vec![permission(Some(namespace.to_owned()), names(namespace))]
        }
        Scope::Leases => {
            let namespaces: BTreeSet<_> = options.leases.iter().map(|l| &l.namespace).collect();
            namespaces
                .into_iter()
                .map(|namespace| permission(Some(namespace.clone()), names(namespace)))
                .collect()
        }
    }
}
