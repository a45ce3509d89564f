//! One test's bench.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow};
use ccm_cloudsim::{CloudSim, aws::Cluster};
use ccm_envtest::{Manager, ManagerOptions, cloud_config};
use ccm_testkit::eventually;
use k8s_openapi::{
    api::core::v1::{Event, Namespace, Node, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api as KubeApi, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::MutexGuard};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    objects::tainted,
    shared::{Api, api},
};

/// The cluster id of every bench.
pub const CLUSTER_ID: &str = "kite";

/// Generous: a condition that holds at all holds within seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The emulated AWS of one test.
pub struct Cloud {
    /// State, call log, faults.
    pub sim: CloudSim,
    /// Ids of what `standard_cluster` made.
    pub cluster: Cluster,
    /// Its address.
    pub url: String,
    _server: DropGuard,
}

impl Cloud {
    /// An emulated AWS with `machines` machines, on a free port.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(machines: usize) -> Result<Self> {
        let sim = CloudSim::new(ccm_cloudsim::Options {
            start: now(),
            ..Default::default()
        });
        let cluster = sim
            .aws()
            .standard_cluster(CLUSTER_ID, machines)
            .map_err(|error| anyhow!("emulated AWS: {error:?}"))?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let (server, end) = (sim.clone(), stop.clone().cancelled_owned());
        tokio::spawn(async move { server.serve(listener, end).await });
        Ok(Self {
            sim,
            cluster,
            url,
            _server: stop.drop_guard(),
        })
    }

    /// A cloud-config file for it.
    ///
    /// # Errors
    /// The cluster has no subnet.
    pub fn config(&self) -> Result<String> {
        let vpc = &self.cluster.vpc_id;
        let subnet = self.cluster.subnet_ids.first().context("no subnet")?;
        Ok(cloud_config(
            &self.url,
            "us-west-2",
            vpc,
            subnet,
            CLUSTER_ID,
        ))
    }
}

/// A clean cluster, an emulated AWS, and a manager once [`start_manager`](Self::start_manager) ran.
pub struct Bench {
    /// The API server.
    pub api: &'static Api,
    /// The administrator's client.
    pub client: Client,
    /// The emulated AWS.
    pub cloud: Cloud,
    /// The manager, when it runs.
    pub manager: Option<Manager>,
    dir: TempDir,
    config: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    /// Waits for its turn, empties the cluster and makes an AWS with `machines` machines.
    ///
    /// # Errors
    /// The API server does not start or does not answer.
    pub async fn new(machines: usize) -> Result<Self> {
        let api = api()?;
        let turn = api.turn().await;
        let client = api.client().await?;
        clean(&client).await.context("empty the cluster")?;
        let cloud = Cloud::start(machines).await?;
        let dir = TempDir::with_prefix("ccm-bench-")?;
        let config = dir.path().join("cloud.conf");
        std::fs::write(&config, cloud.config()?)?;
        Ok(Self {
            api,
            client,
            cloud,
            manager: None,
            dir,
            config,
            _turn: turn,
        })
    }

    /// Starts the manager with further flags and waits until it is ready.
    ///
    /// # Errors
    /// It ends or does not become ready; the text holds its last output.
    pub async fn start_manager(&mut self, flags: &[&str]) -> Result<()> {
        let mut manager = Manager::start(&self.manager_options(flags))?;
        manager.wait_until_ready(LIMIT).await?;
        self.manager = Some(manager);
        Ok(())
    }

    /// What [`start_manager`](Self::start_manager) starts, for tests that start it otherwise.
    pub fn manager_options(&self, flags: &[&str]) -> ManagerOptions {
        ManagerOptions {
            kubeconfig: self.api.manager_kubeconfig.clone(),
            cloud_config: self.config.clone(),
            flags: std::iter::once(format!("--cluster-name={CLUSTER_ID}"))
                .chain(flags.iter().map(|flag| (*flag).to_owned()))
                .collect(),
            environment: Vec::new(),
        }
    }

    /// A path for a further file of this test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Kills the manager at once, as a crash does.
    ///
    /// # Errors
    /// None runs, or the kernel refuses.
    pub async fn kill_manager(&mut self) -> Result<()> {
        self.manager
            .take()
            .context("no manager runs")?
            .process
            .kill()
            .await
    }

    /// Ends the manager as a rolling update does, and checks that it ends well.
    ///
    /// # Errors
    /// None runs, or it does not end with success in time.
    pub async fn stop_manager(&mut self) -> Result<()> {
        let mut manager = self.manager.take().context("no manager runs")?;
        manager.process.signal("TERM").await?;
        let status = manager.process.wait(Duration::from_secs(30)).await?;
        if !status.success() {
            return Err(anyhow!(
                "ended with {status}:\n{}",
                manager.process.tail(20)
            ));
        }
        Ok(())
    }

