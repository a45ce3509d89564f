//! Clients for the API server: where it is, who we are, and bounds on every request.
//!
//! The order of precedence is that of the Go library: `--kubeconfig` (with `--master` over its
//! server), `--master` alone, the pod's service account. No proxy variable of the environment is
//! looked at.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri, header::USER_AGENT};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use prometheus::{IntCounterVec, Opts};
use tokio::{sync::Semaphore, time::Instant};
use tower::{BoxError, Layer, Service, ServiceExt as _, buffer::BufferLayer};

use super::informer::{WATCH_SECONDS, error_chain};
use crate::{
    config::{ApiRate, ApiSettings},
    runtime::BuildInfo,
};

/// A dead address must not hold a request for the kernel's time-out.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Until the head of the answer: safe for watches, whose bodies are endless.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

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

/// Why there is no client. Every text names the flag or file and the fix; none holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file of `--kubeconfig` cannot be used.
    #[error("--kubeconfig {}: {problem}", path.display())]
    Kubeconfig {
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

/// Makes the clients of one process: same server and credentials, each with its own name, rate and
/// bound.
#[derive(Clone)]
pub struct ClientFactory {
    config: Config,
    rate: Option<ApiRate>,
    requests: IntCounterVec,
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
        let mut config = load(settings).await?;
        config.default_retry = false;
        config.disable_compression = true;
        config.proxy_url = None;
        config.connect_timeout = Some(CONNECT_WITHIN);
        config.write_timeout = Some(WRITE_WITHIN);
        config.read_timeout = Some(SILENT_BODY);
        let requests = requests_total(registry)?;
        Ok(Self {
            config,
            rate: settings.rate,
            requests,
        })
    }

    /// The URL of the API server.
    pub fn server(&self) -> String {
        self.config.cluster_url.to_string()
    }

    /// A client whose user agent ends with `suffix` (specification: controllers §7.5).
    ///
    /// # Errors
    /// Certificates or keys that cannot be used. Needs the process's TLS provider installed.
    pub fn client(&self, suffix: &str) -> Result<Client, ClientError> {
        let build = |error: &dyn std::error::Error| ClientError::Build(error_chain(error));
        let mut config = self.config.clone();
        let agent = HeaderValue::from_str(&user_agent(suffix)).map_err(|error| build(&error))?;
        config.headers.push((USER_AGENT, agent));
        let host = config.cluster_url.authority();
        let guard = GuardLayer(Arc::new(Guard {
            host: host.map(ToString::to_string).unwrap_or_default(),
            requests: self.requests.clone(),
            in_flight: Semaphore::new(IN_FLIGHT),
            throttle: self.rate.map(Throttle::new),
        }));
        Ok(ClientBuilder::try_from(config)
            .map_err(|error| build(&error))?
            .with_layer(&BufferLayer::new(BUFFER))
            .with_layer(&guard)
            .build())
    }
}

fn requests_total(registry: &prometheus::Registry) -> prometheus::Result<IntCounterVec> {
    let requests = IntCounterVec::new(
        Opts::new(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
        ),
        &["code", "method", "host"],
    )?;
    registry.register(Box::new(requests.clone()))?;
    Ok(requests)
}

/// Registers the series with one sample, for the reference.
pub(crate) fn sample_client_metrics(registry: &prometheus::Registry) -> prometheus::Result<()> {
    requests_total(registry)?.with_label_values(&["200", "GET", ""]);
    Ok(())
}

fn user_agent(suffix: &str) -> String {
    let info = BuildInfo::current();
    format!(
        "cloud-controller-manager/{} ({}) {suffix}",
        info.version, info.platform
    )
}

async fn load(settings: &ApiSettings) -> Result<Config, ClientError> {
    let master = match &settings.master {
        Some(text) => Some(parse_master(text)?),
        None => None,
    };
    match (&settings.kubeconfig, master) {
        (Some(path), master) => {
            let mut config = from_kubeconfig(path).await?;
            if let Some(url) = master {
                config.cluster_url = url;
            }
            Ok(config)
        }
        (None, Some(url)) => Ok(Config::new(url)),
        (None, None) => {
            Config::incluster().map_err(|error| ClientError::InCluster(error_chain(&error)))
        }
    }
}

