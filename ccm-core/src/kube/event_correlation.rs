//! Which statements become which writes: counting repeats, aggregating look-alikes, limiting spam.
//!
//! Pure: time comes in with each event. The rules and numbers are those of the Go client library
//! (specification: controllers §7.5, REQ-MET-06). Everything remembered is bounded.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{Event, EventObject, EventType};

/// Entries of each cache, as in the Go library; the oldest used goes first.
const CACHE_ENTRIES: usize = 4096;

/// From this many different messages within [`AGGREGATION_WINDOW_SECONDS`] on, events that differ
/// in nothing else are written as one.
const AGGREGATE_FROM: usize = 10;

/// After this much silence the count of different messages starts anew.
const AGGREGATION_WINDOW_SECONDS: f64 = 600.0;

/// What the message of an aggregated event starts with.
const AGGREGATED_PREFIX: &str = "(combined from similar events): ";

/// Events of one source about one object that may be written at once.
const SPAM_BURST: f64 = 25.0;

/// After the burst, one event in so many seconds.
const SPAM_REFILL_SECONDS: f64 = 300.0;

/// The longest name the API server takes.
const MAX_NAME: usize = 253;

/// The object of an event without the version that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    source: &'static str,
    kind: &'static str,
    namespace: String,
    name: String,
    uid: String,
}

impl Subject {
    fn of(source: &'static str, object: &EventObject) -> Self {
        Self {
            source,
            kind: object.kind,
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.clone(),
        }
    }
}

/// Events that differ in nothing but the message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    subject: Subject,
    type_: EventType,
    reason: String,
}

/// One event object in the API: a message of a group, or all its aggregated ones (`None`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    group: Group,
    message: Option<String>,
}

struct Messages {
    distinct: BTreeSet<String>,
    last: Timestamp,
}

#[derive(Clone)]
struct Written {
    name: String,
    first: Timestamp,
    count: i32,
}

struct Bucket {
    tokens: f64,
    last: Timestamp,
}

/// What is to be written for one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The name of the event object.
    pub(super) name: String,
    /// The message, with the prefix if it stands for several.
    pub(super) message: String,
    /// How often it happened. Above 1 the object should be there already: patch it.
    pub(super) count: i32,
    /// When it happened first.
    pub(super) first: Timestamp,
    /// When it happened last.
    pub(super) last: Timestamp,
}

