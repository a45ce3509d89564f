//! DescribeInstances.

use std::collections::BTreeMap;

use super::super::model::{Instance, InstanceState, Interface};
use super::super::query::{Params, Xml};
use super::super::state::{State, iso};
use super::{Kind, Listing, list, one, write_groups, write_tags};
use crate::control::CloudError;

const FILTERS: &[&str] = &[
    "availability-zone",
    "dns-name",
    "instance-id",
    "instance-lifecycle",
    "instance-state-code",
    "instance-state-name",
    "instance-type",
    "instance.group-id",
    "ip-address",
    "network-interface.addresses.private-ip-address",
    "private-dns-name",
    "private-ip-address",
    "reservation-id",
    "subnet-id",
    "vpc-id",
];

impl State {
    /// The interfaces of an instance by device index.
    pub(crate) fn interfaces_of(&self, instance_id: &str) -> Vec<&Interface> {
        let index = |eni: &Interface| {
            let attachment = eni.attachment.as_ref()?;
            let own = attachment.instance_id.as_deref() == Some(instance_id);
            own.then_some(attachment.device_index)
        };
        let enis = self
            .all
            .interfaces
            .values()
            .filter_map(|eni| index(eni).map(|index| (index, eni)));
        let mut enis: Vec<_> = enis.collect();
        enis.sort_by_key(|(index, _)| *index);
        enis.into_iter().map(|(_, eni)| eni).collect()
    }

    /// Public DNS name of an address.
    pub(crate) fn public_dns(&self, ip: std::net::Ipv4Addr) -> String {
        let [a, b, c, d] = ip.octets();
        if self.region == "us-east-1" {
            format!("ec2-{a}-{b}-{c}-{d}.compute-1.amazonaws.com")
        } else {
            format!("ec2-{a}-{b}-{c}-{d}.{}.compute.amazonaws.com", self.region)
        }
    }

    /// The interfaces of all instances, in one pass.
    fn interfaces_by_instance(&self) -> BTreeMap<&str, Vec<&Interface>> {
        let mut map: BTreeMap<&str, Vec<&Interface>> = BTreeMap::new();
        for eni in self.all.interfaces.values() {
            if let Some(id) = eni
                .attachment
                .as_ref()
                .and_then(|at| at.instance_id.as_deref())
            {
                map.entry(id).or_default().push(eni);
            }
        }
        for enis in map.values_mut() {
            enis.sort_by_key(|eni| eni.attachment.as_ref().map(|at| at.device_index));
        }
        map
    }
}

/// DescribeInstances.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    if params.has("InstanceId") && params.get("MaxResults").is_some() {
        let text = "The parameter instancesSet cannot be used with the parameter maxResults";
        return Err(CloudError::new("InvalidParameterCombination", text));
    }
    let mut rng = state.rng.fork();
    let field = |instance: &Instance, name: &str| field(state, instance, name);
    let listing = Listing {
        kind: Kind::Instance,
        ids: "InstanceId",
        filters: FILTERS,
        tags: |instance: &Instance| &instance.tags,
        field: &field,
    };
    let (page, next) = list(state, params, &state.all.instances, &listing)?;
    let mut reservations: BTreeMap<&str, Vec<&Instance>> = BTreeMap::new();
    for instance in &page {
        reservations
            .entry(&instance.reservation_id)
            .or_default()
            .push(instance);
    }
    let mut interfaces = state.interfaces_by_instance();
    if state.settings.random_eni_order {
        for enis in interfaces.values_mut() {
            rng.shuffle(enis);
        }
    }
    xml.list(
        "reservationSet",
        "item",
        reservations,
        |xml, (id, instances)| {
            write_head(xml, state, id);
            xml.list("instancesSet", "item", instances, |xml, instance| {
                let enis = interfaces
                    .get(instance.id.as_str())
                    .map_or(&[][..], Vec::as_slice);
                write_instance(xml, state, instance, enis);
            });
        },
    );
    xml.opt("nextToken", next);
    Ok(())
}

fn field(state: &State, instance: &Instance, name: &str) -> Vec<String> {
    match name {
        "availability-zone" => one(&instance.zone),
        "dns-name" => instance
            .public_ip
            .map(|ip| state.public_dns(ip))
            .into_iter()
            .collect(),
        "instance-id" => one(&instance.id),
        "instance-lifecycle" => instance.lifecycle.iter().cloned().collect(),
        "instance-state-code" => one(&instance.state.code()),
        "instance-state-name" => one(instance.state.name()),
        "instance-type" => one(&instance.instance_type),
        "instance.group-id" => instance.groups.clone(),
        "ip-address" => instance.public_ip.iter().map(ToString::to_string).collect(),
        "network-interface.addresses.private-ip-address" => {
            let enis = state.interfaces_of(&instance.id).into_iter();
            enis.flat_map(|eni| eni.private_ips.iter().map(ToString::to_string))
                .collect()
        }
        "private-dns-name" => one(&instance.private_dns_name),
        "private-ip-address" => instance
            .private_ip
            .iter()
            .map(ToString::to_string)
            .collect(),
        "reservation-id" => one(&instance.reservation_id),
        "subnet-id" => one(&instance.subnet_id),
        "vpc-id" => one(&instance.vpc_id),
        _ => Vec::new(),
    }
}

