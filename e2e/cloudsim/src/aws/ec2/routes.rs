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
        let destination = parse_destination(destination)?;
        self.check_target(target)?;
        let limit = self.quotas.routes_per_table;
        let table = self.route_table(id)?;
        let mut routes = table.routes.iter();
        if routes.any(|route| route.destination == destination) {
            let text = format!("The route identified by {destination} already exists.");
            return Err(CloudError::new("RouteAlreadyExists", text));
        }
        // IPv4 and IPv6 are counted apart.
        let is_v6 = destination.contains(':');
        let same = |route: &&Route| route.destination.contains(':') == is_v6;
        if table.routes.iter().filter(same).count() >= limit {
            let text = format!(
                "The maximum limit for number of routes per route table <{limit}> is reached."
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

    fn replace_route(
        &mut self,
        id: &str,
        destination: &str,
        target: &str,
    ) -> Result<(), CloudError> {
        let destination = parse_destination(destination)?;
        self.check_target(target)?;
        let mut routes = self.route_table(id)?.routes.iter_mut();
        let Some(route) = routes.find(|route| route.destination == destination) else {
            let text = format!(
                "There is no route defined for '{destination}' in the route table. Use CreateRoute instead."
            );
            return Err(CloudError::new("InvalidParameterValue", text));
        };
        if route.target == "local" {
            let text = format!("cannot change local route {destination} in route table {id}");
            return Err(CloudError::new("InvalidParameterValue", text));
        }
        target.clone_into(&mut route.target);
        Ok(())
    }

    fn delete_route(&mut self, id: &str, destination: &str) -> Result<(), CloudError> {
        let destination = parse_destination(destination)?;
        let table = self.route_table(id)?;
        let mut routes = table.routes.iter();
        let Some(at) = routes.position(|route| route.destination == destination) else {
            let text =
                format!("no route with destination-cidr-block {destination} in route table {id}");
            return Err(CloudError::new("InvalidRoute.NotFound", text));
        };
        if table
            .routes
            .get(at)
            .is_some_and(|route| route.target == "local")
        {
            let text = format!("cannot remove local route {destination} in route table {id}");
            return Err(CloudError::new("InvalidParameterValue", text));
        }
        table.routes.remove(at);
        Ok(())
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

    /// The instance and the interface that a route leads to. EC2 shows both, whichever one the route was made with.
    fn ends_of<'a>(&'a self, route: &'a Route) -> (Option<&'a str>, Option<&'a str>) {
        let target = route.target.as_str();
        if target.starts_with("eni-") {
            let eni = self.all.interfaces.get(target);
            let attachment = eni.and_then(|eni| eni.attachment.as_ref());
            return (
                attachment.and_then(|at| at.instance_id.as_deref()),
                Some(target),
            );
        }
        if target.starts_with("i-") {
            let primary = self
                .interfaces_of(target)
                .first()
                .map(|eni| eni.id.as_str());
            return (Some(target), primary);
        }
        (None, None)
    }

    /// A route whose instance does not run leads nowhere.
    fn route_state(&self, route: &Route) -> &'static str {
        let (instance, _) = self.ends_of(route);
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

/// An IPv4 or IPv6 range; as at EC2 its host bits are dropped.
fn parse_destination(text: &str) -> Result<String, CloudError> {
    let invalid = |_| {
        let text = format!(
            "Value ({text}) for parameter destinationCidrBlock is invalid. This is not a valid CIDR block."
        );
        CloudError::new("InvalidParameterValue", text)
    };
    let range: IpNet = text.parse().map_err(invalid)?;
    Ok(range.trunc().to_string())
}

fn destination(params: &Params) -> Result<&str, CloudError> {
    let v4 = params.get("DestinationCidrBlock");
    v4.or_else(|| params.get("DestinationIpv6CidrBlock"))
        .ok_or_else(|| {
            let text = "The request must contain the parameter destinationCidrBlock";
            CloudError::new("MissingParameter", text)
        })
}

/// The one target of a route.
fn target(params: &Params) -> Result<&str, CloudError> {
    let keys = [
        "GatewayId",
        "InstanceId",
        "NetworkInterfaceId",
        "NatGatewayId",
        "TransitGatewayId",
        "VpcPeeringConnectionId",
        "EgressOnlyInternetGatewayId",
    ];
    let given: Vec<&str> = keys.iter().filter_map(|key| params.get(key)).collect();
    let [target] = given.as_slice() else {
        return Err(CloudError::new(
            "InvalidParameterCombination",
            "The request must contain exactly one target, such as gatewayId",
        ));
    };
    Ok(target)
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

/// ReplaceRoute changes the target of a route that exists.
pub(crate) fn replace_route(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let id = params.need("RouteTableId")?;
    state.replace_route(id, destination(params)?, target(params)?)?;
    xml.text("return", true);
    Ok(())
}

/// DeleteRoute.
pub(crate) fn delete_route(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    state.delete_route(params.need("RouteTableId")?, destination(params)?)?;
    xml.text("return", true);
    Ok(())
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
    let (instance, interface) = state.ends_of(route);
    xml.opt("instanceId", instance);
    xml.opt("instanceOwnerId", instance.map(|_| &state.account));
    xml.opt("networkInterfaceId", interface);
    let tag = match route.target.split('-').next() {
        Some("i" | "eni") => None,
        Some("nat") => Some("natGatewayId"),
        Some("tgw") => Some("transitGatewayId"),
        Some("pcx") => Some("vpcPeeringConnectionId"),
        Some("eigw") => Some("egressOnlyInternetGatewayId"),
        _ => Some("gatewayId"),
    };
    if let Some(tag) = tag {
        xml.text(tag, &route.target);
    }
    xml.text("state", state.route_state(route));
    let origin = if route.target == "local" {
        "CreateRouteTable"
    } else {
        "CreateRoute"
    };
    xml.text("origin", origin);
}
