//! The loops of the controllers as an operator sees them in `/debug/controllers`: period, last
//! start, last end, last error.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;

use super::Clock;

/// What is known of one loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoopReport {
    /// The controller's canonical name.
    pub controller: &'static str,
    /// The loop's name within the controller.
    pub name: &'static str,
    /// Seconds between two passes; absent when passes are caused by events only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<u64>,
    /// How many passes ended.
    pub passes: u64,
    /// When the last pass began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_start: Option<Timestamp>,
    /// When the last pass ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_end: Option<Timestamp>,
    /// The text of the last error; it stays until another one comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<Timestamp>,
}

/// All loops of a process. Cheap to clone.
#[derive(Clone)]
pub struct Loops {
    clock: Clock,
    reports: Arc<Mutex<BTreeMap<(&'static str, &'static str), LoopReport>>>,
}

impl Loops {
    /// Without loops.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            reports: Arc::default(),
        }
    }

    /// Adds a loop. `period` is `None` when its passes are caused by events only.
    pub fn add(
        &self,
        controller: &'static str,
        name: &'static str,
        period: Option<Duration>,
    ) -> LoopReporter {
        let report = LoopReport {
            controller,
            name,
            period_seconds: period.map(|period| period.as_secs()),
            ..LoopReport::default()
        };
        self.lock().insert((controller, name), report);
        LoopReporter {
            loops: self.clone(),
            key: (controller, name),
        }
    }

    /// The loops by controller and name.
    pub fn reports(&self) -> Vec<LoopReport> {
        self.lock().values().cloned().collect()
    }

    fn change(
        &self,
        key: (&'static str, &'static str),
        f: impl FnOnce(&mut LoopReport, Timestamp),
    ) {
        let now = self.clock.now();
        if let Some(report) = self.lock().get_mut(&key) {
            f(report, now);
        }
    }

    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, BTreeMap<(&'static str, &'static str), LoopReport>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where one loop reports its passes. Cheap to clone.
#[derive(Clone)]
pub struct LoopReporter {
    loops: Loops,
    key: (&'static str, &'static str),
}

impl LoopReporter {
    /// A pass begins.
    pub fn start(&self) {
        self.loops
            .change(self.key, |report, now| report.last_start = Some(now));
    }

    /// Something went wrong in the pass, which goes on.
    pub fn fail(&self, error: &dyn std::fmt::Display) {
        let text = error.to_string();
        self.loops.change(self.key, |report, now| {
            report.last_error = Some(text);
            report.last_error_at = Some(now);
        });
    }

    /// A pass ended, with what went wrong in it.
    pub fn end(&self, error: Option<&dyn std::fmt::Display>) {
        if let Some(error) = error {
            self.fail(error);
        }
        self.loops.change(self.key, |report, now| {
            report.passes += 1;
            report.last_end = Some(now);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_tells_its_last_start_end_and_error() {
        let loops = Loops::new(Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap()));
        let period = Some(Duration::from_secs(5));
        let reporter = loops.add("cloud-node-controller", "addresses", period);
        reporter.start();
        tokio::time::advance(Duration::from_secs(1)).await;
        reporter.end(Some(&"throttled"));
        reporter.start();
        reporter.end(None);
        let reports = loops.reports();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].passes, 2);
        assert_eq!(reports[0].period_seconds, Some(5));
        assert_eq!(reports[0].last_error.as_deref(), Some("throttled"));
        let text = serde_json::to_string(&reports).unwrap();
        assert!(
            text.contains("\"lastEnd\":\"2026-01-01T00:00:01Z\""),
            "{text}"
        );
    }
}
