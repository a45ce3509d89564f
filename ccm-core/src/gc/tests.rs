//! Leftovers of a cloud of a few answers.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    cloud::LeftoverKind,
    session::testing::{Answer, Fake, apply, cluster, inputs, node, service},
};

const HOUR: Duration = Duration::from_secs(3600);

fn fake() -> Fake {
    use Answer::{Denied, Kept, Later, Removed};
    Fake {
        lying_around: vec![
            ("back", Some(5), vec![Kept]),
            ("busy", Some(5), vec![Later, Later, Removed]),
            ("denied", Some(5), vec![Denied]),
            ("endless", Some(5), vec![]),
            ("old", Some(1), vec![Removed]),
            ("owned", Some(5), vec![]),
            ("unknown", None, vec![]),
            ("young", Some(0), vec![]),
        ],
        ..Fake::default()
    }
}

async fn run(fake: Fake, delete: bool) -> (Arc<Fake>, Result<Report, SessionError>) {
    let (sim, fake) = (cluster(), Arc::new(fake));
    apply(&sim, service("owned", None));
    apply(&sim, node("fine", "True"));
    let options = Options {
        delete,
        min_age: HOUR,
    };
    let mark = sim.mark();
    let report = gc(inputs(&sim, &fake, &[]), options).await;
    assert_eq!(sim.count_writes_since(&mark), 0);
    (fake, report)
}

fn fates(report: &Report) -> Vec<String> {
    report
        .rows
        .iter()
        .map(|row| format!("{} {:?}", row.leftover.name, row.fate))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn without_delete_nothing_is_removed() {
    let (fake, report) = run(fake(), false).await;
    let report = report.unwrap();
    assert!(fake.tries.lock().unwrap().is_empty());
    assert_eq!(report.verdict(), Verdict::Something);
    assert_eq!(
        fates(&report),
        [
            "back Removable",
            "busy Removable",
            "denied Removable",
            "endless Removable",
            "old Removable",
            "unknown Left(\"its age is not known\")",
            "young Left(\"it is younger than --min-age\")",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn with_delete_what_is_old_goes_and_tries_are_bounded() {
    let (fake, report) = run(fake(), true).await;
    let report = report.unwrap();
    assert_eq!(
        fates(&report),
        [
            "back Left(\"it has an owner by now\")",
            "busy Removed",
            "denied Failed(\"denied\")",
            "endless Failed(\"in use\")",
            "old Removed",
            "unknown Left(\"its age is not known\")",
            "young Left(\"it is younger than --min-age\")",
        ]
    );
    assert_eq!(report.verdict(), Verdict::Failed);
    let tries = fake.tries.lock().unwrap();
    assert_eq!((tries["busy"], tries["denied"]), (3, 1));
    assert_eq!(tries["endless"], REMOVE_TRIES as usize);
    assert!(
        report
            .rows
            .iter()
            .all(|row| row.leftover.kind == LeftoverKind::LoadBalancer)
    );
}

#[tokio::test(start_paused = true)]
async fn with_the_nodes_of_another_cluster_nothing_is_removed() {
    let abroad = || Fake {
        abroad: true,
        ..fake()
    };
    let (fake, answer) = run(abroad(), true).await;
    assert!(answer.unwrap_err().to_string().contains("same cluster"));
    assert!(fake.tries.lock().unwrap().is_empty());
    let (_, report) = run(abroad(), false).await;
    assert!(report.unwrap().to_string().contains("Careful"));
}

fn leftover(kept: Option<&str>) -> Leftover {
    Leftover {
        kind: LeftoverKind::LoadBalancer,
        id: "arn".to_owned(),
        name: "a1".to_owned(),
        made_for: None,
        created: None,
        reason: "no owner".to_owned(),
        parts: Vec::new(),
        kept: kept.map(str::to_owned),
    }
}

#[test]
fn only_what_is_old_enough_and_known_to_be_is_removed() {
    let hour = Duration::from_secs(3600);
    for (kept, age, why) in [
        (None, Some(hour), None),
        (None, Some(hour - Duration::from_secs(1)), Some("younger")),
        (None, None, Some("not known")),
        (Some("detached"), Some(hour), Some("detached")),
    ] {
        let judged = judge(&leftover(kept), age, hour);
        assert_eq!(judged.is_some(), why.is_some(), "{judged:?}");
        assert!(judged.unwrap_or_default().contains(why.unwrap_or_default()));
    }
}
