//! The controller: queue, batches, retries, the periodic pass. What is done with one Node is
//! decided in the pure files beside this one.

use std::{collections::BTreeMap, iter, sync::Arc, time::Duration};

use futures::{StreamExt, future::join_all, stream};
use k8s_openapi::api::core::v1::NodeAddress;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    addresses::{self, NodeIpError},
    initialise::{self, Refusal},
    labels::{self, Ignored},
    lost_answers::LostAnswers,
    metrics::Metrics,
};
use crate::{
    cloud::{Class, CloudError, CloudResult, InstanceMetadata, Instances},
    config::{ControllerName, NodeSettings},
    controllers::{Throttle, wait_named},
    kube::{Change, EventRecorder, Informer, Node, NodePatch, NodeWriteError, NodeWrites, Store},
    runtime::{Backoff, Clock, Context, LoopReporter, Outcome, Random, TakeOver, Work, WorkQueue},
};

/// The name in the reports of the loops.
const NAME: &str = ControllerName::Node.as_str();

/// The source of this controller's events.
const EVENT_SOURCE: &str = "cloud-node-controller";

/// Writes of one initialisation before it is left to the queue's back-off (REQ-NODE-14).
const INIT_TRIES: u32 = 20;

/// Address writes after one initialisation before they are left to the periodic pass: pods may be
/// on the Node already, so one lost request should not cost a whole period.
const ADDRESS_TRIES: u32 = 3;

/// Between two tries of one write, plus up to as much again.
const TRY_PAUSE: Duration = Duration::from_millis(50);

/// A machine that the cloud does not show yet is asked for at least this often…
const NEWCOMER_RETRY: Duration = Duration::from_secs(10);

/// …while its Node is younger than this, instead of waiting for ever longer (CASE-LIFE-06).
const NEWCOMER_AGE: Duration = Duration::from_secs(10 * 60);

/// Failures after which the queue's own wait (5 ms doubling) exceeds [`NEWCOMER_RETRY`].
const NEWCOMER_FAILURES: u32 = 11;

/// Per Node as the framework's (REQ-NODE-23), without its bucket over all Nodes: Nodes that fail
/// together are retried by one cloud call, and the bucket would pull them apart into one call each.
/// One call a worker is made at a time, which bounds their rate.
const BACKOFF: Backoff = Backoff {
    bucket: None,
    ..Backoff::CONTROLLER_DEFAULT
};

type Key = String;

/// Initialises Nodes and keeps addresses, and on request labels, as the cloud has them.
pub struct NodeController {
    nodes: Store<Node>,
    instances: Arc<dyn Instances>,
    settings: NodeSettings,
    /// Nodes to initialise.
    queue: WorkQueue<Key>,
    /// Nodes whose label pairs differ: no cloud call keeps them waiting.
    drifted: WorkQueue<Key>,
    /// Nodes that may be written to at the same time, over all workers (REQ-NODE-24).
    permits: Semaphore,
    lost_answers: LostAnswers,
    throttle: Throttle,
    writes: NodeWrites,
    recorder: EventRecorder,
    clock: Clock,
    random: Random,
    metrics: Metrics,
    initialising: LoopReporter,
    refreshing: LoopReporter,
    took_over: TakeOver,
}

