//! [`Ec2`] over the SDK.

use async_trait::async_trait;
use aws_sdk_ec2::types;
use ccm_core::cloud::{CloudError, CloudResult};

use super::{
    ApiCalls, Clients, Ec2, Filter, Instance, InstanceState, Interface, InterfaceStatus,
    TopologyNodes, Zone,
};
use crate::{instances::InstanceId, tags::Tags};

/// Instances a page: EC2's maximum.
const PAGE: i32 = 1000;

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct SdkEc2 {
    client: aws_sdk_ec2::Client,
    calls: ApiCalls,
}

impl SdkEc2 {
    /// Over these clients.
    pub fn new(clients: &Clients) -> Self {
        Self {
            client: clients.ec2.clone(),
            calls: clients.ec2_calls.clone(),
        }
    }
}

#[async_trait]
impl Ec2 for SdkEc2 {
    async fn describe_instances(&self, ids: &[InstanceId]) -> CloudResult<Vec<Instance>> {
        // Without ids EC2 would list the whole region.
        if ids.is_empty() {
            return Err(CloudError::invalid(
                "expected at least one instance ID, found 0",
            ));
        }
        let ids = ids.iter().map(|id| id.as_str().to_owned()).collect();
        let request = self.client.describe_instances().set_instance_ids(Some(ids));
        let answer = self
            .calls
            .call("DescribeInstances", request.send())
            .await
            .map_err(|e| listing("instances", e))?;
        Ok(answer
            .reservations
            .unwrap_or_default()
            .into_iter()
            .flat_map(of_reservation)
            .collect())
    }

    async fn find_instances(&self, filters: &[Filter]) -> CloudResult<Vec<Instance>> {
        const OPERATION: &str = "DescribeInstances";
        let read = |token| async move {
            let send = self
                .client
                .describe_instances()
                .set_filters(Some(filters.iter().map(to_filter).collect()))
                .max_results(PAGE)
                .set_next_token(token)
                .send();
            let page = self.calls.page(OPERATION, send).await?;
            let reservations = page.reservations.unwrap_or_default().into_iter();
            Ok((
                reservations.flat_map(of_reservation).collect(),
                page.next_token,
            ))
        };
        self.calls
            .all_pages(OPERATION, read)
            .await
            .map_err(|e| listing("instances", e))
    }

    async fn describe_availability_zones(&self) -> CloudResult<Vec<Zone>> {
        let request = self.client.describe_availability_zones();
        let answer = self
            .calls
            .call("DescribeAvailabilityZones", request.send())
            .await
            .map_err(|e| listing("availability zones", e))?;
        let zones = answer.availability_zones.unwrap_or_default().into_iter();
        Ok(zones
            .map(|zone| Zone {
                name: zone.zone_name.unwrap_or_default(),
                id: zone.zone_id.unwrap_or_default(),
                kind: zone.zone_type.unwrap_or_default(),
            })
            .collect())
    }

    async fn describe_instance_topology(&self, ids: &[InstanceId]) -> CloudResult<TopologyNodes> {
        const OPERATION: &str = "DescribeInstanceTopology";
        let read = |token| async move {
            let ids = ids.iter().map(|id| id.as_str().to_owned()).collect();
            let send = self
                .client
                .describe_instance_topology()
                .set_instance_ids(Some(ids))
                .set_next_token(token)
                .send();
            let page = self.calls.page(OPERATION, send).await?;
            let some = page.instances.unwrap_or_default().into_iter();
            let some = some.filter_map(|one| {
                let id = InstanceId::from_cloud(one.instance_id?);
                Some((id, one.network_nodes.unwrap_or_default()))
            });
            Ok((some.collect(), page.next_token))
        };
        let found = self.calls.all_pages(OPERATION, read).await?;
        Ok(found.into_iter().collect())
    }

    async fn describe_network_interfaces(&self, filters: &[Filter]) -> CloudResult<Vec<Interface>> {
        const OPERATION: &str = "DescribeNetworkInterfaces";
        let read = |token| async move {
            let send = self
                .client
                .describe_network_interfaces()
                .set_filters(Some(filters.iter().map(to_filter).collect()))
                .set_next_token(token)
                .send();
            let page = self.calls.page(OPERATION, send).await?;
            let some = page.network_interfaces.unwrap_or_default().into_iter();
            Ok((some.map(of_interface).collect(), page.next_token))
        };
        self.calls.all_pages(OPERATION, read).await
    }
}

