//! The routes of the two ports (specification: controllers §7.4).

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{RawQuery, State},
    http::{
        StatusCode,
        header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse, Response},
    routing::{any, get, put},
};
use prometheus::{Encoder as _, Registry, TextEncoder};
use serde::Serialize;
use serde_json::Value;

use super::metrics::HealthMetrics;
use crate::runtime::{Health, Loops, Probe, ProbeQuery, QueueMetrics};

/// A verbosity is a number.
const LARGEST_FLAG_VALUE: usize = 64;

/// For that number to arrive.
const FLAG_VALUE_WITHIN: Duration = Duration::from_secs(10);

/// Changes the verbosity of the log; answers with the text for the operator.
pub type SetVerbosity = Arc<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// What both ports tell of. Cheap to clone.
#[derive(Clone)]
pub struct Endpoints {
    health: Health,
    queues: QueueMetrics,
    registry: Registry,
    slis: Slis,
}

#[derive(Clone)]
struct Slis {
    metrics: HealthMetrics,
    registry: Registry,
}

/// What only the secure port tells.
pub struct Inspection {
    /// The body of `/configz` (REQ-APP-17).
    pub configz: Value,
    /// The loops of `/debug/controllers`.
    pub loops: Loops,
    /// `--profiling`: whether there is `/debug/flags/v`.
    pub profiling: bool,
    /// What a `PUT` of `/debug/flags/v` does; `None`: the verbosity cannot be changed.
    pub set_verbosity: Option<SetVerbosity>,
}

impl Endpoints {
    /// Endpoints that tell of these checks and series.
    ///
    /// # Errors
    /// The series of the health checks cannot be made.
    pub fn new(
        health: Health,
        queues: QueueMetrics,
        registry: Registry,
    ) -> prometheus::Result<Self> {
        let of_checks = Registry::new();
        Ok(Self {
            health,
            queues,
            registry,
            slis: Slis {
                metrics: HealthMetrics::new(&of_checks)?,
                registry: of_checks,
            },
        })
    }

    /// The routes of the plain port: health and metrics, nothing that changes something.
    pub fn plain(&self) -> Router {
        self.common()
            .route("/metrics/slis", get(slis))
            .with_state(self.clone())
    }

    /// The routes of the secure port. `/livez`, `/readyz` and `/debug/controllers` are ours;
    /// profiles of Go's runtime do not exist here.
    pub fn secure(&self, inspection: Inspection) -> Router {
        let Inspection {
            configz,
            loops,
            profiling,
            set_verbosity,
        } = inspection;
        let mut routes = self
            .common()
            .route("/metrics/slis", get(slis).delete(reset_slis))
            .route("/configz", get(move || std::future::ready(json(&configz))))
            .route(
                "/debug/controllers",
                get(move || std::future::ready(json(&loops.reports()))),
            );
        if profiling {
            let set = put(move |body: Body| set_flag(set_verbosity.clone(), body));
            routes = routes
                .route("/debug/flags/v", set)
                .route("/debug/pprof", any(no_profiles))
                .route("/debug/pprof/{*rest}", any(no_profiles))
                .route("/debug/pprof/", any(no_profiles));
        }
        routes.with_state(self.clone())
    }

    fn common(&self) -> Router<Self> {
        Router::new()
            .route("/healthz", get(|s, q| probe(Probe::Health, s, q)))
            .route("/livez", get(|s, q| probe(Probe::Live, s, q)))
            .route("/readyz", get(|s, q| probe(Probe::Ready, s, q)))
            .route("/metrics", get(metrics))
    }
}

