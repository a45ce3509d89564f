//! In which calls a plan is carried out, and in which order.
//!
//! A route is made only after everything in the way of its range is gone: a range that moves from
//! one Node to another never has two owners. Nothing else waits for anything else.

use std::collections::{BTreeMap, VecDeque};

use ipnet::IpNet;

use super::plan::range;

/// One call to the provider, of positions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Of routes as listed.
    Delete(Vec<usize>),
    /// Of the plan's creates.
    Create(Vec<usize>),
}

/// Creates that wait for one range to become free.
#[derive(Debug, Default)]
struct Waiting {
    /// Routes in the way whose removal has not ended.
    in_the_way: usize,
    /// A removal failed.
    is_blocked: bool,
    creates: Vec<usize>,
}

/// What is still to be called.
#[derive(Debug)]
pub(super) struct Schedule {
    batch: usize,
    deletes: VecDeque<usize>,
    creates: VecDeque<usize>,
    waiting: BTreeMap<IpNet, Waiting>,
}

impl Schedule {
    /// `deletes` and `creates` are positions with their ranges; a call takes `batch` of them.
    pub(super) fn new<'a>(
        deletes: impl Iterator<Item = (usize, &'a str)>,
        creates: impl Iterator<Item = (usize, &'a str)>,
        batch: usize,
    ) -> Self {
        let mut schedule = Self {
            batch: batch.max(1),
            deletes: VecDeque::new(),
            creates: VecDeque::new(),
            waiting: BTreeMap::new(),
        };
        for (at, cidr) in deletes {
            schedule.deletes.push_back(at);
            if let Some(range) = range(cidr) {
                schedule.waiting.entry(range).or_default().in_the_way += 1;
            }
        }
        for (at, cidr) in creates {
            let waiting = range(cidr).and_then(|range| schedule.waiting.get_mut(&range));
            match waiting {
                Some(waiting) => waiting.creates.push(at),
                None => schedule.creates.push_back(at),
            }
        }
        schedule
    }

    /// The next call that may be made now. `None`: nothing before an answer, or nothing any more.
    pub(super) fn next(&mut self) -> Option<Call> {
        if !self.deletes.is_empty() {
            return Some(Call::Delete(take(&mut self.deletes, self.batch)));
        }
        (!self.creates.is_empty()).then(|| Call::Create(take(&mut self.creates, self.batch)))
    }

    /// Takes the answer to the removal of one route to this range. Answers with the creates that
    /// are not made in this pass, because something in their way stays.
    pub(super) fn deleted(&mut self, cidr: &str, is_gone: bool) -> Vec<usize> {
        let Some(range) = range(cidr) else {
            return Vec::new();
        };
        let Some(waiting) = self.waiting.get_mut(&range) else {
            return Vec::new();
        };
        waiting.in_the_way = waiting.in_the_way.saturating_sub(1);
        waiting.is_blocked |= !is_gone;
        if waiting.in_the_way > 0 {
            return Vec::new();
        }
        let Some(free) = self.waiting.remove(&range) else {
            return Vec::new();
        };
        if free.is_blocked {
            return free.creates;
        }
        self.creates.extend(free.creates);
        Vec::new()
    }

    /// How many changes were not called for.
    pub(super) fn left(&self) -> usize {
        let waiting: usize = self.waiting.values().map(|w| w.creates.len()).sum();
        self.deletes.len() + self.creates.len() + waiting
    }
}

fn take(queue: &mut VecDeque<usize>, count: usize) -> Vec<usize> {
    queue.drain(..count.min(queue.len())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn schedule(deletes: &[&str], creates: &[&str], batch: usize) -> Schedule {
        Schedule::new(
            deletes.iter().copied().enumerate(),
            creates.iter().copied().enumerate(),
            batch,
        )
    }

    /// CASE-RT-01; REQ-ROUTE-07
    #[test]
    fn a_route_is_made_only_after_the_removal_of_all_in_its_way() {
        let (a, b) = ("10.0.1.0/24", "10.0.2.0/24");
        let mut s = schedule(&[a, a], &[a, b], 1);
        assert_eq!(s.next(), Some(Call::Delete(vec![0])));
        assert_eq!(s.next(), Some(Call::Delete(vec![1])));
        // Another range waits for nothing.
        assert_eq!(s.next(), Some(Call::Create(vec![1])));
        assert_eq!(s.next(), None);
        assert_eq!(s.deleted(a, true), [] as [usize; 0]);
        assert_eq!((s.next(), s.left()), (None, 1));
        s.deleted(a, true);
        assert_eq!(s.next(), Some(Call::Create(vec![0])));
        assert_eq!((s.next(), s.left()), (None, 0));
    }

    #[test]
    fn a_removal_that_failed_keeps_the_route_of_its_range_from_being_made() {
        // Two spellings of one range.
        let mut s = schedule(&["fd00:0::/64", "10.0.1.0/24"], &["fd00::/64"], 9);
        assert_eq!(s.next(), Some(Call::Delete(vec![0, 1])));
        s.deleted("10.0.1.0/24", true);
        assert_eq!(s.deleted("fd00:0::/64", false), [0]);
        assert_eq!((s.next(), s.left()), (None, 0));
    }

    proptest! {
        /// REQ-ROUTE-03; CASE-RT-05
        #[test]
        fn every_change_is_handed_out_once_and_never_before_what_is_in_its_way(
            deletes in prop::collection::vec(0_u8..6, 0..12),
            creates in prop::collection::vec(0_u8..6, 0..12),
            batch in 1_usize..5,
            order in prop::collection::vec(any::<prop::sample::Index>(), 40),
        ) {
            let text = |n: &u8| format!("10.0.{n}.0/24");
            let deletes: Vec<String> = deletes.iter().map(text).collect();
            let creates: Vec<String> = creates.iter().map(text).collect();
            let mut s = Schedule::new(
                deletes.iter().map(String::as_str).enumerate(),
                creates.iter().map(String::as_str).enumerate(),
                batch,
            );
            let (mut flying, mut gone, mut made) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
            for pick in order {
                while let Some(call) = s.next() {
                    match call {
                        Call::Delete(some) => {
                            prop_assert!(some.len() <= batch);
                            flying.extend(some);
                        }
                        Call::Create(some) => {
                            prop_assert!(some.len() <= batch);
                            for create in some {
                                let in_the_way = deletes.iter().enumerate()
                                    .filter(|(_, d)| **d == creates[create]);
                                for (delete, _) in in_the_way {
                                    prop_assert!(gone.contains(&delete));
                                }
                                prop_assert!(made.insert(create));
                            }
                        }
                    }
                }
                if !flying.is_empty() {
                    let answered = flying.swap_remove(pick.index(flying.len()));
                    prop_assert!(gone.insert(answered));
                    s.deleted(&deletes[answered], true);
                }
            }
            prop_assert_eq!(gone.len(), deletes.len());
            prop_assert_eq!(made.len(), creates.len());
            prop_assert_eq!(s.left(), 0);
        }
    }
}
