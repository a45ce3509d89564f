//! The taint of a machine that is shut down. Pure.

use k8s_openapi::api::core::v1::Taint;

/// Marks a Node whose machine exists and is shut down; effect `NoSchedule`, no value.
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";

const NO_SCHEDULE: &str = "NoSchedule";

/// What the shutdown taint has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// On the Node.
    Marked,
    /// Not on the Node.
    Unmarked,
}

/// The new taint list; `None` when the list is right as it is. Other taints stay as they are, in
/// their order.
pub(super) fn change(taints: &[Taint], to: Shutdown) -> Option<Vec<Taint>> {
    let ours = |taint: &&Taint| taint.key == SHUTDOWN_TAINT && taint.effect == NO_SCHEDULE;
    let others = || taints.iter().filter(|t| !ours(t)).cloned();
    let mut present = taints.iter().filter(ours);
    match to {
        Shutdown::Unmarked => present.next().map(|_| others().collect()),
        Shutdown::Marked => {
            let right = |taint: &Taint| taint.value.as_deref().unwrap_or_default().is_empty();
            let mark = Taint {
                key: SHUTDOWN_TAINT.to_owned(),
                effect: NO_SCHEDULE.to_owned(),
                ..Taint::default()
            };
            match present.next() {
                Some(taint) if right(taint) => None,
                _ => Some(others().chain([mark]).collect()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: Option<&str>, effect: &str) -> Taint {
        Taint {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            effect: effect.to_owned(),
            time_added: None,
        }
    }

    /// REQ-LIFE-07
    #[test]
    fn marking_adds_one_taint_without_value_once() {
        let other = taint("team", Some("blue"), NO_SCHEDULE);
        let mark = taint(SHUTDOWN_TAINT, None, NO_SCHEDULE);
        let marked = change(std::slice::from_ref(&other), Shutdown::Marked).unwrap();
        assert_eq!(marked, [other.clone(), mark.clone()]);
        assert_eq!(change(&marked, Shutdown::Marked), None);
        let with_value = [taint(SHUTDOWN_TAINT, Some("x"), NO_SCHEDULE), other.clone()];
        assert_eq!(
            change(&with_value, Shutdown::Marked),
            Some(vec![other, mark])
        );
    }

    /// REQ-LIFE-02, REQ-LIFE-08
    #[test]
    fn unmarking_removes_only_our_taint() {
        let (first, last) = (
            taint("a", None, NO_SCHEDULE),
            taint(SHUTDOWN_TAINT, None, "NoExecute"),
        );
        let marked = [
            first.clone(),
            taint(SHUTDOWN_TAINT, None, NO_SCHEDULE),
            last.clone(),
        ];
        let unmarked = change(&marked, Shutdown::Unmarked).unwrap();
        assert_eq!(unmarked, [first, last]);
        assert_eq!(change(&unmarked, Shutdown::Unmarked), None);
        assert_eq!(change(&[], Shutdown::Unmarked), None);
    }
}