/// The words that the Go manager puts around a failed listing.
fn listing(what: &str, error: CloudError) -> CloudError {
    error.map_message(|message| format!("error listing AWS {what}: {message:?}"))
}

fn to_filter(filter: &Filter) -> types::Filter {
    types::Filter::builder()
        .name(&filter.name)
        .set_values(Some(filter.values.clone()))
        .build()
}

fn of_reservation(reservation: types::Reservation) -> impl Iterator<Item = Instance> {
    reservation
        .instances
        .unwrap_or_default()
        .into_iter()
        .filter_map(of_instance)
}

fn of_instance(instance: types::Instance) -> Option<Instance> {
    Some(Instance {
        id: InstanceId::from_cloud(instance.instance_id?),
        state: instance
            .state
            .and_then(|state| state.name)
            .map(|name| of_state(&name)),
        instance_type: instance
            .instance_type
            .map(|t| t.as_str().to_owned())
            .unwrap_or_default(),
        zone: instance
            .placement
            .and_then(|p| p.availability_zone)
            .unwrap_or_default(),
        vpc_id: instance.vpc_id.unwrap_or_default(),
        subnet_id: instance.subnet_id.unwrap_or_default(),
        public_ip: instance.public_ip_address.unwrap_or_default(),
        private_dns_name: instance.private_dns_name.unwrap_or_default(),
        public_dns_name: instance.public_dns_name.unwrap_or_default(),
        security_groups: instance
            .security_groups
            .unwrap_or_default()
            .into_iter()
            .filter_map(|group| group.group_id)
            .collect(),
        interfaces: instance
            .network_interfaces
            .unwrap_or_default()
            .into_iter()
            .map(of_instance_interface)
            .collect(),
        tags: of_tags(instance.tags),
    })
}

fn of_state(name: &types::InstanceStateName) -> InstanceState {
    match name {
        types::InstanceStateName::Pending => InstanceState::Pending,
        types::InstanceStateName::Running => InstanceState::Running,
        types::InstanceStateName::ShuttingDown => InstanceState::ShuttingDown,
        types::InstanceStateName::Terminated => InstanceState::Terminated,
        types::InstanceStateName::Stopping => InstanceState::Stopping,
        types::InstanceStateName::Stopped => InstanceState::Stopped,
        _ => InstanceState::Other,
    }
}

fn of_status(status: Option<&types::NetworkInterfaceStatus>) -> InterfaceStatus {
    match status {
        Some(types::NetworkInterfaceStatus::InUse) => InterfaceStatus::InUse,
        _ => InterfaceStatus::Other,
    }
}

fn of_instance_interface(interface: types::InstanceNetworkInterface) -> Interface {
    Interface {
        id: interface.network_interface_id.unwrap_or_default(),
        status: of_status(interface.status.as_ref()),
        device_index: interface.attachment.and_then(|a| a.device_index),
        private_ips: interface
            .private_ip_addresses
            .unwrap_or_default()
            .into_iter()
            .filter_map(|address| address.private_ip_address)
            .collect(),
        ipv6: interface
            .ipv6_addresses
            .unwrap_or_default()
            .into_iter()
            .filter_map(|address| address.ipv6_address)
            .collect(),
        zone: String::new(),
        private_dns_name: interface.private_dns_name.unwrap_or_default(),
        // It is on until someone switches it off.
        source_dest_check: interface.source_dest_check.unwrap_or(true),
    }
}

fn of_interface(interface: types::NetworkInterface) -> Interface {
    Interface {
        id: interface.network_interface_id.unwrap_or_default(),
        status: of_status(interface.status.as_ref()),
        device_index: interface.attachment.and_then(|a| a.device_index),
        private_ips: interface.private_ip_address.into_iter().collect(),
        ipv6: interface
            .ipv6_addresses
            .unwrap_or_default()
            .into_iter()
            .filter_map(|address| address.ipv6_address)
            .collect(),
        zone: interface.availability_zone.unwrap_or_default(),
        private_dns_name: interface.private_dns_name.unwrap_or_default(),
        // It is on until someone switches it off.
        source_dest_check: interface.source_dest_check.unwrap_or(true),
    }
}

fn of_tags(tags: Option<Vec<types::Tag>>) -> Tags {
    tags.unwrap_or_default()
        .into_iter()
        .filter_map(|tag| Some((tag.key?, tag.value.unwrap_or_default())))
        .collect()
}
