//! One run: a plan is carried out, the rules are looked at, the end is judged.

use std::time::Duration;

use anyhow::Result;
use tokio::{runtime::Builder, time::Instant};

use crate::{
    fate::{Aim, Blow, Latency},
    goal,
    judge::{Rule, Violation},
    objects::condition,
    steps::{Event, Timed},
    trace::{Kind, Op},
    world::{Network, Options, Plant, World},
};

/// After the end of all faults the desired state is reached within this: twice the longest
/// back-off of a Service and some rounds of every loop.
pub const CONVERGES_WITHIN: Duration = Duration::from_secs(15 * 60);

/// Between two looks whether it is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long nothing may happen then (U4).
pub const QUIET: Duration = Duration::from_secs(10 * 60);

/// Events are written a little after what they tell of; the quiet begins after that.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// After trouble a retry may still wait although all is well by now: the longest back-off of a
/// Service, and a little.
const LAST_RETRIES: Duration = Duration::from_secs(5 * 60 + 30);

/// The flags of a slow lease.
const SLOW_LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=45s",
    "--leader-elect-renew-deadline=30s",
    "--leader-elect-retry-period=6s",
];

/// What is done and what goes wrong.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything that is random.
    pub seed: u64,
    /// Whether operations take seeded times.
    pub seeded_latency: bool,
    /// Which of the controllers for pod networks run.
    pub network: Network,
    /// How many managers run; more than one elect a leader.
    pub replicas: usize,
    /// Whether the lease is renewed three times as slowly as by default: most requests of a run
    /// with two managers are renewals.
    pub slow_lease: bool,
    /// How often a load balancer is verified although nothing changed; the default if `None`.
    pub verify_minutes: Option<u32>,
    /// How long a dead manager stays dead.
    pub restart_after: Duration,
    /// How long is looked whether nothing happens at the end.
    pub quiet: Duration,
    /// Before the part that is looked at: undisturbed, up to the desired state.
    pub before: Vec<Timed>,
    /// The part that is looked at.
    pub events: Vec<Timed>,
    /// A blow on the operation of this number, counted from the end of the part before.
    pub blow: Option<(u32, Blow)>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            seeded_latency: false,
            network: Network::None,
            replicas: 1,
            slow_lease: false,
            verify_minutes: None,
            restart_after: Duration::from_secs(1),
            quiet: QUIET,
            before: Vec::new(),
            events: Vec::new(),
            blow: None,
        }
    }
}

impl Plan {
    fn flags(&self) -> Vec<String> {
        let verify = self.verify_minutes;
        let mut flags: Vec<String> = verify
            .map(|minutes| format!("--service-verify-period={minutes}m"))
            .into_iter()
            .collect();
        if self.slow_lease {
            flags.extend(SLOW_LEASE.map(str::to_owned));
        }
        flags
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first rule that did not hold.
    pub violation: Option<Violation>,
    /// The operations after the part before and until the quiet.
    pub ops: Vec<Op>,
    /// The record as text.
    pub trace: String,
    /// How long after the last event the desired state was reached.
    pub converged_in: Duration,
}

/// Carries out a plan on a runtime of its own.
///
/// # Errors
/// The world cannot be set up.
pub fn run(plan: &Plan, plant: &Plant) -> Result<Report> {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    runtime.block_on(carry_out(plan, plant))
}

async fn carry_out(plan: &Plan, plant: &Plant) -> Result<Report> {
    let options = Options {
        seed: plan.seed,
        latency: if plan.seeded_latency {
            Latency::Seeded(plan.seed)
        } else {
            Latency::Even
        },
        network: plan.network,
        replicas: plan.replicas,
        flags: plan.flags(),
        restart_after: plan.restart_after,
    };
    let mut run = Run {
        world: World::new(options, plant.clone())?,
        converged_in: Duration::ZERO,
        quiet_from: u32::MAX,
    };
    let mut first = 0;
    if run.events(&plan.before).await? && run.settle("before").await? {
        first = run.world.lines.trace.count();
        run.world
            .lines
            .trace
            .world("the part that is looked at begins");
        if let Some((number, blow)) = plan.blow {
            let aim = Aim::Number(first.saturating_add(number));
            run.world.lines.fates.arm(aim, blow);
        }
        run.finish(plan).await?;
    }
    let trace = &run.world.lines.trace;
    let mut ops = trace.ops_from(first);
    ops.retain(|op| op.index < run.quiet_from);
    Ok(Report {
        violation: run.world.lines.judge.verdict(),
        ops,
        trace: trace.text(),
        converged_in: run.converged_in,
    })
}

struct Run {
    world: World,
    converged_in: Duration,
    quiet_from: u32,
}

impl Run {
    fn is_fair(&self) -> bool {
        self.world.lines.judge.verdict().is_none()
    }

