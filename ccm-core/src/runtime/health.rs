//! Whether the process is healthy and ready, as named checks.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

type Check = Arc<dyn Fn() -> bool + Send + Sync>;

/// The check of the lease, which comes first whenever it is added (REQ-APP-09, REQ-APP-10).
const LEADER_ELECTION: &str = "leaderElection";

#[derive(Default)]
struct Checks {
    /// In the order in which they are told.
    live: Vec<(String, Check)>,
    gates: BTreeMap<String, Gate>,
}

/// The checks of one process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<Checks>>);

/// A condition of readiness, closed at first. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// Says that the condition is met.
    pub fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Says that the condition is not met.
    pub fn close(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether the condition is met.
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Which question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `/healthz`: all checks of life.
    Health,
    /// `/livez`: the same.
    Live,
    /// `/readyz`: all checks of life and all gates.
    Ready,
}

impl Probe {
    /// The name in texts and series.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Health => "healthz",
            Self::Live => "livez",
            Self::Ready => "readyz",
        }
    }
}

/// What the query says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeQuery {
    /// `?verbose`: list the checks.
    pub verbose: bool,
    /// `?exclude=name`: leave a check out; may be repeated.
    pub exclude: Vec<String>,
}

impl ProbeQuery {
    /// Reads a query string.
    pub fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("exclude", name)) => parsed.exclude.push(name.to_owned()),
                Some(("verbose", _)) => parsed.verbose = true,
                None if pair == "verbose" => parsed.verbose = true,
                _ => {}
            }
        }
        parsed
    }
}

/// The answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// Whether all checks passed.
    pub passed: bool,
    /// The body of the answer.
    pub text: String,
    /// The checks that were asked, with their results; excluded ones are not.
    pub checks: Vec<(String, bool)>,
}

impl Health {
    /// Without checks, which is healthy and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check of life behind those that are there, or replaces the one of that name. It
    /// must not block. `leaderElection` always comes first, as upstream.
    pub fn add(&self, name: &str, check: impl Fn() -> bool + Send + Sync + 'static) {
        let check: Check = Arc::new(check);
        let live = &mut self.lock().live;
        if let Some((_, old)) = live.iter_mut().find(|(known, _)| known == name) {
            *old = check;
        } else if name == LEADER_ELECTION {
            live.insert(0, (name.to_owned(), check));
        } else {
            live.push((name.to_owned(), check));
        }
    }

    /// The gate of readiness of that name, made closed if it is not there yet.
    pub fn gate(&self, name: &str) -> Gate {
        self.lock()
            .gates
            .entry(name.to_owned())
            .or_default()
            .clone()
    }

    /// Whether all checks and gates pass.
    pub fn is_ready(&self) -> bool {
        self.report(Probe::Ready, &ProbeQuery::default()).passed
    }

    /// The answer to a probe: `ok`, or the long form when asked for or when something failed
    /// (specification: controllers §7.4).
    pub fn report(&self, probe: Probe, query: &ProbeQuery) -> ProbeReport {
        let mut text = String::new();
        let mut unknown: Vec<&String> = query.exclude.iter().collect();
        let mut checks = self.results(probe);
        checks.retain(|(name, fine)| {
            let excluded = query.exclude.contains(name);
            unknown.retain(|asked| *asked != name);
            // Writing to a String cannot fail.
            let _ = if excluded {
                writeln!(text, "[+]{name} excluded: ok")
            } else if *fine {
                writeln!(text, "[+]{name} ok")
            } else {
                writeln!(text, "[-]{name} failed: reason withheld")
            };
            !excluded
        });
        if !unknown.is_empty() {
            let _ = writeln!(
                text,
                "warn: some health checks cannot be excluded: no matches for {unknown:?}"
            );
        }
        let passed = checks.iter().all(|(_, fine)| *fine);
        if passed && !query.verbose {
            text = "ok".to_owned();
        } else {
            let outcome = if passed { "passed" } else { "failed" };
            let _ = writeln!(text, "{} check {outcome}", probe.name());
        }
        ProbeReport {
            passed,
            text,
            checks,
        }
    }

    fn results(&self, probe: Probe) -> Vec<(String, bool)> {
        let (live, gates) = {
            let checks = self.lock();
            let gates = match probe {
                Probe::Ready => checks.gates.clone(),
                Probe::Health | Probe::Live => BTreeMap::new(),
            };
            (checks.live.clone(), gates)
        };
        let mut results: Vec<_> = live
            .into_iter()
            .map(|(name, check)| (name, check()))
            .collect();
        if results.is_empty() {
            results.push(("ping".to_owned(), true));
        }
        results.extend(gates.into_iter().map(|(name, gate)| (name, gate.is_open())));
        results
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Checks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(health: &Health, probe: Probe, query: &str) -> (bool, String) {
        let report = health.report(probe, &ProbeQuery::parse(query));
        (report.passed, report.text)
    }

    #[test]
    fn without_checks_there_is_a_ping() {
        let health = Health::new();
        assert_eq!(ask(&health, Probe::Health, ""), (true, "ok".to_owned()));
        assert_eq!(
            ask(&health, Probe::Health, "verbose").1,
            "[+]ping ok\nhealthz check passed\n"
        );
    }

    #[test]
    fn a_failed_check_is_named_and_can_be_excluded() {
        let health = Health::new();
        health.add("cloud-node-controller", || true);
        health.add("service-lb-controller", || false);
        assert_eq!(
            ask(&health, Probe::Live, ""),
            (
                false,
                "[+]cloud-node-controller ok\n[-]service-lb-controller failed: reason withheld\n\
                 livez check failed\n"
                    .to_owned()
            )
        );
        let (passed, text) = ask(
            &health,
            Probe::Health,
            "exclude=service-lb-controller&verbose=1",
        );
        assert!(passed && text.contains("[+]service-lb-controller excluded: ok"));
    }

    /// REQ-APP-09, REQ-APP-10
    #[test]
    fn the_lease_is_told_first_and_the_controllers_in_the_order_of_their_start() {
        let health = Health::new();
        let renewed = Gate::default();
        renewed.open();
        health.add("service-lb-controller", || true);
        health.add("cloud-node-controller", || true);
        let lease = renewed.clone();
        health.add("leaderElection", move || lease.is_open());
        assert_eq!(
            ask(&health, Probe::Health, "verbose"),
            (
                true,
                "[+]leaderElection ok\n[+]service-lb-controller ok\n[+]cloud-node-controller \
                 ok\nhealthz check passed\n"
                    .to_owned()
            )
        );
        renewed.close();
        let (passed, text) = ask(&health, Probe::Health, "");
        assert!(!passed && text.starts_with("[-]leaderElection failed: reason withheld\n"));
    }

    #[test]
    fn an_exclusion_without_a_check_is_told() {
        let health = Health::new();
        let (passed, text) = ask(&health, Probe::Health, "verbose&exclude=pong");
        assert!(passed);
        assert_eq!(
            text,
            "[+]ping ok\nwarn: some health checks cannot be excluded: no matches for [\"pong\"]\n\
             healthz check passed\n"
        );
    }

    #[test]
    fn gates_are_about_readiness_only() {
        let health = Health::new();
        let gate = health.gate("api-server");
        assert!(!health.is_ready());
        assert!(ask(&health, Probe::Health, "").0);
        assert!(
            ask(&health, Probe::Ready, "")
                .1
                .contains("[-]api-server failed")
        );
        gate.open();
        assert!(health.is_ready());
        health.gate("api-server").close();
        assert!(!gate.is_open() && !health.is_ready());
    }
}
