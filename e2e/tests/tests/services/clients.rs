//! Another client of the cloud, boto3, sees what the manager made, and the manager sees what that
//! client did.

use std::path::Path;

use ccm_e2e_tests::{Bench, service, tainted};
use serde_json::Value;

use crate::{
    setup::published,
    setup::ready,
    view::{View, lb_name, targets_are},
};

/// Python with boto3: that of the test command, else the one of the system.
#[expect(
    clippy::disallowed_methods,
    reason = "the test command tells its Python this way"
)]
fn python() -> String {
    std::env::var("CCM_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Runs the script against the bench's cloud and returns what it printed.
async fn boto3(bench: &Bench, args: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("boto3_check.py");
    let output = tokio::process::Command::new(python())
        .arg(script)
        .arg(&bench.cloud.url)
        .args(args)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Load balancer, listeners, target health and instances, page by page.
#[tokio::test]
async fn boto3_sees_the_load_balancer_and_the_machines() {
    let bench = ready(5).await;
    let web = published(&bench, &service("web", &[(80, 30080), (443, 30443)])).await;
    let (view, name) = (View::now(&bench, &web), lb_name(&web));
    let seen = boto3(&bench, &["show", &name]).await;
    assert_eq!(seen["dns_name"], view.lb.dns_name);
    assert_eq!(seen["type"], "network");
    assert_eq!(seen["tags"]["kubernetes.io/service-name"], "shop/web");
    let machines: Vec<Value> = view.targets(80).into_iter().map(Value::from).collect();
    for port in ["80", "443"] {
        let targets = seen["targets"][port].as_object().unwrap();
        let ids: Vec<Value> = targets.keys().cloned().map(Value::from).collect();
        assert_eq!(ids, machines);
        assert!(
            targets.values().all(|state| state == "healthy"),
            "{targets:?}"
        );
    }
    assert_eq!(seen["instances"].as_array().unwrap(), &machines);
    assert!(seen["pages"].as_u64().unwrap() >= 2, "{seen}");
    assert_eq!(seen["unknown"], "LoadBalancerNotFound");
}

/// A machine that boto3 starts becomes a target; its Node goes when boto3 ends it.
#[tokio::test]
async fn a_machine_started_by_boto3_serves_and_its_node_goes_with_it() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let cluster = &bench.cloud.cluster;
    let run = boto3(
        &bench,
        &["run", &cluster.subnet_ids[1], &cluster.security_group_id],
    )
    .await;
    let machine = run["id"].as_str().unwrap().to_owned();
    let name = run["private_dns_name"].as_str().unwrap();
    bench.create_node(&tainted(name), "True").await.unwrap();
    bench.initialised(name).await;
    let both = [bench.machines()[0].clone(), machine.clone()];
    targets_are(&bench, &web, &both).await;

    bench.set_ready(name, "Unknown").await.unwrap();
    let ended = boto3(&bench, &["terminate", &machine]).await;
    assert_eq!(ended["state"], "shutting-down");
    bench.node_gone(name).await;
    targets_are(&bench, &web, bench.machines()).await;
}
