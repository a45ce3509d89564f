//! VPCs, subnets and Internet gateways.

use ipnet::{Ipv4Net, Ipv6Net};

use super::super::model::{InternetGateway, Subnet, Tags, Vpc};
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{Kind, Listing, list, one, specified_tags, write_tags};
use crate::control::CloudError;

/// AWS keeps four addresses at the start and one at the end of a subnet.
const RESERVED_ADDRESSES: usize = 5;

impl State {
    pub(crate) fn vpc(&self, id: &str) -> Result<&Vpc, CloudError> {
        Kind::Vpc.check(self, &self.all.vpcs, &[id.to_owned()])?;
        self.all
            .vpcs
            .get(id)
            .ok_or_else(|| Kind::Vpc.not_found(&[id.to_owned()]))
    }

    pub(crate) fn subnet(&self, id: &str) -> Result<&Subnet, CloudError> {
        Kind::Subnet.check(self, &self.all.subnets, &[id.to_owned()])?;
        self.all
            .subnets
            .get(id)
            .ok_or_else(|| Kind::Subnet.not_found(&[id.to_owned()]))
    }

    /// A VPC with its main route table and its default security group.
    pub(crate) fn create_vpc(&mut self, cidr: Ipv4Net, tags: Tags) -> String {
        let id = self.new_id("vpc");
        let vpc = Vpc {
            id: id.clone(),
            cidr,
            tags,
        };
        self.all.vpcs.insert(id.clone(), vpc);
        let main = Some(self.new_id("rtbassoc"));
        self.new_route_table(&id, cidr, main, Tags::new());
        self.new_group(&id, "default", "default VPC security group", Tags::new());
        id
    }

    pub(crate) fn create_subnet(
        &mut self,
        vpc_id: &str,
        cidr: Ipv4Net,
        ipv6_cidr: Option<Ipv6Net>,
        zone: &str,
        tags: Tags,
    ) -> Result<String, CloudError> {
        let vpc = self.vpc(vpc_id)?;
        let inside = vpc.cidr.contains(&cidr);
        let siblings = self
            .all
            .subnets
            .values()
            .filter(|subnet| subnet.vpc_id == vpc_id);
        let overlaps = |other: Ipv4Net| other.contains(&cidr) || cidr.contains(&other);
        if !inside {
            let text = format!("The CIDR '{cidr}' is invalid.");
            return Err(CloudError::new("InvalidSubnet.Range", text));
        }
        if siblings.clone().any(|subnet| overlaps(subnet.cidr)) {
            let text = format!("The CIDR '{cidr}' conflicts with another subnet");
            return Err(CloudError::new("InvalidSubnet.Conflict", text));
        }
        if self.zones.iter().all(|known| known.name != zone) {
            let text = format!(
                "Value ({zone}) for parameter availabilityZone is invalid. Subnets can currently only be created in the zones of the region."
            );
            return Err(CloudError::new("InvalidParameterValue", text));
        }
        let id = self.new_id("subnet");
        let subnet = Subnet {
            id: id.clone(),
            vpc_id: vpc_id.to_owned(),
            cidr,
            ipv6_cidr,
            zone: zone.to_owned(),
            tags,
        };
        self.all.subnets.insert(id.clone(), subnet);
        Ok(id)
    }

    pub(crate) fn create_internet_gateway(&mut self, tags: Tags) -> String {
        let id = self.new_id("igw");
        let gateway = InternetGateway {
            id: id.clone(),
            vpc_id: None,
            tags,
        };
        self.all.internet_gateways.insert(id.clone(), gateway);
        id
    }

    pub(crate) fn attach_internet_gateway(
        &mut self,
        id: &str,
        vpc_id: &str,
    ) -> Result<(), CloudError> {
        self.vpc(vpc_id)?;
        Kind::Gateway.check(self, &self.all.internet_gateways, &[id.to_owned()])?;
        let taken = |gateway: &InternetGateway| {
            gateway.vpc_id.as_deref() == Some(vpc_id)
                || gateway.id == id && gateway.vpc_id.is_some()
        };
        if self.all.internet_gateways.values().any(taken) {
            let text = format!(
                "Network {vpc_id} already has an internet gateway attached, or resource {id} is already attached to a network"
            );
            return Err(CloudError::new("Resource.AlreadyAssociated", text));
        }
        if let Some(gateway) = self.all.internet_gateways.get_mut(id) {
            gateway.vpc_id = Some(vpc_id.to_owned());
        }
        Ok(())
    }

