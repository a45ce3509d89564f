//! Objects with their history, under one resource version for all kinds as in etcd.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use serde_json::Value;
use tokio::time::Instant;

use crate::{object, resources::RESOURCES};

/// Changes kept per kind: what a watch may be behind before it gets 410.
const MAX_HISTORY: usize = 10_000;

/// Namespace (empty for cluster scope) and name.
pub(crate) type Key = (String, String);

/// All objects of a kind.
pub(crate) type Objects = BTreeMap<Key, Arc<Value>>;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) at: Instant,
    pub(crate) kind: ChangeKind,
    pub(crate) key: Key,
    /// The object after the write; for a deletion the last state with the version of the deletion.
    pub(crate) object: Arc<Value>,
    /// The object before the write.
    pub(crate) before: Option<Arc<Value>>,
}

#[derive(Debug, Default)]
struct Table {
    objects: Objects,
    history: VecDeque<Change>,
    /// The oldest version whose later changes are all in `history`.
    floor: u64,
}

/// The versions before this one are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooOld;

#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    tables: BTreeMap<&'static str, Table>,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            // 0 means "any version" in requests, so no object may carry it.
            version: 1,
            tables: RESOURCES
                .iter()
                .filter(|r| !r.create_only)
                .map(|r| (r.storage, Table::default()))
                .collect(),
        }
    }

    /// The version of the last write.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, storage: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.tables
            .get(storage)?
            .objects
            .get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The objects of a kind, in one namespace or (when it is empty) in all.
    pub(crate) fn iter<'a>(
        &'a self,
        storage: &str,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Value>> + use<'a> {
        let table = self.tables.get(storage);
        let from = Bound::Included((namespace.to_owned(), String::new()));
        table
            .into_iter()
            .flat_map(move |t| t.objects.range((from.clone(), Bound::Unbounded)))
            .take_while(move |((ns, _), _)| namespace.is_empty() || ns == namespace)
            .map(|(_, object)| object)
    }

    /// Stores an object under the next version and returns it with that version.
    pub(crate) fn put(
        &mut self,
        storage: &'static str,
        mut object: Value,
        at: Instant,
    ) -> Arc<Value> {
        self.version += 1;
        object::set(
            &mut object,
            &["metadata", "resourceVersion"],
            self.version.to_string(),
        );
        let key = (
            object::namespace(&object).to_owned(),
            object::name(&object).to_owned(),
        );
        let object = Arc::new(object);
        let table = self.tables.entry(storage).or_default();
        let before = table.objects.insert(key.clone(), Arc::clone(&object));
        let kind = if before.is_some() {
            ChangeKind::Modified
        } else {
            ChangeKind::Added
        };
        table.record(Change {
            version: self.version,
            at,
            kind,
            key,
            object: Arc::clone(&object),
            before,
        });
        object
    }

    /// Removes an object under the next version.
    pub(crate) fn remove(
        &mut self,
        storage: &'static str,
        namespace: &str,
        name: &str,
        at: Instant,
    ) -> Option<Arc<Value>> {
        let key = (namespace.to_owned(), name.to_owned());
        let table = self.tables.entry(storage).or_default();
        let before = table.objects.remove(&key)?;
        self.version += 1;
        let mut last = (*before).clone();
        object::set(
            &mut last,
            &["metadata", "resourceVersion"],
            self.version.to_string(),
        );
        let last = Arc::new(last);
        table.record(Change {
            version: self.version,
            at,
            kind: ChangeKind::Deleted,
            key,
            object: Arc::clone(&last),
            before: Some(before),
        });
        Some(last)
    }

    /// The changes after a version, oldest first.
    pub(crate) fn changes_after(
        &self,
        storage: &str,
        version: u64,
    ) -> Result<impl Iterator<Item = &Change>, TooOld> {
        let table = self.tables.get(storage).ok_or(TooOld)?;
        if version < table.floor {
            return Err(TooOld);
        }
        let from = table.history.partition_point(|c| c.version <= version);
        Ok(table.history.range(from..))
    }

    /// The objects as they were at a version.
    pub(crate) fn at_version(&self, storage: &str, version: u64) -> Result<Objects, TooOld> {
        let table = self.tables.get(storage).ok_or(TooOld)?;
        if version < table.floor {
            return Err(TooOld);
        }
        let mut objects = table.objects.clone();
        for change in table.history.iter().rev() {
            if change.version <= version {
                break;
            }
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), Arc::clone(before)),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// The version of a kind as of a moment: what a reader lagging behind would see.
    pub(crate) fn version_at(&self, storage: &str, moment: Instant) -> u64 {
        let newer = self
            .tables
            .get(storage)
            .and_then(|t| t.history.iter().find(|c| c.at > moment));
        newer.map_or(self.version, |change| change.version.saturating_sub(1))
    }

    /// Forgets all history: whoever is behind gets 410.
    pub(crate) fn compact(&mut self) {
        for table in self.tables.values_mut() {
            table.history.clear();
            table.floor = self.version;
        }
    }
}

impl Table {
    fn record(&mut self, change: Change) {
        self.history.push_back(change);
        while self.history.len() > MAX_HISTORY {
            if let Some(oldest) = self.history.pop_front() {
                self.floor = oldest.version;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, label: u32) -> Value {
        json!({"metadata": {"name": name, "labels": {"n": label.to_string()}}})
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_version_can_be_read_until_it_is_compacted() {
        let mut store = Store::new();
        let now = Instant::now();
        store.put("nodes", node("a", 1), now);
        let then = store.version();
        store.put("nodes", node("a", 2), now);
        store.put("nodes", node("b", 1), now);
        store.remove("nodes", "", "a", now);
        let old = store.at_version("nodes", then).unwrap();
        assert_eq!(old.len(), 1);
        let a = old.values().next().unwrap();
        assert_eq!(a.pointer("/metadata/labels/n"), Some(&json!("1")));
        store.compact();
        assert_eq!(store.at_version("nodes", then).err(), Some(TooOld));
        assert!(store.changes_after("nodes", store.version()).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn every_version_can_be_read_back(steps in proptest::collection::vec((0_u8..4, proptest::bool::ANY), 1..60)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let now = runtime.block_on(async { Instant::now() });
            let mut store = Store::new();
            let mut snapshots = vec![(store.version(), Objects::new())];
            for (name, keep) in steps {
                let name = format!("n{name}");
                if keep {
                    store.put("nodes", node(&name, 1), now);
                } else {
                    store.remove("nodes", "", &name, now);
                }
                let current = store.at_version("nodes", store.version()).unwrap();
                snapshots.push((store.version(), current));
            }
            for (version, objects) in snapshots {
                proptest::prop_assert_eq!(store.at_version("nodes", version).unwrap(), objects);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_history_is_bounded_and_its_floor_rises() {
        let mut store = Store::new();
        let first = store.version();
        for i in 0..=MAX_HISTORY {
            store.put(
                "nodes",
                node("a", u32::try_from(i).unwrap()),
                Instant::now(),
            );
        }
        assert!(store.changes_after("nodes", first).is_err());
        let kept = store.changes_after("nodes", first + 1).unwrap().count();
        assert_eq!(kept, MAX_HISTORY);
    }
}
