//! Nodes that come, change and go.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use ccm_cloudsim::control::Fault;
use ccm_core::{
    cloud::{CloudResult, OwnContext},
    config::OwnFlags,
    kube::{Informer, Node, RecordedEvents},
    runtime::{Clock, Context, Loops, QueueMetrics, Random, TakeOver},
};
use ccm_kubesim::{Target, Verb};
use tokio_util::sync::CancellationToken;

use super::world::{CHECKSUM, FLAGS, World, seconds};
use crate::{
    api::{Ec2, tagging::TaggingApi},
    instances::{
        Describer, InstanceId, InstanceStore,
        fake::{FakeEc2, cluster, id, instance},
    },
    tagging::{Setup, TaggingController, TaggingSettings},
    tags::Tags,
};

/// REQ-AWS-TC-3, REQ-AWS-TC-4
#[tokio::test(start_paused = true)]
async fn a_new_node_is_tagged_labelled_and_left_alone_then() {
    let mut world = World::new(1);
    world.start(&FLAGS);
    seconds(5).await;
    world.join(0);
    seconds(2).await;
    assert_eq!(world.tag(0, "key1").as_deref(), Some("value1"));
    assert_eq!(world.label("n0").as_deref(), Some(CHECKSUM));
    let calls = world.calls("CreateTags");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].params["ResourceId.1"], world.machine(0));
    let series = world.series();
    let delay = "tagging_controller_inital_node_tagging_delay_seconds_count 1\n";
    assert!(series.contains(delay), "{series}");
    assert!(series.contains(
        "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"tagging\"} 1\n"
    ));
    // Another label of the Node changes, and another manager starts.
    let mut node = world.kube.get("nodes", "", "n0").unwrap();
    node["metadata"]["labels"]["x"] = "y".into();
    world.kube.apply_direct(node).unwrap();
    seconds(5).await;
    world.end().await.unwrap();
    world.start(&FLAGS);
    seconds(5).await;
    assert_eq!(world.calls("CreateTags").len(), 1);
    // Other tags are another checksum.
    world.end().await.unwrap();
    world.start(&[&FLAGS[..], &["--tags=key2=value2"]].concat());
    seconds(5).await;
    assert_eq!(world.tag(0, "key2").as_deref(), Some("value2"));
    let label = world.label("n0");
    assert_eq!(label.as_deref(), Some("c812faa65d1d5e5aefa6b069b3da39df"));
    world.end().await.unwrap();
}

/// A Node gets its provider id later.
#[tokio::test(start_paused = true)]
async fn a_node_is_tagged_when_its_provider_id_comes() {
    let mut world = World::new(1);
    world.start(&FLAGS);
    let bare = serde_json::json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n0" },
    });
    world.kube.apply_direct(bare).unwrap();
    seconds(5).await;
    assert_eq!(world.calls("CreateTags").len(), 0);
    world.join(0);
    seconds(2).await;
    assert_eq!(world.label("n0").as_deref(), Some(CHECKSUM));
    world.end().await.unwrap();
}

/// REQ-AWS-TC-5
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_not_there_is_waited_for_while_its_node_is_young() {
    let mut world = World::new(0);
    world.start(&FLAGS);
    seconds(60).await;
    world.join_as("young", "i-0dead");
    seconds(1).await;
    let tries = world.calls("CreateTags").len();
    assert!(tries > 1, "{tries}");
    assert!(world.errors("i-0dead").0 >= 1);
    assert_eq!(world.label("young"), None);
    world.end().await.unwrap();

    let mut world = World::new(0);
    world.join_as("old", "i-0dead");
    seconds(600).await;
    world.start(&FLAGS);
    seconds(60).await;
    assert_eq!(world.calls("CreateTags").len(), 1);
    assert_eq!(world.errors("i-0dead"), (0, 0));
    assert_eq!(world.label("old"), None);
    world.end().await.unwrap();
}

/// REQ-AWS-TC-6, REQ-AWS-TC-8
#[tokio::test(start_paused = true)]
async fn made_up_machines_and_fargate_are_skipped() {
    let mut world = World::new(0);
    world.start(&FLAGS);
    world.join_as("simulated", "i-simulated");
    world.join_as("serverless", "fargate-10.20.0.9");
    seconds(60).await;
    assert_eq!(world.calls("CreateTags").len(), 1);
    world.leave("simulated");
    world.leave("serverless");
    seconds(60).await;
    let deleted = world.calls("DeleteTags");
    assert_eq!(deleted.len(), 1);
    assert_eq!(deleted[0].error.as_deref(), Some("InvalidID"));
    assert_eq!(world.errors("i-simulated"), (0, 0));
    world.end().await.unwrap();
}

