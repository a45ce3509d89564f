//! The manager as a process: bad input, starts and ends, an API server that goes away.

#![expect(clippy::panic, reason = "a failed expectation ends the test")]

mod bad_input;
mod commands;
mod gap;
mod leader;
mod pod_ranges;
mod secure_port;
mod start;

use std::{path::PathBuf, process::ExitStatus, time::Duration};

use anyhow::{Context, Result};
use ccm_e2e_tests::Bench;
use ccm_envtest::{Manager, ManagerOptions, Process, cloud_config, kubeconfig};
use ccm_testkit::eventually;
use tempfile::TempDir;

/// For what takes a few tries.
const SOON: Duration = Duration::from_secs(30);

/// Flags and files of a manager that need neither an API server nor a cloud.
struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Result<Self> {
        let dir = TempDir::with_prefix("ccm-process-")?;
        Ok(Self { dir })
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Good files for an API server and a cloud at these addresses.
    fn options(&self, api: &str, cloud: &str) -> Result<ManagerOptions> {
        let config = cloud_config(cloud, "us-west-2", "vpc-1", "subnet-1", "kite");
        Ok(ManagerOptions {
            kubeconfig: self.write("kubeconfig", &kubeconfig(api, None, "manager", None))?,
            cloud_config: self.write("cloud.conf", &config)?,
            flags: vec!["--cluster-name=kite".to_owned()],
            environment: Vec::new(),
        })
    }

    /// Files that lead nowhere.
    fn closed(&self) -> Result<ManagerOptions> {
        let url = || anyhow::Ok(format!("http://127.0.0.1:{}", ccm_envtest::free_port()?));
        self.options(&url()?, &url()?)
    }
}

/// Waits until the output has a line with all of these texts and returns it.
async fn line_with(process: &Process, texts: &[&str]) -> String {
    eventually("a line of the log", SOON, || async {
        let output = process.output();
        let found = output
            .lines()
            .find(|line| texts.iter().all(|text| line.contains(text)));
        found
            .map(str::to_owned)
            .ok_or_else(|| format!("{texts:?} are not in one line of:\n{output}"))
    })
    .await
}

/// Starts a manager that must end by itself: its status.
async fn ends(options: &ManagerOptions) -> Result<(ExitStatus, Manager)> {
    let mut manager = Manager::start(options)?;
    let status = manager.process.wait(SOON).await?;
    Ok((status, manager))
}

/// The bench's running manager.
fn manager(bench: &Bench) -> Result<&Manager> {
    bench.manager.as_ref().context("no manager runs")
}

/// A cloud operation of the test that must work.
fn done<T>(outcome: Result<T, ccm_cloudsim::CloudError>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("the emulated cloud refuses the test: {error}"),
    }
}
