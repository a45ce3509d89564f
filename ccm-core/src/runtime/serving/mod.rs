//! Health and metrics over plain HTTP, with bounds on what a client can hold.
//!
//! `/healthz`, `/livez`, `/readyz`, `/metrics`. The secure port of the Go managers comes in
//! another release; it will serve the same router.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use prometheus::{Encoder as _, TextEncoder};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Health, Probe, ProbeQuery, QueueMetrics};

/// Connections at once: probes and a few scrapers. More wait in the kernel's queue.
const CONNECTIONS: usize = 64;

/// A client that does not send a whole head in this time, also an idle one, is cut off.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// After a failed accept, usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone)]
struct Shared {
    health: Health,
    queues: QueueMetrics,
    registry: prometheus::Registry,
}

/// The routes.
pub fn router(health: Health, queues: QueueMetrics, registry: prometheus::Registry) -> Router {
    Router::new()
        .route("/healthz", get(|s, q| probe(Probe::Health, s, q)))
        .route("/livez", get(|s, q| probe(Probe::Live, s, q)))
        .route("/readyz", get(|s, q| probe(Probe::Ready, s, q)))
        .route("/metrics", get(metrics))
        .with_state(Shared {
            health,
            queues,
            registry,
        })
}

async fn probe(
    probe: Probe,
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let query = ProbeQuery::parse(query.as_deref().unwrap_or_default());
    let report = shared.health.report(probe, &query);
    let status = match (report.passed, probe) {
        (true, _) => StatusCode::OK,
        (false, Probe::Ready) => StatusCode::SERVICE_UNAVAILABLE,
        (false, Probe::Health | Probe::Live) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, report.text)
}

async fn metrics(State(shared): State<Shared>) -> Response {
    shared.queues.refresh();
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&shared.registry.gather(), &mut text) {
        Ok(()) => ([(CONTENT_TYPE, encoder.format_type().to_owned())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Serves until `shutdown`; then all connections are closed at once.
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await.ok();
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(_) = connections.join_next() => continue,
            next = next => next,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        connections.spawn(async move {
            let _permit = permit;
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WITHIN)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt as _;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };
    use tower::ServiceExt as _;

    use super::*;
    use crate::runtime::{Backoff, WorkQueue};

    fn setup() -> (Health, QueueMetrics, Router) {
        let registry = prometheus::Registry::new();
        let queues = QueueMetrics::new(&registry).unwrap();
        let health = Health::new();
        let router = router(health.clone(), queues.clone(), registry);
        (health, queues, router)
    }

    async fn ask(router: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_is_503_until_every_gate_is_open() {
        let (health, _queues, router) = setup();
        let gate = health.gate("caches");
        let (status, body) = ask(&router, "/readyz").await;
        assert_eq!(status, 503);
        assert!(body.contains("[-]caches failed"));
        assert_eq!(ask(&router, "/healthz").await, (200, "ok".to_owned()));
        assert_eq!(ask(&router, "/livez").await.0, 200);
        gate.open();
        assert_eq!(ask(&router, "/readyz").await, (200, "ok".to_owned()));
        assert_eq!(ask(&router, "/healthz/caches").await.0, 404);
    }

    #[tokio::test]
    async fn a_failed_check_of_life_is_500() {
        let (health, _queues, router) = setup();
        health.add("service-lb-controller", || false);
        assert_eq!(ask(&router, "/healthz").await.0, 500);
        assert_eq!(
            ask(&router, "/healthz?exclude=service-lb-controller")
                .await
                .0,
            200
        );
    }

    #[tokio::test]
    async fn metrics_are_refreshed_when_asked_for() {
        let (_health, queues, router) = setup();
        let queue = WorkQueue::new("Nodes", Backoff::CONTROLLER_DEFAULT, &queues);
        queue.add("a");
        let _work = queue.next().await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        let (status, body) = ask(&router, "/metrics").await;
        assert_eq!(status, 200);
        let line = body
            .lines()
            .find(|line| line.starts_with("workqueue_unfinished_work_seconds{name=\"Nodes\"}"))
            .unwrap();
        let seconds: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(seconds > 0.0, "{line}");
    }

    #[tokio::test]
    async fn the_server_answers_and_ends_at_once_with_connections_open() {
        let (_health, _queues, router) = setup();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(serve(listener, router, shutdown.clone()));
        let mut client = TcpStream::connect(address).await.unwrap();
        client
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        let mut head = [0; 15];
        client.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
        shutdown.cancel();
        server.await.unwrap();
        let mut rest = Vec::new();
        // The connection is closed or reset; either ends the read.
        let _ = client.read_to_end(&mut rest).await;
    }
}
