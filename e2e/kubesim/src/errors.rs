//! API errors as `metav1.Status` objects, worded as the real server words them.

use serde_json::{Map, Value, json};

use crate::resources::Resource;

/// One problem of one field, as `k8s.io/apimachinery/pkg/util/validation/field` reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, `spec.ports[0].port`.
    pub field: String,
    /// Machine-readable reason, `FieldValueInvalid` and its kin.
    pub reason: &'static str,
    /// The text without the field path.
    pub message: String,
}

impl FieldError {
    /// A value that breaks a rule; `value` is shown as JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {detail}"),
        }
    }

    /// A value that is missing.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self {
            field: field.into(),
            reason: "FieldValueRequired",
            message,
        }
    }

    /// A value that appears twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {value}"),
        }
    }

    /// A value that may not be there.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {detail}"),
        }
    }

    /// A value outside an enumeration.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported
            .iter()
            .map(|s| format!("\"{s}\""))
            .collect::<Vec<_>>()
            .join(", ");
        Self {
            field: field.into(),
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value}: supported values: {list}"),
        }
    }
}

/// A failed request: what the client reads as `metav1.Status`.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// `metav1.StatusReason`.
    pub reason: &'static str,
    /// Text for people.
    pub message: String,
    details: Map<String, Value>,
    /// Seconds after which a retry is welcome; also sent as `Retry-After`.
    pub retry_after: Option<u64>,
    continue_token: Option<String>,
    /// Answered as plain text: the path belongs to no API.
    pub(crate) plain: bool,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} {})", self.message, self.code, self.reason)
    }
}

