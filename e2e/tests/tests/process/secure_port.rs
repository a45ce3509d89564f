//! The secure port: who may ask, what is told, which ports are open, and which certificate is shown.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use ccm_e2e_tests::{Caller, Idle, SCRAPERS, Who, listening_ports};
use ccm_envtest::{Authority, Manager, account_token, apply};
use ccm_testkit::eventually;
use serde_json::Value;

use super::{SOON, ends, line_with};

/// A Lease that its holder does not let go.
const HELD: &str = "\
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: held
  namespace: kube-system
spec:
  holderIdentity: somebody-else
  leaseDurationSeconds: 3600
  renewTime: \"2026-01-01T00:00:00.000000Z\"
";

async fn started(idle: &Idle, flags: &[&str]) -> Result<Manager> {
    let mut manager = Manager::start(&idle.options(flags).await?)?;
    manager.wait_until_ready(SOON).await?;
    Ok(manager)
}

/// REQ-APP-08, REQ-APP-11, REQ-APP-17, REQ-APP-27
#[tokio::test]
async fn on_a_standby_health_is_open_and_the_rest_is_for_those_whom_the_cluster_lets() -> Result<()>
{
    let idle = Idle::new("held").await?;
    apply(&idle.client, HELD).await?;
    apply(&idle.client, SCRAPERS).await?;
    let scraper = account_token(&idle.client, "default", "scraper").await?;
    let nobody = account_token(&idle.client, "default", "nobody").await?;
    let pair = |name: &str, pair: ccm_envtest::Pair| {
        let certificate = idle.write(&format!("{name}.crt"), &pair.certificate)?;
        anyhow::Ok((certificate, idle.write(&format!("{name}.key"), &pair.key)?))
    };
    let user = "scraper-with-a-certificate";
    let (known, unknown, admin) = {
        let server = idle.api.server().await;
        let cluster = server.authority();
        (
            pair("known", cluster.client(user, &[])?)?,
            pair("unknown", cluster.client("stranger", &[])?)?,
            pair("admin", cluster.client("root", &["system:masters"])?)?,
        )
    };
    let foreign = pair("foreign", Authority::new("foreign")?.client(user, &[])?)?;

    let manager = started(&idle, &["--node-monitor-period=7s"]).await?;
    let line = line_with(&manager.process, &["waiting: another replica leads"]).await;
    assert!(line.contains("somebody-else"), "{line}");
    line_with(&manager.process, &["no permission is missing"]).await;

    let nobody_special = Caller::new(idle.port, Who::Anybody).await?;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(nobody_special.get(path).await?, (200, "ok".to_owned()));
    }
    let (_, checks) = nobody_special.get("/healthz?verbose").await?;
    assert_eq!(checks, "[+]leaderElection ok\nhealthz check passed\n");
    let who = [
        ("nobody in particular", Who::Anybody, 403),
        ("a token that nobody gave", Who::Token("made-up"), 401),
        ("an account without the right", Who::Token(&nobody), 403),
        ("an account with the right", Who::Token(&scraper), 200),
        (
            "a certificate with the right",
            Who::Certificate(&known.0, &known.1),
            200,
        ),
        (
            "a certificate without the right",
            Who::Certificate(&unknown.0, &unknown.1),
            403,
        ),
        (
            "a foreign certificate",
            Who::Certificate(&foreign.0, &foreign.1),
            401,
        ),
        (
            "an administrator",
            Who::Certificate(&admin.0, &admin.1),
            200,
        ),
    ];
    for (name, who, expected) in who {
        let (status, body) = Caller::new(idle.port, who).await?.get("/metrics").await?;
        assert_eq!(status, expected, "{name}: {body}");
        assert_eq!(
            status == 200,
            body.contains("kubernetes_build_info{"),
            "{name}: {body}"
        );
    }

    let may_read_metrics = Caller::new(idle.port, Who::Token(&scraper)).await?;
    let admin = Caller::new(idle.port, Who::Certificate(&admin.0, &admin.1)).await?;
    for path in ["/configz", "/debug/controllers", "/debug/flags/v"] {
        let (status, text) = may_read_metrics.get(path).await?;
        assert_eq!(status, 403, "{path}: {text}");
    }
    let (status, text) = admin.get("/configz").await?;
    assert_eq!(status, 200);
    let configz: Value = serde_json::from_str(&text)?;
    let at = |path: &str| {
        let pointer = format!("/cloudcontrollermanager.config.k8s.io/{path}");
        configz.pointer(&pointer).cloned().unwrap_or_default()
    };
    assert_eq!(
        at("apiVersion"),
        "cloudcontrollermanager.config.k8s.io/v1alpha1"
    );
    assert_eq!(at("NodeLifecycleController/NodeMonitorPeriod"), "7s");
    assert_eq!(
        at("NodeLifecycleController/ConcurrentNodeLifecycleSyncs"),
        1
    );
    assert_eq!(at("Generic/LeaderElection/resourceName"), "held");
    let (status, text) = admin.get("/debug/controllers").await?;
    assert_eq!((status, text.as_str()), (200, "[]"));
    assert_eq!(nobody_special.get("/healthz/leaderElection").await?.0, 403);
    assert_eq!(admin.get("/healthz/leaderElection").await?.0, 404);
    Ok(())
}

