//! The permissions as Kubernetes manifests: one role for each identity and namespace.

use std::{collections::BTreeMap, fmt::Write as _};

use super::table::{Identity, KUBE_SYSTEM, LeaseName, Permission, RbacOptions, permissions};

/// Role, binding and service account are named after the program.
const NAME: &str = "cloud-controller-manager";

/// The order of verbs in a rule.
const VERBS: [&str; 7] = [
    "get", "list", "watch", "create", "update", "patch", "delete",
];

/// Group, resource and names: what makes two permissions one rule.
type Target<'a> = (&'a str, &'a str, &'a [String]);

/// The YAML of the manager's service account (`kube-system/cloud-controller-manager`), roles and
/// bindings, for `kubectl apply`. With service account credentials each controller's account has
/// roles of its own; the accounts themselves are created by the manager.
pub fn rbac_manifest(options: &RbacOptions) -> String {
    let mut text = String::from(
        "# Made by `cargo xtask docs` from the table of permissions; do not edit.\n\
         apiVersion: v1\nkind: ServiceAccount\nmetadata:\n",
    );
    metadata(&mut text, NAME, Some(KUBE_SYSTEM));
    let mut roles: BTreeMap<(Identity, Option<String>), Vec<Permission>> = BTreeMap::new();
    for permission in permissions(options) {
        let role = (permission.identity, permission.namespace.clone());
        roles.entry(role).or_default().push(permission);
    }
    for ((identity, namespace), permissions) in &roles {
        role(&mut text, *identity, namespace.as_deref(), permissions);
        binding(&mut text, *identity, namespace.as_deref());
    }
    text
}

/// `cloud-controller-manager`, or with the account after a colon.
fn role_name(identity: Identity) -> String {
    match identity {
        Identity::Manager => NAME.to_owned(),
        Identity::Account(account) => format!("{NAME}:{account}"),
    }
}

fn metadata(text: &mut String, name: &str, namespace: Option<&str>) {
    line(text, &format!("  name: {}", quoted(name)));
    if let Some(namespace) = namespace {
        line(text, &format!("  namespace: {}", quoted(namespace)));
    }
}

fn role(text: &mut String, identity: Identity, namespace: Option<&str>, of: &[Permission]) {
    let kind = namespace.map_or("ClusterRole", |_| "Role");
    line(text, "---");
    line(text, "apiVersion: rbac.authorization.k8s.io/v1");
    line(text, &format!("kind: {kind}\nmetadata:"));
    metadata(text, &role_name(identity), namespace);
    line(text, "rules:");
    let mut rules: BTreeMap<Target<'_>, Vec<&str>> = BTreeMap::new();
    for permission in of {
        let target = (permission.group, permission.resource, &*permission.names);
        rules.entry(target).or_default().extend(&permission.verbs);
    }
    for ((group, resource, names), verbs) in rules {
        line(text, &format!("  - apiGroups: [{}]", quoted(group)));
        line(text, &format!("    resources: [{}]", quoted(resource)));
        if !names.is_empty() {
            let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
            line(text, &format!("    resourceNames: [{}]", names.join(", ")));
        }
        let verbs: Vec<_> = VERBS
            .iter()
            .filter(|verb| verbs.contains(verb))
            .copied()
            .collect();
        line(text, &format!("    verbs: [{}]", verbs.join(", ")));
    }
}

fn binding(text: &mut String, identity: Identity, namespace: Option<&str>) {
    let kind = namespace.map_or("ClusterRole", |_| "Role");
    let name = role_name(identity);
    let account = match identity {
        Identity::Manager => NAME,
        Identity::Account(account) => account,
    };
    line(text, "---");
    line(text, "apiVersion: rbac.authorization.k8s.io/v1");
    line(text, &format!("kind: {kind}Binding\nmetadata:"));
    metadata(text, &name, namespace);
    line(text, "roleRef:");
    line(text, "  apiGroup: rbac.authorization.k8s.io");
    line(text, &format!("  kind: {kind}\n  name: {}", quoted(&name)));
    line(text, "subjects:");
    line(text, "  - kind: ServiceAccount");
    line(text, &format!("    name: {}", quoted(account)));
    line(text, &format!("    namespace: {KUBE_SYSTEM}"));
}

/// A word that is no plain YAML text in quotes; names come from flags.
fn quoted(word: &str) -> String {
    let mut characters = word.chars();
    let plain = characters
        .next()
        .is_some_and(|first| first.is_ascii_lowercase())
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-./".contains(c))
        && !matches!(
            word,
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if plain {
        word.to_owned()
    } else {
        // JSON text is YAML text.
        serde_json::Value::from(word).to_string()
    }
}

fn line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

impl LeaseName {
    /// A Lease in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}
