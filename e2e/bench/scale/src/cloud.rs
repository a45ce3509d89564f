//! The emulated cloud: machines that follow from their names, and load balancers. Every request is
//! one cloud call and is counted.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::objects::{INSTANCE_TYPE, Machine, REGION};

/// The calls so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Questions about machines.
    pub machines: u64,
    /// Questions about load balancers.
    pub balancer_reads: u64,
    /// Changes of load balancers.
    pub writes: u64,
}

impl Calls {
    /// All of them.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.machines + self.balancer_reads + self.writes
    }

    /// The calls since an earlier count.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            machines: self.machines - before.machines,
            balancer_reads: self.balancer_reads - before.balancer_reads,
            writes: self.writes - before.writes,
        }
    }
}

#[derive(Default)]
struct State {
    calls: Calls,
    balancers: BTreeMap<String, Bytes>,
}

/// The cloud. Clones are handles of the same one.
#[derive(Clone, Default)]
pub struct Cloud(Arc<Mutex<State>>);

impl Cloud {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.lock().calls
    }

    /// How many load balancers there are.
    #[must_use]
    pub fn balancers(&self) -> usize {
        self.lock().balancers.len()
    }

    /// Serves until `stop`.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        loop {
            let stream = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        continue;
                    }
                },
            };
            let cloud = self.clone();
            tokio::spawn(async move {
                let answer = service_fn(|request| {
                    let cloud = cloud.clone();
                    async move { Ok::<_, Infallible>(cloud.answer(request).await) }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection ended early");
                }
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return status(StatusCode::BAD_REQUEST);
        };
        match self.handle(&parts.method, parts.uri.path(), body.to_bytes()) {
            Ok(Some(found)) => Response::new(Full::new(found)),
            Ok(None) => status(StatusCode::NOT_FOUND),
            Err(error) => {
                tracing::error!(%error, "a call was not understood");
                status(StatusCode::BAD_REQUEST)
            }
        }
    }

    /// `POST /machines` with names answers for each; `/balancers/…` keeps what it is given.
    fn handle(&self, method: &Method, path: &str, body: Bytes) -> Result<Option<Bytes>> {
        let mut state = self.lock();
        if path == "/machines" {
            state.calls.machines += 1;
            drop(state);
            let names: Vec<String> = serde_json::from_slice(&body)?;
            let machines: Vec<Value> = names.iter().map(|name| machine(name)).collect();
            return Ok(Some(Value::from(machines).to_string().into()));
        }
        if *method == Method::GET {
            state.calls.balancer_reads += 1;
            return Ok(state.balancers.get(path).cloned());
        }
        state.calls.writes += 1;
        if *method == Method::DELETE {
            return Ok(state.balancers.remove(path));
        }
        state.balancers.insert(path.to_owned(), body);
        Ok(Some(Bytes::new()))
    }
}

fn status(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}

fn machine(name: &str) -> Value {
    let Some(machine) = Machine::named(name) else {
        return Value::Null;
    };
    json!({
        "providerID": machine.provider_id,
        "type": INSTANCE_TYPE,
        "zone": machine.zone,
        "region": REGION,
        "addresses": machine.addresses(),
    })
}