impl std::error::Error for ApiError {}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            retry_after: None,
            continue_token: None,
            plain: false,
        }
    }

    fn about(mut self, resource: &Resource, kind: &str, name: &str) -> Self {
        if !name.is_empty() {
            self.details.insert("name".to_owned(), json!(name));
        }
        if !resource.group.is_empty() {
            self.details
                .insert("group".to_owned(), json!(resource.group));
        }
        self.details.insert("kind".to_owned(), json!(kind));
        self
    }

    fn retry(mut self, seconds: Option<u64>) -> Self {
        if let Some(seconds) = seconds {
            self.retry_after = Some(seconds);
            self.details
                .insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        self
    }

    fn cause(mut self, reason: &str, message: &str) -> Self {
        let mut cause = json!({"message": message});
        if !reason.is_empty() {
            crate::object::set(&mut cause, &["reason"], reason);
        }
        self.details.insert("causes".to_owned(), json!([cause]));
        self
    }

    /// 404 for an object.
    #[must_use]
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} \"{name}\" not found", resource.qualified()),
        )
        .about(resource, resource.plural, name)
    }

    /// 404 for a path that is not served.
    #[must_use]
    pub fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// 404 for a path that belongs to no API group, as plain text.
    #[must_use]
    pub fn page_not_found() -> Self {
        Self {
            plain: true,
            ..Self::new(404, "NotFound", "404 page not found")
        }
    }

    /// 406: none of the accepted representations is served.
    #[must_use]
    pub fn not_acceptable() -> Self {
        Self::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        )
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 409 on a create.
    #[must_use]
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", resource.qualified()),
        )
        .about(resource, resource.plural, name)
    }

    /// 409 on a create while the object of that name is being deleted.
    #[must_use]
    pub fn exists_and_is_deleted(resource: &Resource, name: &str) -> Self {
        let mut error = Self::already_exists(resource, name);
        error.message = format!("object is being deleted: {}", error.message);
        error
    }

    /// 409 because the resourceVersion is not the current one.
    #[must_use]
    pub fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 with its own explanation.
    #[must_use]
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                resource.qualified()
            ),
        )
        .about(resource, resource.plural, name)
    }

    /// 422 with one cause a field.
    #[must_use]
    pub fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_kind(resource, resource.kind, name, errors)
    }

    /// 422 that names the resource instead of the kind: an update without a version.
    #[must_use]
    pub fn version_required(resource: &Resource, name: &str) -> Self {
        let error = FieldError::invalid(
            "metadata.resourceVersion",
            &json!(0),
            "must be specified for an update",
        );
        Self::invalid_kind(resource, resource.plural, name, &[error])
    }

    /// 409 of a UID precondition, in the words of the storage layer.
    #[must_use]
    pub fn other_uid(resource: &Resource, namespace: &str, name: &str, uids: (&str, &str)) -> Self {
        let folder = match resource.storage {
            "services" => "services/specs",
            "nodes" => "minions",
            other => other,
        };
        let key: Vec<&str> = ["/registry", folder, namespace, name]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        let (want, have) = uids;
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {want}, UID in object meta: {have}",
            key.join("/")
        );
        Self::conflict(resource, name, &why)
    }

    /// 409 of a precondition of a deletion; it names the kind, not the resource.
    #[must_use]
    pub fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                resource.qualified_kind()
            ),
        )
        .about(resource, resource.kind, name)
    }

    /// 422 about list or watch parameters.
    #[must_use]
    pub fn invalid_options(errors: &[FieldError]) -> Self {
        let mut error =
            Self::invalid_kind(&crate::resources::LIST_OPTIONS, "ListOptions", "", errors);
        error
            .details
            .insert("group".to_owned(), json!("meta.k8s.io"));
        error
    }

    fn invalid_kind(resource: &Resource, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let lines: Vec<String> = errors
            .iter()
            .map(|e| format!("{}: {}", e.field, e.message))
            .collect();
        let text = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let qualified = if resource.group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{}", resource.group)
        };
        let mut error = Self::new(
            422,
            "Invalid",
            format!("{qualified} \"{name}\" is invalid: {text}"),
        )
        .about(resource, kind, name);
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field}))
            .collect();
        error.details.insert("causes".to_owned(), json!(causes));
        error
    }

    /// 422 for a patch whose result is not an object of the kind.
    #[must_use]
    pub fn undecodable_patch(why: &str) -> Self {
        let message = format!("Invalid value: {why}");
        let mut error = Self::new(
            422,
            "Invalid",
            format!(" \"\" is invalid: patch: {message}"),
        );
        let cause = json!({"reason": "FieldValueInvalid", "message": message, "field": "patch"});
        error.details.insert("causes".to_owned(), json!([cause]));
        error
    }

    /// 422 about a parameter of a write: `kind` is `CreateOptions` and its kin.
    #[must_use]
    pub fn invalid_write_options(kind: &str, error: &FieldError) -> Self {
        Self::invalid_kind(
            &crate::resources::LIST_OPTIONS,
            kind,
            "",
            std::slice::from_ref(error),
        )
    }

    /// 422 for a JSON patch that does not apply. The real server hides the cause in the same way.
    #[must_use]
    pub fn unprocessable_patch() -> Self {
        Self::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
    }

    /// 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 for an object.
    #[must_use]
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        Self::new(
            403,
            "Forbidden",
            format!("{} \"{name}\" is forbidden: {why}", resource.qualified()),
        )
        .about(resource, resource.plural, name)
    }

    /// 403 because the namespace is going away.
    #[must_use]
    pub fn namespace_terminating(resource: &Resource, name: &str, namespace: &str) -> Self {
        Self::forbidden(
            resource,
            name,
            &format!("unable to create new content in namespace {namespace} because it is being terminated"),
        )
        .cause(
            "NamespaceTerminating",
            &format!("namespace {namespace} is being terminated"),
        )
    }

    /// 410: the version is older than what is kept.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 410 for a continue token, with the token that goes on inconsistently.
    #[must_use]
    pub fn expired_continue(token: String) -> Self {
        let mut error = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. \
             You can start a new list without the continue parameter, or use the continue token \
             in this response to retrieve the remainder of the results. Continuing with the provided \
             token results in an inconsistent list - objects that were created, modified, or deleted \
             between the time the first chunk was returned and now may show up in the list.",
        );
        error.continue_token = Some(token);
        error
    }

    /// 504 for a version that does not exist yet.
    #[must_use]
    pub fn version_too_large(wanted: u64, current: u64) -> Self {
        Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {wanted}, current: {current}"),
        )
        .cause("ResourceVersionTooLarge", "Too large resource version")
        .retry(Some(1))
    }

    /// 415.
    #[must_use]
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 413.
    #[must_use]
    pub fn too_large() -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728",
        )
    }

    /// 429, with the seconds of `Retry-After`.
    #[must_use]
    pub fn too_many_requests(retry_after: u64) -> Self {
        Self::new(
            429,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        )
        .retry(Some(retry_after))
    }

    /// 500.
    #[must_use]
    pub fn internal(message: &str) -> Self {
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
        .cause("", message)
    }

    /// 500 as the real server answers an error it has no Status for: no reason, no details.
    #[must_use]
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 503, with or without `Retry-After`.
    #[must_use]
    pub fn unavailable(retry_after: Option<u64>) -> Self {
        Self::new(
            503,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        )
        .retry(retry_after)
    }

    /// 504: the server gave up waiting.
    #[must_use]
    pub fn timeout() -> Self {
        Self::new(
            504,
            "Timeout",
            "Timeout: request did not complete within the allotted duration",
        )
    }

    /// The `metav1.Status` object.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), json!(token));
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if self.reason.is_empty() {
            crate::object::unset(&mut status, &["reason"]);
        }
        if !self.details.is_empty()
            && let Some(map) = status.as_object_mut()
        {
            map.insert("details".to_owned(), Value::Object(self.details.clone()));
        }
        status
    }
}
