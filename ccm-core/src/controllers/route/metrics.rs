//! The route controller's series (specification: controllers §8.1, REQ-ROUTE-18).

use prometheus::{CounterVec, Opts, Registry};

use super::trigger::Trigger;

/// What a pass did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassOutcome {
    /// At least one route was made or removed.
    Changed,
    /// None was.
    Noop,
    /// The routes could not be listed.
    Error,
}

impl PassOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Noop => "noop",
            Self::Error => "error",
        }
    }
}

pub(super) struct Metrics {
    passes: CounterVec,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let passes = CounterVec::new(
            Opts::new(
                "route_controller_route_sync_total",
                "Passes over all routes, by what they did and what began them",
            ),
            &["outcome", "trigger"],
        )?;
        registry.register(Box::new(passes.clone()))?;
        Ok(Self { passes })
    }

    /// Counts a pass, at its end.
    pub(super) fn count(&self, outcome: PassOutcome, trigger: Trigger) {
        self.passes
            .with_label_values(&[outcome.as_str(), trigger.as_str()])
            .inc();
    }
}

/// Registers the series with one sample, for the reference.
pub(crate) fn sample_metrics(registry: &Registry) -> prometheus::Result<()> {
    Metrics::new(registry)?.count(PassOutcome::Noop, Trigger::Periodic);
    Ok(())
}
