//! From flags to settings: everything that is wrong is found, and found at once.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{
    ApiRate, ApiSettings, CloudSettings, ConfigErrors, GoDuration, LogFormat, LoggingSettings,
    LowArgs, NodeIpamSettings, NodeLifecycleSettings, NodeSettings, RouteSettings, ServiceSettings,
    Settings, controllers,
};
use crate::cloud::ClusterName;

/// What the Go managers use for the one of rate and burst that is not given.
const DEFAULT_QPS: f64 = 20.0;
/// See [`DEFAULT_QPS`].
const DEFAULT_BURST: i32 = 30;

impl Settings {
    /// Validates the flags.
    ///
    /// # Errors
    /// Everything that is wrong, at once; each line names the flag and the fix.
    pub fn from_args(args: &LowArgs) -> Result<Self, ConfigErrors> {
        let mut check = Check::default();
        refuse_what_comes_later(args, &mut check);
        check.that(args.min_resync_period.to_std().is_some(), || {
            "--min-resync-period must not be negative".to_owned()
        });
        let cloud = cloud(args, &mut check);
        let controllers = controllers::select(&args.controllers, &mut check.errors);
        let api = api(args, &mut check);
        let node = node(args, &mut check);
        let node_lifecycle = node_lifecycle(args, &mut check);
        let service = service(args, &mut check);
        let health_address = health_address(args, &mut check);
        let logging = logging(args, &mut check);
        let shutdown_grace = check.period("--shutdown-grace-period", args.shutdown_grace_period);
        match cloud {
            Some(cloud) if check.errors.is_empty() => Ok(Self {
                cloud,
                controllers,
                api,
                node,
                node_lifecycle,
                service,
                route: route(args),
                node_ipam: node_ipam(args),
                health_address,
                logging,
                shutdown_grace,
            }),
            _ => Err(ConfigErrors::new(check.errors)),
        }
    }

    /// Reads and validates a command line without the program's name.
    ///
    /// # Errors
    /// As [`LowArgs::parse`] and [`Settings::from_args`].
    pub fn parse<I>(args: I) -> Result<Self, ConfigErrors>
    where
        I: IntoIterator<Item: Into<String>>,
    {
        Self::from_args(&LowArgs::parse(args)?)
    }
}

/// Collects the errors. A field that is wrong gets a harmless value: the whole is refused anyway.
#[derive(Default)]
struct Check {
    errors: Vec<String>,
}

impl Check {
    fn that(&mut self, fine: bool, error: impl FnOnce() -> String) {
        if !fine {
            self.errors.push(error());
        }
    }

    /// A number of workers, at least 1 (REQ-APP-26).
    fn workers(&mut self, flag: &str, value: i32) -> usize {
        self.that(value >= 1, || {
            format!("{flag} must be at least 1, got {value}")
        });
        usize::try_from(value).unwrap_or(1)
    }

    /// A duration above zero.
    fn period(&mut self, flag: &str, value: GoDuration) -> Duration {
        let duration = value.to_std().filter(|duration| !duration.is_zero());
        self.that(duration.is_some(), || {
            format!("{flag} must be longer than 0s, got {value}")
        });
        duration.unwrap_or(Duration::from_secs(1))
    }
}

/// Flags whose feature is not in this release are refused, never ignored.
fn refuse_what_comes_later(args: &LowArgs, check: &mut Check) {
    check.that(!args.leader_elect, || {
        "--leader-elect=true: leader election is not in this release; run one replica with \
         --leader-elect=false"
            .to_owned()
    });
    check.that(args.leader_elect_resource_lock == "leases", || {
        format!(
            "--leader-elect-resource-lock must be \"leases\", got {:?}",
            args.leader_elect_resource_lock
        )
    });
    for (flag, name) in [
        (
            "--leader-elect-resource-name",
            &args.leader_elect_resource_name,
        ),
        (
            "--leader-elect-resource-namespace",
            &args.leader_elect_resource_namespace,
        ),
    ] {
        check.that(!name.is_empty(), || format!("{flag} must not be empty"));
    }
    leader_election_times(args, check);
    check.that(args.secure_port == 0, || {
        format!(
            "--secure-port={}: secure serving is not in this release; use --secure-port=0 and \
             --health-bind-address for health and metrics",
            args.secure_port
        )
    });
    check.that(!args.use_service_account_credentials, || {
        "--use-service-account-credentials=true is not in this release; all controllers use the \
         manager's own credentials"
            .to_owned()
    });
}

