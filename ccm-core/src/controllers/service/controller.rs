//! The wiring: which changes put which key into which queue, and the loops
//! (specification: controllers §4.1, §4.2, §4.8).

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    backends::{Roster, patience},
    events::Events,
    memory::Memory,
    metrics::{Metrics, Pass},
    needs_update::needs_update,
    predicates::{foreign_changed, is_foreign, needs_cleanup, wants_load_balancer},
    targets,
    worker::Worker,
};
use crate::{
    cloud::LoadBalancers,
    config::{ControllerName, ServiceSettings},
    kube::{Change, Informer, Node, ObjectKey, Service, ServiceWrites},
    runtime::{Backoff, Context, Outcome, WorkQueue, run_workers},
};

/// The source component of the events.
const SOURCE: &str = "service-controller";

/// How often Services that wait for their cleanup are looked for.
const RESYNC_PERIOD: Duration = Duration::from_secs(30);

/// Between two node passes, for each Service that was given new backends in the first one: a fraction
/// of what a cloud takes for it. Nodes that come one by one, as they do while a large cluster starts,
/// would else send every Service to the cloud for each of them.
const PAUSE_A_SERVICE: Duration = Duration::from_millis(10);

/// A new Node is not left waiting for longer than this by other Nodes.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Keeps the load balancers of all Services as the Services ask.
pub struct ServiceController {
    worker: Arc<Worker>,
    node_queue: WorkQueue<()>,
    settings: ServiceSettings,
}

impl ServiceController {
    /// Registers metrics and listeners; [`run`](Self::run) does the work. The informers must not
    /// run yet.
    ///
    /// # Errors
    /// The metrics are registered already.
    pub fn new(
        context: &Context,
        services: &Informer<Service>,
        nodes: &Informer<Node>,
        cloud: Arc<dyn LoadBalancers>,
        settings: ServiceSettings,
    ) -> Result<Self, prometheus::Error> {
        let worker = Arc::new(Worker {
            services: services.store(),
            nodes: nodes.store(),
            roster: Roster::default(),
            cloud,
            writes: ServiceWrites::new(context.client.clone()),
            events: Events::new(context.recorder(SOURCE)),
            memory: Memory::default(),
            metrics: Metrics::new(&context.registry)?,
            queue: WorkQueue::new("service", Backoff::SERVICE, &context.queues),
            random: context.random.clone(),
            verify_period: settings.verify_period,
            syncing: context
                .loops
                .add(ControllerName::Service.as_str(), "services", None),
        });
        let node_queue = WorkQueue::new("node", Backoff::SERVICE, &context.queues);
        let listener = Arc::clone(&worker);
        services.listen(move |change| on_service(&listener, change));
        let (listener, queue) = (Arc::clone(&worker), node_queue.clone());
        nodes.listen(move |change| {
            if node_matters(&listener.memory, change) {
                queue.add(());
            }
        });
        Ok(Self {
            worker,
            node_queue,
            settings,
        })
    }

    /// Works until `shutdown`: waits for both caches first, finishes what was begun at the end.
    pub async fn run(self, shutdown: CancellationToken) {
        let worker = &self.worker;
        let synced = async {
            worker.services.wait_until_synced().await;
            worker.nodes.wait_until_synced().await;
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = synced => {}
        }
        // The flag's parser refuses 0; without a worker everything would be left undone silently.
        let syncs = self.settings.syncs.max(1);
        let service_loop = run_workers(&worker.queue, syncs, &shutdown, |key| async move {
            worker.syncing.start();
            let outcome = worker.sync(&key).await;
            worker.syncing.end(None);
            outcome
        });
        let node_loop = run_workers(&self.node_queue, 1, &shutdown, |()| async {
            let pause = fan_out(worker);
            // Nodes change in crowds: a pass takes along what comes until the next one.
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
            Outcome::Done
        });
        tokio::join!(service_loop, node_loop, resync(worker, &shutdown));
    }
}

/// What a change of a Service sets in motion.
fn on_service(worker: &Worker, change: &Change<Service>) {
    match change {
        Change::Applied { old, new } => {
            let key = ObjectKey::of(new.as_ref());
            let repair = worker.memory.observe(&key, new);
            if repair || is_due(old.as_deref(), new) {
                worker.queue.add(key);
            }
        }
        Change::Deleted(last) => {
            let key = ObjectKey::of(last.as_ref());
            if worker.memory.observe_gone(&key) {
                worker.queue.add(key);
            } else {
                worker.memory.disengage(&key);
                worker.queue.remove(&key);
            }
        }
    }
}

/// Whether a Service that is new, or changed from `old`, has to be looked at now. A Service in
/// need of cleanup is not looked at again with every change: that would cut its back-off short.
fn is_due(old: Option<&Service>, new: &Service) -> bool {
    match old {
        None => wants_load_balancer(new) || needs_cleanup(new) || is_foreign(new),
        Some(old) => {
            needs_update(old, new)
                || (needs_cleanup(new) && !needs_cleanup(old))
                || new.is_deleting() && !old.is_deleting() && wants_load_balancer(new)
                || foreign_changed(old, new)
        }
    }
}

fn node_matters(memory: &Memory, change: &Change<Node>) -> bool {
    match change {
        Change::Applied {
            old: Some(old),
            new,
        } => {
            targets::is_trigger(old, new)
                || (targets::labels_changed(old, new) && memory.any_labels_matter())
        }
        Change::Applied { old: None, .. } | Change::Deleted(_) => true,
    }
}

/// Hands every Service whose backends differ from the current Nodes to the Service queue: the
/// worker of that key gives the load balancer the new ones. Answers with the pause before the next
/// pass.
fn fan_out(worker: &Worker) -> Duration {
    let pass = Arc::new(Pass::start(&worker.metrics));
    if worker.memory.is_empty() {
        // A first ensure that begins just now looks again when it has ended: not at an old list.
        worker.roster.forget();
        if worker.memory.is_empty() {
            return patience(worker.nodes.len());
        }
    }
    let backends = worker.roster.newest(&worker.nodes);
    let behind = worker.memory.behind(&backends, &pass);
    let to_do = u32::try_from(behind.len()).unwrap_or(u32::MAX);
    for key in behind {
        worker.queue.add(key);
    }
    let pause = patience(backends.nodes().len()) + PAUSE_A_SERVICE.saturating_mul(to_do);
    pause.min(LONGEST_PAUSE)
}

/// Looks for Services in need of cleanup that nobody works on and no retry waits for.
async fn resync(worker: &Worker, shutdown: &CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(RESYNC_PERIOD) => {}
        }
        if worker.queue.is_empty() {
            worker.roster.forget();
        }
        for service in worker.services.list() {
            let key = ObjectKey::of(service.as_ref());
            let latest = worker.memory.latest(&key, &worker.services);
            if latest.is_some_and(|latest| needs_cleanup(&latest))
                && !worker.memory.is_engaged(&key)
            {
                worker.queue.add(key);
            }
        }
    }
}
