//! Configuration of clients and the bounds on requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use ccm_kubesim::{Fault, KubeSim, Options, Target, User, Verb};
use k8s_openapi::api::{
    authorization::v1::SelfSubjectAccessReview,
    core::v1::{ConfigMap, Node},
};
use kube::api::{Api, ListParams, PostParams};
use proptest::prelude::*;
use tokio::net::TcpListener;

use super::*;
use crate::runtime::{Fence, RbacOptions, permissions};

fn kubeconfig(text: &str) -> (PathBuf, ApiSettings) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("ccm-client-test-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).unwrap();
    let settings = ApiSettings {
        kubeconfig: Some(path.clone()),
        ..ApiSettings::default()
    };
    (path, settings)
}

const PLAIN: &str = "
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: 'http://10.1.2.3:8080'}}]
users: [{name: u, user: {token: hunter2}}]
";

async fn factory(settings: &ApiSettings) -> Result<ClientFactory, ClientError> {
    ClientFactory::new(settings, &prometheus::Registry::new()).await
}

#[tokio::test]
async fn a_kubeconfig_gives_the_server_and_master_overrides_it() {
    let (path, mut settings) = kubeconfig(PLAIN);
    let made = factory(&settings).await.unwrap();
    assert_eq!(made.server(), "http://10.1.2.3:8080/");
    assert!(!format!("{made:?}").contains("hunter2"));
    settings.master = Some("https://10.9.9.9:6443".to_owned());
    assert_eq!(
        factory(&settings).await.unwrap().server(),
        "https://10.9.9.9:6443/"
    );
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn master_alone_needs_no_file() {
    let settings = ApiSettings {
        master: Some("http://127.0.0.1:8080".to_owned()),
        ..ApiSettings::default()
    };
    assert_eq!(
        factory(&settings).await.unwrap().server(),
        "http://127.0.0.1:8080/"
    );
    for text in ["10.0.0.1:6443", "ftp://x", "https://", "not a url"] {
        let settings = ApiSettings {
            master: Some(text.to_owned()),
            ..ApiSettings::default()
        };
        let error = factory(&settings).await.unwrap_err().to_string();
        assert!(
            error.contains(text) && error.contains("https://10.0.0.1:6443"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_unreadable_kubeconfig_is_named_with_the_fix() {
    let settings = ApiSettings {
        kubeconfig: Some(PathBuf::from("/nonexistent/kubeconfig")),
        ..ApiSettings::default()
    };
    let error = factory(&settings).await.unwrap_err().to_string();
    assert!(
        error.starts_with("--kubeconfig /nonexistent/kubeconfig: cannot be read: "),
        "{error}"
    );
    assert!(error.contains("check the path"), "{error}");
}

#[tokio::test]
async fn a_malformed_kubeconfig_is_refused_without_quoting_it() {
    for (text, part) in [
        (
            "users: [{name: u, user: {token: hunter2}}]\nclusters: {hunter2",
            "valid kubeconfig",
        ),
        ("{}", "current-context"),
        (
            "users: [{name: u, user: {token: [hunter2]}}]",
            "valid kubeconfig: line 1",
        ),
    ] {
        let (path, settings) = kubeconfig(text);
        let error = factory(&settings).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}

#[tokio::test]
async fn a_kubeconfig_in_utf_16_is_read_and_one_that_is_cut_off_is_refused() {
    let (path, settings) = kubeconfig("");
    for mark in [[0xff, 0xfe], [0xfe, 0xff]] {
        let pair = |unit: u16| match mark {
            [0xff, _] => unit.to_le_bytes(),
            _ => unit.to_be_bytes(),
        };
        let mut bytes = mark.to_vec();
        bytes.extend(PLAIN.encode_utf16().flat_map(pair));
        std::fs::write(&path, &bytes).unwrap();
        let server = factory(&settings).await.unwrap().server();
        assert_eq!(server, "http://10.1.2.3:8080/");
        bytes.pop();
        std::fs::write(&path, &bytes).unwrap();
        let error = factory(&settings).await.unwrap_err().to_string();
        assert!(error.ends_with("it is UTF-16 and cut off"), "{error}");
    }
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a_proxy_in_the_kubeconfig_is_refused_without_its_password() {
    let text = PLAIN.replace(
        "server:",
        "proxy-url: 'http://me:hunter2@proxy.example:3128', server:",
    );
    let (path, settings) = kubeconfig(&text);
    let error = factory(&settings).await.unwrap_err().to_string();
    assert!(error.contains("proxy-url \"proxy.example\""), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    std::fs::remove_file(path).unwrap();
}

/// A server on a socket, and a way to it with the manager's own token.
async fn served() -> (KubeSim, PathBuf, ClientFactory, prometheus::Registry) {
    // A second test finds it installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let sim = KubeSim::new(Options {
        tokens: [("hunter2".to_owned(), User::named("manager"))].into(),
        ..Options::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let server = sim.clone();
    tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
    let (path, settings) = kubeconfig(&PLAIN.replace("http://10.1.2.3:8080", &at));
    let registry = prometheus::Registry::new();
    let factory = ClientFactory::new(&settings, &registry).await.unwrap();
    (sim, path, factory, registry)
}

/// As whom the server knows a client.
async fn identity(client: Client) -> String {
    let api: Api<SelfSubjectAccessReview> = Api::all(client);
    let review = SelfSubjectAccessReview::default();
    let answer = api.create(&PostParams::default(), &review).await.unwrap();
    let reason = answer.status.unwrap().reason.unwrap();
    reason.rsplit(' ').next().unwrap().to_owned()
}

/// REQ-APP-18, REQ-APP-22
#[tokio::test]
async fn controllers_have_their_own_accounts_and_all_else_the_managers() {
    let (sim, path, factory, _) = served().await;
    let plain = factory
        .controller_client("node-controller", Fence::open())
        .unwrap();
    assert_eq!(identity(plain).await, "manager");
    let clock = Clock::anchored(sim.now());
    let factory = factory.with_service_account_credentials(true, clock);
    let account = "system:serviceaccount:kube-system:node-controller";
    for _ in 0..2 {
        let client = factory
            .controller_client("node-controller", Fence::open())
            .unwrap();
        assert_eq!(identity(client).await, account);
    }
    for client in [
        factory.client("shared-informers").unwrap(),
        factory.lease_client(Duration::from_secs(10)).unwrap(),
    ] {
        assert_eq!(identity(client).await, "manager");
    }
    let requests = sim.requests();
    let token_requests = requests.sum(|key| key.subresource == "token");
    assert_eq!(token_requests, 1, "one holder for an account");
    let options = RbacOptions {
        service_account_credentials: true,
        ..RbacOptions::default()
    };
    let allowed = permissions(&options);
    let accounts = requests.entries.iter();
    for entry in accounts.filter(|entry| entry.key.resource == "serviceaccounts") {
        let (verb, resource) = match (entry.key.verb, entry.key.subresource.as_str()) {
            (Verb::Get, "") => ("get", "serviceaccounts"),
            (Verb::Create, "") => ("create", "serviceaccounts"),
            (Verb::Create, "token") => ("create", "serviceaccounts/token"),
            other => panic!("{other:?} is not in the table of permissions"),
        };
        let of = (entry.namespace.as_str(), entry.name.as_str());
        assert!(
            allowed.iter().any(|row| row.allows(verb, "", resource, of)),
            "{entry:?}"
        );
    }
    let start = user_agent(&BuildInfo::current(), "");
    let suffixes: Vec<_> = requests
        .entries
        .iter()
        .filter(|entry| entry.key.resource.starts_with("selfsubjectaccessreviews"))
        .map(|entry| entry.key.user_agent.strip_prefix(&start).unwrap())
        .collect();
    assert_eq!(
        suffixes,
        [
            "node-controller",
            account,
            account,
            "shared-informers",
            "leader-election"
        ]
    );
    std::fs::remove_file(path).unwrap();
}

/// Only what controllers write needs the lease: events, reviews and the lease itself do not wait.
///
/// REQ-APP-12
#[tokio::test]
async fn the_client_of_a_controller_writes_only_while_its_fence_lets_pass() {
    let (sim, path, factory, _) = served().await;
    let node = serde_json::json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" },
    });
    sim.apply_direct(node).unwrap();
    let fence = Fence::waiting();
    let fenced = factory
        .controller_client("node-controller", fence.clone())
        .unwrap();
    let nodes: Api<Node> = Api::all(fenced.clone());
    nodes.get("a").await.unwrap();
    let error = nodes.delete("a", &Default::default()).await.unwrap_err();
    let error = error_chain(&error);
    assert!(error.contains("leader election lease"), "{error}");
    assert_eq!(identity(factory.client("events").unwrap()).await, "manager");
    fence.extend(tokio::time::Instant::now() + Duration::from_secs(60));
    assert_eq!(identity(fenced).await, "manager");
    nodes.delete("a", &Default::default()).await.unwrap();
    fence.close();
    let error = nodes.delete("a", &Default::default()).await.unwrap_err();
    assert!(error_chain(&error).contains("leader election lease"));
    assert_eq!(sim.requests().count(Verb::Delete, "nodes"), 1);
    std::fs::remove_file(path).unwrap();
}

/// REQ-APP-22
#[tokio::test]
async fn an_account_without_a_token_fails_its_own_requests_only() {
    let (sim, path, factory, _) = served().await;
    let factory = factory.with_service_account_credentials(true, Clock::anchored(sim.now()));
    let target = Target::new(Verb::Create, "serviceaccounts").subresource("token");
    sim.faults().fail_next(4, target, Fault::Forbidden);
    let nodes: Api<Node> = Api::all(
        factory
            .controller_client("node-controller", Fence::open())
            .unwrap(),
    );
    let error = nodes.list(&ListParams::default()).await.unwrap_err();
    let error = error_chain(&error);
    assert!(
        error.contains("no token for service account kube-system/node-controller"),
        "{error}"
    );
    let nodes: Api<Node> = Api::all(
        factory
            .controller_client("service-controller", Fence::open())
            .unwrap(),
    );
    nodes.list(&ListParams::default()).await.unwrap();
    std::fs::remove_file(path).unwrap();
}

fn samples(registry: &prometheus::Registry, name: &str) -> Vec<(Vec<String>, u64, f64)> {
    let families = registry.gather();
    let Some(family) = families.iter().find(|family| family.name() == name) else {
        return Vec::new();
    };
    let metrics = family.get_metric().iter().map(|metric| {
        let labels = metric.get_label().iter();
        let labels = labels
            .filter(|label| label.name() != "host")
            .map(|label| label.value().to_owned())
            .collect();
        let histogram = metric.get_histogram();
        if family.get_field_type() == prometheus::proto::MetricType::COUNTER {
            (labels, 0, metric.get_counter().get_value())
        } else {
            (
                labels,
                histogram.get_sample_count(),
                histogram.get_sample_sum(),
            )
        }
    });
    metrics.collect()
}

/// REQ-MET-05
#[tokio::test]
async fn sizes_and_durations_are_those_of_whole_requests_and_leave_watches_out() {
    let (sim, path, mut factory, registry) = served().await;
    factory.rate = Some(ApiRate {
        qps: 1000.0,
        burst: 100,
    });
    let client = factory.client("shared-informers").unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let map = ConfigMap {
        data: Some([("key".to_owned(), "x".repeat(5000))].into()),
        metadata: kube::core::ObjectMeta {
            name: Some("a".to_owned()),
            ..Default::default()
        },
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await.unwrap();
    maps.get("a").await.unwrap();
    let watch = maps
        .watch(&kube::api::WatchParams::default(), "0")
        .await
        .unwrap();
    drop(watch);
    let verbs = |name: &str| -> Vec<(String, u64)> {
        let samples = samples(&registry, name).into_iter();
        samples
            .map(|(labels, count, _)| (labels.concat(), count))
            .collect()
    };
    let both = vec![("GET".to_owned(), 1), ("POST".to_owned(), 1)];
    assert_eq!(verbs("rest_client_request_duration_seconds"), both);
    assert_eq!(verbs("rest_client_response_size_bytes"), both);
    assert_eq!(
        verbs("rest_client_request_size_bytes"),
        [("POST".to_owned(), 1)]
    );
    let throttled = vec![("GET".to_owned(), 2), ("POST".to_owned(), 1)];
    assert_eq!(
        verbs("rest_client_rate_limiter_duration_seconds"),
        throttled
    );
    for (_, _, bytes) in samples(&registry, "rest_client_response_size_bytes") {
        assert!((5000.0..8000.0).contains(&bytes), "{bytes}");
    }
    assert_eq!(
        samples(&registry, "rest_client_requests_total"),
        [
            (vec!["200".to_owned(), "GET".to_owned()], 0, 2.0),
            (vec!["201".to_owned(), "POST".to_owned()], 0, 1.0),
        ]
    );
    assert_eq!(sim.requests().count(Verb::Watch, "configmaps"), 1);
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn reviews_use_their_own_file_and_its_flag_is_named() {
    let (path, _) = kubeconfig(PLAIN);
    let settings = ApiSettings {
        master: Some("http://127.0.0.1:8080".to_owned()),
        ..ApiSettings::default()
    };
    let factory = factory(&settings).await.unwrap();
    let flag = "--authentication-kubeconfig";
    let reviews = factory
        .for_reviews(flag, Some(&path))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reviews.server(), "http://10.1.2.3:8080/");
    assert_eq!(reviews.rate, Some(REVIEWS_RATE));
    std::fs::remove_file(&path).unwrap();
    let error = factory.for_reviews(flag, Some(&path)).await.unwrap_err();
    let start = format!("{flag} {}: cannot be read: ", path.display());
    assert!(error.to_string().starts_with(&start), "{error}");
    // No file, and this is no pod.
    assert!(factory.for_reviews(flag, None).await.unwrap().is_none());
}

#[tokio::test]
async fn a_token_file_of_a_kubeconfig_wins_over_a_token_beside_it() {
    let (sim, plain, _, _) = served().await;
    let text = std::fs::read_to_string(&plain).unwrap();
    let file = plain.with_extension("token");
    std::fs::write(&file, "hunter2\n").unwrap();
    let tokens = format!("token: stale, tokenFile: '{}'", file.display());
    let (path, settings) = kubeconfig(&text.replace("token: hunter2", &tokens));
    let factory = factory(&settings).await.unwrap();
    assert_eq!(identity(factory.client("x").unwrap()).await, "manager");
    assert_eq!(sim.requests().entries.len(), 1);
    for path in [plain, file, path] {
        std::fs::remove_file(path).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Broken anywhere, the file makes an error that names flag and file and tells no secret.
    #[test]
    fn no_broken_kubeconfig_makes_the_reader_panic_or_tell_a_secret(
        at in 0..PLAIN.len(),
        text in "[-:{}\\[\\],&*!|>'\"#%@ \n\ta]{0,6}",
        cut: bool,
    ) {
        let mut file = PLAIN.to_owned();
        if cut {
            file.truncate(at);
        }
        file.insert_str(at, &text);
        let (path, settings) = kubeconfig(&file);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outcome = runtime.block_on(factory(&settings));
        std::fs::remove_file(&path).unwrap();
        if let Err(error) = outcome {
            let error = error.to_string();
            let start = format!("--kubeconfig {}: ", path.display());
            prop_assert!(error.starts_with(&start), "{}", error);
            prop_assert!(!error.contains("hunter2"), "{}", error);
        }
    }
}
