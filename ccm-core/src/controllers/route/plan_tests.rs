use proptest::prelude::*;

use super::*;

fn cidrs() -> ClusterCidrs {
    ClusterCidrs::parse("10.64.0.0/14,fd00:10::/48").unwrap()
}

fn addresses(list: &[&str]) -> Vec<NodeAddress> {
    list.iter()
        .map(|address| NodeAddress {
            type_: "InternalIP".to_owned(),
            address: (*address).to_owned(),
        })
        .collect()
}

fn node(name: &str, ranges: &[&str]) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(format!("uid-{name}"));
    node.spec.pod_cidrs = ranges.iter().map(|r| (*r).to_owned()).collect();
    node.status.addresses = addresses(&["10.1.0.1"]);
    Arc::new(node)
}

fn route(target: &str, cidr: &str) -> Route {
    Route {
        name: format!("{target}-{cidr}"),
        target_node: target.to_owned(),
        destination_cidr: cidr.to_owned(),
        ..Route::default()
    }
}

fn blackhole(target: &str, cidr: &str) -> Route {
    Route {
        blackhole: true,
        ..route(target, cidr)
    }
}

fn capable(target: &str, cidr: &str, list: &[&str]) -> Route {
    Route {
        has_node_addresses: true,
        target_node_addresses: addresses(list),
        ..route(target, cidr)
    }
}

fn plan(nodes: &[Arc<Node>], routes: &[Route]) -> Plan {
    Plan::new(nodes, routes, &cidrs())
}

/// The creates as `(node, cidr)`.
fn creates(plan: &Plan) -> Vec<(usize, usize)> {
    plan.creates.iter().map(|c| (c.node, c.cidr)).collect()
}

/// REQ-ROUTE-03
#[test]
fn each_range_of_each_node_gets_one_route() {
    let nodes = [
        node("a", &["10.64.1.0/24", "fd00:10:0:1::/64"]),
        node("b", &["10.64.2.0/24"]),
    ];
    let none = plan(&nodes, &[]);
    assert_eq!(creates(&none), [(0, 0), (0, 1), (1, 0)]);
    assert_eq!(none.missing, [Some(2), Some(1)]);
    let some = plan(&nodes, &[route("a", "10.64.1.0/24")]);
    assert_eq!(creates(&some), [(0, 1), (1, 0)]);
    assert_eq!(some.missing, [Some(1), Some(1)]);
    let all = [
        route("b", "10.64.2.0/24"),
        // As the cloud may spell it.
        route("a", "fd00:10:0:1:0::/64"),
        route("a", "10.64.1.0/24"),
    ];
    let all = plan(&nodes, &all);
    assert_eq!((creates(&all), all.deletes), (vec![], vec![]));
    assert_eq!(all.missing, [Some(0), Some(0)]);
}

/// REQ-ROUTE-04
#[test]
fn a_node_without_ranges_gets_no_route_and_its_condition_only_if_a_route_names_it() {
    let nodes = [node("a", &[]), node("b", &[])];
    let plan = plan(&nodes, &[route("b", "10.64.2.0/24")]);
    assert_eq!(creates(&plan), []);
    assert_eq!(plan.missing, [None, Some(1)]);
    assert_eq!(plan.deletes, [0]);
}

/// REQ-ROUTE-05, REQ-ROUTE-06; CASE-RT-01, CASE-RT-02
#[test]
fn orphans_and_black_holes_go_inside_the_cluster_ranges_only() {
    let nodes = [node("a", &["10.64.1.0/24"])];
    let routes = [
        route("a", "10.64.1.0/24"),
        route("gone", "10.64.3.0/24"),
        route("", "10.64.4.0/24"),
        blackhole("", "10.64.5.0/24"),
        route("a", "10.64.6.0/24"),
        route("", "0.0.0.0/0"),
        route("", "172.30.0.0/16"),
        blackhole("vpn", "10.80.0.0/16"),
        route("a", "10.20.0.5/32"),
        route("", "no range"),
    ];
    let plan = plan(&nodes, &routes);
    assert_eq!(plan.deletes, [1, 2, 3, 4]);
    assert_eq!(creates(&plan), []);
}

/// REQ-ROUTE-07
#[test]
fn new_addresses_replace_only_a_route_that_knows_addresses() {
    let nodes = [node("a", &["10.64.1.0/24"])];
    for (routes, replaced) in [
        (vec![route("a", "10.64.1.0/24")], false),
        (vec![capable("a", "10.64.1.0/24", &["10.1.0.1"])], false),
        (vec![capable("a", "10.64.1.0/24", &["10.1.0.9"])], true),
        (vec![capable("a", "10.64.1.0/24", &[])], true),
        (
            vec![capable("a", "10.64.1.0/24", &["10.1.0.1", "10.1.0.2"])],
            true,
        ),
    ] {
        let plan = plan(&nodes, &routes);
        let expected: &[usize] = if replaced { &[0] } else { &[] };
        assert_eq!(plan.deletes, expected, "{routes:?}");
        assert_eq!(plan.creates.len(), expected.len(), "{routes:?}");
    }
}

