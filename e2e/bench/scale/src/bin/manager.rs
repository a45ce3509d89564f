//! The manager under measurement: what the shipped binary does at its start, with the emulated
//! cloud as its only provider.

use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use ccm_core::{
    cloud::Registry,
    config::{Env, Settings},
    runtime::{Clock, Manager, Random},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{filter::LevelFilter, fmt};

fn main() -> ExitCode {
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("no runtime")
        .and_then(|runtime| runtime.block_on(manage()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn manage() -> Result<()> {
    ccm_testkit::install_tls();
    fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(LevelFilter::INFO)
        .init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let settings =
        Settings::parse(args.iter().map(String::as_str)).map_err(|errors| anyhow!("{errors:?}"))?;
    let manager = Manager::new(
        settings,
        Registry::new(vec![ccm_bench_scale::provider::factory()])?,
        Env::default(),
        Clock::system(),
        Random::from_system(),
    );
    let shutdown = CancellationToken::new();
    let asked = shutdown.clone();
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::spawn(async move {
        terminate.recv().await;
        asked.cancel();
    });
    Ok(Box::pin(manager.run(shutdown)).await?)
}
