//! What to do about a Lease as it was seen. Without client, clock or waiting.

use std::{collections::VecDeque, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::{
    config::LeaderElectionSettings,
    kube::{LeaseRecord, StoredLease},
};

/// Writes of ours that may still be applied: at most one a retry period within the server's own
/// limit of a minute for a request.
const ATTEMPTS: usize = 64;

/// The Go library compares the times of a record by whole seconds: it may take a renewal for one
/// that was up to this much earlier.
const GO_STEP: Duration = Duration::from_secs(1);

/// The shortest time for one request.
const REQUEST_AT_LEAST: Duration = Duration::from_secs(1);

/// How much longer than the lease a renewal may be overdue before we are unhealthy.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(20);

/// The times of one election.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// For whole seconds what is set.
    pub(super) lease: Duration,
    pub(super) renew_deadline: Duration,
    pub(super) retry: Duration,
    pub(super) request: Duration,
    pub(super) unhealthy_after: Duration,
}

impl From<&LeaderElectionSettings> for Terms {
    fn from(settings: &LeaderElectionSettings) -> Self {
        // A Lease holds whole seconds. Rounded up, and never so close to the deadline that an
        // observer's lease could be over before our fence is shut.
        let least = settings
            .lease_duration
            .max(settings.renew_deadline.saturating_add(GO_STEP));
        let rounded_up = u64::from(least.subsec_nanos() > 0);
        let seconds = least.as_secs().saturating_add(rounded_up);
        let seconds = seconds.min(i32::MAX.unsigned_abs().into());
        Self {
            lease: Duration::from_secs(seconds),
            renew_deadline: settings.renew_deadline,
            retry: settings.retry_period,
            request: (settings.renew_deadline / 2).max(REQUEST_AT_LEAST),
            unhealthy_after: settings.lease_duration.saturating_add(UNHEALTHY_AFTER),
        }
    }
}

impl Terms {
    fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX)
    }
}

/// A record and since when we know it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) lease: StoredLease,
    /// When we first saw this record, by our own monotonic clock.
    since: Instant,
}

impl Seen {
    /// What is known after a look: a record that has not changed keeps its time.
    pub(super) fn after(before: Option<Self>, lease: StoredLease, now: Instant) -> Self {
        let since = match before {
            Some(before) if before.lease.says_the_same(&lease) => before.since,
            _ => now,
        };
        Self { lease, since }
    }

    /// Whether this is what it says too.
    pub(super) fn says(&self, lease: &StoredLease) -> bool {
        self.lease.says_the_same(lease)
    }

    /// When nobody can hold it any more unless it changes; `None`: in no foreseeable time.
    fn expiry(&self, terms: &Terms) -> Option<Instant> {
        let stated = self.lease.record.duration_seconds;
        let lease = stated
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(terms.lease, Duration::from_secs);
        self.since.checked_add(lease)
    }
}

/// The renew times that we sent: they tell our own record from that of another process with our
/// identity, also when the answer to a write was lost.
#[derive(Debug, Default)]
pub(super) struct Attempts(VecDeque<Timestamp>);

impl Attempts {
    /// A renew time for the next write: now, in whole microseconds and never one sent before.
    pub(super) fn next(&mut self, now: Timestamp) -> Timestamp {
        let micros = Timestamp::from_microsecond(now.as_microsecond());
        let mut time = micros.unwrap_or(Timestamp::UNIX_EPOCH);
        while self.0.contains(&time) {
            let later = time.checked_add(SignedDuration::from_micros(1));
            time = later.unwrap_or(Timestamp::UNIX_EPOCH);
        }
        if self.0.len() == ATTEMPTS {
            self.0.pop_front();
        }
        self.0.push_back(time);
        time
    }

    /// Whether we never wrote.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn holds(&self, time: Option<Timestamp>) -> bool {
        time.is_some_and(|time| self.0.contains(&time))
    }
}

/// Whose a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// It was released, or never held.
    Nobodys,
    /// We wrote it.
    Ours,
    /// Another process's.
    Others,
    /// It has our identity, but we did not write it.
    Namesakes,
}

pub(super) fn whose(record: &LeaseRecord, identity: &str, attempts: &Attempts) -> Whose {
    if record.holder.is_empty() {
        Whose::Nobodys
    } else if record.holder != identity {
        Whose::Others
    } else if attempts.holds(record.renewed) {
        Whose::Ours
    } else {
        Whose::Namesakes
    }
}

/// What a candidate does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is no Lease: make it.
    Create,
    /// It is nobody's any more: take it over.
    Take,
    /// It is ours by a write whose answer was lost: write again to be sure.
    Confirm,
    /// It is another's, not before then ours to take. `None`: in no foreseeable time.
    Wait(Option<Instant>),
}

