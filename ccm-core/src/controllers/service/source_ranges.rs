//! Which clients a load balancer lets in: a helper for providers
//! (specification: controllers §4.10).

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use ipnet::{IpNet, Ipv4Net};

use crate::{
    cloud::{CloudError, CloudResult},
    kube::Service,
};

/// The annotation that is read when `spec.loadBalancerSourceRanges` is empty.
pub const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

const ANY_IPV4: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));

/// The masked client networks of a Service: those of the field, else those of the annotation,
/// else `0.0.0.0/0` alone (also for IPv6 Services, as upstream).
///
/// # Errors
/// Class `Invalid` when an element is no network in CIDR form; the message names the field or the
/// annotation.
pub fn parse_source_ranges(service: &Service) -> CloudResult<BTreeSet<IpNet>> {
    if let Some(ranges) = &service.spec.load_balancer_source_ranges
        && !ranges.is_empty()
    {
        return parse_all(ranges.iter().map(String::as_str)).map_err(|bad| {
            CloudError::invalid(format!(
                "service.Spec.LoadBalancerSourceRanges: [{}] is not valid. Expecting a list of IP \
                 ranges. For example, 10.0.0.0/24. Error msg: invalid CIDR address: {bad}",
                ranges.join(" ")
            ))
        });
    }
    let value = service
        .annotation(SOURCE_RANGES_ANNOTATION)
        .unwrap_or_default()
        .trim();
    if value.is_empty() {
        return Ok(BTreeSet::from([ANY_IPV4]));
    }
    parse_all(value.split(',')).map_err(|_| {
        CloudError::invalid(format!(
            "{SOURCE_RANGES_ANNOTATION}: {value} is not valid. Expecting a comma-separated list \
             of source IP ranges. For example, 10.0.0.0/24,192.168.2.0/24"
        ))
    })
}

/// Whether every IPv4 client is let in: the set holds `0.0.0.0/0`. `::/0` does not count.
pub fn allows_all(ranges: &BTreeSet<IpNet>) -> bool {
    ranges.contains(&ANY_IPV4)
}

/// All networks, or the first element that is none.
fn parse_all<'a>(ranges: impl Iterator<Item = &'a str>) -> Result<BTreeSet<IpNet>, &'a str> {
    ranges
        .map(str::trim)
        .map(|range| parse_range(range).ok_or(range))
        .collect()
}

/// A network in CIDR form, masked; `None` when it is none. Leading zeros are read as decimal, as the
/// Go manager does: what it accepted must stay valid.
pub fn parse_range(range: &str) -> Option<IpNet> {
    let (address, prefix) = range.split_once('/')?;
    if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let prefix: u8 = prefix.parse().ok()?;
    let address: IpAddr = if address.contains(':') {
        IpAddr::V6(address.parse().ok()?)
    } else {
        IpAddr::V4(parse_ipv4(address)?)
    };
    Some(IpNet::new(address, prefix).ok()?.trunc())
}

