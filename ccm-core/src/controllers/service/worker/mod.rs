//! The work on one key: look, decide, act, until nothing is left to do.
//!
//! The queue hands a key to one worker at a time, so ensure, host update and delete of one Service
//! never overlap (REQ-SVC-29, REQ-SVC-30). What is decided is in [`super::sync`]; here is the I/O.

mod delete;
mod ensure;
mod hosts;
mod object;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    backends::{Backends, Roster},
    events::Events,
    memory::{Entry, Memory, Phase, Retry},
    metrics::Metrics,
    sync::{Operation, decide, is_leaving},
};
use crate::{
    cloud::{CloudError, CloudResult, LoadBalancers},
    kube::{Node, ObjectKey, Service, ServiceWrites, Store},
    runtime::{LoopReporter, Outcome, Random, WorkQueue},
};

pub(crate) use delete::OWN_MANAGERS;

/// Steps for one key before it is backed off; three are usual: ensure, hosts, nothing.
const MAX_STEPS: usize = 8;

/// The spread of verifications, as a fraction of the period: load balancers that were all ensured
/// at start-up must not all be verified at once.
const VERIFY_JITTER: f64 = 0.5;

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
}

/// What the work needs.
pub(super) struct Worker {
    pub services: Store<Service>,
    pub nodes: Store<Node>,
    pub roster: Roster,
    pub cloud: Arc<dyn LoadBalancers>,
    pub writes: ServiceWrites,
    pub events: Events,
    pub memory: Memory,
    pub metrics: Metrics,
    pub queue: WorkQueue<ObjectKey>,
    pub random: Random,
    pub verify_period: Duration,
    pub syncing: LoopReporter,
}

impl Worker {
    /// Works on a key and says when it wants to be seen again.
    pub(super) async fn sync(&self, key: &ObjectKey) -> Outcome {
        self.memory.engage(key);
        let outcome = match self.converge(key).await {
            Ok(()) => self.rest(key),
            Err(error) => {
                self.syncing.fail(&format_args!("{key}: {error}"));
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
            && let Err(error) = self.update_hosts(key, service, entry, &view.backends).await
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
            operation: decide(latest.as_deref(), entry.as_ref(), targets, Instant::now()),
            latest,
            entry,
            backends,
        }
    }

    async fn converge(&self, key: &ObjectKey) -> CloudResult<()> {
        let mut hosts_given = false;
        for _ in 0..MAX_STEPS {
            let view = self.look(key);
            // Nodes that changed during a host update have queued the key again, or the next node
            // pass does: while Nodes join without end, a run would else have no end either.
            if hosts_given && view.operation == Operation::UpdateHosts {
                return Ok(());
            }
            hosts_given = view.operation == Operation::UpdateHosts;
            if self.step(key, view).await? == Next::Stop {
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

    async fn step(&self, key: &ObjectKey, view: View) -> CloudResult<Next> {
        let View {
            operation,
            latest,
            entry,
            backends,
        } = view;
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
                return self.update_hosts(key, &service, entry, &backends).await;
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
}
