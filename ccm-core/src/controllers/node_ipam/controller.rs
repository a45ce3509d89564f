//! The constructor and the start: which allocator runs, and what ends the process.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{
    config::{self, Checked, NodeIpamStartError, Offer, Plan},
    copied::Copies,
    range::Ranges,
};
use crate::{
    cloud::{NodeIpamPolicy, PodCidrs},
    config::NodeIpamSettings,
    kube::{Informer, Node, Store},
    runtime::Context,
};

/// Nodes, or batches of Nodes, that are worked on at the same time, as upstream.
pub(super) const WORKERS: usize = 30;

/// As upstream: a manager that cannot list the Nodes for this long is of no use.
const LIST_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Gives pod address ranges to Nodes.
pub struct NodeIpamController {
    nodes: Store<Node>,
    kind: Kind,
}

enum Kind {
    Range(Ranges),
    Copied(Copies),
}

/// Why the controller cannot work. Ends the process.
#[derive(Debug, thiserror::Error)]
pub enum NodeIpamError {
    /// The API server did not answer in time.
    #[error(
        "the Nodes could not be listed for 10 minutes: check that the API server can be reached and \
         that this manager may list nodes"
    )]
    NodesNotListed,
    /// A Node of the first list has ranges that do not fit the flags.
    #[error(
        "Node {node}: {fault}; set --cluster-cidr to the ranges that the Nodes were made with, or \
         delete the Node so that it registers anew"
    )]
    ExistingNode {
        /// The Node's name.
        node: String,
        /// What is wrong with its ranges.
        fault: String,
    },
}

impl NodeIpamController {
    /// Checks the flags as the provider's column of the specification's table says, and listens to
    /// the informer, which must not run yet. `pod_cidrs` is what the cloud offers for
    /// `--cidr-allocator-type=CloudAllocator`. The client's name is `node-controller`.
    ///
    /// `None`: `--allocate-node-cidrs` is off and the provider's column says that the controller is
    /// skipped.
    ///
    /// # Errors
    /// A combination of flags that ends the process.
    pub fn new(
        context: &Context,
        nodes: &Informer<Node>,
        pod_cidrs: Option<PodCidrs>,
        policy: NodeIpamPolicy,
        settings: &NodeIpamSettings,
    ) -> Result<Option<Self>, NodeIpamStartError> {
        let offer = Offer::of(pod_cidrs.as_ref());
        let Checked {
            plan,
            warnings,
            notes,
        } = config::check(policy, offer, settings)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        for note in notes {
            tracing::info!("{note}");
        }
        let store = nodes.store();
        let kind = match (plan, pod_cidrs) {
            (Plan::Range(plan), _) => {
                let ranges = Ranges::new(context, store.clone(), plan, policy, None)?;
                nodes.listen(ranges.listener());
                Kind::Range(ranges)
            }
            (Plan::Sized(plan), Some(PodCidrs::Sized(masks))) => {
                let ranges = Ranges::new(context, store.clone(), plan, policy, Some(masks))?;
                nodes.listen(ranges.listener());
                Kind::Range(ranges)
            }
            (Plan::Copied, Some(PodCidrs::Copied(source))) => {
                let copies = Copies::new(context, store.clone(), source)?;
                nodes.listen(copies.listener());
                Kind::Copied(copies)
            }
            // The plan follows from what is offered, so the last two never come without it.
            (Plan::Skip | Plan::Sized(_) | Plan::Copied, _) => return Ok(None),
        };
        Ok(Some(Self { nodes: store, kind }))
    }

    /// Works until `shutdown`. The informer's first list stands for the API list of upstream: it is
    /// complete before anything is allocated, so every range that a Node has is occupied first
    /// (REQ-IPAM-02).
    ///
    /// # Errors
    /// The Nodes cannot be listed for 10 minutes, or one of them has ranges that do not fit the
    /// flags (REQ-IPAM-12): the process has to end.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), NodeIpamError> {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            synced = tokio::time::timeout(LIST_TIMEOUT, self.nodes.wait_until_synced()) => {
                synced.map_err(|_| NodeIpamError::NodesNotListed)?;
            }
        }
        match self.kind {
            Kind::Range(ranges) => ranges.run(&shutdown).await,
            Kind::Copied(copies) => {
                copies.run(&shutdown).await;
                Ok(())
            }
        }
    }
}
