//! Who holds which blocks, and what is to be done for a Node next (specification: controllers
//! §6.3). Pure: the shell in `range` asks, acts and tells what came of it.
//!
//! What a Node may hold, by its name and UID:
//!
//! | State | Meaning | Ends by |
//! |---|---|---|
//! | in flight | blocks were picked, the write is under way | the write's outcome |
//! | unsure | the write may have been applied, or was overtaken | reading the Node (REQ-IPAM-08) |
//! | unwritten | the Node was read and has no ranges: the same blocks may be sent again | the next write |
//! | written | the Node has the ranges | the Node being gone (REQ-IPAM-09) |
//!
//! A block is freed when the write was definitely refused, when the Node turned out to have other
//! ranges, or when the Node is gone; never for any other reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use ipnet::IpNet;

use super::{
    cidr_set::{CidrSet, OutOfRange},
    config::RangePlan,
};
use crate::{cloud::NodeMasks, kube::Node};

/// What is wrong with the ranges that a Node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Unparsable { text: String },
    TooMany { have: usize, families: usize },
    OutOfRange(OutOfRange),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unparsable { text } => {
                write!(f, "its pod range {text:?} is not of the form 10.244.0.0/24")
            }
            Self::TooMany { have, families } => write!(
                f,
                "it has {have} pod ranges, but --cluster-cidr names only {families} range(s)"
            ),
            Self::OutOfRange(error) => write!(f, "{error}"),
        }
    }
}

/// What the ranges of a Node say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// There are none.
    None,
    /// They are the ones known already, or the ones that were picked for it.
    Ours,
    /// Not known before, and none were picked for it.
    New,
    /// Others than the ones that were picked for it, which are free again (REQ-IPAM-07).
    Displaced,
}

/// What is to be done for a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Done,
    /// Read it: an earlier write may have been applied.
    Reread,
    /// Write these ranges, in the order of the cluster CIDRs.
    Write(Vec<IpNet>),
    /// No block is free; nothing was taken (REQ-IPAM-06).
    NoRoom {
        cluster: IpNet,
        prefix: u8,
        used: u64,
        capacity: u64,
    },
    /// The machine's block size can never be had here.
    Unfit { cluster: IpNet, prefix: u8 },
}

/// What reading a Node told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learnt {
    /// It is gone, or another one has its name.
    Gone,
    /// It has ranges: ours, or known before.
    Assigned,
    /// It has others than those that were picked for it.
    Displaced,
    /// It has none: the write was not applied.
    Unwritten,
}

/// What happened to one cluster CIDR's blocks since the last call, for the series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) cluster: IpNet,
    /// Blocks that became used.
    pub(super) occupied: u64,
    /// Blocks that became free.
    pub(super) released: u64,
    /// Blocks used now.
    pub(super) used: u64,
    /// All blocks.
    pub(super) capacity: u64,
    /// For each allocation, the used blocks passed over.
    pub(super) tries: Vec<u64>,
}

struct Family {
    set: CidrSet,
    /// The block size where the cloud names none.
    prefix: u8,
    tally: Option<Tally>,
}

impl Family {
    fn tally(&mut self) -> &mut Tally {
        let (cluster, used, capacity) = (self.set.cluster(), self.set.used(), self.set.capacity());
        let tally = self.tally.get_or_insert_with(|| Tally {
            cluster,
            occupied: 0,
            released: 0,
            used,
            capacity,
            tries: Vec::new(),
        });
        (tally.used, tally.capacity) = (used, capacity);
        tally
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Unsure,
    Unwritten,
    Written,
}

struct Holder {
    uid: String,
    ranges: Vec<IpNet>,
    state: State,
}

/// The blocks of all cluster CIDRs and who holds them.
pub(super) struct Allocator {
    families: Vec<Family>,
    /// Never handed out (REQ-IPAM-03).
    reserved: Vec<IpNet>,
    /// By Node name.
    holders: BTreeMap<String, Holder>,
    /// How many Nodes hold exactly this range: more than one is somebody else's mistake, and the
    /// range stays used until the last of them is gone.
    claims: BTreeMap<IpNet, u32>,
    /// Nodes that got no block.
    waiting: BTreeSet<String>,
}

impl Allocator {
    /// All blocks free but those that touch a service range.
    pub(super) fn new(plan: RangePlan) -> Self {
        let families = plan.families.into_iter().map(|family| Family {
            set: family.set,
            prefix: family.prefix,
            tally: None,
        });
        let mut allocator = Self {
            families: families.collect(),
            reserved: plan.services,
            holders: BTreeMap::new(),
            claims: BTreeMap::new(),
            waiting: BTreeSet::new(),
        };
        for family in &mut allocator.families {
            let occupied = occupy_all(&mut family.set, &allocator.reserved);
            family.tally().occupied += occupied;
        }
        allocator
    }

