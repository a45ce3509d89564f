//! Whether the sender of a request may do it (specification: controllers §7.4).

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    DelegatedMetrics, answers::key_of, exchange::ExchangeError, identity::Identity,
    reviews::Reviews,
};
use crate::{config::AuthorizationSettings, runtime::Random};

/// Where accesses are reviewed.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Members may do everything.
const MASTERS: &str = "system:masters";

/// Says whether a request may be answered. Cheap to clone.
#[derive(Clone)]
pub struct Authorizer(Arc<Inner>);

struct Inner {
    always_allow: Vec<String>,
    reviews: Option<Reviews<Decision>>,
    allow_cache: Duration,
    deny_cache: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Allow,
    /// With the API server's reason, which may be empty.
    Deny(String),
}

/// `SubjectAccessReview`, as asked.
#[derive(Serialize)]
struct Question<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    #[serde(flatten)]
    who: &'a Identity,
    #[serde(rename = "nonResourceAttributes")]
    what: What<'a>,
}

#[derive(Serialize)]
struct What<'a> {
    path: &'a str,
    verb: &'a str,
}

/// `SubjectAccessReview`, as answered.
#[derive(Deserialize)]
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    reason: String,
}

impl Authorizer {
    /// An authorizer that asks `client`; without one, only what is always allowed is allowed.
    pub fn new(
        settings: &AuthorizationSettings,
        client: Option<kube::Client>,
        random: Random,
        metrics: &DelegatedMetrics,
    ) -> Self {
        if client.is_none() {
            tracing::warn!(
                "no client for authorization: only --authorization-always-allow-paths are \
                 answered; run in a pod, or give --authorization-kubeconfig"
            );
        }
        let reviews = client.map(|client| {
            let metrics = metrics.authorization.clone();
            Reviews::new(REVIEWS, client, random, metrics)
        });
        Self(Arc::new(Inner {
            always_allow: settings.always_allow.clone(),
            reviews,
            allow_cache: settings.allow_cache,
            deny_cache: settings.deny_cache,
        }))
    }

    /// The decision about `verb` (lower case) on `path`.
    pub(super) async fn decide(
        &self,
        who: &Identity,
        verb: &str,
        path: &str,
    ) -> Result<Decision, ExchangeError> {
        if who.groups.iter().any(|group| group == MASTERS) || is_exempt(&self.0.always_allow, path)
        {
            return Ok(Decision::Allow);
        }
        let Some(reviews) = &self.0.reviews else {
            return Ok(Decision::Deny(String::new()));
        };
        let question = Question {
            api_version: "authorization.k8s.io/v1",
            kind: "SubjectAccessReview",
            spec: Spec {
                who,
                what: What { path, verb },
            },
        };
        let text = serde_json::to_vec(&question.spec)
            .map_err(|_| ExchangeError::Unreadable("the question has no JSON form"))?;
        let read = |answer: Answer| {
            if answer.status.allowed {
                (Decision::Allow, self.0.allow_cache)
            } else {
                (Decision::Deny(answer.status.reason), self.0.deny_cache)
            }
        };
        reviews.answer(key_of(&text), &question, read).await
    }
}

/// Whether a path is one of `--authorization-always-allow-paths`: exact, or a prefix when that
/// ends in `*`. A leading slash makes no difference, as upstream.
fn is_exempt(always_allow: &[String], path: &str) -> bool {
    let path = path.strip_prefix('/').unwrap_or(path);
    always_allow.iter().any(|allowed| {
        let allowed = allowed.strip_prefix('/').unwrap_or(allowed);
        match allowed.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == allowed,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exempt_paths_are_exact_or_prefixes() {
        let paths = ["/healthz".to_owned(), "debug/*".to_owned()];
        for (path, exempt) in [
            ("/healthz", true),
            ("/healthz/ping", false),
            ("/healthz2", false),
            ("/debug/flags/v", true),
            ("/debug", false),
            ("/metrics", false),
        ] {
            assert_eq!(is_exempt(&paths, path), exempt, "{path}");
        }
        assert!(!is_exempt(&[], "/healthz"));
        assert!(is_exempt(&["*".to_owned()], "/metrics"));
    }
}
