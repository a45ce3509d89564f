//! What is remembered of each Service's load balancer between two passes. Losing it costs reads,
//! never a write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ccm_core::cloud::LoadBalancerName;
use tokio::time::Instant;

use super::{clb::observe::Known, nlb::plan::Have};

/// How long targets, attributes and tags are believed before they are read again.
pub const FULL_VERIFICATION: Duration = Duration::from_mins(30);

/// Load balancers remembered in full: far more than one account gets.
const MAX_SETTLED: usize = 2_000;

/// How long a security group that is still in use is tried every few seconds; then the ordinary
/// back-off takes over.
const DELETION_BOUND: Duration = Duration::from_mins(10);

/// What a complete pass left: the state of a network load balancer, what is known of a classic one.
#[derive(Clone, Debug)]
pub struct Settled<T = Have> {
    /// The state.
    pub have: T,
    /// When all of it was last read.
    pub read_at: Instant,
}

/// One load balancer's memory.
#[derive(Debug, Default)]
pub struct Memory {
    settled: Option<Settled>,
    classic: Option<Settled<Known>>,
    /// Keys of tags that we wrote.
    pub written_keys: BTreeSet<String>,
    /// Security groups that were taken from it and are not cleaned up yet.
    pub detached: BTreeSet<String>,
    /// Security groups to delete with it; it may be gone already.
    pub deleting: BTreeSet<String>,
    deleting_since: Option<Instant>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Memories(Mutex<BTreeMap<LoadBalancerName, Memory>>);

impl Memories {
    /// What the last complete pass left, unless it is time to read everything. It is taken away:
    /// only another complete pass brings it back.
    pub fn take_settled(&self, name: &LoadBalancerName) -> Option<Settled> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = all.get_mut(name)?.settled.take()?;
        (settled.read_at.elapsed() < FULL_VERIFICATION).then_some(settled)
    }

    /// Enters what a complete pass left.
    pub fn settle(&self, name: &LoadBalancerName, settled: Settled) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > MAX_SETTLED {
            for memory in all.values_mut() {
                memory.settled = None;
            }
        }
        let memory = all.entry(name.clone()).or_default();
        memory.written_keys.clone_from(&settled.have.written_keys);
        memory.settled = Some(settled);
    }

    /// As [`Self::take_settled`], of a classic load balancer.
    pub fn take_classic(&self, name: &LoadBalancerName) -> Option<Settled<Known>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = all.get_mut(name)?.classic.take()?;
        (settled.read_at.elapsed() < FULL_VERIFICATION).then_some(settled)
    }

    /// As [`Self::settle`], of a classic load balancer.
    pub fn settle_classic(&self, name: &LoadBalancerName, settled: Settled<Known>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > MAX_SETTLED {
            for memory in all.values_mut() {
                memory.classic = None;
            }
        }
        all.entry(name.clone()).or_default().classic = Some(settled);
    }

    /// Looks something up; the default when nothing is known.
    pub fn read<T: Default>(&self, name: &LoadBalancerName, f: impl FnOnce(&Memory) -> T) -> T {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(name).map(f).unwrap_or_default()
    }

    /// Enters something.
    pub fn write(&self, name: &LoadBalancerName, f: impl FnOnce(&mut Memory)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f(all.entry(name.clone()).or_default());
    }

    /// Whether a security group that is still in use may be tried again soon; the time runs from
    /// the first question.
    pub fn may_retry_soon(&self, name: &LoadBalancerName) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = all.entry(name.clone()).or_default();
        memory
            .deleting_since
            .get_or_insert_with(Instant::now)
            .elapsed()
            < DELETION_BOUND
    }

    /// Nothing is in use any more: the time of [`Self::may_retry_soon`] runs anew the next time.
    pub fn is_let_go(&self, name: &LoadBalancerName) {
        self.write(name, |memory| memory.deleting_since = None);
    }

    /// Whether anything is remembered: it was made, or its removal was begun, in this process.
    pub fn is_known(&self, name: &LoadBalancerName) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(name)
    }

    /// Forgets a load balancer that is gone.
    pub fn forget(&self, name: &LoadBalancerName) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}
