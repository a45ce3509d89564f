//! From the cloud taint to a Node that is ready for pods.

use std::time::Duration;

use anyhow::{Context, Result};
use ccm_cloudsim::{
    Fault,
    aws::{InstanceState, RunInstance},
};
use ccm_e2e_tests::{Bench, node, node_named, tainted};
use ccm_testkit::{always, eventually};
use futures::{StreamExt, TryStreamExt, future::try_join_all};
use k8s_openapi::api::core::v1::Node;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::{
    CLOUD_TAINT, FAST, SOON, addresses, asked, count_events, done, label, launch, lookups,
    provider_id, provider_id_of, register, register_as, taints, uid,
};

/// Every label of an initialised Node and where its value comes from.
fn assert_labels(node: &Node, zone: &str, machine_type: &str) {
    for (key, value) in [
        ("topology.kubernetes.io/zone", zone),
        ("failure-domain.beta.kubernetes.io/zone", zone),
        ("topology.kubernetes.io/region", "us-west-2"),
        ("failure-domain.beta.kubernetes.io/region", "us-west-2"),
        ("node.kubernetes.io/instance-type", machine_type),
        ("beta.kubernetes.io/instance-type", machine_type),
    ] {
        assert_eq!(label(node, key), Some(value), "{key}");
    }
    let zone_id = label(node, "topology.k8s.aws/zone-id").unwrap_or_default();
    assert!(zone_id.starts_with("usw2-az"), "{zone_id}");
}

/// REQ-NODE-01, REQ-NODE-02, REQ-NODE-03, REQ-NODE-07, REQ-NODE-15, REQ-NODE-19, REQ-NODE-20,
/// REQ-NODE-26, REQ-NODE-29
#[tokio::test]
async fn a_node_gets_provider_id_labels_addresses_and_loses_only_the_cloud_taint() -> Result<()> {
    let mut bench = Bench::new(3).await?;
    bench.start_manager(&FAST).await?;
    let audit = bench.api.audit_mark().await?;
    let machines = bench.machines().to_vec();
    let mut names = Vec::new();
    for (at, machine) in machines.iter().enumerate() {
        let name = bench.dns_name(machine)?;
        let mut taints = vec![
            json!({ "key": "team", "value": "blue", "effect": "NoSchedule" }),
            json!({ "key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule" }),
            // The key alone counts.
            json!({ "key": CLOUD_TAINT, "effect": "NoExecute" }),
            json!({ "key": "boot.example/wait", "effect": "NoExecute" }),
        ];
        let mut spec = json!({});
        match at {
            0 => {}
            1 => spec["providerID"] = json!(provider_id_of(&bench, machine)?),
            // Without the taint: not ours to initialise.
            _ => taints.retain(|taint| taint["key"] != CLOUD_TAINT),
        }
        spec["taints"] = json!(taints);
        let labels = json!({ "shelf": "upper", "topology.k8s.aws/other": "mine" });
        let new = node(json!({ "metadata": { "name": name, "labels": labels }, "spec": spec }));
        bench.create_node(&new, "True").await?;
        names.push(name);
    }
    for (machine, name) in machines.iter().zip(&names).take(2) {
        let instance = bench.cloud.sim.aws().instance(machine).context("machine")?;
        let private = instance.private_ip.context("private address")?;
        let public = instance.public_ip.context("public address")?;
        let dashed = public.to_string().replace('.', "-");
        let want = [
            format!("InternalIP {private}"),
            format!("ExternalIP {public}"),
            format!("InternalDNS {name}"),
            format!("Hostname {name}"),
            format!("ExternalDNS ec2-{dashed}.us-west-2.compute.amazonaws.com"),
        ];
        let ready = bench
            .node_until(name, "the Node has addresses", |node| {
                addresses(node) == want
            })
            .await;
        assert_eq!(taints(&ready), ["team", "boot.example/wait"]);
        let id = provider_id_of(&bench, machine)?;
        assert_eq!(provider_id(&ready), Some(id.as_str()));
        assert_labels(&ready, &instance.zone, "m5.large");
        assert_eq!(label(&ready, "shelf"), Some("upper"));
        assert_eq!(label(&ready, "topology.k8s.aws/other"), Some("mine"));
        let message = bench.event(name, "Synced").await;
        assert_eq!(message, "Node synced successfully");
    }
    // Several periodic passes later nothing was written once more.
    asked(&bench, 3).await;
    for name in names.iter().take(2) {
        assert_eq!(count_events(&bench, name, "Synced").await?, 1);
        let requests = bench.api.requests_since(audit).await?;
        let mut writes: Vec<String> = requests
            .iter()
            // Refused ones were computed from an older Node: the test writes too.
            .filter(|r| r.is_write() && r.name == *name && r.code != 409)
            .map(|request| format!("{} {}", request.verb, request.resource))
            .collect();
        writes.sort();
        assert_eq!(writes, ["patch nodes", "patch nodes/status"], "{name}");
        let node = bench.nodes().get(name).await?;
        let conditions = node.status.and_then(|status| status.conditions);
        let types: Vec<String> = conditions
            .into_iter()
            .flatten()
            .map(|condition| condition.type_)
            .collect();
        assert_eq!(types, ["Ready"]);
    }
    let left_alone = bench.nodes().get(&names[2]).await?;
    assert_eq!(provider_id(&left_alone), None);
    assert_eq!(label(&left_alone, "topology.kubernetes.io/zone"), None);
    assert_eq!(count_events(&bench, &names[2], "Synced").await?, 0);
    Ok(())
}

