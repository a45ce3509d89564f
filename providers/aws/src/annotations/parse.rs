//! How annotation values are read. Every odd rule is the Go manager's (specification: aws §4.3).

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::{
    cloud::{CloudError, CloudResult},
    controllers::service::source_ranges::parse_range,
};
use ipnet::IpNet;

use super::{SOURCE_RANGES, unparsable};

/// What an integer annotation accepts, for its user.
const NUMBER: &str = "a whole number";

/// Who makes a Service's load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// This manager, as a classic load balancer.
    Classic,
    /// This manager, as a network load balancer.
    Network,
    /// Another controller.
    Elsewhere,
}

impl Flavour {
    /// What the value of the type annotation means.
    pub fn of(value: &str) -> Self {
        match value {
            "nlb" => Self::Network,
            "external" | "nlb-ip" => Self::Elsewhere,
            _ => Self::Classic,
        }
    }
}

/// The ports that use the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSet {
    /// Every port.
    All,
    /// These.
    Some {
        /// By number.
        numbers: BTreeSet<i32>,
        /// By name, exactly as written.
        names: BTreeSet<String>,
    },
}

impl PortSet {
    /// Whether the port of this number and name is meant. Names are compared as they are; a caller
    /// that compares case-insensitively passes the lower-cased name.
    pub fn contains(&self, number: i32, name: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Some { numbers, names } => {
                numbers.contains(&number) || name.is_some_and(|name| names.contains(name))
            }
        }
    }
}

pub(super) fn flavour(_: &'static str, value: &str) -> CloudResult<Option<Flavour>> {
    Ok(Some(Flavour::of(value)))
}

pub(super) fn text(_: &'static str, value: &str) -> CloudResult<Option<String>> {
    Ok(Some(value.to_owned()))
}

pub(super) fn internal(_: &'static str, value: &str) -> CloudResult<Option<bool>> {
    Ok(Some(!matches!(value, "" | "false")))
}

pub(super) fn boolean(key: &'static str, value: &str) -> CloudResult<Option<bool>> {
    match value {
        "" => Ok(None),
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Some(true)),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Some(false)),
        _ => Err(unparsable(key, value, "true or false")),
    }
}

pub(super) fn integer(key: &'static str, value: &str) -> CloudResult<Option<i32>> {
    if value.is_empty() {
        return Ok(None);
    }
    value
        .parse()
        .map(Some)
        .map_err(|_| unparsable(key, value, NUMBER))
}

pub(super) fn health_number(key: &'static str, value: &str) -> CloudResult<Option<i32>> {
    value.parse().map(Some).map_err(|_| {
        CloudError::invalid(format!(
            "failed to parse annotation {key}={value} (accepted: {NUMBER})"
        ))
    })
}

pub(super) fn proxy_protocol(key: &'static str, value: &str) -> CloudResult<Option<String>> {
    match value {
        "" => Ok(None),
        "*" => Ok(Some(value.to_owned())),
        _ => Err(CloudError::invalid(format!(
            "annotation {key:?}={value:?} detected, but the only value supported currently is '*'"
        ))),
    }
}

pub(super) fn list(_: &'static str, value: &str) -> CloudResult<Option<Vec<String>>> {
    let items = value
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    Ok(Some(items.map(str::to_owned).collect()))
}

pub(super) fn words(_: &'static str, value: &str) -> CloudResult<Option<Vec<String>>> {
    if value.is_empty() {
        return Ok(None);
    }
    Ok(Some(value.split(',').map(str::to_owned).collect()))
}

pub(super) fn pairs(_: &'static str, value: &str) -> CloudResult<Option<BTreeMap<String, String>>> {
    let mut pairs = BTreeMap::new();
    for item in value.trim().split(',') {
        // Text after a second `=` is lost, as in the Go manager.
        let mut parts = item.trim().split('=');
        let key = parts.next().unwrap_or_default();
        if !key.is_empty() {
            let value = parts.next().unwrap_or_default();
            pairs.insert(key.to_owned(), value.to_owned());
        }
    }
    Ok(Some(pairs))
}

pub(super) fn port_set(_: &'static str, value: &str) -> CloudResult<Option<PortSet>> {
    if matches!(value, "" | "*") {
        return Ok(Some(PortSet::All));
    }
    let (mut numbers, mut names) = (BTreeSet::new(), BTreeSet::new());
    for item in value.split(',') {
        match item.parse() {
            Ok(number) => {
                numbers.insert(number);
            }
            Err(_) => {
                // Beyond the Go manager, which takes `" 8443"` for a name: the number is meant.
                if let Ok(number) = item.trim().parse() {
                    numbers.insert(number);
                }
                names.insert(item.trim().to_owned());
                names.insert(item.to_owned());
            }
        }
    }
    Ok(Some(PortSet::Some { numbers, names }))
}