    /// Takes notice of the ranges that a Node has: they are used from now on.
    pub(super) fn observe(&mut self, node: &Node) -> Result<Seen, Fault> {
        self.drop_other_uid(node);
        if node.spec.pod_cidrs.is_empty() {
            return Ok(Seen::None);
        }
        let ranges = self.ranges_of(node)?;
        let (inside, outside): (Vec<_>, Vec<_>) = ranges
            .into_iter()
            .partition(|range| self.family_of(*range).is_some());
        let seen = self.hold(node, inside);
        match outside.first() {
            None => Ok(seen),
            Some(range) => Err(Fault::OutOfRange(self.out_of_range(*range))),
        }
    }

    /// Whether another Node has addresses of this Node's ranges.
    pub(super) fn is_shared(&self, name: &str) -> bool {
        let ranges = self.holders.get(name).map(|holder| &holder.ranges);
        ranges.into_iter().flatten().any(|range| {
            let holders = self.overlapping(*range).into_iter();
            holders.map(|(_, count)| count).sum::<u32>() > 1
        })
    }

    /// The next step for the Node as the cache has it, `None` when it has none of that name. A step
    /// to write has marked its blocks already.
    pub(super) fn next(&mut self, name: &str, node: Option<&Node>, masks: NodeMasks) -> Step {
        self.waiting.remove(name);
        let Some(node) = node else {
            self.free(name);
            return Step::Done;
        };
        self.drop_other_uid(node);
        // REQ-IPAM-15. What it holds stays marked until it is gone.
        if node.metadata.deletion_timestamp.is_some() {
            return Step::Done;
        }
        if !node.spec.pod_cidrs.is_empty() {
            // The informer's listener tells of faults.
            let _ = self.observe(node);
            return Step::Done;
        }
        match self.holders.get(name).map(|holder| holder.state) {
            None => self.pick(node, masks),
            // The cache is behind.
            Some(State::Written) => Step::Done,
            Some(State::InFlight | State::Unsure) => Step::Reread,
            Some(State::Unwritten) if self.is_shared(name) => {
                self.free(name);
                self.pick(node, masks)
            }
            Some(State::Unwritten) => self.send_again(name),
        }
    }

    /// Takes notice of what the API server answered when the Node of that UID was read.
    pub(super) fn learn(&mut self, name: &str, uid: &str, answer: Option<&Node>) -> Learnt {
        let answer = answer.filter(|node| node.uid() == uid);
        if self.holder(name, uid).is_none() {
            // The informer told of its end meanwhile.
            return Learnt::Gone;
        }
        match answer {
            None => {
                self.free(name);
                Learnt::Gone
            }
            Some(node) if node.spec.pod_cidrs.is_empty() => {
                self.set_state(name, uid, State::Unwritten);
                Learnt::Unwritten
            }
            Some(node) => match self.observe(node) {
                Ok(Seen::Displaced) => Learnt::Displaced,
                Ok(_) => Learnt::Assigned,
                Err(_) => {
                    // Not ours in any case.
                    self.refused(name, uid);
                    Learnt::Displaced
                }
            },
        }
    }

    /// The write was certainly not applied, and no earlier one can be: the blocks are free.
    pub(super) fn refused(&mut self, name: &str, uid: &str) {
        let written = |holder: &mut Holder| holder.state == State::Written;
        if self
            .holder(name, uid)
            .is_some_and(|holder| !written(holder))
        {
            self.free(name);
        }
    }

    /// The write may have been applied: the blocks stay until the Node was read.
    pub(super) fn unsure(&mut self, name: &str, uid: &str) {
        let written = |holder: &mut Holder| holder.state == State::Written;
        if self
            .holder(name, uid)
            .is_some_and(|holder| !written(holder))
        {
            self.set_state(name, uid, State::Unsure);
        }
    }

    /// The Node object is gone.
    pub(super) fn gone(&mut self, node: &Node) {
        if self.holder(node.name(), node.uid()).is_some() {
            self.free(node.name());
        }
        self.waiting.remove(node.name());
    }