async fn probe(
    probe: Probe,
    State(endpoints): State<Endpoints>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = ProbeQuery::parse(query.as_deref().unwrap_or_default());
    let report = endpoints.health.report(probe, &query);
    endpoints.slis.metrics.observe(probe, &report.checks);
    let status = match (report.passed, probe) {
        (true, _) => StatusCode::OK,
        (false, Probe::Ready) => StatusCode::SERVICE_UNAVAILABLE,
        (false, Probe::Health | Probe::Live) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let guess_nothing = [(X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, guess_nothing, report.text).into_response()
}

async fn metrics(State(endpoints): State<Endpoints>) -> Response {
    endpoints.queues.refresh();
    exposition(&endpoints.registry)
}

async fn slis(State(endpoints): State<Endpoints>) -> Response {
    exposition(&endpoints.slis.registry)
}

async fn reset_slis(State(endpoints): State<Endpoints>) -> &'static str {
    endpoints.slis.metrics.reset();
    "metrics reset\n"
}

fn exposition(registry: &Registry) -> Response {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&registry.gather(), &mut text) {
        Ok(()) => ([(CONTENT_TYPE, encoder.format_type().to_owned())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn json(value: &impl Serialize) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    match serde_json::to_vec(value) {
        Ok(text) => (headers, text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn set_flag(set: Option<SetVerbosity>, body: Body) -> (StatusCode, String) {
    let Some(set) = set else {
        let text = "the verbosity cannot be changed while the process runs\n";
        return (StatusCode::NOT_IMPLEMENTED, text.to_owned());
    };
    let body = axum::body::to_bytes(body, LARGEST_FLAG_VALUE);
    let Ok(Ok(body)) = tokio::time::timeout(FLAG_VALUE_WITHIN, body).await else {
        let text = "error: send the verbosity as a number in the body\n";
        return (StatusCode::BAD_REQUEST, text.to_owned());
    };
    match set(String::from_utf8_lossy(&body).trim()) {
        Ok(text) => (StatusCode::OK, text),
        Err(text) => (StatusCode::BAD_REQUEST, format!("error: {text}\n")),
    }
}

async fn no_profiles() -> (StatusCode, &'static str) {
    (
        StatusCode::NOT_FOUND,
        "no Go runtime, no profiles: use perf on the process, and /debug/controllers for the loops\n",
    )
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::BodyExt as _;
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;
    use crate::runtime::{Backoff, Clock, WorkQueue};

    struct Setup {
        health: Health,
        queues: QueueMetrics,
        endpoints: Endpoints,
    }

    fn setup() -> Setup {
        let registry = Registry::new();
        let queues = QueueMetrics::new(&registry).unwrap();
        let health = Health::new();
        let endpoints = Endpoints::new(health.clone(), queues.clone(), registry).unwrap();
        Setup {
            health,
            queues,
            endpoints,
        }
    }

    fn inspection(profiling: bool, set_verbosity: Option<SetVerbosity>) -> Inspection {
        Inspection {
            configz: json!({"cloudcontrollermanager.config.k8s.io": {
                "kind": "CloudControllerManagerConfiguration",
                "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
            }}),
            loops: Loops::new(Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap())),
            profiling,
            set_verbosity,
        }
    }

    async fn send(router: &Router, method: &str, path: &str, body: &'static str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(body)).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn ask(router: &Router, path: &str) -> (u16, String) {
        send(router, "GET", path, "").await
    }

    #[tokio::test]
    async fn readiness_is_503_until_every_gate_is_open() {
        let setup = setup();
        let router = setup.endpoints.plain();
        let gate = setup.health.gate("caches");
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
        let setup = setup();
        let router = setup.endpoints.plain();
        setup.health.add("service-lb-controller", || false);
        assert_eq!(ask(&router, "/healthz").await.0, 500);
        let excluded = ask(&router, "/healthz?exclude=service-lb-controller").await;
        assert_eq!(excluded.0, 200);
    }

    #[tokio::test]
    async fn metrics_are_refreshed_when_asked_for() {
        let setup = setup();
        let queue = WorkQueue::new("Nodes", Backoff::CONTROLLER_DEFAULT, &setup.queues);
        queue.add("a");
        let _work = queue.next().await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        let (status, body) = ask(&setup.endpoints.plain(), "/metrics").await;
        assert_eq!(status, 200);
        let line = body
            .lines()
            .find(|line| line.starts_with("workqueue_unfinished_work_seconds{name=\"Nodes\"}"))
            .unwrap();
        let seconds: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(seconds > 0.0, "{line}");
    }

    #[tokio::test]
    async fn the_results_of_checks_are_counted_over_both_ports_and_a_delete_resets_them() {
        let setup = setup();
        let (plain, secure) = (
            setup.endpoints.plain(),
            setup.endpoints.secure(inspection(false, None)),
        );
        setup.health.add("leaderElection", || true);
        setup.health.add("service-lb-controller", || false);
        ask(&plain, "/healthz").await;
        ask(&secure, "/healthz?exclude=leaderElection").await;
        let (status, text) = ask(&secure, "/metrics/slis").await;
        assert_eq!(status, 200);
        for line in [
            "kubernetes_healthcheck{name=\"leaderElection\",type=\"healthz\"} 1",
            "kubernetes_healthcheck{name=\"service-lb-controller\",type=\"healthz\"} 0",
            "kubernetes_healthchecks_total{name=\"leaderElection\",status=\"success\",type=\"healthz\"} 1",
            "kubernetes_healthchecks_total{name=\"service-lb-controller\",status=\"error\",type=\"healthz\"} 2",
        ] {
            assert!(text.lines().any(|have| have == line), "{line}\n{text}");
        }
        assert!(!ask(&plain, "/metrics").await.1.contains("healthcheck"));
        assert_eq!(send(&plain, "DELETE", "/metrics/slis", "").await.0, 405);
        let reset = send(&secure, "DELETE", "/metrics/slis", "").await;
        assert_eq!(reset, (200, "metrics reset\n".to_owned()));
        assert_eq!(ask(&plain, "/metrics/slis").await.1, "");
    }

    /// REQ-APP-17
    #[tokio::test]
    async fn the_secure_port_tells_configuration_and_loops_and_the_plain_one_does_not() {
        let setup = setup();
        let inspection = inspection(true, None);
        let _loop = inspection
            .loops
            .add("cloud-node-controller", "addresses", None);
        let (plain, secure) = (setup.endpoints.plain(), setup.endpoints.secure(inspection));
        let (status, text) = ask(&secure, "/configz").await;
        let configz: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status, 200);
        assert_eq!(
            configz["cloudcontrollermanager.config.k8s.io"]["apiVersion"],
            "cloudcontrollermanager.config.k8s.io/v1alpha1"
        );
        let (_, text) = ask(&secure, "/debug/controllers").await;
        assert_eq!(
            text,
            "[{\"controller\":\"cloud-node-controller\",\"name\":\"addresses\",\"passes\":0}]"
        );
        for path in ["/configz", "/debug/controllers", "/debug/flags/v", "/x"] {
            assert_eq!(ask(&plain, path).await.0, 404, "{path}");
        }
        assert_eq!(send(&secure, "POST", "/configz", "").await.0, 405);
        assert_eq!(ask(&secure, "/healthz/ping").await.0, 404);
    }

    #[tokio::test]
    async fn the_verbosity_is_set_by_put_if_profiling_is_on() {
        let setup = setup();
        let set: SetVerbosity = Arc::new(|text| match text.parse::<i32>() {
            Ok(level) => Ok(format!(
                "successfully set klog.logging.verbosity to {level}"
            )),
            Err(error) => Err(error.to_string()),
        });
        let router = setup
            .endpoints
            .secure(inspection(true, Some(Arc::clone(&set))));
        let done = send(&router, "PUT", "/debug/flags/v", "5\n").await;
        assert_eq!(
            done,
            (200, "successfully set klog.logging.verbosity to 5".into())
        );
        assert_eq!(send(&router, "PUT", "/debug/flags/v", "x").await.0, 400);
        let long = "1111111111111111111111111111111111111111111111111111111111111111111111";
        assert_eq!(send(&router, "PUT", "/debug/flags/v", long).await.0, 400);
        assert_eq!(ask(&router, "/debug/flags/v").await.0, 405);
        for path in ["/debug/pprof", "/debug/pprof/", "/debug/pprof/heap"] {
            let (status, text) = ask(&router, path).await;
            assert_eq!(status, 404);
            assert!(text.contains("no profiles"), "{path}: {text}");
        }
        let fixed = setup.endpoints.secure(inspection(true, None));
        assert_eq!(send(&fixed, "PUT", "/debug/flags/v", "5").await.0, 501);
        let off = setup.endpoints.secure(inspection(false, Some(set)));
        assert_eq!(
            send(&off, "PUT", "/debug/flags/v", "5").await,
            (404, String::new())
        );
    }
}
