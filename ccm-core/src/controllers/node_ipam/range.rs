//! Ranges allocated here (specification: controllers §6.3, §6.5): the shell around the allocator.
//! Hears of Nodes, writes what the allocator picks, tells it what came of that.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    allocator::{Allocator, Fault, Learnt, Seen, Step},
    batch::run_batches,
    config::RangePlan,
    controller::{NodeIpamError, WORKERS},
    metrics::RangeMetrics,
};
use crate::{
    cloud::{CloudError, MachineMasks, NodeIpamPolicy, NodeMasks},
    controllers::{Throttle, wait_named},
    kube::{Change, EventRecorder, Node, NodeWriteError, NodeWrites, Store},
    runtime::{Backoff, Context, LoopReporter, Outcome, WorkQueue, run_workers},
};

/// The source of these events.
const EVENT_SOURCE: &str = "cidrAllocator";

/// Immediate tries of one write before it is left to the back-off, as upstream.
const WRITE_TRIES: u32 = 3;

/// Times that one pass goes back to the allocator: read, write, read after a lost race.
const STEPS: u32 = 4;

/// Nodes of one batch that are written to at the same time.
const WRITES_AT_ONCE: usize = 10;

/// Waiting Nodes that a freed block wakes. One would do for blocks of one size; with several, the
/// first to be woken may not fit.
const WOKEN: usize = 4;

/// A second allocator is one mistake of one person, however many Nodes it hits.
const HINT_PAUSE: Duration = Duration::from_secs(10 * 60);

/// The allocator and what its listener needs.
struct Shared {
    nodes: Store<Node>,
    queue: WorkQueue<String>,
    allocator: Mutex<Allocator>,
    metrics: RangeMetrics,
    recorder: EventRecorder,
    last_hint: Mutex<Option<Instant>>,
    /// Whether `run` has begun.
    allocates: AtomicBool,
}

/// The allocator's shell.
pub(super) struct Ranges {
    shared: Arc<Shared>,
    policy: NodeIpamPolicy,
    masks: Option<Arc<dyn MachineMasks>>,
    throttle: Throttle,
    writes: NodeWrites,
    reporter: LoopReporter,
}

/// Why a Node has no ranges yet.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error(
        "no block of size /{prefix} is free in {cluster}: {used} of {capacity} blocks are used"
    )]
    NoRoom {
        cluster: ipnet::IpNet,
        prefix: u8,
        used: u64,
        capacity: u64,
    },
    #[error("a block of size /{prefix} cannot be had of {cluster}")]
    Unfit { cluster: ipnet::IpNet, prefix: u8 },
    #[error("the size of its block is not known: {0}")]
    Masks(#[source] CloudError),
    #[error("the Node cannot be read: {0}")]
    Read(#[source] NodeWriteError),
    #[error("its ranges cannot be written: {0}")]
    Write(#[source] NodeWriteError),
    #[error("the writes were overtaken again and again")]
    Overtaken,
}

impl PassError {
    /// The event's reason, as upstream.
    const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::NoRoom { .. } | Self::Unfit { .. } | Self::Masks(_) => Some("CIDRNotAvailable"),
            Self::Write(_) | Self::Overtaken => Some("CIDRAssignmentFailed"),
            Self::Read(_) => None,
        }
    }
}

/// What came of a write.
enum Written {
    Done,
    /// The API server refused the content: the Node may have got other ranges.
    Refused(NodeWriteError),
}

