//! The warnings about load balancers that work all the same, each declared once.

use ccm_core::runtime::{EventRow, note};

/// No Node is a target.
pub(crate) const NO_TARGETS: &str = "UnAvailableLoadBalancer";
/// The scheme differs from the annotation.
pub(crate) const SCHEME_NOT_CHANGED: &str = "SchemeNotChanged";
/// AWS does not take some instances.
pub(crate) const TARGETS_NOT_REGISTERED: &str = "TargetsNotRegistered";
/// AWS does not take more targets.
pub(crate) const TOO_MANY_TARGETS: &str = "TooManyTargets";
/// Another controller serves the Service by now.
pub(crate) const RELEASED: &str = "LoadBalancerReleased";

/// The warnings, for the reference. [`NO_TARGETS`] is one of the service controller's events too.
pub static NOTES: &[EventRow] = &[
    note(
        SCHEME_NOT_CHANGED,
        "AWS: the annotation asks for another scheme than the load balancer was made with; it cannot change",
    ),
    note(
        TARGETS_NOT_REGISTERED,
        "AWS: instances are refused as targets, for example because they do not run",
    ),
    note(
        TOO_MANY_TARGETS,
        "AWS: a target group is at its limit, so that some Nodes are no targets",
    ),
    note(
        RELEASED,
        "AWS: the annotation gives the Service to another controller, the load balancer made for it stays",
    ),
];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use ccm_core::runtime::EVENTS;

    use super::*;

    #[test]
    fn every_reason_that_is_stated_is_in_the_reference() {
        let known: BTreeSet<&str> = NOTES.iter().map(|row| row.reason).collect();
        assert_eq!(known.len(), NOTES.len());
        assert!(EVENTS.iter().all(|row| !known.contains(row.reason)));
        assert!(EVENTS.iter().any(|row| row.reason == NO_TARGETS));
        let names = [
            ("NO_TARGETS", NO_TARGETS),
            ("SCHEME_NOT_CHANGED", SCHEME_NOT_CHANGED),
            ("TARGETS_NOT_REGISTERED", TARGETS_NOT_REGISTERED),
            ("TOO_MANY_TARGETS", TOO_MANY_TARGETS),
            ("RELEASED", RELEASED),
        ];
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/load_balancer");
        let mut stated = BTreeSet::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for (at, begin) in text.match_indices("reason: ") {
                let rest = &text[at + begin.len()..];
                let reason = names
                    .iter()
                    .find(|(name, _)| rest.starts_with(&format!("notes::{name},")));
                stated.insert(
                    reason
                        .unwrap_or_else(|| panic!("{}: {rest:.40}", path.display()))
                        .1,
                );
            }
        }
        stated.remove(NO_TARGETS);
        assert_eq!(stated, known);
    }
}
