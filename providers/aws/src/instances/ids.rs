//! Provider ids and instance ids (specification: aws §3.1).

use std::fmt;

use ccm_core::cloud::{CloudError, CloudResult, NameError, ProviderId};

const SCHEME: &str = "aws://";
const FARGATE: &str = "fargate-";

/// EC2's id of an instance (`i-…`), or the pseudo id of a Fargate Node (`fargate-…`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(String);

impl InstanceId {
    /// The id in a provider id, or a bare id. Host and zone are ignored.
    ///
    /// # Errors
    /// Class `Invalid`: the text is not a provider id of this cloud.
    pub fn from_provider_id(text: &str) -> CloudResult<Self> {
        let rest = match text.strip_prefix(SCHEME) {
            Some(rest) => rest,
            // The id of another cloud must never be asked for here.
            None if text.contains("://") => return Err(foreign(text)),
            None => text,
        };
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        let token = path
            .trim_matches('/')
            .rsplit('/')
            .next()
            .unwrap_or_default();
        let known = token.starts_with("i-") || token.starts_with(FARGATE);
        if !known || token.contains(['%', ',', ' ']) {
            return Err(foreign(text));
        }
        Ok(Self(token.to_owned()))
    }

    /// An id as EC2 gave it.
    pub fn from_cloud(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id in the name of a resource-named Node, `i-0123` or `i-0123.<domain>`: needs no
    /// look-up. `None` for all other names.
    pub fn from_node_name(name: &str) -> Option<Self> {
        let id = name.split('.').next().unwrap_or_default();
        id.starts_with("i-").then(|| Self(id.to_owned()))
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it stands for a Fargate Node, which EC2 does not know.
    pub fn is_fargate(&self) -> bool {
        self.0.starts_with(FARGATE)
    }

    /// The private address in a Fargate id, when it has one:
    /// `fargate-ip-192-168-164-88.<domain>` or `fargate-192.168.164.88`.
    pub fn fargate_address(&self) -> Option<String> {
        let name = self.0.strip_prefix(FARGATE)?;
        Some(match name.strip_prefix("ip-") {
            Some(name) => name.split('.').next().unwrap_or_default().replace('-', "."),
            None => name.to_owned(),
        })
    }

    /// The provider id that is written for an instance in this zone.
    ///
    /// # Errors
    /// Zone and id together are longer than a provider id may be.
    pub fn provider_id(&self, zone: &str) -> Result<ProviderId, NameError> {
        ProviderId::new(format!("{SCHEME}/{zone}/{}", self.0))
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn foreign(text: &str) -> CloudError {
    CloudError::invalid(format!(
        "spec.providerID {text:?} is not one of AWS; expected aws:///<zone>/<instance id>"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// REQ-AWS-ID-1, REQ-AWS-ID-2, REQ-AWS-ID-4, REQ-AWS-ID-5
    #[test]
    fn ids_are_read_from_every_form_that_was_ever_written() {
        for (text, want) in [
            ("aws:///us-east-1a/i-12345678", "i-12345678"),
            ("aws:////i-12345678", "i-12345678"),
            ("i-12345678", "i-12345678"),
            ("aws:///us-east-1a/i-12345678abcdef01", "i-12345678abcdef01"),
            ("aws:////i-12345678abcdef01", "i-12345678abcdef01"),
            ("i-12345678abcdef01", "i-12345678abcdef01"),
            ("aws://account/us-east-1a/i-1/", "i-1"),
            (
                "aws:///us-west-2c/1abc-2def/fargate-ip-192-168-164-88.internal",
                "fargate-ip-192-168-164-88.internal",
            ),
            (
                "aws:///us-west-2c/1abc-2def/fargate-192.168.164.88",
                "fargate-192.168.164.88",
            ),
        ] {
            assert_eq!(
                InstanceId::from_provider_id(text).unwrap().as_str(),
                want,
                "{text}"
            );
        }
    }

    /// REQ-AWS-ID-3
    #[test]
    fn what_is_not_an_instance_of_ours_is_refused() {
        for text in [
            "vol-123456789",
            "aws:///us-east-1a/vol-12345678abcdef01",
            "aws://accountid/us-east-1a/vol-12345678abcdef01",
            "aws:///us-east-1a/vol-12345678abcdef01/suffix",
            "aws:///us-east-1a/i-1/suffix",
            "",
            "aws://",
            "gce://project/zone/i-1",
            "kind://docker/kind/i-1",
        ] {
            assert!(InstanceId::from_provider_id(text).is_err(), "{text}");
        }
    }

    /// REQ-AWS-ID-6
    #[test]
    fn the_zone_is_part_of_the_provider_id_that_is_written() {
        let id = InstanceId::from_cloud("i-1")
            .provider_id("us-west-2a")
            .unwrap();
        assert_eq!(id.as_str(), "aws:///us-west-2a/i-1");
    }

    /// REQ-AWS-ID-7
    #[test]
    fn resource_names_carry_the_id() {
        for (name, want) in [
            ("i-0abc.us-west-2.compute.internal", Some("i-0abc")),
            ("i-0abc", Some("i-0abc")),
            ("ip-10-0-0-1.us-west-2.compute.internal", None),
            ("", None),
        ] {
            assert_eq!(
                InstanceId::from_node_name(name)
                    .as_ref()
                    .map(InstanceId::as_str),
                want
            );
        }
    }

    /// REQ-AWS-INST-10, REQ-AWS-INST-11
    #[test]
    fn fargate_ids_carry_the_address() {
        for text in [
            "fargate-ip-192-168-164-88.internal",
            "fargate-192.168.164.88",
        ] {
            let id = InstanceId::from_provider_id(text).unwrap();
            assert!(id.is_fargate());
            assert_eq!(id.fargate_address().as_deref(), Some("192.168.164.88"));
        }
        assert_eq!(InstanceId::from_cloud("i-1").fargate_address(), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(aws://)?[-a-z0-9/.?#% ,]{0,40}|.{0,24}") {
            if let Some(id) = InstanceId::from_node_name(&text) {
                prop_assert!(text.starts_with(id.as_str()));
            }
            if let Ok(id) = InstanceId::from_provider_id(&text) {
                prop_assert!(text.contains(id.as_str()) && !id.as_str().contains('/'));
                prop_assert_eq!(id.is_fargate(), id.fargate_address().is_some());
                prop_assert_eq!(InstanceId::from_provider_id(id.as_str()).unwrap(), id);
            }
        }

        /// REQ-AWS-ID-1, REQ-AWS-ID-6
        #[test]
        fn what_is_written_is_read_back(
            token in "i-[0-9a-f]{1,17}|fargate-ip(-[0-9]{1,3}){4}\\.internal",
            zone in "[a-z]{2}-[a-z]{4,9}-[0-9][a-z]",
            slashes in "/{0,2}",
        ) {
            let id = InstanceId::from_cloud(token);
            let written = id.provider_id(&zone).unwrap();
            for text in [
                written.to_string(),
                format!("aws://{slashes}{id}{slashes}"),
                format!("aws://account/{zone}/{id}{slashes}?query#fragment"),
                id.to_string(),
            ] {
                prop_assert_eq!(&InstanceId::from_provider_id(&text).unwrap(), &id, "{}", text);
            }
            let foreign = format!("gce://p/{zone}/{id}");
            prop_assert!(InstanceId::from_provider_id(&foreign).is_err());
        }
    }
}
