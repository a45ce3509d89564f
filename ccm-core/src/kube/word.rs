//! A text that is nearly always one of a few.

use std::{borrow::Cow, fmt, ops::Deref};

use serde::{Deserialize, Deserializer, Serialize, de::Visitor};

/// What kubelets, network plugins and we write into the conditions that are kept of a Node.
const KNOWN: [&str; 13] = [
    "Ready",
    "NetworkUnavailable",
    "True",
    "False",
    "Unknown",
    "KubeletReady",
    "KubeletNotReady",
    "NodeStatusUnknown",
    "NodeStatusNeverUpdated",
    "RouteCreated",
    "NoRouteCreated",
    "CalicoIsUp",
    "CiliumIsUp",
];

/// A text without an allocation of its own when it is one of the usual ones. A hundred thousand
/// Nodes have six of these each.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Word(Cow<'static, str>);

impl Default for Word {
    fn default() -> Self {
        Self(Cow::Borrowed(""))
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        let known = KNOWN.into_iter().find(|known| *known == text);
        Self(known.map_or_else(|| Cow::Owned(text.to_owned()), Cow::Borrowed))
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(ReadWord)
    }
}

struct ReadWord;

impl Visitor<'_> for ReadWord {
    type Value = Word;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<Word, E> {
        Ok(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unusual_text_has_an_allocation() {
        for text in KNOWN {
            let word: Word = serde_json::from_value(text.into()).unwrap();
            assert!(matches!(word.0, Cow::Borrowed(_)), "{text}");
            assert_eq!(word, text);
        }
        let word: Word = serde_json::from_str(r#""Flannel\u0049sUp""#).unwrap();
        assert!(matches!(word.0, Cow::Owned(_)));
        assert_eq!(word, "FlannelIsUp");
        assert_eq!(serde_json::to_string(&word).unwrap(), r#""FlannelIsUp""#);
    }
}
