//! Tags.

use super::super::elbv2::put_tags;
pub(super) use super::super::elbv2::read_tags as read;
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{need, not_found, validation};
use crate::control::CloudError;

/// Names in one DescribeTags call.
const MAX_NAMES: usize = 20;

/// The one load balancer to be tagged: the list is one in the request's form only.
fn one(params: &Params) -> Result<String, CloudError> {
    let name = need(params, "LoadBalancerNames.member.1")?.to_owned();
    if params.members("LoadBalancerNames").len() > 1 {
        return Err(validation("Only one load balancer can be tagged at a time"));
    }
    Ok(name)
}

/// AddTags.
pub(crate) fn add(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let name = one(params)?;
    need(params, "Tags.member.1.Key")?;
    let tags = read(params)?;
    put_tags(&mut state.classic(&name)?.tags, tags)
}

/// RemoveTags. A key that is not there is passed over.
pub(crate) fn remove(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let name = one(params)?;
    need(params, "Tags.member.1.Key")?;
    let keys = params.structs("Tags.member");
    let named = |key: &String| keys.iter().any(|tag| tag.get("Key") == Some(key));
    state.classic(&name)?.tags.retain(|key, _| !named(key));
    Ok(())
}

/// DescribeTags.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    need(params, "LoadBalancerNames.member.1")?;
    let names = params.members("LoadBalancerNames");
    if names.len() > MAX_NAMES {
        let text = format!(
            "At most {MAX_NAMES} load balancers may be named, got {}",
            names.len()
        );
        return Err(validation(text));
    }
    let mut found = Vec::new();
    for name in names {
        if !state.visible(&name) {
            return Err(not_found(&name));
        }
        let tags = state.classic(&name)?.tags.clone();
        found.push((name, tags));
    }
    xml.list("TagDescriptions", "member", found, |xml, (name, tags)| {
        xml.text("LoadBalancerName", name);
        xml.list("Tags", "member", tags, |xml, (key, value)| {
            xml.text("Key", key);
            xml.text("Value", value);
        });
    });
    Ok(())
}
