//! Several replicas of the manager and one Lease on the real API server: who waits, who takes over
//! and when, and what the cloud sees of it. Each replica signs its calls with a key of its own.

mod creating;
mod paused;
mod take_over;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use ccm_cloudsim::{Call, control::Mark};
use ccm_e2e_tests::Bench;
use ccm_envtest::Manager;
use ccm_testkit::eventually;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::DeleteParams};
use tokio::time::Instant;

/// Lease and namespace of the defaults.
const LEASE: (&str, &str) = ("kube-system", "cloud-controller-manager");

/// For what only has to come at all.
const SOON: Duration = Duration::from_secs(60);

/// A short lease, where its length is not what the test is about.
const QUICK: [&str; 3] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=400ms",
];

fn leases(bench: &Bench) -> Api<Lease> {
    Api::namespaced(bench.client.clone(), LEASE.0)
}

/// A cluster that no manager ever led.
async fn without_a_lease(machines: usize) -> Result<Bench> {
    let bench = Bench::new(machines).await?;
    match leases(&bench)
        .delete(LEASE.1, &DeleteParams::default())
        .await
    {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(bench)
}

/// One replica. What it said is printed when the test fails.
struct Replica {
    manager: Manager,
    key: &'static str,
}

impl Replica {
    /// Starts it and waits until it is ready, as a leader or as a standby. Its calls to the cloud
    /// are signed with `key`.
    async fn start(bench: &Bench, key: &'static str, flags: &[&str]) -> Result<Self> {
        let mut options = bench.manager_options(&["--leader-elect=true"]);
        options
            .flags
            .extend(flags.iter().map(|&flag| flag.to_owned()));
        let signed = ("AWS_ACCESS_KEY_ID".to_owned(), key.to_owned());
        options.environment.push(signed);
        let mut manager = Manager::start(&options)?;
        manager.wait_until_ready(SOON).await?;
        Ok(Self { manager, key })
    }

    /// As [`start`](Self::start), and then waits until it leads.
    async fn leader(bench: &Bench, key: &'static str, flags: &[&str]) -> Result<Self> {
        let replica = Self::start(bench, key, flags).await?;
        replica.until_leading().await;
        Ok(replica)
    }

    /// As [`start`](Self::start), of one that finds a leader.
    async fn standby(bench: &Bench, key: &'static str, flags: &[&str]) -> Result<Self> {
        let replica = Self::start(bench, key, flags).await?;
        replica.says("waiting: another replica leads").await;
        Ok(replica)
    }

    async fn leads(&self) -> Result<bool, String> {
        let (_, text) = self
            .manager
            .get("/metrics")
            .await
            .map_err(|error| error.to_string())?;
        let line = format!("leader_election_master_status{{name=\"{}\"}} 1", LEASE.1);
        Ok(text.lines().any(|said| said == line))
    }

    /// Waits until it leads. How long that took.
    async fn until_leading(&self) -> Duration {
        let start = Instant::now();
        eventually("the replica leads", SOON, || async {
            let leads = self.leads().await?;
            leads
                .then_some(())
                .ok_or_else(|| self.manager.process.tail(20))
        })
        .await;
        start.elapsed()
    }

    /// Waits for a line of the log with this text.
    async fn says(&self, text: &str) {
        eventually("the replica says it", SOON, || async {
            let log = self.manager.process.output();
            log.contains(text)
                .then_some(())
                .ok_or_else(|| format!("{text:?} is not in\n{log}"))
        })
        .await;
    }

    /// Its calls to the cloud after `mark`.
    fn calls(&self, bench: &Bench, mark: Mark) -> Vec<Call> {
        let mut calls = bench.cloud.sim.calls().calls_since(mark);
        calls.retain(|call| call.access_key.as_deref() == Some(self.key));
        calls
    }

    /// Asks it to end: its exit status.
    async fn stop(&mut self) -> Result<i32> {
        self.manager.process.signal("TERM").await?;
        self.ended().await
    }

    /// Waits for its end: its exit status.
    async fn ended(&mut self) -> Result<i32> {
        let status = self.manager.process.wait(Duration::from_secs(30)).await?;
        status.code().context("ended by a signal")
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.key, self.manager.process.tail(60));
        }
    }
}

/// How often each action was called.
fn counts(calls: &[Call]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for call in calls {
        *counts.entry(call.action.as_str()).or_insert(0) += 1;
    }
    counts
}
