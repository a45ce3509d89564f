//! An API server and the controller; a process can be killed and started again.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use ccm_core::{
    cloud::{
        Class, CloudError, CloudPodCidrs, CloudResult, MachineMasks, MachinePodCidrs,
        NodeIpamPolicy, NodeMasks, PodCidrs,
    },
    config::NodeIpamSettings,
    controllers::node_ipam::{NodeIpamController, NodeIpamError},
    kube::{EventSink, EventType, Informer, Node, RecordedEvents},
    runtime::{Clock, Context, Loops, QueueMetrics, Random, TakeOver},
};
use ccm_kubesim::{KubeSim, Options, Verb};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub type Run = JoinHandle<Result<(), NodeIpamError>>;

/// The flags of a pool of that cluster CIDR.
pub fn pool(cluster: &str) -> NodeIpamSettings {
    NodeIpamSettings {
        allocate: true,
        cluster_cidr: cluster.to_owned(),
        ..NodeIpamSettings::default()
    }
}

/// What the cloud knows of its machines, by Node name.
pub struct FakeMachines<T> {
    machines: Mutex<BTreeMap<String, T>>,
    questions: Mutex<Vec<usize>>,
    failures: Mutex<VecDeque<Class>>,
}

impl<T> Default for FakeMachines<T> {
    fn default() -> Self {
        Self {
            machines: Mutex::default(),
            questions: Mutex::default(),
            failures: Mutex::default(),
        }
    }
}

impl<T: Clone> FakeMachines<T> {
    pub fn put(&self, node: &str, of: T) {
        self.machines.lock().unwrap().insert(node.to_owned(), of);
    }

    /// The next question fails as a whole.
    pub fn fail_next(&self, class: Class) {
        self.failures.lock().unwrap().push_back(class);
    }

    /// How many Nodes each question was about.
    pub fn questions(&self) -> Vec<usize> {
        self.questions.lock().unwrap().clone()
    }

    fn answer(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<T>> {
        self.questions.lock().unwrap().push(nodes.len());
        if let Some(class) = self.failures.lock().unwrap().pop_front() {
            let error = || Err(CloudError::new(class, "injected"));
            return nodes.iter().map(|_| error()).collect();
        }
        let machines = self.machines.lock().unwrap();
        let of = |node: &Arc<Node>| machines.get(node.name()).cloned();
        let none = || CloudError::invalid("the machine has no interface");
        nodes.iter().map(|node| of(node).ok_or_else(none)).collect()
    }
}

#[async_trait]
impl MachinePodCidrs for FakeMachines<CloudPodCidrs> {
    async fn pod_cidrs(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<CloudPodCidrs>> {
        self.answer(nodes)
    }
}

#[async_trait]
impl MachineMasks for FakeMachines<NodeMasks> {
    async fn masks(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<NodeMasks>> {
        self.answer(nodes)
    }
}

/// One process.
pub struct Process {
    pub registry: prometheus::Registry,
    controller: Run,
    informer: JoinHandle<()>,
    shutdown: CancellationToken,
}

impl Process {
    /// Ends it in an orderly way.
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.controller.await.unwrap().unwrap();
        self.informer.await.unwrap();
    }

    /// Ends it at once, wherever it is.
    pub fn kill(self) {
        self.controller.abort();
        self.informer.abort();
    }

    /// Waits for the controller's own end.
    pub async fn ended(self) -> Result<(), NodeIpamError> {
        self.controller.await.unwrap()
    }

    pub fn is_running(&self) -> bool {
        !self.controller.is_finished()
    }

    /// The value of a series, the number of samples of a histogram.
    pub fn metric(&self, name: &str, cluster: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|f| f.name() == name).unwrap();
        let metrics = family.get_metric().iter();
        let of = |m: &&prometheus::proto::Metric| {
            let mut labels = m.get_label().iter();
            cluster.is_empty() || labels.any(|l| l.name() == "clusterCIDR" && l.value() == cluster)
        };
        let metric = metrics.clone().find(of).unwrap();
        match family.get_field_type() {
            prometheus::proto::MetricType::HISTOGRAM => {
                metric.get_histogram().get_sample_count() as f64
            }
            prometheus::proto::MetricType::GAUGE => metric.get_gauge().get_value(),
            _ => metric.get_counter().get_value(),
        }
    }

