//! The numbers that the documents quote. Started by `cargo xtask bench <scenario>`.

mod memory;
mod skeleton;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use serde_json::Value;

/// Counts what a scenario costs.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench")]
struct Args {
    /// What to run.
    scenario: Scenario,
    /// Also write the numbers to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scenario {
    /// Cloud calls and API requests for 50 Nodes and 10 Services: from nothing to ready, for a
    /// restart, and for ten idle minutes (virtual time).
    Skeleton,
    /// Resident memory of the release binary with 50 Nodes, idle.
    Memory,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let numbers: Value = match args.scenario {
        Scenario::Skeleton => skeleton::run()?,
        Scenario::Memory => memory::run()?,
    };
    if let Some(path) = &args.json {
        std::fs::write(path, format!("{numbers:#}\n"))
            .with_context(|| format!("cannot write --json {}", path.display()))?;
    }
    Ok(())
}
