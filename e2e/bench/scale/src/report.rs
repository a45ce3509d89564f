//! The table, the numbers as JSON, and what is above its target.

use serde_json::{Value, json};

use crate::run::{Costs, Row};

const MIB: f64 = 1024.0 * 1024.0;

/// Resident memory at rest, in MiB, by number of Nodes.
const MEMORY_TARGETS: [(usize, f64); 2] = [(5_000, 60.0), (100_000, 300.0)];

/// How much the memory at rest may differ after the heartbeats: what the allocator does not give
/// back at once. With 20,000 heartbeats it is about 100 bytes for each.
const GROWTH: f64 = 2.0;

/// From how many Nodes on the cost of one must not grow any more.
const FLAT_FROM: usize = 1_000;

/// How much more one Node or heartbeat may cost in a larger cluster: half of it, as the machine
/// that measures is never alone.
const FLAT: f64 = 1.5;

/// What the columns of [`line`] are.
#[must_use]
pub fn head() -> String {
    format!(
        "{:>7} | {:>8} {:>8} {:>7} {:>6} {:>8} | {:>7} {:>7} {:>8} | {:>9} {:>10} | {:>6} {:>6} {:>6} {:>7}",
        "nodes",
        "init s",
        "API",
        "cloud",
        "LB wr.",
        "CPU s",
        "RSS MiB",
        "peak",
        "KiB/node",
        "beat us",
        "idle ms/s",
        "re. s",
        "cloud",
        "writes",
        "peak"
    )
}

/// One row of the table.
#[must_use]
pub fn line(row: &Row) -> String {
    format!(
        "{:>7} | {:>8.1} {:>8} {:>7} {:>6} {:>8.1} | {:>7.1} {:>7.1} {:>8.2} | {:>9.1} {:>10.2} | {:>6.1} {:>6} {:>6} {:>7.1}",
        row.nodes,
        row.start.seconds,
        row.start.api_requests + row.start.events,
        row.start.cloud.machines,
        row.start.cloud.writes,
        row.start.cpu_seconds,
        mib(row.beats.resident),
        mib(row.start.peak),
        real(row.beats.resident) / 1024.0 / size(row.nodes),
        row.beats.cpu_seconds * 1e6 / size(row.heartbeats),
        row.idle.cpu_seconds * 1e3 / row.idle.seconds,
        row.restart.seconds,
        row.restart.cloud.all(),
        row.restart.cloud.writes + row.restart.api_writes,
        mib(row.restart.peak),
    )
}

/// What is above its target, a line each.
#[must_use]
pub fn missed(row: &Row) -> Vec<String> {
    let nodes = row.nodes;
    let mut missed = Vec::new();
    let mut check = |good: bool, text: String| {
        if !good {
            missed.push(format!("{nodes} Nodes: {text}"));
        }
    };
    let (calls, most) = (row.start.cloud.machines, nodes / 50 + 5);
    check(
        usize::try_from(calls).is_ok_and(|calls| calls <= most),
        format!("{calls} cloud calls to initialise, at most {most} allowed"),
    );
    for (what, costs) in [("idle", &row.idle), ("heartbeats", &row.beats)] {
        let (cloud, writes) = (costs.cloud.all(), costs.api_writes + costs.events);
        let reads = costs.api_reads;
        check(
            cloud == 0 && writes == 0 && reads == 0,
            format!(
                "{what}: {cloud} cloud calls, {writes} API writes and {reads} reads, none allowed"
            ),
        );
    }
    let grown = mib(row.beats.resident) - mib(row.idle.resident);
    check(
        grown <= GROWTH,
        format!("{grown:.1} MiB more after the heartbeats, at most {GROWTH} allowed"),
    );
    let (cloud, api) = (row.restart.cloud.writes, row.restart.api_writes);
    check(
        cloud == 0 && api == 0,
        format!("restart: {cloud} cloud writes and {api} API writes, none allowed"),
    );
    for (at, most) in MEMORY_TARGETS {
        let resident = mib(row.beats.resident);
        check(
            nodes != at || resident <= most,
            format!("{resident:.1} MiB resident, at most {most} allowed"),
        );
    }
    missed
}

