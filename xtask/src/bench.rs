//! `cargo xtask bench`: builds and runs one scenario of `e2e/bench`.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{build, context::Context, process};

/// The scenarios that measure the shipped binary: they get a release build of the manager.
/// The others count calls, which no profile changes.
const NEED_RELEASE: &[&str] = &["memory"];

/// Which scenario, and where its numbers go.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The scenario, for example skeleton; ccm-bench lists them when it does not know one.
    name: String,
    /// Also write the numbers to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Builds what the scenario needs and runs it.
///
/// # Errors
/// A build or the scenario fails.
pub(crate) fn run(ctx: &Context, args: &Args) -> Result<()> {
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
