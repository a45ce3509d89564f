//! Making a load balancer as its Service asks.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Next, VERIFY_JITTER, Worker};
use crate::{
    cloud::{CloudResult, Ensured, Note},
    controllers::service::{
        backends::Backends, memory::Phase, predicates::has_cleanup_finalizer, status,
        sync::is_leaving,
    },
    kube::{LoadBalancerStatus, ObjectKey, Service},
};

impl Worker {
    pub(super) async fn ensure(
        &self,
        key: &ObjectKey,
        mut service: Arc<Service>,
        backends: &Backends,
        quiet: bool,
    ) -> CloudResult<Next> {
        self.memory.update(key, &service, |entry| {
            // A verification that fails takes nothing from a load balancer that stands.
            if !quiet {
                entry.phase = Phase::Pending;
            }
            entry.tried = Arc::clone(&service);
        });
        if !quiet {
            self.events.ensuring(&service);
        }
        if !has_cleanup_finalizer(&service) {
            match self.add_finalizer(key, &service).await? {
                Some(now) if !is_leaving(&now) => service = now,
                Some(_) => return Ok(Next::Again),
                None => return Ok(self.vanished(key)),
            }
        }
        if backends.nodes.is_empty() && !quiet {
            self.events.no_nodes(&service);
        }
        match self.ensure_in_cloud(key, &service, backends).await? {
            Ensured::ImplementedElsewhere { notes } => {
                self.tell_notes(key, &service, &notes, quiet);
                self.settle(key, &service, None, notes);
            }
            Ensured::Ready { status, notes } => {
                let status = status::publishable(status);
                self.tell_notes(key, &service, &notes, quiet);
                if !quiet || !self.shows(key, &status) {
                    self.events.ensured(&service);
                }
                self.publish(key, &service, status.clone()).await?;
                self.settle(key, &service, Some(status), notes);
            }
        }
        Ok(Next::Again)
    }

    pub(super) async fn ensure_in_cloud(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
        backends: &Backends,
    ) -> CloudResult<Ensured> {
        let labels_matter = self.cloud.node_labels_matter(service);
        let targets = backends.targets(labels_matter);
        let mut before = (None, false);
        self.memory.update(key, service, |entry| {
            entry.service = Arc::clone(service);
            entry.tried = Arc::clone(service);
            entry.sent = true;
            let given = entry.targets.replace(targets);
            before = (given.filter(|_| !entry.hosts_owed), entry.labels_matter);
            entry.labels_matter = labels_matter;
        });
        let result = self.cloud.ensure(service, &backends.nodes).await;
        self.memory.update(key, service, |entry| {
            entry.hosts_owed = false;
            if result.is_ok() {
                entry.ensured = Some(Arc::clone(service));
            } else {
                // An ensure that failed may not have come as far as the backends.
                (entry.targets, entry.labels_matter) = before;
            }
        });
        result.map_err(|error| error.context("failed to ensure load balancer"))
    }

    /// The object was gone when its finalizer was to be written. If the watch has told so already,
    /// nobody else will look at the key again.
    pub(super) fn vanished(&self, key: &ObjectKey) -> Next {
        if self.services.get(key).is_some() || self.memory.drop_unsent(key) {
            return Next::Stop;
        }
        Next::Again
    }

    pub(super) fn settle(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
        status: Option<LoadBalancerStatus>,
        notes: Vec<Note>,
    ) {
        let wait = self.random.jitter(self.verify_period, VERIFY_JITTER);
        self.memory.update(key, service, |entry| {
            entry.phase = Phase::Settled;
            entry.retry = None;
            entry.status = status;
            entry.notes = notes;
            entry.verify_at = Instant::now() + wait;
        });
    }

    /// A verification repeats no warning that stands already.
    pub(super) fn tell_notes(
        &self,
        key: &ObjectKey,
        service: &Service,
        notes: &[Note],
        quiet: bool,
    ) {
        let known = self.memory.entry(key).map(|entry| entry.notes);
        let known = known.filter(|_| quiet).unwrap_or_default();
        for note in notes.iter().filter(|note| !known.contains(note)) {
            self.events.note(service, note);
        }
    }
}