/// Why one Node is not initialised.
#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("failed to get instance metadata: {0}")]
    Metadata(#[source] CloudError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("failed to update the Node: {0}")]
    Write(#[from] NodeWriteError),
}

impl InitError {
    /// Whether a person has to change something: only that becomes an event.
    fn is_bad_input(&self) -> bool {
        match self {
            Self::Metadata(error) => error.class() == Class::Invalid,
            Self::Refused(refusal) => matches!(refusal, Refusal::NodeIp(_)),
            Self::Write(_) => false,
        }
    }

    /// Whether the cloud may simply not show the machine yet.
    fn is_not_yet(&self) -> bool {
        match self {
            Self::Metadata(error) => error.is_not_found(),
            Self::Refused(refusal) => matches!(refusal, Refusal::NoAddressYet),
            Self::Write(_) => false,
        }
    }
}

/// Why one Node's addresses are not written.
#[derive(Debug, thiserror::Error)]
enum AddressError {
    #[error(transparent)]
    NodeIp(#[from] NodeIpError),
    #[error("failed to update status.addresses: {0}")]
    Write(#[from] NodeWriteError),
}

impl NodeController {
    /// Listens to the informer, which must not run yet.
    ///
    /// # Errors
    /// A series of this controller is registered already.
    pub fn new(
        context: &Context,
        informer: &Informer<Node>,
        instances: Arc<dyn Instances>,
        settings: NodeSettings,
    ) -> Result<Self, prometheus::Error> {
        let queue = WorkQueue::new("Nodes", BACKOFF, &context.queues);
        let drifted = WorkQueue::new("NodeLabels", BACKOFF, &context.queues);
        let lost_answers = LostAnswers::default();
        let listener = Listener {
            queue: queue.clone(),
            drifted: drifted.clone(),
            lost_answers: lost_answers.clone(),
        };
        informer.listen(move |change| listener.hear(change));
        let period = settings.status_update_period;
        Ok(Self {
            nodes: informer.store(),
            instances,
            permits: Semaphore::new(settings.syncs.clamp(1, Semaphore::MAX_PERMITS)),
            settings,
            queue,
            drifted,
            lost_answers,
            throttle: Throttle::default(),
            writes: NodeWrites::new(context.client.clone()),
            recorder: context.recorder(EVENT_SOURCE),
            clock: context.clock.clone(),
            random: context.random.clone(),
            metrics: Metrics::new(&context.registry)?,
            initialising: context.loops.add(NAME, "initialise", None),
            refreshing: context.loops.add(NAME, "addresses", Some(period)),
            took_over: context.took_over.clone(),
        })
    }

    /// Works until `shutdown`. Begins when the Nodes are listed; the first address pass is
    /// immediate, except after another replica. Nothing is written after it has returned.
    pub async fn run(self, shutdown: CancellationToken) {
        let work = async {
            self.nodes.wait_until_synced().await;
            let workers = (0..self.settings.syncs.max(1)).map(|_| self.initialise_as_they_come());
            tokio::join!(
                self.refresh_periodically(),
                join_all(workers),
                self.repair_as_they_drift()
            );
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = work => {}
        }
        self.queue.close();
        self.drifted.close();
    }

    // --- initialisation ---

    async fn initialise_as_they_come(&self) {
        while let Some(first) = self.queue.next().await {
            // Whoever waits already shares the cloud call; nobody is waited for.
            let more = iter::from_fn(|| self.queue.try_next());
            let batch = iter::once(first).chain(more).take(self.slice()).collect();
            self.initialising.start();
            self.work_on(batch).await;
            self.initialising.end(None);
        }
    }

    async fn work_on(&self, batch: Vec<Work<Key>>) {
        let mut waiting = Vec::new();
        for work in batch {
            match self.nodes.named(&work) {
                Some(node) if initialise::is_uninitialised(&node) => waiting.push((work, node)),
                // Initialised already, it seems by us: what follows the write is still to be done.
                Some(node) if self.lost_answers.contains(&node) => waiting.push((work, node)),
                _ => work.finish(Outcome::Done),
            }
        }
        if waiting.is_empty() {
            return;
        }
        // A Node that is new now is not asked for either: the wait is for all calls (CASE-THR-03).
        if let Some(left) = self.throttle.remaining() {
            for (work, _) in waiting {
                work.finish(Outcome::RetryAfter(left));
            }
            return;
        }
        let nodes: Vec<Arc<Node>> = waiting.iter().map(|(_, node)| Arc::clone(node)).collect();
        let answers = self.metadata(&nodes).await;
        stream::iter(waiting.into_iter().zip(answers))
            .for_each_concurrent(
                self.settings.syncs.max(1),
                |((work, node), answer)| async move {
                    // Never closed: an error cannot happen, and would only lift the bound.
                    let _permit = self.permits.acquire().await.ok();
                    let outcome = match self.initialise(&node, answer).await {
                        Ok(()) => Outcome::Done,
                        Err(error) => self.failed(&work, &node, &error),
                    };
                    work.finish(outcome);
                },
            )
            .await;
    }

    async fn initialise(
        &self,
        node: &Arc<Node>,
        answer: CloudResult<Option<InstanceMetadata>>,
    ) -> Result<(), InitError> {
        let Some(metadata) = answer.map_err(InitError::Metadata)? else {
            tracing::info!(
                node = node.name(),
                "the cloud leaves this Node alone, not initialised"
            );
            self.lost_answers.forget(node);
            return Ok(());
        };
        let untainted = self.untaint(node, &metadata).await?;
        self.lost_answers.forget(node);
        let Some(updated) = untainted else {
            return Ok(());
        };
        let delay = self.age(&updated);
        self.metrics
            .taint_removal_delay
            .observe(delay.as_secs_f64());
        // Never fails the initialisation: the periodic pass repairs it (REQ-NODE-18).
        if let Err(error) = self.first_addresses(&updated, &metadata.addresses).await {
            tracing::warn!(node = updated.name(), %error, "addresses not written, left to the next pass");
        }
        self.recorder
            .normal(&updated, "Synced", "Node synced successfully");
        self.metrics
            .initial_sync_delay
            .observe(self.age(&updated).as_secs_f64());
        tracing::info!(node = updated.name(), "initialised Node");
        Ok(())
    }

    /// The one write of the initialisation, again on a fresh read after each conflict. `None` when
    /// there is nothing to do any more: the Node is gone, or someone else removed the taint. A
    /// write that was applied but not answered is as good as an answered one (CASE-NODE-02).
    async fn untaint(
        &self,
        node: &Arc<Node>,
        metadata: &InstanceMetadata,
    ) -> Result<Option<Node>, InitError> {
        let has_ids = self.instances.has_provider_ids();
        let mut current = Arc::clone(node);
        for attempt in 1..=INIT_TRIES {
            let Some(plan) = initialise::plan(&current, metadata, has_ids)? else {
                let ours = self.lost_answers.explain(&current);
                return Ok(ours.then(|| Node::clone(&current)));
            };
            match self.writes.patch(current.name(), &plan.patch).await {
                Ok(updated) => {
                    report_ignored(&updated, &plan.ignored);
                    return Ok(Some(updated));
                }
                Err(error) if error.is_gone() => return Ok(None),
                Err(error) if error.is_conflict() && attempt < INIT_TRIES => {
                    tracing::debug!(
                        node = current.name(),
                        attempt,
                        "Node changed meanwhile, reading it again"
                    );
                }
                Err(error) if error.is_outcome_unknown() => {
                    let id = plan.patch.provider_id.as_deref();
                    self.lost_answers
                        .remember(&current, id.or_else(|| current.provider_id()));
                    return match self.reread(node).await {
                        Ok(Some(fresh)) if self.was_untainted(&fresh) => Ok(Some(fresh)),
                        // Not applied, or not yet: the queue tries again.
                        _ => Err(error.into()),
                    };
                }
                Err(error) => return Err(error.into()),
            }
            current = match self.reread(node).await? {
                Some(fresh) => Arc::new(fresh),
                None => return Ok(None),
            };
        }
        Ok(None)
    }

    /// The Node as it is after a pause. `None` when it is gone or another one has the name; that
    /// one's own event brings it here.
    async fn reread(&self, node: &Node) -> Result<Option<Node>, NodeWriteError> {
        tokio::time::sleep(self.random.jitter(TRY_PAUSE, 1.0)).await;
        let fresh = self.writes.read(node.name()).await?;
        Ok(fresh.filter(|fresh| fresh.uid() == node.uid()))
    }

    /// Whether the Node has what a write of ours without an answer would have given it.
    fn was_untainted(&self, fresh: &Node) -> bool {
        !initialise::is_uninitialised(fresh) && self.lost_answers.explain(fresh)
    }

    async fn first_addresses(
        &self,
        node: &Node,
        cloud: &[NodeAddress],
    ) -> Result<(), AddressError> {
        for _ in 1..ADDRESS_TRIES {
            match self.update_addresses(node, cloud).await {
                Err(AddressError::Write(error)) if !error.is_gone() && !error.is_other_node() => {
                    tracing::debug!(node = node.name(), %error, "addresses not written, trying again");
                }
                other => return other,
            }
            tokio::time::sleep(self.random.jitter(TRY_PAUSE, 1.0)).await;
        }
        self.update_addresses(node, cloud).await
    }

    /// Reports a failed initialisation and says when to try again.
    fn failed(&self, key: &Key, node: &Node, error: &InitError) -> Outcome {
        tracing::warn!(node = node.name(), %error, "Node not initialised, will be retried");
        if error.is_bad_input() {
            self.recorder
                .warning(node, "FailedToInitialise", error.to_string());
        }
        if let InitError::Metadata(error) = error {
            self.throttle.heed(error);
            if let Some(after) = wait_named(error) {
                return Outcome::RetryAfter(after);
            }
        }
        let newcomer = error.is_not_yet() && self.age(node) < NEWCOMER_AGE;
        if newcomer && self.queue.failures(key) >= NEWCOMER_FAILURES {
            Outcome::RetryAfter(NEWCOMER_RETRY)
        } else {
            Outcome::Retry
        }
    }

    // --- label pairs ---

    async fn repair_as_they_drift(&self) {
        while let Some(first) = self.drifted.next().await {
            let more = iter::from_fn(|| self.drifted.try_next());
            let batch: Vec<_> = iter::once(first).chain(more).take(self.slice()).collect();
            stream::iter(batch)
                .for_each_concurrent(self.settings.syncs.max(1), |work| async move {
                    let _permit = self.permits.acquire().await.ok();
                    let outcome = match self.nodes.named(&work) {
                        Some(node) if !initialise::is_uninitialised(&node) => {
                            self.repair_label_pairs(&node).await
                        }
                        _ => Outcome::Done,
                    };
                    work.finish(outcome);
                })
                .await;
        }
    }

    async fn repair_label_pairs(&self, node: &Node) -> Outcome {
        let drifted = labels::drifted_pairs(node);
        match self.set_labels(node, drifted).await {
            Ok(()) => Outcome::Done,
            Err(error) if error.is_gone() || error.is_other_node() => Outcome::Done,
            Err(error) => {
                tracing::warn!(node = node.name(), %error, "labels not repaired, will be retried");
                Outcome::Retry
            }
        }
    }

    // --- the periodic pass ---

    async fn refresh_periodically(&self) {
        if self.took_over.is_set() {
            // Whoever led until now has refreshed them.
            tokio::time::sleep(self.settings.status_update_period).await;
        }
        loop {
            self.refreshing.start();
            self.refresh_all().await;
            self.refreshing.end(None);
            tokio::time::sleep(self.settings.status_update_period).await;
        }
    }

    async fn refresh_all(&self) {
        let nodes: Vec<Arc<Node>> = self
            .nodes
            .list()
            .into_iter()
            .filter(|node| !initialise::is_uninitialised(node))
            .collect();
        stream::iter(nodes.chunks(self.slice()))
            .for_each_concurrent(self.settings.status_updates.max(1), |slice| async move {
                // Late is better than a period without.
                self.throttle.wait().await;
                let answers = self.metadata(slice).await;
                for (node, answer) in slice.iter().zip(answers) {
                    match answer {
                        Ok(Some(metadata)) => self.refresh(node, &metadata).await,
                        Ok(None) => {}
                        Err(error) => {
                            self.throttle.heed(&error);
                            self.refreshing.fail(&error);
                            let name = node.name();
                            tracing::warn!(node = name, %error, "instance metadata not read, Node skipped");
                        }
                    }
                }
            })
            .await;
    }

    async fn refresh(&self, listed: &Node, metadata: &InstanceMetadata) {
        // As it is now: the slice's answer took a while.
        let Some(node) = self.nodes.named(listed.name()) else {
            return;
        };
        if node.uid() != listed.uid() || initialise::is_uninitialised(&node) {
            return;
        }
        if let Err(error) = self.update_addresses(&node, &metadata.addresses).await {
            self.refreshing.fail(&error);
            tracing::warn!(node = node.name(), %error, "addresses not refreshed");
        }
        if !self.settings.label_refresh {
            return;
        }
        let changes = labels::refreshed(&node, metadata);
        if let Err(error) = self.set_labels(&node, changes).await {
            tracing::warn!(node = node.name(), %error, "labels not refreshed");
        }
    }

    // --- shared ---

    /// One answer a Node, whatever the provider does.
    async fn metadata(
        &self,
        nodes: &[Arc<Node>],
    ) -> impl Iterator<Item = CloudResult<Option<InstanceMetadata>>> + use<> {
        let answers = self.instances.metadata(nodes).await;
        answers.into_iter().chain(iter::repeat_with(|| {
            Err(CloudError::transient(
                "the provider gave no answer for this Node",
            ))
        }))
    }

    async fn update_addresses(
        &self,
        node: &Node,
        cloud: &[NodeAddress],
    ) -> Result<(), AddressError> {
        match addresses::wanted(node, cloud)? {
            Some(wanted) if node.status.addresses != *wanted.as_slice() => {
                self.writes.set_addresses(node, &wanted).await?;
                tracing::info!(node = node.name(), "updated addresses");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn set_labels(
        &self,
        node: &Node,
        set: BTreeMap<String, String>,
    ) -> Result<(), NodeWriteError> {
        if set.is_empty() {
            return Ok(());
        }
        self.writes
            .patch(node.name(), &NodePatch::labels(node, set))
            .await?;
        tracing::info!(node = node.name(), "updated labels");
        Ok(())
    }

    /// Nodes a cloud call.
    fn slice(&self) -> usize {
        self.instances.batch_size().max(1)
    }

    fn age(&self, node: &Node) -> Duration {
        age(node, &self.clock)
    }
}

/// How long the Node has existed; nothing for one from the future.
pub(crate) fn age(node: &Node, clock: &Clock) -> Duration {
    node.metadata
        .creation_timestamp
        .as_ref()
        .map_or(Duration::ZERO, |created| {
            Duration::try_from(clock.now().duration_since(created.0)).unwrap_or_default()
        })
}

/// Puts Nodes into the queues if there may be something to do for them.
struct Listener {
    queue: WorkQueue<Key>,
    drifted: WorkQueue<Key>,
    lost_answers: LostAnswers,
}

impl Listener {
    fn hear(&self, change: &Change<Node>) {
        let (old, new) = match change {
            Change::Applied { old, new } => (old.as_deref(), new),
            Change::Deleted(node) => {
                let key = node.name().to_owned();
                self.queue.remove(&key);
                self.drifted.remove(&key);
                self.lost_answers.forget(node);
                return;
            }
        };
        // A heartbeat does not cut a back-off short: only a change that can alter the outcome does.
        let add = |queue: &WorkQueue<Key>, changed: bool| {
            let key = new.name().to_owned();
            if changed || queue.failures(&key) == 0 {
                queue.add(key);
            }
        };
        let other_labels = old
            .is_none_or(|old| old.uid() != new.uid() || old.metadata.labels != new.metadata.labels);
        let uninitialised = initialise::is_uninitialised(new);
        if !uninitialised && !labels::drifted_pairs(new).is_empty() {
            add(&self.drifted, other_labels);
        }
        if uninitialised || self.lost_answers.contains(new) {
            let changed = other_labels
                || old.is_none_or(|old| {
                    old.spec != new.spec
                        || old.status.addresses != new.status.addresses
                        || old.metadata.annotations != new.metadata.annotations
                });
            add(&self.queue, changed);
        }
    }
}

fn report_ignored(node: &Node, ignored: &[Ignored]) {
    for label in ignored {
        match label {
            Ignored::Reserved(key) => {
                tracing::warn!(
                    node = node.name(),
                    key,
                    "additional label dropped, its key belongs to Kubernetes"
                );
            }
            Ignored::Taken(key) => {
                tracing::warn!(
                    node = node.name(),
                    key,
                    "additional label dropped, the Node has another value"
                );
            }
        }
    }
}
