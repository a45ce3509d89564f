//! [`RoutesApi`] over the SDK.

use async_trait::async_trait;
use aws_sdk_ec2::{Client, types as sdk};
use ccm_core::cloud::CloudResult;
use ipnet::IpNet;

use super::{
    ApiCalls,
    routes::{NextHop, RoutesApi, Table, TableRoute, Tables, Target},
    sdk_network::filter,
};
use crate::instances::InstanceId;

/// See [`RoutesApi`].
#[derive(Clone, Debug)]
pub struct SdkRoutes {
    client: Client,
    calls: ApiCalls,
}

impl SdkRoutes {
    /// Through this client.
    pub const fn new(client: Client, calls: ApiCalls) -> Self {
        Self { client, calls }
    }
}

#[async_trait]
impl RoutesApi for SdkRoutes {
    async fn tables(&self, which: Tables<'_>) -> CloudResult<Vec<Table>> {
        const OPERATION: &str = "DescribeRouteTables";
        let filter = match which {
            Tables::Id(id) => filter("route-table-id", [id]),
            Tables::Tagged(keys) => filter("tag-key", keys.iter().map(String::as_str)),
        };
        let filter = &filter;
        let read = |token| async move {
            let send = self
                .client
                .describe_route_tables()
                .filters(filter.clone())
                .set_next_token(token)
                .send();
            let page = self.calls.page(OPERATION, send).await?;
            let some = page.route_tables.unwrap_or_default().into_iter().map(table);
            Ok((some.collect(), page.next_token))
        };
        self.calls
            .all_pages(OPERATION, read)
            .await
            .map_err(|e| e.map_message(|text| format!("error listing AWS route tables: {text:?}")))
    }

    async fn create_route(&self, table: &str, to: IpNet, hop: &NextHop) -> CloudResult<()> {
        let (v4, v6) = destination(to);
        let (instance, interface) = target(hop);
        let send = self
            .client
            .create_route()
            .route_table_id(table)
            .set_destination_cidr_block(v4)
            .set_destination_ipv6_cidr_block(v6)
            .set_instance_id(instance)
            .set_network_interface_id(interface)
            .send();
        self.calls.call("CreateRoute", send).await.map(drop)
    }

    async fn replace_route(&self, table: &str, to: IpNet, hop: &NextHop) -> CloudResult<()> {
        let (v4, v6) = destination(to);
        let (instance, interface) = target(hop);
        let send = self
            .client
            .replace_route()
            .route_table_id(table)
            .set_destination_cidr_block(v4)
            .set_destination_ipv6_cidr_block(v6)
            .set_instance_id(instance)
            .set_network_interface_id(interface)
            .send();
        self.calls.call("ReplaceRoute", send).await.map(drop)
    }

    async fn delete_route(&self, table: &str, to: IpNet) -> CloudResult<()> {
        let (v4, v6) = destination(to);
        let send = self
            .client
            .delete_route()
            .route_table_id(table)
            .set_destination_cidr_block(v4)
            .set_destination_ipv6_cidr_block(v6)
            .send();
        self.calls.call("DeleteRoute", send).await.map(drop)
    }

    async fn let_forward(&self, hop: &NextHop) -> CloudResult<()> {
        let off = sdk::AttributeBooleanValue::builder().value(false).build();
        match hop {
            NextHop::Instance(id) => {
                let call = self.client.modify_instance_attribute();
                let send = call.instance_id(id.as_str()).source_dest_check(off).send();
                self.calls.call("ModifyInstanceAttribute", send).await?;
            }
            NextHop::Interface(id) => {
                let call = self.client.modify_network_interface_attribute();
                let send = call.network_interface_id(id).source_dest_check(off).send();
                self.calls
                    .call("ModifyNetworkInterfaceAttribute", send)
                    .await?;
            }
        }
        Ok(())
    }
}

/// The two parameters of a destination, one of which is given.
fn destination(to: IpNet) -> (Option<String>, Option<String>) {
    match to {
        IpNet::V4(net) => (Some(net.to_string()), None),
        IpNet::V6(net) => (None, Some(net.to_string())),
    }
}

