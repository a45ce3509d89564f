//! What the node IPAM flags mean, and what their wrong combinations do (specification: controllers
//! §6.1). Pure.

use ipnet::IpNet;

use super::cidr_set::{CidrSet, SetError};
use crate::{
    cloud::{NodeIpamPolicy, PodCidrs},
    config::{NodeIpamSettings, service_ranges::ServiceRanges},
};

/// A block of this size for a Node when no flag names another (IPv4).
const DEFAULT_IPV4_PREFIX: u8 = 24;

/// A block of this size for a Node when no flag names another (IPv6).
const DEFAULT_IPV6_PREFIX: u8 = 64;

/// Why the node IPAM controller does not start. Ends the process.
#[derive(Debug, thiserror::Error)]
pub enum NodeIpamStartError {
    /// The controller is on, but its switch is off.
    #[error(
        "the AllocateNodeCIDRs is not enabled: set --allocate-node-cidrs=true, or leave the \
         controller out with --controllers=*,-node-ipam-controller"
    )]
    NotEnabled,
    /// `--cluster-cidr` cannot be used.
    #[error(
        "--cluster-cidr={value:?}: {why}; set one CIDR, or one of each family separated by a \
         comma, for example 10.244.0.0/16"
    )]
    ClusterCidr {
        /// The flag's value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// `--service-cluster-ip-range` cannot be used.
    #[error(
        "--service-cluster-ip-range={value:?}: {why}; set one range, or one of each family \
         separated by a comma, for example 10.96.0.0/12"
    )]
    ServiceRange {
        /// The flag's value.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Mask flags that contradict each other or the cluster's families.
    #[error("--{flag}={value} is not allowed {why}; {fix}")]
    MaskFlag {
        /// The flag's name, without dashes.
        flag: &'static str,
        /// Its value.
        value: i32,
        /// With what it is not allowed.
        why: &'static str,
        /// What to do.
        fix: &'static str,
    },
    /// A node mask that is shorter than the cluster's, or longer than an address.
    #[error(
        "the node mask size /{mask} does not fit the cluster CIDR {cluster}: set --{flag} to a \
         number from {shortest} to {longest}"
    )]
    MaskSize {
        /// The mask size.
        mask: i64,
        /// The cluster CIDR.
        cluster: IpNet,
        /// The flag that names it, without dashes.
        flag: &'static str,
        /// The shortest possible mask.
        shortest: u8,
        /// The longest possible mask.
        longest: u8,
    },
    /// More than 2^16 IPv6 blocks.
    #[error(
        "New CIDR set failed; the node CIDR size is too big: the node mask /{mask} is more than 16 \
         bits longer than that of the cluster CIDR {cluster}; set --{flag} to at most {longest}, or \
         a narrower --cluster-cidr"
    )]
    TooBig {
        /// The mask size.
        mask: u8,
        /// The cluster CIDR.
        cluster: IpNet,
        /// The flag that names it, without dashes.
        flag: &'static str,
        /// The longest possible mask.
        longest: u8,
    },
    /// An allocator that does not exist here.
    #[error("--cidr-allocator-type={value:?} is not supported {why}; set {allowed}")]
    Allocator {
        /// The flag's value.
        value: String,
        /// Where, or why.
        why: &'static str,
        /// The possible values.
        allowed: &'static str,
    },
    /// A series of this controller is registered already.
    #[error("the node IPAM series cannot be registered: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// One cluster CIDR.
#[derive(Clone, Debug)]
pub(super) struct FamilyPlan {
    pub(super) set: CidrSet,
    /// The block size for a Node whose cloud names none.
    pub(super) prefix: u8,
}

/// What is allocated here.
#[derive(Clone, Debug)]
pub(super) struct RangePlan {
    /// In the order of `--cluster-cidr`.
    pub(super) families: Vec<FamilyPlan>,
    /// The service ranges that can be read.
    pub(super) services: Vec<IpNet>,
}

/// Which allocator runs.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// None.
    Skip,
    /// Blocks of the cluster CIDRs.
    Range(RangePlan),
    /// Blocks of the cluster CIDRs, of a size that the cloud names.
    Sized(RangePlan),
    /// What the cloud gave to the machine.
    Copied,
}

/// The flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) plan: Plan,
    /// What an operator should know but what stops nothing.
    pub(super) warnings: Vec<String>,
    /// What has no effect and needs no mending.
    pub(super) notes: Vec<String>,
}

/// What the cloud offers for `CloudAllocator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    None,
    Copied,
    Sized,
}

