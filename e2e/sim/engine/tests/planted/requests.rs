//! Managers whose requests do something else than they say, and whose watches lose events.

use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
};

use ccm_kubesim::{KubeSim, Verb};
use ccm_simulation::{
    judge::Rule,
    objects::{FINALIZER, finalizers, text},
    scenarios,
    steps::Step,
    tap::{ApiCall, Wiretap},
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{must_find_in, scenario, tapped};

/// The answer to a patch that has been made.
fn patched(call: &ApiCall, kube: &KubeSim, patch: &Value) -> (StatusCode, Value) {
    let made = kube.patch_merge(&call.resource, &call.namespace, &call.name, patch);
    (StatusCode::OK, made.unwrap())
}

fn patches(call: &ApiCall, resource: &str, subresource: &str) -> bool {
    call.verb == Verb::Patch && call.resource == resource && call.subresource == subresource
}

/// Answers as if the finalizer was there, and puts it there when the status is written: after
/// everything is made in the cloud.
#[derive(Default)]
struct FinalizerLater(Mutex<Option<Value>>);

impl Wiretap for FinalizerLater {
    fn answer(&self, call: &ApiCall, kube: &KubeSim) -> Option<(StatusCode, Value)> {
        let mut late = self.0.lock().unwrap();
        if !patches(call, "services", "status") {
            return None;
        }
        if finalizers(&call.body).contains(&FINALIZER) {
            let mut shown = kube.get("services", &call.namespace, &call.name)?;
            let patch = json!({ "metadata": { "finalizers": [FINALIZER] } });
            let metadata = shown.pointer_mut("/metadata")?.as_object_mut()?;
            metadata.insert("finalizers".to_owned(), json!([FINALIZER]));
            *late = Some(patch);
            return Some((StatusCode::OK, shown));
        }
        if let Some(patch) = late.take() {
            patched(call, kube, &patch);
        }
        None
    }
}

#[test]
fn a_finalizer_written_after_the_cloud_call_is_found() {
    must_find_in(
        &tapped(FinalizerLater::default()),
        &scenarios::named("service-create").unwrap(),
        &[Rule::FinalizerFirst],
    );
}

/// Loses every second event of a Service.
#[derive(Default)]
struct LosesEvents(AtomicU32);

impl Wiretap for LosesEvents {
    fn hands_on(&self, call: &ApiCall, event: &Value) -> bool {
        let counts = call.resource == "services" && text(event, "/type") != "BOOKMARK";
        !counts || self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
    }
}

#[test]
fn events_of_a_watch_that_are_lost_without_a_list_are_found() {
    must_find_in(
        &tapped(LosesEvents::default()),
        &scenarios::named("service-delete").unwrap(),
        &[Rule::Convergence, Rule::Leftover],
    );
}

/// Writes the status of the Service before into the next one.
#[derive(Default)]
struct StatusOfAnother(Mutex<Option<Value>>);

impl Wiretap for StatusOfAnother {
    fn answer(&self, call: &ApiCall, kube: &KubeSim) -> Option<(StatusCode, Value)> {
        if !patches(call, "services", "status") {
            return None;
        }
        let mut first = self.0.lock().unwrap();
        let status = json!({ "status": call.body.get("status")? });
        let status = first.get_or_insert(status);
        Some(patched(call, kube, status))
    }
}

#[test]
fn a_status_written_for_the_wrong_service_is_found() {
    use Step::{Create, Join};
    let before = [(0, Join("n1")), (0, Create("s1", &[80]))];
    must_find_in(
        &tapped(StatusOfAnother::default()),
        &scenario("second-service", &before, &[(0, Create("s2", &[443]))]),
        &[Rule::WrongStatus],
    );
}

/// Gives the range of the first Node to every Node.
#[derive(Default)]
struct OneRange(Mutex<Option<Value>>);

impl Wiretap for OneRange {
    fn answer(&self, call: &ApiCall, kube: &KubeSim) -> Option<(StatusCode, Value)> {
        if !patches(call, "nodes", "") {
            return None;
        }
        call.body.pointer("/spec/podCIDR")?;
        let mut first = self.0.lock().unwrap();
        let range = first.get_or_insert(json!({ "spec": {
            "podCIDR": call.body.pointer("/spec/podCIDR"),
            "podCIDRs": call.body.pointer("/spec/podCIDRs"),
        } }));
        Some(patched(call, kube, range))
    }
}

#[test]
fn a_range_of_pods_given_twice_is_found() {
    must_find_in(
        &tapped(OneRange::default()),
        &scenarios::named("ranges-join").unwrap(),
        &[Rule::SharedRange],
    );
}

/// Replaces all taints where only one was to go.
struct TaintsAsAWhole;

impl Wiretap for TaintsAsAWhole {
    fn answer(&self, call: &ApiCall, kube: &KubeSim) -> Option<(StatusCode, Value)> {
        if !patches(call, "nodes", "") || !call.body.to_string().contains("taints") {
            return None;
        }
        Some(patched(call, kube, &json!({ "spec": { "taints": [] } })))
    }
}

#[test]
fn taints_of_others_that_are_lost_are_found() {
    must_find_in(
        &tapped(TaintsAsAWhole),
        &scenarios::named("node-join").unwrap(),
        &[Rule::ForeignFields],
    );
}

/// Deletes the Node whose machine is only shut down: every write of the taint becomes a deletion.
struct ShutDownIsGone;

impl Wiretap for ShutDownIsGone {
    fn answer(&self, call: &ApiCall, kube: &KubeSim) -> Option<(StatusCode, Value)> {
        let taints = call.body.to_string();
        if !patches(call, "nodes", "") || !taints.contains("cloudprovider.kubernetes.io/shutdown") {
            return None;
        }
        let gone = kube.delete_direct("nodes", "", &call.name);
        Some((StatusCode::OK, gone.unwrap()))
    }
}

#[test]
fn a_node_deleted_because_its_machine_is_shut_down_is_found() {
    must_find_in(
        &tapped(ShutDownIsGone),
        &scenarios::named("node-reboot").unwrap(),
        &[Rule::WrongDeletion],
    );
}