/// CASE-NODE-01: REQ-LIFE-20, REQ-NODE-04
#[tokio::test]
async fn a_node_that_is_still_being_initialised_is_not_deleted() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    bench.start_manager(&FAST).await?;
    // Four rounds of the life cycle pass before the first answer.
    let latency = bench.cloud.sim.latency();
    latency.set("DescribeInstances", Duration::from_secs(4));
    let name = bench.dns_name(&bench.machines()[0])?;
    let created = bench.create_node(&tainted(&name), "False").await?;
    let start = Instant::now();
    let ready = bench
        .node_until(&name, "the Node is initialised", |node| {
            taints(node).is_empty() && !addresses(node).is_empty()
        })
        .await;
    assert!(start.elapsed() < Duration::from_secs(15));
    assert_eq!(uid(&ready), uid(&created));
    let id = provider_id_of(&bench, &bench.machines()[0])?;
    assert_eq!(provider_id(&ready), Some(id.as_str()));
    assert_labels(&ready, "us-west-2a", "m5.large");
    bench.event(&name, "Synced").await;
    assert_eq!(count_events(&bench, &name, "DeletingNode").await?, 0);
    Ok(())
}

/// CASE-NODE-02: REQ-NODE-13, REQ-NODE-15, REQ-NODE-19, REQ-NODE-23
#[tokio::test]
async fn the_taint_goes_only_together_with_everything_else() -> Result<()> {
    let mut bench = Bench::new(0).await?;
    let machine = launch(&bench, RunInstance::default())?;
    let aws = bench.cloud.sim.aws();
    // Running, and no address is known yet: an interrupted start.
    done(aws.set_state(&machine, InstanceState::Terminated));
    done(aws.set_state(&machine, InstanceState::Running));
    let denied = Fault::error(403, "UnauthorizedOperation", "Not now.");
    done(
        bench
            .cloud
            .sim
            .faults()
            .next("DescribeInstances", 3, denied),
    );
    bench
        .start_manager(&["--node-status-update-frequency=1h"])
        .await?;
    let params = WatchParams::default();
    let mut history = bench.nodes().watch(&params, "0").await?.boxed();
    // A name that is the machine's id needs no look-up by name, for which the machine is not ready.
    bench.create_node(&tainted(&machine), "True").await?;
    let mark = bench.cloud.sim.calls().start();
    always("the taint stays", Duration::from_secs(5), || async {
        let node = bench.nodes().get(&machine).await;
        let node = node.map_err(|error| error.to_string())?;
        if taints(&node) == [CLOUD_TAINT] && addresses(&node).is_empty() {
            Ok(())
        } else {
            Err(format!("{node:?}"))
        }
    })
    .await;
    let tries = lookups(&bench, mark).len();
    // 5 ms, doubled each time: about ten tries in five seconds.
    assert!((4..=16).contains(&tries), "{tries} tries");
    done(bench.cloud.sim.aws().attach_eni(&machine, 0, &[]));
    bench.initialised(&machine).await;
    bench.event(&machine, "Synced").await;

    let mut untainted: Option<(Instant, Node)> = None;
    let addressed = timeout(SOON, async {
        while let Some(event) = history.try_next().await? {
            let (WatchEvent::Added(node) | WatchEvent::Modified(node)) = event else {
                continue;
            };
            let now = Instant::now();
            if taints(&node).is_empty() && untainted.is_none() {
                untainted = Some((now, node.clone()));
            }
            if addresses(&node)
                .iter()
                .any(|address| address.starts_with("InternalIP"))
            {
                return Ok((now, node));
            }
        }
        anyhow::bail!("the watch ended")
    })
    .await??;
    let (first, node) = untainted.context("the addresses came before the taint went")?;
    assert_labels(&node, "us-west-2a", "m5.large");
    let id = provider_id_of(&bench, &machine)?;
    assert_eq!(provider_id(&node), Some(id.as_str()));
    assert!(addressed.0 - first < Duration::from_secs(2));
    assert_eq!(count_events(&bench, &machine, "Synced").await?, 1);
    Ok(())
}

