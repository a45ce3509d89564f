//! What a Node costs that is initialised and well: nothing.

use std::{sync::Arc, time::Duration};

use ccm_core::config::{NodeLifecycleSettings, NodeSettings};
use serde_json::json;

use crate::{
    cloud::Machine,
    world::{NewNode, World, seconds},
};

fn beat(world: &World, name: &str, number: usize) {
    world.edit(name, |node| {
        node["status"]["conditions"] = json!([
            { "type": "Ready", "status": "True", "lastHeartbeatTime": format!("2026-01-01T00:00:{number:02}Z") },
            { "type": "DiskPressure", "status": "False", "message": format!("beat {number}") },
        ]);
    });
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_of_an_initialised_node_makes_no_request_and_no_cloud_call() {
    let node = NodeSettings {
        // The pass over all addresses asks the cloud by itself.
        status_update_period: Duration::from_secs(86_400),
        ..NodeSettings::default()
    };
    let world = World::new()
        .with_node_controller(node)
        .with_lifecycle(NodeLifecycleSettings::default());
    for name in ["a", "b"] {
        world.join(
            &NewNode::fresh(name),
            Machine::running(&format!("sim://{name}")),
        );
    }
    let world = world.start();
    seconds(30).await;
    for name in ["a", "b"] {
        beat(&world, name, 0);
    }
    seconds(30).await;
    let store = world.informer().store();
    let kept = Arc::as_ptr(&store.named("a").unwrap());
    let (mark, asked, generation) = (world.sim.mark(), world.cloud.asked(), store.generation());
    for number in 1..=50 {
        beat(&world, "a", number);
        seconds(6).await;
    }
    let requests = world.sim.since(&mark);
    let others = requests.sum(|key| key.verb != ccm_kubesim::Verb::Watch);
    assert_eq!(others, 0, "{requests:?}");
    assert_eq!(world.cloud.asked(), asked);
    assert_eq!(
        store.generation(),
        generation,
        "nothing that counts changed"
    );
    let now = store.named("a").unwrap();
    assert_eq!(Arc::as_ptr(&now), kept, "the same memory");
    assert_eq!(
        now.metadata.resource_version,
        world.node("a").metadata.resource_version
    );
}
