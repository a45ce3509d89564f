use proptest::prelude::*;

use super::*;
use crate::{
    cloud::NodeIpamPolicy,
    config::NodeIpamSettings,
    controllers::node_ipam::config::{Offer, Plan, check},
};

fn allocator(cluster: &str, services: &str, ipv4: i32) -> Allocator {
    let settings = NodeIpamSettings {
        allocate: true,
        cluster_cidr: cluster.to_owned(),
        service_cluster_ip_range: services.to_owned(),
        mask_size_ipv4: ipv4,
        ..NodeIpamSettings::default()
    };
    match check(NodeIpamPolicy::Kubernetes, Offer::None, &settings)
        .unwrap()
        .plan
    {
        Plan::Range(plan) => Allocator::new(plan),
        other => panic!("{other:?}"),
    }
}

fn node(name: &str, uid: &str, cidrs: &[&str]) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(uid.to_owned());
    node.spec.pod_cidrs = cidrs.iter().map(|&c| c.to_owned()).collect();
    node
}

fn deleting(mut node: Node) -> Node {
    node.metadata.deletion_timestamp =
        Some(serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).unwrap());
    node
}

const BY_FLAGS: NodeMasks = NodeMasks {
    ipv4: None,
    ipv6: None,
};

fn next(allocator: &mut Allocator, node: &Node) -> Step {
    allocator.next(node.name(), Some(node), BY_FLAGS)
}

fn write(texts: &[&str]) -> Step {
    Step::Write(texts.iter().map(|text| text.parse().unwrap()).collect())
}

fn used(allocator: &Allocator) -> Vec<u64> {
    allocator.families.iter().map(|f| f.set.used()).collect()
}

/// REQ-IPAM-01
#[test]
fn a_node_gets_one_block_a_family_in_the_order_of_the_cluster_cidrs() {
    let mut allocator = allocator("2001:db8::/56,10.64.0.0/14", "", 0);
    let node = node("n1", "u1", &[]);
    assert_eq!(
        next(&mut allocator, &node),
        write(&["2001:db8::/64", "10.64.0.0/24"])
    );
    assert_eq!(used(&allocator), [1, 1]);
}

/// REQ-IPAM-06
#[test]
fn an_exhausted_second_family_takes_nothing_of_the_first() {
    let mut allocator = allocator("10.64.0.0/14,2001:db8::/63", "", 0);
    for n in 0..2 {
        let name = format!("n{n}");
        assert!(matches!(
            next(&mut allocator, &node(&name, &name, &[])),
            Step::Write(_)
        ));
    }
    for _ in 0..5 {
        let full = Step::NoRoom {
            cluster: "2001:db8::/63".parse().unwrap(),
            prefix: 64,
            used: 2,
            capacity: 2,
        };
        assert_eq!(next(&mut allocator, &node("late", "late", &[])), full);
        assert_eq!(used(&allocator), [2, 2]);
    }
    assert!(allocator.wake(9).is_empty());
    allocator.gone(&node("n0", "n0", &[]));
    assert_eq!(allocator.wake(9), ["late"]);
    let late = node("late", "late", &[]);
    assert!(matches!(next(&mut allocator, &late), Step::Write(_)));
}

/// REQ-IPAM-08, REQ-IPAM-10
#[test]
fn an_unknown_outcome_keeps_the_block_until_the_node_was_read() {
    let mut allocator = allocator("10.64.0.0/22", "", 0);
    let n1 = node("n1", "u1", &[]);
    let first = write(&["10.64.0.0/24"]);
    assert_eq!(next(&mut allocator, &n1), first);
    allocator.unsure("n1", "u1");
    assert_eq!(next(&mut allocator, &n1), Step::Reread);
    assert_eq!(next(&mut allocator, &n1), Step::Reread, "reading may fail");
    let n2 = node("n2", "u2", &[]);
    assert_eq!(next(&mut allocator, &n2), write(&["10.64.1.0/24"]));
    // Not applied: the same block is sent again, so that a late first write does no harm.
    assert_eq!(allocator.learn("n1", "u1", Some(&n1)), Learnt::Unwritten);
    assert_eq!(next(&mut allocator, &n1), first);
    // Certainly refused: free, and the next try picks anew.
    allocator.refused("n1", "u1");
    assert_eq!(used(&allocator), [1]);
    assert_eq!(next(&mut allocator, &n1), write(&["10.64.2.0/24"]));
    // Applied after all.
    allocator.unsure("n1", "u1");
    let written = node("n1", "u1", &["10.64.2.0/24"]);
    assert_eq!(
        allocator.learn("n1", "u1", Some(&written)),
        Learnt::Assigned
    );
    assert_eq!(next(&mut allocator, &n1), Step::Done, "the cache is behind");
    assert_eq!(used(&allocator), [2]);
}

