//! The whole manager in the process, on virtual time, against a small scripted API server.

mod leading;
mod own;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::stream;
use http::{Request, Response};
use http_body_util::StreamBody;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle, time::Instant};

use super::*;
use crate::{
    cloud::{
        BuildError, CloudResult, Ensured, InstanceMetadata, Instances, LoadBalancers, Presence,
        Read, Updated,
    },
    kube::{LoadBalancerStatus, Node, Service},
    runtime::{Fence, names_without_home},
};

/// An API server with some Nodes and no Services that never changes.
#[derive(Clone, Default)]
struct Api {
    away: Arc<AtomicBool>,
    requests: Arc<Mutex<Vec<(String, Instant)>>>,
    nodes: Vec<Value>,
}

impl Api {
    fn client(&self) -> kube::Client {
        let api = self.clone();
        kube::Client::new(
            tower::service_fn(move |request| {
                let api = api.clone();
                async move { api.answer(&request) }
            }),
            "default",
        )
    }

    fn answer(&self, request: &Request<Body>) -> Result<Response<AnyBody>, tower::BoxError> {
        let uri = request.uri();
        let path = uri.path().to_owned();
        self.requests
            .lock()
            .unwrap()
            .push((path.clone(), Instant::now()));
        if self.away.load(Ordering::SeqCst) {
            return Err("connection refused".into());
        }
        if uri.query().unwrap_or_default().contains("watch=true") {
            let silence = stream::pending();
            return Ok(Response::new(AnyBody::new(StreamBody::new(silence))));
        }
        let value = match path.as_str() {
            "/version" => json!({
                "major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "",
                "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
            }),
            "/api/v1/nodes" => list("NodeList", &self.nodes),
            "/api/v1/services" => list("ServiceList", &[]),
            _ => {
                return Ok(Response::builder()
                    .status(404)
                    .body(text("{}".to_owned()))?);
            }
        };
        Ok(Response::new(text(value.to_string())))
    }

    fn times_of(&self, path: &str) -> Vec<Instant> {
        let requests = self.requests.lock().unwrap();
        let of_path = requests.iter().filter(|(asked, _)| asked == path);
        of_path.map(|(_, at)| *at).collect()
    }
}

type AnyBody = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, std::convert::Infallible>;

fn text(text: String) -> AnyBody {
    AnyBody::new(http_body_util::Full::new(bytes::Bytes::from(text)))
}

fn list(kind: &str, items: &[Value]) -> Value {
    json!({
        "kind": kind, "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": items,
    })
}

fn new_node() -> Value {
    json!({
        "metadata": { "name": "n1", "uid": "u1", "resourceVersion": "1" },
        "spec": { "taints": [{
            "key": "node.cloudprovider.kubernetes.io/uninitialized",
            "value": "true", "effect": "NoSchedule",
        }] },
    })
}

/// A cloud with what a test gives it.
#[derive(Clone, Default)]
struct Fake {
    unreachable_for: usize,
    refuses: Option<&'static str>,
    no_cluster_id: bool,
    instances: bool,
    instances_panic: bool,
    load_balancers: bool,
    conflicting_metric: bool,
    node_ipam_off: bool,
    initialized: Arc<AtomicUsize>,
    /// Nodes that the cloud was asked about.
    asked: Arc<AtomicUsize>,
    /// Whether making a load balancer never ends.
    hangs: bool,
    /// Load balancers that were begun.
    ensured: Arc<AtomicUsize>,
    fence: Arc<Mutex<Option<Fence>>>,
    /// What the provider's background work, and what is served, ends by.
    background: Arc<Mutex<Option<CancellationToken>>>,
    builds: Arc<AtomicUsize>,
    config: Arc<Mutex<Option<Option<ConfigFile>>>>,
}

impl Cloud for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn has_cluster_id(&self) -> bool {
        !self.no_cluster_id
    }

    fn off_by_default(&self) -> &'static [ControllerName] {
        if self.node_ipam_off {
            &[ControllerName::NodeIpam]
        } else {
            &[]
        }
    }

    fn initialize(&self) {
        self.initialized.fetch_add(1, Ordering::SeqCst);
    }

    fn instances(&self) -> Option<Arc<dyn Instances>> {
        self.instances.then(|| Arc::new(self.clone()) as _)
    }

    fn load_balancers(&self) -> Option<Arc<dyn LoadBalancers>> {
        self.load_balancers.then(|| Arc::new(self.clone()) as _)
    }
}

#[async_trait]
impl Instances for Fake {
    async fn presence(&self, nodes: &[Arc<Node>], _: Read) -> Vec<CloudResult<Presence>> {
        nodes.iter().map(|_| Ok(Presence::Absent)).collect()
    }

