//! From a failing plan to the few events that matter: events are dropped while the same rule still
//! is violated (delta debugging). The time of a dropped event is given to the one after it, so the
//! others happen when they did. A crash point stays at its number, whatever operation that is then.

use anyhow::Result;

use crate::{
    judge::Rule,
    run::{Plan, run},
    steps::Timed,
    world::Plant,
};

/// Runs of one shrinking; what is left then is small enough.
const MOST_RUNS: usize = 300;

/// The plan with only these of its events, by index.
pub fn keep(plan: &Plan, kept: &[usize]) -> Plan {
    let mut events: Vec<Timed> = Vec::new();
    let mut saved = std::time::Duration::ZERO;
    for (index, timed) in plan.events.iter().enumerate() {
        if kept.contains(&index) {
            events.push(Timed {
                after: timed.after + std::mem::take(&mut saved),
                event: timed.event.clone(),
            });
        } else {
            saved += timed.after;
        }
    }
    Plan {
        events,
        ..plan.clone()
    }
}

/// The indices of the events that are enough to violate the rule.
///
/// # Errors
/// A world cannot be set up.
pub fn shrink(plan: &Plan, plant: &Plant, rule: Rule) -> Result<Vec<usize>> {
    let mut kept: Vec<usize> = (0..plan.events.len()).collect();
    let mut runs = 0;
    let mut chunk = kept.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        let mut dropped = false;
        while start < kept.len() && runs < MOST_RUNS {
            let rest: Vec<usize> = kept
                .iter()
                .enumerate()
                .filter(|(place, _)| !(start..start + chunk).contains(place))
                .map(|(_, index)| *index)
                .collect();
            runs += 1;
            let violation = run(&keep(plan, &rest), plant)?.violation;
            if violation.is_some_and(|violation| violation.rule == rule) {
                kept = rest;
                dropped = true;
            } else {
                start += chunk;
            }
        }
        if runs >= MOST_RUNS || (chunk == 1 && !dropped) {
            return Ok(kept);
        }
        if !dropped || chunk > kept.len() {
            chunk = chunk.div_ceil(2).max(1);
        }
    }
}
