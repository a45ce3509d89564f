//! What every test binary needs. A dev-dependency of every crate, so that all test builds share
//! one set of features of the heavy crates (docs/adr/0004).

use std::{future::Future, time::Duration};

use tokio::time::Instant;

/// Installs the TLS provider that the product uses. Call it before the first client is built;
/// calling it again does nothing.
pub fn install_tls() {
    // An error means that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Asks `check` until it answers `Ok`, at most for `limit`; then fails with its last reason.
/// On paused time the wait costs no real time.
///
/// # Panics
/// When `limit` has passed.
#[expect(clippy::panic, reason = "this is how a test fails")]
pub async fn eventually<T, F, Fut>(what: &str, limit: Duration, mut check: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let start = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        match check().await {
            Ok(value) => return value,
            Err(reason) if start.elapsed() >= limit => {
                panic!("{what}: not within {limit:?}: {reason}")
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// Asks `check` over and over for the whole `period`; fails as soon as it answers `Err`.
///
/// # Panics
/// When `check` answers `Err`.
#[expect(clippy::panic, reason = "this is how a test fails")]
pub async fn always<F, Fut>(what: &str, period: Duration, mut check: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<(), String>>,
{
    let start = Instant::now();
    while start.elapsed() < period {
        if let Err(reason) = check().await {
            panic!("{what}: after {:?}: {reason}", start.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
