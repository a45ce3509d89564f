//! The canonical scenarios: one thing that happens in a cluster each. Every crash point of each is
//! tried.

use std::time::Duration;

use crate::{
    cloud::model::PartKind,
    run::Plan,
    steps::{Step, Timed},
    world::Network,
};

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How it is called on the command line.
    pub name: &'static str,
    /// What happens.
    pub plan: Plan,
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    let mut all = nodes();
    all.extend(services());
    all.extend(routes());
    all.extend(leaders());
    all
}

/// The scenario of a name.
pub fn named(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}

fn work(steps: &[(u64, Step)]) -> Vec<Timed> {
    let timed = |(after, step): &(u64, Step)| Timed::work(*after, step.clone());
    steps.iter().map(timed).collect()
}

fn scenario(name: &'static str, before: &[(u64, Step)], events: &[(u64, Step)]) -> Scenario {
    Scenario {
        name,
        plan: Plan {
            seed: 1,
            before: work(before),
            events: work(events),
            ..Plan::default()
        },
    }
}

fn nodes() -> Vec<Scenario> {
    use Step::{Drain, Exclude, Join, NotReady, Ready, Replace, Start, Stop, Terminate};
    let one = [(0, Join("n1")), (0, Join("n2"))];
    vec![
        scenario("node-join", &[], &[(0, Join("n1")), (10, Join("n2"))]),
        scenario(
            "node-reboot",
            &one,
            &[(0, Stop("n1")), (12_000, Start("n1"))],
        ),
        scenario(
            "node-flap",
            &one,
            &[(0, NotReady("n1")), (7_000, Ready("n1"))],
        ),
        scenario("node-gone", &one, &[(0, Terminate("n1"))]),
        scenario("node-drained", &one, &[(0, Drain("n1"))]),
        scenario("node-replaced", &one, &[(0, Replace("n1"))]),
        scenario(
            "node-gone-and-back",
            &one,
            &[(0, Terminate("n1")), (30_000, Join("n1"))],
        ),
        scenario(
            "nodes-behind-services",
            &[(0, Join("n1")), (0, Step::Create("s1", &[80]))],
            &[
                (0, Join("n2")),
                (3_000, Exclude("n1", true)),
                (3_000, Drain("n2")),
            ],
        ),
    ]
}

/// Pod address ranges and routes.
fn routes() -> Vec<Scenario> {
    use Step::{BreakRoute, Drain, Join, Replace, Terminate};
    let nodes = [(0, Join("n1")), (0, Join("n2"))];
    let over = |network: Network, mut scenario: Scenario| {
        scenario.plan.network = network;
        scenario
    };
    vec![
        over(Network::Routes, scenario("routes-join", &[], &nodes)),
        over(
            Network::Routes,
            scenario("routes-gone", &nodes, &[(0, Terminate("n1"))]),
        ),
        over(
            Network::Routes,
            scenario("routes-replaced", &nodes, &[(0, Replace("n1"))]),
        ),
        over(
            Network::Routes,
            scenario("routes-drift", &nodes, &[(0, BreakRoute("n1"))]),
        ),
        over(Network::Watched, scenario("routes-watched", &[], &nodes)),
        over(
            Network::Watched,
            scenario("routes-watched-replaced", &nodes, &[(0, Replace("n1"))]),
        ),
        over(Network::Dual, scenario("dual-join", &[], &nodes)),
        over(
            Network::Dual,
            scenario("dual-replaced", &nodes, &[(0, Replace("n1"))]),
        ),
        over(
            Network::Dual,
            scenario(
                "dual-service",
                &[(0, Join("n1"))],
                &[
                    (0, Step::Create("s1", &[80])),
                    (1_000, Step::ClearStatus("s1")),
                    (1_000, Step::Delete("s1")),
                ],
            ),
        ),
        over(Network::Copied, scenario("copied-join", &[], &nodes)),
        over(
            Network::Copied,
            scenario("copied-replaced", &nodes, &[(0, Replace("n1"))]),
        ),
        over(Network::Allocated, scenario("ranges-join", &[], &nodes)),
        over(
            Network::Allocated,
            scenario(
                "ranges-replaced",
                &nodes,
                &[(0, Drain("n2")), (0, Replace("n1"))],
            ),
        ),
    ]
}

/// Two managers, of which one leads: whoever dies, the other one goes on.
fn leaders() -> Vec<Scenario> {
    use Step::{Create, Delete, Join};
    let both = |mut scenario: Scenario| {
        scenario.plan.replicas = 2;
        scenario.plan.slow_lease = true;
        scenario.plan.restart_after = Duration::from_secs(30);
        scenario
    };
    vec![
        both(scenario("leader-node-join", &[], &[(0, Join("n1"))])),
        both(scenario(
            "leader-service",
            &[(0, Join("n1"))],
            &[(0, Create("s1", &[80])), (1_000, Delete("s1"))],
        )),
    ]
}

fn services() -> Vec<Scenario> {
    use Step::{
        Annotate, Break, ClearStatus, Create, CreateForeign, Delete, Join, Ports, Ranges, Recreate,
        Retype, StripFinalizer,
    };
    let node = [(0, Join("n1"))];
    let served = [(0, Join("n1")), (0, Create("s1", &[80]))];
    let mut drift = scenario(
        "service-drift",
        &served,
        &[(0, Break("s1", PartKind::Backends))],
    );
    drift.plan.verify_minutes = Some(2);
    vec![
        scenario("service-create", &node, &[(0, Create("s1", &[80, 443]))]),
        scenario("service-delete", &served, &[(0, Delete("s1"))]),
        scenario(
            "service-change",
            &served,
            &[
                (0, Ports("s1", &[80, 8080])),
                (1_000, Ranges("s1", &["10.0.0.0/8"])),
                (1_000, Annotate("s1", "x")),
            ],
        ),
        scenario(
            "service-create-delete",
            &node,
            &[(0, Create("s1", &[80])), (130, Delete("s1"))],
        ),
        scenario(
            "service-retype",
            &served,
            &[(0, Retype("s1", false)), (2_000, Retype("s1", true))],
        ),
        scenario(
            "service-retype-fast",
            &served,
            &[(0, Retype("s1", false)), (200, Retype("s1", true))],
        ),
        scenario("service-recreate", &served, &[(0, Recreate("s1", &[443]))]),
        scenario(
            "service-stripped-finalizer",
            &served,
            &[(0, StripFinalizer("s1"))],
        ),
        scenario("service-cleared-status", &served, &[(0, ClearStatus("s1"))]),
        scenario(
            "service-foreign-class",
            &served,
            &[(0, CreateForeign("s2"))],
        ),
        drift,
    ]
}

/// How long a scenario's events take.
pub fn length(plan: &Plan) -> Duration {
    plan.events.iter().map(|timed| timed.after).sum()
}
