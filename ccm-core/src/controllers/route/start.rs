//! Whether the controller runs, and for which ranges (specification: controllers §5.1).

use ipnet::IpNet;

use crate::config::RouteSettings;

/// What the flags and the provider say of the controller's start. Pure, for the caller that
/// assembles the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteStart {
    /// It runs.
    Run,
    /// `--configure-cloud-routes=false`: skipped, worth an info line.
    SwitchedOff,
    /// The provider has no routes: skipped, worth a warning.
    NoRoutes,
}

impl RouteStart {
    /// The conditions in the order of the specification.
    pub const fn of(settings: &RouteSettings, provider_has_routes: bool) -> Self {
        if !settings.configure {
            Self::SwitchedOff
        } else if provider_has_routes {
            Self::Run
        } else {
            Self::NoRoutes
        }
    }
}

/// Why the controller cannot start. The texts name the flag, its value and the fix.
#[derive(Debug, thiserror::Error)]
pub enum RouteStartError {
    /// No range is given, which is the flag's default.
    #[error(
        "--cluster-cidr is not set (invalid CIDR[0]): node-route-controller manages only routes \
         inside the cluster's pod address ranges. Set --cluster-cidr, for example \
         --cluster-cidr=10.244.0.0/16, or --configure-cloud-routes=false"
    )]
    NoClusterCidr,
    /// One part is no range.
    #[error(
        "--cluster-cidr={value:?}: invalid CIDR[{index}]: {part:?} is not of the form \
         10.244.0.0/16 or fd00:10:244::/56. Correct --cluster-cidr (two ranges are separated by a \
         comma without spaces), or set --configure-cloud-routes=false"
    )]
    InvalidClusterCidr {
        /// The flag's value.
        value: String,
        /// Which part, from 0.
        index: usize,
        /// That part.
        part: String,
    },
    /// More than one of a family.
    #[error(
        "--cluster-cidr={value:?} has {count} ranges: give one, or one IPv4 and one IPv6 range, or \
         set --configure-cloud-routes=false"
    )]
    NotDualStack {
        /// The flag's value.
        value: String,
        /// How many there are.
        count: usize,
    },
    /// A series of this controller is registered already.
    #[error("route controller: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// The ranges that the controller answers for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterCidrs(Vec<IpNet>);

impl ClusterCidrs {
    /// Reads `--cluster-cidr` as the Go managers do: the whole is trimmed, its parts are not.
    pub(super) fn parse(value: &str) -> Result<Self, RouteStartError> {
        let trimmed = value.trim();
        if trimmed.is_empty() {
            return Err(RouteStartError::NoClusterCidr);
        }
        let ranges = trimmed
            .split(',')
            .enumerate()
            .map(|(index, part)| {
                part.parse::<IpNet>()
                    .map_err(|_| RouteStartError::InvalidClusterCidr {
                        value: value.to_owned(),
                        index,
                        part: part.to_owned(),
                    })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let is_dual_stack = || {
            let v4 = ranges.iter().filter(|r| matches!(r, IpNet::V4(_))).count();
            v4 == 1 && ranges.len() == 2
        };
        if ranges.len() > 1 && !is_dual_stack() {
            return Err(RouteStartError::NotDualStack {
                value: value.to_owned(),
                count: ranges.len(),
            });
        }
        Ok(Self(ranges))
    }

    /// Whether a route to this destination is ours: its first or last address is in one of the
    /// ranges (specification: controllers §5.4). What cannot be read is not ours.
    pub(super) fn covers(&self, destination: &str) -> bool {
        let Ok(range) = destination.parse::<IpNet>() else {
            return false;
        };
        self.0
            .iter()
            .any(|ours| ours.contains(&range.network()) || ours.contains(&range.broadcast()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REQ-ROUTE-01
    #[test]
    fn the_controller_is_skipped_when_switched_off_or_without_routes() {
        let on = RouteSettings::default();
        let off = RouteSettings {
            configure: false,
            ..RouteSettings::default()
        };
        assert_eq!(RouteStart::of(&on, true), RouteStart::Run);
        assert_eq!(RouteStart::of(&on, false), RouteStart::NoRoutes);
        assert_eq!(RouteStart::of(&off, true), RouteStart::SwitchedOff);
        assert_eq!(RouteStart::of(&off, false), RouteStart::SwitchedOff);
    }

    /// REQ-ROUTE-01
    #[test]
    fn a_cluster_range_that_cannot_be_used_is_told_with_flag_value_and_fix() {
        for (value, parts) in [
            ("", &["--cluster-cidr is not set", "invalid CIDR[0]"][..]),
            ("  ", &["--cluster-cidr is not set"]),
            ("10.64.0.0", &["\"10.64.0.0\"", "invalid CIDR[0]"]),
            (
                "10.64.0.0/14, fd00::/56",
                &["invalid CIDR[1]", "\" fd00::/56\"", "without spaces"],
            ),
            ("10.64.0.0/14,", &["invalid CIDR[1]", "\"\""]),
            (
                "10.64.0.0/14,10.68.0.0/14",
                &["has 2 ranges", "one IPv4 and one IPv6"],
            ),
            ("10.64.0.0/14,fd00::/56,fd01::/56", &["has 3 ranges"]),
        ] {
            let error = ClusterCidrs::parse(value).unwrap_err().to_string();
            for part in ["--cluster-cidr", "--configure-cloud-routes=false"]
                .iter()
                .chain(parts)
            {
                assert!(error.contains(part), "{value:?}: {error}");
            }
        }
        for value in [
            "10.64.0.0/14",
            " 10.64.0.0/14,fd00::/56\n",
            "fd00::/56,10.64.0.0/14",
        ] {
            assert!(ClusterCidrs::parse(value).is_ok(), "{value}");
        }
    }

    /// REQ-ROUTE-05
    #[test]
    fn a_route_is_ours_if_its_first_or_last_address_is_in_a_cluster_range() {
        for (ours, destination, covered) in [
            ("10.244.0.0/16", "10.244.0.0/24", true),
            ("10.244.0.0/16", "10.244.10.0/24", true),
            ("10.244.0.0/16", "10.244.255.0/24", true),
            ("10.244.0.0/16", "10.224.0.0/24", false),
            ("10.244.0.0/16", "10.0.10.0/24", false),
            ("10.244.0.0/16", "10.255.255.0/24", false),
            ("10.244.0.0/14", "10.247.255.0/24", true),
            ("10.244.0.0/14", "10.248.0.0/24", false),
            ("10.244.0.0/14", "10.243.255.0/24", false),
            ("2001:db8::/48", "2001:db8:0:ffff::/64", true),
            ("2001:db8::/48", "2001:db8:1::/64", false),
            ("10.244.0.0/16,2001:db8::/48", "2001:db8::/64", true),
            ("10.244.0.0/16,2001:db8::/48", "10.244.3.0/24", true),
            // One end inside is enough; both outside are not, even around the range.
            ("10.244.0.0/16", "10.244.0.0/15", true),
            ("10.245.0.0/16", "10.244.0.0/15", true),
            ("10.244.0.0/16", "0.0.0.0/0", false),
            ("10.244.0.0/16", "10.244.0.0", false),
            ("10.244.0.0/16", "pl-1a2b3c", false),
            ("10.244.0.0/16", "", false),
        ] {
            let cidrs = ClusterCidrs::parse(ours).unwrap();
            assert_eq!(cidrs.covers(destination), covered, "{ours} {destination}");
        }
    }
}
