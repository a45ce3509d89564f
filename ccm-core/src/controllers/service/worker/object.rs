//! Writing a Service: its finalizer and its status.

use std::sync::Arc;

use super::{Next, Worker};
use crate::{
    cloud::{CloudError, CloudResult},
    controllers::service::{
        predicates::{CLEANUP_FINALIZER, has_cleanup_finalizer},
        status,
        sync::is_leaving,
    },
    kube::{LoadBalancerStatus, ObjectKey, Service},
};

impl Worker {
    /// The Service with the finalizer; `None` when it is gone.
    pub(super) async fn add_finalizer(
        &self,
        key: &ObjectKey,
        service: &Service,
    ) -> CloudResult<Option<Arc<Service>>> {
        let answer = self.writes.add_finalizer(service, CLEANUP_FINALIZER).await;
        let answer = answer.map_err(|error| {
            api_error(error).context("failed to add load balancer cleanup finalizer")
        })?;
        let Some(now) = answer.map(|now| self.keep(key, now)) else {
            return Ok(None);
        };
        if !is_leaving(&now) && !has_cleanup_finalizer(&now) {
            return Err(CloudError::transient(
                "failed to add load balancer cleanup finalizer: the API server did not keep it",
            ));
        }
        Ok(Some(now))
    }

    /// Whether the object remains.
    pub(super) async fn remove_finalizer(
        &self,
        key: &ObjectKey,
        service: &Service,
    ) -> CloudResult<bool> {
        if !has_cleanup_finalizer(service) {
            return Ok(true);
        }
        let answer = self
            .writes
            .remove_finalizer(service, CLEANUP_FINALIZER)
            .await;
        let answer = answer.map_err(|error| {
            api_error(error).context("failed to remove load balancer cleanup finalizer")
        })?;
        Ok(answer.is_some_and(|now| {
            let now = self.keep(key, now);
            let held = now.metadata.finalizers.as_ref();
            !now.is_deleting() || held.is_some_and(|held| !held.is_empty())
        }))
    }

    pub(super) async fn clear_status(
        &self,
        key: &ObjectKey,
        service: &Service,
    ) -> CloudResult<Next> {
        self.publish(key, service, LoadBalancerStatus::default())
            .await
    }

    /// Writes the status if the Service still is the same, still has use for it, and shows another.
    /// Says stop when the object is gone.
    pub(super) async fn publish(
        &self,
        key: &ObjectKey,
        service: &Service,
        status: LoadBalancerStatus,
    ) -> CloudResult<Next> {
        let Some(latest) = self.memory.latest(key, &self.services) else {
            return Ok(Next::Again);
        };
        let unwanted = !status::is_empty(&status) && is_leaving(&latest);
        if latest.uid() != service.uid()
            || unwanted
            || status::equal(&latest.status.load_balancer, &status)
        {
            return Ok(Next::Again);
        }
        let answer = self.writes.set_load_balancer(&latest, &status).await;
        let answer = answer
            .map_err(|error| api_error(error).context("failed to update load balancer status"))?;
        Ok(answer.map_or(Next::Stop, |now| {
            self.keep(key, now);
            Next::Again
        }))
    }

    pub(super) fn shows(&self, key: &ObjectKey, status: &LoadBalancerStatus) -> bool {
        let latest = self.memory.latest(key, &self.services);
        latest.is_some_and(|latest| status::equal(&latest.status.load_balancer, status))
    }

    pub(super) fn keep(&self, key: &ObjectKey, answer: Service) -> Arc<Service> {
        let answer = Arc::new(answer);
        self.memory.wrote(key, Arc::clone(&answer), &self.services);
        answer
    }
}

/// An error of the API server with the text for the user.
pub(super) fn api_error(error: kube::Error) -> CloudError {
    let text = match &error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    };
    CloudError::transient(text).with_source(error)
}
