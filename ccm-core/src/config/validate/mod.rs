//! From flags to settings: everything that is wrong is found, and found at once.

mod access;
mod check;
mod controllers;
mod leader;
mod logging;
mod serving;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, path::PathBuf};

use self::check::Check;
use super::{
    ApiRate, ApiSettings, CloudSettings, ConfigErrors, ControllerName, FeatureGate, LowArgs,
    OwnFlags, Settings, configz::configz, controllers::select,
};
use crate::cloud::ClusterName;

/// What the Go managers use for the one of rate and burst that is not given.
pub(super) const DEFAULT_QPS: f64 = 20.0;
/// See [`DEFAULT_QPS`].
pub(super) const DEFAULT_BURST: i32 = 30;
/// The encodings that the Kubernetes API has; empty is the client library's default, JSON.
const CONTENT_TYPES: [&str; 5] = [
    "",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
];

impl Settings {
    /// Validates the flags. Reads the file of `--leader-migration-config`, nothing else.
    ///
    /// # Errors
    /// Everything that is wrong, at once, also what could not be read; each line names the flag
    /// and the fix.
    pub fn from_args(args: &LowArgs) -> Result<Self, ConfigErrors> {
        let mut check = Check::new(args);
        let cloud = cloud(args, &mut check);
        let own = own_controllers(args, &mut check);
        let controllers = select(&args.controllers, &own, &mut check.errors);
        let api = api(args, &mut check);
        let node = controllers::node(args, &mut check);
        let node_lifecycle = controllers::node_lifecycle(args, &mut check);
        let service = controllers::service(args, &mut check);
        controllers::cluster_cidr(args, &controllers.chosen, &mut check);
        let route = controllers::route(args, &mut check);
        let node_ipam = controllers::node_ipam(args, &controllers.chosen, &mut check);
        let controller_start_interval = check.not_negative(
            "--controller-start-interval",
            args.controller_start_interval,
        );
        let leader_election = leader::election(args, &mut check);
        let migration = leader::migration(args, &mut check);
        let serving = serving::serving(args, &mut check);
        serving::webhooks(args, &mut check);
        let authentication = access::authentication(args, &mut check);
        let authorization = access::authorization(args, &mut check);
        let health_address = health_address(args, &mut check);
        let logging = logging::logging(args, &mut check);
        let shutdown_grace = check.period("--shutdown-grace-period", args.shutdown_grace_period);
        check.not_negative("--min-resync-period", args.min_resync_period);
        check.warnings.extend(args.feature_gates.warnings());
        match cloud {
            Some(cloud) if check.errors.is_empty() => Ok(Self {
                cloud,
                controllers: controllers.chosen,
                named_controllers: controllers.named,
                own_flags: OwnFlags::of(args, &args.cloud_provider),
                api,
                node,
                node_lifecycle,
                service,
                route,
                node_ipam,
                leader_migration: leader_election
                    .is_some()
                    .then(|| {
                        migration
                            .as_ref()
                            .map(super::migration::Migration::settings)
                    })
                    .flatten(),
                leader_election,
                serving,
                authentication,
                authorization,
                controller_start_interval,
                use_service_account_credentials: args.use_service_account_credentials,
                profiling: args.profiling,
                contention_profiling: args.contention_profiling,
                feature_gates: args.feature_gates.clone(),
                reported_version: args.reported_version.clone(),
                configz: configz(args, migration.as_ref()),
                health_address,
                logging,
                shutdown_grace,
                warnings: check.warnings,
            }),
            _ => Err(ConfigErrors::new(check.errors)),
        }
    }

    /// Reads and validates a command line without the program's name.
    ///
    /// # Errors
    /// As [`LowArgs::parse`] and [`Settings::from_args`], all at once.
    pub fn parse<I>(args: I) -> Result<Self, ConfigErrors>
    where
        I: IntoIterator<Item: Into<String>>,
    {
        Self::from_args(&LowArgs::read(args))
    }
}

/// `None` only beside an error.
fn cloud(args: &LowArgs, check: &mut Check<'_>) -> Option<CloudSettings> {
    check.together(&["cloud-provider"], !args.cloud_provider.is_empty(), || {
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

/// The controllers that only the selected provider has. A flag of another one is an error: it would
/// change nothing.
fn own_controllers(args: &LowArgs, check: &mut Check<'_>) -> Vec<ControllerName> {
    let selected = args.cloud_provider.as_str();
    for (name, flag) in &args.own_flags {
        let other = flag.given && flag.provider != selected;
        check.together(&["cloud-provider"], !other || selected.is_empty(), || {
            format!(
                "--{name} is a flag of --cloud-provider={}; leave it out",
                flag.provider
            )
        });
    }
    let all = args.own_controllers.iter();
    all.filter(|(provider, _)| *provider == selected)
        .map(|(_, name)| *name)
        .collect()
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn api(args: &LowArgs, check: &mut Check<'_>) -> ApiSettings {
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
    let content = args.kube_api_content_type.as_str();
    check.that(CONTENT_TYPES.contains(&content), || {
        let known = CONTENT_TYPES.join(", ");
        let known = known.trim_start_matches(", ");
        format!("--kube-api-content-type must be one of {known}, got {content:?}")
    });
    ApiSettings {
        kubeconfig: path(&args.kubeconfig),
        master: (!args.master.is_empty()).then(|| args.master.clone()),
        rate,
    }
}

fn health_address(args: &LowArgs, check: &mut Check<'_>) -> Option<SocketAddr> {
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

/// The way to switch a gate on, for an error's text.
fn switch_on(gate: FeatureGate) -> String {
    format!("--feature-gates={}=true", gate.name())
}
