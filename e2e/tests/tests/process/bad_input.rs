//! What a user can get wrong: it is named, with the way out, and stops nothing else.

use std::time::Duration;

use anyhow::{Context, Result};
use ccm_e2e_tests::{Bench, node_named, service, tainted};
use ccm_testkit::always;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{Files, ends, line_with, manager};

/// REQ-APP-28
#[tokio::test]
async fn an_unknown_flag_is_named_with_the_nearest_known_one() -> Result<()> {
    let mut options = Files::new()?.closed()?;
    options.flags.push("--node-monitor-perod=5s".to_owned());
    let (status, manager) = ends(&options).await?;
    assert_eq!(status.code(), Some(1));
    line_with(
        &manager.process,
        &[
            "--node-monitor-perod",
            "did you mean --node-monitor-period?",
        ],
    )
    .await;
    Ok(())
}

#[tokio::test]
async fn a_value_that_does_not_parse_is_named_with_its_flag() -> Result<()> {
    let mut options = Files::new()?.closed()?;
    options.flags.push("--node-monitor-period=five".to_owned());
    options
        .flags
        .push("--node-deletion-confirmations=0".to_owned());
    let (status, manager) = ends(&options).await?;
    assert_eq!(status.code(), Some(1));
    line_with(&manager.process, &["node-monitor-period", "five"]).await;
    Ok(())
}

/// REQ-APP-06, REQ-APP-28
#[tokio::test]
async fn a_malformed_cloud_config_names_file_line_section_and_key() -> Result<()> {
    for (text, parts) in [
        (
            "[Global]\nRegion = us-west-2\nDisableSecurityGroupIngress = maybe\n",
            &[
                "line 3",
                "[Global]",
                "DisableSecurityGroupIngress",
                "maybe",
                "true or false",
            ][..],
        ),
        (
            "[Global]\nRegion = us-west-2\nVPC = \"vpc-1\n",
            &["line 3", "[global]", "VPC"],
        ),
        ("Region = us-west-2\n", &["line 1", "Region"]),
        (
            "[Global]\nRegion = us-west-2\n[ServiceOverride \"1\"]\nService = EC2\n",
            &["ServiceOverride"],
        ),
    ] {
        let files = Files::new()?;
        let mut options = files.closed()?;
        options.cloud_config = files.write("broken.conf", text)?;
        let (status, manager) = ends(&options).await?;
        assert_eq!(status.code(), Some(255), "{text}");
        let parts = [&["could not init cloud provider"], parts].concat();
        let line = line_with(&manager.process, &parts).await;
        assert!(parts.len() < 3 || line.contains("broken.conf"), "{line}");
    }
    Ok(())
}

/// The region comes from the file or from the instance metadata service. Where there is neither it
/// is said which key to set.
#[tokio::test]
async fn a_missing_region_is_named_with_its_key() -> Result<()> {
    let files = Files::new()?;
    let mut options = files.closed()?;
    let text = "[Global]\nVPC = vpc-1\nSubnetID = subnet-1\nKubernetesClusterID = kite\n";
    options.cloud_config = files.write("cloud.conf", text)?;
    let (status, manager) = ends(&options).await?;
    assert_eq!(status.code(), Some(255));
    line_with(
        &manager.process,
        &["region", "set Region in the cloud config"],
    )
    .await;
    Ok(())
}

#[tokio::test]
async fn an_unreadable_kubeconfig_is_named() -> Result<()> {
    let files = Files::new()?;
    let mut options = files.closed()?;
    options.kubeconfig = files.dir.path().join("nowhere");
    let (status, manager) = ends(&options).await?;
    assert_eq!(status.code(), Some(1));
    line_with(
        &manager.process,
        &["--kubeconfig", "nowhere", "cannot be read"],
    )
    .await;

    options.kubeconfig = files.write("broken", "users: [\n")?;
    let (status, manager) = ends(&options).await?;
    assert_eq!(status.code(), Some(1));
    line_with(&manager.process, &["--kubeconfig", "broken"]).await;
    Ok(())
}

/// REQ-NODE-21, REQ-LIFE-04, CASE-NODE-10
#[tokio::test]
async fn a_malformed_provider_id_on_one_node_leaves_the_others_served() -> Result<()> {
    let mut bench = Bench::new(2).await?;
    bench
        .create_node(&node_named("odd", "aws:///us-west-2a"), "False")
        .await?;
    bench.start_manager(&["--node-monitor-period=1s"]).await?;
    let name = bench.dns_name(&bench.machines()[0])?;
    bench.create_node(&tainted(&name), "True").await?;
    bench.initialised(&name).await;
    bench
        .create_service(&service("web", &[(80, 30080)]))
        .await?;
    bench.hostname("web").await;
    let odd = bench.nodes().get("odd").await?;
    let id = odd.spec.and_then(|spec| spec.provider_id);
    assert_eq!(id.as_deref(), Some("aws:///us-west-2a"));
    let log = bench.log();
    assert!(log.contains("aws:///us-west-2a"), "{log}");
    bench.delete_service("web").await
}

