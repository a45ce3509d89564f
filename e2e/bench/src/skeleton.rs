//! 50 Nodes and 10 network load balancer Services.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::{Costs, World};
use serde_json::{Value, json};

const NODES: usize = 50;
const SERVICES: usize = 10;
const SEED: u64 = 1;
const IDLE: Duration = Duration::from_secs(600);

/// Runs the scenario, prints the table and returns the numbers.
///
/// # Errors
/// The scenario does not come to its end, or a budget is exceeded.
pub(crate) fn run() -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    let phases = runtime.block_on(scenario())?;
    println!("{NODES} Nodes, {SERVICES} Services with network load balancers, seed {SEED}\n");
    println!(
        "{:<28} {:>11} {:>12} {:>12} {:>10}",
        "phase", "cloud calls", "cloud writes", "API requests", "API writes"
    );
    for (name, costs) in &phases {
        println!(
            "{name:<28} {:>11} {:>12} {:>12} {:>10}",
            costs.cloud_calls(),
            costs.cloud_writes,
            costs.api_requests(),
            costs.api_writes()
        );
    }
    for (name, costs) in &phases {
        println!("\n{name}");
        for (action, count) in &costs.cloud {
            println!("  cloud {count:>5} {action}");
        }
        for (what, count) in &costs.api {
            println!("  api   {count:>5} {what}");
        }
    }
    for (name, costs) in phases.iter().skip(1) {
        ensure!(
            costs.cloud_writes == 0 && costs.api_writes() == 0,
            "{name}: over budget, no write is allowed: {costs:?}"
        );
    }
    Ok(phases
        .into_iter()
        .map(|(name, costs)| {
            let numbers = json!({
                "cloudCalls": costs.cloud_calls(),
                "cloudWrites": costs.cloud_writes,
                "apiRequests": costs.api_requests(),
                "apiWrites": costs.api_writes(),
                "cloud": costs.cloud,
                "api": costs.api,
            });
            (name.to_owned(), numbers)
        })
        .collect::<serde_json::Map<_, _>>()
        .into())
}

async fn scenario() -> Result<Vec<(&'static str, Costs)>> {
    let mut world = World::new(SEED, NODES)?;
    let mut phases = Vec::new();
    let start = world.mark();
    world.start_manager(&[]).await?;
    world.join_all()?;
    world.settled().await?;
    for n in 0..SERVICES {
        world.create_service(&format!("web-{n}"), &[80, 443])?;
    }
    world.settled().await?;
    // Events are written behind the work.
    tokio::time::sleep(Duration::from_secs(60)).await;
    phases.push(("from nothing to ready", world.costs_since(&start)));

    world.stop_manager().await?;
    let start = world.mark();
    world.start_manager(&[]).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    phases.push(("restart and the next minute", world.costs_since(&start)));

    let start = world.mark();
    tokio::time::sleep(IDLE).await;
    phases.push(("ten idle minutes", world.costs_since(&start)));
    world.stop_manager().await?;
    Ok(phases)
}
