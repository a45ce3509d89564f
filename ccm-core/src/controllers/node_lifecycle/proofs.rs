//! When the absence of a machine is proved (specification: controllers §3.4). Pure.
//!
//! Cloud reads are eventually consistent: one answer "not found" deletes nothing. Absence is
//! proved by answers in consecutive rounds, the later ones addressed to the very instance, and
//! everything that is not such an answer sets the count back to zero.

use std::{collections::BTreeMap, time::Duration};

use crate::{cloud::Read, controllers::node::is_uninitialised, kube::Node};

/// While a Node is younger and still uninitialised or without provider id, its machine may not be
/// visible to reads yet (REQ-LIFE-20).
const NEWCOMER_AGE: Duration = Duration::from_secs(2 * 60);

/// What an answer "absent" means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The machine may just not be visible yet: proves nothing.
    TooYoung,
    /// A proof; more are needed.
    Counted,
    /// Proved: the Node may go.
    Proved,
}

#[derive(Debug)]
struct Count {
    provider_id: Option<String>,
    proofs: u32,
    round: u64,
}

/// The proofs so far, by Node UID. Kept in memory only: a restart begins at zero.
#[derive(Debug)]
pub(super) struct Proofs {
    needed: u32,
    round: u64,
    counts: BTreeMap<String, Count>,
}

impl Proofs {
    /// `needed` proofs in consecutive rounds; 1 deletes on the first answer, new Nodes included.
    pub(super) fn new(needed: u32) -> Self {
        Self {
            needed: needed.max(1),
            round: 0,
            counts: BTreeMap::new(),
        }
    }

    /// How the cloud has to be asked about this Node in this round.
    pub(super) fn read(&self, node: &Node) -> Read {
        if self.count(node).is_some() {
            Read::Direct
        } else {
            Read::Shared
        }
    }

    /// The cloud said, in this round, that the Node's machine does not exist. A later proof than
    /// the first counts only if `read` was addressed to the instance.
    pub(super) fn absent(&mut self, node: &Node, read: Read, age: Duration) -> Verdict {
        if self.needed > 1 && is_newcomer(node, age) {
            self.counts.remove(node.uid());
            return Verdict::TooYoung;
        }
        let before = self.count(node).map_or(0, |count| count.proofs);
        let proofs = match read {
            Read::Direct => before.saturating_add(1),
            Read::Shared => 1,
        };
        self.counts.insert(
            node.uid().to_owned(),
            Count {
                provider_id: node.provider_id().map(str::to_owned),
                proofs,
                round: self.round,
            },
        );
        if proofs >= self.needed {
            Verdict::Proved
        } else {
            Verdict::Counted
        }
    }

    /// Ends the round. Whoever was not proved absent in it begins at zero: it exists, is Ready,
    /// was not asked about, or the answer failed.
    pub(super) fn end_round(&mut self) {
        let round = self.round;
        self.counts.retain(|_, count| count.round == round);
        self.round += 1;
    }

    fn count(&self, node: &Node) -> Option<&Count> {
        self.counts
            .get(node.uid())
            .filter(|count| count.provider_id.as_deref() == node.provider_id())
    }
}

fn is_newcomer(node: &Node, age: Duration) -> bool {
    age < NEWCOMER_AGE && (is_uninitialised(node) || node.provider_id().is_none())
}

