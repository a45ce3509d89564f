//! The way of one process to the API server: a tower service around kubesim's.
//!
//! Every request passes the same points as a cloud call: the process lives, the request is
//! recorded, its fate is asked for, it takes its time, the judge compares the object before and
//! after. A [`Wiretap`] may answer instead of the server or swallow watch events: only planted
//! defects do.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use ccm_kubesim::{KubeSim, Verb};
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt as _};

use crate::{cloud::session::Lines, fate::Blow, process::Process, trace::Kind};

/// A request, as the rules and the record see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiCall {
    /// What it wants to do.
    pub verb: Verb,
    /// Plural with group, `leases.coordination.k8s.io`.
    pub resource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// The body, `Null` without one.
    pub body: Value,
}

impl ApiCall {
    fn of(method: &Method, uri: &http::Uri, body: &[u8]) -> Self {
        let mut words = uri.path().split('/').filter(|word| !word.is_empty());
        let group = match words.next() {
            Some("apis") => {
                let group = words.next().unwrap_or_default();
                words.next();
                format!(".{group}")
            }
            Some("api") => {
                words.next();
                String::new()
            }
            _ => String::new(),
        };
        let mut rest: Vec<&str> = words.collect();
        let mut namespace = String::new();
        if rest.first() == Some(&"namespaces") && rest.len() > 2 {
            namespace = rest.remove(1).to_owned();
            rest.remove(0);
        }
        let word = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        let (resource, name, subresource) = (word(0) + &group, word(1), word(2));
        let watches = uri
            .query()
            .is_some_and(|query| query.split('&').any(|part| part.starts_with("watch=")));
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ if watches => Verb::Watch,
            _ if name.is_empty() => Verb::List,
            _ => Verb::Get,
        };
        Self {
            verb,
            resource,
            namespace,
            name,
            subresource,
            body: serde_json::from_slice(body).unwrap_or(Value::Null),
        }
    }

    fn kind(&self) -> Kind {
        // Reviews ask and change nothing.
        let asks = self.resource.contains("reviews.");
        if self.verb.is_write() && !asks {
            Kind::ApiWrite
        } else {
            Kind::ApiRead
        }
    }

    /// The request in one line.
    pub fn text(&self) -> String {
        let slash = |text: &str| if text.is_empty() { "" } else { "/" };
        let mut text = format!(
            "{} {}{}{} {}{}{}",
            self.verb.as_str(),
            self.resource,
            slash(&self.subresource),
            self.subresource,
            self.namespace,
            slash(&self.namespace),
            self.name,
        );
        match self.verb {
            Verb::Patch => {
                let mut fields = Vec::new();
                fields_of(&self.body, "", 2, &mut fields);
                text = format!("{text} {}", fields.join(","));
            }
            Verb::Create => {
                let reason = self.body.get("reason").and_then(Value::as_str);
                text = format!("{text} {}", reason.unwrap_or_default());
            }
            _ => {}
        }
        text
    }
}

/// The paths of the fields of a patch.
fn fields_of(value: &Value, path: &str, depth: usize, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) if depth > 0 && !fields.is_empty() => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                fields_of(value, &format!("{path}{dot}{name}"), depth - 1, into);
            }
        }
        _ => into.push(path.to_owned()),
    }
}

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
        self.process.gate().await;
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let call = ApiCall::of(&parts.method, &parts.uri, &body);
        let (kind, text) = (call.kind(), call.text());
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
        let response = self.act(&call, request).await;
        if blow == Some(Blow::CrashAfter) {
            trace.end(index, "done, process died");
            self.process.die().await;
        }
        self.rest(half).await;
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
        match (&self.wiretap, call.verb) {
            (Some(wiretap), Verb::Watch) => Ok(filtered(response, Arc::clone(wiretap), call)),
            _ => Ok(response),
        }
    }

    async fn rest(&self, time: std::time::Duration) {
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        if self.process.is_dead() {
            std::future::pending::<()>().await;
        }
    }
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
        Blow::CrashBefore | Blow::CrashAfter | Blow::Lost | Blow::BrokenAfter | Blow::Slow(_) => {
            return None;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let text = |method: Method, uri: &str, body: &str| {
            ApiCall::of(&method, &uri.parse().unwrap(), body.as_bytes()).text()
        };
        assert_eq!(
            text(
                Method::PATCH,
                "/api/v1/namespaces/shop/services/web/status?",
                r#"{"metadata":{"uid":"1","finalizers":["a"]}}"#
            ),
            "patch services/status shop/web metadata.finalizers,metadata.uid"
        );
        assert_eq!(
            text(Method::GET, "/api/v1/nodes?watch=true", ""),
            "watch nodes "
        );
        assert_eq!(
            text(
                Method::GET,
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm",
                ""
            ),
            "get leases.coordination.k8s.io kube-system/ccm"
        );
    }
}
