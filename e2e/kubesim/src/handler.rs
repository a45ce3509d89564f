//! From a request to its answer.

use std::{io, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use serde_json::{Value, json};

use crate::{
    discovery,
    errors::{ApiError, FieldError},
    faults::{Fault, Outage, refusal},
    inner::Inner,
    listing,
    log::CountKey,
    meta::Writer,
    object::{self, text},
    options::User,
    patch,
    represent::Representation,
    request::{self, Call, Route, Verb},
    reviews, schema,
    selector::Selector,
    serve::ConnectionError,
    watch,
    write::{How, Preconditions, Scope, Transaction},
};

/// The longest field manager that is accepted.
const MAX_MANAGER: usize = 128;

/// An answer before it is put into bytes.
enum Reply {
    Json(StatusCode, Value),
    Text(String),
    Watch(std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, io::Error>> + Send>>),
}

/// Answers a request, or breaks the connection where a fault says so.
pub(crate) async fn handle(
    inner: Arc<Inner>,
    parts: Parts,
    body: Result<Bytes, ApiError>,
) -> Result<Response<Body>, ConnectionError> {
    match inner.outage() {
        Some(Outage::Refused) => return Err(ConnectionError::refused()),
        Some(Outage::Status503) => return Ok(failure(&ApiError::unavailable(None))),
        None => {}
    }
    let user = match authenticate(&inner, &parts) {
        Ok(user) => user,
        Err(error) => return Ok(failure(&error)),
    };
    let body = match body {
        Ok(body) => body,
        Err(error) => return Ok(failure(&error)),
    };
    let call = match request::route(parts.uri.path()) {
        Route::Other => {
            let accept = request::header(&parts, &header::ACCEPT);
            let found = discovery::document(parts.uri.path(), accept, &inner.options);
            return Ok(found.map_or_else(|e| failure(&e), |d| bytes(d.content_type, d.body)));
        }
        route => match request::call(&parts, route, body) {
            Ok(call) => call,
            Err(error) => return Ok(failure(&error)),
        },
    };
    let struck = inner.faults().strike(&call);
    if let Some(Fault::Delay(time)) = struck {
        tokio::time::sleep(time).await;
    }
    let key = count_key(&call);
    let (namespace, name) = (
        call.namespace.clone().unwrap_or_default(),
        call.name.clone().unwrap_or_default(),
    );
    let answer = answer(&inner, call, struck, user.as_ref());
    let status = answer.as_ref().map_or(0, |r| r.status().as_u16());
    tracing::debug!(verb = key.verb.as_str(), resource = %key.resource, namespace, name, status, "Request.");
    inner.log().record(key, &namespace, &name, status);
    answer
}

fn count_key(call: &Call) -> CountKey {
    CountKey {
        verb: call.verb,
        resource: call.resource.qualified(),
        subresource: call.subresource.clone().unwrap_or_default(),
        user_agent: call.user_agent.clone(),
    }
}

fn answer(
    inner: &Arc<Inner>,
    call: Call,
    struck: Option<Fault>,
    user: Option<&User>,
) -> Result<Response<Body>, ConnectionError> {
    match struck {
        Some(Fault::Drop) => return Err(ConnectionError::broken()),
        Some(fault) => {
            if let Some(error) = refusal(fault, &call) {
                return Ok(failure(&error));
            }
        }
        None => {}
    }
    let reply = serve(inner, call, user);
    match struck {
        Some(Fault::TimeoutWithEffect) => Ok(failure(&ApiError::timeout())),
        Some(Fault::DropWithEffect) => Err(ConnectionError::broken()),
        _ => Ok(match reply {
            Ok(Reply::Json(code, value)) => json_response(code, &value),
            Ok(Reply::Text(text)) => bytes("application/json", text.into()),
            Ok(Reply::Watch(stream)) => {
                let mut response = Response::new(Body::from_stream(stream));
                typed(&mut response, "application/json");
                response
            }
            Err(error) => failure(&error),
        }),
    }
}

/// The user of the bearer token; anybody may come in when there is no table of tokens.
fn authenticate(inner: &Inner, parts: &Parts) -> Result<Option<User>, ApiError> {
    let path = parts.uri.path();
    let open = ["/healthz", "/readyz", "/livez", "/version"]
        .iter()
        .any(|p| path.starts_with(p));
    let token = request::header(parts, &header::AUTHORIZATION)
        .strip_prefix("Bearer ")
        .unwrap_or_default()
        .trim();
    let user = inner.lock().user(&inner.options, token).cloned();
    if user.is_none() && !inner.options.tokens.is_empty() && !open {
        return Err(ApiError::unauthorized());
    }
    Ok(user)
}

fn serve(inner: &Arc<Inner>, call: Call, user: Option<&User>) -> Result<Reply, ApiError> {
    let now = inner.clock.now();
    if call.verb == Verb::Watch {
        return Ok(Reply::Watch(watch::open(inner, call)?.boxed()));
    }
    let representation = Representation::of(&call);
    match call.verb {
        Verb::Get => {
            let (namespace, name) = key(&call);
            let stored = inner
                .lock()
                .store
                .stored(call.resource.storage, namespace, name)
                .cloned()
                .ok_or_else(|| ApiError::not_found(call.resource, name))?;
            Ok(Reply::Text(representation.one_text(&stored, now)))
        }
        Verb::List => {
            let selector = selector(&call)?;
            let lag = inner.delay(call.resource.plural);
            let page = listing::list(&inner.lock(), &call, &selector, lag)?;
            Ok(Reply::Text(representation.many(&page, now)))
        }
        _ => {
            let reply = write(inner, &call, user, &representation);
            if reply.is_ok() {
                inner.wake();
            }
            reply
        }
    }
}

fn write(
    inner: &Inner,
    call: &Call,
    user: Option<&User>,
    representation: &Representation,
) -> Result<Reply, ApiError> {
    if call.verb == Verb::Create && (call.resource.create_only || call.subresource.is_some()) {
        let reply = reviews::create(inner, call, user)?;
        return Ok(Reply::Json(StatusCode::CREATED, reply));
    }
    let how = how(call)?;
    let mut state = inner.lock();
    let mut transaction = Transaction {
        state: &mut state,
        options: &inner.options,
        clock: &inner.clock,
    };
    let now = inner.clock.now();
    match call.verb {
        Verb::Create => {
            let body = decoded(call, written(call)?)?;
            let namespace = key(call).0;
            let made = transaction.create(call.resource, namespace, body, Scope::Main, &how)?;
            let body = representation.one(&made, now);
            Ok(Reply::Json(StatusCode::CREATED, body))
        }
        Verb::Update | Verb::Patch => {
            let (object, created) = change(&mut transaction, call, &how)?;
            let code = if created {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            Ok(Reply::Json(code, representation.one(&object, now)))
        }
        Verb::Delete => {
            let (when, dry_run) = delete_options(call)?;
            let (namespace, name) = key(call);
            let deleted = transaction.delete(call.resource, namespace, name, &when, dry_run)?;
            let body = if deleted.gone && !call.resource.returns_deleted {
                success(call, &deleted.object)
            } else {
                representation.one(&deleted.object, now)
            };
            Ok(Reply::Json(StatusCode::OK, body))
        }
        Verb::DeleteCollection => {
            let page = delete_collection(&mut transaction, call)?;
            Ok(Reply::Text(representation.many(&page, now)))
        }
        Verb::Get | Verb::List | Verb::Watch => Err(ApiError::method_not_allowed()),
    }
}

/// PUT and PATCH; the flag tells that the object is new.
fn change(
    transaction: &mut Transaction<'_>,
    call: &Call,
    how: &How,
) -> Result<(Value, bool), ApiError> {
    let (resource, scope) = (call.resource, scope(call));
    if call.verb == Verb::Update {
        let body = decoded(call, written(call)?)?;
        return transaction.update(resource, key(call), scope, how, |current| {
            put(call, body, current)
        });
    }
    let format = patch::Format::of(&call.content_type)?;
    let bad = || ApiError::bad_request("invalid JSON patch");
    if call.body.is_empty() {
        return Err(bad());
    }
    let body = call.json().map_err(|_| bad())?;
    transaction.update(resource, key(call), scope, how, |current| match current {
        Some(current) => {
            let patched = patch::apply(format, resource, current, &body)?;
            patched_object(call, patched)
        }
        None => Ok(Value::Null),
    })
}

fn delete_collection(
    transaction: &mut Transaction<'_>,
    call: &Call,
) -> Result<listing::Page, ApiError> {
    let (when, dry_run) = delete_options(call)?;
    let selector = selector(call)?;
    let objects =
        transaction.delete_collection(call.resource, key(call).0, &selector, &when, dry_run)?;
    Ok(listing::Page {
        objects,
        version: transaction.state.store.version(),
        next: None,
        remaining: None,
    })
}

fn key(call: &Call) -> (&str, &str) {
    (
        call.namespace.as_deref().unwrap_or_default(),
        call.name.as_deref().unwrap_or_default(),
    )
}

fn scope(call: &Call) -> Scope {
    match call.subresource.as_deref() {
        Some("status") => Scope::Status,
        Some("finalize") => Scope::Finalize,
        _ => Scope::Main,
    }
}

fn selector(call: &Call) -> Result<Selector, ApiError> {
    Selector::parse(
        call.resource,
        call.query("labelSelector"),
        call.query("fieldSelector"),
    )
}

fn how(call: &Call) -> Result<How, ApiError> {
    let given = call.query("fieldManager");
    if given.len() > MAX_MANAGER {
        return Err(ApiError::bad_request(format!(
            "fieldManager: Too long: may not be more than {MAX_MANAGER} bytes"
        )));
    }
    let manager = if given.is_empty() {
        let agent = call.user_agent.split('/').next().unwrap_or_default();
        if agent.is_empty() { "unknown" } else { agent }
    } else {
        given
    };
    let dry_run = call.query("dryRun");
    if !dry_run.is_empty() && dry_run != "All" {
        let kind = match call.verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            _ => "DeleteOptions",
        };
        let error = FieldError::not_supported("dryRun", &json!([dry_run]), &["All"]);
        return Err(ApiError::invalid_write_options(kind, &error));
    }
    Ok(How {
        writer: Writer {
            manager: manager.to_owned(),
            subresource: call.subresource.clone(),
        },
        dry_run: call.dry_run(),
    })
}

/// The body of a POST or PUT.
fn written(call: &Call) -> Result<Value, ApiError> {
    let kind = call.content_type.split(';').next().unwrap_or_default();
    let known = kind.is_empty()
        || ["json", "yaml", "protobuf"]
            .iter()
            .any(|k| kind.contains(k));
    if !known {
        return Err(ApiError::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json, application/yaml, application/vnd.kubernetes.protobuf",
        ));
    }
    call.json()
}

