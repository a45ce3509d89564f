//! Watches: a cursor into the history, woken by each write.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Duration, Instant, sleep_until},
};

use crate::{
    errors::{ApiError, FieldError},
    faults::ExpiredStyle,
    inner::{Cut, Inner},
    listing::version_of,
    represent::{Representation, line},
    request::Call,
    selector::Selector,
    store::{Change, ChangeKind, Stored},
};

/// The real server's period of bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// A last bookmark goes out this long before the end of a watch.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// A watch without `timeoutSeconds` ends after this time, the shortest of a real server.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);
/// The longest `timeoutSeconds` that is honoured; more would overflow nothing but help nobody.
const MAX_TIMEOUT_SECONDS: u64 = 365 * 24 * 3600;

/// One watch of one client.
struct Watcher {
    inner: Arc<Inner>,
    call: Call,
    selector: Selector,
    representation: Representation,
    cursor: u64,
    /// The cursor when everything before it was taken.
    taken: Arc<AtomicU64>,
    pending: VecDeque<Bytes>,
    sent_any: bool,
    done: bool,
    /// The bookmark that ends the initial events is still owed.
    owes_initial_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    wake: watch::Receiver<u64>,
    cut: watch::Receiver<Cut>,
}

/// Opens a watch.
pub(crate) fn open(
    inner: &Arc<Inner>,
    call: Call,
) -> Result<impl Stream<Item = Result<Bytes, io::Error>> + Send + use<>, ApiError> {
    let selector = Selector::parse(
        call.resource,
        call.query("labelSelector"),
        call.query("fieldSelector"),
    )?;
    // A watch, unlike a list, answers a version that is no number with 500.
    let version =
        version_of(&call).map_err(|error| ApiError::unclassified(error.message.clone()))?;
    let bookmarks = call.flag("allowWatchBookmarks");
    let initial = check_initial(&call)?;
    let timeout = match call.query("timeoutSeconds") {
        "" | "0" => DEFAULT_TIMEOUT,
        text => text
            .parse()
            .map(|s: u64| Duration::from_secs(s.min(MAX_TIMEOUT_SECONDS)))
            .map_err(|_| ApiError::bad_request("timeoutSeconds: must be a number, 0 or more"))?,
    };
    let now = Instant::now();
    // Receivers first: what is written between here and the first look must wake the watch.
    let (wake, cut) = (inner.subscribe_wake(), inner.subscribe_cut());
    let taken = inner.enter_watch(call.resource.plural);
    let mut watcher = Watcher {
        inner: Arc::clone(inner),
        representation: Representation::of(&call),
        call,
        selector,
        cursor: version.unwrap_or_default(),
        taken,
        pending: VecDeque::new(),
        sent_any: false,
        done: false,
        owes_initial_end: bookmarks && initial.unwrap_or_else(|| version.is_none_or(|v| v == 0)),
        bookmarks,
        next_bookmark: now + BOOKMARK_PERIOD.min(timeout.saturating_sub(BOOKMARK_BEFORE_END)),
        deadline: now + timeout,
        wake,
        cut,
    };
    let from_start = version.is_none_or(|v| v == 0);
    match initial {
        Some(true) => watcher.start_with_objects(version)?,
        None if from_start => watcher.start_with_objects(None)?,
        Some(false) if from_start => watcher.cursor = inner.lock().store.version(),
        _ => watcher.check_start()?,
    }
    Ok(stream::unfold(watcher, |mut watcher| async move {
        watcher.next().await.map(|item| (item, watcher))
    }))
}

/// `sendInitialEvents` and what it demands of the other parameters.
fn check_initial(call: &Call) -> Result<Option<bool>, ApiError> {
    let matching = call.query("resourceVersionMatch");
    let initial = match call.query("sendInitialEvents") {
        "" => None,
        "true" | "1" => Some(true),
        _ => Some(false),
    };
    let needed = FieldError::forbidden(
        "resourceVersionMatch",
        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    );
    let errors = match initial {
        None if !matching.is_empty() => vec![FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )],
        Some(_) if matching.is_empty() => vec![needed],
        Some(_) if matching != "NotOlderThan" => vec![
            needed,
            FieldError::not_supported("resourceVersionMatch", &json!(matching), &["NotOlderThan"]),
        ],
        other => return Ok(other),
    };
    Err(ApiError::invalid_options(&errors))
}

