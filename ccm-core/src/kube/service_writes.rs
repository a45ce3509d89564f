//! Writes to Services: the finalizer and the load balancer's status.
//!
//! Everything goes to `services/<name>/status`, as the Go manager does it: the permission
//! `services/status` is all that is needed, and the API server resets a spec sent there. Each body
//! carries the UID: a write meant for a Service that was replaced under its name is refused.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};

use super::{Cached as _, LoadBalancerStatus, Service};

/// Writes Services. Cheap to clone.
#[derive(Clone)]
pub struct ServiceWrites {
    client: Client,
}

impl ServiceWrites {
    /// Writes through this client.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Adds a finalizer and leaves the others alone. Answers the Service as it is then, `None`
    /// when it is gone.
    ///
    /// # Errors
    /// The API server refused, or could not be reached.
    pub async fn add_finalizer(
        &self,
        service: &Service,
        finalizer: &str,
    ) -> Result<Option<Service>, kube::Error> {
        let body = adding(service, finalizer);
        self.patch(service, &Patch::Strategic(body)).await
    }

    /// Removes a finalizer and leaves the others alone. Answers the Service as it is then, `None`
    /// when it is gone.
    ///
    /// # Errors
    /// The API server refused, or could not be reached.
    pub async fn remove_finalizer(
        &self,
        service: &Service,
        finalizer: &str,
    ) -> Result<Option<Service>, kube::Error> {
        let body = removing(service, finalizer);
        self.patch(service, &Patch::Strategic(body)).await
    }

    /// Replaces `status.loadBalancer`. Answers the Service as it is then, `None` when it is gone.
    ///
    /// # Errors
    /// The API server refused, or could not be reached.
    pub async fn set_load_balancer(
        &self,
        service: &Service,
        status: &LoadBalancerStatus,
    ) -> Result<Option<Service>, kube::Error> {
        let body = replacing_status(service, status);
        self.patch(service, &Patch::Merge(body)).await
    }

