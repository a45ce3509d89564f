//! One API server for all tests of the process.

use std::{path::PathBuf, sync::OnceLock};

use anyhow::{Context, Result, anyhow};
use ccm_core::runtime::RbacOptions;
use ccm_envtest::{ApiServer, AuditCounts};
use kube::Client;
use tokio::sync::{Mutex, MutexGuard};

/// The API server that all tests of the process share.
pub struct Api {
    server: Mutex<ApiServer>,
    turn: Mutex<()>,
    /// The runtime of the thread that owns the processes.
    owner: tokio::runtime::Handle,
    /// The manager's kubeconfig.
    pub manager_kubeconfig: PathBuf,
    /// The tests' kubeconfig.
    pub admin_kubeconfig: PathBuf,
    admin: String,
}

/// The shared API server, started by the first test that asks.
///
/// # Errors
/// It does not start; every test then fails with the reason.
pub fn api() -> Result<&'static Api> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(|| start().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|reason| anyhow!("the API server did not start: {reason}"))
}

/// The processes belong to a thread that lives as long as this process: the kernel ends them with
/// it, and no test's runtime owns them.
fn start() -> Result<Api> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = sender.send(Err(error.into()));
                return;
            }
        };
        let owner = runtime.handle().clone();
        runtime.block_on(async move {
            let started = ApiServer::start().await;
            let _ = sender.send(started.map(|server| (server, owner)));
            std::future::pending::<()>().await;
        });
    });
    let (server, owner) = receiver.recv().context("the starting thread ended")??;
    Ok(Api {
        manager_kubeconfig: server.write_kubeconfig("manager")?,
        admin_kubeconfig: server.write_kubeconfig("admin")?,
        admin: server.kubeconfig("admin"),
        server: Mutex::new(server),
        turn: Mutex::new(()),
        owner,
    })
}

impl Api {
    /// Waits until no other test uses the cluster.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// A client of the administrator, on the runtime of the caller.
    ///
    /// # Errors
    /// The kubeconfig is not accepted.
    pub async fn client(&self) -> Result<Client> {
        ccm_testkit::install_tls();
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&self.admin)?;
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        Ok(Client::try_from(config)?)
    }

    /// Ends kube-apiserver; its data stays. Every test that does so starts it again.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub async fn stop_server(&'static self) -> Result<()> {
        let stop = async { self.server.lock().await.stop_server().await };
        self.owner.spawn(stop).await?
    }

    /// Starts kube-apiserver again, owned by the process and not by the test.
    ///
    /// # Errors
    /// It is not ready in time.
    pub async fn start_server(&'static self) -> Result<()> {
        let start = async { self.server.lock().await.start_server().await };
        self.owner.spawn(start).await?
    }

    /// Gives the manager's account exactly the role of these options, see
    /// [`ApiServer::grant_manager`].
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn grant_manager(&self, options: &RbacOptions) -> Result<()> {
        self.server.lock().await.grant_manager(options).await
    }

    /// The server itself, to read its address or its audit log.
    pub async fn server(&self) -> MutexGuard<'_, ApiServer> {
        self.server.lock().await
    }

    /// The manager's requests so far.
    ///
    /// # Errors
    /// The audit log cannot be read.
    pub async fn audit(&self) -> Result<AuditCounts> {
        self.server.lock().await.audit()
    }
}
