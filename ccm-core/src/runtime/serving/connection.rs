//! Connections: how many, and what a client can hold of us.

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body, response::Response};
use http::Request;
use hyper::{
    body::Incoming,
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Connections at once to a port: probes and a few scrapers. More wait in the kernel's queue.
const CONNECTIONS: usize = 64;

/// A client that does not send a whole head in this time, also an idle one, is cut off (HTTP/1.1).
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// A connection without a request beginning or ending in this time is closed: a client that is
/// idle, or does not read its answer. The idle time of API servers.
const IDLE: Duration = Duration::from_secs(90);

/// For the goodbye of an idle connection.
const GOODBYE: Duration = Duration::from_secs(1);

/// Request head, all headers together. Certificates in headers fit; more is an attack.
const LARGEST_HEAD: u16 = 60 * 1024;

/// A peer that vanished is found by a ping (HTTP/2).
const PING_EVERY: Duration = Duration::from_secs(30);

/// For the answer to it.
const PING_ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// After a failed accept, usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves these routes to everybody, over plain HTTP/1.1, until `shutdown`; then all connections
/// are closed at once.
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    accept(listener, shutdown, |stream| {
        let router = router.clone();
        http1(stream, move |request| routed(router.clone(), request))
    })
    .await;
}

/// The answer of the routes.
pub(super) async fn routed(router: Router, request: Request<Body>) -> Response {
    match router.oneshot(request).await {
        Ok(answer) => answer,
        Err(impossible) => match impossible {},
    }
}

/// Gives each connection to `connection`, up to [`CONNECTIONS`] at once, until `shutdown`; then
/// all are cut off.
pub(super) async fn accept<Fut>(
    listener: TcpListener,
    shutdown: CancellationToken,
    connection: impl Fn(TcpStream) -> Fut,
) where
    Fut: Future<Output = ()> + Send + 'static,
{
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
        match accepted {
            Ok((stream, _)) => {
                let work = connection(stream);
                connections.spawn(async move {
                    let _permit = permit;
                    work.await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Speaks HTTP/1.1 until the client is done or too slow.
pub(super) async fn http1<Io, Fut>(io: Io, answer: impl Fn(Request<Body>) -> Fut)
where
    Io: AsyncRead + AsyncWrite + Unpin,
    Fut: Future<Output = Response>,
{
    let activity = Activity::new();
    let service = service_fn(|request: Request<Incoming>| {
        answered(activity.busy(), answer(request.map(Body::new)))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(usize::from(LARGEST_HEAD))
        .serve_connection(TokioIo::new(io), service);
    drive(connection, http1::Connection::graceful_shutdown, &activity).await;
}

/// Speaks HTTP/2 until the client is done, idle or gone, with at most `streams` requests at once.
pub(super) async fn http2<Io, Fut>(
    io: Io,
    streams: u32,
    answer: impl Fn(Request<Body>) -> Fut + Send + 'static,
) where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    let ended = CancellationToken::new();
    let _streams_end_with_us = ended.clone().drop_guard();
    let activity = Activity::new();
    let requests = Arc::clone(&activity);
    let service = service_fn(move |request: Request<Incoming>| {
        answered(requests.busy(), answer(request.map(Body::new)))
    });
    let connection = http2::Builder::new(Streams(ended))
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        .max_header_list_size(u32::from(LARGEST_HEAD))
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER_WITHIN)
        .serve_connection(TokioIo::new(io), service);
    drive(connection, http2::Connection::graceful_shutdown, &activity).await;
}

async fn answered(
    _busy: Busy,
    answer: impl Future<Output = Response>,
) -> Result<Response, Infallible> {
    Ok(answer.await)
}

async fn drive<C>(connection: C, say_goodbye: impl FnOnce(Pin<&mut C>), activity: &Activity)
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = activity.idle() => {
            say_goodbye(connection.as_mut());
            match tokio::time::timeout(GOODBYE, connection).await {
                Ok(ended) => ended,
                Err(_) => return tracing::debug!("connection of a client that does not move cut off"),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Runs the requests of one HTTP/2 connection; they end with it.
#[derive(Clone)]
struct Streams(CancellationToken);

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, request: F) {
        let ended = self.0.clone();
        tokio::spawn(async move {
            let _ = ended.run_until_cancelled(request).await;
        });
    }
}

/// When a connection last moved.
struct Activity(Mutex<Moves>);

struct Moves {
    last: Instant,
    in_flight: usize,
}

impl Activity {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Moves {
            last: Instant::now(),
            in_flight: 0,
        })))
    }

    /// A request begins; it ends when what is returned is dropped.
    fn busy(self: &Arc<Self>) -> Busy {
        self.moved(|count| count.saturating_add(1));
        Busy(Arc::clone(self))
    }

    /// Ready when nothing moved for [`IDLE`]. Requests are bounded in time themselves.
    async fn idle(&self) {
        loop {
            let idle_at = {
                let moves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let last = if moves.in_flight > 0 {
                    Instant::now()
                } else {
                    moves.last
                };
                last + IDLE
            };
            if idle_at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(idle_at).await;
        }
    }

    fn moved(&self, count: impl FnOnce(usize) -> usize) {
        let mut moves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        moves.last = Instant::now();
        moves.in_flight = count(moves.in_flight);
    }
}

/// A request in flight.
struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.moved(|count| count.saturating_sub(1));
    }
}
