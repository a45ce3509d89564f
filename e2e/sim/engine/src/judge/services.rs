//! Services, and what stands in the cloud for them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Judge, Rule};
use crate::{
    cloud::{
        Model,
        model::{FOREIGN, PartKind, Spec},
    },
    objects::{FINALIZER, addresses, finalizers, text},
};

impl Judge {
    pub(super) fn service_written(&self, before: Option<&Value>, after: Option<&Value>) {
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
        let shown = addresses(before);
        for ip in addresses(after) {
            let cloud = self.cloud.now();
            let holder = cloud.parts.values().find(|part| part.has_ip(ip));
            if !shown.contains(&ip) && holder.is_some_and(|part| part.owner != uid) {
                let name = text(after, "/metadata/name");
                self.violated(
                    Rule::WrongStatus,
                    format!("{name} shows {ip}, which belongs to {holder:?}"),
                );
            }
        }
    }

    pub(super) fn part_made(&self, uid: &str, what: &str, late: bool) {
        let services = self.kube.list("services");
        let service = services
            .iter()
            .find(|service| text(service, "/metadata/uid") == uid);
        let guarded = service.is_some_and(|service| finalizers(service).contains(&FINALIZER));
        if !guarded && late {
            self.with(|state| state.forgiven.insert(uid.to_owned()));
        } else if !guarded && !self.is_stripped(uid) {
            let name = service.map_or("a Service that is gone", |service| {
                text(service, "/metadata/name")
            });
            self.violated(Rule::FinalizerFirst, format!("{what}, for {name}"));
        }
    }

    pub(super) fn owners(&self, model: &Model, what: &str) {
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
