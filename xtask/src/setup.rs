//! `cargo xtask setup`: everything that the rings need and a machine with Rust, Go and Python
//! does not have. All of it goes into the cache folder; a second run finds it there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{context::Context, go, process, stamp};

/// cargo-deny, pinned: a newer one may ask for other fields in deny.toml.
const CARGO_DENY: &str = "0.20.2";

/// The Python packages of the integration tests.
const REQUIREMENTS: &str = "e2e/tests/requirements.txt";

/// Prepares all there is.
///
/// # Errors
/// Something is missing on the machine, or a build fails.
pub(crate) fn all(ctx: &Context) -> Result<()> {
    println!("cache folder: {}", ctx.cache.display());
    let assets = go::assets(ctx)?;
    let kubectl = go::kubectl(ctx)?;
    let leader = go::leader(ctx)?;
    let python = python(ctx)?;
    let deny = cargo_deny(ctx)?;
    println!("kube-apiserver, etcd: {}", assets.display());
    match kubectl {
        Some(folder) => println!("kubectl:              {}", folder.display()),
        None => println!("kubectl:              the system's"),
    }
    println!("client-go election:   {}", leader.display());
    println!("python:               {}", python.display());
    println!("cargo-deny:           {}", deny.display());
    Ok(())
}

/// The interpreter of a virtual environment with the packages of `e2e/tests/requirements.txt`.
///
/// # Errors
/// No Python, no `venv` module, or a package that cannot be installed.
pub(crate) fn python(ctx: &Context) -> Result<PathBuf> {
    let requirements = ctx.root.join(REQUIREMENTS);
    let folder = ctx.cache.join("venv");
    let interpreter = folder.join("bin/python");
    let mark = folder.join("ccm-stamp");
    let want = stamp::of_files(&[&requirements], b"")?;
    if stamp::matches(&mark, &want) && works(&interpreter) {
        return Ok(interpreter);
    }
    process::step("Python packages of the integration tests", || {
        if !works(&interpreter) {
            create_venv(ctx, &folder)?;
        }
        process::run(
            Command::new(&interpreter)
                .args(["-m", "pip", "install", "--quiet"])
                .args(["--disable-pip-version-check", "--requirement"])
                .arg(&requirements),
        )
        .with_context(|| format!("installing {REQUIREMENTS}"))?;
        stamp::write(&mark, &want)
    })?;
    Ok(interpreter)
}

fn works(interpreter: &Path) -> bool {
    Command::new(interpreter)
        .args(["-c", "import pip"])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn create_venv(ctx: &Context, folder: &Path) -> Result<()> {
    let Some(python) = ctx.on_path("python3") else {
        bail!(
            "python3 is not on PATH: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)"
        );
    };
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    process::run(Command::new(python).args(["-m", "venv"]).arg(folder))
        .context("creating a virtual environment (Debian: apt-get install python3-venv)")
}

/// The pinned cargo-deny.
///
/// # Errors
/// It cannot be built.
pub(crate) fn cargo_deny(ctx: &Context) -> Result<PathBuf> {
    let tools = ctx.cache.join("tools");
    let program = tools.join("bin/cargo-deny");
    let is_there = Command::new(&program)
        .arg("--version")
        .output()
        .is_ok_and(|output| {
            output.stdout.trim_ascii() == format!("cargo-deny {CARGO_DENY}").as_bytes()
        });
    if is_there {
        return Ok(program);
    }
    process::step("cargo-deny (about 5 min on 2 cores, once)", || {
        // Its own target folder: it shares nothing with the workspace and is not kept.
        let target = tools.join("target");
        process::run(
            ctx.cargo()
                .args(["install", "--quiet", "--locked", "--force", "--root"])
                .arg(&tools)
                .arg(format!("cargo-deny@{CARGO_DENY}"))
                .env("CARGO_TARGET_DIR", &target),
        )?;
        fs::remove_dir_all(&target).with_context(|| format!("removing {}", target.display()))
    })?;
    Ok(program)
}
