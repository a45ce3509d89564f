//! Which calls are made, and what they leave.

use std::{collections::BTreeMap, time::Duration};

use ccm_cloudsim::control::Fault;
use ccm_core::cloud::Class;

use super::bench::{Bench, owned};

const A: &str = "10.64.1.0/24";
const B: &str = "10.64.2.0/24";

fn table<const N: usize>(routes: [(&str, &str); N]) -> BTreeMap<String, String> {
    routes
        .map(|(to, target)| (to.to_owned(), target.to_owned()))
        .into()
}

/// REQ-AWS-RT-1, REQ-AWS-RT-4
#[tokio::test(start_paused = true)]
async fn the_table_with_the_cluster_tag_is_the_one() {
    let bench = Bench::new(2).await;
    let aws = bench.sim.aws();
    let vpc = &bench.cluster.vpc_id;
    let other = [("kubernetes.io/cluster/other".into(), "owned".into())];
    let other = aws.create_route_table(vpc, other.into()).unwrap();
    aws.add_route(&other, A, bench.machine(1)).unwrap();
    let bare = aws.create_route_table(vpc, [].into()).unwrap();
    bench.put(A, bench.machine(0));
    bench.put(B, bench.machine(1));
    let nodes = [bench.node(0, &[A]), bench.node(1, &[B])];
    aws.terminate(bench.machine(1)).unwrap();
    let want = [format!("{A} n0"), format!("{B} blackhole")];
    let (listed, calls) = bench.calls(bench.list(&nodes)).await;
    assert_eq!(listed, want);
    assert_eq!(calls, ["DescribeRouteTables"]);
    let names = bench.try_list(&nodes).await.unwrap();
    assert_eq!(names[0].name, format!("kubernetes-{A}"));
    bench.delete(B, true).await.unwrap();
    assert_eq!(bench.table(), table([(A, bench.machine(0))]));
    assert_eq!(bench.table_of(&other).len(), 1);
    assert_eq!(bench.table_of(&bare).len(), 0);
}

/// REQ-AWS-RT-2
#[tokio::test(start_paused = true)]
async fn no_table_and_two_tables_are_errors_that_say_what_to_do() {
    let bench = Bench::untagged(1, None).await;
    let error = bench.try_list(&[]).await.unwrap_err().to_string();
    let want = "unable to find route table for AWS cluster: kubernetes";
    assert!(error.starts_with(want), "{error}");
    assert!(error.contains("kubernetes.io/cluster/kite") && error.contains("RouteTableID"));
    let error = bench.create(&bench.node(0, &[A]), A).await.unwrap_err();
    assert!(error.to_string().starts_with(want), "{error}");

    let bench = Bench::new(1).await;
    let aws = bench.sim.aws();
    aws.create_route_table(&bench.cluster.vpc_id, owned())
        .unwrap();
    let error = bench.try_list(&[]).await.unwrap_err().to_string();
    let want = "found multiple matching AWS route tables for AWS cluster: kubernetes";
    assert!(error.starts_with(want), "{error}");
    assert!(error.contains(&bench.cluster.route_table_id), "{error}");
}

/// REQ-AWS-RT-3
#[tokio::test(start_paused = true)]
async fn a_table_that_is_named_needs_no_tag() {
    let mut bench = Bench::untagged(1, None).await;
    let aws = bench.sim.aws();
    let named = aws
        .create_route_table(&bench.cluster.vpc_id, [].into())
        .unwrap();
    bench.table_id = Some(named.clone());
    bench.restart().await;
    let node = bench.node(0, &[A]);
    bench.create(&node, A).await.unwrap();
    assert_eq!(bench.table_of(&named), table([(A, bench.machine(0))]));
    assert_eq!(bench.list(&[node]).await, [format!("{A} n0")]);
    bench.table_id = Some("rtb-0123".to_owned());
    bench.restart().await;
    let error = bench.try_list(&[]).await.unwrap_err().to_string();
    assert!(error.contains("RouteTableID = rtb-0123"), "{error}");
}

