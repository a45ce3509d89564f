//! Who may see what.

use ccm_kubesim::{Fault, Outage, Target, Verb};
use tokio::time::Instant;

use super::*;

/// Settings with these authorities in files, which live as long as the folder.
fn with_files(
    clients: Option<&Authority>,
    proxies: Option<(&Authority, &[&str])>,
) -> (tempfile::TempDir, AuthenticationSettings) {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = authentication();
    let write = |name: &str, authority: &Authority| {
        let path = folder.path().join(name);
        std::fs::write(&path, &authority.pem).unwrap();
        path
    };
    settings.client_ca = clients.map(|authority| write("clients.crt", authority));
    if let Some((authority, names)) = proxies {
        settings.request_header.client_ca = Some(write("proxies.crt", authority));
        settings.request_header.allowed_names = names.iter().map(|n| (*n).to_owned()).collect();
    }
    (folder, settings)
}

/// REQ-APP-08, REQ-APP-10
#[tokio::test(start_paused = true)]
async fn anybody_may_ask_for_health() {
    let world = World::new(authentication()).await;
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = world.get(path, None, &[]).await;
        assert_eq!(answer, (200, "ok".to_owned()), "{path}");
    }
    world.health.add("leaderElection", || false);
    let (status, text) = world.get("/healthz", None, &[]).await;
    assert_eq!(status, 500);
    assert!(text.starts_with("[-]leaderElection failed"), "{text}");
    assert_eq!(world.reviews(""), 0);
}

