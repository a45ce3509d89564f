//! The work on one key: look, decide, act, until nothing is left to do.
//!
//! The queue hands a key to one worker at a time, so ensure, host update and delete of one Service
//! never overlap (REQ-SVC-29, REQ-SVC-30). What is decided is in [`super::sync`]; here is the I/O.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    backends::{Backends, Roster},
    events::Events,
    memory::{Entry, Memory, Phase, Retry},
    metrics::Metrics,
    predicates::{CLEANUP_FINALIZER, has_cleanup_finalizer, is_load_balancer, wants_load_balancer},
    status,
    sync::{Operation, decide, is_leaving},
    targets::TargetSet,
};
use crate::{
    cloud::{CloudError, CloudResult, Ensured, LoadBalancers, Note, Updated},
    kube::{LoadBalancerStatus, Node, ObjectKey, Service, ServiceWrites, Store},
    runtime::{Outcome, Random, WorkQueue},
};

/// Steps for one key before it is backed off; three are usual: ensure, hosts, nothing.
const MAX_STEPS: usize = 8;

/// The spread of verifications, as a fraction of the period: load balancers that were all ensured
/// at start-up must not all be verified at once.
const VERIFY_JITTER: f64 = 0.5;

/// Field managers under which our finalizer may have been set: this binary and the Go managers
/// that it replaces.
const OWN_MANAGERS: [&str; 2] = ["cloud-controller-manager", "aws-cloud-controller-manager"];

/// Whether the key has to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Again,
    Stop,
}

/// What there is to do for a key and what it was decided from.
struct View {
    operation: Operation,
    latest: Option<Arc<Service>>,
    entry: Option<Entry>,
    backends: Arc<Backends>,
    targets: Arc<TargetSet>,
}

/// What the work needs.
pub(super) struct Worker {
    pub services: Store<Service>,
    pub nodes: Store<Node>,
    pub cloud: Arc<dyn LoadBalancers>,
    pub writes: ServiceWrites,
    pub events: Events,
    pub memory: Memory,
    pub roster: Roster,
    pub metrics: Metrics,
    pub queue: WorkQueue<ObjectKey>,
    pub random: Random,
    pub verify_period: Duration,
}

impl Worker {
    /// Works on a key and says when it wants to be seen again.
    pub(super) async fn sync(&self, key: &ObjectKey) -> Outcome {
        self.memory.engage(key);
        let outcome = match self.converge(key).await {
            Ok(()) => self.rest(key),
            Err(error) => {
                tracing::warn!(service = %key, class = error.class().as_str(), %error, "service sync failed");
                self.back_off(key, &error).await
            }
        };
        self.memory.leave_pass(key);
        outcome
    }

    /// All was done that can be done now. A back-off that still runs is gone on with: a host
    /// update in between neither ends it nor forgets the failures.
    fn rest(&self, key: &ObjectKey) -> Outcome {
        let now = Instant::now();
        let entry = self.memory.entry(key);
        if let Some(retry) = entry.and_then(|entry| entry.waiting(now)) {
            return Outcome::RetryAfter(retry.at.saturating_duration_since(now));
        }
        self.memory.amend(key, |entry| entry.retry = None);
        self.plan_verification(key);
        self.memory.disengage(key);
        Outcome::Done
    }

    /// Begins the back-off, and lets a load balancer that stands have the current backends.
    async fn back_off(&self, key: &ObjectKey, error: &CloudError) -> Outcome {
        // A wait of nothing would be a busy loop: the back-off holds then.
        let named = error.retry_after().filter(|after| !after.is_zero());
        let wait = named.unwrap_or_else(|| self.queue.back_off(key));
        let latest = self.memory.latest(key, &self.services);
        let hosts = named.is_none() && latest.is_some_and(|service| !is_leaving(&service));
        let at = Instant::now() + wait;
        self.memory
            .amend(key, |entry| entry.retry = Some(Retry { at, hosts }));
        let view = self.look(key);
        if let (Operation::UpdateHosts, Some(service), Some(entry)) =
            (view.operation, &view.latest, &view.entry)
            && let Err(error) = self
                .update_hosts(key, service, entry, view.backends.nodes(), view.targets)
                .await
        {
            tracing::warn!(service = %key, %error, "host update failed");
        }
        named.map_or(Outcome::Retry, Outcome::RetryAfter)
    }

