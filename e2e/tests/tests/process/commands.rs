//! `plan` and `gc` as processes: what they print, how they end, and that they change nothing they
//! were not asked to change. The cluster is simulated; the program is the real one.

use std::{path::Path, process::Output};

use anyhow::{Context, Result};
use ccm_cloudsim::CloudSim;
use ccm_e2e_tests::Cloud;
use ccm_envtest::{Manager, ManagerOptions, kubeconfig};
use ccm_kubesim::KubeSim;
use ccm_testkit::eventually;
use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Files, SOON};

/// A simulated cluster of one machine, without a manager.
struct Sim {
    api: KubeSim,
    cloud: Cloud,
    options: ManagerOptions,
    _files: Files,
    _server: DropGuard,
}

impl Sim {
    async fn new() -> Result<Self> {
        let cloud = Cloud::start(1).await?;
        let api = KubeSim::new(ccm_kubesim::Options::default());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let (server, end) = (api.clone(), stop.clone().cancelled_owned());
        tokio::spawn(async move { server.serve(listener, end).await });
        let files = Files::new()?;
        let options = ManagerOptions {
            kubeconfig: files.write("kubeconfig", &kubeconfig(&url, None, "manager", None))?,
            cloud_config: files.write("cloud.conf", &cloud.config()?)?,
            flags: vec!["--cluster-name=kite".to_owned()],
            environment: Vec::new(),
        };
        let sim = Self {
            api,
            cloud,
            options,
            _files: files,
            _server: stop.drop_guard(),
        };
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" },
        });
        sim.apply(namespace)?;
        let machine = sim
            .cloud
            .cluster
            .instance_ids
            .first()
            .context("no machine")?;
        let machine = sim
            .cloud
            .sim
            .aws()
            .instance(machine)
            .context("no machine")?;
        sim.apply(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": machine.private_dns_name },
            "spec": { "taints": [{
                "key": "node.cloudprovider.kubernetes.io/uninitialized",
                "value": "true", "effect": "NoSchedule",
            }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        }))?;
        sim.apply_service("web", "nlb")?;
        Ok(sim)
    }

    fn apply(&self, object: Value) -> Result<()> {
        let applied = self.api.apply_direct(object);
        applied.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        Ok(())
    }

    fn apply_service(&self, name: &str, kind: &str) -> Result<()> {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "namespace": "shop", "name": name,
                "annotations": { "service.beta.kubernetes.io/aws-load-balancer-type": kind },
            },
            "spec": {
                "type": "LoadBalancer", "selector": { "app": name },
                "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }],
            },
        }))
    }

    /// Runs the manager until the Service has its address and the Node its addresses.
    async fn settle(&self) -> Result<()> {
        let mut manager = Manager::start(&self.options)?;
        manager.wait_until_ready(SOON).await?;
        eventually("the manager has done its work", SOON, || async {
            let service = self.api.get("services", "shop", "web").unwrap_or_default();
            let host = at(&service, "/status/loadBalancer/ingress/0/hostname");
            let node = self.api.list("nodes").pop().unwrap_or_default();
            let address = at(&node, "/status/addresses/0/address");
            if host.is_string() && address.is_string() {
                Ok(())
            } else {
                Err(format!("{host} {address}\n{}", manager.process.tail(20)))
            }
        })
        .await;
        manager.process.signal("TERM").await?;
        manager.process.wait(SOON).await?;
        Ok(())
    }

    /// Runs a command to its end.
    async fn run(&self, command: &str, flags: &[&str]) -> Result<Ended> {
        let program = ccm_envtest::variable("CCM_BIN").context("CCM_BIN is not set")?;
        let mut process = Command::new(program);
        process.env_clear().envs([
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "topsecretkey"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ]);
        let path = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
        process.args([
            command,
            "--cloud-provider=aws",
            &path("cloud-config", &self.options.cloud_config),
            &path("kubeconfig", &self.options.kubeconfig),
            "--configure-cloud-routes=false",
            "--cluster-name=kite",
        ]);
        process.args(flags).kill_on_drop(true);
        let output = tokio::time::timeout(SOON, process.output()).await??;
        Ok(Ended(output))
    }

    /// Runs a command that must change nothing.
    async fn look(&self, command: &str, flags: &[&str]) -> Result<Ended> {
        let (cloud, api) = (self.cloud.sim.calls().mark(), self.api.mark());
        let before = self.cloud.sim.aws().snapshot();
        let ended = self.run(command, flags).await?;
        let writes = self.cloud.sim.calls().writes_since(cloud);
        assert!(writes.is_empty(), "{writes:?}");
        assert_eq!(self.api.count_writes_since(&api), 0);
        assert!(self.cloud.sim.aws().snapshot() == before);
        Ok(ended)
    }
}

/// What stands there; nothing when there is nothing.
fn at<'a>(document: &'a Value, path: &str) -> &'a Value {
    document.pointer(path).unwrap_or(&Value::Null)
}

struct Ended(Output);

impl Ended {
    fn status(&self) -> Option<i32> {
        self.0.status.code()
    }

    fn text(&self) -> String {
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&self.0.stdout),
            String::from_utf8_lossy(&self.0.stderr)
        );
        assert!(!text.contains("topsecretkey"), "a secret is printed");
        text
    }

    fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.0.stdout).with_context(|| self.text())
    }
}

