//! The rules that hold at every moment, looked at with every change that a manager makes.
//!
//! The judge sees the truth: the store of the API server and the cloud as it is, without any lag.
//! The first violation of a run is kept; what follows from it is not told.

mod cloud;
mod events;
pub mod lease;
mod nodes;
mod services;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ccm_kubesim::KubeSim;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    cloud::MemCloud,
    objects::{MARK, text},
    process::Process,
    tap::ApiCall,
    trace::Trace,
};

/// What was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// U1: the manager ended, or panicked, by itself.
    Alive,
    /// A Node was deleted although its machine exists.
    WrongDeletion,
    /// U6: something was made in the cloud for a Service without the finalizer.
    FinalizerFirst,
    /// U6: the finalizer left although something of the Service is in the cloud.
    FinalizerLast,
    /// U5: two live parts of one kind for one Service.
    Twins,
    /// A part is used by the load balancer of another owner.
    TwoOwners,
    /// U3: something in the cloud that is not this cluster's was changed.
    ForeignCloud,
    /// U7: labels, taints, annotations, finalizers or conditions of others were changed.
    ForeignFields,
    /// A Service shows an address that belongs to somebody else.
    WrongStatus,
    /// Two Nodes have one range of pod addresses, or a range changed.
    SharedRange,
    /// A route was deleted that leads to the machine of the Node that has its range.
    WrongRoute,
    /// A change of the cloud, or of an object, was begun by a process whose lease was another's or
    /// could have been.
    Fence,
    /// More Warning events of one reason about one object than tries of its work.
    Storm,
    /// After the end of all faults the desired state is not reached in time.
    Convergence,
    /// U2: something is left in the cloud that nobody owns.
    Leftover,
    /// U4: writes, or cloud calls beyond the periodic ones, although nothing happens.
    Quiet,
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// When.
    pub at: Duration,
    /// What was seen.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.as_secs_f64();
        write!(f, "{:?} at {at:.3}s: {}", self.rule, self.text)
    }
}

#[derive(Default)]
struct State {
    violation: Option<Violation>,
    /// UIDs of Services whose finalizer people took away and no manager has put back.
    stripped: BTreeSet<String>,
    /// Those of them of which no manager that lives may know.
    forgiven: BTreeSet<String>,
    /// Under which name each process takes leases.
    identities: BTreeMap<u32, String>,
    /// Until when nobody else can have the lease that each process wrote last.
    terms: BTreeMap<u32, Instant>,
    events: events::Told,
}

/// The judge of a run. Clones are handles of the same one.
#[derive(Clone)]
pub struct Judge {
    kube: KubeSim,
    cloud: MemCloud,
    trace: Trace,
    state: Arc<Mutex<State>>,
}

impl Judge {
    /// A judge of this cluster and this cloud.
    pub fn new(kube: KubeSim, cloud: MemCloud, trace: Trace) -> Self {
        Self {
            kube,
            cloud,
            trace,
            state: Arc::default(),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The first violation.
    pub fn verdict(&self) -> Option<Violation> {
        self.with(|state| state.violation.clone())
    }

    /// Records a violation.
    pub fn violated(&self, rule: Rule, text: impl Into<String>) {
        let violation = Violation {
            rule,
            at: self.trace.elapsed(),
            text: text.into(),
        };
        self.trace.world(format!("VIOLATION {violation}"));
        self.with(|state| state.violation.get_or_insert(violation).rule);
    }

    /// People took the finalizer of this Service away: it cannot protect what is in the cloud.
    pub fn stripped(&self, uid: &str, manager_lives: bool) {
        self.with(|state| {
            state.stripped.insert(uid.to_owned());
            if !manager_lives {
                state.forgiven.insert(uid.to_owned());
            }
        });
    }

    /// A manager died: it alone knew of Services without finalizer.
    pub fn manager_died(&self) {
        self.with(|state| state.forgiven.extend(state.stripped.iter().cloned()));
    }

    /// UIDs of Services that may leave something in the cloud: people took the finalizer away, and
    /// the only manager that knew died; or what a client was told to have failed took place after
    /// everything of the Service was gone.
    pub fn forgiven(&self) -> BTreeSet<String> {
        self.with(|state| state.forgiven.clone())
    }

    fn is_stripped(&self, uid: &str) -> bool {
        self.with(|state| state.stripped.contains(uid))
    }

    // --- the API ---

    /// A manager's request was carried out.
    pub fn api_written(
        &self,
        process: &Process,
        call: &ApiCall,
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        match call.resource.as_str() {
            "nodes" => self.node_written(call, before, after),
            "services" => self.service_written(before, after),
            "leases.coordination.k8s.io" => self.lease_written(process, call, before, after),
            "events" => self.event_written(process, call, after),
            _ => {}
        }
    }

    /// What carries the mark of others is as it was.
    fn compare_marks(&self, before: &Value, after: &Value) {
        let (was, is) = (marks(before), marks(after));
        if was != is {
            let name = text(before, "/metadata/name");
            self.violated(
                Rule::ForeignFields,
                format!("{name}: {was:?} became {is:?}"),
            );
        }
    }
}

/// Everything of an object that carries the mark of others.
fn marks(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for place in ["/metadata/labels", "/metadata/annotations"] {
        let fields = object.pointer(place).and_then(Value::as_object);
        for (key, value) in fields.into_iter().flatten() {
            if key.starts_with(MARK) {
                found.push(format!("{place} {key} {value}"));
            }
        }
    }
    for place in ["/metadata/finalizers", "/spec/taints", "/status/conditions"] {
        let items = object.pointer(place).and_then(Value::as_array);
        for item in items.into_iter().flatten() {
            if item.to_string().contains(MARK) || text(item, "/type") == "Ready" {
                found.push(format!("{place} {item}"));
            }
        }
    }
    found
}
