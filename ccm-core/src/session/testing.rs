//! A cluster in the process and a cloud of a few answers, for the tests of commands.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use ccm_kubesim::{KubeSim, Options};
use k8s_openapi::api::core::v1::NodeAddress;
use serde_json::{Value, json};

use super::Inputs;
use crate::{
    cloud::{
        Build, Class, Cloud, CloudError, CloudResult, Ensured, Factory, InstanceMetadata,
        Instances, Leftover, LeftoverKind, Leftovers, LoadBalancers, Note, Owners, Power, Presence,
        ProviderId, Read, RecordedWrite, Registry, Removal, Updated, Writes,
    },
    config::{Env, LowArgs, Settings},
    kube::{LoadBalancerIngress, LoadBalancerStatus, Node, Service},
    runtime::{Clock, Fence, Random},
};

/// What the cloud says. Everything of it is shared by all that is built.
#[derive(Default)]
pub(crate) struct Fake {
    /// Load balancers that stand, by Service name: their host names.
    pub(crate) standing: Mutex<BTreeMap<String, String>>,
    /// Whether it keeps to what it is asked to record.
    pub(crate) careless: bool,
    /// Fences that were passable while something was to be written.
    pub(crate) open_fences: AtomicUsize,
    /// What lies around: name, age in hours, and what the tries to remove it answer.
    pub(crate) lying_around: Vec<(&'static str, Option<u64>, Vec<Answer>)>,
    /// Tries to remove something, by name.
    pub(crate) tries: Mutex<BTreeMap<&'static str, usize>>,
    /// Whether the Nodes are those of another cluster.
    pub(crate) abroad: bool,
}

/// The answer to a removal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Removed,
    Kept,
    Later,
    Denied,
}

struct Built {
    fake: Arc<Fake>,
    writes: Writes,
    fence: Fence,
}

impl Built {
    fn write(&self, action: &'static str, name: &str) {
        if self.fence.is_passable() {
            self.fake.open_fences.fetch_add(1, Ordering::SeqCst);
        }
        if let Writes::Recorded(recorder) = &self.writes {
            recorder.record(RecordedWrite::new(
                action,
                format!("load balancer of {name}"),
            ));
        }
    }
}

#[async_trait]
impl LoadBalancers for Built {
    async fn get(&self, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        let standing = self.fake.standing.lock().unwrap();
        Ok(standing.get(service.name()).map(|host| status(host)))
    }

    /// The Service's name decides.
    async fn ensure(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Ensured> {
        let name = service.name();
        match name {
            "bad" => return Err(CloudError::invalid("annotation x: \"y\" is not a number")),
            "dark" => return Err(CloudError::transient("no answer")),
            "elsewhere" => {
                return Ok(Ensured::ImplementedElsewhere {
                    notes: vec![Note {
                        reason: "Released",
                        message: "it stays".to_owned(),
                    }],
                });
            }
            _ => {}
        }
        tokio::task::yield_now().await;
        let host = self.get(service).await?;
        if host.is_none() {
            self.write("Create", name);
            self.write("Register", &format!("{name}: {} Nodes", nodes.len()));
        }
        Ok(Ensured::Ready {
            status: host.unwrap_or_else(|| status("(known after apply)")),
            notes: Vec::new(),
        })
    }

    async fn update(&self, _: &Service, _: &[Arc<Node>]) -> CloudResult<Updated> {
        Ok(Updated::Done { notes: Vec::new() })
    }

    async fn delete(&self, service: &Service) -> CloudResult<()> {
        self.write("Delete", service.name());
        Ok(())
    }
}

fn status(host: &str) -> LoadBalancerStatus {
    LoadBalancerStatus {
        ingress: Some(vec![LoadBalancerIngress {
            hostname: Some(host.to_owned()),
            ..LoadBalancerIngress::default()
        }]),
    }
}

#[async_trait]
impl Instances for Built {
    /// A Node called `gone` has no machine.
    async fn presence(&self, nodes: &[Arc<Node>], _: Read) -> Vec<CloudResult<Presence>> {
        let answer = |node: &Arc<Node>| match node.name() {
            "gone" => Ok(Presence::Absent),
            _ => Ok(Presence::Present(Power::Running)),
        };
        nodes.iter().map(answer).collect()
    }

