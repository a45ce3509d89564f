//! The cloud controller manager's executable: collects what the system passes in and runs
//! [`ccm_bin::run`].

use std::{process::ExitCode, time::Duration};

use ccm_bin::{Exit, run, shutdown_on_signals};
use ccm_core::config::Env;

/// What may still hold the runtime at the end, such as a name look-up of the system, is left.
const LEAVE_AFTER: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    // An error means that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot start: {error}");
            return Exit::Failure.into();
        }
    };
    let exit = runtime.block_on(async {
        match shutdown_on_signals() {
            Ok(shutdown) => run(args, environment(), shutdown).await,
            Err(error) => {
                eprintln!("error: signals cannot be received: {error}");
                Exit::Failure
            }
        }
    });
    runtime.shutdown_timeout(LEAVE_AFTER);
    exit.into()
}

/// The one place where the environment is read.
fn environment() -> Env {
    // Variables that are not text are none of ours.
    Env::new(
        std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }),
    )
}
