//! Policy documents: JSON in, statements out.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::condition::Condition;
use crate::control::CloudError;

/// The versions of the policy language. Only the newer one has policy variables, which are not emulated.
const VERSIONS: [&str; 2] = ["2012-10-17", "2008-10-17"];

/// What a statement does with what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Effect {
    Allow,
    Deny,
}

/// AWS takes a single item where it takes a list. Lists are tried first: an item may be of any type.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany<T> {
    Many(Vec<T>),
    One(T),
}

impl<T> OneOrMany<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(item) => vec![item],
            Self::Many(items) => items,
        }
    }
}

/// A value of a condition; AWS writes booleans and numbers as texts too.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Scalar {
    Text(String),
    Flag(bool),
    Number(serde_json::Number),
}

impl Scalar {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
        }
    }
}

/// Operator → key → values.
pub(super) type Conditions = BTreeMap<String, BTreeMap<String, OneOrMany<Scalar>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Document {
    version: String,
    #[serde(default, rename = "Id")]
    _id: Option<String>,
    statement: OneOrMany<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct RawStatement {
    #[serde(default)]
    sid: Option<String>,
    effect: Effect,
    action: OneOrMany<String>,
    resource: OneOrMany<String>,
    #[serde(default)]
    condition: Conditions,
}

/// A statement whose parts are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) effect: Effect,
    /// Patterns in lower case: IAM does not tell the case of actions.
    pub(super) actions: Vec<String>,
    /// Patterns of ARNs.
    pub(super) resources: Vec<String>,
    /// All of them must hold.
    pub(super) conditions: Vec<Condition>,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) statements: Vec<Statement>,
}

fn malformed(name: &str, text: impl std::fmt::Display) -> CloudError {
    CloudError::new("MalformedPolicyDocument", format!("Policy {name}: {text}"))
}

impl Policy {
    /// Reads a document. `name` is for the error.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, CloudError> {
        let document: Document =
            serde_json::from_str(text).map_err(|error| malformed(name, error))?;
        if !VERSIONS.contains(&document.version.as_str()) {
            let text = format!(
                "Version {} is unknown: use {}",
                document.version, VERSIONS[0]
            );
            return Err(malformed(name, text));
        }
        let statements = document.statement.into_vec().into_iter().enumerate();
        let read = |(at, value)| {
            // Read one by one, so that the error can say which statement it is about.
            let read = serde_json::from_value(value).map_err(|error| error.to_string());
            let checked = read.and_then(check);
            checked.map_err(|error| malformed(name, format!("statement {}: {error}", at + 1)))
        };
        let statements = statements.map(read).collect::<Result<_, _>>()?;
        Ok(Self { statements })
    }
}

fn check(raw: RawStatement) -> Result<Statement, String> {
    let actions = raw.action.into_vec();
    let resources = raw.resource.into_vec();
    if actions.is_empty() || resources.is_empty() {
        return Err("needs at least one action and one resource".to_owned());
    }
    let letters = |sid: &String| sid.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if let Some(sid) = raw.sid.filter(|sid| !letters(sid)) {
        return Err(format!("Sid '{sid}' may have letters and digits only"));
    }
    if let Some(action) = actions.iter().find(|it| *it != "*" && !it.contains(':')) {
        return Err(format!("action '{action}' must be service:Action"));
    }
    let arn = |resource: &&String| resource.starts_with("arn:") && !resource.contains("${");
    if let Some(resource) = resources.iter().find(|it| *it != "*" && !arn(it)) {
        return Err(format!(
            "resource '{resource}' must be * or an ARN without variables"
        ));
    }
    Ok(Statement {
        effect: raw.effect,
        actions: actions.iter().map(|it| it.to_ascii_lowercase()).collect(),
        resources,
        conditions: Condition::read(raw.condition)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(fields: &str) -> String {
        format!(r#"{{"Version": "2012-10-17", "Statement": [{{{fields}}}]}}"#)
    }

    #[test]
    fn single_items_stand_for_lists() {
        let text = r#"{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}}"#;
        let policy = Policy::parse("p", text).unwrap();
        assert_eq!(policy.statements[0].actions, ["ec2:*"]);
        let listed =
            statement(r#""Sid": "One", "Effect": "Allow", "Action": ["EC2:*"], "Resource": ["*"]"#);
        assert_eq!(Policy::parse("p", &listed).unwrap(), policy);
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_place() {
        let rest = r#""Effect": "Allow", "Action": "ec2:*", "Resource": "*""#;
        for (fields, word) in [
            (
                r#""Effect": "Allow", "NotAction": "ec2:*", "Resource": "*""#,
                "NotAction",
            ),
            (
                r#""Effect": "Maybe", "Action": "ec2:*", "Resource": "*""#,
                "Maybe",
            ),
            (
                r#""Effect": "Allow", "Action": "RunInstances", "Resource": "*""#,
                "RunInstances",
            ),
            (
                r#""Effect": "Allow", "Action": [], "Resource": "*""#,
                "at least one",
            ),
            (
                r#""Effect": "Allow", "Action": "ec2:*", "Resource": "vpc/*""#,
                "vpc/*",
            ),
            (
                r#""Effect": "Allow", "Action": "ec2:*", "Resource": "arn:aws:s3:::${aws:username}""#,
                "variables",
            ),
            (&format!(r#""Sid": "a b", {rest}"#), "a b"),
            (&format!(r#"{rest}, "Principal": "*""#), "Principal"),
            (
                &format!(r#"{rest}, "Condition": {{"DateLess": {{"aws:CurrentTime": "x"}}}}"#),
                "DateLess",
            ),
            (
                &format!(r#"{rest}, "Condition": {{"StringLike": {{"aws:SourceIp": "x"}}}}"#),
                "aws:SourceIp",
            ),
        ] {
            let error = Policy::parse("p", &statement(fields)).unwrap_err();
            assert_eq!(error.code, "MalformedPolicyDocument");
            let text = error.message;
            assert!(
                text.contains("statement 1") && text.contains(word),
                "{text}"
            );
        }
        for text in [
            "{",
            r#"{"Version": "2020-01-01", "Statement": []}"#,
            r#"{"Statement": []}"#,
        ] {
            assert!(Policy::parse("p", text).is_err(), "{text}");
        }
    }
}