impl Watcher {
    /// Starts with what exists, as of the lag that reads of "any version" have.
    fn start_with_objects(&mut self, at_least: Option<u64>) -> Result<(), ApiError> {
        let lag = self.inner.delay(self.call.resource.plural);
        let state = self.inner.lock();
        let storage = self.call.resource.storage;
        let current = state.store.version();
        if let Some(wanted) = at_least.filter(|v| *v > current) {
            return Err(ApiError::version_too_large(wanted, current));
        }
        let now = Instant::now();
        let mut version = current;
        if !lag.is_zero() {
            let seen = state
                .store
                .version_at(storage, now.checked_sub(lag).unwrap_or(now));
            version = seen.max(at_least.unwrap_or_default());
        }
        let namespace = self.call.namespace.clone().unwrap_or_default();
        let objects: Vec<Arc<Stored>> = state
            .store
            .at_version(storage, version)
            .map_err(|_| too_old(version, current))?
            .from(&(namespace.clone(), String::new()))
            .take_while(|((ns, _), _)| namespace.is_empty() || *ns == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect();
        drop(state);
        for object in objects {
            if self.selects(&object) {
                self.push("ADDED", &object);
            }
        }
        self.cursor = version;
        if self.owes_initial_end {
            self.owes_initial_end = false;
            self.pending
                .push_back(self.representation.bookmark(version, true));
        }
        Ok(())
    }

    /// A watch from a version that is gone is refused in the style that is set.
    fn check_start(&mut self) -> Result<(), ApiError> {
        let state = self.inner.lock();
        let current = state.store.version();
        let known = state
            .store
            .changes_after(self.call.resource.storage, self.cursor)
            .is_ok();
        drop(state);
        if known {
            return Ok(());
        }
        let error = too_old(self.cursor, current);
        match self.inner.expired_style() {
            ExpiredStyle::Http => Err(error),
            ExpiredStyle::InStream => {
                self.fail(&error);
                Ok(())
            }
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.pending.push_back(line("ERROR", &error.status()));
        self.done = true;
    }

    fn selects(&self, object: &Stored) -> bool {
        self.selector.is_empty() || self.selector.matches(&object.value())
    }

    fn push(&mut self, kind: &str, object: &Stored) {
        let now = self.inner.clock.now();
        let event = self.representation.event(kind, object, now, !self.sent_any);
        self.sent_any = true;
        self.pending.push_back(event);
    }

    async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(Ok(event));
            }
            if self.done {
                return None;
            }
            if self.cut.has_changed().unwrap_or(true) {
                self.done = true;
                let cut = *self.cut.borrow_and_update();
                return cut.abrupt.then(|| {
                    Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the watch was cut",
                    ))
                });
            }
            let due = self.collect();
            if !self.pending.is_empty() || self.done {
                continue;
            }
            self.taken.store(self.cursor, Ordering::Release);
            let due = due.unwrap_or(self.deadline).min(self.deadline);
            let bookmark = if self.bookmarks {
                self.next_bookmark
            } else {
                self.deadline
            };
            tokio::select! {
                biased;
                _ = self.cut.changed() => self.cut.mark_changed(),
                _ = self.wake.changed() => {}
                () = sleep_until(due.min(bookmark)) => self.on_timer(bookmark),
            }
        }
    }

    fn on_timer(&mut self, bookmark: Instant) {
        let now = Instant::now();
        if now >= self.deadline {
            self.done = true;
        } else if self.bookmarks && now >= bookmark {
            self.pending
                .push_back(self.representation.bookmark(self.cursor, false));
            let last = self
                .deadline
                .checked_sub(BOOKMARK_BEFORE_END)
                .unwrap_or(self.deadline);
            let next = now + BOOKMARK_PERIOD;
            self.next_bookmark = if now < last { next.min(last) } else { next };
        }
    }

    /// Moves what is due from the history to `pending`; returns when the next change is due.
    fn collect(&mut self) -> Option<Instant> {
        self.wake.mark_unchanged();
        let delay = self.inner.delay(self.call.resource.plural);
        let now = Instant::now();
        let storage = self.call.resource.storage;
        let mut due = None;
        let mut changes: Vec<Change> = Vec::new();
        let (current, known) = {
            let state = self.inner.lock();
            let newer = state.store.changes_after(storage, self.cursor);
            let known = newer.is_ok();
            for change in newer.into_iter().flatten() {
                if change.at + delay > now {
                    due = Some(change.at + delay);
                    break;
                }
                changes.push(change.clone());
            }
            (state.store.version(), known)
        };
        if !known {
            self.fail(&too_old(self.cursor, current));
            return None;
        }
        for change in &changes {
            self.cursor = change.version;
            self.deliver(change);
        }
        // Nothing of this kind is on its way: bookmarks may show the newest version.
        if due.is_none() {
            self.cursor = self.cursor.max(current);
        }
        due
    }

    fn deliver(&mut self, change: &Change) {
        let namespace = self.call.namespace.as_deref().unwrap_or_default();
        if !namespace.is_empty() && change.key.0 != namespace {
            return;
        }
        let was = change
            .before
            .as_ref()
            .is_some_and(|before| self.selects(before));
        let is = change.kind != ChangeKind::Deleted && self.selects(&change.object);
        match (was, is) {
            (false, true) => self.push("ADDED", &change.object),
            (true, true) => self.push("MODIFIED", &change.object),
            (true, false) => {
                // An object that leaves the selection is shown as it was when it was in it,
                // with the version of the change.
                let mut last = change.before.as_ref().unwrap_or(&change.object).value();
                crate::object::set(
                    &mut last,
                    &["metadata", "resourceVersion"],
                    change.version.to_string(),
                );
                let now = self.inner.clock.now();
                let first = !self.sent_any;
                let event = self.representation.event_of("DELETED", &last, now, first);
                self.sent_any = true;
                self.pending.push_back(event);
            }
            (false, false) => {}
        }
    }
}

fn too_old(version: u64, current: u64) -> ApiError {
    ApiError::expired(format!("too old resource version: {version} ({current})"))
}
