//! Runs a case against both servers and compares what they answered.

use std::pin::Pin;

use ccm_kubesim::{KubeSim, Options};
use kube::Client;
use serde_json::Value;

use crate::{
    differences::{DIFFERENCES, Difference},
    world::{Step, World},
};

/// A case: it sends requests through the world, which writes down the answers.
pub(crate) type Case = for<'a> fn(&'a mut World) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs the case against both servers; fails with the differences.
pub(crate) async fn both(name: &str, case: Case) {
    let api = ccm_e2e_tests::api().unwrap();
    let real = {
        let _turn = api.turn().await;
        let client = api.client().await.unwrap();
        run(name, World::new(name, client), case).await
    };
    let sim = KubeSim::new(Options {
        // The ranges of the real server's command line.
        service_cidrs: ["10.96.0.0/16", "fd00:96::/112"]
            .map(|cidr| cidr.parse().unwrap())
            .into(),
        start: now(),
        ..Options::default()
    });
    let client = Client::new(sim.service(), "default");
    let simulated = run(name, World::new(name, client), case).await;
    assert!(!real.is_empty(), "the case sends nothing");
    report(name, &real, &simulated);
}

async fn run(name: &str, mut world: World, case: Case) -> Vec<Step> {
    world.make_namespace().await;
    case(&mut world).await;
    // Nodes have no namespace of their own: the next case must not see them.
    world.remove_nodes().await;
    assert!(
        world.steps.iter().all(|step| !step.title.is_empty()),
        "{name}"
    );
    world.steps
}

fn report(name: &str, real: &[Step], simulated: &[Step]) {
    let allowed: Vec<&Difference> = DIFFERENCES
        .iter()
        .filter(|d| d.case.is_empty() || d.case == name)
        .collect();
    let mut used = vec![false; allowed.len()];
    let mut lines = Vec::new();
    for (index, (want, have)) in real.iter().zip(simulated).enumerate() {
        if want.title != have.title {
            lines.push(format!("other requests from step {index} on"));
            break;
        }
        let mut found = Vec::new();
        diff(String::new(), &want.answer, &have.answer, &mut found);
        found.retain(|(pointer, _, _)| {
            let fits = |d: &&Difference| want.title.contains(d.step) && matches(d.pointer, pointer);
            match allowed.iter().position(fits) {
                Some(position) => {
                    used[position] = true;
                    false
                }
                None => true,
            }
        });
        if !found.is_empty() {
            lines.push(format!("step {index}: {}", want.title));
        }
        for (pointer, want, have) in found {
            lines.push(format!("  {pointer}\n    real {want}\n    sim  {have}"));
        }
    }
    if real.len() != simulated.len() {
        lines.push(format!(
            "{} steps, but {} in kubesim",
            real.len(),
            simulated.len()
        ));
    }
    for (difference, used) in allowed.iter().zip(used) {
        if !used && !difference.case.is_empty() {
            let (step, pointer, why) = (difference.step, difference.pointer, difference.why);
            lines.push(format!("no longer different: {step} {pointer} ({why})"));
        }
    }
    assert!(
        lines.is_empty(),
        "{name}: kubesim differs\n{}",
        lines.join("\n")
    );
}

/// Whether a pointer fits a pattern; a pattern also fits everything below it.
fn matches(pattern: &str, pointer: &str) -> bool {
    let mut segments = pointer.split('/');
    pattern.split('/').all(|want| {
        segments
            .next()
            .is_some_and(|have| want == "*" || want == have)
    })
}

/// The leaves that differ: pointer, real value, kubesim's value.
fn diff(pointer: String, real: &Value, sim: &Value, found: &mut Vec<(String, String, String)>) {
    match (real, sim) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let below = format!("{pointer}/{}", key.replace('/', "~1"));
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => diff(below, a, b, found),
                    (a, b) => found.push((below, shown(a), shown(b))),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                diff(format!("{pointer}/{index}"), a, b, found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push((pointer, shown(Some(a)), shown(Some(b)))),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "(absent)".to_owned(), Value::to_string)
}

#[expect(
    clippy::disallowed_methods,
    reason = "kubesim shows the ages of objects that carry real dates"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
