//! The way of one process to the API server: a tower service around kubesim's.
//!
//! Every request passes the same points as a cloud call: the process lives, the request is
//! recorded, its fate is asked for, it takes its time, the judge compares the object before and
//! after. A [`Wiretap`] may answer instead of the server or swallow watch events: only planted
//! defects do.

mod call;

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use ccm_kubesim::{KubeSim, Verb};
use futures::{StreamExt as _, stream};
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt as _};

pub use self::call::ApiCall;
use crate::{cloud::session::Lines, fate::Blow, process::Process, trace::Kind};

/// Stands between a process and the API server.
pub trait Wiretap: Send + Sync {
    /// Answers instead of the server; `None` lets the request through.
    fn answer(&self, _call: &ApiCall, _kube: &KubeSim) -> Option<(StatusCode, Value)> {
        None
    }

    /// Whether an event of a watch is handed on.
    fn hands_on(&self, _call: &ApiCall, _event: &Value) -> bool {
        true
    }
}

/// The API server as one process reaches it.
#[derive(Clone)]
pub struct Tap {
    kube: KubeSim,
    lines: Lines,
    process: Arc<Process>,
    wiretap: Option<Arc<dyn Wiretap>>,
}

impl Tap {
    /// The way of this process.
    pub fn new(
        kube: KubeSim,
        lines: Lines,
        process: Arc<Process>,
        wiretap: Option<Arc<dyn Wiretap>>,
    ) -> Self {
        Self {
            kube,
            lines,
            process,
            wiretap,
        }
    }

