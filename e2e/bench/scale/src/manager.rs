//! The manager's process and what the kernel says of it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use ccm_envtest::{Process, free_port, kubeconfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use crate::provider;

/// Ticks a second in `/proc`: fixed by the kernel's interface to programs.
const TICKS: f64 = 100.0;

/// Between two looks at whether the manager rests.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The manager rests when it uses less of a CPU than this.
const AT_REST: f64 = 0.1;

/// Where the manager finds everything.
#[derive(Clone, Debug)]
pub struct Place {
    /// The program.
    pub program: PathBuf,
    /// A folder for its files.
    pub folder: PathBuf,
    /// The address of the API server.
    pub api: String,
    /// The address of the cloud.
    pub cloud: String,
    /// `--concurrent-node-syncs`; `None` for its default.
    pub node_syncs: Option<usize>,
}

/// A running manager.
#[derive(Debug)]
pub struct Manager {
    process: Process,
    health: String,
}

impl Manager {
    /// Starts it with the default flags, but for the periodic pass over all addresses: its calls
    /// (one for 100 Nodes every five minutes) would mix with what is measured.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(place: &Place) -> Result<Self> {
        let (access, config) = (place.folder.join("kubeconfig"), place.folder.join("cloud"));
        let api = format!("http://{}", place.api);
        std::fs::write(&access, kubeconfig(&api, None, "manager", None))?;
        std::fs::write(&config, &place.cloud)?;
        let health = format!("127.0.0.1:{}", free_port()?);
        let mut flags = vec![
            format!("--cloud-provider={}", provider::NAME),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", access.display()),
            "--leader-elect=false".to_owned(),
            "--configure-cloud-routes=false".to_owned(),
            "--secure-port=0".to_owned(),
            format!("--health-bind-address={health}"),
            "--node-status-update-frequency=24h".to_owned(),
        ];
        if let Some(syncs) = place.node_syncs {
            flags.push(format!("--concurrent-node-syncs={syncs}"));
        }
        let process = Process::start("manager", &place.program, &flags, &[], true)?;
        Ok(Self { process, health })
    }

    /// Fails with its last output when it has ended.
    ///
    /// # Errors
    /// It has ended.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Errors
    /// It ended, or `limit` has passed.
    pub async fn wait_until_ready(&mut self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        while !self.is_ready().await {
            self.process.check_running()?;
            ensure!(
                start.elapsed() < limit,
                "not ready in {limit:?}:\n{}",
                self.process.tail(20)
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn is_ready(&self) -> bool {
        let ask = async {
            let mut stream = TcpStream::connect(&self.health).await?;
            let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        ask.await.is_ok_and(|text| text.starts_with("HTTP/1.1 200"))
    }

    /// Waits until it has had nothing to do for some time.
    ///
    /// # Errors
    /// It ended, or `limit` has passed.
    pub async fn wait_until_at_rest(&mut self, time: Duration, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let (mut before, mut calm) = (self.cpu_seconds()?, Duration::ZERO);
        while calm < time {
            ensure!(start.elapsed() < limit, "still busy after {limit:?}");
            tokio::time::sleep(LOOK_EVERY).await;
            self.process.check_running()?;
            let now = self.cpu_seconds()?;
            let busy = (now - before) / LOOK_EVERY.as_secs_f64();
            calm = if busy < AT_REST {
                calm + LOOK_EVERY
            } else {
                Duration::ZERO
            };
            before = now;
        }
        Ok(())
    }

    /// CPU time so far, user and system.
    ///
    /// # Errors
    /// It has ended.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let text = self.proc("stat")?;
        // The name may hold anything: the fields are counted from behind it.
        let fields = text.rsplit_once(')').context("no name in stat")?.1;
        let ticks: f64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        Ok(ticks / TICKS)
    }

    /// Resident memory now, in bytes.
    ///
    /// # Errors
    /// It has ended.
    pub fn resident(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// The largest resident memory so far, in bytes.
    ///
    /// # Errors
    /// It has ended.
    pub fn peak(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> Result<u64> {
        let text = self.proc("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.with_context(|| format!("no {field} in /proc"))?;
        Ok(kib.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }

    fn proc(&self, file: &str) -> Result<String> {
        let id = self.process.id().context("the manager has ended")?;
        let path = Path::new("/proc").join(id.to_string()).join(file);
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    }

    /// The process id, for a profiler.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Ends it as a rolling update does.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn stop(mut self) -> Result<()> {
        self.process.signal("TERM").await?;
        let ended = self.process.wait(Duration::from_secs(60)).await?;
        ensure!(ended.success(), "the manager ended with {ended}");
        Ok(())
    }
}
