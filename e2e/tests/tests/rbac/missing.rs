//! What happens without a permission.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result};
use ccm_core::runtime::{check_permissions, permissions, rbac_manifest};
use ccm_e2e_tests::{Bench, service, tainted};
use ccm_envtest::{Manager, apply, free_port};
use ccm_testkit::{always, eventually};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::{Api, api::DeleteParams};

use super::{KUBE_SYSTEM, MANAGER_ACCOUNT, bench_with, day::flags, may, on_aws};

const SOON: Duration = Duration::from_secs(60);

/// Waits until so many missing permissions are told, and returns their lines.
pub(crate) async fn told(manager: &Manager, least: usize) -> Vec<String> {
    eventually("missing permissions are told", SOON, || async {
        let log = manager.process.output();
        let lines = log
            .lines()
            .filter(|line| line.contains("permission missing"));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        if lines.len() >= least {
            Ok(lines)
        } else {
            Err(log)
        }
    })
    .await
}

/// Waits until the API server denies this to the manager.
async fn until_denied(bench: &Bench, verb: &str, resource: &str) {
    eventually("it is denied", SOON, || async {
        let may = may(bench, verb, resource)
            .await
            .map_err(|error| error.to_string())?;
        (!may)
            .then_some(())
            .ok_or_else(|| format!("{verb} {resource} is allowed"))
    })
    .await;
}

/// Each permission of the table is asked for at the start and named when it is missing; the process
/// goes on, and works once they are given.
#[tokio::test]
async fn without_any_role_every_row_is_named_and_the_process_waits_for_it() -> Result<()> {
    let options = on_aws(false);
    let bench = bench_with(&options, 1).await?;
    let name = MANAGER_ACCOUNT.1;
    let everywhere: Api<ClusterRoleBinding> = Api::all(bench.client.clone());
    let here: Api<RoleBinding> = Api::namespaced(bench.client.clone(), KUBE_SYSTEM);
    everywhere.delete(name, &DeleteParams::default()).await?;
    here.delete(name, &DeleteParams::default()).await?;
    let client = bench.api.server().await.client_of("manager").await?;
    let table = permissions(&options);
    let questions: usize = table
        .iter()
        .map(|p| p.verbs.len() * p.names.len().max(1))
        .sum();
    let expected = eventually("everything is denied", SOON, || async {
        let missing = check_permissions(client.clone(), &table).await;
        if missing.len() == questions {
            Ok(missing)
        } else {
            Err(format!("{missing:?}"))
        }
    })
    .await;

    let mut all = flags(&bench, free_port()?);
    all.push("--authentication-tolerate-lookup-failure".to_owned());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut manager = Manager::start(&bench.manager_options(&all))?;
    let lines = told(&manager, questions).await;
    let (_, metrics) = manager.get("/metrics").await?;
    for missing in &expected {
        let named = lines.iter().any(|line| {
            line.contains(&format!(
                "permission={missing} needed_for=\"{}\"",
                missing.why
            ))
        });
        assert!(named, "{missing}: {lines:#?}");
        let labels = format!(
            "ccm_missing_permissions{{namespace=\"{}\",resource=\"{}",
            missing.namespace,
            missing.resource.split('/').next().unwrap_or_default(),
        );
        let counted = metrics.lines().any(|line| {
            line.starts_with(&labels)
                && line.contains(&format!("verb=\"{}\"", missing.verb))
                && line.ends_with(" 1")
        });
        assert!(counted, "{missing}: {metrics}");
    }
    assert_eq!(manager.get("/healthz").await?.0, 200);
    assert_eq!(manager.get("/readyz").await?.0, 503);

    bench.api.grant_manager(&options).await?;
    manager.wait_until_ready(SOON).await?;
    let node = bench.dns_name(bench.machines().first().context("no machine")?)?;
    bench.create_node(&tainted(&node), "True").await?;
    bench.initialised(&node).await;
    Ok(())
}

/// What the table says of `delete` on Nodes and of `patch` on `services/status`: without them dead
/// Nodes stay, and Services get no address. Nothing else suffers.
#[tokio::test]
async fn without_a_row_its_work_fails_with_the_reason_and_other_work_goes_on() -> Result<()> {
    let options = on_aws(false);
    let mut bench = bench_with(&options, 2).await?;
    let less = rbac_manifest(&options)
        .replace(
            "[get, list, watch, patch, delete]",
            "[get, list, watch, patch]",
        )
        .replace(
            "resources: [services/status]",
            "resources: [services/nothing]",
        );
    apply(&bench.client, &less).await?;
    until_denied(&bench, "delete", "nodes").await;
    until_denied(&bench, "patch", "services/status").await;
    let mark = bench.api.audit_mark().await?;
    let all = flags(&bench, free_port()?);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    bench.start_manager(&all).await?;
    let lines = told(bench.manager.as_ref().context("no manager")?, 2).await;
    for missing in [
        "permission=delete nodes ",
        "permission=patch services/status ",
    ] {
        assert!(
            lines.iter().any(|line| line.contains(missing)),
            "{missing}: {lines:#?}"
        );
    }
    assert_eq!(lines.len(), 2, "{lines:#?}");

    let names = bench.join_all().await?;
    for name in &names {
        bench.initialised(name).await;
    }
    let dead = bench.lose_last(&names).await?;
    let message = bench.event(dead, "DeletingNodeFailed").await;
    assert!(message.contains("forbidden"), "{message}");
    bench
        .create_service(&service("web", &[(80, 30080)]))
        .await?;
    let message = bench.event("web", "SyncLoadBalancerFailed").await;
    assert!(message.contains("forbidden"), "{message}");
    // No cloud object without a finalizer, and no Node deleted some other way.
    always(
        "nothing is done without the right",
        Duration::from_secs(1),
        || async {
            bench.nothing_left()?;
            let node = bench
                .nodes()
                .get_opt(dead)
                .await
                .map_err(|error| error.to_string())?;
            node.map(|_| ())
                .ok_or_else(|| "the Node is gone".to_owned())
        },
    )
    .await;
    let requests = bench.api.requests_since(mark).await?;
    let denied: BTreeSet<(&str, &str)> = requests
        .iter()
        .filter(|request| request.code == 403)
        .map(|request| (request.verb.as_str(), request.resource.as_str()))
        .collect();
    assert_eq!(
        denied,
        [("delete", "nodes"), ("patch", "services/status")].into()
    );
    Ok(())
}