    async fn metadata(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        assert!(!self.instances_panic, "the provider has a bug");
        self.asked.fetch_add(nodes.len(), Ordering::SeqCst);
        nodes.iter().map(|_| Ok(None)).collect()
    }
}

#[async_trait]
impl LoadBalancers for Fake {
    async fn get(&self, _: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        Ok(None)
    }

    async fn ensure(&self, _: &Service, _: &[Arc<Node>]) -> CloudResult<Ensured> {
        self.ensured.fetch_add(1, Ordering::SeqCst);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(Ensured::ImplementedElsewhere { notes: vec![] })
    }

    async fn update(&self, _: &Service, _: &[Arc<Node>]) -> CloudResult<Updated> {
        Ok(Updated::ImplementedElsewhere { notes: vec![] })
    }

    async fn delete(&self, _: &Service) -> CloudResult<()> {
        Ok(())
    }
}

impl Fake {
    fn complete() -> Self {
        Self {
            instances: true,
            load_balancers: true,
            ..Self::default()
        }
    }

    fn factory(&self) -> Factory {
        let fake = self.clone();
        Factory::new(
            "fake",
            Arc::new(move |build| {
                let fake = fake.clone();
                Box::pin(async move { fake.build(build) })
            }),
        )
    }

    fn build(self, build: Build) -> Result<Arc<dyn Cloud>, BuildError> {
        let tries = self.builds.fetch_add(1, Ordering::SeqCst);
        *self.config.lock().unwrap() = Some(build.config);
        *self.fence.lock().unwrap() = Some(build.fence);
        *self.background.lock().unwrap() = Some(build.shutdown);
        if let Some(problem) = self.refuses {
            return Err(BuildError::Config(problem.to_owned()));
        }
        if tries < self.unreachable_for {
            return Err(BuildError::Unreachable("no route to host".to_owned()));
        }
        if self.conflicting_metric {
            let name = "node_controller_initial_node_sync_delay_seconds";
            let counter = prometheus::IntCounter::new(name, "x").unwrap();
            build.metrics.register(Box::new(counter)).unwrap();
        }
        Ok(Arc::new(self))
    }
}

struct Running {
    health: Health,
    registry: prometheus::Registry,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ManagerError>>,
}

fn start(api: &Api, cloud: &Fake, flags: &[&str]) -> Running {
    let alone = ["--leader-elect=false"];
    let flags: Vec<_> = alone.iter().chain(flags).copied().collect();
    start_with(api.client(), cloud, &flags)
}

fn start_with(client: kube::Client, cloud: &Fake, flags: &[&str]) -> Running {
    let fixed = ["--cloud-provider=fake", "--secure-port=0"];
    // The last one wins, so that a test can choose another provider.
    let settings = Settings::parse(fixed.iter().chain(flags).copied()).unwrap();
    let clouds = Registry::new(vec![cloud.factory()]).unwrap();
    run(settings, clouds, client)
}

/// A manager with these settings and clouds, at work.
fn run(settings: Settings, clouds: Registry, client: kube::Client) -> Running {
    let registry = prometheus::Registry::new();
    let manager = Manager::new(
        settings,
        clouds,
        Env::default(),
        Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap()),
        Random::seeded(1),
    )
    .with_client(client)
    .with_registry(registry.clone());
    let (health, shutdown) = (manager.health(), CancellationToken::new());
    let task = tokio::spawn(manager.run(shutdown.clone()));
    Running {
        health,
        registry,
        shutdown,
        task,
    }
}

impl Running {
    async fn ready_within(&self, limit: Duration) {
        ccm_testkit::eventually("ready", limit, || async {
            let ready = self.health.is_ready();
            ready.then_some(()).ok_or_else(|| "not ready".to_owned())
        })
        .await;
    }

    /// The running controllers by the metric.
    fn controllers(&self) -> Vec<String> {
        let families = self.registry.gather();
        let family = families
            .iter()
            .find(|family| family.name() == "running_managed_controllers");
        let Some(family) = family else { return vec![] };
        let on = family
            .get_metric()
            .iter()
            .filter(|metric| metric.get_gauge().get_value() == 1.0);
        on.map(|metric| {
            let labels = metric.get_label();
            assert_eq!(labels[0].value(), "cloud-controller-manager");
            labels[1].value().to_owned()
        })
        .collect()
    }

    async fn stop(self) -> Result<(), ManagerError> {
        self.shutdown.cancel();
        self.task.await.unwrap()
    }

    async fn error(self) -> ManagerError {
        self.task.await.unwrap().unwrap_err()
    }
}