    fn reached(&self) -> Result<(), String> {
        let forgiven = self.world.lines.judge.forgiven();
        let network = self.world.network();
        goal::reached(
            &self.world.kube,
            &self.world.cloud.now(),
            network,
            &forgiven,
        )
    }

    /// Whether no rule was violated meanwhile.
    async fn events(&mut self, events: &[Timed]) -> Result<bool> {
        for Timed { after, event } in events {
            self.world.pass(*after).await?;
            match event {
                Event::Do(step) => self.world.step(step),
                Event::Have(trouble) => self.world.trouble(trouble).await,
                Event::Settle => {
                    self.settle("in between").await?;
                }
            }
            if !self.is_fair() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn finish(&mut self, plan: &Plan) -> Result<()> {
        if !self.events(&plan.events).await? {
            return Ok(());
        }
        // What was begun meets the trouble that is armed.
        self.world.pass(Duration::from_secs(2)).await?;
        self.world.heal();
        if self.settle("at the end").await? {
            self.quiet(plan).await?;
        }
        Ok(())
    }

    /// Waits for the desired state. Whether it is reached and no rule was violated.
    async fn settle(&mut self, when: &str) -> Result<bool> {
        let start = Instant::now();
        loop {
            self.world.pass(LOOK_EVERY).await?;
            if !self.is_fair() {
                return Ok(false);
            }
            let awaited = self.world.awaits().map(str::to_owned);
            let Some(reason) = self.reached().err().or(awaited) else {
                self.converged_in = start.elapsed();
                return Ok(true);
            };
            if start.elapsed() > CONVERGES_WITHIN {
                let services = self.world.kube.list("services");
                let forgiven = self.world.lines.judge.forgiven();
                let left = goal::leftover(&services, &self.world.cloud.now(), &forgiven).is_err();
                let rule = if left {
                    Rule::Leftover
                } else {
                    Rule::Convergence
                };
                self.world
                    .lines
                    .judge
                    .violated(rule, format!("{when}: {reason}"));
                return Ok(false);
            }
        }
    }

    /// Nothing happens, and nothing may be done but the periodic reads.
    async fn quiet(&mut self, plan: &Plan) -> Result<()> {
        let troubled = plan
            .events
            .iter()
            .any(|timed| matches!(timed.event, Event::Have(_)));
        let rest = if troubled { LAST_RETRIES } else { LAST_WORDS };
        self.world.pass(rest).await?;
        let first = self.world.lines.trace.count();
        self.quiet_from = first;
        self.world.is_quiet = true;
        self.world.lines.trace.world("the quiet begins");
        self.world.pass(plan.quiet).await?;
        let ops = self.world.lines.trace.ops_from(first);
        if let Some(reason) = noise(&ops, &self.world, plan) {
            self.world.lines.judge.violated(Rule::Quiet, reason);
        }
        if let Err(reason) = self.reached() {
            let text = format!("after the quiet: {reason}");
            self.world.lines.judge.violated(Rule::Convergence, text);
        }
        Ok(())
    }
}

/// What is more than the stated periodic operations: machines are described every five minutes, and
/// listed every five seconds while a Node is not Ready; a load balancer is verified once in a while.
fn noise(ops: &[Op], world: &World, plan: &Plan) -> Option<String> {
    let written = |op: &&Op| {
        let writes = matches!(op.kind, Kind::ApiWrite | Kind::CloudWrite);
        writes && !op.text.contains(" leases.")
    };
    if let Some(op) = ops.iter().find(written) {
        return Some(format!("{} at {:?}", op.text, op.at));
    }
    let every =
        |seconds: u64| usize::try_from(plan.quiet.as_secs() / seconds).unwrap_or(usize::MAX);
    let services = world.kube.list("services").len();
    let nodes = world.kube.list("nodes");
    let all_ready = nodes.iter().all(|node| condition(node, "Ready") == "True");
    let verified = every(u64::from(plan.verify_minutes.unwrap_or(30)) * 60) + 1;
    let count = |start: &str| ops.iter().filter(|op| op.text.starts_with(start)).count();
    let listed = if all_ready { 0 } else { every(5) + 1 };
    let limits = [
        ("get-head", services * verified),
        ("get-backends", services * verified),
        ("get-firewall", services * verified),
        ("get-address", services * verified),
        ("describe-machines", every(300) + 1),
        ("describe-ranges", 0),
        ("list-machines", listed),
        ("get-machine", 0),
        ("list-routes", every(10) + 1),
    ];
    let (what, limit) = limits
        .into_iter()
        .find(|(what, limit)| count(what) > *limit)?;
    Some(format!(
        "{what} {} times, at most {limit} are periodic",
        count(what)
    ))
}
