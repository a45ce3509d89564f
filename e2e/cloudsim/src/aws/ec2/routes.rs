//! Route tables.

use std::collections::BTreeMap;

use ipnet::{IpNet, Ipv4Net};

use super::super::model::{InstanceState, Route, RouteTable, Tags};
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{Kind, Listing, list, one, specified_tags, write_tags};
use crate::control::CloudError;

impl State {
    pub(crate) fn route_table(&mut self, id: &str) -> Result<&mut RouteTable, CloudError> {
        Kind::RouteTable.check(self, &self.all.route_tables, &[id.to_owned()])?;
        self.all
            .route_tables
            .get_mut(id)
            .ok_or_else(|| Kind::RouteTable.not_found(&[id.to_owned()]))
    }

    pub(crate) fn new_route_table(
        &mut self,
        vpc_id: &str,
        cidr: Ipv4Net,
        main: Option<String>,
        tags: Tags,
    ) -> String {
        let id = self.new_id("rtb");
        let local = Route {
            destination: cidr.to_string(),
            target: "local".to_owned(),
        };
        let table = RouteTable {
            id: id.clone(),
            vpc_id: vpc_id.to_owned(),
            main_association: main,
            associations: BTreeMap::new(),
            routes: vec![local],
            tags,
        };
        self.all.route_tables.insert(id.clone(), table);
        id
    }

    pub(crate) fn create_route_table(
        &mut self,
        vpc_id: &str,
        tags: Tags,
    ) -> Result<String, CloudError> {
        let cidr = self.vpc(vpc_id)?.cidr;
        Ok(self.new_route_table(vpc_id, cidr, None, tags))
    }

    pub(crate) fn main_route_table(&self, vpc_id: &str) -> Option<String> {
        let mut tables = self.all.route_tables.values();
        let main = tables.find(|table| table.vpc_id == vpc_id && table.main_association.is_some());
        main.map(|table| table.id.clone())
    }

    pub(crate) fn associate_route_table(
        &mut self,
        id: &str,
        subnet_id: &str,
    ) -> Result<String, CloudError> {
        self.subnet(subnet_id)?;
        self.route_table(id)?;
        let mut all = self.all.route_tables.values();
        if all.any(|table| {
            table
                .associations
                .values()
                .any(|subnet| subnet == subnet_id)
        }) {
            let text = format!("the specified association for subnet {subnet_id} already exists");
            return Err(CloudError::new("Resource.AlreadyAssociated", text));
        }
        let association = self.new_id("rtbassoc");
        let table = self.route_table(id)?;
        table
            .associations
            .insert(association.clone(), subnet_id.to_owned());
        Ok(association)
    }

    pub(crate) fn create_route(
        &mut self,
        id: &str,
        destination: &str,
        target: &str,
    ) -> Result<(), CloudError> {
        let destination: IpNet = destination.parse().map_err(|_| {
            let text = format!("Value ({destination}) for parameter destinationCidrBlock is invalid. This is not a valid CIDR block.");
            CloudError::new("InvalidParameterValue", text)
        })?;
        let destination = destination.trunc().to_string();
        self.check_target(target)?;
        let quota = self.quotas.routes_per_table;
        let table = self.route_table(id)?;
        if table
            .routes
            .iter()
            .any(|route| route.destination == destination)
        {
            let text = format!("The route identified by {destination} already exists.");
            return Err(CloudError::new("RouteAlreadyExists", text));
        }
        // IPv4 and IPv6 are counted apart.
        let is_v6 = destination.contains(':');
        let same = |route: &&Route| route.destination.contains(':') == is_v6;
        if table.routes.iter().filter(same).count() >= quota {
            let text = format!(
                "The maximum limit for number of routes per route table <{quota}> is reached."
            );
            return Err(CloudError::new("RouteLimitExceeded", text));
        }
        let target = target.to_owned();
        table.routes.push(Route {
            destination,
            target,
        });
        Ok(())
    }

