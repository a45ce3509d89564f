//! Flags of the manager as a whole.

use crate::config::flag::{Flag, parse_float, parse_int};

pub(super) const FLAGS: &[Flag] = &[
    flag!(
        Generic,
        Bool,
        "allocate-node-cidrs",
        "false",
        allocate_node_cidrs,
        "Whether node-ipam-controller allocates pod address ranges to Nodes. Of no account for \
         node-route-controller."
    ),
    flag!(
        Generic,
        Bool,
        "allow-untagged-cloud",
        "false",
        allow_untagged_cloud,
        "Start although the cloud does not tell which cluster this is."
    )
    .deprecated("give the cloud's resources a cluster id instead"),
    flag!(
        Generic,
        Text,
        "cidr-allocator-type",
        "RangeAllocator",
        cidr_allocator_type,
        "Who chooses pod address ranges: RangeAllocator (this program), or CloudAllocator, \
         IPAMFromCluster, IPAMFromCloud where the provider has them."
    ),
    flag!(
        Generic,
        Text,
        "cloud-config",
        "",
        cloud_config,
        "The path of the provider's configuration file. Empty: the provider's defaults."
    ),
    flag!(
        Generic,
        Text,
        "cloud-provider",
        "",
        cloud_provider,
        "The cloud this cluster runs on. Required."
    ),
    flag!(
        Generic,
        Text,
        "cluster-cidr",
        "",
        cluster_cidr,
        "The address ranges of the cluster's pods, one a family, comma separated. Needed by \
         node-route-controller and by node-ipam-controller."
    ),
    flag!(
        Generic,
        Text,
        "cluster-name",
        "kubernetes",
        cluster_name,
        "The name of the cluster; it goes into names and tags of cloud resources."
    ),
    flag!(
        Generic,
        Bool,
        "configure-cloud-routes",
        "true",
        configure_cloud_routes,
        "Whether node-route-controller runs, where the provider has routes."
    ),
    flag!(
        Generic,
        Duration,
        "controller-start-interval",
        "0s",
        controller_start_interval,
        "The pause after the start of each controller, between this and twice this."
    ),
    flag!(
        Generic,
        List,
        "controllers",
        "*",
        controllers,
        "The controllers to run: '*' all that are on by default, 'foo' the controller foo, '-foo' \
         all but foo. The first match counts. Names: cloud-node-controller, \
         cloud-node-lifecycle-controller, node-ipam-controller, node-route-controller, \
         service-lb-controller; aliases: cloud-node, cloud-node-lifecycle, nodeipam, node-ipam, \
         route, service."
    ),
    flag!(
        Generic,
        Text,
        "external-cloud-volume-plugin",
        "",
        external_cloud_volume_plugin,
        "The volume plugin for clouds outside the tree."
    )
    .inert("no controller here uses it"),
    flag!(
        custom Generic, Map, "feature-gates", "",
        |args, text| args.feature_gates.merge(text),
        "Feature gates, as Name=true,Other=false; may be repeated. In effect here: \
         CloudControllerManagerWatchBasedRoutesReconciliation (alpha, false), \
         LoggingAlphaOptions (alpha, false), RemoteRequestHeaderUID (beta, true), AllAlpha, \
         AllBeta. Other gates of Kubernetes are accepted with a warning."
    ),
    flag!(
        custom Generic, Int, "kube-api-burst", "",
        |args, text| {
            args.kube_api_burst = Some(parse_int(text)?);
            Ok(())
        },
        "Requests that may go out at once, per client. Not given and --kube-api-qps neither: \
         no rate, the server's priority and fairness decides; given alone: at 20 a second."
    ),
    flag!(
        Generic,
        Text,
        "kube-api-content-type",
        "application/vnd.kubernetes.protobuf",
        kube_api_content_type,
        "The encoding of requests to the API server."
    )
    .inert("requests are always JSON, which every API server accepts"),
    flag!(
        custom Generic, Float, "kube-api-qps", "",
        |args, text| {
            args.kube_api_qps = Some(parse_float(text)?);
            Ok(())
        },
        "Requests a second, per client. Not given and --kube-api-burst neither: no rate; given \
         alone: with a burst of 30. Negative: no rate."
    ),
    flag!(
        Generic,
        Bool,
        "leader-elect",
        "true",
        leader_elect,
        "Whether replicas elect a leader on a Lease; only the leader runs controllers."
    ),
    flag!(
        Generic,
        Duration,
        "leader-elect-lease-duration",
        "15s",
        leader_elect_lease_duration,
        "How long a replica waits after the last renewal that it saw before it takes over. Longer \
         than --leader-elect-renew-deadline."
    ),
    flag!(
        Generic,
        Duration,
        "leader-elect-renew-deadline",
        "10s",
        leader_elect_renew_deadline,
        "How long the leader tries to renew before it ends. Longer than 1.2 times \
         --leader-elect-retry-period."
    ),
    flag!(
        Generic,
        Text,
        "leader-elect-resource-lock",
        "leases",
        leader_elect_resource_lock,
        "The kind of the lock. Only leases."
    ),
    flag!(
        Generic,
        Text,
        "leader-elect-resource-name",
        "cloud-controller-manager",
        leader_elect_resource_name,
        "The name of the Lease."
    ),
    flag!(
        Generic,
        Text,
        "leader-elect-resource-namespace",
        "kube-system",
        leader_elect_resource_namespace,
        "The namespace of the Lease."
    ),
    flag!(
        Generic,
        Duration,
        "leader-elect-retry-period",
        "2s",
        leader_elect_retry_period,
        "The time between two tries to get or to renew the Lease."
    ),
    flag!(
        Generic,
        Duration,
        "min-resync-period",
        "12h0m0s",
        min_resync_period,
        "The time after which caches are gone through again."
    )
    .inert(
        "caches follow their watches and are listed again only after a gap; see \
         --service-verify-period for the repair of drift",
    ),
    flag!(
        Generic,
        Int,
        "node-cidr-mask-size",
        "0",
        node_cidr_mask_size,
        "The prefix length of a Node's pod address range in a cluster of one family; 0 means 24 \
         for IPv4 and 64 for IPv6."
    ),
    flag!(
        Generic,
        Int,
        "node-cidr-mask-size-ipv4",
        "0",
        node_cidr_mask_size_ipv4,
        "The prefix length of a Node's IPv4 pod address range; 0 means 24."
    ),
    flag!(
        Generic,
        Int,
        "node-cidr-mask-size-ipv6",
        "0",
        node_cidr_mask_size_ipv6,
        "The prefix length of a Node's IPv6 pod address range; 0 means 64."
    ),
    flag!(
        Generic,
        Duration,
        "node-sync-period",
        "0s",
        node_sync_period,
        "The time between two looks at the Nodes."
    )
    .deprecated("it has no effect; see --node-monitor-period")
    .inert("the Go managers do not use it either"),
    flag!(
        Generic,
        Duration,
        "route-reconciliation-period",
        "10s",
        route_reconciliation_period,
        "The time between two looks at the cloud's routes."
    ),
    flag!(
        Generic,
        Text,
        "service-cluster-ip-range",
        "",
        service_cluster_ip_range,
        "The address ranges of Services, at most two, comma separated; no Node gets them."
    ),
    flag!(
        Generic,
        Duration,
        "shutdown-grace-period",
        "10s",
        shutdown_grace_period,
        "How long running work may take to end after SIGTERM or SIGINT."
    )
    .own(),
    flag!(
        Generic,
        Bool,
        "use-service-account-credentials",
        "false",
        use_service_account_credentials,
        "Whether each controller uses a service account of its own in kube-system."
    ),
];
