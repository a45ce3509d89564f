//! The API server goes away and comes back.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use ccm_e2e_tests::{Bench, Relay, service, tainted};
use ccm_envtest::Manager;
use ccm_testkit::{always, eventually};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{SOON, manager};

/// The bench's manager behind a relay that can be cut.
async fn start_behind_relay(bench: &mut Bench, flags: &[&str]) -> Result<Relay> {
    let url = bench.api.server().await.url().to_owned();
    let (_, address) = url.split_once("://").context("no URL")?;
    let target: SocketAddr = address.parse()?;
    let relay = Relay::start(target).await?;
    let mut options = bench.manager_options(flags);
    let path = bench.path("relay.kubeconfig");
    relay.write_kubeconfig(&options.kubeconfig, &url, &path)?;
    options.kubeconfig = path;
    let mut manager = Manager::start(&options)?;
    manager.wait_until_ready(SOON).await?;
    bench.manager = Some(manager);
    Ok(relay)
}

/// The instances that are targets of the Service's load balancer, by its listener port.
fn targets_of(bench: &Bench, port: i32) -> Vec<BTreeSet<String>> {
    let state = bench.cloud.sim.aws().snapshot();
    let groups = state.target_groups.values();
    groups
        .filter(|group| i32::from(group.port) == port)
        .map(|group| group.targets.iter().map(|t| t.id.clone()).collect())
        .collect()
}

/// CASE-OPS-01
#[tokio::test]
async fn changes_during_a_gap_are_handled_within_ten_seconds_of_its_end() -> Result<()> {
    let mut bench = Bench::new(3).await?;
    // Targets go at once, without draining.
    let aws = bench.cloud.sim.aws();
    aws.configure(|settings| settings.deregistration_delay = Some(Duration::ZERO));
    let flags = [
        "--node-monitor-period=1s",
        "--node-status-update-frequency=1h",
    ];
    let relay = start_behind_relay(&mut bench, &flags).await?;
    let machines = bench.machines().to_vec();
    let mut names = Vec::new();
    for machine in &machines {
        names.push(bench.dns_name(machine)?);
    }
    for name in names.iter().take(2) {
        bench.create_node(&tainted(name), "True").await?;
        bench.initialised(name).await;
    }
    for (name, port) in [("a", 30081), ("b", 30082), ("same", 30084)] {
        bench.create_service(&service(name, &[(80, port)])).await?;
        bench.hostname(name).await;
    }
    bench
        .cloud_until("three load balancers with two targets each", |state| {
            let sizes: Vec<usize> = state
                .target_groups
                .values()
                .map(|g| g.targets.len())
                .collect();
            (sizes == [2, 2, 2])
                .then_some(())
                .ok_or_else(|| format!("{sizes:?}"))
        })
        .await;

    relay.cut();
    let ports = json!({ "spec": { "ports": [
        { "name": "p81", "port": 81, "nodePort": 30085, "protocol": "TCP" },
    ] } });
    bench.patch_service("a", ports).await?;
    bench.services().delete("b", &Default::default()).await?;
    bench.create_service(&service("c", &[(80, 30083)])).await?;
    bench.nodes().delete(&names[0], &Default::default()).await?;
    bench.create_node(&tainted(&names[2]), "True").await?;
    // The server loses its memory of the past meanwhile: watches cannot be resumed.
    bench.api.stop_server().await?;
    sleep(Duration::from_secs(5)).await;
    bench.api.start_server().await?;
    let calls = bench.cloud.sim.calls().mark();
    relay.restore();
    let restored = Instant::now();

    bench.service_gone("b").await;
    bench.hostname("c").await;
    bench.initialised(&names[2]).await;
    let want = BTreeSet::from([machines[1].clone(), machines[2].clone()]);
    eventually("targets and ports are as asked for", SOON, || async {
        for port in [30083, 30084, 30085] {
            let have = targets_of(&bench, port);
            if have != [want.clone()] {
                return Err(format!("{port}: {have:?}, not {want:?}\n{}", bench.log()));
            }
        }
        let old = targets_of(&bench, 30081);
        old.is_empty()
            .then_some(())
            .ok_or_else(|| format!("{old:?}"))
    })
    .await;
    let took = restored.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");

    // What did not change is not written, but for the Node that came and the one that went.
    let state = bench.cloud.sim.aws().snapshot();
    let same = state
        .target_groups
        .values()
        .find(|group| group.port == 30084);
    let same = same.context("no target group")?;
    let mut changes = Vec::new();
    for call in bench.cloud.sim.calls().writes_since(calls) {
        if call.params.values().any(|value| *value == same.arn) {
            let ids: Vec<&String> = call
                .params
                .iter()
                .filter(|(key, _)| key.starts_with("Targets.") && key.ends_with(".Id"))
                .map(|(_, id)| id)
                .collect();
            changes.push(format!("{} {ids:?}", call.action));
        }
    }
    changes.sort();
    let want = [
        format!("DeregisterTargets [{:?}]", machines[0]),
        format!("RegisterTargets [{:?}]", machines[2]),
    ];
    assert_eq!(changes, want);
    for name in ["a", "c", "same"] {
        bench.delete_service(name).await?;
    }
    bench.nothing_left().map_err(anyhow::Error::msg)
}

/// CASE-OPS-02
#[tokio::test]
async fn an_api_server_that_is_away_is_asked_at_a_bounded_rate() -> Result<()> {
    const AWAY: Duration = Duration::from_secs(15);
    let mut bench = Bench::new(2).await?;
    let flags = [
        "--node-monitor-period=1s",
        "--node-status-update-frequency=1s",
    ];
    let relay = start_behind_relay(&mut bench, &flags).await?;
    let first = bench.dns_name(&bench.machines()[0])?;
    bench.create_node(&tainted(&first), "True").await?;
    bench.initialised(&first).await;
    bench
        .create_service(&service("web", &[(80, 30080)]))
        .await?;
    bench.hostname("web").await;
    let process = manager(&bench)?.process.id();
    let lines = bench.log().lines().count();
    let calls = bench.cloud.sim.calls().mark();

    bench.api.stop_server().await?;
    always("the process lives", AWAY, || async {
        let manager = manager(&bench).map_err(|error| error.to_string())?;
        let (status, body) = manager
            .get("/livez")
            .await
            .map_err(|error| error.to_string())?;
        (status == 200).then_some(()).ok_or(body)
    })
    .await;
    let tries = relay.refused();
    let told = bench.log().lines().count() - lines;
    bench.api.start_server().await?;

    let second = bench.dns_name(&bench.machines()[1])?;
    bench.create_node(&tainted(&second), "True").await?;
    bench.initialised(&second).await;
    assert_eq!(manager(&bench)?.process.id(), process);
    let writes = bench.cloud.sim.calls().writes_since(calls);
    assert!(
        writes.iter().all(|call| call.action == "RegisterTargets"),
        "{writes:?}"
    );
    bench.delete_service("web").await?;
    bench.nothing_left().map_err(anyhow::Error::msg)?;
    // Two kinds are watched; at most 25 tries of each in two minutes.
    assert!(
        (2..=16).contains(&tries),
        "{tries} connections in {AWAY:?}:\n{}",
        bench.log()
    );
    assert!(told <= 60, "{told} lines in {AWAY:?}:\n{}", bench.log());
    Ok(())
}
