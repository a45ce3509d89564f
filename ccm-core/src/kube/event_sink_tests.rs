//! The sink against a scripted API server.

use std::{convert::Infallible, sync::Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::Value;
use tokio::time::Instant;

use super::*;
use crate::kube::{EventObject, EventType};

/// What the server does with the next request.
#[derive(Clone, Copy)]
enum Answer {
    Fine,
    Status(u16, &'static str),
    NoConnection,
}

#[derive(Default)]
struct Script {
    answers: Vec<Answer>,
    requests: Vec<(Method, String, Value, Instant)>,
}

/// Answers by script, then always `Fine`, and remembers the requests.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Option<Script>>>);

impl Server {
    fn new(answers: &[Answer]) -> Self {
        let script = Script {
            answers: answers.to_vec(),
            requests: Vec::new(),
        };
        Self(Arc::new(Mutex::new(Some(script))))
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let value: Value = serde_json::from_slice(&body).unwrap();
        let path = head.uri.path().to_owned();
        let mut script = self.0.lock().unwrap();
        let script = script.as_mut().unwrap();
        let now = Instant::now();
        script
            .requests
            .push((head.method, path, value.clone(), now));
        let answer = if script.answers.is_empty() {
            Answer::Fine
        } else {
            script.answers.remove(0)
        };
        let (code, body) = match answer {
            Answer::NoConnection => return Err("connection refused".into()),
            Answer::Fine => {
                let mut event = value;
                event["metadata"]["name"] = "x".into();
                event["involvedObject"]["name"] = "x".into();
                (200, event)
            }
            Answer::Status(code, reason) => {
                let cause = json!({ "reason": "NamespaceTerminating", "message": "", "field": "" });
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "no", "reason": reason, "code": code,
                    "details": { "causes": if code == 403 { json!([cause]) } else { json!([]) } },
                });
                (code, status)
            }
        };
        let response = Response::builder().status(code);
        Ok(response.body(Body::from(body.to_string().into_bytes()))?)
    }

    fn methods(&self) -> Vec<Method> {
        self.requests()
            .into_iter()
            .map(|request| request.0)
            .collect()
    }

    fn requests(&self) -> Vec<(Method, String, Value, Instant)> {
        self.0.lock().unwrap().as_ref().unwrap().requests.clone()
    }
}

struct Setup {
    server: Server,
    sink: Arc<ApiEventSink>,
    registry: prometheus::Registry,
    shutdown: CancellationToken,
    worker: Option<EventWorker>,
}

impl Setup {
    fn new(answers: &[Answer]) -> Self {
        let server = Server::new(answers);
        let registry = prometheus::Registry::new();
        let clock = Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap());
        let (sink, worker) =
            ApiEventSink::new(server.client(), clock, Random::seeded(1), &registry).unwrap();
        Self {
            server,
            sink,
            registry,
            shutdown: CancellationToken::new(),
            worker: Some(worker),
        }
    }

    fn emit(&self, message: &str) {
        self.sink.emit(event(message));
    }

    /// Lets the worker run for so long, then ends it.
    async fn run_for(mut self, time: Duration) -> Self {
        let worker = self.worker.take().unwrap();
        let run = tokio::spawn(worker.run(self.shutdown.clone()));
        tokio::time::sleep(time).await;
        self.shutdown.cancel();
        run.await.unwrap();
        self
    }

    fn dropped(&self, reason: &str) -> u64 {
        let family = self
            .registry
            .gather()
            .into_iter()
            .find(|family| family.name() == "ccm_events_dropped_total");
        let value = family.and_then(|family| {
            let metrics = family.get_metric().iter();
            metrics
                .into_iter()
                .find(|metric| metric.get_label()[0].value() == reason)
                .map(|metric| metric.get_counter().get_value())
        });
        value.unwrap_or(0.0) as u64
    }
}

fn event(message: &str) -> Event {
    Event {
        source: "service-controller",
        object: EventObject {
            api_version: "v1",
            kind: "Service",
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "u-1".to_owned(),
            resource_version: "42".to_owned(),
        },
        type_: EventType::Normal,
        reason: "EnsuredLoadBalancer".to_owned(),
        message: message.to_owned(),
    }
}

