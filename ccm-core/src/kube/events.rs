//! Events for users: what a controller says of a Node or a Service.
//!
//! A controller only states an [`Event`]; the sink behind it counts repeats, aggregates, limits
//! and writes (specification: controllers §7.5). Recording never blocks a controller.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Node, Service};

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// Something went as it should.
    Normal,
    /// Something a person may want to look at.
    Warning,
}

impl EventType {
    /// The API's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventObject {
    /// `v1`.
    pub api_version: &'static str,
    /// `Node`, `Service`.
    pub kind: &'static str,
    /// Empty for cluster-scoped objects, whose events land in `default`.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's UID.
    pub uid: String,
    /// The version that was looked at.
    pub resource_version: String,
}

impl From<&Node> for EventObject {
    fn from(node: &Node) -> Self {
        Self {
            api_version: "v1",
            kind: "Node",
            namespace: String::new(),
            name: node.name().to_owned(),
            uid: node.uid().to_owned(),
            resource_version: node.metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

impl From<&Service> for EventObject {
    fn from(service: &Service) -> Self {
        Self {
            api_version: "v1",
            kind: "Service",
            namespace: service.namespace().to_owned(),
            name: service.name().to_owned(),
            uid: service.uid().to_owned(),
            resource_version: service
                .metadata
                .resource_version
                .clone()
                .unwrap_or_default(),
        }
    }
}

/// One statement about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Who says it: the event's source component.
    pub source: &'static str,
    /// What it is about.
    pub object: EventObject,
    /// Good or bad.
    pub type_: EventType,
    /// CamelCase, for machines.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// Where events go. Must not block.
pub trait EventSink: Send + Sync {
    /// Takes one event; a full sink drops it and counts that.
    fn emit(&self, event: Event);
}

/// A controller's way to state events. Cheap to clone.
#[derive(Clone)]
pub struct EventRecorder {
    source: &'static str,
    sink: Arc<dyn EventSink>,
}

impl EventRecorder {
    /// A recorder with the given source component.
    pub fn new(source: &'static str, sink: Arc<dyn EventSink>) -> Self {
        Self { source, sink }
    }

    /// States a Normal event.
    pub fn normal(&self, object: impl Into<EventObject>, reason: &str, message: impl Into<String>) {
        self.emit(object.into(), EventType::Normal, reason, message.into());
    }

    /// States a Warning event.
    pub fn warning(
        &self,
        object: impl Into<EventObject>,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.emit(object.into(), EventType::Warning, reason, message.into());
    }

    fn emit(&self, object: EventObject, type_: EventType, reason: &str, message: String) {
        self.sink.emit(Event {
            source: self.source,
            object,
            type_,
            reason: reason.to_owned(),
            message,
        });
    }
}

/// A sink that keeps what it is told, for tests of controllers.
#[derive(Debug, Default)]
pub struct RecordedEvents(Mutex<Vec<Event>>);

impl RecordedEvents {
    /// All events so far.
    pub fn all(&self) -> Vec<Event> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The reasons so far, in order.
    pub fn reasons(&self) -> Vec<String> {
        self.all().into_iter().map(|event| event.reason).collect()
    }
}

impl EventSink for RecordedEvents {
    fn emit(&self, event: Event) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
    }
}
