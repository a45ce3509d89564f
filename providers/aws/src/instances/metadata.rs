//! What a Node is told of its machine (specification: aws §3.6).

use std::{collections::BTreeMap, sync::Arc};

use ccm_core::{
    cloud::{Class, CloudError, CloudResult, InstanceMetadata, ProviderId},
    kube::Node,
};

use super::{
    InstanceId, ZoneCache, addresses,
    topology::{LAYER_LABEL, Topology},
};
use crate::{
    api::{Instance, Interface},
    config::IpFamily,
};

/// The label of the zone's id, e.g. `usw2-az2`.
pub const ZONE_ID_LABEL: &str = "topology.k8s.aws/zone-id";

/// The machine behind a Node.
#[derive(Clone)]
pub enum Machine {
    /// An instance.
    Instance(Arc<Instance>),
    /// A Fargate Node and its interface, if that is still there.
    Fargate(InstanceId, Option<Interface>),
}

impl Machine {
    fn id(&self) -> &InstanceId {
        match self {
            Self::Instance(instance) => &instance.id,
            Self::Fargate(id, _) => id,
        }
    }

    fn zone(&self) -> &str {
        match self {
            Self::Instance(instance) => &instance.zone,
            Self::Fargate(_, interface) => interface
                .as_ref()
                .map(|i| i.zone.as_str())
                .unwrap_or_default(),
        }
    }

    fn instance_type(&self) -> &str {
        match self {
            Self::Instance(instance) => &instance.instance_type,
            Self::Fargate(..) => "",
        }
    }

    fn addresses(
        &self,
        families: &[IpFamily],
    ) -> CloudResult<Vec<k8s_openapi::api::core::v1::NodeAddress>> {
        let addresses = match self {
            Self::Instance(instance) => addresses::of_instance(instance, families),
            Self::Fargate(_, Some(interface)) => addresses::of_fargate(interface, families),
            Self::Fargate(_, None) => Ok(vec![]),
        };
        addresses.map_err(|e| {
            e.context(format!(
                "failed to get node addresses for instance {}",
                self.id()
            ))
        })
    }
}

/// Builds metadata for many Nodes.
pub struct MetadataBuilder {
    pub(super) region: String,
    pub(super) families: Vec<IpFamily>,
    pub(super) zones: Arc<ZoneCache>,
    pub(super) topology: Topology,
}

impl MetadataBuilder {
    /// The metadata of each Node whose machine is given, in the given order.
    pub async fn build(
        &self,
        machines: Vec<(Arc<Node>, CloudResult<Machine>)>,
    ) -> Vec<CloudResult<InstanceMetadata>> {
        let layer_one = format!("{LAYER_LABEL}1");
        let wanted: BTreeMap<InstanceId, String> = machines
            .iter()
            .filter(|(node, _)| node.label(&layer_one).is_none())
            .filter_map(|(_, machine)| machine.as_ref().ok())
            .map(|machine| (machine.id().clone(), machine.instance_type().to_owned()))
            .collect();
        let mut topology = self.topology.labels(&wanted).await;
        let mut all = Vec::with_capacity(machines.len());
        for (node, machine) in machines {
            all.push(match machine {
                Ok(machine) => {
                    let layers = topology
                        .remove(machine.id())
                        .unwrap_or_else(|| Ok(BTreeMap::new()));
                    self.one(&node, &machine, layers).await
                }
                Err(error) => Err(error),
            });
        }
        all
    }

    async fn one(
        &self,
        node: &Node,
        machine: &Machine,
        layers: CloudResult<BTreeMap<String, String>>,
    ) -> CloudResult<InstanceMetadata> {
        let zone = machine.zone();
        let addresses = machine.addresses(&self.families)?;
        let mut labels = BTreeMap::new();
        if node.label(ZONE_ID_LABEL).is_none() {
            labels.insert(ZONE_ID_LABEL.to_owned(), self.zone_id(zone).await?);
        }
        labels.extend(layers?);
        let provider_id = match node.provider_id() {
            Some(text) => ProviderId::new(text),
            None => machine.id().provider_id(zone),
        };
        Ok(InstanceMetadata {
            provider_id: Some(provider_id.map_err(|e| CloudError::invalid(e.to_string()))?),
            instance_type: machine.instance_type().to_owned(),
            addresses,
            zone: zone.to_owned(),
            region: self.region.clone(),
            additional_labels: labels,
        })
    }

    async fn zone_id(&self, zone: &str) -> CloudResult<String> {
        let known = self.zones.get(zone).await?;
        known.map(|zone| zone.id).ok_or_else(|| {
            CloudError::new(
                Class::Transient,
                format!("Could not get zone ID from zone name {zone}"),
            )
        })
    }
}