/// Whether so many machines vanished at once that a fault is more likely (REQ-LIFE-15): more than
/// `max_share` of all Nodes. `None` never trips.
pub(super) fn is_mass_absence(absent: usize, all: usize, max_share: Option<f64>) -> bool {
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of Nodes are far below 2^52"
    )]
    max_share.is_some_and(|share| absent as f64 > share * all as f64)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Taint;

    use super::*;
    use crate::controllers::node::UNINITIALIZED_TAINT;

    const OLD: Duration = Duration::from_secs(3600);

    fn node(uid: &str, provider_id: Option<&str>) -> Node {
        let mut node = Node::default();
        node.metadata.uid = Some(uid.to_owned());
        node.spec.provider_id = provider_id.map(str::to_owned);
        node
    }

    fn machine() -> Node {
        node("u1", Some("sim://1"))
    }

    /// One round in which the Node is asked about as told and found absent.
    fn absent(proofs: &mut Proofs, node: &Node) -> (Read, Verdict) {
        let read = proofs.read(node);
        let verdict = proofs.absent(node, read, OLD);
        proofs.end_round();
        (read, verdict)
    }

    /// REQ-LIFE-16, REQ-LIFE-18
    #[test]
    fn two_consecutive_rounds_prove_absence_and_the_second_read_is_direct() {
        let mut proofs = Proofs::new(2);
        assert_eq!(
            absent(&mut proofs, &machine()),
            (Read::Shared, Verdict::Counted)
        );
        assert_eq!(
            absent(&mut proofs, &machine()),
            (Read::Direct, Verdict::Proved)
        );
    }

    /// REQ-LIFE-18
    #[test]
    fn batch_answers_never_complete_a_proof() {
        let mut proofs = Proofs::new(2);
        for _ in 0..5 {
            assert_eq!(
                proofs.absent(&machine(), Read::Shared, OLD),
                Verdict::Counted
            );
            proofs.end_round();
        }
    }

    /// REQ-LIFE-17: exists, an error and Ready=True all show as a round without a proof.
    #[test]
    fn a_round_without_a_proof_sets_the_count_back() {
        let mut proofs = Proofs::new(2);
        absent(&mut proofs, &machine());
        proofs.end_round();
        assert_eq!(
            absent(&mut proofs, &machine()),
            (Read::Shared, Verdict::Counted)
        );
        assert_eq!(absent(&mut proofs, &machine()).1, Verdict::Proved);
    }

    /// REQ-LIFE-17
    #[test]
    fn another_uid_or_provider_id_begins_at_zero() {
        for other in [
            node("u2", Some("sim://1")),
            node("u1", Some("sim://2")),
            node("u1", None),
        ] {
            let mut proofs = Proofs::new(2);
            absent(&mut proofs, &machine());
            assert_eq!(
                absent(&mut proofs, &other),
                (Read::Shared, Verdict::Counted)
            );
        }
    }

    /// REQ-LIFE-19
    #[test]
    fn after_the_proof_each_further_round_is_enough() {
        let mut proofs = Proofs::new(2);
        absent(&mut proofs, &machine());
        absent(&mut proofs, &machine());
        assert_eq!(
            absent(&mut proofs, &machine()),
            (Read::Direct, Verdict::Proved)
        );
    }

    /// REQ-LIFE-20, CASE-LIFE-06
    #[test]
    fn a_young_node_that_is_not_complete_is_never_proved_absent() {
        let minute = Duration::from_secs(60);
        let mut tainted = machine();
        tainted.spec.taints.push(Taint {
            key: UNINITIALIZED_TAINT.to_owned(),
            ..Taint::default()
        });
        for newcomer in [tainted.clone(), node("u1", None)] {
            let mut proofs = Proofs::new(2);
            for _ in 0..24 {
                assert_eq!(proofs.read(&newcomer), Read::Shared);
                assert_eq!(
                    proofs.absent(&newcomer, Read::Shared, minute),
                    Verdict::TooYoung
                );
                proofs.end_round();
            }
            assert_eq!(
                proofs.absent(&newcomer, Read::Shared, 2 * minute),
                Verdict::Counted
            );
        }
        // Complete: young or not makes no difference.
        let mut proofs = Proofs::new(2);
        assert_eq!(
            proofs.absent(&machine(), Read::Shared, minute),
            Verdict::Counted
        );
        // The rule is off with upstream's behaviour.
        let mut proofs = Proofs::new(1);
        assert_eq!(
            proofs.absent(&tainted, Read::Shared, minute),
            Verdict::Proved
        );
    }

    /// REQ-LIFE-21
    #[test]
    fn one_confirmation_deletes_on_the_first_answer_and_three_need_three() {
        assert_eq!(
            absent(&mut Proofs::new(1), &machine()),
            (Read::Shared, Verdict::Proved)
        );
        let mut three = Proofs::new(3);
        let verdicts: Vec<_> = (0..3).map(|_| absent(&mut three, &machine()).1).collect();
        assert_eq!(
            verdicts,
            [Verdict::Counted, Verdict::Counted, Verdict::Proved]
        );
    }

    /// REQ-LIFE-15
    #[test]
    fn the_breaker_trips_above_the_share_and_only_if_configured() {
        assert!(!is_mass_absence(100, 100, None));
        assert!(!is_mass_absence(30, 100, Some(0.3)));
        assert!(is_mass_absence(31, 100, Some(0.3)));
        assert!(!is_mass_absence(0, 0, Some(0.3)));
    }
}
