//! The main job from nothing to the end, on virtual time: what it costs, and what a crash at any
//! point leaves.

#![expect(clippy::unwrap_used, reason = "this is how a test fails")]

use std::time::Duration;

use anyhow::Result;
use ccm_cloudsim::Fault;
use ccm_sim::World;
use serde_json::Value;

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Nothing of any load balancer is left in the cloud.
fn nothing_left(world: &World) -> Result<(), String> {
    let state = world.cloud.aws().snapshot();
    let rules: usize = state.security_groups.values().map(|g| g.rules.len()).sum();
    let left = (
        state.load_balancers.len(),
        state.target_groups.len(),
        state.listeners.len(),
        rules,
    );
    if left == (0, 0, 0, 0) {
        Ok(())
    } else {
        Err(format!(
            "load balancers, target groups, listeners, rules: {left:?}"
        ))
    }
}

/// The one load balancer is whole: active parts, all machines registered.
fn whole(world: &World, machines: usize) -> Result<(), String> {
    let state = world.cloud.aws().snapshot();
    if state.load_balancers.len() != 1 || state.listeners.len() != 1 {
        return Err(format!(
            "{} load balancers, {} listeners",
            state.load_balancers.len(),
            state.listeners.len()
        ));
    }
    let groups: Vec<_> = state.target_groups.values().collect();
    let [group] = groups.as_slice() else {
        return Err(format!("{} target groups", groups.len()));
    };
    if group.targets.len() != machines {
        return Err(format!("{} targets", group.targets.len()));
    }
    Ok(())
}

async fn cluster(seed: u64, machines: usize) -> Result<World> {
    let mut world = World::new(seed, machines)?;
    world.start_manager(&[]).await?;
    world.join_all()?;
    world.settled().await?;
    Ok(world)
}

/// REQ-SVC-43, REQ-AWS-NLB-29
#[tokio::test(start_paused = true)]
async fn a_restart_of_the_manager_writes_nothing() {
    let mut world = cluster(1, 5).await.unwrap();
    for n in 0..3 {
        world
            .create_service(&format!("web-{n}"), &[80, 443])
            .unwrap();
    }
    world.settled().await.unwrap();
    world.stop_manager().await.unwrap();
    let start = world.mark();
    world.start_manager(&[]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let costs = world.costs_since(&start);
    assert_eq!(costs.cloud_writes, 0, "{costs:?}");
    assert_eq!(costs.api_writes(), 0, "{costs:?}");
}

/// REQ-SVC-12, REQ-SVC-26, REQ-NODE-17: a resync of an unchanged Service takes no cloud call before
/// the verification period.
#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_no_write_and_no_load_balancer_call() {
    let mut world = cluster(2, 5).await.unwrap();
    world.create_service("web", &[80]).unwrap();
    world.settled().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let start = world.mark();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let costs = world.costs_since(&start);
    assert_eq!(costs.cloud_writes, 0, "{costs:?}");
    assert_eq!(costs.api_writes(), 0, "{costs:?}");
    // Only the periodic address pass asks, once a period for all Nodes.
    let others: Vec<_> = costs
        .cloud
        .keys()
        .filter(|a| *a != "DescribeInstances")
        .collect();
    assert!(others.is_empty(), "{costs:?}");
    assert!(costs.cloud_calls() <= 2, "{costs:?}");
    world.stop_manager().await.unwrap();
}