/// REQ-APP-19, REQ-APP-24
#[tokio::test]
async fn only_the_ports_of_the_flags_are_open() -> Result<()> {
    let idle = Idle::new("ports").await?;
    let ports = async |flags: &[&str], open: &[u16]| {
        let manager = Manager::start(&idle.options(flags).await?)?;
        line_with(&manager.process, &["waiting for the lease"]).await;
        let id = manager.process.id().context("it has ended")?;
        let health: u16 = manager
            .health_address()
            .rsplit(':')
            .next()
            .context("no port")?
            .parse()?;
        // 0 stands for the port of health.
        let open = open
            .iter()
            .map(|&port| if port == 0 { health } else { port });
        let (open, found): (BTreeSet<u16>, _) = (open.collect(), listening_ports(id)?);
        ensure!(found == open, "{flags:?}: {found:?} and not {open:?}");
        let mut manager = manager;
        manager.process.signal("TERM").await?;
        let status = manager.process.wait(SOON).await?;
        ensure!(status.code() == Some(0), "{status}");
        anyhow::Ok(())
    };
    ports(&["--health-bind-address="], &[idle.port]).await?;
    ports(&["--health-bind-address=", "--secure-port=0"], &[]).await?;
    ports(&["--secure-port=0"], &[0]).await?;
    ports(&["--webhooks="], &[0, idle.port]).await
}

/// REQ-APP-20
#[tokio::test]
async fn a_certificate_that_is_replaced_on_disk_is_shown_soon() -> Result<()> {
    let idle = Idle::new("certificates").await?;
    let (old, new) = (Authority::new("old")?, Authority::new("new")?);
    let trust = |name: &str, authority: &Authority| idle.write(name, authority.certificate());
    let (trusts_old, trusts_new) = (trust("old.ca", &old)?, trust("new.ca", &new)?);
    let write = |authority: &Authority| {
        let pair = authority.server()?;
        let key = idle.write("serving.key", &pair.key)?;
        anyhow::Ok((idle.write("serving.crt", &pair.certificate)?, key))
    };
    let (certificate, key) = write(&old)?;
    let flags = [
        format!("--tls-cert-file={}", certificate.display()),
        format!("--tls-private-key-file={}", key.display()),
    ];
    let manager = started(&idle, &[&flags[0], &flags[1]]).await?;
    let answers = async |authority| {
        let caller = Caller::believing(idle.port, authority).await?;
        anyhow::Ok(caller.get("/healthz").await?.0)
    };
    assert_eq!(answers(&trusts_old).await?, 200);
    assert!(answers(&trusts_new).await.is_err());

    write(&new)?;
    eventually("the new certificate is shown", SOON, || async {
        let status = answers(&trusts_new)
            .await
            .map_err(|error| format!("{error:#}"))?;
        (status == 200)
            .then_some(())
            .ok_or_else(|| status.to_string())
    })
    .await;
    assert!(answers(&trusts_old).await.is_err());

    // Half a pair is not used.
    idle.write("serving.crt", &old.server()?.certificate)?;
    line_with(
        &manager.process,
        &["WARN", "the certificate does not match the key"],
    )
    .await;
    assert_eq!(answers(&trusts_new).await?, 200);
    Ok(())
}

