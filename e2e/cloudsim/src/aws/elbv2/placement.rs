//! Where a load balancer is: subnets, interfaces, elastic addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::super::model::{Attachment, SubnetMapping};
use super::super::query::Params;
use super::super::state::State;
use super::{configuration, validation};
use crate::control::CloudError;

/// By this text the interfaces of a load balancer are known, as at AWS.
pub(crate) fn eni_description(arn: &str) -> String {
    format!(
        "ELB {}",
        arn.split_once("loadbalancer/").map_or("", |(_, name)| name)
    )
}

/// `Subnets` or `SubnetMappings`, checked and ordered by zone.
pub(crate) fn mappings(
    state: &State,
    params: &Params,
    scheme: &str,
    own: Option<&str>,
) -> Result<Vec<SubnetMapping>, CloudError> {
    let plain = params
        .members("Subnets")
        .into_iter()
        .map(|id| (id, None, None));
    let field = |mapping: &Params, key: &str| {
        mapping
            .get(key)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let detailed = params
        .structs("SubnetMappings.member")
        .into_iter()
        .map(|mapping| {
            let id = field(&mapping, "SubnetId").unwrap_or_default();
            (
                id,
                field(&mapping, "AllocationId"),
                field(&mapping, "PrivateIPv4Address"),
            )
        });
    let mut zones: BTreeMap<String, SubnetMapping> = BTreeMap::new();
    for (id, allocation, private_ip) in plain.chain(detailed) {
        let Some(subnet) = state.all.subnets.get(&id).filter(|_| state.visible(&id)) else {
            let text = format!("The subnet ID '{id}' is not valid");
            return Err(CloudError::new("SubnetNotFound", text));
        };
        if let Some(allocation) = &allocation {
            check_allocation(state, allocation, scheme, own)?;
        }
        let private_ip = private_ip
            .map(|ip| check_private_ip(&ip, subnet.cidr, scheme))
            .transpose()?;
        let mapping = SubnetMapping {
            subnet_id: id,
            zone: subnet.zone.clone(),
            allocation_id: allocation,
            private_ip,
        };
        if zones.insert(subnet.zone.clone(), mapping).is_some() {
            let text = "A load balancer cannot be attached to multiple subnets in the same Availability Zone";
            return Err(configuration(text));
        }
    }
    let mappings: Vec<_> = zones.into_values().collect();
    check_vpc(state, &mappings, scheme)?;
    Ok(mappings)
}

fn check_vpc(state: &State, mappings: &[SubnetMapping], scheme: &str) -> Result<(), CloudError> {
    let vpc_of = |mapping: &SubnetMapping| {
        state
            .all
            .subnets
            .get(&mapping.subnet_id)
            .map(|subnet| &subnet.vpc_id)
    };
    let vpcs: BTreeSet<&String> = mappings.iter().filter_map(vpc_of).collect();
    if vpcs.len() > 1 {
        return Err(CloudError::new(
            "InvalidSubnet",
            "All subnets must belong to the same VPC",
        ));
    }
    let Some(vpc) = vpcs.first() else {
        return Err(validation("At least one subnet must be specified"));
    };
    if scheme == "internet-facing" && !state.has_internet_gateway(vpc) {
        return Err(CloudError::new(
            "InvalidSubnet",
            format!("VPC {vpc} has no internet gateway"),
        ));
    }
    let wavelength = |mapping: &&SubnetMapping| {
        state
            .zones
            .iter()
            .any(|zone| zone.name == mapping.zone && zone.kind == "wavelength-zone")
    };
    if let Some(mapping) = mappings.iter().find(wavelength) {
        let text = format!(
            "Network load balancers are not supported in '{}'",
            mapping.zone
        );
        return Err(CloudError::new("AvailabilityZoneNotSupported", text));
    }
    Ok(())
}

fn check_allocation(
    state: &State,
    id: &str,
    scheme: &str,
    own: Option<&str>,
) -> Result<(), CloudError> {
    if scheme == "internal" {
        return Err(configuration(
            "Elastic IP addresses cannot be used with an internal load balancer",
        ));
    }
    let Some(address) = state.all.addresses.get(id) else {
        let text = format!("The allocation IDs '{id}' do not exist");
        return Err(CloudError::new("AllocationIdNotFound", text));
    };
    if address
        .load_balancer_arn
        .as_deref()
        .is_some_and(|arn| Some(arn) != own)
    {
        let text =
            format!("The allocation ID '{id}' is already associated with another load balancer");
        return Err(CloudError::new("ResourceInUse", text));
    }
    Ok(())
}

fn check_private_ip(ip: &str, cidr: ipnet::Ipv4Net, scheme: &str) -> Result<Ipv4Addr, CloudError> {
    if scheme != "internal" {
        return Err(configuration(
            "A private IPv4 address can be given for an internal load balancer only",
        ));
    }
    let parsed: Option<Ipv4Addr> = ip.parse().ok();
    parsed.filter(|ip| cidr.contains(ip)).ok_or_else(|| {
        configuration(format!(
            "The private IPv4 address '{ip}' is not in the range of the subnet, {cidr}"
        ))
    })
}

impl State {
    /// Puts a load balancer into subnets: one interface in each, elastic addresses bound.
    pub(crate) fn place(
        &mut self,
        arn: &str,
        subnets: Vec<SubnetMapping>,
    ) -> Result<(), CloudError> {
        let lb = self.load_balancer(arn)?.clone();
        let description = eni_description(arn);
        let mut interfaces = Vec::new();
        for mapping in &subnets {
            if lb
                .subnets
                .iter()
                .any(|old| old.subnet_id == mapping.subnet_id)
            {
                continue;
            }
            let ip = match mapping.private_ip {
                Some(ip) if self.used_in(&mapping.subnet_id).contains(&ip) => {
                    let text = format!("The private IPv4 address '{ip}' is in use");
                    return Err(CloudError::new("ResourceInUse", text));
                }
                Some(ip) => ip,
                None => self
                    .free_address(&mapping.subnet_id)
                    .map_err(|error| CloudError::new("InvalidSubnet", error.message))?,
            };
            let groups = lb.security_groups.iter().flatten().cloned().collect();
            let mut eni = self.new_interface(&mapping.subnet_id, vec![ip], groups)?;
            eni.description.clone_from(&description);
            "network_load_balancer".clone_into(&mut eni.kind);
            eni.attachment = Some(Attachment {
                id: self.new_id("ela-attach"),
                instance_id: None,
                device_index: 1,
                status: "attached".to_owned(),
            });
            interfaces.push(eni);
        }
        let kept: BTreeSet<&str> = subnets
            .iter()
            .map(|mapping| mapping.subnet_id.as_str())
            .collect();
        self.retain_interfaces(|eni| {
            eni.description != description || kept.contains(eni.subnet_id.as_str())
        });
        for eni in interfaces {
            self.store_interface(eni);
        }
        for address in self.all.addresses.values_mut() {
            let used = subnets
                .iter()
                .any(|mapping| mapping.allocation_id.as_ref() == Some(&address.allocation_id));
            if used {
                address.load_balancer_arn = Some(arn.to_owned());
            } else if address.load_balancer_arn.as_deref() == Some(arn) {
                address.load_balancer_arn = None;
            }
        }
        self.load_balancer(arn)?.subnets = subnets;
        Ok(())
    }
}