/// REQ-AWS-TC-7
#[tokio::test(start_paused = true)]
async fn a_node_that_goes_takes_its_tags_with_it_but_not_changed_ones() {
    let mut world = World::new(3);
    let flags = [&FLAGS[..], &["--tags=key2=value2"]].concat();
    world.start(&flags);
    for at in 0..3 {
        world.join(at);
    }
    seconds(5).await;
    let changed = Tags::from([("key2".to_owned(), "mine".to_owned())]);
    let aws = world.sim.aws();
    aws.set_tags(world.machine(0), &changed).unwrap();
    aws.forget(world.machine(1)).unwrap();
    world.leave("n0");
    world.leave("n1");
    seconds(5).await;
    assert_eq!(world.tag(0, "key1"), None);
    assert_eq!(world.tag(0, "key2").as_deref(), Some("mine"));
    assert_eq!(world.tag(2, "key1").as_deref(), Some("value1"));
    let calls = world.calls("DeleteTags");
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].params["Tag.1.Key"], "key1");
    assert_eq!(calls[0].params["Tag.1.Value"], "value1");
    assert_eq!(
        calls[1].error.as_deref(),
        Some("InvalidInstanceID.NotFound")
    );
    assert_eq!(world.errors(world.machine(1)), (0, 0));
    world.end().await.unwrap();
}

/// REQ-AWS-TC-9
#[tokio::test(start_paused = true)]
async fn an_item_that_always_fails_is_tried_nine_times_more_and_given_up() {
    let mut world = World::new(1);
    let faults = world.sim.faults();
    faults
        .from_nth("CreateTags", 1, Fault::unauthorized_operation())
        .unwrap();
    world.start(&FLAGS);
    world.join(0);
    seconds(600).await;
    let machine = world.machine(0).to_owned();
    assert_eq!(world.errors(&machine), (9, 1));
    assert_eq!(world.calls("CreateTags").len(), 10);
    // The next event of the Node takes it up again; with the Node the series go.
    world.sim.faults().clear_all();
    let mut node = world.kube.get("nodes", "", "n0").unwrap();
    node["metadata"]["labels"] = serde_json::json!({ "x": "y" });
    world.kube.apply_direct(node).unwrap();
    seconds(5).await;
    assert_eq!(world.label("n0").as_deref(), Some(CHECKSUM));
    world.leave("n0");
    seconds(5).await;
    assert_eq!(world.errors(&machine), (0, 0));
    assert!(!world.series().contains(&machine));
    world.end().await.unwrap();
}

/// REQ-AWS-TC-15
#[tokio::test(start_paused = true)]
async fn with_a_rate_to_take_up_an_item_counts_as_a_try() {
    let mut world = World::new(1);
    let faults = world.sim.faults();
    faults
        .from_nth("CreateTags", 1, Fault::unauthorized_operation())
        .unwrap();
    let limit = [
        "--tagging-controller-rate-limit=1",
        "--tagging-controller-burst-limit=1",
    ];
    world.start(&[&FLAGS[..], &limit].concat());
    world.join(0);
    seconds(600).await;
    assert_eq!(world.errors(world.machine(0)), (8, 1));
    assert_eq!(world.calls("CreateTags").len(), 9);
    world.end().await.unwrap();
}

/// With a limit Nodes are taken up one after the other.
#[tokio::test(start_paused = true)]
async fn a_rate_spreads_the_calls_for_many_nodes() {
    let mut world = World::new(20);
    let limit = [
        "--tagging-controller-rate-limit=1",
        "--tagging-controller-burst-limit=5",
    ];
    for at in 0..20 {
        world.join(at);
    }
    world.start(&[&FLAGS[..], &limit].concat());
    seconds(10).await;
    let made = world.calls("CreateTags").len();
    assert!((5..=15).contains(&made), "{made}");
    seconds(15).await;
    assert_eq!(world.calls("CreateTags").len(), 20);
    world.end().await.unwrap();
}

