//! What a pass does to the routes, by the clock.

use std::time::Duration;

use ccm_core::{
    cloud::Class,
    config::RouteSettings,
    controllers::route::{RouteStart, RouteStartError},
};

use crate::{
    cloud::{blackhole, route},
    world::{World, classic, millis, seconds},
};

/// REQ-ROUTE-01
#[tokio::test(start_paused = true)]
async fn a_missing_or_wrong_cluster_range_keeps_the_controller_from_starting() {
    for (value, part) in [
        ("", "--cluster-cidr is not set"),
        ("ten", "--cluster-cidr=\"ten\""),
        ("10.64.0.0/14,10.80.0.0/16", "one IPv4 and one IPv6"),
    ] {
        let world = World::new();
        let settings = RouteSettings {
            cluster_cidr: value.to_owned(),
            ..RouteSettings::default()
        };
        let error = world.controller(settings).err().unwrap();
        assert!(!matches!(error, RouteStartError::Metrics(_)));
        let text = error.to_string();
        assert!(text.contains(part), "{text}");
        assert!(text.contains("--configure-cloud-routes=false"), "{text}");
    }
}

/// REQ-ROUTE-03, REQ-ROUTE-09, REQ-ROUTE-11
#[tokio::test(start_paused = true)]
async fn each_range_of_each_node_gets_a_route_with_the_nodes_uid_as_hint() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24", "fd00:10:0:1::/64"]);
    world.join("b", &["10.64.2.0/24"]);
    let world = world.start(classic());
    seconds(1).await;
    assert_eq!(
        world.cloud.pairs(),
        ["a 10.64.1.0/24", "a fd00:10:0:1::/64", "b 10.64.2.0/24"]
    );
    for wanted in world.cloud.wanted() {
        let target = &wanted.route.target_node;
        assert_eq!(wanted.name_hint, world.uid(target));
        assert_eq!(wanted.provider_id, Some(format!("sim://{target}")));
        assert_eq!(wanted.route.name, "");
        assert_eq!(wanted.route.target_node_addresses[0].address, "10.1.0.1");
    }
    assert_eq!(world.network("a"), "False/RouteCreated");
    assert_eq!(world.network("b"), "False/RouteCreated");
    assert_eq!(world.passes("changed", "periodic"), 1);
    // A new Node is served by the next pass, and only what is missing is made.
    world.join("c", &["10.64.3.0/24"]);
    seconds(10).await;
    assert_eq!(world.cloud.wanted().len(), 4);
    assert_eq!(world.network("c"), "False/RouteCreated");
}

/// REQ-ROUTE-12, REQ-ROUTE-18
#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_one_list_a_period_and_no_write() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    let world = world.start(classic());
    seconds(5).await;
    let mark = world.sim.mark();
    let calls = world.cloud.all_calls().len();
    seconds(600).await;
    assert_eq!(world.sim.count_writes_since(&mark), 0);
    assert_eq!(world.cloud.all_calls().len() - calls, 60);
    assert_eq!(world.cloud.calls("list").len(), 61);
    assert_eq!(world.passes("changed", "periodic"), 1);
    assert_eq!(world.passes("noop", "periodic"), 60);
    let report = world.report();
    assert_eq!(report.controller, "node-route-controller");
    assert_eq!(report.period_seconds, Some(10));
    assert_eq!((report.passes, report.last_error), (61, None));
}

/// REQ-ROUTE-13
#[tokio::test(start_paused = true)]
async fn the_period_counts_from_start_to_start() {
    let world = World::new();
    world.cloud.latency("list", Duration::from_secs(3));
    let world = world.start(classic());
    seconds(35).await;
    let starts = |from: usize| {
        let calls = world.cloud.calls("list");
        let first = calls[0].at;
        let starts = calls[from..].iter().map(|c| (c.at - first).as_secs());
        starts.collect::<Vec<_>>()
    };
    assert_eq!(starts(0), [0, 10, 20, 30]);
    // One that takes longer is followed by the next at once.
    world.cloud.latency("list", Duration::from_secs(25));
    seconds(60).await;
    assert_eq!(starts(4), [40, 65, 90]);
}

/// REQ-ROUTE-04
#[tokio::test(start_paused = true)]
async fn a_node_without_ranges_is_left_alone_until_a_route_names_it() {
    let world = World::new();
    world.join("a", &[]);
    let world = world.start(classic());
    seconds(15).await;
    assert_eq!((world.network("a"), world.patches("a")), ("-".into(), 0));
    assert_eq!(world.cloud.wanted(), []);
    world.cloud.put(route("a", "10.64.7.0/24"));
    seconds(10).await;
    assert_eq!(world.network("a"), "True/NoRouteCreated");
    assert_eq!(world.cloud.pairs(), [""; 0]);
}

