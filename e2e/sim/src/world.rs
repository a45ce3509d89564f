//! A cluster in the process.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use ccm_cloudsim::{CloudSim, aws::Cluster};
use ccm_core::{
    cloud::Registry,
    config::{Env, LowArgs, Settings},
    runtime::{Clock, Health, Manager, ManagerError, Random},
};
use ccm_envtest::cloud_config;
use ccm_kubesim::{KubeSim, Mark};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

/// The cluster id of every world.
const CLUSTER_ID: &str = "kite";

/// The taint that a kubelet with an external cloud provider registers with.
const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// A cluster: API, cloud, machines, and the manager while it runs.
pub struct World {
    /// The Kubernetes API.
    pub kube: KubeSim,
    /// The emulated AWS.
    pub cloud: CloudSim,
    /// Ids of network, subnets and machines.
    pub cluster: Cluster,
    seed: u64,
    dir: TempDir,
    manager: Option<Running>,
}

struct Running {
    metrics: prometheus::Registry,
    task: JoinHandle<Result<(), ManagerError>>,
    stop: CancellationToken,
    health: Health,
}

/// What a stretch of time cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Cloud calls by action.
    pub cloud: BTreeMap<String, usize>,
    /// Those that are not reads.
    pub cloud_writes: usize,
    /// API requests as `verb resource/subresource`.
    pub api: BTreeMap<String, u64>,
}

impl Costs {
    /// All cloud calls.
    pub fn cloud_calls(&self) -> usize {
        self.cloud.values().sum()
    }

    /// All API requests.
    pub fn api_requests(&self) -> u64 {
        self.api.values().sum()
    }

    /// API writes, events left out.
    pub fn api_writes(&self) -> u64 {
        self.api
            .iter()
            .filter(|(what, _)| {
                let reads = ["get ", "list ", "watch "];
                !reads.iter().any(|read| what.starts_with(read))
                    && !what.ends_with(" events")
                    && !what.contains("reviews.")
            })
            .map(|(_, count)| count)
            .sum()
    }
}

/// The point from which [`World::costs_since`] counts.
#[derive(Clone, Debug)]
pub struct Start {
    api: Mark,
    cloud: ccm_cloudsim::control::Mark,
}

