//! Starts and ends: what is not there yet is waited for, and an end is prompt.

use std::time::Duration;

use anyhow::{Context, Result};
use ccm_cloudsim::{CloudSim, Fault};
use ccm_e2e_tests::{Bench, service, tainted};
use ccm_envtest::{Manager, free_port};
use ccm_kubesim::KubeSim;
use ccm_testkit::{always, eventually};
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Files, SOON, done, line_with, manager};

/// The process runs, answers, and says that it is not ready because of this gate.
async fn waits(manager: &Manager, gate: &str) -> Result<(), String> {
    let get = |path: &'static str| async move {
        let answer = manager.get(path).await;
        answer.map_err(|error| format!("{path}: {error}"))
    };
    for path in ["/livez", "/healthz"] {
        let (status, body) = get(path).await?;
        if status != 200 {
            return Err(format!("{path}: {status} {body}"));
        }
    }
    let (status, body) = get("/readyz").await?;
    if status == 503 && body.contains(gate) {
        Ok(())
    } else {
        Err(format!("/readyz: {status} {body}"))
    }
}

/// The process has begun to answer.
async fn answers(manager: &Manager) {
    eventually("health is served", SOON, || async {
        let answer = manager.get("/livez").await;
        answer.map(|_| ()).map_err(|error| error.to_string())
    })
    .await;
}

async fn serve_cloud(sim: &CloudSim, port: u16) -> Result<DropGuard> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let stop = CancellationToken::new();
    let (sim, end) = (sim.clone(), stop.clone().cancelled_owned());
    tokio::spawn(async move { sim.serve(listener, end).await });
    Ok(stop.drop_guard())
}

#[tokio::test]
async fn an_api_server_that_is_not_there_yet_is_waited_for() -> Result<()> {
    let cloud = CloudSim::new(ccm_cloudsim::Options::default());
    done(cloud.aws().standard_cluster("kite", 1));
    let cloud_port = free_port()?;
    let _cloud = serve_cloud(&cloud, cloud_port).await?;
    let api_port = free_port()?;
    let api_url = format!("http://127.0.0.1:{api_port}");
    let files = Files::new()?;
    let options = files.options(&api_url, &format!("http://127.0.0.1:{cloud_port}"))?;
    let mut manager = Manager::start(&options)?;
    answers(&manager).await;
    line_with(&manager.process, &["waiting for the API server", &api_url]).await;
    always("it waits", Duration::from_secs(4), || {
        waits(&manager, "api-server")
    })
    .await;
    manager.process.check_running()?;
    let told = manager
        .process
        .output()
        .matches("waiting for the API")
        .count();
    assert!(told <= 5, "{told} lines in five seconds");

    let api = KubeSim::new(ccm_kubesim::Options::default());
    let listener = TcpListener::bind(("127.0.0.1", api_port)).await?;
    let stop = CancellationToken::new();
    let (server, end) = (api.clone(), stop.clone().cancelled_owned());
    tokio::spawn(async move { server.serve(listener, end).await });
    let _stop = stop.drop_guard();
    manager.wait_until_ready(SOON).await
}

#[tokio::test]
async fn a_cloud_that_is_not_there_yet_is_waited_for() -> Result<()> {
    let bench = Bench::new(1).await?;
    let files = Files::new()?;
    let port = free_port()?;
    let mut options = bench.manager_options(&[]);
    let config = std::fs::read_to_string(&options.cloud_config)?;
    let url = format!("http://127.0.0.1:{port}");
    let config = config.replace(&bench.cloud.url, &url);
    options.cloud_config = files.write("cloud.conf", &config)?;
    let mut manager = Manager::start(&options)?;
    answers(&manager).await;
    let line = line_with(&manager.process, &["waiting for the cloud"]).await;
    assert!(line.contains("ec2:DescribeAvailabilityZones"), "{line}");
    always("it waits", Duration::from_secs(4), || {
        waits(&manager, "cloud-provider")
    })
    .await;
    manager.process.check_running()?;

    // There now, and it does not let us in.
    let denied = Fault::unauthorized_operation();
    done(bench.cloud.sim.faults().always("*", denied));
    let _cloud = serve_cloud(&bench.cloud.sim, port).await?;
    line_with(&manager.process, &["waiting for the cloud", "denies"]).await;
    waits(&manager, "cloud-provider")
        .await
        .map_err(anyhow::Error::msg)?;
    bench.cloud.sim.faults().clear_all();
    manager.wait_until_ready(Duration::from_secs(60)).await
}