/// Lease > deadline > 1.2 × retry > 0 (specification: controllers §7.2).
fn leader_election_times(args: &LowArgs, check: &mut Check) {
    let retry = check.period(
        "--leader-elect-retry-period",
        args.leader_elect_retry_period,
    );
    check.that(
        args.leader_elect_lease_duration > args.leader_elect_renew_deadline,
        || {
            format!(
                "--leader-elect-lease-duration ({}) must be longer than \
                 --leader-elect-renew-deadline ({})",
                args.leader_elect_lease_duration, args.leader_elect_renew_deadline
            )
        },
    );
    let deadline = args.leader_elect_renew_deadline.to_std();
    check.that(
        deadline.is_some_and(|deadline| deadline > retry.mul_f64(1.2)),
        || {
            format!(
                "--leader-elect-renew-deadline ({}) must be longer than 1.2 times \
                 --leader-elect-retry-period ({})",
                args.leader_elect_renew_deadline, args.leader_elect_retry_period
            )
        },
    );
}

/// `None` only beside an error.
fn cloud(args: &LowArgs, check: &mut Check) -> Option<CloudSettings> {
    check.that(!args.cloud_provider.is_empty(), || {
        "--cloud-provider is required; give the name of the cloud, for example \
         --cloud-provider=aws"
            .to_owned()
    });
    let cluster_name = ClusterName::new(args.cluster_name.clone());
    if let Err(error) = &cluster_name {
        check.errors.push(format!("--cluster-name: {error}"));
    }
    let cluster_name = cluster_name.ok()?;
    Some(CloudSettings {
        provider: args.cloud_provider.clone(),
        config: path(&args.cloud_config),
        cluster_name,
        allow_untagged: args.allow_untagged_cloud,
    })
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn api(args: &LowArgs, check: &mut Check) -> ApiSettings {
    let rate = match (args.kube_api_qps, args.kube_api_burst) {
        (None, None) => None,
        (Some(qps), _) if qps < 0.0 => None,
        (qps, burst) => {
            let qps = qps.unwrap_or(DEFAULT_QPS);
            check.that(qps >= 0.001, || {
                format!("--kube-api-qps must be at least 0.001, or negative for no rate, got {qps}")
            });
            let given = burst.unwrap_or(DEFAULT_BURST);
            let burst = u32::try_from(given).ok().filter(|burst| *burst >= 1);
            check.that(burst.is_some(), || {
                format!("--kube-api-burst must be at least 1, got {given}")
            });
            Some(ApiRate {
                qps,
                burst: burst.unwrap_or(1),
            })
        }
    };
    ApiSettings {
        kubeconfig: path(&args.kubeconfig),
        master: (!args.master.is_empty()).then(|| args.master.clone()),
        rate,
    }
}

fn node(args: &LowArgs, check: &mut Check) -> NodeSettings {
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

fn node_lifecycle(args: &LowArgs, check: &mut Check) -> NodeLifecycleSettings {
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

fn service(args: &LowArgs, check: &mut Check) -> ServiceSettings {
    ServiceSettings {
        syncs: check.workers("--concurrent-service-syncs", args.concurrent_service_syncs),
        verify_period: check.period("--service-verify-period", args.service_verify_period),
    }
}

fn route(args: &LowArgs) -> RouteSettings {
    RouteSettings {
        configure: args.configure_cloud_routes,
        cluster_cidr: args.cluster_cidr.clone(),
        ..RouteSettings::default()
    }
}

fn node_ipam(args: &LowArgs) -> NodeIpamSettings {
    NodeIpamSettings {
        allocate: args.allocate_node_cidrs,
        cluster_cidr: args.cluster_cidr.clone(),
        ..NodeIpamSettings::default()
    }
}

fn health_address(args: &LowArgs, check: &mut Check) -> Option<SocketAddr> {
    let text = &args.health_bind_address;
    if text.is_empty() {
        return None;
    }
    let address = text.parse().ok();
    check.that(address.is_some(), || {
        format!(
            "--health-bind-address must be IP:port such as 127.0.0.1:10268 or [::1]:10268, or \
             empty, got {text:?}"
        )
    });
    address
}

fn logging(args: &LowArgs, check: &mut Check) -> LoggingSettings {
    let format = match args.logging_format.as_str() {
        "json" => LogFormat::Json,
        "text" => LogFormat::Text,
        other => {
            check.errors.push(format!(
                "--logging-format must be \"text\" or \"json\", got {other:?}"
            ));
            LogFormat::Text
        }
    };
    LoggingSettings {
        format,
        verbosity: args.verbosity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ControllerName;

    fn parse(args: &[&str]) -> Result<Settings, String> {
        let all = ["--cloud-provider=aws"].iter().chain(args).copied();
        Settings::parse(all).map_err(|error| error.to_string())
    }

    fn error(args: &[&str]) -> String {
        parse(args).unwrap_err()
    }

    #[test]
    fn the_defaults_are_those_of_the_structures() {
        let settings = parse(&[]).unwrap();
        assert_eq!(settings.node, NodeSettings::default());
        assert_eq!(settings.node_lifecycle, NodeLifecycleSettings::default());
        assert_eq!(settings.service, ServiceSettings::default());
        assert_eq!(settings.api, ApiSettings::default());
        assert_eq!(settings.logging, LoggingSettings::default());
        assert_eq!(settings.cloud.cluster_name.as_str(), "kubernetes");
        assert_eq!(settings.cloud.config, None);
        assert_eq!(settings.health_address, "127.0.0.1:10268".parse().ok());
        assert_eq!(settings.shutdown_grace, Duration::from_secs(10));
        assert_eq!(settings.controllers, ControllerName::ALL.into());
    }

    /// REQ-APP-01
    #[test]
    fn an_empty_cloud_provider_is_refused_by_validation() {
        for args in [[].as_slice(), &["--cloud-provider="]] {
            let error = Settings::parse(args.iter().copied())
                .unwrap_err()
                .to_string();
            assert!(error.contains("--cloud-provider is required"), "{error}");
        }
    }

    /// REQ-APP-26
    #[test]
    fn numbers_and_periods_out_of_range_name_the_flag() {
        for (arg, part) in [
            (
                "--concurrent-node-syncs=0",
                "--concurrent-node-syncs must be at least 1, got 0",
            ),
            (
                "--concurrent-node-syncs=-1",
                "--concurrent-node-syncs must be at least 1",
            ),
            (
                "--concurrent-node-lifecycle-syncs=0",
                "--concurrent-node-lifecycle-syncs must be",
            ),
            (
                "--concurrent-service-syncs=0",
                "--concurrent-service-syncs must be at least 1",
            ),
            (
                "--concurrent-node-status-updates=-1",
                "status-updates must not be negative",
            ),
            (
                "--node-monitor-period=0",
                "--node-monitor-period must be longer than 0s, got 0s",
            ),
            (
                "--node-status-update-frequency=-5m",
                "must be longer than 0s, got -5m0s",
            ),
            (
                "--service-verify-period=0s",
                "--service-verify-period must be longer",
            ),
            (
                "--shutdown-grace-period=0s",
                "--shutdown-grace-period must be longer",
            ),
            (
                "--min-resync-period=-1s",
                "--min-resync-period must not be negative",
            ),
            (
                "--node-deletion-confirmations=0",
                "--node-deletion-confirmations must be at least 1",
            ),
            (
                "--node-deletion-max-share=1.5",
                "--node-deletion-max-share must be above 0",
            ),
            (
                "--cluster-name=",
                "--cluster-name: ClusterName must not be empty",
            ),
            (
                "--health-bind-address=:10268",
                "--health-bind-address must be IP:port",
            ),
            (
                "--logging-format=xml",
                "--logging-format must be \"text\" or \"json\"",
            ),
            ("--kube-api-burst=0", "--kube-api-burst must be at least 1"),
            ("--kube-api-qps=0", "--kube-api-qps must be at least 0.001"),
        ] {
            let error = error(&[arg]);
            assert!(error.contains(part), "{arg}: {error}");
            assert_eq!(error.lines().count(), 1, "{arg}: {error}");
        }
    }

    #[test]
    fn what_is_not_in_this_release_is_refused_with_the_way_out() {
        for (arg, part) in [
            (
                "--leader-elect",
                "run one replica with --leader-elect=false",
            ),
            ("--secure-port=10258", "--health-bind-address"),
            ("--use-service-account-credentials", "not in this release"),
            (
                "--leader-elect-resource-lock=endpoints",
                "must be \"leases\"",
            ),
            ("--leader-elect-renew-deadline=20s", "must be longer than"),
            ("--leader-elect-retry-period=9s", "1.2 times"),
        ] {
            let error = error(&[arg]);
            assert!(error.contains(part), "{arg}: {error}");
        }
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let error = error(&[
            "--concurrent-node-syncs=0",
            "--controllers=nope",
            "--secure-port=1",
            "--logging-format=xml",
        ]);
        assert_eq!(error.lines().count(), 4, "{error}");
    }

    #[test]
    fn zero_status_updates_mean_as_many_as_syncs() {
        let settings = parse(&["--concurrent-node-syncs=7"]).unwrap();
        assert_eq!(settings.node.status_updates, 7);
        let settings = parse(&["--concurrent-node-status-updates=2"]).unwrap();
        assert_eq!(settings.node.status_updates, 2);
    }

    #[test]
    fn a_rate_needs_only_one_of_its_two_flags() {
        for (args, rate) in [
            ([].as_slice(), None),
            (&["--kube-api-qps=-1"], None),
            (
                &["--kube-api-qps=50"],
                Some(ApiRate {
                    qps: 50.0,
                    burst: 30,
                }),
            ),
            (
                &["--kube-api-burst=60"],
                Some(ApiRate {
                    qps: 20.0,
                    burst: 60,
                }),
            ),
            (
                &["--kube-api-qps=5", "--kube-api-burst=6"],
                Some(ApiRate { qps: 5.0, burst: 6 }),
            ),
        ] {
            assert_eq!(parse(args).unwrap().api.rate, rate, "{args:?}");
        }
    }

    #[test]
    fn health_serving_can_be_switched_off() {
        let settings = parse(&["--health-bind-address="]).unwrap();
        assert_eq!(settings.health_address, None);
    }
}
