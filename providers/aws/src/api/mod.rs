//! The cloud's calls that this provider uses, as small traits in our own types, and the SDK
//! clients behind them. Nothing else talks to AWS.

pub mod all_load_balancers;
mod client;
mod credentials;
pub mod dry_run;
mod ec2;
pub mod elb;
pub mod elbv2;
mod fence;
mod metadata;
mod metrics;
pub mod network;
mod pages;
pub mod routes;
mod sdk_ec2;
mod sdk_elb;
mod sdk_elbv2;
mod sdk_network;
mod sdk_routes;
mod sdk_tagging;
pub mod tagging;
mod throttle;

pub use client::{Clients, Connect, http_client};
pub use ec2::{
    Ec2, Filter, Instance, InstanceState, Interface, InterfaceStatus, TopologyNodes, Zone,
};
pub use metadata::InstanceMetadataService;
pub use metrics::{ApiCalls, ApiMetrics, sample_metrics};
pub use sdk_ec2::SdkEc2;
pub use sdk_elb::SdkElb;
pub use sdk_elbv2::SdkElbv2;
pub use sdk_network::SdkNetwork;
pub use sdk_routes::SdkRoutes;
pub use sdk_tagging::SdkTagging;
pub use throttle::Throttle;
