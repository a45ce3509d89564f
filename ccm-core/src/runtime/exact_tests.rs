//! Names, types, labels and buckets of all series, and sources, objects, types, reasons and
//! messages of all events, against the tables of the specification (controllers §8 and §9.1), which
//! are written out here.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    tests::{calls, sources},
    *,
};

/// A series as the specification has it: name, type, labels in order, buckets.
type Series = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [f64],
);

/// 1·4^k, k = 0..5
const BY_FOUR: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
/// 1·2^k, k = 0..14
const BY_TWO: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0,
    16384.0,
];
/// 0.001·2^k, k = 0..14
const PASSES: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];
/// 1e-8·10^k, k = 0..9
const QUEUES: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];
/// Of the client library.
const REQUESTS: &[f64] = &[
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];
const SIZES: &[f64] = &[
    64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0,
    16777216.0,
];
/// Of reviews and webhooks.
const REVIEWS: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
/// 1·5^k, k = 0..4
const TRIES: &[f64] = &[1.0, 5.0, 25.0, 125.0, 625.0];

/// Must be there.
const SERIES: &[Series] = &[
    // §8.1
    (
        "node_controller_cloud_provider_taint_removal_delay_seconds",
        "histogram",
        &[],
        BY_FOUR,
    ),
    (
        "node_controller_initial_node_sync_delay_seconds",
        "histogram",
        &[],
        BY_FOUR,
    ),
    (
        "service_controller_loadbalancer_sync_total",
        "counter",
        &[],
        &[],
    ),
    (
        "service_controller_nodesync_error_total",
        "counter",
        &[],
        &[],
    ),
    (
        "service_controller_nodesync_latency_seconds",
        "histogram",
        &[],
        BY_TWO,
    ),
    (
        "service_controller_update_loadbalancer_host_latency_seconds",
        "histogram",
        &[],
        BY_TWO,
    ),
    (
        "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
        "histogram",
        &[],
        PASSES,
    ),
    (
        "cloud_node_lifecycle_controller_cloud_provider_calls_total",
        "counter",
        &["operation", "result"],
        &[],
    ),
    (
        "running_managed_controllers",
        "gauge",
        &["manager", "name"],
        &[],
    ),
    // §8.2
    ("workqueue_depth", "gauge", &["name"], &[]),
    ("workqueue_unfinished_work_seconds", "gauge", &["name"], &[]),
    (
        "workqueue_longest_running_processor_seconds",
        "gauge",
        &["name"],
        &[],
    ),
    ("workqueue_adds_total", "counter", &["name"], &[]),
    ("workqueue_retries_total", "counter", &["name"], &[]),
    (
        "workqueue_queue_duration_seconds",
        "histogram",
        &["name"],
        QUEUES,
    ),
    (
        "workqueue_work_duration_seconds",
        "histogram",
        &["name"],
        QUEUES,
    ),
    (
        "rest_client_requests_total",
        "counter",
        &["code", "host", "method"],
        &[],
    ),
    (
        "rest_client_request_retries_total",
        "counter",
        &["code", "host", "verb"],
        &[],
    ),
    (
        "rest_client_request_duration_seconds",
        "histogram",
        &["host", "verb"],
        REQUESTS,
    ),
    (
        "rest_client_rate_limiter_duration_seconds",
        "histogram",
        &["host", "verb"],
        REQUESTS,
    ),
    (
        "rest_client_request_size_bytes",
        "histogram",
        &["host", "verb"],
        SIZES,
    ),
    (
        "rest_client_response_size_bytes",
        "histogram",
        &["host", "verb"],
        SIZES,
    ),
    (
        "kubernetes_build_info",
        "gauge",
        &[
            "build_date",
            "compiler",
            "git_commit",
            "git_tree_state",
            "git_version",
            "go_version",
            "major",
            "minor",
            "platform",
        ],
        &[],
    ),
    // §8.1: routes
    (
        "route_controller_route_sync_total",
        "counter",
        &["outcome", "trigger"],
        &[],
    ),
    // §8.2: leader election, /metrics/slis
    ("leader_election_master_status", "gauge", &["name"], &[]),
    ("leader_election_slowpath_total", "counter", &["name"], &[]),
    ("kubernetes_healthcheck", "gauge", &["name", "type"], &[]),
    (
        "kubernetes_healthchecks_total",
        "counter",
        &["name", "status", "type"],
        &[],
    ),
    // §8.3
    (
        "apiserver_delegated_authn_request_total",
        "counter",
        &["code"],
        &[],
    ),
    (
        "apiserver_delegated_authn_request_duration_seconds",
        "histogram",
        &["code"],
        REVIEWS,
    ),
    (
        "apiserver_delegated_authz_request_total",
        "counter",
        &["code"],
        &[],
    ),
    (
        "apiserver_delegated_authz_request_duration_seconds",
        "histogram",
        &["code"],
        REVIEWS,
    ),
    // §8.4
    (
        "node_ipam_controller_cidrset_cidrs_allocations_total",
        "counter",
        &["clusterCIDR"],
        &[],
    ),
    (
        "node_ipam_controller_cidrset_cidrs_releases_total",
        "counter",
        &["clusterCIDR"],
        &[],
    ),
    (
        "node_ipam_controller_cidrset_usage_cidrs",
        "gauge",
        &["clusterCIDR"],
        &[],
    ),
    (
        "node_ipam_controller_cidrset_allocation_tries_per_request",
        "histogram",
        &["clusterCIDR"],
        TRIES,
    ),
    (
        "node_ipam_controller_cirdset_max_cidrs",
        "gauge",
        &["clusterCIDR"],
        &[],
    ),
];

