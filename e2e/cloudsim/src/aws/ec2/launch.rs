//! Instances: launch, state changes, attributes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::model::{Attachment, Instance, InstanceState, Interface, Tags};
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{Kind, instances, specified_tags};
use crate::clock::later;
use crate::control::CloudError;

/// AWS keeps the first four addresses of a subnet (network, router, DNS, future use).
const RESERVED_ADDRESSES: u32 = 4;
/// More instances than a cluster of Kubernetes may have nodes.
const MAX_LAUNCH: usize = 10_000;

/// What to launch. Everything but the subnet may be left at its default.
#[derive(Clone, Debug, Default)]
pub struct RunInstance {
    /// Subnet.
    pub subnet: String,
    /// Type; empty for `m5.large`.
    pub instance_type: String,
    /// Primary private address; `None` takes the next free one.
    pub private_ip: Option<Ipv4Addr>,
    /// IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// Whether it gets a public address.
    pub public_ip: bool,
    /// Security groups; empty for the default group of the VPC.
    pub security_groups: Vec<String>,
    /// Tags.
    pub tags: Tags,
    /// `spot`, or `None` for on-demand.
    pub lifecycle: Option<String>,
    /// A fixed id, such as `i-0aa1`; `None` takes a new one.
    pub id: Option<String>,
}

impl State {
    /// A free address of a subnet. One that was given back is not given out again at once.
    pub(crate) fn free_address(&mut self, subnet_id: &str) -> Result<Ipv4Addr, CloudError> {
        let cidr = self.subnet(subnet_id)?.cidr;
        let first = u32::from(cidr.network()) + RESERVED_ADDRESSES;
        let end = u32::from(cidr.broadcast());
        let start = self
            .last_address
            .get(subnet_id)
            .map_or(first, |last| last + 1);
        let mut candidates = (start..end).chain(first..start.min(end));
        let used = self.used_in(subnet_id);
        let free = candidates
            .find(|ip| !used.contains(&Ipv4Addr::from(*ip)))
            .ok_or_else(|| {
                let text = format!("There are not enough free addresses in subnet '{subnet_id}'");
                CloudError::new("InsufficientFreeAddressesInSubnet", text)
            })?;
        self.last_address.insert(subnet_id.to_owned(), free);
        Ok(Ipv4Addr::from(free))
    }

    /// The used addresses of a subnet.
    pub(crate) fn used_in(&mut self, subnet_id: &str) -> &BTreeSet<Ipv4Addr> {
        let interfaces = &self.all.interfaces;
        let used = self.used_addresses.get_or_insert_with(|| {
            let mut used: BTreeMap<String, BTreeSet<Ipv4Addr>> = BTreeMap::new();
            for eni in interfaces.values() {
                used.entry(eni.subnet_id.clone())
                    .or_default()
                    .extend(&eni.private_ips);
            }
            used
        });
        used.entry(subnet_id.to_owned()).or_default()
    }

    fn address(
        &mut self,
        subnet_id: &str,
        wanted: Option<Ipv4Addr>,
    ) -> Result<Ipv4Addr, CloudError> {
        let Some(ip) = wanted else {
            return self.free_address(subnet_id);
        };
        if !self.subnet(subnet_id)?.cidr.contains(&ip) {
            let text = format!("Address {ip} does not fall within the subnet's address range");
            return Err(CloudError::new("InvalidParameterValue", text));
        }
        if self.used_in(subnet_id).contains(&ip) {
            let text = format!("Address {ip} is in use.");
            return Err(CloudError::new("InvalidIPAddress.InUse", text));
        }
        Ok(ip)
    }

    /// Makes an interface without attachment.
    pub(crate) fn new_interface(
        &mut self,
        subnet_id: &str,
        private_ips: Vec<Ipv4Addr>,
        groups: Vec<String>,
    ) -> Result<Interface, CloudError> {
        let subnet = self.subnet(subnet_id)?.clone();
        let id = self.new_id("eni");
        let mac = self.rng.u32(..).to_be_bytes();
        let [a, b, c, d] = mac;
        Ok(Interface {
            id,
            subnet_id: subnet.id,
            vpc_id: subnet.vpc_id,
            zone: subnet.zone,
            description: String::new(),
            kind: "interface".to_owned(),
            mac: format!("06:5a:{a:02x}:{b:02x}:{c:02x}:{d:02x}"),
            private_ips,
            ipv6: Vec::new(),
            groups,
            attachment: None,
            source_dest_check: true,
            tags: Tags::new(),
            release_at: None,
        })
    }