    /// How many addresses of a subnet are free.
    pub(crate) fn free_addresses(&self, subnet: &Subnet) -> usize {
        let size = 1_usize << (32 - subnet.cidr.prefix_len()).min(31);
        let all = self.all.interfaces.values();
        let inside = all.filter(|eni| eni.subnet_id == subnet.id);
        let used: usize = inside.map(|eni| eni.private_ips.len()).sum();
        size.saturating_sub(RESERVED_ADDRESSES + used)
    }

    /// Whether a VPC can be reached from the Internet.
    pub(crate) fn has_internet_gateway(&self, vpc_id: &str) -> bool {
        self.all
            .internet_gateways
            .values()
            .any(|gateway| gateway.vpc_id.as_deref() == Some(vpc_id))
    }
}

/// Reads a CIDR parameter.
pub(crate) fn cidr<T: std::str::FromStr>(
    params: &Params,
    key: &str,
) -> Result<Option<T>, CloudError> {
    let parse = |text: &str| {
        text.parse().map_err(|_| {
            let text = format!(
                "Value ({text}) for parameter {key} is invalid. This is not a valid CIDR block."
            );
            CloudError::new("InvalidParameterValue", text)
        })
    };
    params.get(key).map(parse).transpose()
}

fn needed_cidr(params: &Params) -> Result<Ipv4Net, CloudError> {
    params.need("CidrBlock")?;
    let missing = || {
        CloudError::new(
            "MissingParameter",
            "The request must contain the parameter CidrBlock",
        )
    };
    cidr(params, "CidrBlock")?.ok_or_else(missing)
}

/// CreateVpc.
pub(crate) fn create_vpc(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let id = state.create_vpc(needed_cidr(params)?, specified_tags(params, "vpc"));
    let vpc = state.vpc(&id)?;
    xml.el("vpc", |xml| write_vpc(xml, state, vpc));
    Ok(())
}

/// DescribeVpcs.
pub(crate) fn describe_vpcs(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let field = |vpc: &Vpc, name: &str| match name {
        "vpc-id" => one(&vpc.id),
        "cidr" | "cidr-block-association.cidr-block" => one(&vpc.cidr),
        "state" => one("available"),
        "owner-id" => one(&state.account),
        _ => Vec::new(),
    };
    let listing = Listing {
        kind: Kind::Vpc,
        ids: "VpcId",
        filters: &[
            "vpc-id",
            "cidr",
            "cidr-block-association.cidr-block",
            "state",
            "owner-id",
        ],
        tags: |vpc: &Vpc| &vpc.tags,
        field: &field,
    };
    let (page, next) = list(state, params, &state.all.vpcs, &listing)?;
    xml.list("vpcSet", "item", &page, |xml, vpc| {
        write_vpc(xml, state, vpc);
    });
    xml.opt("nextToken", next);
    Ok(())
}

fn write_vpc(xml: &mut Xml, state: &State, vpc: &Vpc) {
    xml.text("vpcId", &vpc.id);
    xml.text("ownerId", &state.account);
    xml.text("state", "available");
    xml.text("cidrBlock", vpc.cidr);
    let suffix = vpc.id.trim_start_matches("vpc-");
    xml.list(
        "cidrBlockAssociationSet",
        "item",
        [vpc.cidr],
        |xml, cidr| {
            xml.text("associationId", format!("vpc-cidr-assoc-{suffix}"));
            xml.text("cidrBlock", cidr);
            xml.el("cidrBlockState", |xml| xml.text("state", "associated"));
        },
    );
    xml.text("dhcpOptionsId", format!("dopt-{suffix}"));
    xml.text("instanceTenancy", "default");
    xml.text("isDefault", false);
    write_tags(xml, &vpc.tags);
}

