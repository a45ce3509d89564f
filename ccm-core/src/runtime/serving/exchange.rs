//! One request to the API server and its whole answer, with a bound on its size.

use bytes::Bytes;
use http::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde::Deserialize;

use crate::kube::error_chain;

/// Reviews and a configmap are small; a configmap is at most 1 MiB, and JSON escapes line ends.
const LARGEST_ANSWER: usize = 2 * 1024 * 1024;

/// What came of a request. No text holds the question: that may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExchangeError {
    /// The server said no.
    #[error("the API server answered {code}: {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The server's text.
        message: String,
    },
    /// No answer came.
    #[error("no answer from the API server: {0}")]
    NoAnswer(String),
    /// Not in time.
    #[error("no answer from the API server in time")]
    TooLate,
    /// The answer is not what was asked for.
    #[error("the API server's answer cannot be read: {0}")]
    Unreadable(&'static str),
}

impl ExchangeError {
    /// Whether the same question may be answered a moment later.
    pub(super) const fn may_pass(&self) -> bool {
        match self {
            Self::Refused { code, .. } => *code == 429 || *code >= 500,
            Self::NoAnswer(_) => true,
            Self::TooLate | Self::Unreadable(_) => false,
        }
    }

    /// The label `code` of the series.
    pub(super) fn code(&self) -> String {
        match self {
            Self::Refused { code, .. } => code.to_string(),
            // The Go library's word for a request without an answer.
            _ => "<error>".to_owned(),
        }
    }
}

/// The part of a `Status` that says why.
#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
}

/// A status in the 200s and the body.
pub(super) async fn exchange(
    client: &kube::Client,
    request: http::request::Builder,
    body: Vec<u8>,
) -> Result<(u16, Bytes), ExchangeError> {
    let request: Request<Body> = request
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .map_err(|error| ExchangeError::NoAnswer(error.to_string()))?;
    let answer = client
        .send(request)
        .await
        .map_err(|error| ExchangeError::NoAnswer(error_chain(&error)))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LARGEST_ANSWER)
        .collect()
        .await
        .map_err(|error| ExchangeError::NoAnswer(error.to_string()))?
        .to_bytes();
    if status.is_success() {
        return Ok((status.as_u16(), body));
    }
    let refusal = serde_json::from_slice::<Refusal>(&body);
    Err(ExchangeError::Refused {
        code: status.as_u16(),
        message: refusal.map_or_else(|_| "without a reason".to_owned(), |said| said.message),
    })
}
