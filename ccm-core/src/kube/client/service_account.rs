//! `--use-service-account-credentials`: tokens of one service account per controller
//! (REQ-APP-22, specification: controllers §7.5).

use std::{future::Future, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Namespace, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};
use tokio::time::Instant;

use super::{
    super::informer::error_chain,
    token::{Token, TokenSource, bearer},
};
use crate::runtime::Clock;

/// Where the controllers' accounts live.
pub(super) const NAMESPACE: &str = "kube-system";

/// The life that is asked for, in seconds.
const LIFE_SECONDS: i64 = 3600;

/// A shorter rest of life is taken for a clock that is wrong.
const SHORTEST_LIFE: Duration = Duration::from_secs(10 * 60);

/// Tries of one renewal, as in the Go managers.
const TRIES: u32 = 4;

/// The wait after the first failed try; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// All tries of one renewal: requests wait for it when the old token has expired.
const WITHIN: Duration = Duration::from_secs(60);

/// Asks the API server for tokens, with the manager's own identity.
pub(super) struct ServiceAccountTokens {
    client: Client,
    name: String,
    clock: Clock,
}

impl ServiceAccountTokens {
    pub(super) fn new(client: Client, name: &str, clock: Clock) -> Self {
        Self {
            client,
            name: name.to_owned(),
            clock,
        }
    }

    async fn ask(&self) -> kube::Result<Token> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        self.create_if_missing(&accounts).await?;
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(LIFE_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(&self.name, &PostParams::default(), &request)
            .await?;
        let Some(status) = answer.status else {
            let problem = "the API server answered the token request without a token";
            return Err(kube::Error::Service(problem.into()));
        };
        let life = life(self.clock.now(), status.expiration_timestamp.0);
        let now = Instant::now();
        Ok(Token {
            header: bearer(&status.token)
                .map_err(|problem| kube::Error::Service(problem.into()))?,
            renew_at: now + life.mul_f64(0.8),
            valid_until: Some(now + life),
        })
    }

    async fn create_if_missing(&self, accounts: &Api<ServiceAccount>) -> kube::Result<()> {
        if accounts.get_metadata_opt(&self.name).await?.is_some() {
            return Ok(());
        }
        match self.create(accounts).await {
            // The namespace is not there. Every cluster has it, so that it is not looked for
            // before, and no permission for it is needed.
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.create_namespace().await;
                self.create(accounts).await
            }
            answer => answer,
        }
    }

    async fn create(&self, accounts: &Api<ServiceAccount>) -> kube::Result<()> {
        let account = ServiceAccount {
            metadata: named(&self.name),
            ..ServiceAccount::default()
        };
        match accounts.create(&PostParams::default(), &account).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// A failure is told here, and by the creation of the account.
    async fn create_namespace(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = Namespace {
            metadata: named(NAMESPACE),
            ..Namespace::default()
        };
        match namespaces.create(&PostParams::default(), &namespace).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(namespace = NAMESPACE, error, "namespace not created");
            }
        }
    }
}

#[async_trait]
impl TokenSource for ServiceAccountTokens {
    fn owner(&self) -> String {
        format!("service account {NAMESPACE}/{}", self.name)
    }

    async fn fetch(&self) -> Result<Token, String> {
        tokio::time::timeout(WITHIN, several_times(|| self.ask()))
            .await
            .unwrap_or_else(|_| Err(format!("not within {} seconds", WITHIN.as_secs())))
    }
}

