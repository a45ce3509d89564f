//! Existence and power from an instance's state (specification: aws §3.4). Pure.

use ccm_core::cloud::{Power, Presence};

use crate::api::{Instance, InstanceState};

/// What the state means. An instance that EC2 does not know is absent, and so is a terminated one
/// and one that is answered without state.
pub fn of_instance(found: Option<&Instance>) -> Presence {
    let Some(instance) = found else {
        return Presence::Absent;
    };
    match instance.state {
        Some(InstanceState::Running) => Presence::Present(Power::Running),
        Some(InstanceState::Stopped) => Presence::Present(Power::Stopped),
        Some(InstanceState::Terminated) => Presence::Absent,
        Some(_) => Presence::Present(Power::Unknown),
        None => {
            tracing::warn!(instance = %instance.id, "instance has no state and counts as absent");
            Presence::Absent
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::fake::instance;

    /// REQ-AWS-INST-1, REQ-AWS-INST-2, REQ-AWS-INST-3, REQ-AWS-INST-7
    #[test]
    fn every_state_has_its_meaning() {
        for (state, want) in [
            (
                Some(InstanceState::Pending),
                Presence::Present(Power::Unknown),
            ),
            (
                Some(InstanceState::Running),
                Presence::Present(Power::Running),
            ),
            (
                Some(InstanceState::Stopping),
                Presence::Present(Power::Unknown),
            ),
            (
                Some(InstanceState::ShuttingDown),
                Presence::Present(Power::Unknown),
            ),
            (
                Some(InstanceState::Other),
                Presence::Present(Power::Unknown),
            ),
            (
                Some(InstanceState::Stopped),
                Presence::Present(Power::Stopped),
            ),
            (Some(InstanceState::Terminated), Presence::Absent),
            (None, Presence::Absent),
        ] {
            let instance = Instance {
                state,
                ..instance("i-1")
            };
            assert_eq!(of_instance(Some(&instance)), want, "{state:?}");
        }
        assert_eq!(of_instance(None), Presence::Absent);
    }
}
