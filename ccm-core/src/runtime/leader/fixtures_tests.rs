//! A simulated API server with a network in front of it, and candidates.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ccm_kubesim::{KubeSim, Options};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Acquired, Elector, ElectorParts, LeaderMetrics, Lost};
use crate::{
    config::LeaderElectionSettings,
    kube::{EventRecorder, RecordedEvents},
    runtime::{Clock, Fence, Random},
};

pub(super) const NAMESPACE: &str = "kube-system";
pub(super) const NAME: &str = "cloud-controller-manager";

/// What happens to one request on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    /// Until it reaches the server.
    pub(super) there: Duration,
    /// Until the answer is back.
    pub(super) back: Duration,
    /// It never reaches the server.
    pub(super) lost: bool,
    /// It is applied, but the answer never comes.
    pub(super) answer_lost: bool,
    /// What is lost is told at once, as a broken connection; else the client waits.
    pub(super) broken: bool,
}

pub(super) type Fates = Arc<dyn Fn(&http::request::Parts) -> Fate + Send + Sync>;

/// A client whose requests share these fates. A request that is under way goes on when the client
/// gives it up, as on a real network.
pub(super) fn client(sim: &KubeSim, fates: &Fates) -> kube::Client {
    let (sim, fates) = (sim.service(), Arc::clone(fates));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (parts, body) = request.into_parts();
        let fate = fates(&parts);
        let sim = sim.clone();
        let travel = async move {
            let gone = async || {
                if !fate.broken {
                    std::future::pending::<()>().await;
                }
                Err(tower::BoxError::from("connection reset"))
            };
            let body = body.collect().await?.to_bytes();
            sleep(fate.there).await;
            if fate.lost {
                return gone().await;
            }
            let request = Request::from_parts(parts, http_body_util::Full::new(body));
            let answer = tower::ServiceExt::oneshot(sim, request).await;
            if fate.answer_lost {
                return gone().await;
            }
            sleep(fate.back).await;
            Ok(answer?)
        };
        let travelling = tokio::spawn(travel);
        async move { travelling.await.unwrap_or_else(|error| Err(error.into())) }
    });
    kube::Client::new(service, NAMESPACE)
}

/// A server, and what its candidates share.
pub(super) struct World {
    pub(super) sim: KubeSim,
    pub(super) events: Arc<RecordedEvents>,
    pub(super) registry: prometheus::Registry,
    pub(super) metrics: LeaderMetrics,
    pub(super) settings: LeaderElectionSettings,
}

impl World {
    pub(super) fn new() -> Self {
        let registry = prometheus::Registry::new();
        Self {
            sim: KubeSim::new(Options::default()),
            events: Arc::default(),
            metrics: LeaderMetrics::new(&registry).unwrap(),
            registry,
            settings: LeaderElectionSettings::default(),
        }
    }

    pub(super) fn parts(&self, identity: &str, client: kube::Client) -> ElectorParts {
        let seed = identity.bytes().map(u64::from).sum();
        ElectorParts {
            client,
            settings: self.settings.clone(),
            identity: identity.to_owned(),
            clock: Clock::anchored(self.sim.now()),
            random: Random::seeded(seed),
            fence: Fence::waiting(),
            metrics: self.metrics.clone(),
            events: EventRecorder::new("cloud-controller-manager", self.events.clone()),
        }
    }

    /// A candidate whose requests share these fates.
    pub(super) fn elector_over(
        &self,
        identity: &str,
        fates: impl Fn(&http::request::Parts) -> Fate + Send + Sync + 'static,
    ) -> Elector {
        let fates: Fates = Arc::new(fates);
        Elector::new(self.parts(identity, client(&self.sim, &fates)))
    }

    /// A candidate with a perfect network.
    pub(super) fn elector(&self, identity: &str) -> Elector {
        Elector::new(self.parts(identity, kube::Client::new(self.sim.service(), NAMESPACE)))
    }

    /// `spec` of the Lease.
    pub(super) fn spec(&self) -> Value {
        let lease = self.sim.get("leases", NAMESPACE, NAME);
        lease.map_or(Value::Null, |lease| lease["spec"].clone())
    }

    pub(super) fn holder(&self) -> String {
        let holder = self.spec()["holderIdentity"].as_str().map(str::to_owned);
        holder.unwrap_or_else(|| "none".to_owned())
    }

    /// Stores a Lease with this spec, as somebody else would.
    pub(super) fn store(&self, spec: &Value) {
        let old = self.sim.get("leases", NAMESPACE, NAME);
        let version = old.map_or(Value::Null, |old| {
            old["metadata"]["resourceVersion"].clone()
        });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": NAME, "namespace": NAMESPACE, "resourceVersion": version },
            "spec": spec,
        });
        self.sim.apply_direct(lease).unwrap();
    }

    /// A series of the one Lease.
    pub(super) fn series(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let metric = &family.unwrap().get_metric()[0];
        metric.get_gauge().get_value() + metric.get_counter().get_value()
    }

    pub(super) fn messages(&self) -> Vec<String> {
        let events = self.events.all().into_iter();
        events.map(|event| event.message).collect()
    }
}

/// An elector at work in a task: acquire, hold.
pub(super) struct Running {
    pub(super) fence: Fence,
    pub(super) healthy: Box<dyn Fn() -> bool + Send + Sync>,
    pub(super) stop: CancellationToken,
    pub(super) leading: Arc<AtomicBool>,
    lost: Arc<Mutex<Option<(Lost, Instant)>>>,
    task: tokio::task::JoinHandle<Elector>,
}

impl Running {
    pub(super) fn start(mut elector: Elector) -> Self {
        let (fence, healthy) = (elector.fence(), Box::new(elector.health()));
        let stop = CancellationToken::new();
        let leading = Arc::new(AtomicBool::new(false));
        let lost: Arc<Mutex<Option<(Lost, Instant)>>> = Arc::default();
        let (token, flag, end) = (stop.clone(), Arc::clone(&leading), Arc::clone(&lost));
        let task = tokio::spawn(async move {
            if elector.acquire(&token).await == Acquired::Leading {
                flag.store(true, Ordering::SeqCst);
                let lost = elector.hold(&token).await;
                flag.store(false, Ordering::SeqCst);
                *end.lock().unwrap() = Some((lost, Instant::now()));
            }
            elector
        });
        Self {
            fence,
            healthy,
            stop,
            leading,
            lost,
            task,
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.leading.load(Ordering::SeqCst)
    }

    /// Until it leads, at most for this long. How long it took.
    pub(super) async fn until_leading(&self, limit: Duration) -> Duration {
        let start = Instant::now();
        ccm_testkit::eventually("it leads", limit, || async {
            self.leads().then_some(()).ok_or_else(String::new)
        })
        .await;
        start.elapsed()
    }

    /// Until the lease is lost: how, and when.
    pub(super) async fn until_lost(&self, limit: Duration) -> (Lost, Instant) {
        ccm_testkit::eventually("it is lost", limit, || async {
            self.lost.lock().unwrap().clone().ok_or_else(String::new)
        })
        .await
    }

    /// Ends it as the process does when its controllers have ended.
    pub(super) async fn release(self) {
        self.stop.cancel();
        self.task.await.unwrap().release().await;
    }

    /// The process is killed.
    pub(super) fn kill(self) {
        self.task.abort();
    }
}
