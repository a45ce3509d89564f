//! Events, queue and workers. What a Node needs and what an error means is decided in `plan`.

use std::{sync::Arc, time::Duration};

use ccm_core::{
    cloud::OwnContext,
    kube::{Change, Node, NodePatch, NodeWrites, Store},
    runtime::{Backoff, Clock, LoopReporter, Outcome, WorkQueue, run_workers},
};
use tokio_util::sync::CancellationToken;

use super::{
    TAGGING, TaggingSettings,
    batch::TagCalls,
    metrics::{EXHAUSTED, Metrics, TOTAL},
    plan::{self, Failure, LABEL},
};
use crate::{
    api::tagging::TaggingApi,
    instances::{InstanceId, InstanceStore},
    tags::Tags,
};

/// How often an item is tried again; afterwards it waits for the next event of its Node.
const MAX_REQUEUES: u32 = 9;

/// The loop's name for `/debug/controllers`.
const LOOP: &str = "nodes";

/// The queue's name in its series.
const QUEUE: &str = "tagging-controller";

/// What the controller is made from, beside its settings.
#[derive(Clone)]
pub struct Setup {
    /// The calls.
    pub api: Arc<dyn TaggingApi>,
    /// What is known of instances.
    pub store: Arc<InstanceStore>,
}

/// A machine of a Node. Whether it gets tags or loses them is decided when its turn comes: as long
/// as the Node is there with this machine, it gets them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    node: String,
    provider_id: String,
}

/// Tags the machines of Nodes.
pub struct TaggingController {
    nodes: Store<Node>,
    queue: WorkQueue<Item>,
    workers: usize,
    tags: Tags,
    checksum: String,
    calls: TagCalls,
    store: Arc<InstanceStore>,
    writes: NodeWrites,
    clock: Clock,
    metrics: Metrics,
    reporter: LoopReporter,
}

impl TaggingController {
    /// Listens to the cache of Nodes, which must not run yet.
    ///
    /// # Errors
    /// A series of this controller is registered already.
    pub fn new(
        own: &OwnContext<'_>,
        setup: Setup,
        settings: TaggingSettings,
    ) -> Result<Self, prometheus::Error> {
        let TaggingSettings {
            tags,
            limit,
            workers,
            batching,
        } = settings;
        let context = own.context;
        let metrics = Metrics::new(&context.registry)?;
        let backoff = match limit {
            Some(bucket) => Backoff {
                bucket: Some(bucket),
                ..Backoff::CONTROLLER_DEFAULT
            },
            None => Backoff::CONTROLLER_DEFAULT,
        };
        let queue = WorkQueue::new(QUEUE, backoff, &context.queues);
        let checksum = plan::checksum(&tags);
        let (into, sum, is_limited) = (queue.clone(), checksum.clone(), limit.is_some());
        own.nodes
            .listen(move |change| hear(change, &sum, &into, is_limited));
        Ok(Self {
            nodes: own.nodes.store(),
            queue,
            workers,
            calls: TagCalls::new(setup.api, tags.clone(), batching),
            tags,
            checksum,
            store: setup.store,
            writes: NodeWrites::new(context.client.clone()),
            clock: context.clock.clone(),
            metrics,
            reporter: context.loops.add(TAGGING.as_str(), LOOP, None),
        })
    }

    /// Works until `shutdown`. Calls that were begun are waited for.
    pub async fn run(self, shutdown: CancellationToken) {
        run_workers(&self.queue, self.workers, &shutdown, |item| self.work(item)).await;
    }

    async fn work(&self, item: Item) -> Outcome {
        let id = match InstanceId::from_provider_id(&item.provider_id) {
            Ok(id) => id,
            Err(error) => {
                tracing::warn!(node = item.node, %error, "machine not tagged");
                return Outcome::Done;
            }
        };
        if id.is_fargate() {
            return Outcome::Done;
        }
        self.reporter.start();
        let node = self.nodes.named(&item.node);
        let node = node.filter(|node| node.provider_id() == Some(&item.provider_id));
        let outcome = match &node {
            Some(node) => self.add(node, &id).await,
            None => self.remove(&item, &id).await,
        };
        let outcome = match outcome {
            Ok(()) => {
                self.reporter.end(None);
                Outcome::Done
            }
            Err(error) => {
                self.reporter.end(Some(&error));
                self.failed(&item, &id, &error)
            }
        };
        if node.is_none() && outcome == Outcome::Done {
            self.metrics.forget(id.as_str());
        }
        outcome
    }