/// Of what is not hosted here; if it ever is, it must be as it is here.
const SERIES_OF_OPTIONAL_PARTS: &[Series] = &[
    (
        "cloud_provider_webhook_request_total",
        "counter",
        &["code", "webhook"],
        &[],
    ),
    (
        "cloud_provider_webhook_request_duration_seconds",
        "histogram",
        &["code", "webhook"],
        REVIEWS,
    ),
];

/// The process collector's: there on Linux.
const PROCESS: &[(&str, &str)] = &[
    ("process_cpu_seconds_total", "counter"),
    ("process_max_fds", "gauge"),
    ("process_open_fds", "gauge"),
    ("process_resident_memory_bytes", "gauge"),
    ("process_start_time_seconds", "gauge"),
    ("process_threads", "gauge"),
    ("process_virtual_memory_bytes", "gauge"),
];

fn assert_same(family: &MetricFamily, want: &Series) {
    let (name, type_, labels, buckets) = want;
    assert_eq!(type_of(family), *type_, "{name}");
    let metric = &family.get_metric()[0];
    let have: Vec<_> = metric
        .get_label()
        .iter()
        .map(prometheus::proto::LabelPair::name)
        .collect();
    assert_eq!(have, *labels, "{name}");
    let bounds = metric.get_histogram().get_bucket().iter();
    let bounds: Vec<f64> = bounds
        .map(prometheus::proto::Bucket::upper_bound)
        .filter(|bound| bound.is_finite())
        .collect();
    assert_eq!(bounds.len(), buckets.len(), "{name}: {bounds:?}");
    for (have, want) in bounds.iter().zip(*buckets) {
        // Bounds may be computed: equal up to rounding.
        assert!(
            (have / want - 1.0).abs() < 1e-9,
            "{name}: {have}, not {want}"
        );
    }
}

/// REQ-MET-01, REQ-MET-02
#[test]
fn every_series_is_exactly_that_of_the_specification() {
    let registry = Registry::new();
    for sample in PARTS {
        sample(&registry).unwrap();
    }
    let families = registry.gather();
    let families: BTreeMap<_, _> = families
        .iter()
        .map(|family| (family.name(), family))
        .collect();
    for want in SERIES {
        let family = families.get(want.0);
        assert_same(
            family.unwrap_or_else(|| panic!("{} is missing", want.0)),
            want,
        );
    }
    let known: BTreeMap<_, _> = SERIES
        .iter()
        .chain(SERIES_OF_OPTIONAL_PARTS)
        .map(|series| (series.0, series))
        .collect();
    for (name, family) in families {
        if let Some(process) = PROCESS.iter().find(|process| process.0 == name) {
            assert_same(family, &(process.0, process.1, &[], &[]));
        } else if !name.starts_with("ccm_") {
            let known = known.get(name);
            let want = known.unwrap_or_else(|| panic!("{name} is not in the specification"));
            assert_same(family, want);
        }
    }
}

/// An event as the specification has it: source, object, type, reason, message. `<>` is a value.
type Stated = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

/// Must be there.
const STATED: &[Stated] = &[
    (
        "cloud-node-controller",
        "Node",
        "Normal",
        "Synced",
        "Node synced successfully",
    ),
    (
        "cloud-node-lifecycle-controller",
        "Node",
        "Normal",
        "DeletingNode",
        "Deleting node <> because it does not exist in the cloud provider",
    ),
    (
        "cloud-node-lifecycle-controller",
        "Node",
        "Warning",
        "DeletingNodeFailed",
        "Failed deleting node <>: <>",
    ),
    (
        "service-controller",
        "Service",
        "Normal",
        "EnsuringLoadBalancer",
        "Ensuring load balancer",
    ),
    (
        "service-controller",
        "Service",
        "Normal",
        "EnsuredLoadBalancer",
        "Ensured load balancer",
    ),
    (
        "service-controller",
        "Service",
        "Normal",
        "DeletingLoadBalancer",
        "Deleting load balancer",
    ),
    (
        "service-controller",
        "Service",
        "Normal",
        "DeletedLoadBalancer",
        "Deleted load balancer",
    ),
    (
        "service-controller",
        "Service",
        "Normal",
        "UpdatedLoadBalancer",
        "Updated load balancer with new hosts",
    ),
    (
        "service-controller",
        "Service",
        "Warning",
        "UnAvailableLoadBalancer",
        "There are no available nodes for LoadBalancer",
    ),
    (
        "service-controller",
        "Service",
        "Warning",
        "SyncLoadBalancerFailed",
        "Error syncing load balancer: <>",
    ),
    (
        "service-controller",
        "Service",
        "Warning",
        "UpdateLoadBalancerFailed",
        "Error updating load balancer with new hosts [<>] [node names limited, total number of \
         nodes: <>], error: <>",
    ),
    (
        "service-controller",
        "Service",
        "Warning",
        "DeleteLoadBalancerFailed",
        "Error deleting load balancer: <>",
    ),
];

