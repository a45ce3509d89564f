//! The series of leader election (specification: controllers §8.2).

use prometheus::{GaugeVec, IntCounterVec, Opts, Registry};

/// `leader_election_master_status` and `leader_election_slowpath_total`, label `name` (the Lease).
#[derive(Clone)]
pub struct LeaderMetrics {
    status: GaugeVec,
    slow_path: IntCounterVec,
}

impl LeaderMetrics {
    /// Registers the series.
    ///
    /// # Errors
    /// One of them is registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let status = GaugeVec::new(
            Opts::new(
                "leader_election_master_status",
                "1 while this process holds the lease of that name, 0 while it does not.",
            ),
            &["name"],
        )?;
        registry.register(Box::new(status.clone()))?;
        let slow_path = IntCounterVec::new(
            Opts::new(
                "leader_election_slowpath_total",
                "Renewals of the lease that had to read it first.",
            ),
            &["name"],
        )?;
        registry.register(Box::new(slow_path.clone()))?;
        Ok(Self { status, slow_path })
    }

    /// Registers the series with one sample each, for the reference.
    pub(in crate::runtime) fn sample(registry: &Registry) -> prometheus::Result<()> {
        let metrics = Self::new(registry)?;
        metrics.leads("", false);
        metrics.slow_path.with_label_values(&[""]);
        Ok(())
    }

    pub(super) fn leads(&self, lease: &str, leads: bool) {
        let value = f64::from(u8::from(leads));
        self.status.with_label_values(&[lease]).set(value);
    }

    pub(super) fn took_slow_path(&self, lease: &str) {
        self.slow_path.with_label_values(&[lease]).inc();
    }
}
