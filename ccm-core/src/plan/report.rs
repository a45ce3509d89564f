//! What a plan found.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cloud::{Class, CloudError, RecordedWrite};

/// Why an object could not be planned to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The class of the error, as in metrics.
    pub class: &'static str,
    /// The text that an event would carry.
    pub message: String,
    /// Whether it is not known what the manager would do: a read failed. Otherwise the manager
    /// would meet the same problem.
    pub unknown: bool,
}

impl From<&CloudError> for Problem {
    fn from(error: &CloudError) -> Self {
        Self {
            class: error.class().as_str(),
            message: error.to_string(),
            unknown: matches!(
                error.class(),
                Class::Transient | Class::Throttled { .. } | Class::Denied
            ),
        }
    }
}

/// What would be done about one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPlan {
    /// `namespace/name`, or the name alone.
    pub name: String,
    /// What the controller is about to do, in a few words; empty when that goes without saying.
    pub intent: &'static str,
    /// Changes in the cloud, in order.
    pub cloud: Vec<RecordedWrite>,
    /// Changes at the API server, in order.
    pub api: Vec<RecordedWrite>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Why it is not more.
    pub problem: Option<Problem>,
}

impl ObjectPlan {
    /// Nothing yet about the object of that name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Whether something would be changed, or cannot be.
    pub fn is_something(&self) -> bool {
        !self.cloud.is_empty() || !self.api.is_empty() || self.problem.is_some()
    }

    /// Whether there is anything to be said.
    pub fn is_worth_telling(&self) -> bool {
        self.is_something() || !self.notes.is_empty()
    }
}

/// A controller that would run and whose work is not planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotPlanned {
    /// Its name.
    pub controller: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// How many objects were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Services that have, or have to have, or had a load balancer.
    pub services: usize,
    /// Nodes.
    pub nodes: usize,
}

/// The outcome in one word: the command's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The manager would change nothing.
    Nothing,
    /// It would change something, or meet a problem.
    Something,
    /// Something could not be read: the plan is not complete.
    Incomplete,
}

/// Everything that would be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Services that there is something to be said about, by name.
    pub services: Vec<ObjectPlan>,
    /// Nodes that there is something to be said about, by name.
    pub nodes: BTreeMap<String, ObjectPlan>,
    /// Changes in the cloud that belong to no object, in order: routes.
    pub cloud: Vec<RecordedWrite>,
    /// Controllers that are left out.
    pub not_planned: Vec<NotPlanned>,
    /// How many objects were looked at.
    pub looked_at: Counts,
}

impl Report {
    /// The plan of a Node.
    pub(super) fn node(&mut self, name: &str) -> &mut ObjectPlan {
        self.nodes
            .entry(name.to_owned())
            .or_insert_with(|| ObjectPlan::new(name))
    }

    fn objects(&self) -> impl Iterator<Item = &ObjectPlan> {
        self.services.iter().chain(self.nodes.values())
    }

    /// How many changes there would be in the cloud.
    pub fn cloud_changes(&self) -> usize {
        self.cloud.len()
            + self
                .objects()
                .map(|object| object.cloud.len())
                .sum::<usize>()
    }

    /// How many changes there would be at the API server.
    pub fn api_changes(&self) -> usize {
        self.objects().map(|object| object.api.len()).sum()
    }

    /// How many objects have a problem.
    pub fn problems(&self) -> usize {
        self.objects()
            .filter(|object| object.problem.is_some())
            .count()
    }

    /// The outcome.
    pub fn verdict(&self) -> Verdict {
        let mut problems = self.objects().filter_map(|object| object.problem.as_ref());
        if problems.any(|problem| problem.unknown) {
            return Verdict::Incomplete;
        }
        if self.cloud.is_empty() && !self.objects().any(ObjectPlan::is_something) {
            return Verdict::Nothing;
        }
        Verdict::Something
    }

    /// The report as one JSON document with a line break at its end.
    pub fn to_json(&self) -> String {
        let nodes: Vec<&ObjectPlan> = self.nodes.values().collect();
        let document = serde_json::json!({
            "verdict": self.verdict(),
            "cloudChanges": self.cloud_changes(),
            "apiChanges": self.api_changes(),
            "problems": self.problems(),
            "lookedAt": self.looked_at,
            "services": self.services,
            "nodes": nodes,
            "cloud": self.cloud,
            "notPlanned": self.not_planned,
        });
        format!("{document:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_nothing_a_problem_is_something_and_a_failed_read_is_neither() {
        let mut report = Report::default();
        assert_eq!(report.verdict(), Verdict::Nothing);
        report.node("a").notes.push("odd".to_owned());
        assert_eq!(report.verdict(), Verdict::Nothing);
        report.node("a").problem = Some(Problem::from(&CloudError::invalid("bad annotation")));
        assert_eq!(report.verdict(), Verdict::Something);
        report.node("b").problem = Some(Problem::from(&CloudError::transient("reset")));
        assert_eq!(report.verdict(), Verdict::Incomplete);
        report.nodes.clear();
        report
            .cloud
            .push(RecordedWrite::new("CreateRoute", "10.0.0.0/24"));
        assert_eq!(report.verdict(), Verdict::Something);
    }

    #[test]
    fn the_json_document_names_every_change() {
        let mut report = Report::default();
        let write = RecordedWrite::new("patch nodes", "Node a").with("label x: none -> y");
        report.node("a").api.push(write);
        let document: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(document["verdict"], "something");
        assert_eq!(document["apiChanges"], 1);
        assert_eq!(document["nodes"][0]["name"], "a");
        assert_eq!(
            document["nodes"][0]["api"][0]["details"][0],
            "label x: none -> y"
        );
    }
}
