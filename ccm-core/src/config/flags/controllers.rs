//! Flags of single controllers.

use crate::config::flag::{Flag, parse_float};

pub(super) const FLAGS: &[Flag] = &[
    flag!(
        Node,
        Int,
        "concurrent-node-status-updates",
        "0",
        concurrent_node_status_updates,
        "Nodes whose addresses are refreshed at once; 0 means as many as --concurrent-node-syncs."
    ),
    flag!(
        Node,
        Int,
        "concurrent-node-syncs",
        "1",
        concurrent_node_syncs,
        "Nodes initialised at once."
    ),
    flag!(
        Node,
        Bool,
        "node-label-refresh",
        "false",
        node_label_refresh,
        "Whether the labels of initialised Nodes follow the cloud."
    )
    .own(),
    flag!(
        NodeLifecycle,
        Int,
        "concurrent-node-lifecycle-syncs",
        "1",
        concurrent_node_lifecycle_syncs,
        "Nodes looked at at once."
    ),
    flag!(
        NodeLifecycle,
        Int,
        "node-deletion-confirmations",
        "2",
        node_deletion_confirmations,
        "How many times in a row the cloud must say that a machine is gone before its Node is \
         deleted; 1 as the Go managers."
    )
    .own(),
    flag!(
        custom NodeLifecycle, Float, "node-deletion-max-share", "",
        |args, text| {
            args.node_deletion_max_share = Some(parse_float(text)?);
            Ok(())
        },
        "Delete no Node in a round in which more than this share of all Nodes (above 0, at \
         most 1) looks gone. Not given: no such limit."
    )
    .own(),
    flag!(
        NodeLifecycle,
        Duration,
        "node-monitor-period",
        "5s",
        node_monitor_period,
        "The time between two looks at the Nodes."
    ),
    flag!(
        Service,
        Int,
        "concurrent-service-syncs",
        "1",
        concurrent_service_syncs,
        "Services worked on at once."
    ),
    flag!(
        Service,
        Duration,
        "service-verify-period",
        "30m0s",
        service_verify_period,
        "The time after which the load balancer of an unchanged Service is compared with the cloud \
         again, so that drift is repaired."
    )
    .own(),
    flag!(
        LeaderMigration,
        Bool,
        "enable-leader-migration",
        "false",
        enable_leader_migration,
        "Whether some controllers need a second lock, so that they can move between managers. \
         Only with --leader-elect."
    ),
    flag!(
        LeaderMigration,
        Text,
        "leader-migration-config",
        "",
        leader_migration_config,
        "The path of a LeaderMigrationConfiguration, read at the start. Empty: the Go managers' \
         own, under which only cloud-node-lifecycle-controller moves."
    ),
];
