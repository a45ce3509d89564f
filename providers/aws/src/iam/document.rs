//! Policy documents.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::table::{Need, Part, Right, Scope, rights};

/// The version of the policy language.
const VERSION: &str = "2012-10-17";

/// The policies that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyName {
    /// The controllers of Nodes.
    Node,
    /// The service controller.
    Service,
    /// The route controller.
    Route,
    /// The tagging controller.
    Tagging,
    /// All controllers.
    All,
}

impl PolicyName {
    /// All policies.
    pub const ALL: [Self; 5] = [
        Self::Node,
        Self::Service,
        Self::Route,
        Self::Tagging,
        Self::All,
    ];

    /// The name by which a policy is asked for.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Service => "service",
            Self::Route => "route",
            Self::Tagging => "tagging",
            Self::All => "all",
        }
    }

    /// The policy of that name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == name)
    }

    /// The file under `docs/reference/iam`.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Node => "aws-node.json",
            Self::Service => "aws-service.json",
            Self::Route => "aws-route.json",
            Self::Tagging => "aws-tagging.json",
            Self::All => "all.json",
        }
    }

    /// Whose rows of the table it has. A policy is enough for a process with its controllers alone, so each
    /// has those of the start.
    pub fn parts(self) -> &'static [Part] {
        match self {
            Self::Node => &[Part::Start, Part::Node],
            Self::Service => &[Part::Start, Part::Service, Part::Network, Part::Classic],
            Self::Route => &[Part::Start, Part::Route],
            Self::Tagging => &[Part::Start, Part::Tagging],
            Self::All => &Part::ALL,
        }
    }

    /// The rows that are in the policy.
    pub fn rights(self) -> impl Iterator<Item = &'static Right> {
        let own = move |right: &&Right| self.parts().contains(&right.part);
        let written = |right: &&Right| !matches!(right.need, Need::Configured(_));
        rights().iter().filter(own).filter(written)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    version: &'static str,
    statement: Vec<Statement>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Statement {
    sid: String,
    effect: &'static str,
    action: BTreeSet<&'static str>,
    resource: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<Condition>,
}

type Condition = BTreeMap<&'static str, BTreeMap<&'static str, &'static str>>;

/// The policy as JSON. Optional actions stand in statements of their own, whose `Sid` ends in
/// `Optional`.
///
/// # Errors
/// The text cannot be written: never, as far as one can see.
pub fn policy(name: PolicyName) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(&Document {
        version: VERSION,
        statement: statements(name),
    })?;
    text.push('\n');
    Ok(text)
}

/// The policy of that name (see [`PolicyName::as_str`]); `None` if there is none.
pub fn policy_named(name: &str) -> Option<String> {
    PolicyName::of(name).and_then(|name| policy(name).ok())
}

fn statements(name: PolicyName) -> Vec<Statement> {
    let mut actions: BTreeMap<(Scope, bool), BTreeSet<&'static str>> = BTreeMap::new();
    for right in name.rights() {
        let optional = right.need != Need::Required;
        actions
            .entry((right.scope, optional))
            .or_default()
            .insert(right.action);
    }
    // What one part requires is not optional because another one can do without.
    let required: BTreeMap<Scope, BTreeSet<&'static str>> = actions
        .iter()
        .filter(|((_, optional), _)| !optional)
        .map(|((scope, _), actions)| (*scope, actions.clone()))
        .collect();
    let mut all = Vec::new();
    for ((scope, optional), mut action) in actions {
        if let Some(required) = required.get(&scope).filter(|_| optional) {
            action.retain(|action| !required.contains(action));
        }
        if !action.is_empty() {
            all.push(statement(scope, optional, action));
        }
    }
    all
}

fn statement(scope: Scope, optional: bool, action: BTreeSet<&'static str>) -> Statement {
    let suffix = if optional { "Optional" } else { "" };
    let condition = scope.condition().map(|(key, value)| {
        let equals = BTreeMap::from([(key, value)]);
        Condition::from([("StringEquals", equals)])
    });
    Statement {
        sid: format!("{}{suffix}", scope.sid()),
        effect: "Allow",
        action,
        resource: scope.resources(),
        condition,
    }
}
