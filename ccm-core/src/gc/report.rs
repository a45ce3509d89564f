//! What was found and what became of it.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cloud::Leftover;

/// What becomes of a leftover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// `--delete` would remove it.
    Removable,
    /// It is left, for this reason.
    Left(String),
    /// It was removed.
    Removed,
    /// It could not be removed.
    Failed(String),
}

impl Fate {
    const fn word(&self) -> &'static str {
        match self {
            Self::Removable => "removable",
            Self::Left(_) => "left",
            Self::Removed => "removed",
            Self::Failed(_) => "failed",
        }
    }

    fn why(&self) -> Option<&str> {
        match self {
            Self::Removable | Self::Removed => None,
            Self::Left(why) | Self::Failed(why) => Some(why),
        }
    }
}

/// One leftover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is.
    pub leftover: Leftover,
    /// How old it is; `None` when that is not known.
    pub age: Option<Duration>,
    /// What becomes of it.
    pub fate: Fate,
}

/// The outcome in one word: the command's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Nothing is left behind, or nothing any more.
    Nothing,
    /// Something is.
    Something,
    /// Something could not be removed.
    Failed,
}

/// Everything that was left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The leftovers.
    pub rows: Vec<Row>,
    /// Whether the cluster's Nodes are machines of the cloud: otherwise the owners are those of
    /// another cluster.
    pub at_home: bool,
}

impl Report {
    /// The outcome.
    pub fn verdict(&self) -> Verdict {
        if self
            .rows
            .iter()
            .any(|row| matches!(row.fate, Fate::Failed(_)))
        {
            return Verdict::Failed;
        }
        if self.rows.iter().all(|row| row.fate == Fate::Removed) {
            return Verdict::Nothing;
        }
        Verdict::Something
    }

    /// The report as one JSON document with a line break at its end.
    pub fn to_json(&self) -> String {
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        let document = json!({
            "verdict": self.verdict(),
            "ownersOfThisCluster": self.at_home,
            "leftovers": rows,
        });
        format!("{document:#}\n")
    }
}

fn row(row: &Row) -> Value {
    let Leftover {
        kind,
        id,
        name,
        made_for,
        created: _,
        reason,
        parts,
        kept: _,
    } = &row.leftover;
    json!({
        "kind": kind,
        "id": id,
        "name": name,
        "madeFor": made_for,
        "ageSeconds": row.age.map(|age| age.as_secs()),
        "reason": reason,
        "parts": parts,
        "fate": row.fate.word(),
        "why": row.fate.why(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::LeftoverKind;

    fn report(fates: &[Fate]) -> Report {
        let row = |fate: &Fate| Row {
            leftover: Leftover {
                kind: LeftoverKind::LoadBalancer,
                id: "arn-1".to_owned(),
                name: "a1".to_owned(),
                made_for: Some("shop/web".to_owned()),
                created: None,
                reason: "Service shop/web does not exist".to_owned(),
                parts: vec!["target group k8s-1".to_owned()],
                kept: None,
            },
            age: Some(Duration::from_secs(7_500)),
            fate: fate.clone(),
        };
        Report {
            rows: fates.iter().map(row).collect(),
            at_home: true,
        }
    }

    #[test]
    fn only_what_remains_counts() {
        let left = || Fate::Left("its age is not known".to_owned());
        let failed = || Fate::Failed("denied".to_owned());
        for (fates, verdict) in [
            (vec![], Verdict::Nothing),
            (vec![Fate::Removed, Fate::Removed], Verdict::Nothing),
            (vec![Fate::Removed, left()], Verdict::Something),
            (vec![Fate::Removable], Verdict::Something),
            (vec![failed(), left()], Verdict::Failed),
        ] {
            assert_eq!(report(&fates).verdict(), verdict, "{fates:?}");
        }
    }

    #[test]
    fn text_and_json_name_age_reason_and_fate() {
        let report = report(&[Fate::Removable]);
        assert_eq!(
            report.to_string(),
            "load balancer a1\n  id        arn-1\n  made for  shop/web\n  age       2h5m0s\n  \
             reason    Service shop/web does not exist\n  with it   target group k8s-1\n  \
             fate      --delete would remove it\n\n1 leftover: 1 to remove, 0 removed, 0 left.\n"
        );
        let document: Value = serde_json::from_str(&report.to_json()).unwrap();
        let row = &document["leftovers"][0];
        assert_eq!(row["kind"], "loadBalancer");
        assert_eq!(row["ageSeconds"], 7_500);
        assert_eq!(row["fate"], "removable");
    }
}
