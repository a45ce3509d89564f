//! One pass: list, decide, carry out, say so on the Nodes. What is decided stands in the pure files
//! beside this one.

use std::{iter, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    condition::Written,
    metrics::{Metrics, PassOutcome},
    plan::{Create, Plan},
    schedule::{Call, Schedule},
    start::ClusterCidrs,
    trigger::Trigger,
};
use crate::{
    cloud::{CloudError, CloudResult, Route, Routes, WantedRoute},
    config::GoDuration,
    controllers::Throttle,
    kube::{EventRecorder, Node, NodeWrites, Store},
    runtime::{Clock, LoopReporter, Random},
};

/// Calls that change routes in flight at once (REQ-ROUTE-08).
const CALLS: usize = 200;

/// As many until the cloud has taken one of this pass: a cloud that throttles or refuses everything
/// is not met with a burst (CASE-THR-03).
const FIRST_CALLS: usize = 5;

/// What a pass needs.
pub(super) struct Passes {
    pub(super) nodes: Store<Node>,
    pub(super) routes: Arc<dyn Routes>,
    pub(super) cidrs: ClusterCidrs,
    pub(super) writes: NodeWrites,
    pub(super) recorder: EventRecorder,
    pub(super) clock: Clock,
    pub(super) random: Random,
    pub(super) metrics: Metrics,
    pub(super) reporter: LoopReporter,
    pub(super) throttle: Throttle,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassEnd {
    /// Everything is as it should be.
    Complete,
    /// Some of it; some is left to do.
    Partial,
    /// There is something to do, and nothing of it was done.
    Stuck,
}

/// The answer to one call, of positions.
enum Answer {
    Deleted(Vec<(usize, CloudResult<()>)>, Duration),
    Created(Vec<(usize, CloudResult<()>)>, Duration),
}

/// What is known while a pass runs.
struct Scene<'a> {
    nodes: &'a [Arc<Node>],
    routes: &'a [Route],
    creates: &'a [Create],
}

impl Scene<'_> {
    /// The Node and the range of a create.
    fn wanted(&self, create: usize) -> Option<(&Node, &str)> {
        let create = self.creates.get(create)?;
        let node = self.nodes.get(create.node)?;
        Some((node, node.spec.pod_cidrs.get(create.cidr)?))
    }
}

/// What became of a plan.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) missing: Vec<Option<u32>>,
    changed: usize,
    failed: usize,
    /// Not tried: shutdown, or a cloud that asked for a pause.
    pub(super) held: usize,
    first_error: Option<String>,
}

impl Tally {
    pub(super) fn fail(&mut self, error: impl FnOnce() -> String) {
        self.failed += 1;
        self.first_error.get_or_insert_with(error);
    }
}

/// What is left of a plan and what became of the rest.
struct Progress {
    schedule: Schedule,
    tally: Tally,
}

impl Passes {
    /// One pass. After `shutdown` no call is begun; those that were are waited for.
    pub(super) async fn run(
        &self,
        trigger: Trigger,
        written: &mut Written,
        shutdown: &CancellationToken,
    ) -> PassEnd {
        self.reporter.start();
        let known = self.nodes.list();
        let listed = tokio::select! {
            biased;
            // A read that is not waited for changes nothing.
            () = shutdown.cancelled() => {
                self.reporter.end(None);
                return PassEnd::Complete;
            }
            listed = self.routes.list(&known) => listed,
        };
        let routes = match listed {
            Ok(routes) => routes,
            Err(error) => {
                self.throttle.heed(&error);
                tracing::warn!(%error, "routes not listed, nothing is changed");
                self.metrics.count(PassOutcome::Error, trigger);
                self.reporter.end(Some(&error.context("list routes")));
                return PassEnd::Stuck;
            }
        };
        drop(known);
        // After the list: a Node that came since has no route in it, and gets one.
        let nodes = self.nodes.list();
        let plan = Plan::new(&nodes, &routes, &self.cidrs);
        let mut tally = self.carry_out(&nodes, &routes, plan, shutdown).await;
        let said = self
            .say_on_nodes(&nodes, &mut tally, written, shutdown)
            .await;
        self.finish(trigger, &tally, said)
    }

    fn finish(&self, trigger: Trigger, tally: &Tally, said: usize) -> PassEnd {
        let outcome = if tally.changed > 0 {
            PassOutcome::Changed
        } else {
            PassOutcome::Noop
        };
        self.metrics.count(outcome, trigger);
        if tally.failed + tally.held == 0 {
            self.reporter.end(None);
            return PassEnd::Complete;
        }
        let text = format!(
            "{} changes failed and {} were not tried: {}",
            tally.failed,
            tally.held,
            tally
                .first_error
                .as_deref()
                .unwrap_or("the process is ending or the cloud asked for a pause")
        );
        tracing::warn!(
            done = tally.changed,
            failed = tally.failed,
            not_tried = tally.held,
            first_error = tally.first_error,
            "not all routes are as they should be"
        );
        self.reporter.end(Some(&text));
        if tally.changed + said > 0 {
            PassEnd::Partial
        } else {
            PassEnd::Stuck
        }
    }

    // --- the cloud ---

