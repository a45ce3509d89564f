//! What a controller that has just started would do about a Service, for those who only want to
//! know. Pure.

use tokio::time::Instant;

use super::{
    predicates::{CLEANUP_FINALIZER, has_cleanup_finalizer},
    status,
    sync::{Operation, decide},
    targets::TargetSet,
};
use crate::kube::{LoadBalancerIngress, LoadBalancerStatus, Service};

/// What is done about a Service of which nothing is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Nothing.
    Nothing,
    /// Its load balancer is made as it asks.
    Ensure,
    /// Load balancer and finalizer go.
    Delete,
    /// It is of another class: only what is provably ours goes.
    DeleteForeign,
}

/// Decides as the controller does at its start.
pub(crate) fn intent(service: &Service) -> Intent {
    match decide(Some(service), None, TargetSet::default(), Instant::now()) {
        Operation::Ensure { .. } => Intent::Ensure,
        Operation::Delete => Intent::Delete,
        Operation::DeleteForeign => Intent::DeleteForeign,
        // The others need something that is remembered.
        _ => Intent::Nothing,
    }
}

/// The line that says that the finalizer comes; `None` when it is there.
pub(crate) fn finalizer_added(service: &Service) -> Option<String> {
    (!has_cleanup_finalizer(service)).then(|| format!("finalizers: add {CLEANUP_FINALIZER}"))
}

/// The line that says that the finalizer goes; `None` when there is none.
pub(crate) fn finalizer_removed(service: &Service) -> Option<String> {
    has_cleanup_finalizer(service).then(|| format!("finalizers: remove {CLEANUP_FINALIZER}"))
}

/// The line that says how the status changes; `None` when it says the same already.
pub(crate) fn status_changed(service: &Service, to: LoadBalancerStatus) -> Option<String> {
    let to = status::publishable(to);
    let from = &service.status.load_balancer;
    (!status::equal(from, &to)).then(|| {
        format!(
            "status.loadBalancer.ingress: {} -> {}",
            listed(from),
            listed(&to)
        )
    })
}

fn listed(status: &LoadBalancerStatus) -> String {
    let entries = status.ingress.as_deref().unwrap_or_default();
    if entries.is_empty() {
        return "none".to_owned();
    }
    let entries: Vec<&str> = entries.iter().map(entry).collect();
    entries.join(", ")
}

fn entry(ingress: &LoadBalancerIngress) -> &str {
    let texts = [ingress.hostname.as_deref(), ingress.ip.as_deref()];
    texts
        .into_iter()
        .flatten()
        .find(|text| !text.is_empty())
        .unwrap_or("(empty)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::service::fixtures;

    type Edit = fn(&mut Service);

    /// REQ-SVC-01, REQ-SVC-08
    #[test]
    fn the_intent_is_that_of_a_controller_that_has_just_started() {
        let cases: [(&str, Edit, Intent); 7] = [
            ("wanted", |_| {}, Intent::Ensure),
            ("deleted", fixtures::delete, Intent::Delete),
            (
                "another type",
                |s| s.spec.type_ = Some("NodePort".to_owned()),
                Intent::Delete,
            ),
            (
                "another class",
                |s| s.spec.load_balancer_class = Some("a/b".to_owned()),
                Intent::DeleteForeign,
            ),
            (
                "another class, never ours",
                |s| {
                    s.spec.load_balancer_class = Some("a/b".to_owned());
                    s.metadata.finalizers = None;
                },
                Intent::Nothing,
            ),
            (
                "another type, never ours",
                |s| {
                    s.spec.type_ = Some("ClusterIP".to_owned());
                    s.metadata.finalizers = None;
                },
                Intent::Nothing,
            ),
            (
                "deleted, never ours",
                |s| {
                    fixtures::delete(s);
                    s.metadata.finalizers = None;
                },
                Intent::Nothing,
            ),
        ];
        for (what, edit, want) in cases {
            let mut service = fixtures::finalized();
            edit(&mut service);
            assert_eq!(intent(&service), want, "{what}");
        }
    }

    #[test]
    fn lines_are_there_only_where_something_differs() {
        let (bare, finalized) = (fixtures::service(), fixtures::finalized());
        assert!(finalizer_added(&bare).is_some() && finalizer_added(&finalized).is_none());
        assert!(finalizer_removed(&bare).is_none() && finalizer_removed(&finalized).is_some());
        let named = |name: &str| LoadBalancerStatus {
            ingress: Some(vec![LoadBalancerIngress {
                hostname: Some(name.to_owned()),
                ..LoadBalancerIngress::default()
            }]),
        };
        let mut service = bare;
        assert_eq!(
            status_changed(&service, named("a.example")).as_deref(),
            Some("status.loadBalancer.ingress: none -> a.example")
        );
        assert_eq!(
            status_changed(&service, LoadBalancerStatus::default()),
            None
        );
        service.status.load_balancer = named("a.example");
        assert_eq!(status_changed(&service, named("a.example")), None);
        assert_eq!(
            status_changed(&service, LoadBalancerStatus::default()).as_deref(),
            Some("status.loadBalancer.ingress: a.example -> none")
        );
    }
}