    /// Up to `limit` Nodes that may get a block now.
    pub(super) fn wake(&mut self, limit: usize) -> Vec<String> {
        let full = |family: &Family| family.set.used() == family.set.capacity();
        if self.families.iter().any(full) {
            return Vec::new();
        }
        std::iter::from_fn(|| self.waiting.pop_first())
            .take(limit)
            .collect()
    }

    /// What happened since the last call, of the cluster CIDRs where anything did.
    pub(super) fn take_tallies(&mut self) -> Vec<Tally> {
        let families = self.families.iter_mut();
        families.filter_map(|family| family.tally.take()).collect()
    }

    fn holder(&mut self, name: &str, uid: &str) -> Option<&mut Holder> {
        self.holders
            .get_mut(name)
            .filter(|holder| holder.uid == uid)
    }

    fn set_state(&mut self, name: &str, uid: &str, state: State) {
        if let Some(holder) = self.holder(name, uid) {
            holder.state = state;
        }
    }

    /// A Node that has the name of an earlier one: that one is gone.
    fn drop_other_uid(&mut self, node: &Node) {
        let other = |holder: &Holder| holder.uid != node.uid();
        if self.holders.get(node.name()).is_some_and(other) {
            self.free(node.name());
        }
    }

    fn ranges_of(&self, node: &Node) -> Result<Vec<IpNet>, Fault> {
        let texts = &node.spec.pod_cidrs;
        let parsed: Result<Vec<IpNet>, Fault> = texts
            .iter()
            .map(|text| match text.parse::<IpNet>() {
                Ok(range) => Ok(range.trunc()),
                Err(_) => Err(Fault::Unparsable { text: text.clone() }),
            })
            .collect();
        let families = self.families.len();
        if texts.len() > families {
            return Err(Fault::TooMany {
                have: texts.len(),
                families,
            });
        }
        parsed
    }

    fn family_of(&self, range: IpNet) -> Option<usize> {
        let touches = |cluster: IpNet| cluster.contains(&range) || range.contains(&cluster);
        let mut families = self.families.iter();
        families.position(|family| touches(family.set.cluster()))
    }

    /// For the text: the cluster CIDR of the range's family.
    fn out_of_range(&self, range: IpNet) -> OutOfRange {
        let same =
            |family: &&Family| family.set.cluster().max_prefix_len() == range.max_prefix_len();
        let family = self
            .families
            .iter()
            .find(same)
            .or_else(|| self.families.first());
        OutOfRange {
            range,
            cluster: family.map_or(range, |family| family.set.cluster()),
        }
    }

    fn hold(&mut self, node: &Node, ranges: Vec<IpNet>) -> Seen {
        let seen = match self.holders.get_mut(node.name()) {
            Some(holder) if holder.ranges == ranges => {
                holder.state = State::Written;
                return Seen::Ours;
            }
            Some(_) => Seen::Displaced,
            None => Seen::New,
        };
        self.free(node.name());
        self.claim(node, ranges, State::Written);
        seen
    }

    fn claim(&mut self, node: &Node, ranges: Vec<IpNet>, state: State) {
        for range in &ranges {
            *self.claims.entry(*range).or_insert(0) += 1;
            let family = self.family_of(*range);
            if let Some(family) = family.and_then(|at| self.families.get_mut(at)) {
                let occupied = family.set.occupy(*range).unwrap_or(0);
                family.tally().occupied += occupied;
            }
        }
        let uid = node.uid().to_owned();
        let holder = Holder { uid, ranges, state };
        self.holders.insert(node.name().to_owned(), holder);
    }

    /// Gives back what the Node of that name holds. Blocks that somebody else holds too stay used.
    fn free(&mut self, name: &str) {
        let Some(holder) = self.holders.remove(name) else {
            return;
        };
        for range in holder.ranges {
            if let Some(count) = self.claims.get_mut(&range) {
                *count -= 1;
                if *count == 0 {
                    self.claims.remove(&range);
                }
            }
            let others: Vec<IpNet> = self
                .overlapping(range)
                .into_iter()
                .map(|(other, _)| other)
                .collect();
            let Some(family) = self
                .family_of(range)
                .and_then(|at| self.families.get_mut(at))
            else {
                continue;
            };
            let before = family.set.used();
            if family.set.release(range).is_ok() {
                occupy_all(&mut family.set, &others);
                occupy_all(&mut family.set, &self.reserved);
            }
            let released = before.saturating_sub(family.set.used());
            family.tally().released += released;
        }
    }

