//! Objects, lists and watch events in the form a client asked for.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    kinds,
    listing::Page,
    object::{set, unset},
    request::{Call, Form},
    resources::Resource,
    table::{self, Include},
};

/// How answers to a call look.
#[derive(Clone, Debug)]
pub(crate) struct Representation {
    resource: &'static Resource,
    form: Form,
    include: Include,
}

impl Representation {
    pub(crate) fn of(call: &Call) -> Self {
        Self {
            resource: call.resource,
            form: call.form,
            include: Include::of(call.query("includeObject")),
        }
    }

    fn served(&self, stored: &Value) -> Value {
        let mut served = stored.clone();
        kinds::to_served(self.resource, &mut served);
        served
    }

    /// One object.
    pub(crate) fn one(&self, stored: &Value, now: Timestamp) -> Value {
        match self.form {
            Form::Object => self.served(stored),
            Form::PartialMetadata => table::partial(stored),
            Form::Table => self.table_of(stored, now, true),
        }
    }

    fn table_of(&self, stored: &Value, now: Timestamp, with_columns: bool) -> Value {
        let mut table = table::empty(self.resource, with_columns);
        let row = table::row(
            self.resource,
            stored,
            &self.served(stored),
            self.include,
            now,
        );
        set(&mut table, &["rows"], json!([row]));
        let version = stored.pointer("/metadata/resourceVersion").cloned();
        set(
            &mut table,
            &["metadata", "resourceVersion"],
            version.unwrap_or_default(),
        );
        table
    }

    /// A list.
    pub(crate) fn many(&self, page: &Page, now: Timestamp) -> Value {
        let mut metadata = Map::new();
        metadata.insert(
            "resourceVersion".to_owned(),
            json!(page.version.to_string()),
        );
        if let Some(next) = &page.next {
            metadata.insert("continue".to_owned(), json!(next));
        }
        if let Some(remaining) = page.remaining {
            metadata.insert("remainingItemCount".to_owned(), json!(remaining));
        }
        let objects = &page.objects;
        match self.form {
            Form::Object => {
                let items: Vec<Value> = objects
                    .iter()
                    .map(|object| {
                        let mut item = self.served(object);
                        // The type of the items is that of the list.
                        unset(&mut item, &["kind"]);
                        unset(&mut item, &["apiVersion"]);
                        item
                    })
                    .collect();
                json!({
                    "kind": format!("{}List", self.resource.kind),
                    "apiVersion": self.resource.api_version(),
                    "metadata": metadata,
                    "items": items,
                })
            }
            Form::PartialMetadata => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": objects.iter().map(|o| table::partial(o)).collect::<Vec<_>>(),
            }),
            Form::Table => {
                let mut table = table::empty(self.resource, true);
                let rows: Vec<Value> = objects
                    .iter()
                    .map(|o| table::row(self.resource, o, &self.served(o), self.include, now))
                    .collect();
                set(&mut table, &["metadata"], metadata);
                set(&mut table, &["rows"], rows);
                table
            }
        }
    }

    /// One watch event. Only the first table of a watch carries column definitions.
    pub(crate) fn event(&self, kind: &str, stored: &Value, now: Timestamp, first: bool) -> Bytes {
        let object = match self.form {
            Form::Table => self.table_of(stored, now, first),
            Form::Object | Form::PartialMetadata => self.one(stored, now),
        };
        line(kind, &object)
    }

    /// A bookmark; `initial` marks the end of the objects that were there at the start.
    pub(crate) fn bookmark(&self, version: u64, initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if initial {
            set(
                &mut metadata,
                &["annotations", "k8s.io/initial-events-end"],
                "true",
            );
        }
        let object = match self.form {
            Form::Object => json!({
                "kind": self.resource.kind,
                "apiVersion": self.resource.api_version(),
                "metadata": metadata,
            }),
            Form::PartialMetadata => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
            }),
            Form::Table => {
                let mut table = table::empty(self.resource, false);
                set(&mut table, &["metadata"], metadata);
                table
            }
        };
        line("BOOKMARK", &object)
    }
}

/// One line of a watch.
pub(crate) fn line(kind: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": kind, "object": object}).to_string();
    text.push('\n');
    text.into()
}
