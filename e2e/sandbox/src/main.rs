//! A cluster to play with: a Kubernetes API, an emulated AWS and the real manager, on one machine,
//! without accounts and without containers. Started by `cargo xtask sandbox`.

mod cluster;
mod kubelets;

use std::{
    io::IsTerminal,
    path::PathBuf,
    process::{ExitCode, Stdio},
};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::{
    process::{Child, Command},
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
    let mut command_line = Command::new("sh");
    command_line
        .arg("-c")
        .arg(command)
        .env("KUBECONFIG", &kubeconfig)
        .envs(sandbox.aws_environment());
    let mut child =
        Group::start(command_line).with_context(|| format!("cannot run {command:?}"))?;
    let status = tokio::select! {
        biased;
        status = child.shell.wait() => status.with_context(|| format!("cannot run {command:?}"))?,
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

/// A shell and all that it started. Dropping it ends them.
struct Group {
    shell: Child,
    /// The process group, where the shell has one of its own.
    id: Option<u32>,
}

impl Group {
    /// The shell gets a process group of its own, so that what it started can be found at the end.
    /// A person's terminal keeps it in its foreground group: only there it may read, and Ctrl-C
    /// reaches the whole group already.
    fn start(mut command: Command) -> std::io::Result<Self> {
        let apart = !std::io::stdin().is_terminal();
        if apart {
            command.process_group(0);
        }
        let shell = command.kill_on_drop(true).spawn()?;
        let id = shell.id().filter(|_| apart);
        Ok(Self { shell, id })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        // The shell's own `kill`: not every system has the program. It fails if all have ended.
        let killed = std::process::Command::new("sh")
            .args(["-c", &format!("kill -s KILL -- -{id}")])
            .stderr(Stdio::null())
            .status();
        if let Err(error) = killed {
            eprintln!("sandbox: cannot end the command's processes: {error}");
        }
    }
}
