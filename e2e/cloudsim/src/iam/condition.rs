//! Conditions of statements.

use std::collections::BTreeMap;

use super::document::Conditions;
use crate::glob::glob;

/// The keys whose values a call has here. Keys that end in `/` go on with the key of a tag.
const KEYS: [&str; 7] = [
    "aws:requesttag/",
    "aws:resourcetag/",
    "ec2:createaction",
    "ec2:resourcetag/",
    "elasticloadbalancing:createaction",
    "elasticloadbalancing:resourcetag/",
    "iam:awsservicename",
];

/// What is known of a call: key, in lower case, → value.
pub(super) type Context = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equals,
    NotEquals,
    Like,
    NotLike,
    /// Whether the key is absent.
    Null,
}

/// One key, compared with some values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    operator: Operator,
    /// Holds also without the key.
    if_exists: bool,
    /// In lower case: IAM does not tell the case of keys.
    key: String,
    values: Vec<String>,
}

fn operator(name: &str) -> Result<(Operator, bool), String> {
    let (base, if_exists) = match name.strip_suffix("IfExists") {
        Some(base) => (base, true),
        None => (name, false),
    };
    let operator = match base {
        "StringEquals" => Operator::Equals,
        "StringNotEquals" => Operator::NotEquals,
        "StringLike" => Operator::Like,
        "StringNotLike" => Operator::NotLike,
        "Null" if !if_exists => Operator::Null,
        _ => return Err(format!("condition operator '{name}' is not emulated")),
    };
    Ok((operator, if_exists))
}

fn known(key: &str) -> bool {
    KEYS.iter().any(|known| match known.strip_suffix('/') {
        Some(_) => key.len() > known.len() && key.starts_with(known),
        None => key == *known,
    })
}

impl Condition {
    /// Reads the conditions of a statement; the error says what is not understood.
    pub(super) fn read(conditions: Conditions) -> Result<Vec<Self>, String> {
        let mut all = Vec::new();
        for (name, keys) in conditions {
            let (operator, if_exists) = operator(&name)?;
            for (key, values) in keys {
                let values: Vec<String> = values
                    .into_vec()
                    .into_iter()
                    .map(super::document::Scalar::into_text)
                    .collect();
                let lower = key.to_ascii_lowercase();
                if !known(&lower) {
                    return Err(format!("condition key '{key}' is not emulated"));
                }
                if values.is_empty() || values.iter().any(|value| value.contains("${")) {
                    return Err(format!(
                        "the values of '{key}' must be texts without variables"
                    ));
                }
                let flags = || {
                    values
                        .iter()
                        .all(|it| matches!(it.as_str(), "true" | "false"))
                };
                if operator == Operator::Null && !flags() {
                    return Err(format!("Null of '{key}' must be true or false"));
                }
                all.push(Self {
                    operator,
                    if_exists,
                    key: lower,
                    values,
                });
            }
        }
        Ok(all)
    }

    /// Whether the condition holds. Without its key a positive comparison fails and a negative one holds.
    pub(super) fn holds(&self, context: &Context) -> bool {
        let have = context.get(&self.key);
        let any = |fits: &dyn Fn(&str, &str) -> bool| {
            have.is_some_and(|have| self.values.iter().any(|value| fits(value, have)))
        };
        match self.operator {
            Operator::Null => {
                let absent = have.is_none().to_string();
                self.values.contains(&absent)
            }
            _ if self.if_exists && have.is_none() => true,
            Operator::Equals => any(&|value, have| value == have),
            Operator::NotEquals => !any(&|value, have| value == have),
            Operator::Like => any(&glob),
            Operator::NotLike => !any(&glob),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(condition: &str, context: &[(&str, &str)]) -> bool {
        let conditions = serde_json::from_str(condition).unwrap();
        let context = context
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let read = Condition::read(conditions).unwrap();
        read.iter().all(|condition| condition.holds(&context))
    }

    #[test]
    fn one_of_the_values_must_fit_and_every_key_must_hold() {
        let tag = "aws:requesttag/team";
        let equals = r#"{"StringEquals": {"aws:RequestTag/team": ["a", "b"]}}"#;
        assert!(holds(equals, &[(tag, "b")]));
        assert!(!holds(equals, &[(tag, "c")]));
        assert!(!holds(equals, &[]));
        let like =
            r#"{"StringLike": {"aws:RequestTag/team": "a*", "ec2:CreateAction": "Create*"}}"#;
        assert!(holds(
            like,
            &[(tag, "abc"), ("ec2:createaction", "CreateVpc")]
        ));
        assert!(!holds(like, &[(tag, "abc")]));
    }

    #[test]
    fn without_its_key_a_negative_comparison_holds_and_if_exists_too() {
        let tag = "aws:resourcetag/team";
        let not = r#"{"StringNotEquals": {"aws:ResourceTag/team": "a"}}"#;
        assert!(holds(not, &[]) && holds(not, &[(tag, "b")]) && !holds(not, &[(tag, "a")]));
        let not = r#"{"StringNotLike": {"aws:ResourceTag/team": "a*"}}"#;
        assert!(holds(not, &[]) && !holds(not, &[(tag, "ab")]));
        let exists = r#"{"StringEqualsIfExists": {"aws:ResourceTag/team": "a"}}"#;
        assert!(
            holds(exists, &[]) && holds(exists, &[(tag, "a")]) && !holds(exists, &[(tag, "b")])
        );
        let null = r#"{"Null": {"aws:ResourceTag/team": "false"}}"#;
        assert!(holds(null, &[(tag, "")]) && !holds(null, &[]));
        let null = r#"{"Null": {"aws:ResourceTag/team": true}}"#;
        assert!(holds(null, &[]) && !holds(null, &[(tag, "")]));
    }
}
