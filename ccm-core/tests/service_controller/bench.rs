//! One bench a test: API server, cloud, controller.

use std::{sync::Arc, time::Duration};

use ccm_core::{
    cloud::LoadBalancers,
    config::ServiceSettings,
    controllers::service::ServiceController,
    kube::{Event, Informer, Node, RecordedEvents, Service},
    runtime::{Clock, Context, Loops, QueueMetrics, Random, TakeOver},
};
use ccm_kubesim::{KubeSim, Options};
use ccm_testkit::eventually;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cloud::Cloud;

pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Long enough for everything that is not slowed or failing.
pub const SOON: Duration = Duration::from_secs(3);

pub struct Bench {
    pub sim: KubeSim,
    pub cloud: Arc<Cloud>,
    pub events: Arc<RecordedEvents>,
    pub settings: ServiceSettings,
    pub registry: prometheus::Registry,
    running: Option<(CancellationToken, Vec<JoinHandle<()>>)>,
}

impl Bench {
    /// A bench without controller: see [`start`](Self::start).
    pub fn stopped() -> Self {
        Self {
            sim: {
                let cidrs = ["10.96.0.0/16", "fd00:96::/112"];
                let sim = KubeSim::new(Options {
                    service_cidrs: cidrs.map(|cidr| cidr.parse().unwrap()).into(),
                    ..Options::default()
                });
                sim.apply_direct(json!({
                    "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" },
                }))
                .unwrap();
                sim
            },
            cloud: Arc::default(),
            events: Arc::default(),
            settings: ServiceSettings {
                syncs: 4,
                verify_period: Duration::from_secs(24 * 60 * 60),
            },
            registry: prometheus::Registry::new(),
            running: None,
        }
    }

    /// A bench with the Nodes `a` and `b` and a running controller.
    pub fn running() -> Self {
        let mut bench = Self::stopped();
        bench.put_node("a");
        bench.put_node("b");
        bench.start();
        bench
    }

    pub fn start(&mut self) {
        self.start_with(kube::Client::new(self.sim.service(), "default"));
    }

    pub fn start_with(&mut self, client: kube::Client) {
        self.registry = prometheus::Registry::new();
        let context = Context {
            client: client.clone(),
            events: self.events.clone(),
            clock: Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap()),
            random: Random::seeded(1),
            registry: self.registry.clone(),
            queues: QueueMetrics::new(&self.registry).unwrap(),
            loops: Loops::new(Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap())),
            took_over: TakeOver::default(),
        };
        let services = Informer::<Service>::new();
        let nodes = Informer::<Node>::new();
        let cloud: Arc<dyn LoadBalancers> = self.cloud.clone();
        let controller =
            ServiceController::new(&context, &services, &nodes, cloud, self.settings.clone())
                .unwrap();
        let stop = CancellationToken::new();
        let tasks = vec![
            tokio::spawn({
                let (client, stop) = (client.clone(), stop.clone());
                async move { services.run(client, Random::seeded(1), stop).await }
            }),
            tokio::spawn({
                let (client, stop) = (client, stop.clone());
                async move { nodes.run(client, Random::seeded(2), stop).await }
            }),
            tokio::spawn(controller.run(stop.clone())),
        ];
        self.running = Some((stop, tasks));
    }

    /// Stops the controller; what it remembers is gone.
    pub async fn stop(&mut self) {
        if let Some((stop, tasks)) = self.running.take() {
            stop.cancel();
            for task in tasks {
                task.await.unwrap();
            }
        }
    }

    pub fn put(&self, object: Value) {
        self.sim.apply_direct(object).unwrap();
    }

    pub fn put_node(&self, name: &str) {
        self.put(node(name));
    }

    pub fn patch_node(&self, name: &str, patch: &Value) {
        self.sim.patch_merge("nodes", "", name, patch).unwrap();
    }

    pub fn delete_node(&self, name: &str) {
        self.sim.delete_direct("nodes", "", name).unwrap();
    }

    pub fn patch(&self, name: &str, patch: &Value) {
        self.sim
            .patch_merge("services", "shop", name, patch)
            .unwrap();
    }

    /// Deletes as a user does: finalizers hold the Service.
    pub fn delete(&self, name: &str) {
        self.sim.delete_direct("services", "shop", name).unwrap();
    }

    pub fn service(&self, name: &str) -> Option<Value> {
        self.sim.get("services", "shop", name)
    }

    /// The address in the status.
    pub fn address(&self, name: &str) -> Option<String> {
        let service = self.service(name)?;
        let ip = service.pointer("/status/loadBalancer/ingress/0/ip")?;
        Some(ip.as_str()?.to_owned())
    }

    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers(name).iter().any(|f| f == FINALIZER)
    }

    pub fn finalizers(&self, name: &str) -> Vec<String> {
        let service = self.service(name).unwrap_or_default();
        let list = service.pointer("/metadata/finalizers").cloned();
        serde_json::from_value(list.unwrap_or_default()).unwrap_or_default()
    }

    /// Waits for a condition.
    pub async fn until(&self, what: &str, limit: Duration, check: impl Fn(&Self) -> bool) {
        eventually(what, limit, || async {
            if check(self) {
                Ok(())
            } else {
                Err(format!(
                    "calls: {:?}, events: {:?}",
                    self.cloud.calls(),
                    self.events.all()
                ))
            }
        })
        .await;
    }

    /// Waits until the load balancer stands and its address is published.
    pub async fn until_ready(&self, name: &str) {
        self.until("the Service has its address", SOON, |bench| {
            let published = bench.address(name);
            published.is_some() && published == bench.cloud.balancer(name).map(|lb| lb.address)
        })
        .await;
        pass(1).await;
    }

    /// A ready Service named `web`.
    pub async fn ready() -> Self {
        let bench = Self::running();
        bench.put(service("web"));
        bench.until_ready("web").await;
        bench
    }

    /// The events of one reason.
    pub fn told(&self, reason: &str) -> Vec<Event> {
        let all = self.events.all();
        all.into_iter().filter(|e| e.reason == reason).collect()
    }

    /// Names of the Nodes behind a load balancer.
    pub fn targets(&self, name: &str) -> Vec<String> {
        let balancer = self.cloud.balancer(name);
        balancer.map_or_else(Vec::new, |lb| lb.nodes.into_keys().collect())
    }

    /// The value of a counter, or the number of observations of a histogram.
    pub fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let family = family.unwrap();
        let metric = &family.get_metric()[0];
        if family.get_field_type() == prometheus::proto::MetricType::COUNTER {
            return metric.get_counter().get_value();
        }
        f64::from(u32::try_from(metric.get_histogram().get_sample_count()).unwrap())
    }
}

/// Lets virtual time pass.
pub async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

pub fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name },
        "spec": { "providerID": format!("fake:///{name}") },
    })
}

/// `shop/<name>` of type LoadBalancer.
pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "namespace": "shop", "name": name },
        "spec": {
            "type": "LoadBalancer",
            "selector": { "app": name },
            "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }],
        },
    })
}
