//! Lists: chunks, versions, continue tokens.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Duration;

use crate::{
    errors::{ApiError, FieldError},
    object,
    request::Call,
    selector::Selector,
    state::State,
    store::{Key, Stored},
};

/// A page of objects with what the list metadata tells about it.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Arc<Stored>>,
    pub(crate) version: u64,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// Where a chunked list goes on.
struct Position {
    /// The version of the first chunk; 0 when the list goes on inconsistently.
    version: u64,
    start: Key,
    /// Objects from there on, where they can be told without reading all.
    left: Option<usize>,
}

impl Position {
    fn encode(&self) -> String {
        let (namespace, name) = &self.start;
        let plain = json!({"v": "meta.k8s.io/v1", "rv": self.version, "ns": namespace, "name": name, "left": self.left});
        plain
            .to_string()
            .bytes()
            .map(|b| format!("{b:02x}"))
            .collect()
    }

    fn decode(token: &str) -> Result<Self, ApiError> {
        let bad =
            || ApiError::bad_request("continue key is not valid: it is not a token of this server");
        let bytes: Option<Vec<u8>> = token
            .as_bytes()
            .chunks(2)
            .map(|pair| {
                let digits = std::str::from_utf8(pair).ok()?;
                u8::from_str_radix(digits, 16).ok()
            })
            .collect();
        let plain: Value = bytes
            .and_then(|b| serde_json::from_slice(&b).ok())
            .ok_or_else(bad)?;
        Ok(Self {
            version: plain.get("rv").and_then(Value::as_u64).ok_or_else(bad)?,
            start: (
                object::text(&plain, "/ns").to_owned(),
                object::text(&plain, "/name").to_owned(),
            ),
            left: plain
                .get("left")
                .and_then(Value::as_u64)
                .and_then(|left| usize::try_from(left).ok()),
        })
    }
}

/// A resourceVersion parameter; `None` when it is not given.
pub(crate) fn version_of(call: &Call) -> Result<Option<u64>, ApiError> {
    match call.query("resourceVersion") {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
            ))
        }),
    }
}

fn check_match(call: &Call, version: Option<u64>) -> Result<(), ApiError> {
    let field = "resourceVersionMatch";
    let how = call.query(field);
    if how.is_empty() {
        return Ok(());
    }
    let error = if version.is_none() {
        FieldError::forbidden(
            field,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )
    } else if !call.query("continue").is_empty() {
        FieldError::forbidden(
            field,
            "resourceVersionMatch is forbidden when continue is provided",
        )
    } else if how != "Exact" && how != "NotOlderThan" {
        FieldError::not_supported(field, &json!(how), &["Exact", "NotOlderThan", ""])
    } else if how == "Exact" && version == Some(0) {
        FieldError::forbidden(
            field,
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )
    } else {
        return Ok(());
    };
    Err(ApiError::invalid_options(&[error]))
}

/// The version that a list shows, and where in it a continued list goes on.
fn start_of(
    state: &State,
    call: &Call,
    version: Option<u64>,
    limited: bool,
    lag: Duration,
) -> Result<(u64, Option<Position>), ApiError> {
    let current = state.store.version();
    let token = call.query("continue");
    if !token.is_empty() {
        if version.is_some_and(|v| v > 0) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let position = Position::decode(token)?;
        let at = match position.version {
            0 => current,
            version => version,
        };
        return Ok((at, Some(position)));
    }
    let how = call.query("resourceVersionMatch");
    let exact = how == "Exact" || (how.is_empty() && limited);
    let at = match version {
        Some(v) if v > current => return Err(ApiError::version_too_large(v, current)),
        Some(0) if !lag.is_zero() => {
            let now = tokio::time::Instant::now();
            let then = now.checked_sub(lag).unwrap_or(now);
            state.store.version_at(call.resource.storage, then)
        }
        Some(v) if v > 0 && exact => v,
        _ => current,
    };
    Ok((at, None))
}

/// The page a list request asks for. `lag` is how far reads of "any version" are behind.
pub(crate) fn list(
    state: &State,
    call: &Call,
    selector: &Selector,
    lag: Duration,
) -> Result<Page, ApiError> {
    let store = &state.store;
    let storage = call.resource.storage;
    let version = version_of(call)?;
    check_match(call, version)?;
    let limit: usize = match call.query("limit") {
        "" => 0,
        text => {
            let limit: i64 = text
                .parse()
                .map_err(|_| ApiError::bad_request("limit: must be a number"))?;
            // A negative limit is none.
            usize::try_from(limit).unwrap_or_default()
        }
    };
    let timeout = call.query("timeoutSeconds");
    if !timeout.is_empty() && timeout.parse::<i64>().is_err() {
        return Err(ApiError::bad_request("timeoutSeconds: must be a number"));
    }
    let (at, position) = start_of(state, call, version, limit > 0, lag)?;
    let namespace = call.namespace.as_deref().unwrap_or_default();
    let (start, left) = match &position {
        Some(position) => (position.start.clone(), position.left),
        None => ((namespace.to_owned(), String::new()), None),
    };
    let view = store.at_version(storage, at).map_err(|_| {
        if position.is_none() {
            return ApiError::expired("The resourceVersion for the provided list is too old.");
        }
        let position = Position {
            version: 0,
            start: start.clone(),
            left: None,
        };
        ApiError::expired_continue(position.encode())
    })?;
    let mut matching = view
        .from(&start)
        .take_while(|((ns, _), _)| namespace.is_empty() || ns == namespace)
        .filter(|(_, object)| selector.is_empty() || selector.matches(&object.value()));
    let mut page = Page {
        objects: Vec::new(),
        version: at,
        next: None,
        remaining: None,
    };
    for (_, object) in matching.by_ref() {
        page.objects.push(Arc::clone(object));
        if page.objects.len() == limit {
            break;
        }
    }
    if limit > 0
        && let Some((next, _)) = matching.next()
    {
        page.remaining = selector.is_empty().then(|| match left {
            Some(left) => left.saturating_sub(page.objects.len()),
            None => 1 + matching.count(),
        });
        let position = Position {
            version: at,
            start: next.clone(),
            left: page.remaining,
        };
        page.next = Some(position.encode());
    }
    Ok(page)
}