/// REQ-APP-06
#[tokio::test(start_paused = true)]
async fn all_controllers_run_and_stop() {
    let (api, cloud) = (Api::default(), Fake::complete());
    let running = start(&api, &cloud, &[]);
    running.ready_within(Duration::from_secs(10)).await;
    assert_eq!(
        running.controllers(),
        ["cloud-node", "cloud-node-lifecycle", "service"]
    );
    assert_eq!(
        *cloud.config.lock().unwrap(),
        Some(None),
        "no file, no config"
    );
    assert_eq!(names_without_home(&running.registry), Vec::<String>::new());
    let (registry, start) = (running.registry.clone(), Instant::now());
    running.stop().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    let stopped = Running {
        health: Health::new(),
        registry,
        shutdown: CancellationToken::new(),
        task: tokio::spawn(async { Ok(()) }),
    };
    assert_eq!(stopped.controllers(), Vec::<String>::new());
}

/// REQ-APP-01
#[tokio::test(start_paused = true)]
async fn an_unknown_provider_is_refused_before_any_request() {
    let api = Api::default();
    let running = start(&api, &Fake::complete(), &["--cloud-provider=fakes"]);
    let error = running.error().await.to_string();
    assert_eq!(
        error,
        "--cloud-provider: unknown cloud provider \"fakes\"; this binary knows: fake"
    );
    assert!(api.requests.lock().unwrap().is_empty());
}

