//! Watches.

use serde_json::json;

use crate::world::World;

async fn configmap(w: &mut World, name: &str, tier: &str) -> String {
    let all = w.path("configmaps");
    w.post(
        &all,
        json!({ "metadata": { "name": name, "labels": { "tier": tier } } }),
    )
    .await
    .version()
}

async fn relabel(w: &mut World, name: &str, tier: &str) {
    let path = w.path(&format!("configmaps/{name}"));
    w.patch(
        "merge",
        &path,
        json!({ "metadata": { "labels": { "tier": tier } } }),
    )
    .await;
}

pub(crate) async fn changes(w: &mut World) {
    let version = configmap(w, "a", "front").await;
    configmap(w, "b", "back").await;
    relabel(w, "b", "front").await;
    let mut front = w
        .watch(&w.path(&format!(
            "configmaps?labelSelector=tier%3Dfront&resourceVersion={version}"
        )))
        .await;
    w.events(&mut front, 1).await;
    relabel(w, "a", "back").await;
    w.events(&mut front, 1).await;
    relabel(w, "a", "front").await;
    w.events(&mut front, 1).await;
    w.delete(&w.path("configmaps/a")).await;
    w.delete(&w.path("configmaps/b")).await;
    w.events(&mut front, 2).await;
    let mut all = w
        .watch(&w.path(&format!("configmaps?resourceVersion={version}")))
        .await;
    w.events(&mut all, 6).await;
    let hold = w.path("configmaps/held");
    let all_maps = w.path("configmaps");
    w.post(
        &all_maps,
        json!({ "metadata": { "name": "held", "finalizers": ["example.com/x"] } }),
    )
    .await;
    w.delete(&hold).await;
    w.patch(
        "merge",
        &hold,
        json!({ "metadata": { "finalizers": null } }),
    )
    .await;
    w.events(&mut all, 3).await;
    let mut one = w.watch(&w.path("configmaps/held")).await;
    w.events(&mut one, 1).await;
    let mut named = w
        .watch(&w.path("configmaps?fieldSelector=metadata.name%3Dc"))
        .await;
    configmap(w, "c", "front").await;
    w.events(&mut named, 1).await;
}

pub(crate) async fn initial(w: &mut World) {
    let version = configmap(w, "a", "front").await;
    configmap(w, "b", "front").await;
    let mut plain = w.watch(&w.path("configmaps")).await;
    w.events(&mut plain, 2).await;
    let mut with_end = w.watch(&w.path("configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")).await;
    w.events(&mut with_end, 3).await;
    configmap(w, "c", "front").await;
    w.events(&mut with_end, 1).await;
    let mut since = w
        .watch(&w.path(&format!("configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion={version}")))
        .await;
    w.events(&mut since, 4).await;
    let mut none = w
        .watch(&w.path("configmaps?sendInitialEvents=false&resourceVersionMatch=NotOlderThan"))
        .await;
    configmap(w, "d", "front").await;
    w.events(&mut none, 1).await;
}

pub(crate) async fn bookmarks(w: &mut World) {
    let version = configmap(w, "a", "front").await;
    let mut short = w
        .watch(&w.path(&format!(
            "configmaps?allowWatchBookmarks=true&timeoutSeconds=6&resourceVersion={version}"
        )))
        .await;
    configmap(w, "b", "front").await;
    w.events(&mut short, 2).await;
    let mut from_start = w
        .watch(&w.path("configmaps?allowWatchBookmarks=true"))
        .await;
    w.events(&mut from_start, 3).await;
    let mut from_zero = w
        .watch(&w.path("configmaps?allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=3"))
        .await;
    w.events(&mut from_zero, 3).await;
    let mut without = w
        .watch(&w.path(&format!(
            "configmaps?timeoutSeconds=1&resourceVersion={version}"
        )))
        .await;
    w.events(&mut without, 2).await;
}

pub(crate) async fn parameters(w: &mut World) {
    for query in [
        "resourceVersion=nonsense",
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
        "timeoutSeconds=nonsense",
        "labelSelector=%21%21",
        "fieldSelector=data.x%3Dy",
        "limit=1&timeoutSeconds=1",
    ] {
        let mut watch = w.watch(&w.path(&format!("configmaps?{query}"))).await;
        w.events(&mut watch, 1).await;
    }
}
