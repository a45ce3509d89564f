//! `cargo xtask ci`: what the CI does, on this machine: `.ci/run` in a fresh clone.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{context::Context, process};

/// How fresh.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Start with an empty cache folder as well, as on a new machine.
    #[arg(long)]
    cold: bool,
}

/// A folder that goes away with its value.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} could not be removed: {error}", self.0.display());
        }
    }
}

/// Clones the last commit into a temporary folder and runs `.ci/run` there.
///
/// # Errors
/// git or `.ci/run` fails.
pub(crate) fn run(ctx: &Context, args: &Args) -> Result<()> {
    let git = || {
        let mut git = Command::new("git");
        git.current_dir(&ctx.root);
        git
    };
    let changes = process::output(git().args(["status", "--porcelain"]))?;
    if !changes.is_empty() {
        println!("not committed, so not tested:\n{changes}");
    }
    let folder = Folder(std::env::temp_dir().join(format!("ccm-ci-{}", std::process::id())));
    fs::create_dir(&folder.0).with_context(|| format!("creating {}", folder.0.display()))?;
    let clone = folder.0.join("clone");
    process::run(git().args(["clone", "--quiet", "."]).arg(&clone))?;
    let result = process::step(".ci/run in a fresh clone", || {
        process::run(&mut in_clone(ctx, args, &clone, &folder.0))
    });
    if !args.cold {
        // The clone used our target folder: take it back, see there.
        ctx.claim_target()?;
    }
    result
}

fn in_clone(ctx: &Context, args: &Args, clone: &Path, folder: &Path) -> Command {
    // Through env -u: what `cargo run` has set for us must not reach the clone's cargo.
    let mut command = Command::new("bash");
    command.arg(".ci/run").current_dir(clone);
    for (name, _) in ctx.cargo().get_envs() {
        command.env_remove(name);
    }
    if args.cold {
        command.env("CCM_CACHE", folder.join("cache"));
    } else {
        command
            .env("CCM_CACHE", &ctx.cache)
            .env("CARGO_TARGET_DIR", &ctx.target);
    }
    command
}
