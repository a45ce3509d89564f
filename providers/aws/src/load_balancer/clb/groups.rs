//! Which of a classic load balancer's security groups counts for the Nodes, and which were made for
//! it (specification: aws §4.7.2, §4.9.1). Pure.

use std::collections::BTreeSet;

use ccm_core::cloud::LoadBalancerName;

use crate::{
    api::network::SecurityGroup,
    names::{CLASSIC_SECURITY_GROUP_DESCRIPTION, classic_security_group},
    tags::ClusterTags,
};

/// The attached groups in the order in which they count: those of the annotation in its order, then
/// the others, tagged for the cluster first, then the extra ones in their order. The Nodes let in
/// what comes from the first.
///
/// The Go manager compares pairs in a way that contradicts itself for a tagged extra group; here
/// the place in the lists decides, then the tag, then AWS's order.
pub fn sorted<'a>(
    attached: &'a [String],
    annotated: &[String],
    extra: &[String],
    is_tagged: impl Fn(&str) -> bool,
) -> Vec<&'a String> {
    let place = |list: &[String], id: &str| list.iter().position(|one| one == id);
    let mut all: Vec<&String> = attached.iter().collect();
    // Stable: AWS's order decides last.
    all.sort_by_key(|id| match (place(annotated, id), place(extra, id)) {
        (Some(at), _) => (0, at, false),
        (None, Some(at)) => (2, at, false),
        (None, None) => (1, 0, !is_tagged(id)),
    });
    all
}

/// Whether the group was made for this classic load balancer, and is the cluster's alone. The
/// cluster's tag does not say so by itself: users tag their own groups like that.
pub fn is_made(group: &SecurityGroup, name: &LoadBalancerName, tags: &ClusterTags) -> bool {
    let text = format!("{CLASSIC_SECURITY_GROUP_DESCRIPTION}{name} (");
    let made = group.name == classic_security_group(name) || group.description.starts_with(&text);
    made && tags.has_cluster_tag_owned(&group.tags).unwrap_or(false)
}

/// Each id once, at its first place.
pub fn once(ids: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    ids.into_iter()
        .filter(|id| seen.insert(id.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(attached: &str, annotated: &str, extra: &str, tagged: &str) -> String {
        let list = |text: &str| -> Vec<String> {
            text.split(',')
                .filter(|id| !id.is_empty())
                .map(|id| format!("sg-{id}"))
                .collect()
        };
        let tagged = list(tagged);
        let attached = list(attached);
        let found = sorted(&attached, &list(annotated), &list(extra), |id| {
            tagged.iter().any(|one| one == id)
        });
        let found: Vec<&str> = found.iter().map(|id| &id["sg-".len()..]).collect();
        found.join(",")
    }

    /// REQ-AWS-SG-9, REQ-AWS-SG-10, REQ-AWS-SG-11, REQ-AWS-SG-12
    #[test]
    fn the_lists_of_the_annotations_come_before_tags_and_those_before_the_answer() {
        assert_eq!(order("2,1,3", "3,2,1", "", ""), "3,2,1");
        assert_eq!(order("2,1,3,4", "", "3,2,1", ""), "4,3,2,1");
        assert_eq!(order("2,1,3,4,5,6", "3,2,1", "6,5", ""), "3,2,1,4,6,5");
        assert_eq!(order("2,1", "", "", "1"), "1,2");
        assert_eq!(order("2,1", "", "", ""), "2,1");
        // A tagged extra group, and an untagged annotated one: the lists decide.
        assert_eq!(order("2,1", "1", "2", "2"), "1,2");
    }

    /// REQ-AWS-SG-32, REQ-AWS-DEL-8
    #[test]
    fn a_group_is_ours_when_it_was_made_for_a_load_balancer_and_is_owned() {
        let name = LoadBalancerName::new("a1").unwrap();
        let tags = ClusterTags::new("", "kite").unwrap().unwrap();
        let group = |name: &str, description: &str, value: Option<&str>| SecurityGroup {
            id: "sg".to_owned(),
            name: name.to_owned(),
            description: description.to_owned(),
            tags: value
                .map(|value| (tags.key(), value.to_owned()))
                .into_iter()
                .collect(),
            ..SecurityGroup::default()
        };
        let text = "Security group for Kubernetes ELB a1 (ns/s)";
        for (group, ours) in [
            (group("k8s-elb-a1", text, Some("owned")), true),
            (group("k8s-elb-a1", "", Some("owned")), true),
            (group("renamed", text, Some("owned")), true),
            (group("k8s-elb-a1", text, Some("shared")), false),
            (group("k8s-elb-a1", text, None), false),
            (group("users", "mine", Some("owned")), false),
            (
                group(
                    "k8s-elb-a2",
                    "Security group for Kubernetes ELB a2 (ns/t)",
                    Some("owned"),
                ),
                false,
            ),
        ] {
            assert_eq!(is_made(&group, &name, &tags), ours, "{group:?}");
        }
    }

    #[test]
    fn a_group_named_twice_is_attached_once() {
        let ids = ["b", "a", "b"].map(str::to_owned);
        assert_eq!(once(ids), ["b", "a"]);
    }
}