/// REQ-APP-28
#[tokio::test]
async fn sigterm_ends_the_process_at_once_and_well() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    bench.start_manager(&["--node-monitor-period=1s"]).await?;
    let names = bench.join_all().await?;
    bench.initialised(&names[0]).await;
    let start = Instant::now();
    bench.stop_manager().await?;
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );

    // In the middle of a cloud call too: work that was begun gets ten seconds, not more.
    bench.start_manager(&["--node-monitor-period=1s"]).await?;
    let latency = bench.cloud.sim.latency();
    latency.set("*", Duration::from_secs(60));
    bench
        .create_service(&service("web", &[(80, 30080)]))
        .await?;
    let mark = bench.cloud.sim.calls().mark();
    eventually("a call hangs", SOON, || async {
        let calls = bench.cloud.sim.calls().calls_since(mark);
        (!calls.is_empty()).then_some(()).ok_or_else(|| bench.log())
    })
    .await;
    let start = Instant::now();
    bench.stop_manager().await?;
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
    bench.cloud.sim.latency().clear();
    bench.start_manager(&[]).await?;
    bench.hostname("web").await;
    bench.delete_service("web").await?;
    bench.nothing_left().map_err(anyhow::Error::msg)
}

/// U2, U5
#[tokio::test]
async fn after_sigkill_the_next_process_goes_on_where_the_last_one_ended() -> Result<()> {
    let mut bench = Bench::new(2).await?;
    bench.start_manager(&["--node-monitor-period=1s"]).await?;
    let machines = bench.machines().to_vec();
    let first = bench.dns_name(&machines[0])?;
    bench.create_node(&tainted(&first), "True").await?;
    bench.initialised(&first).await;
    // The load balancer is there, nothing else is, and the client never heard of it.
    let faults = bench.cloud.sim.faults();
    done(faults.next("CreateLoadBalancer", 1, Fault::Hang { millis: 60_000 }));
    bench
        .create_service(&service("web", &[(80, 30080)]))
        .await?;
    let mark = bench.cloud.sim.calls().start();
    eventually("the load balancer is being made", SOON, || async {
        let counts = bench.cloud.sim.calls().counts_since(mark);
        let begun = counts.contains_key("CreateLoadBalancer");
        begun.then_some(()).ok_or_else(|| format!("{counts:?}"))
    })
    .await;
    bench.kill_manager().await?;
    let second = bench.dns_name(&machines[1])?;
    bench.create_node(&tainted(&second), "True").await?;
    bench.start_manager(&["--node-monitor-period=1s"]).await?;
    bench.initialised(&second).await;
    bench.hostname("web").await;
    bench
        .cloud_until("one load balancer with both Nodes", |state| {
            let targets: usize = state
                .target_groups
                .values()
                .map(|group| group.targets.len())
                .sum();
            let made = (
                state.load_balancers.len(),
                state.target_groups.len(),
                state.listeners.len(),
                targets,
            );
            (made == (1, 1, 1, 2))
                .then_some(())
                .ok_or_else(|| format!("{made:?}"))
        })
        .await;
    // A further start finds everything as it should be.
    bench.kill_manager().await?;
    let (calls, audit) = (
        bench.cloud.sim.calls().mark(),
        bench.api.audit_mark().await?,
    );
    bench.start_manager(&["--node-monitor-period=1s"]).await?;
    always("no write", Duration::from_secs(4), || async {
        let cloud = bench.cloud.sim.calls().writes_since(calls);
        let requests = bench.api.requests_since(audit).await;
        let requests = requests.map_err(|error| error.to_string())?;
        let api: Vec<_> = requests.iter().filter(|r| r.is_write()).collect();
        if cloud.is_empty() && api.is_empty() {
            Ok(())
        } else {
            Err(format!("{cloud:?} {api:?}"))
        }
    })
    .await;
    bench.delete_service("web").await?;
    bench.nothing_left().map_err(anyhow::Error::msg)
}

