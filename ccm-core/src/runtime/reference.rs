//! The reference pages of metrics and events, made from what the code registers and states, so
//! that they cannot drift.

use std::fmt::Write as _;

use prometheus::{
    Registry,
    proto::{MetricFamily, MetricType},
};

use super::{LeaderMetrics, QueueMetrics, metrics, rbac, serving::sample_serving_metrics};
use crate::{
    controllers::{node, node_ipam, node_lifecycle, route, service},
    kube::{self, EventType},
};

/// Registers every series of a part of the process, with one sample each.
pub type SampleMetrics = fn(&Registry) -> prometheus::Result<()>;

/// An event that users may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// The source component.
    pub source: &'static str,
    /// The kind of the object that it is about.
    pub object: &'static str,
    /// `Normal` or `Warning`.
    pub type_: EventType,
    /// The reason.
    pub reason: &'static str,
    /// When it is stated, as a half sentence.
    pub when: &'static str,
}

/// Source of the node controller's events.
const NODES: &str = "cloud-node-controller";
/// Source of the node lifecycle controller's events.
const LIFECYCLE: &str = "cloud-node-lifecycle-controller";
/// Source of the route controller's events.
const ROUTES: &str = "route_controller";
/// Source of node IPAM's events.
const RANGES: &str = "cidrAllocator";
/// Source of leader election's events.
const LEADER: &str = "cloud-controller-manager";
/// Source of the service controller's events.
const SERVICES: &str = "service-controller";

const fn row(
    source: &'static str,
    object: &'static str,
    type_: EventType,
    reason: &'static str,
    when: &'static str,
) -> EventRow {
    EventRow {
        source,
        object,
        type_,
        reason,
        when,
    }
}

const fn of_service(type_: EventType, reason: &'static str, when: &'static str) -> EventRow {
    row(SERVICES, "Service", type_, reason, when)
}

/// A warning that a provider gives about a Service whose load balancer is made all the same.
pub const fn note(reason: &'static str, when: &'static str) -> EventRow {
    of_service(EventType::Warning, reason, when)
}

/// The events of the controllers and of leader election; providers have notes of their own.
pub static EVENTS: &[EventRow] = &[
    row(
        NODES,
        "Node",
        EventType::Normal,
        "Synced",
        "the Node is initialised: addresses, labels and provider id are set, the cloud taint is gone",
    ),
    row(
        NODES,
        "Node",
        EventType::Warning,
        "FailedToInitialise",
        "the Node cannot be initialised for a reason that its owner can mend",
    ),
    row(
        LIFECYCLE,
        "Node",
        EventType::Normal,
        "DeletingNode",
        "the machine is gone and the Node is about to be deleted",
    ),
    row(
        LIFECYCLE,
        "Node",
        EventType::Warning,
        "DeletingNodeFailed",
        "the API server refused the deletion; it is tried again",
    ),
    row(
        ROUTES,
        "Node",
        EventType::Warning,
        "FailedToCreateRoute",
        "the cloud refused a route to the Node's pods; it is tried again",
    ),
    of_service(
        EventType::Normal,
        "EnsuringLoadBalancer",
        "work on the load balancer begins",
    ),
    of_service(
        EventType::Normal,
        "EnsuredLoadBalancer",
        "the load balancer is as the Service asks",
    ),
    of_service(
        EventType::Normal,
        "UpdatedLoadBalancer",
        "the backends follow the Nodes",
    ),
    of_service(
        EventType::Normal,
        "DeletingLoadBalancer",
        "the removal begins",
    ),
    of_service(
        EventType::Normal,
        "DeletedLoadBalancer",
        "the load balancer and all its parts are gone",
    ),
    of_service(
        EventType::Warning,
        "UnAvailableLoadBalancer",
        "no Node is a backend",
    ),
    of_service(
        EventType::Warning,
        "SyncLoadBalancerFailed",
        "ensuring or removing failed; the message has the cloud's answer; it is tried again",
    ),
    of_service(
        EventType::Warning,
        "UpdateLoadBalancerFailed",
        "the backends could not be changed; the load balancer is ensured again",
    ),
    of_service(
        EventType::Warning,
        "DeleteLoadBalancerFailed",
        "the load balancer of a Service that vanished could not be removed; it is tried again",
    ),
    row(
        RANGES,
        "Node",
        EventType::Normal,
        "CIDRNotAvailable",
        "there is no range of pod addresses for the Node",
    ),
    row(
        RANGES,
        "Node",
        EventType::Normal,
        "CIDRAssignmentFailed",
        "the range of pod addresses could not be written to the Node; it is tried again",
    ),
    row(
        LEADER,
        "Lease",
        EventType::Normal,
        "LeaderElection",
        "a replica became leader or stopped leading",
    ),
];