fn forget(sim: &CloudSim, api: &KubeSim, name: &str) -> Result<()> {
    // As if somebody had taken the finalizer away while no manager ran.
    let none = json!({ "metadata": { "finalizers": null } });
    let patched = api.patch_merge("services", "shop", name, &none);
    patched.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let gone = api.delete_direct("services", "shop", name);
    gone.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    assert!(api.get("services", "shop", name).is_none());
    assert_eq!(sim.aws().snapshot().load_balancers.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_plan_tells_what_the_manager_then_does_and_nothing_afterwards() -> Result<()> {
    let sim = Sim::new().await?;
    let new = sim.look("plan", &[]).await?;
    let text = new.text();
    assert_eq!(new.status(), Some(2), "{text}");
    for part in [
        "Service shop/web",
        "cloud  CreateLoadBalancer",
        "cloud  CreateListener",
        "finalizers: add service.kubernetes.io/load-balancer-cleanup",
        "-> (known after apply)",
        "spec.taints: remove node.cloudprovider.kubernetes.io/uninitialized",
        "for 1 Service and 1 Node",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let document = sim.look("plan", &["--output=json"]).await?.json()?;
    assert_eq!(*at(&document, "/verdict"), "something");
    assert_eq!(*at(&document, "/services/0/name"), "shop/web");
    let planned = at(&document, "/services/0/cloud")
        .as_array()
        .context("no changes")?
        .len();
    assert_eq!(*at(&document, "/cloudChanges"), planned);

    let mark = sim.cloud.sim.calls().mark();
    sim.settle().await?;
    let writes = sim.cloud.sim.calls().writes_since(mark);
    assert_eq!(writes.len(), planned, "{writes:#?}\n{document:#}");

    let done = sim.look("plan", &[]).await?;
    assert_eq!(done.status(), Some(0), "{}", done.text());
    assert!(
        done.text().starts_with("Nothing to change."),
        "{}",
        done.text()
    );
    let document = sim.look("plan", &["--output", "json"]).await?.json()?;
    assert_eq!(*at(&document, "/verdict"), "nothing");

    sim.apply_service("classic", "nlb-ip")?;
    sim.apply(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": "shop", "name": "bad",
            "annotations": {
                "service.beta.kubernetes.io/aws-load-balancer-type": "nlb",
                "service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval": "often",
            },
        },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
    }))?;
    let bad = sim.look("plan", &[]).await?;
    assert_eq!(bad.status(), Some(2), "{}", bad.text());
    assert!(
        bad.text().contains("healthcheck-interval"),
        "{}",
        bad.text()
    );
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_read_ends_a_command_with_one() -> Result<()> {
    let sim = Sim::new().await?;
    for (command, flags, part) in [
        ("plan", &["--output=yaml"][..], "--output"),
        ("plan", &["--no-such-flag"], "--no-such-flag"),
        ("plan", &["--kubeconfig=/nowhere"], "--kubeconfig /nowhere"),
        (
            "plan",
            &["--cloud-config=/nowhere"],
            "--cloud-config /nowhere",
        ),
        ("plan", &["--delete"], "--delete"),
        ("gc", &["--min-age=1"], "--min-age"),
    ] {
        let ended = sim.look(command, flags).await?;
        assert_eq!(ended.status(), Some(1), "{command} {flags:?}");
        assert!(ended.text().contains(part), "{flags:?}: {}", ended.text());
        assert!(ended.0.stdout.is_empty());
    }
    // The cloud stops answering in the middle.
    let denied = ccm_cloudsim::Fault::unauthorized_operation();
    super::done(
        sim.cloud
            .sim
            .faults()
            .always("DescribeLoadBalancers", denied),
    );
    let ended = sim.look("plan", &[]).await?;
    assert_eq!(ended.status(), Some(1), "{}", ended.text());
    assert!(
        ended.text().contains("The plan is not complete"),
        "{}",
        ended.text()
    );
    assert_eq!(sim.look("gc", &[]).await?.status(), Some(1));
    Ok(())
}

#[tokio::test]
async fn what_was_left_behind_is_listed_and_goes_only_when_it_is_asked_for_and_old() -> Result<()> {
    let sim = Sim::new().await?;
    sim.settle().await?;
    let none = sim.look("gc", &[]).await?;
    assert_eq!(none.status(), Some(0), "{}", none.text());
    assert_eq!(none.text(), "Nothing was left behind.\n");
    forget(&sim.cloud.sim, &sim.api, "web")?;

    let found = sim.look("gc", &["--min-age=0"]).await?;
    let text = found.text();
    assert_eq!(found.status(), Some(2), "{text}");
    for part in [
        "load balancer a",
        "made for  shop/web",
        "there is no Service shop/web",
        "with it   target group k8s-shop-web-",
        "--delete would remove it",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let young = sim.look("gc", &["--delete", "--output=json"]).await?;
    assert_eq!(young.status(), Some(2));
    let document = young.json()?;
    assert_eq!(*at(&document, "/leftovers/0/fate"), "left", "{document:#}");
    assert_eq!(*at(&document, "/leftovers/0/kind"), "loadBalancer");

    let api = sim.api.mark();
    let removed = sim
        .run("gc", &["--delete", "--min-age=0", "--output=json"])
        .await?;
    assert_eq!(removed.status(), Some(0), "{}", removed.text());
    assert_eq!(*at(&removed.json()?, "/leftovers/0/fate"), "removed");
    assert_eq!(sim.api.count_writes_since(&api), 0);
    let state = sim.cloud.sim.aws().snapshot();
    assert!(state.load_balancers.is_empty() && state.target_groups.is_empty());
    assert_eq!(sim.look("gc", &[]).await?.status(), Some(0));
    Ok(())
}
