//! A day in the life of the manager, and every request that it took.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use ccm_cloudsim::Fault;
use ccm_e2e_tests::{Bench, Caller, Request, SCRAPERS, Who, service, tainted};
use ccm_envtest::{Manager, account_token, apply, free_port};
use kube::api::DeleteParams;
use serde_json::json;

use super::{ACCOUNTS, bench_with, compare, on_aws};

const SOON: Duration = Duration::from_secs(60);

/// The process with all that it has on AWS: leader election, the secure port, node IPAM.
pub(crate) fn flags(bench: &Bench, port: u16) -> Vec<String> {
    let access = bench.api.manager_kubeconfig.display();
    vec![
        "--leader-elect=true".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--authentication-kubeconfig={access}"),
        format!("--authorization-kubeconfig={access}"),
        "--controllers=*,nodeipam".to_owned(),
        "--allocate-node-cidrs".to_owned(),
        "--cluster-cidr=10.64.0.0/16".to_owned(),
        "--node-monitor-period=1s".to_owned(),
    ]
}

/// From the first start in a cluster to the end: Nodes join, one goes, a Service comes and goes,
/// somebody reads metrics. What does not go well at once is part of it.
async fn a_day(bench: &mut Bench, more: &[&str]) -> Result<(Vec<Request>, String)> {
    apply(&bench.client, SCRAPERS).await?;
    let scraper = account_token(&bench.client, "default", "scraper").await?;
    let mark = bench.api.audit_mark().await?;
    let port = free_port()?;
    let mut all = flags(bench, port);
    all.extend(more.iter().map(|&flag| flag.to_owned()));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    bench.start_manager(&all).await?;

    let scraper = Caller::new(port, Who::Token(&scraper)).await?;
    let (status, text) = scraper.get("/metrics").await?;
    assert_eq!(status, 200, "{text}");

    // Others write the Nodes while the cloud is asked about them: the first patch conflicts.
    let latency = bench.cloud.sim.latency();
    latency.set("DescribeInstances", Duration::from_millis(1500));
    let mut names = Vec::new();
    for machine in bench.machines() {
        let name = bench.dns_name(machine)?;
        bench.create_node(&tainted(&name), "True").await?;
        names.push(name);
    }
    for name in &names {
        bench
            .node_until(name, "the Node is read", |node| node.metadata.uid.is_some())
            .await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        bench.set_ready(name, "False").await?;
        bench.set_ready(name, "True").await?;
    }
    for name in &names {
        bench.initialised(name).await;
        bench.event(name, "Synced").await;
    }
    latency.clear();

    // Tried twice: the event about the try is told again.
    let refused = Fault::error(400, "TooManyLoadBalancers", "limit");
    let faults = bench.cloud.sim.faults();
    faults
        .next("CreateLoadBalancer", 1, refused)
        .map_err(|error| anyhow!("{error}"))?;
    bench
        .create_service(&service("web", &[(80, 30080)]))
        .await?;
    bench.hostname("web").await;
    bench.event("web", "EnsuredLoadBalancer").await;

    // Of another class, with a finalizer like ours: who put it there is looked up.
    let mut foreign = service("foreign", &[(80, 30081)]);
    foreign.metadata.finalizers = Some(vec![
        "service.kubernetes.io/load-balancer-cleanup".to_owned(),
    ]);
    if let Some(spec) = &mut foreign.spec {
        spec.load_balancer_class = Some("example.com/other".to_owned());
    }
    bench.create_service(&foreign).await?;
    bench
        .services()
        .delete("foreign", &DeleteParams::default())
        .await?;

    let node = bench.lose_last(&names).await?;
    bench.node_gone(node).await;
    bench.event(node, "DeletingNode").await;
    bench.delete_service("web").await?;
    bench.event("web", "DeletedLoadBalancer").await;
    // The look at the other class is long done: it came before.
    let let_go = json!({ "metadata": { "finalizers": null } });
    bench.patch_service("foreign", let_go).await?;
    let manager = bench.manager.as_ref().context("no manager")?;
    let (_, metrics) = manager.get("/metrics").await?;
    assert!(!metrics.contains("ccm_missing_permissions{"), "{metrics}");
    let log = bench.log();
    bench.stop_manager().await?;
    Ok((bench.api.requests_since(mark).await?, log))
}

/// The role has what the manager asks for and nothing else: no request is denied, each is in the
/// table, and each row of the table is used.
#[tokio::test]
async fn under_the_role_of_the_table_nothing_is_denied_and_all_of_it_is_used() -> Result<()> {
    let options = on_aws(false);
    let mut bench = bench_with(&options, 2).await?;
    let (requests, log) = a_day(&mut bench, &[]).await?;
    assert!(log.contains("no permission is missing"), "{log}");
    compare(&requests, &options)
}

/// REQ-APP-22
#[tokio::test]
async fn with_own_accounts_each_controller_has_its_role_and_needs_all_of_it() -> Result<()> {
    let options = on_aws(true);
    let mut bench = bench_with(&options, 2).await?;
    let (requests, log) = a_day(&mut bench, &["--use-service-account-credentials"]).await?;
    for account in ACCOUNTS {
        let said = log
            .lines()
            .any(|line| line.contains("no permission is missing") && line.contains(account));
        assert!(said, "{account}: {log}");
    }
    compare(&requests, &options)
}

/// REQ-APP-22
#[tokio::test]
async fn a_permission_that_an_own_account_lacks_is_named_with_the_account() -> Result<()> {
    // The manager's own role has all that it needs, the accounts have none.
    let options = on_aws(true);
    let bench = bench_with(&options, 1).await?;
    let bindings: kube::Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> =
        kube::Api::all(bench.client.clone());
    bindings
        .delete(
            "cloud-controller-manager:node-controller",
            &DeleteParams::default(),
        )
        .await?;
    let mut all = flags(&bench, free_port()?);
    all.push("--use-service-account-credentials".to_owned());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut manager = Manager::start(&bench.manager_options(&all))?;
    manager.wait_until_ready(SOON).await?;
    let lines = super::missing::told(&manager, 4).await;
    for permission in [
        "get nodes",
        "patch nodes",
        "patch nodes/status",
        "delete nodes",
    ] {
        let named = lines.iter().any(|line| {
            line.contains(&format!("permission={permission} "))
                && line.contains("owner=\"node-controller\"")
        });
        assert!(named, "{permission}: {lines:#?}");
    }
    assert!(
        !lines.iter().any(|line| line.contains("service-controller")),
        "{lines:#?}"
    );
    Ok(())
}
