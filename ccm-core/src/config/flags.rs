//! The table of flags: names, types and defaults of the Go managers (specification: controllers
//! §7.3) and our own.

use super::{
    VersionForm,
    flag::{Flag, Kind, Section, parse_bool, parse_duration, parse_float, parse_int, parse_list},
};

/// A flag item. `$field` is its place in `LowArgs`; `custom` gives the whole effect by hand.
macro_rules! flag {
    (custom $section:ident, $kind:ident, $name:literal, $default:literal, $set:expr, $help:expr) => {
        flag!(@ $section, $kind, $name, $default, $help, $set)
    };
    ($section:ident, $kind:ident, $name:literal, $default:literal, $field:ident, $help:expr) => {
        flag!(@ $section, $kind, $name, $default, $help, flag!(@set $kind, $field))
    };
    (@set Bool, $field:ident) => { |args, text| { args.$field = parse_bool(text)?; Ok(()) } };
    (@set Int, $field:ident) => { |args, text| { args.$field = parse_int(text)?; Ok(()) } };
    (@set Level, $field:ident) => { |args, text| { args.$field = parse_int(text)?; Ok(()) } };
    (@set Duration, $field:ident) => {
        |args, text| { args.$field = parse_duration(text)?; Ok(()) }
    };
    (@set Text, $field:ident) => { |args, text| { args.$field = text.to_owned(); Ok(()) } };
    (@set List, $field:ident) => { |args, text| { args.$field = parse_list(text); Ok(()) } };
    (@ $section:ident, $kind:ident, $name:literal, $default:literal, $help:expr, $set:expr) => {
        Flag {
            name: $name,
            short: None,
            kind: Kind::$kind,
            default: $default,
            help: $help,
            section: Section::$section,
            deprecated: None,
            own: false,
            set: $set,
        }
    };
}

impl Flag {
    const fn own(mut self) -> Self {
        self.own = true;
        self
    }

    const fn short(mut self, letter: char) -> Self {
        self.short = Some(letter);
        self
    }

    const fn deprecated(mut self, reason: &'static str) -> Self {
        self.deprecated = Some(reason);
        self
    }
}

/// All flags, in the order of the help within each section.
pub fn flags() -> &'static [Flag] {
    FLAGS
}

