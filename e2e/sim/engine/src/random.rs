//! From a seed to a plan: what happens, what goes wrong, when, and how long everything takes.

use std::time::Duration;

use ccm_kubesim::Outage;
use fastrand::Rng;

use crate::{
    cloud::model::PartKind,
    fate::{Aim, Blow},
    process::Hush,
    run::Plan,
    scenarios::Scenario,
    steps::{Event, Step, Timed, Trouble, Who},
    trace::Kind,
    world::Network,
};

/// The times between two events, in milliseconds: from the same moment to longer than a watch.
const GAPS: [u64; 10] = [0, 0, 3, 25, 90, 400, 1_500, 6_000, 20_000, 65_000];

/// Machines and Nodes.
const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Services.
const SERVICES: [&str; 2] = ["s1", "s2"];

/// Lists of ports.
const PORTS: [&[i32]; 4] = [&[80], &[443], &[80, 443], &[8080, 80]];

/// Events of a random workload.
const EVENTS: std::ops::Range<usize> = 8..24;

/// Troubles that are mixed into a scenario.
const TROUBLES: std::ops::Range<usize> = 2..8;

/// The plan of a seed: a random workload, or a scenario's, with random trouble.
pub fn plan(scenario: Option<&Scenario>, seed: u64) -> Plan {
    let mut rng = Rng::with_seed(seed);
    // Reads of a new process never lag behind what the one before it wrote: a cloud catches up in
    // less time than a successor needs to start.
    let (restart_after, lag) = if rng.bool() {
        (Duration::from_secs(15), Duration::from_secs(10))
    } else {
        (Duration::from_secs(1), Duration::from_millis(900))
    };
    let mut plan = match scenario {
        Some(scenario) => scenario.plan.clone(),
        None => Plan {
            before: vec![Timed::work(0, Step::Join("n1"))],
            network: one(
                &mut rng,
                &[
                    Network::None,
                    Network::Routes,
                    Network::Watched,
                    Network::Allocated,
                    Network::Dual,
                    Network::Copied,
                ],
            ),
            replicas: one(&mut rng, &[1, 1, 2]),
            slow_lease: true,
            ..Plan::default()
        },
    };
    if scenario.is_some() {
        for _ in 0..rng.usize(TROUBLES) {
            let at = rng.usize(0..=plan.events.len());
            let trouble = Event::Have(trouble(&mut rng, lag));
            plan.events.insert(at, timed(&mut rng, trouble));
        }
    } else {
        for _ in 0..rng.usize(EVENTS) {
            let event = if rng.u8(0..10) < 6 {
                Event::Do(step(&mut rng))
            } else {
                Event::Have(trouble(&mut rng, lag))
            };
            plan.events.push(timed(&mut rng, event));
        }
    }
    Plan {
        seed,
        seeded_latency: true,
        verify_minutes: Some(plan.verify_minutes.unwrap_or(5)),
        restart_after,
        ..plan
    }
}

fn timed(rng: &mut Rng, event: Event) -> Timed {
    Timed {
        after: Duration::from_millis(one(rng, &GAPS)),
        event,
    }
}

/// One of some.
fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    let index = rng.usize(0..of.len().max(1));
    #[expect(clippy::indexing_slicing, reason = "the index is below the length")]
    of[index]
}

fn step(rng: &mut Rng) -> Step {
    let (node, service, ports) = (one(rng, &NODES), one(rng, &SERVICES), one(rng, &PORTS));
    match rng.u8(0..27) {
        0..=3 => Step::Join(node),
        4 => Step::Stop(node),
        5 => Step::Start(node),
        6 => Step::Terminate(node),
        7 => Step::Replace(node),
        8 => Step::Drain(node),
        9 => Step::NotReady(node),
        10 => Step::Ready(node),
        11 => Step::Exclude(node, rng.bool()),
        12..=15 => Step::Create(service, ports),
        16 => Step::Ports(service, ports),
        17 => Step::Ranges(service, one(rng, &[&["10.0.0.0/8"][..], &["192.0.2.0/24"]])),
        18 => Step::Annotate(service, one(rng, &["a", "b"])),
        19 => Step::Retype(service, false),
        20 => Step::Retype(service, true),
        21 => Step::Delete(service),
        22 => Step::Recreate(service, ports),
        23 => Step::StripFinalizer(service),
        24 => Step::ClearStatus(service),
        25 => Step::BreakRoute(node),
        _ => Step::Break(service, one(rng, &PartKind::ALL)),
    }
}

fn trouble(rng: &mut Rng, lag: Duration) -> Trouble {
    let resource = one(rng, &["nodes", "services"]);
    match rng.u8(0..33) {
        0..=12 => strike(rng),
        13 => Trouble::Crash,
        14 if rng.bool() => Trouble::Shutdown,
        14 => Trouble::Crash,
        15 => Trouble::Freeze(Duration::from_secs(one(rng, &[1, 8, 40, 100]))),
        16 | 17 => Trouble::DelayWatches(resource, Duration::from_millis(rng.u64(0..8_000))),
        18 => Trouble::CutWatches,
        19 => Trouble::EndWatches,
        20 => Trouble::Compact,
        21 => {
            let outage = one(rng, &[Outage::Refused, Outage::Status503]);
            Trouble::Away(Duration::from_secs(one(rng, &[2, 15, 120])), outage)
        }
        22 => Trouble::Clock(one(rng, &[-86_400, -300, 40, 3_600])),
        23 => Trouble::ExpireByHttp,
        28..=30 => {
            let who = one(rng, &[Who::Leader, Who::Standby]);
            let hush = one(rng, &[Hush::Late, Hush::Lost]);
            let time = Duration::from_secs(one(rng, &[3, 20, 90]));
            Trouble::Hush(who, resource, hush, time)
        }
        31 => Trouble::Suspend(Duration::from_secs(one(rng, &[4, 30, 100]))),
        24 | 25 => Trouble::CloudAway(Duration::from_secs(one(rng, &[1, 12, 90]))),
        _ => Trouble::CloudLag(lag.mul_f64(rng.f64())),
    }
}

fn strike(rng: &mut Rng) -> Trouble {
    use Blow::{
        Broken, BrokenAfter, Conflict, CrashAfter, CrashBefore, Denied, Gone, Internal, Late, Lost,
        Slow, Throttled,
    };
    let kinds = [
        Kind::ApiRead,
        Kind::ApiWrite,
        Kind::CloudRead,
        Kind::CloudWrite,
    ];
    let kind = one(rng, &kinds);
    let common = [
        CrashBefore,
        CrashAfter,
        Throttled(Duration::from_secs(one(rng, &[1, 7, 30]))),
        Internal,
        Lost,
        Late(Duration::from_secs(one(rng, &[2, 9, 40]))),
        Broken,
        BrokenAfter,
        Slow(Duration::from_millis(rng.u64(50..9_000))),
        Gone,
    ];
    let only_writes = [Conflict, Denied, Conflict];
    let writes = matches!(kind, Kind::ApiWrite | Kind::CloudWrite);
    let blow = if writes && rng.u8(0..4) == 0 {
        one(rng, &only_writes)
    } else {
        one(rng, &common)
    };
    Trouble::Strike(Aim::next(kind, rng.u32(0..7)), blow)
}
