//! Registered instances.

use super::super::ec2::Kind;
use super::super::model::InstanceState;
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::model::ClassicLoadBalancer;
use super::need;
use crate::clock::later;
use crate::control::CloudError;

/// `Instances.member.N.InstanceId`.
pub(super) fn requested(params: &Params) -> Vec<String> {
    let items = params.structs("Instances.member");
    let ids = items.iter().filter_map(|item| item.get("InstanceId"));
    ids.map(str::to_owned).collect()
}

pub(super) fn invalid_instance(id: &str) -> CloudError {
    CloudError::new(
        "InvalidInstance",
        format!("Could not find EC2 instance {id}."),
    )
}

fn known(state: &State, id: &str) -> bool {
    Kind::Instance.well_formed(id) && state.all.instances.contains_key(id) && state.visible(id)
}

fn write(xml: &mut Xml, lb: &ClassicLoadBalancer) {
    xml.list("Instances", "member", &lb.instances, |xml, id| {
        xml.text("InstanceId", id);
    });
}

/// RegisterInstancesWithLoadBalancer. One bad instance refuses them all; a registered one is passed over.
pub(crate) fn register(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let mut lb = state.named_classic(params)?;
    need(params, "Instances.member.1.InstanceId")?;
    let known_at = later(state.now, state.settings.target_initial);
    for id in requested(params) {
        let instance = state.all.instances.get(&id).filter(|_| known(state, &id));
        let instance = instance.ok_or_else(|| invalid_instance(&id))?;
        let gone = matches!(
            instance.state,
            InstanceState::ShuttingDown | InstanceState::Terminated
        );
        if gone {
            let text = format!("EC2 instance {id} is terminated.");
            return Err(CloudError::new("InvalidInstance", text));
        }
        if instance.vpc_id != lb.vpc_id {
            let text = format!("EC2 instance {id} is not in the same VPC as ELB.");
            return Err(CloudError::new("InvalidInstance", text));
        }
        if lb.instances.insert(id.clone()) {
            lb.known_at.insert(id, known_at);
        }
    }
    write(xml, &lb);
    state.store_classic(lb);
    Ok(())
}

/// DeregisterInstancesFromLoadBalancer. An instance that is not registered is passed over, an unknown one is not.
pub(crate) fn deregister(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let mut lb = state.named_classic(params)?;
    need(params, "Instances.member.1.InstanceId")?;
    for id in requested(params) {
        lb.known_at.remove(&id);
        if !lb.instances.remove(&id) && !known(state, &id) {
            return Err(invalid_instance(&id));
        }
    }
    write(xml, &lb);
    state.store_classic(lb);
    Ok(())
}

impl State {
    /// A terminated instance leaves every classic load balancer by itself.
    pub(crate) fn drop_from_classic(&mut self, id: &str) {
        for lb in self.all.classic_load_balancers.values_mut() {
            lb.instances.remove(id);
            lb.known_at.remove(id);
        }
    }
}
