//! The last part of a pass: what became of the routes is said on the Nodes.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use super::{
    condition::{Network, Written},
    pass::{Passes, Tally},
};
use crate::kube::{Node, NodeWriteError};

/// Conditions being written at once: the client's own limiter is far below what that allows.
const WRITES: usize = 32;

/// Tries of one condition that meets conflicts, as the Go managers' (specification: controllers
/// §5.5); the next pass tries again.
const WRITE_TRIES: u32 = 5;

/// Between two of them, plus up to as much again.
const WRITE_PAUSE: Duration = Duration::from_millis(100);

impl Passes {
    /// Writes the condition where it is not so yet. Answers with how many were written.
    pub(super) async fn say_on_nodes(
        &self,
        nodes: &[Arc<Node>],
        tally: &mut Tally,
        written: &mut Written,
        shutdown: &CancellationToken,
    ) -> usize {
        written.retain(nodes);
        let due: Vec<(&Node, Network)> = nodes
            .iter()
            .zip(&tally.missing)
            .filter_map(|(node, missing)| Some((&**node, Network::of(*missing)?)))
            .filter(|(node, network)| written.is_due(node, *network))
            .collect();
        let mut due = due.into_iter();
        let mut flying = FuturesUnordered::new();
        let mut said = 0;
        loop {
            while flying.len() < WRITES && !shutdown.is_cancelled() {
                let Some((node, network)) = due.next() else {
                    break;
                };
                flying.push(self.say(node, network));
            }
            let Some((node, network, answer)) = flying.next().await else {
                break;
            };
            let name = node.name();
            match answer {
                Ok(version) => {
                    said += 1;
                    written.remember(node, network, version);
                    let status = network.status();
                    tracing::info!(node = name, status, "set condition NetworkUnavailable");
                }
                // The Node that it was meant for is no more.
                Err(error) if error.is_gone() || error.is_other_node() => {}
                Err(error) => {
                    tally.fail(|| format!("set NetworkUnavailable of node {name}: {error}"));
                }
            }
        }
        tally.held += due.len();
        said
    }

    async fn say<'a>(
        &self,
        node: &'a Node,
        network: Network,
    ) -> (&'a Node, Network, Result<Option<String>, NodeWriteError>) {
        let mut answer = self.say_once(node, network).await;
        for _ in 1..WRITE_TRIES {
            if !matches!(&answer, Err(error) if error.is_conflict()) {
                break;
            }
            tokio::time::sleep(self.random.jitter(WRITE_PAUSE, 1.0)).await;
            answer = self.say_once(node, network).await;
        }
        (node, network, answer)
    }

    async fn say_once(
        &self,
        node: &Node,
        network: Network,
    ) -> Result<Option<String>, NodeWriteError> {
        let condition = network.condition(self.clock.now());
        self.writes.set_condition(node, &condition).await
    }
}