impl Shared {
    /// Runs `f` on the allocator. A block that it frees wakes Nodes that wait for one.
    fn with<T>(&self, f: impl FnOnce(&mut Allocator) -> T) -> T {
        let mut allocator = self.lock();
        let result = f(&mut allocator);
        let tallies = allocator.take_tallies();
        let freed = tallies.iter().any(|tally| tally.released > 0);
        let woken = if freed {
            allocator.wake(WOKEN)
        } else {
            Vec::new()
        };
        self.metrics.count(&tallies);
        drop(allocator);
        self.add(woken);
        result
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Allocator> {
        self.allocator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, names: Vec<String>) {
        for name in names {
            self.queue.add(name);
        }
    }

    /// There may be more room than the Nodes that were woken took.
    fn wake_one(&self) {
        let woken = self.lock().wake(1);
        self.add(woken);
    }

    fn hear(&self, change: &Change<Node>) {
        match change {
            Change::Deleted(node) => {
                self.with(|allocator| allocator.gone(node));
                self.queue.forget(&node.name().to_owned());
            }
            Change::Applied { old, new } => {
                let old = old.as_deref();
                if let Some(old) = old.filter(|old| old.uid() != new.uid()) {
                    self.with(|allocator| allocator.gone(old));
                    self.queue.forget(&new.name().to_owned());
                }
                self.hear_of(old.filter(|old| old.uid() == new.uid()), new);
            }
        }
    }

    /// Only what changes something here is looked at: heartbeats cost one comparison.
    fn hear_of(&self, old: Option<&Node>, new: &Node) {
        if new.spec.pod_cidrs.is_empty() {
            // Later changes find the key in the queue: it stays there until the Node has ranges,
            // except for a Node whose machine was not known.
            let known = |node: &Node| node.provider_id().is_some();
            if old.is_none_or(|old| !known(old) && known(new)) {
                self.queue.add(new.name().to_owned());
            }
            return;
        }
        if old.is_some_and(|old| old.spec.pod_cidrs == new.spec.pod_cidrs) {
            return;
        }
        let (seen, shared) = self.with(|allocator| {
            let seen = allocator.observe(new);
            (seen, allocator.is_shared(new.name()))
        });
        let overtaken = match seen {
            Ok(Seen::Displaced) => true,
            // It had none when it was seen last, and none were picked for it.
            Ok(Seen::New) | Err(_) => old.is_some(),
            Ok(Seen::None | Seen::Ours) => false,
        };
        if let Err(fault) = seen {
            tracing::error!(node = new.name(), %fault, "pod ranges not marked as used");
        }
        // Before we allocate another one may do it: that is how leader migration works.
        let allocates = self.allocates.load(Ordering::Acquire);
        if allocates && (overtaken || shared) {
            self.hint(new, shared);
        }
    }

    /// Tells of a second allocator, once in a while.
    fn hint(&self, node: &Node, shared: bool) {
        let ranges = node.spec.pod_cidrs.join(",");
        let name = node.name();
        let what = if shared {
            "overlap with those of another Node"
        } else {
            "were not given by this controller"
        };
        tracing::warn!(
            node = name,
            ranges,
            what,
            "another allocator of pod ranges is active"
        );
        let now = Instant::now();
        let mut last = self
            .last_hint
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now - last < HINT_PAUSE) {
            return;
        }
        *last = Some(now);
        drop(last);
        self.recorder.warning(
            node,
            "AnotherAllocator",
            format!(
                "The pod ranges {ranges} of node {name} {what}: two allocators seem to be active; \
                 set --allocate-node-cidrs=false in kube-controller-manager, or here"
            ),
        );
    }
}

impl Ranges {
    /// Takes the Nodes that `nodes` has and will have; [`hear`](Self::listener) them too.
    pub(super) fn new(
        context: &Context,
        nodes: Store<Node>,
        plan: RangePlan,
        policy: NodeIpamPolicy,
        masks: Option<Arc<dyn MachineMasks>>,
    ) -> Result<Self, prometheus::Error> {
        let shared = Shared {
            allocates: AtomicBool::new(false),
            nodes,
            queue: WorkQueue::new(
                "cidrallocator_node",
                Backoff::CONTROLLER_DEFAULT,
                &context.queues,
            ),
            allocator: Mutex::new(Allocator::new(plan)),
            metrics: RangeMetrics::new(&context.registry)?,
            recorder: context.recorder(EVENT_SOURCE),
            last_hint: Mutex::default(),
        };
        // The service ranges are counted now.
        shared.with(|_| ());
        Ok(Self {
            shared: Arc::new(shared),
            policy,
            masks,
            throttle: Throttle::default(),
            writes: NodeWrites::new(context.client.clone()),
            reporter: context.loops.add("node-ipam-controller", "allocate", None),
        })
    }

