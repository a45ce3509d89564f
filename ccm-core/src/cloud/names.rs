//! Names are types: checked once at the border, never again.

use std::fmt;

/// Why a text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("{kind} must not be empty")]
    Empty {
        /// Which name type.
        kind: &'static str,
    },
    /// The text is longer than the cloud or Kubernetes allows.
    #[error("{kind} {text:?} is longer than {max} characters")]
    TooLong {
        /// Which name type.
        kind: &'static str,
        /// The longest allowed length, in bytes.
        max: usize,
        /// The offending text.
        text: String,
    },
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, max = $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The longest allowed length, in bytes.
            pub const MAX: usize = $max;

            /// Checks the text.
            ///
            /// # Errors
            /// Empty, or longer than [`Self::MAX`].
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                if text.is_empty() {
                    return Err(NameError::Empty { kind: stringify!($name) });
                }
                if text.len() > Self::MAX {
                    return Err(NameError::TooLong { kind: stringify!($name), max: Self::MAX, text });
                }
                Ok(Self(text))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// The name of a Node object.
    NodeName, max = 253
);
name_type!(
    /// A Node's `spec.providerID`, e.g. `aws:///us-west-2a/i-0123`. Its meaning belongs to the
    /// provider; it never changes once set.
    ProviderId, max = 1024
);
name_type!(
    /// The value of `--cluster-name`.
    ClusterName, max = 255
);
name_type!(
    /// The cloud's name of a load balancer.
    LoadBalancerName, max = 255
);

impl LoadBalancerName {
    /// The framework's default: `a`, then the UID without dashes, cut to 32 characters.
    /// Must not change: existing load balancers are found by it (REQ-SVC-35).
    ///
    /// # Errors
    /// An empty UID.
    pub fn from_uid(uid: &str) -> Result<Self, NameError> {
        if uid.is_empty() {
            return Err(NameError::Empty {
                kind: "Service UID",
            });
        }
        let name: String = std::iter::once('a')
            .chain(uid.chars().filter(|c| *c != '-'))
            .take(32)
            .collect();
        Self::new(name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// REQ-SVC-35
    #[test]
    fn load_balancer_names_match_the_go_manager() {
        for (uid, want) in [
            (
                "12345678-1234-1234-1234-123456789abc",
                "a12345678123412341234123456789ab",
            ),
            ("id", "aid"),
        ] {
            let name = LoadBalancerName::from_uid(uid).unwrap();
            assert_eq!(name.as_str(), want);
            assert!(name.as_str().len() <= 32);
        }
        assert!(LoadBalancerName::from_uid("").is_err());
    }

    #[test]
    fn names_have_a_length() {
        assert!(NodeName::new("").is_err());
        assert!(NodeName::new("n".repeat(253)).is_ok());
        assert!(NodeName::new("n".repeat(254)).is_err());
    }

    proptest! {
        #[test]
        fn a_name_is_its_text_and_nothing_makes_it_panic(text in "[a-z0-9.-]{0,300}|.{0,90}") {
            let fits = (1..=NodeName::MAX).contains(&text.len());
            let name = NodeName::new(text.clone()).ok();
            prop_assert_eq!(name.as_ref().map(NodeName::as_str), fits.then_some(text.as_str()));
            if let Ok(name) = LoadBalancerName::from_uid(&text) {
                let want: String = format!("a{}", text.replace('-', "")).chars().take(32).collect();
                prop_assert_eq!(name.as_str(), want);
            }
        }
    }
}
