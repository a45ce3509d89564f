//! The clouds' HTTP APIs with state, quotas, latency, faults and a call log.
//!
//! [`CloudSim`] answers what an AWS SDK, the `aws` command line or boto3 send: the query
//! protocols of EC2 and both load balancer APIs, STS and a small instance metadata service. It can be called in the process
//! ([`CloudSim::service`], virtual time works) or over plain HTTP ([`CloudSim::serve`]).
//!
//! What a client may do can be limited with policies as AWS has them: see [`iam`].
//!
//! What is the same for every cloud (call log, faults, latency, throttling) is in [`control`];
//! what is special to one cloud is in its own module, today [`aws`].

pub mod aws;
mod clock;
pub mod control;
mod endpoints;
mod glob;
pub mod iam;
pub mod sdk;
mod service;

pub use aws::{
    Aws, ClassicAttributes, ClassicHealthCheck, ClassicListener, ClassicLoadBalancer,
    ClassicPolicy, Cluster, Options, RunInstance, Zone,
};
pub use control::{
    Answer, Call, CallLog, CloudError, ConnectionClosed, Fault, Faults, Latency, Throttles,
};
pub use iam::Iam;
pub use service::SimService;

use std::sync::Arc;

use clock::Clock;
use control::Control;

/// An emulated set of clouds. Cloning is cheap; all clones share the state.
#[derive(Clone, Debug)]
pub struct CloudSim {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    control: Control,
    aws: Aws,
}

impl CloudSim {
    /// A cloud without any resource, at the time `options.start`.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let clock = Clock::new(options.start);
        Self {
            inner: Arc::new(Inner {
                control: Control::new(clock.clone()),
                aws: Aws::new(options, clock),
            }),
        }
    }

    /// The AWS side: make and change resources, read the state.
    #[must_use]
    pub fn aws(&self) -> &Aws {
        &self.inner.aws
    }

    /// The policies that say which calls are allowed; without any, all of them are.
    #[must_use]
    pub fn iam(&self) -> &Iam {
        self.inner.aws.iam()
    }

    /// Every call that was received.
    #[must_use]
    pub fn calls(&self) -> &CallLog {
        &self.inner.control.calls
    }

    /// Faults that the next calls meet.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.inner.control.faults
    }

    /// How long calls take.
    #[must_use]
    pub fn latency(&self) -> &Latency {
        &self.inner.control.latency
    }

    /// Request rates above which calls are refused.
    #[must_use]
    pub fn throttles(&self) -> &Throttles {
        &self.inner.control.throttles
    }

    /// A `tower::Service` for plain `http` requests, for a connector that needs no socket.
    #[must_use]
    pub fn service(&self) -> SimService {
        SimService::new(self.clone())
    }

    pub(crate) fn control(&self) -> &Control {
        &self.inner.control
    }
}