    fn own_route(&mut self, id: &str, destination: &str) -> Result<&mut Vec<Route>, CloudError> {
        let table = self.route_table(id)?;
        let found = table
            .routes
            .iter()
            .find(|route| route.destination == destination);
        match found {
            Some(route) if route.target == "local" => {
                let text = format!("cannot change local route {destination} in route table {id}");
                Err(CloudError::new("InvalidParameterValue", text))
            }
            Some(_) => Ok(&mut table.routes),
            None => {
                let text = format!(
                    "no route with destination-cidr-block {destination} in route table {id}"
                );
                Err(CloudError::new("InvalidRoute.NotFound", text))
            }
        }
    }

    fn check_target(&self, target: &str) -> Result<(), CloudError> {
        let id = [target.to_owned()];
        match target.split('-').next() {
            Some("igw") => Kind::Gateway.check(self, &self.all.internet_gateways, &id),
            Some("i") => {
                Kind::Instance.check(self, &self.all.instances, &id)?;
                if self.interfaces_of(target).len() > 1 {
                    let text = format!(
                        "There are multiple interfaces attached to instance '{target}'. Please specify an interface ID for the operation instead."
                    );
                    return Err(CloudError::new("InvalidInstanceID", text));
                }
                Ok(())
            }
            Some("eni") => Kind::Interface.check(self, &self.all.interfaces, &id),
            // NAT gateways and the like are not emulated; any id does.
            _ => Ok(()),
        }
    }

    /// A route whose instance does not run leads nowhere.
    fn route_state(&self, route: &Route) -> &'static str {
        let instance = if route.target.starts_with("eni-") {
            let eni = self.all.interfaces.get(&route.target);
            eni.and_then(|eni| eni.attachment.as_ref())
                .and_then(|at| at.instance_id.as_deref())
        } else {
            Some(route.target.as_str()).filter(|target| target.starts_with("i-"))
        };
        let gone =
            route.target.starts_with("eni-") && !self.all.interfaces.contains_key(&route.target);
        let live = |id: &str| {
            self.all
                .instances
                .get(id)
                .is_some_and(|at| at.state == InstanceState::Running)
        };
        if gone || instance.is_some_and(|id| !live(id)) {
            "blackhole"
        } else {
            "active"
        }
    }
}

/// CreateRoute.
pub(crate) fn create_route(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let id = params.need("RouteTableId")?;
    state.create_route(id, destination(params)?, target(params)?)?;
    xml.text("return", true);
    Ok(())
}

/// ReplaceRoute.
pub(crate) fn replace_route(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let (destination, target) = (plain(destination(params)?), target(params)?);
    state.check_target(target)?;
    let routes = state.own_route(params.need("RouteTableId")?, &destination)?;
    for route in routes {
        if route.destination == destination {
            target.clone_into(&mut route.target);
        }
    }
    xml.text("return", true);
    Ok(())
}

/// DeleteRoute.
pub(crate) fn delete_route(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let destination = plain(destination(params)?);
    let routes = state.own_route(params.need("RouteTableId")?, &destination)?;
    routes.retain(|route| route.destination != destination);
    xml.text("return", true);
    Ok(())
}

fn destination(params: &Params) -> Result<&str, CloudError> {
    let v4 = params.get("DestinationCidrBlock");
    v4.or_else(|| params.get("DestinationIpv6CidrBlock"))
        .ok_or_else(|| {
            CloudError::new(
                "MissingParameter",
                "The request must contain the parameter destinationCidrBlock",
            )
        })
}

/// Without host bits, as routes are kept.
fn plain(destination: &str) -> String {
    let net: Result<IpNet, _> = destination.parse();
    net.map_or_else(|_| destination.to_owned(), |net| net.trunc().to_string())
}

fn target(params: &Params) -> Result<&str, CloudError> {
    let targets = [
        "GatewayId",
        "InstanceId",
        "NetworkInterfaceId",
        "NatGatewayId",
        "TransitGatewayId",
        "VpcPeeringConnectionId",
        "EgressOnlyInternetGatewayId",
    ];
    targets
        .iter()
        .find_map(|key| params.get(key))
        .ok_or_else(|| {
            CloudError::new(
                "InvalidParameterCombination",
                "The request must contain exactly one target, such as gatewayId",
            )
        })
}

