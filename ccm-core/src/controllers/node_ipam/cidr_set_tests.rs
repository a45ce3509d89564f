use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn set(cluster: &str, prefix: u8) -> CidrSet {
    CidrSet::new(net(cluster), prefix).unwrap()
}

fn next(set: &mut CidrSet) -> Option<String> {
    let prefix = set.node_prefix();
    set.allocate(prefix).map(|a| a.block.to_string())
}

/// REQ-IPAM-01, REQ-IPAM-03
#[test]
fn the_first_free_block_is_handed_out_and_the_service_range_never_is() {
    assert_eq!(
        next(&mut set("127.123.234.0/24", 30)).unwrap(),
        "127.123.234.0/30"
    );
    let mut with_services = set("127.123.234.0/24", 30);
    with_services.occupy(net("127.123.234.0/26")).unwrap();
    assert_eq!(next(&mut with_services).unwrap(), "127.123.234.64/30");
    for used in ["64", "68", "72", "80"] {
        let used = format!("127.123.234.{used}/30");
        with_services.occupy(net(&used)).unwrap();
    }
    assert_eq!(next(&mut with_services).unwrap(), "127.123.234.76/30");
    assert_eq!(next(&mut with_services).unwrap(), "127.123.234.84/30");
}

/// REQ-IPAM-05
#[test]
fn occupying_twice_counts_once() {
    let mut set = set("10.10.0.0/22", 24);
    for _ in 0..2 {
        set.occupy(net("10.10.0.0/24")).unwrap();
        set.occupy(net("10.10.2.0/24")).unwrap();
    }
    assert_eq!(set.used(), 2);
    assert_eq!(next(&mut set).unwrap(), "10.10.1.0/24");
    assert_eq!(next(&mut set).unwrap(), "10.10.3.0/24");
    assert_eq!(next(&mut set), None);
    assert_eq!(set.release(net("10.10.2.0/24")), Ok(1));
    assert_eq!(set.release(net("10.10.2.0/24")), Ok(0));
    assert_eq!(set.used(), 3);
    assert_eq!(next(&mut set).unwrap(), "10.10.2.0/24");
}

