//! Objects with their history, under one resource version for all kinds as in etcd.
//!
//! Objects are kept as JSON text: a quarter of the size of the parsed form, and lists and watches
//! send it as it is.

use std::{
    collections::{BTreeMap, VecDeque},
    iter::Peekable,
    ops::Bound,
    sync::{Arc, OnceLock},
};

use serde_json::Value;
use tokio::time::Instant;

use crate::{object, resources::RESOURCES};

/// Changes kept per kind: what a watch may be behind before it gets 410.
const MAX_HISTORY: usize = 10_000;

/// Namespace (empty for cluster scope) and name.
pub(crate) type Key = (String, String);

/// All objects of a kind.
pub(crate) type Objects = BTreeMap<Key, Arc<Stored>>;

/// One version of an object.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Its JSON, beginning with the type.
    text: Box<str>,
    /// Where the fields behind the type begin.
    rest: usize,
    /// The version of the write.
    version: u64,
    /// When it was written.
    at: Instant,
    /// The parsed form, where it was asked for once.
    parsed: OnceLock<Value>,
}

impl Stored {
    fn new(object: &Value, version: u64, at: Instant) -> Self {
        let mut text = "{".to_owned();
        for field in TYPE_FIELDS {
            append(&mut text, field, object.get(field));
        }
        let rest = text.len();
        for (field, value) in object.as_object().into_iter().flatten() {
            if !TYPE_FIELDS.contains(&field.as_str()) {
                append(&mut text, field, Some(value));
            }
        }
        if text.ends_with(',') {
            text.pop();
        }
        text.push('}');
        Self {
            rest: rest.min(text.len() - 1),
            text: text.into(),
            version,
            at,
            parsed: OnceLock::new(),
        }
    }

    /// The object, kept from then on: for the few that are looked at with every write.
    pub(crate) fn parsed(&self) -> &Value {
        self.parsed.get_or_init(|| self.value())
    }

    /// The object.
    pub(crate) fn value(&self) -> Value {
        // Our own text: it can be read.
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The object as JSON.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The fields without the type, and the closing brace: what follows `{` in a list.
    pub(crate) fn untyped(&self) -> &str {
        self.text.get(self.rest..).unwrap_or("}")
    }
}

/// What says the type of an object.
const TYPE_FIELDS: [&str; 2] = ["kind", "apiVersion"];

fn append(text: &mut String, field: &str, value: Option<&Value>) {
    if let Some(value) = value {
        let name = Value::from(field);
        text.push_str(&format!("{name}:{value},"));
    }
}

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
    pub(crate) object: Arc<Stored>,
    /// The object before the write.
    pub(crate) before: Option<Arc<Stored>>,
}

#[derive(Debug, Default)]
struct Table {
    objects: Objects,
    /// The objects by the version of their last write.
    by_version: BTreeMap<u64, Key>,
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

    pub(crate) fn stored(
        &self,
        storage: &str,
        namespace: &str,
        name: &str,
    ) -> Option<&Arc<Stored>> {
        self.tables
            .get(storage)?
            .objects
            .get(&(namespace.to_owned(), name.to_owned()))
    }

    pub(crate) fn get(&self, storage: &str, namespace: &str, name: &str) -> Option<Value> {
        let stored = self.stored(storage, namespace, name)?;
        Some(stored.value())
    }

    /// The objects of a kind, in one namespace or (when it is empty) in all.
    pub(crate) fn iter<'a>(
        &'a self,
        storage: &str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> + use<'a> {
        let table = self.tables.get(storage);
        let from = Bound::Included((namespace.to_owned(), String::new()));
        table
            .into_iter()
            .flat_map(move |t| t.objects.range((from.clone(), Bound::Unbounded)))
            .take_while(move |((ns, _), _)| namespace.is_empty() || ns == namespace)
    }

    /// How many objects of a kind there are.
    pub(crate) fn len(&self, storage: &str) -> usize {
        self.tables.get(storage).map_or(0, |t| t.objects.len())
    }

    /// The object of a kind that was not written for the longest time, if that was before `limit`.
    pub(crate) fn older_than(&self, storage: &str, limit: Instant) -> Option<Key> {
        let table = self.tables.get(storage)?;
        let (_, key) = table.by_version.first_key_value()?;
        let oldest = table.objects.get(key)?;
        (oldest.at < limit).then(|| key.clone())
    }

    /// Stores an object under the next version and returns it with that version.
    pub(crate) fn put(&mut self, storage: &'static str, mut object: Value, at: Instant) -> Value {
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
        let stored = Arc::new(Stored::new(&object, self.version, at));
        let table = self.tables.entry(storage).or_default();
        let before = table.objects.insert(key.clone(), Arc::clone(&stored));
        if let Some(before) = &before {
            table.by_version.remove(&before.version);
        }
        table.by_version.insert(self.version, key.clone());
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
            object: stored,
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
    ) -> Option<Value> {
        let key = (namespace.to_owned(), name.to_owned());
        let table = self.tables.entry(storage).or_default();
        let before = table.objects.remove(&key)?;
        table.by_version.remove(&before.version);
        self.version += 1;
        let mut last = before.value();
        object::set(
            &mut last,
            &["metadata", "resourceVersion"],
            self.version.to_string(),
        );
        table.record(Change {
            version: self.version,
            at,
            kind: ChangeKind::Deleted,
            key,
            object: Arc::new(Stored::new(&last, self.version, at)),
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

    /// The objects of a kind as they were at a version.
    pub(crate) fn at_version(&self, storage: &str, version: u64) -> Result<View<'_>, TooOld> {
        let table = self.tables.get(storage).ok_or(TooOld)?;
        if version < table.floor {
            return Err(TooOld);
        }
        let mut before = BTreeMap::new();
        for change in table.history.iter().rev() {
            if change.version <= version {
                break;
            }
            // The last insert wins: the oldest of the later changes.
            before.insert(&change.key, change.before.as_ref());
        }
        Ok(View {
            objects: &table.objects,
            before,
        })
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

/// The objects of a kind at a version: those of now, and for each that changed since what it was.
#[derive(Debug)]
pub(crate) struct View<'a> {
    objects: &'a Objects,
    before: BTreeMap<&'a Key, Option<&'a Arc<Stored>>>,
}

impl View<'_> {
    /// The objects from a key on, ordered. Costs nothing for those that are not asked for.
    pub(crate) fn from<'a>(
        &'a self,
        start: &'a Key,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
        let before = self.before.range::<Key, _>(start..);
        Merge {
            now: self.objects.range::<Key, _>(start..).peekable(),
            before: before.map(|(key, object)| (*key, *object)).peekable(),
        }
    }
}

