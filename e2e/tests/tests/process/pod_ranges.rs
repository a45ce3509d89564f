//! Pod address ranges from the real program, on the real API server.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result};
use ccm_e2e_tests::{Bench, tainted};
use ccm_testkit::always;
use k8s_openapi::api::core::v1::Node;

const FLAGS: [&str; 4] = [
    // Off by default on AWS.
    "--controllers=*,nodeipam",
    "--allocate-node-cidrs",
    "--cluster-cidr=10.64.0.0/22,fd00:64::/62",
    "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112",
];

/// The ranges of a Node, the first one twice: as `podCIDR` and in `podCIDRs`.
fn ranges(node: &Node) -> Option<Vec<String>> {
    let spec = node.spec.as_ref()?;
    let ranges = spec.pod_cidrs.clone()?;
    (spec.pod_cidr.as_ref() == ranges.first()).then_some(ranges)
}

async fn given(bench: &Bench, name: &str) -> Result<Vec<String>> {
    let node = bench
        .node_until(name, "the Node has its ranges", |node| {
            ranges(node).is_some()
        })
        .await;
    ranges(&node).context("no ranges")
}

/// REQ-IPAM-01, REQ-IPAM-02, CASE-IPAM-02, CASE-IPAM-03
#[tokio::test]
async fn every_node_gets_a_range_of_each_family_and_a_restart_gives_none_twice() -> Result<()> {
    let mut bench = Bench::new(5).await?;
    bench.start_manager(&FLAGS).await?;
    let mut names = Vec::new();
    for machine in bench.machines() {
        names.push(bench.dns_name(machine)?);
    }
    let mut seen = BTreeSet::new();
    let (before, after) = names.split_at(2);
    for name in before {
        bench.create_node(&tainted(name), "True").await?;
        bench.initialised(name).await;
        let ranges = given(&bench, name).await?;
        let [four, six] = ranges.as_slice() else {
            anyhow::bail!("{ranges:?}");
        };
        assert!(
            four.starts_with("10.64.") && four.ends_with(".0/24"),
            "{four}"
        );
        assert!(six.starts_with("fd00:64:") && six.ends_with("/64"), "{six}");
        assert!(seen.insert(ranges.clone()), "{ranges:?} twice");
    }
    bench.kill_manager().await?;

    // A Node that joins while nobody is there, and two after the start: the pool is full then.
    let (joins, later) = after.split_first().context("no machine")?;
    bench.create_node(&tainted(joins), "True").await?;
    bench.start_manager(&FLAGS).await?;
    let (fits, waits) = later.split_first().context("no machine")?;
    for name in [joins, fits] {
        if name == fits {
            bench.create_node(&tainted(name), "True").await?;
        }
        let ranges = given(&bench, name).await?;
        assert!(seen.insert(ranges.clone()), "{ranges:?} twice");
    }
    for family in 0..2 {
        let of_family: BTreeSet<_> = seen
            .iter()
            .filter_map(|ranges| ranges.get(family))
            .collect();
        assert_eq!(of_family.len(), 4, "{seen:?}");
    }
    let waits = waits.first().context("no machine")?;
    bench.create_node(&tainted(waits), "True").await?;
    bench.event(waits, "CIDRNotAvailable").await;
    always("the Node waits", Duration::from_secs(1), || async {
        let node = bench
            .nodes()
            .get(waits)
            .await
            .map_err(|error| error.to_string())?;
        ranges(&node).map_or(Ok(()), |ranges| Err(format!("{ranges:?}")))
    })
    .await;
    let last = before.first().context("no machine")?;
    bench.nodes().delete(last, &Default::default()).await?;
    let freed = given(&bench, waits).await?;
    assert!(
        seen.contains(&freed),
        "{freed:?} is not what {last} had: {seen:?}"
    );
    Ok(())
}