    pub fn usage(&self, cluster: &str) -> f64 {
        self.metric("node_ipam_controller_cidrset_usage_cidrs", cluster)
    }
}

pub struct World {
    pub sim: Arc<KubeSim>,
    pub events: Arc<RecordedEvents>,
    clock: Clock,
}

impl World {
    pub fn new() -> Self {
        let options = Options {
            taint_new_nodes: false,
            ..Options::default()
        };
        let clock = Clock::anchored(options.start);
        Self {
            sim: Arc::new(KubeSim::new(options)),
            events: Arc::default(),
            clock,
        }
    }

    pub fn start(&self, settings: &NodeIpamSettings) -> Process {
        self.start_with(settings, NodeIpamPolicy::Kubernetes, None)
    }

    pub fn start_with(
        &self,
        settings: &NodeIpamSettings,
        policy: NodeIpamPolicy,
        pod_cidrs: Option<PodCidrs>,
    ) -> Process {
        let registry = prometheus::Registry::new();
        let context = Context {
            client: kube::Client::new(self.sim.service(), "default"),
            events: Arc::clone(&self.events) as Arc<dyn EventSink>,
            clock: self.clock.clone(),
            random: Random::seeded(7),
            registry: registry.clone(),
            queues: QueueMetrics::new(&registry).unwrap(),
            loops: Loops::new(self.clock.clone()),
            took_over: TakeOver::default(),
        };
        let informer = Arc::new(Informer::new());
        let controller =
            NodeIpamController::new(&context, &informer, pod_cidrs, policy, settings).unwrap();
        let shutdown = CancellationToken::new();
        let controller = tokio::spawn(controller.unwrap().run(shutdown.clone()));
        let (client, stop) = (context.client, shutdown.clone());
        let informer =
            tokio::spawn(async move { informer.run(client, Random::seeded(1), stop).await });
        Process {
            registry,
            controller,
            informer,
            shutdown,
        }
    }

    pub fn create(&self, name: &str, cidrs: &[&str]) {
        let spec = json!({ "providerID": format!("sim://{name}"), "podCIDRs": cidrs });
        self.create_with(name, &spec);
    }

    pub fn create_with(&self, name: &str, spec: &Value) {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name },
            "spec": spec,
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        self.sim.apply_direct(node).unwrap();
    }

    pub fn change(&self, name: &str, patch: &Value) {
        self.sim.patch_merge("nodes", "", name, patch).unwrap();
    }

    pub fn delete(&self, name: &str) {
        self.sim.delete_direct("nodes", "", name).unwrap();
    }

    pub fn raw(&self, name: &str) -> Value {
        self.sim.get("nodes", "", name).unwrap()
    }

    pub fn cidrs(&self, name: &str) -> Vec<String> {
        let node: Node = serde_json::from_value(self.raw(name)).unwrap();
        node.spec.pod_cidrs
    }

    /// The ranges of all Nodes, asserted to be apart from each other.
    pub fn disjoint(&self) -> Vec<ipnet::IpNet> {
        let nodes = self.sim.list("nodes").into_iter();
        let all: Vec<ipnet::IpNet> = nodes
            .flat_map(|node| serde_json::from_value::<Node>(node).unwrap().spec.pod_cidrs)
            .map(|text| text.parse().unwrap())
            .collect();
        for (at, one) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                assert!(
                    !one.contains(other) && !other.contains(one),
                    "{one} {other}"
                );
            }
        }
        all
    }

    /// Events about the Node with that reason.
    pub fn events(&self, name: &str, reason: &str) -> usize {
        let all = self.events.all().into_iter();
        all.filter(|e| e.object.name == name && e.reason == reason)
            .inspect(|event| match reason {
                "AnotherAllocator" => assert_eq!(event.type_, EventType::Warning),
                _ => {
                    assert_eq!(event.type_, EventType::Normal);
                    let text = format!("Node {name} status is now: {reason}");
                    assert_eq!(event.message, text);
                }
            })
            .count()
    }

    /// PATCH requests about the Node so far, as status.
    pub fn patches(&self, name: &str) -> Vec<u16> {
        let entries = self.sim.requests().entries.into_iter();
        entries
            .filter(|e| e.key.verb == Verb::Patch && e.name == name)
            .map(|e| e.status)
            .collect()
    }
}

pub async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

pub async fn millis(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
