//! The real kubectl against the server on a socket.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation ends the test"
)]

use std::{path::PathBuf, process::Stdio};

use ccm_kubesim::{KubeSim, Options};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    process::Command,
    sync::oneshot,
    time::{Duration, timeout},
};

/// One kubectl call takes well under a second; a busy machine gets time.
const PATIENCE: Duration = Duration::from_secs(60);

struct Cluster {
    sim: KubeSim,
    server: String,
    home: PathBuf,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

impl Cluster {
    async fn start(name: &str) -> Self {
        let sim = KubeSim::new(Options::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = sim.clone();
        let served = tokio::spawn(async move {
            serving
                .serve(listener, async {
                    let _ended = stopped.await;
                })
                .await;
        });
        let home = std::env::temp_dir().join(format!("kubesim-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        Self {
            sim,
            server,
            home,
            stop,
            served,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .arg("--server")
            .arg(&self.server)
            .arg("--cache-dir")
            .arg(self.home.join("cache"))
            .args(args)
            .env("HOME", &self.home)
            .env("KUBECONFIG", self.home.join("none"))
            .env("EDITOR", "sed -i s/edit-me/edited/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, args: &[&str], input: &str) -> String {
        let mut child = self.command(args).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = timeout(PATIENCE, child.wait_with_output())
            .await
            .unwrap_or_else(|_| panic!("kubectl {args:?} did not end"))
            .unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(output.status.success(), "kubectl {args:?}: {out}{err}");
        assert!(!err.contains("rror"), "kubectl {args:?}: {err}");
        out
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        timeout(PATIENCE, self.served).await.unwrap().unwrap();
        std::fs::remove_dir_all(&self.home).unwrap();
    }
}

fn add_node(sim: &KubeSim) {
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/worker": ""}},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "ExternalIP", "address": "198.51.100.1"},
            ],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.33.1", "osImage": "Debian", "kernelVersion": "6.1", "architecture": "amd64"},
        },
    });
    sim.apply_direct(node).unwrap();
}

fn service(port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations:\n    note: edit-me\n\
         spec:\n  type: LoadBalancer\n  selector: {{app: web}}\n  ports:\n  - port: {port}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_reads_nodes_and_events() {
    let cluster = Cluster::start("nodes").await;
    add_node(&cluster.sim);
    let nodes = cluster.run(&["get", "nodes", "-o", "wide"], "").await;
    let cells: Vec<&str> = nodes.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(cells[..3], ["n1", "Ready", "worker"], "{nodes}");
    assert_eq!(
        cells[4..9],
        ["v1.33.1", "10.0.0.1", "198.51.100.1", "Debian", "6.1"],
        "{nodes}"
    );
    assert!(nodes.contains("CONTAINER-RUNTIME"), "{nodes}");
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "n1"}, "type": "Warning", "reason": "Gone",
        "message": "bye", "lastTimestamp": "2026-01-01T00:00:00Z", "source": {"component": "ccm"},
    });
    cluster.sim.apply_direct(event).unwrap();
    let events = cluster.run(&["get", "events"], "").await;
    assert!(
        events.contains("LAST SEEN") && events.contains("node/n1"),
        "{events}"
    );
    let events = cluster.run(&["events"], "").await;
    assert!(events.contains("bye"), "{events}");
    let described = cluster.run(&["describe", "node", "n1"], "").await;
    assert!(
        described.contains("InternalIP:")
            && described.contains("node.kubernetes.io/not-ready:NoSchedule"),
        "{described}"
    );
    cluster.run(&["label", "node", "n1", "zone=a"], "").await;
    cluster
        .run(&["taint", "node", "n1", "k=v:NoExecute"], "")
        .await;
    cluster.run(&["cordon", "n1"], "").await;
    let node = cluster.sim.get("nodes", "", "n1").unwrap();
    assert_eq!(node["metadata"]["labels"]["zone"], "a");
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(node["spec"]["taints"].as_array().unwrap().len(), 2);
    let gone = cluster.run(&["delete", "node", "n1"], "").await;
    assert_eq!(gone.trim(), "node \"n1\" deleted");
    assert_eq!(cluster.sim.get("nodes", "", "n1"), None);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_applies_edits_and_deletes_services() {
    let cluster = Cluster::start("services").await;
    let apply = ["apply", "-f", "-"];
    assert_eq!(
        cluster.run(&apply, &service(80)).await.trim(),
        "service/web created"
    );
    assert_eq!(
        cluster.run(&apply, &service(80)).await.trim(),
        "service/web unchanged"
    );
    assert_eq!(
        cluster.run(&apply, &service(81)).await.trim(),
        "service/web configured"
    );
    let listed = cluster.run(&["get", "svc"], "").await;
    let line = listed.lines().find(|l| l.starts_with("web")).unwrap();
    assert!(
        line.contains("<pending>") && line.contains("81:3"),
        "{listed}"
    );
    let ingress =
        json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}});
    cluster
        .sim
        .patch_merge("services", "default", "web", &ingress)
        .unwrap();
    let described = cluster.run(&["describe", "svc", "web"], "").await;
    assert!(
        described.contains("LoadBalancer Ingress:") && described.contains("lb.example.com"),
        "{described}"
    );
    cluster.run(&["annotate", "svc", "web", "a=b"], "").await;
    cluster
        .run(&["label", "svc", "web", "tier=front"], "")
        .await;
    let patch = r#"{"metadata":{"finalizers":["x.io/hold"]}}"#;
    cluster.run(&["patch", "svc", "web", "-p", patch], "").await;
    let json_patch = r#"[{"op":"add","path":"/metadata/labels/j","value":"1"}]"#;
    cluster
        .run(
            &["patch", "svc", "web", "--type", "json", "-p", json_patch],
            "",
        )
        .await;
    let edited = cluster.run(&["edit", "svc", "web"], "").await;
    assert_eq!(edited.trim(), "service/web edited");
    let stored = cluster.sim.get("services", "default", "web").unwrap();
    assert_eq!(stored["metadata"]["annotations"]["note"], "edited");
    assert_eq!(stored["metadata"]["annotations"]["a"], "b");
    assert_eq!(
        stored["metadata"]["labels"],
        json!({"tier": "front", "j": "1"})
    );
    assert_eq!(stored["spec"]["ports"].as_array().unwrap().len(), 1);
    assert_eq!(
        stored["status"]["loadBalancer"]["ingress"][0]["hostname"],
        "lb.example.com"
    );
    cluster
        .run(&["delete", "svc", "web", "--wait=false"], "")
        .await;
    let held = cluster.sim.get("services", "default", "web").unwrap();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    let free = json!({"metadata": {"finalizers": null}});
    cluster
        .sim
        .patch_merge("services", "default", "web", &free)
        .unwrap();
    assert_eq!(cluster.sim.get("services", "default", "web"), None);
    cluster.run(&["create", "namespace", "shop"], "").await;
    cluster
        .run(
            &[
                "create",
                "configmap",
                "c",
                "--from-literal=a=b",
                "-n",
                "shop",
            ],
            "",
        )
        .await;
    cluster
        .run(
            &[
                "create",
                "secret",
                "generic",
                "s",
                "--from-literal=a=foo",
                "-n",
                "shop",
            ],
            "",
        )
        .await;
    assert_eq!(
        cluster.sim.get("secrets", "shop", "s").unwrap()["data"]["a"],
        "Zm9v"
    );
    cluster
        .run(
            &[
                "create",
                "service",
                "loadbalancer",
                "lb",
                "--tcp=80:8080",
                "-n",
                "shop",
            ],
            "",
        )
        .await;
    let lb = cluster.sim.get("services", "shop", "lb").unwrap();
    assert_eq!(lb["spec"]["ports"][0]["targetPort"], 8080);
    cluster
        .run(&["create", "serviceaccount", "robot", "-n", "shop"], "")
        .await;
    let token = cluster
        .run(&["create", "token", "robot", "-n", "shop"], "")
        .await;
    assert!(token.starts_with("sa-"), "{token}");
    cluster.run(&["delete", "namespace", "shop"], "").await;
    assert_eq!(cluster.sim.get("configmaps", "shop", "c"), None);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_follows_changes_as_a_table() {
    let cluster = Cluster::start("watch").await;
    add_node(&cluster.sim);
    let mut child = cluster.command(&["get", "nodes", "-w"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || {
        timeout(PATIENCE, lines.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap()
    };
    assert!(next().await.starts_with("NAME"));
    assert!(next().await.starts_with("n1"));
    let cordon = json!({"spec": {"unschedulable": true}});
    cluster.sim.patch_merge("nodes", "", "n1", &cordon).unwrap();
    let changed = next().await;
    assert!(changed.contains("Ready,SchedulingDisabled"), "{changed}");
    child.kill().await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_waits_for_the_end_of_a_held_object() {
    let cluster = Cluster::start("wait").await;
    cluster.run(&["apply", "-f", "-"], &service(80)).await;
    let hold = json!({"metadata": {"finalizers": ["x.io/hold"]}});
    cluster
        .sim
        .patch_merge("services", "default", "web", &hold)
        .unwrap();
    let child = cluster.command(&["delete", "svc", "web"]).spawn().unwrap();
    let wait = async {
        loop {
            let held = cluster.sim.get("services", "default", "web").unwrap();
            if held["metadata"]["deletionTimestamp"].is_string() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap();
    let free = json!({"metadata": {"finalizers": null}});
    cluster
        .sim
        .patch_merge("services", "default", "web", &free)
        .unwrap();
    let output = timeout(PATIENCE, child.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    assert!(output.status.success());
    cluster.stop().await;
}