async fn several_times<F>(mut attempt: impl FnMut() -> F) -> Result<Token, String>
where
    F: Future<Output = kube::Result<Token>>,
{
    let mut wait = FIRST_WAIT;
    let mut tries = 1;
    loop {
        match attempt().await {
            Ok(token) => return Ok(token),
            Err(error) if tries >= TRIES => return Err(error_chain(&error)),
            Err(error) => {
                let error = error_chain(&error);
                tracing::debug!(tries, error, "token request failed");
            }
        }
        tokio::time::sleep(wait).await;
        tries += 1;
        wait *= 2;
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

/// How long a token lives from now on. Clocks may differ: never less than ten minutes.
fn life(now: Timestamp, until: Timestamp) -> Duration {
    let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
    left.max(SHORTEST_LIFE)
}

#[cfg(test)]
mod tests {
    use ccm_kubesim::{Fault, KubeSim, Options, Target, Verb};
    use http::{Method, Request, StatusCode};
    use kube::client::Body;
    use tower::ServiceExt as _;

    use super::{super::token::Tokens, *};

    fn tokens(sim: &KubeSim) -> Tokens {
        let client = Client::new(sim.service(), "default");
        let clock = Clock::anchored(sim.now());
        Tokens::new(ServiceAccountTokens::new(client, "node-controller", clock))
    }

    fn token_requests(sim: &KubeSim) -> u64 {
        sim.requests().sum(|key| key.subresource == "token")
    }

    /// REQ-APP-22
    #[tokio::test(start_paused = true)]
    async fn the_account_is_created_once_and_its_token_renewed_at_four_fifths() {
        let sim = KubeSim::new(Options::default());
        let tokens = tokens(&sim);
        let first = tokens.header().await.unwrap();
        assert!(
            sim.get("serviceaccounts", NAMESPACE, "node-controller")
                .is_some()
        );
        tokio::time::advance(Duration::from_secs(2879)).await;
        assert_eq!(tokens.header().await.unwrap(), first);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_ne!(tokens.header().await.unwrap(), first);
        assert_eq!(sim.requests().count(Verb::Create, "serviceaccounts"), 1 + 2);
        assert_eq!(token_requests(&sim), 2);
    }

    /// REQ-APP-22
    #[tokio::test(start_paused = true)]
    async fn a_missing_namespace_is_created() {
        let sim = KubeSim::new(Options::default());
        let (server, path) = (
            sim.service(),
            format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
        );
        // The simulated server never lets go of this namespace: the first create is answered as if.
        let mut missing = true;
        let without = tower::service_fn(move |request: Request<Body>| {
            let refused = request.method() == Method::POST && request.uri().path() == path;
            let refused = refused && std::mem::take(&mut missing);
            let answer = server.clone().oneshot(request);
            async move {
                let mut answer = answer.await?;
                if refused {
                    *answer.status_mut() = StatusCode::NOT_FOUND;
                    let status = kube::core::Status::failure("missing", "NotFound").with_code(404);
                    *answer.body_mut() = serde_json::to_vec(&status).unwrap().into();
                }
                Ok::<_, ccm_kubesim::ConnectionError>(answer)
            }
        });
        let client = Client::new(without, "default");
        let clock = Clock::anchored(sim.now());
        let source = ServiceAccountTokens::new(client, "node-controller", clock);
        Tokens::new(source).header().await.unwrap();
        assert_eq!(sim.requests().count(Verb::Create, "namespaces"), 1);
    }

    /// REQ-APP-22
    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_is_there_is_not_asked_for() {
        let sim = KubeSim::new(Options::default());
        tokens(&sim).header().await.unwrap();
        for verb in [Verb::Get, Verb::Create] {
            assert_eq!(sim.requests().count(verb, "namespaces"), 0);
        }
    }

    /// REQ-APP-22
    #[tokio::test(start_paused = true)]
    async fn a_failing_token_request_is_tried_four_times_with_doubling_waits() {
        let sim = KubeSim::new(Options::default());
        let target = Target::new(Verb::Create, "serviceaccounts").subresource("token");
        sim.faults().fail_next(3, target.clone(), Fault::Internal);
        let start = Instant::now();
        tokens(&sim).header().await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_millis(3500));
        assert_eq!(token_requests(&sim), 4);

        sim.faults().fail_next(4, target, Fault::Internal);
        let error = tokens(&sim).header().await.unwrap_err().to_string();
        assert!(
            error.starts_with("no token for service account kube-system/node-controller: "),
            "{error}"
        );
        assert_eq!(token_requests(&sim), 8);
    }

    /// REQ-APP-22
    #[test]
    fn a_life_is_never_taken_for_less_than_ten_minutes() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        for (until, seconds) in [
            ("2026-01-01T13:00:00Z", 3600),
            ("2026-01-01T12:10:01Z", 601),
            ("2026-01-01T12:00:05Z", 600),
            ("2025-01-01T12:00:00Z", 600),
        ] {
            assert_eq!(
                life(now, until.parse().unwrap()).as_secs(),
                seconds,
                "{until}"
            );
        }
    }
}
