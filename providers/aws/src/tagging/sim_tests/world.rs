//! A cluster, its Nodes, and a manager.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ccm_cloudsim::{CloudSim, Options, aws::Cluster, control::Call};
use ccm_core::{
    cloud::Registry,
    config::{Env, LowArgs, Settings},
    runtime::{Clock, Manager, ManagerError, Random},
};
use ccm_kubesim::KubeSim;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The checksum of `key1=value1`.
pub(super) const CHECKSUM: &str = "9767c4972ba72e87ab553bad2afde741";

/// Flags with which the controller runs.
pub(super) const FLAGS: [&str; 3] = [
    "--controllers=tagging",
    "--tags=key1=value1",
    "--resources=instance",
];

pub(super) struct World {
    pub sim: CloudSim,
    pub cluster: Cluster,
    pub kube: Arc<KubeSim>,
    pub metrics: prometheus::Registry,
    clock: Clock,
    config: PathBuf,
    stop: CancellationToken,
    manager: Option<JoinHandle<Result<(), ManagerError>>>,
}

impl World {
    /// That many machines, no Nodes, no manager.
    pub fn new(machines: usize) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let sim = CloudSim::new(Options::default());
        let cluster = sim.aws().standard_cluster("kite", machines).unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ccm-tagging-{}-{number}", std::process::id());
        let config = std::env::temp_dir().join(name);
        let text = format!(
            "[Global]\nRegion = us-west-2\nVPC = {}\nSubnetID = {}\nKubernetesClusterID = kite\n",
            cluster.vpc_id, cluster.subnet_ids[0]
        );
        fs::write(&config, text).unwrap();
        let options = ccm_kubesim::Options {
            taint_new_nodes: false,
            ..ccm_kubesim::Options::default()
        };
        Self {
            sim,
            cluster,
            clock: Clock::anchored(options.start),
            kube: Arc::new(KubeSim::new(options)),
            metrics: prometheus::Registry::new(),
            config,
            stop: CancellationToken::new(),
            manager: None,
        }
    }

    /// Starts the manager with these flags.
    pub fn start(&mut self, flags: &[&str]) {
        let config = format!("--cloud-config={}", self.config.display());
        let fixed = [
            "--cloud-provider=aws",
            "--leader-elect=false",
            "--secure-port=0",
            "--configure-cloud-routes=false",
            &config,
        ];
        let http = ccm_cloudsim::sdk::http_client(&self.sim);
        let clouds = Registry::new(vec![crate::provider_with(http)]).unwrap();
        let low = LowArgs::read_for(fixed.iter().chain(flags).copied(), &clouds);
        let settings = Settings::from_args(&low).unwrap();
        let keys = [
            ("AWS_ACCESS_KEY_ID", "AKIA"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let env = Env::new(keys.map(|(key, value)| (key.to_owned(), value.to_owned())));
        self.metrics = prometheus::Registry::new();
        let manager = Manager::new(settings, clouds, env, self.clock.clone(), Random::seeded(1))
            .with_client(self.client())
            .with_registry(self.metrics.clone());
        self.stop = CancellationToken::new();
        self.manager = Some(tokio::spawn(manager.run(self.stop.clone())));
    }

    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.kube.service(), "default")
    }

    /// How the manager ended; it is asked to.
    pub async fn end(&mut self) -> Result<(), ManagerError> {
        self.stop.cancel();
        self.manager.take().unwrap().await.unwrap()
    }

    /// How the manager ended by itself.
    pub async fn ended(&mut self) -> ManagerError {
        self.manager.take().unwrap().await.unwrap().unwrap_err()
    }

    pub fn machine(&self, at: usize) -> &str {
        &self.cluster.instance_ids[at]
    }

    /// The Node of the machine at that place comes: `n0` of the first one.
    pub fn join(&self, at: usize) {
        self.join_as(&format!("n{at}"), self.machine(at));
    }

    pub fn join_as(&self, name: &str, machine: &str) {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name },
            "spec": { "providerID": format!("aws:///us-west-2a/{machine}") },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        self.kube.apply_direct(node).unwrap();
    }

    pub fn leave(&self, name: &str) {
        self.kube.delete_direct("nodes", "", name).unwrap();
    }

    pub fn label(&self, name: &str) -> Option<String> {
        let node = self.kube.get("nodes", "", name).unwrap();
        let label = &node["metadata"]["labels"]["k8s.io/cloud-provider-aws"];
        label.as_str().map(str::to_owned)
    }

    /// The value of a tag of the machine at that place.
    pub fn tag(&self, at: usize, key: &str) -> Option<String> {
        let instance = self.sim.aws().instance(self.machine(at)).unwrap();
        instance.tags.get(key).cloned()
    }

    /// The calls of one action so far.
    pub fn calls(&self, action: &str) -> Vec<Call> {
        let calls = self.sim.calls().calls_since(self.sim.calls().start());
        calls.into_iter().filter(|c| c.action == action).collect()
    }

    pub fn series(&self) -> String {
        prometheus::TextEncoder::new()
            .encode_to_string(&self.metrics.gather())
            .unwrap()
    }

    /// The work item errors of a machine: total, and given up.
    pub fn errors(&self, machine: &str) -> (u64, u64) {
        let families = self.metrics.gather();
        let name = "cloudprovider_aws_tagging_controller_work_item_errors_total";
        let family = families.iter().find(|family| family.name() == name);
        let count = |kind: &str| {
            let metrics = family
                .into_iter()
                .flat_map(prometheus::proto::MetricFamily::get_metric);
            let of = metrics.filter(|metric| {
                let labels: Vec<&str> = metric
                    .get_label()
                    .iter()
                    .map(prometheus::proto::LabelPair::value)
                    .collect();
                labels == [kind, machine]
            });
            of.map(|metric| metric.get_counter().get_value() as u64)
                .sum()
        };
        (
            count("total_errors"),
            count("errors_after_retries_exhausted"),
        )
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.config);
    }
}

/// Lets virtual time pass; everything that is due happens.
pub(super) async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