    async fn metadata(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        let answer = |node: &Arc<Node>| match node.name() {
            "gone" => Err(CloudError::new(Class::NotFound, "no such machine")),
            name => Ok(Some(InstanceMetadata {
                provider_id: ProviderId::new(format!("fake://{name}")).ok(),
                addresses: vec![NodeAddress {
                    type_: "InternalIP".to_owned(),
                    address: "10.0.0.1".to_owned(),
                }],
                ..InstanceMetadata::default()
            })),
        };
        nodes.iter().map(answer).collect()
    }
}

#[async_trait]
impl Leftovers for Built {
    async fn list(&self, owners: Owners<'_>) -> CloudResult<Vec<Leftover>> {
        let now = SystemTime::from(start());
        let owned = |name: &str| owners.services.iter().any(|service| service.name() == name);
        let all = self.fake.lying_around.iter();
        let leftover = |(name, hours, _): &(&'static str, Option<u64>, Vec<Answer>)| Leftover {
            kind: LeftoverKind::LoadBalancer,
            id: (*name).to_owned(),
            name: (*name).to_owned(),
            made_for: None,
            created: hours.map(|hours| now - Duration::from_secs(hours * 3600)),
            reason: "nobody has it".to_owned(),
            parts: Vec::new(),
            kept: None,
        };
        Ok(all
            .filter(|(name, ..)| !owned(name))
            .map(leftover)
            .collect())
    }

    async fn remove(&self, leftover: &Leftover, _: Owners<'_>) -> CloudResult<Removal> {
        assert!(self.fence.is_passable());
        let mut all = self.fake.lying_around.iter();
        let (name, _, answers) = all.find(|(name, ..)| *name == leftover.name).unwrap();
        let mut tries = self.fake.tries.lock().unwrap();
        let tries = tries.entry(name).or_default();
        let answer = answers.get(*tries).copied().unwrap_or(Answer::Later);
        *tries += 1;
        match answer {
            Answer::Removed => Ok(Removal::Removed),
            Answer::Kept => Ok(Removal::Kept("it has an owner by now".to_owned())),
            Answer::Later => Err(CloudError::transient("in use").retry_in(Duration::from_secs(5))),
            Answer::Denied => Err(CloudError::new(Class::Denied, "denied")),
        }
    }

    async fn is_home_of(&self, nodes: &[Arc<Node>]) -> CloudResult<bool> {
        Ok(!self.fake.abroad && !nodes.is_empty())
    }
}

struct FakeCloud(Arc<Built>);

impl Cloud for FakeCloud {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn instances(&self) -> Option<Arc<dyn Instances>> {
        Some(Arc::clone(&self.0) as _)
    }

    fn load_balancers(&self) -> Option<Arc<dyn LoadBalancers>> {
        Some(Arc::clone(&self.0) as _)
    }

    fn leftovers(&self) -> Option<Arc<dyn Leftovers>> {
        Some(Arc::clone(&self.0) as _)
    }

    fn records_writes(&self) -> bool {
        !self.0.fake.careless
    }
}

fn start() -> jiff::Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

/// A cluster without objects.
pub(crate) fn cluster() -> KubeSim {
    let sim = KubeSim::new(Options::default());
    apply(
        &sim,
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }),
    );
    sim
}

pub(crate) fn apply(sim: &KubeSim, object: Value) {
    sim.apply_direct(object).unwrap();
}

/// A Service `shop/<name>`; with the finalizer and this host name in its status if one is given.
pub(crate) fn service(name: &str, host: Option<&str>) -> Value {
    let finalizers: &[&str] = match host {
        Some(_) => &["service.kubernetes.io/load-balancer-cleanup"],
        None => &[],
    };
    let ingress: Vec<Value> = host
        .iter()
        .map(|host| json!({ "hostname": host }))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": "shop", "name": name, "finalizers": finalizers },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
        "status": { "loadBalancer": { "ingress": ingress } },
    })
}

/// A Node that is as the cloud has it.
pub(crate) fn node(name: &str, ready: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name },
        "spec": { "providerID": format!("fake://{name}") },
        "status": {
            "conditions": [{ "type": "Ready", "status": ready }],
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
        },
    })
}

/// The inputs of a command over this cluster and cloud.
pub(crate) fn inputs(sim: &KubeSim, fake: &Arc<Fake>, flags: &[&str]) -> Inputs {
    let args = ["--cloud-provider=fake", "--configure-cloud-routes=false"];
    let args = args.iter().chain(flags).map(|flag| (*flag).to_owned());
    let low = LowArgs::parse(args.collect::<Vec<_>>()).unwrap();
    let fake = Arc::clone(fake);
    let factory = Factory::new(
        "fake",
        Arc::new(move |build: Build| {
            let built = Built {
                fake: Arc::clone(&fake),
                writes: build.writes,
                fence: build.fence,
            };
            Box::pin(async move { Ok(Arc::new(FakeCloud(Arc::new(built))) as Arc<dyn Cloud>) })
        }),
    );
    Inputs {
        settings: Settings::from_args(&low).unwrap(),
        clouds: Registry::new(vec![factory]).unwrap(),
        env: Env::new([]),
        clock: Clock::anchored(start()),
        random: Random::seeded(1),
        client: Some(kube::Client::new(sim.service(), "default")),
    }
}