/// REQ-ROUTE-05, REQ-ROUTE-06; CASE-RT-02
#[tokio::test(start_paused = true)]
async fn routes_of_others_are_never_touched() {
    let world = World::new();
    world.join("a", &["10.64.1.0/24"]);
    let foreign = [
        route("", "0.0.0.0/0"),
        route("", "172.30.0.0/16"),
        route("", "10.80.0.0/16"),
        route("a", "10.20.0.5/32"),
    ];
    for foreign in &foreign {
        world.cloud.put(foreign.clone());
    }
    world.cloud.put(route("stranger", "10.64.9.0/24"));
    let world = world.start(classic());
    seconds(25).await;
    let mut pairs = vec![
        " 0.0.0.0/0",
        " 10.80.0.0/16",
        " 172.30.0.0/16",
        "a 10.20.0.5/32",
        "a 10.64.1.0/24",
    ];
    pairs.sort_unstable();
    assert_eq!(world.cloud.pairs(), pairs);
    // The appliance is gone and its route leads nowhere: still not ours.
    world.cloud.change(|table| {
        let vpn = table
            .iter_mut()
            .find(|r| r.destination_cidr == "10.80.0.0/16");
        vpn.unwrap().blackhole = true;
    });
    seconds(25).await;
    assert_eq!(world.cloud.pairs(), pairs);
    let deleted: Vec<_> = world.cloud.calls("delete");
    assert_eq!(deleted.len(), 1);
    assert_eq!(deleted[0].cidrs, ["10.64.9.0/24"]);
}

/// CASE-RT-01; REQ-ROUTE-06
#[tokio::test(start_paused = true)]
async fn a_recycled_range_has_exactly_one_route_at_any_time() {
    let world = World::new();
    world.cloud.put(blackhole("10.99.0.0/24"));
    world.join("n3", &["10.64.3.0/24"]);
    let world = world.start(classic());
    seconds(5).await;
    world.cloud.change(|table| {
        for route in table.iter_mut().filter(|r| r.target_node == "n3") {
            route.blackhole = true;
            route.target_node.clear();
        }
    });
    world.cloud.latency("delete", Duration::from_secs(5));
    world.leave("n3");
    world.join("n9", &["10.64.9.0/24"]);
    world.join("n10", &["10.64.3.0/24"]);
    seconds(7).await;
    // The removal is on its way; the other Node did not wait for it.
    assert_eq!(world.cloud.calls("create").len(), 2);
    assert_eq!(world.cloud.calls("create")[1].cidrs, ["10.64.9.0/24"]);
    seconds(6).await;
    assert_eq!(
        world.cloud.pairs(),
        [" 10.99.0.0/24", "n10 10.64.3.0/24", "n9 10.64.9.0/24"]
    );
    let (removed, made) = (
        &world.cloud.calls("delete")[0],
        &world.cloud.calls("create")[2],
    );
    assert!(made.at - removed.at >= Duration::from_secs(5));
    assert_eq!(world.cloud.calls("create").len(), 3, "one create a Node");
    assert_eq!(world.network("n10"), "False/RouteCreated");
    assert_eq!(world.events.reasons(), [""; 0]);
}

/// CASE-RT-05
#[tokio::test(start_paused = true)]
async fn a_node_that_came_back_with_another_range_gives_the_old_one_free() {
    let world = World::new();
    world.join_at("p-4", &["10.64.4.0/24"], &["10.1.0.4"]);
    let world = world.start(classic());
    seconds(5).await;
    world.leave("p-4");
    world.join_at("p-4", &["10.64.40.0/24"], &["10.1.0.44"]);
    world.join("p-5", &["10.64.4.0/24"]);
    seconds(10).await;
    assert_eq!(
        world.cloud.pairs(),
        ["p-4 10.64.40.0/24", "p-5 10.64.4.0/24"]
    );
    let made = world.cloud.wanted();
    let new = made
        .iter()
        .find(|w| w.route.destination_cidr == "10.64.40.0/24");
    let new = new.unwrap();
    assert_eq!(new.route.target_node_addresses[0].address, "10.1.0.44");
    assert_eq!(new.name_hint, world.uid("p-4"));
    assert_eq!(world.network("p-4"), "False/RouteCreated");
    assert_eq!(world.events.reasons(), [""; 0]);
}

/// REQ-ROUTE-07
#[tokio::test(start_paused = true)]
async fn a_new_address_replaces_a_route_that_knows_addresses_and_no_other() {
    for knows in [true, false] {
        let world = World::new();
        if knows {
            world.cloud.knows_addresses();
        }
        world.cloud.latency("delete", Duration::from_secs(2));
        world.join("a", &["10.64.1.0/24"]);
        let world = world.start(classic());
        seconds(5).await;
        world.move_to("a", "10.1.0.99");
        seconds(10).await;
        let (removed, made) = (world.cloud.calls("delete"), world.cloud.calls("create"));
        if knows {
            assert_eq!((removed.len(), made.len()), (1, 2));
            assert!(made[1].at - removed[0].at >= Duration::from_secs(2));
            let table = world.cloud.table();
            assert_eq!(table.len(), 1);
            assert_eq!(table[0].target_node_addresses[0].address, "10.1.0.99");
        } else {
            assert_eq!((removed.len(), made.len()), (0, 1));
        }
        assert_eq!(world.network("a"), "False/RouteCreated");
    }
}

