//! The scenario, once for each number of Nodes.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use ccm_kubesim::{KubeSim, Mark, Verb};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    cloud::{Calls, Cloud},
    manager::{Manager, Place},
    objects::{self, Machine},
};

/// Heartbeats written before it is waited for their readers: well inside the API server's history.
const BURST: usize = 1_000;

/// What part of the heartbeats comes before those that are measured.
const WARM_UP: usize = 4;

/// How long the manager is left alone to see what it costs then.
const IDLE: Duration = Duration::from_secs(20);

/// Longer than any pause between two steps of the manager's work: the passes that give new Nodes
/// to the load balancers wait for up to 30 s.
const REST: Duration = Duration::from_secs(35);

/// A phase that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(3_600);

/// Between two looks at the progress.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// The manager's program.
    pub manager: PathBuf,
    /// Numbers of Nodes, one run each.
    pub nodes: Vec<usize>,
    /// Whether the Nodes are initialised already: then only what comes after it is measured.
    pub initialised: bool,
    /// The manager's `--concurrent-node-syncs`; `None` for its default.
    pub node_syncs: Option<usize>,
    /// Services with load balancers in each run.
    pub services: usize,
    /// Status heartbeats in each run.
    pub heartbeats: usize,
    /// How long the manager must have had nothing to do before a phase has ended.
    pub rest: Duration,
    /// How long the manager is watched while nothing happens.
    pub idle: Duration,
}

impl Options {
    /// The documented scenario.
    #[must_use]
    pub fn documented(manager: PathBuf) -> Self {
        Self {
            manager,
            nodes: vec![100, 1_000, 5_000, 20_000, 100_000],
            initialised: false,
            node_syncs: None,
            services: 1_000,
            heartbeats: 20_000,
            rest: REST,
            idle: IDLE,
        }
    }
}

/// What one phase cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Time.
    pub seconds: f64,
    /// API requests, events not among them.
    pub api_requests: u64,
    /// Of them those that read objects or lists; watches are not among them.
    pub api_reads: u64,
    /// Of them those that change something.
    pub api_writes: u64,
    /// Writes of events.
    pub events: u64,
    /// Cloud calls.
    pub cloud: Calls,
    /// CPU time of the manager.
    pub cpu_seconds: f64,
    /// Its memory at the end, in bytes.
    pub resident: u64,
    /// Its largest memory so far, in bytes.
    pub peak: u64,
}

/// What one number of Nodes cost.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Nodes.
    pub nodes: usize,
    /// Services.
    pub services: usize,
    /// Status heartbeats.
    pub heartbeats: usize,
    /// From the start until all Nodes are initialised and all Services have their load balancer.
    pub start: Costs,
    /// Nothing happens.
    pub idle: Costs,
    /// Status heartbeats of initialised Nodes.
    pub beats: Costs,
    /// A new manager over the unchanged cluster, until it is at rest.
    pub restart: Costs,
}

/// Runs the scenario for each number of Nodes.
///
/// # Errors
/// The manager fails, or does not come to an end.
pub async fn run(options: &Options, mut show: impl FnMut(&Row)) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for nodes in &options.nodes {
        let row = one(options, *nodes)
            .await
            .with_context(|| format!("with {nodes} Nodes"))?;
        show(&row);
        rows.push(row);
    }
    Ok(rows)
}

async fn one(options: &Options, nodes: usize) -> Result<Row> {
    tell(nodes, "making the objects");
    let world = World::new(options, nodes).await?;
    tell(nodes, "start");
    let mut manager = Manager::start(&world.place)?;
    let mut phase = world.phase(&manager, Instant::now())?;
    phase.cpu = 0.0;
    world.until_initialised(&mut manager, &phase).await?;
    tell(nodes, "initialised, coming to rest");
    let initialised = phase.began.elapsed();
    manager.wait_until_at_rest(options.rest, LIMIT).await?;
    let mut start = world.costs(&phase, &manager)?;
    start.seconds = initialised.as_secs_f64();
    world.check()?;

    // The first heartbeats find the buffers that the later ones use again.
    tell(nodes, "first heartbeats");
    world
        .beat(options.heartbeats / WARM_UP, &mut manager)
        .await?;
    manager.wait_until_at_rest(options.rest, LIMIT).await?;

    tell(nodes, "idle");
    let phase = world.phase(&manager, Instant::now())?;
    tokio::time::sleep(options.idle).await;
    let idle = world.costs(&phase, &manager)?;

    tell(nodes, "heartbeats");
    let phase = world.phase(&manager, Instant::now())?;
    world.beat(options.heartbeats, &mut manager).await?;
    manager.wait_until_at_rest(options.rest, LIMIT).await?;
    let beats = world.costs(&phase, &manager)?;
    tell(nodes, "restart");
    manager.stop().await?;

    let mut manager = Manager::start(&world.place)?;
    let mut phase = world.phase(&manager, Instant::now())?;
    phase.cpu = 0.0;
    manager.wait_until_ready(LIMIT).await?;
    let ready = phase.began.elapsed();
    manager.wait_until_at_rest(options.rest, LIMIT).await?;
    let mut restart = world.costs(&phase, &manager)?;
    restart.seconds = ready.as_secs_f64();
    manager.stop().await?;
    Ok(Row {
        nodes,
        services: options.services,
        heartbeats: options.heartbeats,
        start,
        idle,
        beats,
        restart,
    })
}