/// REQ-MET-02, REQ-AWS-MET-1
#[tokio::test(start_paused = true)]
async fn the_series_of_the_go_manager_are_there() {
    let mut world = cluster(6, 3).await.unwrap();
    world.create_service("web", &[80]).unwrap();
    world.settled().await.unwrap();
    let metrics = world.metrics().unwrap();
    for queue in ["Nodes", "service", "node"] {
        for series in [
            "workqueue_depth",
            "workqueue_adds_total",
            "workqueue_retries_total",
            "workqueue_queue_duration_seconds_count",
            "workqueue_work_duration_seconds_count",
            "workqueue_unfinished_work_seconds",
            "workqueue_longest_running_processor_seconds",
        ] {
            let line = format!("{series}{{name=\"{queue}\"}}");
            assert!(metrics.contains(&line), "{line} is not in:\n{metrics}");
        }
    }
    for line in [
        "node_controller_cloud_provider_taint_removal_delay_seconds_count 3",
        "node_controller_initial_node_sync_delay_seconds_count 3",
        "service_controller_loadbalancer_sync_total 0",
        "service_controller_nodesync_error_total 0",
        "service_controller_nodesync_latency_seconds_bucket{le=\"16384\"}",
        "service_controller_update_loadbalancer_host_latency_seconds_count",
        "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_bucket{le=\"0.001\"}",
        "cloudprovider_aws_api_request_duration_seconds_count{request=\"describe_instance\"}",
        "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"cloud-node\"} 1",
        "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"service\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }
    world.stop_manager().await.unwrap();
}

/// CASE-LIFE-10, REQ-AWS-INST-17: fifty unknown instances take at most two calls a round.
#[tokio::test(start_paused = true)]
async fn fifty_unknown_instances_are_described_by_two_calls() {
    let mut world = World::new(3, 50).unwrap();
    for id in &world.cluster.instance_ids {
        let machine = world.cloud.aws().instance(id).unwrap();
        world
            .apply(serde_json::json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": { "name": machine.private_dns_name },
                "spec": { "providerID": format!("aws:///{}/{id}", machine.zone) },
                "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] },
            }))
            .unwrap();
        world.cloud.aws().forget(id).unwrap();
    }
    let start = world.mark();
    world
        .start_manager(&[
            "--controllers=cloud-node-lifecycle",
            "--node-monitor-period=60s",
        ])
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let calls = world
        .costs_since(&start)
        .cloud
        .get("DescribeInstances")
        .copied();
    assert!(calls.is_some_and(|calls| calls <= 2), "{calls:?}");
    // The second proof is a read of each machine.
    world
        .until("all Nodes are deleted", || {
            let left = world.kube.list("nodes").len();
            if left == 0 {
                Ok(())
            } else {
                Err(format!("{left} Nodes"))
            }
        })
        .await
        .unwrap();
}

/// The actions of the cloud writes since then, in order, each with how many of its name came before.
fn writes_since(world: &World, mark: ccm_cloudsim::control::Mark) -> Vec<(String, usize)> {
    let mut seen: Vec<(String, usize)> = Vec::new();
    for call in world.cloud.calls().writes_since(mark) {
        let nth = seen.iter().filter(|(name, _)| *name == call.action).count() + 1;
        seen.push((call.action, nth));
    }
    seen
}

/// Runs `work`; at the nth call of the action the manager dies, its own further tries having met the
/// fault as well. Then the fault is over and a new manager starts.
async fn crash_at(
    world: &mut World,
    action: &str,
    nth: usize,
    fault: Fault,
    work: impl Fn(&World),
) {
    let (cloud, mark) = (world.cloud.clone(), world.cloud.calls().mark());
    cloud.faults().from_nth(action, nth as u64, fault).unwrap();
    work(world);
    world
        .until(&format!("{action} #{nth} is called"), || {
            let called = cloud.calls().counts_since(mark).get(action).copied();
            if called >= Some(nth) {
                Ok(())
            } else {
                Err(format!("{called:?}"))
            }
        })
        .await
        .unwrap();
    assert!(
        world.kube.get("services", "shop", "web").is_some(),
        "{action} #{nth}: the finalizer left before the cloud was clean"
    );
    world.crash_manager().await;
    cloud.faults().clear_all();
    world.start_manager(&[]).await.unwrap();
}

fn delete_service(world: &World) {
    world.kube.delete_direct("services", "shop", "web").unwrap();
}