impl Offer {
    pub(super) const fn of(offered: Option<&PodCidrs>) -> Self {
        match offered {
            None => Self::None,
            Some(PodCidrs::Copied(_)) => Self::Copied,
            Some(PodCidrs::Sized(_)) => Self::Sized,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allocator {
    Range,
    Cloud,
}

/// Checks the flags as the provider's column says.
pub(super) fn check(
    policy: NodeIpamPolicy,
    offer: Offer,
    settings: &NodeIpamSettings,
) -> Result<Checked, NodeIpamStartError> {
    let mut check = Check {
        policy,
        settings,
        services: ServiceRanges::parse(&settings.service_cluster_ip_range),
        warnings: Vec::new(),
        notes: Vec::new(),
    };
    // Wrong in every column even when nothing is to be allocated.
    if check.services.are_too_many() {
        return Err(check.service_fault("it has more than two ranges"));
    }
    let plan = if settings.allocate {
        check.plan(offer)?
    } else if policy == NodeIpamPolicy::Gcp {
        return Err(NodeIpamStartError::NotEnabled);
    } else {
        Plan::Skip
    };
    Ok(Checked {
        plan,
        warnings: check.warnings,
        notes: check.notes,
    })
}

struct Check<'a> {
    policy: NodeIpamPolicy,
    settings: &'a NodeIpamSettings,
    services: ServiceRanges,
    warnings: Vec<String>,
    notes: Vec<String>,
}

impl Check<'_> {
    fn plan(&mut self, offer: Offer) -> Result<Plan, NodeIpamStartError> {
        let clusters = self.clusters()?;
        let services = self.services()?;
        let masks = self.masks(&clusters)?;
        let allocator = self.allocator()?;
        let families = |sized: bool| -> Result<Vec<FamilyPlan>, NodeIpamStartError> {
            let pairs = clusters.iter().zip(&masks);
            pairs
                .map(|(cluster, mask)| mask.family(*cluster, sized))
                .collect()
        };
        match (allocator, offer) {
            (Allocator::Range, _) => Ok(Plan::Range(RangePlan {
                families: families(false)?,
                services,
            })),
            (Allocator::Cloud, Offer::Copied) => Ok(Plan::Copied),
            (Allocator::Cloud, Offer::Sized) => Ok(Plan::Sized(RangePlan {
                families: families(true)?,
                services,
            })),
            (Allocator::Cloud, Offer::None) => Err(NodeIpamStartError::Allocator {
                value: self.settings.allocator_type.clone(),
                why: "by this provider, which names no ranges of its machines",
                allowed: "RangeAllocator",
            }),
        }
    }

    fn clusters(&self) -> Result<Vec<IpNet>, NodeIpamStartError> {
        let value = &self.settings.cluster_cidr;
        let fault = |why: String| NodeIpamStartError::ClusterCidr {
            value: value.clone(),
            why,
        };
        let text = value.trim();
        if text.is_empty() {
            return Err(fault("it is empty".to_owned()));
        }
        let clusters: Vec<IpNet> = text
            .split(',')
            .map(|part| parse(part).ok_or_else(|| fault(format!("{part:?} is not a CIDR"))))
            .collect::<Result<_, _>>()?;
        match clusters.as_slice() {
            [_] => Ok(clusters),
            [first, second] if is_ipv6(*first) == is_ipv6(*second) => {
                Err(fault("both are of one family".to_owned()))
            }
            [_, _] => Ok(clusters),
            more => Err(fault(format!("it has {} CIDRs", more.len()))),
        }
    }

    fn service_fault(&self, why: &'static str) -> NodeIpamStartError {
        NodeIpamStartError::ServiceRange {
            value: self.settings.service_cluster_ip_range.clone(),
            why,
        }
    }

    /// Those that can be read. That others cannot was said with the other flags' warnings.
    fn services(&self) -> Result<Vec<IpNet>, NodeIpamStartError> {
        if self.services.share_a_family() {
            return Err(self.service_fault("both ranges are of one family"));
        }
        Ok(self.services.readable.clone())
    }

    fn masks(&mut self, clusters: &[IpNet]) -> Result<Vec<Mask>, NodeIpamStartError> {
        let NodeIpamSettings {
            mut mask_size,
            mask_size_ipv4,
            mask_size_ipv6,
            ..
        } = *self.settings;
        let dual = clusters.len() > 1;
        if mask_size != 0 {
            if self.policy == NodeIpamPolicy::Azure {
                self.warnings.push(format!(
                    "--node-cidr-mask-size={mask_size} is ignored with this provider; use \
                     --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6"
                ));
                mask_size = 0;
            } else if dual {
                return Err(NodeIpamStartError::MaskFlag {
                    flag: SIZE,
                    value: mask_size,
                    why: "with two cluster CIDRs",
                    fix: "use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6",
                });
            } else if mask_size_ipv4 != 0 || mask_size_ipv6 != 0 {
                return Err(NodeIpamStartError::MaskFlag {
                    flag: SIZE,
                    value: mask_size,
                    why: "together with --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6",
                    fix: "keep only one of them",
                });
            }
        }
        if let ([cluster], false) = (clusters, dual) {
            self.other_family(*cluster)?;
        }
        let of = |cluster: &IpNet| {
            let (own_flag, own, default) = match cluster {
                IpNet::V4(_) => (SIZE_IPV4, mask_size_ipv4, DEFAULT_IPV4_PREFIX),
                IpNet::V6(_) => (SIZE_IPV6, mask_size_ipv6, DEFAULT_IPV6_PREFIX),
            };
            let (flag, given) = if mask_size == 0 {
                (own_flag, own)
            } else {
                (SIZE, mask_size)
            };
            let size = if given == 0 {
                i64::from(default)
            } else {
                i64::from(given)
            };
            Mask { flag, size }
        };
        Ok(clusters.iter().map(of).collect())
    }

    /// The mask flag of the family that a single-stack cluster does not have.
    fn other_family(&mut self, cluster: IpNet) -> Result<(), NodeIpamStartError> {
        let (flag, value) = match cluster {
            IpNet::V4(_) => (SIZE_IPV6, self.settings.mask_size_ipv6),
            IpNet::V6(_) => (SIZE_IPV4, self.settings.mask_size_ipv4),
        };
        if value == 0 {
            return Ok(());
        }
        match self.policy {
            NodeIpamPolicy::Kubernetes => Err(NodeIpamStartError::MaskFlag {
                flag,
                value,
                why: "with a cluster CIDR of the other family alone",
                fix: "remove it, or add a CIDR of that family to --cluster-cidr",
            }),
            NodeIpamPolicy::Gcp => {
                self.notes.push(format!(
                    "--{flag}={value} has no effect: --cluster-cidr has no range of that family"
                ));
                Ok(())
            }
            NodeIpamPolicy::Azure => Ok(()),
        }
    }

    fn allocator(&self) -> Result<Allocator, NodeIpamStartError> {
        let value = self.settings.allocator_type.as_str();
        let (why, allowed) = match (value, self.policy) {
            ("RangeAllocator", _) => return Ok(Allocator::Range),
            ("CloudAllocator", NodeIpamPolicy::Gcp | NodeIpamPolicy::Azure) => {
                return Ok(Allocator::Cloud);
            }
            (_, NodeIpamPolicy::Kubernetes) => ("with this provider", "RangeAllocator"),
            ("IPAMFromCluster" | "IPAMFromCloud", NodeIpamPolicy::Gcp) => (
                "by this manager (it was never more than alpha)",
                "RangeAllocator or CloudAllocator",
            ),
            _ => ("with this provider", "RangeAllocator or CloudAllocator"),
        };
        Err(NodeIpamStartError::Allocator {
            value: value.to_owned(),
            why,
            allowed,
        })
    }
}

const SIZE: &str = "node-cidr-mask-size";
const SIZE_IPV4: &str = "node-cidr-mask-size-ipv4";
const SIZE_IPV6: &str = "node-cidr-mask-size-ipv6";

/// A mask size and the flag that names it.
#[derive(Clone, Copy, Debug)]
struct Mask {
    flag: &'static str,
    size: i64,
}

impl Mask {
    /// `sized`: the cloud names the sizes, so that a mask shorter than the cluster's stops nothing:
    /// it only means that a Node without a size of its own gets no block.
    fn family(self, cluster: IpNet, sized: bool) -> Result<FamilyPlan, NodeIpamStartError> {
        let (shortest, longest) = (cluster.prefix_len(), cluster.max_prefix_len());
        let Self { flag, size } = self;
        let unfit = || NodeIpamStartError::MaskSize {
            mask: size,
            cluster,
            flag,
            shortest,
            longest,
        };
        let prefix = u8::try_from(size).map_err(|_| unfit())?;
        let blocks = if sized { prefix.max(shortest) } else { prefix };
        let set = CidrSet::new(cluster, blocks).map_err(|error| match error {
            SetError::Prefix => unfit(),
            SetError::TooBig => NodeIpamStartError::TooBig {
                mask: blocks,
                cluster,
                flag,
                longest: shortest.saturating_add(16).min(longest),
            },
        })?;
        Ok(FamilyPlan { set, prefix })
    }
}

fn parse(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().map(|net| net.trunc())
}

const fn is_ipv6(net: IpNet) -> bool {
    matches!(net, IpNet::V6(_))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