/// REQ-AWS-RT-6, REQ-AWS-RT-8
#[tokio::test(start_paused = true)]
async fn a_machine_may_forward_before_it_gets_its_route() {
    let bench = Bench::new(1).await;
    let node = bench.node(0, &[A, B]);
    let (_, calls) = bench
        .calls(async {
            bench.list(&[]).await;
            bench.create(&node, A).await.unwrap();
        })
        .await;
    assert_eq!(
        calls,
        [
            "DescribeRouteTables",
            "DescribeInstances",
            "ModifyInstanceAttribute",
            "CreateRoute"
        ]
    );
    assert!(!bench.checks(0));
    let (_, calls) = bench.calls(bench.create(&node, B)).await;
    assert_eq!(calls, ["DescribeInstances", "CreateRoute"]);
    let machine = bench.machine(0);
    assert_eq!(bench.table(), table([(A, machine), (B, machine)]));
}

/// REQ-AWS-RT-7
#[tokio::test(start_paused = true)]
async fn a_black_hole_of_the_same_range_goes_first() {
    let bench = Bench::new(2).await;
    bench.put(A, bench.machine(0));
    bench.sim.aws().terminate(bench.machine(0)).unwrap();
    let node = bench.node(1, &[A]);
    bench.list(&[]).await;
    let mark = bench.sim.calls().mark();
    bench.create(&node, A).await.unwrap();
    assert_eq!(
        bench.writes_since(mark),
        ["ModifyInstanceAttribute", "DeleteRoute", "CreateRoute"]
    );
    assert_eq!(bench.table(), table([(A, bench.machine(1))]));
}

/// REQ-AWS-RT-9; CASE-RT-04
#[tokio::test(start_paused = true)]
async fn a_route_that_was_made_without_an_answer_is_found_and_not_made_again() {
    let bench = Bench::new(1).await;
    let node = bench.node(0, &[A]);
    bench.list(&[]).await;
    let faults = bench.sim.faults();
    faults
        .next("CreateRoute", 1, Fault::commit_then_close())
        .unwrap();
    // The SDK tries again by itself and hears that the route exists.
    let (made, calls) = bench.calls(bench.create(&node, A)).await;
    made.unwrap();
    let count = |action: &str| calls.iter().filter(|call| *call == action).count();
    assert_eq!(count("CreateRoute"), 2);
    assert_eq!(count("DescribeRouteTables"), 1, "to see whose it is");
    assert_eq!(bench.table(), table([(A, bench.machine(0))]));
}

/// REQ-AWS-RT-9; CASE-RT-04
#[tokio::test(start_paused = true)]
async fn a_former_machines_route_is_replaced_in_one_call_or_in_two() {
    for denied in [false, true] {
        let bench = Bench::new(3).await;
        if denied {
            let faults = bench.sim.faults();
            faults
                .from_nth("ReplaceRoute", 1, Fault::unauthorized_operation())
                .unwrap();
        }
        bench.list(&[]).await;
        for (at, range) in [(0, A), (1, B)] {
            // It came after the table was read.
            bench.put(range, bench.machine(2));
            let mark = bench.sim.calls().mark();
            bench
                .create(&bench.node(at, &[range]), range)
                .await
                .unwrap();
            let mut writes = bench.writes_since(mark);
            writes.retain(|call| call != "ModifyInstanceAttribute");
            let want: &[&str] = match (denied, at) {
                (false, _) => &["CreateRoute", "ReplaceRoute"],
                (true, 0) => &["CreateRoute", "ReplaceRoute", "DeleteRoute", "CreateRoute"],
                // It is known by now that the call is denied.
                (true, _) => &["CreateRoute", "DeleteRoute", "CreateRoute"],
            };
            assert_eq!(writes, want, "denied: {denied}");
        }
        let want = table([(A, bench.machine(0)), (B, bench.machine(1))]);
        assert_eq!(bench.table(), want);
    }
}