    fn look(&self, key: &ObjectKey) -> View {
        let latest = self.memory.latest(key, &self.services);
        let entry = self.memory.entry(key);
        let backends = self.roster.current(&self.nodes);
        let by_label = entry.as_ref().is_some_and(|entry| entry.labels_matter);
        let targets = backends.targets(by_label);
        View {
            operation: decide(latest.as_deref(), entry.as_ref(), &targets, Instant::now()),
            latest,
            entry,
            backends,
            targets,
        }
    }

    async fn converge(&self, key: &ObjectKey) -> CloudResult<()> {
        for _ in 0..MAX_STEPS {
            if self.step(key).await? == Next::Stop {
                return Ok(());
            }
        }
        // Backed off: whatever keeps changing must not keep a worker.
        let error = CloudError::transient(format!(
            "the Service was not at rest after {MAX_STEPS} steps"
        ));
        if let Some(service) = self.memory.latest(key, &self.services) {
            self.events.sync_failed(&service, &error);
        }
        Err(error)
    }

    async fn step(&self, key: &ObjectKey) -> CloudResult<Next> {
        let View {
            operation,
            latest,
            entry,
            backends,
            targets,
        } = self.look(key);
        if operation != Operation::Nothing {
            tracing::debug!(service = %key, ?operation, "service needs work");
        }
        let service = match (operation, latest, &entry) {
            (Operation::Nothing, ..) => return Ok(Next::Stop),
            (Operation::DeleteRemembered, _, Some(entry)) => {
                return self.delete_remembered(key, entry).await;
            }
            (_, Some(service), _) => service,
            (_, None, _) => return Ok(Next::Stop),
        };
        let result = match operation {
            Operation::Delete | Operation::DeleteForeign => self.delete(key, &service).await,
            Operation::FinishDelete => self.finish_delete(key, &service).await,
            Operation::Ensure { quiet } => {
                self.ensure(key, service.clone(), &backends, quiet).await
            }
            Operation::RestoreFinalizer => {
                let now = self.add_finalizer(key, &service).await;
                now.map(|now| now.map_or(Next::Stop, |_| Next::Again))
            }
            Operation::RestoreStatus => {
                let status = entry.and_then(|entry| entry.status).unwrap_or_default();
                self.publish(key, &service, status).await
            }
            Operation::UpdateHosts => {
                let Some(entry) = &entry else {
                    return Ok(Next::Stop);
                };
                return self
                    .update_hosts(key, &service, entry, backends.nodes(), targets)
                    .await;
            }
            Operation::Nothing | Operation::DeleteRemembered => Ok(Next::Stop),
        };
        if let Err(error) = &result {
            self.events.sync_failed(&service, error);
        }
        result
    }

    /// Asks for the next look at the cloud. Any add of the key cancels a planned one, so it is
    /// planned anew after each run.
    fn plan_verification(&self, key: &ObjectKey) {
        let entry = self.memory.entry(key);
        if let Some(entry) = entry.filter(|entry| entry.phase == Phase::Settled) {
            let wait = entry.verify_at.saturating_duration_since(Instant::now());
            self.queue.add_after(key.clone(), wait);
        }
    }

    async fn ensure(
        &self,
        key: &ObjectKey,
        mut service: Arc<Service>,
        backends: &Backends,
        quiet: bool,
    ) -> CloudResult<Next> {
        self.memory.update(key, &service, |entry| {
            // A verification that fails takes nothing from a load balancer that stands.
            if !quiet {
                entry.phase = Phase::Pending;
            }
            entry.tried = Arc::clone(&service);
        });
        if !quiet {
            self.events.ensuring(&service);
        }
        if !has_cleanup_finalizer(&service) {
            match self.add_finalizer(key, &service).await? {
                Some(now) if !is_leaving(&now) => service = now,
                Some(_) => return Ok(Next::Again),
                None => return Ok(self.vanished(key)),
            }
        }
        if backends.nodes().is_empty() && !quiet {
            self.events.no_nodes(&service);
        }
        match self.ensure_in_cloud(key, &service, backends).await? {
            Ensured::ImplementedElsewhere { notes } => {
                self.tell_notes(key, &service, &notes, quiet);
                self.settle(key, &service, None, notes);
            }
            Ensured::Ready { status, notes } => {
                let status = status::publishable(status);
                self.tell_notes(key, &service, &notes, quiet);
                if !quiet || !self.shows(key, &status) {
                    self.events.ensured(&service);
                }
                self.publish(key, &service, status.clone()).await?;
                self.settle(key, &service, Some(status), notes);
            }
        }
        Ok(Next::Again)
    }

