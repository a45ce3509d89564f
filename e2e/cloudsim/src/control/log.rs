//! The call log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

use super::{Answer, ConnectionClosed};
use crate::clock::{Clock, as_text};

/// A day of a busy simulation; older calls are forgotten first.
const MAX_CALLS: usize = 200_000;

/// One received call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    /// Sequence number, from 1, never reused.
    pub seq: u64,
    /// `ec2`, `elbv2`, `elb`, `sts`, `imds`, or `unknown` for what is not emulated.
    pub service: &'static str,
    /// The action, such as `DescribeInstances`.
    pub action: String,
    /// The flattened parameters, without `Action` and `Version`.
    pub params: BTreeMap<String, String>,
    /// HTTP status of the answer; `None` while the call runs or if its connection was closed.
    pub status: Option<u16>,
    /// The cloud's error code, if the answer was an error; `connection closed` if there was none.
    pub error: Option<String>,
    /// The permission that was missing, such as `ec2:CreateTags`, if a policy denied the call.
    pub denied: Option<String>,
    /// The client's `user-agent` header.
    pub user_agent: String,
    /// The id of the key that signed the call: who called, where a test gives each client its own.
    pub access_key: Option<String>,
    /// When the call arrived, on the cloud's clock.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
}

impl Call {
    pub(crate) fn new(
        service: &'static str,
        action: String,
        params: BTreeMap<String, String>,
        agent: String,
    ) -> Self {
        Self {
            seq: 0,
            service,
            action,
            params,
            status: None,
            error: None,
            denied: None,
            user_agent: agent,
            access_key: None,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    pub(crate) fn signed_by(self, access_key: Option<String>) -> Self {
        Self { access_key, ..self }
    }

    /// Whether the call may change something: everything that does not start with `Describe` or `Get`.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !self.action.starts_with("Describe") && !self.action.starts_with("Get")
    }
}

/// A place in the call log: see [`CallLog::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// Every call in the order of arrival. Bounded: the oldest calls are dropped first.
#[derive(Debug)]
pub struct CallLog {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    calls: VecDeque<Call>,
}

impl CallLog {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, mut call: Call) -> u64 {
        call.at = self.clock.now();
        let mut state = self.lock();
        state.last += 1;
        call.seq = state.last;
        if state.calls.len() >= MAX_CALLS {
            state.calls.pop_front();
        }
        state.calls.push_back(call);
        state.last
    }

    pub(crate) fn end(&self, seq: u64, result: &Result<Answer, ConnectionClosed>) {
        let mut state = self.lock();
        let Ok(at) = state.calls.binary_search_by_key(&seq, |call| call.seq) else {
            return;
        };
        let Some(call) = state.calls.get_mut(at) else {
            return;
        };
        match result {
            Ok(answer) => {
                call.status = Some(answer.status);
                call.error.clone_from(&answer.code);
                call.denied.clone_from(&answer.denied);
            }
            Err(ConnectionClosed) => call.error = Some("connection closed".to_owned()),
        }
    }

    /// The present end of the log.
    pub fn mark(&self) -> Mark {
        Mark(self.lock().last)
    }

    /// The start of the log, for the functions that take a mark.
    #[must_use]
    pub fn start(&self) -> Mark {
        Mark(0)
    }

    /// The calls that arrived after `mark`.
    pub fn calls_since(&self, mark: Mark) -> Vec<Call> {
        let state = self.lock();
        state
            .calls
            .iter()
            .filter(|call| call.seq > mark.0)
            .cloned()
            .collect()
    }

    /// How many calls of each action arrived after `mark`.
    pub fn counts_since(&self, mark: Mark) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in self.lock().calls.iter().filter(|call| call.seq > mark.0) {
            *counts.entry(call.action.clone()).or_insert(0) += 1;
        }
        counts
    }

    /// The calls after `mark` that may change something (see [`Call::is_write`]).
    pub fn writes_since(&self, mark: Mark) -> Vec<Call> {
        let state = self.lock();
        let after = state.calls.iter().filter(|call| call.seq > mark.0);
        after.filter(|call| call.is_write()).cloned().collect()
    }

    /// Forgets all calls. Sequence numbers go on.
    pub fn reset(&self) {
        self.lock().calls.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_drops_the_oldest_calls_and_keeps_counting() {
        let log = CallLog::new(Clock::new(Timestamp::UNIX_EPOCH));
        let call = || {
            Call::new(
                "ec2",
                "DescribeVpcs".to_owned(),
                BTreeMap::new(),
                String::new(),
            )
        };
        for _ in 0..MAX_CALLS + 5 {
            log.begin(call());
        }
        let calls = log.calls_since(log.start());
        assert_eq!(calls.len(), MAX_CALLS);
        assert_eq!(calls[0].seq, 6);
        log.end(3, &Err(ConnectionClosed));
        log.end(7, &Err(ConnectionClosed));
        assert_eq!(
            log.calls_since(log.start())[1].error.as_deref(),
            Some("connection closed")
        );
        log.reset();
        assert!(log.calls_since(log.start()).is_empty());
        assert_eq!(log.begin(call()), MAX_CALLS as u64 + 6);
    }
}