/// REQ-IPAM-07
#[test]
fn ranges_from_elsewhere_are_used_at_once_and_the_picked_ones_are_free() {
    let mut allocator = allocator("10.64.0.0/22", "", 0);
    let n1 = node("n1", "u1", &[]);
    assert_eq!(next(&mut allocator, &n1), write(&["10.64.0.0/24"]));
    let foreign = node("n1", "u1", &["10.64.3.0/24"]);
    assert_eq!(allocator.observe(&foreign), Ok(Seen::Displaced));
    assert_eq!(allocator.observe(&foreign), Ok(Seen::Ours));
    assert_eq!(used(&allocator), [1]);
    // The outcome of the overtaken write says nothing any more.
    allocator.refused("n1", "u1");
    allocator.unsure("n1", "u1");
    assert_eq!(next(&mut allocator, &n1), Step::Done);
    assert_eq!(used(&allocator), [1]);
    assert_eq!(
        allocator.observe(&node("n2", "u2", &["10.64.2.0/24"])),
        Ok(Seen::New)
    );
    assert_eq!(
        next(&mut allocator, &node("n3", "u3", &[])),
        write(&["10.64.1.0/24"])
    );
}

/// REQ-IPAM-07
#[test]
fn a_block_that_another_node_got_meanwhile_is_not_sent_again() {
    let mut allocator = allocator("10.64.0.0/22", "", 0);
    let n1 = node("n1", "u1", &[]);
    assert_eq!(next(&mut allocator, &n1), write(&["10.64.0.0/24"]));
    allocator.unsure("n1", "u1");
    allocator
        .observe(&node("n2", "u2", &["10.64.0.0/25"]))
        .unwrap();
    assert!(allocator.is_shared("n1") && allocator.is_shared("n2"));
    allocator.learn("n1", "u1", Some(&n1));
    assert_eq!(next(&mut allocator, &n1), write(&["10.64.1.0/24"]));
    assert_eq!(used(&allocator), [2], "the first block is the other Node's");
    assert!(!allocator.is_shared("n2"));
}

/// REQ-IPAM-09, REQ-IPAM-15
#[test]
fn a_node_under_deletion_gets_nothing_and_keeps_what_it_has_until_it_is_gone() {
    let mut allocator = allocator("10.64.0.0/24", "", 0);
    assert_eq!(
        next(&mut allocator, &deleting(node("n0", "u0", &[]))),
        Step::Done
    );
    assert_eq!(used(&allocator), [0]);
    let n1 = node("n1", "u1", &["10.64.0.0/24"]);
    allocator.observe(&n1).unwrap();
    let n1 = deleting(n1);
    allocator.observe(&n1).unwrap();
    assert_eq!(next(&mut allocator, &n1), Step::Done);
    assert_eq!(used(&allocator), [1]);
    allocator.gone(&n1);
    allocator.gone(&n1);
    assert_eq!(used(&allocator), [0]);
}

/// REQ-IPAM-09
#[test]
fn a_new_node_of_the_same_name_ends_the_old_one() {
    let mut allocator = allocator("10.64.0.0/22", "", 0);
    let old = node("n1", "u1", &["10.64.0.0/24"]);
    allocator.observe(&old).unwrap();
    let new = node("n1", "u2", &[]);
    assert_eq!(next(&mut allocator, &new), write(&["10.64.0.0/24"]));
    assert_eq!(used(&allocator), [1]);
    // Late news of the old one change nothing.
    allocator.gone(&old);
    allocator.refused("n1", "u1");
    assert_eq!(allocator.learn("n1", "u1", Some(&old)), Learnt::Gone);
    assert_eq!(used(&allocator), [1]);
    // The new one vanished while its write was under way.
    allocator.unsure("n1", "u2");
    assert_eq!(allocator.learn("n1", "u2", None), Learnt::Gone);
    assert_eq!(used(&allocator), [0]);
}

/// REQ-IPAM-03, REQ-IPAM-05
#[test]
fn a_range_that_two_hold_stays_used_until_both_are_gone() {
    let mut allocator = allocator("10.64.0.0/22", "10.64.3.0/25", 0);
    let holders = [
        node("a", "a", &["10.64.0.0/24"]),
        node("b", "b", &["10.64.0.0/24"]),
        node("c", "c", &["10.64.0.128/26"]),
        node("d", "d", &["10.64.0.0/23"]),
        node("e", "e", &["10.64.3.0/24"]),
    ];
    for holder in &holders {
        allocator.observe(holder).unwrap();
    }
    // 0 and 1 by the Nodes, 3 by the services too.
    for (gone, left) in [("a", 3), ("d", 2), ("b", 2), ("e", 2), ("c", 1)] {
        allocator.gone(&node(gone, gone, &[]));
        assert_eq!(used(&allocator), [left], "{gone}");
    }
}

/// REQ-IPAM-12
#[test]
fn ranges_that_do_not_fit_are_faults_and_what_fits_is_used_all_the_same() {
    let mut allocator = allocator("10.64.0.0/22,2001:db8::/56", "", 0);
    let fault = |allocator: &mut Allocator, cidrs: &[&str]| {
        let fault = allocator.observe(&node("n", "n", cidrs)).unwrap_err();
        fault.to_string()
    };
    assert!(fault(&mut allocator, &["10.64.0.0"]).contains("\"10.64.0.0\""));
    let three = ["10.64.0.0/24", "2001:db8::/64", "10.64.1.0/24"];
    assert!(fault(&mut allocator, &three).contains("3 pod ranges"));
    assert_eq!(used(&allocator), [0, 0]);
    assert_eq!(
        fault(&mut allocator, &["10.64.0.0/24", "2001:db9::/64"]),
        "cidr 2001:db9::/64 is out the range of cluster cidr 2001:db8::/56"
    );
    assert_eq!(used(&allocator), [1, 0]);
}