    /// The field managers that set a finalizer, read from the API server: the informer keeps no
    /// `managedFields`. Empty when the Service is gone or was replaced.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub async fn finalizer_managers(
        &self,
        service: &Service,
        finalizer: &str,
    ) -> Result<BTreeSet<String>, kube::Error> {
        let now = self.api(service).get_metadata_opt(service.name()).await?;
        let now = now.filter(|now| now.metadata.uid == service.metadata.uid);
        let entries = now.and_then(|now| now.metadata.managed_fields);
        Ok(managers_of(entries.unwrap_or_default(), finalizer))
    }

    fn api(&self, service: &Service) -> Api<Service> {
        Api::namespaced(self.client.clone(), service.namespace())
    }

    async fn patch(
        &self,
        service: &Service,
        patch: &Patch<Value>,
    ) -> Result<Option<Service>, kube::Error> {
        let answer = self
            .api(service)
            .patch_status(service.name(), &PatchParams::default(), patch)
            .await;
        match answer {
            Ok(mut now) => {
                now.trim();
                Ok(Some(now))
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn metadata(service: &Service) -> Map<String, Value> {
    let mut metadata = Map::new();
    if let Some(uid) = &service.metadata.uid {
        metadata.insert("uid".to_owned(), json!(uid));
    }
    metadata
}

fn finalizers(service: &Service) -> &[String] {
    service.metadata.finalizers.as_deref().unwrap_or_default()
}

/// A strategic merge: the list is merged by value, so finalizers that others add at the same time
/// survive.
fn adding(service: &Service, finalizer: &str) -> Value {
    let mut metadata = metadata(service);
    let before = finalizers(service);
    if !before.is_empty() {
        let order: Vec<&str> = before
            .iter()
            .map(String::as_str)
            .filter(|name| *name != finalizer)
            .chain([finalizer])
            .collect();
        metadata.insert("$setElementOrder/finalizers".to_owned(), json!(order));
    }
    metadata.insert("finalizers".to_owned(), json!([finalizer]));
    json!({ "metadata": metadata })
}

/// Deletes by value, also the last one: upstream sends `null` then, which would take along a
/// finalizer that another controller adds at the same time.
fn removing(service: &Service, finalizer: &str) -> Value {
    let mut metadata = metadata(service);
    metadata.insert(
        "$deleteFromPrimitiveList/finalizers".to_owned(),
        json!([finalizer]),
    );
    let rest: Vec<&String> = finalizers(service)
        .iter()
        .filter(|name| *name != finalizer)
        .collect();
    if !rest.is_empty() {
        metadata.insert("$setElementOrder/finalizers".to_owned(), json!(rest));
    }
    json!({ "metadata": metadata })
}

/// A JSON merge replaces the whole list; `null` clears it.
fn replacing_status(service: &Service, status: &LoadBalancerStatus) -> Value {
    let ingress = status.ingress.as_ref().filter(|list| !list.is_empty());
    json!({
        "metadata": metadata(service),
        "status": { "loadBalancer": { "ingress": ingress } },
    })
}

fn managers_of(entries: Vec<ManagedFieldsEntry>, finalizer: &str) -> BTreeSet<String> {
    let element = format!("v:{}", json!(finalizer));
    let sets_it = |entry: &ManagedFieldsEntry| {
        entry.fields_v1.as_ref().is_some_and(|fields| {
            fields
                .0
                .get("f:metadata")
                .and_then(|metadata| metadata.get("f:finalizers"))
                .is_some_and(|list| list.get(&element).is_some())
        })
    };
    entries
        .into_iter()
        .filter(sets_it)
        .filter_map(|entry| entry.manager)
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;

    use super::*;
    use crate::kube::LoadBalancerIngress;

    const OURS: &str = "service.kubernetes.io/load-balancer-cleanup";

    fn service(finalizers: &[&str]) -> Service {
        let mut service = Service::default();
        service.metadata.uid = Some("u".to_owned());
        service.metadata.finalizers = Some(finalizers.iter().map(|f| (*f).to_owned()).collect());
        service
    }

    /// REQ-SVC-03
    #[test]
    fn finalizer_bodies_are_those_of_the_go_manager_with_the_uid() {
        assert_eq!(
            adding(&service(&[]), OURS),
            json!({"metadata": {"uid": "u", "finalizers": [OURS]}})
        );
        assert_eq!(
            adding(&service(&["foo"]), OURS),
            json!({"metadata": {
                "uid": "u",
                "$setElementOrder/finalizers": ["foo", OURS],
                "finalizers": [OURS],
            }})
        );
        assert_eq!(
            removing(&service(&["foo", OURS]), OURS),
            json!({"metadata": {
                "uid": "u",
                "$deleteFromPrimitiveList/finalizers": [OURS],
                "$setElementOrder/finalizers": ["foo"],
            }})
        );
        assert_eq!(
            removing(&service(&[OURS]), OURS),
            json!({"metadata": {
                "uid": "u",
                "$deleteFromPrimitiveList/finalizers": [OURS],
            }})
        );
    }

    #[test]
    fn a_status_body_replaces_or_clears_the_ingress_list() {
        let status = LoadBalancerStatus {
            ingress: Some(vec![LoadBalancerIngress {
                ip: Some("198.51.100.7".to_owned()),
                ..LoadBalancerIngress::default()
            }]),
        };
        assert_eq!(
            replacing_status(&service(&[]), &status),
            json!({
                "metadata": {"uid": "u"},
                "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}},
            })
        );
        for empty in [None, Some(vec![])] {
            let status = LoadBalancerStatus { ingress: empty };
            assert_eq!(
                replacing_status(&service(&[]), &status)["status"],
                json!({"loadBalancer": {"ingress": null}})
            );
        }
    }

    /// REQ-SVC-45
    #[test]
    fn the_manager_of_one_element_of_the_list_is_found() {
        let entry = |manager: &str, fields: Value| ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        };
        let key = format!("v:\"{OURS}\"");
        let entries = vec![
            entry("kubectl", json!({"f:metadata": {"f:labels": {}}})),
            entry(
                "other",
                json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"foo\"": {}}}}),
            ),
            entry("ccm", json!({"f:metadata": {"f:finalizers": {key: {}}}})),
        ];
        assert_eq!(
            managers_of(entries, OURS),
            BTreeSet::from(["ccm".to_owned()])
        );
    }
}
