//! The Kubernetes side: slim types, informers, writes, events. Everything that names types of the
//! client library stands here.

mod cached;
mod client;
mod event_correlation;
mod event_sink;
mod events;
mod fenced;
mod informer;
mod lease;
mod node_writes;
mod packed;
mod service_writes;
mod types;
mod word;

pub use cached::Cached;
pub(crate) use cached::Wire;
pub(crate) use client::sample_client_metrics;
pub use client::{ClientError, ClientFactory};
pub(crate) use event_sink::sample_event_metrics;
pub use event_sink::{ApiEventSink, EventWorker};
pub use events::{Event, EventObject, EventRecorder, EventSink, EventType, RecordedEvents};
pub use fenced::fenced;
pub(crate) use informer::error_chain;
pub use informer::{Change, Informer, ObjectKey, Store};
pub use lease::{LeaseApi, LeaseError, LeaseRecord, StoredLease};
pub use node_writes::{NodePatch, NodeWriteError, NodeWrites};
pub use packed::{Addresses, StringMap};
pub use service_writes::ServiceWrites;
pub use types::{
    ClientIpConfig, LoadBalancerIngress, LoadBalancerStatus, NETWORK_UNAVAILABLE, Node,
    NodeCondition, NodeMeta, NodeSpec, NodeStatus, Service, ServicePort, ServiceSpec,
    ServiceStatus, SessionAffinityConfig,
};
pub use word::Word;
