//! Collects what is wrong.

use std::{collections::BTreeSet, time::Duration};

use crate::config::{GoDuration, LowArgs};

/// Collects the errors. A field that is wrong gets a harmless value: the whole is refused anyway.
pub(super) struct Check<'a> {
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
    unreadable: &'a BTreeSet<&'static str>,
}

impl<'a> Check<'a> {
    /// Starts with what could not be read.
    pub(super) fn new(args: &'a LowArgs) -> Self {
        Self {
            errors: args.errors.clone(),
            warnings: args.warnings.clone(),
            unreadable: &args.unreadable,
        }
    }

    pub(super) fn that(&mut self, fine: bool, error: impl FnOnce() -> String) {
        if !fine {
            self.errors.push(error());
        }
    }

    /// A condition on several flags (without dashes): it says nothing while one of them could not
    /// be read.
    pub(super) fn together(&mut self, flags: &[&str], fine: bool, error: impl FnOnce() -> String) {
        let readable = flags.iter().all(|flag| !self.unreadable.contains(flag));
        self.that(fine || !readable, error);
    }

    pub(super) fn warn(&mut self, when: bool, warning: impl FnOnce() -> String) {
        if when {
            self.warnings.push(warning());
        }
    }

    /// A number of workers, at least 1 (REQ-APP-26).
    pub(super) fn workers(&mut self, flag: &str, value: i32) -> usize {
        self.that(value >= 1, || {
            format!("{flag} must be at least 1, got {value}")
        });
        usize::try_from(value).unwrap_or(1)
    }

    /// A duration above zero.
    pub(super) fn period(&mut self, flag: &str, value: GoDuration) -> Duration {
        let duration = value.to_std().filter(|duration| !duration.is_zero());
        self.that(duration.is_some(), || {
            format!("{flag} must be longer than 0s, got {value}")
        });
        duration.unwrap_or(Duration::from_secs(1))
    }

    /// A duration of zero or more.
    pub(super) fn not_negative(&mut self, flag: &str, value: GoDuration) -> Duration {
        let duration = value.to_std();
        self.that(duration.is_some(), || {
            format!("{flag} must not be negative, got {value}")
        });
        duration.unwrap_or_default()
    }

    /// A TCP port; 0 is off.
    pub(super) fn port(&mut self, flag: &str, value: i32) -> u16 {
        let port = u16::try_from(value);
        self.that(port.is_ok(), || {
            format!("{flag} must be 0 (off) to 65535, got {value}")
        });
        port.unwrap_or_default()
    }
}