/// REQ-MET-04
#[tokio::test(start_paused = true)]
async fn a_first_event_is_created_and_its_repeats_are_patched() {
    let setup = Setup::new(&[]);
    setup.emit("Ensured load balancer");
    setup.emit("Ensured load balancer");
    let setup = setup.run_for(Duration::from_secs(1)).await;
    let requests = setup.server.requests();
    assert_eq!(setup.server.methods(), [Method::POST, Method::PATCH]);
    let (_, path, created, _) = &requests[0];
    assert_eq!(path, "/api/v1/namespaces/shop/events");
    assert_eq!(created["metadata"]["name"], "web.18867251edfa0000");
    assert_eq!(created["metadata"]["namespace"], "shop");
    assert_eq!(
        created["source"],
        json!({ "component": "service-controller" })
    );
    assert_eq!(created["reportingComponent"], "service-controller");
    assert_eq!(created["type"], "Normal");
    assert_eq!(created["reason"], "EnsuredLoadBalancer");
    assert_eq!(created["count"], 1);
    assert_eq!(created["firstTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(created["lastTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(
        created["involvedObject"],
        json!({
            "apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web",
            "uid": "u-1", "resourceVersion": "42",
        })
    );
    let (_, path, patch, _) = &requests[1];
    assert_eq!(path, "/api/v1/namespaces/shop/events/web.18867251edfa0000");
    assert_eq!(patch["count"], 2);
    assert_eq!(patch["message"], "Ensured load balancer");
}

#[tokio::test(start_paused = true)]
async fn events_about_nodes_land_in_the_default_namespace() {
    let setup = Setup::new(&[]);
    let mut about_node = event("Node synced successfully");
    about_node.object.namespace = String::new();
    about_node.object.kind = "Node";
    setup.sink.emit(about_node);
    let setup = setup.run_for(Duration::from_secs(1)).await;
    let (_, path, created, _) = &setup.server.requests()[0];
    assert_eq!(path, "/api/v1/namespaces/default/events");
    assert!(created["involvedObject"].get("namespace").is_none());
}

/// REQ-MET-04
#[tokio::test(start_paused = true)]
async fn a_repeat_of_an_expired_event_is_created_anew() {
    let setup = Setup::new(&[Answer::Fine, Answer::Status(404, "NotFound")]);
    setup.emit("x");
    setup.emit("x");
    let setup = setup.run_for(Duration::from_secs(1)).await;
    assert_eq!(
        setup.server.methods(),
        [Method::POST, Method::PATCH, Method::POST]
    );
    assert_eq!(setup.server.requests()[2].2["count"], 2);
}

/// REQ-MET-06
#[tokio::test(start_paused = true)]
async fn an_answered_refusal_is_final() {
    for (code, reason) in [
        (403, "Forbidden"),
        (409, "AlreadyExists"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
    ] {
        let setup = Setup::new(&[Answer::Status(code, reason)]);
        setup.emit("x");
        let setup = setup.run_for(Duration::from_secs(300)).await;
        assert_eq!(setup.server.methods().len(), 1, "{code}");
        assert_eq!(setup.dropped("refused"), 1, "{code}");
    }
}

/// REQ-MET-06
#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_tried_twelve_times_ten_seconds_apart() {
    let setup = Setup::new(&[Answer::NoConnection; 13]);
    setup.emit("x");
    let setup = setup.run_for(Duration::from_secs(600)).await;
    let requests = setup.server.requests();
    assert_eq!(requests.len(), 12);
    for pair in requests.windows(2).skip(1) {
        assert_eq!(pair[1].3 - pair[0].3, Duration::from_secs(10));
    }
    assert!(requests[1].3 - requests[0].3 < Duration::from_secs(10));
    assert_eq!(setup.dropped("unreachable"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_gets_the_event() {
    let setup = Setup::new(&[Answer::NoConnection; 3]);
    setup.emit("x");
    let setup = setup.run_for(Duration::from_secs(600)).await;
    assert_eq!(setup.server.methods().len(), 4);
    assert_eq!(setup.dropped("unreachable"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_counts() {
    let setup = Setup::new(&[]);
    for n in 0..1003 {
        setup.emit(&format!("message {n}"));
    }
    assert_eq!(setup.dropped("queue_full"), 3);
    let setup = setup.run_for(Duration::from_secs(1)).await;
    assert_eq!(setup.server.methods().len(), 25, "one object, one burst");
    assert_eq!(setup.dropped("spam"), 975);
}

#[tokio::test(start_paused = true)]
async fn what_waits_at_the_end_is_written_within_a_bound() {
    let setup = Setup::new(&[]);
    setup.emit("last words");
    let setup = setup.run_for(Duration::ZERO).await;
    assert_eq!(setup.server.methods(), [Method::POST]);

    let mut hung = Setup::new(&[]);
    let never = tower::service_fn(|_: Request<Body>| std::future::pending());
    let client = Client::new(
        tower::util::BoxService::<_, Response<Body>, Infallible>::new(never),
        "default",
    );
    hung.worker.as_mut().unwrap().client = client;
    hung.emit("x");
    let start = Instant::now();
    let hung = hung.run_for(Duration::from_secs(1)).await;
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert!(hung.server.methods().is_empty());
}

/// REQ-MET-04, REQ-MET-06
#[tokio::test(start_paused = true)]
async fn an_api_server_keeps_one_object_for_repeats_and_one_for_look_alikes() {
    let sim = ccm_kubesim::KubeSim::new(ccm_kubesim::Options::default());
    let client = Client::new(sim.service(), "default");
    let clock = Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap());
    let registry = prometheus::Registry::new();
    let (sink, worker) = ApiEventSink::new(client, clock, Random::seeded(1), &registry).unwrap();
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(worker.run(shutdown.clone()));
    let about = |message: &str| {
        let mut event = event(message);
        event.object.namespace = "default".to_owned();
        event
    };
    for _ in 0..3 {
        sink.emit(about("Ensured load balancer"));
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    for n in 0..11 {
        sink.emit(about(&format!("request {n} failed")));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = sim.list("events");
    let with = |start: &str| -> Vec<&Value> {
        let starts = |event: &&Value| event["message"].as_str().unwrap().starts_with(start);
        events.iter().filter(starts).collect()
    };
    let repeated = with("Ensured load balancer");
    assert_eq!(repeated.len(), 1);
    assert_eq!(repeated[0]["count"], 3);
    assert_eq!(repeated[0]["firstTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(repeated[0]["lastTimestamp"], "2026-01-01T00:02:00Z");
    let combined = with("(combined from similar events): ");
    assert_eq!(combined.len(), 1);
    assert_eq!(
        combined[0]["message"],
        "(combined from similar events): request 10 failed"
    );
    assert_eq!(
        combined[0]["count"], 3,
        "messages 8, 9 and 10 after 9 others"
    );
    assert_eq!(with("request ").len(), 8);
    shutdown.cancel();
    run.await.unwrap();
}
