//! One replica ends, another goes on.

use std::time::Duration;

use anyhow::{Context, Result};
use ccm_cloudsim::Call;
use ccm_e2e_tests::{service, tainted};
use ccm_envtest::{Process, go_leader};
use ccm_testkit::{always, eventually};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use super::{LEASE, QUICK, Replica, SOON, counts, leases, without_a_lease};

/// The leader dies without a word: its lease of 15 seconds and one more look.
const AFTER_A_CRASH: Duration = Duration::from_secs(20);
/// The leader gives its lease back: one look of the others.
const AFTER_A_RELEASE: Duration = Duration::from_secs(6);

/// The standby has the check of the lease only, the leader one more for each controller.
async fn checks_of_leader_and_standby(leader: &Replica, standby: &Replica) -> Result<()> {
    let (status, checks) = standby.manager.get("/healthz?verbose").await?;
    assert_eq!(status, 200);
    assert_eq!(checks, "[+]leaderElection ok\nhealthz check passed\n");
    let (status, checks) = leader.manager.get("/healthz?verbose").await?;
    assert_eq!(status, 200);
    for name in [
        "leaderElection",
        "cloud-node-controller",
        "cloud-node-lifecycle-controller",
        "service-lb-controller",
    ] {
        assert!(checks.contains(&format!("[+]{name} ok\n")), "{checks}");
    }
    Ok(())
}

/// A take-over asks for machines by name only, and changes nothing but what waited.
fn nothing_was_listed(calls: &[Call]) {
    let asked: Vec<_> = calls
        .iter()
        .filter(|call| call.action == "DescribeInstances")
        .collect();
    // For the Node that waits by its name, for a first look at the addresses of all that are known,
    // and for the load balancer's targets by their ids: nothing is listed.
    for call in &asked {
        let names_machines = call
            .params
            .keys()
            .any(|key| key.starts_with("InstanceId.") || key.starts_with("Filter.1.Value."));
        assert!(names_machines, "{call:?}");
    }
    assert!(asked.len() <= 3, "{:?}", counts(calls));
    let mut written = calls.to_vec();
    written.retain(Call::is_write);
    assert_eq!(counts(&written), [("RegisterTargets", 1)].into());
}

/// REQ-APP-08, REQ-APP-09, REQ-APP-13, CASE-LEAD-01
#[tokio::test]
async fn a_standby_is_warm_calls_no_cloud_and_takes_over_without_a_relist() -> Result<()> {
    let bench = without_a_lease(4).await?;
    let machines = bench.machines().to_vec();
    let (late, early) = machines.split_last().context("no machines")?;
    let mut first = Replica::leader(&bench, "first", &[]).await?;
    for machine in early {
        let name = bench.dns_name(machine)?;
        bench.create_node(&tainted(&name), "True").await?;
        bench.initialised(&name).await;
    }
    bench
        .create_service(&service("web", &[(80, 30080)]))
        .await?;
    bench.hostname("web").await;

    let second = Replica::standby(&bench, "second", &[]).await?;
    checks_of_leader_and_standby(&first, &second).await?;
    let mark = bench.cloud.sim.calls().mark();
    always(
        "the standby leaves the cloud alone",
        Duration::from_secs(3),
        || async {
            let calls = second.calls(&bench, mark);
            calls
                .is_empty()
                .then_some(())
                .ok_or_else(|| format!("{calls:?}"))
        },
    )
    .await;

    first.manager.process.kill().await?;
    let mark = bench.cloud.sim.calls().mark();
    let name = bench.dns_name(late)?;
    bench.create_node(&tainted(&name), "True").await?;
    let took = second.until_leading().await;
    assert!(took <= AFTER_A_CRASH, "{took:?}");
    bench.initialised(&name).await;
    bench
        .cloud_until("the new Node is a target", |state| {
            let targets: usize = state
                .target_groups
                .values()
                .map(|group| group.targets.len())
                .sum();
            (targets == 4)
                .then_some(())
                .ok_or_else(|| targets.to_string())
        })
        .await;
    let calls = second.calls(&bench, mark);
    nothing_was_listed(&calls);

    let mut third = Replica::standby(&bench, "third", &[]).await?;
    let mut second = second;
    assert_eq!(second.stop().await?, 0);
    let took = third.until_leading().await;
    assert!(took <= AFTER_A_RELEASE, "{took:?}");
    assert!(
        second
            .manager
            .process
            .output()
            .contains("gave the lease back")
    );
    let lease = leases(&bench).get(LEASE.1).await?;
    let transitions = lease.spec.and_then(|spec| spec.lease_transitions);
    assert_eq!(transitions, Some(2));
    bench.delete_service("web").await?;
    bench.nothing_left().map_err(anyhow::Error::msg)?;
    assert_eq!(third.stop().await?, 0);
    let lease = leases(&bench).get(LEASE.1).await?.spec.context("no spec")?;
    assert_eq!(lease.holder_identity.unwrap_or_default(), "");
    Ok(())
}

