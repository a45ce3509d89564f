//! An API server, a cloud, and the controllers between them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use ccm_core::{
    config::{NodeLifecycleSettings, NodeSettings},
    controllers::{node::NodeController, node_lifecycle::NodeLifecycleController},
    kube::{Event, EventSink, Informer, Node, RecordedEvents},
    runtime::{Clock, Context, Loops, QueueMetrics, Random, TakeOver},
};
use ccm_kubesim::{KubeSim, Options, Requests, Verb};
use k8s_openapi::api::core::v1::NodeAddress;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cloud::{FakeCloud, Machine};

pub const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";
pub const NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// A Node to be created.
#[derive(Clone, Debug)]
pub struct NewNode(Value);

impl NewNode {
    /// Ready, initialised, without provider id.
    pub fn named(name: &str) -> Self {
        Self(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name, "labels": {}, "annotations": {} },
            "spec": { "taints": [] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        }))
    }

    /// As a kubelet with an external cloud provider registers it.
    pub fn fresh(name: &str) -> Self {
        Self::named(name)
            .taint(CLOUD_TAINT, Some("true"))
            .ready("False")
    }

    pub fn id(mut self, id: &str) -> Self {
        self.0["spec"]["providerID"] = json!(id);
        self
    }

    pub fn ready(mut self, status: &str) -> Self {
        self.0["status"]["conditions"] = json!([{ "type": "Ready", "status": status }]);
        self
    }

    pub fn without_conditions(mut self) -> Self {
        self.0["status"]["conditions"] = json!([]);
        self
    }

    pub fn taint(mut self, key: &str, value: Option<&str>) -> Self {
        let mut taint = json!({ "key": key, "effect": "NoSchedule" });
        if let Some(value) = value {
            taint["value"] = json!(value);
        }
        self.0["spec"]["taints"].as_array_mut().unwrap().push(taint);
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = json!(value);
        self
    }

    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = json!(value);
        self
    }

    pub fn at(mut self, list: &str) -> Self {
        self.0["status"]["addresses"] = json!(crate::cloud::addresses(list));
        self
    }

    pub fn set(mut self, pointer: &str, key: &str, value: Value) -> Self {
        self.0.pointer_mut(pointer).unwrap()[key] = value;
        self
    }
}

pub struct World {
    pub sim: Arc<KubeSim>,
    pub cloud: Arc<FakeCloud>,
    pub events: Arc<RecordedEvents>,
    pub registry: prometheus::Registry,
    pub took_over: TakeOver,
    clock: Clock,
    queues: QueueMetrics,
    informer: Arc<Informer<Node>>,
    shutdown: CancellationToken,
    running: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

impl World {
    pub fn new() -> Self {
        let options = Options {
            taint_new_nodes: false,
            ..Options::default()
        };
        let clock = Clock::anchored(options.start);
        Self::around(
            Arc::new(KubeSim::new(options)),
            Arc::default(),
            Arc::default(),
            clock,
        )
    }

    fn around(
        sim: Arc<KubeSim>,
        cloud: Arc<FakeCloud>,
        events: Arc<RecordedEvents>,
        clock: Clock,
    ) -> Self {
        let registry = prometheus::Registry::new();
        let queues = QueueMetrics::new(&registry).unwrap();
        Self {
            sim,
            cloud,
            events,
            registry,
            took_over: TakeOver::default(),
            clock,
            queues,
            informer: Arc::new(Informer::new()),
            shutdown: CancellationToken::new(),
            running: Mutex::default(),
        }
    }

    /// Another process in the same cluster and cloud.
    pub fn restarted(&self) -> Self {
        Self::around(
            Arc::clone(&self.sim),
            Arc::clone(&self.cloud),
            Arc::clone(&self.events),
            self.clock.clone(),
        )
    }

    pub fn context(&self) -> Context {
        Context {
            client: kube::Client::new(self.sim.service(), "default"),
            events: Arc::clone(&self.events) as Arc<dyn EventSink>,
            clock: self.clock.clone(),
            random: Random::seeded(7),
            registry: self.registry.clone(),
            queues: self.queues.clone(),
            loops: Loops::new(self.clock.clone()),
            took_over: self.took_over.clone(),
        }
    }

    pub fn informer(&self) -> &Informer<Node> {
        &self.informer
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.lock().unwrap().push(tokio::spawn(task));
    }

    pub fn with_node_controller(self, settings: NodeSettings) -> Self {
        let controller = NodeController::new(
            &self.context(),
            &self.informer,
            Arc::clone(&self.cloud) as _,
            settings,
        )
        .unwrap();
        self.spawn(controller.run(self.shutdown.clone()));
        self
    }

