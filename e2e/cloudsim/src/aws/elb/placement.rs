//! Where a classic load balancer is: subnets, interfaces, security groups.

use std::collections::{BTreeMap, BTreeSet};

use super::super::elbv2::check_groups;
use super::super::model::{Attachment, Interface};
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::model::ClassicLoadBalancer;
use super::{configuration, need};
use crate::control::CloudError;

/// AWS wants room for a load balancer to grow.
const MIN_FREE_ADDRESSES: usize = 8;

/// By this text the interfaces of a load balancer are known, as at AWS.
fn eni_description(name: &str) -> String {
    format!("ELB {name}")
}

/// Whether an interface belongs to the load balancer of this name that lives now, not to a deleted one.
fn is_live_eni(eni: &Interface, description: &str) -> bool {
    eni.description == description && eni.release_at.is_none()
}

fn invalid_subnet(text: String) -> CloudError {
    CloudError::new("InvalidSubnet", text)
}

/// Checks `ids` together with the subnets that are attached already; returns their VPC.
pub(super) fn check_subnets(
    state: &State,
    ids: &BTreeSet<String>,
    attached: &BTreeSet<String>,
    scheme: &str,
) -> Result<String, CloudError> {
    let mut zones: BTreeMap<&str, &str> = BTreeMap::new();
    let mut vpc: Option<&str> = None;
    for id in attached.union(ids) {
        let Some(subnet) = state.all.subnets.get(id).filter(|_| state.visible(id)) else {
            let text = format!("The requested subnet '{id}' does not exist");
            return Err(CloudError::new("SubnetNotFound", text));
        };
        if zones.insert(&subnet.zone, id).is_some() {
            return Err(configuration(
                "ELB cannot be attached to multiple subnets in the same AZ.",
            ));
        }
        if *vpc.get_or_insert(&subnet.vpc_id) != subnet.vpc_id {
            return Err(invalid_subnet(format!(
                "Subnet {id} is not in the VPC of the other subnets"
            )));
        }
        if !attached.contains(id) && state.free_addresses(subnet) < MIN_FREE_ADDRESSES {
            return Err(invalid_subnet(format!(
                "Not enough IP space available in {id}. ELB requires at least {MIN_FREE_ADDRESSES} free IP addresses in each subnet."
            )));
        }
    }
    let vpc = vpc.unwrap_or_default();
    if scheme == "internet-facing" && !state.has_internet_gateway(vpc) {
        return Err(invalid_subnet(format!("VPC {vpc} has no internet gateway")));
    }
    Ok(vpc.to_owned())
}

impl State {
    /// Stores a load balancer with other subnets: one interface in each of them.
    pub(super) fn place_classic(
        &mut self,
        mut lb: ClassicLoadBalancer,
        subnets: BTreeSet<String>,
    ) -> Result<(), CloudError> {
        let description = eni_description(&lb.name);
        let mut interfaces = Vec::new();
        for subnet in subnets.difference(&lb.subnets) {
            let ip = self
                .free_address(subnet)
                .map_err(|error| invalid_subnet(error.message))?;
            let groups = lb.security_groups.iter().cloned().collect();
            let mut eni = self.new_interface(subnet, vec![ip], groups)?;
            eni.description.clone_from(&description);
            eni.attachment = Some(Attachment {
                id: self.new_id("ela-attach"),
                instance_id: None,
                device_index: 1,
                status: "attached".to_owned(),
            });
            interfaces.push(eni);
        }
        self.retain_interfaces(|eni| {
            !is_live_eni(eni, &description) || subnets.contains(&eni.subnet_id)
        });
        for eni in interfaces {
            self.store_interface(eni);
        }
        lb.subnets = subnets;
        self.store_classic(lb);
        Ok(())
    }

    /// The interfaces of a deleted load balancer hold its security groups for a while.
    pub(super) fn release_classic(&mut self, name: &str) {
        let description = eni_description(name);
        let release = crate::clock::later(self.now, self.settings.eni_release_delay);
        let all = self.all.interfaces.values_mut();
        for eni in all.filter(|eni| is_live_eni(eni, &description)) {
            eni.release_at = Some(release);
        }
    }
}

fn subnets(params: &Params) -> Result<BTreeSet<String>, CloudError> {
    need(params, "Subnets.member.1")?;
    Ok(params.members("Subnets").into_iter().collect())
}

/// AttachLoadBalancerToSubnets. A subnet that is attached already is passed over.
pub(crate) fn attach(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let lb = state.named_classic(params)?;
    let wanted = subnets(params)?;
    check_subnets(state, &wanted, &lb.subnets, &lb.scheme)?;
    let all: BTreeSet<String> = lb.subnets.union(&wanted).cloned().collect();
    state.place_classic(lb, all.clone())?;
    xml.texts("Subnets", "member", all);
    Ok(())
}

/// DetachLoadBalancerFromSubnets. A subnet that is not attached is passed over, the last one stays.
pub(crate) fn detach(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let lb = state.named_classic(params)?;
    let unwanted = subnets(params)?;
    let rest: BTreeSet<String> = lb.subnets.difference(&unwanted).cloned().collect();
    if rest.is_empty() {
        return Err(configuration(
            "The load balancer must stay attached to at least one subnet",
        ));
    }
    state.place_classic(lb, rest.clone())?;
    xml.texts("Subnets", "member", rest);
    Ok(())
}

/// ApplySecurityGroupsToLoadBalancer replaces all security groups.
pub(crate) fn apply_groups(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let mut lb = state.named_classic(params)?;
    let groups: BTreeSet<String> = params.members("SecurityGroups").into_iter().collect();
    if groups.is_empty() {
        return Err(configuration(
            "A load balancer in a VPC needs at least one security group",
        ));
    }
    check_groups(state, &groups, &lb.vpc_id)?;
    let description = eni_description(&lb.name);
    let all = state.all.interfaces.values_mut();
    for eni in all.filter(|eni| is_live_eni(eni, &description)) {
        eni.groups = groups.iter().cloned().collect();
    }
    xml.texts("SecurityGroups", "member", &groups);
    lb.security_groups = groups;
    state.store_classic(lb);
    Ok(())
}
