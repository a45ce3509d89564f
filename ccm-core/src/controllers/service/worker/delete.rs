//! Removing a load balancer, then letting go of its Service.

use std::sync::Arc;

use super::{Next, Worker, object::api_error};
use crate::{
    cloud::CloudResult,
    controllers::service::{
        memory::{Entry, Phase},
        predicates::{
            CLEANUP_FINALIZER, has_cleanup_finalizer, is_load_balancer, wants_load_balancer,
        },
        sync::is_leaving,
    },
    kube::{ObjectKey, Service},
};

/// Field managers under which our finalizer may have been set: this binary and the Go managers
/// that it replaces.
pub(crate) const OWN_MANAGERS: [&str; 2] =
    ["cloud-controller-manager", "aws-cloud-controller-manager"];

impl Worker {
    /// Deletes what the cloud has of the Service, then lets go of the object. Of a Service of
    /// another class only what is ours is deleted and the status is never written.
    pub(super) async fn delete(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
    ) -> CloudResult<Next> {
        let foreign = is_load_balancer(service) && !wants_load_balancer(service);
        let found = self.cloud.get(service).await.map_err(|error| {
            error.context("failed to check if load balancer exists before cleanup")
        })?;
        if found.is_some() {
            // The Service may have changed its mind meanwhile; nothing was deleted yet.
            let latest = self.memory.latest(key, &self.services);
            if latest.is_some_and(|now| now.uid() == service.uid() && !is_leaving(&now)) {
                return Ok(Next::Again);
            }
            self.begin_delete(key, service);
            if !foreign {
                // Before the delete: an address that is given up may be somebody else's at once.
                self.clear_status(key, service).await?;
            }
            self.delete_in_cloud(service).await?;
        }
        // Also what an earlier try deleted.
        let owned = self
            .memory
            .entry(key)
            .is_some_and(|entry| entry.phase == Phase::Deleting);
        if !foreign || owned || self.may_let_go(service).await? {
            let remains = self.remove_finalizer(key, service).await?;
            if !foreign || owned {
                self.events.deleted(service);
            }
            if remains && !foreign {
                self.clear_status(key, service).await?;
            }
        }
        self.memory.drop_entry(key);
        Ok(Next::Stop)
    }

    /// Whether our finalizer may leave a Service of another class of which we own nothing: only
    /// if we set it and it holds up the deletion.
    pub(super) async fn may_let_go(&self, service: &Service) -> CloudResult<bool> {
        if !service.is_deleting() || !has_cleanup_finalizer(service) {
            return Ok(false);
        }
        let managers = self
            .writes
            .finalizer_managers(service, CLEANUP_FINALIZER)
            .await
            .map_err(|error| {
                api_error(error)
                    .context("failed to read who set the load balancer cleanup finalizer")
            })?;
        Ok(OWN_MANAGERS.iter().any(|own| managers.contains(*own)))
    }

    /// The Service wants a load balancer again after a delete was sent: what was begun is
    /// finished, so that nothing half-deleted and no freed address is taken for the new one.
    pub(super) async fn finish_delete(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
    ) -> CloudResult<Next> {
        self.delete_in_cloud(service).await?;
        self.events.deleted(service);
        self.memory.drop_entry(key);
        Ok(Next::Again)
    }

    pub(super) async fn delete_remembered(
        &self,
        key: &ObjectKey,
        entry: &Entry,
    ) -> CloudResult<Next> {
        self.begin_delete(key, &entry.service);
        if let Err(error) = self.cloud.delete(&entry.service).await {
            self.events.delete_failed(&entry.service, &error);
            return Err(error);
        }
        self.events.deleted(&entry.service);
        self.memory.drop_entry(key);
        Ok(Next::Again)
    }

    /// Remembers that a delete goes out. Told once, not with each try.
    pub(super) fn begin_delete(&self, key: &ObjectKey, service: &Arc<Service>) {
        let mut first = true;
        self.memory.update(key, service, |entry| {
            first = entry.phase != Phase::Deleting;
            entry.phase = Phase::Deleting;
            entry.status = None;
        });
        if first {
            self.events.deleting(service);
        }
    }

    pub(super) async fn delete_in_cloud(&self, service: &Service) -> CloudResult<()> {
        let deleted = self.cloud.delete(service).await;
        deleted.map_err(|error| error.context("failed to delete load balancer"))
    }
}
