//! `cargo xtask test`: the rings, from the quickest to the slowest. The first that fails ends
//! the run, and a table says what was run and how long it took.

use std::{
    cell::OnceCell,
    ffi::{OsStr, OsString},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::{
    build::{self, Artifact},
    context::Context,
    docs, features, go, process, requirements, setup,
};

/// A part of the tests. `Ring::value_variants` is the order of a full run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ring {
    /// cargo fmt --check
    Format,
    /// Every requirement that a test names is known.
    Requirements,
    /// The heavy crates have one set of features, whatever is built.
    Features,
    /// clippy without a warning, for every set of features.
    Lint,
    /// Unit tests, laws and documentation tests of all crates.
    Unit,
    /// The generated reference pages say what the program says.
    Docs,
    /// The deterministic simulation.
    Sim,
    /// Licences, sources, banned and doubled crates (cargo-deny).
    Deny,
    /// Against a real kube-apiserver and etcd.
    Integration,
}

/// Which ring, and what to pass to its test binaries.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// One ring; all of them if not given.
    ring: Option<Ring>,
    /// For the test binaries of the ring: a filter, --nocapture, --ignored.
    #[arg(last = true)]
    args: Vec<String>,
}

/// The simulation's crates: over the cloud in memory, and over the emulated AWS.
const SIM: &[&str] = &["ccm-simulation", "ccm-sim"];
/// The integration tests' crates.
const INTEGRATION: &[&str] = &["ccm-e2e-tests", "ccm-envtest"];

/// The features that ccm-bin is built with, apart from the whole workspace's.
const FEATURE_SETS: &[&str] = &["", "aws"];

/// Integration tests wait more than they work: two binaries, each with an API server of its own,
/// share the machine well.
const INTEGRATION_AT_ONCE: usize = 2;

/// The test binaries that take longest start first.
const SLOW_TESTS: &[&str] = &["services", "nodes", "process"];

struct Run<'a> {
    ctx: &'a Context,
    args: &'a [String],
    built: OnceCell<Vec<Artifact>>,
}

/// Runs the ring or all rings.
///
/// # Errors
/// The first failure, after the table.
pub(crate) fn run(ctx: &Context, args: &Args) -> Result<()> {
    let rings: &[Ring] = args
        .ring
        .as_ref()
        .map_or_else(Ring::value_variants, std::slice::from_ref);
    let run = Run {
        ctx,
        args: &args.args,
        built: OnceCell::new(),
    };
    let mut done: Vec<(Ring, Duration)> = Vec::new();
    let mut outcome = Ok(());
    for ring in rings {
        println!("\n==== {} ====", name(*ring));
        let (result, took) = process::timed(|| run.ring(*ring));
        done.push((*ring, took));
        if let Err(error) = result {
            outcome = Err(error.context(format!("ring {} failed", name(*ring))));
            break;
        }
    }
    println!("\n{}", summary(rings, &done, outcome.is_err()));
    outcome
}

