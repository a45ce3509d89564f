//! Labels, annotations and addresses of a Node in one allocation each.
//!
//! A cache holds many thousands of Nodes. A tree of strings takes several allocations
//! for each pair; here every string stands behind its length, one after the other. Looking one up reads the
//! whole, which for the few hundred bytes of a Node is as fast as a tree.

use std::{borrow::Cow, collections::BTreeMap, fmt, iter};

use k8s_openapi::api::core::v1::NodeAddress;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, MapAccess, Visitor},
};

/// Bits of a length in one byte; the highest one says that more follow.
const LENGTH_BITS: u32 = 7;
const MORE: u8 = 1 << LENGTH_BITS;

fn push(to: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    while length >= usize::from(MORE) {
        to.push(u8::try_from(length % usize::from(MORE)).unwrap_or_default() | MORE);
        length >>= LENGTH_BITS;
    }
    to.push(u8::try_from(length).unwrap_or_default());
    to.extend_from_slice(text.as_bytes());
}

/// The strings of a packed list.
#[derive(Clone, Copy)]
struct Texts<'a>(&'a [u8]);

impl<'a> Iterator for Texts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            length |= usize::from(byte & !MORE) << shift;
            shift += LENGTH_BITS;
            if byte & MORE == 0 {
                break;
            }
        }
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

/// Everything packed here came from a string.
fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or_default()
}

fn pairs(packed: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    let mut texts = Texts(packed);
    iter::from_fn(move || Some((text(texts.next()?), text(texts.next()?))))
}

/// Labels or annotations: keys and values, ordered by key. Made for few changes and many copies.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct StringMap(Box<[u8]>);

impl StringMap {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut texts = Texts(&self.0);
        while let (Some(k), Some(value)) = (texts.next(), texts.next()) {
            if k == key.as_bytes() {
                return Some(text(value));
            }
        }
        None
    }

    /// Whether there is a value of that key.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// All pairs, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(&self.0)
    }

    /// How many pairs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is no pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a value; answers with the one before. Copies the map.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<String>) -> Option<String> {
        let mut map = BTreeMap::from(&*self);
        let before = map.insert(key.into(), value.into());
        *self = map.into();
        before
    }

    /// Removes a key; answers with its value. Copies the map where the key is.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let before = self.get(key)?.to_owned();
        *self = self.iter().filter(|(k, _)| *k != key).collect();
        Some(before)
    }
}

impl fmt::Debug for StringMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Of several pairs with one key the last one counts, as in JSON.
impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for StringMap {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut packed = Vec::new();
        for (key, value) in pairs {
            push(&mut packed, key.as_ref());
            push(&mut packed, value.as_ref());
        }
        Self::sorted(&packed)
    }
}

impl StringMap {
    fn sorted(packed: &[u8]) -> Self {
        if pairs(packed).is_sorted_by(|(a, _), (b, _)| a < b) {
            return Self(packed.into());
        }
        let unique: BTreeMap<&str, &str> = pairs(packed).collect();
        let mut sorted = Vec::with_capacity(packed.len());
        for (key, value) in unique {
            push(&mut sorted, key);
            push(&mut sorted, value);
        }
        Self(sorted.into())
    }
}

impl From<BTreeMap<String, String>> for StringMap {
    fn from(map: BTreeMap<String, String>) -> Self {
        map.into_iter().collect()
    }
}

impl<const N: usize> From<[(String, String); N]> for StringMap {
    fn from(pairs: [(String, String); N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl From<&StringMap> for BTreeMap<String, String> {
    fn from(map: &StringMap) -> Self {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        map.iter().map(owned).collect()
    }
}

impl From<StringMap> for BTreeMap<String, String> {
    fn from(map: StringMap) -> Self {
        (&map).into()
    }
}

impl PartialEq<BTreeMap<String, String>> for StringMap {
    fn eq(&self, other: &BTreeMap<String, String>) -> bool {
        let other = other
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        self.iter().eq(other)
    }
}

impl Serialize for StringMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = StringMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringMap, A::Error> {
                let mut packed = Vec::new();
                while map.next_key_seed(Push(&mut packed))?.is_some() {
                    map.next_value_seed(Push(&mut packed))?;
                }
                Ok(StringMap::sorted(&packed))
            }
        }
        deserializer.deserialize_map(Map)
    }
}

