//! Tags of load balancers, listeners and target groups.

use super::super::model::Tags;
use super::super::query::{Params, Xml};
use super::super::state::{MAX_TAGS, State};
use super::{group_not_found, lb_not_found, limited, listener_not_found, validation};
use crate::control::CloudError;

/// `Tags.member.N`; a key given twice is refused.
pub(crate) fn read(params: &Params) -> Result<Tags, CloudError> {
    let mut tags = Tags::new();
    for tag in params.structs("Tags.member") {
        let key = tag.need("Key")?;
        if tags
            .insert(
                key.to_owned(),
                tag.get("Value").unwrap_or_default().to_owned(),
            )
            .is_some()
        {
            let text = format!("Tag key '{key}' is given more than once");
            return Err(CloudError::new("DuplicateTagKeys", text));
        }
    }
    if tags.len() > MAX_TAGS {
        return Err(too_many());
    }
    Ok(tags)
}

/// Adds tags to those of a resource, or overwrites them: all or none.
pub(crate) fn put(present: &mut Tags, tags: Tags) -> Result<(), CloudError> {
    let added = tags
        .keys()
        .filter(|key| !present.contains_key(*key))
        .count();
    if present.len() + added > MAX_TAGS {
        return Err(too_many());
    }
    present.extend(tags);
    Ok(())
}

/// The limit of tags on one resource is reached.
fn too_many() -> CloudError {
    CloudError::new(
        "TooManyTags",
        format!("The maximum number of tags is {MAX_TAGS}"),
    )
}

impl State {
    fn elb_tags(&mut self, arn: &str) -> Result<&mut Tags, CloudError> {
        let all = &mut self.all;
        if arn.contains(":loadbalancer/") {
            let lb = all.load_balancers.get_mut(arn);
            return lb.map(|lb| &mut lb.tags).ok_or_else(|| lb_not_found(arn));
        }
        if arn.contains(":targetgroup/") {
            let group = all.target_groups.get_mut(arn);
            return group
                .map(|group| &mut group.tags)
                .ok_or_else(|| group_not_found(arn));
        }
        if arn.contains(":listener/") {
            let listener = all.listeners.get_mut(arn);
            return listener
                .map(|listener| &mut listener.tags)
                .ok_or_else(|| listener_not_found(arn));
        }
        Err(validation(format!(
            "'{arn}' is not a valid load balancer, target group or listener ARN"
        )))
    }
}

/// The one resource to be tagged: the list is one in the request's form only.
fn one(params: &Params) -> Result<String, CloudError> {
    let arn = params.need("ResourceArns.member.1")?.to_owned();
    if params.members("ResourceArns").len() > 1 {
        return Err(validation("Only one resource can be tagged at a time"));
    }
    Ok(arn)
}

/// AddTags.
pub(crate) fn add(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let arn = one(params)?;
    params.need("Tags.member.1.Key")?;
    let tags = read(params)?;
    put(state.elb_tags(&arn)?, tags)
}

/// RemoveTags.
pub(crate) fn remove(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let arn = one(params)?;
    let keys = params.members("TagKeys");
    state.elb_tags(&arn)?.retain(|key, _| !keys.contains(key));
    Ok(())
}

/// DescribeTags.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    params.need("ResourceArns.member.1")?;
    let mut found = Vec::new();
    for arn in limited(params, "ResourceArns")? {
        if !state.visible(&arn) {
            return Err(lb_not_found(&arn));
        }
        let tags = state.elb_tags(&arn)?.clone();
        found.push((arn, tags));
    }
    xml.list("TagDescriptions", "member", found, |xml, (arn, tags)| {
        xml.text("ResourceArn", arn);
        xml.list("Tags", "member", tags, |xml, (key, value)| {
            xml.text("Key", key);
            xml.text("Value", value);
        });
    });
    Ok(())
}