/// REQ-IPAM-04
#[test]
fn a_freed_block_is_not_reused_before_the_cursor_has_come_round() {
    let mut set = set("10.0.0.0/22", 24);
    assert_eq!(next(&mut set).unwrap(), "10.0.0.0/24");
    set.release(net("10.0.0.0/24")).unwrap();
    let rest: Vec<String> = (0..4).map(|_| next(&mut set).unwrap()).collect();
    assert_eq!(
        rest,
        ["10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "10.0.0.0/24"]
    );
}

#[test]
fn ipv6_blocks_are_numbered_as_upstream() {
    for (cluster, prefix, index, want) in [
        (
            "2001:db8:1234:ff00::/56",
            72,
            15,
            "2001:db8:1234:ff00:f00::/72",
        ),
        ("2001:db8:85a3::/50", 63, 6425, "2001:db8:85a3:3232::/63"),
        ("2001:db8::/48", 64, 65_535, "2001:db8:0:ffff::/64"),
        ("::/0", 16, 1, "1::/16"),
    ] {
        let mut set = set(cluster, prefix);
        assert_eq!(set.network(index, prefix).to_string(), want);
        assert_eq!(set.blocks(net(want)).unwrap(), index..=index);
        set.cursor = index;
        assert_eq!(next(&mut set).unwrap(), want);
    }
}

/// REQ-IPAM-11
#[test]
fn ipv6_has_a_limit_of_two_to_the_sixteen_blocks_and_ipv4_has_none() {
    let of = |cluster, prefix| CidrSet::new(net(cluster), prefix).err();
    assert_eq!(of("2001:db8::/47", 64), Some(SetError::TooBig));
    assert_eq!(of("2001:db8::/48", 64), None);
    assert_eq!(of("10.0.0.0/8", 32), None);
    assert_eq!(of("10.0.0.0/16", 15), Some(SetError::Prefix));
    assert_eq!(of("10.0.0.0/16", 33), Some(SetError::Prefix));
    assert_eq!(set("10.0.0.0/16", 16).capacity(), 1);
}

#[test]
fn wide_ranges_cover_all_and_narrow_ones_cover_their_block() {
    let mut set = set("10.64.0.0/22", 24);
    assert_eq!(set.occupy(net("10.64.1.128/25")), Ok(1));
    assert_eq!(set.occupy(net("10.64.1.5/32")), Ok(0));
    assert_eq!(set.occupy(net("10.64.2.0/23")), Ok(2));
    assert_eq!(set.occupy(net("10.0.0.0/8")), Ok(1));
    assert_eq!((set.used(), set.capacity()), (4, 4));
    assert_eq!(set.release(net("0.0.0.0/0")), Ok(4));
    for outside in ["10.65.0.0/24", "2001:db8::/64"] {
        let error = set.occupy(net(outside)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cidr {outside} is out the range of cluster cidr 10.64.0.0/22")
        );
        assert_eq!(set.release(net(outside)), Err(error));
    }
    assert_eq!(set.used(), 0);
}

#[test]
fn a_shorter_prefix_takes_an_aligned_run_of_blocks() {
    let mut set = set("10.0.0.0/22", 26);
    assert_eq!(next(&mut set).unwrap(), "10.0.0.0/26");
    assert_eq!(set.allocate(24).unwrap().block.to_string(), "10.0.1.0/24");
    assert_eq!(next(&mut set).unwrap(), "10.0.2.0/26");
    assert_eq!(set.used(), 6);
    assert_eq!(set.allocate(23), None, "no aligned run is free");
    assert_eq!(set.allocate(21), None, "wider than the cluster");
    assert_eq!(set.allocate(27), None, "narrower than a block");
    assert_eq!(set.used(), 6);
}

#[derive(Clone, Debug)]
enum Op {
    Allocate(u8),
    Occupy(u32, u8),
    Release(u32, u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (22_u8..=28).prop_map(Op::Allocate),
        2 => (0_u32..2048, 18_u8..=32).prop_map(|(at, prefix)| Op::Occupy(at, prefix)),
        2 => (0_u32..2048, 18_u8..=32).prop_map(|(at, prefix)| Op::Release(at, prefix)),
    ]
}

/// The blocks of a range by brute force.
fn touched(set: &CidrSet, range: IpNet) -> BTreeSet<u64> {
    (0..set.capacity())
        .filter(|index| {
            let block = set.network(*index, set.node_prefix());
            block.contains(&range) || range.contains(&block)
        })
        .collect()
}

proptest! {
    /// REQ-IPAM-05
    #[test]
    fn no_used_block_is_handed_out_and_the_counter_is_the_number_of_bits(
        ops in prop::collection::vec(op(), 1..120)
    ) {
        // 10.0.0.0/22 in blocks of /28: 64 blocks and one whole word; /29 would be two.
        for prefix in [28_u8, 29] {
            let mut set = CidrSet::new(net("10.0.0.0/22"), prefix).unwrap();
            let mut model: BTreeSet<u64> = BTreeSet::new();
            for op in &ops {
                match *op {
                    Op::Allocate(wanted) => match set.allocate(wanted) {
                        Some(Allocated { block, .. }) => {
                            let blocks = touched(&set, block);
                            prop_assert_eq!(block.prefix_len(), wanted);
                            prop_assert_eq!(blocks.len(), 1 << (prefix - wanted));
                            prop_assert!(blocks.is_disjoint(&model));
                            model.extend(blocks);
                        }
                        None => {
                            let run = 1_u64 << (prefix - wanted);
                            let mut runs = (0..set.capacity()).step_by(usize::try_from(run).unwrap());
                            let free = runs.any(|at| (at..at + run).all(|i| !model.contains(&i)));
                            prop_assert!(!free, "a free run was not found");
                        }
                    },
                    Op::Occupy(at, wide) | Op::Release(at, wide) => {
                        let address = (u32::from_be_bytes([10, 0, 0, 0]) + at).into();
                        let range = IpNet::new(IpAddr::V4(address), wide).unwrap().trunc();
                        let blocks = touched(&set, range);
                        let occupies = matches!(op, Op::Occupy(..));
                        let done = if occupies { set.occupy(range) } else { set.release(range) };
                        prop_assert_eq!(done.is_err(), blocks.is_empty());
                        let Ok(flipped) = done else { continue };
                        let before = model.len();
                        if occupies {
                            model.extend(blocks);
                        } else {
                            model.retain(|index| !blocks.contains(index));
                        }
                        prop_assert_eq!(flipped, model.len().abs_diff(before) as u64);
                        let again = if occupies { set.occupy(range) } else { set.release(range) };
                        prop_assert_eq!(again, Ok(0));
                    }
                }
                prop_assert_eq!(set.used(), model.len() as u64);
                let bits: u32 = set.words.iter().map(|word| word.count_ones()).sum();
                prop_assert_eq!(u64::from(bits), set.used());
            }
        }
    }
}
