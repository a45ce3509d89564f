//! An API server, a table of routes, and the controller between them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use ccm_core::{
    config::RouteSettings,
    controllers::route::{RouteController, RouteStartError},
    kube::{Event, EventSink, Informer, Node, RecordedEvents},
    runtime::{Clock, Context, LoopReport, Loops, QueueMetrics, Random, TakeOver},
};
use ccm_kubesim::{KubeSim, Options, Verb};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cloud::FakeRoutes;

pub fn classic() -> RouteSettings {
    RouteSettings {
        cluster_cidr: "10.64.0.0/14,fd00:10::/48".to_owned(),
        ..RouteSettings::default()
    }
}

pub fn watch() -> RouteSettings {
    RouteSettings {
        watch: true,
        ..classic()
    }
}

pub struct World {
    pub sim: Arc<KubeSim>,
    pub cloud: Arc<FakeRoutes>,
    pub events: Arc<RecordedEvents>,
    registry: prometheus::Registry,
    loops: Loops,
    context: Context,
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
        let sim = Arc::new(KubeSim::new(options));
        let registry = prometheus::Registry::new();
        let events: Arc<RecordedEvents> = Arc::default();
        let loops = Loops::new(clock.clone());
        let context = Context {
            client: kube::Client::new(sim.service(), "default"),
            events: Arc::clone(&events) as Arc<dyn EventSink>,
            clock,
            random: Random::seeded(7),
            registry: registry.clone(),
            queues: QueueMetrics::new(&registry).unwrap(),
            loops: loops.clone(),
            took_over: TakeOver::default(),
        };
        Self {
            sim,
            cloud: Arc::default(),
            events,
            registry,
            loops,
            context,
            informer: Arc::new(Informer::new()),
            shutdown: CancellationToken::new(),
            running: Mutex::default(),
        }
    }

    pub fn controller(&self, settings: RouteSettings) -> Result<RouteController, RouteStartError> {
        let cloud = Arc::clone(&self.cloud);
        RouteController::new(&self.context, &self.informer, cloud, settings)
    }

    /// Starts the controller and the watch.
    pub fn start(self, settings: RouteSettings) -> Self {
        let controller = self.controller(settings).unwrap();
        let shutdown = self.shutdown.clone();
        self.spawn(controller.run(shutdown.clone()));
        let (informer, client) = (Arc::clone(&self.informer), self.context.client.clone());
        self.spawn(async move { informer.run(client, Random::seeded(1), shutdown).await });
        self
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.lock().unwrap().push(tokio::spawn(task));
    }

    /// Ends the controller and waits for it.
    pub async fn stop(&self) {
        self.shutdown.cancel();
        let running = std::mem::take(&mut *self.running.lock().unwrap());
        for task in running {
            task.await.unwrap();
        }
    }

    pub fn join(&self, name: &str, cidrs: &[&str]) {
        self.join_at(name, cidrs, &["10.1.0.1"]);
    }

    pub fn join_at(&self, name: &str, cidrs: &[&str], addresses: &[&str]) {
        let addresses: Vec<Value> = addresses
            .iter()
            .map(|address| json!({ "type": "InternalIP", "address": address }))
            .collect();
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name },
            "spec": { "providerID": format!("sim://{name}") },
            "status": {
                "conditions": [{
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "lastHeartbeatTime": "2025-12-31T23:59:00Z",
                }],
                "addresses": addresses,
            },
        });
        if let Some(first) = cidrs.first() {
            node["spec"]["podCIDR"] = json!(first);
            node["spec"]["podCIDRs"] = json!(cidrs);
        }
        self.sim.apply_direct(node).unwrap();
    }

    pub fn leave(&self, name: &str) {
        self.sim.delete_direct("nodes", "", name).unwrap();
    }

    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut node = self.raw(name);
        change(&mut node);
        self.sim.apply_direct(node).unwrap();
    }

    pub fn move_to(&self, name: &str, address: &str) {
        self.edit(name, |node| {
            node["status"]["addresses"] = json!([{ "type": "InternalIP", "address": address }]);
        });
    }

    /// A change that routes have nothing to do with.
    pub fn heartbeat(&self, name: &str, beat: u64) {
        self.edit(name, |node| {
            node["status"]["conditions"] = json!([{
                "type": "Ready", "status": "True",
                "lastHeartbeatTime": format!("2026-01-01T00:{:02}:{:02}Z", beat / 60 % 60, beat % 60),
            }]);
        });
    }

    pub fn raw(&self, name: &str) -> Value {
        self.sim.get("nodes", "", name).unwrap()
    }

    pub fn uid(&self, name: &str) -> String {
        self.raw(name)["metadata"]["uid"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The whole condition.
    pub fn condition(&self, name: &str) -> Option<Value> {
        let node = self.raw(name);
        let all = node["status"]["conditions"].as_array().unwrap();
        all.iter()
            .find(|c| c["type"] == "NetworkUnavailable")
            .cloned()
    }

    /// `status/reason` of `NetworkUnavailable`; `-` without it.
    pub fn network(&self, name: &str) -> String {
        let Some(condition) = self.condition(name) else {
            return "-".to_owned();
        };
        let text = |key: &str| condition[key].as_str().unwrap().to_owned();
        format!("{}/{}", text("status"), text("reason"))
    }

    /// How many PATCH requests there were about a Node.
    pub fn patches(&self, name: &str) -> usize {
        let entries = self.sim.requests().entries;
        let about = entries
            .iter()
            .filter(|e| e.key.verb == Verb::Patch && e.name == name);
        about.count()
    }

    pub fn events_about(&self, name: &str) -> Vec<Event> {
        let mut all = self.events.all();
        all.retain(|event| event.object.name == name);
        all
    }

    /// `route_sync_total` by outcome and trigger.
    pub fn passes(&self, outcome: &str, trigger: &str) -> u64 {
        let families = self.registry.gather();
        let Some(family) = families
            .iter()
            .find(|f| f.name() == "route_controller_route_sync_total")
        else {
            return 0;
        };
        let with = |m: &prometheus::proto::Metric, name: &str, value: &str| {
            m.get_label()
                .iter()
                .any(|l| l.name() == name && l.value() == value)
        };
        family
            .get_metric()
            .iter()
            .filter(|m| with(m, "outcome", outcome) && with(m, "trigger", trigger))
            .map(|m| m.get_counter().get_value() as u64)
            .sum()
    }

    pub fn report(&self) -> LoopReport {
        let reports = self.loops.reports();
        assert_eq!(reports.len(), 1);
        reports[0].clone()
    }
}

/// Lets virtual time pass; everything that is due happens.
pub async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

pub async fn millis(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
