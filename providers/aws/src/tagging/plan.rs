//! Which Nodes need tags, and what an error means.

use std::time::Duration;

use ccm_core::{cloud::CloudError, kube::Node};
use md5::{Digest as _, Md5};

use crate::{error::is_instance_not_found, tags::Tags};

/// The label that carries the checksum. It must not change: Nodes that the Go manager tagged are
/// known by it.
pub const LABEL: &str = "k8s.io/cloud-provider-aws";

/// How old a Node must be before EC2's word that its machine does not exist is believed: EC2 may not
/// show a new instance at once.
pub const YOUNG: Duration = Duration::from_mins(5);

/// The checksum of tags: the MD5 of all `key=value`, sorted, joined with commas.
pub fn checksum(tags: &Tags) -> String {
    let mut pairs: Vec<String> = tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
    // Not the order of the keys: `a-b=` comes before `a=`.
    pairs.sort();
    let mut text = String::new();
    for byte in Md5::digest(pairs.join(",")) {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Whether the Node's machine is to be tagged.
pub fn is_required(node: &Node, checksum: &str) -> bool {
    node.label(LABEL) != Some(checksum)
}

/// Whether an instance has all these tags.
pub fn has_all(have: &Tags, want: &Tags) -> bool {
    want.iter().all(|(key, value)| have.get(key) == Some(value))
}

/// What a failed call about one machine means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Worth another try.
    Retry,
    /// There is nothing to tag.
    Skip,
}

/// What it means that tags could not be added. `age` is the Node's.
pub fn when_adding(error: &CloudError, age: Duration) -> Failure {
    if is_instance_not_found(error) && age < YOUNG {
        return Failure::Retry;
    }
    when_removing(error)
}

/// What it means that tags could not be removed.
pub fn when_removing(error: &CloudError) -> Failure {
    if is_instance_not_found(error) || error.code() == Some("InvalidID") {
        Failure::Skip
    } else {
        Failure::Retry
    }
}

#[cfg(test)]
mod tests {
    use ccm_core::cloud::Class;

    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        pairs.iter().map(owned).collect()
    }

    /// REQ-AWS-TC-1, REQ-AWS-TC-2
    #[test]
    fn checksums_are_those_of_the_go_manager() {
        for (pairs, want) in [
            (
                &[("key1", "value1")][..],
                "9767c4972ba72e87ab553bad2afde741",
            ),
            (
                &[("key2", "value2"), ("key1", "value1")],
                "c812faa65d1d5e5aefa6b069b3da39df",
            ),
        ] {
            assert_eq!(checksum(&tags(pairs)), want);
        }
        // Sorted as pairs, not by key.
        let pairs = tags(&[("a", "1"), ("a-b", "2")]);
        let text = Md5::digest("a-b=2,a=1");
        assert!(checksum(&pairs).starts_with(&format!("{:02x}", text[0])));
    }

    /// REQ-AWS-TC-4
    #[test]
    fn a_node_with_the_checksum_needs_nothing() {
        let mut node = Node::default();
        assert!(is_required(&node, "x"));
        let labels = [(LABEL.to_owned(), "x".to_owned())];
        node.metadata.labels = Some(labels.into_iter().collect());
        assert!(!is_required(&node, "x"));
        assert!(is_required(&node, "y"), "other tags");
    }

    #[test]
    fn an_instance_may_have_more_tags_than_those() {
        let have = tags(&[("a", "1"), ("b", "2")]);
        assert!(has_all(&have, &tags(&[("a", "1")])));
        assert!(!has_all(&have, &tags(&[("a", "2")])));
        assert!(!has_all(&have, &tags(&[("c", "1")])));
    }

    /// REQ-AWS-TC-5, REQ-AWS-TC-6, REQ-AWS-TC-7
    #[test]
    fn a_machine_that_is_not_there_is_waited_for_only_while_its_node_is_young() {
        let error = |code: &str| CloudError::new(Class::Transient, code).with_code(code);
        let (gone, bad) = (error("InvalidInstanceID.NotFound"), error("InvalidID"));
        let minutes = Duration::from_mins;
        assert_eq!(when_adding(&gone, minutes(1)), Failure::Retry);
        assert_eq!(when_adding(&gone, minutes(10)), Failure::Skip);
        assert_eq!(when_adding(&bad, minutes(1)), Failure::Skip);
        assert_eq!(when_removing(&gone), Failure::Skip);
        assert_eq!(when_removing(&bad), Failure::Skip);
        let other = error("UnauthorizedOperation");
        assert_eq!(when_adding(&other, minutes(10)), Failure::Retry);
        assert_eq!(when_removing(&other), Failure::Retry);
    }
}
