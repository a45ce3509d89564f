//! A server and the record of what it answered.

use std::time::Duration;

use futures::{Stream, StreamExt};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::mask::Mask;

/// How long an event of a watch may take.
const WATCH_LIMIT: Duration = Duration::from_secs(20);

/// One request with its answer, made comparable.
pub(crate) struct Step {
    pub(crate) title: String,
    pub(crate) answer: Value,
}

/// An answer as it came.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// The string at a JSON pointer.
    pub(crate) fn text(&self, pointer: &str) -> String {
        let value = self.body.pointer(pointer).and_then(Value::as_str);
        value
            .unwrap_or_else(|| panic!("no {pointer} in {self:?}"))
            .to_owned()
    }

    /// The object's version.
    pub(crate) fn version(&self) -> String {
        self.text("/metadata/resourceVersion")
    }

    /// The object's UID.
    pub(crate) fn uid(&self) -> String {
        self.text("/metadata/uid")
    }
}

/// A watch that is open.
pub(crate) struct Watch {
    title: String,
    code: StatusCode,
    lines: std::pin::Pin<Box<dyn Stream<Item = Value> + Send>>,
}

/// A server, a namespace on it, and the record.
pub(crate) struct World {
    client: Client,
    /// The namespace of the case.
    pub(crate) namespace: String,
    pub(crate) steps: Vec<Step>,
    mask: Mask,
}

impl World {
    pub(crate) fn new(name: &str, client: Client) -> Self {
        Self {
            client,
            namespace: name.replace('_', "-"),
            steps: Vec::new(),
            mask: Mask::default(),
        }
    }

    /// A path below the namespace of the case, in core/v1.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// A path below the namespace of the case, in another group: `coordination.k8s.io/v1`.
    pub(crate) fn group_path(&self, group: &str, rest: &str) -> String {
        format!("/apis/{group}/namespaces/{}/{rest}", self.namespace)
    }

    pub(crate) async fn make_namespace(&self) {
        let body = json!({ "metadata": { "name": self.namespace } });
        let request = request(
            &Method::POST,
            "/api/v1/namespaces",
            "application/json",
            "*/*",
            &body.to_string(),
        );
        let answer = self.exchange(request).await;
        assert_eq!(answer.code, 201, "{answer:?}");
    }

    pub(crate) async fn remove_nodes(&self) {
        let nodes = self.exchange(plain(&Method::GET, "/api/v1/nodes")).await;
        for node in nodes.body["items"].as_array().unwrap() {
            let path = format!(
                "/api/v1/nodes/{}",
                node["metadata"]["name"].as_str().unwrap()
            );
            let free = json!({ "metadata": { "finalizers": null } }).to_string();
            let merge = "application/merge-patch+json";
            self.exchange(request(&Method::PATCH, &path, merge, "*/*", &free))
                .await;
            self.exchange(plain(&Method::DELETE, &path)).await;
        }
    }

