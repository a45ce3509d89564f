//! `ccm-simulate`: runs crash points and seeds, or one of them with its record.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};
use ccm_simulation::{
    crash::{self, Point},
    fate::Blow,
    random,
    report::{self, Failure, command},
    run::run,
    scenarios::{self, Scenario},
    shrink,
    world::Plant,
};
use clap::Parser;

/// The scenario that is no canonical one.
const RANDOM: &str = "random";

/// Failures that are shrunk and told; the others are counted.
const TOLD: usize = 3;

/// Crash points and seeds of the simulation. Without --seed and --crash: every crash point of the
/// scenario, then the seeds; ends with status 1 when a rule was violated.
#[derive(Parser)]
#[command(name = "ccm-simulate")]
struct Cli {
    /// A canonical scenario, `random`, or `all`; `list` prints the names.
    #[arg(long, default_value = "all")]
    scenario: String,
    /// How many seeds of each scenario.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this seed only and print its record.
    #[arg(long, group = "one")]
    seed: Option<u64>,
    /// Run this crash point only and print its record: `before:N` or `after:N`.
    #[arg(long, group = "one")]
    crash: Option<String>,
    /// With --seed or --crash: only these events, by index; `none` for none.
    #[arg(long, requires = "one")]
    keep: Option<String>,
}

fn main() -> ExitCode {
    match work(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all rules held.
fn work(cli: &Cli) -> Result<bool> {
    if cli.scenario == "list" {
        println!("{RANDOM}");
        for scenario in scenarios::all() {
            println!("{}", scenario.name);
        }
        return Ok(true);
    }
    let canonical = match cli.scenario.as_str() {
        "all" => scenarios::all(),
        RANDOM => Vec::new(),
        name => {
            let found = scenarios::named(name);
            vec![found.with_context(|| {
                format!("--scenario {name}: there is none of that name; --scenario list names all")
            })?]
        }
    };
    if cli.seed.is_some() || cli.crash.is_some() {
        return show(cli, canonical.first());
    }
    let mut fair = true;
    for scenario in &canonical {
        fair &= crash_points(scenario)?;
    }
    let range = cli.from..cli.from.saturating_add(cli.seeds);
    if ["all", RANDOM].contains(&cli.scenario.as_str()) {
        return Ok(seeds(None, range)? && fair);
    }
    for scenario in &canonical {
        fair &= seeds(Some(scenario), range.clone())?;
    }
    Ok(fair)
}

/// One run, with its record.
fn show(cli: &Cli, scenario: Option<&Scenario>) -> Result<bool> {
    let scenario = scenario.filter(|_| cli.scenario != "all");
    let plan = match (&cli.crash, cli.seed) {
        (Some(point), _) => {
            let scenario = scenario.context("--crash needs the --scenario it belongs to")?;
            let (when, number) = point.split_once(':').unwrap_or_default();
            let blow = match when {
                "before" => Blow::CrashBefore,
                "after" => Blow::CrashAfter,
                _ => bail!("--crash {point}: write before:N or after:N"),
            };
            let number = number.parse();
            let number = number.with_context(|| format!("--crash {point}: N must be a number"))?;
            let op = String::new();
            crash::plan_at(&scenario.plan, &Point { number, blow, op })
        }
        (None, seed) => random::plan(scenario, seed.unwrap_or_default()),
    };
    let plan = match &cli.keep {
        Some(kept) => shrink::keep(&plan, &indices(kept)?),
        None => plan,
    };
    let report = run(&plan, &Plant::none())?;
    print!("{}", report.trace);
    match &report.violation {
        Some(violation) => println!("{violation}"),
        None => println!("all rules held; at rest after {:?}", report.converged_in),
    }
    Ok(report.violation.is_none())
}

fn indices(kept: &str) -> Result<Vec<usize>> {
    let words = kept.split(',').filter(|_| kept != report::NO_EVENTS);
    words
        .map(str::parse)
        .collect::<Result<_, _>>()
        .with_context(|| format!("--keep {kept}: write numbers separated by commas, or none"))
}

fn crash_points(scenario: &Scenario) -> Result<bool> {
    let plant = Plant::none();
    let (count, failed) = crash::failures(&scenario.plan, &plant)
        .with_context(|| format!("scenario {}", scenario.name))?;
    println!(
        "{:<28}{count:>6} crash points, {} failed",
        scenario.name,
        failed.len()
    );
    for (index, (point, report)) in failed.iter().enumerate() {
        let plan = crash::plan_at(&scenario.plan, point);
        if index >= TOLD {
            println!("also failed: {}", command(scenario.name, &plan));
        } else if let Some(failure) = Failure::of(scenario.name, &plan, &plant, report)? {
            println!("{failure}\n{}", failure.trace);
        }
    }
    Ok(failed.is_empty())
}

fn seeds(scenario: Option<&Scenario>, range: std::ops::Range<u64>) -> Result<bool> {
    let plant = Plant::none();
    let name = scenario.map_or(RANDOM, |scenario| scenario.name);
    let seeds: Vec<u64> = range.collect();
    let done = crash::in_parallel(&seeds, |seed| {
        let plan = random::plan(scenario, *seed);
        run(&plan, &plant).map(|report| (plan, report))
    })?;
    let slowest = done.iter().map(|(_, report)| report.converged_in).max();
    let failed: Vec<_> = done
        .iter()
        .filter(|(_, report)| report.violation.is_some())
        .collect();
    println!(
        "{name:<28}{:>6} seeds, {} failed, at rest after at most {:?}",
        seeds.len(),
        failed.len(),
        slowest.unwrap_or(Duration::ZERO)
    );
    for (plan, report) in failed.iter().take(TOLD) {
        if let Some(failure) = Failure::of(name, plan, &plant, report)? {
            println!("{failure}\n{}", failure.trace);
        }
    }
    let rest: Vec<u64> = failed
        .iter()
        .skip(TOLD)
        .map(|(plan, _)| plan.seed)
        .collect();
    if !rest.is_empty() {
        println!("also failed: seeds {rest:?}");
    }
    Ok(failed.is_empty())
}
