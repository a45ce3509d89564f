//! The settings of the controllers.

use std::collections::BTreeSet;

use super::check::Check;
use crate::config::{
    ControllerName, FeatureGate, LowArgs, NodeIpamSettings, NodeLifecycleSettings, NodeSettings,
    RouteSettings, ServiceSettings, service_ranges::ServiceRanges,
};

/// The values of `--cidr-allocator-type`; which of them a provider has, it says itself.
const ALLOCATORS: [&str; 4] = [
    "RangeAllocator",
    "CloudAllocator",
    "IPAMFromCluster",
    "IPAMFromCloud",
];

pub(super) fn node(args: &LowArgs, check: &mut Check<'_>) -> NodeSettings {
    let syncs = check.workers("--concurrent-node-syncs", args.concurrent_node_syncs);
    let updates = args.concurrent_node_status_updates;
    check.that(updates >= 0, || {
        format!("--concurrent-node-status-updates must not be negative, got {updates}")
    });
    NodeSettings {
        syncs,
        status_updates: usize::try_from(updates)
            .ok()
            .filter(|n| *n > 0)
            .unwrap_or(syncs),
        status_update_period: check.period(
            "--node-status-update-frequency",
            args.node_status_update_frequency,
        ),
        label_refresh: args.node_label_refresh,
    }
}

pub(super) fn node_lifecycle(args: &LowArgs, check: &mut Check<'_>) -> NodeLifecycleSettings {
    let confirmations = args.node_deletion_confirmations;
    check.that(confirmations >= 1, || {
        format!("--node-deletion-confirmations must be at least 1, got {confirmations}")
    });
    let share = args.node_deletion_max_share;
    check.that(
        share.is_none_or(|share| share > 0.0 && share <= 1.0),
        || {
            format!(
                "--node-deletion-max-share must be above 0 and at most 1, got {}",
                share.unwrap_or_default()
            )
        },
    );
    NodeLifecycleSettings {
        syncs: check.workers(
            "--concurrent-node-lifecycle-syncs",
            args.concurrent_node_lifecycle_syncs,
        ),
        monitor_period: check.period("--node-monitor-period", args.node_monitor_period),
        deletion_confirmations: u32::try_from(confirmations).unwrap_or(1),
        max_deletion_share: share,
    }
}

pub(super) fn service(args: &LowArgs, check: &mut Check<'_>) -> ServiceSettings {
    ServiceSettings {
        syncs: check.workers("--concurrent-service-syncs", args.concurrent_service_syncs),
        verify_period: check.period("--service-verify-period", args.service_verify_period),
    }
}

/// A range that cannot be read is found at once where a controller would need it. How many there
/// may be, and whether there must be one, depends on the provider.
pub(super) fn cluster_cidr(
    args: &LowArgs,
    controllers: &BTreeSet<ControllerName>,
    check: &mut Check<'_>,
) {
    let routes = args.configure_cloud_routes && controllers.contains(&ControllerName::Route);
    let ranges = args.allocate_node_cidrs && controllers.contains(&ControllerName::NodeIpam);
    let value = args.cluster_cidr.trim();
    if value.is_empty() || !(routes || ranges) {
        return;
    }
    for part in value.split(',') {
        check.that(part.parse::<ipnet::IpNet>().is_ok(), || {
            format!(
                "--cluster-cidr must hold ranges such as 10.244.0.0/16 or fd00:10:244::/56, comma \
                 separated without spaces, got {part:?}"
            )
        });
    }
}

pub(super) fn route(args: &LowArgs, check: &mut Check<'_>) -> RouteSettings {
    RouteSettings {
        configure: args.configure_cloud_routes,
        cluster_cidr: args.cluster_cidr.clone(),
        period: check.period(
            "--route-reconciliation-period",
            args.route_reconciliation_period,
        ),
        watch: args.feature_gates.enabled(FeatureGate::WatchBasedRoutes),
    }
}

/// What is wrong for every provider is found here; the rest of the table in §6.1 by the controller,
/// which knows the provider.
pub(super) fn node_ipam(
    args: &LowArgs,
    controllers: &BTreeSet<ControllerName>,
    check: &mut Check<'_>,
) -> NodeIpamSettings {
    let wanted = args.allocate_node_cidrs && controllers.contains(&ControllerName::NodeIpam);
    let allocator = &args.cidr_allocator_type;
    check.that(!wanted || ALLOCATORS.contains(&allocator.as_str()), || {
        let known = ALLOCATORS.join(", ");
        format!("--cidr-allocator-type must be one of {known}, got {allocator:?}")
    });
    service_ranges(&args.service_cluster_ip_range, wanted, check);
    for (flag, length, longest) in [
        ("--node-cidr-mask-size", args.node_cidr_mask_size, 128),
        (
            "--node-cidr-mask-size-ipv4",
            args.node_cidr_mask_size_ipv4,
            32,
        ),
        (
            "--node-cidr-mask-size-ipv6",
            args.node_cidr_mask_size_ipv6,
            128,
        ),
    ] {
        check.that((0..=longest).contains(&length), || {
            format!("{flag} must be 0 (not given) to {longest}, got {length}")
        });
    }
    NodeIpamSettings {
        allocate: args.allocate_node_cidrs,
        cluster_cidr: args.cluster_cidr.clone(),
        service_cluster_ip_range: args.service_cluster_ip_range.clone(),
        allocator_type: allocator.clone(),
        mask_size: args.node_cidr_mask_size,
        mask_size_ipv4: args.node_cidr_mask_size_ipv4,
        mask_size_ipv6: args.node_cidr_mask_size_ipv6,
    }
}

/// A range that cannot be read is a warning, whatever the provider (REQ-IPAM-14).
fn service_ranges(text: &str, wanted: bool, check: &mut Check<'_>) {
    let ranges = ServiceRanges::parse(text);
    check.that(!ranges.are_too_many(), || {
        format!(
            "--service-cluster-ip-range must hold at most two ranges, comma separated, got {text:?}"
        )
    });
    if !wanted || ranges.are_too_many() {
        return;
    }
    check.that(!ranges.share_a_family(), || {
        format!(
            "--service-cluster-ip-range must hold one range, or one of each family such as \
             10.96.0.0/12,fd00:96::/112, got {text:?}"
        )
    });
    check.warnings.extend(ranges.warnings());
}
