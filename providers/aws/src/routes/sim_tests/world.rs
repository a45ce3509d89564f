//! The route controller between an API server in the process and the simulated cloud.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use ccm_core::{
    cloud::Routes,
    config::RouteSettings,
    controllers::route::RouteController,
    kube::{Event, EventSink, Informer, Node, RecordedEvents},
    runtime::{Clock, Context, Loops, QueueMetrics, Random, TakeOver},
};
use ccm_kubesim::{KubeSim, Options};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::bench::Bench;

pub(super) struct World {
    pub bench: Bench,
    kube: Arc<KubeSim>,
    events: Arc<RecordedEvents>,
    clock: Clock,
    stop: CancellationToken,
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl World {
    pub fn new(bench: Bench) -> Self {
        let options = Options {
            taint_new_nodes: false,
            ..Options::default()
        };
        Self {
            bench,
            clock: Clock::anchored(options.start),
            kube: Arc::new(KubeSim::new(options)),
            events: Arc::default(),
            stop: CancellationToken::new(),
            running: Mutex::default(),
        }
    }

    /// Starts a manager that knows nothing.
    pub async fn start(&mut self) {
        self.bench.restart().await;
        let registry = prometheus::Registry::new();
        let client = kube::Client::new(self.kube.service(), "default");
        let context = Context {
            client: client.clone(),
            events: Arc::clone(&self.events) as Arc<dyn EventSink>,
            clock: self.clock.clone(),
            random: Random::seeded(7),
            registry: registry.clone(),
            queues: QueueMetrics::new(&registry).unwrap(),
            loops: Loops::new(self.clock.clone()),
            took_over: TakeOver::default(),
        };
        let settings = RouteSettings {
            cluster_cidr: "10.64.0.0/14,fd00:10::/48".to_owned(),
            ..RouteSettings::default()
        };
        let nodes: Arc<Informer<Node>> = Arc::new(Informer::new());
        let routes = Arc::clone(&self.bench.routes) as Arc<dyn Routes>;
        let controller = RouteController::new(&context, &nodes, routes, settings).unwrap();
        self.stop = CancellationToken::new();
        let (own, stop) = (self.stop.clone(), self.stop.clone());
        let watch = async move { nodes.run(client, Random::seeded(1), own).await };
        let tasks = [tokio::spawn(controller.run(stop)), tokio::spawn(watch)];
        self.running.lock().unwrap().extend(tasks);
    }

    /// Ends the manager and waits for it.
    pub async fn stop(&self) {
        self.stop.cancel();
        let running = std::mem::take(&mut *self.running.lock().unwrap());
        for task in running {
            task.await.unwrap();
        }
    }

    /// The Node of a machine comes.
    pub fn join(&self, name: &str, machine: &str, ranges: &[&str]) {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name },
            "spec": {
                "providerID": format!("aws:///us-west-2a/{machine}"),
                "podCIDR": ranges[0],
                "podCIDRs": ranges,
            },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        self.kube.apply_direct(node).unwrap();
    }

    pub fn leave(&self, name: &str) {
        self.kube.delete_direct("nodes", "", name).unwrap();
    }

    /// `status/reason` of `NetworkUnavailable`; `-` without it.
    pub fn network(&self, name: &str) -> String {
        let node = self.kube.get("nodes", "", name).unwrap();
        let mut all = node["status"]["conditions"].as_array().unwrap().iter();
        let Some(condition) = all.find(|c| c["type"] == "NetworkUnavailable") else {
            return "-".to_owned();
        };
        let text = |key: &str| condition[key].as_str().unwrap().to_owned();
        format!("{}/{}", text("status"), text("reason"))
    }

    pub fn events_about(&self, name: &str) -> Vec<Event> {
        let mut all = self.events.all();
        all.retain(|event| event.object.name == name);
        all
    }
}

/// Lets virtual time pass; everything that is due happens.
pub(super) async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
