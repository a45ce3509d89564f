//! The blocks of one cluster CIDR as a bitmap (specification: controllers §6.2).
//!
//! Block `i` is the cluster's base address plus `i` block sizes. Blocks are handed out round-robin:
//! a freed one is not reused before the cursor has come round. Counters change only for bits that
//! flip, so occupying or releasing twice counts once (REQ-IPAM-04, REQ-IPAM-05).

use std::{fmt, net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;

/// The longest difference between cluster and node prefix for IPv6, as upstream: 65,536 blocks.
const MAX_IPV6_BITS: u8 = 16;

/// Bits in one word of the bitmap.
const WORD: u64 = 64;

/// Why no set can be made for a cluster CIDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetError {
    /// The node prefix is shorter than the cluster prefix, or longer than an address.
    Prefix,
    /// More than 2^16 IPv6 blocks.
    TooBig,
}

/// A range that has nothing in common with the cluster CIDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfRange {
    pub(super) range: IpNet,
    pub(super) cluster: IpNet,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, cluster } = self;
        // Spelling as upstream: people search for it.
        write!(f, "cidr {range} is out the range of cluster cidr {cluster}")
    }
}

/// A block handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allocated {
    /// The block.
    pub(super) block: IpNet,
    /// Occupied candidates that were passed over.
    pub(super) tries: u64,
}

/// The blocks of one cluster CIDR.
#[derive(Clone, Debug)]
pub(super) struct CidrSet {
    cluster: IpNet,
    node_prefix: u8,
    capacity: u64,
    /// Grows up to the highest block ever used.
    words: Vec<u64>,
    used: u64,
    cursor: u64,
}

impl CidrSet {
    /// A set without used blocks.
    pub(super) fn new(cluster: IpNet, node_prefix: u8) -> Result<Self, SetError> {
        if node_prefix < cluster.prefix_len() || node_prefix > cluster.max_prefix_len() {
            return Err(SetError::Prefix);
        }
        let bits = node_prefix - cluster.prefix_len();
        if matches!(cluster, IpNet::V6(_)) && bits > MAX_IPV6_BITS {
            return Err(SetError::TooBig);
        }
        Ok(Self {
            cluster: cluster.trunc(),
            node_prefix,
            capacity: 1 << bits,
            words: Vec::new(),
            used: 0,
            cursor: 0,
        })
    }

    pub(super) const fn cluster(&self) -> IpNet {
        self.cluster
    }

    pub(super) const fn node_prefix(&self) -> u8 {
        self.node_prefix
    }

    /// How many blocks there are.
    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many are used, never more than there are.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Takes the next free range of that prefix length, which is a block or a run of blocks.
    /// `None` when there is none, or when the length is impossible here.
    pub(super) fn allocate(&mut self, prefix: u8) -> Option<Allocated> {
        if prefix < self.cluster.prefix_len() || prefix > self.node_prefix {
            return None;
        }
        let run = 1_u64 << (self.node_prefix - prefix);
        let candidates = self.capacity / run;
        if self.used == self.capacity {
            return None;
        }
        // A run begins at a multiple of its length.
        let start = self.cursor.div_ceil(run) % candidates;
        let mut tries = 0;
        while tries < candidates {
            let candidate = (start + tries) % candidates;
            let blocks = candidate * run..=candidate * run + (run - 1);
            if self.is_free(&blocks) {
                self.cursor = (blocks.end() + 1) % self.capacity;
                let block = self.network(*blocks.start(), prefix);
                self.flip(blocks, true);
                return Some(Allocated { block, tries });
            }
            tries += self.passed_over(candidate, run, candidates);
        }
        None
    }

    /// Marks all blocks that the range touches; answers how many were free.
    pub(super) fn occupy(&mut self, range: IpNet) -> Result<u64, OutOfRange> {
        let blocks = self.blocks(range)?;
        Ok(self.flip(blocks, true))
    }