fn parse_master(text: &str) -> Result<Uri, ClientError> {
    let wrong = || ClientError::Master(text.to_owned());
    let url: Uri = text.parse().map_err(|_| wrong())?;
    match url.scheme_str() {
        Some("http" | "https") if url.host().is_some_and(|host| !host.is_empty()) => Ok(url),
        _ => Err(wrong()),
    }
}

async fn from_kubeconfig(path: &Path) -> Result<Config, ClientError> {
    let fail = |problem: String| ClientError::Kubeconfig {
        path: path.to_owned(),
        problem,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| fail(problem(&error)))?;
    if let Some(proxy) = configured_proxy(&kubeconfig) {
        return Err(fail(format!(
            "its cluster has the proxy-url {proxy:?}; proxies are not supported, remove it or \
             give the file of a cluster that is reached directly"
        )));
    }
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| fail(problem(&error)))
}

/// The host of the proxy that the file asks for in its current context. Its URL may hold a
/// password.
fn configured_proxy(kubeconfig: &Kubeconfig) -> Option<String> {
    let current = kubeconfig.current_context.as_deref()?;
    let context = kubeconfig.contexts.iter().find(|c| c.name == current)?;
    let name = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|c| &c.name == name)?;
    let proxy = cluster.cluster.as_ref()?.proxy_url.as_deref()?;
    let host = proxy
        .parse::<Uri>()
        .ok()
        .and_then(|url| Some(url.host()?.to_owned()));
    Some(host.unwrap_or_default())
}

/// What is wrong with a kubeconfig, without quoting its content: that may be a secret.
fn problem(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => {
            format!("cannot be read: {error}; check the path and the file's permissions")
        }
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!(
                "is not a valid kubeconfig: line {}, column {}",
                at.line(),
                at.column()
            ),
            None => "is not a valid kubeconfig".to_owned(),
        },
        KubeconfigError::CurrentContextNotSet => {
            "has no current-context; set one with kubectl config use-context".to_owned()
        }
        other => error_chain(other),
    }
}

/// What all requests of one client share.
struct Guard {
    host: String,
    requests: IntCounterVec,
    in_flight: Semaphore,
    throttle: Option<Throttle>,
}

#[derive(Clone)]
struct GuardLayer(Arc<Guard>);

impl<S> Layer<S> for GuardLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            guard: Arc::clone(&self.0),
            inner,
        }
    }
}

/// Counts, throttles and bounds requests.
#[derive(Clone)]
struct Guarded<S> {
    guard: Arc<Guard>,
    inner: S,
}

impl<S, B> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    /// Always ready: waiting here would hold up every other request behind the client's buffer.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (guard, inner) = (Arc::clone(&self.guard), self.inner.clone());
        Box::pin(async move {
            let method = request.method().as_str().to_owned();
            let answer = guard.send(inner, request).await;
            // The Go library's word for a request without an answer.
            let code = answer.as_ref().map_or_else(
                |_| "<error>".to_owned(),
                |answer| answer.status().as_str().to_owned(),
            );
            guard
                .requests
                .with_label_values(&[code.as_str(), &method, &guard.host])
                .inc();
            answer
        })
    }
}

impl Guard {
    async fn send<S, B>(&self, inner: S, request: Request<Body>) -> Result<Response<B>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    {
        if let Some(throttle) = &self.throttle {
            tokio::time::sleep(throttle.take(Instant::now())).await;
        }
        let _permit = self.in_flight.acquire().await?;
        tokio::time::timeout(HEAD_WITHIN, inner.oneshot(request))
            .await
            .map_err(|_| -> BoxError {
                format!("no answer within {} seconds", HEAD_WITHIN.as_secs()).into()
            })?
    }
}

/// A token bucket with the Go library's meaning of rate and burst, as a schedule: no timer task.
struct Throttle {
    step: Duration,
    tolerance: Duration,
    next: Mutex<Option<Instant>>,
}

impl Throttle {
    fn new(rate: ApiRate) -> Self {
        let step = Duration::from_secs_f64(1.0 / rate.qps);
        Self {
            step,
            tolerance: step * rate.burst.saturating_sub(1),
            next: Mutex::new(None),
        }
    }

    /// Takes a token and says how long the caller has to wait for it.
    fn take(&self, now: Instant) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = next.map_or(now, |next| next.max(now));
        *next = Some(slot + self.step);
        slot.duration_since(now).saturating_sub(self.tolerance)
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