    /// The manager's output so far.
    pub fn log(&self) -> String {
        self.manager
            .as_ref()
            .map(|manager| manager.process.output())
            .unwrap_or_default()
    }

    /// All Nodes.
    pub fn nodes(&self) -> KubeApi<Node> {
        KubeApi::all(self.client.clone())
    }

    /// The Services of the namespace `shop`.
    pub fn services(&self) -> KubeApi<Service> {
        KubeApi::namespaced(self.client.clone(), "shop")
    }

    /// The machine ids, in the order in which they were made.
    pub fn machines(&self) -> &[String] {
        &self.cloud.cluster.instance_ids
    }

    /// Terminates the machine of the last of these Nodes, all that joined; its kubelet is heard of
    /// no more. Answers with its name.
    ///
    /// # Errors
    /// There is none, or the emulated AWS or the API server refuses.
    pub async fn lose_last<'a>(&self, names: &'a [String]) -> Result<&'a str> {
        let machines = self.machines().iter();
        let (machine, name) = machines.zip(names).next_back().context("no machine")?;
        let lost = self.cloud.sim.aws().terminate(machine);
        lost.map_err(|error| anyhow!("{error}"))?;
        self.set_ready(name, "Unknown").await?;
        Ok(name)
    }

    /// The private DNS name of a machine: the name of its Node.
    ///
    /// # Errors
    /// There is no such machine.
    pub fn dns_name(&self, machine: &str) -> Result<String> {
        let instance = self.cloud.sim.aws().instance(machine);
        Ok(instance.context("no such machine")?.private_dns_name)
    }

    /// Registers a Node with the cloud taint for every machine and sets it Ready. Returns the names.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn join_all(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for machine in self.machines() {
            let name = self.dns_name(machine)?;
            self.create_node(&tainted(&name), "True").await?;
            names.push(name);
        }
        Ok(names)
    }

    /// Creates a Node and writes its Ready condition.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn create_node(&self, node: &Node, ready: &str) -> Result<Node> {
        let created = self.nodes().create(&PostParams::default(), node).await?;
        self.set_ready(&created.name_any(), ready).await?;
        Ok(created)
    }

    /// Writes a Node's Ready condition: `True`, `False` or `Unknown`.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn set_ready(&self, name: &str, status: &str) -> Result<()> {
        let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status, "reason": "Test" }] } });
        let params = PatchParams::default();
        self.nodes()
            .patch_status(name, &params, &Patch::Strategic(&patch))
            .await?;
        Ok(())
    }

    /// Waits until the Node is as `check` wants it.
    ///
    /// # Panics
    /// It is not in time.
    pub async fn node_until(&self, name: &str, what: &str, check: impl Fn(&Node) -> bool) -> Node {
        eventually(what, LIMIT, || async {
            let node = self.nodes().get(name).await.map_err(|e| e.to_string())?;
            if check(&node) {
                Ok(node)
            } else {
                Err(format!(
                    "{:?} {:?}",
                    node.spec,
                    node.status.map(|s| s.addresses)
                ))
            }
        })
        .await
    }

    /// Waits until the Node no longer carries the cloud taint.
    ///
    /// # Panics
    /// It still does when the time is up.
    pub async fn initialised(&self, name: &str) -> Node {
        self.node_until(name, "the Node is initialised", |node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
            !taints.is_some_and(|all| {
                all.iter()
                    .any(|taint| taint.key == "node.cloudprovider.kubernetes.io/uninitialized")
            })
        })
        .await
    }

    /// Waits until the Node is gone.
    ///
    /// # Panics
    /// It is still there when the time is up.
    pub async fn node_gone(&self, name: &str) {
        eventually("the Node is gone", LIMIT, || async {
            match self.nodes().get_opt(name).await {
                Ok(None) => Ok(()),
                Ok(Some(_)) => Err("it is there".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    }

    /// Creates a Service in the namespace `shop`.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn create_service(&self, service: &Service) -> Result<Service> {
        Ok(self
            .services()
            .create(&PostParams::default(), service)
            .await?)
    }

    /// Merge-patches a Service.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn patch_service(&self, name: &str, patch: Value) -> Result<Service> {
        let params = PatchParams::default();
        Ok(self
            .services()
            .patch(name, &params, &Patch::Merge(&patch))
            .await?)
    }

    /// Waits until the Service has a host name in its status and returns it.
    ///
    /// # Panics
    /// It has none when the time is up.
    pub async fn hostname(&self, name: &str) -> String {
        eventually("the Service has a load balancer", LIMIT, || async {
            let service = self.services().get(name).await.map_err(|e| e.to_string())?;
            hostname_of(&service).ok_or_else(|| format!("events: {:#?}", self.log_tail()))
        })
        .await
    }

    /// Deletes a Service and waits until it is gone.
    ///
    /// # Errors
    /// The API server refuses.
    ///
    /// # Panics
    /// It is still there when the time is up.
    pub async fn delete_service(&self, name: &str) -> Result<()> {
        self.services()
            .delete(name, &DeleteParams::default())
            .await?;
        self.service_gone(name).await;
        Ok(())
    }

    /// Waits until the Service is gone.
    ///
    /// # Panics
    /// It is still there when the time is up.
    pub async fn service_gone(&self, name: &str) {
        eventually("the Service is gone", LIMIT, || async {
            match self.services().get_opt(name).await {
                Ok(None) => Ok(()),
                Ok(Some(service)) => Err(format!(
                    "finalizers {:?}\n{}",
                    service.metadata.finalizers,
                    self.log_tail()
                )),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    }

    /// The events about an object: `(type, reason, message, count)`, oldest first.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn events(&self, name: &str) -> Result<Vec<(String, String, String, i32)>> {
        let events: KubeApi<Event> = KubeApi::all(self.client.clone());
        let params = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let mut events = events.list(&params).await?.items;
        events.sort_by_key(|event| event.last_timestamp.clone().map(|time| time.0));
        Ok(events
            .into_iter()
            .map(|event| {
                (
                    event.type_.unwrap_or_default(),
                    event.reason.unwrap_or_default(),
                    event.message.unwrap_or_default(),
                    event.count.unwrap_or_default(),
                )
            })
            .collect())
    }

    /// Waits until an event of that reason about the object is there and returns its message.
    ///
    /// # Panics
    /// There is none when the time is up.
    pub async fn event(&self, name: &str, reason: &str) -> String {
        eventually("the event is there", LIMIT, || async {
            let events = self.events(name).await.map_err(|e| e.to_string())?;
            let found = events.iter().find(|(_, r, _, _)| r == reason);
            found
                .map(|(_, _, message, _)| message.clone())
                .ok_or_else(|| format!("{reason} of {name} is not among {events:#?}"))
        })
        .await
    }

    /// Waits until `check` holds for the emulated cloud.
    ///
    /// # Panics
    /// It does not when the time is up.
    pub async fn cloud_until(
        &self,
        what: &str,
        check: impl Fn(&ccm_cloudsim::aws::Snapshot) -> Result<(), String>,
    ) {
        eventually(what, LIMIT, || async {
            check(&self.cloud.sim.aws().snapshot())
                .map_err(|reason| format!("{reason}\n{}", self.log_tail()))
        })
        .await;
    }

    /// Nothing of any load balancer is left in the cloud: check U2 of the fault cases.
    ///
    /// # Errors
    /// Names what is left.
    pub fn nothing_left(&self) -> Result<(), String> {
        let state = self.cloud.sim.aws().snapshot();
        let mut left: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        left.insert(
            "load balancers",
            state.load_balancers.keys().cloned().collect(),
        );
        left.insert(
            "target groups",
            state.target_groups.keys().cloned().collect(),
        );
        left.insert("listeners", state.listeners.keys().cloned().collect());
        let rules = state.security_groups.values().flat_map(|group| {
            group
                .rules
                .iter()
                .map(move |rule| format!("{}: {rule:?}", group.id))
        });
        left.insert("security group rules", rules.collect());
        left.retain(|_, of_kind| !of_kind.is_empty());
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("left in the cloud: {left:#?}"))
        }
    }

    fn log_tail(&self) -> String {
        self.manager
            .as_ref()
            .map(|manager| manager.process.tail(30))
            .unwrap_or_default()
    }
}

/// The first host name in the Service's status.
pub(crate) fn hostname_of(service: &Service) -> Option<String> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    status.ingress.as_ref()?.first()?.hostname.clone()
}

