//! A cluster in the process: API server, cloud, and the manager's lives.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use ccm_core::{
    cloud::Registry,
    config::{Env, LowArgs, Settings},
    runtime::{Clock, Manager, ManagerError, Random},
};
use ccm_kubesim::{ExpiredStyle, KubeSim};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cloud::{
        Craft, MemCloud, Model,
        craft::Honest,
        factory,
        model::{FOREIGN, PartKind, Spec, State},
        provider,
        session::Lines,
    },
    fate::{Fates, Latency},
    judge::{Judge, Rule},
    objects::{self, CLUSTER_CIDR, EXCLUDE, FINALIZER, NAMESPACE, finalizers, text},
    process::Process,
    steps::{Step, Trouble},
    tap::{Tap, Wiretap},
    trace::Trace,
};

/// While a name is waited for, how often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A machine under a name that was another's boots longer than reads lag behind: a lookup by name
/// would find the dead one, and a provider id never changes.
const BOOT: Duration = Duration::from_secs(11);

/// How often a kubelet tries to register.
const REGISTER_AGAIN: Duration = Duration::from_secs(1);

/// What may be planted in a run instead of the honest way.
#[derive(Clone)]
pub struct Plant {
    /// The provider's decisions.
    pub craft: Arc<dyn Craft>,
    /// Between the manager and the API server.
    pub wiretap: Option<Arc<dyn Wiretap>>,
}

impl Plant {
    /// Nothing is planted.
    pub fn none() -> Self {
        Self {
            craft: Arc::new(Honest),
            wiretap: None,
        }
    }
}

/// Who gives pod address ranges and routes to the Nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Nobody: the controllers for it do not run.
    None,
    /// The ranges come with the Node, as from another controller; routes are ours.
    Routes,
    /// Ranges and routes are ours.
    Allocated,
}

impl Network {
    fn flags(self) -> Vec<String> {
        let ranges = format!("--cluster-cidr={CLUSTER_CIDR}");
        match self {
            Self::None => vec!["--configure-cloud-routes=false".to_owned()],
            Self::Routes => vec![ranges],
            Self::Allocated => vec![ranges, "--allocate-node-cidrs=true".to_owned()],
        }
    }
}

/// How a world is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything that is random.
    pub seed: u64,
    /// How long operations take.
    pub latency: Latency,
    /// Which of the controllers for pod networks run.
    pub network: Network,
    /// How many managers run; more than one elect a leader.
    pub replicas: usize,
    /// Flags of the manager besides the usual ones.
    pub flags: Vec<String>,
    /// How long a dead manager stays dead.
    pub restart_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            latency: Latency::Even,
            network: Network::None,
            replicas: 1,
            flags: Vec::new(),
            restart_after: Duration::from_secs(1),
        }
    }
}

/// One place where a manager runs, with one life after the other.
struct Replica {
    life: Option<Life>,
    restart_at: Instant,
    frozen_until: Option<Instant>,
}

impl Replica {
    fn living(&self) -> Option<&Life> {
        let life = self.life.as_ref();
        life.filter(|life| !life.process.is_dead())
    }
}

struct Life {
    process: Arc<Process>,
    task: JoinHandle<Result<(), ManagerError>>,
    stop: CancellationToken,
}

/// The cluster. Use it on a current-thread runtime with paused time.
pub struct World {
    /// The API server.
    pub kube: KubeSim,
    /// The cloud.
    pub cloud: MemCloud,
    /// The record, the blows and the rules.
    pub lines: Lines,
    options: Options,
    plant: Plant,
    replicas: Vec<Replica>,
    lives: u32,
    /// Notified when a process died.
    death: Arc<Notify>,
    /// Nothing goes wrong any more: no manager may end.
    pub is_quiet: bool,
    /// Services that are created as soon as their name is free.
    waiting: BTreeMap<&'static str, &'static [i32]>,
    /// By how many seconds the managers' wall clocks are wrong.
    skew: Arc<AtomicI64>,
    /// When a machine of that name went away.
    ended: BTreeMap<&'static str, Instant>,
    /// Machines that boot, and when their Node registers.
    booting: BTreeMap<&'static str, Instant>,
}