impl World {
    /// A cluster with `machines` machines and no Nodes. Time must be paused.
    ///
    /// # Errors
    /// The emulated cloud has no room, or the temporary folder cannot be made.
    pub fn new(seed: u64, machines: usize) -> Result<Self> {
        let kube = KubeSim::new(ccm_kubesim::Options {
            seed,
            ..Default::default()
        });
        kube.apply_direct(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" },
        }))
        .map_err(|error| anyhow!("{error:?}"))?;
        let cloud = CloudSim::new(ccm_cloudsim::Options {
            seed,
            ..Default::default()
        });
        let cluster = cloud
            .aws()
            .standard_cluster(CLUSTER_ID, machines)
            .map_err(|error| anyhow!("emulated AWS: {error:?}"))?;
        let dir = TempDir::with_prefix("ccm-sim-")?;
        let subnet = cluster.subnet_ids.first().context("no subnet")?;
        let config = cloud_config(
            "http://cloudsim.invalid",
            "us-west-2",
            &cluster.vpc_id,
            subnet,
            CLUSTER_ID,
        );
        std::fs::write(dir.path().join("cloud.conf"), config)?;
        Ok(Self {
            kube,
            cloud,
            cluster,
            seed,
            dir,
            manager: None,
        })
    }

    /// Starts the manager with further flags and waits until it is ready.
    ///
    /// # Errors
    /// The flags are refused, or it ends, or it is not ready after five virtual minutes.
    pub async fn start_manager(&mut self, flags: &[&str]) -> Result<()> {
        let config = self.dir.path().join("cloud.conf");
        let mut args = vec![
            "--cloud-provider=aws".to_owned(),
            format!("--cloud-config={}", config.display()),
            format!("--cluster-name={CLUSTER_ID}"),
            "--leader-elect=false".to_owned(),
            "--configure-cloud-routes=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--health-bind-address=".to_owned(),
        ];
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let low = LowArgs::parse(args).map_err(|errors| anyhow!("{errors:?}"))?;
        let settings = Settings::from_args(&low).map_err(|errors| anyhow!("{errors:?}"))?;
        let factory = ccm_aws::provider_with(ccm_cloudsim::sdk::http_client(&self.cloud));
        let metrics = prometheus::Registry::new();
        let variables = [
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ];
        let manager = Manager::new(
            settings,
            Registry::new(vec![factory])?,
            Env::new(variables.map(|(name, value)| (name.to_owned(), value.to_owned()))),
            Clock::anchored(self.kube.now()),
            Random::seeded(self.seed),
        )
        .with_registry(metrics.clone())
        .with_client(kube::Client::new(self.kube.service(), "default"));
        let (stop, health) = (CancellationToken::new(), manager.health());
        let task = tokio::spawn(manager.run(stop.clone()));
        let running = self.manager.insert(Running {
            metrics,
            task,
            stop,
            health,
        });
        let start = Instant::now();
        while !running.health.is_ready() {
            if running.task.is_finished() {
                let ended = (&mut running.task).await;
                bail!("the manager ended: {ended:?}");
            }
            if start.elapsed() > Duration::from_secs(300) {
                bail!("the manager is not ready after five minutes");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The manager's metrics in the text format.
    ///
    /// # Errors
    /// None runs, or a family has no samples.
    pub fn metrics(&self) -> Result<String> {
        let running = self.manager.as_ref().context("no manager runs")?;
        Ok(prometheus::TextEncoder::new().encode_to_string(&running.metrics.gather())?)
    }

    /// Ends the manager between two of its steps, as a crash does.
    pub async fn crash_manager(&mut self) {
        if let Some(running) = self.manager.take() {
            running.task.abort();
            // A cancelled task is what was asked for.
            let _ = running.task.await;
        }
    }

    /// Ends the manager in order.
    ///
    /// # Errors
    /// None runs, or it ends with an error.
    pub async fn stop_manager(&mut self) -> Result<()> {
        let running = self.manager.take().context("no manager runs")?;
        running.stop.cancel();
        running.task.await??;
        Ok(())
    }

    /// Registers a Ready Node with the cloud taint for every machine. Returns the names.
    ///
    /// # Errors
    /// The API refuses.
    pub fn join_all(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for id in &self.cluster.instance_ids {
            let machine = self.cloud.aws().instance(id).context("no such machine")?;
            self.apply(json!({
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": { "name": machine.private_dns_name },
                    "spec": { "taints": [{ "key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule" }] },
                    "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
                }))?;
            names.push(machine.private_dns_name);
        }
        Ok(names)
    }

    /// Creates a Service `shop/<name>` with a network load balancer and the given ports.
    ///
    /// # Errors
    /// The API refuses.
    pub fn create_service(&self, name: &str, ports: &[i32]) -> Result<()> {
        let ports: Vec<Value> = ports
            .iter()
            .map(|port| json!({ "name": format!("p{port}"), "port": port, "protocol": "TCP" }))
            .collect();
        self.apply(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name,
                "namespace": "shop",
                "annotations": { "service.beta.kubernetes.io/aws-load-balancer-type": "nlb" },
            },
            "spec": { "type": "LoadBalancer", "selector": { "app": name }, "ports": ports },
        }))
    }

    /// Creates or replaces an object as an administrator.
    ///
    /// # Errors
    /// The API refuses.
    pub fn apply(&self, object: Value) -> Result<()> {
        self.kube
            .apply_direct(object)
            .map(|_| ())
            .map_err(|error| anyhow!("{error:?}"))
    }

    /// Waits, at most five virtual minutes, until `done` answers `Ok`.
    ///
    /// # Errors
    /// The last reason of `done`.
    pub async fn until(&self, what: &str, done: impl Fn() -> Result<(), String>) -> Result<()> {
        let start = Instant::now();
        loop {
            match done() {
                Ok(()) => return Ok(()),
                Err(reason) if start.elapsed() > Duration::from_secs(300) => {
                    bail!("{what}: not within five minutes: {reason}")
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Waits until every Node is initialised and every LoadBalancer Service has an address.
    ///
    /// # Errors
    /// Something still has not after five virtual minutes.
    pub async fn settled(&self) -> Result<()> {
        self.until("Nodes initialised, Services served", || {
            for node in self.kube.list("nodes") {
                let taints = node.pointer("/spec/taints").and_then(Value::as_array);
                let is_cloud_taint = |taint: &Value| text(taint, "/key") == CLOUD_TAINT;
                if taints.is_some_and(|all| all.iter().any(is_cloud_taint)) {
                    return Err(format!(
                        "{} is not initialised",
                        text(&node, "/metadata/name")
                    ));
                }
            }
            for service in self.kube.list("services") {
                let wants = text(&service, "/spec/type") == "LoadBalancer";
                if wants && service.pointer("/status/loadBalancer/ingress/0").is_none() {
                    return Err(format!(
                        "{} has no address",
                        text(&service, "/metadata/name")
                    ));
                }
            }
            Ok(())
        })
        .await
    }

    /// Where [`costs_since`](Self::costs_since) begins to count.
    pub fn mark(&self) -> Start {
        Start {
            api: self.kube.mark(),
            cloud: self.cloud.calls().mark(),
        }
    }

    /// What the manager asked of the API and the cloud since then.
    pub fn costs_since(&self, start: &Start) -> Costs {
        let mut api = BTreeMap::new();
        for (key, count) in self.kube.since(&start.api).counts {
            let slash = if key.subresource.is_empty() { "" } else { "/" };
            let what = format!(
                "{} {}{slash}{}",
                key.verb.as_str(),
                key.resource,
                key.subresource
            );
            *api.entry(what).or_insert(0) += count;
        }
        let calls = self.cloud.calls();
        Costs {
            cloud: calls.counts_since(start.cloud),
            cloud_writes: calls.writes_since(start.cloud).len(),
            api,
        }
    }

    /// Every request and call since then, one a line, in order, with its virtual time.
    pub fn log_since(&self, start: &Start) -> String {
        let requests = self
            .kube
            .since(&start.api)
            .entries
            .into_iter()
            .map(|entry| {
                format!(
                    "api {} {} {}/{} {} {}",
                    entry.sequence,
                    entry.key.verb.as_str(),
                    entry.namespace,
                    entry.name,
                    entry.key.resource,
                    entry.status
                )
            });
        let calls = self
            .cloud
            .calls()
            .calls_since(start.cloud)
            .into_iter()
            .map(|call| {
                format!(
                    "cloud {} {} {} {:?} {:?}",
                    call.seq, call.at, call.action, call.params, call.status
                )
            });
        requests.chain(calls).map(|line| line + "\n").collect()
    }
}

/// The text at a place of an object; empty when there is none.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
