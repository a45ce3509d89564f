//! The load balancers behind Services of type LoadBalancer.

use std::sync::Arc;

use async_trait::async_trait;

use super::CloudResult;
use crate::kube::{LoadBalancerStatus, Node, Service};

/// Something the user should know although the operation succeeded: it becomes a Warning event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The event's reason, CamelCase.
    pub reason: &'static str,
    /// The event's message.
    pub message: String,
}

/// The outcome of [`LoadBalancers::ensure`].
///
/// A load balancer without a status is not an outcome: the Go framework's error `service status
/// returned by EnsureLoadBalancer is nil` cannot happen (REQ-SVC-13).
///
/// ```compile_fail
/// use ccm_core::cloud::Ensured;
/// let nothing: Ensured = Ensured::Ready { status: None, notes: vec![] };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Ensured {
    /// The load balancer is as desired.
    Ready {
        /// What goes into `status.loadBalancer`.
        status: LoadBalancerStatus,
        /// Warnings for the user.
        notes: Vec<Note>,
    },
    /// Another controller answers for this Service: success, status untouched.
    ImplementedElsewhere {
        /// Warnings for the user.
        notes: Vec<Note>,
    },
}

/// The outcome of [`LoadBalancers::update`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Updated {
    /// The backends are exactly the given Nodes.
    Done {
        /// Warnings for the user.
        notes: Vec<Note>,
    },
    /// Another controller answers for this Service.
    ImplementedElsewhere {
        /// Warnings for the user. Those that the last ensure gave are not repeated.
        notes: Vec<Note>,
    },
}

/// Load balancers of a cloud. Calls for one Service never overlap: the service controller
/// serialises them per key.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// The status of the Service's load balancer, found by our derived names and tags, never by
    /// its class. `Some` while **any part** of it remains in the cloud, `None` only when nothing
    /// is left: the finalizer leaves on that answer.
    async fn get(&self, service: &Service) -> CloudResult<Option<LoadBalancerStatus>>;

    /// Creates or changes the load balancer until it is as the Service asks, backends exactly
    /// `nodes` (which may be empty).
    async fn ensure(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Ensured>;

    /// Sets the backends to exactly `nodes`. Class `NotFound` when there is no load balancer.
    async fn update(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Updated>;

    /// Deletes all parts; success when nothing is left, also when nothing was there.
    /// An operation that must wait for the cloud answers with an error that carries
    /// [`CloudError::retry_in`](super::CloudError::retry_in), so that no worker is blocked.
    async fn delete(&self, service: &Service) -> CloudResult<()>;

    /// Whether the labels of Nodes choose the backends of this Service. Only then does a label
    /// change of a Node make its backends be compared; decided anew with each ensure. No call.
    fn node_labels_matter(&self, _service: &Service) -> bool {
        false
    }
}
