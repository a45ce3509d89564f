//! What people, kubelets and clouds do in a world.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Network, World};
use crate::{
    cloud::model::{PartKind, State},
    objects::{self, EXCLUDE, FINALIZER, NAMESPACE, finalizers, text},
    steps::Step,
};

/// A machine under a name that was another's boots longer than reads lag behind: a lookup by name
/// would find the dead one, and a provider id never changes.
const BOOT: Duration = Duration::from_secs(11);

/// How often a kubelet tries to register.
const REGISTER_AGAIN: Duration = Duration::from_secs(1);

impl World {
    /// Does a step. One that makes no sense in the present state does nothing.
    pub fn step(&mut self, step: &Step) {
        self.lines.trace.world(format!("{step:?}"));
        match *step {
            Step::Join(name) => self.join(name),
            Step::Stop(name) => self.power(name, State::Stopped),
            Step::Start(name) => self.power(name, State::Running),
            Step::Terminate(name) => {
                self.terminate(name);
                self.set_ready(name, "Unknown");
            }
            Step::Drain(name) => {
                self.terminate(name);
                self.delete("nodes", "", name);
            }
            Step::Replace(name) => {
                self.terminate(name);
                self.delete("nodes", "", name);
                self.join(name);
            }
            Step::NotReady(name) => self.set_ready(name, "False"),
            Step::Ready(name) => self.ready(name),
            Step::BreakRoute(name) => self.cloud.change(|model| {
                let id = model.machine_named(name).map(|machine| machine.id.clone());
                model
                    .routes
                    .retain(|_, route| Some(&route.machine) != id.as_ref());
            }),
            Step::Exclude(name, out) => {
                let value = if out { json!("true") } else { Value::Null };
                self.patch(
                    "nodes",
                    "",
                    name,
                    &json!({ "metadata": { "labels": { EXCLUDE: value } } }),
                );
            }
            _ => self.service_step(step),
        }
    }

    fn service_step(&mut self, step: &Step) {
        match *step {
            Step::Create(name, ports) => self.create_service(name, ports, None),
            Step::CreateForeign(name) => {
                self.create_service(name, &[80], Some("example.com/other"));
            }
            Step::Ports(name, ports) => {
                // A merge patch replaces the list: new node ports are given.
                self.patch_service(name, &json!({ "spec": { "ports": objects::ports(ports) } }));
            }
            Step::Ranges(name, ranges) => {
                self.patch_service(
                    name,
                    &json!({ "spec": { "loadBalancerSourceRanges": ranges } }),
                );
            }
            Step::Annotate(name, value) => {
                let annotations = json!({ "memory.cloud/note": value });
                self.patch_service(name, &json!({ "metadata": { "annotations": annotations } }));
            }
            Step::Retype(name, true) => {
                self.patch_service(name, &json!({ "spec": { "type": "LoadBalancer" } }));
            }
            Step::Retype(name, false) => {
                // As kubectl does it: what only a load balancer has goes along.
                let spec = json!({ "type": "ClusterIP", "loadBalancerSourceRanges": null });
                self.patch_service(name, &json!({ "spec": spec }));
            }
            Step::Delete(name) => {
                self.waiting.remove(name);
                self.delete("services", NAMESPACE, name);
            }
            Step::Recreate(name, ports) => {
                self.delete("services", NAMESPACE, name);
                self.waiting.insert(name, ports);
            }
            Step::StripFinalizer(name) => self.strip_finalizer(name),
            Step::ClearStatus(name) => {
                self.patch_service(name, &json!({ "status": { "loadBalancer": null } }));
            }
            Step::Break(name, kind) => self.break_part(name, kind),
            _ => {}
        }
    }

    /// Only the kubelet of a Node's own machine reports for it, not that of the next machine of the
    /// same name, which waits until the Node is gone.
    fn ready(&mut self, name: &'static str) {
        let Some(node) = self.kube.get("nodes", "", name) else {
            return;
        };
        let cloud = self.cloud.now();
        let machine = match text(&node, "/spec/providerID") {
            "" => cloud.machine_named(name),
            id => cloud.machine_of(id),
        };
        if machine.is_some_and(|machine| machine.state == State::Running) {
            self.set_ready(name, "True");
        }
    }

    fn join(&mut self, name: &'static str) {
        if self.cloud.now().machine_named(name).is_none() {
            self.cloud.change(|model| model.launch(name));
        }
        let ended = self.ended.get(name);
        let up = ended.map_or_else(Instant::now, |ended| *ended + BOOT);
        self.booting.insert(name, up);
        self.tend_machines();
    }

