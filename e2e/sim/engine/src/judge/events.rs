//! Warning events: at most one of each reason for each try of the work on an object.
//!
//! Tries are counted from outside, by what every try begins with: a Service is tried with the first
//! look at its load balancer or with a write to it, a route with its call, a Node with its
//! description or its deletion. One try may begin with several of these, so the rule is a bound: a
//! manager that tells each failed call, or repeats itself between two tries, exceeds it after a few
//! tries.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::cloud::LoadBalancerName;
use serde_json::Value;

use super::{Judge, Rule};
use crate::{objects::text, process::Process, tap::ApiCall};

/// What the fence refuses leaves no trace in the cloud: each life may tell that of each object
/// once for each of its routes, then it ends.
const REFUSED_BY_THE_FENCE: u64 = 2;

/// What was tried and what was told.
#[derive(Default)]
pub(super) struct Told {
    /// How often each kind of work on an object was begun.
    tries: BTreeMap<String, u64>,
    /// The count of each event object, by what it is about and its reason.
    counts: BTreeMap<(String, String), BTreeMap<String, u64>>,
    /// Who told of it.
    lives: BTreeMap<(String, String), BTreeSet<u32>>,
}

/// The kinds of work that an operation begins.
fn begun(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(' ').collect();
    match words.as_slice() {
        ["get-head", name, ..] => vec![format!("balance {name}")],
        ["create-route", _, node, ..] => vec![format!("route {node}")],
        ["describe-machines", nodes, ..] => {
            let names = nodes.split(',');
            names.map(|name| format!("describe {name}")).collect()
        }
        ["delete", "nodes", name, ..] => vec![format!("delete {name}")],
        ["patch" | "update", "services" | "services/status", name, ..] => {
            vec![format!("write {name}")]
        }
        _ => Vec::new(),
    }
}

/// The kinds of work that may end with a Warning of the reason; `None` for those that no work on
/// the object ends with.
fn work(about: &Value, reason: &str) -> Option<Vec<String>> {
    let (name, uid) = (text(about, "/name"), text(about, "/uid"));
    match (text(about, "/kind"), reason) {
        ("Service", _) => {
            let balancer = LoadBalancerName::from_uid(uid).ok()?;
            let namespace = text(about, "/namespace");
            Some(vec![
                format!("balance {}", balancer.as_str()),
                format!("write {namespace}/{name}"),
            ])
        }
        ("Node", "FailedToCreateRoute") => Some(vec![format!("route {name}")]),
        ("Node", "FailedToInitialise") => Some(vec![format!("describe {name}")]),
        ("Node", "DeletingNodeFailed") => Some(vec![format!("delete {name}")]),
        _ => None,
    }
}

impl Judge {
    /// An operation begins: it may be the first of a try.
    pub fn tried(&self, text: &str) {
        let begun = begun(text);
        self.with(|state| {
            for work in begun {
                *state.events.tries.entry(work).or_default() += 1;
            }
        });
    }

    pub(super) fn event_written(&self, process: &Process, call: &ApiCall, after: Option<&Value>) {
        // A create has no name in its path, its body is the whole event.
        let event = after.unwrap_or(&call.body);
        if text(event, "/type") != "Warning" {
            return;
        }
        let (reason, name) = (text(event, "/reason"), text(event, "/metadata/name"));
        let about = event.pointer("/involvedObject").unwrap_or(&Value::Null);
        let Some(work) = work(about, reason) else {
            return;
        };
        let count = event.pointer("/count").and_then(Value::as_u64);
        let key = (text(about, "/uid").to_owned(), reason.to_owned());
        let (told, tried) = self.with(|state| {
            let told = &mut state.events;
            let counts = told.counts.entry(key.clone()).or_default();
            counts.insert(name.to_owned(), count.unwrap_or(1));
            let sum: u64 = counts.values().sum();
            let lives = told.lives.entry(key).or_default();
            lives.insert(process.number);
            let refused = REFUSED_BY_THE_FENCE * u64::try_from(lives.len()).unwrap_or(1);
            let tries = |work: &String| told.tries.get(work).copied().unwrap_or_default();
            (sum, work.iter().map(tries).sum::<u64>() + refused)
        });
        if told > tried {
            let object = format!("{} {}", text(about, "/kind"), text(about, "/name"));
            self.violated(
                Rule::Storm,
                format!("{told} Warnings {reason} about {object}, at most {tried} for its tries"),
            );
        }
    }
}
