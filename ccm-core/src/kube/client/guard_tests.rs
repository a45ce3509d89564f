//! The bounds on requests.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use http::header::RETRY_AFTER;
use prometheus::proto::MetricFamily;

use super::{
    super::token::{Token, TokenSource, bearer},
    *,
};

fn guard() -> Guard {
    Guard {
        fence: None,
        host: "api:6443".to_owned(),
        series: Series::new(&prometheus::Registry::new()).unwrap(),
        in_flight: Semaphore::new(2),
        throttle: None,
        tokens: None,
        within: Within {
            head: Duration::from_secs(30),
            body: Duration::from_secs(60),
        },
        retry: true,
    }
}

fn registered(guard: Guard) -> (GuardLayer, prometheus::Registry) {
    let registry = prometheus::Registry::new();
    let series = Series::new(&registry).unwrap();
    (GuardLayer(Arc::new(Guard { series, ..guard })), registry)
}

fn count(registry: &prometheus::Registry, name: &str) -> Vec<(String, u64)> {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name);
    let metrics = family.into_iter().flat_map(MetricFamily::get_metric);
    metrics
        .map(|metric| {
            let code = metric
                .get_label()
                .iter()
                .find(|label| label.name() == "code");
            let count = metric.get_counter().get_value().to_string();
            (code.unwrap().value().to_owned(), count.parse().unwrap())
        })
        .collect()
}

fn get() -> Request<Body> {
    Request::get("/api").body(Body::empty()).unwrap()
}

fn answer(code: u16, retry_after: Option<&'static str>) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    if let Some(after) = retry_after {
        let after = HeaderValue::from_static(after);
        answer.headers_mut().insert(RETRY_AFTER, after);
    }
    answer
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_ends_and_is_counted() {
    let (layer, registry) = registered(guard());
    let hung = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, BoxError>>()
    });
    let start = Instant::now();
    let error = layer.layer(hung).oneshot(get()).await.err().unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    assert_eq!(error.to_string(), "no answer within 30 seconds");
    let requests = count(&registry, "rest_client_requests_total");
    assert_eq!(requests, [("<error>".to_owned(), 1)]);
}

/// A body that never ends.
struct Silent;

