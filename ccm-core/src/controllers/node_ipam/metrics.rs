//! The node IPAM series (specification: controllers §8.4, REQ-IPAM-13), label `clusterCIDR`: the
//! cluster CIDR as text.

use prometheus::{
    Counter, CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, core::Collector,
};

use super::allocator::Tally;

pub(super) struct RangeMetrics {
    allocations: CounterVec,
    releases: CounterVec,
    usage: GaugeVec,
    max: GaugeVec,
    tries: HistogramVec,
}

fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

impl RangeMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let label = &["clusterCIDR"];
        let counter = |name: &str, help: &str| {
            register(registry, CounterVec::new(Opts::new(name, help), label)?)
        };
        let gauge = |name: &str, help: &str| {
            register(registry, GaugeVec::new(Opts::new(name, help), label)?)
        };
        let tries = HistogramOpts::new(
            "node_ipam_controller_cidrset_allocation_tries_per_request",
            "Used blocks that were passed over to find a free one",
        )
        .buckets(prometheus::exponential_buckets(1.0, 5.0, 5)?);
        Ok(Self {
            allocations: counter(
                "node_ipam_controller_cidrset_cidrs_allocations_total",
                "Blocks that became used",
            )?,
            releases: counter(
                "node_ipam_controller_cidrset_cidrs_releases_total",
                "Blocks that became free",
            )?,
            usage: gauge(
                "node_ipam_controller_cidrset_usage_cidrs",
                "The used share of all blocks, from 0 to 1",
            )?,
            max: gauge(
                // Spelling as upstream: dashboards ask for it.
                "node_ipam_controller_cirdset_max_cidrs",
                "How many blocks there are",
            )?,
            tries: register(registry, HistogramVec::new(tries, label)?)?,
        })
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "series are floats; there are at most 2^32 blocks"
    )]
    pub(super) fn count(&self, tallies: &[Tally]) {
        for tally in tallies {
            let label = &[tally.cluster.to_string()];
            let (used, capacity) = (tally.used as f64, tally.capacity as f64);
            let allocations = self.allocations.with_label_values(label);
            allocations.inc_by(tally.occupied as f64);
            let releases = self.releases.with_label_values(label);
            releases.inc_by(tally.released as f64);
            self.usage.with_label_values(label).set(used / capacity);
            self.max.with_label_values(label).set(capacity);
            for tries in &tally.tries {
                self.tries.with_label_values(label).observe(*tries as f64);
            }
        }
    }
}

/// Nodes given up after too many failures in a row.
pub(super) fn dropped(registry: &Registry) -> Result<Counter, prometheus::Error> {
    register(
        registry,
        Counter::with_opts(Opts::new(
            "ccm_node_ipam_dropped_nodes_total",
            "Nodes whose pod ranges could not be copied from the cloud after 20 tries; their next \
             change begins anew",
        ))?,
    )
}

/// Registers the series with one sample each, for the reference.
pub(crate) fn sample_metrics(registry: &Registry) -> prometheus::Result<()> {
    let cluster = ipnet::Ipv4Net::new_assert([10, 244, 0, 0].into(), 16);
    RangeMetrics::new(registry)?.count(&[Tally {
        cluster: cluster.into(),
        occupied: 0,
        released: 0,
        used: 0,
        capacity: 256,
        tries: vec![0],
    }]);
    dropped(registry)?;
    Ok(())
}
