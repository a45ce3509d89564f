//! What stands before the routes of the secure port.

use axum::{
    Router,
    body::Body,
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderValue, Request, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    request::Parts,
};
use rustls::pki_types::CertificateDer;
use serde_json::json;

use super::{Authenticator, Authorizer, authorization::Decision, connection::routed};

/// Lets a request through to the routes, or answers it itself as an API server would: 401 for
/// credentials that fail, 403 for what is forbidden, 500 when that cannot be found out
/// (specification: controllers §7.4). Cheap to clone.
#[derive(Clone)]
pub struct Gatekeeper {
    authenticator: Authenticator,
    authorizer: Authorizer,
}

impl Gatekeeper {
    /// A gatekeeper who asks these two.
    pub const fn new(authenticator: Authenticator, authorizer: Authorizer) -> Self {
        Self {
            authenticator,
            authorizer,
        }
    }

    /// Keeps up to date whose certificates are believed. Never ends.
    pub(super) async fn keep_current(&self) {
        self.authenticator.keep_current().await;
    }

    /// The answer to a request of a client with this certificate chain, which proved that it has
    /// the key.
    pub(super) async fn answer(
        &self,
        chain: &[CertificateDer<'_>],
        router: Router,
        request: Request<Body>,
    ) -> Response {
        let (head, body) = request.into_parts();
        let mut answer = match self.refusal(chain, &head).await {
            Some(refusal) => refusal,
            None => routed(router, Request::from_parts(head, body)).await,
        };
        let no_cache = HeaderValue::from_static("no-cache, private");
        answer.headers_mut().insert(CACHE_CONTROL, no_cache);
        answer
    }

    async fn refusal(&self, chain: &[CertificateDer<'_>], head: &Parts) -> Option<Response> {
        let who = match self.authenticator.identity(chain, &head.headers).await {
            Ok(who) => who,
            Err(problem) => {
                tracing::debug!(problem, "a request was not authenticated");
                return Some(status(
                    StatusCode::UNAUTHORIZED,
                    "Unauthorized",
                    "Unauthorized",
                ));
            }
        };
        let verb = head.method.as_str().to_ascii_lowercase();
        let path = head.uri.path();
        match self.authorizer.decide(&who, &verb, path).await {
            Ok(Decision::Allow) => None,
            Ok(Decision::Deny(reason)) => {
                let colon = if reason.is_empty() { "" } else { ": " };
                let user = &who.user;
                let text =
                    format!("forbidden: User {user:?} cannot {verb} path {path:?}{colon}{reason}");
                Some(status(StatusCode::FORBIDDEN, "Forbidden", &text))
            }
            Err(error) => {
                let text = format!("Internal Server Error: {path:?}: {error}\n");
                let guess_nothing = [(X_CONTENT_TYPE_OPTIONS, "nosniff")];
                let code = StatusCode::INTERNAL_SERVER_ERROR;
                Some((code, guess_nothing, text).into_response())
            }
        }
    }
}

/// A refusal in the form of an API server.
fn status(code: StatusCode, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": {}, "code": code.as_u16(),
    });
    let json = [(CONTENT_TYPE, "application/json")];
    (code, json, body.to_string()).into_response()
}
