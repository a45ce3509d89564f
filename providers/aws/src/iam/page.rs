//! The reference page of AWS permissions.

use std::fmt::Write as _;

use super::{
    document::PolicyName,
    table::{Need, Part, Right, rights},
};

const HEAD: &str = "# AWS permissions

<!-- Made by `cargo xtask docs` from the table of permissions; do not edit. -->

What the credentials of the manager must be allowed to do. Each file is a policy document for IAM
that is enough for a process with these controllers alone, and no more than that:

| File | For |
|---|---|
";

const TEXT: &str = "
`cloud-controller-manager docs iam aws NAME` prints the policy NAME, such as `node` or `all`.

- Statements whose `Sid` ends in `Optional` may be left out: the table says what is lost. A call that
  is denied is then not tried again for a day, or is not made at all.
- A cluster that comes from the Go manager keeps working with the policy that its documentation prints.
  Four actions are missing there that the Go manager calls too: `ec2:DeleteTags` for tagging, and
  `elasticloadbalancing:SetSecurityGroups`, `DescribeTargetGroupAttributes` and
  `ModifyTargetGroupAttributes` for Services with annotations about them.
- `sts:AssumeRole` is in no file, because a policy must name the role.
- The resources are those of the partition `aws`: in China and in GovCloud write `aws-cn` or
  `aws-us-gov`.
- A cluster of classic load balancers only does not need the statements `NetworkLoadBalancers`, one
  without classic load balancers not the statement `ClassicLoadBalancers`. The latter's resources fit
  every kind of load balancer: classic ones have no mark of their own in their ARNs.
- Nothing is limited to one cluster: security groups of Nodes and the load balancers of an earlier
  manager need not carry its tag. Where all of them do, add the condition
  `\"StringEquals\": {\"aws:ResourceTag/kubernetes.io/cluster/ID\": \"owned\"}` to the statements that
  delete.

| For | Action | Needed | On | Why |
|---|---|---|---|---|
";

/// The page: every policy, then every row of the table.
pub fn iam_reference() -> String {
    let mut text = String::from(HEAD);
    for policy in PolicyName::ALL {
        let parts = match policy {
            PolicyName::All => "all controllers".to_owned(),
            _ => names(policy.parts()),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| [{0}]({0}) | {parts} |", policy.file());
    }
    text.push_str(TEXT);
    for right in rights() {
        let _ = writeln!(
            text,
            "| {} | `{}` | {} | {} | {} |",
            right.part,
            right.action,
            need(right),
            on(right),
            right.why
        );
    }
    text
}

fn names(parts: &[Part]) -> String {
    let own = parts.iter().filter(|part| **part != Part::Start);
    own.map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn need(right: &Right) -> String {
    match right.need {
        Need::Required => "yes".to_owned(),
        Need::Optional(without) => format!("no; without it {without}"),
        Need::Configured(when) => when.to_owned(),
    }
}

fn on(right: &Right) -> String {
    if matches!(right.need, Need::Configured(_)) {
        return "that role".to_owned();
    }
    let types = right.scope.resources().iter();
    let types = types.map(|arn| match arn.splitn(6, ':').last() {
        Some("*") | None => "everything".to_owned(),
        Some(resource) => format!("`{resource}`"),
    });
    types.collect::<Vec<_>>().join(", ")
}
