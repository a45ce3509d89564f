//! Configuration of clients and the bounds on requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

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

#[test]
fn the_user_agent_names_program_platform_and_use() {
    let agent = user_agent("service-controller");
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        agent.starts_with(&format!("cloud-controller-manager/v{version} (linux/")),
        "{agent}"
    );
    assert!(agent.ends_with(") service-controller"), "{agent}");
}

/// REQ-MET-05
#[tokio::test(start_paused = true)]
async fn a_rate_lets_a_burst_through_and_then_so_many_a_second() {
    let throttle = Throttle::new(ApiRate {
        qps: 20.0,
        burst: 30,
    });
    let start = Instant::now();
    for _ in 0..30 {
        assert!(throttle.take(Instant::now()).is_zero());
    }
    for _ in 0..40 {
        tokio::time::sleep(throttle.take(Instant::now())).await;
    }
    assert_eq!(start.elapsed().as_secs(), 2, "40 more at 20 a second");
}

fn guard() -> GuardLayer {
    let opts = Opts::new("rest_client_requests_total", "x");
    GuardLayer(Arc::new(Guard {
        host: "api:6443".to_owned(),
        requests: IntCounterVec::new(opts, &["code", "method", "host"]).unwrap(),
        in_flight: Semaphore::new(2),
        throttle: None,
    }))
}

fn get() -> Request<Body> {
    Request::get("/api").body(Body::empty()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_ends_and_is_counted() {
    let layer = guard();
    let hung = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, BoxError>>()
    });
    let start = Instant::now();
    let error = layer.layer(hung).oneshot(get()).await.unwrap_err();
    assert_eq!(start.elapsed(), HEAD_WITHIN);
    assert_eq!(error.to_string(), "no answer within 30 seconds");
    let failed = ["<error>", "GET", "api:6443"];
    assert_eq!(layer.0.requests.with_label_values(&failed).get(), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_bounded_and_counted_by_code() {
    let layer = guard();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (Arc::clone(&now), Arc::clone(&most));
    let slow = tower::service_fn(move |_: Request<Body>| {
        let (now, most) = counted.clone();
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, BoxError>(Response::new(Body::empty()))
        }
    });
    let service = layer.layer(slow);
    let all = (0..6).map(|_| service.clone().oneshot(get()));
    for answer in futures::future::join_all(all).await {
        answer.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(
        layer
            .0
            .requests
            .with_label_values(&["200", "GET", "api:6443"])
            .get(),
        6
    );
}