    /// The claims that touch a block of the range. Ranges nest or are apart, so they are those that
    /// contain it, found by their at most 128 possible names, and those that begin in it.
    fn overlapping(&self, range: IpNet) -> Vec<(IpNet, u32)> {
        let family = self.family_of(range).and_then(|at| self.families.get(at));
        let range = family.map_or(range, |family| family.set.widened(range));
        let around = (0..range.prefix_len())
            .filter_map(|prefix| IpNet::new(range.addr(), prefix).ok())
            .map(|net| net.trunc())
            // Those that begin at the same address are found below.
            .filter(|net| net.addr() != range.addr())
            .filter_map(|net| self.claims.get_key_value(&net));
        let (first, last) = (range.network(), range.broadcast());
        let at = |address: IpAddr, prefix| IpNet::new(address, prefix).unwrap_or(range);
        let within = self
            .claims
            .range(at(first, 0)..=at(last, range.max_prefix_len()));
        around
            .chain(within)
            .map(|(net, count)| (*net, *count))
            .collect()
    }

    fn send_again(&mut self, name: &str) -> Step {
        let Some(holder) = self.holders.get_mut(name) else {
            return Step::Done;
        };
        holder.state = State::InFlight;
        Step::Write(holder.ranges.clone())
    }

    /// Picks one range a family, or none at all (REQ-IPAM-01, REQ-IPAM-06).
    fn pick(&mut self, node: &Node, masks: NodeMasks) -> Step {
        let mut picked = Vec::new();
        let mut passed_over = Vec::new();
        let mut failure = None;
        for at in 0..self.families.len() {
            match self.pick_of(at, masks) {
                Ok((range, tries)) => {
                    picked.push(range);
                    passed_over.push(tries);
                }
                Err(step) => {
                    failure = Some(step);
                    break;
                }
            }
        }
        // Taken back also for a success: claiming is what marks and counts.
        for (family, range) in self.families.iter_mut().zip(&picked) {
            let _ = family.set.release(*range);
        }
        if let Some(step) = failure {
            if matches!(step, Step::NoRoom { .. }) {
                self.waiting.insert(node.name().to_owned());
            }
            return step;
        }
        for (family, tries) in self.families.iter_mut().zip(passed_over) {
            family.tally().tries.push(tries);
        }
        self.claim(node, picked.clone(), State::InFlight);
        Step::Write(picked)
    }

    fn pick_of(&mut self, at: usize, masks: NodeMasks) -> Result<(IpNet, u64), Step> {
        let Some(family) = self.families.get(at) else {
            return Err(Step::Done);
        };
        let cluster = family.set.cluster();
        let named = match cluster {
            IpNet::V4(_) => masks.ipv4,
            IpNet::V6(_) => masks.ipv6,
        };
        let prefix = named.unwrap_or(family.prefix);
        if prefix < cluster.prefix_len() {
            return Err(Step::Unfit { cluster, prefix });
        }
        if prefix > family.set.node_prefix() {
            self.refine(at, prefix)?;
        }
        let Some(family) = self.families.get_mut(at) else {
            return Err(Step::Done);
        };
        let (used, capacity) = (family.set.used(), family.set.capacity());
        let allocated = family.set.allocate(prefix).ok_or(Step::NoRoom {
            cluster,
            prefix,
            used,
            capacity,
        })?;
        Ok((allocated.block, allocated.tries))
    }

    /// Rebuilds a set with smaller blocks (specification: controllers §6.5). Happens at most once
    /// for each longer prefix, so going over all Nodes is affordable.
    fn refine(&mut self, at: usize, prefix: u8) -> Result<(), Step> {
        let Some(family) = self.families.get_mut(at) else {
            return Ok(());
        };
        let cluster = family.set.cluster();
        let mut set = CidrSet::new(cluster, prefix).map_err(|_| Step::Unfit { cluster, prefix })?;
        occupy_all(&mut set, &self.reserved);
        occupy_all(&mut set, self.claims.keys());
        family.set = set;
        family.tally();
        Ok(())
    }
}

/// Marks the ranges that touch the cluster CIDR; answers how many blocks were free.
fn occupy_all<'a>(set: &mut CidrSet, ranges: impl IntoIterator<Item = &'a IpNet>) -> u64 {
    ranges
        .into_iter()
        .filter_map(|range| set.occupy(*range).ok())
        .sum()
}

#[cfg(test)]
#[path = "allocator_tests.rs"]
mod tests;