    /// Clears all blocks that the range touches; answers how many were used.
    pub(super) fn release(&mut self, range: IpNet) -> Result<u64, OutOfRange> {
        let blocks = self.blocks(range)?;
        Ok(self.flip(blocks, false))
    }

    /// The range widened to whole blocks of this set.
    pub(super) fn widened(&self, range: IpNet) -> IpNet {
        let prefix = range.prefix_len().min(self.node_prefix);
        IpNet::new(range.addr(), prefix).map_or(range, |net| net.trunc())
    }

    /// The blocks that the range touches.
    fn blocks(&self, range: IpNet) -> Result<RangeInclusive<u64>, OutOfRange> {
        let range = range.trunc();
        if range.contains(&self.cluster) {
            return Ok(0..=self.capacity - 1);
        }
        if !self.cluster.contains(&range) {
            return Err(OutOfRange {
                range,
                cluster: self.cluster,
            });
        }
        let base = number(self.cluster.network());
        let index = |address: IpAddr| {
            let offset = number(address) - base;
            offset.checked_shr(self.host_bits()).unwrap_or(0)
        };
        // Within the cluster CIDR, so below the capacity.
        let at = |address| u64::try_from(index(address)).unwrap_or(self.capacity - 1);
        Ok(at(range.network())..=at(range.broadcast()))
    }

    fn network(&self, block: u64, prefix: u8) -> IpNet {
        let offset = u128::from(block).checked_shl(self.host_bits()).unwrap_or(0);
        let at = number(self.cluster.network()) + offset;
        let address = match self.cluster {
            IpNet::V4(_) => IpAddr::V4(u32::try_from(at).unwrap_or(u32::MAX).into()),
            IpNet::V6(_) => IpAddr::V6(at.into()),
        };
        IpNet::new(address, prefix).unwrap_or(self.cluster)
    }

    /// 128 for the one block of `::/0`.
    fn host_bits(&self) -> u32 {
        u32::from(self.cluster.max_prefix_len() - self.node_prefix)
    }

    fn word(&self, index: u64) -> u64 {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.words.get(index))
            .copied()
            .unwrap_or(0)
    }

    fn is_free(&self, blocks: &RangeInclusive<u64>) -> bool {
        words(blocks).all(|(index, mask)| self.word(index) & mask == 0)
    }

    /// How many candidates need not be looked at after a used one: of single blocks, all the used
    /// ones in the same word.
    fn passed_over(&self, candidate: u64, run: u64, candidates: u64) -> u64 {
        if run > 1 {
            return 1;
        }
        let bit = candidate % WORD;
        let used = (self.word(candidate / WORD) >> bit).trailing_ones();
        // Not beyond the end: the scan goes on at block 0.
        u64::from(used).clamp(1, candidates - candidate)
    }

    fn flip(&mut self, blocks: RangeInclusive<u64>, to_used: bool) -> u64 {
        let mut flipped = 0;
        for (index, mask) in words(&blocks) {
            let Ok(index) = usize::try_from(index) else {
                continue;
            };
            if index >= self.words.len() {
                if !to_used {
                    break;
                }
                self.words.resize(index + 1, 0);
            }
            if let Some(word) = self.words.get_mut(index) {
                let before = *word;
                *word = if to_used {
                    before | mask
                } else {
                    before & !mask
                };
                flipped += u64::from((before ^ *word).count_ones());
            }
        }
        if to_used {
            self.used += flipped;
        } else {
            self.used -= flipped;
        }
        flipped
    }
}

/// The words that the blocks lie in, with the bits that are meant.
fn words(blocks: &RangeInclusive<u64>) -> impl Iterator<Item = (u64, u64)> {
    let (first, last) = (*blocks.start(), *blocks.end());
    (first / WORD..=last / WORD).map(move |index| {
        let from = first.saturating_sub(index * WORD).min(WORD - 1);
        let to = (last - index * WORD).min(WORD - 1);
        (index, (u64::MAX << from) & (u64::MAX >> (WORD - 1 - to)))
    })
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

#[cfg(test)]
#[path = "cidr_set_tests.rs"]
mod tests;
