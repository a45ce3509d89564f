//! Ranges that the cloud gave to the machine are copied to its Node (specification: controllers
//! §6.4). Nothing is allocated and nothing is released here.

use std::{
    collections::BTreeSet,
    fmt, iter,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::NodeCondition as ApiCondition, apimachinery::pkg::apis::meta::v1::Time,
};
use prometheus::Counter;
use tokio_util::sync::CancellationToken;

use super::{batch::run_batches, controller::WORKERS, metrics};
use crate::{
    cloud::{CloudError, CloudPodCidrs, CloudResult, MachinePodCidrs},
    controllers::{Throttle, wait_named},
    kube::{Change, EventRecorder, NETWORK_UNAVAILABLE, Node, NodeWriteError, NodeWrites, Store},
    runtime::{Backoff, Clock, Context, LoopReporter, Outcome, WorkQueue},
};

/// The source of these events.
const EVENT_SOURCE: &str = "cidrAllocator";

/// As upstream.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(250),
    max: Duration::from_secs(15),
    bucket: Some((10.0, 100.0)),
};

/// Failures in a row after which a Node is given up until it changes, as upstream.
const MAX_REQUEUES: u32 = 20;

/// At most one range a family.
const MAX_RANGES: usize = 2;

/// Nodes of one batch that are written to at the same time.
const WRITES_AT_ONCE: usize = 10;

/// The reason of the condition that this controller and the route controller write.
const ROUTE_CREATED: &str = "RouteCreated";

/// Set by the kube-controller-manager from the condition.
const NETWORK_TAINT: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

struct Shared {
    queue: WorkQueue<String>,
    /// Nodes that were given up: any change of theirs begins anew.
    dropped: Mutex<BTreeSet<String>>,
}

/// The copying allocator.
pub(super) struct Copies {
    shared: Arc<Shared>,
    nodes: Store<Node>,
    throttle: Throttle,
    source: Arc<dyn MachinePodCidrs>,
    writes: NodeWrites,
    recorder: EventRecorder,
    clock: Clock,
    dropped: Counter,
    reporter: LoopReporter,
}

/// Why a Node has no ranges yet.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("it has no spec.providerID yet")]
    NoMachine,
    #[error("{0}")]
    Cloud(#[source] CloudError),
    #[error(
        "it has the pod ranges {have} and its machine has {want}: ranges of a Node cannot be \
         changed; delete the Node so that it registers anew"
    )]
    Other { have: String, want: String },
    #[error("its ranges cannot be written: {0}")]
    Write(#[source] NodeWriteError),
    #[error("its condition NetworkUnavailable cannot be written: {0}")]
    Condition(#[source] NodeWriteError),
}

impl CopyError {
    /// The event's reason, as upstream.
    const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Cloud(_) => Some("CIDRNotAvailable"),
            Self::Other { .. } | Self::Write(_) => Some("CIDRAssignmentFailed"),
            Self::NoMachine | Self::Condition(_) => None,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, change: &Change<Node>) {
        match change {
            Change::Deleted(node) => {
                self.lock().remove(node.name());
                self.queue.forget(&node.name().to_owned());
            }
            Change::Applied { old, new } => {
                let was_dropped = self.lock().remove(new.name());
                let old = old.as_deref().filter(|old| old.uid() == new.uid());
                let is_new = old.is_none_or(|old| has_news(old, new));
                // A Node that did not change since waits in the queue, if for anything.
                if is_new && (old.is_none() || needs_work(new)) || was_dropped {
                    self.queue.add(new.name().to_owned());
                }
            }
        }
    }
}

/// Whether upstream would look at the Node when it changes.
fn needs_work(node: &Node) -> bool {
    node.spec.pod_cidrs.is_empty()
        || node.condition(NETWORK_UNAVAILABLE) != Some("False")
        || has_network_taint(node)
}

fn has_network_taint(node: &Node) -> bool {
    let mut taints = node.spec.taints.iter();
    taints.any(|taint| (taint.key.as_str(), taint.effect.as_str()) == NETWORK_TAINT)
}

