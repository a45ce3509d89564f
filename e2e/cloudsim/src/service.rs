//! The HTTP side: a tower service and a server on a socket.

use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::control::{Answer, ConnectionClosed};
use crate::{CloudSim, endpoints};

/// Larger than any request of a real client.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// Connections served at the same time; more wait in the listener's queue.
const MAX_CONNECTIONS: usize = 512;

/// Calls [`CloudSim`] in the process. The body of the request may be of any type.
#[derive(Clone, Debug)]
pub struct SimService {
    sim: CloudSim,
}

impl SimService {
    pub(crate) fn new(sim: CloudSim) -> Self {
        Self { sim }
    }
}

impl<B> tower::Service<Request<B>> for SimService
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = ConnectionClosed;
    type Future = BoxFuture<'static, Result<Response<Body>, ConnectionClosed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectionClosed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let sim = self.sim.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
                return Ok(plain(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "request body over 4 MiB or broken",
                ));
            };
            let answer = sim.handle(&parts, &body.to_bytes()).await?;
            Ok(response(answer))
        })
    }
}

impl CloudSim {
    /// Answers one request.
    async fn handle(&self, parts: &Parts, body: &Bytes) -> Result<Answer, ConnectionClosed> {
        if let Some(path) = parts.uri.path().strip_prefix("/_sim/") {
            return Ok(endpoints::answer(self, &parts.method, path, body));
        }
        self.aws().handle(self.control(), parts, body).await
    }

    /// Serves plain HTTP/1.1 on `listener` until `shutdown` completes. Open connections may finish
    /// the request in work.
    ///
    /// # Errors
    /// When the listener can no longer accept.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let (stop, stopped) = tokio::sync::watch::channel(());
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let room = connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = listener.accept(), if room => {
                    let (stream, _) = accepted?;
                    connections.spawn(connection(self.clone(), TokioIo::new(stream), stopped.clone()));
                }
            }
        }
        drop(stop);
        while connections.join_next().await.is_some() {}
        Ok(())
    }
}

async fn connection(
    sim: CloudSim,
    stream: TokioIo<tokio::net::TcpStream>,
    mut stopped: tokio::sync::watch::Receiver<()>,
) {
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        tower::Service::call(&mut sim.service(), request)
    });
    // An error of the service makes hyper close the connection without an answer.
    let connection = http1::Builder::new().serve_connection(stream, service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        // The sender is only ever dropped, so this completes at shutdown.
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "Connection ended early");
    }
}

fn response(answer: Answer) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = header::HeaderValue::from_static(answer.content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    for (name, value) in answer.headers {
        // What cannot stand in a header was in none of the request's either.
        if let Ok(value) = header::HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    response(Answer {
        status: status.as_u16(),
        content_type: "text/plain",
        headers: Vec::new(),
        body: Bytes::from_static(text.as_bytes()),
        code: None,
        denied: None,
    })
}
