//! The body of `/configz`: the settings in the form of the Go managers (specification: controllers
//! §7.4; REQ-APP-17, REQ-APP-27).

use serde_json::{Value, json};

use super::{GoDuration, LowArgs, migration::Migration};

/// The key of the object, and its group.
const GROUP: &str = "cloudcontrollermanager.config.k8s.io";

/// The settings that are in force, under the key and with the field names of the Go managers.
/// Where no client-side rate is in force, `qps` is -1, the Go managers' word for none.
pub(super) fn configz(args: &LowArgs, migration: Option<&Migration>) -> Value {
    let body = json!({
        "kind": "CloudControllerManagerConfiguration",
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "Generic": generic(args, migration),
        "KubeCloudShared": kube_cloud_shared(args),
        "NodeController": {
            "ConcurrentNodeSyncs": args.concurrent_node_syncs,
            "ConcurrentNodeStatusUpdates": args.concurrent_node_status_updates,
        },
        "NodeLifecycleController": {
            "ConcurrentNodeLifecycleSyncs": args.concurrent_node_lifecycle_syncs,
            "NodeMonitorPeriod": duration(args.node_monitor_period),
        },
        "ServiceController": { "ConcurrentServiceSyncs": args.concurrent_service_syncs },
        "NodeStatusUpdateFrequency": duration(args.node_status_update_frequency),
        "Webhook": { "Webhooks": args.webhooks },
    });
    json!({ GROUP: body })
}

fn generic(args: &LowArgs, migration: Option<&Migration>) -> Value {
    let no_rate = args.kube_api_qps.is_none() && args.kube_api_burst.is_none();
    let qps = args.kube_api_qps.unwrap_or(super::validate::DEFAULT_QPS);
    let burst = args
        .kube_api_burst
        .unwrap_or(super::validate::DEFAULT_BURST);
    let address = args.secure.bind_address.map(|address| address.to_string());
    json!({
        "Port": args.secure.port,
        "Address": address.unwrap_or_default(),
        "MinResyncPeriod": duration(args.min_resync_period),
        "ClientConnection": {
            "kubeconfig": args.kubeconfig,
            "acceptContentTypes": "",
            "contentType": args.kube_api_content_type,
            "qps": if no_rate { -1.0 } else { qps },
            "burst": burst,
        },
        "ControllerStartInterval": duration(args.controller_start_interval),
        "LeaderElection": {
            "leaderElect": args.leader_elect,
            "leaseDuration": duration(args.leader_elect_lease_duration),
            "renewDeadline": duration(args.leader_elect_renew_deadline),
            "retryPeriod": duration(args.leader_elect_retry_period),
            "resourceLock": args.leader_elect_resource_lock,
            "resourceName": args.leader_elect_resource_name,
            "resourceNamespace": args.leader_elect_resource_namespace,
        },
        "Controllers": args.controllers,
        "Debugging": {
            "enableProfiling": args.profiling,
            "enableContentionProfiling": args.contention_profiling,
        },
        "LeaderMigrationEnabled": args.enable_leader_migration,
        "LeaderMigration": migration.map_or_else(none_migrates, Migration::to_json),
    })
}

fn none_migrates() -> Value {
    json!({ "leaderName": "", "resourceLock": "", "controllerLeaders": null })
}

fn kube_cloud_shared(args: &LowArgs) -> Value {
    json!({
        "CloudProvider": {
            "Name": args.cloud_provider,
            "CloudConfigFile": args.cloud_config,
        },
        "ExternalCloudVolumePlugin": args.external_cloud_volume_plugin,
        "UseServiceAccountCredentials": args.use_service_account_credentials,
        "AllowUntaggedCloud": args.allow_untagged_cloud,
        "RouteReconciliationPeriod": duration(args.route_reconciliation_period),
        "ClusterName": args.cluster_name,
        "ClusterCIDR": args.cluster_cidr,
        "AllocateNodeCIDRs": args.allocate_node_cidrs,
        "CIDRAllocatorType": args.cidr_allocator_type,
        "ConfigureCloudRoutes": args.configure_cloud_routes,
        "NodeSyncPeriod": duration(args.node_sync_period),
    })
}