    async fn pass(self, request: Request<kube::client::Body>) -> Result<Response<Body>, BoxError> {
        let unsent = self.process.is_frozen();
        self.process.gate().await;
        if unsent {
            return Err("the connection broke while the process was stopped".into());
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let call = ApiCall::of(self.process.number, &parts.method, &parts.uri, &body);
        let (kind, text) = (call.kind(), call.text());
        if kind == Kind::ApiWrite {
            self.lines.judge.api_write_begins(&self.process, &call);
        }
        self.lines.judge.tried(&text);
        let trace = &self.lines.trace;
        let index = trace.op(self.process.number, kind, text.clone());
        let blow = self.lines.fates.strike(index, kind, &text);
        match blow {
            Some(Blow::CrashBefore) => {
                trace.end(index, "process died before");
                self.process.die().await;
            }
            Some(Blow::Slow(time)) => self.rest(time).await,
            _ => {}
        }
        let half = self.lines.latency.of(index, kind) / 2;
        self.rest(half).await;
        if let Some(refusal) = blow.and_then(refusal) {
            self.rest(half).await;
            return struck(trace, index, refusal);
        }
        let request = Request::from_parts(parts, Body::from(body));
        if let Some(Blow::Late(time)) = blow {
            if kind == Kind::ApiWrite {
                self.act_later(time, index, call, request);
            }
            self.rest(half).await;
            self.process.gate().await;
            return struck(trace, index, Refusal::answer(504, "Timeout", None));
        }
        let response = self.act(&call, request).await;
        if blow == Some(Blow::CrashAfter) {
            trace.end(index, "done, process died");
            self.process.die().await;
        }
        self.rest(half).await;
        self.process.gate().await;
        match blow {
            Some(Blow::Lost) => struck(trace, index, Refusal::answer(504, "Timeout", None)),
            Some(Blow::BrokenAfter) => struck(trace, index, Refusal::Broken),
            _ => {
                match &response {
                    Ok(response) => trace.end(index, response.status().as_u16().to_string()),
                    Err(error) => trace.end(index, error.to_string()),
                }
                response
            }
        }
    }

    /// The server's answer, with the object compared before and after.
    async fn act(
        &self,
        call: &ApiCall,
        request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        let object = || self.kube.get(&call.resource, &call.namespace, &call.name);
        let writes = call.verb.is_write();
        let before = if writes { object() } else { None };
        let lie = self
            .wiretap
            .as_ref()
            .and_then(|wiretap| wiretap.answer(call, &self.kube));
        let response = match lie {
            Some((status, value)) => json_response(status, &value, None),
            None => self.kube.service().oneshot(request).await?,
        };
        if writes {
            let after = object();
            let (before, after) = (before.as_ref(), after.as_ref());
            self.lines
                .judge
                .api_written(&self.process, call, before, after);
        }
        if call.verb != Verb::Watch {
            return Ok(response);
        }
        let response = heard(response, Arc::clone(&self.process), call);
        match &self.wiretap {
            Some(wiretap) => Ok(filtered(response, Arc::clone(wiretap), call)),
            None => Ok(response),
        }
    }

    /// The request takes effect, or is refused, when nobody waits for it any more.
    fn act_later(&self, time: Duration, index: u32, call: ApiCall, request: Request<Body>) {
        let tap = self.clone();
        self.lines.fates.later(time, async move {
            let how = match tap.act(&call, request).await {
                Ok(response) => response.status().to_string(),
                Err(error) => error.to_string(),
            };
            let trace = &tap.lines.trace;
            trace.world(format!(
                "{index} takes place, long after its time-out: {how}"
            ));
        });
    }

    async fn rest(&self, time: Duration) {
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        if self.process.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}

/// A watch as the process hears it: nothing arrives while it is stopped or its watches are held.
fn heard(response: Response<Body>, process: Arc<Process>, call: &ApiCall) -> Response<Body> {
    let resource = call.resource.clone();
    response.map(|body| {
        let watch = Some((body.into_data_stream(), process, resource));
        let heard = stream::unfold(watch, |watch| async move {
            let (mut events, process, resource) = watch?;
            let event = events.next().await;
            if !matches!(event, Some(Ok(_))) {
                // All watches break at one moment, in an order that is nobody's: they are told one
                // after the other, so that a run is the same each time.
                tokio::time::sleep(turn(process.number, &resource)).await;
            }
            let event = event?;
            process.gate().await;
            let arrives = process.hears(&resource).await;
            process.gate().await;
            if arrives {
                Some((event, Some((events, process, resource))))
            } else {
                let broken = axum::Error::new("the connection broke by a fault");
                Some((Err(broken), None))
            }
        });
        Body::from_stream(heard)
    })
}

/// How long after a break a watch hears of it; no two of one manager, or of two that live at the
/// same time, after the same time.
fn turn(process: u32, resource: &str) -> Duration {
    let place = u64::from(process % 4) * 2 + u64::from(resource == "services");
    Duration::from_millis(place)
}

/// Takes out of a watch what the wiretap does not hand on: kubesim sends one event a chunk.
fn filtered(response: Response<Body>, wiretap: Arc<dyn Wiretap>, call: &ApiCall) -> Response<Body> {
    let call = call.clone();
    response.map(|body| {
        let kept = body.into_data_stream().filter(move |chunk| {
            let event = chunk.as_ref().ok();
            let event = event.and_then(|chunk| serde_json::from_slice::<Value>(chunk).ok());
            let keep = event.is_none_or(|event| wiretap.hands_on(&call, &event));
            std::future::ready(keep)
        });
        Body::from_stream(kept)
    })
}

#[derive(Clone, Copy)]
enum Refusal {
    Answer(u16, &'static str, Option<u64>),
    Broken,
}

impl Refusal {
    const fn answer(code: u16, reason: &'static str, after: Option<u64>) -> Self {
        Self::Answer(code, reason, after)
    }
}

/// What the client gets although nothing was done.
fn refusal(blow: Blow) -> Option<Refusal> {
    Some(match blow {
        Blow::Conflict => Refusal::answer(409, "Conflict", None),
        Blow::Gone => Refusal::answer(410, "Expired", None),
        Blow::Throttled(after) => {
            Refusal::answer(429, "TooManyRequests", Some(after.as_secs().max(1)))
        }
        Blow::Internal => Refusal::answer(500, "InternalError", None),
        Blow::Denied => Refusal::answer(403, "Forbidden", None),
        Blow::Broken => Refusal::Broken,
        Blow::CrashBefore
        | Blow::CrashAfter
        | Blow::Lost
        | Blow::Late(_)
        | Blow::BrokenAfter
        | Blow::Slow(_) => return None,
    })
}

fn struck(
    trace: &crate::trace::Trace,
    index: u32,
    refusal: Refusal,
) -> Result<Response<Body>, BoxError> {
    match refusal {
        Refusal::Broken => {
            trace.end(index, "struck: connection broken");
            Err("connection reset by a fault".into())
        }
        Refusal::Answer(code, reason, after) => {
            trace.end(index, format!("struck: {code}"));
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": format!("struck by a fault: {reason}"), "reason": reason, "code": code,
            });
            let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Ok(json_response(code, &status, after))
        }
    }
}

fn json_response(status: StatusCode, value: &Value, after: Option<u64>) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    if let Some(after) = after {
        headers.insert(header::RETRY_AFTER, after.into());
    }
    response
}

impl tower::Service<Request<kube::client::Body>> for Tap {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.clone().pass(request))
    }
}