pub(super) fn everyone() -> Vec<IpNet> {
    vec![IpNet::V4(ipnet::Ipv4Net::default())]
}

pub(super) fn source_ranges(key: &'static str, value: &str) -> CloudResult<Option<Vec<IpNet>>> {
    let value = value.trim();
    if value.is_empty() {
        return Ok(Some(everyone()));
    }
    ranges(value.split(',')).map(Some).map_err(|_| {
        CloudError::invalid(format!(
            "{key}: {value} is not valid. Expecting a comma-separated list of source IP ranges. \
             For example, 10.0.0.0/24,192.168.2.0/24"
        ))
    })
}

pub(super) fn spec_source_ranges(given: &[String]) -> CloudResult<Vec<IpNet>> {
    ranges(given.iter().map(String::as_str)).map_err(|bad| {
        CloudError::invalid(format!(
            "service.Spec.LoadBalancerSourceRanges: [{}] is not valid. Expecting a list of IP \
             ranges. For example, 10.0.0.0/24. Error msg: invalid CIDR address: {bad}; correct it \
             or use the annotation {}",
            given.join(" "),
            SOURCE_RANGES.key
        ))
    })
}

/// Normalised, each once, IPv4 first; the text that does not parse as error.
fn ranges<'a>(items: impl Iterator<Item = &'a str>) -> Result<Vec<IpNet>, String> {
    let mut all = BTreeSet::new();
    for item in items {
        let item = item.trim();
        all.insert(parse_range(item).ok_or_else(|| item.to_owned())?);
    }
    Ok(all.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn leading_zeros_are_decimal() {
        let got = ranges(["010.000.0.1/008", "fd00::/8"].into_iter()).unwrap();
        let want: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        assert_eq!(got, want);
        assert!(ranges(["10.0.0.0"].into_iter()).is_err());
    }

    const KEY: &str = "k";

    proptest! {
        #[test]
        fn no_value_makes_a_reader_panic(value in "[-+0-9a-z,=*./: ]{0,24}|.{0,24}") {
            let _ = (flavour(KEY, &value), internal(KEY, &value), text(KEY, &value));
            let _ = (words(KEY, &value), spec_source_ranges(std::slice::from_ref(&value)));
            let errors = [
                boolean(KEY, &value).err(),
                integer(KEY, &value).err(),
                health_number(KEY, &value).err(),
                proxy_protocol(KEY, &value).err(),
                source_ranges(KEY, &value).err(),
            ];
            for error in errors.into_iter().flatten() {
                prop_assert_eq!(error.class(), ccm_core::cloud::Class::Invalid);
                prop_assert!(error.to_string().contains(KEY));
            }
        }

        #[test]
        fn integers_are_read_back_and_only_what_fits(number: i64) {
            let want = i32::try_from(number).ok();
            let value = number.to_string();
            prop_assert_eq!(integer(KEY, &value).ok(), want.map(Some));
            prop_assert_eq!(health_number(KEY, &value).ok(), want.map(Some));
        }

        #[test]
        fn a_list_is_read_back(value in "[a-z, \t]{0,24}|.{0,24}") {
            let items = list(KEY, &value).unwrap().unwrap();
            prop_assert!(items.iter().all(|item| !item.is_empty() && item.trim() == item));
            prop_assert_eq!(list(KEY, &items.join(" ,, ")).unwrap().unwrap(), items);
        }

        #[test]
        fn pairs_are_read_back(value in "[a-z,= ]{0,24}|.{0,24}") {
            let first = pairs(KEY, &value).unwrap().unwrap();
            prop_assert!(first.iter().all(|(key, value)| !key.is_empty() && !value.contains('=')));
            let written: Vec<String> = first.iter().map(|(key, value)| format!("{key}={value}")).collect();
            // Blanks around a `=` belong to key and value, those around a pair do not.
            let want = pairs(KEY, &written.join(",")).unwrap().unwrap();
            let trimmed = first
                .iter()
                .map(|(key, value)| (key.trim_start().to_owned(), value.trim_end().to_owned()));
            prop_assert_eq!(want, trimmed.collect::<BTreeMap<_, _>>());
        }

        #[test]
        fn ports_are_found_by_number_and_name(
            ports in proptest::collection::vec((1..=65535_i32, "[a-z]{1,5}"), 1..4),
        ) {
            let value: Vec<String> = ports.iter().map(|(number, name)| format!("{number}, {name}")).collect();
            let set = port_set(KEY, &value.join(",")).unwrap().unwrap();
            for (number, name) in &ports {
                prop_assert!(set.contains(*number, None) && set.contains(0, Some(name)));
            }
            prop_assert!(!set.contains(0, None) && !set.contains(0, Some("A")));
        }
    }
}
