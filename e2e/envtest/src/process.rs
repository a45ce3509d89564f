//! A child process whose output is kept and which never outlives its owner.

use std::{
    collections::VecDeque,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
};

/// Lines of output kept in memory: enough for a failed test's report.
const KEPT_LINES: usize = 20_000;

type Lines = Arc<Mutex<VecDeque<String>>>;

/// A running child process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    lines: Lines,
}

impl Process {
    /// Starts `program`. The kernel kills it when the thread that started it ends (where
    /// `setpriv` of util-linux is there), and dropping this kills it.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(
        name: &str,
        program: &Path,
        args: &[String],
        environment: &[(String, String)],
        clean_environment: bool,
    ) -> Result<Self> {
        let setpriv = Path::new("/usr/bin/setpriv");
        let mut command = if setpriv.is_file() {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        if clean_environment {
            command.env_clear();
        }
        let mut child = command
            .args(args)
            .envs(environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let lines = Lines::default();
        if let Some(out) = child.stdout.take() {
            tokio::spawn(keep(out, Arc::clone(&lines)));
        }
        if let Some(err) = child.stderr.take() {
            tokio::spawn(keep(err, Arc::clone(&lines)));
        }
        Ok(Self {
            name: name.to_owned(),
            child,
            lines,
        })
    }

    /// All output so far, both streams.
    pub fn output(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The last `n` lines of output.
    pub fn tail(&self, n: usize) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = lines.len().saturating_sub(n);
        lines
            .iter()
            .skip(skip)
            .map(|line| format!("  {line}\n"))
            .collect()
    }

    /// The process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// An error with the last output when the process has ended.
    ///
    /// # Errors
    /// It has ended.
    pub fn check_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}:\n{}", self.name, self.tail(40));
        }
        Ok(())
    }

    /// Sends a signal by name (`TERM`, `KILL`, `STOP`, `CONT`).
    ///
    /// # Errors
    /// The process has ended, or `kill` cannot be run.
    pub async fn signal(&self, signal: &str) -> Result<()> {
        let id = self
            .id()
            .with_context(|| format!("{} has ended", self.name))?;
        let status = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(id.to_string())
            .status()
            .await?;
        if !status.success() {
            bail!("kill -{signal} {id}: {status}");
        }
        Ok(())
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// It has not ended within `limit`.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!(
                "{} has not ended within {limit:?}:\n{}",
                self.name,
                self.tail(40)
            ),
        }
    }

    /// Kills it and waits for the end.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

async fn keep(stream: impl AsyncRead + Unpin, lines: Lines) {
    let mut reader = BufReader::new(stream).lines();
    while let Ok(Some(line)) = reader.next_line().await {
        let mut kept = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

/// A port of 127.0.0.1 that was free a moment ago.
///
/// # Errors
/// The kernel gives none.
pub fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}
