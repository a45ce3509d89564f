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
        // A crash point counts operations: other events, another operation.
        let kept = if plan.blow.is_some() {
            (0..plan.events.len()).collect()
        } else {
            shrink(plan, plant, violation.rule)?
        };
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
        let mut command = format!("cargo xtask sim --scenario {}", self.scenario);
        match self.plan.blow {
            Some((number, Blow::CrashBefore)) => command += &format!(" --crash before:{number}"),
            Some((number, _)) => command += &format!(" --crash after:{number}"),
            None => command += &format!(" --seed {}", self.plan.seed),
        }
        if self.kept.len() < self.plan.events.len() {
            let kept: Vec<String> = self.kept.iter().map(ToString::to_string).collect();
            command += &format!(" --keep {}", kept.join(","));
        }
        command
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