impl World {
    /// A cluster without machines and Services; no manager runs yet.
    ///
    /// # Errors
    /// The API refuses the first objects.
    pub fn new(options: Options, plant: Plant) -> Result<Self> {
        let kube = KubeSim::new(ccm_kubesim::Options {
            seed: options.seed,
            ..Default::default()
        });
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
        });
        kube.apply_direct(namespace)
            .map_err(|error| anyhow!("{error:?}"))?;
        let cloud = MemCloud::new(populated().map_err(|error| anyhow!("{error}"))?);
        let trace = Trace::begin();
        let lines = Lines {
            judge: Judge::new(kube.clone(), cloud.clone(), trace.clone()),
            trace,
            fates: Fates::default(),
            latency: options.latency,
        };
        let replicas = (0..options.replicas).map(|_| Replica {
            life: None,
            restart_at: Instant::now(),
            frozen_until: None,
        });
        Ok(Self {
            kube,
            cloud,
            lines,
            replicas: replicas.collect(),
            options,
            plant,
            lives: 0,
            death: Arc::default(),
            is_quiet: false,
            waiting: BTreeMap::new(),
            skew: Arc::default(),
            ended: BTreeMap::new(),
            booting: BTreeMap::new(),
        })
    }

    /// Which of the controllers for pod networks run.
    pub const fn network(&self) -> Network {
        self.options.network
    }

    // --- managers ---

    fn start_manager(&mut self) -> Result<Life> {
        self.lives += 1;
        let number = self.lives;
        let process = Process::new(number, Arc::clone(&self.death));
        let mut args = vec![
            format!("--cloud-provider={}", provider::NAME),
            "--cluster-name=kite".to_owned(),
            format!("--leader-elect={}", self.options.replicas > 1),
            "--secure-port=0".to_owned(),
            "--health-bind-address=".to_owned(),
        ];
        args.extend(self.options.network.flags());
        args.extend(self.options.flags.iter().cloned());
        let low = LowArgs::parse(args).map_err(|errors| anyhow!("{errors:?}"))?;
        let settings = Settings::from_args(&low).map_err(|errors| anyhow!("{errors:?}"))?;
        let cloud = factory(
            self.cloud.clone(),
            self.lines.clone(),
            Arc::clone(&process),
            Arc::clone(&self.plant.craft),
        );
        let tap = Tap::new(
            self.kube.clone(),
            self.lines.clone(),
            Arc::clone(&process),
            self.plant.wiretap.clone(),
        );
        let manager = Manager::new(
            settings,
            Registry::new(vec![cloud])?,
            Env::new([]),
            self.clock(),
            Random::seeded(self.options.seed ^ (u64::from(number) << 40)),
        )
        .with_client(kube::Client::new(tap, "default"));
        let stop = CancellationToken::new();
        self.lines.trace.world(format!("manager p{number} starts"));
        let (told, run) = (Arc::clone(&self.death), manager.run(stop.clone()));
        let task = tokio::spawn(async move {
            let ended = run.await;
            told.notify_one();
            ended
        });
        process.runs_as(task.abort_handle());
        Ok(Life {
            process,
            task,
            stop,
        })
    }

    /// The wall clock of a manager's machine.
    fn clock(&self) -> Clock {
        let (kube, skew) = (self.kube.clone(), Arc::clone(&self.skew));
        Clock::from_fn(move || {
            let skew = SignedDuration::from_secs(skew.load(Ordering::Relaxed));
            let now = kube.now();
            now.checked_add(skew).unwrap_or(now)
        })
    }

    /// The place of the manager that leads; the first one where none does.
    fn leader(&self) -> usize {
        let leads = |replica: &Replica| {
            let life = replica.life.as_ref();
            life.is_some_and(|life| self.lines.judge.leads(life.process.number))
        };
        self.replicas.iter().position(leads).unwrap_or_default()
    }

    /// Kills the manager that leads.
    pub fn crash(&mut self) {
        let leader = self.leader();
        if let Some(life) = self.replicas.get(leader).and_then(|at| at.life.as_ref()) {
            self.lines
                .trace
                .world(format!("manager p{} dies", life.process.number));
            life.process.kill();
        }
    }

    /// Lets time pass; managers that died start again meanwhile.
    ///
    /// # Errors
    /// A manager cannot be made.
    pub async fn pass(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.tend_managers().await?;
            self.tend_services();
            self.tend_machines();
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            let mut next = end;
            for replica in &self.replicas {
                if replica.life.is_none() {
                    next = next.min(replica.restart_at);
                }
                next = replica.frozen_until.map_or(next, |thaw| next.min(thaw));
            }
            if !self.waiting.is_empty() {
                next = next.min(now + LOOK_EVERY);
            }
            next = self.booting.values().copied().fold(next, Instant::min);
            tokio::select! {
                biased;
                () = self.death.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    async fn tend_managers(&mut self) -> Result<()> {
        let now = Instant::now();
        for index in 0..self.replicas.len() {
            let Some(replica) = self.replicas.get_mut(index) else {
                continue;
            };
            if let Some(life) = replica.life.take_if(|life| life.process.is_dead()) {
                self.lines.judge.manager_died();
                // It was aborted; what is left of it ends now.
                let _ = life.task.await;
                replica.restart_at = now + self.options.restart_after;
                replica.frozen_until = None;
            }
            if let Some(life) = replica.life.take_if(|life| life.task.is_finished()) {
                let ended = life.task.await;
                let number = life.process.number;
                // Who loses the lease has to end (REQ-APP-12).
                if !self.is_quiet && matches!(ended, Ok(Err(ManagerError::LeadershipLost(_)))) {
                    self.lines
                        .trace
                        .world(format!("manager p{number} steps down"));
                    self.lines.judge.manager_died();
                } else {
                    let text = format!("process {number} ended: {ended:?}");
                    self.lines.judge.violated(Rule::Alive, text);
                }
                replica.restart_at = now + self.options.restart_after;
                replica.frozen_until = None;
            }
            if replica.frozen_until.is_some_and(|thaw| thaw <= now) {
                replica.frozen_until = None;
                if let Some(life) = &replica.life {
                    life.process.freeze(false);
                }
            }
            if replica.life.is_none() && replica.restart_at <= now {
                let life = self.start_manager()?;
                if let Some(replica) = self.replicas.get_mut(index) {
                    replica.life = Some(life);
                }
            }
        }
        Ok(())
    }

    /// Ends the managers in order.
    ///
    /// # Errors
    /// One ends with an error.
    pub async fn stop(&mut self) -> Result<()> {
        for replica in &mut self.replicas {
            if let Some(life) = replica.life.take() {
                life.stop.cancel();
                life.task.await.context("the manager was killed")??;
            }
        }
        Ok(())
    }

    // --- trouble ---

    /// Something goes wrong.
    pub fn trouble(&mut self, trouble: &Trouble) {
        self.lines.trace.world(format!("{trouble:?}"));
        let faults = self.kube.faults();
        match trouble {
            Trouble::Strike(aim, blow) => self.lines.fates.arm(aim.clone(), *blow),
            Trouble::Crash => self.crash(),
            Trouble::Freeze(time) => {
                let leader = self.leader();
                if let Some(replica) = self.replicas.get_mut(leader)
                    && let Some(life) = &replica.life
                {
                    life.process.freeze(true);
                    replica.frozen_until = Some(Instant::now() + *time);
                }
            }
            Trouble::DelayWatches(resource, delay) => faults.delay_watches(Some(resource), *delay),
            Trouble::CutWatches => faults.cut_watches(),
            Trouble::EndWatches => faults.end_watches(),
            Trouble::Compact => faults.compact(),
            Trouble::Away(time, outage) => {
                faults.unavailable_until(Instant::now() + *time, *outage);
            }
            Trouble::CloudLag(lag) => self.cloud.set_lag(*lag),
            Trouble::CloudAway(time) => self.lines.fates.cloud_away(Instant::now() + *time),
            Trouble::Clock(skew) => self.skew.store(*skew, Ordering::Relaxed),
            Trouble::ExpireByHttp => faults.expired_style(ExpiredStyle::Http),
        }
    }

    /// All trouble is over; what died starts again.
    pub fn heal(&mut self) {
        self.lines.trace.world("all trouble is over");
        self.lines.fates.clear();
        self.kube.faults().clear();
        self.cloud.set_lag(Duration::ZERO);
        self.skew.store(0, Ordering::Relaxed);
        for replica in &mut self.replicas {
            replica.frozen_until = None;
            if let Some(life) = &replica.life {
                life.process.freeze(false);
            }
        }
    }

    // --- work ---

    /// Does a step. One that makes no sense in the present state does nothing.
    pub fn step(&mut self, step: &Step) {
        self.lines.trace.world(format!("{step:?}"));
        match *step {
            Step::Join(name) => self.join(name),
            Step::Stop(name) => self.power(name, State::Stopped),
            Step::Start(name) => self.power(name, State::Running),
            Step::Terminate(name) => {
                self.terminate(name);
                self.set_ready(name, "Unknown");
            }
            Step::Drain(name) => {
                self.terminate(name);
                self.delete("nodes", "", name);
            }
            Step::Replace(name) => {
                self.terminate(name);
                self.delete("nodes", "", name);
                self.join(name);
            }
            Step::NotReady(name) => self.set_ready(name, "False"),
            Step::Ready(name) => {
                let cloud = self.cloud.now();
                let machine = cloud.machine_named(name);
                if machine.is_some_and(|machine| machine.state == State::Running) {
                    self.set_ready(name, "True");
                }
            }
            Step::BreakRoute(name) => self.cloud.change(|model| {
                let id = model.machine_named(name).map(|machine| machine.id.clone());
                model
                    .routes
                    .retain(|_, route| Some(&route.machine) != id.as_ref());
            }),
            Step::Exclude(name, out) => {
                let value = if out { json!("true") } else { Value::Null };
                self.patch(
                    "nodes",
                    "",
                    name,
                    &json!({ "metadata": { "labels": { EXCLUDE: value } } }),
                );
            }
            _ => self.service_step(step),
        }
    }

    fn service_step(&mut self, step: &Step) {
        match *step {
            Step::Create(name, ports) => self.create_service(name, ports, None),
            Step::CreateForeign(name) => {
                self.create_service(name, &[80], Some("example.com/other"));
            }
            Step::Ports(name, ports) => {
                // A merge patch replaces the list: new node ports are given.
                self.patch_service(name, &json!({ "spec": { "ports": objects::ports(ports) } }));
            }
            Step::Ranges(name, ranges) => {
                self.patch_service(
                    name,
                    &json!({ "spec": { "loadBalancerSourceRanges": ranges } }),
                );
            }
            Step::Annotate(name, value) => {
                let annotations = json!({ "memory.cloud/note": value });
                self.patch_service(name, &json!({ "metadata": { "annotations": annotations } }));
            }
            Step::Retype(name, true) => {
                self.patch_service(name, &json!({ "spec": { "type": "LoadBalancer" } }));
            }
            Step::Retype(name, false) => {
                // As kubectl does it: what only a load balancer has goes along.
                let spec = json!({ "type": "ClusterIP", "loadBalancerSourceRanges": null });
                self.patch_service(name, &json!({ "spec": spec }));
            }
            Step::Delete(name) => {
                self.waiting.remove(name);
                self.delete("services", NAMESPACE, name);
            }
            Step::Recreate(name, ports) => {
                self.delete("services", NAMESPACE, name);
                self.waiting.insert(name, ports);
            }
            Step::StripFinalizer(name) => self.strip_finalizer(name),
            Step::ClearStatus(name) => {
                self.patch_service(name, &json!({ "status": { "loadBalancer": null } }));
            }
            Step::Break(name, kind) => self.break_part(name, kind),
            _ => {}
        }
    }

    fn join(&mut self, name: &'static str) {
        if self.cloud.now().machine_named(name).is_none() {
            self.cloud.change(|model| model.launch(name));
        }
        let ended = self.ended.get(name);
        let up = ended.map_or_else(Instant::now, |ended| *ended + BOOT);
        self.booting.insert(name, up);
        self.tend_machines();
    }

    /// Registers the Nodes of machines that have booted. A Node of the machine that had the name
    /// before is waited out: a kubelet cannot change its provider id.
    fn tend_machines(&mut self) {
        let now = Instant::now();
        while let Some((name, _)) = self.booting.iter().find(|(_, up)| **up <= now) {
            let name = *name;
            let cloud = self.cloud.now();
            match self.kube.get("nodes", "", name) {
                None => {
                    self.booting.remove(name);
                    self.lines.trace.world(format!("{name} registers"));
                    let ranges = match self.options.network {
                        Network::Routes => self.free_range(),
                        Network::None | Network::Allocated => None,
                    };
                    self.apply(objects::node(name, ranges.as_deref()));
                }
                Some(node) => {
                    let id = text(&node, "/spec/providerID");
                    if id.is_empty() || cloud.machine_of(id).is_some() {
                        self.booting.remove(name);
                        self.set_ready(name, "True");
                    } else {
                        self.booting.insert(name, now + REGISTER_AGAIN);
                    }
                }
            }
        }
    }

    /// A range that no Node has, as another controller hands them out: the lowest.
    fn free_range(&self) -> Option<String> {
        let nodes = self.kube.list("nodes");
        let taken: Vec<&str> = nodes
            .iter()
            .map(|node| text(node, "/spec/podCIDR"))
            .collect();
        let mut ranges = (0..=255).map(|third| format!("10.244.{third}.0/24"));
        ranges.find(|range| !taken.contains(&range.as_str()))
    }

    fn terminate(&mut self, name: &'static str) {
        self.booting.remove(name);
        self.ended.insert(name, Instant::now());
        self.cloud.change(|model| {
            model.machines.retain(|_, machine| machine.name != name);
        });
    }

    fn power(&self, name: &str, state: State) {
        let known = self.cloud.change(|model| {
            let machine = model
                .machines
                .values_mut()
                .find(|machine| machine.name == name);
            machine.map(|machine| machine.state = state).is_some()
        });
        if known {
            let ready = if state == State::Running {
                "True"
            } else {
                "Unknown"
            };
            self.set_ready(name, ready);
        }
    }

    fn set_ready(&self, name: &str, status: &str) {
        let Some(mut node) = self.kube.get("nodes", "", name) else {
            return;
        };
        let conditions = node
            .pointer_mut("/status/conditions")
            .and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            if text(condition, "/type") == "Ready"
                && let Some(condition) = condition.as_object_mut()
            {
                condition.insert("status".to_owned(), json!(status));
            }
        }
        self.apply(node);
    }

    fn create_service(&self, name: &str, ports: &[i32], class: Option<&str>) {
        if self.kube.get("services", NAMESPACE, name).is_none() {
            self.apply(objects::service(name, ports, class));
        }
    }

    /// Creates what waits for its name.
    fn tend_services(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for (name, ports) in waiting {
            if self.kube.get("services", NAMESPACE, name).is_some() {
                self.waiting.insert(name, ports);
            } else {
                self.lines.trace.world(format!("{name} is created again"));
                self.create_service(name, ports, None);
            }
        }
    }

    /// What is still to come by itself: a Service waits for its name, a machine boots, a manager
    /// starts or is elected.
    pub fn awaits(&self) -> Option<&'static str> {
        let leads = |replica: &Replica| {
            let life = replica.living();
            life.is_some_and(|life| self.lines.judge.leads(life.process.number))
        };
        if !self.waiting.is_empty() {
            Some("a Service waits for its name")
        } else if !self.booting.is_empty() {
            Some("a machine boots")
        } else if self
            .replicas
            .iter()
            .any(|replica| replica.living().is_none())
        {
            Some("a manager is dead")
        } else if self.replicas.len() > 1 && !self.replicas.iter().any(leads) {
            Some("no manager leads")
        } else {
            None
        }
    }

    fn strip_finalizer(&self, name: &str) {
        let Some(mut service) = self.kube.get("services", NAMESPACE, name) else {
            return;
        };
        let kept: Vec<String> = finalizers(&service)
            .into_iter()
            .filter(|finalizer| *finalizer != FINALIZER)
            .map(str::to_owned)
            .collect();
        // A manager that only stands by remembers nothing.
        let is_elected = self.replicas.len() > 1;
        let lives = self.replicas.iter().any(|replica| {
            let life = replica.living();
            life.is_some_and(|life| !is_elected || self.lines.judge.leads(life.process.number))
        });
        let uid = text(&service, "/metadata/uid");
        self.lines.judge.stripped(uid, lives);
        if let Some(metadata) = service
            .pointer_mut("/metadata")
            .and_then(Value::as_object_mut)
        {
            metadata.insert("finalizers".to_owned(), json!(kept));
        }
        self.apply(service);
    }

    fn break_part(&self, name: &str, kind: PartKind) {
        let Some(service) = self.kube.get("services", NAMESPACE, name) else {
            return;
        };
        let uid = text(&service, "/metadata/uid");
        self.cloud.change(|model| {
            model.parts.retain(|(part_kind, _), part| {
                let broken = *part_kind == kind
                    || (*part_kind == PartKind::Head && kind != PartKind::Firewall);
                part.owner != uid || !broken
            });
        });
    }

    fn apply(&self, object: Value) {
        if let Err(error) = self.kube.apply_direct(object) {
            self.lines.trace.world(format!("refused: {error:?}"));
        }
    }

    fn patch(&self, resource: &str, namespace: &str, name: &str, patch: &Value) {
        if let Err(error) = self.kube.patch_merge(resource, namespace, name, patch) {
            self.lines.trace.world(format!("refused: {error:?}"));
        }
    }

    fn patch_service(&self, name: &str, patch: &Value) {
        self.patch("services", NAMESPACE, name, patch);
    }

    fn delete(&self, resource: &str, namespace: &str, name: &str) {
        if let Err(error) = self.kube.delete_direct(resource, namespace, name) {
            self.lines.trace.world(format!("refused: {error:?}"));
        }
    }
}

/// A cloud in which others have a machine, a load balancer and a route.
fn populated() -> ccm_core::cloud::CloudResult<Model> {
    let mut model = Model::default();
    model.launch("of-somebody-else");
    model.create("theirs", FOREIGN, Spec::Address)?;
    let members = std::collections::BTreeSet::from(["mem:///m-0001".to_owned()]);
    model.create("theirs", FOREIGN, Spec::Backends { members })?;
    let head = Spec::Head {
        ports: Vec::new(),
        address: "theirs".to_owned(),
        backends: "theirs".to_owned(),
    };
    model.create("theirs", FOREIGN, head)?;
    for (name, range) in [("default", "0.0.0.0/0"), ("theirs", "10.243.7.0/24")] {
        model.add_route(name, range, "of-somebody-else", None)?;
    }
    Ok(model)
}
