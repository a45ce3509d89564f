//! Providers that decide wrongly.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use ccm_core::{
    cloud::{CloudError, CloudResult, Power, Presence, Route},
    kube::{Node, Service},
};
use ccm_simulation::{
    cloud::{
        Craft,
        craft::{Action, Parts, removal},
        model::{Machine, Part, PartKind, State},
    },
    crash,
    judge::Rule,
    random,
    report::Failure,
    run::run,
    scenarios,
    shrink::keep,
    steps::Step,
    world::Plant,
};

use crate::{SEEDS, crafted, must_find, must_find_in, scenario};

struct ForgetsTheFirewall;

impl Craft for ForgetsTheFirewall {
    fn removal(&self, have: &Parts) -> Vec<Action> {
        let mut rest = have.clone();
        rest.remove(&PartKind::Firewall);
        removal(&rest)
    }
}

#[test]
fn a_delete_that_forgets_a_part_is_found() {
    must_find(ForgetsTheFirewall, "service-delete", &[Rule::FinalizerLast]);
}

#[derive(Default)]
struct NamesNotFromTheUid(AtomicU32);

impl Craft for NamesNotFromTheUid {
    fn name(&self, _service: &Service) -> CloudResult<String> {
        Ok(format!("lb-{}", self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

#[test]
fn a_provider_that_makes_twins_is_found() {
    must_find(
        NamesNotFromTheUid::default(),
        "service-create",
        &[Rule::Twins],
    );
}

struct FailedDeletesAreFine;

impl Craft for FailedDeletesAreFine {
    fn change_failed(&self, action: &Action, error: CloudError) -> CloudResult<()> {
        match action {
            Action::Delete(..) => Ok(()),
            _ => Err(error),
        }
    }
}

#[test]
fn a_delete_that_succeeds_although_a_part_failed_is_found() {
    must_find(
        FailedDeletesAreFine,
        "service-delete",
        &[Rule::FinalizerLast, Rule::Leftover],
    );
}

struct ErrorsProveAbsence;

impl Craft for ErrorsProveAbsence {
    fn presence(&self, answer: CloudResult<Option<Machine>>) -> CloudResult<Presence> {
        Ok(match answer {
            Ok(Some(machine)) if machine.state == State::Stopped => {
                Presence::Present(Power::Stopped)
            }
            Ok(Some(_)) => Presence::Present(Power::Running),
            Ok(None) | Err(_) => Presence::Absent,
        })
    }
}

#[test]
fn a_presence_that_takes_an_error_for_absence_is_found() {
    must_find(ErrorsProveAbsence, "node-reboot", &[Rule::WrongDeletion]);
}

/// What is told of a failure: the rule, the seed, the events that are enough, and a command that
/// shows it again.
#[test]
fn a_failing_seed_is_shrunk_and_told_with_the_command_to_replay_it() {
    let plant = Plant {
        craft: Arc::new(ErrorsProveAbsence),
        wiretap: None,
    };
    let scenario = scenarios::named("node-reboot").unwrap();
    let (plan, report) = (0..SEEDS)
        .map(|seed| random::plan(Some(&scenario), seed))
        .map(|plan| (plan.clone(), run(&plan, &plant).unwrap()))
        .find(|(_, report)| report.violation.is_some())
        .unwrap();
    let failure = Failure::of("node-reboot", &plan, &plant, &report).unwrap();
    let failure = failure.unwrap();
    let text = failure.to_string();
    println!("{text}");
    assert!(text.starts_with("node-reboot: WrongDeletion at "), "{text}");
    assert!(
        text.contains(&format!("\n  seed {}\n", plan.seed)),
        "{text}"
    );
    let command = format!(
        "cargo xtask sim --scenario node-reboot --seed {}",
        plan.seed
    );
    assert!(text.contains(&command), "{text}");
    assert!(failure.kept.len() < plan.events.len(), "{text}");
    let again = run(&keep(&plan, &failure.kept), &plant).unwrap();
    assert_eq!(again.trace, failure.trace);
    assert_eq!(again.violation.unwrap().rule, Rule::WrongDeletion);
}

/// A crash point is told as a seed is.
#[test]
fn a_failing_crash_point_is_shrunk_and_told_with_the_command_to_replay_it() {
    use Step::{Annotate, Delete};
    let before = [(0, Step::Join("n1")), (0, Step::Create("s1", &[80]))];
    let events = [(0, Annotate("s1", "x")), (1_000, Delete("s1"))];
    let scenario = scenario("annotated", &before, &events);
    let points = crash::enumerate(&scenario.plan, &Plant::none()).unwrap();
    let plant = crafted(ForgetsTheFirewall);
    let plan = crash::plan_at(&scenario.plan, points.last().unwrap());
    let report = run(&plan, &plant).unwrap();
    let failure = Failure::of("annotated", &plan, &plant, &report).unwrap();
    let failure = failure.unwrap();
    let text = failure.to_string();
    println!("{text}");
    let (number, _) = plan.blow.unwrap();
    assert!(text.starts_with("annotated: FinalizerLast at "), "{text}");
    assert!(
        text.contains(&format!("\n  CrashAfter at operation {number}\n")),
        "{text}"
    );
    assert!(text.contains("1 of 2 events are enough:"), "{text}");
    let command = format!("cargo xtask sim --scenario annotated --crash after:{number} --keep 1");
    assert!(text.contains(&command), "{text}");
    let again = run(&keep(&plan, &failure.kept), &plant).unwrap();
    assert_eq!(again.trace, failure.trace);
    assert_eq!(again.violation.unwrap().rule, Rule::FinalizerLast);
}

struct UnreadIsAbsent;

impl Craft for UnreadIsAbsent {
    fn read_failed(&self, _error: CloudError) -> CloudResult<Option<Part>> {
        Ok(None)
    }
}

#[test]
fn a_look_at_a_part_that_takes_an_error_for_absence_is_found() {
    must_find(
        UnreadIsAbsent,
        "service-delete",
        &[Rule::FinalizerLast, Rule::Leftover],
    );
}

/// What the call before was given, by Service.
#[derive(Default)]
struct OlderNodes(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl Craft for OlderNodes {
    fn members(&self, service: &Service, nodes: &[Arc<Node>]) -> BTreeSet<String> {
        let ids = nodes.iter().filter_map(|node| node.provider_id());
        let given: BTreeSet<String> = ids.map(str::to_owned).collect();
        let mut before = self.0.lock().unwrap();
        let before = before.insert(service.uid().to_owned(), given.clone());
        before.unwrap_or(given)
    }
}

#[test]
fn an_update_that_applies_an_older_set_of_nodes_is_found() {
    must_find(
        OlderNodes::default(),
        "nodes-behind-services",
        &[Rule::Convergence],
    );
}

/// The machines as they were when they were listed first.
#[derive(Default)]
struct OldList(OnceLock<BTreeMap<String, Machine>>);

impl Craft for OldList {
    fn machines(&self, seen: &BTreeMap<String, Machine>) -> BTreeMap<String, Machine> {
        self.0.get_or_init(|| seen.clone()).clone()
    }
}

#[test]
fn an_old_list_as_proof_of_absence_is_found() {
    use Step::{Join, NotReady};
    let plant = Plant {
        craft: Arc::new(OldList::default()),
        wiretap: None,
    };
    let events = [
        (0, NotReady("n1")),
        (12_000, Join("n2")),
        (12_000, NotReady("n2")),
    ];
    let scenario = scenario("node-after-a-list", &[(0, Join("n1"))], &events);
    must_find_in(&plant, &scenario, &[Rule::WrongDeletion]);
}

struct EveryTargetIsGone;

impl Craft for EveryTargetIsGone {
    fn shown(&self, route: Route) -> Route {
        Route {
            target_node: String::new(),
            blackhole: true,
            ..route
        }
    }
}

#[test]
fn a_deletion_of_routes_that_are_needed_is_found() {
    must_find(EveryTargetIsGone, "routes-join", &[Rule::WrongRoute]);
}

/// Shows a route of others as one from the range of pods.
struct ReadsRangesWrong;

impl Craft for ReadsRangesWrong {
    fn shown(&self, route: Route) -> Route {
        Route {
            destination_cidr: route.destination_cidr.replace("10.243.", "10.244."),
            ..route
        }
    }
}

#[test]
fn a_deletion_of_a_route_outside_the_cluster_is_found() {
    must_find(ReadsRangesWrong, "routes-join", &[Rule::ForeignCloud]);
}

struct OneNameForAll;

impl Craft for OneNameForAll {
    fn name(&self, _service: &Service) -> CloudResult<String> {
        Ok("lb".to_owned())
    }
}

#[test]
fn a_load_balancer_that_two_services_share_is_found() {
    use Step::{Create, Join};
    let plant = Plant {
        craft: Arc::new(OneNameForAll),
        wiretap: None,
    };
    let before = [(0, Join("n1")), (0, Create("s1", &[80]))];
    let scenario = scenario("second-service", &before, &[(0, Create("s2", &[443]))]);
    must_find_in(&plant, &scenario, &[Rule::WrongStatus]);
}