/// As Go writes a `metav1.Duration`.
fn duration(value: GoDuration) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn of(args: &[&str]) -> Value {
        let all = ["--cloud-provider=aws"].iter().chain(args).copied();
        let mut whole = Settings::parse(all).unwrap().configz;
        let object = whole.as_object_mut().unwrap();
        assert_eq!(object.keys().collect::<Vec<_>>(), [GROUP]);
        object.remove(GROUP).unwrap()
    }

    /// REQ-APP-17
    #[test]
    fn the_defaults_have_the_names_and_forms_of_the_go_managers() {
        assert_eq!(
            of(&[]),
            json!({
                "kind": "CloudControllerManagerConfiguration",
                "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
                "Generic": {
                    "Port": 10258,
                    "Address": "0.0.0.0",
                    "MinResyncPeriod": "12h0m0s",
                    "ClientConnection": {
                        "kubeconfig": "",
                        "acceptContentTypes": "",
                        "contentType": "application/vnd.kubernetes.protobuf",
                        "qps": -1.0,
                        "burst": 30,
                    },
                    "ControllerStartInterval": "0s",
                    "LeaderElection": {
                        "leaderElect": true,
                        "leaseDuration": "15s",
                        "renewDeadline": "10s",
                        "retryPeriod": "2s",
                        "resourceLock": "leases",
                        "resourceName": "cloud-controller-manager",
                        "resourceNamespace": "kube-system",
                    },
                    "Controllers": ["*"],
                    "Debugging": {
                        "enableProfiling": true,
                        "enableContentionProfiling": false,
                    },
                    "LeaderMigrationEnabled": false,
                    "LeaderMigration": {
                        "leaderName": "",
                        "resourceLock": "",
                        "controllerLeaders": null,
                    },
                },
                "KubeCloudShared": {
                    "CloudProvider": { "Name": "aws", "CloudConfigFile": "" },
                    "ExternalCloudVolumePlugin": "",
                    "UseServiceAccountCredentials": false,
                    "AllowUntaggedCloud": false,
                    "RouteReconciliationPeriod": "10s",
                    "ClusterName": "kubernetes",
                    "ClusterCIDR": "",
                    "AllocateNodeCIDRs": false,
                    "CIDRAllocatorType": "RangeAllocator",
                    "ConfigureCloudRoutes": true,
                    "NodeSyncPeriod": "0s",
                },
                "NodeController": {
                    "ConcurrentNodeSyncs": 1,
                    "ConcurrentNodeStatusUpdates": 0,
                },
                "NodeLifecycleController": {
                    "ConcurrentNodeLifecycleSyncs": 1,
                    "NodeMonitorPeriod": "5s",
                },
                "ServiceController": { "ConcurrentServiceSyncs": 1 },
                "NodeStatusUpdateFrequency": "5m0s",
                "Webhook": { "Webhooks": [] },
            })
        );
    }

    /// REQ-APP-27
    #[test]
    fn what_the_flags_say_is_shown() {
        let body = of(&[
            "--node-monitor-period=1m30s",
            "--concurrent-node-lifecycle-syncs=7",
            "--kube-api-qps=50",
            "--controllers=*,-route",
            "--enable-leader-migration",
        ]);
        let at = |pointer: &str| body.pointer(pointer).unwrap().clone();
        assert_eq!(
            at("/NodeLifecycleController"),
            json!({ "ConcurrentNodeLifecycleSyncs": 7, "NodeMonitorPeriod": "1m30s" })
        );
        assert_eq!(at("/Generic/ClientConnection/qps"), json!(50.0));
        assert_eq!(at("/Generic/Controllers"), json!(["*", "-route"]));
        assert_eq!(
            at("/Generic/LeaderMigration/leaderName"),
            json!("cloud-provider-extraction-migration")
        );
        assert_eq!(
            at("/Generic/LeaderMigration/controllerLeaders/2"),
            json!({ "name": "cloud-node-lifecycle-controller", "component": "*" })
        );
    }
}