    /// Plugs the interface into an instance and stores it.
    pub(crate) fn attach(
        &mut self,
        mut interface: Interface,
        instance_id: &str,
        device_index: u32,
    ) -> String {
        interface.attachment = Some(Attachment {
            id: self.new_id("eni-attach"),
            instance_id: Some(instance_id.to_owned()),
            device_index,
            status: "attached".to_owned(),
        });
        let id = interface.id.clone();
        self.store_interface(interface);
        id
    }

    pub(crate) fn run_instance(
        &mut self,
        wanted: RunInstance,
        reservation: &str,
    ) -> Result<String, CloudError> {
        let subnet = self.subnet(&wanted.subnet)?.clone();
        let groups = if wanted.security_groups.is_empty() {
            self.default_group(&subnet.vpc_id).into_iter().collect()
        } else {
            Kind::Group.check(self, &self.all.security_groups, &wanted.security_groups)?;
            wanted.security_groups
        };
        let ip = self.address(&subnet.id, wanted.private_ip)?;
        let instance_type = if wanted.instance_type.is_empty() {
            "m5.large".to_owned()
        } else {
            wanted.instance_type
        };
        let id = match wanted.id {
            Some(id)
                if Kind::Instance.well_formed(&id) && !self.all.instances.contains_key(&id) =>
            {
                id
            }
            Some(id) => return Err(Kind::Instance.malformed(&id)),
            None => self.new_id("i"),
        };
        let mut interface = self.new_interface(&subnet.id, vec![ip], groups.clone())?;
        interface.ipv6.extend(wanted.ipv6);
        self.attach(interface, &id, 0);
        let public_ip = wanted.public_ip.then(|| self.new_public_ip());
        let [a, b, c, d] = ip.octets();
        let instance = Instance {
            id: id.clone(),
            reservation_id: reservation.to_owned(),
            state: InstanceState::Pending,
            network_nodes: self.network_nodes(&instance_type, &subnet),
            instance_type,
            image_id: "ami-0c5204531f799e0c6".to_owned(),
            zone: subnet.zone,
            vpc_id: subnet.vpc_id,
            subnet_id: subnet.id,
            private_dns_name: format!("ip-{a}-{b}-{c}-{d}.{}", self.private_domain()),
            private_ip: Some(ip),
            public_ip,
            groups,
            source_dest_check: true,
            lifecycle: wanted.lifecycle,
            launch_time: self.now,
            tags: wanted.tags,
            next: Some((
                later(self.now, self.settings.instance_transition),
                InstanceState::Running,
            )),
            wants_public_ip: wanted.public_ip,
            terminated_at: None,
        };
        self.all.instances.insert(id.clone(), instance);
        Ok(id)
    }

    /// Moves an instance through `by` to `to`. Returns the states before and after the call.
    pub(crate) fn change_state(
        &mut self,
        id: &str,
        by: InstanceState,
        to: InstanceState,
    ) -> Result<(InstanceState, InstanceState), CloudError> {
        let at = later(self.now, self.settings.instance_transition);
        let instance = self.all.instances.get_mut(id);
        let instance = instance.ok_or_else(|| Kind::Instance.not_found(&[id.to_owned()]))?;
        let before = instance.state;
        let terminates = to == InstanceState::Terminated;
        if before == to || before == by || terminates && before == InstanceState::Terminated {
            return Ok((before, before));
        }
        let ending = matches!(
            before,
            InstanceState::ShuttingDown | InstanceState::Terminated
        );
        let too_early = before == InstanceState::Stopping && to == InstanceState::Running;
        if ending && !terminates || too_early {
            let text = format!(
                "The instance '{id}' is not in a state from which it can be started or stopped."
            );
            return Err(CloudError::new("IncorrectInstanceState", text));
        }
        instance.state = by;
        instance.next = Some((at, to));
        Ok((before, by))
    }
}

/// Reads an address parameter.
fn address<T: std::str::FromStr>(params: &Params, key: &str) -> Result<Option<T>, CloudError> {
    let parse = |ip: &str| {
        let text = format!("Invalid value '{ip}' for {key}");
        ip.parse()
            .map_err(|_| CloudError::new("InvalidParameterValue", text))
    };
    params.get(key).map(parse).transpose()
}