/// Judges the last look. `is_there` is false when the Lease has vanished since; its holder may not
/// know that yet, so what was seen before still counts.
pub(super) fn judge(
    seen: Option<&Seen>,
    is_there: bool,
    whose: impl Fn(&LeaseRecord) -> Whose,
    terms: &Terms,
    now: Instant,
) -> Verdict {
    let free = if is_there {
        Verdict::Take
    } else {
        Verdict::Create
    };
    let Some(seen) = seen else {
        return Verdict::Create;
    };
    match whose(&seen.lease.record) {
        Whose::Nobodys => free,
        Whose::Ours if is_there => Verdict::Confirm,
        Whose::Ours => free,
        Whose::Others | Whose::Namesakes => match seen.expiry(terms) {
            Some(expiry) if now >= expiry => free,
            expiry => Verdict::Wait(expiry),
        },
    }
}

/// The record that makes us the holder. `old` is what it replaces, `kept` whether we held it.
pub(super) fn held(
    identity: &str,
    old: Option<&LeaseRecord>,
    kept: bool,
    time: Timestamp,
    terms: &Terms,
) -> LeaseRecord {
    let (acquired, transitions) = match old {
        None => (None, 0),
        Some(old) if kept => (old.acquired, old.transitions),
        // More than the field can hold would make the Lease unwritable for everybody.
        Some(old) => (None, old.transitions.checked_add(1).unwrap_or(0)),
    };
    LeaseRecord {
        holder: identity.to_owned(),
        duration_seconds: Some(terms.lease_seconds()),
        acquired: acquired.or(Some(time)),
        renewed: Some(time),
        transitions,
    }
}

/// The record that gives the lease back: anybody may take it at once.
pub(super) fn released(old: &LeaseRecord, time: Timestamp) -> LeaseRecord {
    LeaseRecord {
        holder: String::new(),
        duration_seconds: Some(1),
        acquired: Some(time),
        renewed: Some(time),
        transitions: old.transitions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(lease: u64, deadline: u64, retry: u64) -> Terms {
        Terms::from(&LeaderElectionSettings {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(deadline),
            retry_period: Duration::from_millis(retry),
            ..LeaderElectionSettings::default()
        })
    }

    #[test]
    fn the_lease_is_written_in_whole_seconds_that_outlast_the_fence() {
        for (lease, deadline, seconds, request) in [
            (15_000, 10_000, 15, 5_000),
            (15_500, 15_200, 17, 7_600),
            (900, 600, 2, 1_000),
            (2_000, 1_500, 3, 1_000),
        ] {
            let terms = terms(lease, deadline, 200);
            assert_eq!(terms.lease_seconds(), seconds, "{lease}");
            assert_eq!(terms.request.as_millis(), request);
            assert!(terms.lease >= terms.renew_deadline + GO_STEP);
        }
    }

    #[test]
    fn take_over_counts_up_and_renewal_keeps_what_was() {
        let terms = terms(15_000, 10_000, 2_000);
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let old = LeaseRecord {
            holder: "a".to_owned(),
            acquired: Some(early),
            renewed: Some(early),
            transitions: 4,
            ..LeaseRecord::default()
        };
        let taken = held("b", Some(&old), false, late, &terms);
        assert_eq!((taken.acquired, taken.transitions), (Some(late), 5));
        let kept = held("a", Some(&old), true, late, &terms);
        assert_eq!((kept.acquired, kept.transitions), (Some(early), 4));
        assert_eq!(kept.renewed, Some(late));
        let full = LeaseRecord {
            transitions: i32::MAX,
            ..old.clone()
        };
        assert_eq!(held("b", Some(&full), false, late, &terms).transitions, 0);
        let free = released(&taken, late);
        assert_eq!(
            (
                free.holder.as_str(),
                free.duration_seconds,
                free.transitions
            ),
            ("", Some(1), 5)
        );
    }

    #[test]
    fn no_renew_time_is_sent_twice_even_if_the_clock_stands_still() {
        let mut attempts = Attempts::default();
        let times: std::collections::BTreeSet<_> = (0..200)
            .map(|_| attempts.next(Timestamp::UNIX_EPOCH))
            .collect();
        assert!(times.len() >= ATTEMPTS && attempts.0.len() == ATTEMPTS);
        assert!(attempts.holds(times.last().copied()) && !attempts.holds(None));
    }

    #[test]
    fn our_name_without_our_write_is_a_namesake() {
        let mut attempts = Attempts::default();
        let record = |holder: &str, renewed| LeaseRecord {
            holder: holder.to_owned(),
            renewed,
            ..LeaseRecord::default()
        };
        let time = attempts.next(Timestamp::UNIX_EPOCH);
        for (record, want) in [
            (record("", None), Whose::Nobodys),
            (record("me", Some(time)), Whose::Ours),
            (record("me", None), Whose::Namesakes),
            (record("me", Some(Timestamp::MAX)), Whose::Namesakes),
            (record("you", Some(time)), Whose::Others),
        ] {
            assert_eq!(whose(&record, "me", &attempts), want);
        }
    }
}
