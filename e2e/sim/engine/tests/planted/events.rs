//! Too many events.

use ccm_core::cloud::Note;
use ccm_simulation::{cloud::Craft, judge::Rule};

use crate::must_find;

/// Tells of every machine by itself what could be told once.
struct TellsEachPart;

impl Craft for TellsEachPart {
    fn notes(&self) -> Vec<Note> {
        let note = |part| Note {
            reason: "PartMade",
            message: format!("part {part} was made"),
        };
        (0..8).map(note).collect()
    }
}

#[test]
fn a_storm_of_events_is_found() {
    must_find(TellsEachPart, "service-create", &[Rule::Storm]);
}