/// The memory of what was written.
pub(super) struct Correlator {
    messages: Cache<Group, Messages>,
    written: Cache<Identity, Written>,
    buckets: Cache<Subject, Bucket>,
    last_name: i128,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self {
            messages: Cache::new(CACHE_ENTRIES),
            written: Cache::new(CACHE_ENTRIES),
            buckets: Cache::new(CACHE_ENTRIES),
            last_name: 0,
        }
    }

    /// What to write for an event; `None` when its object has had too many.
    pub(super) fn observe(&mut self, event: &Event, now: Timestamp) -> Option<Record> {
        let subject = Subject::of(event.source, &event.object);
        let group = Group {
            subject: subject.clone(),
            type_: event.type_,
            reason: event.reason.clone(),
        };
        let aggregated = self.aggregated(&group, &event.message, now);
        let message = if aggregated {
            format!("{AGGREGATED_PREFIX}{}", event.message)
        } else {
            event.message.clone()
        };
        let identity = Identity {
            group,
            message: (!aggregated).then(|| event.message.clone()),
        };
        let written = match self.written.get(&identity) {
            Some(before) => {
                before.count = before.count.saturating_add(1);
                before.clone()
            }
            None => {
                let new = Written {
                    name: self.name(&event.object.name, now),
                    first: now,
                    count: 1,
                };
                self.written.insert(identity, new.clone());
                new
            }
        };
        // Counted although perhaps not written, as the Go library does.
        self.takes_token(&subject, now).then_some(Record {
            name: written.name,
            message,
            count: written.count,
            first: written.first,
            last: now,
        })
    }

    /// Whether the group has so many different messages that they are written as one.
    fn aggregated(&mut self, group: &Group, message: &str, now: Timestamp) -> bool {
        let fresh = |messages: &Messages| seconds(messages.last, now) <= AGGREGATION_WINDOW_SECONDS;
        if self.messages.get(group).is_none_or(|known| !fresh(known)) {
            let none = Messages {
                distinct: BTreeSet::new(),
                last: now,
            };
            self.messages.insert(group.clone(), none);
        }
        let Some(known) = self.messages.get(group) else {
            return false;
        };
        known.last = now;
        known.distinct.insert(message.to_owned());
        if known.distinct.len() < AGGREGATE_FROM {
            return false;
        }
        // Keeps the set from growing; which one goes does not matter.
        known.distinct.pop_first();
        true
    }

    fn takes_token(&mut self, subject: &Subject, now: Timestamp) -> bool {
        if self.buckets.get(subject).is_none() {
            let full = Bucket {
                tokens: SPAM_BURST,
                last: now,
            };
            self.buckets.insert(subject.clone(), full);
        }
        let Some(bucket) = self.buckets.get(subject) else {
            return false;
        };
        let gained = seconds(bucket.last, now) / SPAM_REFILL_SECONDS;
        bucket.tokens = (bucket.tokens + gained).min(SPAM_BURST);
        bucket.last = bucket.last.max(now);
        let has_one = bucket.tokens >= 1.0;
        if has_one {
            bucket.tokens -= 1.0;
        }
        has_one
    }

    /// `<object>.<hex of the time in ns>`. Two events of one instant get different names.
    fn name(&mut self, object: &str, now: Timestamp) -> String {
        self.last_name = now.as_nanosecond().max(self.last_name + 1);
        let suffix = format!(".{:x}", self.last_name);
        let room = MAX_NAME.saturating_sub(suffix.len());
        let cut = object.get(..room).unwrap_or(object);
        format!("{}{suffix}", cut.trim_end_matches(['-', '.']))
    }
}

/// The seconds from one time to another; a clock that was set back counts as no time.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

/// A map that forgets what was not used for longest.
struct Cache<K, V> {
    capacity: usize,
    entries: BTreeMap<K, (u64, V)>,
    by_age: BTreeMap<u64, K>,
    sequence: u64,
}

