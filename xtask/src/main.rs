//! The commands behind `cargo xtask`: prepare, test, try out, measure, and generate reference
//! pages. One file a command; `cargo xtask --help` lists them.

mod bench;
mod build;
mod ci;
mod context;
mod docs;
mod features;
mod go;
mod process;
mod requirements;
mod sandbox;
mod setup;
mod sim;
mod stamp;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::context::Context;

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build or install everything the tests need, into the cache folder. Does nothing twice.
    Setup,
    /// Run one ring of tests, or all of them. Installs what a ring needs.
    Test(test::Args),
    /// Try the manager: an API server, an emulated AWS and the real manager on this machine.
    Sandbox(sandbox::Args),
    /// Measure one of the scenarios that the documents quote.
    Bench(bench::Args),
    /// Simulate: every crash point of the canonical scenarios, and seeds of random workloads.
    Sim(sim::Args),
    /// Run .ci/run in a fresh clone of the last commit.
    Ci(ci::Args),
    /// Generate the reference pages from the program.
    Docs(docs::Args),
    /// Show which requirements have a test.
    Requirements(requirements::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = Context::discover().and_then(|ctx| match cli.command {
        Command::Setup => setup::all(&ctx),
        Command::Test(args) => test::run(&ctx, &args),
        Command::Sandbox(args) => sandbox::run(&ctx, &args),
        Command::Bench(args) => bench::run(&ctx, &args),
        Command::Sim(args) => sim::run(&ctx, &args),
        Command::Ci(args) => ci::run(&ctx, &args),
        Command::Docs(args) => docs::run(&ctx, &args),
        Command::Requirements(args) => requirements::run(&ctx, &args),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}