/// The two parameters of a target, one of which is given.
fn target(hop: &NextHop) -> (Option<String>, Option<String>) {
    match hop {
        NextHop::Instance(id) => (Some(id.as_str().to_owned()), None),
        NextHop::Interface(id) => (None, Some(id.clone())),
    }
}

fn table(table: sdk::RouteTable) -> Table {
    Table {
        id: table.route_table_id.unwrap_or_default(),
        tags: table
            .tags
            .unwrap_or_default()
            .into_iter()
            .filter_map(|tag| Some((tag.key?, tag.value.unwrap_or_default())))
            .collect(),
        routes: table
            .routes
            .unwrap_or_default()
            .into_iter()
            .filter_map(route)
            .collect(),
    }
}

fn route(route: sdk::Route) -> Option<(IpNet, TableRoute)> {
    let to = route
        .destination_cidr_block
        .or(route.destination_ipv6_cidr_block)?;
    let to: IpNet = to.parse().ok()?;
    let others = [
        route.gateway_id,
        route.nat_gateway_id,
        route.transit_gateway_id,
        route.vpc_peering_connection_id,
        route.egress_only_internet_gateway_id,
        route.local_gateway_id,
        route.carrier_gateway_id,
        route.core_network_arn,
        route.odb_network_arn,
    ];
    // What a virtual gateway spreads and what belongs to the table is nobody's to change.
    let made = matches!(route.origin, None | Some(sdk::RouteOrigin::CreateRoute));
    let target = match others.into_iter().flatten().next() {
        Some(id) => Target::Other(id),
        None if !made => Target::Other(route.network_interface_id.unwrap_or_default()),
        None => Target::Machine {
            instance: route.instance_id.map(InstanceId::from_cloud),
            interface: route.network_interface_id,
        },
    };
    let blackhole = route.state == Some(sdk::RouteState::Blackhole);
    Some((to.trunc(), TableRoute { target, blackhole }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> sdk::builders::RouteBuilder {
        sdk::Route::builder().destination_cidr_block("10.0.1.0/24")
    }

    fn read(route_: sdk::builders::RouteBuilder) -> Option<TableRoute> {
        route(route_.build()).map(|(_, route)| route)
    }

    #[test]
    fn only_what_leads_to_a_machine_and_was_made_by_a_call_is_a_machines_route() {
        let machine = read(
            builder()
                .instance_id("i-1")
                .network_interface_id("eni-1")
                .origin(sdk::RouteOrigin::CreateRoute)
                .state(sdk::RouteState::Active),
        );
        let target = Target::Machine {
            instance: Some(InstanceId::from_cloud("i-1")),
            interface: Some("eni-1".to_owned()),
        };
        let blackhole = false;
        assert_eq!(machine, Some(TableRoute { target, blackhole }));
        for other in [
            builder().gateway_id("local"),
            builder().nat_gateway_id("nat-1"),
            builder().transit_gateway_id("tgw-1"),
            builder().vpc_peering_connection_id("pcx-1"),
            builder().carrier_gateway_id("cagw-1"),
            builder().core_network_arn("arn:aws:networkmanager::1:core-network/c"),
            builder()
                .instance_id("i-1")
                .origin(sdk::RouteOrigin::EnableVgwRoutePropagation),
        ] {
            let other = other.state(sdk::RouteState::Blackhole);
            let found = read(other.clone()).unwrap();
            assert!(matches!(found.target, Target::Other(_)), "{other:?}");
            assert!(found.blackhole);
        }
    }

    #[test]
    fn both_families_are_read_and_prefix_lists_are_not() {
        let v6 = sdk::Route::builder()
            .destination_ipv6_cidr_block("fd00:10::/64")
            .build();
        assert_eq!(route(v6).unwrap().0, "fd00:10::/64".parse().unwrap());
        let list = sdk::Route::builder()
            .destination_prefix_list_id("pl-1")
            .gateway_id("vpce-1")
            .build();
        assert_eq!(route(list), None);
    }
}