fn write_head(xml: &mut Xml, state: &State, reservation: &str) {
    xml.text("reservationId", reservation);
    xml.text("ownerId", &state.account);
    xml.list("groupSet", "item", [(); 0], |_, ()| {});
}

/// The answer of RunInstances.
pub(crate) fn write_reservation(
    xml: &mut Xml,
    state: &State,
    reservation: &str,
    instances: &[Instance],
) {
    write_head(xml, state, reservation);
    xml.list("instancesSet", "item", instances, |xml, instance| {
        write_instance(xml, state, instance, &state.interfaces_of(&instance.id));
    });
}

pub(crate) fn write_state(xml: &mut Xml, state: InstanceState) {
    xml.text("code", state.code());
    xml.text("name", state.name());
}

fn write_instance(xml: &mut Xml, state: &State, instance: &Instance, enis: &[&Interface]) {
    let live = instance.state != InstanceState::Terminated;
    xml.text("instanceId", &instance.id);
    xml.text("imageId", &instance.image_id);
    xml.el("instanceState", |xml| write_state(xml, instance.state));
    xml.text("privateDnsName", &instance.private_dns_name);
    xml.text(
        "dnsName",
        instance
            .public_ip
            .map(|ip| state.public_dns(ip))
            .unwrap_or_default(),
    );
    xml.text("amiLaunchIndex", 0);
    xml.text("instanceType", &instance.instance_type);
    xml.text("launchTime", iso(instance.launch_time));
    xml.el("placement", |xml| {
        xml.text("availabilityZone", &instance.zone);
        xml.text("groupName", "");
        xml.text("tenancy", "default");
    });
    xml.el("monitoring", |xml| xml.text("state", "disabled"));
    if live {
        xml.text("subnetId", &instance.subnet_id);
        xml.text("vpcId", &instance.vpc_id);
        xml.opt("privateIpAddress", instance.private_ip);
        xml.opt("ipAddress", instance.public_ip);
        xml.text("sourceDestCheck", instance.source_dest_check);
    }
    write_groups(xml, state, &instance.groups);
    xml.text("architecture", "x86_64");
    xml.text("rootDeviceType", "ebs");
    xml.text("rootDeviceName", "/dev/xvda");
    xml.text("virtualizationType", "hvm");
    xml.text("hypervisor", "xen");
    xml.opt("instanceLifecycle", instance.lifecycle.as_ref());
    write_tags(xml, &instance.tags);
    xml.list("networkInterfaceSet", "item", enis, |xml, eni| {
        let primary = eni
            .attachment
            .as_ref()
            .is_some_and(|at| at.device_index == 0);
        write_interface(xml, state, instance, eni, primary);
    });
    xml.text("ebsOptimized", false);
    xml.text("enaSupport", true);
}

fn write_interface(
    xml: &mut Xml,
    state: &State,
    instance: &Instance,
    eni: &Interface,
    primary: bool,
) {
    xml.text("networkInterfaceId", &eni.id);
    xml.text("subnetId", &eni.subnet_id);
    xml.text("vpcId", &eni.vpc_id);
    xml.text("description", &eni.description);
    xml.text("ownerId", &state.account);
    xml.text(
        "status",
        if eni.attachment.is_some() {
            "in-use"
        } else {
            "available"
        },
    );
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
            xml.text("deviceIndex", attachment.device_index);
            xml.text("status", &attachment.status);
            xml.text("attachTime", iso(instance.launch_time));
            xml.text("deleteOnTermination", true);
        });
    }
    let public = instance.public_ip.filter(|_| primary);
    if let Some(ip) = public {
        xml.el("association", |xml| write_association(xml, state, ip));
    }
    xml.list(
        "privateIpAddressesSet",
        "item",
        eni.private_ips.iter().enumerate(),
        |xml, (at, ip)| {
            xml.text("privateIpAddress", ip);
            xml.text("privateDnsName", state.private_dns(*ip));
            xml.text("primary", at == 0);
            if let Some(ip) = public.filter(|_| at == 0) {
                xml.el("association", |xml| write_association(xml, state, ip));
            }
        },
    );
    xml.list("ipv6AddressesSet", "item", &eni.ipv6, |xml, ip| {
        xml.text("ipv6Address", ip);
    });
}

fn write_association(xml: &mut Xml, state: &State, ip: std::net::Ipv4Addr) {
    xml.text("publicIp", ip);
    xml.text("publicDnsName", state.public_dns(ip));
    xml.text("ipOwnerId", "amazon");
}
