//! Nodes whose machine is gone or stopped, and all the reasons for which a Node must stay.

use std::time::Duration;

use anyhow::{Context, Result};
use ccm_cloudsim::{
    Fault,
    aws::{InstanceState, RunInstance},
};
use ccm_e2e_tests::{Bench, node, tainted};
use ccm_envtest::{Manager, kubeconfig};
use ccm_kubesim::{KubeSim, Verb};
use ccm_testkit::{always, eventually};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    CLOUD_TAINT, SHUTDOWN_TAINT, SOON, all_addressed, asked, count_events, done, launch, lookups,
    lookups_of, provider_id_of, register, register_as, taints, uid, uids,
};

/// Rounds of a second; the address pass stays out of the way.
const ROUNDS: [&str; 2] = [
    "--node-monitor-period=1s",
    "--node-status-update-frequency=1h",
];

/// CASE-LIFE-01: REQ-LIFE-04, REQ-LIFE-17, REQ-LIFE-18
#[tokio::test]
async fn no_error_of_any_kind_deletes_a_node() -> Result<()> {
    let mut bench = Bench::new(10).await?;
    let machines = bench.machines().to_vec();
    let mut names = Vec::new();
    for machine in &machines {
        names.push(register(&bench, machine, "Unknown").await?);
    }
    let mut options = bench.manager_options(&["--node-monitor-period=300ms", ROUNDS[1]]);
    // Every answer is one decision: retries of the client would only make this slower.
    let attempts = ("AWS_MAX_ATTEMPTS".to_owned(), "1".to_owned());
    options.environment.push(attempts);
    let mut manager = Manager::start(&options)?;
    manager.wait_until_ready(SOON).await?;
    bench.manager = Some(manager);
    all_addressed(&bench).await;
    asked(&bench, 2).await;
    let (before, audit) = (uids(&bench).await?, bench.api.audit_mark().await?);
    let error = |code: &str, message: &str| Fault::OkWithErrorDocument {
        code: code.to_owned(),
        message: message.to_owned(),
    };
    let not_found = format!("The instance ID '{}' does not exist", machines[0]);
    for fault in [
        Fault::internal_error(),
        Fault::error(503, "Unavailable", "The service is unavailable."),
        Fault::DropConnection,
        Fault::Hang { millis: 1500 },
        Fault::unauthorized_operation(),
        Fault::error(403, "AuthFailure", "The credentials are not valid."),
        Fault::MalformedBody,
        error("InternalError", "An internal error has occurred"),
        error("InvalidInstanceID.NotFound", &not_found),
        Fault::error(400, "InvalidParameterValue", "No."),
    ] {
        done(bench.cloud.sim.faults().always("DescribeInstances", fault));
        asked(&bench, 4).await;
        bench.cloud.sim.faults().clear_all();
        assert_eq!(uids(&bench).await?, before);
    }
    // Few of these: each one makes later calls wait.
    for fault in [
        Fault::throttling(),
        Fault::error(429, "RequestLimitExceeded", "Request limit exceeded."),
        Fault::request_limit_exceeded(),
    ] {
        done(bench.cloud.sim.faults().next("DescribeInstances", 1, fault));
    }
    asked(&bench, 3).await;
    asked(&bench, 2).await;
    assert_eq!(uids(&bench).await?, before);
    let requests = bench.api.requests_since(audit).await?;
    let writes: Vec<_> = requests.iter().filter(|r| r.is_write()).collect();
    assert!(writes.is_empty(), "{writes:?}");
    for name in &names {
        assert_eq!(count_events(&bench, name, "DeletingNode").await?, 0);
    }
    // The loop is alive: a machine that is really gone is noticed.
    done(bench.cloud.sim.aws().forget(&machines[3]));
    bench.node_gone(&names[3]).await;
    assert_eq!(uids(&bench).await?.len(), before.len() - 1);
    Ok(())
}

