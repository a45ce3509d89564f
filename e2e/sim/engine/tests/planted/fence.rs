//! Two managers at work at once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use ccm_kubesim::KubeSim;
use ccm_simulation::{
    cloud::Craft,
    fate::{Aim, Blow},
    judge::Rule,
    run::{Plan, run},
    scenarios::Scenario,
    steps::{Step, Timed, Trouble},
    tap::{ApiCall, Wiretap},
    trace::Kind,
    world::Plant,
};
use http::StatusCode;
use serde_json::Value;

use crate::{must_find_in, scenario, tapped};

/// Its calls are slow and go on when nobody waits for them any more.
struct Slow {
    heeds_fence: bool,
}

impl Craft for Slow {
    /// Longer than the grace that a manager has to end, and shorter than that with the last events.
    fn pause(&self) -> Duration {
        Duration::from_millis(11_500)
    }

    fn detaches(&self) -> bool {
        true
    }

    fn heeds_fence(&self) -> bool {
        self.heeds_fence
    }
}

fn slow(heeds_fence: bool) -> Plant {
    Plant {
        craft: Arc::new(Slow { heeds_fence }),
        wiretap: None,
    }
}

/// The manager that leads shuts down while a load balancer is made. The work is cut off, the fence
/// is shut, and its last event keeps the process from ending for three seconds.
fn handed_over() -> Scenario {
    let late_events = Aim::Next {
        kind: Some(Kind::ApiWrite),
        part: "events".to_owned(),
        skip: 0,
    };
    let mut scenario = scenario("leader-hands-over", &[(0, Step::Join("n1"))], &[]);
    scenario.plan = Plan {
        replicas: 2,
        restart_after: Duration::from_secs(30),
        events: vec![
            Timed::trouble(
                60_000,
                Trouble::Strike(late_events, Blow::Slow(Duration::from_secs(60))),
            ),
            Timed::work(0, Step::Create("s1", &[80])),
            Timed::trouble(500, Trouble::Shutdown),
            Timed::trouble(60_000, Trouble::EndWatches),
        ],
        ..scenario.plan
    };
    scenario
}

#[test]
fn a_provider_that_ignores_the_fence_is_found() {
    must_find_in(&slow(false), &handed_over(), &[Rule::Fence]);
}

/// It is the fence that holds the slow provider back, nothing else.
#[test]
fn a_slow_provider_that_asks_the_fence_does_no_harm() {
    let report = run(&handed_over().plan, &slow(true)).unwrap();
    assert_eq!(report.violation, None, "{}", report.trace);
}

/// After some renewals the manager that led first is told that it renewed its lease, and did not.
#[derive(Default)]
struct BelievesThatItLeads {
    first: Mutex<Option<String>>,
    renewals: AtomicU32,
}

/// Renewals that take place.
const TRUE_RENEWALS: u32 = 10;

impl Wiretap for BelievesThatItLeads {
    fn answer(&self, call: &ApiCall, _: &KubeSim) -> Option<(StatusCode, Value)> {
        if !call.resource.starts_with("leases") || !call.verb.is_write() {
            return None;
        }
        let holder = call.body.pointer("/spec/holderIdentity")?.as_str()?;
        let mut first = self.first.lock().unwrap();
        if first.get_or_insert(holder.to_owned()) != holder {
            return None;
        }
        let count = self.renewals.fetch_add(1, Ordering::Relaxed);
        (count >= TRUE_RENEWALS).then(|| (StatusCode::OK, call.body.clone()))
    }
}

#[test]
fn a_leader_that_missed_the_loss_of_its_lease_is_found() {
    use Step::{Create, Join};
    let mut scenario = scenario(
        "leader-for-long",
        &[(0, Join("n1"))],
        &[(90_000, Create("s1", &[80]))],
    );
    scenario.plan.replicas = 2;
    must_find_in(
        &tapped(BelievesThatItLeads::default()),
        &scenario,
        &[Rule::Fence],
    );
}

/// No call of the cloud tells it: Nodes are written to.
#[test]
fn a_leader_that_writes_to_the_api_server_after_the_loss_of_its_lease_is_found() {
    use Step::Join;
    let mut scenario = scenario(
        "leader-for-long",
        &[(0, Join("n1"))],
        &[(90_000, Join("n2"))],
    );
    scenario.plan.replicas = 2;
    must_find_in(
        &tapped(BelievesThatItLeads::default()),
        &scenario,
        &[Rule::Fence],
    );
}