static FLAGS: &[Flag] = &[
    flag!(
        Generic,
        Bool,
        "allocate-node-cidrs",
        "false",
        allocate_node_cidrs,
        "Whether pod address ranges are allocated to Nodes. Needed by node-route-controller."
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
        "The address ranges of the cluster's pods, one a family, comma separated."
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
        "Whether node-route-controller configures routes, if --allocate-node-cidrs is on too."
    ),
    flag!(
        Generic,
        List,
        "controllers",
        "*",
        controllers,
        "The controllers to run: '*' all that are on by default, 'foo' the controller foo, '-foo' \
         all but foo. The first match counts. Names: cloud-node-controller, \
         cloud-node-lifecycle-controller, node-route-controller, service-lb-controller; aliases: \
         cloud-node, cloud-node-lifecycle, route, service."
    ),
    flag!(
        Generic,
        Duration,
        "min-resync-period",
        "12h0m0s",
        min_resync_period,
        "Accepted for compatibility: caches here follow their watches and are listed again only \
         after a gap. See --service-verify-period for the repair of drift."
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
        "Whether each controller uses its own service account. Only false in this release."
    ),
    flag!(
        custom Api, Int, "kube-api-burst", "",
        |args, text| {
            args.kube_api_burst = Some(parse_int(text)?);
            Ok(())
        },
        "Requests that may go out at once, per client. Not given and --kube-api-qps neither: \
             no rate, the server's priority and fairness decides; given alone: at 20 a second."
    ),
    flag!(
        custom Api, Float, "kube-api-qps", "",
        |args, text| {
            args.kube_api_qps = Some(parse_float(text)?);
            Ok(())
        },
        "Requests a second, per client. Not given and --kube-api-burst neither: no rate; given \
             alone: with a burst of 30. Negative: no rate."
    ),
    flag!(
        Api,
        Text,
        "kubeconfig",
        "",
        kubeconfig,
        "The path of a kubeconfig file. Empty: the pod's service account, or --master."
    ),
    flag!(
        Api,
        Text,
        "master",
        "",
        master,
        "The URL of the API server; it overrides the one in the kubeconfig."
    ),
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
        Node,
        Duration,
        "node-status-update-frequency",
        "5m0s",
        node_status_update_frequency,
        "The time between two refreshes of Node addresses."
    ),
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
        LeaderElection,
        Bool,
        "leader-elect",
        "false",
        leader_elect,
        "Whether replicas elect a leader. Not in this release: run one replica."
    ),
    flag!(
        LeaderElection,
        Duration,
        "leader-elect-lease-duration",
        "15s",
        leader_elect_lease_duration,
        "Accepted; used once leader election is there."
    ),
    flag!(
        LeaderElection,
        Duration,
        "leader-elect-renew-deadline",
        "10s",
        leader_elect_renew_deadline,
        "Accepted; used once leader election is there."
    ),
    flag!(
        LeaderElection,
        Text,
        "leader-elect-resource-lock",
        "leases",
        leader_elect_resource_lock,
        "Accepted; used once leader election is there."
    ),
    flag!(
        LeaderElection,
        Text,
        "leader-elect-resource-name",
        "cloud-controller-manager",
        leader_elect_resource_name,
        "Accepted; used once leader election is there."
    ),
    flag!(
        LeaderElection,
        Text,
        "leader-elect-resource-namespace",
        "kube-system",
        leader_elect_resource_namespace,
        "Accepted; used once leader election is there."
    ),
    flag!(
        LeaderElection,
        Duration,
        "leader-elect-retry-period",
        "2s",
        leader_elect_retry_period,
        "Accepted; used once leader election is there."
    ),
    flag!(
        custom Serving, Ip, "bind-address", "0.0.0.0",
        |args, text| {
            let address = text
                .parse()
                .map_err(|_| format!("{text:?} is not an IP address"))?;
            args.bind_address = Some(address);
            Ok(())
        },
        "The address of the secure port."
    ),
    flag!(
        Serving,
        Text,
        "health-bind-address",
        "127.0.0.1:10268",
        health_bind_address,
        "IP:port of /healthz, /livez, /readyz and /metrics over plain HTTP. Empty: off."
    )
    .own(),
    flag!(
        Serving,
        Int,
        "secure-port",
        "0",
        secure_port,
        "The HTTPS port. Only 0 (off) in this release; see --health-bind-address."
    ),
    flag!(
        custom Global, Bool, "help", "",
        |args, text| {
            args.help = parse_bool(text)?;
            Ok(())
        },
        "Print this help."
    )
    .short('h'),
    flag!(
        Global,
        Text,
        "logging-format",
        "text",
        logging_format,
        "The form of the log: text or json."
    ),
    flag!(
        Global,
        Level,
        "v",
        "0",
        verbosity,
        "How much is logged: 0 and 1 what changes, 2 to 4 also what is decided, from 5 on \
         everything of ours, from 8 on also what the Kubernetes client library does."
    )
    .short('v'),
    flag!(
        custom Global, Version, "version", "false",
        |args, text| {
            args.version = match text {
                "raw" => Some(VersionForm::Raw),
                other => parse_bool(other)
                    .map_err(|_| format!("{other:?}: write true, false or raw"))?
                    .then_some(VersionForm::Text),
            };
            Ok(())
        },
        "Print the version; --version=raw prints all that is known of the build."
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_every_flag_has_help() {
        let names: BTreeSet<_> = flags().iter().map(|flag| flag.name).collect();
        assert_eq!(names.len(), flags().len());
        for flag in flags() {
            assert!(flag.help.ends_with('.'), "--{}", flag.name);
            assert!(!flag.name.contains('_'), "--{}", flag.name);
        }
    }
}
