//! The monitor rounds. What an answer of the cloud means is decided in the pure files beside this
//! one.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    metrics::Metrics,
    proofs::{self, Proofs, Verdict},
    taints::{self, Shutdown},
};
use crate::{
    cloud::{CloudError, CloudResult, Instances, Power, Presence, Read},
    config::{ControllerName, NodeLifecycleSettings},
    controllers::{Throttle, node::age},
    kube::{Change, EventRecorder, Informer, Node, NodePatch, NodeWriteError, NodeWrites, Store},
    runtime::{Clock, Context, LoopReporter, Random},
};

/// The name in the reports of the loops.
const NAME: &str = ControllerName::NodeLifecycle.as_str();

/// The source of this controller's events.
const EVENT_SOURCE: &str = "cloud-node-lifecycle-controller";

/// Writes of one taint change in one round; the next round tries again (REQ-LIFE-13).
const TAINT_TRIES: u32 = 5;

/// Between two tries of a taint change, plus up to as much again.
const TAINT_PAUSE: Duration = Duration::from_millis(100);

/// Deletes Nodes whose machine is gone, marks those whose machine is shut down.
pub struct NodeLifecycleController {
    nodes: Store<Node>,
    suspects: Suspects,
    instances: Arc<dyn Instances>,
    settings: NodeLifecycleSettings,
    writes: NodeWrites,
    recorder: EventRecorder,
    clock: Clock,
    random: Random,
    metrics: Metrics,
    throttle: Throttle,
    rounds: LoopReporter,
}

/// What is remembered from round to round.
struct Memory {
    proofs: Proofs,
    /// UID and name of what was deleted and is still in the cache.
    deleted: BTreeMap<String, String>,
}

/// What is done with one Node at the end of a round.
#[derive(Debug)]
enum Action {
    Delete(Arc<Node>),
    Taint(Arc<Node>, Shutdown),
}

/// What the answers of one round ask for.
#[derive(Default)]
struct Findings {
    actions: Vec<Action>,
    absent: usize,
}

impl NodeLifecycleController {
    /// Reads the informer's store and listens to it; it must not run yet.
    ///
    /// # Errors
    /// A series of this controller is registered already, or no concurrency is allowed.
    pub fn new(
        context: &Context,
        informer: &Informer<Node>,
        instances: Arc<dyn Instances>,
        settings: NodeLifecycleSettings,
    ) -> Result<Self, prometheus::Error> {
        if settings.syncs == 0 {
            return Err(prometheus::Error::Msg(
                "--concurrent-node-lifecycle-syncs must be at least 1".to_owned(),
            ));
        }
        let suspects = Suspects::default();
        let listener = suspects.clone();
        informer.listen(move |change| listener.hear(change));
        let period = settings.monitor_period;
        Ok(Self {
            nodes: informer.store(),
            suspects,
            instances,
            settings,
            writes: NodeWrites::new(context.client.clone()),
            recorder: context.recorder(EVENT_SOURCE),
            clock: context.clock.clone(),
            random: context.random.clone(),
            metrics: Metrics::new(&context.registry)?,
            throttle: Throttle::default(),
            rounds: context.loops.add(NAME, "rounds", Some(period)),
        })
    }

