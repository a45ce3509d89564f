//! Clients for the API server: where it is, who we are, and bounds on every request
//! (specification: controllers §7.5).
//!
//! The order of precedence is that of the Go library: `--kubeconfig` (with `--master` over its
//! server), `--master` alone, the pod's service account. No proxy variable of the environment is
//! looked at. Files of tokens are read again by us, not by the client library: it would not trim
//! them, not read them earlier when the server refuses the token, and prefer a token that stands
//! in the kubeconfig itself. Its own retries are off: see [`retry`].

mod agent;
mod body;
mod guard;
mod load;
mod metrics;
mod retry;
mod service_account;
mod throttle;
mod token;
mod token_file;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderValue, header::USER_AGENT};
use kube::{Client, Config, client::ClientBuilder, config::AuthInfo};
use tokio::sync::Semaphore;
use tower::buffer::BufferLayer;

pub(crate) use self::metrics::sample_client_metrics;
use self::{
    agent::user_agent,
    guard::{Guard, GuardLayer, Within},
    metrics::Series,
    service_account::{NAMESPACE, ServiceAccountTokens},
    throttle::Throttle,
    token::Tokens,
    token_file::TokenFile,
};
use super::informer::{WATCH_SECONDS, error_chain};
use crate::{
    config::{ApiRate, ApiSettings},
    runtime::{BuildInfo, Clock, Fence},
};

/// A dead address must not hold a request for the kernel's time-out.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// One try of a request. The server itself ends all but watches after a minute.
const WITHIN: Within = Within {
    head: Duration::from_secs(30),
    body: Duration::from_secs(60),
};

/// A review that hangs would hang the caller of the metrics endpoint.
const REVIEWS_WITHIN: Within = Within {
    head: Duration::from_secs(10),
    body: Duration::from_secs(10),
};

/// The rate of reviews, as in the Go managers.
const REVIEWS_RATE: ApiRate = ApiRate {
    qps: 200.0,
    burst: 400,
};

/// A renewal of the lease is given at least this time.
const SHORTEST_LEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// A request body is small; a connection that does not take it is dead.
const WRITE_WITHIN: Duration = Duration::from_secs(30);

/// Silence on a body after which its connection is dead. The server ends a watch ten seconds
/// before, and any other request within 60 seconds, so a living one is never cut.
const SILENT_BODY: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// Requests of one client that wait for their answer's head at the same time. The server's
/// priority and fairness decides among them; this only bounds our memory.
const IN_FLIGHT: usize = 64;

/// Requests that queue up in front of a client.
const BUFFER: usize = 1024;

/// The suffix of the client that asks for tokens of service accounts.
const TOKENS_CLIENT: &str = "cloud-controller-manager";

/// Why there is no client. Every text names the flag or file and the fix; none holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file of `--kubeconfig` or of another flag cannot be used.
    #[error("{flag} {}: {problem}", path.display())]
    Kubeconfig {
        /// The flag that named the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// `--master` is not a URL.
    #[error("--master {0:?} is not a URL; write for example https://10.0.0.1:6443")]
    Master(String),
    /// Neither flag is given and this is no pod.
    #[error(
        "no way to the API server: {0}; give --kubeconfig FILE (or --master URL), or run in a pod \
         with a service account"
    )]
    InCluster(String),
    /// The client cannot be built from what was read.
    #[error("the API client cannot be built: {0}")]
    Build(String),
    /// A metric is registered twice.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

/// Makes the clients of one process: same server and credentials, each with its own connections,
/// name, rate and bound. Cheap to clone.
#[derive(Clone)]
pub struct ClientFactory {
    config: Config,
    rate: Option<ApiRate>,
    within: Within,
    series: Series,
    /// The file that the manager's own token comes from, if it does.
    own: Option<Arc<Tokens>>,
    accounts: Option<Accounts>,
    info: BuildInfo,
}

/// `--use-service-account-credentials`.
#[derive(Clone)]
struct Accounts {
    clock: Clock,
    /// One holder for each account, whoever uses it.
    tokens: Arc<Mutex<BTreeMap<String, Arc<Tokens>>>>,
}

impl fmt::Debug for ClientFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration holds credentials.
        f.debug_struct("ClientFactory")
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

