//! When passes run: by the clock, or by changes of Nodes (specification: controllers §5.2).

use std::{iter, sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    condition::Written,
    metrics::Metrics,
    pass::{PassEnd, Passes},
    start::{ClusterCidrs, RouteStartError},
    trigger::{PASS_SPACING, Pace, Trigger},
};
use crate::{
    cloud::Routes,
    config::{ControllerName, RouteSettings},
    controllers::Throttle,
    kube::{Informer, Node, NodeWrites},
    runtime::{Backoff, Context, Outcome, Work, WorkQueue},
};

/// The source of this controller's events.
const EVENT_SOURCE: &str = "route_controller";

/// The loop's name for `/debug/controllers`.
const LOOP: &str = "routes";

/// The shortest period in classic mode: a period of zero would be a loop without a pause.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);

/// In watch mode the routes are compared at least this often without any change of a Node: someone
/// may have changed them in the cloud, or a condition in the API server. The Go managers do not.
const DRIFT_CHECK: Duration = Duration::from_secs(10 * 60);

/// A drift check is up to this fraction later, so that clusters on one account do not check
/// together.
const DRIFT_JITTER: f64 = 0.5;

/// How passes that left something undone are repeated in watch mode (REQ-ROUTE-16).
const BACKOFF: Backoff = Backoff {
    base: PASS_SPACING,
    max: Duration::from_secs(5 * 60),
    bucket: None,
};

/// Keeps one route for each range of pod addresses of each Node.
pub struct RouteController {
    passes: Passes,
    mode: Mode,
}

enum Mode {
    /// By the clock, start to start.
    Classic { period: Duration },
    /// By changes of Nodes.
    Watch {
        queue: WorkQueue<Trigger>,
        pace: Pace,
    },
}

impl RouteController {
    /// Reads the informer's store and, in watch mode, listens to the informer, which must not run
    /// yet. Whether the controller runs at all is [`RouteStart`](super::RouteStart)'s to say.
    ///
    /// # Errors
    /// `--cluster-cidr` is missing or wrong, or a series is registered already.
    pub fn new(
        context: &Context,
        nodes: &Informer<Node>,
        routes: Arc<dyn Routes>,
        settings: RouteSettings,
    ) -> Result<Self, RouteStartError> {
        let RouteSettings {
            // The caller's matter.
            configure: _,
            cluster_cidr,
            period,
            watch,
        } = settings;
        let cidrs = ClusterCidrs::parse(&cluster_cidr)?;
        let metrics = Metrics::new(&context.registry)?;
        let (mode, period) = if watch {
            let queue = WorkQueue::new("Routes", BACKOFF, &context.queues);
            let pace = Pace::default();
            let (into, wait) = (queue.clone(), pace.clone());
            nodes.listen(move |change| {
                if let Some(trigger) = Trigger::of(change) {
                    into.add_after(trigger, wait.wait());
                }
            });
            (Mode::Watch { queue, pace }, DRIFT_CHECK)
        } else {
            let period = period.max(SHORTEST_PERIOD);
            (Mode::Classic { period }, period)
        };
        let name = ControllerName::Route.as_str();
        Ok(Self {
            passes: Passes {
                nodes: nodes.store(),
                routes,
                cidrs,
                writes: NodeWrites::new(context.client.clone()),
                recorder: context.recorder(EVENT_SOURCE),
                clock: context.clock.clone(),
                random: context.random.clone(),
                metrics,
                reporter: context.loops.add(name, LOOP, Some(period)),
                throttle: Throttle::default(),
            },
            mode,
        })
    }

    /// Works until `shutdown`; begins when the Nodes are listed. Calls that were begun are waited
    /// for, none is begun after it. Nothing is written after it has returned.
    pub async fn run(self, shutdown: CancellationToken) {
        let is_synced = tokio::select! {
            biased;
            () = shutdown.cancelled() => false,
            () = self.passes.nodes.wait_until_synced() => true,
        };
        match &self.mode {
            _ if !is_synced => {}
            Mode::Classic { period } => self.run_by_the_clock(*period, &shutdown).await,
            Mode::Watch { queue, pace } => self.run_by_changes(queue, pace, &shutdown).await,
        }
        if let Mode::Watch { queue, .. } = &self.mode {
            queue.close();
        }
    }

    async fn run_by_the_clock(&self, period: Duration, shutdown: &CancellationToken) {
        let mut written = Written::default();
        let mut due = Instant::now();
        while sleep_until(due, shutdown).await {
            self.passes
                .run(Trigger::Periodic, &mut written, shutdown)
                .await;
            // Start to start; a pass that took longer is followed at once (REQ-ROUTE-13), unless
            // the cloud asked for a pause (CASE-THR-03).
            let now = Instant::now();
            due = (due + period).max(now + self.pause());
        }
    }

    async fn run_by_changes(
        &self,
        queue: &WorkQueue<Trigger>,
        pace: &Pace,
        shutdown: &CancellationToken,
    ) {
        let mut written = Written::default();
        if self.passes.nodes.is_empty() {
            // No Node will begin the first pass, and there may be routes of former ones.
            queue.add(Trigger::Periodic);
        }
        loop {
            let first = tokio::select! {
                biased;
                () = shutdown.cancelled() => None,
                first = queue.next() => first,
            };
            let Some(first) = first else { return };
            // Both keys mean a whole pass: one serves both.
            let keys = iter::once(first)
                .chain(iter::from_fn(|| queue.try_next()))
                .collect();
            let wait = pace.wait().max(self.pause());
            if wait.is_zero() {
                pace.begin();
                self.pass_for(keys, queue, &mut written, shutdown).await;
                let later = self.passes.random.jitter(DRIFT_CHECK, DRIFT_JITTER);
                queue.add_after(Trigger::Periodic, later);
            } else {
                finish_all(keys, Outcome::RetryAfter(wait));
            }
        }
    }

    async fn pass_for(
        &self,
        keys: Vec<Work<Trigger>>,
        queue: &WorkQueue<Trigger>,
        written: &mut Written,
        shutdown: &CancellationToken,
    ) {
        let is_change = keys.iter().any(|key| **key == Trigger::NodeChange);
        let trigger = if is_change {
            Trigger::NodeChange
        } else {
            Trigger::Periodic
        };
        let end = self.passes.run(trigger, written, shutdown).await;
        let (again, done): (Vec<_>, Vec<_>) = keys
            .into_iter()
            .partition(|key| end != PassEnd::Complete && **key == trigger);
        finish_all(done, Outcome::Done);
        if end == PassEnd::Partial {
            // What moves is not waited for ever longer.
            queue.forget(&trigger);
        }
        let pause = self.pause();
        let outcome = if pause.is_zero() {
            Outcome::Retry
        } else {
            Outcome::RetryAfter(pause.max(PASS_SPACING))
        };
        finish_all(again, outcome);
    }

    /// How long the cloud wants no call.
    fn pause(&self) -> Duration {
        self.passes.throttle.remaining().unwrap_or_default()
    }
}

fn finish_all(keys: Vec<Work<Trigger>>, outcome: Outcome) {
    for key in keys {
        key.finish(outcome);
    }
}

/// Waits. `false`: the process is ending.
async fn sleep_until(due: Instant, shutdown: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => false,
        () = tokio::time::sleep_until(due) => true,
    }
}