/// Removes every Node, the Services of `shop` and all events; finalizers too, since a test that
/// failed may have left a Service whose load balancer went with its emulated cloud.
async fn clean(client: &Client) -> Result<()> {
    let namespaces: KubeApi<Namespace> = KubeApi::all(client.clone());
    let shop = Namespace {
        metadata: ObjectMeta {
            name: Some("shop".to_owned()),
            ..Default::default()
        },
        ..Default::default()
    };
    match namespaces.create(&PostParams::default(), &shop).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => return Err(error.into()),
    }
    let services: KubeApi<Service> = KubeApi::namespaced(client.clone(), "shop");
    for service in services.list(&ListParams::default()).await? {
        let name = service.name_any();
        let release = json!({ "metadata": { "finalizers": null } });
        let params = PatchParams::default();
        for outcome in [
            services
                .patch(&name, &params, &Patch::Merge(&release))
                .await
                .map(|_| ()),
            services
                .delete(&name, &DeleteParams::default())
                .await
                .map(|_| ()),
        ] {
            match outcome {
                Ok(()) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let nodes: KubeApi<Node> = KubeApi::all(client.clone());
    nodes
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    for namespace in ["default", "shop"] {
        let events: KubeApi<Event> = KubeApi::namespaced(client.clone(), namespace);
        events
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the emulated cloud shares the wall clock of the real API server"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