/// Where the run is: the large ones take minutes.
fn tell(nodes: usize, phase: &str) {
    eprintln!("{nodes} Nodes: {phase}");
}

/// The emulated API server and cloud.
struct World {
    kube: KubeSim,
    cloud: Cloud,
    place: Place,
    nodes: usize,
    to_initialise: usize,
    services: usize,
    _folder: TempDir,
    _servers: DropGuard,
}

/// Where a phase began.
struct Phase {
    began: Instant,
    mark: Mark,
    calls: Calls,
    cpu: f64,
}

impl World {
    async fn new(options: &Options, nodes: usize) -> Result<Self> {
        let kube = KubeSim::new(ccm_kubesim::Options {
            taint_new_nodes: false,
            ..ccm_kubesim::Options::default()
        });
        let refused = |error| anyhow!("the API server refused an object: {error:?}");
        for n in 0..nodes {
            let node = if options.initialised {
                objects::initialised_node(n)
            } else {
                objects::node(n)
            };
            kube.apply_direct(node).map_err(refused)?;
        }
        for n in 0..options.services {
            kube.apply_direct(objects::service(n)).map_err(refused)?;
        }
        let cloud = Cloud::default();
        let api_listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let cloud_listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let folder = TempDir::with_prefix("ccm-scale-")?;
        let place = Place {
            program: options.manager.clone(),
            folder: folder.path().to_owned(),
            api: api_listener.local_addr()?.to_string(),
            cloud: cloud_listener.local_addr()?.to_string(),
            node_syncs: options.node_syncs,
        };
        let stop = CancellationToken::new();
        let (server, end) = (kube.clone(), stop.clone());
        tokio::spawn(async move { server.serve(api_listener, end.cancelled_owned()).await });
        tokio::spawn(cloud.clone().serve(cloud_listener, stop.clone()));
        Ok(Self {
            kube,
            cloud,
            place,
            nodes,
            to_initialise: if options.initialised { 0 } else { nodes },
            services: options.services,
            _folder: folder,
            _servers: stop.drop_guard(),
        })
    }

    fn phase(&self, manager: &Manager, began: Instant) -> Result<Phase> {
        Ok(Phase {
            began,
            mark: self.kube.mark(),
            calls: self.cloud.calls(),
            cpu: manager.cpu_seconds()?,
        })
    }

    fn costs(&self, phase: &Phase, manager: &Manager) -> Result<Costs> {
        let seconds = phase.began.elapsed().as_secs_f64();
        let requests = self.kube.since(&phase.mark);
        let of_events = |resource: &str| resource.split('.').next() == Some("events");
        let events = requests.sum(|key| of_events(&key.resource));
        Ok(Costs {
            seconds,
            api_requests: requests.sum(|_| true) - events,
            api_reads: requests.sum(|key| matches!(key.verb, Verb::Get | Verb::List)),
            api_writes: requests.writes() - events,
            events,
            cloud: self.cloud.calls().since(phase.calls),
            cpu_seconds: manager.cpu_seconds()? - phase.cpu,
            resident: manager.resident()?,
            peak: manager.peak()?,
        })
    }

    /// Every Node takes two writes, every Service two: until so many were made.
    async fn until_initialised(&self, manager: &mut Manager, phase: &Phase) -> Result<()> {
        let wanted = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        loop {
            let requests = self.kube.since(&phase.mark);
            let patches =
                |of: &str| requests.sum(|key| key.verb == Verb::Patch && key.resource == of);
            let done = patches("nodes") >= wanted(2 * self.to_initialise)
                && patches("services") >= wanted(2 * self.services);
            if done && self.cloud.balancers() == self.services {
                return Ok(());
            }
            manager.check_running()?;
            ensure!(
                phase.began.elapsed() < LIMIT,
                "not all initialised in {LIMIT:?}"
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Every Node is initialised, every Service has its address.
    fn check(&self) -> Result<()> {
        let mut wrong = Vec::new();
        self.kube.for_each("nodes", |node| {
            let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
            let good = node.pointer("/spec/providerID").is_some()
                && node.pointer("/spec/taints").is_none()
                && addresses.is_some_and(|all| all.len() == 4);
            if !good && wrong.len() < 3 {
                wrong.push(node);
            }
        });
        self.kube.for_each("services", |service| {
            let balancer = service.pointer("/spec/type") == Some(&Value::from("LoadBalancer"));
            let address = service.pointer("/status/loadBalancer/ingress/0/hostname");
            if balancer && address.is_none() && wrong.len() < 3 {
                wrong.push(service);
            }
        });
        ensure!(wrong.is_empty(), "not finished: {wrong:#?}");
        Ok(())
    }

    /// Status heartbeats, Node after Node, as fast as they are read.
    async fn beat(&self, beats: usize, manager: &mut Manager) -> Result<()> {
        for beat in 0..beats {
            let name = Machine::number(beat % self.nodes.max(1)).name;
            self.kube
                .patch_merge("nodes", "", &name, &objects::heartbeat(beat + 1))
                .map_err(|error| anyhow!("heartbeat refused: {error:?}"))?;
            if beat % BURST == BURST - 1 || beat + 1 == beats {
                let version = self.kube.resource_version();
                while self
                    .kube
                    .taken_by_watches("nodes")
                    .is_none_or(|at| at < version)
                {
                    manager.check_running()?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        Ok(())
    }
}
