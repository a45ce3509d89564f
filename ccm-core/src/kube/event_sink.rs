//! Writes events to the API server, in the background and bounded.
//!
//! core/v1 Events, as the Go managers write them (specification: controllers §7.5, §9). A failed
//! write is tried again only while the server cannot be reached: an answered refusal is final.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1 as corev1,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use prometheus::{IntCounterVec, Opts};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Event, EventSink,
    event_correlation::{Correlator, Record},
    informer::error_chain,
};
use crate::runtime::{Clock, Random};

/// Events that wait to be written, as in the Go library.
const QUEUE: usize = 1000;

/// Tries of one event while the server cannot be reached.
const TRIES: u32 = 12;

/// Between two tries; the first wait is a random part of it.
const TRY_EVERY: Duration = Duration::from_secs(10);

/// How long waiting events may still be written after the end was asked for.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);

/// Where events about cluster-scoped objects go.
const DEFAULT_NAMESPACE: &str = "default";

struct Stated {
    event: Event,
    at: Timestamp,
}

/// An [`EventSink`] that hands events to an [`EventWorker`]. Never blocks.
pub struct ApiEventSink {
    queue: mpsc::Sender<Stated>,
    clock: Clock,
    dropped: IntCounterVec,
}

impl ApiEventSink {
    /// A sink and the worker that must run for anything to be written.
    ///
    /// # Errors
    /// The metric `ccm_events_dropped_total` is registered already.
    pub fn new(
        client: Client,
        clock: Clock,
        random: Random,
        registry: &prometheus::Registry,
    ) -> Result<(Arc<Self>, EventWorker), prometheus::Error> {
        let dropped = dropped_total(registry)?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let sink = Self {
            queue: sender,
            clock,
            dropped: dropped.clone(),
        };
        let worker = EventWorker {
            queue: receiver,
            client,
            random,
            dropped,
            correlator: Correlator::new(),
        };
        Ok((Arc::new(sink), worker))
    }
}

fn dropped_total(registry: &prometheus::Registry) -> prometheus::Result<IntCounterVec> {
    let dropped = IntCounterVec::new(
        Opts::new(
            "ccm_events_dropped_total",
            "Events that were not written: queue_full, spam, refused or unreachable.",
        ),
        &["reason"],
    )?;
    registry.register(Box::new(dropped.clone()))?;
    Ok(dropped)
}

/// Registers the series with one sample, for the reference.
pub(crate) fn sample_event_metrics(registry: &prometheus::Registry) -> prometheus::Result<()> {
    dropped_total(registry)?.with_label_values(&["spam"]);
    Ok(())
}

impl EventSink for ApiEventSink {
    fn emit(&self, event: Event) {
        tracing::info!(
            kind = event.object.kind,
            namespace = event.object.namespace,
            name = event.object.name,
            type_ = event.type_.as_str(),
            reason = event.reason,
            message = event.message,
            "event"
        );
        let at = self.clock.now();
        if self.queue.try_send(Stated { event, at }).is_err() {
            self.dropped.with_label_values(&["queue_full"]).inc();
        }
    }
}

/// Writes what the sink is given.
pub struct EventWorker {
    queue: mpsc::Receiver<Stated>,
    client: Client,
    random: Random,
    dropped: IntCounterVec,
    correlator: Correlator,
}

enum Failure {
    /// The server said no: final.
    Refused(kube::Error),
    /// No answer: worth another try.
    Unreachable(kube::Error),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(_) | kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => {
                Self::Refused(error)
            }
            _ => Self::Unreachable(error),
        }
    }
}

