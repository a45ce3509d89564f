//! Workers that take several keys at once.

use std::future::Future;

use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::runtime::{Outcome, Work, WorkQueue};

/// Keys that are worked on together: one question to a cloud is about at most so many machines.
const BATCH: usize = 100;

/// Works on the queue with `workers` batches at a time until `shutdown`. Batches being worked on
/// are finished. A key without an outcome counts as failed.
pub(super) async fn run_batches<F, Fut>(
    queue: &WorkQueue<String>,
    workers: usize,
    shutdown: &CancellationToken,
    work: F,
) where
    F: Fn(Vec<String>) -> Fut,
    Fut: Future<Output = Vec<Outcome>>,
{
    let closer = async {
        shutdown.cancelled().await;
        queue.close();
    };
    let loops = join_all((0..workers).map(|_| async {
        while let Some(first) = queue.next().await {
            // The closer may not have had its turn yet.
            if shutdown.is_cancelled() {
                return;
            }
            let mut batch: Vec<Work<String>> = vec![first];
            while batch.len() < BATCH
                && let Some(more) = queue.try_next()
            {
                batch.push(more);
            }
            let names = batch.iter().map(|item| (**item).clone()).collect();
            let outcomes = work(names).await.into_iter();
            let outcomes = outcomes.chain(std::iter::repeat(Outcome::Retry));
            for (item, outcome) in batch.into_iter().zip(outcomes) {
                item.finish(outcome);
            }
        }
    }));
    tokio::join!(closer, loops);
}
