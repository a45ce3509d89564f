//! `cargo xtask docs`: the reference pages that are printed by the program itself, so that they
//! cannot say something else than the code.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, bail};

use crate::{build, context::Context, process, requirements};

/// Every page that the manager prints: the file, and the arguments that print it.
const PRINTED: &[(&str, &[&str])] = &[
    ("docs/reference/flags.md", &["docs", "flags"]),
    (
        "docs/reference/aws-annotations.md",
        &["docs", "annotations", "aws"],
    ),
    (
        "docs/reference/aws-cloud-config.md",
        &["docs", "config", "aws"],
    ),
    ("docs/reference/metrics.md", &["docs", "metrics"]),
    ("docs/reference/events.md", &["docs", "events"]),
    ("docs/reference/rbac.md", &["docs", "rbac"]),
    ("docs/reference/rbac.yaml", &["docs", "rbac-manifest"]),
    ("docs/reference/iam/README.md", &["docs", "iam", "aws"]),
    (
        "docs/reference/iam/aws-node.json",
        &["docs", "iam", "aws", "node"],
    ),
    (
        "docs/reference/iam/aws-service.json",
        &["docs", "iam", "aws", "service"],
    ),
    (
        "docs/reference/iam/aws-route.json",
        &["docs", "iam", "aws", "route"],
    ),
    (
        "docs/reference/iam/aws-tagging.json",
        &["docs", "iam", "aws", "tagging"],
    ),
    (
        "docs/reference/iam/all.json",
        &["docs", "iam", "aws", "all"],
    ),
];

/// Write or compare.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing; fail if a page is not what would be generated.
    #[arg(long)]
    check: bool,
}

/// Generates the pages, or compares them.
///
/// # Errors
/// The manager cannot be built or asked, a page cannot be written, or (with `--check`) differs.
pub(crate) fn run(ctx: &Context, args: &Args) -> Result<()> {
    let programs = build::programs(ctx)?;
    let pages = pages(ctx, &programs.manager)?;
    if args.check {
        return check(ctx, &pages);
    }
    for (file, text) in &pages {
        let path = ctx.root.join(file);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, text).with_context(|| format!("writing {file}"))?;
        println!("{file}");
    }
    Ok(())
}

/// All generated pages as (file, text), from this manager.
///
/// # Errors
/// The manager fails, or the requirement tables cannot be read.
pub(crate) fn pages(ctx: &Context, manager: &Path) -> Result<Vec<(&'static str, String)>> {
    let mut pages = Vec::new();
    for (file, arguments) in PRINTED {
        let text = process::output(Command::new(manager).args(*arguments))
            .with_context(|| format!("generating {file}"))?;
        pages.push((*file, text));
    }
    pages.push((requirements::OVERVIEW, requirements::overview_page(ctx)?));
    Ok(pages)
}

/// Compares the pages with the files.
///
/// # Errors
/// One differs: the error says which and what to run.
pub(crate) fn check(ctx: &Context, pages: &[(&'static str, String)]) -> Result<()> {
    let stale: Vec<&str> = pages
        .iter()
        .filter(|(file, text)| {
            fs::read_to_string(ctx.root.join(file)).ok().as_deref() != Some(text)
        })
        .map(|(file, _)| *file)
        .collect();
    if !stale.is_empty() {
        bail!("out of date: {}; run: cargo xtask docs", stale.join(", "));
    }
    println!("{} generated pages are up to date", pages.len());
    Ok(())
}