    async fn carry_out(
        &self,
        nodes: &[Arc<Node>],
        routes: &[Route],
        plan: Plan,
        shutdown: &CancellationToken,
    ) -> Tally {
        let scene = Scene {
            nodes,
            routes,
            creates: &plan.creates,
        };
        let deletes = plan.deletes.iter().filter_map(|at| {
            let route = routes.get(*at)?;
            Some((*at, route.destination_cidr.as_str()))
        });
        let creates =
            (0..plan.creates.len()).filter_map(|at| scene.wanted(at).map(|(_, cidr)| (at, cidr)));
        let mut progress = Progress {
            schedule: Schedule::new(deletes, creates, self.routes.batch_size()),
            tally: Tally {
                missing: plan.missing,
                ..Tally::default()
            },
        };
        let mut flying = FuturesUnordered::new();
        loop {
            let limit = if progress.tally.changed > 0 {
                CALLS
            } else {
                FIRST_CALLS
            };
            while flying.len() < limit && self.may_call(shutdown) {
                let Some(call) = progress.schedule.next() else {
                    break;
                };
                flying.push(self.call(call, &scene));
            }
            match flying.next().await {
                None => break,
                Some(Answer::Deleted(answers, took)) => {
                    for (at, answer) in answers {
                        self.deleted(at, answer, took, &scene, &mut progress);
                    }
                }
                Some(Answer::Created(answers, took)) => {
                    for (at, answer) in answers {
                        self.created(at, answer, took, &scene, &mut progress.tally);
                    }
                }
            }
        }
        let Progress {
            schedule,
            mut tally,
        } = progress;
        tally.held = schedule.left();
        tally
    }

    /// Whether a call may begin now.
    fn may_call(&self, shutdown: &CancellationToken) -> bool {
        !shutdown.is_cancelled() && self.throttle.remaining().is_none()
    }

    async fn call(&self, call: Call, scene: &Scene<'_>) -> Answer {
        let start = Instant::now();
        match call {
            Call::Delete(some) => {
                let routes: Vec<Route> = some
                    .iter()
                    .filter_map(|at| scene.routes.get(*at).cloned())
                    .collect();
                let answers = self.routes.delete(&routes).await;
                Answer::Deleted(one_each(some, answers), start.elapsed())
            }
            Call::Create(some) => {
                let routes: Vec<WantedRoute> = some
                    .iter()
                    .filter_map(|at| scene.wanted(*at).map(|(node, cidr)| wanted(node, cidr)))
                    .collect();
                let answers = self.routes.create(&routes).await;
                Answer::Created(one_each(some, answers), start.elapsed())
            }
        }
    }

    fn deleted(
        &self,
        at: usize,
        answer: CloudResult<()>,
        took: Duration,
        scene: &Scene<'_>,
        progress: &mut Progress,
    ) {
        let Progress { schedule, tally } = progress;
        let Some(route) = scene.routes.get(at) else {
            return;
        };
        let (name, cidr) = (route.name.as_str(), route.destination_cidr.as_str());
        match answer.or_else(|error| {
            let is_gone = error.is_not_found();
            is_gone.then_some(()).ok_or(error)
        }) {
            Ok(()) => {
                tally.changed += 1;
                tracing::info!(
                    route = name,
                    cidr,
                    node = route.target_node,
                    "removed route"
                );
                schedule.deleted(cidr, true);
            }
            Err(error) => {
                self.throttle.heed(&error);
                tracing::debug!(route = name, cidr, %error, "route not removed");
                tally.fail(|| format!("remove route {name} {cidr}: {error}"));
                for create in schedule.deleted(cidr, false) {
                    let error = format!("route {name} is in the way and was not removed: {error}");
                    self.not_created(create, &error, took, scene, tally);
                }
            }
        }
    }

    fn created(
        &self,
        at: usize,
        answer: CloudResult<()>,
        took: Duration,
        scene: &Scene<'_>,
        tally: &mut Tally,
    ) {
        let (Some(create), Some((node, cidr))) = (scene.creates.get(at), scene.wanted(at)) else {
            return;
        };
        match answer {
            Ok(()) => {
                tally.changed += 1;
                if let Some(Some(count)) = tally.missing.get_mut(create.node) {
                    *count = count.saturating_sub(1);
                }
                tracing::info!(node = node.name(), cidr, "made route");
            }
            Err(error) => {
                self.throttle.heed(&error);
                self.not_created(at, &error, took, scene, tally);
            }
        }
    }

    fn not_created(
        &self,
        at: usize,
        error: &dyn std::fmt::Display,
        took: Duration,
        scene: &Scene<'_>,
        tally: &mut Tally,
    ) {
        let Some((node, cidr)) = scene.wanted(at) else {
            return;
        };
        let (uid, name, took) = (node.uid(), node.name(), GoDuration::from(took));
        tracing::debug!(node = name, cidr, %error, "route not made");
        self.recorder.warning(
            node,
            "FailedToCreateRoute",
            format!("Could not create route {uid} {cidr} for node {name} after {took}: {error}"),
        );
        tally.fail(|| format!("make route {cidr} for node {name}: {error}"));
    }
}

/// One answer for each position, whatever the provider does.
fn one_each(some: Vec<usize>, answers: Vec<CloudResult<()>>) -> Vec<(usize, CloudResult<()>)> {
    let missing = iter::repeat_with(|| {
        Err(CloudError::transient(
            "the provider gave no answer for this route",
        ))
    });
    some.into_iter()
        .zip(answers.into_iter().chain(missing))
        .collect()
}

fn wanted(node: &Node, cidr: &str) -> WantedRoute {
    WantedRoute {
        name_hint: node.uid().to_owned(),
        route: Route {
            target_node: node.name().to_owned(),
            target_node_addresses: node.status.addresses.to_vec(),
            destination_cidr: cidr.to_owned(),
            ..Route::default()
        },
        provider_id: node.provider_id().map(str::to_owned),
    }
}
