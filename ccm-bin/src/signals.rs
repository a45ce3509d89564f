//! SIGTERM and SIGINT.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::Exit;

/// A token that the first SIGTERM or SIGINT cancels. The second one ends the process at once.
/// Needs a running tokio runtime.
///
/// # Errors
/// The system refuses to register a handler.
pub fn shutdown_on_signals() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let shutdown = CancellationToken::new();
    let token = shutdown.clone();
    tokio::spawn(async move {
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::info!(signal = name, "received signal");
        token.cancel();
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal = name, "received a second signal, ending at once");
        std::process::exit(i32::from(Exit::Failure.code()));
    });
    Ok(shutdown)
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        biased;
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