impl ClientFactory {
    /// Reads the configuration; makes no request.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn new(
        settings: &ApiSettings,
        registry: &prometheus::Registry,
    ) -> Result<Self, ClientError> {
        let config = load::load(settings).await?;
        Ok(Self::of(config, settings.rate, Series::new(registry)?))
    }

    fn of(mut config: Config, rate: Option<ApiRate>, series: Series) -> Self {
        config.default_retry = false;
        config.disable_compression = true;
        config.proxy_url = None;
        config.connect_timeout = Some(CONNECT_WITHIN);
        config.write_timeout = Some(WRITE_WITHIN);
        config.read_timeout = Some(SILENT_BODY);
        let own = config.auth_info.token_file.take().map(|path| {
            // As in the Go library, the file wins over a token beside it.
            config.auth_info.token = None;
            Arc::new(Tokens::new(TokenFile::new(path.into())))
        });
        Self {
            config,
            rate,
            within: WITHIN,
            series,
            own,
            accounts: None,
            info: BuildInfo::current(),
        }
    }

    /// What the user agents say of the build.
    #[must_use]
    pub fn with_build_info(mut self, info: BuildInfo) -> Self {
        self.info = info;
        self
    }

    /// `--use-service-account-credentials`: when `on`, [`Self::controller_client`] uses the
    /// controllers' own service accounts (REQ-APP-22).
    #[must_use]
    pub fn with_service_account_credentials(mut self, on: bool, clock: Clock) -> Self {
        self.accounts = on.then(|| Accounts {
            clock,
            tokens: Arc::default(),
        });
        self
    }

    /// A factory for token and access reviews, for `--authentication-kubeconfig` and
    /// `--authorization-kubeconfig`: the file, or without one the pod's service account. `None`
    /// when there is neither: then nobody's token can be reviewed. 200 requests a second with a
    /// burst of 400, ten seconds for each.
    ///
    /// # Errors
    /// The file cannot be used; the text begins with `flag`.
    pub async fn for_reviews(
        &self,
        flag: &'static str,
        path: Option<&Path>,
    ) -> Result<Option<Self>, ClientError> {
        let config = match path {
            Some(path) => load::from_kubeconfig(flag, path).await?,
            None => match Config::incluster() {
                Ok(config) => config,
                Err(_) => return Ok(None),
            },
        };
        Ok(Some(Self {
            within: REVIEWS_WITHIN,
            info: self.info.clone(),
            ..Self::of(config, Some(REVIEWS_RATE), self.series.clone())
        }))
    }

    /// The URL of the API server.
    pub fn server(&self) -> String {
        self.config.cluster_url.to_string()
    }

    /// A client with the manager's own identity, whose user agent ends with `suffix`: informers,
    /// events (specification: controllers §7.5).
    ///
    /// # Errors
    /// Certificates or keys that cannot be used. Needs the process's TLS provider installed.
    pub fn client(&self, suffix: &str) -> Result<Client, ClientError> {
        let guard = self.guard(self.own.clone());
        build(self.config.clone(), &self.info, suffix, guard)
    }

    /// The client of a controller: `node-controller`, `service-controller`, `route-controller`.
    /// With `--use-service-account-credentials` it has the identity of the service account
    /// `kube-system/<name>`, which is created if need be, with a token that is asked for when the
    /// first request needs it (REQ-APP-22). Without, it is [`Self::client`]. It writes only while
    /// `fence` lets pass, asked before each try.
    ///
    /// # Errors
    /// Those of [`Self::client`].
    pub fn controller_client(&self, name: &str, fence: Fence) -> Result<Client, ClientError> {
        let fence = Some(fence);
        let Some(accounts) = &self.accounts else {
            let guard = Guard {
                fence,
                ..self.guard(self.own.clone())
            };
            return build(self.config.clone(), &self.info, name, guard);
        };
        let tokens = self.account(accounts, name)?;
        let mut config = self.config.clone();
        // No certificate, password or impersonation of the manager's own identity.
        config.auth_info = AuthInfo::default();
        let suffix = format!("system:serviceaccount:{NAMESPACE}:{name}");
        let guard = Guard {
            fence,
            ..self.guard(Some(tokens))
        };
        build(config, &self.info, &suffix, guard)
    }

    /// The client of leader election, for leases that must be renewed within `renew_deadline`: own
    /// connections, no client-side rate, no retries, and half of the deadline (at least a second)
    /// for a request, body included. It never waits for other requests.
    ///
    /// # Errors
    /// Those of [`Self::client`].
    pub fn lease_client(&self, renew_deadline: Duration) -> Result<Client, ClientError> {
        let limit = (renew_deadline / 2).max(SHORTEST_LEASE_TIMEOUT);
        let guard = Guard {
            throttle: None,
            retry: false,
            within: Within {
                head: limit,
                body: limit,
            },
            ..self.guard(self.own.clone())
        };
        let mut config = self.config.clone();
        config.connect_timeout = Some(CONNECT_WITHIN.min(limit));
        build(config, &self.info, "leader-election", guard)
    }

    fn account(&self, accounts: &Accounts, name: &str) -> Result<Arc<Tokens>, ClientError> {
        let known = |name| {
            let tokens = accounts.tokens.lock();
            let tokens = tokens.unwrap_or_else(PoisonError::into_inner);
            tokens.get(name).map(Arc::clone)
        };
        if let Some(tokens) = known(name) {
            return Ok(tokens);
        }
        let client = self.client(TOKENS_CLIENT)?;
        let source = ServiceAccountTokens::new(client, name, accounts.clock.clone());
        let mut tokens = accounts
            .tokens
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let entry = tokens.entry(name.to_owned());
        Ok(Arc::clone(
            entry.or_insert_with(|| Arc::new(Tokens::new(source))),
        ))
    }

    fn guard(&self, tokens: Option<Arc<Tokens>>) -> Guard {
        let host = self.config.cluster_url.authority();
        Guard {
            host: host.map(ToString::to_string).unwrap_or_default(),
            series: self.series.clone(),
            in_flight: Semaphore::new(IN_FLIGHT),
            throttle: self.rate.map(Throttle::new),
            tokens,
            within: self.within,
            retry: true,
            fence: None,
        }
    }
}

fn build(
    mut config: Config,
    info: &BuildInfo,
    suffix: &str,
    guard: Guard,
) -> Result<Client, ClientError> {
    let wrong = |error: &dyn std::error::Error| ClientError::Build(error_chain(error));
    let agent = user_agent(info, suffix);
    let agent = HeaderValue::from_str(&agent).map_err(|error| wrong(&error))?;
    config.headers.push((USER_AGENT, agent));
    Ok(ClientBuilder::try_from(config)
        .map_err(|error| wrong(&error))?
        .with_layer(&BufferLayer::new(BUFFER))
        .with_layer(&GuardLayer(Arc::new(guard)))
        .build())
}

#[cfg(test)]
mod tests;
