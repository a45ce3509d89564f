//! Effects that come long after their time-out.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use ccm_core::cloud::{CloudError, CloudResult};
use ccm_simulation::{
    cloud::{
        Craft,
        craft::{Action, Parts, Want, next},
        model::{Part, PartKind},
    },
    fate::{Aim, Blow},
    judge::Rule,
    steps::{Step, Trouble},
    trace::Kind,
};

use crate::{crafted, scenario, shows_only_with};

/// Makes a firewall under another name when it sees none after a time-out: as if what did not take
/// place by now never will.
#[derive(Default)]
struct TriesAnotherName {
    timed_out: AtomicBool,
    renamed: AtomicBool,
}

impl Craft for TriesAnotherName {
    fn change_failed(&self, action: &Action, error: CloudError) -> CloudResult<()> {
        if let Action::Create(_, _, spec) = action
            && spec.kind() == PartKind::Firewall
        {
            self.timed_out.store(true, Relaxed);
        }
        Err(error)
    }

    fn next(&self, want: &Want, have: &Parts) -> Vec<Action> {
        let mut have = have.clone();
        let wanted = want
            .specs
            .iter()
            .find(|spec| spec.kind() == PartKind::Firewall);
        if let (true, Some(spec)) = (self.renamed.load(Relaxed), wanted) {
            have.entry(PartKind::Firewall).or_insert_with(|| Part {
                name: want.name.clone() + "-2",
                owner: want.owner.clone(),
                spec: spec.clone(),
                ip: String::new(),
                ip6: String::new(),
            });
        }
        let mut actions = next(want, &have);
        if !self.timed_out.load(Relaxed) {
            return actions;
        }
        for action in &mut actions {
            if let Action::Create(name, _, spec) = action
                && spec.kind() == PartKind::Firewall
            {
                name.push_str("-2");
                self.renamed.store(true, Relaxed);
            }
        }
        actions
    }
}

#[test]
fn a_provider_that_takes_a_late_effect_for_none_is_found() {
    let strike = |blow| {
        let aim = Aim::Next {
            kind: Some(Kind::CloudWrite),
            part: "create-firewall".to_owned(),
            skip: 0,
        };
        Trouble::Strike(aim, blow)
    };
    shows_only_with(
        strike(Blow::Late(Duration::from_secs(20))),
        &[strike(Blow::Lost), strike(Blow::Broken)],
        || crafted(TriesAnotherName::default()),
        &scenario(
            "service-create",
            &[(0, Step::Join("n1"))],
            &[(0, Step::Create("s1", &[80]))],
        ),
        &[Rule::Twins],
    );
}
