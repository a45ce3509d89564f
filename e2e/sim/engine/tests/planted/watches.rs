//! Watches that are disturbed for one manager only.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use ccm_kubesim::{KubeSim, Verb};
use ccm_simulation::{
    judge::Rule,
    objects::text,
    process::Hush,
    run::Plan,
    scenarios::Scenario,
    steps::{Step, Timed, Trouble, Who},
    tap::{ApiCall, Wiretap},
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{scenario, shows_only_with, tapped};

/// Takes up a watch of Services with the newest version instead of the last one it has seen.
#[derive(Default)]
struct ResumesAtTheNewest {
    /// The newest version when the watch was taken up; none for the first one.
    resumed: Mutex<Option<u64>>,
    began: Mutex<bool>,
}

impl Wiretap for ResumesAtTheNewest {
    fn answer(&self, call: &ApiCall, kube: &KubeSim) -> Option<(StatusCode, Value)> {
        if call.verb == Verb::Watch && call.resource == "services" {
            let mut began = self.began.lock().unwrap();
            if *began {
                *self.resumed.lock().unwrap() = Some(kube.resource_version());
            }
            *began = true;
        }
        None
    }

    fn hands_on(&self, call: &ApiCall, event: &Value) -> bool {
        let version = text(event, "/object/metadata/resourceVersion");
        let resumed = *self.resumed.lock().unwrap();
        let is_old = |newest: u64| {
            version
                .parse::<u64>()
                .is_ok_and(|version| version <= newest)
        };
        call.resource != "services" || !resumed.is_some_and(is_old)
    }
}

#[test]
fn a_watch_that_loses_what_happened_while_it_was_broken_is_found() {
    let hush = |resource, hush| Trouble::Hush(Who::Leader, resource, hush, Duration::from_secs(5));
    shows_only_with(
        hush("services", Hush::Lost),
        &[hush("services", Hush::Late), hush("nodes", Hush::Lost)],
        || tapped(ResumesAtTheNewest::default()),
        &scenario(
            "service-create",
            &[(0, Step::Join("n1"))],
            // Without the last one all trouble would be over too early.
            &[
                (1_000, Step::Create("s1", &[80])),
                (10_000, Step::Ready("n1")),
            ],
        ),
        &[Rule::Convergence],
    );
}

/// A list of Services is what the process knew by its watch, not what the API server has.
#[derive(Default)]
struct ListsItsOldCache(Mutex<BTreeMap<u32, BTreeMap<String, Value>>>);

impl Wiretap for ListsItsOldCache {
    fn answer(&self, call: &ApiCall, kube: &KubeSim) -> Option<(StatusCode, Value)> {
        if call.verb != Verb::List || call.resource != "services" {
            return None;
        }
        let mut known = self.0.lock().unwrap();
        let Some(known) = known.get(&call.process) else {
            let services = kube.list("services").into_iter();
            let named = |service: Value| (text(&service, "/metadata/name").to_owned(), service);
            known.insert(call.process, services.map(named).collect());
            return None;
        };
        let list = json!({
            "apiVersion": "v1",
            "kind": "ServiceList",
            "metadata": { "resourceVersion": kube.resource_version().to_string() },
            "items": known.values().collect::<Vec<_>>(),
        });
        Some((StatusCode::OK, list))
    }

    fn hands_on(&self, call: &ApiCall, event: &Value) -> bool {
        let object = event.pointer("/object").unwrap_or(&Value::Null);
        let name = text(object, "/metadata/name").to_owned();
        if call.resource == "services" && !name.is_empty() {
            let mut known = self.0.lock().unwrap();
            let known = known.entry(call.process).or_default();
            match text(event, "/type") {
                "DELETED" => known.remove(&name),
                _ => known.insert(name, object.clone()),
            };
        }
        true
    }
}

/// The Service goes, then the leader dies: the other one takes over.
fn inherited() -> Scenario {
    use Step::{Create, Delete, Join};
    let before = [(0, Join("n1")), (0, Create("s1", &[80]))];
    let mut scenario = scenario("leader-dies-after-a-delete", &before, &[]);
    scenario.plan = Plan {
        replicas: 2,
        restart_after: Duration::from_secs(60),
        events: vec![
            Timed::work(1_000, Delete("s1")),
            Timed::trouble(10_000, Trouble::Crash),
            Timed::trouble(30_000, Trouble::EndWatches),
        ],
        ..scenario.plan
    };
    scenario
}

#[test]
fn a_successor_that_takes_its_old_cache_for_the_truth_is_found() {
    let hush = |who| Trouble::Hush(who, "services", Hush::Late, Duration::from_secs(120));
    shows_only_with(
        hush(Who::Standby),
        &[hush(Who::Leader)],
        || tapped(ListsItsOldCache::default()),
        &inherited(),
        &[Rule::FinalizerFirst, Rule::Leftover],
    );
}
