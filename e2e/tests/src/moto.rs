//! moto, an emulator of AWS that others wrote: what holds on it does not hold only because our own
//! emulator and our own client agree.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use ccm_envtest::{Process, cloud_config, free_port, variable};
use ccm_testkit::eventually;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

/// Its script: starts moto with the corrections that network load balancers need.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/moto_server.py");

/// Python needs a few seconds to load moto, more on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Actions that only read begin with this.
const READS: &str = "Describe";

/// A running moto with the machines of a cluster. Dropping it ends it.
pub struct Moto {
    process: Process,
    port: u16,
    /// What the script made: `vpc`, `subnets`, `group`, and `machines` with `id`, `name`, `ip`, `zone`.
    pub made: Value,
}

/// A machine of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its instance id.
    pub id: String,
    /// Its private DNS name, the name of its Node.
    pub name: String,
    /// Its private address.
    pub ip: String,
    /// Its availability zone.
    pub zone: String,
}

impl Moto {
    /// Starts the script with the Python of `CCM_PYTHON`, else `python3`, and waits until the
    /// machines are there.
    ///
    /// # Errors
    /// Python or moto is missing, or the set-up fails; the text holds the script's output.
    pub async fn start(cluster: &str, machines: usize) -> Result<Self> {
        let port = free_port()?;
        let args = [
            SCRIPT.to_owned(),
            format!("--port={port}"),
            "--setup".to_owned(),
            cluster.to_owned(),
            machines.to_string(),
        ];
        let mut process = Process::start("moto", Path::new(&python()), &args, &[], false)?;
        let start = Instant::now();
        let made = loop {
            let output = process.output();
            let line = output.lines().find(|line| line.starts_with('{'));
            if let Some(line) = line {
                break serde_json::from_str(line).context("the script's answer")?;
            }
            process.check_running()?;
            if start.elapsed() > START_LIMIT {
                bail!(
                    "moto is not ready within {START_LIMIT:?}:\n{}",
                    process.tail(40)
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        Ok(Self {
            process,
            port,
            made,
        })
    }

    /// A cloud-config file that leads to it.
    ///
    /// # Errors
    /// The set-up made no network.
    pub fn cloud_config(&self, cluster: &str) -> Result<String> {
        let text = |pointer: &str| {
            let value = self.made.pointer(pointer).and_then(Value::as_str);
            value.with_context(|| format!("the set-up made no {pointer}"))
        };
        let url = format!("http://127.0.0.1:{}", self.port);
        Ok(cloud_config(
            &url,
            "us-west-2",
            text("/vpc")?,
            text("/subnets/0")?,
            cluster,
        ))
    }

    /// The machines, in the order in which they were made.
    pub fn machines(&self) -> Vec<Machine> {
        let all = self.made.get("machines").and_then(Value::as_array);
        let field = |machine: &Value, name: &str| {
            let text = machine.get(name).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        all.into_iter()
            .flatten()
            .map(|machine| Machine {
                id: field(machine, "id"),
                name: field(machine, "name"),
                ip: field(machine, "ip"),
                zone: field(machine, "zone"),
            })
            .collect()
    }

    /// The calls so far, by action.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn calls(&self) -> Result<BTreeMap<String, u64>> {
        Ok(serde_json::from_value(self.ask("GET", "/_calls").await?)?)
    }

    /// The calls so far that change something, by action.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn writes(&self) -> Result<BTreeMap<String, u64>> {
        let mut calls = self.calls().await?;
        calls.retain(|action, _| !action.starts_with(READS));
        Ok(calls)
    }

    /// Load balancers, listeners, target groups and rules, as the script's `state` shows them.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn state(&self) -> Result<Value> {
        self.ask("GET", "/_state").await
    }

    /// Waits until the state is as `check` wants it.
    ///
    /// # Panics
    /// It is not when the time is up.
    pub async fn until(&self, what: &str, check: impl Fn(&Value) -> Result<(), String>) -> Value {
        eventually(what, Duration::from_secs(60), || async {
            let state = self.state().await.map_err(|error| error.to_string())?;
            check(&state).map_err(|why| format!("{why}: {state:#}\n{}", self.process.tail(10)))?;
            Ok(state)
        })
        .await
    }

    /// Terminates a machine.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn terminate(&self, machine: &str) -> Result<()> {
        self.ask("POST", &format!("/_terminate/{machine}")).await?;
        Ok(())
    }

    async fn ask(&self, method: &str, path: &str) -> Result<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .with_context(|| format!("no HTTP in {answer:?}"))?;
        if !head.contains(" 200 ") {
            return Err(anyhow!(
                "{method} {path}: {head}\n{}",
                self.process.tail(30)
            ));
        }
        Ok(serde_json::from_str(body)?)
    }
}

fn python() -> String {
    variable("CCM_PYTHON").unwrap_or_else(|| "python3".to_owned())
}
