//! The leader dies in the middle of making a load balancer; a warm standby finishes it.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result};
use ccm_cloudsim::{Fault, aws::Snapshot};
use ccm_e2e_tests::{Bench, service};
use ccm_testkit::{always, eventually};
use kube::ResourceExt;

use super::{QUICK, Replica, SOON, without_a_lease};

/// A call that takes effect and is never answered: whoever sent it can only die.
const UNANSWERED: Fault = Fault::CommitThenTimeout {
    gateway_timeout_after_ms: Some(600_000),
};

/// The calls that make a network load balancer, in their order. Before the first one the finalizer
/// was stored, and nothing else.
const STEPS: [&str; 6] = [
    "DescribeLoadBalancers",
    "CreateLoadBalancer",
    "CreateTargetGroup",
    "RegisterTargets",
    "AuthorizeSecurityGroupIngress",
    "CreateListener",
];

/// The replicas, one after the other.
const KEYS: [&str; 7] = ["r0", "r1", "r2", "r3", "r4", "r5", "r6"];

/// What belongs to the load balancer of a Service: ports of its listeners, targets behind each, and
/// the security group rules for its node port.
type Shape = (Vec<u16>, Vec<BTreeSet<String>>, usize);

fn shape(state: &Snapshot, uid: &str, node_port: u16) -> Result<Shape> {
    let mut name = format!("a{}", uid.replace('-', ""));
    name.truncate(32);
    let mut named = state.load_balancers.values().filter(|lb| lb.name == name);
    let lb = named
        .next()
        .with_context(|| format!("no load balancer {name}"))?;
    anyhow::ensure!(named.next().is_none(), "two load balancers {name}");
    let (mut ports, mut targets) = (Vec::new(), Vec::new());
    for (port, listener) in state.listeners_of(&lb.arn) {
        ports.push(port);
        let group = state.target_groups.get(&listener.target_group_arn);
        let group = group.context("a listener without target group")?;
        anyhow::ensure!(group.port == node_port, "{} is forwarded to", group.port);
        targets.push(
            group
                .targets
                .iter()
                .map(|target| target.id.clone())
                .collect(),
        );
    }
    let rules = state
        .security_groups
        .values()
        .flat_map(|group| &group.rules);
    let rules = rules.filter(|rule| rule.key.from_port == Some(i32::from(node_port)));
    Ok((ports, targets, rules.count()))
}

async fn warnings(bench: &Bench, name: &str) -> Result<Vec<String>> {
    let events = bench.events(name).await?;
    let warnings = events.into_iter().filter(|(kind, ..)| kind == "Warning");
    Ok(warnings
        .map(|(_, reason, message, _)| format!("{reason}: {message}"))
        .collect())
}

/// CASE-LEAD-01
#[tokio::test]
async fn a_standby_finishes_what_a_killed_leader_began() -> Result<()> {
    let bench = without_a_lease(2).await?;
    let mut keys = KEYS.into_iter();
    let mut key = || keys.next().context("no key left");
    let mut leader = Replica::leader(&bench, key()?, &QUICK).await?;
    for name in bench.join_all().await? {
        bench.initialised(&name).await;
    }
    let made = bench
        .create_service(&service("plain", &[(80, 30080)]))
        .await?;
    bench.hostname("plain").await;
    let uid = made.uid().context("no UID")?;
    let undisturbed = shape(&bench.cloud.sim.aws().snapshot(), &uid, 30080)?;

    let calls = bench.cloud.sim.calls();
    for (node_port, step) in (30081..).zip(STEPS) {
        let next = Replica::standby(&bench, key()?, &QUICK).await?;
        let faults = bench.cloud.sim.faults();
        faults
            .next(step, 1, UNANSWERED)
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        let mark = calls.mark();
        let name = step.to_lowercase();
        let made = bench
            .create_service(&service(&name, &[(80, node_port)]))
            .await?;
        eventually("the call is under way", SOON, || async {
            let counts = calls.counts_since(mark);
            let begun = counts.contains_key(step);
            begun
                .then_some(())
                .ok_or_else(|| format!("{step}: {counts:?}"))
        })
        .await;
        leader.manager.process.kill().await?;
        let took = next.until_leading().await;
        assert!(took <= Duration::from_secs(6), "{step}: {took:?}");
        bench.hostname(&name).await;
        let uid = made.uid().context("no UID")?;
        let node_port = u16::try_from(node_port)?;
        let state = bench.cloud.sim.aws().snapshot();
        assert_eq!(shape(&state, &uid, node_port)?, undisturbed, "{step}");
        assert_eq!(
            state.target_groups.len(),
            state.load_balancers.len(),
            "{step}"
        );
        assert_eq!(warnings(&bench, &name).await?, [""; 0], "{step}");
        leader = next;
    }
    let mark = calls.mark();
    always("nothing is left to do", Duration::from_secs(1), || async {
        let writes = calls.writes_since(mark);
        writes
            .is_empty()
            .then_some(())
            .ok_or_else(|| format!("{writes:?}"))
    })
    .await;
    for name in std::iter::once("plain".to_owned()).chain(STEPS.map(str::to_lowercase)) {
        bench.delete_service(&name).await?;
    }
    bench.nothing_left().map_err(anyhow::Error::msg)?;
    assert_eq!(leader.stop().await?, 0);
    Ok(())
}