impl EventWorker {
    /// Writes until `shutdown`, then what still waits, for at most two seconds.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let limit = async {
            shutdown.cancelled().await;
            tokio::time::sleep(DRAIN_WITHIN).await;
        };
        tokio::select! {
            biased;
            () = self.work(&shutdown) => {}
            () = limit => tracing::warn!("not all events could be written before the end"),
        }
    }

    async fn work(&mut self, shutdown: &CancellationToken) {
        loop {
            let next = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                next = self.queue.recv() => next,
            };
            let Some(stated) = next else { return };
            self.handle(stated, shutdown).await;
        }
        self.queue.close();
        while let Some(stated) = self.queue.recv().await {
            self.handle(stated, shutdown).await;
        }
    }

    async fn handle(&mut self, stated: Stated, shutdown: &CancellationToken) {
        let Stated { event, at } = stated;
        let Some(record) = self.correlator.observe(&event, at) else {
            self.dropped.with_label_values(&["spam"]).inc();
            return;
        };
        for attempt in 1..=TRIES {
            match self.write(&event, &record).await {
                Ok(()) => return,
                Err(Failure::Refused(error)) => {
                    self.refused(&event, &error);
                    return;
                }
                Err(Failure::Unreachable(error)) => {
                    let error = error_chain(&error);
                    tracing::warn!(name = record.name, attempt, error, "event not written");
                }
            }
            let wait = match attempt {
                1 => TRY_EVERY.mul_f64(self.random.fraction()),
                _ => TRY_EVERY,
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.dropped.with_label_values(&["unreachable"]).inc();
    }

    fn refused(&self, event: &Event, error: &kube::Error) {
        self.dropped.with_label_values(&["refused"]).inc();
        let (reason, object) = (&event.reason, &event.object.name);
        if is_harmless(error) {
            tracing::debug!(%reason, %object, %error, "event refused");
        } else {
            tracing::warn!(%reason, %object, %error, "event refused, it is not tried again");
        }
    }

    async fn write(&self, event: &Event, record: &Record) -> Result<(), Failure> {
        let api: Api<corev1::Event> = Api::namespaced(self.client.clone(), namespace(event));
        if record.count > 1 {
            let patch = json!({
                "count": record.count,
                "lastTimestamp": Time(record.last),
                "message": record.message,
            });
            let params = PatchParams::default();
            match api
                .patch(&record.name, &params, &Patch::Strategic(patch))
                .await
            {
                Ok(_) => return Ok(()),
                // Events expire after an hour by default: write it anew.
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        api.create(&PostParams::default(), &object(event, record))
            .await?;
        Ok(())
    }
}

/// Refusals that need nobody's attention: the namespace is going away, or a try whose answer was
/// lost had been successful.
fn is_harmless(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let terminating = status.details.as_ref().is_some_and(|details| {
        let causes = details.causes.iter();
        causes
            .into_iter()
            .any(|c| c.reason == "NamespaceTerminating")
    });
    terminating || status.is_already_exists()
}

fn namespace(event: &Event) -> &str {
    match event.object.namespace.as_str() {
        "" => DEFAULT_NAMESPACE,
        namespace => namespace,
    }
}

fn object(event: &Event, record: &Record) -> corev1::Event {
    let about = &event.object;
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    corev1::Event {
        metadata: ObjectMeta {
            name: Some(record.name.clone()),
            namespace: Some(namespace(event).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: corev1::ObjectReference {
            api_version: filled(about.api_version),
            kind: filled(about.kind),
            name: filled(&about.name),
            namespace: filled(&about.namespace),
            resource_version: filled(&about.resource_version),
            uid: filled(&about.uid),
            ..corev1::ObjectReference::default()
        },
        type_: Some(event.type_.as_str().to_owned()),
        reason: Some(event.reason.clone()),
        message: Some(record.message.clone()),
        source: Some(corev1::EventSource {
            component: Some(event.source.to_owned()),
            host: None,
        }),
        reporting_component: Some(event.source.to_owned()),
        first_timestamp: Some(Time(record.first)),
        last_timestamp: Some(Time(record.last)),
        count: Some(record.count),
        ..corev1::Event::default()
    }
}

#[cfg(test)]
#[path = "event_sink_tests.rs"]
mod tests;
