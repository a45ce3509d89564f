//! The simulation can fail: each defect that is planted here is found.
//!
//! A defect stands in place of a part of the honest one: a decision of the provider
//! ([`providers`]), or what the manager's requests do at the API server ([`requests`]). It is
//! looked for in one scenario: undisturbed, at its crash points, with the trouble of a bounded
//! number of seeds.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is how a test fails"
)]

#[path = "planted/events.rs"]
mod events;
#[path = "planted/families.rs"]
mod families;
#[path = "planted/fence.rs"]
mod fence;
#[path = "planted/late.rs"]
mod late;
#[path = "planted/paused.rs"]
mod paused;
#[path = "planted/providers.rs"]
mod providers;
#[path = "planted/requests.rs"]
mod requests;
#[path = "planted/watches.rs"]
mod watches;

use std::sync::Arc;

use ccm_simulation::{
    cloud::{Craft, craft::Honest},
    crash,
    judge::{Rule, Violation},
    random,
    run::{Plan, run},
    scenarios::{self, Scenario},
    steps::{Step, Timed, Trouble},
    tap::Wiretap,
    world::Plant,
};

/// Seeds that are tried where neither the scenario nor a crash point of it shows the defect.
const SEEDS: u64 = 60;

/// The first run that violates a rule, and how many were needed.
fn found(plant: &Plant, scenario: &Scenario) -> Option<(String, Rule)> {
    let rule = |violation: Option<Violation>| violation.map(|violation| violation.rule);
    let undisturbed = run(&scenario.plan, plant).unwrap();
    if let Some(rule) = rule(undisturbed.violation) {
        return Some(("undisturbed".to_owned(), rule));
    }
    for point in crash::points(&undisturbed.ops) {
        let report = run(&crash::plan_at(&scenario.plan, &point), plant).unwrap();
        if let Some(rule) = rule(report.violation) {
            return Some((format!("{point:?}"), rule));
        }
    }
    (0..SEEDS).find_map(|seed| {
        let report = run(&random::plan(Some(scenario), seed), plant).unwrap();
        rule(report.violation).map(|rule| (format!("seed {seed}"), rule))
    })
}

fn must_find_in(plant: &Plant, scenario: &Scenario, rules: &[Rule]) {
    let name = scenario.name;
    let honest = run(&scenario.plan, &Plant::none()).unwrap();
    assert_eq!(honest.violation, None, "{name} without any defect");
    let found = found(plant, scenario);
    let (at, rule) = found.unwrap_or_else(|| panic!("{name}: the defect was not found"));
    println!("{name}, {at}: {rule:?}");
    assert!(rules.contains(&rule), "{name}, {at}: {rule:?}");
}

/// The rule that a plan violates, if any.
fn violated(plan: &Plan, plant: &Plant) -> Option<Rule> {
    let report = run(plan, plant).unwrap();
    report.violation.map(|violation| violation.rule)
}

/// The defect shows with the trouble as the first event, and without any, or with one of the
/// `others`, it does not. Nothing shows without the defect.
fn shows_only_with(
    trouble: Trouble,
    others: &[Trouble],
    plant: impl Fn() -> Plant,
    scenario: &Scenario,
    rules: &[Rule],
) {
    let with = |trouble: Trouble| {
        let mut plan = scenario.plan.clone();
        plan.events.insert(0, Timed::trouble(0, trouble));
        plan
    };
    assert_eq!(violated(&scenario.plan, &plant()), None, "without trouble");
    for other in others {
        let plan = with(other.clone());
        assert_eq!(violated(&plan, &plant()), None, "with {other:?}");
    }
    let plan = with(trouble);
    assert_eq!(violated(&plan, &Plant::none()), None, "without the defect");
    let report = run(&plan, &plant()).unwrap();
    let violation = report
        .violation
        .unwrap_or_else(|| panic!("{}", report.trace));
    assert!(rules.contains(&violation.rule), "{violation}");
}

/// A defect of the provider.
fn crafted(craft: impl Craft + 'static) -> Plant {
    Plant {
        craft: Arc::new(craft),
        wiretap: None,
    }
}

/// A defect of the provider is found.
fn must_find(craft: impl Craft + 'static, scenario: &str, rules: &[Rule]) {
    must_find_in(&crafted(craft), &scenarios::named(scenario).unwrap(), rules);
}

/// What stands between the manager and the API server.
fn tapped(wiretap: impl Wiretap + 'static) -> Plant {
    Plant {
        craft: Arc::new(Honest),
        wiretap: Some(Arc::new(wiretap)),
    }
}

/// A scenario that no canonical one is: without trouble and defects every rule holds.
fn scenario(name: &'static str, before: &[(u64, Step)], events: &[(u64, Step)]) -> Scenario {
    let work = |steps: &[(u64, Step)]| {
        let timed = |(after, step): &(u64, Step)| Timed::work(*after, step.clone());
        steps.iter().map(timed).collect()
    };
    let plan = Plan {
        before: work(before),
        events: work(events),
        ..Plan::default()
    };
    Scenario { name, plan }
}