/// Checks that the result of a patch is still an object of the kind, and the same object.
fn patched_object(call: &Call, mut patched: Value) -> Result<Value, ApiError> {
    let of_kind = text(&patched, "/kind") == call.resource.kind
        && text(&patched, "/apiVersion") == call.resource.api_version();
    if !of_kind {
        let why = "the patch changes the kind or the version of the object";
        return Err(ApiError::undecodable_patch(why));
    }
    let unknown = schema::decode(call.resource, &mut patched)
        .map_err(|why| ApiError::undecodable_patch(&why))?;
    if let Some(why) = strictly(call, &unknown) {
        return Err(ApiError::undecodable_patch(&why));
    }
    check_name(call, &patched)?;
    Ok(patched)
}

/// With `fieldValidation=Strict` unknown fields are an error.
fn strictly(call: &Call, unknown: &[String]) -> Option<String> {
    if unknown.is_empty() || call.query("fieldValidation") != "Strict" {
        return None;
    }
    let fields: Vec<String> = unknown
        .iter()
        .map(|field| format!("unknown field \"{field}\""))
        .collect();
    Some(format!("strict decoding error: {}", fields.join(", ")))
}

fn check_name(call: &Call, body: &Value) -> Result<(), ApiError> {
    let name = call.name.as_deref().unwrap_or_default();
    let given = object::name(body);
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    let namespace = call.namespace.as_deref().unwrap_or_default();
    let of_body = object::namespace(body);
    if !of_body.is_empty() && of_body != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// A PUT: the body replaces the object, if it is the object of the URL.
fn put(call: &Call, body: Value, current: Option<&Value>) -> Result<Value, ApiError> {
    check_name(call, &body)?;
    let name = call.name.as_deref().unwrap_or_default();
    let (want, have) = (
        text(&body, "/metadata/uid"),
        current.map_or("", |c| text(c, "/metadata/uid")),
    );
    if current.is_some() && !want.is_empty() && want != have {
        let namespace = call.namespace.as_deref().unwrap_or_default();
        let uids = (want, have);
        return Err(ApiError::other_uid(call.resource, namespace, name, uids));
    }
    Ok(body)
}

/// Checks that a body is an object of the kind that the path says.
fn decoded(call: &Call, mut body: Value) -> Result<Value, ApiError> {
    if !body.is_object() {
        return Err(ApiError::bad_request(
            "the object provided is unrecognized: the body must be a JSON object",
        ));
    }
    let (api_version, kind) = (text(&body, "/apiVersion"), text(&body, "/kind"));
    let expected = call.resource.api_version();
    if !api_version.is_empty() && api_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    if !kind.is_empty() && kind != call.resource.kind {
        let (version, wanted) = (call.resource.version, call.resource.kind);
        let group = match call.resource.group.split('.').next() {
            Some(group) if !group.is_empty() => group,
            _ => "core",
        };
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {wanted}: \
             converting ({version}.{kind}) to ({group}.{wanted}): unknown conversion"
        )));
    }
    let wrong = |why: &str| {
        let (kind, version) = (call.resource.kind, call.resource.version);
        ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
        ))
    };
    let unknown = schema::decode(call.resource, &mut body).map_err(|why| wrong(&why))?;
    match strictly(call, &unknown) {
        Some(why) => Err(wrong(&why)),
        None => Ok(body),
    }
}

