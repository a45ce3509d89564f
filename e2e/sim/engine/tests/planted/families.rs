//! Two families of addresses, and ranges that the cloud hands out.

use std::sync::{Mutex, OnceLock};

use ccm_core::cloud::{CloudPodCidrs, Route};
use ccm_kubesim::{KubeSim, Verb};
use ccm_simulation::{
    cloud::{Craft, model::Machine},
    judge::Rule,
    scenarios,
    tap::{ApiCall, Wiretap},
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{crafted, must_find, must_find_in, tapped, violated};

/// Shows routes of the second family as if they led nowhere.
struct SecondFamilyIsGone;

impl Craft for SecondFamilyIsGone {
    fn shown(&self, route: Route) -> Route {
        if !route.destination_cidr.contains(':') {
            return route;
        }
        Route {
            target_node: String::new(),
            blackhole: true,
            ..route
        }
    }
}

#[test]
fn a_deletion_of_needed_routes_of_one_family_is_found() {
    let single = scenarios::named("routes-join").unwrap();
    assert_eq!(violated(&single.plan, &crafted(SecondFamilyIsGone)), None);
    must_find(SecondFamilyIsGone, "dual-join", &[Rule::WrongRoute]);
}

/// Gives the second range of the first Node to every Node.
#[derive(Default)]
struct OneSecondRange(Mutex<Option<Value>>);

impl Wiretap for OneSecondRange {
    fn answer(&self, call: &ApiCall, kube: &KubeSim) -> Option<(StatusCode, Value)> {
        if call.verb != Verb::Patch || call.resource != "nodes" {
            return None;
        }
        let first = call.body.pointer("/spec/podCIDRs/0")?;
        let own = call.body.pointer("/spec/podCIDRs/1")?;
        let mut second = self.0.lock().unwrap();
        let second = second.get_or_insert(own.clone());
        let patch = json!({ "spec": { "podCIDR": first, "podCIDRs": [first, second] } });
        let made = kube.patch_merge("nodes", "", &call.name, &patch);
        Some((StatusCode::OK, made.unwrap()))
    }
}

#[test]
fn a_second_range_of_pods_given_twice_is_found() {
    must_find_in(
        &tapped(OneSecondRange::default()),
        &scenarios::named("dual-join").unwrap(),
        &[Rule::SharedRange],
    );
}

/// Names the ranges of one machine for all.
#[derive(Default)]
struct RangesOfAnother(OnceLock<CloudPodCidrs>);

impl Craft for RangesOfAnother {
    fn ranges(&self, machine: &Machine) -> CloudPodCidrs {
        let own = || CloudPodCidrs {
            cidrs: machine.ranges.clone(),
            routed: true,
        };
        self.0.get_or_init(own).clone()
    }
}

#[test]
fn ranges_copied_from_another_machine_are_found() {
    must_find(
        RangesOfAnother::default(),
        "copied-join",
        &[Rule::SharedRange],
    );
}
