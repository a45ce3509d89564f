//! The scenario with few objects: that it works and that its counts are right. Times and sizes
//! are not looked at.

use std::{path::PathBuf, time::Duration};

use ccm_bench_scale::{Options, report, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_small_cluster_comes_to_rest_within_its_budget_of_calls() {
    let options = Options {
        manager: PathBuf::from(env!("CARGO_BIN_EXE_ccm-bench-manager")),
        nodes: vec![40],
        initialised: false,
        node_syncs: None,
        services: 10,
        heartbeats: 100,
        rest: Duration::from_millis(400),
        idle: Duration::from_millis(100),
    };
    let rows = run(&options, |_| {}).await.unwrap();
    let [row] = rows.as_slice() else {
        panic!("{rows:?}")
    };
    assert_eq!(report::missed(row), Vec::<String>::new());
    assert!(row.start.cloud.machines >= 1, "{row:?}");
    assert!(row.start.cloud.writes >= 10, "{row:?}");
    assert_eq!(row.start.api_writes, 2 * 40 + 2 * 10, "{row:?}");
    assert!(row.restart.api_requests > 0, "{row:?}");
    assert!(row.beats.resident > 0 && row.beats.peak >= row.beats.resident);
}