/// Somebody takes the route away while it is replaced: the table is looked at again.
#[tokio::test(start_paused = true)]
async fn a_route_that_vanishes_while_it_is_replaced_is_looked_for_again() {
    let bench = Bench::new(2).await;
    bench.list(&[]).await;
    bench.put(A, bench.machine(1));
    let gone = Fault::error(400, "InvalidParameterValue", "There is no route defined");
    bench.sim.faults().next("ReplaceRoute", 1, gone).unwrap();
    let mark = bench.sim.calls().mark();
    bench.create(&bench.node(0, &[A]), A).await.unwrap();
    let mut writes = bench.writes_since(mark);
    writes.retain(|call| call != "ModifyInstanceAttribute");
    assert_eq!(writes, ["CreateRoute", "ReplaceRoute", "ReplaceRoute"]);
    assert_eq!(bench.table(), table([(A, bench.machine(0))]));
}

/// CASE-RT-02
#[tokio::test(start_paused = true)]
async fn what_leads_elsewhere_is_neither_replaced_nor_removed() {
    let bench = Bench::new(2).await;
    let aws = bench.sim.aws();
    aws.remove_tags(bench.machine(1), &["kubernetes.io/cluster/kite"])
        .unwrap();
    bench.put(A, bench.machine(1));
    bench.put(B, "pcx-0123");
    let node = bench.node(0, &[A, B]);
    assert_eq!(bench.list(std::slice::from_ref(&node)).await, [""; 0]);
    let before = bench.table();
    let mark = bench.sim.calls().mark();
    for range in [A, B] {
        let error = bench.create(&node, range).await.unwrap_err();
        assert_eq!(error.class(), Class::Conflict);
        assert!(error.to_string().contains("left alone"), "{error}");
    }
    let error = bench.delete(B, false).await.unwrap_err();
    assert!(error.to_string().contains("pcx-0123"), "{error}");
    assert_eq!(bench.writes_since(mark), ["ModifyInstanceAttribute"]);
    assert_eq!(bench.table(), before);
}

/// A range that two Nodes have stays with the one that has its route.
#[tokio::test(start_paused = true)]
async fn a_route_that_serves_its_node_is_not_taken_by_another_one() {
    let bench = Bench::new(2).await;
    bench.put(A, bench.machine(0));
    let nodes = [bench.node(0, &[A]), bench.node(1, &[A])];
    bench.list(&nodes).await;
    let error = bench.create(&nodes[1], A).await.unwrap_err();
    assert!(
        error.to_string().contains("Node has the same range"),
        "{error}"
    );
    assert_eq!(bench.table(), table([(A, bench.machine(0))]));
}

/// REQ-AWS-RT-10
#[tokio::test(start_paused = true)]
async fn a_route_that_is_gone_counts_as_removed() {
    let bench = Bench::new(1).await;
    bench.put(A, bench.machine(0));
    bench.put(B, bench.machine(0));
    let nodes = [bench.node(0, &[])];
    bench.list(&nodes).await;
    let faults = bench.sim.faults();
    faults
        .next("DeleteRoute", 1, Fault::commit_then_close())
        .unwrap();
    bench.delete(A, false).await.unwrap();
    let (gone, calls) = bench.calls(bench.delete(A, false)).await;
    gone.unwrap();
    assert_eq!(calls, [""; 0], "known");
    assert_eq!(bench.table(), table([(B, bench.machine(0))]));
}

/// A black hole that came to life since it was listed is someone's route again.
#[tokio::test(start_paused = true)]
async fn a_black_hole_that_lives_again_is_not_removed() {
    let bench = Bench::new(1).await;
    bench.put(A, bench.machine(0));
    bench.sim.aws().stop(bench.machine(0)).unwrap();
    assert_eq!(bench.list(&[]).await, [format!("{A} blackhole")]);
    bench.sim.aws().start(bench.machine(0)).unwrap();
    tokio::time::advance(Duration::from_mins(2)).await;
    bench.delete(A, true).await.unwrap_err();
    assert_eq!(bench.table(), table([(A, bench.machine(0))]));
}

