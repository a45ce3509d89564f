//! The manager as a process, with the flags and the files a user gives it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use crate::{
    binaries::variable,
    process::{Process, free_port},
};

/// How the manager is started.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// Its kubeconfig.
    pub kubeconfig: PathBuf,
    /// The cloud-config file.
    pub cloud_config: PathBuf,
    /// Flags added at the end.
    pub flags: Vec<String>,
    /// Environment variables added to the credentials.
    pub environment: Vec<(String, String)>,
}

/// A running manager.
#[derive(Debug)]
pub struct Manager {
    /// The process: output, signals, end.
    pub process: Process,
    health_port: u16,
}

impl Manager {
    /// Starts the binary named by `CCM_BIN` (the test command sets it).
    ///
    /// # Errors
    /// `CCM_BIN` is not set, or the program cannot be started.
    pub fn start(options: &ManagerOptions) -> Result<Self> {
        let program = variable("CCM_BIN").context(
            "CCM_BIN is not set: run this through `cargo xtask test` or `cargo xtask sandbox`",
        )?;
        let health_port = free_port()?;
        let mut args = vec![
            "--cloud-provider=aws".to_owned(),
            format!("--cloud-config={}", options.cloud_config.display()),
            format!("--kubeconfig={}", options.kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            "--configure-cloud-routes=false".to_owned(),
            "--secure-port=0".to_owned(),
            format!("--health-bind-address=127.0.0.1:{health_port}"),
            "-v=4".to_owned(),
        ];
        args.extend(options.flags.iter().cloned());
        let mut environment: Vec<(String, String)> = [
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        environment.extend(options.environment.iter().cloned());
        let process = Process::start("manager", Path::new(&program), &args, &environment, true)?;
        Ok(Self {
            process,
            health_port,
        })
    }

    /// The address of the health and metrics endpoint.
    pub fn health_address(&self) -> String {
        format!("127.0.0.1:{}", self.health_port)
    }

    /// The status code and body of a path on the health endpoint.
    ///
    /// # Errors
    /// Nobody listens, or the answer is no HTTP.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect(self.health_address()).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .with_context(|| format!("no HTTP status in {answer:?}"))?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok((status, body.to_owned()))
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Errors
    /// The process ended, or is not ready within `limit`; the text holds its last output.
    pub async fn wait_until_ready(&mut self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            self.process.check_running()?;
            let last = match self.get("/readyz?verbose").await {
                Ok((200, _)) => return Ok(()),
                Ok((status, body)) => format!("{status} {body}"),
                Err(error) => error.to_string(),
            };
            if start.elapsed() > limit {
                bail!(
                    "the manager is not ready within {limit:?}: {last}\n{}",
                    self.process.tail(40)
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Resident memory in bytes.
    ///
    /// # Errors
    /// The process has ended.
    pub fn resident_bytes(&self) -> Result<u64> {
        let id = self.process.id().context("the manager has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("no VmRSS in /proc")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kib * 1024)
    }
}

/// A cloud-config file for an emulator at `endpoint`, as a user writes it for a private endpoint.
pub fn cloud_config(
    endpoint: &str,
    region: &str,
    vpc: &str,
    subnet: &str,
    cluster_id: &str,
) -> String {
    let mut text = format!(
        "[Global]\nRegion = {region}\nVPC = {vpc}\nSubnetID = {subnet}\nKubernetesClusterID = {cluster_id}\n"
    );
    for (label, service) in [
        ("1", "EC2"),
        ("2", "Elastic Load Balancing"),
        ("3", "Elastic Load Balancing v2"),
    ] {
        text.push_str(&format!(
            "\n[ServiceOverride \"{label}\"]\nService = \"{service}\"\nRegion = {region}\nURL = {endpoint}\nSigningRegion = {region}\n"
        ));
    }
    text
}