    /// Registers the Nodes of machines that have booted. A Node of the machine that had the name
    /// before is waited out: a kubelet cannot change its provider id.
    pub(super) fn tend_machines(&mut self) {
        let now = Instant::now();
        while let Some((name, _)) = self.booting.iter().find(|(_, up)| **up <= now) {
            let name = *name;
            let cloud = self.cloud.now();
            match self.kube.get("nodes", "", name) {
                None => {
                    self.booting.remove(name);
                    self.lines.trace.world(format!("{name} registers"));
                    let ranges = match self.options.network {
                        Network::Routes | Network::Watched => self.free_range(),
                        Network::None | Network::Allocated | Network::Dual | Network::Copied => {
                            None
                        }
                    };
                    self.apply(objects::node(name, ranges.as_deref()));
                }
                Some(node) => {
                    let id = text(&node, "/spec/providerID");
                    if id.is_empty() || cloud.machine_of(id).is_some() {
                        self.booting.remove(name);
                        self.set_ready(name, "True");
                    } else {
                        self.booting.insert(name, now + REGISTER_AGAIN);
                    }
                }
            }
        }
    }

    /// A range that no Node has, as another controller hands them out: the lowest.
    fn free_range(&self) -> Option<String> {
        let nodes = self.kube.list("nodes");
        let taken: Vec<&str> = nodes
            .iter()
            .map(|node| text(node, "/spec/podCIDR"))
            .collect();
        let mut ranges = (0..=255).map(|third| format!("10.244.{third}.0/24"));
        ranges.find(|range| !taken.contains(&range.as_str()))
    }

    fn terminate(&mut self, name: &'static str) {
        self.booting.remove(name);
        self.ended.insert(name, Instant::now());
        self.cloud.change(|model| {
            model.machines.retain(|_, machine| machine.name != name);
        });
    }

    fn power(&self, name: &str, state: State) {
        let known = self.cloud.change(|model| {
            let machine = model
                .machines
                .values_mut()
                .find(|machine| machine.name == name);
            machine.map(|machine| machine.state = state).is_some()
        });
        if known {
            let ready = if state == State::Running {
                "True"
            } else {
                "Unknown"
            };
            self.set_ready(name, ready);
        }
    }

    fn set_ready(&self, name: &str, status: &str) {
        let Some(mut node) = self.kube.get("nodes", "", name) else {
            return;
        };
        let conditions = node
            .pointer_mut("/status/conditions")
            .and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            if text(condition, "/type") == "Ready"
                && let Some(condition) = condition.as_object_mut()
            {
                condition.insert("status".to_owned(), json!(status));
            }
        }
        self.apply(node);
    }

    fn create_service(&self, name: &str, ports: &[i32], class: Option<&str>) {
        if self.kube.get("services", NAMESPACE, name).is_none() {
            let dual = self.options.network == Network::Dual;
            self.apply(objects::service(name, ports, class, dual));
        }
    }

    /// Creates what waits for its name.
    pub(super) fn tend_services(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for (name, ports) in waiting {
            if self.kube.get("services", NAMESPACE, name).is_some() {
                self.waiting.insert(name, ports);
            } else {
                self.lines.trace.world(format!("{name} is created again"));
                self.create_service(name, ports, None);
            }
        }
    }

    fn strip_finalizer(&self, name: &str) {
        let Some(mut service) = self.kube.get("services", NAMESPACE, name) else {
            return;
        };
        let kept: Vec<String> = finalizers(&service)
            .into_iter()
            .filter(|finalizer| *finalizer != FINALIZER)
            .map(str::to_owned)
            .collect();
        // A manager that only stands by remembers nothing.
        let is_elected = self.replicas.len() > 1;
        let lives = self.replicas.iter().any(|replica| {
            let life = replica.living();
            life.is_some_and(|life| !is_elected || self.lines.judge.leads(life.process.number))
        });
        let uid = text(&service, "/metadata/uid");
        self.lines.judge.stripped(uid, lives);
        if let Some(metadata) = service
            .pointer_mut("/metadata")
            .and_then(Value::as_object_mut)
        {
            metadata.insert("finalizers".to_owned(), json!(kept));
        }
        self.apply(service);
    }

    fn break_part(&self, name: &str, kind: PartKind) {
        let Some(service) = self.kube.get("services", NAMESPACE, name) else {
            return;
        };
        let uid = text(&service, "/metadata/uid");
        self.cloud.change(|model| {
            model.parts.retain(|(part_kind, _), part| {
                let broken = *part_kind == kind
                    || (*part_kind == PartKind::Head && kind != PartKind::Firewall);
                part.owner != uid || !broken
            });
        });
    }

    fn apply(&self, object: Value) {
        if let Err(error) = self.kube.apply_direct(object) {
            self.lines.trace.world(format!("refused: {error:?}"));
        }
    }

    fn patch(&self, resource: &str, namespace: &str, name: &str, patch: &Value) {
        if let Err(error) = self.kube.patch_merge(resource, namespace, name, patch) {
            self.lines.trace.world(format!("refused: {error:?}"));
        }
    }

    fn patch_service(&self, name: &str, patch: &Value) {
        self.patch("services", NAMESPACE, name, patch);
    }

    fn delete(&self, resource: &str, namespace: &str, name: &str) {
        if let Err(error) = self.kube.delete_direct(resource, namespace, name) {
            self.lines.trace.world(format!("refused: {error:?}"));
        }
    }
}
