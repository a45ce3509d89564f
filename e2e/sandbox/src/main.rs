//! A cluster to play with: a Kubernetes API, an emulated AWS and the real manager, on one machine,
//! without accounts and without containers. Started by `cargo xtask sandbox`.

mod cluster;
mod kubelets;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

use cluster::Sandbox;

/// A Kubernetes API, an emulated AWS and the real manager, on this machine.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask sandbox")]
struct Args {
    /// How many machines to start with.
    #[arg(long, default_value_t = 3, value_name = "N")]
    nodes: usize,
    /// Where to write the kubeconfig. Default: into the sandbox's temporary folder.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Use the real kube-apiserver and etcd in place of the simulated API.
    #[arg(long)]
    real: bool,
    /// Run a command with KUBECONFIG and AWS_ENDPOINT_URL set once all is ready, end with its status.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    // Taken before anything is started, so that an early Ctrl-C leaves nothing behind either.
    let outcome = async {
        let (mut interrupt, mut terminate) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        );
        tokio::select! {
            biased;
            _ = interrupt.recv() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
            outcome = run(&args) => outcome,
        }
    };
    match outcome.await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sandbox: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<ExitCode> {
    let mut sandbox = Sandbox::start(args.nodes, args.real).await?;
    let kubeconfig = sandbox.write_kubeconfig(args.kubeconfig.as_deref())?;
    let Some(command) = &args.exec else {
        println!("{}", sandbox.welcome(&kubeconfig));
        sandbox.supervise().await?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut child = Command::new("sh");
    child
        .arg("-c")
        .arg(command)
        .env("KUBECONFIG", &kubeconfig)
        .envs(sandbox.aws_environment())
        .kill_on_drop(true);
    let status = tokio::select! {
        biased;
        status = child.status() => status.with_context(|| format!("cannot run {command:?}"))?,
        ended = sandbox.supervise() => return ended.map(|()| ExitCode::FAILURE),
    };
    if !status.success() {
        eprintln!(
            "sandbox: {command:?} ended with {status}; the manager's last lines:\n{}",
            sandbox.manager_log(60)
        );
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
