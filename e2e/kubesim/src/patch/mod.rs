//! The patch formats: merge (RFC 7396), JSON (RFC 6902) and strategic merge.

mod json;
mod merge;
mod strategic;

use serde_json::Value;

use crate::{errors::ApiError, resources::Resource};

/// A patch as told by the content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Merge,
    Json,
    Strategic,
}

impl Format {
    /// 415 names what is accepted; server-side apply is not among it.
    pub(crate) fn of(content_type: &str) -> Result<Self, ApiError> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/json-patch+json" => Ok(Self::Json),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            _ => Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json",
            )),
        }
    }
}

/// The object after the patch. `body` is the parsed patch document.
pub(crate) fn apply(
    format: Format,
    resource: &Resource,
    current: &Value,
    body: &Value,
) -> Result<Value, ApiError> {
    match format {
        Format::Merge => merge::apply(current, body),
        Format::Json => json::apply(current, body),
        Format::Strategic => strategic::apply(resource.storage, current, body),
    }
}
