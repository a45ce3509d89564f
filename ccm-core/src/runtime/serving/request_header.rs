//! Identities in request headers, told by a proxy that proves itself by its client certificate
//! (specification: controllers §7.4).

use std::collections::BTreeMap;

use http::HeaderMap;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::identity::{Identity, Subject, Trust};

/// Which headers tell what. Names in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderNames {
    /// The user: the first that is not empty, in this order.
    pub username: Vec<String>,
    /// The unique id, likewise.
    pub uid: Vec<String>,
    /// The groups, one a value.
    pub group: Vec<String>,
    /// What stands before the key of an extra value.
    pub extra_prefix: Vec<String>,
}

impl HeaderNames {
    /// The identity that the headers tell; `None` without a user name.
    pub fn identity(&self, headers: &HeaderMap) -> Option<Identity> {
        let first = |names: &[String]| {
            let mut values = names.iter().flat_map(|name| values_of(headers, name));
            values.find(|value| !value.is_empty())
        };
        let groups = self.group.iter().flat_map(|name| values_of(headers, name));
        Some(Identity {
            user: first(&self.username)?,
            uid: first(&self.uid).unwrap_or_default(),
            groups: groups.filter(|group| !group.is_empty()).collect(),
            extra: self.extra(headers),
        })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_prefix {
            let prefix = prefix.to_ascii_lowercase();
            for name in headers.keys() {
                if let Some(key) = name.as_str().strip_prefix(&prefix) {
                    let values = values_of(headers, name.as_str());
                    extra.entry(unescape(key)).or_default().extend(values);
                }
            }
        }
        extra
    }
}

fn values_of(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    let text = values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
    text.map(str::to_owned).collect()
}

/// A header name cannot hold every character of a key, so proxies escape with `%`. A key with
/// something that is no escape stays as it is, as in the Go managers.
fn unescape(key: &str) -> String {
    let unescaped = bytes_of(key).and_then(|bytes| String::from_utf8(bytes).ok());
    unescaped.unwrap_or_else(|| key.to_owned())
}

fn bytes_of(key: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let byte = if first == b'%' {
            let (&[high, low], after) = rest.split_first_chunk()?;
            rest = after;
            hex(high)? * 16 + hex(low)?
        } else {
            first
        };
        bytes.push(byte);
    }
    Some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// The proxies that are believed.
#[derive(Clone)]
pub(super) struct Proxy {
    pub(super) trust: Trust,
    /// Common names of their certificates; empty: any.
    pub(super) allowed_names: Vec<String>,
    pub(super) headers: HeaderNames,
}

impl Proxy {
    /// The caller that a proxy tells of; `None` if it tells nothing. Without a client certificate
    /// headers count for nothing.
    pub(super) fn identity(
        &self,
        chain: &[CertificateDer<'_>],
        headers: &HeaderMap,
        now: UnixTime,
    ) -> Result<Option<Identity>, String> {
        let Some(client) = chain.first() else {
            return Ok(None);
        };
        self.trust.check(chain, now)?;
        let name = Subject::of(client)?.common_name;
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&name) {
            return Err(format!(
                "the client certificate's name {name:?} is no allowed name of a proxy"
            ));
        }
        Ok(self.headers.identity(headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_tell_a_user_its_groups_and_extra_values() {
        let names = HeaderNames {
            username: vec!["X-Remote-User".into(), "x-user".into()],
            uid: vec!["X-Remote-Uid".into()],
            group: vec!["X-Remote-Group".into()],
            extra_prefix: vec!["X-Remote-Extra-".into()],
        };
        let mut headers = HeaderMap::new();
        assert_eq!(names.identity(&headers), None);
        for (name, value) in [
            ("x-remote-user", ""),
            ("x-user", "jane"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "ops"),
            ("x-remote-extra-acme.com%2fscope", "a"),
            ("x-remote-extra-acme.com%2fscope", "b"),
            ("x-remote-extra-100%", "c"),
            ("x-remote-extra-a%2fb%zz", "d"),
            ("x-remote-extra-%ff", "e"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let told = names.identity(&headers).unwrap();
        assert_eq!((told.user.as_str(), told.uid.as_str()), ("jane", "7"));
        assert_eq!(told.groups, ["dev", "ops"]);
        assert_eq!(told.extra["acme.com/scope"], ["a", "b"]);
        assert_eq!(told.extra["100%"], ["c"]);
        assert_eq!(told.extra["a%2fb%zz"], ["d"]);
        assert_eq!(told.extra["%ff"], ["e"]);
        assert_eq!(told.extra.len(), 4);
    }
}
