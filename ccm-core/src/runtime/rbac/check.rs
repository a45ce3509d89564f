//! The check at start: what is missing is said at once, not when it is needed.
//!
//! A missing permission is otherwise silent for long: without `delete` on Nodes, for example, dead
//! Nodes just stay. The check never stops the process: the answers may be wrong behind a webhook,
//! and a permission may be given later.

use std::{fmt, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use prometheus::{IntGaugeVec, Opts, Registry};

use super::table::Permission;
use crate::kube::error_chain;

/// Questions at a time: the check competes with the first lists.
const AT_ONCE: usize = 4;

/// All questions together: it is a help, not a condition.
const WITHIN: Duration = Duration::from_secs(30);

/// Something that the API server does not allow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// The verb.
    pub verb: &'static str,
    /// The API group, empty for core.
    pub group: &'static str,
    /// With its subresource: `nodes/status`.
    pub resource: &'static str,
    /// Empty is the whole cluster.
    pub namespace: String,
    /// Empty is every object.
    pub name: String,
    /// For what it is needed.
    pub why: &'static str,
}

impl fmt::Display for Missing {
    /// `update leases.coordination.k8s.io kube-system/cloud-controller-manager`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.qualified())?;
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, "") => write!(f, " in {namespace}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

impl Missing {
    /// The resource with its group, as `kubectl auth can-i` takes it.
    fn qualified(&self) -> String {
        let (plural, subresource) = split(self.resource);
        let dot = if self.group.is_empty() { "" } else { "." };
        let slash = if subresource.is_empty() { "" } else { "/" };
        format!("{plural}{dot}{}{slash}{subresource}", self.group)
    }

    fn attributes(&self) -> ResourceAttributes {
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (plural, subresource) = split(self.resource);
        ResourceAttributes {
            verb: filled(self.verb),
            group: filled(self.group),
            resource: filled(plural),
            subresource: filled(subresource),
            namespace: filled(&self.namespace),
            name: filled(&self.name),
            ..ResourceAttributes::default()
        }
    }
}

fn split(resource: &str) -> (&str, &str) {
    resource.split_once('/').unwrap_or((resource, ""))
}

/// One question for each verb and each name.
fn questions(permissions: &[Permission]) -> Vec<Missing> {
    let mut questions = Vec::new();
    for permission in permissions {
        let all = [String::new()];
        let names = if permission.names.is_empty() {
            &all[..]
        } else {
            &permission.names
        };
        for verb in &permission.verbs {
            questions.extend(names.iter().map(|name| Missing {
                verb,
                group: permission.group,
                resource: permission.resource,
                namespace: permission.namespace.clone().unwrap_or_default(),
                name: name.clone(),
                why: permission.why,
            }));
        }
    }
    questions
}

/// Asks the API server which of the permissions the client's identity lacks; four questions at a
/// time, thirty seconds at most. A question without an answer counts as allowed: it is logged.
/// Give the permissions of the client's identity only.
pub async fn check_permissions(client: Client, permissions: &[Permission]) -> Vec<Missing> {
    let api: Api<SelfSubjectAccessReview> = Api::all(client);
    let mut missing = Vec::new();
    let mut problem = None;
    let asked = stream::iter(questions(permissions)).map(|question| {
        let api = &api;
        async move {
            let answer = may(api, &question).await;
            (question, answer)
        }
    });
    let mut answers = asked.buffered(AT_ONCE);
    let all = async {
        while let Some((question, answer)) = answers.next().await {
            match answer {
                Ok(true) => {}
                Ok(false) => missing.push(question),
                Err(error) => problem = Some(error_chain(&error)),
            }
        }
    };
    if tokio::time::timeout(WITHIN, all).await.is_err() {
        problem = Some(format!("no answer within {} seconds", WITHIN.as_secs()));
    }
    if let Some(error) = problem {
        tracing::warn!(error, "not all permissions could be checked");
    }
    missing
}

async fn may(api: &Api<SelfSubjectAccessReview>, question: &Missing) -> kube::Result<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(question.attributes()),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_none_or(|status| status.allowed))
}

/// The check with its metric and log.
#[derive(Clone)]
pub struct PermissionCheck(IntGaugeVec);

impl PermissionCheck {
    /// Registers `ccm_missing_permissions{verb,resource,namespace}`.
    ///
    /// # Errors
    /// It is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = IntGaugeVec::new(
            Opts::new(
                "ccm_missing_permissions",
                "1 for each permission that the API server denied when the process started.",
            ),
            &["verb", "resource", "namespace"],
        )?;
        registry.register(Box::new(gauge.clone()))?;
        Ok(Self(gauge))
    }

    /// Asks, then logs an error and sets the metric for each permission that is missing. `owner`
    /// names the client's identity in the log: `the manager`, `node-controller`.
    pub async fn run(
        &self,
        client: Client,
        owner: &str,
        permissions: &[Permission],
    ) -> Vec<Missing> {
        let missing = check_permissions(client, permissions).await;
        for permission in &missing {
            self.set(permission);
            tracing::error!(
                owner,
                %permission,
                needed_for = permission.why,
                "permission missing: grant it, see docs/reference/rbac.md"
            );
        }
        if missing.is_empty() {
            tracing::info!(owner, "no permission is missing");
        }
        missing
    }

    fn set(&self, missing: &Missing) {
        let resource = missing.qualified();
        let labels = [missing.verb, resource.as_str(), missing.namespace.as_str()];
        self.0.with_label_values(&labels).set(1);
    }
}

/// Registers the series with one sample, for the reference.
pub(in crate::runtime) fn sample_metrics(registry: &Registry) -> prometheus::Result<()> {
    PermissionCheck::new(registry)?.set(&Missing {
        verb: "get",
        group: "",
        resource: "nodes",
        namespace: String::new(),
        name: String::new(),
        why: "",
    });
    Ok(())
}