/// CreateSubnet.
pub(crate) fn create_subnet(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let vpc = params.need("VpcId")?;
    let by_id = params
        .get("AvailabilityZoneId")
        .and_then(|id| state.zones.iter().find(|zone| zone.id == id));
    let first = by_id
        .or_else(|| state.zones.first())
        .map(|zone| zone.name.clone())
        .unwrap_or_default();
    let zone = params.get("AvailabilityZone").map_or(first, str::to_owned);
    let ipv6 = cidr(params, "Ipv6CidrBlock")?;
    let id = state.create_subnet(
        vpc,
        needed_cidr(params)?,
        ipv6,
        &zone,
        specified_tags(params, "subnet"),
    )?;
    let subnet = state.subnet(&id)?;
    xml.el("subnet", |xml| write_subnet(xml, state, subnet));
    Ok(())
}

/// DescribeSubnets.
pub(crate) fn describe_subnets(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let field = |subnet: &Subnet, name: &str| match name {
        "vpc-id" => one(&subnet.vpc_id),
        "subnet-id" => one(&subnet.id),
        "availability-zone" => one(&subnet.zone),
        "availability-zone-id" => one(state.zone_id(&subnet.zone)),
        "cidr-block" | "cidrBlock" => one(&subnet.cidr),
        "state" => one("available"),
        _ => Vec::new(),
    };
    let listing = Listing {
        kind: Kind::Subnet,
        ids: "SubnetId",
        filters: &[
            "vpc-id",
            "subnet-id",
            "availability-zone",
            "availability-zone-id",
            "cidr-block",
            "cidrBlock",
            "state",
        ],
        tags: |subnet: &Subnet| &subnet.tags,
        field: &field,
    };
    let (page, next) = list(state, params, &state.all.subnets, &listing)?;
    xml.list("subnetSet", "item", &page, |xml, subnet| {
        write_subnet(xml, state, subnet);
    });
    xml.opt("nextToken", next);
    Ok(())
}

fn write_subnet(xml: &mut Xml, state: &State, subnet: &Subnet) {
    xml.text("subnetId", &subnet.id);
    let (partition, region, account) = (state.partition(), &state.region, &state.account);
    xml.text(
        "subnetArn",
        format!(
            "arn:{partition}:ec2:{region}:{account}:subnet/{}",
            subnet.id
        ),
    );
    xml.text("state", "available");
    xml.text("ownerId", account);
    xml.text("vpcId", &subnet.vpc_id);
    xml.text("cidrBlock", subnet.cidr);
    xml.list(
        "ipv6CidrBlockAssociationSet",
        "item",
        subnet.ipv6_cidr,
        |xml, cidr| {
            xml.text("ipv6CidrBlock", cidr);
            let suffix = subnet.id.trim_start_matches("subnet-");
            xml.text("associationId", format!("subnet-cidr-assoc-{suffix}"));
            xml.el("ipv6CidrBlockState", |xml| xml.text("state", "associated"));
        },
    );
    xml.text("availableIpAddressCount", state.free_addresses(subnet));
    xml.text("availabilityZone", &subnet.zone);
    xml.text("availabilityZoneId", state.zone_id(&subnet.zone));
    xml.text("defaultForAz", false);
    xml.text("mapPublicIpOnLaunch", false);
    xml.text("assignIpv6AddressOnCreation", false);
    write_tags(xml, &subnet.tags);
}

/// CreateInternetGateway.
pub(crate) fn create_gateway(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let tags = specified_tags(params, "internet-gateway");
    let id = state.create_internet_gateway(tags.clone());
    xml.el("internetGateway", |xml| {
        xml.text("internetGatewayId", id);
        xml.list("attachmentSet", "item", [(); 0], |_, ()| {});
        xml.text("ownerId", &state.account);
        write_tags(xml, &tags);
    });
    Ok(())
}

/// AttachInternetGateway.
pub(crate) fn attach_gateway(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    state.attach_internet_gateway(params.need("InternetGatewayId")?, params.need("VpcId")?)?;
    xml.text("return", true);
    Ok(())
}