/// The page of all events: the controllers' and the providers' notes.
pub fn events_reference(notes: &[EventRow]) -> String {
    let mut text = String::from(
        "# Events\n\n<!-- Made by `cargo xtask docs` from the event table; do not edit. -->\n\n\
         Repeats are counted in one object and limited as by Kubernetes' own event recorder. `FailedToInitialise` \
         and what concerns one cloud only are not in the Go managers.\n\n\
         | Source | Object | Type | Reason | When |\n|---|---|---|---|---|\n",
    );
    for event in EVENTS.iter().chain(notes) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | `{}` | {} |",
            event.source,
            event.object,
            event.type_.as_str(),
            event.reason,
            event.when
        );
    }
    text
}

/// The page of all series: the process's and the providers'.
///
/// # Errors
/// Two parts of the process have series of one name.
pub fn metrics_reference(providers: &[SampleMetrics]) -> prometheus::Result<String> {
    let registry = Registry::new();
    for sample in PARTS.iter().chain(providers) {
        sample(&registry)?;
    }
    let mut text = String::from(
        "# Metrics\n\n<!-- Made by `cargo xtask docs` from the registered series; do not edit. -->\n\n\
         Names, types and labels are those of the Go managers; what only this manager has begins \
         with `ccm_`. The `process_` series exist on Linux.\n\n\
         | Series | Type | Labels | Meaning | Buckets |\n|---|---|---|---|---|\n",
    );
    for family in registry.gather() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            family.name(),
            type_of(&family),
            labels(&family),
            family.help().trim_end_matches('.').replace('|', "\\|"),
            buckets(&family)
        );
    }
    Ok(text)
}

/// Everything in this crate that registers series.
const PARTS: &[SampleMetrics] = &[
    metrics::sample_process,
    metrics::sample_running_controllers,
    QueueMetrics::sample,
    LeaderMetrics::sample,
    rbac::sample_metrics,
    kube::sample_client_metrics,
    kube::sample_event_metrics,
    node::sample_metrics,
    node_lifecycle::sample_metrics,
    route::sample_metrics,
    service::sample_metrics,
    node_ipam::sample_metrics,
    sample_serving_metrics,
];

fn type_of(family: &MetricFamily) -> &'static str {
    match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    }
}

fn labels(family: &MetricFamily) -> String {
    let names = family.get_metric().first().into_iter().flat_map(|metric| {
        let labels = metric.get_label().iter();
        labels.map(|label| format!("`{}`", label.name()))
    });
    names.collect::<Vec<_>>().join(", ")
}

/// First and last bound and the number of buckets.
fn buckets(family: &MetricFamily) -> String {
    let Some(metric) = family
        .get_metric()
        .first()
        .filter(|_| family.get_field_type() == MetricType::HISTOGRAM)
    else {
        return String::new();
    };
    let bounds: Vec<f64> = metric
        .get_histogram()
        .get_bucket()
        .iter()
        .map(prometheus::proto::Bucket::upper_bound)
        .filter(|bound| bound.is_finite())
        .collect();
    match (bounds.first(), bounds.last()) {
        (Some(first), Some(last)) => format!("{} from {first} to {last}", bounds.len()),
        _ => String::new(),
    }
}