    /// What the informer has to call.
    pub(super) fn listener(&self) -> impl Fn(&Change<Node>) + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |change| shared.hear(change)
    }

    /// Marks what the Nodes of the first list have, then allocates until `shutdown`.
    pub(super) async fn run(self, shutdown: &CancellationToken) -> Result<(), NodeIpamError> {
        self.occupy_existing()?;
        self.shared.allocates.store(true, Ordering::Release);
        let queue = &self.shared.queue;
        if self.masks.is_some() {
            run_batches(queue, WORKERS, shutdown, |names| self.batch(names)).await;
        } else {
            let work = |name: String| self.one(name);
            run_workers(queue, WORKERS, shutdown, work).await;
        }
        Ok(())
    }

    /// REQ-IPAM-02, REQ-IPAM-12. The list is taken under the allocator's lock: a Node that vanishes
    /// meanwhile is told to the listener, which waits for the lock, only afterwards.
    fn occupy_existing(&self) -> Result<(), NodeIpamError> {
        self.shared.with(|allocator| {
            for node in self.shared.nodes.list() {
                match allocator.observe(&node) {
                    Ok(_) => {}
                    Err(Fault::OutOfRange(error)) if self.policy == NodeIpamPolicy::Azure => {
                        tracing::warn!(
                            node = node.name(),
                            %error,
                            "Node skipped; is --cluster-cidr another one than before?"
                        );
                    }
                    Err(fault) => {
                        return Err(NodeIpamError::ExistingNode {
                            node: node.name().to_owned(),
                            fault: fault.to_string(),
                        });
                    }
                }
            }
            Ok(())
        })
    }

    async fn one(&self, name: String) -> Outcome {
        let result = self.pass(&name, NodeMasks::default()).await;
        self.finish(&name, result)
    }

    /// Asks the cloud for the sizes of all Nodes that need a block, then treats them one by one.
    async fn batch(&self, names: Vec<String>) -> Vec<Outcome> {
        let source = self.masks.as_ref();
        let needs = |name: &String| {
            self.shared
                .nodes
                .named(name)
                .filter(|node| needs_block(node))
        };
        let nodes: Vec<Arc<Node>> = names
            .iter()
            .filter_map(needs)
            .filter(|node| node.provider_id().is_some())
            .collect();
        let mut answers = std::collections::BTreeMap::new();
        if let Some(left) = self.throttle.remaining() {
            // The cloud asked for patience: nobody asks it now, new Nodes neither (CASE-THR-03).
            return names.iter().map(|_| Outcome::RetryAfter(left)).collect();
        }
        if let (Some(source), false) = (source, nodes.is_empty()) {
            let masks = source.masks(&nodes).await;
            for error in masks.iter().filter_map(|answer| answer.as_ref().err()) {
                self.throttle.heed(error);
            }
            answers.extend(nodes.iter().map(|node| node.name().to_owned()).zip(masks));
        }
        let items: Vec<_> = names
            .into_iter()
            .map(|name| {
                let answer = answers.remove(&name);
                (name, answer)
            })
            .collect();
        stream::iter(items)
            .map(|(name, answer)| async move {
                let result = match answer {
                    Some(Ok(masks)) => self.pass(&name, masks).await,
                    Some(Err(error)) => Err(PassError::Masks(error)),
                    // Without a machine no size is known; its coming begins anew.
                    None if self.is_without_machine(&name) => Ok(()),
                    // It has ranges, or is gone or going; or it came or changed just now.
                    None if needs(&name).is_none() => self.pass(&name, NodeMasks::default()).await,
                    None => Err(PassError::Masks(CloudError::transient(
                        "the provider gave no answer for this Node",
                    ))),
                };
                self.finish(&name, result)
            })
            .buffered(WRITES_AT_ONCE)
            .collect()
            .await
    }

    fn is_without_machine(&self, name: &str) -> bool {
        let node = self.shared.nodes.named(name);
        node.is_some_and(|node| needs_block(&node) && node.provider_id().is_none())
    }

    /// One Node, until it has ranges or something fails.
    async fn pass(&self, name: &str, masks: NodeMasks) -> Result<(), PassError> {
        self.reporter.start();
        let mut refusal = None;
        for _ in 0..STEPS {
            // Cache and allocator are looked at together: the listener, told of the Node's end
            // after the cache has forgotten it, waits for the lock.
            let (node, step) = self.shared.with(|allocator| {
                let node = self.shared.nodes.named(name);
                let step = allocator.next(name, node.as_deref(), masks);
                (node, step)
            });
            let Some(node) = node else {
                return Ok(());
            };
            match step {
                Step::Done => return Ok(()),
                Step::NoRoom {
                    cluster,
                    prefix,
                    used,
                    capacity,
                } => {
                    return Err(PassError::NoRoom {
                        cluster,
                        prefix,
                        used,
                        capacity,
                    });
                }
                Step::Unfit { cluster, prefix } => {
                    return Err(PassError::Unfit { cluster, prefix });
                }
                Step::Reread => {
                    if self.reread(&node, refusal.take()).await? {
                        return Ok(());
                    }
                }
                Step::Write(ranges) => {
                    let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
                    match self.write(&node, &texts).await? {
                        Written::Done => return Ok(()),
                        Written::Refused(error) => refusal = Some(error),
                    }
                }
            }
        }
        Err(PassError::Overtaken)
    }

    /// Reads the Node whose write may have been applied, or was refused. Answers whether nothing is
    /// left to do for it.
    async fn reread(
        &self,
        node: &Node,
        refusal: Option<NodeWriteError>,
    ) -> Result<bool, PassError> {
        let name = node.name();
        let answer = self.writes.read(name).await.map_err(PassError::Read)?;
        match (self.learn(node, answer.as_ref()), refusal) {
            (Learnt::Gone | Learnt::Assigned, _) => Ok(true),
            (Learnt::Displaced, _) => {
                answer.iter().for_each(|now| self.shared.hint(now, false));
                Ok(true)
            }
            (Learnt::Unwritten, None) => Ok(false),
            // Nobody was faster: the API server will not have it.
            (Learnt::Unwritten, Some(error)) => {
                self.shared.with(|a| a.refused(name, node.uid()));
                Err(PassError::Write(error))
            }
        }
    }

    fn learn(&self, node: &Node, answer: Option<&Node>) -> Learnt {
        self.shared
            .with(|allocator| allocator.learn(node.name(), node.uid(), answer))
    }

    /// Writes the ranges; whatever came of it, the allocator knows.
    async fn write(&self, node: &Node, ranges: &[String]) -> Result<Written, PassError> {
        let (name, uid) = (node.name(), node.uid());
        let mut is_unsure = false;
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.writes.set_pod_cidrs(node, ranges).await {
                Ok(now) => {
                    tracing::info!(node = name, ?ranges, "gave pod ranges to Node");
                    self.learn(node, Some(&now));
                    return Ok(Written::Done);
                }
                Err(error) => error,
            };
            if error.is_gone() || error.is_other_node() {
                self.shared.with(|allocator| allocator.refused(name, uid));
                return Ok(Written::Done);
            }
            if error.is_invalid() {
                self.shared.with(|allocator| allocator.unsure(name, uid));
                return Ok(Written::Refused(error));
            }
            is_unsure |= error.is_outcome_unknown();
            if tries < WRITE_TRIES {
                continue;
            }
            self.shared.with(|allocator| {
                if is_unsure {
                    allocator.unsure(name, uid);
                } else {
                    allocator.refused(name, uid);
                }
            });
            return Err(PassError::Write(error));
        }
    }

    /// One event a try at most; the recorder's sink aggregates them.
    fn finish(&self, name: &str, result: Result<(), PassError>) -> Outcome {
        let Err(error) = result else {
            self.reporter.end(None);
            self.shared.wake_one();
            return Outcome::Done;
        };
        self.reporter.end(Some(&error as &dyn fmt::Display));
        tracing::warn!(node = name, %error, "no pod ranges given, will be retried");
        if let (Some(reason), Some(node)) = (error.reason(), self.shared.nodes.named(name)) {
            let message = format!("Node {name} status is now: {reason}");
            self.shared.recorder.normal(&*node, reason, message);
        }
        match error {
            PassError::Masks(error) => {
                wait_named(&error).map_or(Outcome::Retry, Outcome::RetryAfter)
            }
            _ => Outcome::Retry,
        }
    }
}

fn needs_block(node: &Node) -> bool {
    node.spec.pod_cidrs.is_empty() && node.metadata.deletion_timestamp.is_none()
}