/// CASE-NODE-07: REQ-NODE-28
#[tokio::test]
async fn a_resized_machine_changes_labels_only_on_request() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    let machine = bench.machines()[0].clone();
    let refresh = [FAST[0], "--node-status-update-frequency=500ms"];
    bench.start_manager(&refresh).await?;
    let name = bench.join_all().await?.remove(0);
    bench.initialised(&name).await;
    let user = json!({ "metadata": { "labels": {
        "shelf": "upper",
        "topology.k8s.aws/network-node-layer-9": "gone",
    } } });
    let params = PatchParams::default();
    bench
        .nodes()
        .patch(&name, &params, &Patch::Merge(&user))
        .await?;
    bench.event(&name, "Synced").await;
    asked(&bench, 2).await;

    let audit = bench.api.audit_mark().await?;
    let aws = bench.cloud.sim.aws();
    done(aws.set_instance_type(&machine, "m6.2xlarge"));
    asked(&bench, 5).await;
    let node = bench.nodes().get(&name).await?;
    assert_labels(&node, "us-west-2a", "m5.large");
    let requests = bench.api.requests_since(audit).await?;
    assert_eq!(requests.iter().filter(|r| r.is_write()).count(), 0);

    bench.stop_manager().await?;
    let on_request = [refresh[0], refresh[1], "--node-label-refresh=true"];
    bench.start_manager(&on_request).await?;
    let node = bench
        .node_until(&name, "both type labels follow", |node| {
            label(node, "node.kubernetes.io/instance-type") == Some("m6.2xlarge")
        })
        .await;
    assert_labels(&node, "us-west-2a", "m6.2xlarge");
    assert_eq!(label(&node, "shelf"), Some("upper"));
    assert!(label(&node, "topology.k8s.aws/network-node-layer-9").is_some());
    Ok(())
}