fn parse_ipv4(address: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = address.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{cloud::Class, controllers::service::fixtures};

    fn nets(texts: &[&str]) -> BTreeSet<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn of_field(ranges: &[&str]) -> CloudResult<BTreeSet<IpNet>> {
        let mut service = fixtures::service();
        service.spec.load_balancer_source_ranges =
            Some(ranges.iter().map(|range| (*range).to_owned()).collect());
        // The field wins: this must never be read.
        fixtures::annotate(&mut service, SOURCE_RANGES_ANNOTATION, "garbage");
        parse_source_ranges(&service)
    }

    fn of_annotation(value: &str) -> CloudResult<BTreeSet<IpNet>> {
        let mut service = fixtures::service();
        service.spec.load_balancer_source_ranges = Some(vec![]);
        fixtures::annotate(&mut service, SOURCE_RANGES_ANNOTATION, value);
        parse_source_ranges(&service)
    }

    /// REQ-SVC-36
    #[test]
    fn ranges_come_from_the_field_then_the_annotation_then_the_default() {
        let any = nets(&["0.0.0.0/0"]);
        assert_eq!(parse_source_ranges(&fixtures::service()).unwrap(), any);
        for blank in ["", "   "] {
            assert_eq!(of_annotation(blank).unwrap(), any);
        }
        assert_eq!(
            of_field(&["10.0.0.0/8", " 192.168.2.7/24 ", "fd00::1/64", "10.1.2.3/8"]).unwrap(),
            nets(&["10.0.0.0/8", "192.168.2.0/24", "fd00::/64"])
        );
        assert_eq!(
            of_annotation(" 10.0.0.0/24, 192.168.2.0/24 ").unwrap(),
            nets(&["10.0.0.0/24", "192.168.2.0/24"])
        );
        assert_eq!(
            of_annotation("010.000.0.0/024").unwrap(),
            nets(&["10.0.0.0/24"]),
            "leading zeros are decimal"
        );
    }

    /// REQ-SVC-36
    #[test]
    fn a_bad_range_is_the_users_error_and_named() {
        for bad in [
            "10.0.0.1",
            "10.0.0.0/33",
            "10.0.0/8",
            "foo",
            "10.0.0.0/8,",
            "10.0.0.0/8,,11.0.0.0/8",
            "10.0.0.0/+8",
            "10.0.0.256/8",
            "fd00::/129",
            "10.0.0.0.0/8",
        ] {
            let error = of_annotation(bad).unwrap_err();
            assert_eq!(error.class(), Class::Invalid, "{bad}");
            assert_eq!(
                error.to_string(),
                format!(
                    "service.beta.kubernetes.io/load-balancer-source-ranges: {bad} is not valid. \
                     Expecting a comma-separated list of source IP ranges. For example, \
                     10.0.0.0/24,192.168.2.0/24"
                )
            );
        }
        let error = of_field(&["10.0.0.0/8", "10.0.0.1"]).unwrap_err();
        assert_eq!(error.class(), Class::Invalid);
        assert_eq!(
            error.to_string(),
            "service.Spec.LoadBalancerSourceRanges: [10.0.0.0/8 10.0.0.1] is not valid. Expecting \
             a list of IP ranges. For example, 10.0.0.0/24. Error msg: invalid CIDR address: \
             10.0.0.1"
        );
    }

    /// REQ-SVC-36
    #[test]
    fn all_clients_are_let_in_by_the_ipv4_default_route_only() {
        for (ranges, want) in [
            (&["0.0.0.0/0"][..], true),
            (&["10.0.0.0/8", "192.168.0.0/0"], true),
            (&["::/0"], false),
            (&["10.0.0.0/8"], false),
        ] {
            assert_eq!(allows_all(&of_field(ranges).unwrap()), want, "{ranges:?}");
        }
    }

    fn any_net() -> impl Strategy<Value = IpNet> {
        (any::<IpAddr>(), 0..=128_u8).prop_map(|(address, prefix)| {
            let longest = if address.is_ipv4() { 32 } else { 128 };
            IpNet::new(address, prefix.min(longest)).unwrap()
        })
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9a-f:./, +]{0,24}|.{0,24}") {
            let ranges = of_annotation(&text);
            // Both places are read alike.
            let items: Vec<&str> = text.split(',').collect();
            if !text.trim().is_empty() {
                prop_assert_eq!(of_field(&items).ok(), ranges.ok());
            }
        }

        #[test]
        fn networks_are_read_back_without_host_bits(nets in proptest::collection::vec(any_net(), 1..4)) {
            let want: BTreeSet<IpNet> = nets.iter().map(IpNet::trunc).collect();
            let text: Vec<String> = nets.iter().map(IpNet::to_string).collect();
            prop_assert_eq!(of_annotation(&text.join(" , ")).unwrap(), want.clone());
            let text: Vec<String> = want.iter().map(IpNet::to_string).collect();
            prop_assert_eq!(of_annotation(&text.join(",")).unwrap(), want);
        }

        /// What the standard library reads is read alike; beyond it only leading zeros are read.
        #[test]
        fn only_leading_zeros_are_forgiven(text in "[0-9]{1,3}(\\.0?[0-9]{1,3}){3}/0?[0-9]{1,2}") {
            let plain = text.split(['.', '/']).map(|part| part.parse::<u32>().unwrap().to_string());
            let plain: Vec<String> = plain.collect();
            let plain = format!("{}/{}", plain[..4].join("."), plain[4]);
            let want = plain.parse::<IpNet>().ok().map(|net| BTreeSet::from([net.trunc()]));
            prop_assert_eq!(of_field(&[&text]).ok(), want);
        }
    }
}
