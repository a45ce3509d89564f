//! What reads have shown: the left side of each difference. Pure, and only for texts.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::elbv2::{Attributes, HealthCheck, Listener, ListenerSpec, LoadBalancer, TargetGroup},
    tags::Tags,
};

/// Things of one kind that are remembered. Beyond it all are forgotten, and a difference shows its
/// right side only.
const MOST: usize = 10_000;

/// Targets that are named one by one.
const NAMED: usize = 10;

/// What reads have shown, by ARN.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) load_balancers: BTreeMap<String, LoadBalancer>,
    pub(super) listeners: BTreeMap<String, Listener>,
    pub(super) target_groups: BTreeMap<String, TargetGroup>,
    pub(super) attributes: BTreeMap<String, Attributes>,
    pub(super) tags: BTreeMap<String, Tags>,
}

/// Remembers what a read has shown.
pub(super) fn remember<T: Clone>(
    into: &mut BTreeMap<String, T>,
    shown: impl Iterator<Item = (String, T)>,
) {
    if into.len() > MOST {
        into.clear();
    }
    into.extend(shown);
}

/// The thing of that ARN for people.
pub(super) fn label(arn: &str) -> String {
    let path = arn.rsplit_once(':').map_or(arn, |(_, path)| path);
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["loadbalancer", _, name, ..] => format!("load balancer {name}"),
        ["targetgroup", name, ..] => format!("target group {name}"),
        ["listener", _, name, ..] => format!("listener of load balancer {name}"),
        _ => arn.to_owned(),
    }
}

impl Seen {
    /// A listener for people, by what it listens on.
    pub(super) fn listener(&self, arn: &str) -> String {
        match self.listeners.get(arn) {
            Some(Listener { spec, .. }) => listener_text(spec, &label(arn)),
            None => label(arn),
        }
    }
}

/// `listener TCP 80 of load balancer a1`.
pub(super) fn listener_text(spec: &ListenerSpec, label: &str) -> String {
    let of = label.strip_prefix("listener of ").unwrap_or(label);
    format!("listener {} {} of {of}", spec.protocol, spec.port)
}

/// `what: before -> after`, or `what: after` where nothing is known of before; `None` when they are
/// equal.
pub(super) fn difference(what: &str, before: Option<&str>, after: &str) -> Option<String> {
    match before {
        Some(before) if before == after => None,
        Some("") => Some(format!("{what}: none -> {after}")),
        Some(before) => Some(format!("{what}: {before} -> {after}")),
        None => Some(format!("{what}: {after}")),
    }
}

/// Differences of attributes or tags.
pub(super) fn map_difference(
    what: &str,
    before: Option<&BTreeMap<String, String>>,
    after: &BTreeMap<String, String>,
) -> Vec<String> {
    let line = |(key, value): (&String, &String)| {
        let old = before.map(|before| before.get(key).map_or("", String::as_str));
        difference(&format!("{what} {key}"), old, value)
    };
    after.iter().filter_map(line).collect()
}

/// The tags of something new, a line each.
pub(super) fn tag_lines(tags: &Tags) -> impl Iterator<Item = String> {
    tags.iter()
        .map(|(key, value)| format!("tag {key}: {value}"))
}

/// The differences of two listeners.
pub(super) fn listener_difference(
    before: Option<&ListenerSpec>,
    after: &ListenerSpec,
) -> Vec<String> {
    fn text(value: Option<&String>) -> &str {
        value.map_or("", String::as_str)
    }
    let old = |get: fn(&ListenerSpec) -> &str| before.map(get);
    let before_group = before.map(|spec| label(&spec.target_group));
    [
        difference("protocol", old(|s| &s.protocol), &after.protocol),
        difference(
            "forwards to",
            before_group.as_deref(),
            &label(&after.target_group),
        ),
        difference(
            "certificate",
            old(|s| text(s.certificate.as_ref())),
            text(after.certificate.as_ref()),
        ),
        after
            .ssl_policy
            .as_deref()
            .and_then(|policy| difference("policy", old(|s| text(s.ssl_policy.as_ref())), policy)),
    ]
    .into_iter()
    .flatten()
    .filter(|line| !line.ends_with(": "))
    .collect()
}

/// A health check in one line.
pub(super) fn health_text(health: &HealthCheck) -> String {
    let path = health.path.as_deref().unwrap_or_default();
    format!(
        "health check: {} {}{path} every {} s, {} to be healthy, {} to be unhealthy",
        health.protocol, health.port, health.interval, health.healthy, health.unhealthy
    )
}

/// The first of a list, and how many there are.
pub(super) fn some<'a>(what: &str, all: impl Iterator<Item = &'a str>) -> String {
    let all: BTreeSet<&str> = all.collect();
    let named: Vec<&str> = all.iter().take(NAMED).copied().collect();
    let more = all.len().saturating_sub(NAMED);
    let plural = if all.len() == 1 { "" } else { "s" };
    let tail = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{} {what}{plural}: {}{tail}", all.len(), named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arns_are_told_by_kind_and_name() {
        let arn = |path: &str| format!("arn:aws-cn:elasticloadbalancing:cn-north-1:1:{path}");
        for (path, text) in [
            ("loadbalancer/net/a1/50dc", "load balancer a1"),
            ("targetgroup/k8s-shop-web/6d0e", "target group k8s-shop-web"),
            ("listener/net/a1/50dc/f2f7", "listener of load balancer a1"),
        ] {
            assert_eq!(label(&arn(path)), text);
        }
        assert_eq!(label("sg-1"), "sg-1");
    }

    #[test]
    fn a_difference_shows_both_sides_where_both_are_known() {
        assert_eq!(difference("x", Some("a"), "a"), None);
        assert_eq!(
            difference("x", Some("a"), "b").as_deref(),
            Some("x: a -> b")
        );
        assert_eq!(
            difference("x", Some(""), "b").as_deref(),
            Some("x: none -> b")
        );
        assert_eq!(difference("x", None, "b").as_deref(), Some("x: b"));
        let ids: Vec<String> = (0..12).map(|n| format!("i-{n:02}")).collect();
        let text = some("target", ids.iter().map(String::as_str));
        assert!(text.starts_with("12 targets: i-00, i-01"), "{text}");
        assert!(text.ends_with("i-09 and 2 more"), "{text}");
    }
}
