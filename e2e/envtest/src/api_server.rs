//! kube-apiserver and etcd.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use ccm_core::runtime::RbacOptions;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::{
    access::{MANAGER_ACCOUNT, account_token, account_user, grant},
    authority::Authority,
    binaries::Binaries,
    kubeconfig::kubeconfig,
    process::{Process, free_port},
};

/// How long start-up may take: five seconds on an idle machine, generously more on a busy one.
const START_LIMIT: Duration = Duration::from_secs(120);

/// The name of the manager's kubeconfig. It holds a token of the manager's ServiceAccount, whose
/// requests the audit log counts.
const MANAGER: &str = "manager";
/// The accounts of `--use-service-account-credentials`.
const CONTROLLER_ACCOUNTS: [&str; 3] =
    ["node-controller", "service-controller", "route-controller"];
/// The user of the tests.
const ADMIN: &str = "admin";

/// A running API server. Dropping it ends both processes and removes their files.
#[derive(Debug)]
pub struct ApiServer {
    dir: TempDir,
    url: String,
    port: u16,
    authority: Authority,
    tokens: BTreeMap<&'static str, String>,
    binaries: Binaries,
    etcd_url: String,
    etcd: Process,
    server: Option<Process>,
}

/// Requests of the manager's accounts as the audit log shows them: (verb, resource) → count.
pub type AuditCounts = BTreeMap<(String, String), usize>;

impl ApiServer {
    /// Starts etcd and kube-apiserver and waits until the server is ready.
    ///
    /// # Errors
    /// A binary is missing, or the server is not ready in time; the text holds its last output.
    pub async fn start() -> Result<Self> {
        ccm_testkit::install_tls();
        let binaries = Binaries::find()?;
        let dir = TempDir::with_prefix("ccm-envtest-")?;
        let (client_port, peer_port) = (free_port()?, free_port()?);
        let etcd_url = format!("http://127.0.0.1:{client_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let etcd = Process::start(
            "etcd",
            &binaries.etcd,
            &[
                format!("--data-dir={}", dir.path().join("etcd").display()),
                "--unsafe-no-fsync".to_owned(),
                format!("--listen-client-urls={etcd_url}"),
                format!("--advertise-client-urls={etcd_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
                "--log-level=error".to_owned(),
            ],
            &[],
            false,
        )?;
        let admin = uuid::Uuid::new_v4().simple().to_string();
        let port = free_port()?;
        let mut this = Self {
            url: format!("https://127.0.0.1:{port}"),
            port,
            dir,
            authority: Authority::new("envtest")?,
            tokens: BTreeMap::from([(ADMIN, admin)]),
            binaries,
            etcd_url,
            etcd,
            server: None,
        };
        this.write_files()?;
        this.start_server().await?;
        Ok(this)
    }

    /// The server's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The temporary folder, for further files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The authority of the server's own certificate and of its users' certificates.
    pub const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The file with that authority's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.file("ca.crt")
    }

