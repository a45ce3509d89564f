//! DescribeNetworkInterfaces.

use std::net::Ipv4Addr;

use super::super::model::Interface;
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{Kind, Listing, list, one, write_groups, write_tags};
use crate::control::CloudError;

const FILTERS: &[&str] = &[
    "attachment.instance-id",
    "attachment.status",
    "availability-zone",
    "description",
    "group-id",
    "interface-type",
    "network-interface-id",
    "private-ip-address",
    "addresses.private-ip-address",
    "status",
    "subnet-id",
    "vpc-id",
];

impl State {
    /// Private DNS name of an address.
    pub(crate) fn private_dns(&self, ip: Ipv4Addr) -> String {
        let [a, b, c, d] = ip.octets();
        format!("ip-{a}-{b}-{c}-{d}.{}", self.private_domain())
    }
}

/// DescribeNetworkInterfaces.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let listing = Listing {
        kind: Kind::Interface,
        ids: "NetworkInterfaceId",
        filters: FILTERS,
        tags: |eni: &Interface| &eni.tags,
        field: &field,
    };
    let (page, next) = list(state, params, &state.all.interfaces, &listing)?;
    xml.list("networkInterfaceSet", "item", &page, |xml, eni| {
        write(xml, state, eni);
    });
    xml.opt("nextToken", next);
    Ok(())
}

fn status(eni: &Interface) -> &'static str {
    if eni.attachment.is_some() {
        "in-use"
    } else {
        "available"
    }
}

fn field(eni: &Interface, name: &str) -> Vec<String> {
    let attachment = eni.attachment.as_ref();
    match name {
        "attachment.instance-id" => attachment
            .and_then(|at| at.instance_id.clone())
            .into_iter()
            .collect(),
        "attachment.status" => one(attachment.map_or("detached", |at| at.status.as_str())),
        "availability-zone" => one(&eni.zone),
        "description" => one(&eni.description),
        "group-id" => eni.groups.clone(),
        "interface-type" => one(&eni.kind),
        "network-interface-id" => one(&eni.id),
        "private-ip-address" | "addresses.private-ip-address" => {
            eni.private_ips.iter().map(ToString::to_string).collect()
        }
        "status" => one(status(eni)),
        "subnet-id" => one(&eni.subnet_id),
        "vpc-id" => one(&eni.vpc_id),
        _ => Vec::new(),
    }
}

fn write(xml: &mut Xml, state: &State, eni: &Interface) {
    xml.text("networkInterfaceId", &eni.id);
    xml.text("subnetId", &eni.subnet_id);
    xml.text("vpcId", &eni.vpc_id);
    xml.text("availabilityZone", &eni.zone);
    xml.text("description", &eni.description);
    xml.text("ownerId", &state.account);
    let foreign = eni
        .attachment
        .as_ref()
        .is_some_and(|at| at.instance_id.is_none());
    xml.text("requesterManaged", foreign);
    if foreign {
        xml.text("requesterId", "amazon-aws");
    }
    xml.text("status", status(eni));
    xml.text("macAddress", &eni.mac);
    xml.opt("privateIpAddress", eni.private_ips.first());
    xml.opt(
        "privateDnsName",
        eni.private_ips.first().map(|ip| state.private_dns(*ip)),
    );
    xml.text("sourceDestCheck", eni.source_dest_check);
    xml.text("interfaceType", &eni.kind);
    write_groups(xml, state, &eni.groups);
    if let Some(attachment) = &eni.attachment {
        xml.el("attachment", |xml| {
            xml.text("attachmentId", &attachment.id);
            xml.opt("instanceId", attachment.instance_id.as_ref());
            xml.text(
                "instanceOwnerId",
                if foreign {
                    "amazon-aws"
                } else {
                    &state.account
                },
            );
            xml.text("deviceIndex", attachment.device_index);
            xml.text("status", &attachment.status);
            xml.text("deleteOnTermination", !foreign);
        });
    }
    write_tags(xml, &eni.tags);
    xml.list(
        "privateIpAddressesSet",
        "item",
        eni.private_ips.iter().enumerate(),
        |xml, (at, ip)| {
            xml.text("privateIpAddress", ip);
            xml.text("privateDnsName", state.private_dns(*ip));
            xml.text("primary", at == 0);
        },
    );
    xml.list("ipv6AddressesSet", "item", &eni.ipv6, |xml, ip| {
        xml.text("ipv6Address", ip);
    });
}

/// ModifyNetworkInterfaceAttribute for the source/destination check.
pub(crate) fn modify_attribute(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let id = params.need("NetworkInterfaceId")?.to_owned();
    Kind::Interface.check(state, &state.all.interfaces, std::slice::from_ref(&id))?;
    let Some(check) = params.flag("SourceDestCheck.Value")? else {
        let text = "No attributes specified: give SourceDestCheck";
        return Err(CloudError::new("InvalidParameterCombination", text));
    };
    let Some(eni) = state.all.interfaces.get_mut(&id) else {
        return Err(Kind::Interface.not_found(&[id]));
    };
    eni.source_dest_check = check;
    let primary = eni.attachment.as_ref().filter(|at| at.device_index == 0);
    let owner = primary.and_then(|at| at.instance_id.clone());
    if let Some(instance) = owner.and_then(|id| state.all.instances.get_mut(&id)) {
        instance.source_dest_check = check;
    }
    xml.text("return", true);
    Ok(())
}