/// What a Node or a heartbeat costs more in a large cluster than in one of [`FLAT_FROM`] Nodes, a
/// line each. Rows of smaller clusters are not looked at.
#[must_use]
pub fn not_flat(rows: &[Row]) -> Vec<String> {
    let mut rows: Vec<&Row> = rows.iter().filter(|row| row.nodes >= FLAT_FROM).collect();
    rows.sort_by_key(|row| row.nodes);
    let Some((first, larger)) = rows.split_first() else {
        return Vec::new();
    };
    let costs = |row: &Row| {
        [
            (
                "to initialise a Node",
                row.start.cpu_seconds / size(row.nodes),
            ),
            (
                "for a heartbeat",
                row.beats.cpu_seconds / size(row.heartbeats),
            ),
        ]
    };
    let compare = |row: &&Row| {
        let pairs = costs(first).into_iter().zip(costs(row));
        let above = pairs.filter(|((_, few), (_, many))| *many > few * FLAT);
        let tell = |((what, few), (_, many)): ((&str, f64), (&str, f64))| {
            format!(
                "{} Nodes: {:.1} us of CPU {what}, with {} Nodes {:.1}; at most {FLAT} times as much allowed",
                row.nodes,
                many * 1e6,
                first.nodes,
                few * 1e6,
            )
        };
        above.map(tell).collect::<Vec<_>>()
    };
    larger.iter().flat_map(compare).collect()
}

/// The numbers.
#[must_use]
pub fn numbers(rows: &[Row]) -> Value {
    let phase = |costs: &Costs| {
        json!({
            "seconds": costs.seconds,
            "apiRequests": costs.api_requests,
            "apiReads": costs.api_reads,
            "apiWrites": costs.api_writes,
            "events": costs.events,
            "cloudMachineReads": costs.cloud.machines,
            "cloudBalancerReads": costs.cloud.balancer_reads,
            "cloudWrites": costs.cloud.writes,
            "cpuSeconds": costs.cpu_seconds,
            "residentBytes": costs.resident,
            "peakBytes": costs.peak,
        })
    };
    let row = |row: &Row| {
        json!({
            "nodes": row.nodes,
            "services": row.services,
            "heartbeats": row.heartbeats,
            "start": phase(&row.start),
            "idle": phase(&row.idle),
            "beats": phase(&row.beats),
            "restart": phase(&row.restart),
        })
    };
    rows.iter().map(row).collect()
}

fn mib(bytes: u64) -> f64 {
    real(bytes) / MIB
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn real(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn size(number: usize) -> f64 {
    number.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(nodes: usize, start: f64, beats: f64) -> Row {
        let costs = |cpu_seconds| Costs {
            cpu_seconds,
            ..Costs::default()
        };
        Row {
            nodes,
            services: 0,
            heartbeats: 1_000,
            start: costs(start),
            idle: costs(0.0),
            beats: costs(beats),
            restart: costs(0.0),
        }
    }

    #[test]
    fn a_cost_that_grows_with_the_cluster_is_told_and_that_of_a_small_one_is_not_looked_at() {
        let flat = [
            row(100, 1.0, 0.1),
            row(1_000, 4.0, 0.1),
            row(5_000, 21.0, 0.12),
        ];
        assert_eq!(not_flat(&flat), Vec::<String>::new());
        let grown = not_flat(&[row(5_000, 40.0, 0.2), row(1_000, 4.0, 0.1)]);
        assert_eq!(
            grown,
            [
                "5000 Nodes: 8000.0 us of CPU to initialise a Node, with 1000 Nodes 4000.0; at most 1.5 times as much allowed",
                "5000 Nodes: 200.0 us of CPU for a heartbeat, with 1000 Nodes 100.0; at most 1.5 times as much allowed",
            ]
        );
    }

    #[test]
    fn heartbeats_that_are_read_back_or_kept_are_told() {
        let mut kept = row(1_000, 4.0, 0.1);
        kept.beats.api_reads = 3;
        kept.idle.resident = 40 << 20;
        kept.beats.resident = 43 << 20;
        assert_eq!(
            missed(&kept),
            [
                "1000 Nodes: heartbeats: 0 cloud calls, 0 API writes and 3 reads, none allowed",
                "1000 Nodes: 3.0 MiB more after the heartbeats, at most 2 allowed",
            ]
        );
    }
}
