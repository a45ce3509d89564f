//! An old leader that wakes up.

use std::time::Duration;

use ccm_simulation::{
    cloud::Craft,
    judge::Rule,
    run::Plan,
    scenarios::Scenario,
    steps::{Step, Timed, Trouble},
    world::Plant,
};

use crate::{crafted, scenario, violated};

/// Longer than the lease of 15 seconds, and than a takeover.
const PAUSE: Duration = Duration::from_secs(40);

/// Moments of the making of a load balancer, in milliseconds: before, in and after every call.
const MOMENTS: std::ops::Range<u64> = 100..190;

struct IgnoresTheFence;

impl Craft for IgnoresTheFence {
    fn heeds_fence(&self) -> bool {
        false
    }
}

fn paused_at(moment: u64, trouble: Trouble) -> Scenario {
    use Step::{Create, Join};
    let events = [(0, Create("s1", &[80]))];
    let mut scenario = scenario("leader-wakes-up", &[(0, Join("n1"))], &events);
    scenario.plan = Plan {
        replicas: 2,
        restart_after: Duration::from_secs(20),
        quiet: Duration::from_secs(20),
        ..scenario.plan
    };
    // The last one keeps the end of all trouble away.
    scenario.plan.events.extend([
        Timed::trouble(moment, trouble),
        Timed::work(60_000, Step::Ready("n1")),
    ]);
    scenario
}

/// The moments at which the rule of the fence is violated.
fn found_at(trouble: &Trouble, plant: &Plant) -> Vec<u64> {
    let mut found = Vec::new();
    for moment in MOMENTS.step_by(9) {
        match violated(&paused_at(moment, trouble.clone()).plan, plant) {
            None => {}
            Some(rule) => {
                assert_eq!(rule, Rule::Fence, "{trouble:?} after {moment} ms");
                found.push(moment);
            }
        }
    }
    found
}

/// CASE-LEAD-01
#[test]
fn a_leader_that_wakes_up_into_a_clock_that_jumped_is_found_if_it_goes_on() {
    let suspended = Trouble::Suspend(PAUSE);
    assert!(found_at(&suspended, &Plant::none()).is_empty());
    assert!(!found_at(&suspended, &crafted(IgnoresTheFence)).is_empty());
}

/// CASE-LEAD-01
#[test]
fn a_leader_that_wakes_up_when_another_one_leads_is_found_if_it_goes_on() {
    let frozen = Trouble::Freeze(PAUSE);
    assert!(found_at(&frozen, &Plant::none()).is_empty());
    assert!(!found_at(&frozen, &crafted(IgnoresTheFence)).is_empty());
}
