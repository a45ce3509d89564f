//! The decision: an explicit deny wins, then an allow, and what nobody mentions is denied.

use super::condition::Context;
use super::document::{Effect, Policy, Statement};
use crate::glob::glob;

/// One permission that a call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// Such as `ec2:CreateTags`.
    pub(super) action: String,
    /// ARN, or `*` for what concerns no single resource.
    pub(super) resource: String,
    /// Values of condition keys.
    pub(super) context: Context,
}

/// What the policies say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// No statement allows it.
    NotAllowed,
    /// A statement denies it.
    Denied,
}

impl Verdict {
    /// Why the call is refused, in AWS's words.
    pub(super) fn refusal(self, action: &str) -> Option<String> {
        match self {
            Self::Allowed => None,
            Self::NotAllowed => Some(format!(
                "no identity-based policy allows the {action} action"
            )),
            Self::Denied => Some("of an explicit deny in an identity-based policy".to_owned()),
        }
    }
}

fn concerns(statement: &Statement, access: &Access) -> bool {
    let action = access.action.to_ascii_lowercase();
    statement
        .actions
        .iter()
        .any(|pattern| glob(pattern, &action))
        && statement
            .resources
            .iter()
            .any(|pattern| glob(pattern, &access.resource))
        && statement
            .conditions
            .iter()
            .all(|condition| condition.holds(&access.context))
}

/// The verdict of all policies together.
pub(super) fn verdict(policies: &[&Policy], access: &Access) -> Verdict {
    let statements = policies.iter().flat_map(|policy| &policy.statements);
    let mut verdict = Verdict::NotAllowed;
    for statement in statements.filter(|statement| concerns(statement, access)) {
        match statement.effect {
            Effect::Deny => return Verdict::Denied,
            Effect::Allow => verdict = Verdict::Allowed,
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(statements: &str) -> Policy {
        let text = format!(r#"{{"Version": "2012-10-17", "Statement": {statements}}}"#);
        Policy::parse("p", &text).unwrap()
    }

    fn access(action: &str, resource: &str) -> Access {
        Access {
            action: action.to_owned(),
            resource: resource.to_owned(),
            context: Context::new(),
        }
    }

    #[test]
    fn a_deny_wins_over_every_allow_and_silence_denies() {
        let allow = policy(r#"[{"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}]"#);
        let deny = policy(r#"[{"Effect": "Deny", "Action": "ec2:Delete*", "Resource": "*"}]"#);
        let ask = |action| verdict(&[&deny, &allow], &access(action, "*"));
        assert_eq!(ask("ec2:DescribeVpcs"), Verdict::Allowed);
        assert_eq!(ask("ec2:DeleteVpc"), Verdict::Denied);
        assert_eq!(ask("sts:AssumeRole"), Verdict::NotAllowed);
        let lower =
            policy(r#"[{"Effect": "Allow", "Action": "EC2:describevpcs", "Resource": "*"}]"#);
        assert_eq!(
            verdict(&[&lower], &access("ec2:DescribeVpcs", "*")),
            Verdict::Allowed
        );
    }

    #[test]
    fn an_action_without_a_single_resource_needs_a_star() {
        let narrow = policy(
            r#"[{"Effect": "Allow", "Action": "ec2:*", "Resource": "arn:aws:ec2:*:*:route-table/*"}]"#,
        );
        let table = access(
            "ec2:CreateRoute",
            "arn:aws:ec2:us-west-2:1:route-table/rtb-1",
        );
        assert_eq!(verdict(&[&narrow], &table), Verdict::Allowed);
        let group = access(
            "ec2:CreateRoute",
            "arn:aws:ec2:us-west-2:1:security-group/sg-1",
        );
        assert_eq!(verdict(&[&narrow], &group), Verdict::NotAllowed);
        let listing = access("ec2:DescribeRouteTables", "*");
        assert_eq!(verdict(&[&narrow], &listing), Verdict::NotAllowed);
    }
}