/// REQ-APP-12
#[tokio::test]
async fn whoever_loses_the_lease_to_another_ends_with_1() -> Result<()> {
    let bench = without_a_lease(1).await?;
    let mut replica = Replica::leader(&bench, "replica", &QUICK).await?;
    let taken = json!({ "spec": { "holderIdentity": "somebody-else" } });
    leases(&bench)
        .patch(LEASE.1, &PatchParams::default(), &Patch::Merge(&taken))
        .await?;
    assert_eq!(replica.ended().await?, 1);
    let log = replica.manager.process.output();
    assert!(log.contains("lost the lease"), "{log}");
    assert!(log.contains("somebody-else"), "{log}");
    let lease = leases(&bench).get(LEASE.1).await?.spec.context("no spec")?;
    assert_eq!(lease.holder_identity.as_deref(), Some("somebody-else"));
    Ok(())
}

/// REQ-APP-13
#[tokio::test]
async fn the_lease_goes_from_a_go_client_to_the_program_and_back() -> Result<()> {
    let bench = without_a_lease(1).await?;
    let go = |identity: &str| {
        let args = [
            format!("--kubeconfig={}", bench.api.admin_kubeconfig.display()),
            format!("--namespace={}", LEASE.0),
            format!("--name={}", LEASE.1),
            format!("--identity={identity}"),
            "--lease-duration=3s".to_owned(),
            "--renew-deadline=2s".to_owned(),
            "--retry-period=400ms".to_owned(),
            "--release-on-cancel".to_owned(),
        ];
        Process::start("client-go", &go_leader()?, &args, &[], true)
    };
    let leads = async |go: &Process| {
        eventually("client-go leads", SOON, || async {
            let said = go.output();
            let leads = said.lines().any(|line| line == "leading");
            leads.then_some(()).ok_or(said)
        })
        .await;
    };
    let mut before = go("before")?;
    leads(&before).await;
    let mut ours = Replica::standby(&bench, "ours", &QUICK).await?;
    assert!(ours.manager.process.output().contains("holder=\"before\""));
    before.signal("TERM").await?;
    before.wait(SOON).await?;
    ours.until_leading().await;
    let after = go("after")?;
    let name = bench.dns_name(bench.machines().first().context("no machine")?)?;
    bench.create_node(&tainted(&name), "True").await?;
    bench.initialised(&name).await;
    let said = after.output();
    assert!(said.lines().all(|line| line != "leading"), "{said}");
    let start = Instant::now();
    assert_eq!(ours.stop().await?, 0);
    leads(&after).await;
    assert!(start.elapsed() <= AFTER_A_RELEASE, "{:?}", start.elapsed());
    let lease = leases(&bench).get(LEASE.1).await?.spec.context("no spec")?;
    assert_eq!(lease.holder_identity.as_deref(), Some("after"));
    Ok(())
}