    async fn ensure_in_cloud(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
        backends: &Backends,
    ) -> CloudResult<Ensured> {
        let labels_matter = self.cloud.node_labels_matter(service);
        let targets = backends.targets(labels_matter);
        let mut before = (None, false);
        self.memory.update(key, service, |entry| {
            entry.service = Arc::clone(service);
            entry.tried = Arc::clone(service);
            entry.sent = true;
            let given = entry.targets.replace(targets);
            before = (given.filter(|_| !entry.hosts_owed), entry.labels_matter);
            entry.labels_matter = labels_matter;
        });
        let result = self.cloud.ensure(service, backends.nodes()).await;
        self.memory.update(key, service, |entry| {
            entry.hosts_owed = false;
            if result.is_ok() {
                entry.ensured = Some(Arc::clone(service));
            } else {
                // An ensure that failed may not have come as far as the backends.
                (entry.targets, entry.labels_matter) = before;
            }
        });
        result.map_err(|error| error.context("failed to ensure load balancer"))
    }

    /// The object was gone when its finalizer was to be written. If the watch has told so already,
    /// nobody else will look at the key again.
    fn vanished(&self, key: &ObjectKey) -> Next {
        if self.services.get(key).is_some() || self.memory.drop_unsent(key) {
            return Next::Stop;
        }
        Next::Again
    }

    fn settle(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
        status: Option<LoadBalancerStatus>,
        notes: Vec<Note>,
    ) {
        let wait = self.random.jitter(self.verify_period, VERIFY_JITTER);
        self.memory.update(key, service, |entry| {
            entry.phase = Phase::Settled;
            entry.retry = None;
            entry.status = status;
            entry.notes = notes;
            entry.verify_at = Instant::now() + wait;
        });
    }

    /// A verification repeats no warning that stands already.
    fn tell_notes(&self, key: &ObjectKey, service: &Service, notes: &[Note], quiet: bool) {
        let known = self.memory.entry(key).map(|entry| entry.notes);
        let known = known.filter(|_| quiet).unwrap_or_default();
        for note in notes.iter().filter(|note| !known.contains(note)) {
            self.events.note(service, note);
        }
    }

    /// Gives the load balancer the current backends. While an ensure of the Service fails they go
    /// out in the name of the Service that the cloud accepted last.
    async fn update_hosts(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
        entry: &Entry,
        nodes: &[Arc<Node>],
        targets: Arc<TargetSet>,
    ) -> CloudResult<Next> {
        // Before the call: a set that failed is not tried again by the node loop, the ensure that
        // follows takes the Nodes of its time.
        self.memory.update(key, service, |entry| {
            entry.targets = Some(targets);
            entry.hosts_owed = false;
        });
        self.metrics.syncs.inc();
        let start = Instant::now();
        let accepted = entry.ensured.as_ref();
        let accepted = accepted.filter(|_| entry.phase == Phase::Pending);
        let updated = self.cloud.update(accepted.unwrap_or(service), nodes).await;
        self.metrics
            .update_latency
            .observe(start.elapsed().as_secs_f64());
        let error = match updated {
            Ok(Updated::ImplementedElsewhere { notes }) => {
                self.tell_notes(key, service, &notes, true);
                self.memory
                    .update(key, service, |entry| entry.notes = notes);
                return Ok(Next::Again);
            }
            Ok(Updated::Done { notes }) => {
                for note in &notes {
                    self.events.note(service, note);
                }
                if nodes.is_empty() {
                    self.events.no_nodes(service);
                } else {
                    self.events.updated(service);
                }
                return Ok(Next::Again);
            }
            Err(error) => error,
        };
        if entry.waiting(start).is_some() {
            self.hosts_refused(key, service, nodes, &error);
            return Ok(Next::Again);
        }
        // A cloud that asks for patience is not asked anything now.
        let missing = error.is_not_found()
            || (error.retry_after().is_none() && matches!(self.cloud.get(service).await, Ok(None)));
        self.memory.update(key, service, |entry| {
            entry.phase = Phase::Pending;
            entry.hosts_owed = true;
        });
        if missing {
            // Not a failure of the update, but the Service wants one: it is made again now.
            return Ok(Next::Again);
        }
        self.metrics.node_sync_errors.inc();
        self.events.update_failed(service, nodes, &error);
        match error.retry_after() {
            Some(_) => Err(error),
            None => Ok(Next::Again),
        }
    }

