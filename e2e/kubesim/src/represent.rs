//! Objects, lists and watch events in the form a client asked for.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    kinds,
    listing::Page,
    object::{set, unset},
    request::{Call, Form},
    resources::{EVENTS_GROUP, Resource},
    store::Stored,
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

    /// Whether the stored text is what the client gets.
    fn is_stored_form(&self) -> bool {
        self.form == Form::Object && self.resource.group != EVENTS_GROUP
    }

    /// One stored object, as JSON.
    pub(crate) fn one_text(&self, stored: &Stored, now: Timestamp) -> String {
        if self.is_stored_form() {
            stored.text().to_owned()
        } else {
            self.one(&stored.value(), now).to_string()
        }
    }

    /// A list, as JSON.
    pub(crate) fn many(&self, page: &Page, now: Timestamp) -> String {
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
        let (kind, api_version) = match self.form {
            Form::Object => (
                format!("{}List", self.resource.kind),
                self.resource.api_version(),
            ),
            Form::PartialMetadata => (
                "PartialObjectMetadataList".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
            Form::Table => return self.table_of_all(page, metadata, now),
        };
        let mut text = format!(
            r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{},"items":["#,
            Value::Object(metadata)
        );
        for (index, object) in page.objects.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            if self.is_stored_form() {
                // The type of the items is that of the list.
                text.push('{');
                text.push_str(object.untyped());
            } else if self.form == Form::PartialMetadata {
                text.push_str(&table::partial(&object.value()).to_string());
            } else {
                let mut item = self.served(&object.value());
                unset(&mut item, &["kind"]);
                unset(&mut item, &["apiVersion"]);
                text.push_str(&item.to_string());
            }
        }
        text.push_str("]}");
        text
    }

    fn table_of_all(&self, page: &Page, metadata: Map<String, Value>, now: Timestamp) -> String {
        let mut table = table::empty(self.resource, true);
        let row = |object: &Arc<Stored>| {
            let object = object.value();
            let served = self.served(&object);
            table::row(self.resource, &object, &served, self.include, now)
        };
        let rows: Vec<Value> = page.objects.iter().map(row).collect();
        set(&mut table, &["metadata"], metadata);
        set(&mut table, &["rows"], rows);
        table.to_string()
    }

    /// One watch event. Only the first table of a watch carries column definitions.
    pub(crate) fn event(&self, kind: &str, stored: &Stored, now: Timestamp, first: bool) -> Bytes {
        if self.is_stored_form() {
            return line_of(kind, stored.text());
        }
        self.event_of(kind, &stored.value(), now, first)
    }

    /// One watch event of an object that is not stored in this form.
    pub(crate) fn event_of(
        &self,
        kind: &str,
        object: &Value,
        now: Timestamp,
        first: bool,
    ) -> Bytes {
        let object = match self.form {
            Form::Table => self.table_of(object, now, first),
            Form::Object | Form::PartialMetadata => self.one(object, now),
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
    line_of(kind, &object.to_string())
}

/// The type comes first, as on a real server: clients decode the object as it comes.
fn line_of(kind: &str, object: &str) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}