    /// Writes a kubeconfig of the user `admin` or `manager` and returns its path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_kubeconfig(&self, user: &str) -> Result<PathBuf> {
        let path = self.dir.path().join(format!("{user}.kubeconfig"));
        std::fs::write(&path, self.kubeconfig(user))?;
        Ok(path)
    }

    /// The content of a kubeconfig of the user.
    pub fn kubeconfig(&self, user: &str) -> String {
        let token = self.tokens.get(user).map(String::as_str);
        kubeconfig(&self.url, Some(&self.ca_file()), user, token)
    }

    /// A client of the user `admin`.
    ///
    /// # Errors
    /// The configuration is not accepted.
    pub async fn client(&self) -> Result<Client> {
        self.client_of(ADMIN).await
    }

    /// A client of the user `admin` or `manager`.
    ///
    /// # Errors
    /// The configuration is not accepted.
    pub async fn client_of(&self, user: &str) -> Result<Client> {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig(user))?;
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// Ends kube-apiserver; etcd keeps the data.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub async fn stop_server(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            server.kill().await?;
        }
        Ok(())
    }

    /// Starts kube-apiserver again on the same port.
    ///
    /// # Errors
    /// It is not ready in time.
    pub async fn start_server(&mut self) -> Result<()> {
        let server = Process::start(
            "kube-apiserver",
            &self.binaries.kube_apiserver,
            &self.server_args(),
            &[],
            false,
        )?;
        self.server = Some(server);
        self.wait_until_ready().await
    }

    /// Gives the manager's account exactly the role that the product's table makes for this.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn grant_manager(&mut self, options: &RbacOptions) -> Result<()> {
        let admin = self.client().await?;
        if !self.tokens.contains_key(MANAGER) {
            let (namespace, name) = MANAGER_ACCOUNT;
            let token = account_token(&admin, namespace, name).await?;
            self.tokens.insert(MANAGER, token);
        }
        let manager = self.client_of(MANAGER).await?;
        grant(&admin, &manager, options).await
    }

    /// The requests of the manager's accounts so far, by verb and resource (with its subresource).
    ///
    /// # Errors
    /// The audit log cannot be read.
    pub fn audit(&self) -> Result<AuditCounts> {
        let mut counts = AuditCounts::new();
        for line in std::fs::read_to_string(self.file("audit.log"))?.lines() {
            // The last line may be half written.
            let Ok(event) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
            let verb = text("/verb").unwrap_or("?").to_owned();
            let resource = text("/objectRef/resource").unwrap_or("?");
            let resource = match text("/objectRef/subresource") {
                Some(sub) => format!("{resource}/{sub}"),
                None => resource.to_owned(),
            };
            *counts.entry((verb, resource)).or_insert(0) += 1;
        }
        Ok(counts)
    }

    /// The manager's writes so far; events, leases and questions left out.
    ///
    /// # Errors
    /// The audit log cannot be read.
    pub fn manager_writes(&self) -> Result<usize> {
        let writes = self
            .audit()?
            .into_iter()
            .filter(|((verb, resource), _)| is_write(verb, resource))
            .map(|(_, count)| count)
            .sum();
        Ok(writes)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write_files(&self) -> Result<()> {
        let serving = self.authority.server()?;
        let account_key = KeyPair::generate()?;
        let tokens: String = self
            .tokens
            .iter()
            .map(|(user, token)| format!("{token},{user},{user},\"system:masters\"\n"))
            .collect();
        let (namespace, manager) = MANAGER_ACCOUNT;
        let accounts: Vec<String> = std::iter::once(manager)
            .chain(CONTROLLER_ACCOUNTS)
            .map(|account| account_user(namespace, account))
            .collect();
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [
                { "level": "Metadata", "users": accounts, "verbs": ["create", "update", "patch", "delete", "get", "list", "watch"] },
                { "level": "None" },
            ],
        });
        for (name, content) in [
            ("ca.crt", self.authority.certificate().to_owned()),
            ("serving.crt", serving.certificate),
            ("serving.key", serving.key),
            ("account.key", account_key.serialize_pem()),
            ("account.pub", account_key.public_key_pem()),
            ("tokens.csv", tokens),
            ("audit.yaml", policy.to_string()),
            ("audit.log", String::new()),
        ] {
            std::fs::write(self.file(name), content).with_context(|| format!("write {name}"))?;
        }
        Ok(())
    }

    fn server_args(&self) -> Vec<String> {
        let file = |name: &str| self.file(name).display().to_string();
        vec![
            format!("--etcd-servers={}", self.etcd_url),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port),
            format!("--tls-cert-file={}", file("serving.crt")),
            format!("--tls-private-key-file={}", file("serving.key")),
            format!("--token-auth-file={}", file("tokens.csv")),
            // With it the server publishes the authority in the configmap that delegated
            // authentication reads.
            format!("--client-ca-file={}", file("ca.crt")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://127.0.0.1".to_owned(),
            format!("--service-account-key-file={}", file("account.pub")),
            format!("--service-account-signing-key-file={}", file("account.key")),
            "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--audit-policy-file={}", file("audit.yaml")),
            format!("--audit-log-path={}", file("audit.log")),
            "--audit-log-maxsize=0".to_owned(),
        ]
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let client = self.client().await?;
        let start = Instant::now();
        loop {
            self.etcd.check_running()?;
            if let Some(server) = &mut self.server {
                server.check_running()?;
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            match client.request_text(request).await {
                Ok(_) => break,
                Err(error) if start.elapsed() > START_LIMIT => {
                    let tail = self.server.as_ref().map(|s| s.tail(40)).unwrap_or_default();
                    return Err(error)
                        .with_context(|| format!("kube-apiserver is not ready:\n{tail}"));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        self.grant_manager(&RbacOptions::default()).await
    }
}

/// Whether a request changes something that lasts, events and Leases left out. A review is a
/// question, whatever its verb.
pub fn is_write(verb: &str, resource: &str) -> bool {
    !matches!(verb, "get" | "list" | "watch")
        && !matches!(
            resource,
            "events"
                | "leases"
                | "tokenreviews"
                | "subjectaccessreviews"
                | "selfsubjectaccessreviews"
        )
}
