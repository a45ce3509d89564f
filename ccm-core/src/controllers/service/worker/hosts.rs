//! Giving a load balancer the current Nodes.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Next, Worker};
use crate::{
    cloud::{CloudError, CloudResult, Updated},
    controllers::service::{
        backends::Backends,
        memory::{Entry, Phase},
    },
    kube::{Node, ObjectKey, Service},
};

impl Worker {
    /// Gives the load balancer the current backends. While an ensure of the Service fails they go
    /// out in the name of the Service that the cloud accepted last.
    pub(super) async fn update_hosts(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
        entry: &Entry,
        backends: &Backends,
    ) -> CloudResult<Next> {
        let nodes = &backends.nodes;
        // Before the call: a set that failed is not tried again by the node loop, the ensure that
        // follows takes the Nodes of its time.
        self.memory.update(key, service, |entry| {
            entry.targets = Some(backends.targets(entry.labels_matter));
            entry.hosts_owed = false;
        });
        self.metrics.syncs.inc();
        let start = Instant::now();
        let accepted = entry.ensured.as_ref();
        let accepted = accepted.filter(|_| entry.phase == Phase::Pending);
        let updated = self.cloud.update(accepted.unwrap_or(service), nodes).await;
        self.metrics
            .update_latency
            .observe(start.elapsed().as_secs_f64());
        let error = match updated {
            Ok(Updated::ImplementedElsewhere { notes }) => {
                self.tell_notes(key, service, &notes, true);
                self.memory
                    .update(key, service, |entry| entry.notes = notes);
                return Ok(Next::Again);
            }
            Ok(Updated::Done { notes }) => {
                for note in &notes {
                    self.events.note(service, note);
                }
                if nodes.is_empty() {
                    self.events.no_nodes(service);
                } else {
                    self.events.updated(service);
                }
                return Ok(Next::Again);
            }
            Err(error) => error,
        };
        if entry.waiting(start).is_some() {
            self.hosts_refused(key, service, nodes, &error);
            return Ok(Next::Again);
        }
        // A cloud that asks for patience is not asked anything now.
        let missing = error.is_not_found()
            || (error.retry_after().is_none() && matches!(self.cloud.get(service).await, Ok(None)));
        self.memory.update(key, service, |entry| {
            entry.phase = Phase::Pending;
            entry.hosts_owed = true;
        });
        if missing {
            // Not a failure of the update, but the Service wants one: it is made again now.
            return Ok(Next::Again);
        }
        self.metrics.node_sync_errors.inc();
        self.events.update_failed(service, nodes, &error);
        match error.retry_after() {
            Some(_) => Err(error),
            None => Ok(Next::Again),
        }
    }

    /// A host update failed while an ensure backs off: the back-off stays as it is, or becomes as
    /// long as the cloud asks.
    pub(super) fn hosts_refused(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
        nodes: &[Arc<Node>],
        error: &CloudError,
    ) {
        let patience = error.retry_after().map(|after| Instant::now() + after);
        self.memory.update(key, service, |entry| {
            entry.hosts_owed = true;
            if let (Some(until), Some(retry)) = (patience, &mut entry.retry) {
                retry.at = retry.at.max(until);
                retry.hosts = false;
            }
        });
        self.metrics.node_sync_errors.inc();
        self.events.update_failed(service, nodes, error);
    }
}
