//! Server-side tables: what `kubectl get` prints.

mod age;
mod cells;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use self::age::since;
use crate::{object::text, resources::Resource};

/// What each row carries besides its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    /// The query parameter `includeObject`.
    pub(crate) fn of(text: &str) -> Self {
        match text {
            "None" => Self::Nothing,
            "Object" => Self::Object,
            _ => Self::Metadata,
        }
    }
}

/// A table without rows. Later events of a watch leave the column definitions out.
pub(crate) fn empty(resource: &Resource, with_columns: bool) -> Value {
    let columns = with_columns.then(|| -> Vec<Value> {
        cells::columns(resource)
            .iter()
            .map(|column| {
                json!({
                    "name": column.name,
                    "type": "string",
                    "format": if column.name == "Name" { "name" } else { "" },
                    "description": column.name,
                    "priority": i32::from(column.wide),
                })
            })
            .collect()
    });
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": columns,
        "rows": [],
    })
}

/// The row of an object in its served form; `stored` is the form the cells are made of.
pub(crate) fn row(
    resource: &Resource,
    stored: &Value,
    served: &Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let cells = cells::cells(resource, stored, now);
    match include {
        Include::Nothing => json!({"cells": cells}),
        Include::Object => json!({"cells": cells, "object": served}),
        Include::Metadata => json!({"cells": cells, "object": partial(served)}),
    }
}

/// The object reduced to its metadata.
pub(crate) fn partial(served: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": served.get("metadata").cloned().unwrap_or_default(),
    })
}

/// Age of an object, or `<unknown>`.
fn age_of(object: &Value, pointer: &str, now: Timestamp) -> String {
    text(object, pointer)
        .parse::<Timestamp>()
        .map_or_else(|_| "<unknown>".to_owned(), |then| since(then, now))
}
