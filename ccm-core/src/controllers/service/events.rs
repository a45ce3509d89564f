//! The events of this controller, word for word as the Go manager's
//! (specification: controllers §9.1).

use std::sync::Arc;

use crate::{
    cloud::{CloudError, Note},
    kube::{EventRecorder, Node, Service},
};

/// Names shown in the event of a failed host update: the message has a limit.
const SHOWN_NODES: usize = 20;

/// States the events.
#[derive(Clone)]
pub(super) struct Events(EventRecorder);

impl Events {
    pub(super) const fn new(recorder: EventRecorder) -> Self {
        Self(recorder)
    }

    pub(super) fn ensuring(&self, service: &Service) {
        self.0
            .normal(service, "EnsuringLoadBalancer", "Ensuring load balancer");
    }

    pub(super) fn ensured(&self, service: &Service) {
        self.0
            .normal(service, "EnsuredLoadBalancer", "Ensured load balancer");
    }

    pub(super) fn deleting(&self, service: &Service) {
        self.0
            .normal(service, "DeletingLoadBalancer", "Deleting load balancer");
    }

    pub(super) fn deleted(&self, service: &Service) {
        self.0
            .normal(service, "DeletedLoadBalancer", "Deleted load balancer");
    }

    pub(super) fn updated(&self, service: &Service) {
        self.0.normal(
            service,
            "UpdatedLoadBalancer",
            "Updated load balancer with new hosts",
        );
    }

    pub(super) fn no_nodes(&self, service: &Service) {
        self.0.warning(
            service,
            "UnAvailableLoadBalancer",
            "There are no available nodes for LoadBalancer",
        );
    }

    pub(super) fn sync_failed(&self, service: &Service, error: &CloudError) {
        self.0.warning(
            service,
            "SyncLoadBalancerFailed",
            format!("Error syncing load balancer: {error}"),
        );
    }

    pub(super) fn update_failed(&self, service: &Service, nodes: &[Arc<Node>], error: &CloudError) {
        self.0.warning(
            service,
            "UpdateLoadBalancerFailed",
            format!(
                "Error updating load balancer with new hosts [{}] [node names limited, total \
                 number of nodes: {}], error: {error}",
                shown_names(nodes),
                nodes.len()
            ),
        );
    }

    pub(super) fn delete_failed(&self, service: &Service, error: &CloudError) {
        self.0.warning(
            service,
            "DeleteLoadBalancerFailed",
            format!("Error deleting load balancer: {error}"),
        );
    }

    pub(super) fn note(&self, service: &Service, note: &Note) {
        self.0.warning(service, note.reason, note.message.as_str());
    }
}

/// The first names, sorted, then how many more there are.
fn shown_names(nodes: &[Arc<Node>]) -> String {
    let mut names: Vec<&str> = nodes.iter().map(|node| node.name()).collect();
    names.sort_unstable();
    let hidden = names.len().saturating_sub(SHOWN_NODES);
    names.truncate(SHOWN_NODES);
    let mut text = names.join(" ");
    if hidden > 0 {
        text.push_str(&format!(" <{hidden} more>"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controllers::service::fixtures,
        kube::{EventType, RecordedEvents},
    };

    /// REQ-SVC-32, REQ-SVC-47
    #[test]
    fn types_reasons_and_messages_are_those_of_the_go_manager() {
        let sink = Arc::new(RecordedEvents::default());
        let events = Events::new(EventRecorder::new(
            "service-controller",
            Arc::<RecordedEvents>::clone(&sink),
        ));
        let service = fixtures::service();
        let error = CloudError::transient("boom");
        let nodes = [Arc::new(fixtures::node("b")), Arc::new(fixtures::node("a"))];
        events.ensuring(&service);
        events.ensured(&service);
        events.deleting(&service);
        events.deleted(&service);
        events.updated(&service);
        events.no_nodes(&service);
        events.sync_failed(&service, &error);
        events.update_failed(&service, &nodes, &error);
        events.delete_failed(&service, &error);
        let told: Vec<_> = sink
            .all()
            .into_iter()
            .map(|event| {
                assert_eq!(event.source, "service-controller");
                assert_eq!(event.object.name, "web");
                (event.type_, event.reason, event.message)
            })
            .collect();
        let want = [
            (
                EventType::Normal,
                "EnsuringLoadBalancer",
                "Ensuring load balancer",
            ),
            (
                EventType::Normal,
                "EnsuredLoadBalancer",
                "Ensured load balancer",
            ),
            (
                EventType::Normal,
                "DeletingLoadBalancer",
                "Deleting load balancer",
            ),
            (
                EventType::Normal,
                "DeletedLoadBalancer",
                "Deleted load balancer",
            ),
            (
                EventType::Normal,
                "UpdatedLoadBalancer",
                "Updated load balancer with new hosts",
            ),
            (
                EventType::Warning,
                "UnAvailableLoadBalancer",
                "There are no available nodes for LoadBalancer",
            ),
            (
                EventType::Warning,
                "SyncLoadBalancerFailed",
                "Error syncing load balancer: boom",
            ),
            (
                EventType::Warning,
                "UpdateLoadBalancerFailed",
                "Error updating load balancer with new hosts [a b] [node names limited, total \
                 number of nodes: 2], error: boom",
            ),
            (
                EventType::Warning,
                "DeleteLoadBalancerFailed",
                "Error deleting load balancer: boom",
            ),
        ];
        let want = want.map(|(type_, reason, text)| (type_, reason.to_owned(), text.to_owned()));
        assert_eq!(told, want);
    }

    /// REQ-SVC-34
    #[test]
    fn at_most_twenty_sorted_names_are_shown() {
        let nodes = |count: usize| -> Vec<_> {
            (0..count)
                .rev()
                .map(|n| Arc::new(fixtures::node(&format!("n{n:02}"))))
                .collect()
        };
        let twenty: Vec<_> = (0..20).map(|n| format!("n{n:02}")).collect();
        assert_eq!(shown_names(&nodes(20)), twenty.join(" "));
        assert_eq!(
            shown_names(&nodes(25)),
            format!("{} <5 more>", twenty.join(" "))
        );
        assert_eq!(shown_names(&[]), "");
    }
}
