//! The emulated cloud as the HTTP client of the AWS SDK for Rust: no socket, virtual time works.

use std::fmt;

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;

use crate::{CloudSim, SimService};

/// Every request of an SDK client that uses it is answered by `sim`, whatever its host.
#[must_use]
pub fn http_client(sim: &CloudSim) -> SharedHttpClient {
    let connector = SharedHttpConnector::new(SimConnector(sim.service()));
    http_client_fn(move |_, _| connector.clone())
}

struct SimConnector(SimService);

impl fmt::Debug for SimConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimConnector")
    }
}

impl HttpConnector for SimConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let service = self.0.clone();
        HttpConnectorFuture::new_boxed(Box::pin(async move {
            let response = service
                .oneshot(to_http(request)?)
                .await
                .map_err(|closed| ConnectorError::io(closed.into()))?;
            from_http(response).await
        }))
    }
}

fn to_http(request: HttpRequest) -> Result<http::Request<Full<Bytes>>, ConnectorError> {
    let mut parts = http::Request::builder()
        .method(request.method())
        .uri(request.uri());
    for (name, value) in request.headers() {
        parts = parts.header(name, value);
    }
    let body = request
        .into_body()
        .bytes()
        .map(Bytes::copy_from_slice)
        .ok_or_else(|| ConnectorError::user("the request body is a stream".into()))?;
    parts
        .body(Full::new(body))
        .map_err(|error| ConnectorError::user(error.into()))
}

async fn from_http(
    response: http::Response<axum::body::Body>,
) -> Result<HttpResponse, ConnectorError> {
    let (parts, body) = response.into_parts();
    let body = body
        .collect()
        .await
        .map_err(|error| ConnectorError::io(error.into()))?
        .to_bytes();
    let status = StatusCode::try_from(parts.status.as_u16())
        .map_err(|error| ConnectorError::other(error.into(), None))?;
    let mut answer = HttpResponse::new(status, SdkBody::from(body));
    for (name, value) in &parts.headers {
        if let Ok(value) = value.to_str() {
            answer
                .headers_mut()
                .append(name.as_str().to_owned(), value.to_owned());
        }
    }
    Ok(answer)
}
