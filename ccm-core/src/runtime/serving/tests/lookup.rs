//! Authorities from the cluster and from files, at start and later.

use ccm_kubesim::{Fault, Target, Verb};

use super::*;

const MASTERS: &[&str] = &["system:masters"];

fn configmap(clients: &Authority, proxies: &Authority) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "kube-system", "name": "extension-apiserver-authentication"},
        "data": {
            "client-ca-file": clients.pem,
            "requestheader-client-ca-file": proxies.pem,
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        },
    })
}

fn looking_up(tolerate: bool) -> AuthenticationSettings {
    AuthenticationSettings {
        skip_lookup: false,
        tolerate_lookup_failure: tolerate,
        ..authentication()
    }
}

async fn until_status(world: &World, pair: &ClientPair, expected: u16) {
    in_minutes("the new authority", async || {
        world.get("/configz", Some(pair), &[]).await.0 == expected
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_cluster_tells_its_authorities_and_a_new_one_counts_within_minutes() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let proxies = Authority::new("proxies");
    let sim = api_server();
    sim.apply_direct(configmap(&old, &proxies)).unwrap();
    let mut world = World::with(serving(), looking_up(false), sim).await;
    world.keep_current();
    let (by_old, by_new) = (old.client("a", MASTERS), new.client("a", MASTERS));
    assert_eq!(world.get("/configz", Some(&by_old), &[]).await.0, 200);
    assert_eq!(world.get("/configz", Some(&by_new), &[]).await.0, 401);
    let proxy = proxies.client("front-proxy-client", &[]);
    let told = [("X-Remote-User", "jane"), ("X-Remote-Group", "readers")];
    assert_eq!(world.get("/metrics", Some(&proxy), &told).await.0, 200);
    world.sim.apply_direct(configmap(&new, &proxies)).unwrap();
    until_status(&world, &by_new, 200).await;
    assert_eq!(world.get("/configz", Some(&by_old), &[]).await.0, 401);
    // Nonsense later leaves what is there.
    let mut broken = configmap(&old, &proxies);
    broken["data"]["client-ca-file"] = "nonsense".into();
    world.sim.apply_direct(broken).unwrap();
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert_eq!(world.get("/configz", Some(&by_new), &[]).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_failed_lookup_is_fatal_unless_tolerated() {
    let refuse = |sim: &KubeSim| {
        let configmaps = Target::new(Verb::Get, "configmaps");
        sim.faults().fail_next(3, configmaps, Fault::Forbidden);
    };
    let sim = api_server();
    refuse(&sim);
    let client = client_of(&sim);
    let started = World::start(serving(), looking_up(false), sim, Some(client)).await;
    let error = started.err().unwrap().to_string();
    for part in [
        "configmap kube-system/extension-apiserver-authentication: ",
        "403",
        "--authentication-tolerate-lookup-failure",
        "extension-apiserver-authentication-reader",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let sim = api_server();
    refuse(&sim);
    let mut world = World::with(serving(), looking_up(true), sim).await;
    world.keep_current();
    let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
    let admin = clients.client("admin", MASTERS);
    assert_eq!(world.get("/healthz", Some(&admin), &[]).await.0, 200);
    assert_eq!(world.get("/configz", Some(&admin), &[]).await.0, 403);
    // It is read as soon as it is there.
    world
        .sim
        .apply_direct(configmap(&clients, &proxies))
        .unwrap();
    until_status(&world, &admin, 200).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_the_configmap_is_served_and_nobody_is_believed() {
    let mut world = World::with(serving(), looking_up(false), api_server()).await;
    world.keep_current();
    let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
    let admin = clients.client("admin", MASTERS);
    assert_eq!(world.get("/configz", Some(&admin), &[]).await.0, 403);
    world
        .sim
        .apply_direct(configmap(&clients, &proxies))
        .unwrap();
    until_status(&world, &admin, 200).await;
}

#[tokio::test(start_paused = true)]
async fn a_moment_of_absence_at_start_is_no_failure() {
    let sim = api_server();
    let authority = Authority::new("x");
    sim.apply_direct(configmap(&authority, &authority)).unwrap();
    let configmaps = Target::new(Verb::Get, "configmaps");
    sim.faults()
        .fail_next(2, configmaps, Fault::Unavailable(None));
    World::with(serving(), looking_up(false), sim).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_of_authorities_is_read_again_when_it_changes() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    std::fs::write(&path, &old.pem).unwrap();
    let mut settings = authentication();
    settings.client_ca = Some(path.clone());
    let mut world = World::new(settings).await;
    world.keep_current();
    let (by_old, by_new) = (old.client("a", MASTERS), new.client("a", MASTERS));
    assert_eq!(world.get("/configz", Some(&by_old), &[]).await.0, 200);
    std::fs::write(&path, format!("{}{}", old.pem, new.pem)).unwrap();
    until_status(&world, &by_new, 200).await;
    assert_eq!(world.get("/configz", Some(&by_old), &[]).await.0, 200);
    std::fs::write(&path, "").unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.get("/configz", Some(&by_new), &[]).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_bad_file_of_authorities_is_named_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    for (content, problem) in [
        (None, "cannot be read"),
        (Some("nonsense"), "holds no certificate"),
        (
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            "holds an unusable certificate",
        ),
    ] {
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let mut settings = authentication();
        settings.request_header.client_ca = Some(path.clone());
        let started = World::start(serving(), settings, api_server(), None).await;
        let error = started.err().unwrap().to_string();
        let start = format!("--requestheader-client-ca-file {}: ", path.display());
        assert!(error.starts_with(&start), "{error}");
        assert!(error.contains(problem), "{error}");
    }
}

/// The authority of front proxies is replaced, and with it the names of the proxies and the headers
/// that they speak in.
///
/// REQ-APP-08
#[tokio::test(start_paused = true)]
async fn a_new_authority_of_proxies_counts_with_its_names_and_the_old_one_no_longer() {
    let clients = Authority::new("clients");
    let (old, new) = (Authority::new("old proxies"), Authority::new("new proxies"));
    let sim = api_server();
    sim.apply_direct(configmap(&clients, &old)).unwrap();
    let mut world = World::with(serving(), looking_up(false), sim).await;
    world.keep_current();
    let told = [("X-Remote-User", "jane"), ("X-Remote-Group", "readers")];
    let renamed = [("X-User", "jane"), ("X-Remote-Group", "readers")];
    let by_old = old.client("front-proxy-client", &[]);
    let by_new = new.client("front-proxy-client", &[]);
    let by_new_name = new.client("next-proxy", &[]);
    assert_eq!(world.get("/metrics", Some(&by_old), &told).await.0, 200);
    assert_eq!(world.get("/metrics", Some(&by_new), &told).await.0, 401);

    world.sim.apply_direct(configmap(&clients, &new)).unwrap();
    in_minutes("the new authority of proxies", async || {
        world.get("/metrics", Some(&by_new), &told).await.0 == 200
    })
    .await;
    assert_eq!(world.get("/metrics", Some(&by_old), &told).await.0, 401);
    assert_eq!(
        world.get("/metrics", Some(&by_new_name), &told).await.0,
        401
    );
    // Clients in their own name are not touched by it.
    let admin = clients.client("admin", MASTERS);
    assert_eq!(world.get("/configz", Some(&admin), &[]).await.0, 200);

    let mut changed = configmap(&clients, &new);
    changed["data"]["requestheader-allowed-names"] = "[\"next-proxy\"]".into();
    changed["data"]["requestheader-username-headers"] = "[\"X-User\"]".into();
    world.sim.apply_direct(changed).unwrap();
    in_minutes("the new name", async || {
        world.get("/metrics", Some(&by_new_name), &renamed).await.0 == 200
    })
    .await;
    assert_eq!(world.get("/metrics", Some(&by_new), &renamed).await.0, 401);
    // A header that no longer counts names nobody: the certificate is no client's.
    assert_eq!(
        world.get("/metrics", Some(&by_new_name), &told).await.0,
        401
    );

    // Without the configmap the last word of the cluster stays.
    let gone = "extension-apiserver-authentication";
    world
        .sim
        .delete_direct("configmaps", "kube-system", gone)
        .unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(
        world.get("/metrics", Some(&by_new_name), &renamed).await.0,
        200
    );
    assert_eq!(world.get("/metrics", Some(&by_old), &told).await.0, 401);
}
