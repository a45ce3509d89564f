//! What a provider brings beside its capabilities: flags and controllers that no other cloud has
//! (docs/adr/0013). Both are known before the provider is built, so that the command line, the help
//! and the reference pages have them.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{ControllerName, Flag, OwnFlags},
    kube::{Informer, Node},
    runtime::Context,
};

/// The flags and controllers that only one provider has. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own {
    /// Its flags, made by [`Flag::of_provider`]: accepted by every binary that has the provider,
    /// and an error beside another `--cloud-provider`.
    pub flags: &'static [Flag],
    /// Its controllers.
    pub controllers: &'static [OwnController],
}

/// A controller that only one provider has. Whether `*` starts it says
/// [`Cloud::off_by_default`](super::Cloud::off_by_default).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnController {
    /// The name, made by [`ControllerName::own`].
    pub name: ControllerName,
    /// Its service account in `kube-system` with `--use-service-account-credentials`, and the end
    /// of its client's name.
    pub account: &'static str,
    /// What it needs of the API server, beside Nodes to list and watch and events to write.
    pub rules: &'static [OwnRule],
}

/// A permission in the whole cluster, on objects of the core group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnRule {
    /// With its subresource: `nodes/status`.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// For what, as a half sentence.
    pub why: &'static str,
}

/// What a controller of a provider's own is made from.
pub struct OwnContext<'a> {
    /// As every controller is given it: a client behind the fence, clock, metrics, queues.
    pub context: &'a Context,
    /// The cache of Nodes. It does not run yet: whoever listens now hears of every Node.
    pub nodes: &'a Informer<Node>,
    /// The provider's flags.
    pub flags: &'a OwnFlags,
    /// `--node-monitor-period`.
    pub node_monitor_period: Duration,
}

/// A controller, made and not yet running. It works until the token is cancelled; to end before is
/// the end of the process. Nothing is written after it has ended.
pub type OwnRun = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;
