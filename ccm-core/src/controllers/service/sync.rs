//! What to do about one Service: a pure function of what the API server shows and what is
//! remembered (specification: controllers §4.4, §4.8, §4.11).

use tokio::time::Instant;

use super::{
    memory::{Entry, Phase},
    needs_update::needs_update,
    predicates::{
        has_cleanup_finalizer, is_foreign, is_load_balancer, needs_cleanup, wants_load_balancer,
    },
    targets::TargetSet,
};
use crate::kube::Service;

/// The next step for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// All is as it should be.
    Nothing,
    /// The remembered Service vanished or was replaced under its name: its load balancer has to
    /// go without the help of a finalizer.
    DeleteRemembered,
    /// The load balancer and then the finalizer have to go.
    Delete,
    /// The Service is of another class: only what is provably ours has to go.
    DeleteForeign,
    /// A delete was begun, but the Service wants a load balancer again: first finish the delete.
    FinishDelete,
    /// Make the load balancer as the Service asks.
    Ensure {
        /// A verification: nothing changed, so nothing is told unless something is found.
        quiet: bool,
    },
    /// Put the finalizer back that somebody took away.
    RestoreFinalizer,
    /// Put the status back that somebody cleared.
    RestoreStatus,
    /// Give the load balancer the current backends.
    UpdateHosts,
}

/// Decides. `targets` is the current set of backends, in the form that the entry keeps.
pub(super) fn decide(
    service: Option<&Service>,
    entry: Option<&Entry>,
    targets: TargetSet,
    now: Instant,
) -> Operation {
    let replaced = |service: &Service| entry.is_some_and(|e| e.service.uid() != service.uid());
    let Some(service) = service.filter(|service| !replaced(service)) else {
        return match entry {
            Some(_) => Operation::DeleteRemembered,
            None => Operation::Nothing,
        };
    };
    if is_leaving(service) {
        let of_another_class = is_load_balancer(service) && !wants_load_balancer(service);
        return match (entry, has_cleanup_finalizer(service)) {
            // Nothing of ours: not ours to touch, or already done.
            (None, false) => Operation::Nothing,
            _ if of_another_class => Operation::DeleteForeign,
            _ => Operation::Delete,
        };
    }
    let Some(entry) = entry else {
        return Operation::Ensure { quiet: false };
    };
    let waiting = entry.waiting(now).is_some();
    match entry.phase {
        Phase::Deleting => Operation::FinishDelete,
        // The same Service failed a moment ago. Its load balancer, if it has one, still follows
        // the Nodes.
        Phase::Pending if waiting && !needs_update(&entry.tried, service) => {
            hosts(entry, targets, now)
        }
        Phase::Pending => Operation::Ensure { quiet: false },
        Phase::Settled if needs_update(&entry.service, service) => {
            Operation::Ensure { quiet: false }
        }
        Phase::Settled if now >= entry.verify_at && !waiting => Operation::Ensure { quiet: true },
        // First what the traffic needs: a repair that the API server refuses must not hold it up.
        Phase::Settled if waiting && hosts(entry, targets, now) == Operation::UpdateHosts => {
            Operation::UpdateHosts
        }
        Phase::Settled if !has_cleanup_finalizer(service) => Operation::RestoreFinalizer,
        Phase::Settled if entry.lost_status(service) => Operation::RestoreStatus,
        Phase::Settled => hosts(entry, targets, now),
    }
}

fn hosts(entry: &Entry, targets: TargetSet, now: Instant) -> Operation {
    if entry.takes_hosts(now) && entry.targets != Some(targets) {
        return Operation::UpdateHosts;
    }
    Operation::Nothing
}

