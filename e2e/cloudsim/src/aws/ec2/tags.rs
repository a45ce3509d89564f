//! CreateTags and DeleteTags.

use super::super::model::Tags;
use super::super::query::{Params, Xml};
use super::super::state::{MAX_TAGS, State, tags_of};
use super::Kind;
use crate::control::CloudError;

impl State {
    /// The tags of any EC2 resource.
    pub(crate) fn ec2_tags(&mut self, id: &str) -> Result<&mut Tags, CloudError> {
        let malformed = || CloudError::new("InvalidID", format!("The ID '{id}' is not valid"));
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| kind.well_formed(id))
            .ok_or_else(malformed)?;
        let missing = || kind.not_found(&[id.to_owned()]);
        if !self.visible(id) {
            return Err(missing());
        }
        let all = &mut self.all;
        let tags = match kind {
            Kind::Instance => all.instances.get_mut(id).map(|item| &mut item.tags),
            Kind::Subnet => all.subnets.get_mut(id).map(|item| &mut item.tags),
            Kind::Vpc => all.vpcs.get_mut(id).map(|item| &mut item.tags),
            Kind::Group => all.security_groups.get_mut(id).map(|item| &mut item.tags),
            Kind::RouteTable => all.route_tables.get_mut(id).map(|item| &mut item.tags),
            Kind::Gateway => all.internet_gateways.get_mut(id).map(|item| &mut item.tags),
            Kind::Interface => all.interfaces.get_mut(id).map(|item| &mut item.tags),
            Kind::Allocation => all.addresses.get_mut(id).map(|item| &mut item.tags),
        };
        tags.ok_or_else(missing)
    }

    /// Sets tags on all resources, or on none of them.
    pub(crate) fn create_tags(&mut self, ids: &[String], tags: &Tags) -> Result<(), CloudError> {
        if let Some(key) = tags.keys().find(|key| key.starts_with("aws:")) {
            let text =
                format!("Tag keys starting with 'aws:' are reserved for internal use: '{key}'");
            return Err(CloudError::new("InvalidParameterValue", text));
        }
        for id in ids {
            let present = self.ec2_tags(id)?;
            let added = tags
                .keys()
                .filter(|key| !present.contains_key(*key))
                .count();
            if present.len() + added > MAX_TAGS {
                let text = format!("More than {MAX_TAGS} tags on '{id}'");
                return Err(CloudError::new("TagLimitExceeded", text));
            }
        }
        for id in ids {
            self.ec2_tags(id)?.extend(tags.clone());
        }
        Ok(())
    }
}

/// CreateTags.
pub(crate) fn create(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    params.need("ResourceId.1")?;
    params.need("Tag.1.Key")?;
    state.create_tags(&params.list("ResourceId"), &tags_of(params, "Tag"))?;
    xml.text("return", true);
    Ok(())
}

/// DeleteTags. A tag given with a value goes only if it has that value; without any tag all of them go.
pub(crate) fn delete(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    params.need("ResourceId.1")?;
    let ids = params.list("ResourceId");
    let wanted = params.structs("Tag");
    for id in &ids {
        state.ec2_tags(id)?;
    }
    for id in &ids {
        let names = |key: &str, value: &str| {
            let same = |tag: &Params| {
                tag.get("Key") == Some(key) && tag.get("Value").is_none_or(|want| want == value)
            };
            wanted.is_empty() || wanted.iter().any(same)
        };
        state.ec2_tags(id)?.retain(|key, value| !names(key, value));
    }
    xml.text("return", true);
    Ok(())
}
