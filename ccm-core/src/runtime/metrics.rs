//! Metrics of the process, and the rule for names: what the Go managers have keeps their name,
//! everything else starts with `ccm_` (specification: controllers §8).

use prometheus::{GaugeVec, Opts, Registry, process_collector::ProcessCollector};

use super::BuildInfo;
use crate::config::ControllerName;

/// What starts the name of a series that the Go managers have too.
const COMPATIBLE: &[&str] = &[
    "apiserver_delegated_",
    "cloud_node_lifecycle_controller_",
    "cloud_provider_webhook_",
    "cloudprovider_",
    "kubernetes_build_info",
    "kubernetes_healthcheck",
    "leader_election_",
    "node_controller_",
    "node_ipam_controller_",
    "process_",
    "rest_client_",
    "route_controller_",
    "running_managed_controllers",
    "service_controller_",
    "tagging_controller_",
    "workqueue_",
];

/// What starts the name of a series of ours.
const OWN: &str = "ccm_";

/// Registers `process_*` and `kubernetes_build_info`.
///
/// # Errors
/// One of them is registered already.
pub fn register_process_metrics(
    registry: &Registry,
    build: &BuildInfo,
) -> Result<(), prometheus::Error> {
    registry.register(Box::new(ProcessCollector::for_self()))?;
    let labels = [
        "major",
        "minor",
        "git_version",
        "git_commit",
        "git_tree_state",
        "build_date",
        "go_version",
        "compiler",
        "platform",
    ];
    let info = GaugeVec::new(
        Opts::new(
            "kubernetes_build_info",
            "A metric with a constant '1' value labeled by version, commit and platform of the build.",
        ),
        &labels,
    )?;
    registry.register(Box::new(info.clone()))?;
    let (major, minor) = build.major_minor();
    info.with_label_values(&[
        major,
        minor,
        &build.version,
        build.commit,
        build.tree_state,
        build.date,
        "",
        "rustc",
        &build.platform,
    ])
    .set(1.0);
    Ok(())
}

/// The gauge `running_managed_controllers{name,manager}`: 1 while a controller runs.
#[derive(Clone)]
pub(super) struct RunningControllers(GaugeVec);

impl RunningControllers {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = GaugeVec::new(
            Opts::new(
                "running_managed_controllers",
                "Indicates where instances of a controller are currently running",
            ),
            &["name", "manager"],
        )?;
        registry.register(Box::new(gauge.clone()))?;
        Ok(Self(gauge))
    }

    pub(super) fn set(&self, name: ControllerName, running: bool) {
        self.0
            .with_label_values(&[name.alias(), "cloud-controller-manager"])
            .set(f64::from(u8::from(running)));
    }
}

/// The series of every process, for the reference.
pub(super) fn sample_process(registry: &Registry) -> prometheus::Result<()> {
    register_process_metrics(registry, &BuildInfo::current())
}

/// The series of this module that exist per controller, for the reference.
pub(super) fn sample_running_controllers(registry: &Registry) -> prometheus::Result<()> {
    RunningControllers::new(registry)?.set(ControllerName::Node, true);
    Ok(())
}

/// The names in a registry that break the rule of names: neither compatible nor `ccm_…`.
pub fn names_without_home(registry: &Registry) -> Vec<String> {
    registry
        .gather()
        .into_iter()
        .map(|family| family.name().to_owned())
        .filter(|name| !name.starts_with(OWN))
        .filter(|name| !COMPATIBLE.iter().any(|prefix| name.starts_with(prefix)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_and_its_build_are_described() {
        let registry = Registry::new();
        register_process_metrics(&registry, &BuildInfo::current()).unwrap();
        RunningControllers::new(&registry)
            .unwrap()
            .set(ControllerName::Node, true);
        let families = registry.gather();
        let names: Vec<_> = families
            .iter()
            .map(prometheus::proto::MetricFamily::name)
            .collect();
        assert!(names.contains(&"process_resident_memory_bytes"));
        let info = families
            .iter()
            .find(|family| family.name() == "kubernetes_build_info")
            .unwrap();
        let labels = info.get_metric()[0].get_label();
        assert!(labels.iter().any(|label| label.name() == "git_version"
            && label.value() == format!("v{}", env!("CARGO_PKG_VERSION"))));
        assert_eq!(names_without_home(&registry), Vec::<String>::new());
    }

    #[test]
    fn a_name_of_ours_without_the_prefix_is_found() {
        let registry = Registry::new();
        for name in ["ccm_fine_total", "aws_calls_total"] {
            let counter = prometheus::IntCounter::new(name, "x").unwrap();
            registry.register(Box::new(counter)).unwrap();
        }
        assert_eq!(names_without_home(&registry), ["aws_calls_total"]);
    }
}
