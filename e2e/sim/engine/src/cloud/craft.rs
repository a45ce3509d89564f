//! What the provider decides, apart from the calls: pure, and open to be replaced one by one.
//!
//! The methods as they stand here are the honest provider. A planted defect is an implementation
//! that overrides one of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_core::{
    cloud::{
        CloudError, CloudPodCidrs, CloudResult, LoadBalancerName, Note, Power, Presence, Route,
    },
    kube::{LoadBalancerIngress, LoadBalancerStatus, Node, Service},
};

use super::model::{Machine, Part, PartKind, Port, Spec, State};

/// The parts of one load balancer that were read.
pub type Parts = BTreeMap<PartKind, Part>;

/// A load balancer as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The UID of the Service.
    pub owner: String,
    /// The name of all its parts.
    pub name: String,
    /// The parts.
    pub specs: Vec<Spec>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a part.
    Create(String, String, Spec),
    /// Change a part in place.
    Change(String, Spec),
    /// Delete a part.
    Delete(PartKind, String),
}

/// The provider's decisions.
pub trait Craft: Send + Sync {
    /// The name of the load balancer and all its parts.
    ///
    /// # Errors
    /// The Service has no UID.
    fn name(&self, service: &Service) -> CloudResult<String> {
        let name = LoadBalancerName::from_uid(service.uid());
        name.map(|name| name.as_str().to_owned())
            .map_err(|error| CloudError::invalid(error.to_string()))
    }

    /// The machines behind the load balancer.
    fn members(&self, _service: &Service, nodes: &[Arc<Node>]) -> BTreeSet<String> {
        let ids = nodes.iter().filter_map(|node| node.provider_id());
        ids.map(str::to_owned).collect()
    }

    /// The next changes towards what is wanted, independent of each other.
    fn next(&self, want: &Want, have: &Parts) -> Vec<Action> {
        next(want, have)
    }

    /// The next deletions, independent of each other.
    fn removal(&self, have: &Parts) -> Vec<Action> {
        removal(have)
    }

    /// What is answered when the Service's load balancer is looked up.
    fn status(&self, have: &Parts) -> Option<LoadBalancerStatus> {
        (!have.is_empty()).then(|| status(have))
    }

    /// What a failed look at one part means.
    ///
    /// # Errors
    /// Everything but the proof that it is not there.
    fn read_failed(&self, error: CloudError) -> CloudResult<Option<Part>> {
        if error.is_not_found() {
            Ok(None)
        } else {
            Err(error)
        }
    }

    /// What a failed change means.
    ///
    /// # Errors
    /// Everything but the deletion of what is not there.
    fn change_failed(&self, action: &Action, error: CloudError) -> CloudResult<()> {
        match action {
            Action::Delete(..) if error.is_not_found() => Ok(()),
            _ => Err(error),
        }
    }

    /// What the look at a machine means.
    ///
    /// # Errors
    /// Whatever is not a complete answer.
    fn presence(&self, answer: CloudResult<Option<Machine>>) -> CloudResult<Presence> {
        Ok(match answer? {
            None => Presence::Absent,
            Some(machine) => Presence::Present(match machine.state {
                State::Running => Power::Running,
                State::Stopped => Power::Stopped,
            }),
        })
    }

    /// The machines among which one is looked up when it is asked whether it exists.
    fn machines(&self, seen: &BTreeMap<String, Machine>) -> BTreeMap<String, Machine> {
        seen.clone()
    }

    /// A route as it is shown to the controller.
    fn shown(&self, route: Route) -> Route {
        route
    }

    /// The ranges of the pods of a machine.
    fn ranges(&self, machine: &Machine) -> CloudPodCidrs {
        CloudPodCidrs {
            cidrs: machine.ranges.clone(),
            routed: true,
        }
    }

    /// What users should know of a load balancer that was made.
    fn notes(&self) -> Vec<Note> {
        Vec::new()
    }

    /// What passes before each call that changes something.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the calls of one operation go on although nobody waits for its end any more.
    fn detaches(&self) -> bool {
        false
    }

    /// Whether the fence is asked before a call that changes something.
    fn heeds_fence(&self) -> bool {
        true
    }
}

/// The honest provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Honest;

impl Craft for Honest {}

/// The parts that a Service asks for.
pub fn specs(service: &Service, name: &str, members: BTreeSet<String>) -> Vec<Spec> {
    let ports: Vec<Port> = service
        .spec
        .ports
        .iter()
        .map(|port| Port {
            port: port.port,
            protocol: port.protocol().to_owned(),
            node_port: port.allocated_node_port().unwrap_or_default(),
        })
        .collect();
    let ranges = service.spec.load_balancer_source_ranges.clone();
    let dual = service
        .spec
        .ip_families
        .iter()
        .any(|family| family == "IPv6");
    let all: &[&str] = if dual {
        &["0.0.0.0/0", "::/0"]
    } else {
        &["0.0.0.0/0"]
    };
    let everybody = || all.iter().map(|range| (*range).to_owned()).collect();
    vec![
        Spec::Address { dual },
        Spec::Firewall {
            ports: ports.iter().map(|port| port.port).collect(),
            ranges: ranges
                .filter(|ranges| !ranges.is_empty())
                .unwrap_or_else(everybody),
        },
        Spec::Backends { members },
        Spec::Head {
            ports,
            address: name.to_owned(),
            backends: name.to_owned(),
        },
    ]
}

/// First what the head refers to, then the head.
pub fn next(want: &Want, have: &Parts) -> Vec<Action> {
    let change = |spec: &Spec| match have.get(&spec.kind()) {
        None => Some(Action::Create(
            want.name.clone(),
            want.owner.clone(),
            spec.clone(),
        )),
        Some(part) if part.spec != *spec => Some(Action::Change(want.name.clone(), spec.clone())),
        Some(_) => None,
    };
    let (head, rest): (Vec<&Spec>, Vec<&Spec>) = want
        .specs
        .iter()
        .partition(|spec| spec.kind() == PartKind::Head);
    let first: Vec<Action> = rest.into_iter().filter_map(change).collect();
    if first.is_empty() {
        return head.into_iter().filter_map(change).collect();
    }
    first
}

/// First the head, then what it refers to; the address last, while it is held nobody else gets it.
pub fn removal(have: &Parts) -> Vec<Action> {
    let stages: [&[PartKind]; 3] = [
        &[PartKind::Head],
        &[PartKind::Firewall, PartKind::Backends],
        &[PartKind::Address],
    ];
    for stage in stages {
        let batch: Vec<Action> = stage
            .iter()
            .filter_map(|kind| have.get(kind))
            .map(|part| Action::Delete(part.spec.kind(), part.name.clone()))
            .collect();
        if !batch.is_empty() {
            return batch;
        }
    }
    Vec::new()
}

/// The status of the parts: the addresses, if they are there.
pub fn status(have: &Parts) -> LoadBalancerStatus {
    let shown = |ip: &String| LoadBalancerIngress {
        ip: Some(ip.clone()),
        ..LoadBalancerIngress::default()
    };
    let address = have.get(&PartKind::Address);
    LoadBalancerStatus {
        ingress: address.map(|part| {
            let ips = [&part.ip, &part.ip6];
            let ips = ips.into_iter().filter(|ip| !ip.is_empty());
            ips.map(shown).collect()
        }),
    }
}