/// REQ-AWS-TC-14
#[tokio::test(start_paused = true)]
async fn a_node_that_went_unseen_loses_its_tags_too() {
    let mut world = World::new(1);
    world.start(&FLAGS);
    world.join(0);
    seconds(5).await;
    let faults = world.kube.faults();
    faults.unavailable(ccm_kubesim::Outage::Refused);
    seconds(1).await;
    world.leave("n0");
    // What happened meanwhile is not in any watch: the list shows that the Node is gone.
    world.kube.faults().compact();
    world.kube.faults().available();
    seconds(60).await;
    assert_eq!(world.calls("DeleteTags").len(), 1);
    assert_eq!(world.tag(0, "key1"), None);
    world.end().await.unwrap();
}

/// REQ-AWS-TC-16
#[tokio::test(start_paused = true)]
async fn a_label_that_could_not_be_written_is_a_failed_try() {
    let mut world = World::new(1);
    let patch = Target::new(Verb::Patch, "nodes");
    let forbidden = ccm_kubesim::Fault::Forbidden;
    world.kube.faults().fail_next(2, patch, forbidden);
    world.start(&FLAGS);
    world.join(0);
    seconds(5).await;
    assert_eq!(world.calls("CreateTags").len(), 3);
    assert_eq!(world.errors(world.machine(0)), (2, 0));
    assert_eq!(world.label("n0").as_deref(), Some(CHECKSUM));
    world.end().await.unwrap();
}

/// Counts the calls.
#[derive(Default)]
struct Counted(AtomicUsize);

#[async_trait]
impl TaggingApi for Counted {
    async fn create_tags(&self, _: &[InstanceId], _: &Tags) -> CloudResult<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn delete_tags(&self, _: &[InstanceId], _: &Tags) -> CloudResult<()> {
        Ok(())
    }
}

/// An instance that was just seen with the tags is not tagged again, but its Node gets the label.
#[tokio::test(start_paused = true)]
async fn an_instance_that_is_known_to_have_the_tags_is_not_tagged_again() {
    let mut tagged = instance("i-1");
    tagged.tags.insert("key1".to_owned(), "value1".to_owned());
    let ec2 = FakeEc2::with([tagged, instance("i-2")]);
    let describer = Describer::new(Arc::clone(&ec2) as Arc<dyn Ec2>, cluster());
    let store = Arc::new(InstanceStore::new(describer, cluster()));
    assert!(store.known(&id("i-1")).is_none());
    store.look_up(&[id("i-1"), id("i-2")].into()).await.unwrap();

    let world = World::new(0);
    let (client, nodes) = (world.client(), Informer::<Node>::new());
    let registry = prometheus::Registry::new();
    let clock = Clock::anchored(ccm_kubesim::Options::default().start);
    let context = Context {
        client: client.clone(),
        events: Arc::new(RecordedEvents::default()),
        clock: clock.clone(),
        random: Random::seeded(1),
        registry: registry.clone(),
        queues: QueueMetrics::new(&registry).unwrap(),
        loops: Loops::new(clock),
        took_over: TakeOver::default(),
    };
    let flags = OwnFlags::given(&[
        ("tags", "key1=value1"),
        ("resources", "instance"),
        ("tagging-controller-concurrent-node-syncs", "1"),
    ]);
    let own = OwnContext {
        context: &context,
        nodes: &nodes,
        flags: &flags,
        node_monitor_period: Duration::from_secs(5),
    };
    let calls = Arc::new(Counted::default());
    let setup = Setup {
        api: Arc::clone(&calls) as Arc<dyn TaggingApi>,
        store: Arc::clone(&store),
    };
    let settings = TaggingSettings::of(&flags).unwrap();
    let controller = TaggingController::new(&own, setup, settings).unwrap();
    let stop = CancellationToken::new();
    let (own_stop, random) = (stop.clone(), Random::seeded(1));
    let watch = tokio::spawn(async move { nodes.run(client, random, own_stop).await });
    let work = tokio::spawn(controller.run(stop.clone()));
    world.join_as("tagged", "i-1");
    seconds(2).await;
    assert_eq!(world.label("tagged").as_deref(), Some(CHECKSUM));
    assert_eq!(calls.0.load(Ordering::SeqCst), 0);
    world.join_as("bare", "i-2");
    seconds(2).await;
    assert_eq!(calls.0.load(Ordering::SeqCst), 1);
    world.leave("tagged");
    seconds(2).await;
    assert!(store.known(&id("i-1")).is_none(), "its tags are gone");
    // Too long ago to be known.
    tokio::time::advance(Duration::from_mins(10)).await;
    assert!(store.known(&id("i-2")).is_none());
    stop.cancel();
    watch.await.unwrap();
    work.await.unwrap();
}
