//! Random workloads with random trouble, from seeds.

use ccm_simulation::{
    crash::in_parallel, random, report::Failure, run::run, scenarios, world::Plant,
};

/// What the default run tries; `cargo xtask sim --seeds N` tries more.
const SEEDS: u64 = 200;

/// CASE-OPS-01, CASE-OPS-02, CASE-LB-08, CASE-LIFE-01
#[test]
fn every_rule_holds_for_two_hundred_seeds() {
    let seeds: Vec<u64> = (0..SEEDS).collect();
    let plant = Plant::none();
    let failures: Vec<Failure> = in_parallel(&seeds, |seed| {
        let plan = random::plan(None, *seed);
        let report = run(&plan, &plant)?;
        Failure::of("random", &plan, &plant, &report)
    })
    .unwrap()
    .into_iter()
    .flatten()
    .collect();
    let texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(
        texts.is_empty(),
        "{} of {SEEDS} seeds fail:\n{}",
        texts.len(),
        texts.join("\n")
    );
}

/// The same seed gives the same record, byte for byte; another seed another one.
#[test]
fn the_same_seed_gives_the_same_record() {
    let plant = Plant::none();
    let record = |seed| run(&random::plan(None, seed), &plant).unwrap().trace;
    for seed in [3, 4, 5] {
        let (first, second) = (record(seed), record(seed));
        assert!(first.lines().count() > 50, "{first}");
        for (a, b) in first.lines().zip(second.lines()) {
            assert_eq!(a, b, "seed {seed}");
        }
        assert_eq!(first, second, "seed {seed}");
    }
    assert_ne!(record(3), record(4));
}

/// A scenario with trouble is a plan of a seed as well.
#[test]
fn trouble_in_a_canonical_scenario_heals() {
    let plant = Plant::none();
    let cases: Vec<_> = scenarios::all()
        .into_iter()
        .map(|scenario| (scenario, 1))
        .collect();
    let failures = in_parallel(&cases, |(scenario, seed)| {
        let plan = random::plan(Some(scenario), *seed);
        let report = run(&plan, &plant)?;
        Failure::of(scenario.name, &plan, &plant, &report)
    });
    let texts: Vec<String> = failures
        .unwrap()
        .iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    assert!(texts.is_empty(), "{}", texts.join("\n"));
}
