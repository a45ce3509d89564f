//! Whether a provider changes its cloud or only says what it would change.

use std::{
    future::Future,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

/// What a read would show of a thing that was only recorded and not made.
pub const KNOWN_AFTER_APPLY: &str = "(known after apply)";

/// One change that was asked for and not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedWrite {
    /// The cloud's name of the call, or verb and resource at the API server.
    pub action: &'static str,
    /// What it is about, for people.
    pub object: String,
    /// The difference, one line each. No secret stands here.
    pub details: Vec<String>,
}

impl RecordedWrite {
    /// A change without details.
    pub fn new(action: &'static str, object: impl Into<String>) -> Self {
        Self {
            action,
            object: object.into(),
            details: Vec::new(),
        }
    }

    /// Adds a line of difference.
    #[must_use]
    pub fn with(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }

    /// Adds lines of difference.
    #[must_use]
    pub fn with_all(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }
}

/// What becomes of the calls that change the cloud.
#[derive(Clone, Debug, Default)]
pub enum Writes {
    /// They are made.
    #[default]
    Real,
    /// They are recorded and answered as if they had succeeded; the cloud is only read.
    Recorded(Recorder),
}

type Sink = Arc<Mutex<Vec<RecordedWrite>>>;

tokio::task_local! {
    /// Where the changes of the work at hand go.
    static SCOPE: Sink;
}

/// Takes note of changes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    unattributed: Sink,
}

impl Recorder {
    /// Takes note of a change: for the [`scope`](Self::scope) that it happens in, if it happens in
    /// one.
    pub fn record(&self, write: RecordedWrite) {
        let in_scope = SCOPE.try_with(Arc::clone);
        let sink = in_scope.unwrap_or_else(|_| Arc::clone(&self.unattributed));
        lock(&sink).push(write);
    }

    /// Does some work and answers with the changes that it asked for. The work must not leave its
    /// task.
    pub async fn scope<T>(&self, work: impl Future<Output = T>) -> (T, Vec<RecordedWrite>) {
        let sink = Sink::default();
        let answer = SCOPE.scope(Arc::clone(&sink), work).await;
        let writes = mem::take(&mut *lock(&sink));
        (answer, writes)
    }

    /// The changes that happened in no scope, so far.
    pub fn take_unattributed(&self) -> Vec<RecordedWrite> {
        mem::take(&mut *lock(&self.unattributed))
    }
}

fn lock(sink: &Sink) -> MutexGuard<'_, Vec<RecordedWrite>> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_change_belongs_to_the_work_that_asked_for_it() {
        let recorder = Recorder::default();
        let work = |name: &'static str| {
            let recorder = recorder.clone();
            async move {
                recorder.record(RecordedWrite::new("First", name));
                tokio::task::yield_now().await;
                recorder.record(RecordedWrite::new("Second", name).with("a line"));
                name.len()
            }
        };
        recorder.record(RecordedWrite::new("Before", "nobody"));
        let (one, two) = tokio::join!(recorder.scope(work("one")), recorder.scope(work("another")));
        for ((answer, writes), name) in [(one, "one"), (two, "another")] {
            assert_eq!(answer, name.len());
            let said: Vec<_> = writes
                .iter()
                .map(|w| (w.action, w.object.as_str()))
                .collect();
            assert_eq!(said, [("First", name), ("Second", name)]);
        }
        let rest = recorder.take_unattributed();
        assert_eq!(rest, [RecordedWrite::new("Before", "nobody")]);
        assert_eq!(recorder.take_unattributed(), []);
    }
}