    async fn exchange(&self, request: Request<Body>) -> Answer {
        let shown = format!("{} {}", request.method(), request.uri());
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => panic!("{shown}: {error:?}"),
        };
        let code = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answer { code, body }
    }

    fn record(&mut self, title: String, answer: &Answer) {
        let mut body = answer.body.clone();
        self.mask.apply(&mut body);
        let answer = json!({ "code": answer.code.as_u16(), "body": body });
        self.steps.push(Step { title, answer });
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        content: &str,
        accept: &str,
        body: &str,
    ) -> Answer {
        self.mask.sent(body);
        let answer = self
            .exchange(request(&method, path, content, accept, body))
            .await;
        let mut shown = serde_json::from_str(body).unwrap_or_else(|_| json!(body));
        self.mask.apply(&mut shown);
        let mut address = json!(path);
        if path.contains("continue=") {
            address = json!(path.split("continue=").next());
        }
        self.mask.apply(&mut address);
        let kind = content
            .trim_start_matches("application/")
            .trim_end_matches("-patch+json");
        let title = format!(
            "{method} {} {kind} {shown}",
            address.as_str().unwrap_or_default()
        );
        self.record(without_versions(&title), &answer);
        answer
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, "", "application/json", "")
            .await
    }

    /// GET with an Accept header.
    pub(crate) async fn get_as(&mut self, path: &str, accept: &str) -> Answer {
        self.send(Method::GET, path, "", accept, "").await
    }

    pub(crate) async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.send(
            Method::POST,
            path,
            "application/json",
            "application/json",
            &body.to_string(),
        )
        .await
    }

    pub(crate) async fn put(&mut self, path: &str, body: Value) -> Answer {
        self.send(
            Method::PUT,
            path,
            "application/json",
            "application/json",
            &body.to_string(),
        )
        .await
    }

    /// PATCH: `merge`, `json` or `strategic-merge`.
    pub(crate) async fn patch(&mut self, kind: &str, path: &str, body: Value) -> Answer {
        self.patch_text(kind, path, &body.to_string()).await
    }

    /// PATCH with a body that need not be JSON.
    pub(crate) async fn patch_text(&mut self, kind: &str, path: &str, body: &str) -> Answer {
        let content = format!("application/{kind}-patch+json");
        self.send(Method::PATCH, path, &content, "application/json", body)
            .await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "", "application/json", "")
            .await
    }

    /// DELETE with DeleteOptions.
    pub(crate) async fn delete_with(&mut self, path: &str, options: Value) -> Answer {
        self.send(
            Method::DELETE,
            path,
            "application/json",
            "application/json",
            &options.to_string(),
        )
        .await
    }

    /// Any request.
    pub(crate) async fn any(
        &mut self,
        method: Method,
        path: &str,
        content: &str,
        body: &str,
    ) -> Answer {
        self.send(method, path, content, "application/json", body)
            .await
    }

    /// A request whose answer is reduced before it is written down.
    pub(crate) async fn reduced(
        &mut self,
        path: &str,
        accept: &str,
        reduce: impl FnOnce(Value) -> Value,
    ) {
        let mut answer = self
            .exchange(request(&Method::GET, path, "", accept, ""))
            .await;
        answer.body = reduce(answer.body);
        self.record(format!("GET {path}"), &answer);
    }

    /// Opens a watch; `path` holds the parameters but `watch=true`.
    pub(crate) async fn watch(&mut self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    /// Opens a watch with an Accept header.
    pub(crate) async fn watch_as(&mut self, path: &str, accept: &str) -> Watch {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}watch=true");
        let mut request = request(&Method::GET, &path, "", accept, "");
        // Of a compressed watch the client reads no more than the initial events.
        request.headers_mut().insert(
            "accept-encoding",
            http::HeaderValue::from_static("identity"),
        );
        let response = self.client.send(request).await.unwrap();
        let code = response.status();
        let frames = Box::pin(response.into_body().into_data_stream());
        let lines = futures::stream::unfold(
            (frames, Vec::new()),
            |(mut frames, mut kept): (_, Vec<u8>)| async move {
                loop {
                    if let Some(end) = kept.iter().position(|b| *b == b'\n') {
                        let line: Vec<u8> = kept.drain(..=end).collect();
                        return Some((serde_json::from_slice(&line).unwrap(), (frames, kept)));
                    }
                    match frames.next().await {
                        Some(Ok(data)) => kept.extend_from_slice(&data),
                        Some(Err(error)) => {
                            let end = json!(format!("(broken: {error})"));
                            return Some((end, (frames, kept)));
                        }
                        _ if kept.is_empty() => return None,
                        _ => kept.push(b'\n'),
                    }
                }
            },
        );
        Watch {
            title: without_versions(&format!("WATCH {path}")),
            code,
            lines: Box::pin(lines),
        }
    }

    /// Writes down the next `count` events of a watch; fewer when it ends before.
    pub(crate) async fn events(&mut self, watch: &mut Watch, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            match tokio::time::timeout(WATCH_LIMIT, watch.lines.next()).await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(_) => {
                    events.push(json!("(nothing more came)"));
                    break;
                }
            }
        }
        let body = json!(events);
        self.record(
            watch.title.clone(),
            &Answer {
                code: watch.code,
                body,
            },
        );
        events
    }
}

fn plain(method: &Method, path: &str) -> Request<Body> {
    request(method, path, "", "application/json", "")
}

fn request(method: &Method, path: &str, content: &str, accept: &str, body: &str) -> Request<Body> {
    let mut builder = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        // The server names the writer of a change after it.
        .header("user-agent", "conformance");
    if !content.is_empty() {
        builder = builder.header("content-type", content);
    }
    builder.body(Body::from(body.as_bytes().to_vec())).unwrap()
}

/// Titles of both servers must be equal: versions in addresses are not.
fn without_versions(title: &str) -> String {
    let mut parts = title.split("resourceVersion=");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("resourceVersion=#");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    out
}