/// CASE-NODE-08: REQ-NODE-22
#[tokio::test]
async fn a_drifted_label_pair_is_repaired_from_the_beta_label() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    // No periodic look at the cloud while this runs.
    bench
        .start_manager(&[FAST[0], "--node-status-update-frequency=1h"])
        .await?;
    let name = bench.join_all().await?.remove(0);
    bench.initialised(&name).await;
    bench.event(&name, "Synced").await;
    let pairs = [
        (
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/zone",
            "us-west-2a",
        ),
        (
            "topology.kubernetes.io/region",
            "failure-domain.beta.kubernetes.io/region",
            "us-west-2",
        ),
        (
            "node.kubernetes.io/instance-type",
            "beta.kubernetes.io/instance-type",
            "m5.large",
        ),
    ];
    let set = |key: &'static str, value: Option<&'static str>| {
        let (nodes, name) = (bench.nodes(), name.clone());
        async move {
            let patch = json!({ "metadata": { "labels": { key: value } } });
            let params = PatchParams::default();
            nodes.patch(&name, &params, &Patch::Merge(&patch)).await
        }
    };
    let (calls, audit) = (
        bench.cloud.sim.calls().mark(),
        bench.api.audit_mark().await?,
    );
    for (stable, _, value) in pairs {
        for drift in [Some("z-9"), None] {
            set(stable, drift).await?;
            bench
                .node_until(&name, "the label is repaired", |node| {
                    label(node, stable) == Some(value)
                })
                .await;
        }
    }
    let repairs = 2 * pairs.len();
    let patches = |requests: Vec<ccm_e2e_tests::Request>| {
        requests.iter().filter(|request| request.is_write()).count()
    };
    assert_eq!(patches(bench.api.requests_since(audit).await?), repairs);
    for (stable, beta, _) in pairs {
        set(beta, None).await?;
        set(stable, Some("z-9")).await?;
    }
    always(
        "nobody touches the labels",
        Duration::from_secs(2),
        || async {
            let node = bench.nodes().get(&name).await.map_err(|e| e.to_string())?;
            let theirs = pairs.iter().all(|(stable, beta, _)| {
                label(&node, stable) == Some("z-9") && label(&node, beta).is_none()
            });
            theirs
                .then_some(())
                .ok_or_else(|| format!("{:?}", node.labels()))
        },
    )
    .await;
    assert_eq!(patches(bench.api.requests_since(audit).await?), repairs);
    assert_eq!(bench.cloud.sim.calls().counts_since(calls).len(), 0);
    Ok(())
}

/// CASE-NODE-10: REQ-NODE-21, REQ-LIFE-04
#[tokio::test]
async fn provider_ids_of_others_are_left_alone_and_stop_nobody() -> Result<()> {
    let mut bench = Bench::new(6).await?;
    let foreign = [
        ("bad-1", "aws"),
        ("bad-2", "aws:///"),
        ("bad-3", "kwok://x"),
        ("bad-4", "gce://p/z/n"),
        ("bad-5", "aws:///us-west-2a/vol-0aa1"),
    ];
    let mut uids = Vec::new();
    for (name, id) in foreign {
        let created = register_as(&bench, name, id, "False").await?;
        uids.push(uid(&created).map(str::to_owned));
    }
    let uninitialised = node(json!({ "metadata": { "name": "bad-6" }, "spec": {
        "providerID": "kwok://bad-6",
        "taints": [{ "key": CLOUD_TAINT, "effect": "NoSchedule" }],
    } }));
    bench.create_node(&uninitialised, "False").await?;
    let machines = bench.machines().to_vec();
    for machine in machines.iter().take(5) {
        register(&bench, machine, "False").await?;
    }
    bench.start_manager(&FAST).await?;

    let (dead, last) = (&machines[0], &machines[5]);
    let dead_name = bench.dns_name(dead)?;
    done(bench.cloud.sim.aws().terminate(dead));
    bench.node_gone(&dead_name).await;
    let name = bench.dns_name(last)?;
    bench.create_node(&tainted(&name), "True").await?;
    bench.initialised(&name).await;
    let stopped = &machines[1];
    done(bench.cloud.sim.aws().stop(stopped));
    bench
        .node_until(&bench.dns_name(stopped)?, "the shutdown taint", |node| {
            taints(node) == [super::SHUTDOWN_TAINT]
        })
        .await;

    let message = bench.event("bad-6", "FailedToInitialise").await;
    assert!(message.contains("kwok://bad-6"), "{message}");
    for ((name, id), uid_before) in foreign.into_iter().zip(uids) {
        let node = bench.nodes().get(name).await?;
        assert_eq!(provider_id(&node), Some(id));
        assert_eq!(uid(&node).map(str::to_owned), uid_before);
        assert_eq!(taints(&node), [] as [&str; 0]);
    }
    assert_eq!(taints(&bench.nodes().get("bad-6").await?), [CLOUD_TAINT]);
    for call in lookups(&bench, bench.cloud.sim.calls().start()) {
        let ids = call
            .params
            .iter()
            .filter(|(key, _)| key.starts_with("InstanceId"));
        for (_, id) in ids {
            assert!(machines.contains(id), "asked for {id}");
        }
        let text = format!("{:?}", call.params);
        for word in ["bad-", "kwok", "gce", "vol-"] {
            assert!(!text.contains(word), "{text}");
        }
    }
    if let Some(manager) = &mut bench.manager {
        manager.process.check_running()?;
    }
    Ok(())
}