fn delete_options(call: &Call) -> Result<(Preconditions, bool), ApiError> {
    let body = call.json()?;
    if !body.is_null() && !body.is_object() {
        return Err(ApiError::bad_request(
            "the object provided is unrecognized: DeleteOptions must be a JSON object",
        ));
    }
    let given = |pointer: &str| {
        body.pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let when = Preconditions {
        uid: given("/preconditions/uid"),
        version: given("/preconditions/resourceVersion"),
    };
    let dry_run = call.dry_run() || body.pointer("/dryRun/0") == Some(&json!("All"));
    Ok((when, dry_run))
}

fn success(call: &Call, deleted: &Value) -> Value {
    let mut details = json!({
        "name": object::name(deleted),
        "kind": call.resource.plural,
        "uid": text(deleted, "/metadata/uid"),
    });
    if !call.resource.group.is_empty() {
        object::set(&mut details, &["group"], call.resource.group);
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}

fn json_response(code: StatusCode, value: &Value) -> Response<Body> {
    let mut response = bytes("application/json", value.to_string().into());
    *response.status_mut() = code;
    response
}

fn bytes(content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    typed(&mut response, content_type);
    response
}

fn typed(response: &mut Response<Body>, content_type: &'static str) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
}

fn failure(error: &ApiError) -> Response<Body> {
    if error.plain {
        let body = format!("{}\n", error.message).into();
        let mut response = bytes("text/plain; charset=utf-8", body);
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(code, &error.status());
    if let Some(seconds) = error.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_carries_its_code_and_retry_after() {
        let response = failure(&ApiError::too_many_requests(7));
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers().get("retry-after").unwrap(), "7");
    }
}