/// Packs a string as it is read.
struct Push<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Push<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Push<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        push(self.0, text);
        Ok(())
    }
}

/// The addresses of a Node: type and address, in the order of the API object.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Addresses(Box<[u8]>);

impl Addresses {
    /// All of them as (type, address), in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(&self.0)
    }

    /// All of them as the API's type, in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<NodeAddress> {
        let owned = |(type_, address): (&str, &str)| NodeAddress {
            type_: type_.to_owned(),
            address: address.to_owned(),
        };
        self.iter().map(owned).collect()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Addresses {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(addresses: I) -> Self {
        let mut packed = Vec::new();
        for (type_, address) in addresses {
            push(&mut packed, type_.as_ref());
            push(&mut packed, address.as_ref());
        }
        Self(packed.into())
    }
}

impl From<Vec<NodeAddress>> for Addresses {
    fn from(addresses: Vec<NodeAddress>) -> Self {
        addresses
            .into_iter()
            .map(|a| (a.type_, a.address))
            .collect()
    }
}

impl PartialEq<[NodeAddress]> for Addresses {
    fn eq(&self, other: &[NodeAddress]) -> bool {
        let other = other.iter().map(|a| (a.type_.as_str(), a.address.as_str()));
        self.iter().eq(other)
    }
}

/// An address on its way in or out.
#[derive(Deserialize, Serialize)]
struct Address<'a> {
    #[serde(rename = "type", borrow)]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    address: Cow<'a, str>,
}

impl Serialize for Addresses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|(type_, address)| Address {
            type_: type_.into(),
            address: address.into(),
        }))
    }
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let addresses = Vec::<Address<'de>>::deserialize(deserializer)?;
        Ok(addresses
            .into_iter()
            .map(|a| (a.type_, a.address))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> StringMap {
        pairs.iter().copied().collect()
    }

    #[test]
    fn pairs_are_ordered_and_of_equal_keys_the_last_counts() {
        let packed = map(&[("b", "2"), ("a", "0"), ("a", "1"), ("", "x")]);
        assert_eq!(packed, map(&[("", "x"), ("a", "1"), ("b", "2")]));
        assert_eq!(packed.len(), 3);
        let text = r#"{"b":"2","":"x","a":"0","a":"1"}"#;
        assert_eq!(serde_json::from_str::<StringMap>(text).unwrap(), packed);
    }

    #[test]
    fn what_is_no_map_of_strings_is_refused() {
        for bad in [r#"{"a":1}"#, r#"{"a":null}"#, "[]", r#""a""#] {
            assert!(serde_json::from_str::<StringMap>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_keep_their_order() {
        let text = r#"[{"type":"InternalIP","address":"10.0.0.2"},{"type":"InternalIP","address":"10.0.0.1"}]"#;
        let addresses: Addresses = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&addresses).unwrap(), text);
        assert_eq!(Addresses::from(addresses.to_vec()), addresses);
        assert!(addresses == *addresses.to_vec().as_slice());
        assert!(addresses != *[].as_slice());
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_tree_of_strings(
            pairs in prop::collection::btree_map(".{0,9}", ".{0,300}", 0..9),
            key in ".{0,3}",
            value in ".{0,40}",
        ) {
            let mut packed = StringMap::from(pairs.clone());
            prop_assert_eq!(&packed, &pairs);
            prop_assert_eq!(BTreeMap::from(&packed), pairs.clone());
            prop_assert_eq!(packed.is_empty(), pairs.is_empty());
            let json = serde_json::to_string(&pairs).unwrap();
            prop_assert_eq!(serde_json::to_string(&packed).unwrap(), json.clone());
            prop_assert_eq!(&serde_json::from_str::<StringMap>(&json).unwrap(), &packed);
            let mut tree = pairs;
            for key in tree.keys().cloned().chain([key]).collect::<Vec<_>>() {
                prop_assert_eq!(packed.get(&key), tree.get(&key).map(String::as_str));
                prop_assert_eq!(packed.insert(&*key, &*value), tree.insert(key.clone(), value.clone()));
                prop_assert_eq!(&packed, &tree);
                prop_assert_eq!(packed.remove(&key), tree.remove(&key));
                prop_assert_eq!(&packed, &tree);
            }
        }
    }
}