    /// A host update failed while an ensure backs off: the back-off stays as it is, or becomes as
    /// long as the cloud asks.
    fn hosts_refused(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
        nodes: &[Arc<Node>],
        error: &CloudError,
    ) {
        let patience = error.retry_after().map(|after| Instant::now() + after);
        self.memory.update(key, service, |entry| {
            entry.hosts_owed = true;
            if let (Some(until), Some(retry)) = (patience, &mut entry.retry) {
                retry.at = retry.at.max(until);
                retry.hosts = false;
            }
        });
        self.metrics.node_sync_errors.inc();
        self.events.update_failed(service, nodes, error);
    }

    /// Deletes what the cloud has of the Service, then lets go of the object. Of a Service of
    /// another class only what is ours is deleted and the status is never written.
    async fn delete(&self, key: &ObjectKey, service: &Arc<Service>) -> CloudResult<Next> {
        let foreign = is_load_balancer(service) && !wants_load_balancer(service);
        let found = self.cloud.get(service).await.map_err(|error| {
            error.context("failed to check if load balancer exists before cleanup")
        })?;
        if found.is_some() {
            // The Service may have changed its mind meanwhile; nothing was deleted yet.
            let latest = self.memory.latest(key, &self.services);
            if latest.is_some_and(|now| now.uid() == service.uid() && !is_leaving(&now)) {
                return Ok(Next::Again);
            }
            self.begin_delete(key, service);
            if !foreign {
                // Before the delete: an address that is given up may be somebody else's at once.
                self.clear_status(key, service).await?;
            }
            self.delete_in_cloud(service).await?;
        }
        // Also what an earlier try deleted.
        let owned = self
            .memory
            .entry(key)
            .is_some_and(|entry| entry.phase == Phase::Deleting);
        if !foreign || owned || self.may_let_go(service).await? {
            let remains = self.remove_finalizer(key, service).await?;
            if !foreign || owned {
                self.events.deleted(service);
            }
            if remains && !foreign {
                self.clear_status(key, service).await?;
            }
        }
        self.memory.drop_entry(key);
        Ok(Next::Stop)
    }

    /// Whether our finalizer may leave a Service of another class of which we own nothing: only
    /// if we set it and it holds up the deletion.
    async fn may_let_go(&self, service: &Service) -> CloudResult<bool> {
        if !service.is_deleting() || !has_cleanup_finalizer(service) {
            return Ok(false);
        }
        let managers = self
            .writes
            .finalizer_managers(service, CLEANUP_FINALIZER)
            .await
            .map_err(|error| {
                api_error(error)
                    .context("failed to read who set the load balancer cleanup finalizer")
            })?;
        Ok(OWN_MANAGERS.iter().any(|own| managers.contains(*own)))
    }

    /// The Service wants a load balancer again after a delete was sent: what was begun is
    /// finished, so that nothing half-deleted and no freed address is taken for the new one.
    async fn finish_delete(&self, key: &ObjectKey, service: &Arc<Service>) -> CloudResult<Next> {
        self.delete_in_cloud(service).await?;
        self.events.deleted(service);
        self.memory.drop_entry(key);
        Ok(Next::Again)
    }