/// REQ-SVC-17
#[tokio::test]
async fn a_bad_annotation_is_a_warning_with_its_value_and_the_accepted_form() -> Result<()> {
    const CROSS_ZONE: &str =
        "service.beta.kubernetes.io/aws-load-balancer-cross-zone-load-balancing-enabled";
    const INTERVAL: &str = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval";
    let mut bench = Bench::new(1).await?;
    bench.start_manager(&[]).await?;
    let names = bench.join_all().await?;
    bench.initialised(&names[0]).await;
    let with = |name: &str, port, key: &str, value: &str| {
        let mut bad = service(name, &[(80, port)]);
        let annotations = bad.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
        bad
    };
    let bad = [
        ("bool", CROSS_ZONE, "maybe", "true"),
        ("number", INTERVAL, "often", "number"),
    ];
    for (at, (name, key, value, _)) in bad.iter().enumerate() {
        bench
            .create_service(&with(name, 30081 + i32::try_from(at)?, key, value))
            .await?;
    }
    bench
        .create_service(&service("good", &[(80, 30080)]))
        .await?;
    bench.hostname("good").await;
    for (name, key, value, accepted) in bad {
        let message = bench.event(name, "SyncLoadBalancerFailed").await;
        for part in [key, value, accepted] {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
        let events = bench.events(name).await?;
        let warned = events.iter().filter(|(kind, _, _, _)| kind == "Warning");
        // Retries back off from five seconds on: no storm.
        let count: i32 = warned.map(|(_, _, _, count)| count).sum();
        assert!(count <= 3, "{events:?}");
        // Corrected, it is served.
        let patch = json!({ "metadata": { "annotations": { key: null } } });
        bench.patch_service(name, patch).await?;
        bench.hostname(name).await;
    }
    for name in ["bool", "number", "good"] {
        bench.delete_service(name).await?;
    }
    bench.nothing_left().map_err(anyhow::Error::msg)
}

/// The API server lets no Service without ports through; these it does.
#[tokio::test]
async fn protocols_that_a_network_load_balancer_cannot_do_are_a_warning() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    bench.start_manager(&[]).await?;
    let names = bench.join_all().await?;
    bench.initialised(&names[0]).await;
    let with = |name: &str, ports: &[(i32, &str)]| -> Result<Service> {
        let mut odd = service(name, &[(80, 30080)]);
        let spec = odd.spec.as_mut().context("no spec")?;
        spec.ports = Some(
            ports
                .iter()
                .map(|(port, protocol)| k8s_openapi::api::core::v1::ServicePort {
                    name: Some(format!("p{port}")),
                    port: *port,
                    protocol: Some((*protocol).to_owned()),
                    ..Default::default()
                })
                .collect(),
        );
        Ok(odd)
    };
    bench
        .create_service(&with("sctp", &[(80, "SCTP")])?)
        .await?;
    let mixed = with("mixed", &[(80, "TCP"), (53, "UDP")])?;
    bench.create_service(&mixed).await?;
    bench.create_service(&with("good", &[(53, "UDP")])?).await?;
    bench.hostname("good").await;
    let message = bench.event("sctp", "SyncLoadBalancerFailed").await;
    assert!(message.contains("SCTP"), "{message}");
    let message = bench.event("mixed", "SyncLoadBalancerFailed").await;
    assert!(message.contains("mixed protocol"), "{message}");
    // Nothing was made for them, and their deletion asks for nothing.
    let state = bench.cloud.sim.aws().snapshot();
    assert_eq!(state.load_balancers.len(), 1);
    for name in ["sctp", "mixed", "good"] {
        bench.delete_service(name).await?;
    }
    bench.nothing_left().map_err(anyhow::Error::msg)
}

/// U4: a Node of another cloud's kind and an annotation nobody reads cause no write.
#[tokio::test]
async fn what_is_not_for_us_causes_no_write() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    let names = bench.join_all().await?;
    bench
        .start_manager(&[
            "--node-monitor-period=1s",
            "--node-status-update-frequency=1s",
        ])
        .await?;
    bench.initialised(&names[0]).await;
    bench.event(&names[0], "Synced").await;
    let (audit, calls) = (
        bench.api.audit_mark().await?,
        bench.cloud.sim.calls().mark(),
    );
    let elsewhere = node_named("elsewhere", "kwok://elsewhere");
    bench.create_node(&elsewhere, "Unknown").await?;
    let patch = json!({ "metadata": { "annotations": { "unknown.example/key": "value" } } });
    let params = PatchParams::default();
    bench
        .nodes()
        .patch(&names[0], &params, &Patch::Merge(&patch))
        .await?;
    always("nothing is written", Duration::from_secs(4), || async {
        let requests = bench.api.requests_since(audit).await;
        let requests = requests.map_err(|error| error.to_string())?;
        let writes: Vec<_> = requests.iter().filter(|r| r.is_write()).collect();
        let cloud = bench.cloud.sim.calls().writes_since(calls);
        if writes.is_empty() && cloud.is_empty() {
            Ok(())
        } else {
            Err(format!("{writes:?} {cloud:?}"))
        }
    })
    .await;
    assert!(manager(&bench)?.process.id().is_some());
    Ok(())
}