async fn until_gone(world: &World, case: &str) {
    world
        .until(case, || match world.kube.get("services", "shop", "web") {
            None => nothing_left(world),
            Some(_) => Err("the Service is there".to_owned()),
        })
        .await
        .unwrap();
}

/// What may become of a call whose answer never arrives.
fn lost_calls() -> [Fault; 2] {
    [Fault::commit_then_close(), Fault::DropConnection]
}

/// CASE-LEAD-01, CASE-LB-03, REQ-AWS-DEL-4: the manager dies at each cloud write of a creation, the
/// cloud having carried the write out or not; its successor ends in the same state, and a deletion
/// leaves nothing.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_cloud_write_of_a_creation_heals() {
    let create = |world: &World| world.create_service("web", &[80]).unwrap();
    let undisturbed = cluster(4, 3).await.unwrap();
    let mark = undisturbed.cloud.calls().mark();
    create(&undisturbed);
    undisturbed.settled().await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let writes = writes_since(&undisturbed, mark);
    assert!(writes.len() >= 5, "{writes:?}");

    for (action, nth) in &writes {
        for fault in lost_calls() {
            let case = format!("{action} #{nth}, {fault:?}");
            let mut world = cluster(4, 3).await.unwrap();
            crash_at(&mut world, action, *nth, fault, create).await;
            world.settled().await.unwrap();
            world.until(&case, || whole(&world, 3)).await.unwrap();
            let service = world.kube.get("services", "shop", "web").unwrap();
            let finalizers = service["metadata"]["finalizers"].as_array();
            assert!(
                finalizers.is_some_and(|all| all.contains(&Value::from(FINALIZER))),
                "{case}: {service}"
            );
            delete_service(&world);
            until_gone(&world, &case).await;
        }
    }
}

/// REQ-AWS-DEL-4, REQ-AWS-DEL-13, CASE-LB-07: the same for each cloud write of a deletion.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_cloud_write_of_a_deletion_leaks_nothing() {
    let served = async || {
        let world = cluster(5, 3).await.unwrap();
        world.create_service("web", &[80]).unwrap();
        world.settled().await.unwrap();
        world
    };
    let undisturbed = served().await;
    let mark = undisturbed.cloud.calls().mark();
    delete_service(&undisturbed);
    until_gone(&undisturbed, "undisturbed").await;
    let writes = writes_since(&undisturbed, mark);
    assert!(writes.len() >= 3, "{writes:?}");

    for (action, nth) in &writes {
        for fault in lost_calls() {
            let case = format!("{action} #{nth}, {fault:?}");
            let mut world = served().await;
            crash_at(&mut world, action, *nth, fault, delete_service).await;
            until_gone(&world, &case).await;
        }
    }
}

/// The same seed gives the same requests and calls at the same virtual times, byte for byte.
#[test]
fn the_same_seed_gives_the_same_log() {
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut world = World::new(seed, 4).unwrap();
            let start = world.mark();
            world.start_manager(&[]).await.unwrap();
            world.join_all().unwrap();
            world.settled().await.unwrap();
            world.create_service("web", &[80, 443]).unwrap();
            world.settled().await.unwrap();
            world
                .cloud
                .aws()
                .terminate(&world.cluster.instance_ids[0].clone())
                .unwrap();
            tokio::time::sleep(Duration::from_secs(120)).await;
            world.kube.delete_direct("services", "shop", "web").unwrap();
            tokio::time::sleep(Duration::from_secs(120)).await;
            world.stop_manager().await.unwrap();
            world.log_since(&start)
        })
    };
    let first = run(7);
    assert!(first.lines().count() > 30, "{first}");
    for (n, (a, b)) in first.lines().zip(run(7).lines()).enumerate() {
        assert_eq!(a, b, "line {n}");
    }
    assert_eq!(first, run(7));
}