/// Whether the Service has no use for a load balancer of ours. One that is being deleted has none
/// either, with or without our finalizer: the API server takes no new finalizers then.
pub(super) fn is_leaving(service: &Service) -> bool {
    needs_cleanup(service)
        || is_foreign(service)
        || !wants_load_balancer(service)
        || service.is_deleting()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        controllers::service::{fixtures, memory::Retry},
        kube::{LoadBalancerIngress, LoadBalancerStatus},
    };

    fn address() -> LoadBalancerStatus {
        LoadBalancerStatus {
            ingress: Some(vec![LoadBalancerIngress {
                ip: Some("198.51.100.7".to_owned()),
                ..LoadBalancerIngress::default()
            }]),
        }
    }

    fn targets(names: &[&str]) -> TargetSet {
        let nodes: Vec<_> = names.iter().map(|n| Arc::new(fixtures::node(n))).collect();
        TargetSet::of(&nodes, false)
    }

    /// A Service with finalizer and address, and the entry that belongs to it.
    fn settled(now: Instant) -> (Service, Entry) {
        let mut service = fixtures::finalized();
        service.status.load_balancer = address();
        let mut entry = Entry::new(Arc::new(service.clone()), now);
        entry.phase = Phase::Settled;
        entry.status = Some(address());
        entry.targets = Some(targets(&["a"]));
        entry.verify_at = now + Duration::from_secs(60);
        (service, entry)
    }

    type Change = fn(&mut Service);
    type Edit = fn(&mut Service, &mut Entry);

    /// REQ-SVC-26, REQ-SVC-31, REQ-SVC-41, REQ-SVC-42
    #[tokio::test(start_paused = true)]
    async fn a_settled_service_is_left_alone_until_something_differs() {
        use Operation as Op;
        let now = Instant::now();
        let cases: [(&str, Edit, Op); 20] = [
            ("nothing", |_, _| {}, Op::Nothing),
            (
                "port",
                |s, _| s.spec.ports[0].port = 81,
                Op::Ensure { quiet: false },
            ),
            (
                "failed before",
                |_, e| e.phase = Phase::Pending,
                Op::Ensure { quiet: false },
            ),
            (
                "verification due",
                |_, e| e.verify_at = Instant::now(),
                Op::Ensure { quiet: true },
            ),
            (
                "finalizer stripped",
                |s, _| s.metadata.finalizers = None,
                Op::RestoreFinalizer,
            ),
            (
                "status cleared",
                |s, _| s.status = Default::default(),
                Op::RestoreStatus,
            ),
            (
                "status cleared of a load balancer that is implemented elsewhere",
                |s, e| {
                    s.status = Default::default();
                    e.status = None;
                },
                Op::Nothing,
            ),
            (
                "no backends given yet",
                |_, e| e.targets = None,
                Op::UpdateHosts,
            ),
            (
                "other backends",
                |_, e| e.targets = Some(targets(&["b"])),
                Op::UpdateHosts,
            ),
            (
                "replaced",
                |s, _| s.metadata.uid = Some("new".to_owned()),
                Op::DeleteRemembered,
            ),
            ("deleted", |s, _| fixtures::delete(s), Op::Delete),
            (
                "deleted, finalizer stripped",
                |s, _| {
                    fixtures::delete(s);
                    s.metadata.finalizers = None;
                },
                Op::Delete,
            ),
            (
                "type",
                |s, _| s.spec.type_ = Some("ClusterIP".to_owned()),
                Op::Delete,
            ),
            (
                "type, finalizer stripped",
                |s, _| {
                    s.spec.type_ = Some("ClusterIP".to_owned());
                    s.metadata.finalizers = None;
                },
                Op::Delete,
            ),
            (
                "class",
                |s, _| s.spec.load_balancer_class = Some("a/b".to_owned()),
                Op::DeleteForeign,
            ),
            (
                "class, finalizer stripped",
                |s, _| {
                    s.spec.load_balancer_class = Some("a/b".to_owned());
                    s.metadata.finalizers = None;
                },
                Op::DeleteForeign,
            ),
            (
                "delete begun",
                |_, e| e.phase = Phase::Deleting,
                Op::FinishDelete,
            ),
            (
                "delete begun, status cleared",
                |s, e| {
                    e.phase = Phase::Deleting;
                    s.status = Default::default();
                },
                Op::FinishDelete,
            ),
            (
                "delete begun and still wanted gone",
                |s, e| {
                    e.phase = Phase::Deleting;
                    fixtures::delete(s);
                },
                Op::Delete,
            ),
            (
                "status changed by somebody",
                |s, _| {
                    if let Some(list) = &mut s.status.load_balancer.ingress {
                        list[0].ip = Some("203.0.113.1".to_owned());
                    }
                },
                Op::Nothing,
            ),
        ];
        for (what, edit, want) in cases {
            let (mut service, mut entry) = settled(now);
            edit(&mut service, &mut entry);
            let got = decide(Some(&service), Some(&entry), targets(&["a"]), now);
            assert_eq!(got, want, "{what}");
        }
        let (_, entry) = settled(now);
        assert_eq!(
            decide(None, Some(&entry), targets(&["a"]), now),
            Op::DeleteRemembered
        );
    }

    /// REQ-SVC-17, REQ-SVC-24: within a back-off only new backends or a new wish lead to a call.
    #[tokio::test(start_paused = true)]
    async fn a_back_off_is_kept_but_backends_follow_the_nodes() {
        use Operation as Op;
        let now = Instant::now();
        let cases: [(&str, Edit, Op); 11] = [
            ("failed", |_, _| {}, Op::Nothing),
            (
                "failed, Nodes changed",
                |_, e| e.targets = None,
                Op::UpdateHosts,
            ),
            (
                "failed, Nodes changed, never ensured",
                |_, e| (e.targets, e.ensured) = (None, None),
                Op::Nothing,
            ),
            (
                "failed, Nodes changed, patience asked for",
                |_, e| {
                    e.targets = None;
                    e.retry.as_mut().unwrap().hosts = false;
                },
                Op::Nothing,
            ),
            (
                "failed, corrected",
                |s, _| s.spec.ports[0].port = 81,
                Op::Ensure { quiet: false },
            ),
            (
                "failed, back-off over",
                |_, e| e.retry.as_mut().unwrap().at = Instant::now(),
                Op::Ensure { quiet: false },
            ),
            (
                "delete failed, Nodes changed",
                |_, e| (e.targets, e.phase) = (None, Phase::Deleting),
                Op::FinishDelete,
            ),
            (
                "verification failed",
                |_, e| (e.phase, e.verify_at) = (Phase::Settled, Instant::now()),
                Op::Nothing,
            ),
            (
                "verification failed, Nodes changed",
                |_, e| {
                    (e.phase, e.verify_at) = (Phase::Settled, Instant::now());
                    e.targets = None;
                },
                Op::UpdateHosts,
            ),
            (
                "repair failed, Nodes changed",
                |s, e| {
                    e.phase = Phase::Settled;
                    e.targets = None;
                    s.metadata.finalizers = None;
                },
                Op::UpdateHosts,
            ),
            (
                "verification failed, back-off over",
                |_, e| {
                    (e.phase, e.verify_at) = (Phase::Settled, Instant::now());
                    e.retry.as_mut().unwrap().at = Instant::now();
                },
                Op::Ensure { quiet: true },
            ),
        ];
        for (what, edit, want) in cases {
            let (mut service, mut entry) = settled(now);
            entry.phase = Phase::Pending;
            entry.ensured = Some(Arc::clone(&entry.service));
            entry.retry = Some(Retry {
                at: now + Duration::from_secs(5),
                hosts: true,
            });
            edit(&mut service, &mut entry);
            let got = decide(Some(&service), Some(&entry), targets(&["a"]), now);
            assert_eq!(got, want, "{what}");
        }
    }

    /// REQ-SVC-07, REQ-SVC-46
    #[tokio::test(start_paused = true)]
    async fn what_is_not_remembered_is_judged_by_the_object_alone() {
        use Operation as Op;
        let cases: [(&str, Change, Op); 9] = [
            (
                "new",
                |s| s.metadata.finalizers = None,
                Op::Ensure { quiet: false },
            ),
            ("after a restart", |_| {}, Op::Ensure { quiet: false }),
            (
                "type",
                |s| s.spec.type_ = Some("NodePort".to_owned()),
                Op::Delete,
            ),
            ("deleting", fixtures::delete, Op::Delete),
            (
                "deleting, held by others",
                |s| {
                    fixtures::delete(s);
                    s.metadata.finalizers = Some(vec!["other/finalizer".to_owned()]);
                },
                Op::Nothing,
            ),
            (
                "never ours",
                |s| {
                    s.spec.type_ = Some("ClusterIP".to_owned());
                    s.metadata.finalizers = None;
                },
                Op::Nothing,
            ),
            (
                "class with our finalizer",
                |s| s.spec.load_balancer_class = Some("a/b".to_owned()),
                Op::DeleteForeign,
            ),
            (
                "class with our finalizer, deleting",
                |s| {
                    s.spec.load_balancer_class = Some("a/b".to_owned());
                    fixtures::delete(s);
                },
                Op::DeleteForeign,
            ),
            (
                "class",
                |s| {
                    s.spec.load_balancer_class = Some("a/b".to_owned());
                    s.metadata.finalizers = None;
                },
                Op::Nothing,
            ),
        ];
        let now = Instant::now();
        for (what, edit, want) in cases {
            let mut service = fixtures::finalized();
            edit(&mut service);
            let got = decide(Some(&service), None, targets(&[]), now);
            assert_eq!(got, want, "{what}");
        }
        assert_eq!(decide(None, None, targets(&[]), now), Op::Nothing);
    }
}
