//! The rules that hold at every moment, looked at with every change that a manager makes.
//!
//! The judge sees the truth: the store of the API server and the cloud as it is, without any lag.
//! The first violation of a run is kept; what follows from it is not told.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ccm_kubesim::{KubeSim, Verb};
use serde_json::Value;

use crate::{
    cloud::{
        MemCloud, Model,
        model::{FOREIGN, PartKind, Spec, TableRoute},
    },
    objects::{FINALIZER, MARK, finalizers, text},
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
    /// A change of the cloud was begun by a process that does not hold the lease.
    Fence,
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
}

/// The judge of a run. Clones are handles of the same one.
#[derive(Clone)]
pub struct Judge {
    kube: KubeSim,
    cloud: MemCloud,
    trace: Trace,
    state: Arc<Mutex<State>>,
}

/// The lease that the managers compete for.
const LEASE: (&str, &str, &str) = (
    "leases.coordination.k8s.io",
    "kube-system",
    "cloud-controller-manager",
);

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
    /// the only manager that knew died.
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
            "leases.coordination.k8s.io" => {
                let holder = call.body.pointer("/spec/holderIdentity");
                let holder = holder
                    .and_then(Value::as_str)
                    .filter(|name| !name.is_empty());
                if let Some(holder) = holder {
                    let mine = holder.to_owned();
                    self.with(|state| state.identities.insert(process.number, mine));
                }
            }
            _ => {}
        }
    }

    fn node_written(&self, call: &ApiCall, before: Option<&Value>, after: Option<&Value>) {
        let Some(before) = before else { return };
        let Some(after) = after else {
            // Somebody else's deletion may have waited for a finalizer.
            let leaves = before.pointer("/metadata/deletionTimestamp").is_some();
            if call.verb == Verb::Delete || !leaves {
                self.node_deleted(before);
            }
            return;
        };
        self.compare_marks(before, after);
        self.compare_ranges(before, after);
    }

    fn compare_ranges(&self, before: &Value, after: &Value) {
        let range = |node: &Value| text(node, "/spec/podCIDR").to_owned();
        let (was, is) = (range(before), range(after));
        if was == is {
            return;
        }
        let name = text(after, "/metadata/name");
        let nodes = self.kube.list("nodes");
        let other = nodes
            .iter()
            .find(|node| text(node, "/metadata/name") != name && range(node) == is);
        if !was.is_empty() || other.is_some() {
            self.violated(
                Rule::SharedRange,
                format!("{name} gets {is}, had {was:?}, it is also {other:?}'s"),
            );
        }
    }

    fn node_deleted(&self, node: &Value) {
        let name = text(node, "/metadata/name");
        let id = text(node, "/spec/providerID");
        let cloud = self.cloud.now();
        let machine = if id.is_empty() {
            cloud.machine_named(name)
        } else {
            cloud.machine_of(id)
        };
        if let Some(machine) = machine {
            self.violated(
                Rule::WrongDeletion,
                format!("Node {name} was deleted, its machine is {machine:?}"),
            );
        }
    }

    fn service_written(&self, before: Option<&Value>, after: Option<&Value>) {
        let Some(before) = before else { return };
        let uid = text(before, "/metadata/uid");
        let had = finalizers(before).contains(&FINALIZER);
        let has = after.is_some_and(|after| finalizers(after).contains(&FINALIZER));
        if had && !has {
            let cloud = self.cloud.now();
            let left: Vec<String> = cloud
                .parts_of(uid)
                .map(|part| format!("{} {}", part.spec.kind().as_str(), part.name))
                .collect();
            if !left.is_empty() {
                let name = text(before, "/metadata/name");
                let text = format!("the finalizer left {name}, in the cloud: {left:?}");
                self.violated(Rule::FinalizerLast, text);
            }
        }
        let Some(after) = after else { return };
        if has {
            self.with(|state| {
                state.stripped.remove(uid);
                state.forgiven.remove(uid);
            });
        }
        self.compare_marks(before, after);
        let ip = text(after, "/status/loadBalancer/ingress/0/ip");
        if !ip.is_empty() && ip != text(before, "/status/loadBalancer/ingress/0/ip") {
            let cloud = self.cloud.now();
            let holder = cloud.parts.values().find(|part| part.ip == ip);
            if holder.is_some_and(|part| part.owner != uid) {
                let name = text(after, "/metadata/name");
                self.violated(
                    Rule::WrongStatus,
                    format!("{name} shows {ip}, which belongs to {holder:?}"),
                );
            }
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

    // --- the cloud ---

    /// A manager begins a call that changes the cloud; `passable` is what its fence says.
    pub fn cloud_write_begins(&self, process: &Process, what: &str, passable: bool) {
        if !passable {
            let number = process.number;
            self.violated(
                Rule::Fence,
                format!("process {number} begins {what} although its fence is shut"),
            );
        }
        let (resource, namespace, name) = LEASE;
        let Some(lease) = self.kube.get(resource, namespace, name) else {
            return;
        };
        let holder = text(&lease, "/spec/holderIdentity");
        let mine = self.with(|state| state.identities.get(&process.number).cloned());
        if mine.as_deref() != Some(holder) {
            let number = process.number;
            self.violated(
                Rule::Fence,
                format!("process {number} ({mine:?}) begins {what}, the lease is {holder:?}'s"),
            );
        }
    }

    /// A manager changed the cloud, or tried to.
    pub fn cloud_written(&self, what: &str, before: &Model) {
        let after = self.cloud.now();
        if before.foreign() != after.foreign() {
            self.violated(Rule::ForeignCloud, what);
        }
        for (key, part) in &after.parts {
            let is_new = !before.parts.contains_key(key);
            if is_new && part.owner != FOREIGN {
                self.part_made(&part.owner, what);
            }
        }
        for (name, route) in &before.routes {
            if !after.routes.contains_key(name) {
                self.route_deleted(route);
            }
        }
        self.owners(&after, what);
    }

    fn route_deleted(&self, route: &TableRoute) {
        let cloud = self.cloud.now();
        let nodes = self.kube.list("nodes");
        let good = nodes.iter().find(|node| {
            let machine = cloud.machine_of(text(node, "/spec/providerID"));
            text(node, "/spec/podCIDR") == route.cidr
                && machine.is_some_and(|machine| machine.id == route.machine)
        });
        if let Some(node) = good {
            let name = text(node, "/metadata/name");
            self.violated(Rule::WrongRoute, format!("{route:?}, {name} needs it"));
        }
    }

    fn part_made(&self, uid: &str, what: &str) {
        let services = self.kube.list("services");
        let service = services
            .iter()
            .find(|service| text(service, "/metadata/uid") == uid);
        let guarded = service.is_some_and(|service| finalizers(service).contains(&FINALIZER));
        if !guarded && !self.is_stripped(uid) {
            let name = service.map_or("a Service that is gone", |service| {
                text(service, "/metadata/name")
            });
            self.violated(Rule::FinalizerFirst, format!("{what}, for {name}"));
        }
    }

    fn owners(&self, model: &Model, what: &str) {
        let mut seen: BTreeSet<(&str, PartKind)> = BTreeSet::new();
        for part in model.parts.values().filter(|part| part.owner != FOREIGN) {
            if !seen.insert((&part.owner, part.spec.kind())) {
                self.violated(
                    Rule::Twins,
                    format!(
                        "{what}: {} twice for one Service",
                        part.spec.kind().as_str()
                    ),
                );
            }
            if let Spec::Head {
                address, backends, ..
            } = &part.spec
            {
                for (kind, name) in [(PartKind::Address, address), (PartKind::Backends, backends)] {
                    let used = model.part(kind, name);
                    if used.is_some_and(|used| used.owner != part.owner) {
                        self.violated(Rule::TwoOwners, format!("{what}: {used:?} is used"));
                    }
                }
            }
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
