//! A failed run as a person needs it: what was violated, the events that matter, the way to see it
//! again.

use std::fmt;

use anyhow::Result;

use crate::{
    fate::Blow,
    judge::Violation,
    run::{Plan, Report, run},
    shrink::{keep, shrink},
    world::Plant,
};

/// What stands for an empty list of events.
pub const NO_EVENTS: &str = "none";

/// A failed run.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The scenario; `random` for a random workload.
    pub scenario: String,
    /// The plan, as it was run.
    pub plan: Plan,
    /// The events that are enough, by index.
    pub kept: Vec<usize>,
    /// What was violated with these events only.
    pub violation: Violation,
    /// The record of the run with these events only.
    pub trace: String,
}

impl Failure {
    /// Shrinks a failed run.
    ///
    /// # Errors
    /// A world cannot be set up.
    pub fn of(scenario: &str, plan: &Plan, plant: &Plant, report: &Report) -> Result<Option<Self>> {
        let Some(violation) = &report.violation else {
            return Ok(None);
        };
        let kept = shrink(plan, plant, violation.rule)?;
        let small = run(&keep(plan, &kept), plant)?;
        Ok(Some(Self {
            scenario: scenario.to_owned(),
            plan: plan.clone(),
            kept,
            violation: small.violation.unwrap_or_else(|| violation.clone()),
            trace: small.trace,
        }))
    }

    /// The command that shows it again.
    pub fn command(&self) -> String {
        let mut command = command(&self.scenario, &self.plan);
        if self.kept.len() < self.plan.events.len() {
            let kept: Vec<String> = self.kept.iter().map(ToString::to_string).collect();
            let kept = match kept.as_slice() {
                [] => NO_EVENTS.to_owned(),
                some => some.join(","),
            };
            command += &format!(" --keep {kept}");
        }
        command
    }
}

/// The command that shows a run of the plan of a seed or a crash point.
pub fn command(scenario: &str, plan: &Plan) -> String {
    let command = format!("cargo xtask sim --scenario {scenario}");
    match plan.blow {
        Some((number, Blow::CrashBefore)) => format!("{command} --crash before:{number}"),
        Some((number, _)) => format!("{command} --crash after:{number}"),
        None => format!("{command} --seed {}", plan.seed),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.scenario, self.violation)?;
        match self.plan.blow {
            Some((number, blow)) => writeln!(f, "  {blow:?} at operation {number}")?,
            None => writeln!(f, "  seed {}", self.plan.seed)?,
        }
        let (few, all) = (self.kept.len(), self.plan.events.len());
        writeln!(f, "  {few} of {all} events are enough:")?;
        for timed in keep(&self.plan, &self.kept).events {
            writeln!(
                f,
                "    +{:<9} {:?}",
                format!("{:?}", timed.after),
                timed.event
            )?;
        }
        write!(f, "  to see it again: {}", self.command())
    }
}
