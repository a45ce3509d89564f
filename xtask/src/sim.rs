//! `cargo xtask sim`: builds the simulation and runs crash points and seeds of it.

use std::process::Command;

use anyhow::Result;

use crate::{build, context::Context, process};

/// The package, and its program.
const PACKAGE: &str = "ccm-simulation";
const PROGRAM: &str = "ccm-simulate";

/// What is run; without any argument every crash point of every scenario and 200 seeds.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many seeds of each scenario.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
    /// A canonical scenario, `random` or `all`; `list` prints the names.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Run this seed only and print its record.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Run this crash point only and print its record: `before:N` or `after:N`.
    #[arg(long, value_name = "POINT")]
    crash: Option<String>,
    /// With --seed or --crash: only these events, as a failure names them.
    #[arg(long, value_name = "INDICES")]
    keep: Option<String>,
}

/// Builds and runs.
///
/// # Errors
/// The build fails, or a rule does not hold.
pub(crate) fn run(ctx: &Context, args: &Args) -> Result<()> {
    let program = process::step("building the simulation", || {
        let built = build::cargo_build(ctx, &["--package", PACKAGE])?;
        build::program(&built, PROGRAM)
    })?;
    process::run(Command::new(program).args(arguments(args)))
}

fn arguments(args: &Args) -> Vec<String> {
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    [
        ("seeds", number(args.seeds)),
        ("from", number(args.from)),
        ("scenario", args.scenario.clone()),
        ("seed", number(args.seed)),
        ("crash", args.crash.clone()),
        ("keep", args.keep.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some(format!("--{name}={}", value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_is_passed_on() {
        let args = Args {
            seeds: Some(2000),
            from: None,
            scenario: Some("random".to_owned()),
            seed: None,
            crash: None,
            keep: None,
        };
        assert_eq!(arguments(&args), ["--seeds=2000", "--scenario=random"]);
    }
}