/// REQ-ROUTE-08
#[tokio::test(start_paused = true)]
async fn at_most_200_calls_are_in_flight() {
    let world = World::new();
    world.cloud.latency("create", Duration::from_secs(1));
    world.cloud.latency("delete", Duration::from_secs(1));
    for n in 0..250 {
        world.join(&format!("n{n:03}"), &[&format!("10.64.{n}.0/24")]);
        world.cloud.put(route("gone", &format!("10.65.{n}.0/24")));
    }
    let world = world.start(classic());
    seconds(9).await;
    assert_eq!(world.cloud.table().len(), 250);
    assert_eq!(world.cloud.most_in_flight(), 200);
}

/// CASE-RT-06
#[tokio::test(start_paused = true)]
async fn a_hundred_nodes_at_once_are_few_writes_of_a_table() {
    let world = World::new();
    world.cloud.batch_size(1000);
    world.cloud.one_writer();
    world.cloud.latency("create", Duration::from_secs(2));
    world
        .cloud
        .fail_for("create", "10.64.50.0/24", Class::Denied, "locked");
    let world = world.start(classic());
    seconds(5).await;
    for n in 0..100 {
        world.join(&format!("n{n:03}"), &[&format!("10.64.{n}.0/24")]);
    }
    seconds(8).await;
    let good = |n: usize| world.network(&format!("n{n:03}")) == "False/RouteCreated";
    assert!((0..100).all(|n| good(n) == (n != 50)));
    assert_eq!(world.cloud.calls("create").len(), 1);
    world.cloud.mend();
    seconds(10).await;
    assert!((0..100).all(good));
    assert_eq!(world.cloud.calls("create").len(), 2);
    assert_eq!(world.cloud.calls("create")[1].cidrs, ["10.64.50.0/24"]);
    assert_eq!(world.cloud.refused_writers(), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_take_no_more_than_the_provider_allows() {
    let world = World::new();
    world.cloud.batch_size(30);
    for n in 0..100 {
        world.join(&format!("n{n:03}"), &[&format!("10.64.{n}.0/24")]);
        world.cloud.put(route("gone", &format!("10.65.{n}.0/24")));
    }
    let world = world.start(classic());
    seconds(5).await;
    for kind in ["create", "delete"] {
        let sizes: Vec<_> = world
            .cloud
            .calls(kind)
            .iter()
            .map(|c| c.cidrs.len())
            .collect();
        assert_eq!(sizes, [30, 30, 30, 10], "{kind}");
    }
    assert_eq!(world.cloud.table().len(), 100);
}

/// CASE-RT-07
#[tokio::test(start_paused = true)]
async fn switched_off_the_controller_is_not_to_be_started() {
    let off = RouteSettings {
        configure: false,
        ..classic()
    };
    assert_eq!(RouteStart::of(&off, true), RouteStart::SwitchedOff);
    assert_eq!(RouteStart::of(&classic(), false), RouteStart::NoRoutes);
    assert_eq!(RouteStart::of(&classic(), true), RouteStart::Run);
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_at_shutdown_is_finished_and_nothing_else_begins() {
    let world = World::new();
    world.cloud.latency("create", Duration::from_secs(4));
    for n in 0..20 {
        world.join(&format!("n{n:02}"), &[&format!("10.64.{n}.0/24")]);
    }
    let world = world.start(classic());
    millis(1500).await;
    let begun = world.cloud.calls("create").len();
    assert!((1..20).contains(&begun));
    let writes = world.sim.mark();
    world.stop().await;
    assert_eq!(world.cloud.table().len(), begun);
    assert_eq!(world.cloud.calls("create").len(), begun);
    let calls = world.cloud.all_calls().len();
    seconds(60).await;
    assert_eq!(world.cloud.all_calls().len(), calls);
    assert_eq!(world.sim.count_writes_since(&writes), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_list() {
    let world = World::new();
    world.cloud.latency("list", Duration::from_secs(300));
    let world = world.start(classic());
    seconds(1).await;
    let start = tokio::time::Instant::now();
    world.stop().await;
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_came_while_routes_were_listed_is_served_by_the_same_pass() {
    let world = World::new();
    world.cloud.latency("list", Duration::from_secs(3));
    let world = world.start(classic());
    seconds(1).await;
    world.cloud.put(route("a", "10.64.1.0/24"));
    world.join("a", &["10.64.1.0/24"]);
    seconds(4).await;
    assert_eq!(world.cloud.calls("delete"), []);
    assert_eq!(world.network("a"), "False/RouteCreated");
}