#[test]
fn the_order_of_addresses_means_nothing() {
    let mut n = Node::clone(&node("a", &["10.64.1.0/24"]));
    n.status.addresses = addresses(&["10.1.0.2", "10.1.0.1"]);
    let routes = [capable("a", "10.64.1.0/24", &["10.1.0.1", "10.1.0.2"])];
    assert_eq!(plan(&[Arc::new(n)], &routes).deletes, [] as [usize; 0]);
}

/// CASE-RT-05
#[test]
fn ranges_that_moved_between_nodes_are_corrected() {
    let nodes = [node("a", &["10.64.2.0/24"]), node("b", &["10.64.1.0/24"])];
    let routes = [route("a", "10.64.1.0/24"), route("b", "10.64.2.0/24")];
    let plan = plan(&nodes, &routes);
    assert_eq!(plan.deletes, [0, 1]);
    assert_eq!(creates(&plan), [(0, 0), (1, 0)]);
}

#[test]
fn a_range_that_a_node_has_twice_is_one_route() {
    let nodes = [node("a", &["10.64.1.0/24", "10.64.1.0/24"])];
    assert_eq!(creates(&plan(&nodes, &[])), [(0, 0)]);
    assert_eq!(plan(&nodes, &[]).missing, [Some(1)]);
    let kept = plan(&nodes, &[route("a", "10.64.1.0/24")]);
    assert_eq!((kept.missing, kept.deletes), (vec![Some(0)], vec![]));
}

/// CASE-RT-01
#[test]
fn a_nodes_own_black_hole_is_made_anew_unless_it_is_not_ours() {
    let ours = plan(
        &[node("a", &["10.64.1.0/24"])],
        &[blackhole("a", "10.64.1.0/24")],
    );
    assert_eq!((creates(&ours), ours.deletes), (vec![(0, 0)], vec![0]));
    let foreign = plan(
        &[node("a", &["10.99.1.0/24"])],
        &[blackhole("a", "10.99.1.0/24")],
    );
    assert_eq!((creates(&foreign), foreign.deletes), (vec![], vec![]));
    let beside = plan(
        &[node("a", &["10.64.1.0/24"])],
        &[blackhole("a", "10.64.1.0/24"), route("a", "10.64.1.0/24")],
    );
    assert_eq!((creates(&beside), beside.deletes), (vec![], vec![0]));
}

#[test]
fn a_range_outside_the_cluster_ranges_gets_its_route_too() {
    let plan = plan(&[node("a", &["10.99.1.0/24"])], &[]);
    assert_eq!(creates(&plan), [(0, 0)]);
}

proptest! {
    /// REQ-ROUTE-03, REQ-ROUTE-05, REQ-ROUTE-06
    #[test]
    fn a_plan_that_was_carried_out_leaves_nothing_to_do(
        ranges in prop::collection::vec(prop::collection::vec(0_u8..8, 0..3), 0..5),
        listed in prop::collection::vec((0_u8..7, 0_u8..8, any::<bool>(), any::<bool>()), 0..12),
    ) {
        // Ranges 6 and 7 are outside the cluster's.
        let text = |n: u8| if n < 6 { format!("10.64.{n}.0/24") } else { format!("10.99.{n}.0/24") };
        let nodes: Vec<_> = ranges.iter().enumerate().map(|(at, own)| {
            let own: Vec<String> = own.iter().map(|n| text(*n)).collect();
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            node(&format!("n{at}"), &own)
        }).collect();
        let mut routes: Vec<_> = listed.iter().map(|(target, range, hole, knows)| Route {
            target_node: if *target == 6 { String::new() } else { format!("n{target}") },
            destination_cidr: text(*range),
            blackhole: *hole,
            // A stale route outside our ranges can never be removed: not part of this law.
            has_node_addresses: *knows && *range < 6,
            ..Route::default()
        }).collect();
        let first = Plan::new(&nodes, &routes, &cidrs());
        for at in &first.deletes {
            prop_assert!(cidrs().covers(&routes[*at].destination_cidr));
        }
        for at in first.deletes.iter().rev() {
            routes.remove(*at);
        }
        for create in &first.creates {
            let node = &nodes[create.node];
            routes.push(capable(node.name(), &node.spec.pod_cidrs[create.cidr], &["10.1.0.1"]));
        }
        let second = Plan::new(&nodes, &routes, &cidrs());
        prop_assert!(second.deletes.is_empty() && second.creates.is_empty(), "{second:?}");
    }
}