/// RunInstances.
pub(crate) fn run_instances(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    params.need("MaxCount")?;
    let count: usize = params.number("MaxCount")?.unwrap_or(1);
    if !(1..=MAX_LAUNCH).contains(&count) {
        let text = format!("Invalid value '{count}' for MaxCount. Use 1 to {MAX_LAUNCH}.");
        return Err(CloudError::new("InvalidParameterValue", text));
    }
    let first = params
        .structs("NetworkInterface")
        .into_iter()
        .next()
        .unwrap_or_default();
    let subnet = params.get("SubnetId").or_else(|| first.get("SubnetId"));
    let subnet =
        subnet.ok_or_else(|| CloudError::new("MissingInput", "No subnets found: give SubnetId"))?;
    let mut groups = params.list("SecurityGroupId");
    groups.extend(first.list("SecurityGroupId"));
    let private_ip = address(params, "PrivateIpAddress")?;
    let ipv6 = address(params, "Ipv6Address.1.Ipv6Address")?;
    let wanted = RunInstance {
        subnet: subnet.to_owned(),
        instance_type: params.get("InstanceType").unwrap_or_default().to_owned(),
        private_ip,
        ipv6,
        public_ip: first.flag("AssociatePublicIpAddress")?.unwrap_or(false),
        security_groups: groups,
        tags: specified_tags(params, "instance"),
        lifecycle: params
            .get("InstanceMarketOptions.MarketType")
            .map(str::to_owned),
        id: None,
    };
    let reservation = state.new_id("r");
    let mut launched = Vec::new();
    for _ in 0..count {
        let id = state.run_instance(wanted.clone(), &reservation)?;
        launched.extend(state.all.instances.get(&id).cloned());
    }
    instances::write_reservation(xml, state, &reservation, &launched);
    Ok(())
}

fn change_states(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
    by: InstanceState,
    to: InstanceState,
) -> Result<(), CloudError> {
    params.need("InstanceId.1")?;
    let ids = params.list("InstanceId");
    Kind::Instance.check(state, &state.all.instances, &ids)?;
    let mut changes = Vec::new();
    for id in ids {
        let (before, after) = state.change_state(&id, by, to)?;
        changes.push((id, before, after));
    }
    xml.list(
        "instancesSet",
        "item",
        changes,
        |xml, (id, before, after)| {
            xml.text("instanceId", id);
            for (tag, value) in [("currentState", after), ("previousState", before)] {
                xml.el(tag, |xml| instances::write_state(xml, value));
            }
        },
    );
    Ok(())
}

/// TerminateInstances.
pub(crate) fn terminate_instances(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    change_states(
        state,
        params,
        xml,
        InstanceState::ShuttingDown,
        InstanceState::Terminated,
    )
}

/// StopInstances.
pub(crate) fn stop_instances(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    change_states(
        state,
        params,
        xml,
        InstanceState::Stopping,
        InstanceState::Stopped,
    )
}

/// StartInstances.
pub(crate) fn start_instances(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    change_states(
        state,
        params,
        xml,
        InstanceState::Pending,
        InstanceState::Running,
    )
}

/// ModifyInstanceAttribute for the type of a stopped instance and the source/destination check.
pub(crate) fn modify_attribute(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let id = params.need("InstanceId")?.to_owned();
    Kind::Instance.check(state, &state.all.instances, std::slice::from_ref(&id))?;
    let check = params.flag("SourceDestCheck.Value")?;
    let kind = params.get("InstanceType.Value");
    if check.is_some() && state.interfaces_of(&id).len() > 1 {
        let text = format!(
            "There are multiple interfaces attached to instance '{id}'. Please specify an interface ID for the operation instead."
        );
        return Err(CloudError::new("InvalidInstanceID", text));
    }
    let Some(instance) = state.all.instances.get_mut(&id) else {
        return Err(Kind::Instance.not_found(&[id]));
    };
    if let Some(kind) = kind {
        if instance.state != InstanceState::Stopped {
            let text = format!("The instance '{id}' is not in the 'stopped' state.");
            return Err(CloudError::new("IncorrectInstanceState", text));
        }
        kind.clone_into(&mut instance.instance_type);
    }
    if let Some(check) = check {
        instance.source_dest_check = check;
    } else if kind.is_none() {
        let text = "No attributes specified: give InstanceType or SourceDestCheck";
        return Err(CloudError::new("InvalidParameterCombination", text));
    }
    if let Some(check) = check {
        let attached = |eni: &&mut Interface| {
            eni.attachment
                .as_ref()
                .is_some_and(|at| at.instance_id.as_ref() == Some(&id))
        };
        for eni in state.all.interfaces.values_mut().filter(attached) {
            eni.source_dest_check = check;
        }
    }
    xml.text("return", true);
    Ok(())
}
