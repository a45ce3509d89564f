//! The control endpoints under `/_sim/`: the test handle for people with curl.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::CloudSim;
use crate::control::{Answer, CloudError};

#[derive(Deserialize)]
struct LatencyBody {
    action: String,
    millis: u64,
}

#[derive(Deserialize)]
struct ThrottleBody {
    action: String,
    per_second: f64,
    burst: f64,
}

#[derive(Default, Deserialize)]
struct ClearBody {
    action: Option<String>,
}

/// Answers a request to `/_sim/<path>`.
pub(crate) fn answer(sim: &CloudSim, method: &Method, path: &str, body: &[u8]) -> Answer {
    let (status, value) = match route(sim, method, path, body) {
        Ok(value) => (200, value),
        Err(error) => (
            error.status,
            json!({"code": error.code, "message": error.message}),
        ),
    };
    let mut text = format!("{value:#}");
    text.push('\n');
    Answer {
        status,
        content_type: "application/json",
        headers: Vec::new(),
        body: Bytes::from(text),
        code: None,
        denied: None,
    }
}

fn route(sim: &CloudSim, method: &Method, path: &str, body: &[u8]) -> Result<Value, CloudError> {
    let parts: Vec<&str> = path.split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["actions"]) => Ok(json!(sim.aws().actions())),
        ("GET", ["calls"]) => Ok(json!(sim.calls().counts_since(sim.calls().start()))),
        ("GET", ["calls", "all"]) => Ok(json!(sim.calls().calls_since(sim.calls().start()))),
        ("POST", ["reset-calls"]) => {
            sim.calls().reset();
            Ok(json!({}))
        }
        ("GET", ["faults"]) => Ok(json!(sim.faults().list())),
        ("POST", ["faults"]) => {
            sim.faults().add(parse(body)?)?;
            Ok(json!(sim.faults().list()))
        }
        ("DELETE", ["faults"]) => {
            let wanted: ClearBody = if body.is_empty() {
                ClearBody::default()
            } else {
                parse(body)?
            };
            match wanted.action {
                Some(action) => sim.faults().clear(&action),
                None => sim.faults().clear_all(),
            }
            Ok(json!(sim.faults().list()))
        }
        ("GET", ["state"]) => Ok(json!({"aws": sim.aws().snapshot()})),
        ("GET", ["iam"]) => Ok(json!(sim.iam().documents())),
        ("PUT", ["iam", name]) => {
            let utf8 = |_| CloudError::new("BadRequest", "request body: not UTF-8");
            let document = std::str::from_utf8(body).map_err(utf8)?;
            sim.iam().attach(name, document)?;
            Ok(json!(sim.iam().documents()))
        }
        ("DELETE", ["iam", name]) => {
            sim.iam().detach(name);
            Ok(json!(sim.iam().documents()))
        }
        ("DELETE", ["iam"]) => {
            sim.iam().clear();
            Ok(json!(sim.iam().documents()))
        }
        ("POST", ["instances", id, verb]) => {
            match *verb {
                "terminate" => sim.aws().terminate(id)?,
                "stop" => sim.aws().stop(id)?,
                "start" => sim.aws().start(id)?,
                _ => return Err(unknown(method, path)),
            }
            Ok(json!({}))
        }
        _ => limits(sim, method, path, body),
    }
}

/// Latency, throttling and quotas.
fn limits(sim: &CloudSim, method: &Method, path: &str, body: &[u8]) -> Result<Value, CloudError> {
    match (method.as_str(), path) {
        ("POST", "latency") => {
            let wanted: LatencyBody = parse(body)?;
            sim.latency()
                .set(&wanted.action, Duration::from_millis(wanted.millis));
            Ok(json!({}))
        }
        ("DELETE", "latency") => {
            sim.latency().clear();
            Ok(json!({}))
        }
        ("POST", "throttles") => {
            let wanted: ThrottleBody = parse(body)?;
            sim.throttles()
                .set(&wanted.action, wanted.per_second, wanted.burst);
            Ok(json!({}))
        }
        ("DELETE", "throttles") => {
            sim.throttles().clear();
            Ok(json!({}))
        }
        ("POST", "quotas") => {
            let wanted = parse(body)?;
            sim.aws().set_quotas(|quotas| *quotas = wanted);
            Ok(json!(sim.aws().quotas()))
        }
        ("GET", "quotas") => Ok(json!(sim.aws().quotas())),
        _ => Err(unknown(method, path)),
    }
}

fn unknown(method: &Method, path: &str) -> CloudError {
    CloudError::new(
        "NotFound",
        format!("no control endpoint {method} /_sim/{path}"),
    )
    .with_status(404)
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, CloudError> {
    serde_json::from_slice(body)
        .map_err(|error| CloudError::new("BadRequest", format!("request body: {error}")))
}
