//! A manager without work of its own: for what the process does whatever its controllers are.

use std::path::PathBuf;

use anyhow::Result;
use ccm_core::runtime::{RbacOptions, permissions, rbac_manifest};
use ccm_envtest::{
    ManagerOptions, account_token, apply, free_port, kubeconfig, wait_until_granted,
};
use kube::{Client, Config, config::Kubeconfig};
use tempfile::TempDir;

use crate::{
    bench::{CLUSTER_ID, Cloud},
    shared::{Api, api},
};

/// The program's name, which its account, its roles and its Lease have too.
const PROGRAM: &str = "cloud-controller-manager";

/// An account, a Lease and files of its own on the shared API server, and a cloud of its own: such
/// managers need not take turns. Their one controller is one that the cloud does not offer.
pub struct Idle {
    /// The API server.
    pub api: &'static Api,
    /// The administrator's client.
    pub client: Client,
    /// The name of account, roles and Lease, all in `kube-system`.
    pub name: String,
    /// The secure port.
    pub port: u16,
    /// The account's token.
    pub token: String,
    dir: TempDir,
    cloud: Cloud,
}

impl Idle {
    /// Makes the account with the role of such a manager.
    ///
    /// # Errors
    /// The API server does not start or refuses.
    pub async fn new(name: &str) -> Result<Self> {
        let api = api()?;
        let client = api.client().await?;
        let options = RbacOptions {
            controllers: Default::default(),
            ..RbacOptions::default()
        };
        apply(&client, &rbac_manifest(&options).replace(PROGRAM, name)).await?;
        let token = account_token(&client, "kube-system", name).await?;
        let this = Self {
            api,
            client,
            name: name.to_owned(),
            port: free_port()?,
            token,
            dir: TempDir::with_prefix("ccm-idle-")?,
            cloud: Cloud::start(1).await?,
        };
        let mut wanted = permissions(&options);
        for permission in &mut wanted {
            for object in &mut permission.names {
                *object = object.replace(PROGRAM, name);
            }
        }
        wait_until_granted(&this.own_client().await?, &wanted).await?;
        Ok(this)
    }

    /// A client with the account's token.
    async fn own_client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig().await)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        Ok(Client::try_from(config)?)
    }

    async fn kubeconfig(&self) -> String {
        let server = self.api.server().await;
        let (url, ca) = (server.url(), server.ca_file());
        kubeconfig(url, Some(&ca), &self.name, Some(&self.token))
    }

    /// How it is started: it leads, serves the secure port, and `flags` come last.
    ///
    /// # Errors
    /// A file cannot be written.
    pub async fn options(&self, flags: &[&str]) -> Result<ManagerOptions> {
        let access = self.write("kubeconfig", &self.kubeconfig().await)?;
        let review = access.display();
        let mut all = vec![
            format!("--cluster-name={CLUSTER_ID}"),
            "--controllers=node-route-controller".to_owned(),
            "--leader-elect=true".to_owned(),
            format!("--leader-elect-resource-name={}", self.name),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port),
            format!("--authentication-kubeconfig={review}"),
            format!("--authorization-kubeconfig={review}"),
        ];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Ok(ManagerOptions {
            kubeconfig: access,
            cloud_config: self.write("cloud.conf", &self.cloud.config()?)?,
            flags: all,
            environment: Vec::new(),
        })
    }

    /// Writes a file of this test and returns its path.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }
}
