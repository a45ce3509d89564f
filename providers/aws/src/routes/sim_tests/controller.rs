//! Passes of the route controller.

use std::collections::BTreeMap;

use ccm_cloudsim::aws::RunInstance;

use super::{
    bench::{Bench, owned},
    world::{World, seconds},
};

/// The period of passes.
const PASS: u64 = 10;

fn range(at: usize) -> String {
    format!("10.64.{at}.0/24")
}

async fn world(machines: usize) -> World {
    World::new(Bench::new(machines).await)
}

fn join(world: &World, at: usize) {
    let machine = world.bench.machine(at).to_owned();
    world.join(&format!("n{at}"), &machine, &[&range(at)]);
}

fn count(calls: &[String], action: &str) -> usize {
    calls.iter().filter(|call| *call == action).count()
}

/// REQ-AWS-RT-11; CASE-RT-06
#[tokio::test(start_paused = true)]
async fn fifty_nodes_take_one_read_of_the_table_and_one_create_each() {
    let mut world = world(50).await;
    world
        .bench
        .sim
        .aws()
        .set_quotas(|q| q.routes_per_table = 60);
    for at in 0..50 {
        join(&world, at);
    }
    let mark = world.bench.sim.calls().mark();
    world.start().await;
    seconds(PASS / 2).await;
    let calls = world.bench.sim.calls().calls_since(mark);
    let calls: Vec<String> = calls.into_iter().map(|call| call.action).collect();
    assert_eq!(count(&calls, "DescribeRouteTables"), 1);
    assert_eq!(count(&calls, "CreateRoute"), 50);
    assert_eq!(count(&calls, "ModifyInstanceAttribute"), 50);
    let look_ups = count(&calls, "DescribeInstances");
    assert!(look_ups <= 12, "{look_ups}: the first five go alone");
    assert_eq!(world.bench.table().len(), 50);
    assert!((0..50).all(|at| world.network(&format!("n{at}")) == "False/RouteCreated"));
    let (_, calls) = world.bench.calls(seconds(3 * PASS)).await;
    assert_eq!(calls, ["DescribeRouteTables"; 3], "an idle pass");
    world.stop().await;
}

/// CASE-RT-01
#[tokio::test(start_paused = true)]
async fn black_holes_of_the_cluster_go_and_a_range_that_is_used_again_has_one_route() {
    let mut world = world(3).await;
    // Outside of the cluster's ranges: someone's appliance, which is gone.
    let subnet = world.bench.cluster.subnet_ids[0].clone();
    let wanted = RunInstance {
        subnet,
        ..RunInstance::default()
    };
    let appliance = world.bench.sim.aws().run_instance(wanted).unwrap();
    world.bench.put("10.80.0.0/16", &appliance);
    world.bench.sim.aws().terminate(&appliance).unwrap();
    let (a, b, c) = (range(3), range(9), range(3));
    let machines: Vec<String> = world.bench.cluster.instance_ids.clone();
    world.join("n3", &machines[0], &[&a]);
    world.start().await;
    seconds(PASS / 2).await;
    assert_eq!(world.bench.table()[&a], machines[0]);

    world.bench.sim.aws().terminate(&machines[0]).unwrap();
    world.leave("n3");
    world.join("n9", &machines[1], &[&b]);
    let mark = world.bench.sim.calls().mark();
    seconds(2 * PASS).await;
    let mut want = BTreeMap::from([
        ("10.80.0.0/16".to_owned(), appliance),
        (b, machines[1].clone()),
    ]);
    assert_eq!(world.bench.table(), want);
    world.join("n10", &machines[2], &[&c]);
    seconds(2 * PASS).await;
    want.insert(c, machines[2].clone());
    assert_eq!(world.bench.table(), want);
    let writes = world.bench.writes_since(mark);
    assert_eq!(count(&writes, "CreateRoute"), 2, "one for each new Node");
    assert_eq!(count(&writes, "DeleteRoute"), 1);
    world.stop().await;
}

/// CASE-RT-02
#[tokio::test(start_paused = true)]
async fn routes_of_others_stay_whatever_becomes_of_their_targets() {
    let mut world = world(2).await;
    let appliance = world
        .bench
        .sim
        .aws()
        .run_instance(RunInstance {
            subnet: world.bench.cluster.subnet_ids[0].clone(),
            tags: owned(),
            ..RunInstance::default()
        })
        .unwrap();
    world.bench.put("172.30.0.0/16", "pcx-0123");
    world.bench.put("10.80.0.0/16", &appliance);
    world.bench.put("10.20.0.5/32", world.bench.machine(1));
    // Inside of the cluster's ranges, to no machine of the cluster's.
    world.bench.put("10.64.200.0/24", "tgw-0123");
    world.bench.put("10.64.201.0/24", &appliance);
    let others = world.bench.table();
    join(&world, 0);
    world.start().await;
    seconds(2 * PASS).await;
    world
        .bench
        .sim
        .aws()
        .terminate(world.bench.machine(1))
        .unwrap();
    seconds(2 * PASS).await;
    let mut table = world.bench.table();
    assert_eq!(table.remove(&range(0)).unwrap(), world.bench.machine(0));
    assert_eq!(table, others);
    // The appliance goes: what is a black hole now, outside of the ranges, still stays.
    world.bench.sim.aws().terminate(&appliance).unwrap();
    seconds(2 * PASS).await;
    let mut table = world.bench.table();
    table.remove(&range(0));
    let mut left = others;
    left.remove("10.64.201.0/24");
    assert_eq!(table, left);
    world.stop().await;
}

