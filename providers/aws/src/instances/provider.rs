//! The node controllers' view of the instances.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use ccm_core::{
    cloud::{Class, CloudError, CloudResult, InstanceMetadata, Instances, Power, Presence, Read},
    kube::Node,
};
use futures::{StreamExt, stream};
use regex::Regex;

use super::{
    Describer, InstanceId, InstanceStore, ZoneCache,
    describe::{Found, MAX_IDS, copy, no_answer},
    fargate::Fargate,
    metadata::{Machine, MetadataBuilder},
    presence,
    topology::Topology,
};
use crate::{
    api::{Ec2, Instance},
    config::IpFamily,
};

/// Look-ups in flight at once where the cloud answers for one Node a call.
const CONCURRENCY: usize = 8;

/// What [`AwsInstances`] is made from.
pub struct Setup {
    /// The cloud.
    pub ec2: Arc<dyn Ec2>,
    /// Look-ups, shared with the load balancers.
    pub describer: Arc<Describer>,
    /// Refreshed with everything that is seen here.
    pub store: Arc<InstanceStore>,
    /// The zones.
    pub zones: Arc<ZoneCache>,
    /// The region's name, for the labels.
    pub region: String,
    /// The VPC of Fargate Nodes.
    pub vpc: String,
    /// `NodeIPFamilies`.
    pub families: Vec<IpFamily>,
    /// `SupportedTopologyInstanceTypePattern`.
    pub topology_pattern: Regex,
    /// The instance that this process runs on; its name needs no look-up.
    pub self_instance: Option<Arc<Instance>>,
}

/// See the module documentation.
pub struct AwsInstances {
    describer: Arc<Describer>,
    store: Arc<InstanceStore>,
    fargate: Fargate,
    metadata: MetadataBuilder,
    self_instance: Option<Arc<Instance>>,
}

/// How a Node's machine is found (specification: aws §1.5).
enum Target {
    Id(InstanceId),
    Fargate(InstanceId),
    Name(String),
}

type Machines = Vec<CloudResult<Option<Machine>>>;

impl AwsInstances {
    /// See [`Setup`].
    pub fn new(setup: Setup) -> Self {
        Self {
            fargate: Fargate::new(Arc::clone(&setup.ec2), setup.vpc),
            metadata: MetadataBuilder {
                region: setup.region,
                families: setup.families,
                zones: setup.zones,
                topology: Topology::new(setup.ec2, setup.topology_pattern),
            },
            describer: setup.describer,
            store: setup.store,
            self_instance: setup.self_instance,
        }
    }

    fn target(&self, node: &Node) -> CloudResult<Target> {
        let id = match node.provider_id() {
            Some(text) => InstanceId::from_provider_id(text).map_err(|e| {
                e.context(format!(
                    "failed to map provider ID to AWS instance ID for node {}",
                    node.name()
                ))
            })?,
            None => match (InstanceId::from_node_name(node.name()), &self.self_instance) {
                (Some(id), _) => id,
                (None, Some(own)) if own.private_dns_name == node.name() => own.id.clone(),
                _ => return Ok(Target::Name(node.name().to_owned())),
            },
        };
        Ok(if id.is_fargate() {
            Target::Fargate(id)
        } else {
            Target::Id(id)
        })
    }

    /// The machine of each Node; `None` when the cloud said that there is none.
    async fn machines(&self, nodes: &[Arc<Node>], read: Read) -> Machines {
        let targets: Vec<CloudResult<Target>> = nodes.iter().map(|n| self.target(n)).collect();
        let machines = match read {
            Read::Shared => self.shared(targets).await,
            // The addressed read is a proof: never joined with others.
            Read::Direct => {
                stream::iter(targets)
                    .map(|t| self.direct(t))
                    .buffered(CONCURRENCY)
                    .collect()
                    .await
            }
        };
        let seen: Vec<&Arc<Instance>> = machines
            .iter()
            .filter_map(|machine| match machine {
                Ok(Some(Machine::Instance(instance))) => Some(instance),
                _ => None,
            })
            .collect();
        self.store.refresh(seen);
        machines
    }

    async fn shared(&self, targets: Vec<CloudResult<Target>>) -> Machines {
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for target in &targets {
            match target {
                Ok(Target::Id(id)) => drop(ids.insert(id.clone())),
                Ok(Target::Name(name)) => drop(names.insert(name.clone())),
                Ok(Target::Fargate(_)) | Err(_) => {}
            }
        }
        let (by_id, by_name) =
            futures::join!(self.describer.by_ids(ids), self.describer.by_names(names));
        let (by_id, by_name) = (&by_id, &by_name);
        stream::iter(targets)
            .map(|target| async move {
                match target? {
                    Target::Id(id) => of_answer(by_id, &id),
                    Target::Name(name) => of_answer(by_name, &name),
                    Target::Fargate(id) => self.fargate(id).await,
                }
            })
            .buffered(CONCURRENCY)
            .collect()
            .await
    }

    async fn direct(&self, target: CloudResult<Target>) -> CloudResult<Option<Machine>> {
        let found = match target? {
            Target::Id(id) => self.describer.by_id_alone(&id).await?,
            Target::Name(name) => self.describer.by_name_alone(&name).await?,
            Target::Fargate(id) => return self.fargate(id).await,
        };
        Ok(found.map(Machine::Instance))
    }

    async fn fargate(&self, id: InstanceId) -> CloudResult<Option<Machine>> {
        let interface = self.fargate.interface(&id).await?;
        Ok(Some(Machine::Fargate(id, interface)))
    }
}

fn of_answer<K: Ord>(
    answers: &super::batch::Answers<K, Found>,
    key: &K,
) -> CloudResult<Option<Machine>> {
    match answers.get(key) {
        Some(Ok(found)) => Ok(found.clone().map(Machine::Instance)),
        Some(Err(error)) => Err(copy(error)),
        None => Err(no_answer()),
    }
}

fn presence_of(machine: Option<Machine>) -> Presence {
    match machine {
        Some(Machine::Instance(instance)) => presence::of_instance(Some(&instance)),
        // Upstream calls it shut down, and taints a live Node.
        Some(Machine::Fargate(_, Some(_))) => Presence::Present(Power::Running),
        Some(Machine::Fargate(_, None)) | None => Presence::Absent,
    }
}

fn not_found() -> CloudError {
    CloudError::new(Class::NotFound, "instance not found")
}

/// The words around a failed look-up for metadata.
fn explain(node: &Node, error: CloudError) -> CloudError {
    match node.provider_id().map(InstanceId::from_provider_id) {
        Some(Ok(id)) => error.context(format!("failed to get instance by ID {id}")),
        // Already explained, or found by name.
        Some(Err(_)) | None => error,
    }
}

#[async_trait]
impl Instances for AwsInstances {
    async fn presence(&self, nodes: &[Arc<Node>], read: Read) -> Vec<CloudResult<Presence>> {
        let machines = self.machines(nodes, read).await;
        machines
            .into_iter()
            .map(|machine| machine.map(presence_of))
            .collect()
    }

    async fn metadata(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        let machines = self.machines(nodes, Read::Shared).await;
        let machines = nodes
            .iter()
            .zip(machines)
            .map(|(node, machine)| {
                let machine = machine
                    .and_then(|found| found.ok_or_else(not_found))
                    .map_err(|e| explain(node, e));
                (Arc::clone(node), machine)
            })
            .collect();
        let all = self.metadata.build(machines).await;
        all.into_iter().map(|one| one.map(Some)).collect()
    }

    fn batch_size(&self) -> usize {
        MAX_IDS
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
