//! A cluster in the process: API server, cloud, and the manager's lives.

mod managers;
mod work;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, anyhow};
use ccm_core::cloud::NodeIpamPolicy;
use ccm_kubesim::{ExpiredStyle, KubeSim};
use serde_json::json;
use tokio::{sync::Notify, time::Instant};

use self::managers::Replica;
use crate::{
    cloud::{
        Craft, MemCloud, Model,
        craft::Honest,
        model::{FOREIGN, FOREIGN_MACHINE, Spec},
        session::Lines,
    },
    fate::{Fates, Latency},
    judge::Judge,
    objects::{CLUSTER_CIDR, CLUSTER_CIDR_6, NAMESPACE},
    steps::Trouble,
    tap::Wiretap,
    trace::Trace,
};

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
    /// As [`Routes`](Self::Routes); routes follow the Nodes' events.
    Watched,
    /// As [`Allocated`](Self::Allocated), of both families; Services have both, too.
    Dual,
    /// The cloud gave its machines ranges of both families and routes to them; they are copied.
    Copied,
}

impl Network {
    /// Ranges of the cloud are for managers that know them from their own clouds.
    const fn policy(self) -> NodeIpamPolicy {
        match self {
            Self::Copied => NodeIpamPolicy::Gcp,
            _ => NodeIpamPolicy::Kubernetes,
        }
    }

    fn flags(self) -> Vec<String> {
        let ranges = format!("--cluster-cidr={CLUSTER_CIDR}");
        let both = format!("--cluster-cidr={CLUSTER_CIDR},{CLUSTER_CIDR_6}");
        match self {
            Self::None => vec!["--configure-cloud-routes=false".to_owned()],
            Self::Routes => vec![ranges],
            Self::Watched => vec![
                ranges,
                "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true"
                    .to_owned(),
            ],
            Self::Allocated => vec![ranges, "--allocate-node-cidrs=true".to_owned()],
            Self::Dual => vec![both, "--allocate-node-cidrs=true".to_owned()],
            Self::Copied => vec![
                both,
                "--allocate-node-cidrs=true".to_owned(),
                "--cidr-allocator-type=CloudAllocator".to_owned(),
                "--configure-cloud-routes=false".to_owned(),
            ],
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
        let mut server = ccm_kubesim::Options {
            seed: options.seed,
            ..Default::default()
        };
        if options.network == Network::Dual {
            server.service_cidrs.push("fd00:10:96::/112".parse()?);
        }
        let kube = KubeSim::new(server);
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

    /// Something goes wrong.
    pub async fn trouble(&mut self, trouble: &Trouble) {
        self.lines.trace.world(format!("{trouble:?}"));
        let faults = self.kube.faults();
        match trouble {
            Trouble::Strike(aim, blow) => self.lines.fates.arm(aim.clone(), *blow),
            Trouble::Crash => self.crash(),
            Trouble::Shutdown => self.shut_down(),
            Trouble::Freeze(time) => {
                let leader = self.leader();
                if let Some(replica) = self.replicas.get_mut(leader)
                    && let Some(life) = &replica.life
                {
                    life.process.freeze(true);
                    replica.frozen_until = Some(Instant::now() + *time);
                }
            }
            Trouble::Suspend(time) => self.suspend(*time).await,
            Trouble::Hush(who, resource, hush, time) => {
                if let Some(process) = self.process(*who) {
                    process.hush(resource, Instant::now() + *time, *hush);
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
                life.process.hear();
            }
        }
    }
}

/// A cloud in which others have a machine, a load balancer and a route.
fn populated() -> ccm_core::cloud::CloudResult<Model> {
    let mut model = Model::default();
    model.launch(FOREIGN_MACHINE);
    model.create("theirs", FOREIGN, Spec::Address { dual: false })?;
    let members = std::collections::BTreeSet::from(["mem:///m-0001".to_owned()]);
    model.create("theirs", FOREIGN, Spec::Backends { members })?;
    let head = Spec::Head {
        ports: Vec::new(),
        address: "theirs".to_owned(),
        backends: "theirs".to_owned(),
    };
    model.create("theirs", FOREIGN, head)?;
    let routes = [
        ("default", "0.0.0.0/0"),
        ("default-6", "::/0"),
        ("theirs", "10.243.7.0/24"),
        ("theirs-6", "fd00:10:243:7::/64"),
    ];
    for (name, range) in routes {
        model.add_route(name, range, FOREIGN_MACHINE, None)?;
    }
    Ok(model)
}
