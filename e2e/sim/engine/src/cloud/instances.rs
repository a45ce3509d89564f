//! Machines, and the ranges that the cloud gives their pods.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use ccm_core::{
    cloud::{
        Class, CloudError, CloudPodCidrs, CloudResult, InstanceMetadata, Instances,
        MachinePodCidrs, Presence, ProviderId, Read,
    },
    kube::Node,
};
use k8s_openapi::api::core::v1::NodeAddress;

use super::{model::Machine, provider::Provider};

/// The machine behind a Node: by its provider id, else by its name.
fn machine(machines: &BTreeMap<String, Machine>, node: &Node) -> Option<Machine> {
    let found = match node.provider_id() {
        Some(id) => machines.get(id.strip_prefix("mem:///")?),
        None => machines
            .values()
            .find(|machine| machine.name == node.name()),
    };
    found.cloned()
}

fn names(nodes: &[Arc<Node>]) -> String {
    let names: Vec<&str> = nodes.iter().map(|node| node.name()).collect();
    names.join(",")
}

/// Gives every Node the answer of a call that was made for all.
fn each<T>(nodes: &[Arc<Node>], answer: CloudResult<Vec<T>>) -> Vec<CloudResult<T>> {
    match answer {
        Ok(all) => all.into_iter().map(Ok).collect(),
        Err(error) => {
            let again = || {
                let copy = CloudError::new(error.class(), error.to_string());
                match error.retry_after() {
                    Some(after) => copy.retry_in(after),
                    None => copy,
                }
            };
            nodes.iter().map(|_| Err(again())).collect()
        }
    }
}

#[async_trait]
impl Instances for Provider {
    async fn presence(&self, nodes: &[Arc<Node>], read: Read) -> Vec<CloudResult<Presence>> {
        let craft = self.session.craft();
        let found: Vec<CloudResult<Option<Machine>>> = match read {
            Read::Shared => {
                let what = format!("list-machines {}", names(nodes));
                let all = self.session.read(what, |model| {
                    let all = craft.machines(&model.machines);
                    Ok(nodes.iter().map(|node| machine(&all, node)).collect())
                });
                each(nodes, all.await)
            }
            Read::Direct => {
                let mut found = Vec::new();
                for node in nodes {
                    let what = format!("get-machine {}", node.name());
                    let one = self.session.read(what, |model| {
                        Ok(machine(&craft.machines(&model.machines), node))
                    });
                    found.push(one.await);
                }
                found
            }
        };
        found
            .into_iter()
            .map(|answer| craft.presence(answer))
            .collect()
    }

    async fn metadata(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        let what = format!("describe-machines {}", names(nodes));
        let all = self.session.read(what, |model| {
            let machines = &model.machines;
            Ok(nodes.iter().map(|node| machine(machines, node)).collect())
        });
        let all: Vec<CloudResult<Option<Machine>>> = each(nodes, all.await);
        all.into_iter()
            .zip(nodes)
            .map(|(answer, node)| match answer? {
                Some(machine) => metadata(&machine).map(Some),
                None => Err(no_machine(node)),
            })
            .collect()
    }
}

#[async_trait]
impl MachinePodCidrs for Provider {
    async fn pod_cidrs(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<CloudPodCidrs>> {
        let what = format!("describe-ranges {}", names(nodes));
        let all = self.session.read(what, |model| {
            let machines = &model.machines;
            Ok(nodes.iter().map(|node| machine(machines, node)).collect())
        });
        let all: Vec<CloudResult<Option<Machine>>> = each(nodes, all.await);
        let craft = self.session.craft();
        all.into_iter()
            .zip(nodes)
            .map(|(answer, node)| match answer? {
                Some(machine) => Ok(craft.ranges(&machine)),
                None => Err(no_machine(node)),
            })
            .collect()
    }
}

fn no_machine(node: &Node) -> CloudError {
    CloudError::new(Class::NotFound, format!("no machine for {}", node.name()))
}

fn metadata(machine: &Machine) -> CloudResult<InstanceMetadata> {
    let id = ProviderId::new(machine.provider_id());
    let id = id.map_err(|error| CloudError::invalid(error.to_string()))?;
    let address = |type_: &str, address: &str| NodeAddress {
        type_: type_.to_owned(),
        address: address.to_owned(),
    };
    Ok(InstanceMetadata {
        provider_id: Some(id),
        instance_type: "m.small".to_owned(),
        addresses: vec![
            address("InternalIP", &machine.ip),
            address("Hostname", &machine.name),
        ],
        zone: "mem-1a".to_owned(),
        region: "mem-1".to_owned(),
        ..InstanceMetadata::default()
    })
}
