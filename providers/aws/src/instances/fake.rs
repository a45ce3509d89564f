//! EC2 in memory for the unit tests of this crate: state, a call log, and failures to come.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use ccm_core::cloud::{CloudError, CloudResult};

use super::InstanceId;
use crate::{
    api::{Ec2, Filter, Instance, InstanceState, Interface, InterfaceStatus, TopologyNodes, Zone},
    error::classify,
    tags::{ClusterTags, Tags},
};

#[derive(Default)]
struct State {
    instances: BTreeMap<InstanceId, Instance>,
    interfaces: Vec<Interface>,
    topology: TopologyNodes,
    calls: Vec<String>,
    failures: VecDeque<CloudError>,
    remove_next: Option<InstanceId>,
}

pub(crate) struct FakeEc2(Mutex<State>);

pub(crate) fn id(text: &str) -> InstanceId {
    InstanceId::from_cloud(text)
}

pub(crate) fn cluster() -> ClusterTags {
    ClusterTags::new("", "cl1").unwrap().unwrap()
}

/// A running, tagged instance in us-west-2a.
pub(crate) fn instance(text: &str) -> Instance {
    Instance {
        id: id(text),
        state: Some(InstanceState::Running),
        instance_type: "m5.large".into(),
        zone: "us-west-2a".into(),
        vpc_id: "vpc-1".into(),
        subnet_id: "subnet-1".into(),
        public_ip: String::new(),
        private_dns_name: format!("{text}.us-west-2.compute.internal"),
        public_dns_name: String::new(),
        security_groups: vec!["sg-1".into()],
        interfaces: vec![interface(0, &["10.0.0.1"], &[])],
        tags: Tags::from([(cluster().key(), "owned".into())]),
    }
}

pub(crate) fn interface(index: i32, private_ips: &[&str], ipv6: &[&str]) -> Interface {
    let texts = |all: &[&str]| all.iter().map(|t| (*t).to_owned()).collect();
    Interface {
        id: format!("eni-{index}"),
        status: InterfaceStatus::InUse,
        device_index: Some(index),
        private_ips: texts(private_ips),
        ipv6: texts(ipv6),
        zone: "us-west-2a".into(),
        private_dns_name: String::new(),
        source_dest_check: true,
    }
}

impl FakeEc2 {
    pub(crate) fn with(instances: impl IntoIterator<Item = Instance>) -> Arc<Self> {
        let fake = Arc::new(Self(Mutex::default()));
        for instance in instances {
            fake.put(instance);
        }
        fake
    }

    pub(crate) fn put(&self, instance: Instance) {
        self.0
            .lock()
            .unwrap()
            .instances
            .insert(instance.id.clone(), instance);
    }

    pub(crate) fn put_interface(&self, interface: Interface) {
        self.0.lock().unwrap().interfaces.push(interface);
    }

    pub(crate) fn put_topology(&self, text: &str, nodes: &[&str]) {
        let nodes = nodes.iter().map(|n| (*n).to_owned()).collect();
        self.0.lock().unwrap().topology.insert(id(text), nodes);
    }

    pub(crate) fn fail_next(&self, error: CloudError) {
        self.0.lock().unwrap().failures.push_back(error);
    }

    /// The instance is gone once the next call has been answered.
    pub(crate) fn remove_after_next_call(&self, text: &str) {
        self.0.lock().unwrap().remove_next = Some(id(text));
    }

    /// What was called, with the number of ids or with the filters.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.0.lock().unwrap().calls.clone()
    }

    pub(crate) fn failure(code: &str, status: u16) -> CloudError {
        CloudError::new(
            classify(Some(code), Some(status)),
            format!("api error {code}: refused"),
        )
        .with_code(code)
    }

    pub(crate) fn throttled() -> CloudError {
        Self::failure("RequestLimitExceeded", 503)
    }

    fn called<T>(
        &self,
        call: String,
        answer: impl FnOnce(&State) -> CloudResult<T>,
    ) -> CloudResult<T> {
        let mut state = self.0.lock().unwrap();
        state.calls.push(call);
        if let Some(error) = state.failures.pop_front() {
            return Err(error);
        }
        let answer = answer(&state);
        if let Some(id) = state.remove_next.take() {
            state.instances.remove(&id);
        }
        answer
    }
}