/// CASE-LIFE-02, CASE-LIFE-03, CASE-LIFE-09: REQ-LIFE-05, REQ-LIFE-07, REQ-LIFE-08, REQ-LIFE-16,
/// REQ-LIFE-19
#[tokio::test]
async fn a_node_follows_its_machine_through_every_state() -> Result<()> {
    let mut bench = Bench::new(0).await?;
    let spot = RunInstance {
        lifecycle: Some("spot".to_owned()),
        ..RunInstance::default()
    };
    let machine = launch(&bench, spot)?;
    let name = bench.dns_name(&machine)?;
    let id = provider_id_of(&bench, &machine)?;
    let created = bench
        .create_node(
            &node(json!({ "metadata": { "name": name }, "spec": {
                "providerID": id,
                "taints": [{ "key": "team", "value": "blue", "effect": "NoSchedule" }],
            } })),
            "False",
        )
        .await?;
    bench.start_manager(&ROUNDS).await?;
    let aws = bench.cloud.sim.aws();
    let only_team: &[&str] = &["team"];
    let marked: &[&str] = &["team", SHUTDOWN_TAINT];
    // NotReady all the time: the state alone decides. While it changes nothing is done.
    for (state, want) in [
        (InstanceState::Running, only_team),
        (InstanceState::Stopping, only_team),
        (InstanceState::Stopped, marked),
        (InstanceState::Pending, marked),
        (InstanceState::Running, only_team),
        (InstanceState::ShuttingDown, only_team),
    ] {
        done(aws.set_state(&machine, state));
        let node = bench
            .node_until(&name, state.name(), |node| taints(node) == want)
            .await;
        assert_eq!(uid(&node), uid(&created));
        asked(&bench, 3).await;
        let node = bench.nodes().get(&name).await?;
        assert_eq!(taints(&node), want, "{}", state.name());
        assert_eq!(uid(&node), uid(&created), "{}", state.name());
    }
    let mark = bench.cloud.sim.calls().mark();
    done(aws.set_state(&machine, InstanceState::Terminated));
    bench.node_gone(&name).await;
    assert!(aws.instance(&machine).is_some(), "the cloud still lists it");
    assert!(lookups(&bench, mark).len() <= 3);
    let message = bench.event(&name, "DeletingNode").await;
    let want = format!("Deleting node {name} because it does not exist in the cloud provider");
    assert_eq!(message, want);
    assert_eq!(count_events(&bench, &name, "DeletingNode").await?, 1);
    Ok(())
}

