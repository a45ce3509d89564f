//! `--service-cluster-ip-range` (specification: controllers §6.1). Pure.

use ipnet::IpNet;

/// One a family.
const MAX_RANGES: usize = 2;

/// The ranges that addresses of Services come from, as far as they can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceRanges {
    count: usize,
    /// In their order, without host bits.
    pub(crate) readable: Vec<IpNet>,
    unreadable: Vec<String>,
}

impl ServiceRanges {
    /// Reads them as the Go managers do: parts are not trimmed, empty ones are none.
    pub(crate) fn parse(text: &str) -> Self {
        let mut ranges = Self {
            count: text.split(',').count(),
            readable: Vec::new(),
            unreadable: Vec::new(),
        };
        for part in text.split(',') {
            match part.parse::<IpNet>() {
                Ok(range) => ranges.readable.push(range.trunc()),
                Err(_) if part.trim().is_empty() => {}
                Err(_) => ranges.unreadable.push(part.to_owned()),
            }
        }
        ranges
    }

    /// Whether there are more than a cluster can have, empty ones included: a fault in every
    /// provider's column, also where nothing is allocated.
    pub(crate) const fn are_too_many(&self) -> bool {
        self.count > MAX_RANGES
    }

    /// Whether two are of one family: a fault in every provider's column.
    pub(crate) fn share_a_family(&self) -> bool {
        let is_v4 = |range: &IpNet| matches!(range, IpNet::V4(_));
        matches!(self.readable.as_slice(), [one, other] if is_v4(one) == is_v4(other))
    }

    /// What cannot be read stops nothing in any column. A line for each.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.unreadable.iter().map(|text| {
            format!(
                "--service-cluster-ip-range: {text:?} is not a CIDR (spaces are not allowed), so \
                 this range is not kept out of what Nodes get; correct it"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REQ-IPAM-03, REQ-IPAM-14
    #[test]
    fn what_can_be_read_is_read_and_the_rest_is_told() {
        for (text, readable, unreadable, too_many, one_family) in [
            ("", &[][..], 0, false, false),
            (" ", &[], 0, false, false),
            ("10.0.0.1/16", &["10.0.0.0/16"], 0, false, false),
            (
                "10.0.0.0/16,fd00::/112",
                &["10.0.0.0/16", "fd00::/112"],
                0,
                false,
                false,
            ),
            ("10.0.0.0/16, fd00::/112", &["10.0.0.0/16"], 1, false, false),
            ("10.0.0.0", &[], 1, false, false),
            ("x,10.0.0.0/8", &["10.0.0.0/8"], 1, false, false),
            (
                "10.0.0.0/16,10.1.0.0/16",
                &["10.0.0.0/16", "10.1.0.0/16"],
                0,
                false,
                true,
            ),
            (",,", &[], 0, true, false),
            (
                "10.0.0.0/16,10.1.0.0/16,x",
                &["10.0.0.0/16", "10.1.0.0/16"],
                1,
                true,
                true,
            ),
        ] {
            let ranges = ServiceRanges::parse(text);
            let read: Vec<String> = ranges.readable.iter().map(IpNet::to_string).collect();
            assert_eq!(read, readable, "{text:?}");
            assert_eq!(ranges.warnings().count(), unreadable, "{text:?}");
            assert_eq!(ranges.are_too_many(), too_many, "{text:?}");
            assert_eq!(ranges.share_a_family(), one_family, "{text:?}");
        }
    }
}