fn described(operation: &str, filters: &[Filter]) -> String {
    let filters: Vec<String> = filters
        .iter()
        .map(|f| format!("{}={}", f.name, f.values.join(",")))
        .collect();
    format!("{operation} {}", filters.join(" "))
}

fn state_name(state: Option<InstanceState>) -> &'static str {
    match state {
        Some(InstanceState::Pending) => "pending",
        Some(InstanceState::Running) => "running",
        Some(InstanceState::ShuttingDown) => "shutting-down",
        Some(InstanceState::Stopping) => "stopping",
        Some(InstanceState::Stopped) => "stopped",
        _ => "terminated",
    }
}

#[async_trait]
impl Ec2 for FakeEc2 {
    async fn describe_instances(&self, ids: &[InstanceId]) -> CloudResult<Vec<Instance>> {
        self.called(format!("DescribeInstances {}", ids.len()), |state| {
            if let Some(bad) = ids.iter().find(|id| id.as_str().contains("bad")) {
                let text = format!("Invalid id: \"{bad}\" (expecting \"i-...\")");
                return Err(Self::failure("InvalidInstanceID.Malformed", 400).map_message(|_| text));
            }
            let missing: Vec<&str> = ids
                .iter()
                .filter(|id| !state.instances.contains_key(id))
                .map(InstanceId::as_str)
                .collect();
            if !missing.is_empty() {
                return Err(
                    Self::failure("InvalidInstanceID.NotFound", 400).map_message(|_| {
                        format!("The instance IDs '{}' do not exist", missing.join(", "))
                    }),
                );
            }
            Ok(ids
                .iter()
                .filter_map(|id| state.instances.get(id).cloned())
                .collect())
        })
    }

    async fn find_instances(&self, filters: &[Filter]) -> CloudResult<Vec<Instance>> {
        self.called(described("DescribeInstances", filters), |state| {
            let matches = |instance: &&Instance| {
                filters.iter().all(|filter| {
                    let value = match filter.name.as_str() {
                        "instance-id" => instance.id.as_str(),
                        "private-dns-name" => instance.private_dns_name.as_str(),
                        "instance-state-name" => state_name(instance.state),
                        other => panic!("the fake has no filter {other}"),
                    };
                    filter.values.iter().any(|v| v == value)
                })
            };
            Ok(state.instances.values().filter(matches).cloned().collect())
        })
    }

    async fn describe_availability_zones(&self) -> CloudResult<Vec<Zone>> {
        self.called("DescribeAvailabilityZones".into(), |_| {
            let zone = |name: &str, id: &str| Zone {
                name: name.into(),
                id: id.into(),
                kind: "availability-zone".into(),
            };
            Ok(vec![
                zone("us-west-2a", "usw2-az1"),
                zone("us-west-2b", "usw2-az2"),
            ])
        })
    }

    async fn describe_instance_topology(&self, ids: &[InstanceId]) -> CloudResult<TopologyNodes> {
        self.called(format!("DescribeInstanceTopology {}", ids.len()), |state| {
            let all = state.topology.iter();
            Ok(all
                .filter(|(id, _)| ids.contains(id))
                .map(|(i, n)| (i.clone(), n.clone()))
                .collect())
        })
    }

    async fn describe_network_interfaces(&self, filters: &[Filter]) -> CloudResult<Vec<Interface>> {
        self.called(described("DescribeNetworkInterfaces", filters), |state| {
            let address = filters
                .iter()
                .find(|f| f.name == "private-ip-address")
                .unwrap();
            let matches =
                |i: &&Interface| i.private_ips.iter().any(|ip| address.values.contains(ip));
            Ok(state.interfaces.iter().filter(matches).cloned().collect())
        })
    }
}
