//! What every request goes through: rate, bound, token, time-outs, retries, series.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header::AUTHORIZATION};
use hyper::body::Body as HttpBody;
use kube::client::Body;
use tokio::{sync::Semaphore, time::Instant};
use tower::{BoxError, Layer, Service, ServiceExt as _};

use super::{
    body::{Measure, Measured},
    metrics::Series,
    retry::Retries,
    throttle::Throttle,
    token::Tokens,
};
use crate::{kube::fenced, runtime::Fence};

/// Bounds in time of one try.
#[derive(Clone, Copy, Debug)]
pub(super) struct Within {
    /// Until the head of the answer: safe for watches, whose bodies are endless.
    pub(super) head: Duration,
    /// From the head to the end of the body, except for watches.
    pub(super) body: Duration,
}

/// What all requests of one client share.
pub(super) struct Guard {
    pub(super) host: String,
    pub(super) series: Series,
    pub(super) in_flight: Semaphore,
    pub(super) throttle: Option<Throttle>,
    pub(super) tokens: Option<Arc<Tokens>>,
    pub(super) within: Within,
    /// Whether an answer that asks for it is followed by another try.
    pub(super) retry: bool,
    /// Asked before each try of a write; `None`: nobody has to lead for it.
    pub(super) fence: Option<Fence>,
}

/// Puts a [`Guard`] in front of a service.
#[derive(Clone)]
pub(super) struct GuardLayer(pub(super) Arc<Guard>);

impl<S> Layer<S> for GuardLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            guard: Arc::clone(&self.0),
            inner,
        }
    }
}

/// Counts, throttles, identifies and bounds requests.
#[derive(Clone)]
pub(super) struct Guarded<S> {
    guard: Arc<Guard>,
    inner: S,
}

impl<S, B> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Measured<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    /// Always ready: waiting here would hold up every other request behind the client's buffer.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (guard, inner) = (Arc::clone(&self.guard), self.inner.clone());
        Box::pin(async move { guard.send(&inner, request).await })
    }
}

/// One try's answer, and the token that was sent.
struct Tried<B> {
    answer: Response<B>,
    token: Option<HeaderValue>,
}

impl Guard {
    async fn send<S, B>(
        &self,
        inner: &S,
        request: Request<Body>,
    ) -> Result<Response<Measured<B>>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone,
        B: HttpBody,
    {
        let watch = is_watch(request.uri());
        let measure = Measure {
            series: self.series.clone(),
            verb: request.method().as_str().to_owned(),
            host: self.host.clone(),
            start: Instant::now(),
        };
        let answer = self.until_final(inner, request, watch).await;
        match answer {
            Ok(answer) if watch => Ok(answer.map(Measured::endless)),
            Ok(answer) => Ok(answer.map(|body| Measured::unary(body, measure, self.within.body))),
            Err(error) => {
                if !watch {
                    let took = measure.start.elapsed();
                    self.series.took(&measure.verb, &self.host, took);
                }
                Err(error)
            }
        }
    }

    /// Tries until the answer is final.
    async fn until_final<S, B>(
        &self,
        inner: &S,
        request: Request<Body>,
        watch: bool,
    ) -> Result<Response<B>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone,
    {
        let (head, mut body) = request.into_parts();
        let verb = head.method.as_str();
        let mut retries = Retries::default();
        let mut renewed = false;
        loop {
            self.wait_for_rate(verb).await;
            if !watch && let Some(length) = HttpBody::size_hint(&body).exact().filter(|&n| n > 0) {
                self.series.sent(verb, &self.host, length);
            }
            let copy = body.try_clone();
            let attempt = Request::from_parts(head.clone(), body);
            let tried = self.try_once(inner.clone(), attempt).await;
            let code = tried.as_ref().map(|tried| tried.answer.status()).ok();
            self.series
                .tried(code.map(|code| code.as_u16()), verb, &self.host);
            let Tried { answer, token } = tried?;
            // A body that cannot be sent twice makes every answer final.
            let Some(copy) = copy else { return Ok(answer) };
            let status = answer.status();
            if status == StatusCode::UNAUTHORIZED {
                // Once for each request: whoever is refused twice is not known.
                if renewed || !self.has_another_token(token.as_ref()).await {
                    return Ok(answer);
                }
                renewed = true;
            } else {
                let wait = Some(&mut retries)
                    .filter(|_| self.retry)
                    .and_then(|retries| retries.next(&head.method, status, answer.headers()));
                let Some(wait) = wait else { return Ok(answer) };
                drop(answer);
                tokio::time::sleep(wait).await;
            }
            self.series.retried(status.as_u16(), verb, &self.host);
            body = copy;
        }
    }

    async fn wait_for_rate(&self, verb: &str) {
        if let Some(throttle) = &self.throttle {
            let wait = throttle.take(Instant::now());
            tokio::time::sleep(wait).await;
            self.series.throttled(verb, &self.host, wait);
        }
    }

    async fn try_once<S, B>(
        &self,
        inner: S,
        mut request: Request<Body>,
    ) -> Result<Tried<B>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    {
        let mut token = None;
        if let Some(tokens) = &self.tokens {
            let header = tokens.header().await?;
            request.headers_mut().insert(AUTHORIZATION, header.clone());
            token = Some(header);
        }
        let _permit = self.in_flight.acquire().await?;
        // After all that waiting, and for each try anew.
        if let Some(fence) = &self.fence {
            fenced::check(fence, request.method())?;
        }
        let answer = tokio::time::timeout(self.within.head, inner.oneshot(request))
            .await
            .map_err(|_| -> BoxError {
                format!("no answer within {} seconds", self.within.head.as_secs()).into()
            })??;
        Ok(Tried { answer, token })
    }

    async fn has_another_token(&self, refused: Option<&HeaderValue>) -> bool {
        match (&self.tokens, refused) {
            (Some(tokens), Some(refused)) => tokens.refused(refused).await,
            _ => false,
        }
    }
}

fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|part| part == "watch=true" || part == "watch=1")
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
