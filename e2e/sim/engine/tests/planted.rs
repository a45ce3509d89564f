//! The simulation can fail: each defect that is planted here is found.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is how a test fails"
)]

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use ccm_core::{
    cloud::{CloudError, CloudResult, Power, Presence},
    kube::Service,
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
    run::run,
    scenarios,
    world::Plant,
};

/// Seeds that are tried where no canonical scenario shows the defect.
const SEEDS: u64 = 60;

/// The first run that violates a rule: a scenario undisturbed, one of its crash points, or a seed.
fn found(craft: impl Craft + 'static, scenario: &str) -> Option<(String, Rule)> {
    let plant = Plant {
        craft: Arc::new(craft),
        wiretap: None,
    };
    let scenario = scenarios::named(scenario).unwrap();
    let rule = |violation: Option<ccm_simulation::judge::Violation>| violation.map(|v| v.rule);
    let undisturbed = run(&scenario.plan, &plant).unwrap();
    if let Some(rule) = rule(undisturbed.violation) {
        return Some((scenario.name.to_owned(), rule));
    }
    for point in crash::points(&undisturbed.ops) {
        let report = run(&crash::plan_at(&scenario.plan, &point), &plant).unwrap();
        if let Some(rule) = rule(report.violation) {
            return Some((format!("{} {point:?}", scenario.name), rule));
        }
    }
    (0..SEEDS).find_map(|seed| {
        let report = run(&random::plan(Some(&scenario), seed), &plant).unwrap();
        rule(report.violation).map(|rule| (format!("{} seed {seed}", scenario.name), rule))
    })
}

fn must_find(craft: impl Craft + 'static, scenario: &str, rules: &[Rule]) {
    let found = found(craft, scenario);
    let (at, rule) = found.unwrap_or_else(|| panic!("{scenario}: the defect was not found"));
    println!("{at}: {rule:?}");
    assert!(rules.contains(&rule), "{at}: {rule:?}");
}

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
