//! Elastic IP addresses.

use std::net::Ipv4Addr;

use super::super::model::{Address, Tags};
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{Kind, Listing, list, one, specified_tags, write_tags};
use crate::control::CloudError;

/// The benchmarking range: never a real address, and large enough.
const PUBLIC_RANGE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

impl State {
    /// The next public address; none is handed out twice.
    pub(crate) fn new_public_ip(&mut self) -> Ipv4Addr {
        let ip = Ipv4Addr::from(u32::from(PUBLIC_RANGE).wrapping_add(self.public_ips));
        self.public_ips = self.public_ips.wrapping_add(1);
        ip
    }

    pub(crate) fn allocate_address(&mut self, tags: Tags) -> Address {
        let address = Address {
            allocation_id: self.new_id("eipalloc"),
            public_ip: self.new_public_ip(),
            load_balancer_arn: None,
            tags,
        };
        self.all
            .addresses
            .insert(address.allocation_id.clone(), address.clone());
        address
    }
}

/// AllocateAddress.
pub(crate) fn allocate(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let address = state.allocate_address(specified_tags(params, "elastic-ip"));
    xml.text("publicIp", address.public_ip);
    xml.text("allocationId", address.allocation_id);
    xml.text("domain", "vpc");
    xml.text("publicIpv4Pool", "amazon");
    xml.text("networkBorderGroup", &state.region);
    Ok(())
}

/// DescribeAddresses.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let field = |address: &Address, name: &str| match name {
        "allocation-id" => one(&address.allocation_id),
        "public-ip" => one(&address.public_ip),
        "domain" => one("vpc"),
        _ => Vec::new(),
    };
    let listing = Listing {
        kind: Kind::Allocation,
        ids: "AllocationId",
        filters: &["allocation-id", "public-ip", "domain"],
        tags: |address: &Address| &address.tags,
        field: &field,
    };
    let (page, _) = list(state, params, &state.all.addresses, &listing)?;
    let wanted = params.list("PublicIp");
    let page = page
        .iter()
        .filter(|at| wanted.is_empty() || wanted.contains(&at.public_ip.to_string()));
    xml.list("addressesSet", "item", page, |xml, address| {
        xml.text("publicIp", address.public_ip);
        xml.text("allocationId", &address.allocation_id);
        xml.text("domain", "vpc");
        if address.load_balancer_arn.is_some() {
            xml.text("serviceManaged", "nlb");
        }
        xml.text("publicIpv4Pool", "amazon");
        xml.text("networkBorderGroup", &state.region);
        write_tags(xml, &address.tags);
    });
    Ok(())
}
