//! Joined calls, and calls that are not needed.

use ccm_cloudsim::control::{Call, Fault};

use super::world::{CHECKSUM, FLAGS, World, seconds};

fn batching(workers: &str) -> Vec<&str> {
    let more = ["--tagging-controller-enable-batching", workers];
    FLAGS.iter().copied().chain(more).collect()
}

fn resources(call: &Call) -> usize {
    let is_resource = |key: &&String| key.starts_with("ResourceId.");
    call.params.keys().filter(is_resource).count()
}

/// REQ-AWS-TC-10
#[tokio::test(start_paused = true)]
async fn sixty_nodes_take_two_calls_of_at_most_fifty() {
    let mut world = World::new(60);
    for at in 0..60 {
        world.join(at);
    }
    world.start(&batching("--tagging-controller-concurrent-node-syncs=60"));
    seconds(5).await;
    assert!((0..60).all(|at| world.tag(at, "key1").as_deref() == Some("value1")));
    assert!((0..60).all(|at| world.label(&format!("n{at}")).as_deref() == Some(CHECKSUM)));
    let sizes: Vec<usize> = world.calls("CreateTags").iter().map(resources).collect();
    assert_eq!(sizes, [50, 10]);
    for at in 0..60 {
        world.leave(&format!("n{at}"));
    }
    seconds(5).await;
    assert!((0..60).all(|at| world.tag(at, "key1").is_none()));
    let calls = world.calls("DeleteTags");
    assert!(calls.len() <= 2 && calls.iter().all(|call| resources(call) <= 50));
    world.end().await.unwrap();
}

/// REQ-AWS-TC-11
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_refused_does_not_keep_the_others_from_their_tags() {
    let mut world = World::new(4);
    for at in 0..4 {
        world.join(at);
    }
    world.join_as("a", "i-0dead");
    world.start(&batching("--tagging-controller-concurrent-node-syncs=10"));
    seconds(5).await;
    assert!((0..4).all(|at| world.tag(at, "key1").is_some()));
    assert!((0..4).all(|at| world.errors(world.machine(at)) == (0, 0)));
    let (failed, _) = world.errors("i-0dead");
    assert!(failed >= 1);
    let calls = world.calls("CreateTags");
    assert_eq!(resources(&calls[0]), 5);
    assert_eq!(calls.iter().filter(|call| resources(call) == 5).count(), 1);
    let of_good = calls
        .iter()
        .filter(|call| resources(call) == 1 && call.params["ResourceId.1"] != "i-0dead");
    assert_eq!(of_good.count(), 4, "each once more");
    world.end().await.unwrap();
}

/// A cloud that wants fewer calls gets no more of them.
#[tokio::test(start_paused = true)]
async fn a_throttled_call_is_not_taken_apart() {
    let mut world = World::new(4);
    for at in 0..4 {
        world.join(at);
    }
    // As often as the SDK tries by itself.
    let faults = world.sim.faults();
    faults
        .next("CreateTags", 3, Fault::request_limit_exceeded())
        .unwrap();
    world.start(&batching("--tagging-controller-concurrent-node-syncs=10"));
    seconds(60).await;
    assert!((0..4).all(|at| world.tag(at, "key1").is_some()));
    assert!(
        world.calls("CreateTags")[..3]
            .iter()
            .all(|call| resources(call) == 4)
    );
    assert!((0..4).all(|at| world.errors(world.machine(at)) == (1, 0)));
    world.end().await.unwrap();
}