/// CASE-NODE-11: REQ-NODE-14, REQ-NODE-30
#[tokio::test]
async fn taints_and_labels_written_meanwhile_are_not_lost() -> Result<()> {
    const ROUNDS: usize = 50;
    let mut bench = Bench::new(ROUNDS).await?;
    bench.start_manager(&FAST).await?;
    let rounds = bench.machines().iter().enumerate().map(|(at, machine)| {
        let bench = &bench;
        async move {
            let name = bench.dns_name(machine)?;
            race(bench, &name, Duration::from_millis((at as u64 * 37) % 400)).await?;
            let node = bench.initialised(&name).await;
            assert_eq!(taints(&node), ["boot.example/wait", "team"], "{name}");
            assert_eq!(label(&node, "agent"), Some("done"), "{name}");
            assert_eq!(
                label(&node, "topology.kubernetes.io/region"),
                Some("us-west-2")
            );
            anyhow::Ok(())
        }
    });
    try_join_all(rounds).await?;
    // And it stays so when all writers have finished.
    for machine in bench.machines() {
        let node = bench.nodes().get(&bench.dns_name(machine)?).await?;
        assert_eq!(taints(&node), ["boot.example/wait", "team"]);
    }
    Ok(())
}

/// An agent that, some time after the Node has registered, takes its own taint away and adds
/// another one and a label, as agents do: read, change, write, again on a conflict.
async fn race(bench: &Bench, name: &str, after: Duration) -> Result<()> {
    let new = node(json!({ "metadata": { "name": name }, "spec": { "taints": [
        { "key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule" },
        { "key": "csi.example/agent-not-ready", "effect": "NoExecute" },
        { "key": "boot.example/wait", "effect": "NoSchedule" },
    ] } }));
    let nodes = bench.nodes();
    nodes.create(&PostParams::default(), &new).await?;
    sleep(after).await;
    eventually("the agent has written", SOON, || async {
        let mut node = nodes.get(name).await.map_err(|error| error.to_string())?;
        let taints = node
            .spec
            .get_or_insert_default()
            .taints
            .get_or_insert_default();
        taints.retain(|taint| taint.key != "csi.example/agent-not-ready");
        taints.push(k8s_openapi::api::core::v1::Taint {
            key: "team".to_owned(),
            value: Some("blue".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        });
        node.labels_mut()
            .insert("agent".to_owned(), "done".to_owned());
        let written = nodes.replace(name, &PostParams::default(), &node).await;
        written.map(|_| ()).map_err(|error| error.to_string())
    })
    .await;
    Ok(())
}

/// REQ-NODE-27
#[tokio::test]
async fn a_node_deleted_by_hand_stays_deleted_until_its_kubelet_registers_again() -> Result<()> {
    let mut bench = Bench::new(2).await?;
    bench
        .start_manager(&[FAST[0], "--node-status-update-frequency=1h"])
        .await?;
    let names = bench.join_all().await?;
    for name in &names {
        bench.initialised(name).await;
        bench.event(name, "Synced").await;
    }
    let (calls, audit) = (
        bench.cloud.sim.calls().mark(),
        bench.api.audit_mark().await?,
    );
    bench.nodes().delete(&names[0], &Default::default()).await?;
    always("it is not undone", Duration::from_secs(3), || async {
        match bench.nodes().get_opt(&names[0]).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(bench.cloud.sim.calls().counts_since(calls).len(), 0);
    let requests = bench.api.requests_since(audit).await?;
    assert_eq!(requests.iter().filter(|r| r.is_write()).count(), 0);
    bench.create_node(&tainted(&names[0]), "True").await?;
    let again = bench.initialised(&names[0]).await;
    let id = provider_id_of(&bench, &bench.machines()[0])?;
    assert_eq!(provider_id(&again), Some(id.as_str()));
    // An initialised Node that is created again needs nothing.
    let other = node_named(&names[1], &provider_id_of(&bench, &bench.machines()[1])?);
    bench.nodes().delete(&names[1], &Default::default()).await?;
    bench.create_node(&other, "True").await?;
    assert_eq!(
        label(
            &bench.nodes().get(&names[1]).await?,
            "topology.kubernetes.io/zone"
        ),
        None
    );
    Ok(())
}