#[cfg(test)]
#[path = "exact_tests.rs"]
mod exact;

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;
    use crate::runtime::names_without_home;

    /// The product code of this crate, file by file, without its tests.
    pub(super) fn sources() -> Vec<(PathBuf, String)> {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                if path.is_dir() {
                    folders.push(path);
                } else if !name.ends_with("tests.rs") && name != "reference.rs" {
                    let text = fs::read_to_string(&path).unwrap();
                    let product = text.split("#[cfg(test)]\nmod tests {").next();
                    files.push((path, product.unwrap().to_owned()));
                }
            }
        }
        files
    }

    /// The text literals after each `begin`, up to `within` characters further on.
    fn literals_after(text: &str, begin: &str, within: usize) -> Vec<String> {
        let mut found = Vec::new();
        for (at, _) in text.match_indices(begin) {
            let rest: String = text[at + begin.len()..].chars().take(within).collect();
            found.extend(rest.split('"').nth(1).map(str::to_owned));
        }
        found
    }

    /// Rows of parts that may be missing from the process, or whose reason is no text at its call.
    const OF_OPTIONAL_PARTS: &[&str] =
        &["CIDRAssignmentFailed", "CIDRNotAvailable", "LeaderElection"];

    /// The arguments of each call of a method: up to the bracket that closes it.
    pub(super) fn calls<'a>(text: &'a str, method: &'a str) -> impl Iterator<Item = &'a str> {
        text.match_indices(method).map(move |(at, _)| {
            let rest = &text[at + method.len()..];
            let mut depth = 1;
            let end = rest.find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            });
            &rest[..end.unwrap_or(rest.len())]
        })
    }

    /// The reasons in a file of code: the first text of each statement, or, where that is chosen
    /// elsewhere, the texts of the function `reason`.
    fn reasons(code: &str) -> BTreeSet<String> {
        let texts = |code: &str| -> Vec<String> {
            let odd = code.split('"').skip(1).step_by(2);
            odd.map(str::to_owned).collect()
        };
        let mut found = BTreeSet::new();
        for method in [".normal(", ".warning("] {
            for call in calls(code, method) {
                if let Some(reason) = texts(call).into_iter().next() {
                    found.insert(reason);
                } else if let Some((_, rest)) = code.split_once("fn reason(") {
                    let body = rest.split("\n    }\n").next();
                    found.extend(texts(body.unwrap()));
                }
            }
        }
        found
    }

    #[test]
    fn every_event_that_is_stated_is_in_the_reference() {
        let mut stated = BTreeSet::new();
        for (path, text) in sources() {
            if path
                .components()
                .any(|part| part.as_os_str() == "controllers" || part.as_os_str() == "leader")
            {
                stated.extend(reasons(&text));
            }
        }
        let known: BTreeSet<_> = EVENTS.iter().map(|row| row.reason.to_owned()).collect();
        assert!(stated.is_subset(&known), "{stated:?}");
        let never: Vec<_> = known.difference(&stated).map(String::as_str).collect();
        let optional = |reason: &&str| OF_OPTIONAL_PARTS.contains(reason);
        assert!(never.iter().all(optional), "{never:?}");
    }

    #[test]
    fn every_series_that_is_made_is_in_the_reference() {
        let page = metrics_reference(&[]).unwrap();
        let mut made = BTreeSet::new();
        for (_, text) in sources() {
            for maker in [
                "Opts::new(",
                "IntCounter::new(",
                "gauge(",
                "counter(",
                "histogram(",
            ] {
                made.extend(literals_after(&text, maker, 120));
            }
        }
        made.retain(|name| name.contains('_') && !name.contains(' '));
        assert!(made.len() >= 15, "{made:?}");
        for name in made {
            assert!(page.contains(&format!("| `{name}` |")), "{name}\n{page}");
        }
    }

    #[test]
    fn types_labels_and_buckets_are_those_of_the_registered_series() {
        let page = metrics_reference(&[]).unwrap();
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        assert!(
            rows.clone()
                .all(|row| row.replace("\\|", "").matches('|').count() == 6)
        );
        for start in [
            "| `workqueue_queue_duration_seconds` | histogram | `name` |",
            "| `rest_client_requests_total` | counter | `code`, `host`, `method` |",
            "| `running_managed_controllers` | gauge | `manager`, `name` |",
        ] {
            assert!(
                rows.clone().any(|row| row.starts_with(start)),
                "{start}\n{page}"
            );
        }
        let delay = "`node_controller_initial_node_sync_delay_seconds`";
        let delay = rows.clone().find(|row| row.contains(delay)).unwrap();
        assert!(delay.ends_with("| 6 from 1 to 1024 |"), "{delay}");
    }

    #[test]
    fn a_series_of_two_parts_is_refused() {
        assert!(metrics_reference(&[metrics::sample_process]).is_err());
    }

    #[test]
    fn all_sampled_names_have_a_home() {
        let registry = Registry::new();
        for sample in PARTS {
            sample(&registry).unwrap();
        }
        assert_eq!(names_without_home(&registry), Vec::<String>::new());
    }

    #[test]
    fn notes_of_providers_follow_the_controllers_events() {
        let page = events_reference(&[note("Oddity", "something is odd")]);
        let last = page.lines().last().unwrap();
        assert_eq!(
            last,
            "| `service-controller` | Service | Warning | `Oddity` | something is odd |"
        );
        assert_eq!(page.matches("| `").count(), EVENTS.len() * 2 + 2);
    }
}