    fn failed(&self, item: &Item, id: &InstanceId, error: &str) -> Outcome {
        let requeues = self.queue.failures(item);
        if requeues < MAX_REQUEUES {
            self.metrics.count(TOTAL, id.as_str());
            tracing::warn!(
                node = item.node,
                instance = %id,
                error,
                requeues,
                "tags of a machine not changed, will be retried"
            );
            return Outcome::Retry;
        }
        self.metrics.count(EXHAUSTED, id.as_str());
        tracing::error!(
            node = item.node,
            instance = %id,
            error,
            "tags of a machine not changed, given up until its Node changes"
        );
        Outcome::Done
    }

    async fn add(&self, node: &Arc<Node>, id: &InstanceId) -> Result<(), String> {
        if !plan::is_required(node, &self.checksum) {
            return Ok(());
        }
        let known = self.store.known(id);
        let is_tagged = known.is_some_and(|known| plan::has_all(&known.tags, &self.tags));
        if !is_tagged && let Err(error) = self.calls.create(id).await {
            let age = self.age(node).unwrap_or_default();
            return match plan::when_adding(&error, age) {
                Failure::Retry => Err(error.to_string()),
                Failure::Skip => {
                    tracing::info!(node = node.name(), instance = %id, %error, "machine not tagged");
                    Ok(())
                }
            };
        }
        let labels = [(LABEL.to_owned(), self.checksum.clone())].into();
        let patch = NodePatch::labels(node, labels);
        match self.writes.patch(node.name(), &patch).await {
            Ok(_) => {}
            // It went meanwhile; its own event removes the tags.
            Err(error) if error.is_gone() || error.is_other_node() => return Ok(()),
            Err(error) => return Err(format!("label of Node {}: {error}", node.name())),
        }
        tracing::info!(node = node.name(), instance = %id, "tagged machine");
        if node.label(LABEL).is_none()
            && let Some(age) = self.age(node)
        {
            self.metrics.observe_delay(age.as_secs_f64());
        }
        Ok(())
    }

    async fn remove(&self, item: &Item, id: &InstanceId) -> Result<(), String> {
        self.store.forget([id]);
        match self.calls.delete(id).await {
            Ok(()) => {
                tracing::info!(node = item.node, instance = %id, "removed tags of a machine");
                Ok(())
            }
            Err(error) => match plan::when_removing(&error) {
                Failure::Retry => Err(error.to_string()),
                Failure::Skip => Ok(()),
            },
        }
    }

    /// How long the Node has been there.
    fn age(&self, node: &Node) -> Option<Duration> {
        let created = node.metadata.creation_timestamp.as_ref()?.0;
        Duration::try_from(self.clock.now().duration_since(created)).ok()
    }
}

/// Takes up what a change of a Node asks for. With a limit, taking up counts as a try, as in the Go
/// manager.
fn hear(change: &Change<Node>, checksum: &str, queue: &WorkQueue<Item>, is_limited: bool) {
    let (node, is_gone) = match change {
        Change::Applied { new, .. } if plan::is_required(new, checksum) => (new, false),
        Change::Applied { .. } => return,
        Change::Deleted(last) => (last, true),
    };
    // Without a machine there is nothing to tag; the id comes with an update.
    let Some(provider_id) = node.provider_id() else {
        return;
    };
    let item = Item {
        node: node.name().to_owned(),
        provider_id: provider_id.to_owned(),
    };
    if is_gone {
        // To remove tags is another task than the one that may have failed before.
        queue.forget(&item);
    }
    if is_limited {
        queue.add_rate_limited(item);
    } else {
        queue.add(item);
    }
}