fn name(ring: Ring) -> String {
    ring.to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

/// One line a ring: its state and its time.
fn summary(rings: &[Ring], done: &[(Ring, Duration)], failed: bool) -> String {
    let mut lines = Vec::new();
    for (index, ring) in rings.iter().enumerate() {
        let (state, took) = match done.get(index) {
            Some((_, took)) if failed && index + 1 == done.len() => ("FAILED", Some(*took)),
            Some((_, took)) => ("passed", Some(*took)),
            None => ("not run", None),
        };
        let took = took.map(process::duration).unwrap_or_default();
        lines.push(format!("{:<14}{state:<9}{took:>14}", name(*ring)));
    }
    let total: Duration = done.iter().map(|(_, took)| *took).sum();
    lines.push(format!("{:<23}{:>14}", "total", process::duration(total)));
    lines.join("\n")
}

impl Run<'_> {
    fn ring(&self, ring: Ring) -> Result<()> {
        match ring {
            Ring::Format => process::run(self.ctx.cargo().args(["fmt", "--all", "--check"])),
            Ring::Requirements => requirements::check(self.ctx),
            Ring::Features => features::check(self.ctx),
            Ring::Lint => self.lint(),
            Ring::Unit => self.unit(),
            Ring::Docs => self.docs(),
            Ring::Sim => {
                let system = self.system_path();
                self.tests(1, &system, |package| SIM.contains(&package), &[])
            }
            Ring::Deny => self.deny(),
            Ring::Integration => self.integration(),
        }
    }

    fn lint(&self) -> Result<()> {
        self.ctx.claim_target()?;
        let clippy = |args: &[&str]| {
            process::step(&format!("clippy {}", args.join(" ")), || {
                process::run(
                    self.ctx
                        .cargo()
                        .args(["clippy", "--all-targets"])
                        .args(args)
                        .args(["--", "--deny", "warnings"]),
                )
            })
        };
        clippy(&["--workspace"])?;
        for set in FEATURE_SETS {
            clippy(&[
                "--package=ccm-bin",
                "--no-default-features",
                &format!("--features={set}"),
            ])?;
        }
        Ok(())
    }

    fn unit(&self) -> Result<()> {
        // The emulated AWS is checked against the API descriptions that botocore ships.
        let python = setup::python(self.ctx)?;
        // First: cargo puts this program where the full one stands after the build for the rest.
        if self.args.is_empty() {
            self.without_a_cloud()?;
        }
        self.tests(
            1,
            &self.path()?,
            |package| !SIM.contains(&package) && !INTEGRATION.contains(&package),
            &[("CCM_PYTHON", &python)],
        )?;
        if self.args.is_empty() {
            process::step("documentation tests", || {
                process::run(
                    self.ctx
                        .cargo()
                        .args(["test", "--quiet", "--workspace", "--doc"]),
                )
            })?;
        }
        Ok(())
    }

    /// Starts the program that has no cloud compiled in: the other rings start the full one only.
    fn without_a_cloud(&self) -> Result<()> {
        self.ctx.claim_target()?;
        process::step("the program without a cloud", || {
            process::run(self.ctx.cargo().args([
                "test",
                "--quiet",
                "--package=ccm-bin",
                "--no-default-features",
                "--test=start",
            ]))
        })
    }

    fn docs(&self) -> Result<()> {
        let programs = build::programs_in(self.built()?)?;
        docs::check(self.ctx, &docs::pages(self.ctx, &programs.manager)?)
    }

    fn deny(&self) -> Result<()> {
        // Not the advisories: their database is no package, CI must not depend on another host.
        process::run(
            Command::new(setup::cargo_deny(self.ctx)?)
                .current_dir(&self.ctx.root)
                .args(["--all-features", "check", "bans", "licenses", "sources"]),
        )
    }

    fn integration(&self) -> Result<()> {
        let assets = go::assets(self.ctx)?;
        let leader = go::leader(self.ctx)?;
        let python = setup::python(self.ctx)?;
        self.tests(
            INTEGRATION_AT_ONCE,
            &self.path()?,
            |package| INTEGRATION.contains(&package),
            &[
                ("KUBEBUILDER_ASSETS", &assets),
                ("CCM_GO_LEADER", &leader),
                ("CCM_PYTHON", &python),
            ],
        )
    }

    /// The one build of this run.
    fn built(&self) -> Result<&[Artifact]> {
        if let Some(built) = self.built.get() {
            return Ok(built);
        }
        let built = process::step("building all programs and tests", || {
            build::workspace(self.ctx)
        })?;
        Ok(self.built.get_or_init(|| built))
    }

    fn system_path(&self) -> OsString {
        self.ctx.var("PATH").cloned().unwrap_or_default()
    }

    /// `PATH` with a kubectl on it.
    fn path(&self) -> Result<OsString> {
        let system = self.system_path();
        let Some(folder) = go::kubectl(self.ctx)? else {
            return Ok(system);
        };
        let folders = std::iter::once(folder).chain(std::env::split_paths(&system));
        std::env::join_paths(folders).context("the folder of kubectl cannot stand in PATH")
    }

    /// Starts the test binaries of the wanted packages, `at_once` at a time.
    fn tests(
        &self,
        at_once: usize,
        path: &OsStr,
        wanted: impl Fn(&str) -> bool,
        variables: &[(&str, &Path)],
    ) -> Result<()> {
        let built = self.built()?;
        let programs = build::programs_in(built)?;
        let mut tests: Vec<&Artifact> = built
            .iter()
            .filter(|built| built.is_test && wanted(&built.package))
            .collect();
        if tests.is_empty() {
            bail!("no test binary belongs to this ring: was a package renamed?");
        }
        tests.sort_by_key(|test| !SLOW_TESTS.contains(&test.target.as_str()));
        let mut commands = Vec::new();
        for test in tests {
            // As `cargo test` starts it: in the package's folder.
            let mut command = Command::new(&test.file);
            command
                .current_dir(&test.folder)
                .env("CARGO_MANIFEST_DIR", &test.folder)
                .env("CARGO_PKG_NAME", &test.package)
                .env("CCM_BIN", &programs.manager)
                .env("CCM_SANDBOX", &programs.sandbox)
                .env("PATH", path)
                .envs(variables.iter().copied())
                .args(self.args);
            commands.push((format!("{} {}", test.package, test.target), command));
        }
        process::run_all(commands, at_once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_passed_failed_and_not_run_apart() {
        let rings = [Ring::Format, Ring::Lint, Ring::Sim];
        let done = [
            (Ring::Format, Duration::from_secs(1)),
            (Ring::Lint, Duration::from_secs(90)),
        ];
        let text = summary(&rings, &done, true);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["format", "passed", "1.0", "s"]);
        assert_eq!(lines[1], ["lint", "FAILED", "1", "min", "30", "s"]);
        assert_eq!(lines[2], ["sim", "not", "run"]);
        assert_eq!(lines[3], ["total", "1", "min", "31", "s"]);
    }

    #[test]
    fn a_full_run_starts_with_what_fails_fast() {
        let order: Vec<String> = Ring::value_variants()
            .iter()
            .map(|ring| name(*ring))
            .collect();
        assert_eq!(
            order,
            [
                "format",
                "requirements",
                "features",
                "lint",
                "unit",
                "docs",
                "sim",
                "deny",
                "integration"
            ]
        );
    }
}