    /// Works until `shutdown`. The first round is immediate once the Nodes are listed; the period
    /// counts from the end of a round, so rounds never overlap (REQ-LIFE-12). Nothing is written
    /// after it has returned.
    pub async fn run(self, shutdown: CancellationToken) {
        let rounds = async {
            self.nodes.wait_until_synced().await;
            let mut memory = Memory {
                proofs: Proofs::new(self.settings.deletion_confirmations),
                deleted: BTreeMap::new(),
            };
            loop {
                let start = Instant::now();
                self.rounds.start();
                self.round(&mut memory).await;
                self.rounds.end(None);
                self.metrics
                    .round_duration
                    .observe(start.elapsed().as_secs_f64());
                tokio::time::sleep(self.settings.monitor_period).await;
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = rounds => {}
        }
    }

    async fn round(&self, memory: &mut Memory) {
        memory
            .deleted
            .retain(|uid, name| self.nodes.named(name).is_some_and(|node| node.uid() == uid));
        let (ready, doubtful): (Vec<_>, Vec<_>) = self
            .suspects
            .names()
            .iter()
            .filter_map(|name| self.nodes.named(name))
            .filter(|node| {
                // On their way out already: there is nothing more to do for them.
                node.metadata.deletion_timestamp.is_none()
                    && !memory.deleted.contains_key(node.uid())
            })
            .partition(|node| is_ready(node));
        // A Ready Node is no question to the cloud (REQ-LIFE-01).
        let unmark = ready
            .into_iter()
            .map(|node| Action::Taint(node, Shutdown::Unmarked))
            .collect();
        self.act(unmark, memory).await;
        // A cloud that asked for a pause gets it; what is not asked about proves nothing, so its
        // proofs begin at zero afterwards.
        let doubtful = match self.throttle.remaining() {
            Some(left) if !doubtful.is_empty() => {
                tracing::info!(
                    ?left,
                    "the cloud asked for a pause, no machine is looked up"
                );
                Vec::new()
            }
            _ => doubtful,
        };
        let answers = self.ask(doubtful, &memory.proofs).await;
        let Findings {
            mut actions,
            absent,
        } = self.judge(answers, &mut memory.proofs);
        let max_share = self.settings.max_deletion_share;
        let nodes = self.nodes.len();
        if proofs::is_mass_absence(absent, nodes, max_share) {
            tracing::error!(
                absent,
                nodes,
                "too many machines are absent at once, no Node is deleted in this round; \
                 raise --node-deletion-max-share if they are really gone"
            );
            actions.retain(|action| !matches!(action, Action::Delete(_)));
        }
        self.act(actions, memory).await;
        memory.proofs.end_round();
    }

    /// Asks the cloud in slices; only Nodes with a first proof are asked about one by one.
    async fn ask(
        &self,
        doubtful: Vec<Arc<Node>>,
        proofs: &Proofs,
    ) -> Vec<(Arc<Node>, Read, CloudResult<Presence>)> {
        let (shared, direct): (Vec<_>, Vec<_>) = doubtful
            .into_iter()
            .partition(|node| proofs.read(node) == Read::Shared);
        let questions: Vec<(Vec<Arc<Node>>, Read)> = shared
            .chunks(self.instances.batch_size().max(1))
            .map(|slice| (slice.to_vec(), Read::Shared))
            .chain(direct.into_iter().map(|node| (vec![node], Read::Direct)))
            .collect();
        // Ordered, so that a run is repeatable.
        stream::iter(questions)
            .map(|(nodes, read)| async move {
                // What is not asked about proves nothing.
                if self.throttle.remaining().is_some() {
                    return Vec::new();
                }
                let answers = self.instances.presence(&nodes, read).await;
                let missing = iter::repeat_with(|| {
                    Err(CloudError::transient(
                        "the provider gave no answer for this Node",
                    ))
                });
                for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
                    self.throttle.heed(error);
                }
                let answers = answers.into_iter().chain(missing);
                nodes
                    .into_iter()
                    .zip(answers)
                    .map(|(node, answer)| (node, read, answer))
                    .collect::<Vec<_>>()
            })
            .buffered(self.settings.syncs)
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    fn judge(
        &self,
        answers: Vec<(Arc<Node>, Read, CloudResult<Presence>)>,
        proofs: &mut Proofs,
    ) -> Findings {
        let mut findings = Findings::default();
        let mut failed: Vec<(Arc<Node>, CloudError)> = Vec::new();
        for (node, read, answer) in answers {
            self.metrics.count(&answer);
            match answer {
                // Never decides on doubt, whatever the class (REQ-LIFE-04).
                Err(error) => {
                    failed.push((node, error));
                }
                Ok(Presence::Present(Power::Stopped)) => {
                    findings.actions.push(Action::Taint(node, Shutdown::Marked));
                }
                Ok(Presence::Present(Power::Running)) => {
                    findings
                        .actions
                        .push(Action::Taint(node, Shutdown::Unmarked));
                }
                Ok(Presence::Present(Power::Unknown)) => {}
                Ok(Presence::Absent) => {
                    let verdict = proofs.absent(&node, read, age(&node, &self.clock));
                    tracing::info!(
                        node = node.name(),
                        ?read,
                        ?verdict,
                        "the cloud has no machine for this Node"
                    );
                    if verdict != Verdict::TooYoung {
                        findings.absent += 1;
                    }
                    if verdict == Verdict::Proved {
                        findings.actions.push(Action::Delete(node));
                    }
                }
            }
        }
        // One line a round: the same failure usually hits many Nodes at once.
        if let Some((node, error)) = failed.first() {
            self.rounds.fail(error);
            tracing::warn!(
                failed = failed.len(),
                first = node.name(),
                %error,
                "presence of machines not known, their Nodes are left alone"
            );
        }
        findings
    }

    async fn act(&self, actions: Vec<Action>, memory: &mut Memory) {
        let deleted: Vec<Option<(String, String)>> = stream::iter(actions)
            .map(|action| async move {
                match action {
                    Action::Delete(node) => self.delete(&node).await,
                    Action::Taint(node, to) => {
                        if let Err(error) = self.set_shutdown(&node, to).await {
                            tracing::warn!(node = node.name(), %error, "shutdown taint not changed, will be retried");
                        }
                        None
                    }
                }
            })
            .buffered(self.settings.syncs)
            .collect()
            .await;
        memory.deleted.extend(deleted.into_iter().flatten());
    }

    /// Says so, then deletes. Answers with UID and name when the Node is gone.
    async fn delete(&self, node: &Arc<Node>) -> Option<(String, String)> {
        // The answers took a while: the Node may have come back meanwhile.
        let now = self.nodes.named(node.name())?;
        if now.uid() != node.uid() || now.provider_id() != node.provider_id() || is_ready(&now) {
            return None;
        }
        let name = node.name();
        self.recorder.normal(
            &**node,
            "DeletingNode",
            format!("Deleting node {name} because it does not exist in the cloud provider"),
        );
        match self.writes.delete(node).await {
            Ok(()) => {
                tracing::info!(node = name, "deleted Node, its machine does not exist");
                Some((node.uid().to_owned(), name.to_owned()))
            }
            Err(error) => {
                self.rounds.fail(&error);
                tracing::warn!(node = name, %error, "Node not deleted, will be retried");
                self.recorder.warning(
                    &**node,
                    "DeletingNodeFailed",
                    format!("Failed deleting node {name}: {error}"),
                );
                None
            }
        }
    }

    /// Changes the shutdown taint if it has to be changed; no request otherwise.
    async fn set_shutdown(&self, node: &Node, to: Shutdown) -> Result<(), NodeWriteError> {
        let mut fresh: Option<Node> = None;
        for attempt in 1..=TAINT_TRIES {
            let current = fresh.as_ref().unwrap_or(node);
            let Some(taints) = taints::change(&current.spec.taints, to) else {
                return Ok(());
            };
            let patch = NodePatch::taints(current, taints);
            match self.writes.patch(node.name(), &patch).await {
                Ok(_) => {
                    tracing::info!(node = node.name(), ?to, "changed shutdown taint");
                    return Ok(());
                }
                Err(error) if error.is_gone() => return Ok(()),
                Err(error) if error.is_conflict() && attempt < TAINT_TRIES => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(self.random.jitter(TAINT_PAUSE, 1.0)).await;
            fresh = self.writes.read(node.name()).await?;
            match &fresh {
                Some(now) if now.uid() == node.uid() => {
                    // It came back while we tried: no mark for a Ready Node.
                    if to == Shutdown::Marked && is_ready(now) {
                        return Ok(());
                    }
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// The names of the Nodes that a round has to look at: those that are not Ready or carry the shutdown
/// taint. Kept up to date with each change, so that a round costs nothing for all the others.
#[derive(Clone, Default)]
struct Suspects(Arc<Mutex<BTreeSet<String>>>);

impl Suspects {
    fn hear(&self, change: &Change<Node>) {
        let (node, suspect) = match change {
            Change::Applied { new, .. } => (new, is_suspect(new)),
            Change::Deleted(last) => (last, false),
        };
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !suspect {
            names.remove(node.name());
        } else if !names.contains(node.name()) {
            names.insert(node.name().to_owned());
        }
    }

    /// In order.
    fn names(&self) -> Vec<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().cloned().collect()
    }
}

pub(super) fn is_suspect(node: &Node) -> bool {
    !is_ready(node) || taints::change(&node.spec.taints, Shutdown::Unmarked).is_some()
}

/// A missing condition is as good as `Unknown` (REQ-LIFE-03).
pub(super) fn is_ready(node: &Node) -> bool {
    node.condition("Ready") == Some("True")
}
