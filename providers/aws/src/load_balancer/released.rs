//! Services that another controller serves by now although we made a load balancer for them
//! (REQ-AWS-DIV-4).
//!
//! The annotation is also the way to detach a load balancer and keep it. So nothing is removed
//! unless the cloud config says so, and then only what name **and** tags call ours. Whether there
//! may be something is told without a call: by the host name in the status, or because this
//! process made it or began to remove it.

use std::collections::BTreeSet;

use ccm_core::{
    cloud::{Class, CloudError, CloudResult, LoadBalancerName, Note},
    kube::Service,
};

use super::{
    AwsLoadBalancers, nlb::desired::KIND, other_kind::tolerated, preflight, remove::shown,
};
use crate::{annotations, notes, tags::Tags};

/// The key of the cloud config that decides.
const SWITCH: &str = "DeleteReleasedLoadBalancers";

impl AwsLoadBalancers {
    /// Removes what is ours, or says that it stays.
    pub(super) async fn ensure_released(&self, service: &Service) -> CloudResult<Vec<Note>> {
        if self.is_to_remove(service).await? {
            self.remove(service).await?;
        }
        Ok(self.released_note(service).into_iter().collect())
    }

    /// Says that a load balancer of ours stays. No call.
    pub(super) fn released_note(&self, service: &Service) -> Option<Note> {
        let name = preflight::name(service).ok()?;
        if self.settings.delete_released || !shows(service, &name) {
            return None;
        }
        Some(Note {
            reason: notes::RELEASED,
            message: format!(
                "the annotation {} gives this Service to another controller: load balancer {name}, \
                 which was made for it, stays and is not looked after any more; delete it by hand, \
                 or set {SWITCH} = true in the cloud config to have such load balancers removed",
                annotations::TYPE.key
            ),
        })
    }

    /// Whether there may be something of ours that is to go. Without any hint no call is made.
    pub(super) async fn is_to_remove(&self, service: &Service) -> CloudResult<bool> {
        if !self.settings.delete_released {
            return Ok(false);
        }
        let Ok(name) = preflight::name(service) else {
            return Ok(false);
        };
        // The status is cleared before the deletion, which may be finished by another process.
        let may_be_half_deleted = service.is_deleting() && service.ingress().is_empty();
        if !shows(service, &name) && !self.memories.is_known(&name) && !may_be_half_deleted {
            return Ok(false);
        }
        self.is_free_or_ours(service, &name).await
    }

    /// Whether the name belongs to no load balancer or to one whose tags name the Service and the
    /// cluster. Of any other nothing is touched, not even rules that carry its name.
    async fn is_free_or_ours(
        &self,
        service: &Service,
        name: &LoadBalancerName,
    ) -> CloudResult<bool> {
        let classic = self.classic.observer.find(name.as_str()).await;
        if tolerated("classic", classic)?.is_some() {
            let answer = self.classic.observer.elb.tags(name.as_str()).await;
            let tags = answer.map_err(|error| cannot_tell(error, name))?;
            return Ok(self.is_ours(service, name, &tags));
        }
        let Some(lb) = self.observer.elb.load_balancer(name.as_str()).await? else {
            return Ok(true);
        };
        if lb.kind != KIND {
            return Ok(false);
        }
        let arns = BTreeSet::from([lb.arn.clone()]);
        let answer = self.observer.elb.resource_tags(&arns).await;
        let tags = answer.map_err(|error| cannot_tell(error, name))?;
        Ok(self.is_ours(service, name, shown(&tags, &lb)?))
    }

    fn is_ours(&self, service: &Service, name: &LoadBalancerName, tags: &Tags) -> bool {
        let key = preflight::service_key(service);
        let ours = self.observer.is_of_service(tags, &key);
        if !ours {
            tracing::warn!(
                service = key,
                load_balancer = %name,
                "load balancer is kept: its tags do not name this Service and cluster"
            );
        }
        ours
    }
}

fn cannot_tell(error: CloudError, name: &LoadBalancerName) -> CloudError {
    let hint = if error.class() == Class::Denied {
        format!(" (allow elasticloadbalancing:DescribeTags or switch {SWITCH} off)")
    } else {
        String::new()
    };
    error.map_message(|inner| format!("error reading whose load balancer {name} is{hint}: {inner}"))
}

/// Whether the status names the load balancer.
fn shows(service: &Service, name: &LoadBalancerName) -> bool {
    let prefix = format!("{name}-");
    service
        .ingress()
        .iter()
        .filter_map(|ingress| ingress.hostname.as_deref())
        // An internal classic load balancer says so first.
        .map(|host| host.strip_prefix("internal-").unwrap_or(host))
        .any(|host| host.starts_with(&prefix))
}
