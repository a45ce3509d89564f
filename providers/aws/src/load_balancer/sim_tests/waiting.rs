//! Targets that do not run for a while.

use super::bench::{Bench, writes};
use crate::load_balancer::testing::service;

/// REQ-AWS-NODE-7 and CASE-LIFE-02
#[tokio::test(start_paused = true)]
async fn a_stopped_target_stays_registered_and_a_terminated_one_goes() {
    let mut bench = Bench::new(3).await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let one = bench.cluster.instance_ids[1].clone();
    bench.sim.aws().stop(&one).unwrap();
    bench.restart().await;
    let (_, calls) = bench.calls(bench.ensure(&service)).await;
    assert_eq!(writes(&calls), [""; 0]);
    assert_eq!(bench.targets(80).len(), 3);
    bench.sim.aws().terminate(&one).unwrap();
    bench.restart().await;
    bench.ensure(&service).await;
    assert!(!bench.targets(80).contains(&one));
}
