//! Who asks: a proxy's word, a client certificate, a bearer token, else nobody in particular
//! (specification: controllers §7.4).

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderMap, header::AUTHORIZATION};
use rustls::pki_types::{CertificateDer, UnixTime};
use serde::{Deserialize, Serialize};

use super::{
    DelegatedMetrics, ServingError,
    answers::key_of,
    identity::Identity,
    reviews::Reviews,
    trusts::{Looks, TrustSources},
};
use crate::{
    config::AuthenticationSettings,
    runtime::{Clock, Random},
};

/// Where tokens are reviewed.
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Tells who sends a request. Cheap to clone.
#[derive(Clone)]
pub struct Authenticator(Arc<Inner>);

struct Inner {
    trusts: TrustSources,
    looks: Mutex<Option<Looks>>,
    tokens: Option<Reviews<Option<Identity>>>,
    token_cache: Duration,
    clock: Clock,
}

/// `TokenReview`, as asked. Not `Debug`: it holds the token.
#[derive(Serialize)]
struct Question<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    spec: TokenSpec<'a>,
}

#[derive(Serialize)]
struct TokenSpec<'a> {
    token: &'a str,
}

/// `TokenReview`, as answered.
#[derive(Deserialize)]
struct Answer {
    status: TokenStatus,
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: TokenUser,
}

#[derive(Default, Deserialize)]
struct TokenUser {
    #[serde(default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

impl Authenticator {
    /// Reads the authorities of client certificates. `client` asks for reviews and for the
    /// configmap `kube-system/extension-apiserver-authentication`; without one, tokens are not
    /// looked at and only the files of the flags count.
    ///
    /// # Errors
    /// A file that cannot be used, or the configmap cannot be read and that is not tolerated.
    pub async fn start(
        settings: &AuthenticationSettings,
        client: Option<kube::Client>,
        clock: Clock,
        random: Random,
        metrics: &DelegatedMetrics,
    ) -> Result<Self, ServingError> {
        if client.is_none() {
            tracing::warn!(
                "no client for authentication: bearer tokens are not looked at; run in a pod, or \
                 give --authentication-kubeconfig"
            );
        }
        let tokens = client.clone().map(|client| {
            let metrics = metrics.authentication.clone();
            Reviews::new(REVIEWS, client, random.clone(), metrics)
        });
        let (trusts, looks) = TrustSources::start(settings, client, random).await?;
        Ok(Self(Arc::new(Inner {
            trusts,
            looks: Mutex::new(Some(looks)),
            tokens,
            token_cache: settings.token_cache,
            clock,
        })))
    }

    /// Keeps the authorities up to date. Never ends; only the first call works.
    pub(super) async fn keep_current(&self) {
        let looks = {
            let mut looks = self.0.looks.lock().unwrap_or_else(PoisonError::into_inner);
            looks.take()
        };
        match looks {
            Some(looks) => self.0.trusts.keep_current(looks).await,
            None => std::future::pending().await,
        }
    }

    /// The sender of a request. Credentials that fail are an error, whose text is for the log,
    /// unless others of the same request hold; without any the sender is anonymous.
    pub(super) async fn identity(
        &self,
        chain: &[CertificateDer<'_>],
        headers: &HeaderMap,
    ) -> Result<Identity, String> {
        let trusts = self.0.trusts.now();
        let now = self.now();
        let by_proxy = trusts.proxy.iter().map(|p| p.identity(chain, headers, now));
        let by_name = trusts.client.iter().map(|trust| trust.identity(chain, now));
        let mut problems = Vec::new();
        for told in by_proxy.chain(by_name) {
            match told {
                Ok(Some(identity)) => return Ok(identity.authenticated()),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if let Some((tokens, token)) = self.0.tokens.as_ref().zip(bearer_token(headers)) {
            match self.review(tokens, token).await {
                Ok(identity) => return Ok(identity.authenticated()),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            Ok(Identity::anonymous())
        } else {
            Err(problems.join("; "))
        }
    }

    async fn review(
        &self,
        tokens: &Reviews<Option<Identity>>,
        token: &str,
    ) -> Result<Identity, String> {
        let question = Question {
            api_version: "authentication.k8s.io/v1",
            kind: "TokenReview",
            spec: TokenSpec { token },
        };
        let read = |answer: Answer| (answer.status.identity(), self.0.token_cache);
        match tokens
            .answer(key_of(token.as_bytes()), &question, read)
            .await
        {
            Ok(Some(identity)) => Ok(identity),
            Ok(None) => Err("the bearer token is invalid".to_owned()),
            Err(error) => Err(format!("the bearer token cannot be reviewed: {error}")),
        }
    }

    fn now(&self) -> UnixTime {
        let since = u64::try_from(self.0.clock.now().as_second()).unwrap_or_default();
        UnixTime::since_unix_epoch(Duration::from_secs(since))
    }
}

impl TokenStatus {
    fn identity(self) -> Option<Identity> {
        self.authenticated.then_some(Identity {
            user: self.user.username,
            uid: self.user.uid,
            groups: self.user.groups,
            extra: self.user.extra,
        })
    }
}

/// The token of `Authorization: Bearer …`; `None` without a header of that form.
pub fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let mut parts = value.trim().splitn(3, ' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_the_second_word() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            (" bearer abc def", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            assert_eq!(bearer_token(&headers), token, "{value}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }
}
