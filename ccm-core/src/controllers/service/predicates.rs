//! Which Services are ours (specification: controllers §4.2, §4.11).

use crate::kube::Service;

/// The finalizer that keeps a Service until its load balancer is gone. Must not change: it is the
/// one that the Go managers set.
pub const CLEANUP_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

const LOAD_BALANCER: &str = "LoadBalancer";

fn has_class(service: &Service) -> bool {
    service.spec.load_balancer_class.is_some()
}

/// Whether `spec.type` is `LoadBalancer`.
pub fn is_load_balancer(service: &Service) -> bool {
    service.spec.type_.as_deref() == Some(LOAD_BALANCER)
}

/// Whether the Service asks us for a load balancer: the type is `LoadBalancer` and no class is
/// set. Any class opts out.
pub fn wants_load_balancer(service: &Service) -> bool {
    is_load_balancer(service) && !has_class(service)
}

/// Whether our finalizer is on the Service.
pub fn has_cleanup_finalizer(service: &Service) -> bool {
    service.has_finalizer(CLEANUP_FINALIZER)
}

/// Whether a load balancer has to go and the finalizer with it. A Service of a foreign class is
/// never meant: [`is_foreign`] answers for it.
pub fn needs_cleanup(service: &Service) -> bool {
    has_cleanup_finalizer(service)
        && !is_foreign(service)
        && (service.is_deleting() || !is_load_balancer(service))
}

/// Whether a Service of another class carries our finalizer: a load balancer that we made before
/// the class appeared, or another controller that uses the same finalizer.
pub fn is_foreign(service: &Service) -> bool {
    is_load_balancer(service) && has_class(service) && has_cleanup_finalizer(service)
}

/// Whether a change of a Service makes the rule for foreign classes run. A re-list or an unrelated
/// change does not.
pub fn foreign_changed(old: &Service, new: &Service) -> bool {
    is_foreign(new)
        && (old.spec.load_balancer_class != new.spec.load_balancer_class
            || old.spec.type_ != new.spec.type_
            || old.uid() != new.uid()
            || old.is_deleting() != new.is_deleting()
            || has_cleanup_finalizer(old) != has_cleanup_finalizer(new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::service::fixtures;

    type Edit = fn(&mut Service);

    #[derive(Clone, Copy)]
    struct Case(
        &'static str,         // type
        Option<&'static str>, // class
        bool,                 // finalizer
        bool,                 // deleting
        [bool; 3],            // wants, cleanup, foreign
    );

    /// REQ-SVC-01, REQ-SVC-08, REQ-SVC-46, REQ-AWS-DIV-3
    #[test]
    fn a_service_is_wanted_to_be_cleaned_up_or_foreign() {
        for Case(type_, class, finalizer, deleting, want) in [
            Case("LoadBalancer", None, false, false, [true, false, false]),
            Case("LoadBalancer", None, true, false, [true, false, false]),
            Case("LoadBalancer", None, true, true, [true, true, false]),
            Case("LoadBalancer", None, false, true, [true, false, false]),
            Case("NodePort", None, true, false, [false, true, false]),
            Case("NodePort", None, false, false, [false, false, false]),
            Case("ClusterIP", None, true, true, [false, true, false]),
            Case("LoadBalancer", Some("a/b"), false, false, [false; 3]),
            Case("LoadBalancer", Some("a/b"), false, true, [false; 3]),
            Case("LoadBalancer", Some(""), false, false, [false; 3]),
            Case(
                "LoadBalancer",
                Some("a/b"),
                true,
                false,
                [false, false, true],
            ),
            Case(
                "LoadBalancer",
                Some("a/b"),
                true,
                true,
                [false, false, true],
            ),
        ] {
            let mut service = fixtures::service();
            service.spec.type_ = Some(type_.to_owned());
            service.spec.load_balancer_class = class.map(str::to_owned);
            if finalizer {
                service.metadata.finalizers = Some(vec![CLEANUP_FINALIZER.to_owned()]);
            }
            if deleting {
                fixtures::delete(&mut service);
            }
            assert_eq!(
                [
                    wants_load_balancer(&service),
                    needs_cleanup(&service),
                    is_foreign(&service)
                ],
                want,
                "{type_} {class:?} finalizer={finalizer} deleting={deleting}"
            );
        }
    }

    /// REQ-SVC-44
    #[test]
    fn the_foreign_rule_runs_on_its_own_five_changes_only() {
        let mut foreign = fixtures::service();
        foreign.spec.load_balancer_class = Some("example.com/other".to_owned());
        foreign.metadata.finalizers = Some(vec![CLEANUP_FINALIZER.to_owned()]);
        let changes: [(&str, bool, Edit); 8] = [
            ("nothing", false, |_| {}),
            ("ports", false, |s| s.spec.ports[0].port = 81),
            ("annotations", false, |s| fixtures::annotate(s, "a", "b")),
            ("class", true, |s| s.spec.load_balancer_class = None),
            ("type", true, |s| s.spec.type_ = Some("NodePort".to_owned())),
            ("uid", true, |s| s.metadata.uid = Some("old".to_owned())),
            ("deletion", true, fixtures::delete),
            ("finalizer", true, |s| s.metadata.finalizers = None),
        ];
        for (what, want, change) in changes {
            let mut old = foreign.clone();
            change(&mut old);
            assert_eq!(foreign_changed(&old, &foreign), want, "{what}");
        }
    }
}