/// Whether anything changed that decides here.
fn has_news(old: &Node, new: &Node) -> bool {
    old.spec.pod_cidrs != new.spec.pod_cidrs
        || old.provider_id() != new.provider_id()
        || old.condition(NETWORK_UNAVAILABLE) != new.condition(NETWORK_UNAVAILABLE)
        || has_network_taint(old) != has_network_taint(new)
}

/// The ranges to write: at most one a family.
fn usable(answer: &CloudPodCidrs) -> CloudResult<Vec<IpNet>> {
    let invalid = |why: String| Err(CloudError::invalid(why));
    let mut ranges = Vec::new();
    for text in answer.cidrs.iter().take(MAX_RANGES) {
        match text.parse::<IpNet>() {
            Ok(range) => ranges.push(range),
            Err(_) => return invalid(format!("the machine's range {text:?} is not a CIDR")),
        }
    }
    let is_v4 = |range: &IpNet| matches!(range, IpNet::V4(_));
    match ranges.as_slice() {
        [] => invalid("the machine has no range for pods".to_owned()),
        [first, second] if is_v4(first) == is_v4(second) => invalid(format!(
            "the machine's ranges {first} and {second} are of one family"
        )),
        _ => Ok(ranges),
    }
}

/// The condition of a Node whose ranges the cloud routes by itself, as the manager of Google Cloud
/// states it: the times stay when it is there already.
fn network_available(node: &Node, now: Timestamp) -> ApiCondition {
    let now = node
        .condition(NETWORK_UNAVAILABLE)
        .is_none()
        .then_some(Time(now));
    ApiCondition {
        type_: NETWORK_UNAVAILABLE.to_owned(),
        status: "False".to_owned(),
        reason: Some(ROUTE_CREATED.to_owned()),
        message: Some("NodeController create implicit route".to_owned()),
        last_heartbeat_time: now.clone(),
        last_transition_time: now,
    }
}

