//! Reviews and token requests: created, answered, never stored.

use serde_json::{Value, json};
use tokio::time::Duration;

use crate::{
    errors::ApiError,
    inner::Inner,
    object::{number, set, text},
    options::User,
    request::Call,
    resources::SERVICE_ACCOUNTS,
};

/// Life of a token when the request names none.
const DEFAULT_TOKEN_SECONDS: u64 = 3600;

pub(crate) fn create(inner: &Inner, call: &Call, user: Option<&User>) -> Result<Value, ApiError> {
    let mut review = call.json()?;
    if !review.is_object() {
        review = json!({});
    }
    if call.subresource.as_deref() == Some("token") {
        return token_request(inner, call, review);
    }
    set(&mut review, &["apiVersion"], call.resource.api_version());
    set(&mut review, &["kind"], call.resource.kind);
    let status = match call.resource.kind {
        "TokenReview" => token_review(inner, text(&review, "/spec/token")),
        "SubjectAccessReview" if review.pointer("/spec/nonResourceAttributes").is_some() => {
            path_review(inner, &review)
        }
        // There is no RBAC here: whoever is let in may do everything.
        _ => {
            let who = user.map_or("anybody", |u| u.name.as_str());
            json!({"allowed": true, "reason": format!("kubesim allows everything to {who}")})
        }
    };
    set(&mut review, &["status"], status);
    Ok(review)
}

fn token_review(inner: &Inner, token: &str) -> Value {
    match inner.lock().user(&inner.options, token) {
        Some(user) => json!({
            "authenticated": true,
            "user": {"username": user.name, "groups": user.groups},
        }),
        None => json!({"authenticated": false, "error": "invalid bearer token"}),
    }
}

fn path_review(inner: &Inner, review: &Value) -> Value {
    let Some(granted) = &inner.options.granted_paths else {
        return json!({"allowed": true, "reason": "kubesim allows every path"});
    };
    let path = text(review, "/spec/nonResourceAttributes/path");
    let groups = review.pointer("/spec/groups").and_then(Value::as_array);
    let groups = groups.into_iter().flatten().filter_map(Value::as_str);
    let allowed = groups
        .chain([text(review, "/spec/user")])
        .any(|who| granted.get(who).is_some_and(|paths| paths.contains(path)));
    json!({"allowed": allowed})
}

fn token_request(inner: &Inner, call: &Call, mut request: Value) -> Result<Value, ApiError> {
    let namespace = call.namespace.as_deref().unwrap_or_default();
    let name = call.name.as_deref().unwrap_or_default();
    let mut state = inner.lock();
    if state.store.get(SERVICE_ACCOUNTS, namespace, name).is_none() {
        return Err(ApiError::not_found(call.resource, name));
    }
    let asked = u64::try_from(number(&request, "/spec/expirationSeconds")).unwrap_or_default();
    let seconds = if asked == 0 {
        DEFAULT_TOKEN_SECONDS
    } else {
        asked
    };
    let token = state.mint(User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
    });
    set(&mut request, &["apiVersion"], "authentication.k8s.io/v1");
    set(&mut request, &["kind"], "TokenRequest");
    set(&mut request, &["spec", "expirationSeconds"], seconds);
    if request.pointer("/spec/audiences").is_none() {
        set(
            &mut request,
            &["spec", "audiences"],
            json!(["https://kubesim"]),
        );
    }
    let until = inner.clock.stamp_in(Duration::from_secs(seconds));
    set(
        &mut request,
        &["status"],
        json!({"token": token, "expirationTimestamp": until}),
    );
    Ok(request)
}
