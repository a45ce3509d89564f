use super::*;
use crate::{
    api::Interface,
    instances::fake::{id, instance, interface},
};

fn node(name: &str, provider_id: Option<&str>, ranges: &[&str]) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.spec.provider_id = provider_id.map(|id| format!("aws:///us-west-2a/{id}"));
    node.spec.pod_cidrs = ranges.iter().map(|range| (*range).to_owned()).collect();
    Arc::new(node)
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn to(target: &str, blackhole: bool) -> TableRoute {
    let target = if target.starts_with("i-") {
        Target::Machine {
            instance: Some(id(target)),
            interface: Some("eni-1".to_owned()),
        }
    } else if target.starts_with("eni-") {
        Target::Machine {
            instance: None,
            interface: Some(target.to_owned()),
        }
    } else {
        Target::Other(target.to_owned())
    };
    TableRoute { target, blackhole }
}

fn table(routes: &[(&str, &str, bool)]) -> Table {
    let routes = routes
        .iter()
        .map(|(dest, target, blackhole)| (net(dest), to(target, *blackhole)));
    Table {
        id: "rtb-1".to_owned(),
        routes: routes.collect(),
        ..Table::default()
    }
}

fn show(listed: &Listed) -> Vec<String> {
    let text = |r: &Route| {
        let hole = if r.blackhole { " blackhole" } else { "" };
        format!("{} {} {}{hole}", r.name, r.destination_cidr, r.target_node)
    };
    listed.routes.iter().map(text).collect()
}

/// REQ-AWS-RT-4, REQ-AWS-RT-5
#[test]
fn routes_to_nodes_and_black_holes_are_listed_and_nothing_else() {
    let table = table(&[
        ("10.20.0.0/16", "local", false),
        ("0.0.0.0/0", "igw-1", false),
        ("10.0.1.0/24", "i-1", false),
        ("10.0.2.0/24", "i-gone", true),
        ("10.0.3.0/24", "i-nat", false),
        ("10.0.4.0/24", "eni-9", false),
        ("10.0.5.0/24", "pcx-1", true),
        ("fd00:10::/64", "i-1", false),
    ]);
    let nodes = [node("n1", Some("i-1"), &["10.0.1.0/24"])];
    let machines = Machines::new(&nodes, &BTreeMap::new());
    let listed = listed(&table, &machines, "kubernetes");
    assert_eq!(
        show(&listed),
        [
            "kubernetes-10.0.1.0/24 10.0.1.0/24 n1",
            "kubernetes-10.0.2.0/24 10.0.2.0/24  blackhole",
            "kubernetes-fd00:10::/64 fd00:10::/64 n1",
        ]
    );
    assert_eq!(listed.serving, BTreeSet::from([net("10.0.1.0/24")]));
    let ids = targets(&table);
    assert_eq!(ids, BTreeSet::from([&id("i-1"), &id("i-nat")]));
}

/// REQ-AWS-ID-13
#[test]
fn a_machine_with_no_or_two_nodes_has_no_node() {
    let nodes = [
        node("a", Some("i-1"), &["10.0.1.0/24"]),
        node("b", Some("i-1"), &["10.0.2.0/24"]),
        node("c", Some("i-2"), &[]),
        node("d", None, &[]),
        node("e", None, &[]),
    ];
    let named = BTreeMap::from([("d".to_owned(), id("i-4"))]);
    let machines = Machines::new(&nodes, &named);
    let name = |machine: &str| machines.node(&id(machine)).map(Node::name);
    assert_eq!(name("i-1"), Err(NoNode::Several));
    assert_eq!(name("i-2"), Ok("c"));
    assert_eq!(name("i-3"), Err(NoNode::None));
    assert_eq!(name("i-4"), Ok("d"), "by its name");
    // A route still has one: by its range.
    let served = |range: &str| machines.served(&id("i-1"), &net(range)).map(Node::name);
    assert_eq!(served("10.0.2.0/24"), Some("b"));
    assert_eq!(served("10.0.3.0/24"), None);
}

/// REQ-AWS-RT-12
#[test]
fn an_instance_with_several_interfaces_is_reached_by_its_primary_one() {
    let mut machine = instance("i-1");
    assert_eq!(next_hop(&machine), NextHop::Instance(id("i-1")));
    assert!(!forwards(&machine));
    let second = Interface {
        source_dest_check: false,
        ..interface(1, &["10.0.0.2"], &[])
    };
    machine.interfaces.insert(0, second);
    assert_eq!(next_hop(&machine), NextHop::Interface("eni-0".to_owned()));
    assert!(!forwards(&machine), "the second one does not count");
    machine.interfaces[1].source_dest_check = false;
    assert!(forwards(&machine));
    machine.interfaces.clear();
    assert_eq!(next_hop(&machine), NextHop::Instance(id("i-1")));
    assert!(!forwards(&machine));
}

/// REQ-AWS-RT-7, REQ-AWS-RT-9; CASE-RT-02
#[test]
fn what_is_in_the_way_decides_what_a_route_takes() {
    use Occupant::{Foreign, Removable, Unknown};
    let refuse = |text: &str| Step::Refuse(text.to_owned());
    for (have, serving, occupant, want) in [
        (None, false, Unknown, Step::Create),
        (Some(to("i-1", false)), true, Unknown, Step::Done),
        (Some(to("i-1", false)), false, Unknown, Step::Done),
        (Some(to("i-1", true)), false, Unknown, Step::Clear),
        (Some(to("i-9", true)), false, Unknown, Step::Clear),
        (Some(to("i-9", false)), false, Unknown, Step::Ask(id("i-9"))),
        (Some(to("i-9", false)), false, Removable, Step::Replace),
        (
            Some(to("i-9", false)),
            false,
            Foreign,
            refuse("i-9, which is not of this cluster"),
        ),
        (
            Some(to("i-9", false)),
            true,
            Removable,
            refuse("i-9, whose Node has the same range"),
        ),
        (
            Some(to("eni-9", false)),
            false,
            Unknown,
            refuse("interface \"eni-9\", which no instance has"),
        ),
        (
            Some(to("tgw-1", false)),
            false,
            Unknown,
            refuse("\"tgw-1\", which is not a machine"),
        ),
        (
            Some(to("pcx-1", true)),
            false,
            Unknown,
            refuse("\"pcx-1\", which is not a machine"),
        ),
    ] {
        let step = step(have.as_ref(), &id("i-1"), serving, occupant);
        assert_eq!(step, want, "{have:?} {serving} {occupant:?}");
    }
}
