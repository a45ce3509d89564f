//! The lease: who holds it, and who begins a change without it.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{Judge, Rule};
use crate::{objects::text, process::Process, tap::ApiCall};

/// The lease that the managers compete for: resource, namespace, name.
pub const LEASE: (&str, &str, &str) = (
    "leases.coordination.k8s.io",
    "kube-system",
    "cloud-controller-manager",
);

/// How long nobody else may take a lease that does not change.
pub fn duration(lease: &Value) -> Duration {
    let seconds = lease.pointer("/spec/leaseDurationSeconds");
    Duration::from_secs(seconds.and_then(Value::as_u64).unwrap_or_default())
}

impl Judge {
    /// Whether a process holds the lease.
    pub fn leads(&self, process: u32) -> bool {
        let (resource, namespace, name) = LEASE;
        let lease = self.kube.get(resource, namespace, name);
        let mine = self.with(|state| state.identities.get(&process).cloned());
        match (lease, mine) {
            (Some(lease), Some(mine)) => text(&lease, "/spec/holderIdentity") == mine,
            _ => false,
        }
    }

    /// Others count from when they see a change of the lease: not before it is made.
    pub(super) fn lease_written(
        &self,
        process: &Process,
        call: &ApiCall,
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        let mine = text(&call.body, "/spec/holderIdentity");
        if mine.is_empty() {
            return;
        }
        let (resource, namespace, name) = LEASE;
        // A create has no name in its path.
        let made = self.kube.get(resource, namespace, name);
        let after = after.or(made.as_ref());
        let is_mine = |lease: &&Value| text(lease, "/spec/holderIdentity") == mine;
        let term = after
            .filter(|_| before != after)
            .filter(is_mine)
            .map(|lease| Instant::now() + duration(lease));
        self.with(|state| {
            state.identities.insert(process.number, mine.to_owned());
            if let Some(term) = term {
                state.terms.insert(process.number, term);
            }
        });
    }

    /// A manager begins a call that changes the cloud; `passable` is what its fence says.
    pub fn cloud_write_begins(&self, process: &Process, what: &str, passable: bool) {
        if !passable {
            let number = process.number;
            self.violated(
                Rule::Fence,
                format!("process {number} begins {what} although its fence is shut"),
            );
        }
        self.must_lead(process, what);
    }

    /// A manager begins a request that changes an object. The lease itself, events and questions
    /// need no lease.
    pub fn api_write_begins(&self, process: &Process, call: &ApiCall) {
        if ["nodes", "services"].contains(&call.resource.as_str()) {
            self.must_lead(process, &call.text());
        }
    }

    fn must_lead(&self, process: &Process, what: &str) {
        let (resource, namespace, name) = LEASE;
        let Some(lease) = self.kube.get(resource, namespace, name) else {
            return;
        };
        let holder = text(&lease, "/spec/holderIdentity");
        let number = process.number;
        let (mine, term) = self.with(|state| {
            let mine = state.identities.get(&number).cloned();
            (mine, state.terms.get(&number).copied())
        });
        if mine.as_deref() != Some(holder) {
            self.violated(
                Rule::Fence,
                format!("process {number} ({mine:?}) begins {what}, the lease is {holder:?}'s"),
            );
        } else if term.is_none_or(|term| Instant::now() >= term) {
            self.violated(
                Rule::Fence,
                format!("process {number} begins {what}, its lease could be another's by now"),
            );
        }
    }
}
