//! The two ways in: a tower service, and HTTP/1.1 on a listener.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::{errors::ApiError, handler, inner::Inner};

/// The largest body of a request, as on the real server.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// The server is not there, or hung up: what a client sees as a failed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    text: &'static str,
}

impl ConnectionError {
    pub(crate) fn refused() -> Self {
        Self {
            text: "connection refused: the API server is away",
        }
    }

    pub(crate) fn broken() -> Self {
        Self {
            text: "connection reset: the API server hung up",
        }
    }
}

impl std::fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text)
    }
}

impl std::error::Error for ConnectionError {}

/// The API server as a tower service: what `kube::Client::new` takes. Needs no socket and
/// runs on tokio's clock.
#[derive(Clone, Debug)]
pub struct SimService {
    inner: Arc<Inner>,
}

impl SimService {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

impl<B> tower::Service<Request<B>> for SimService
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = ConnectionError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = Limited::new(Box::pin(body), MAX_BODY)
                .collect()
                .await
                .map(http_body_util::Collected::to_bytes)
                .map_err(|_| ApiError::too_large());
            handler::handle(inner, parts, body).await
        })
    }
}

/// Serves HTTP/1.1 until `shutdown` is ready; then connections are closed and the future ends.
pub(crate) async fn serve(
    service: SimService,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let tracker = TaskTracker::new();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // As Go's server does: a small answer does not wait for an acknowledgement.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "TCP_NODELAY could not be set.");
                    }
                    tracker.spawn(connection(service.clone(), stream, stopped.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "A connection could not be accepted.");
                    // Out of file descriptors, most likely: let others finish first.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    stop.send_replace(true);
    tracker.close();
    tracker.wait().await;
}

/// The pause after a failed accept.
const ACCEPT_PAUSE: tokio::time::Duration = tokio::time::Duration::from_millis(50);

async fn connection(
    service: SimService,
    stream: TcpStream,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) {
    let serve = hyper::server::conn::http1::Builder::new().serve_connection(
        TokioIo::new(stream),
        hyper::service::service_fn(move |request| {
            tower::Service::<Request<hyper::body::Incoming>>::call(&mut service.clone(), request)
        }),
    );
    // Watches never end by themselves, so the connection is dropped, not drained.
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => {}
        ended = serve => {
            if let Err(error) = ended {
                tracing::debug!(%error, "A connection ended early.");
            }
        }
    }
}