/// REQ-NODE-25, REQ-LIFE-23
#[tokio::test]
async fn metrics_have_their_names_and_the_log_has_no_secret() -> Result<()> {
    const SECRET: &str = "wJalrXUtnFEMI-a-secret-for-the-test";
    let mut bench = Bench::new(2).await?;
    let mut options = bench.manager_options(&[
        "--node-monitor-period=1s",
        "--node-status-update-frequency=1s",
        "-v=10",
    ]);
    let secret = ("AWS_SECRET_ACCESS_KEY".to_owned(), SECRET.to_owned());
    options.environment.push(secret);
    let mut running = Manager::start(&options)?;
    running.wait_until_ready(SOON).await?;
    bench.manager = Some(running);
    // Errors are logged in more words than answers.
    for fault in [
        Fault::error(
            403,
            "SignatureDoesNotMatch",
            "The signature does not match.",
        ),
        Fault::DropConnection,
    ] {
        done(bench.cloud.sim.faults().next("DescribeInstances", 4, fault));
    }
    let names = bench.join_all().await?;
    for name in &names {
        bench.initialised(name).await;
        bench.event(name, "Synced").await;
    }
    bench.set_ready(&names[0], "False").await?;
    bench
        .create_service(&service("web", &[(80, 30080)]))
        .await?;
    bench.hostname("web").await;
    let asked = "cloud_node_lifecycle_controller_cloud_provider_calls_total\
                 {operation=\"instance_exists\",result=\"success\"}";
    let text = eventually("the life cycle has asked", SOON, || async {
        let manager = manager(&bench).map_err(|error| error.to_string())?;
        let (status, text) = manager
            .get("/metrics")
            .await
            .map_err(|error| error.to_string())?;
        if status == 200 && text.contains(asked) {
            Ok(text)
        } else {
            Err(text)
        }
    })
    .await;
    for name in [
        "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"1024\"} 2",
        "node_controller_cloud_provider_taint_removal_delay_seconds_count 2",
        "node_controller_initial_node_sync_delay_seconds_bucket{le=\"4\"}",
        "node_controller_initial_node_sync_delay_seconds_count 2",
        "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count",
        "workqueue_depth{name=\"Nodes\"}",
        "workqueue_adds_total{name=\"Nodes\"}",
        "workqueue_retries_total{name=\"Nodes\"}",
        "workqueue_queue_duration_seconds_bucket{name=\"Nodes\",",
        "workqueue_work_duration_seconds_bucket{name=\"Nodes\",",
        "workqueue_unfinished_work_seconds{name=\"Nodes\"}",
        "workqueue_longest_running_processor_seconds{name=\"Nodes\"}",
        "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"cloud-node\"} 1",
        "rest_client_requests_total{",
        "kubernetes_build_info{",
    ] {
        assert!(text.contains(name), "{name} is not in\n{text}");
    }
    bench.delete_service("web").await?;
    let process = &manager(&bench)?.process;
    line_with(process, &["SignatureDoesNotMatch"]).await;
    let log = process.output();
    assert!(!log.contains(SECRET), "the secret key is in the log");
    let kubeconfig = std::fs::read_to_string(&bench.api.manager_kubeconfig)?;
    let kubeconfig: serde_json::Value = serde_json::from_str(&kubeconfig)?;
    let token = kubeconfig.pointer("/users/0/user/token");
    let token = token
        .and_then(serde_json::Value::as_str)
        .context("no token")?;
    assert!(!log.contains(token), "the bearer token is in the log");
    assert!(
        !log.contains("AWS4-HMAC-SHA256 Credential"),
        "a signature is in the log"
    );
    Ok(())
}