    async fn delete_remembered(&self, key: &ObjectKey, entry: &Entry) -> CloudResult<Next> {
        self.begin_delete(key, &entry.service);
        if let Err(error) = self.cloud.delete(&entry.service).await {
            self.events.delete_failed(&entry.service, &error);
            return Err(error);
        }
        self.events.deleted(&entry.service);
        self.memory.drop_entry(key);
        Ok(Next::Again)
    }

    /// Remembers that a delete goes out. Told once, not with each try.
    fn begin_delete(&self, key: &ObjectKey, service: &Arc<Service>) {
        let mut first = true;
        self.memory.update(key, service, |entry| {
            first = entry.phase != Phase::Deleting;
            entry.phase = Phase::Deleting;
            entry.status = None;
        });
        if first {
            self.events.deleting(service);
        }
    }

    async fn delete_in_cloud(&self, service: &Service) -> CloudResult<()> {
        let deleted = self.cloud.delete(service).await;
        deleted.map_err(|error| error.context("failed to delete load balancer"))
    }

    /// The Service with the finalizer; `None` when it is gone.
    async fn add_finalizer(
        &self,
        key: &ObjectKey,
        service: &Service,
    ) -> CloudResult<Option<Arc<Service>>> {
        let answer = self.writes.add_finalizer(service, CLEANUP_FINALIZER).await;
        let answer = answer.map_err(|error| {
            api_error(error).context("failed to add load balancer cleanup finalizer")
        })?;
        let Some(now) = answer.map(|now| self.keep(key, now)) else {
            return Ok(None);
        };
        if !is_leaving(&now) && !has_cleanup_finalizer(&now) {
            return Err(CloudError::transient(
                "failed to add load balancer cleanup finalizer: the API server did not keep it",
            ));
        }
        Ok(Some(now))
    }

    /// Whether the object remains.
    async fn remove_finalizer(&self, key: &ObjectKey, service: &Service) -> CloudResult<bool> {
        if !has_cleanup_finalizer(service) {
            return Ok(true);
        }
        let answer = self
            .writes
            .remove_finalizer(service, CLEANUP_FINALIZER)
            .await;
        let answer = answer.map_err(|error| {
            api_error(error).context("failed to remove load balancer cleanup finalizer")
        })?;
        Ok(answer.is_some_and(|now| {
            let now = self.keep(key, now);
            let held = now.metadata.finalizers.as_ref();
            !now.is_deleting() || held.is_some_and(|held| !held.is_empty())
        }))
    }

    async fn clear_status(&self, key: &ObjectKey, service: &Service) -> CloudResult<Next> {
        self.publish(key, service, LoadBalancerStatus::default())
            .await
    }

    /// Writes the status if the Service still is the same, still has use for it, and shows another.
    /// Says stop when the object is gone.
    async fn publish(
        &self,
        key: &ObjectKey,
        service: &Service,
        status: LoadBalancerStatus,
    ) -> CloudResult<Next> {
        let Some(latest) = self.memory.latest(key, &self.services) else {
            return Ok(Next::Again);
        };
        let unwanted = !status::is_empty(&status) && is_leaving(&latest);
        if latest.uid() != service.uid()
            || unwanted
            || status::equal(&latest.status.load_balancer, &status)
        {
            return Ok(Next::Again);
        }
        let answer = self.writes.set_load_balancer(&latest, &status).await;
        let answer = answer
            .map_err(|error| api_error(error).context("failed to update load balancer status"))?;
        Ok(answer.map_or(Next::Stop, |now| {
            self.keep(key, now);
            Next::Again
        }))
    }

    fn shows(&self, key: &ObjectKey, status: &LoadBalancerStatus) -> bool {
        let latest = self.memory.latest(key, &self.services);
        latest.is_some_and(|latest| status::equal(&latest.status.load_balancer, status))
    }

    fn keep(&self, key: &ObjectKey, answer: Service) -> Arc<Service> {
        let answer = Arc::new(answer);
        self.memory.wrote(key, Arc::clone(&answer), &self.services);
        answer
    }
}

/// An error of the API server with the text for the user.
fn api_error(error: kube::Error) -> CloudError {
    let text = match &error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    };
    CloudError::transient(text).with_source(error)
}