/// Of parts that may be missing from the process. Move a row to [`STATED`] as soon as it is in
/// [`EVENTS`].
const STATED_BY_OPTIONAL_PARTS: &[Stated] = &[
    (
        "route_controller",
        "Node",
        "Warning",
        "FailedToCreateRoute",
        "Could not create route <> <> for node <> after <>: <>",
    ),
    (
        "cidrAllocator",
        "Node",
        "Normal",
        "CIDRNotAvailable",
        "Node <> status is now: <>",
    ),
    (
        "cidrAllocator",
        "Node",
        "Normal",
        "CIDRAssignmentFailed",
        "Node <> status is now: <>",
    ),
    (
        "cloudCIDRAllocator",
        "Node",
        "Normal",
        "CloudCIDRAllocatorMismatch",
        "Node <> status is now: <>",
    ),
    (
        "cloudCIDRAllocator",
        "Node",
        "Normal",
        "CloudCIDRAllocatorInvalidMode",
        "Node <> status is now: <>",
    ),
    (
        "cloudCIDRAllocator",
        "Node",
        "Normal",
        "CloudCIDRAllocatorInvalidPodCIDR",
        "Node <> status is now: <>",
    ),
    (
        "cloud-controller-manager",
        "Lease",
        "Normal",
        "LeaderElection",
        "<> became leader",
    ),
    (
        "cloud-controller-manager",
        "Lease",
        "Normal",
        "LeaderElection",
        "<> stopped leading",
    ),
];

/// Reasons that only this manager has.
const OWN_REASONS: &[&str] = &["AnotherAllocator", "FailedToInitialise"];

/// REQ-SVC-32
#[test]
fn every_event_row_is_exactly_that_of_the_specification() {
    let have: BTreeSet<_> = EVENTS
        .iter()
        .map(|row| (row.source, row.object, row.type_.as_str(), row.reason))
        .collect();
    let rows = |table: &[Stated]| -> BTreeSet<_> {
        table
            .iter()
            .map(|&(source, object, type_, reason, _)| (source, object, type_, reason))
            .collect()
    };
    let (must, may) = (rows(STATED), rows(STATED_BY_OPTIONAL_PARTS));
    let missing: Vec<_> = must.difference(&have).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for row in have.difference(&must).filter(|row| !may.contains(*row)) {
        assert!(
            OWN_REASONS.contains(&row.3),
            "{row:?} is not in the specification"
        );
    }
}

/// The text literals in a piece of code; values in them become `<>`.
fn literals(code: &str) -> Vec<String> {
    let odd = code.split('"').skip(1).step_by(2);
    odd.map(|text| {
        let joined: String = text
            .split("\\\n")
            .enumerate()
            .map(|(line, part)| if line == 0 { part } else { part.trim_start() })
            .collect();
        let mut form = String::new();
        for (index, part) in joined.split('{').enumerate() {
            let after = if index == 0 {
                part
            } else {
                form.push_str("<>");
                part.split_once('}').map_or("", |(_, after)| after)
            };
            form.push_str(after);
        }
        form
    })
    .collect()
}

/// REQ-SVC-47
#[test]
fn every_message_is_exactly_that_of_the_specification() {
    let mut stated = BTreeSet::new();
    for (_, text) in sources() {
        for (method, type_) in [(".normal(", "Normal"), (".warning(", "Warning")] {
            for call in calls(&text, method) {
                if let [reason, message] = literals(call).as_slice() {
                    stated.insert((type_, reason.clone(), message.clone()));
                }
            }
        }
    }
    let rows = |table: &[Stated]| -> BTreeSet<_> {
        let rows = table.iter();
        rows.map(|row| (row.2, row.3.to_owned(), row.4.to_owned()))
            .collect()
    };
    let (must, may) = (rows(STATED), rows(STATED_BY_OPTIONAL_PARTS));
    let missing: Vec<_> = must.difference(&stated).collect();
    assert!(missing.is_empty(), "{missing:?} among {stated:?}");
    for row in stated.difference(&must).filter(|row| !may.contains(*row)) {
        assert!(
            OWN_REASONS.contains(&row.1.as_str()),
            "{row:?} is not in the specification"
        );
    }
}