/// REQ-LIFE-01, REQ-LIFE-02
#[tokio::test]
async fn a_ready_node_is_no_question_to_the_cloud_and_loses_the_shutdown_taint() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    let machine = bench.machines()[0].clone();
    let name = register(&bench, &machine, "False").await?;
    bench.start_manager(&ROUNDS).await?;
    done(bench.cloud.sim.aws().stop(&machine));
    bench
        .node_until(&name, "the shutdown taint", |node| {
            taints(node) == [SHUTDOWN_TAINT]
        })
        .await;
    bench.set_ready(&name, "True").await?;
    bench
        .node_until(&name, "no shutdown taint", |node| taints(node).is_empty())
        .await;
    let (calls, audit) = (
        bench.cloud.sim.calls().mark(),
        bench.api.audit_mark().await?,
    );
    // Ready counts more than the cloud.
    done(bench.cloud.sim.aws().terminate(&machine));
    always("it stays", Duration::from_secs(4), || async {
        match bench.nodes().get_opt(&name).await {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(bench.cloud.sim.calls().counts_since(calls).len(), 0);
    let requests = bench.api.requests_since(audit).await?;
    assert_eq!(requests.iter().filter(|r| r.is_write()).count(), 0);
    Ok(())
}

/// CASE-LIFE-04: REQ-LIFE-03, REQ-LIFE-05, REQ-LIFE-20, REQ-LIFE-21
#[tokio::test]
async fn an_orphan_without_provider_id_is_deleted_when_one_answer_is_enough() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    // No condition at all, as good as Unknown.
    let ghost = node(json!({ "metadata": { "name": "ghost-1" } }));
    let nodes = bench.nodes();
    nodes.create(&PostParams::default(), &ghost).await?;
    bench.create_node(&tainted("ghost-2"), "False").await?;
    let machine = bench.machines()[0].clone();
    let name = bench.dns_name(&machine)?;
    done(bench.cloud.sim.aws().terminate(&machine));
    bench.create_node(&tainted(&name), "False").await?;
    bench.start_manager(&ROUNDS).await?;
    let before = uids(&bench).await?;
    // Too young for the default: their machines may not be visible yet.
    asked(&bench, 4).await;
    assert_eq!(uids(&bench).await?, before);
    bench.stop_manager().await?;
    let at_once = [ROUNDS[0], ROUNDS[1], "--node-deletion-confirmations=1"];
    bench.start_manager(&at_once).await?;
    for name in ["ghost-1", "ghost-2", &name] {
        bench.node_gone(name).await;
        bench.event(name, "DeletingNode").await;
        assert_eq!(count_events(&bench, name, "DeletingNode").await?, 1);
        assert_eq!(count_events(&bench, name, "DeletingNodeFailed").await?, 0);
    }
    Ok(())
}

/// CASE-LIFE-05: REQ-LIFE-05, REQ-LIFE-09, REQ-LIFE-19
#[tokio::test]
async fn a_machine_that_vanishes_between_two_rounds_is_deleted_once() -> Result<()> {
    let mut bench = Bench::new(2).await?;
    let machines = bench.machines().to_vec();
    let running = register(&bench, &machines[0], "False").await?;
    let stopping = register(&bench, &machines[1], "False").await?;
    bench.start_manager(&ROUNDS).await?;
    all_addressed(&bench).await;
    asked(&bench, 2).await;
    let audit = bench.api.audit_mark().await?;
    let aws = bench.cloud.sim.aws();
    done(aws.forget(&machines[0]));
    done(aws.set_state(&machines[1], InstanceState::Stopping));
    done(aws.forget(&machines[1]));
    for name in [&running, &stopping] {
        bench.node_gone(name).await;
        bench.event(name, "DeletingNode").await;
    }
    // Later rounds find nothing left to do.
    always("one delete each", Duration::from_secs(3), || async {
        let requests = bench.api.requests_since(audit).await;
        let requests = requests.map_err(|error| error.to_string())?;
        let writes: Vec<_> = requests.iter().filter(|r| r.is_write()).collect();
        if writes.len() == 2 && writes.iter().all(|r| r.verb == "delete" && r.code == 200) {
            Ok(())
        } else {
            Err(format!("{writes:?}"))
        }
    })
    .await;
    Ok(())
}

/// CASE-LIFE-06: REQ-LIFE-20
#[tokio::test]
async fn a_machine_that_reads_do_not_show_yet_keeps_its_node() -> Result<()> {
    const HIDDEN: Duration = Duration::from_secs(15);
    let mut bench = Bench::new(2).await?;
    bench.start_manager(&ROUNDS).await?;
    let machines = bench.machines().to_vec();
    for machine in &machines {
        bench.cloud.sim.aws().hide(machine, HIDDEN);
    }
    let names = [bench.dns_name(&machines[0])?, bench.dns_name(&machines[1])?];
    bench.create_node(&tainted(&names[0]), "False").await?;
    let with_id = node(json!({ "metadata": { "name": names[1] }, "spec": {
        "providerID": provider_id_of(&bench, &machines[1])?,
        "taints": [{ "key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule" }],
    } }));
    bench.create_node(&with_id, "False").await?;
    let before = uids(&bench).await?;
    always(
        "no Node is deleted",
        HIDDEN - Duration::from_secs(1),
        || async {
            let now = uids(&bench).await.map_err(|error| error.to_string())?;
            (now == before)
                .then_some(())
                .ok_or_else(|| format!("{now:?}"))
        },
    )
    .await;
    // Visible within two seconds, then at most fifteen more.
    let start = tokio::time::Instant::now();
    for name in &names {
        bench.initialised(name).await;
        assert_eq!(count_events(&bench, name, "DeletingNode").await?, 0);
    }
    assert!(
        start.elapsed() < Duration::from_secs(17),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(uids(&bench).await?, before);
    Ok(())
}

/// CASE-LIFE-10: REQ-LIFE-12, REQ-LIFE-22, REQ-LIFE-23
#[tokio::test]
async fn three_hundred_unready_nodes_are_one_question_a_round() -> Result<()> {
    let mut bench = Bench::new(400).await?;
    let machines = bench.machines().to_vec();
    stream::iter(machines.iter().enumerate())
        .map(|(at, machine)| {
            let bench = &bench;
            let ready = if at < 300 { "Unknown" } else { "True" };
            async move { register(bench, machine, ready).await }
        })
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    bench.cloud.sim.throttles().set("*", 20.0, 20.0);
    bench.start_manager(&ROUNDS).await?;
    asked(&bench, 2).await;
    let rounds = || async {
        let manager = bench.manager.as_ref().context("no manager")?;
        let (_, metrics) = manager.get("/metrics").await?;
        let count = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(count));
        anyhow::Ok(line.context("no such metric")?.parse::<usize>()?)
    };
    let (mark, first) = (bench.cloud.sim.calls().mark(), rounds().await?);
    asked(&bench, 5).await;
    let calls = bench.cloud.sim.calls().calls_since(mark);
    let passed = rounds().await? - first;
    assert!(
        calls.len() <= 3 * (passed + 1),
        "{} calls in {passed} rounds",
        calls.len()
    );
    assert!(lookups(&bench, mark).len() <= passed + 1);

    // One that is really gone is found among them.
    let gone = bench.dns_name(&machines[123])?;
    done(bench.cloud.sim.aws().forget(&machines[123]));
    eventually("the Node of the dead machine is gone", SOON, || async {
        match bench.nodes().get_opt(&gone).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(uids(&bench).await?.len(), 399);
    let all = bench
        .cloud
        .sim
        .calls()
        .calls_since(bench.cloud.sim.calls().start());
    let throttled: Vec<_> = all
        .iter()
        .filter(|call| call.error.as_deref() == Some("RequestLimitExceeded"))
        .collect();
    assert!(throttled.is_empty(), "{throttled:?}");
    Ok(())
}

/// REQ-LIFE-16, REQ-LIFE-18, REQ-LIFE-19
#[tokio::test]
async fn absence_is_proved_twice_the_second_time_by_a_question_for_this_machine() -> Result<()> {
    let mut bench = Bench::new(3).await?;
    let machines = bench.machines().to_vec();
    for machine in &machines {
        register(&bench, machine, "False").await?;
    }
    bench
        .start_manager(&["--node-monitor-period=3s", ROUNDS[1]])
        .await?;
    all_addressed(&bench).await;
    asked(&bench, 1).await;
    let (mark, audit) = (
        bench.cloud.sim.calls().mark(),
        bench.api.audit_mark().await?,
    );
    let gone = &machines[1];
    let name = bench.dns_name(gone)?;
    done(bench.cloud.sim.aws().terminate(gone));
    asked(&bench, 1).await;
    // After the first proof: a line in the log and nothing else.
    eventually("the first proof is logged", SOON, || async {
        let log = bench.log();
        log.contains("verdict=Counted").then_some(()).ok_or(log)
    })
    .await;
    assert!(bench.nodes().get_opt(&name).await?.is_some());
    let requests = bench.api.requests_since(audit).await?;
    assert!(requests.iter().all(|r| r.verb == "watch"), "{requests:?}");
    bench.node_gone(&name).await;
    let questions = lookups_of(&bench, mark, gone);
    let [.., first, second] = &questions[..] else {
        anyhow::bail!("{questions:?}");
    };
    let ids = |call: &ccm_cloudsim::Call| {
        let keys = call.params.keys();
        keys.filter(|key| key.starts_with("InstanceId")).count()
    };
    assert_eq!((ids(first), ids(second)), (3, 1));
    let apart = second.at.duration_since(first.at);
    assert!(apart.as_secs() >= 3, "{apart:?}");
    Ok(())
}

/// REQ-LIFE-17
#[tokio::test]
async fn an_error_or_a_restart_in_between_sets_the_proofs_back_to_zero() -> Result<()> {
    let mut bench = Bench::new(2).await?;
    let machines = bench.machines().to_vec();
    let flags = ["--node-monitor-period=2s", ROUNDS[1]];
    let first = register(&bench, &machines[0], "False").await?;
    bench.start_manager(&flags).await?;
    asked(&bench, 1).await;
    // The next question is answered well, the one after it is not.
    let denied = Fault::unauthorized_operation();
    done(bench.cloud.sim.faults().nth("DescribeInstances", 2, denied));
    let mark = bench.cloud.sim.calls().mark();
    done(bench.cloud.sim.aws().terminate(&machines[0]));
    bench.node_gone(&first).await;
    let answers: Vec<_> = lookups_of(&bench, mark, &machines[0])
        .into_iter()
        .map(|call| call.status)
        .collect();
    assert_eq!(answers, [Some(200), Some(403), Some(200), Some(200)]);

    let second = register(&bench, &machines[1], "False").await?;
    asked(&bench, 1).await;
    done(bench.cloud.sim.aws().forget(&machines[1]));
    eventually("the first proof", SOON, || async {
        let log = bench.log();
        let about = |line: &&str| line.contains(&second) && line.contains("verdict=Counted");
        log.lines().find(about).map(|_| ()).ok_or(log)
    })
    .await;
    bench.kill_manager().await?;
    bench.start_manager(&flags).await?;
    bench.node_gone(&second).await;
    let log = bench.log();
    for verdict in ["verdict=Counted", "verdict=Proved"] {
        assert_eq!(log.matches(verdict).count(), 1, "{log}");
    }
    Ok(())
}

/// REQ-LIFE-06, REQ-LIFE-14, REQ-LIFE-17
#[tokio::test]
async fn a_new_node_of_the_same_name_survives_the_deletion_of_the_old_one() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    let machine = bench.machines()[0].clone();
    let name = bench.dns_name(&machine)?;
    let id = provider_id_of(&bench, &machine)?;
    // An API server whose watches can be late: the manager then acts on what was.
    let api = KubeSim::new(ccm_kubesim::Options::default());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let (server, end) = (api.clone(), stop.clone().cancelled_owned());
    tokio::spawn(async move { server.serve(listener, end).await });
    let _stop = stop.drop_guard();
    let mut options = bench.manager_options(&ROUNDS);
    options.kubeconfig = bench.path("late.kubeconfig");
    std::fs::write(&options.kubeconfig, kubeconfig(&url, None, "manager", None))?;
    let object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name },
        "spec": { "providerID": id },
        "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "Test" }] },
    });
    api.apply_direct(object.clone())
        .map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let mut manager = Manager::start(&options)?;
    manager.wait_until_ready(SOON).await?;
    bench.manager = Some(manager);
    asked(&bench, 2).await;

    api.faults()
        .delay_watches(Some("nodes"), Duration::from_secs(600));
    api.delete_direct("nodes", "", &name)
        .map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let new = api.apply_direct(object);
    let new = new.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let uid_of = |object: &Value| object.pointer("/metadata/uid").cloned();
    done(bench.cloud.sim.aws().terminate(&machine));
    eventually("two deletions are refused", SOON, || async {
        let entries = api.requests().entries;
        let refused = entries
            .iter()
            .filter(|entry| {
                entry.key.verb == Verb::Delete
                    && entry.key.resource == "nodes"
                    && entry.status == 409
            })
            .count();
        (refused >= 2).then_some(()).ok_or_else(|| bench.log())
    })
    .await;
    let now = api
        .get("nodes", "", &name)
        .context("the new Node is gone")?;
    assert_eq!(uid_of(&now), uid_of(&new));
    eventually("the failure is an event", SOON, || async {
        let events = api.list("events");
        let failed = |event: &&Value| event["reason"] == "DeletingNodeFailed";
        events
            .iter()
            .find(failed)
            .map(|_| ())
            .ok_or_else(|| format!("{events:?}"))
    })
    .await;
    // When the manager knows the new Node it proves anew.
    api.faults().clear();
    api.faults().cut_watches();
    eventually("the new Node goes for its own sake", SOON, || async {
        let there = api.get("nodes", "", &name);
        there.map_or(Ok(()), |node| Err(node.to_string()))
    })
    .await;
    Ok(())
}