/// REQ-APP-11
#[tokio::test(start_paused = true)]
async fn metrics_are_for_those_who_may_get_them() {
    let world = World::new(authentication()).await;
    let (status, text) = world.get("/metrics", None, &[]).await;
    assert_eq!(status, 403);
    let refusal: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        refusal["message"],
        "forbidden: User \"system:anonymous\" cannot get path \"/metrics\""
    );
    assert_eq!(refusal["reason"], "Forbidden");
    assert_eq!(world.with_token("/metrics", STRANGER).await.0, 403);
    let (status, text) = world.with_token("/metrics", SCRAPER).await;
    assert_eq!(status, 200);
    assert!(text.contains("apiserver_delegated_authz_request_total"));
    // The right to one path is none to another.
    assert_eq!(world.with_token("/configz", SCRAPER).await.0, 403);
    assert_eq!(world.with_token("/no-such-path", SCRAPER).await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_token_is_refused_everywhere_and_never_repeated() {
    let world = World::new(authentication()).await;
    for path in ["/metrics", "/healthz"] {
        let (status, text) = world.with_token(path, "hunter2").await;
        assert_eq!(status, 401, "{path}");
        assert!(
            text.contains("\"reason\":\"Unauthorized\"") && !text.contains("hunter2"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_certificate_names_user_and_groups() {
    let authority = Authority::new("cluster");
    let (_folder, settings) = with_files(Some(&authority), None);
    let world = World::new(settings).await;
    let admin = authority.client("admin", &["system:masters"]);
    assert_eq!(world.get("/metrics", Some(&admin), &[]).await.0, 200);
    assert_eq!(world.get("/configz", Some(&admin), &[]).await.0, 200);
    assert_eq!(world.get("/no-such-path", Some(&admin), &[]).await.0, 404);
    assert_eq!(world.reviews("subjectaccessreviews"), 0);
    let by_name = authority.client("scraper", &[]);
    assert_eq!(world.get("/metrics", Some(&by_name), &[]).await.0, 200);
    let by_group = authority.client("jane", &["dev", "readers"]);
    assert_eq!(world.get("/metrics", Some(&by_group), &[]).await.0, 200);
    let nobody = authority.client("jane", &["dev"]);
    let (status, text) = world.get("/metrics", Some(&nobody), &[]).await;
    assert_eq!(status, 403);
    assert!(text.contains("User \\\"jane\\\" cannot get"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn certificates_that_prove_nothing_are_refused() {
    let authority = Authority::new("cluster");
    let (_folder, settings) = with_files(Some(&authority), None);
    let world = World::new(settings).await;
    let masters: &[&str] = &["system:masters"];
    let expired = authority.signed("admin", masters, |params| {
        params.not_after = rcgen::date_time_ymd(2026, 5, 31);
    });
    let not_yet = authority.signed("admin", masters, |params| {
        params.not_before = rcgen::date_time_ymd(2026, 6, 2);
    });
    let of_a_server = authority.signed("admin", masters, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let foreign = Authority::new("cluster").client("admin", masters);
    for (what, pair) in [
        ("expired", expired),
        ("not yet valid", not_yet),
        ("of a server", of_a_server),
        ("foreign", foreign),
    ] {
        let (status, _) = world.get("/healthz", Some(&pair), &[]).await;
        assert_eq!(status, 401, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_with_another_key_does_not_survive_the_handshake() {
    let authority = Authority::new("cluster");
    let (_folder, settings) = with_files(Some(&authority), None);
    let world = World::new(settings).await;
    let thief = ClientPair {
        chain: authority.client("admin", &["system:masters"]).chain,
        key: authority.client("thief", &[]).key,
    };
    let key = PrivateKeyDer::try_from(thief.key).unwrap();
    let signer = ring::default_provider()
        .key_provider
        .load_private_key(key)
        .unwrap();
    let mut config = trusting(None);
    let stolen = rustls::sign::CertifiedKey::new(thief.chain, signer);
    config.client_auth_cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(stolen));
    let stream = world.connect(config).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    assert!(sender.send_request(request("/healthz", &[])).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn without_an_authority_a_certificate_counts_for_nothing() {
    let world = World::new(authentication()).await;
    let admin = Authority::new("x").client("admin", &["system:masters"]);
    assert_eq!(world.get("/healthz", Some(&admin), &[]).await.0, 200);
    assert_eq!(world.get("/metrics", Some(&admin), &[]).await.0, 403);
}

const TOLD: &[(&str, &str)] = &[("x-remote-user", "jane"), ("x-remote-group", "readers")];

#[tokio::test(start_paused = true)]
async fn headers_are_believed_of_an_allowed_proxy_only() {
    let (proxies, clients) = (Authority::new("proxies"), Authority::new("clients"));
    let (_folder, settings) = with_files(Some(&clients), Some((&proxies, &["front-proxy"])));
    let world = World::new(settings).await;
    let proxy = proxies.client("front-proxy", &[]);
    assert_eq!(world.get("/metrics", Some(&proxy), TOLD).await.0, 200);
    // Without a certificate the headers are ignored.
    let (status, text) = world.get("/metrics", None, TOLD).await;
    assert_eq!(status, 403);
    assert!(text.contains("system:anonymous"), "{text}");
    // Another name of the same authority.
    let other = proxies.client("other", &[]);
    assert_eq!(world.get("/metrics", Some(&other), TOLD).await.0, 401);
    // The name, but of the authority of plain clients: their own name counts.
    let client = clients.client("front-proxy", &[]);
    let (status, text) = world.get("/metrics", Some(&client), TOLD).await;
    assert_eq!(status, 403);
    assert!(text.contains("User \\\"front-proxy\\\""), "{text}");
    // A master by header is one.
    let told = [
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
    ];
    assert_eq!(world.get("/configz", Some(&proxy), &told).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn answers_of_reviews_are_kept_for_their_time() {
    let world = World::new(authentication()).await;
    let asked = || {
        let kinds = ["tokenreviews", "subjectaccessreviews"];
        kinds.map(|kind| world.reviews(kind))
    };
    let all = futures::future::join_all((0..10).map(|_| world.with_token("/metrics", SCRAPER)));
    assert!(all.await.iter().all(|(status, _)| *status == 200));
    assert_eq!(asked(), [1, 1]);
    // Refusals too.
    world.with_token("/metrics", "wrong").await;
    world.with_token("/metrics", "wrong").await;
    world.get("/metrics", None, &[]).await;
    world.get("/metrics", None, &[]).await;
    assert_eq!(asked(), [2, 2]);
    tokio::time::advance(Duration::from_secs(11)).await;
    world.with_token("/metrics", SCRAPER).await;
    assert_eq!(asked(), [3, 3]);
}

#[tokio::test(start_paused = true)]
async fn without_an_api_server_health_is_told_and_nothing_else() {
    let world = World::new(authentication()).await;
    world.sim.faults().unavailable(Outage::Refused);
    let began = Instant::now();
    let (status, text) = world.get("/metrics", None, &[]).await;
    assert_eq!(status, 500);
    assert!(
        text.starts_with("Internal Server Error: \"/metrics\": no answer from the API server"),
        "{text}"
    );
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(world.get("/healthz", None, &[]).await.0, 200);
    assert_eq!(world.with_token("/metrics", SCRAPER).await.0, 401);
    assert_eq!(
        world.series("apiserver_delegated_authz_request_total"),
        ["apiserver_delegated_authz_request_total{code=\"<error>\"} 5"]
    );
    world.sim.faults().available();
    // A failure is not kept.
    assert_eq!(world.with_token("/metrics", SCRAPER).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_review_is_tried_again_and_given_up_after_ten_seconds() {
    let world = World::new(authentication()).await;
    let reviews = Target::new(Verb::Create, "tokenreviews");
    world
        .sim
        .faults()
        .fail_next(2, reviews.clone(), Fault::Internal);
    assert_eq!(world.with_token("/metrics", SCRAPER).await.0, 200);
    assert_eq!(
        world.series("apiserver_delegated_authn_request_total"),
        [
            "apiserver_delegated_authn_request_total{code=\"201\"} 1",
            "apiserver_delegated_authn_request_total{code=\"500\"} 2",
        ]
    );
    // A final no is not asked again.
    world
        .sim
        .faults()
        .fail_next(1, reviews.clone(), Fault::Forbidden);
    assert_eq!(world.with_token("/metrics", STRANGER).await.0, 401);
    let late = Fault::Delay(Duration::from_secs(60));
    world.sim.faults().fail_next(1, reviews, late);
    let began = Instant::now();
    assert_eq!(world.with_token("/metrics", "another").await.0, 401);
    assert_eq!(began.elapsed().as_secs(), 10);
    let count = world.series("apiserver_delegated_authn_request_duration_seconds_count");
    assert_eq!(count.len(), 4, "{count:?}");
}

#[tokio::test(start_paused = true)]
async fn without_clients_tokens_are_anonymous_and_only_health_is_told() {
    let world = World::start(serving(), authentication(), api_server(), None)
        .await
        .unwrap();
    assert_eq!(world.with_token("/healthz", SCRAPER).await.0, 200);
    let (status, text) = world.with_token("/metrics", SCRAPER).await;
    assert_eq!(status, 403);
    assert!(text.contains("system:anonymous"), "{text}");
    assert_eq!(world.reviews(""), 0);
}