impl HttpBody for Silent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, BoxError>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_end_is_given_up_unless_it_is_a_watch() {
    use http_body_util::BodyExt as _;
    let (layer, _) = registered(guard());
    let silent =
        tower::service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(Response::new(Silent)) });
    let service = layer.layer(silent);
    let start = Instant::now();
    let body = service.clone().oneshot(get()).await.unwrap().into_body();
    let error = body.collect().await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "the answer did not end within 60 seconds"
    );
    assert_eq!(start.elapsed(), Duration::from_secs(60));
    let watch = Request::get("/api/v1/nodes?timeoutSeconds=60&watch=true");
    let watch = watch.body(Body::empty()).unwrap();
    let body = service.oneshot(watch).await.unwrap().into_body();
    let hour = Duration::from_secs(3600);
    assert!(tokio::time::timeout(hour, body.collect()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_bounded_and_counted_by_code() {
    let (layer, registry) = registered(guard());
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (Arc::clone(&now), Arc::clone(&most));
    let slow = tower::service_fn(move |_: Request<Body>| {
        let (now, most) = counted.clone();
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, BoxError>(Response::new(Body::empty()))
        }
    });
    let service = layer.layer(slow);
    let all = (0..6).map(|_| service.clone().oneshot(get()));
    for answer in futures::future::join_all(all).await {
        answer.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    let requests = count(&registry, "rest_client_requests_total");
    assert_eq!(requests, [("200".to_owned(), 6)]);
}

/// Answers with each in turn, then with the last one for ever; keeps what it was asked with.
#[derive(Clone)]
struct Scripted {
    answers: Arc<Vec<(u16, Option<&'static str>)>>,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Scripted {
    fn new(answers: &[(u16, Option<&'static str>)]) -> Self {
        Self {
            answers: Arc::new(answers.to_vec()),
            asked: Arc::default(),
        }
    }

    fn service(
        &self,
    ) -> impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = BoxError,
        Future = BoxFuture<'static, Result<Response<Body>, BoxError>>,
    > + Clone
    + Send
    + Sync
    + 'static {
        let this = self.clone();
        tower::service_fn(move |request: Request<Body>| {
            let this = this.clone();
            let future: BoxFuture<'static, _> = Box::pin(async move {
                let token = request.headers().get(AUTHORIZATION).cloned();
                let token = token.map(|token| token.to_str().unwrap().to_owned());
                let body = request.into_body().collect_bytes().await.unwrap();
                let body = String::from_utf8(body.to_vec()).unwrap();
                let mut asked = this.asked.lock().unwrap();
                asked.push((token.unwrap_or_default(), body));
                let at = asked.len().min(this.answers.len()) - 1;
                let (code, after) = this.answers[at];
                Ok(answer(code, after))
            });
            future
        })
    }

    fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_write_is_sent_again_whole_when_the_server_says_so() {
    let (layer, registry) = registered(guard());
    let server = Scripted::new(&[(429, Some("3")), (503, Some("2")), (201, None)]);
    let request = Request::post("/api").body(Body::from(b"whole".to_vec()));
    let start = Instant::now();
    let service = layer.layer(server.service());
    let answer = service.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    let once = (String::new(), "whole".to_owned());
    assert_eq!(server.asked(), [once.clone(), once.clone(), once]);
    assert_eq!(
        count(&registry, "rest_client_request_retries_total"),
        [("429".to_owned(), 1), ("503".to_owned(), 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_overloaded_for_long_is_not_stormed() {
    let server = Scripted::new(&[(429, Some("1"))]);
    let (layer, _) = registered(guard());
    let answer = layer.layer(server.service()).oneshot(get()).await.unwrap();
    assert_eq!((answer.status().as_u16(), server.asked().len()), (429, 11));
    let server = Scripted::new(&[(429, Some("1"))]);
    let (layer, _) = registered(Guard {
        retry: false,
        ..guard()
    });
    let answer = layer.layer(server.service()).oneshot(get()).await.unwrap();
    assert_eq!((answer.status().as_u16(), server.asked().len()), (429, 1));
}

#[derive(Default)]
struct Numbered(AtomicUsize);

#[async_trait]
impl TokenSource for Numbered {
    fn owner(&self) -> String {
        "the test".to_owned()
    }

    async fn fetch(&self) -> Result<Token, String> {
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(Token {
            header: bearer(&number.to_string())?,
            renew_at: Instant::now() + Duration::from_secs(3600),
            valid_until: None,
        })
    }
}

/// REQ-APP-22
#[tokio::test(start_paused = true)]
async fn a_refused_token_is_renewed_once_and_then_the_refusal_is_final() {
    let with_tokens = || Guard {
        tokens: Some(Arc::new(Tokens::new(Numbered::default()))),
        ..guard()
    };
    let tokens = |server: &Scripted| -> Vec<String> {
        server.asked().into_iter().map(|(token, _)| token).collect()
    };
    let (layer, registry) = registered(with_tokens());
    let server = Scripted::new(&[(401, None), (200, None)]);
    let answer = layer.layer(server.service()).oneshot(get()).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(tokens(&server), ["Bearer 1", "Bearer 2"]);
    assert_eq!(
        count(&registry, "rest_client_requests_total"),
        [("200".to_owned(), 1), ("401".to_owned(), 1)]
    );

    let (layer, _) = registered(with_tokens());
    let server = Scripted::new(&[(401, None)]);
    let service = layer.layer(server.service());
    for _ in 0..5 {
        let answer = service.clone().oneshot(get()).await.unwrap();
        assert_eq!(answer.status(), 401);
    }
    let mut want = vec!["Bearer 1"];
    want.extend(["Bearer 2"; 5]);
    assert_eq!(tokens(&server), want, "five requests, one renewal");
}

fn request(method: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri("/api");
    request.body(Body::from(b"whole".to_vec())).unwrap()
}

/// Lets pass for this long.
fn fence_for(time: Duration) -> Option<Fence> {
    let fence = Fence::waiting();
    fence.extend(Instant::now() + time);
    Some(fence)
}

fn assert_not_leading(error: &BoxError) {
    let text = error.to_string();
    assert!(text.contains("leader election lease"), "{text}");
}

/// The lease can be lost while a write waits for its next try.
///
/// REQ-APP-12, CASE-LEAD-01
#[tokio::test(start_paused = true)]
async fn a_write_that_was_put_off_is_not_sent_again_once_the_fence_is_shut() {
    for method in ["POST", "PUT", "PATCH", "DELETE", "GET"] {
        let (layer, registry) = registered(Guard {
            fence: fence_for(Duration::from_secs(2)),
            ..guard()
        });
        let server = Scripted::new(&[(429, Some("3")), (200, None)]);
        let answer = layer.layer(server.service()).oneshot(request(method)).await;
        let requests = count(&registry, "rest_client_requests_total");
        if method == "GET" {
            assert_eq!(answer.unwrap().status(), 200, "reads need no lease");
            assert_eq!(server.asked().len(), 2);
        } else {
            assert_not_leading(&answer.err().unwrap());
            assert_eq!(server.asked().len(), 1, "{method}");
            let want = [("429".to_owned(), 1), ("<error>".to_owned(), 1)];
            assert_eq!(BTreeSet::from_iter(requests), want.into());
        }
    }
}

/// A source that takes its time.
struct Slow(Numbered);

#[async_trait]
impl TokenSource for Slow {
    fn owner(&self) -> String {
        self.0.owner()
    }

    async fn fetch(&self) -> Result<Token, String> {
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.0.fetch().await
    }
}

/// REQ-APP-12
#[tokio::test(start_paused = true)]
async fn a_write_that_waited_for_a_token_is_not_sent_once_the_fence_is_shut() {
    for (open, sent) in [(2, 0), (4, 1), (7, 2)] {
        let (layer, _) = registered(Guard {
            fence: fence_for(Duration::from_secs(open)),
            tokens: Some(Arc::new(Tokens::new(Slow(Numbered::default())))),
            ..guard()
        });
        let server = Scripted::new(&[(401, None), (201, None)]);
        let answer = layer.layer(server.service()).oneshot(request("POST")).await;
        assert_eq!(server.asked().len(), sent, "open for {open} s");
        match answer {
            Ok(answer) => assert_eq!((open, answer.status().as_u16()), (7, 201)),
            Err(error) => assert_not_leading(&error),
        }
    }
}

/// REQ-APP-12
#[tokio::test(start_paused = true)]
async fn a_write_that_waited_for_its_turn_is_not_sent_once_the_fence_is_shut() {
    let (layer, _) = registered(Guard {
        fence: fence_for(Duration::from_secs(2)),
        ..guard()
    });
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let slow = tower::service_fn(move |_: Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok::<_, BoxError>(Response::new(Body::empty()))
        }
    });
    let service = layer.layer(slow);
    let all = (0..5).map(|_| service.clone().oneshot(request("PATCH")));
    let answers = futures::future::join_all(all).await;
    assert_eq!(
        sent.load(Ordering::SeqCst),
        2,
        "as many as may be in flight"
    );
    let (done, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(done.len(), 2, "what was begun is waited for");
    for error in refused.into_iter().filter_map(Result::err) {
        assert_not_leading(&error);
    }
}
