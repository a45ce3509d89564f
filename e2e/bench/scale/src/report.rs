//! The table, the numbers as JSON, and what is above its target.

use serde_json::{Value, json};

use crate::run::{Costs, Row};

const MIB: f64 = 1024.0 * 1024.0;

/// Resident memory at rest, in MiB, by number of Nodes.
const MEMORY_TARGETS: [(usize, f64); 2] = [(5_000, 60.0), (100_000, 300.0)];

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
        check(
            cloud == 0 && writes == 0,
            format!("{what}: {cloud} cloud calls and {writes} API writes, none allowed"),
        );
    }
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

/// The numbers.
#[must_use]
pub fn numbers(rows: &[Row]) -> Value {
    let phase = |costs: &Costs| {
        json!({
            "seconds": costs.seconds,
            "apiRequests": costs.api_requests,
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