/// REQ-LIFE-13
#[tokio::test]
async fn the_shutdown_taint_does_not_undo_what_others_write() -> Result<()> {
    let mut bench = Bench::new(20).await?;
    let machines = bench.machines().to_vec();
    for machine in &machines {
        register(&bench, machine, "False").await?;
    }
    bench.start_manager(&ROUNDS).await?;
    for machine in &machines {
        done(bench.cloud.sim.aws().stop(machine));
    }
    let writers = machines.iter().map(|machine| async {
        let name = bench.dns_name(machine)?;
        for n in 0..10 {
            let label = json!({ "metadata": { "labels": { "beat": n.to_string() } } });
            let params = PatchParams::default();
            bench
                .nodes()
                .patch(&name, &params, &Patch::Merge(&label))
                .await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let node = bench
            .node_until(&name, "the shutdown taint", |node| {
                taints(node) == [SHUTDOWN_TAINT]
            })
            .await;
        assert_eq!(super::label(&node, "beat"), Some("9"));
        anyhow::Ok(())
    });
    futures::future::try_join_all(writers).await?;
    Ok(())
}

/// REQ-LIFE-15
#[tokio::test]
async fn a_mass_absence_deletes_nothing_while_the_breaker_is_set() -> Result<()> {
    let mut bench = Bench::new(4).await?;
    let machines = bench.machines().to_vec();
    let mut names = Vec::new();
    for machine in &machines {
        names.push(register(&bench, machine, "False").await?);
    }
    register_as(&bench, "elsewhere", "kwok://elsewhere", "True").await?;
    bench
        .start_manager(&[ROUNDS[0], ROUNDS[1], "--node-deletion-max-share=0.5"])
        .await?;
    let before = uids(&bench).await?;
    for machine in &machines[..3] {
        done(bench.cloud.sim.aws().forget(machine));
    }
    asked(&bench, 12).await;
    assert_eq!(uids(&bench).await?, before);
    assert!(bench.log().contains("--node-deletion-max-share"));
    // One comes back: the other two are no mass any more.
    bench.set_ready(&names[0], "True").await?;
    bench.node_gone(&names[1]).await;
    bench.node_gone(&names[2]).await;
    assert_eq!(uids(&bench).await?.len(), 3);
    Ok(())
}
