//! Faults that calls meet, chosen by action and by the number of the call.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::selects;
use crate::control::CloudError;

/// More rules than any test needs; the limit keeps a forgotten loop from growing for ever.
const MAX_RULES: usize = 256;

/// What happens to a call instead of an ordinary answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fault {
    /// An error answer; nothing changes in the cloud.
    Error {
        /// HTTP status.
        status: u16,
        /// The cloud's error code.
        code: String,
        /// Text for people.
        #[serde(default)]
        message: String,
    },
    /// The effect happens, the client hears nothing: its connection is closed, or it gets a 504.
    CommitThenTimeout {
        /// Milliseconds until the 504; `None` closes the connection at once.
        #[serde(default)]
        gateway_timeout_after_ms: Option<u64>,
    },
    /// The connection is closed; nothing changes in the cloud.
    DropConnection,
    /// No answer for a time, then the connection is closed; nothing changes in the cloud.
    Hang {
        /// Milliseconds until the connection is closed.
        millis: u64,
    },
    /// The effect happens, the answer is cut in the middle of the document.
    MalformedBody,
    /// Status 200 with an error document in the body; nothing changes in the cloud.
    OkWithErrorDocument {
        /// The cloud's error code.
        code: String,
        /// Text for people.
        #[serde(default)]
        message: String,
    },
    /// Page `page` (1-based) of a listing comes without its items.
    DropPage {
        /// The page.
        page: usize,
    },
    /// Page `page` (1-based) of a listing comes without the link to the next page.
    LoseNextToken {
        /// The page.
        page: usize,
    },
}

impl Fault {
    /// An error answer.
    pub fn error(status: u16, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error {
            status,
            code: code.into(),
            message: message.into(),
        }
    }

    /// EC2's answer to a client that calls too often.
    #[must_use]
    pub fn request_limit_exceeded() -> Self {
        Self::error(503, "RequestLimitExceeded", "Request limit exceeded.")
    }

    /// The query protocol's answer to a client that calls too often.
    #[must_use]
    pub fn throttling() -> Self {
        Self::error(400, "Throttling", "Rate exceeded")
    }

    /// EC2's answer to a client without permission.
    #[must_use]
    pub fn unauthorized_operation() -> Self {
        Self::error(
            403,
            "UnauthorizedOperation",
            "You are not authorized to perform this operation.",
        )
    }

    /// A failure inside of the cloud.
    #[must_use]
    pub fn internal_error() -> Self {
        Self::error(500, "InternalError", "An internal error has occurred")
    }

    /// The effect happens, then the connection is closed.
    #[must_use]
    pub fn commit_then_close() -> Self {
        Self::CommitThenTimeout {
            gateway_timeout_after_ms: None,
        }
    }
}

/// A rule: from the `from`-th to the `to`-th matching call, counted from its installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) action: String,
    pub(crate) fault: Fault,
    #[serde(default = "one")]
    pub(crate) from: u64,
    #[serde(default)]
    pub(crate) to: Option<u64>,
    #[serde(skip_deserializing)]
    pub(crate) seen: u64,
}

fn one() -> u64 {
    1
}

/// The installed faults. The selector `action` is an action, `service:action`, `service:*` or `*`.
/// Of several rules that match a call the first installed one acts.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Mutex<Vec<Rule>>,
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next `n` matching calls meet the fault.
    ///
    /// # Errors
    /// `TooManyFaults` if 256 rules are installed already: clear some first.
    pub fn next(&self, action: &str, n: u64, fault: Fault) -> Result<(), CloudError> {
        self.install(action, fault, 1, Some(n))
    }

    /// Only the `n`-th matching call (1-based) meets the fault.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn nth(&self, action: &str, n: u64, fault: Fault) -> Result<(), CloudError> {
        self.install(action, fault, n, Some(n))
    }

    /// Every matching call from the `n`-th on (1-based) meets the fault.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn from_nth(&self, action: &str, n: u64, fault: Fault) -> Result<(), CloudError> {
        self.install(action, fault, n, None)
    }

    /// Every matching call meets the fault, until it is cleared.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn always(&self, action: &str, fault: Fault) -> Result<(), CloudError> {
        self.install(action, fault, 1, None)
    }

    fn install(
        &self,
        action: &str,
        fault: Fault,
        from: u64,
        to: Option<u64>,
    ) -> Result<(), CloudError> {
        self.add(Rule {
            action: action.to_owned(),
            fault,
            from,
            to,
            seen: 0,
        })
    }

    pub(crate) fn add(&self, rule: Rule) -> Result<(), CloudError> {
        let mut rules = self.lock();
        if rules.len() >= MAX_RULES {
            let text = format!("{MAX_RULES} fault rules are installed: clear some first");
            return Err(CloudError::new("TooManyFaults", text));
        }
        rules.push(rule);
        Ok(())
    }

    /// Removes the rules that were installed with this selector.
    pub fn clear(&self, action: &str) {
        self.lock().retain(|rule| rule.action != action);
    }

    /// Removes all rules.
    pub fn clear_all(&self) {
        self.lock().clear();
    }

    pub(crate) fn list(&self) -> Vec<Rule> {
        self.lock().clone()
    }

    /// Counts the call on every matching rule and returns the fault of the first one in its range.
    pub(crate) fn take(&self, service: &str, action: &str) -> Option<Fault> {
        let mut found = None;
        let mut rules = self.lock();
        for rule in rules
            .iter_mut()
            .filter(|rule| selects(&rule.action, service, action))
        {
            rule.seen += 1;
            let acts = rule.seen >= rule.from && rule.to.is_none_or(|to| rule.seen <= to);
            if acts && found.is_none() {
                found = Some(rule.fault.clone());
            }
        }
        rules.retain(|rule| rule.to.is_none_or(|to| rule.seen < to));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_act_on_their_calls_and_used_up_rules_are_removed() {
        let faults = Faults::default();
        faults.next("A", 2, Fault::DropConnection).unwrap();
        faults.nth("ec2:B", 2, Fault::MalformedBody).unwrap();
        faults.from_nth("C", 3, Fault::Hang { millis: 1 }).unwrap();
        let seen = |action: &str| {
            (0..4)
                .map(|_| faults.take("ec2", action).is_some())
                .collect::<Vec<_>>()
        };
        assert_eq!(seen("A"), [true, true, false, false]);
        assert_eq!(seen("B"), [false, true, false, false]);
        assert_eq!(seen("C"), [false, false, true, true]);
        assert_eq!(faults.list().len(), 1);
        faults.clear("C");
        assert_eq!(seen("C"), [false; 4]);
    }

    #[test]
    fn the_number_of_rules_is_bounded() {
        let faults = Faults::default();
        for _ in 0..MAX_RULES {
            faults.always("A", Fault::DropConnection).unwrap();
        }
        let error = faults.always("A", Fault::DropConnection).unwrap_err();
        assert_eq!(error.code, "TooManyFaults");
        faults.clear_all();
        assert_eq!(faults.take("ec2", "A"), None);
    }
}