impl Copies {
    pub(super) fn new(
        context: &Context,
        nodes: Store<Node>,
        source: Arc<dyn MachinePodCidrs>,
    ) -> Result<Self, prometheus::Error> {
        let shared = Shared {
            queue: WorkQueue::new("cloudCIDRAllocator", BACKOFF, &context.queues),
            dropped: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            nodes,
            source,
            throttle: Throttle::default(),
            writes: NodeWrites::new(context.client.clone()),
            recorder: context.recorder(EVENT_SOURCE),
            clock: context.clock.clone(),
            dropped: metrics::dropped(&context.registry)?,
            reporter: context.loops.add("node-ipam-controller", "copy", None),
        })
    }

    /// What the informer has to call.
    pub(super) fn listener(&self) -> impl Fn(&Change<Node>) + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |change| shared.hear(change)
    }

    /// Copies until `shutdown`.
    pub(super) async fn run(self, shutdown: &CancellationToken) {
        let work = |names| self.batch(names);
        run_batches(&self.shared.queue, WORKERS, shutdown, work).await;
    }

    async fn batch(&self, names: Vec<String>) -> Vec<Outcome> {
        self.reporter.start();
        let present = |name: &String| {
            let node = self.nodes.named(name);
            // REQ-IPAM-15
            node.filter(|node| node.metadata.deletion_timestamp.is_none())
        };
        let nodes: Vec<Option<Arc<Node>>> = names.iter().map(present).collect();
        let asked: Vec<Arc<Node>> = nodes
            .iter()
            .flatten()
            .filter(|node| node.provider_id().is_some())
            .cloned()
            .collect();
        if let Some(left) = self.throttle.remaining() {
            // The cloud asked for patience: nobody asks it now, new Nodes neither (CASE-THR-03).
            return names.iter().map(|_| Outcome::RetryAfter(left)).collect();
        }
        let answers = if asked.is_empty() {
            Vec::new()
        } else {
            self.source.pod_cidrs(&asked).await
        };
        for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            self.throttle.heed(error);
        }
        let missing = || {
            Err(CloudError::transient(
                "the provider gave no answer for this Node",
            ))
        };
        let mut answers = answers.into_iter().chain(iter::repeat_with(missing));
        let work: Vec<_> = names
            .into_iter()
            .zip(nodes)
            .map(|(name, node)| {
                let has_machine = node.as_ref().is_some_and(|n| n.provider_id().is_some());
                let answer = has_machine.then(|| answers.next()).flatten();
                (name, node, answer)
            })
            .collect();
        let results: Vec<(Outcome, Option<String>)> = stream::iter(work)
            .map(|(name, node, answer)| async move {
                let Some(node) = node else {
                    return (Outcome::Done, None);
                };
                let result = match answer {
                    None => Err(CopyError::NoMachine),
                    Some(Err(error)) => Err(CopyError::Cloud(error)),
                    Some(Ok(answer)) => self.copy(&node, &answer).await,
                };
                match result {
                    Ok(()) => (Outcome::Done, None),
                    Err(error) => (self.failed(&name, &node, &error), Some(error.to_string())),
                }
            })
            .buffered(WRITES_AT_ONCE)
            .collect()
            .await;
        let first_error = results.iter().find_map(|(_, error)| error.as_ref());
        self.reporter
            .end(first_error.map(|error| error as &dyn fmt::Display));
        results.into_iter().map(|(outcome, _)| outcome).collect()
    }

    /// Writes what differs, and nothing else.
    async fn copy(&self, node: &Node, answer: &CloudPodCidrs) -> Result<(), CopyError> {
        let want = usable(answer).map_err(CopyError::Cloud)?;
        let texts: Vec<String> = want.iter().map(ToString::to_string).collect();
        let have: Vec<Option<IpNet>> = node
            .spec
            .pod_cidrs
            .iter()
            .map(|text| text.parse().ok())
            .collect();
        if have.is_empty() {
            match self.writes.set_pod_cidrs(node, &texts).await {
                Ok(_) => {
                    tracing::info!(node = node.name(), ranges = ?texts, "copied pod ranges to Node");
                }
                Err(error) if error.is_gone() || error.is_other_node() => return Ok(()),
                Err(error) => return Err(CopyError::Write(error)),
            }
        } else if !have.iter().copied().eq(want.iter().copied().map(Some)) {
            return Err(CopyError::Other {
                have: node.spec.pod_cidrs.join(","),
                want: texts.join(","),
            });
        }
        let is_told = node.status.conditions.iter().any(|condition| {
            condition.type_ == NETWORK_UNAVAILABLE
                && condition.status == "False"
                && condition.reason.as_deref() == Some(ROUTE_CREATED)
        });
        if !answer.routed || is_told {
            return Ok(());
        }
        let now = self.clock.now();
        let condition = network_available(node, now);
        match self.writes.set_condition(node, &condition).await {
            Err(error) if !(error.is_gone() || error.is_other_node()) => {
                Err(CopyError::Condition(error))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, name: &str, node: &Node, error: &CopyError) -> Outcome {
        if let Some(reason) = error.reason() {
            let message = format!("Node {name} status is now: {reason}");
            self.recorder.normal(node, reason, message);
        }
        if let CopyError::Cloud(cloud) = error
            && let Some(after) = wait_named(cloud)
        {
            tracing::warn!(node = name, %error, ?after, "pod ranges not copied");
            return Outcome::RetryAfter(after);
        }
        if self.shared.queue.failures(&name.to_owned()) >= MAX_REQUEUES {
            tracing::error!(node = name, %error, "pod ranges not copied, given up until the Node changes");
            self.shared.lock().insert(name.to_owned());
            self.dropped.inc();
            return Outcome::Done;
        }
        tracing::warn!(node = name, %error, "pod ranges not copied, will be retried");
        Outcome::Retry
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::NodeCondition;

    #[test]
    fn the_times_of_a_condition_that_is_there_already_stay() {
        let mut node = Node::default();
        let now: Timestamp = "2026-01-01T00:00:01.5Z".parse().unwrap();
        let condition = json!(network_available(&node, now));
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:01Z");
        node.status.conditions.push(NodeCondition {
            type_: NETWORK_UNAVAILABLE.into(),
            status: "True".into(),
            reason: None,
        });
        assert_eq!(
            json!(network_available(&node, now)),
            json!({
                "type": "NetworkUnavailable",
                "status": "False",
                "reason": "RouteCreated",
                "message": "NodeController create implicit route",
            })
        );
    }
}