/// REQ-APP-28
#[tokio::test]
async fn a_certificate_that_does_not_match_its_key_is_named_with_its_flags() -> Result<()> {
    let idle = Idle::new("mismatch").await?;
    let authority = Authority::new("test")?;
    let certificate = idle.write("a.crt", &authority.server()?.certificate)?;
    let key = idle.write("b.key", &authority.server()?.key)?;
    let flags = [
        format!("--tls-cert-file={}", certificate.display()),
        format!("--tls-private-key-file={}", key.display()),
    ];
    let options = idle.options(&[&flags[0], &flags[1]]).await?;
    let (status, manager) = ends(&options).await?;
    assert_eq!(status.code(), Some(1));
    let parts = [
        "--tls-cert-file",
        "a.crt",
        "--tls-private-key-file",
        "b.key",
        "the certificate does not match the key",
    ];
    line_with(&manager.process, &parts).await;
    let log = manager.process.output();
    assert!(!log.contains("API server reached"), "{log}");
    Ok(())
}

/// REQ-APP-28
#[tokio::test]
async fn a_port_that_is_taken_is_named_with_its_flag() -> Result<()> {
    let idle = Idle::new("taken").await?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", idle.port)).await?;
    let (status, manager) = ends(&idle.options(&[]).await?).await?;
    assert_eq!(status.code(), Some(1));
    let port = idle.port.to_string();
    line_with(
        &manager.process,
        &["--secure-port", &port, "--bind-address"],
    )
    .await;
    drop(listener);
    Ok(())
}

/// A replica waits this long at most until the API server no longer knows a token: it remembers
/// one for ten seconds.
const TOKEN_GONE: Duration = Duration::from_secs(40);

/// A token in a file is read again as soon as the API server refuses the one in use.
#[tokio::test]
async fn a_token_that_is_no_longer_valid_is_told_and_replaced_from_its_file() -> Result<()> {
    let idle = Idle::new("renewed").await?;
    let mut options = idle.options(&[]).await?;
    let token_file = idle.write("token", &idle.token)?;
    let text = std::fs::read_to_string(&options.kubeconfig)?;
    let token = serde_json::json!(idle.token).to_string();
    let text = text.replace(
        &format!("\"token\": {token}"),
        &format!("\"tokenFile\": {}", serde_json::json!(token_file)),
    );
    ensure!(text.contains("tokenFile"), "{text}");
    options.kubeconfig = idle.write("kubeconfig-with-file", &text)?;
    let mut manager = Manager::start(&options)?;
    line_with(&manager.process, &["leading", &idle.name]).await;

    forget_account(&idle).await?;
    let token = account_token(&idle.client, "kube-system", &idle.name).await?;
    idle.write("token", &token)?;
    let parts = ["refused the token", "token file"];
    eventually("the refusal is told", TOKEN_GONE, || async {
        let log = manager.process.output();
        let told = log
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        told.then_some(()).ok_or(log)
    })
    .await;
    // Longer than the lease could be held without a renewal.
    let start = tokio::time::Instant::now();
    while start.elapsed() < Duration::from_secs(11) {
        manager.process.check_running()?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let log = manager.process.output();
    assert!(!log.contains("lost the lease"), "{log}");
    assert!(
        !log.contains(&idle.token) && !log.contains(&token),
        "a token is in the log"
    );
    Ok(())
}

/// A token that stands in the kubeconfig itself cannot be replaced: the lease is lost, the process
/// ends, and says why.
///
/// REQ-APP-12
#[tokio::test]
async fn a_token_that_expires_for_good_ends_the_leader_with_its_reason() -> Result<()> {
    let idle = Idle::new("expired").await?;
    let quick = [
        "--leader-elect-lease-duration=4s",
        "--leader-elect-renew-deadline=3s",
        "--leader-elect-retry-period=500ms",
    ];
    let mut manager = Manager::start(&idle.options(&quick).await?)?;
    line_with(&manager.process, &["leading", &idle.name]).await;
    forget_account(&idle).await?;
    let status = manager.process.wait(TOKEN_GONE).await?;
    assert_eq!(status.code(), Some(1));
    line_with(&manager.process, &["lost the lease", "Unauthorized"]).await;
    Ok(())
}

/// Tokens of an account die with it.
async fn forget_account(idle: &Idle) -> Result<()> {
    let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
        kube::Api::namespaced(idle.client.clone(), "kube-system");
    accounts.delete(&idle.name, &Default::default()).await?;
    Ok(())
}
