//! `cargo xtask bench`: builds and runs one scenario of `e2e/bench`.

use std::{path::PathBuf, process::Command};

use anyhow::{Result, ensure};

use crate::{build, context::Context, process};

/// The scenarios that measure the shipped binary: they get a release build of the manager.
/// The others count calls, which no profile changes.
const NEED_RELEASE: &[&str] = &["memory"];

/// The scenario with up to 100,000 Nodes: a program of its own, as its manager is built for it.
const SCALE: &str = "scale";

/// Which scenario, and where its numbers go.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The scenario: skeleton, memory or scale.
    name: String,
    /// Also write the numbers to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// For scale: numbers of Nodes, one run each.
    #[arg(long, value_name = "N,…")]
    nodes: Option<String>,
    /// For scale: the Nodes are initialised already.
    #[arg(long)]
    initialised: bool,
    /// For scale: the manager's flag of this name, instead of its default.
    #[arg(long, value_name = "N")]
    concurrent_node_syncs: Option<usize>,
}

/// Builds what the scenario needs and runs it.
///
/// # Errors
/// A build or the scenario fails.
pub(crate) fn run(ctx: &Context, args: &Args) -> Result<()> {
    if args.name == SCALE {
        return run_scale(ctx, args);
    }
    ensure!(
        args.nodes.is_none() && !args.initialised && args.concurrent_node_syncs.is_none(),
        "--nodes, --initialised and --concurrent-node-syncs are of the scenario {SCALE} only"
    );
    let mut command = process::step("building the bench", || {
        let built = build::cargo_build(ctx, &["--package", "ccm-bench"])?;
        Ok(Command::new(build::program(&built, "ccm-bench")?))
    })?;
    if NEED_RELEASE.contains(&args.name.as_str()) {
        let manager = process::step(
            "building the manager as it is shipped (about 10 min once)",
            || {
                let built = build::cargo_build(ctx, &["--release", "--package", "ccm-bin"])?;
                build::program(&built, "cloud-controller-manager")
            },
        )?;
        command
            .env("CCM_BIN", manager)
            .env("CCM_SANDBOX", build::programs(ctx)?.sandbox);
    }
    command.arg(&args.name);
    if let Some(file) = &args.json {
        command.arg("--json").arg(file);
    }
    process::run(&mut command)
}

fn run_scale(ctx: &Context, args: &Args) -> Result<()> {
    let mut command = process::step(
        "building the bench and its manager (a few minutes once)",
        || {
            let built = build::cargo_build(ctx, &["--release", "--package", "ccm-bench-scale"])?;
            Ok(Command::new(build::program(&built, "ccm-bench-scale")?))
        },
    )?;
    if let Some(nodes) = &args.nodes {
        command.arg("--nodes").arg(nodes);
    }
    if args.initialised {
        command.arg("--initialised");
    }
    if let Some(syncs) = args.concurrent_node_syncs {
        command
            .arg("--concurrent-node-syncs")
            .arg(syncs.to_string());
    }
    if let Some(file) = &args.json {
        command.arg("--json").arg(file);
    }
    process::run(&mut command)
}