    pub fn with_lifecycle(self, settings: NodeLifecycleSettings) -> Self {
        let controller = NodeLifecycleController::new(
            &self.context(),
            &self.informer,
            Arc::clone(&self.cloud) as _,
            settings,
        )
        .unwrap();
        self.spawn(controller.run(self.shutdown.clone()));
        self
    }

    /// Starts the watch, and with it the controllers.
    pub fn start(self) -> Self {
        let (informer, client) = (Arc::clone(&self.informer), self.context().client);
        let shutdown = self.shutdown.clone();
        self.spawn(async move { informer.run(client, Random::seeded(1), shutdown).await });
        self
    }

    /// Ends the controllers and waits for them.
    pub async fn stop(&self) {
        self.shutdown.cancel();
        let running = std::mem::take(&mut *self.running.lock().unwrap());
        for task in running {
            task.await.unwrap();
        }
    }

    pub fn create(&self, node: &NewNode) {
        self.sim.apply_direct(node.0.clone()).unwrap();
    }

    /// Creates the Node and the machine behind it.
    pub fn join(&self, node: &NewNode, machine: Machine) {
        self.cloud
            .put(node.0["metadata"]["name"].as_str().unwrap(), machine);
        self.create(node);
    }

    /// What other writers do to the Node.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        edit(&self.sim, name, change);
    }

    pub fn set_ready(&self, name: &str, status: &str) {
        self.edit(name, |node| {
            node["status"]["conditions"] = json!([{ "type": "Ready", "status": status }]);
        });
    }

    pub fn raw(&self, name: &str) -> Option<Value> {
        self.sim.get("nodes", "", name)
    }

    pub fn node(&self, name: &str) -> Node {
        serde_json::from_value(self.raw(name).unwrap()).unwrap()
    }

    pub fn exists(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    pub fn taints(&self, name: &str) -> Vec<String> {
        let node = self.node(name);
        node.spec.taints.into_iter().map(|t| t.key).collect()
    }

    pub fn initialised(&self, name: &str) -> bool {
        !self.taints(name).contains(&CLOUD_TAINT.to_owned())
    }

    pub fn addresses(&self, name: &str) -> Vec<NodeAddress> {
        self.node(name).status.addresses.to_vec()
    }

    pub fn labels(&self, name: &str) -> BTreeMap<String, String> {
        self.node(name).metadata.labels.unwrap_or_default().into()
    }

    pub fn reasons(&self) -> Vec<String> {
        self.events.reasons()
    }

    pub fn events_about(&self, name: &str) -> Vec<Event> {
        let mut all = self.events.all();
        all.retain(|event| event.object.name == name);
        all
    }

    /// All requests so far.
    pub fn requests(&self) -> Requests {
        self.sim.requests()
    }

    /// PATCH requests about the Node so far, as (subresource, status).
    pub fn patches(&self, name: &str) -> Vec<(String, u16)> {
        self.requests()
            .entries
            .into_iter()
            .filter(|e| e.key.verb == Verb::Patch && e.name == name)
            .map(|e| (e.key.subresource, e.status))
            .collect()
    }

    pub fn requested(&self, verb: Verb) -> u64 {
        self.requests().count(verb, "nodes")
    }

    pub fn writes(&self) -> u64 {
        self.requests().writes()
    }

    /// The value of a counter, or the number of samples of a histogram.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let families = self.registry.gather();
        let Some(family) = families.iter().find(|f| f.name() == name) else {
            return 0;
        };
        family
            .get_metric()
            .iter()
            .filter(|metric| {
                labels.iter().all(|(key, value)| {
                    metric
                        .get_label()
                        .iter()
                        .any(|pair| pair.name() == *key && pair.value() == *value)
                })
            })
            .map(|metric| match family.get_field_type() {
                prometheus::proto::MetricType::HISTOGRAM => {
                    metric.get_histogram().get_sample_count()
                }
                _ => metric.get_counter().get_value() as u64,
            })
            .sum()
    }

    /// Upper bounds of a histogram's buckets.
    pub fn buckets(&self, name: &str) -> Vec<f64> {
        let families = self.registry.gather();
        let family = families.iter().find(|f| f.name() == name).unwrap();
        family.get_metric()[0]
            .get_histogram()
            .get_bucket()
            .iter()
            .map(prometheus::proto::Bucket::upper_bound)
            .collect()
    }
}

/// Changes a Node as another writer would.
pub fn edit(sim: &KubeSim, name: &str, change: impl FnOnce(&mut Value)) {
    let mut node = sim.get("nodes", "", name).unwrap();
    change(&mut node);
    sim.apply_direct(node).unwrap();
}

/// Lets virtual time pass; everything that is due happens.
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

pub async fn seconds(seconds: u64) {
    pass(Duration::from_secs(seconds)).await;
}

pub async fn millis(millis: u64) {
    pass(Duration::from_millis(millis)).await;
}
