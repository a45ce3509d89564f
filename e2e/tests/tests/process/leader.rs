//! The one who leads, and who else claims the lease: what the log says of it, and what the leader
//! tells on its secure port.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use ccm_cloudsim::Fault;
use ccm_e2e_tests::{Bench, Caller, Idle, SCRAPERS, Who};
use ccm_envtest::{Manager, account_token, apply, free_port};
use ccm_testkit::{always, eventually};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{SOON, done, line_with};

/// What whoever gets the lease says, and nobody else.
const LEADS: &str = " leading ";

fn leases(idle: &Idle) -> Api<Lease> {
    Api::namespaced(idle.client.clone(), "kube-system")
}

async fn write(idle: &Idle, spec: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": spec }));
    leases(idle)
        .patch(&idle.name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// The name in the election that this line tells.
fn identity(line: &str) -> Result<String> {
    let (_, rest) = line.split_once("identity=\"").context("no identity")?;
    let (identity, _) = rest.split_once('"').context("no end")?;
    Ok(identity.to_owned())
}

/// REQ-APP-12, REQ-APP-28
#[tokio::test]
async fn a_second_process_that_writes_under_the_leaders_identity_ends_it_and_is_named() -> Result<()>
{
    let idle = Idle::new("twin").await?;
    let mut manager = Manager::start(&idle.options(&[]).await?)?;
    let ours = identity(&line_with(&manager.process, &[LEADS, &idle.name]).await)?;
    // All that tells a twin's renewal from ours is that we did not send it.
    write(&idle, json!({ "renewTime": "2026-01-01T00:00:00.000000Z" })).await?;
    let status = manager.process.wait(SOON).await?;
    assert_eq!(status.code(), Some(1));
    let lease = format!("kube-system/{}", idle.name);
    let parts = [
        "ERROR",
        "lost the lease: another process writes it under our identity; make sure that every \
         replica makes its own",
        "--leader-elect-resource-name",
        &lease,
        &ours,
    ];
    line_with(&manager.process, &parts).await;
    let parts = [
        "lost the leader election lease",
        &lease,
        "no two processes may share one",
    ];
    line_with(&manager.process, &parts).await;
    // It is not given back: the twin may be at work.
    let spec = leases(&idle).get(&idle.name).await?.spec;
    let holder = spec.and_then(|spec| spec.holder_identity);
    assert_eq!(holder, Some(ours));
    Ok(())
}

/// REQ-APP-13, REQ-APP-28
#[tokio::test]
async fn whoever_holds_the_lease_is_named_also_when_it_bears_our_own_identity() -> Result<()> {
    let idle = Idle::new("claimed").await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": idle.name, "namespace": "kube-system" },
        "spec": {
            "holderIdentity": "somebody-else", "leaseDurationSeconds": 3600,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    apply(&idle.client, &lease.to_string()).await?;
    let mut manager = Manager::start(&idle.options(&[]).await?)?;
    let ours = identity(&line_with(&manager.process, &["waiting for the lease"]).await)?;
    let lease = format!("lease=kube-system/{}", idle.name);
    let parts = [
        "INFO",
        "waiting: another replica leads",
        &lease,
        "holder=\"somebody-else\"",
        "seconds=3600",
    ];
    line_with(&manager.process, &parts).await;

    write(&idle, json!({ "holderIdentity": ours })).await?;
    let holder = format!("holder=\"{ours}\"");
    let parts = [
        "WARN",
        "another process holds the lease under our identity; make sure that every replica makes \
         its own (<hostname>_<uuid>)",
        &lease,
        &holder,
    ];
    line_with(&manager.process, &parts).await;
    always("it waits", Duration::from_secs(3), || async {
        let log = manager.process.output();
        let leads = log.lines().any(|line| line.contains(LEADS));
        (!leads).then_some(()).ok_or(log)
    })
    .await;
    manager.process.signal("TERM").await?;
    assert_eq!(manager.process.wait(SOON).await?.code(), Some(0));
    let spec = leases(&idle).get(&idle.name).await?.spec;
    let holder = spec.and_then(|spec| spec.holder_identity);
    assert_eq!(holder, Some(ours), "what is another's is not given back");
    Ok(())
}

/// A file with a certificate and one with its key.
fn pair(bench: &Bench, name: &str, pair: &ccm_envtest::Pair) -> Result<(PathBuf, PathBuf)> {
    let files = (
        bench.path(&format!("{name}.crt")),
        bench.path(&format!("{name}.key")),
    );
    std::fs::write(&files.0, &pair.certificate)?;
    std::fs::write(&files.1, &pair.key)?;
    Ok(files)
}

/// One loop of `/debug/controllers`.
async fn report(caller: &Caller, controller: &str, name: &str) -> Result<Value, String> {
    let answer = caller.get("/debug/controllers").await;
    let (status, text) = answer.map_err(|error| format!("{error:#}"))?;
    let loops: Vec<Value> = serde_json::from_str(&text).map_err(|_| format!("{status} {text}"))?;
    let mut loops = loops.into_iter();
    loops
        .find(|one| one["controller"] == controller && one["name"] == name)
        .ok_or(text)
}

fn time(report: &Value, key: &str) -> Option<Timestamp> {
    report.get(key)?.as_str()?.parse().ok()
}

/// REQ-APP-08, REQ-APP-10, REQ-APP-17
#[tokio::test]
async fn a_leader_tells_of_its_checks_and_of_its_loops_to_those_who_may_ask() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    let all: Api<Lease> = Api::namespaced(bench.client.clone(), "kube-system");
    match all
        .delete("cloud-controller-manager", &DeleteParams::default())
        .await
    {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    apply(&bench.client, SCRAPERS).await?;
    let scraper = account_token(&bench.client, "default", "scraper").await?;
    let admin = {
        let server = bench.api.server().await;
        let admin = server.authority().client("root", &["system:masters"])?;
        pair(&bench, "admin", &admin)?
    };
    let port = free_port()?;
    let access = bench.api.manager_kubeconfig.display();
    let flags = [
        "--leader-elect=true".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--authentication-kubeconfig={access}"),
        format!("--authorization-kubeconfig={access}"),
        "--node-monitor-period=1s".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    bench.start_manager(&flags).await?;
    let names = bench.join_all().await?;
    let name = names.first().context("no machine")?;
    bench.initialised(name).await;

    let anybody = Caller::new(port, Who::Anybody).await?;
    let scraper = Caller::new(port, Who::Token(&scraper)).await?;
    let admin = Caller::new(port, Who::Certificate(&admin.0, &admin.1)).await?;
    assert_eq!(anybody.get("/healthz").await?, (200, "ok".to_owned()));
    let query = "verbose&exclude=leaderElection&exclude=service-lb-controller&exclude=etcd";
    let (status, text) = anybody.get(&format!("/healthz?{query}")).await?;
    assert_eq!(status, 200, "{text}");
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "[+]leaderElection excluded: ok",
            "[+]cloud-node-controller ok",
            "[+]cloud-node-lifecycle-controller ok",
            "[+]service-lb-controller excluded: ok",
            "warn: some health checks cannot be excluded: no matches for [\"etcd\"]",
            "healthz check passed",
        ]
    );
    for (who, caller, expected) in [
        ("anybody", &anybody, 403),
        ("a scraper", &scraper, 403),
        ("an administrator", &admin, 200),
    ] {
        let (status, text) = caller.get("/debug/controllers").await?;
        assert_eq!(status, expected, "{who}: {text}");
        assert_eq!(text.contains("lastStart"), status == 200, "{who}: {text}");
    }

    // Rounds that go well, one after the other.
    let lifecycle = "cloud-node-lifecycle-controller";
    let first = eventually("rounds ended", SOON, || async {
        let report = report(&admin, lifecycle, "rounds").await?;
        let passes = report["passes"].as_u64().unwrap_or_default();
        (passes > 0)
            .then_some(report.clone())
            .ok_or_else(|| report.to_string())
    })
    .await;
    assert_eq!(first["periodSeconds"], 1, "{first}");
    assert_eq!(first["lastError"], Value::Null, "{first}");
    assert!(time(&first, "lastEnd").is_some(), "{first}");
    let later = eventually("further rounds ended", SOON, || async {
        let report = report(&admin, lifecycle, "rounds").await?;
        let more = report["passes"].as_u64() >= first["passes"].as_u64().map(|passes| passes + 2);
        more.then_some(report.clone())
            .ok_or_else(|| report.to_string())
    })
    .await;
    for key in ["lastStart", "lastEnd"] {
        assert!(time(&later, key) > time(&first, key), "{first} {later}");
    }

    // One that does not: the reason is told, and the process stays healthy.
    let denied = Fault::unauthorized_operation();
    done(bench.cloud.sim.faults().always("DescribeInstances", denied));
    bench.set_ready(name, "Unknown").await?;
    let failed = eventually("the failure is told", SOON, || async {
        let report = report(&admin, lifecycle, "rounds").await?;
        let told = report["lastError"].is_string();
        told.then_some(report.clone())
            .ok_or_else(|| report.to_string())
    })
    .await;
    let error = failed["lastError"].as_str().unwrap_or_default();
    assert!(error.contains("DescribeInstances"), "{failed}");
    assert!(time(&failed, "lastErrorAt").is_some(), "{failed}");
    assert_eq!(anybody.get("/healthz").await?.0, 200);
    bench.cloud.sim.faults().clear_all();
    bench.set_ready(name, "True").await?;
    bench.stop_manager().await
}