struct Merge<N: Iterator, B: Iterator> {
    now: Peekable<N>,
    before: Peekable<B>,
}

impl<'a, N, B> Iterator for Merge<N, B>
where
    N: Iterator<Item = (&'a Key, &'a Arc<Stored>)>,
    B: Iterator<Item = (&'a Key, Option<&'a Arc<Stored>>)>,
{
    type Item = (&'a Key, &'a Arc<Stored>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let changed = self.before.peek().map(|(key, _)| *key);
            match (self.now.peek().map(|(key, _)| *key), changed) {
                (Some(now), Some(changed)) if now < changed => return self.now.next(),
                (_, None) => return self.now.next(),
                (now, Some(changed)) => {
                    if now == Some(changed) {
                        self.now.next();
                    }
                    let (key, object) = self.before.next()?;
                    if let Some(object) = object {
                        return Some((key, object));
                    }
                }
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

    fn all(store: &Store, version: u64) -> BTreeMap<Key, Value> {
        let view = store.at_version("nodes", version).unwrap();
        let start = Key::default();
        let objects = view.from(&start);
        objects.map(|(key, o)| (key.clone(), o.value())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_text_begins_with_the_type_and_can_be_shown_without_it() {
        let object = json!({"apiVersion": "v1", "data": {"a": "\"}"}, "kind": "ConfigMap"});
        let stored = Stored::new(&object, 7, Instant::now());
        assert_eq!(
            stored.text(),
            r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"\"}"}}"#
        );
        assert_eq!(stored.untyped(), r#""data":{"a":"\"}"}}"#);
        assert_eq!(stored.value(), object);
        for bare in [json!({"kind": "x"}), json!({})] {
            let stored = Stored::new(&bare, 1, Instant::now());
            assert_eq!((stored.value(), stored.untyped()), (bare, "}"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_not_written_for_the_longest_time_is_found() {
        let mut store = Store::new();
        let start = Instant::now();
        let later = |s| start + std::time::Duration::from_secs(s);
        store.put("nodes", node("a", 1), start);
        store.put("nodes", node("b", 1), later(1));
        store.put("nodes", node("a", 2), later(2));
        let name = |limit| store.older_than("nodes", limit).map(|(_, name)| name);
        assert_eq!(name(later(1)), None);
        assert_eq!(name(later(9)).as_deref(), Some("b"));
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
        let old = all(&store, then);
        assert_eq!(old.len(), 1);
        let a = old.values().next().unwrap();
        assert_eq!(a.pointer("/metadata/labels/n"), Some(&json!("1")));
        store.compact();
        assert!(store.at_version("nodes", then).is_err());
        assert!(store.changes_after("nodes", store.version()).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn every_version_can_be_read_back(steps in proptest::collection::vec((0_u8..4, proptest::bool::ANY), 1..60)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let now = runtime.block_on(async { Instant::now() });
            let mut store = Store::new();
            let mut snapshots = vec![(store.version(), BTreeMap::new())];
            for (name, keep) in steps {
                let name = format!("n{name}");
                if keep {
                    store.put("nodes", node(&name, 1), now);
                } else {
                    store.remove("nodes", "", &name, now);
                }
                let current = all(&store, store.version());
                snapshots.push((store.version(), current));
            }
            for (version, objects) in snapshots {
                let from = ("".to_owned(), "n1".to_owned());
                let part: Vec<_> = store.at_version("nodes", version).unwrap().from(&from).map(|(k, _)| k.clone()).collect();
                let want: Vec<_> = objects.range(&from..).map(|(k, _)| k.clone()).collect();
                proptest::prop_assert_eq!(part, want);
                proptest::prop_assert_eq!(all(&store, version), objects);
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
