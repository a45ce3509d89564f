//! The parts of the sandbox and how they find each other.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use ccm_cloudsim::CloudSim;
use ccm_envtest::{ApiServer, Manager, ManagerOptions, cloud_config, free_port, kubeconfig};
use ccm_kubesim::KubeSim;
use kube::{Client, Config};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::kubelets::Kubelets;

const CLUSTER_ID: &str = "sandbox";

/// The manager may have to wait for nothing but a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// The Kubernetes API: in this process, or the real one.
enum Api {
    Simulated { url: String },
    Real(Box<ApiServer>),
}

/// A running sandbox. Dropping it ends everything, from the top: the manager before what it talks
/// to, the folder last.
pub(crate) struct Sandbox {
    manager: Manager,
    secure_port: u16,
    api: Api,
    aws_url: String,
    region: String,
    machines: Vec<String>,
    kubelets: Kubelets,
    _background: DropGuard,
    dir: TempDir,
}

impl Sandbox {
    /// Starts all parts and waits until the manager is ready and the first Nodes are initialised.
    pub(crate) async fn start(nodes: usize, real: bool) -> Result<Self> {
        ccm_testkit::install_tls();
        let dir = TempDir::with_prefix("ccm-sandbox-")?;
        let background = CancellationToken::new();

        let cloud = CloudSim::new(ccm_cloudsim::Options {
            start: now(),
            ..Default::default()
        });
        let region = ccm_cloudsim::Options::default().region;
        let machines = cloud
            .aws()
            .standard_cluster(CLUSTER_ID, nodes)
            .map_err(|error| anyhow::anyhow!("emulated AWS: {error:?}"))?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let aws_url = format!("http://{}", listener.local_addr()?);
        let (server, end) = (cloud.clone(), background.clone().cancelled_owned());
        tokio::spawn(async move { server.serve(listener, end).await });

        let api = if real {
            eprintln!("starting etcd and kube-apiserver ...");
            Api::Real(Box::new(ApiServer::start().await?))
        } else {
            let sim = KubeSim::new(ccm_kubesim::Options {
                start: now(),
                ..Default::default()
            });
            // A real server publishes here whose client certificates it believes: none.
            sim.apply_direct(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "extension-apiserver-authentication", "namespace": "kube-system" },
            }))
            .map_err(|error| anyhow::anyhow!("simulated API: {error:?}"))?;
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            let url = format!("http://{}", listener.local_addr()?);
            let end = background.clone().cancelled_owned();
            tokio::spawn(async move { sim.serve(listener, end).await });
            Api::Simulated { url }
        };

        let config_path = dir.path().join("cloud.conf");
        let text = cloud_config(
            &aws_url,
            &region,
            &machines.vpc_id,
            machines
                .subnet_ids
                .first()
                .context("the emulated cluster has no subnet")?,
            CLUSTER_ID,
        );
        std::fs::write(&config_path, text)?;
        let manager_kubeconfig = dir.path().join("manager.kubeconfig");
        std::fs::write(&manager_kubeconfig, api.kubeconfig("manager"))?;
        let secure_port = free_port()?;
        let mut manager = Manager::start(&ManagerOptions {
            flags: flags(&manager_kubeconfig, secure_port),
            kubeconfig: manager_kubeconfig,
            cloud_config: config_path,
            environment: Vec::new(),
        })?;
        let client = api.client().await?;
        let kubelets = Kubelets::new(client, cloud.clone());
        kubelets.step().await?;
        manager.wait_until_ready(READY_LIMIT).await?;
        kubelets.wait_until_initialised(READY_LIMIT).await?;
        Ok(Self {
            dir,
            api,
            aws_url,
            region,
            manager,
            secure_port,
            machines: machines.instance_ids,
            kubelets,
            _background: background.drop_guard(),
        })
    }

    /// Writes the user's kubeconfig and returns its path.
    pub(crate) fn write_kubeconfig(&self, wanted: Option<&Path>) -> Result<PathBuf> {
        let path = wanted.map_or_else(|| self.dir.path().join("kubeconfig"), Path::to_owned);
        std::fs::write(&path, self.api.kubeconfig("admin"))
            .with_context(|| format!("cannot write --kubeconfig {}", path.display()))?;
        Ok(std::path::absolute(path)?)
    }

    /// What the AWS command line and boto3 need to reach the emulated cloud.
    pub(crate) fn aws_environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.aws_url.clone()),
            ("AWS_DEFAULT_REGION", self.region.clone()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
        ]
    }

    /// Plays the kubelets and watches the manager. Returns only with an error.
    pub(crate) async fn supervise(&mut self) -> Result<()> {
        loop {
            self.manager.process.check_running()?;
            // A kubelet that cannot reach the API server tries again; so do these.
            if let Err(error) = self.kubelets.step().await {
                eprintln!("sandbox: kubelets: {error:#}");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The manager's last lines.
    pub(crate) fn manager_log(&self, lines: usize) -> String {
        self.manager.process.tail(lines)
    }

    /// What to type next.
    pub(crate) fn welcome(&self, kubeconfig: &Path) -> String {
        let environment: String = self
            .aws_environment()
            .into_iter()
            .map(|(name, value)| format!("  export {name}={value}\n"))
            .collect();
        let machine = self.machines.first().map_or("<id>", String::as_str);
        format!(
            "\nThe sandbox is ready: {} machines, the manager runs against {}.\n\n\
             In another terminal:\n\
             \n  export KUBECONFIG={}\n{environment}\n\
             \x20 kubectl get nodes -o wide\n\
             \x20 kubectl apply -f docs/tutorial/service.yaml\n\
             \x20 kubectl get svc web -w\n\
             \x20 kubectl describe svc web\n\
             \x20 kubectl get events\n\n\
             The emulated cloud:\n\
             \n  aws elbv2 describe-load-balancers          # or boto3, with the variables above\n\
             \x20 curl -s $AWS_ENDPOINT_URL/_sim/calls         # calls by action\n\
             \x20 curl -s -X POST $AWS_ENDPOINT_URL/_sim/instances/{machine}/terminate\n\
             \x20                                            # its Node goes within seconds\n\n\
             The manager's metrics: curl -s http://{}/metrics\n\
             Its secure port: curl -sk 'https://127.0.0.1:{}/healthz?verbose'\n\
             Ctrl-C ends everything and leaves nothing behind.\n",
            self.machines.len(),
            match &self.api {
                Api::Simulated { url } => format!("a simulated Kubernetes API at {url}"),
                Api::Real(server) => format!("kube-apiserver at {}", server.url()),
            },
            kubeconfig.display(),
            self.manager.health_address(),
            self.secure_port,
        )
    }
}

/// As a user runs it on a cluster: with leader election and the secure port.
fn flags(kubeconfig: &Path, secure_port: u16) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--cluster-name={CLUSTER_ID}"),
        "--leader-elect=true".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={secure_port}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
    ]
}

impl Api {
    fn kubeconfig(&self, user: &str) -> String {
        match self {
            Self::Simulated { url } => kubeconfig(url, None, user, None),
            Self::Real(server) => server.kubeconfig(user),
        }
    }

    async fn client(&self) -> Result<Client> {
        match self {
            Self::Simulated { url } => Ok(Client::try_from(Config::new(url.parse()?))?),
            Self::Real(server) => server.client().await,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the sandbox shows real times to a person"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