/// CreateRouteTable.
pub(crate) fn create_table(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let id =
        state.create_route_table(params.need("VpcId")?, specified_tags(params, "route-table"))?;
    let table = state.route_table(&id)?.clone();
    xml.el("routeTable", |xml| write(xml, state, &table));
    Ok(())
}

/// AssociateRouteTable.
pub(crate) fn associate(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let id = state.associate_route_table(params.need("RouteTableId")?, params.need("SubnetId")?)?;
    xml.text("associationId", id);
    xml.el("associationState", |xml| xml.text("state", "associated"));
    Ok(())
}

/// DescribeRouteTables.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let field = |table: &RouteTable, name: &str| match name {
        "vpc-id" => one(&table.vpc_id),
        "route-table-id" => one(&table.id),
        "association.subnet-id" => table.associations.values().cloned().collect(),
        "association.main" => one(&table.main_association.is_some()),
        "route.gateway-id" => table
            .routes
            .iter()
            .map(|route| route.target.clone())
            .collect(),
        _ => Vec::new(),
    };
    let listing = Listing {
        kind: Kind::RouteTable,
        ids: "RouteTableId",
        filters: &[
            "vpc-id",
            "route-table-id",
            "association.subnet-id",
            "association.main",
            "route.gateway-id",
        ],
        tags: |table: &RouteTable| &table.tags,
        field: &field,
    };
    let (page, next) = list(state, params, &state.all.route_tables, &listing)?;
    xml.list("routeTableSet", "item", &page, |xml, table| {
        write(xml, state, table);
    });
    xml.opt("nextToken", next);
    Ok(())
}

fn write(xml: &mut Xml, state: &State, table: &RouteTable) {
    xml.text("routeTableId", &table.id);
    xml.text("vpcId", &table.vpc_id);
    xml.text("ownerId", &state.account);
    xml.list("routeSet", "item", &table.routes, |xml, route| {
        write_route(xml, state, route);
    });
    let main = table.main_association.iter().map(|id| (id, None));
    let others = table
        .associations
        .iter()
        .map(|(id, subnet)| (id, Some(subnet)));
    xml.list(
        "associationSet",
        "item",
        main.chain(others),
        |xml, (id, subnet)| {
            xml.text("routeTableAssociationId", id);
            xml.text("routeTableId", &table.id);
            xml.opt("subnetId", subnet);
            xml.text("main", subnet.is_none());
            xml.el("associationState", |xml| xml.text("state", "associated"));
        },
    );
    xml.list("propagatingVgwSet", "item", [(); 0], |_, ()| {});
    write_tags(xml, &table.tags);
}

fn write_route(xml: &mut Xml, state: &State, route: &Route) {
    let family = if route.destination.contains(':') {
        "destinationIpv6CidrBlock"
    } else {
        "destinationCidrBlock"
    };
    xml.text(family, &route.destination);
    let tag = match route.target.split('-').next() {
        Some("i") => "instanceId",
        Some("eni") => "networkInterfaceId",
        Some("nat") => "natGatewayId",
        Some("tgw") => "transitGatewayId",
        Some("pcx") => "vpcPeeringConnectionId",
        Some("eigw") => "egressOnlyInternetGatewayId",
        _ => "gatewayId",
    };
    xml.text(tag, &route.target);
    // Whichever of the two a route was made with, EC2 shows both while the machine is there.
    if tag == "instanceId" {
        let primary = state.interfaces_of(&route.target);
        xml.opt("networkInterfaceId", primary.first().map(|eni| &eni.id));
    } else if tag == "networkInterfaceId" {
        let eni = state.all.interfaces.get(&route.target);
        let at = eni.and_then(|eni| eni.attachment.as_ref());
        xml.opt("instanceId", at.and_then(|at| at.instance_id.as_ref()));
    }
    xml.text("state", state.route_state(route));
    let origin = if route.target == "local" {
        "CreateRouteTable"
    } else {
        "CreateRoute"
    };
    xml.text("origin", origin);
}