/// CASE-RT-03
#[tokio::test(start_paused = true)]
async fn a_machine_with_two_interfaces_becomes_usable_and_is_left_alone_then() {
    let mut world = world(1).await;
    let machine = world.bench.machine(0).to_owned();
    world.bench.sim.aws().attach_eni(&machine, 1, &[]).unwrap();
    join(&world, 0);
    world.start().await;
    seconds(PASS / 2).await;
    assert_eq!(world.network("n0"), "False/RouteCreated");
    let (_, calls) = world.bench.calls(seconds(3 * PASS)).await;
    assert_eq!(calls, ["DescribeRouteTables"; 3]);
    world.stop().await;
}

/// CASE-RT-05
#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_with_another_range_leaves_the_old_one_free() {
    let mut world = world(2).await;
    let machines: Vec<String> = world.bench.cluster.instance_ids.clone();
    let (old, new) = (range(4), range(40));
    world.join("p-4", &machines[0], &[&old]);
    world.start().await;
    seconds(PASS / 2).await;
    world.leave("p-4");
    world.join("p-4", &machines[0], &[&new]);
    world.join("p-5", &machines[1], &[&old]);
    seconds(PASS).await;
    let want = [(old, machines[1].clone()), (new, machines[0].clone())];
    assert_eq!(world.bench.table(), want.into());
    world.stop().await;
}

/// CASE-RT-08
#[tokio::test(start_paused = true)]
async fn a_full_table_is_told_with_the_quota_and_the_place_that_becomes_free_is_taken() {
    let mut world = world(5).await;
    // Beside the local route and the one to the internet gateway there is room for three.
    world.bench.sim.aws().set_quotas(|q| q.routes_per_table = 5);
    for at in 0..5 {
        join(&world, at);
    }
    world.start().await;
    seconds(PASS / 2).await;
    let waiting: Vec<usize> = (0..5)
        .filter(|at| world.network(&format!("n{at}")) == "True/NoRouteCreated")
        .collect();
    assert_eq!(waiting.len(), 2);
    assert_eq!(world.bench.table().len(), 3);
    for at in &waiting {
        let events = world.events_about(&format!("n{at}"));
        assert_eq!(events[0].reason, "FailedToCreateRoute");
        let text = &events[0].message;
        assert!(text.contains("RouteLimitExceeded"), "{text}");
        assert!(text.contains("\"Routes per route table\""), "{text}");
    }
    let (_, calls) = world.bench.calls(seconds(PASS)).await;
    assert_eq!(count(&calls, "CreateRoute"), 2, "one a Node and pass");
    assert_eq!(count(&calls, "ModifyInstanceAttribute"), 0);
    assert_eq!(count(&calls, "DeleteRoute"), 0, "nobody makes room");
    let served = (0..5).find(|at| !waiting.contains(at)).unwrap();
    world.leave(&format!("n{served}"));
    world
        .bench
        .sim
        .aws()
        .terminate(world.bench.machine(served))
        .unwrap();
    seconds(2 * PASS).await;
    let left = waiting
        .iter()
        .filter(|at| world.network(&format!("n{at}")) == "True/NoRouteCreated");
    assert_eq!(left.count(), 1);
    world.stop().await;
}

/// Routes that the Go manager made are taken over as they are: no write, one read a pass.
#[tokio::test(start_paused = true)]
async fn routes_of_the_go_manager_are_adopted_without_a_write() {
    let mut world = world(3).await;
    for at in 0..3 {
        world.bench.put(&range(at), world.bench.machine(at));
        join(&world, at);
    }
    let before = world.bench.table();
    let mark = world.bench.sim.calls().mark();
    world.start().await;
    seconds(2 * PASS + PASS / 2).await;
    assert_eq!(world.bench.writes_since(mark), [""; 0]);
    let calls = world.bench.sim.calls().calls_since(mark);
    assert_eq!(calls.len(), 3, "{calls:?}");
    assert_eq!(world.bench.table(), before);
    assert_eq!(world.network("n2"), "False/RouteCreated");
    world.stop().await;
}
