//! Watches on virtual time.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed expectation ends the test"
)]

use std::pin::pin;

use ccm_kubesim::{ExpiredStyle, Fault, KubeSim, Options, Target, Verb};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api, Client,
    api::{WatchEvent, WatchParams},
    runtime::watcher::{self, Event},
};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, timeout};

fn sim() -> (KubeSim, Client) {
    let sim = KubeSim::new(Options::default());
    let client = Client::new(sim.service(), "default");
    (sim, client)
}

fn node(name: &str, label: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"l": label}}})
}

fn shown(event: &WatchEvent<Node>) -> String {
    let name = |n: &Node| n.metadata.name.clone().unwrap_or_default();
    match event {
        WatchEvent::Added(n) => format!("added {}", name(n)),
        WatchEvent::Modified(n) => format!("modified {}", name(n)),
        WatchEvent::Deleted(n) => format!("deleted {}", name(n)),
        WatchEvent::Bookmark(b) => format!(
            "bookmark{}",
            if b.metadata
                .annotations
                .contains_key("k8s.io/initial-events-end")
            {
                " initial"
            } else {
                ""
            }
        ),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

async fn take(
    stream: &mut (impl Stream<Item = Result<WatchEvent<Node>, kube::Error>> + Unpin),
    n: usize,
) -> Vec<String> {
    let mut got = Vec::new();
    for _ in 0..n {
        let event = timeout(Duration::from_secs(3600), stream.next()).await;
        got.push(shown(
            &event
                .expect("an event within the hour")
                .expect("no end")
                .unwrap(),
        ));
    }
    got
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_happens_from_a_version_on() {
    let (sim, client) = sim();
    sim.apply_direct(node("a", "1")).unwrap();
    let from = sim.resource_version().to_string();
    let api: Api<Node> = Api::all(client);
    let mut stream = Box::pin(api.watch(&WatchParams::default(), &from).await.unwrap());
    sim.apply_direct(node("b", "1")).unwrap();
    sim.apply_direct(node("a", "2")).unwrap();
    sim.apply_direct(node("a", "2")).unwrap();
    sim.delete_direct("nodes", "", "b").unwrap();
    assert_eq!(
        take(&mut stream, 3).await,
        ["added b", "modified a", "deleted b"]
    );
    let mut all = Box::pin(api.watch(&WatchParams::default(), "0").await.unwrap());
    assert_eq!(take(&mut all, 1).await, ["added a"]);
}

#[tokio::test(start_paused = true)]
async fn objects_enter_and_leave_a_selection() {
    let (sim, client) = sim();
    let from = sim.resource_version().to_string();
    let api: Api<Node> = Api::all(client);
    let wp = WatchParams::default().labels("l=1");
    let mut stream = Box::pin(api.watch(&wp, &from).await.unwrap());
    sim.apply_direct(node("a", "0")).unwrap();
    sim.apply_direct(node("a", "1")).unwrap();
    sim.apply_direct(node("a", "2")).unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(shown(&first), "added a");
    let WatchEvent::Deleted(last) = stream.next().await.unwrap().unwrap() else {
        panic!("a deletion");
    };
    assert_eq!(
        last.metadata.labels.unwrap()["l"],
        "1",
        "as it was while selected"
    );
    assert_eq!(
        last.metadata.resource_version.unwrap(),
        sim.resource_version().to_string()
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_and_the_watch_ends_in_time() {
    let (sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    let from = sim.resource_version().to_string();
    let start = Instant::now();
    let wp = WatchParams::default().timeout(150);
    let stream = api.watch(&wp, &from).await.unwrap();
    let events: Vec<_> = stream.try_collect().await.unwrap();
    let shown: Vec<String> = events.iter().map(shown).collect();
    assert_eq!(
        shown,
        ["bookmark", "bookmark", "bookmark"],
        "at 60, 120 and 148 s"
    );
    assert_eq!(start.elapsed(), Duration::from_secs(150));
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_ends_with_a_marked_bookmark() {
    let (sim, client) = sim();
    sim.apply_direct(node("a", "1")).unwrap();
    sim.apply_direct(node("b", "1")).unwrap();
    let api: Api<Node> = Api::all(client);
    let wp = WatchParams::default().initial_events();
    let mut stream = Box::pin(api.watch(&wp, "0").await.unwrap());
    assert_eq!(
        take(&mut stream, 3).await,
        ["added a", "added b", "bookmark initial"]
    );
    sim.apply_direct(node("c", "1")).unwrap();
    assert_eq!(take(&mut stream, 1).await, ["added c"]);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_version_is_gone_in_either_style() {
    let (sim, client) = sim();
    let from = sim.resource_version().to_string();
    sim.apply_direct(node("a", "1")).unwrap();
    sim.faults().compact();
    let api: Api<Node> = Api::all(client);
    let mut stream = Box::pin(api.watch(&WatchParams::default(), &from).await.unwrap());
    assert_eq!(take(&mut stream, 1).await, ["error 410"]);
    assert!(stream.next().await.is_none());
    sim.faults().expired_style(ExpiredStyle::Http);
    let Err(kube::Error::Api(status)) = api.watch(&WatchParams::default(), &from).await.map(drop)
    else {
        panic!("HTTP 410");
    };
    assert_eq!(status.code, 410);
}

#[tokio::test(start_paused = true)]
async fn delayed_watches_and_cached_lists_lag_behind() {
    let (sim, client) = sim();
    let from = sim.resource_version().to_string();
    let lag = Duration::from_secs(30);
    sim.faults().delay_watches(Some("nodes"), lag);
    let api: Api<Node> = Api::all(client);
    let mut stream = Box::pin(api.watch(&WatchParams::default(), &from).await.unwrap());
    let start = Instant::now();
    sim.apply_direct(node("a", "1")).unwrap();
    let cached = kube::api::ListParams::default().match_any();
    assert!(api.list(&cached).await.unwrap().items.is_empty());
    assert_eq!(
        api.list(&kube::api::ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    assert_eq!(take(&mut stream, 1).await, ["added a"]);
    assert_eq!(start.elapsed(), lag);
    assert_eq!(api.list(&cached).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_behind_when_history_is_dropped_gets_410() {
    let (sim, client) = sim();
    let from = sim.resource_version().to_string();
    sim.faults().delay_watches(None, Duration::from_secs(30));
    let api: Api<Node> = Api::all(client);
    let mut stream = Box::pin(api.watch(&WatchParams::default(), &from).await.unwrap());
    sim.apply_direct(node("a", "1")).unwrap();
    sim.faults().compact();
    assert_eq!(take(&mut stream, 1).await, ["error 410"]);
}

#[tokio::test(start_paused = true)]
async fn cut_watches_end_and_ended_watches_end_well() {
    let (sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    // With bookmarks the end of the initial events would come first.
    let params = WatchParams::default().disable_bookmarks();
    for cut in [true, false] {
        let mut stream = Box::pin(api.watch(&params, "0").await.unwrap());
        assert!(
            timeout(Duration::from_secs(1), stream.next())
                .await
                .is_err(),
            "open"
        );
        if cut {
            sim.faults().cut_watches();
        } else {
            sim.faults().end_watches();
        }
        let end = timeout(Duration::from_secs(1), stream.next())
            .await
            .unwrap();
        assert!(end.is_none_or(|e| e.is_err()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_watcher_of_kube_recovers_from_compaction_and_cuts() {
    let (sim, client) = sim();
    sim.apply_direct(node("a", "1")).unwrap();
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let api: Api<Node> = Api::all(client.clone());
        let mut stream = pin!(watcher::watcher(api, config));
        let mut applied = Vec::new();
        let mut step = async |until: &str| loop {
            let event = timeout(Duration::from_secs(600), stream.next())
                .await
                .expect("in time");
            match event.expect("endless") {
                Ok(Event::Apply(n) | Event::InitApply(n)) => {
                    let name = n.metadata.name.unwrap();
                    applied.push(name.clone());
                    if name == until {
                        break;
                    }
                }
                Ok(Event::Delete(n)) if n.metadata.name.as_deref() == Some(until) => break,
                Ok(_) | Err(_) => {}
            }
        };
        step("a").await;
        sim.faults().cut_watches();
        sim.apply_direct(node("b", "1")).unwrap();
        sim.faults().compact();
        step("b").await;
        sim.faults()
            .fail_next(2, Target::new(Verb::Watch, "nodes"), Fault::Internal);
        sim.faults().cut_watches();
        sim.apply_direct(node("c", "1")).unwrap();
        step("c").await;
        sim.delete_direct("nodes", "", "c").unwrap();
        step("c").await;
        sim.delete_direct("nodes", "", "b").unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_finalizer_ends_an_object_with_a_deletion_event() {
    let (sim, client) = sim();
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "s", "namespace": "default", "finalizers": ["a.io/x"]},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    sim.apply_direct(service).unwrap();
    let from = sim.resource_version().to_string();
    let api: Api<Service> = Api::default_namespaced(client);
    let mut stream = Box::pin(api.watch(&WatchParams::default(), &from).await.unwrap());
    sim.delete_direct("services", "default", "s").unwrap();
    sim.patch_merge(
        "services",
        "default",
        "s",
        &json!({"metadata": {"finalizers": null}}),
    )
    .unwrap();
    let WatchEvent::Modified(marked) = stream.next().await.unwrap().unwrap() else {
        panic!("modified")
    };
    assert!(marked.metadata.deletion_timestamp.is_some());
    let WatchEvent::Deleted(last) = stream.next().await.unwrap().unwrap() else {
        panic!("deleted")
    };
    assert_eq!(
        last.metadata.finalizers.unwrap(),
        ["a.io/x"],
        "the last stored state"
    );
}
