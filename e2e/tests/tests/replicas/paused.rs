//! A leader that stands still, and wakes up when another one leads.

use std::time::Duration;

use anyhow::Result;
use ccm_e2e_tests::service;
use ccm_testkit::{always, eventually};

use super::{QUICK, Replica, SOON, counts, without_a_lease};

/// REQ-APP-12, CASE-LEAD-01
#[tokio::test]
async fn a_leader_that_wakes_up_too_late_ends_with_1_and_changes_nothing_more() -> Result<()> {
    let bench = without_a_lease(2).await?;
    let mut sleeper = Replica::leader(&bench, "sleeper", &QUICK).await?;
    for name in bench.join_all().await? {
        bench.initialised(&name).await;
    }
    let mut other = Replica::standby(&bench, "other", &QUICK).await?;
    // It is stopped in the middle of its work, with a call on the way.
    let calls = bench.cloud.sim.calls();
    let start = calls.mark();
    bench
        .cloud
        .sim
        .latency()
        .set("CreateLoadBalancer", Duration::from_secs(1));
    bench
        .create_service(&service("web", &[(80, 30080), (443, 30443)]))
        .await?;
    eventually("the load balancer is being made", SOON, || async {
        let counts = calls.counts_since(start);
        let begun = counts.contains_key("CreateLoadBalancer");
        begun.then_some(()).ok_or_else(|| format!("{counts:?}"))
    })
    .await;
    sleeper.manager.process.signal("STOP").await?;
    bench.cloud.sim.latency().clear();
    // More work waits for it when it wakes up.
    bench
        .create_service(&service("more", &[(80, 30081)]))
        .await?;
    let stopped = calls.mark();
    other.until_leading().await;
    bench.hostname("web").await;
    bench.hostname("more").await;

    sleeper.manager.process.signal("CONT").await?;
    assert_eq!(sleeper.ended().await?, 1);
    let mut written = sleeper.calls(&bench, stopped);
    written.retain(ccm_cloudsim::Call::is_write);
    assert_eq!(counts(&written), [].into(), "{written:#?}");
    let log = sleeper.manager.process.output();
    assert!(log.contains("lost the lease"), "{log}");

    // The one that leads is not disturbed by it.
    let state = bench.cloud.sim.aws().snapshot();
    let made = (
        state.load_balancers.len(),
        state.listeners.len(),
        state.target_groups.len(),
    );
    assert_eq!(made, (2, 3, 3));
    let mark = calls.mark();
    always("nothing is left to do", Duration::from_secs(1), || async {
        let writes = calls.writes_since(mark);
        writes
            .is_empty()
            .then_some(())
            .ok_or_else(|| format!("{writes:?}"))
    })
    .await;
    for name in ["web", "more"] {
        bench.delete_service(name).await?;
    }
    bench.nothing_left().map_err(anyhow::Error::msg)?;
    assert_eq!(other.stop().await?, 0);
    Ok(())
}
