//! `cargo xtask sandbox`: builds the manager and the sandbox and becomes the sandbox.

use std::{os::unix::process::CommandExt as _, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::{build, context::Context, go, process};

/// What the sandbox is started with.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many machines to create in the emulated cloud, each with its Node.
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// Where to write the kubeconfig.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Use the real kube-apiserver and etcd instead of the API in the process.
    #[arg(long)]
    real: bool,
    /// Run this command with KUBECONFIG and AWS_ENDPOINT_URL set once all is ready, and end
    /// with its status.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// More arguments for ccm-sandbox, passed on as they are.
    #[arg(last = true)]
    more: Vec<String>,
}

/// Builds, then replaces this process: Ctrl-C reaches the sandbox alone, its status is ours.
///
/// # Errors
/// A build fails, or the sandbox cannot be started.
pub(crate) fn run(ctx: &Context, args: &Args) -> Result<()> {
    let programs = process::step("building the manager and the sandbox", || {
        build::programs(ctx)
    })?;
    let mut command = Command::new(&programs.sandbox);
    command.env("CCM_BIN", &programs.manager);
    if args.real {
        command.env("KUBEBUILDER_ASSETS", go::assets(ctx)?);
    }
    command.args(arguments(args));
    let error = command.exec();
    Err(error).with_context(|| format!("starting {}", process::shown(&command)))
}

fn arguments(args: &Args) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(nodes) = args.nodes {
        words.push(format!("--nodes={nodes}"));
    }
    if let Some(file) = &args.kubeconfig {
        words.push(format!("--kubeconfig={}", file.display()));
    }
    if args.real {
        words.push("--real".to_owned());
    }
    if let Some(command) = &args.exec {
        words.push(format!("--exec={command}"));
    }
    words.extend(args.more.iter().cloned());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_that_was_given_is_passed_on_and_no_other() {
        let args = Args {
            nodes: Some(3),
            kubeconfig: Some("/tmp/k".into()),
            real: true,
            exec: Some("kubectl get nodes".into()),
            more: vec!["-v=4".into()],
        };
        assert_eq!(
            arguments(&args),
            [
                "--nodes=3",
                "--kubeconfig=/tmp/k",
                "--real",
                "--exec=kubectl get nodes",
                "-v=4"
            ]
        );
        let none = Args {
            nodes: None,
            kubeconfig: None,
            real: false,
            exec: None,
            more: Vec::new(),
        };
        assert!(arguments(&none).is_empty());
    }
}
