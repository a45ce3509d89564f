//! The reference page of permissions.

use std::fmt::Write as _;

use super::table::{Identity, Names, RULES, Rule, Scope, own_rules};
use crate::cloud::OwnController;

/// The page: every row of the table, whatever runs, and those of controllers that only one provider
/// has.
pub fn rbac_reference(own: &[OwnController]) -> String {
    let mut text = String::from(
        "# Permissions\n\n<!-- Made by `cargo xtask docs` from the table of permissions; do not \
         edit. -->\n\n\
         What the API server must allow, and for what. [rbac.yaml](rbac.yaml) \
         has it as a manifest for all controllers under one identity; `cloud-controller-manager \
         docs rbac-manifest` prints that manifest. At its start the process asks the API server \
         which of these permissions it has: each one that is missing is an error in the log and a \
         sample of `ccm_missing_permissions`.\n\n\
         An account in the column *As* is used with `--use-service-account-credentials=true`, and \
         must then be bound to the permissions of its rows; otherwise everything is asked as the \
         manager. To create namespaces is not in the table: `kube-system` is always there.\n\n\
         | For | As | API group | Resource | Verbs | Where | Why |\n|---|---|---|---|---|---|---|\n",
    );
    for rule in &RULES
        .iter()
        .copied()
        .chain(own_rules(own))
        .collect::<Vec<_>>()
    {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | `{}` | {} | {} | {} |",
            rule.part,
            identity(rule),
            match rule.group {
                "" => "core".to_owned(),
                group => format!("`{group}`"),
            },
            rule.resource,
            rule.verbs.join(", "),
            scope(rule),
            rule.why
        );
    }
    text
}

fn identity(rule: &Rule) -> String {
    match rule.identity {
        Identity::Manager => "the manager".to_owned(),
        Identity::Account(name) => format!("`{name}`"),
    }
}

fn scope(rule: &Rule) -> String {
    let scope = match rule.scope {
        Scope::Cluster => "cluster".to_owned(),
        Scope::Namespace(namespace) => format!("`{namespace}`"),
        Scope::Leases => "`--leader-elect-resource-namespace`".to_owned(),
    };
    match rule.names {
        Names::Any => scope,
        Names::These(names) => format!("{scope}, `{}`", names.join("`, `")),
        Names::Leases => format!("{scope}, the Leases in use"),
        Names::Accounts => format!("{scope}, the accounts of this table"),
    }
}