impl<K: Ord + Clone, V> Cache<K, V> {
    const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            entries: BTreeMap::new(),
            by_age: BTreeMap::new(),
            sequence: 0,
        }
    }

    fn get(&mut self, key: &K) -> Option<&mut V> {
        let (age, value) = self.entries.get_mut(key)?;
        self.by_age.remove(age);
        self.sequence += 1;
        *age = self.sequence;
        self.by_age.insert(self.sequence, key.clone());
        Some(value)
    }

    fn insert(&mut self, key: K, value: V) {
        self.sequence += 1;
        if let Some((age, _)) = self.entries.insert(key.clone(), (self.sequence, value)) {
            self.by_age.remove(&age);
        }
        self.by_age.insert(self.sequence, key);
        while self.entries.len() > self.capacity {
            let Some((_, oldest)) = self.by_age.pop_first() else {
                return;
            };
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn event(name: &str, reason: &str, message: impl Into<String>) -> Event {
        Event {
            source: "service-controller",
            object: EventObject {
                api_version: "v1",
                kind: "Service",
                namespace: "shop".to_owned(),
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
                resource_version: "7".to_owned(),
            },
            type_: EventType::Warning,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + SignedDuration::from_secs(seconds)
    }

    /// REQ-MET-04
    #[test]
    fn an_identical_event_is_counted_under_the_first_name() {
        let mut correlator = Correlator::new();
        let event = event("web", "SyncLoadBalancerFailed", "no such subnet");
        let first = correlator.observe(&event, at(0)).unwrap();
        assert_eq!(first.name, "web.18867251edfa0000", "the time in ns, in hex");
        assert_eq!((first.count, first.first, first.last), (1, at(0), at(0)));
        let mut again = event.clone();
        again.object.resource_version = "8".to_owned();
        let second = correlator.observe(&again, at(60)).unwrap();
        assert_eq!(second.name, first.name);
        assert_eq!(
            (second.count, second.first, second.last),
            (2, at(0), at(60))
        );
        assert_eq!(second.message, "no such subnet");
    }

    #[test]
    fn events_that_differ_in_more_than_the_version_are_events_of_their_own() {
        let mut correlator = Correlator::new();
        let base = event("web", "A", "x");
        let mut others = vec![base.clone(); 5];
        others[1].reason = "B".to_owned();
        others[2].type_ = EventType::Normal;
        others[3].source = "cloud-node-controller";
        others[4].object.uid = "another".to_owned();
        let mut names = BTreeSet::new();
        for event in &others {
            let record = correlator.observe(event, at(0)).unwrap();
            assert_eq!(record.count, 1);
            names.insert(record.name);
        }
        assert_eq!(names.len(), 5, "also at one instant names differ");
    }

    /// REQ-MET-06
    #[test]
    fn look_alikes_are_combined_from_the_tenth_message_on() {
        let mut correlator = Correlator::new();
        let mut combined = Vec::new();
        for n in 0..14 {
            let event = event(
                "web",
                "SyncLoadBalancerFailed",
                format!("request {n} failed"),
            );
            let record = correlator.observe(&event, at(n)).unwrap();
            if record
                .message
                .starts_with("(combined from similar events): request ")
            {
                combined.push(record);
            } else {
                assert_eq!(record.count, 1);
            }
        }
        assert_eq!(combined.len(), 5);
        let names: BTreeSet<_> = combined.iter().map(|record| &record.name).collect();
        assert_eq!(names.len(), 1, "all in one event object");
        let counts: Vec<_> = combined.iter().map(|record| record.count).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5]);
        assert!(combined[4].message.ends_with("request 13 failed"));
    }

    /// REQ-MET-06
    #[test]
    fn after_ten_quiet_minutes_messages_stand_alone_again() {
        let mut correlator = Correlator::new();
        let text = |n: i64| event("web", "A", format!("request {n} failed"));
        for n in 0..10 {
            correlator.observe(&text(n), at(0)).unwrap();
        }
        let within = correlator.observe(&text(20), at(600)).unwrap();
        assert!(within.message.starts_with(AGGREGATED_PREFIX));
        let after = correlator.observe(&text(21), at(1201)).unwrap();
        assert_eq!(after.message, "request 21 failed");
    }

    /// REQ-MET-06
    #[test]
    fn one_object_gets_a_burst_of_25_and_then_one_event_in_five_minutes() {
        let mut correlator = Correlator::new();
        let web = event("web", "A", "x");
        let written = |correlator: &mut Correlator, event: &Event, time| {
            correlator.observe(event, time).is_some()
        };
        let passed = (0..40)
            .filter(|_| written(&mut correlator, &web, at(0)))
            .count();
        assert_eq!(passed, 25);
        assert!(!written(&mut correlator, &web, at(299)));
        assert!(written(&mut correlator, &web, at(300)));
        assert!(!written(&mut correlator, &web, at(301)));
        let other = event("other", "A", "x");
        assert!(written(&mut correlator, &other, at(301)), "others are free");
        // Dropped ones are counted all the same: 43 before this one.
        let record = correlator.observe(&web, at(900)).unwrap();
        assert_eq!(record.count, 44);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut cache = Cache::new(3);
        for n in 0..4 {
            cache.insert(n, n);
            assert!(cache.get(&0).is_some(), "used all the time");
        }
        assert!(cache.get(&1).is_none(), "the oldest used is gone");
        assert_eq!((cache.entries.len(), cache.by_age.len()), (3, 3));
    }

    #[test]
    fn a_long_object_name_is_cut_to_a_valid_event_name() {
        let mut correlator = Correlator::new();
        let long = format!("{}-{}", "a".repeat(235), "b".repeat(17));
        let record = correlator.observe(&event(&long, "A", "x"), at(0)).unwrap();
        assert!(record.name.len() <= 253 && record.name.contains("a.188672"));
    }

    #[test]
    fn a_clock_set_back_does_no_harm() {
        let mut correlator = Correlator::new();
        let web = event("web", "A", "x");
        correlator.observe(&web, at(100)).unwrap();
        let record = correlator.observe(&web, at(0)).unwrap();
        assert_eq!(record.count, 2);
    }
}
