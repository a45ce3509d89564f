//! The request log: what clients asked for, counted.

use std::collections::{BTreeMap, VecDeque};

use crate::request::Verb;

/// Entries kept; counts go on beyond it.
const MAX_ENTRIES: usize = 10_000;
/// Distinct counters; further user agents are counted together under `other`.
const MAX_COUNTERS: usize = 4_096;

/// What requests are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    /// The verb.
    pub verb: Verb,
    /// Plural with group, `leases.coordination.k8s.io`.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// The User-Agent header.
    pub user_agent: String,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the request, from 1.
    pub sequence: u64,
    /// What it is counted under.
    pub key: CountKey,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// HTTP status of the answer; 0 when the connection was dropped instead.
    pub status: u16,
}

/// A moment in the log, made by [`KubeSim::mark`](crate::KubeSim::mark).
#[derive(Clone, Debug, Default)]
pub struct Mark {
    sequence: u64,
    counts: BTreeMap<CountKey, u64>,
}

/// Requests since a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Exact counts.
    pub counts: BTreeMap<CountKey, u64>,
    /// The requests themselves, oldest first, as far as they are still kept.
    pub entries: Vec<Entry>,
}

impl Requests {
    /// How many requests had this verb and resource, whatever the subresource and user agent.
    #[must_use]
    pub fn count(&self, verb: Verb, resource: &str) -> u64 {
        self.sum(|key| key.verb == verb && key.resource == resource)
    }

    /// How many requests changed something. Reviews ask and change nothing: they do not count.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.sum(|key| {
            key.verb.is_write()
                && !key.resource.ends_with("reviews.authorization.k8s.io")
                && !key.resource.ends_with("reviews.authentication.k8s.io")
        })
    }

    /// The sum of all counts that a condition picks.
    pub fn sum(&self, pick: impl Fn(&CountKey) -> bool) -> u64 {
        self.counts
            .iter()
            .filter(|(key, _)| pick(key))
            .map(|(_, count)| count)
            .sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    sequence: u64,
    entries: VecDeque<Entry>,
    counts: BTreeMap<CountKey, u64>,
}

impl Log {
    pub(crate) fn record(&mut self, mut key: CountKey, namespace: &str, name: &str, status: u16) {
        if self.counts.len() >= MAX_COUNTERS && !self.counts.contains_key(&key) {
            "other".clone_into(&mut key.user_agent);
        }
        self.sequence += 1;
        *self.counts.entry(key.clone()).or_insert(0) += 1;
        self.entries.push_back(Entry {
            sequence: self.sequence,
            key,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            status,
        });
        if self.entries.len() > MAX_ENTRIES {
            self.entries.pop_front();
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            sequence: self.sequence,
            counts: self.counts.clone(),
        }
    }

    pub(crate) fn since(&self, mark: &Mark) -> Requests {
        let counts = self
            .counts
            .iter()
            .map(|(key, count)| {
                let before = mark.counts.get(key).copied().unwrap_or_default();
                (key.clone(), count.saturating_sub(before))
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        let entries = self
            .entries
            .iter()
            .filter(|e| e.sequence > mark.sequence)
            .cloned()
            .collect();
        Requests { counts, entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(agent: &str) -> CountKey {
        CountKey {
            verb: Verb::Patch,
            resource: "nodes".to_owned(),
            subresource: String::new(),
            user_agent: agent.to_owned(),
        }
    }

    #[test]
    fn counts_since_a_mark_stay_exact_when_entries_are_dropped() {
        let mut log = Log::default();
        log.record(key("a"), "", "n", 200);
        let mark = log.mark();
        for _ in 0..=MAX_ENTRIES {
            log.record(key("a"), "", "n", 200);
        }
        let since = log.since(&mark);
        assert_eq!(since.count(Verb::Patch, "nodes"), 10_001);
        assert_eq!(since.entries.len(), MAX_ENTRIES);
    }

    #[test]
    fn many_user_agents_are_counted_together() {
        let mut log = Log::default();
        for i in 0..MAX_COUNTERS + 10 {
            log.record(key(&i.to_string()), "", "n", 200);
        }
        let all = log.since(&Mark::default());
        assert_eq!(all.sum(|k| k.user_agent == "other"), 10);
        assert_eq!(all.writes(), u64::try_from(MAX_COUNTERS + 10).unwrap());
    }
}