#[test]
fn a_longer_mask_of_a_machine_makes_the_blocks_smaller_for_all() {
    let mut allocator = allocator("10.64.0.0/22", "10.64.3.0/24", 24);
    let n1 = node("n1", "n1", &["10.64.0.0/24"]);
    allocator.observe(&n1).unwrap();
    let of = |ipv4| NodeMasks {
        ipv4: Some(ipv4),
        ipv6: None,
    };
    let step = allocator.next("n2", Some(&node("n2", "n2", &[])), of(26));
    assert_eq!(step, write(&["10.64.1.0/26"]));
    assert_eq!(used(&allocator), [4 + 1 + 4]);
    let step = allocator.next("n3", Some(&node("n3", "n3", &[])), of(24));
    assert_eq!(step, write(&["10.64.2.0/24"]));
    let step = allocator.next("n4", Some(&node("n4", "n4", &[])), of(21));
    assert!(matches!(step, Step::Unfit { prefix: 21, .. }));
    allocator.gone(&n1);
    assert_eq!(used(&allocator), [1 + 4 + 4]);
}

#[derive(Clone, Debug)]
enum Event {
    Next,
    Unsure,
    Refused,
    Written,
    Foreign(u8),
    Gone,
    ReadEmpty,
}

fn event() -> impl Strategy<Value = (usize, Event)> {
    let kind = prop_oneof![
        4 => Just(Event::Next),
        1 => Just(Event::Unsure),
        1 => Just(Event::Refused),
        2 => Just(Event::Written),
        1 => (0_u8..8).prop_map(Event::Foreign),
        2 => Just(Event::Gone),
        1 => Just(Event::ReadEmpty),
    ];
    (0_usize..6, kind)
}

proptest! {
    /// REQ-IPAM-05, REQ-IPAM-07, REQ-IPAM-08, REQ-IPAM-09
    #[test]
    fn blocks_in_use_are_exactly_those_that_nodes_have_or_may_have(
        events in prop::collection::vec(event(), 1..200)
    ) {
        let mut allocator = allocator("10.64.0.0/21", "10.64.7.0/24", 24);
        // What the API server has, and what may be written there any time.
        let mut generations = [0_u32; 6];
        let mut written: Vec<Option<IpNet>> = vec![None; 6];
        let mut sent: Vec<Option<IpNet>> = vec![None; 6];
        let (mut occupied, mut released) = (0, 0);
        for (at, event) in events {
            let name = format!("n{at}");
            let uid = format!("{name}-{}", generations[at]);
            let texts: Vec<String> = written[at].iter().map(ToString::to_string).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let now = node(&name, &uid, &texts);
            match event {
                Event::Next => if let Step::Write(ranges) = next(&mut allocator, &now) {
                    let range = ranges[0];
                    let taken = written.iter().chain(&sent).enumerate();
                    for (other, held) in taken {
                        let is_same = held.is_some_and(|held| held == range);
                        prop_assert!(other % 6 == at || !is_same, "handed out twice");
                    }
                    sent[at] = Some(range);
                },
                Event::Unsure => allocator.unsure(&name, &uid),
                Event::Refused => {
                    allocator.refused(&name, &uid);
                    sent[at] = None;
                }
                Event::Written => if let (Some(range), None) = (sent[at], written[at]) {
                    written[at] = Some(range);
                    sent[at] = None;
                    allocator.observe(&node(&name, &uid, &[&range.to_string()])).unwrap();
                },
                // A foreign allocator that looks at the Nodes, but not at what we are about to do.
                Event::Foreign(block) => {
                    let range: IpNet = format!("10.64.{block}.0/24").parse().unwrap();
                    if written[at].is_none() && !written.contains(&Some(range)) {
                        written[at] = Some(range);
                        sent[at] = None;
                        allocator.observe(&node(&name, &uid, &[&range.to_string()])).unwrap();
                    }
                }
                Event::Gone => {
                    allocator.gone(&now);
                    generations[at] += 1;
                    (written[at], sent[at]) = (None, None);
                }
                Event::ReadEmpty => if written[at].is_none() {
                    allocator.learn(&name, &uid, Some(&now));
                },
            }
            let mut held: BTreeSet<IpNet> = written.iter().chain(&sent).flatten().copied().collect();
            held.insert("10.64.7.0/24".parse().unwrap());
            prop_assert_eq!(used(&allocator)[0], held.len() as u64);
            for tally in allocator.take_tallies() {
                occupied += tally.occupied;
                released += tally.released;
                prop_assert_eq!(occupied - released, tally.used);
            }
            let claims: u32 = allocator.claims.values().sum();
            prop_assert_eq!(claims as usize, allocator.holders.len());
        }
    }
}
