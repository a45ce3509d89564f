//! The shipped binary: features select the clouds, flags select the rest.
//!
//! Invoked with flags and no subcommand it runs as the Go manager does.

mod logging;
mod pages;
pub mod providers;
mod signals;

use std::process::ExitCode;

use ccm_core::{
    cloud::Registry,
    config::{Env, LowArgs, Settings, VersionForm, render_help},
    runtime::{BuildInfo, Clock, Manager, Random},
};
use tokio_util::sync::CancellationToken;

pub use signals::shutdown_on_signals;

/// The name in the help and in `--version`.
const PROGRAM: &str = "cloud-controller-manager";

/// How the process ends (specification: controllers §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: help, version, or an end that was asked for.
    Success,
    /// 1: wrong flags, a start that failed, or a controller that ended by itself.
    Failure,
}

impl Exit {
    /// The exit status.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// What a command line asks for.
enum Command {
    Print(String),
    Refuse(Vec<String>),
    Run(Box<(LowArgs, Settings)>),
}

/// Runs a command line (without the program's name) until `shutdown`. Prints to standard output
/// and error, and starts the log. The process's TLS provider must be installed.
pub async fn run(args: Vec<String>, env: Env, shutdown: CancellationToken) -> Exit {
    let clouds = match Registry::new(providers::all()) {
        Ok(clouds) => clouds,
        Err(error) => return refuse(&[error.to_string()]),
    };
    let (args, settings) = match command(args, &clouds) {
        Command::Print(text) => {
            print!("{text}");
            return Exit::Success;
        }
        Command::Refuse(errors) => return refuse(&errors),
        Command::Run(run) => *run,
    };
    logging::init(settings.logging);
    tell_of_start(&args, &clouds, settings.logging.verbosity);
    let manager = Manager::new(
        settings,
        clouds,
        env,
        Clock::system(),
        Random::from_system(),
    );
    match Box::pin(manager.run(shutdown)).await {
        Ok(()) => {
            tracing::info!("ended");
            Exit::Success
        }
        Err(error) => {
            tracing::error!(%error, "ended by an error");
            Exit::Failure
        }
    }
}

fn command(args: Vec<String>, clouds: &Registry) -> Command {
    if let Some(page) = pages::page(&args) {
        return match page {
            Ok(text) => Command::Print(text),
            Err(error) => Command::Refuse(vec![error]),
        };
    }
    let low = match LowArgs::parse(args) {
        Ok(low) => low,
        Err(errors) => return Command::Refuse(errors.iter().map(str::to_owned).collect()),
    };
    if low.help() {
        return Command::Print(render_help(PROGRAM));
    }
    if let Some(form) = low.version() {
        return Command::Print(version(form));
    }
    if clouds.names().is_empty() {
        return Command::Refuse(vec![ccm_core::cloud::RegistryError::Empty.to_string()]);
    }
    match Settings::from_args(&low) {
        Ok(settings) => Command::Run(Box::new((low, settings))),
        Err(errors) => Command::Refuse(errors.iter().map(str::to_owned).collect()),
    }
}

fn version(form: VersionForm) -> String {
    let info = BuildInfo::current();
    match form {
        VersionForm::Text => format!("{PROGRAM} {}\n", info.version),
        VersionForm::Raw => format!("{info:#?}\n"),
    }
}

fn refuse(errors: &[String]) -> Exit {
    for error in errors {
        eprintln!("error: {error}");
    }
    Exit::Failure
}

fn tell_of_start(args: &LowArgs, clouds: &Registry, verbosity: i32) {
    let info = BuildInfo::current();
    tracing::info!(
        version = info.version,
        commit = info.commit,
        platform = info.platform,
        clouds = ?clouds.names(),
        "cloud controller manager starts"
    );
    for warning in args.warnings() {
        tracing::warn!("{warning}");
    }
    if verbosity >= 1 {
        for (name, value) in args.effective() {
            tracing::info!("FLAG: --{name}={value:?}");
        }
    }
}