/// REQ-APP-06
#[tokio::test(start_paused = true)]
async fn an_unreadable_cloud_config_is_fatal_and_named() {
    let (api, cloud) = (Api::default(), Fake::complete());
    let running = start(&api, &cloud, &["--cloud-config=/nonexistent/cloud.conf"]);
    let error = running.error().await.to_string();
    assert!(
        error.starts_with("--cloud-config /nonexistent/cloud.conf: cannot be read: "),
        "{error}"
    );
    assert_eq!(cloud.builds.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn the_cloud_config_reaches_the_provider() {
    let path = std::env::temp_dir().join(format!("ccm-manager-test-{}", std::process::id()));
    std::fs::write(&path, "[Global]\nZone=a\n").unwrap();
    let (api, cloud) = (Api::default(), Fake::complete());
    let flag = format!("--cloud-config={}", path.display());
    let running = start(&api, &cloud, &[&flag]);
    running.ready_within(Duration::from_secs(10)).await;
    let config = cloud.config.lock().unwrap().clone().flatten().unwrap();
    assert_eq!(config.text, "[Global]\nZone=a\n");
    assert_eq!(config.path, path.display().to_string());
    running.stop().await.unwrap();
    std::fs::remove_file(path).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_api_server_is_waited_for() {
    let (api, cloud) = (Api::default(), Fake::complete());
    api.away.store(true, Ordering::SeqCst);
    let running = start(&api, &cloud, &[]);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(!running.health.is_ready());
    assert!(!running.task.is_finished());
    let times = api.times_of("/version");
    let waits: Vec<_> = times.windows(2).map(|w| (w[1] - w[0]).as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    assert!(api.times_of("/api/v1/nodes").is_empty());
    api.away.store(false, Ordering::SeqCst);
    running.ready_within(Duration::from_secs(40)).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_cloud_is_waited_for() {
    let api = Api::default();
    let cloud = Fake {
        unreachable_for: 4,
        ..Fake::complete()
    };
    let start_time = Instant::now();
    let running = start(&api, &cloud, &[]);
    running.ready_within(Duration::from_secs(20)).await;
    assert_eq!(start_time.elapsed().as_secs(), 1 + 2 + 4 + 8);
    assert_eq!(cloud.builds.load(Ordering::SeqCst), 5);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_end_may_come_while_waiting() {
    let (api, cloud) = (Api::default(), Fake::complete());
    api.away.store(true, Ordering::SeqCst);
    let running = start(&api, &cloud, &[]);
    tokio::time::sleep(Duration::from_secs(50)).await;
    let start = Instant::now();
    running.stop().await.unwrap();
    assert!(start.elapsed().is_zero());
}

#[tokio::test(start_paused = true)]
async fn a_refused_configuration_is_fatal_even_without_an_api_server() {
    let api = Api::default();
    api.away.store(true, Ordering::SeqCst);
    let cloud = Fake {
        refuses: Some("cloud.conf: line 3: [Global] Zoen: unknown key"),
        ..Fake::complete()
    };
    let error = start(&api, &cloud, &[]).error().await.to_string();
    assert_eq!(
        error,
        "could not init cloud provider \"fake\": cloud.conf: line 3: [Global] Zoen: unknown key"
    );
}

/// REQ-APP-07
#[tokio::test(start_paused = true)]
async fn a_cloud_without_cluster_id_needs_the_flag() {
    let api = Api::default();
    let cloud = Fake {
        no_cluster_id: true,
        ..Fake::complete()
    };
    let error = start(&api, &cloud, &[]).error().await;
    assert!(matches!(error, ManagerError::NoClusterId("fake")));
    assert!(error.to_string().contains("--allow-untagged-cloud"));
    let running = start(&api, &cloud, &["--allow-untagged-cloud"]);
    running.ready_within(Duration::from_secs(10)).await;
    running.stop().await.unwrap();
}

/// REQ-APP-14
#[tokio::test(start_paused = true)]
async fn a_controller_without_its_capability_is_skipped() {
    let api = Api::default();
    let cloud = Fake {
        load_balancers: true,
        ..Fake::default()
    };
    let running = start(&api, &cloud, &[]);
    running.ready_within(Duration::from_secs(10)).await;
    assert_eq!(running.controllers(), ["service"]);
    running.stop().await.unwrap();
}

/// REQ-APP-02
#[tokio::test(start_paused = true)]
async fn only_chosen_controllers_run_and_only_their_objects_are_listed() {
    let (api, cloud) = (Api::default(), Fake::complete());
    let running = start(&api, &cloud, &["--controllers=cloud-node"]);
    running.ready_within(Duration::from_secs(10)).await;
    assert_eq!(running.controllers(), ["cloud-node"]);
    assert!(api.times_of("/api/v1/services").is_empty());
    let report = running.health.report(
        crate::runtime::Probe::Health,
        &crate::runtime::ProbeQuery::parse("verbose"),
    );
    assert_eq!(
        report.text,
        "[+]cloud-node-controller ok\nhealthz check passed\n"
    );
    running.stop().await.unwrap();
}

/// REQ-APP-15
#[tokio::test(start_paused = true)]
async fn a_constructor_error_ends_the_process() {
    let api = Api::default();
    let cloud = Fake {
        conflicting_metric: true,
        ..Fake::complete()
    };
    let error = start(&api, &cloud, &[]).error().await;
    assert!(matches!(error, ManagerError::Metrics(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_panics_ends_the_process() {
    let api = Api {
        nodes: vec![new_node()],
        ..Api::default()
    };
    let cloud = Fake {
        instances_panic: true,
        ..Fake::complete()
    };
    let running = start(&api, &cloud, &[]);
    let health = running.health.clone();
    let error = running.error().await.to_string();
    assert_eq!(
        error,
        "controller cloud-node-controller ended by itself: it panicked: the provider has a bug"
    );
    assert!(!health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_taken_address_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let flag = format!("--health-bind-address={}", taken.local_addr().unwrap());
    let error = start(&Api::default(), &Fake::complete(), &[&flag])
        .error()
        .await;
    assert!(matches!(error, ManagerError::Listen { .. }));
    assert!(
        error.to_string().contains(&flag.replace('=', " ")),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_off_by_default_runs_only_when_it_is_named() {
    let api = Api::default();
    let allocate = ["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16"];
    for (off, controllers, runs) in [
        (true, "--controllers=*", false),
        (true, "--controllers=*,nodeipam", true),
        (false, "--controllers=*", true),
        (false, "--controllers=*,-nodeipam", false),
    ] {
        let cloud = Fake {
            node_ipam_off: off,
            ..Fake::complete()
        };
        let running = start(&api, &cloud, &[&allocate[..], &[controllers]].concat());
        running.ready_within(Duration::from_secs(10)).await;
        let has = running.controllers().contains(&"nodeipam".to_owned());
        assert_eq!(has, runs, "{off} {controllers}");
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_cannot_start_is_fatal_and_names_the_flag() {
    let api = Api::default();
    let running = start(
        &api,
        &Fake::complete(),
        &["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/28"],
    );
    let error = running.error().await;
    assert!(matches!(error, ManagerError::NodeIpam(_)) && error.is_fatal());
    assert!(
        error.to_string().contains("--node-cidr-mask-size"),
        "{error}"
    );
}

/// A free port of this machine.
async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

/// Nobody could look into a replica whose ports are dead: it ends as one whose controller ended.
#[tokio::test(start_paused = true)]
async fn a_port_that_is_served_no_longer_ends_the_process() {
    let port = format!("--secure-port={}", free_port().await);
    let secure = [
        port.as_str(),
        "--bind-address=127.0.0.1",
        "--authentication-skip-lookup=true",
    ];
    for (flags, name) in [
        (&["--health-bind-address=127.0.0.1:0"][..], "plain port"),
        (&secure[..], "secure port"),
    ] {
        let (api, cloud) = (Api::default(), Fake::complete());
        let running = start(&api, &cloud, flags);
        running.ready_within(Duration::from_secs(10)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!running.task.is_finished());
        // A provider that ends everything behind our back.
        cloud.background.lock().unwrap().take().unwrap().cancel();
        let limit = Duration::from_secs(1);
        let error = tokio::time::timeout(limit, running.error()).await.unwrap();
        assert!(error.is_fatal());
        assert_eq!(
            error.to_string(),
            format!("controller {name} ended by itself: it returned without being asked to")
        );
    }
}