/// REQ-AWS-RT-12; CASE-RT-03
#[tokio::test(start_paused = true)]
async fn an_instance_with_two_interfaces_gets_a_route_to_the_primary_one() {
    let bench = Bench::new(1).await;
    let aws = bench.sim.aws();
    aws.attach_eni(bench.machine(0), 1, &[]).unwrap();
    let node = bench.node(0, &[A, B]);
    let mark = bench.sim.calls().mark();
    bench.create(&node, A).await.unwrap();
    let want = ["ModifyNetworkInterfaceAttribute", "CreateRoute"];
    assert_eq!(bench.writes_since(mark), want);
    let state = aws.snapshot();
    let target = &bench.table()[A];
    let attachment = state.interfaces[target].attachment.as_ref().unwrap();
    assert_eq!(attachment.device_index, 0);
    assert!(!state.interfaces[target].source_dest_check);
    let nodes = [node];
    assert_eq!(bench.list(&nodes).await, [format!("{A} n0")]);
    let (again, calls) = bench.calls(bench.create(&nodes[0], B)).await;
    again.unwrap();
    assert_eq!(calls, ["DescribeInstances", "CreateRoute"]);
}

/// CASE-RT-03
#[tokio::test(start_paused = true)]
async fn a_denied_call_about_an_interface_says_what_to_allow() {
    let bench = Bench::new(1).await;
    bench
        .sim
        .aws()
        .attach_eni(bench.machine(0), 1, &[])
        .unwrap();
    let faults = bench.sim.faults();
    faults
        .from_nth(
            "ModifyNetworkInterfaceAttribute",
            1,
            Fault::unauthorized_operation(),
        )
        .unwrap();
    let error = bench.create(&bench.node(0, &[A]), A).await.unwrap_err();
    assert_eq!(error.class(), Class::Denied);
    let text = error.to_string();
    assert!(
        text.starts_with("error configuring source-dest-check on instance i-"),
        "{text}"
    );
    assert!(
        text.contains("allow ec2:ModifyNetworkInterfaceAttribute"),
        "{text}"
    );
}

/// REQ-AWS-RT-13
#[tokio::test(start_paused = true)]
async fn a_range_of_ipv6_gets_a_route_of_ipv6() {
    let bench = Bench::new(1).await;
    let range = "fd00:10:0:1::/64";
    let node = bench.node(0, &[A, range]);
    for range in [A, range] {
        bench.create(&node, range).await.unwrap();
    }
    let calls = bench.sim.calls().calls_since(bench.sim.calls().start());
    let last = calls.iter().rfind(|call| call.action == "CreateRoute");
    let params = &last.unwrap().params;
    assert_eq!(params["DestinationIpv6CidrBlock"], range);
    assert!(!params.contains_key("DestinationCidrBlock"));
    let nodes = [node];
    let want = [format!("{A} n0"), format!("{range} n0")];
    assert_eq!(bench.list(&nodes).await, want);
    // Another spelling is the same range.
    bench.delete("fd00:0010:0:1::/64", false).await.unwrap();
    assert_eq!(bench.list(&nodes).await, [format!("{A} n0")]);
}

/// A Node without provider id is found by its name, as the machine's private DNS name.
#[tokio::test(start_paused = true)]
async fn a_node_without_provider_id_is_found_by_its_name() {
    let bench = Bench::new(2).await;
    let state = bench.sim.aws().snapshot();
    let mut node = (*bench.node(0, &[A])).clone();
    node.metadata.name = Some(state.instances[bench.machine(0)].private_dns_name.clone());
    node.spec.provider_id = None;
    let nodes = [node.into(), bench.node(1, &[B])];
    bench.create(&nodes[0], A).await.unwrap();
    let want = [format!("{A} {}", nodes[0].name())];
    let (listed, calls) = bench.calls(bench.list(&nodes)).await;
    assert_eq!(listed, want);
    assert_eq!(calls, ["DescribeRouteTables", "DescribeInstances"]);
    bench.delete(A, false).await.unwrap();
    bench.create(&nodes[1], B).await.unwrap();
    let (_, calls) = bench.calls(bench.list(&nodes)).await;
    assert_eq!(calls, ["DescribeRouteTables"], "every target is known");
    let mut ghost = (*bench.node(0, &[A])).clone();
    ghost.spec.provider_id = Some("aws:///us-west-2a/i-0dead".to_owned());
    let error = bench.create(&ghost, A).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    ghost.spec.provider_id = Some("aws:///us-west-2a/fargate-10.20.0.9".to_owned());
    let error = bench.create(&ghost, A).await.unwrap_err();
    assert!(error.to_string().contains("Fargate"), "{error}");
}
