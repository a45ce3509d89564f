//! The shipped binary: features select the clouds, flags select the rest.
//!
//! Invoked with flags and no command it runs as the Go manager does; `plan` and `gc` only look.

mod commands;
mod logging;
mod pages;
pub mod providers;
mod signals;

use std::{io::Write as _, process::ExitCode};

use ccm_core::{
    cloud::Registry,
    config::{Env, LowArgs, Settings, VersionForm, render_help},
    runtime::{BuildInfo, Clock, Manager, ManagerError, Random},
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
    /// 1: wrong flags or a start that failed.
    Failure,
    /// 2: a command found something that would be changed or was left behind.
    Something,
    /// 255: what the Go managers log as fatal once the flags are right: a provider that cannot be
    /// made, a controller that cannot be made or that ended by itself.
    Fatal,
}

impl Exit {
    /// The exit status.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Something => 2,
            Self::Fatal => 255,
        }
    }
}

/// How the process ends by an error of the manager (REQ-APP-28).
pub const fn exit_of(error: &ManagerError) -> Exit {
    if error.is_fatal() {
        Exit::Fatal
    } else {
        Exit::Failure
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
    Ask(Box<(commands::Asked, Settings)>),
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
            // Whoever closes the pipe has read enough.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            return Exit::Success;
        }
        Command::Refuse(errors) => return refuse(&errors),
        Command::Ask(ask) => {
            let (asked, settings) = *ask;
            logging::init(logging::for_commands(settings.logging));
            for warning in &settings.warnings {
                tracing::warn!("{warning}");
            }
            return tokio::select! {
                biased;
                () = shutdown.cancelled() => refuse(&["interrupted".to_owned()]),
                exit = Box::pin(commands::run(asked, settings, clouds, env)) => exit,
            };
        }
        Command::Run(run) => *run,
    };
    let verbosity = logging::init(settings.logging);
    tell_of_start(&args, &settings, &clouds);
    let manager = Manager::new(
        settings,
        clouds,
        env,
        Clock::system(),
        Random::from_system(),
    )
    .with_hostname(hostname())
    .with_verbosity(verbosity);
    match Box::pin(manager.run(shutdown)).await {
        Ok(()) => {
            tracing::info!("ended");
            Exit::Success
        }
        Err(error) => {
            tracing::error!(%error, "ended by an error");
            exit_of(&error)
        }
    }
}

/// The kernel's name of this machine or pod: the first part of the name in leader election, as in
/// the Go managers.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

fn command(mut args: Vec<String>, clouds: &Registry) -> Command {
    if let Some(page) = pages::page(&args, clouds) {
        return match page {
            Ok(text) => Command::Print(text),
            Err(error) => Command::Refuse(vec![error]),
        };
    }
    let asked = match commands::take(&mut args).transpose() {
        Ok(asked) => asked,
        Err(errors) => return Command::Refuse(errors),
    };
    let low = LowArgs::read_for(args, clouds);
    if low.is_readable() && low.help() {
        return Command::Print(render_help(PROGRAM, clouds) + &commands::help(PROGRAM));
    }
    if low.is_readable()
        && let Some(form) = low.version()
    {
        return Command::Print(version(form));
    }
    if low.is_readable() && clouds.names().is_empty() {
        return Command::Refuse(vec![ccm_core::cloud::RegistryError::Empty.to_string()]);
    }
    let provider = low.effective().find(|(name, _)| *name == "cloud-provider");
    let unknown = provider
        .filter(|(_, provider)| !provider.is_empty())
        .and_then(|(_, provider)| clouds.get(provider).err())
        .map(|error| format!("--cloud-provider: {error}"));
    match (Settings::from_args(&low), unknown) {
        (Ok(settings), None) => match asked {
            Some(asked) => Command::Ask(Box::new((asked, settings))),
            None => Command::Run(Box::new((low, settings))),
        },
        (Ok(_), Some(unknown)) => Command::Refuse(vec![unknown]),
        (Err(errors), unknown) => {
            Command::Refuse(errors.iter().map(str::to_owned).chain(unknown).collect())
        }
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

fn tell_of_start(args: &LowArgs, settings: &Settings, clouds: &Registry) {
    let info = BuildInfo::current().reporting(settings.reported_version.as_deref());
    tracing::info!(
        version = info.version,
        commit = info.commit,
        platform = info.platform,
        clouds = ?clouds.names(),
        "cloud controller manager starts"
    );
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    if settings.logging.verbosity >= 1 {
        for (name, value) in args.effective() {
            tracing::info!("FLAG: --{name}={value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REQ-APP-28
    #[test]
    fn a_provider_that_cannot_be_used_is_fatal() {
        let untagged = ManagerError::NoClusterId("fake");
        assert_eq!(exit_of(&untagged).code(), 255);
        let ended = ManagerError::ControllerEnded {
            name: "cloud-node-controller",
            problem: "it panicked".to_owned(),
        };
        assert_eq!(exit_of(&ended).code(), 255);
        assert_eq!(Exit::Failure.code(), 1);
        assert_eq!(Exit::Success.code(), 0);
    }
}
