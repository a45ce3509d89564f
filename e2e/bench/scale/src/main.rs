//! `cargo xtask bench scale`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use ccm_bench_scale::{Options, report, run};
use clap::Parser;

/// Measures the manager with up to 100,000 Nodes.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench scale")]
struct Args {
    /// Numbers of Nodes, one run each.
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    nodes: Option<Vec<usize>>,
    /// The Nodes are initialised already: measures only what comes after it, in a fraction of the time.
    #[arg(long)]
    initialised: bool,
    /// The manager's flag of this name, instead of its default: Nodes that are written to at the same time.
    #[arg(long, value_name = "N")]
    concurrent_node_syncs: Option<usize>,
    /// Services with load balancers.
    #[arg(long, value_name = "N")]
    services: Option<usize>,
    /// Status heartbeats in each run.
    #[arg(long, value_name = "N")]
    heartbeats: Option<usize>,
    /// Seconds of doing nothing in each run.
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
    /// Also write the numbers to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let here = std::env::current_exe()?;
    let mut options = Options::documented(here.with_file_name("ccm-bench-manager"));
    options.nodes = args.nodes.unwrap_or(options.nodes);
    options.initialised = args.initialised;
    options.node_syncs = args.concurrent_node_syncs;
    options.services = args.services.unwrap_or(options.services);
    options.heartbeats = args.heartbeats.unwrap_or(options.heartbeats);
    options.idle = args.idle.map_or(options.idle, Duration::from_secs);
    let flags = match options.node_syncs {
        Some(syncs) => format!("--concurrent-node-syncs={syncs}, else default flags"),
        None => "default flags".to_owned(),
    };
    println!(
        "{} Services, {} status heartbeats, Nodes of {} bytes; {flags}\n\n{}",
        options.services,
        options.heartbeats,
        ccm_bench_scale::objects::node(0).to_string().len(),
        report::head()
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let rows = runtime.block_on(run(&options, |row| println!("{}", report::line(row))))?;
    if let Some(path) = &args.json {
        std::fs::write(path, format!("{:#}\n", report::numbers(&rows)))
            .with_context(|| format!("cannot write --json {}", path.display()))?;
    }
    let mut missed: Vec<String> = rows.iter().flat_map(report::missed).collect();
    if !options.initialised {
        missed.extend(report::not_flat(&rows));
    }
    ensure!(missed.is_empty(), "above target:\n{}", missed.join("\n"));
    Ok(())
}
