//! The route controller under its role. Its routes are in the memory of the test, and the manager
//! runs in the test's own process: what it asks of the API server is the same.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Result, anyhow};
use async_trait::async_trait;
use ccm_core::{
    cloud::{Class, Cloud, CloudError, CloudResult, Factory, Registry, Route, Routes, WantedRoute},
    config::{ControllerName, Env, Settings},
    runtime::{Clock, Manager, ManagerError, Random, RbacOptions, rbac_manifest},
};
use ccm_e2e_tests::{Bench, Request};
use ccm_envtest::apply;
use ccm_testkit::eventually;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{bench_with, compare, may};

const SOON: Duration = Duration::from_secs(60);

/// A table of routes in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    routes: Vec<Route>,
    /// Whether nothing more fits in.
    is_full: bool,
}

impl Memory {
    fn with<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn factory(&self) -> Factory {
        let memory = self.clone();
        Factory::new(
            "memory",
            Arc::new(move |_| {
                let cloud: Arc<dyn Cloud> = Arc::new(memory.clone());
                Box::pin(std::future::ready(Ok(cloud)))
            }),
        )
    }

    /// The destinations of the routes to this Node.
    fn to(&self, node: &str) -> Vec<String> {
        self.with(|table| {
            let to = table
                .routes
                .iter()
                .filter(|route| route.target_node == node);
            to.map(|route| route.destination_cidr.clone()).collect()
        })
    }
}

impl Cloud for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Routes for Memory {
    async fn list(&self, _: &[Arc<ccm_core::kube::Node>]) -> CloudResult<Vec<Route>> {
        Ok(self.with(|table| table.routes.clone()))
    }

    async fn create(&self, routes: &[WantedRoute]) -> Vec<CloudResult<()>> {
        let create = |wanted: &WantedRoute| {
            self.with(|table| {
                if table.is_full {
                    return Err(CloudError::new(Class::Quota, "the table is full"));
                }
                table.routes.push(wanted.route.clone());
                Ok(())
            })
        };
        routes.iter().map(create).collect()
    }

    async fn delete(&self, routes: &[Route]) -> Vec<CloudResult<()>> {
        self.with(|table| table.routes.retain(|route| !routes.contains(route)));
        routes.iter().map(|_| Ok(())).collect()
    }
}

/// A manager with nothing but routes.
struct Routing {
    cloud: Memory,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ManagerError>>,
}

impl Routing {
    fn start(bench: &Bench, options: &RbacOptions) -> Result<Self> {
        let cloud = Memory::default();
        let own_accounts = options.service_account_credentials;
        let kubeconfig = bench.api.manager_kubeconfig.display();
        let settings = Settings::parse([
            "--cloud-provider=memory".to_owned(),
            format!("--kubeconfig={kubeconfig}"),
            "--controllers=node-route-controller".to_owned(),
            "--cluster-cidr=10.64.0.0/16".to_owned(),
            "--route-reconciliation-period=1s".to_owned(),
            "--secure-port=0".to_owned(),
            format!("--use-service-account-credentials={own_accounts}"),
        ]);
        let manager = Manager::new(
            settings.map_err(|errors| anyhow!("{errors}"))?,
            Registry::new(vec![cloud.factory()])?,
            Env::default(),
            Clock::system(),
            Random::from_system(),
        );
        let stop = CancellationToken::new();
        let task = tokio::spawn(manager.run(stop.clone()));
        Ok(Self { cloud, stop, task })
    }

    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.task.await??)
    }
}

fn options(service_account_credentials: bool) -> RbacOptions {
    RbacOptions {
        controllers: [ControllerName::Route].into(),
        service_account_credentials,
        reviews: false,
        ..RbacOptions::default()
    }
}

/// The condition `NetworkUnavailable`: status and reason.
fn network(node: &Node) -> Option<(String, String)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let mut conditions = conditions.iter();
    let condition = conditions.find(|one| one.type_ == "NetworkUnavailable")?;
    let reason = condition.reason.clone().unwrap_or_default();
    Some((condition.status.clone(), reason))
}

async fn join(bench: &Bench, name: &str, range: &str) -> Result<()> {
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "podCIDR": range, "podCIDRs": [range], "providerID": format!("memory://{name}") },
    }))?;
    bench.create_node(&node, "True").await?;
    Ok(())
}

/// A first start, Nodes that come and one that goes, routes that fail again and again, the end.
async fn a_day_of_routes(bench: &Bench, options: &RbacOptions) -> Result<Vec<Request>> {
    let mark = bench.api.audit_mark().await?;
    let routing = Routing::start(bench, options)?;
    let is = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    join(bench, "n1", "10.64.1.0/24").await?;
    bench
        .node_until("n1", "the first Node has its route", |node| {
            network(node) == is("False", "RouteCreated")
        })
        .await;
    assert_eq!(routing.cloud.to("n1"), ["10.64.1.0/24"]);
    routing.cloud.with(|table| table.is_full = true);
    join(bench, "n2", "10.64.2.0/24").await?;
    bench
        .node_until("n2", "the second Node is told of the failure", |node| {
            network(node) == is("True", "NoRouteCreated")
        })
        .await;
    let told = bench.event("n2", "FailedToCreateRoute").await;
    assert!(told.contains("the table is full"), "{told}");
    // Each try has another duration in its text: they are combined after ten, and counted up then.
    eventually("the event is counted up", SOON, || async {
        let events = bench.events("n2").await;
        let events = events.map_err(|error| error.to_string())?;
        let counted = events
            .iter()
            .any(|(_, reason, _, count)| reason == "FailedToCreateRoute" && *count > 1);
        counted.then_some(()).ok_or_else(|| format!("{events:?}"))
    })
    .await;
    routing.cloud.with(|table| table.is_full = false);
    bench
        .node_until("n2", "the second Node has its route", |node| {
            network(node) == is("False", "RouteCreated")
        })
        .await;
    bench.nodes().delete("n1", &Default::default()).await?;
    eventually("the route of the Node that went is gone", SOON, || async {
        let left = routing.cloud.to("n1");
        left.is_empty()
            .then_some(())
            .ok_or_else(|| format!("{left:?}"))
    })
    .await;
    routing.stop().await?;
    bench.api.requests_since(mark).await
}

/// The rows of the route controller: no request is denied, each is in the table, and each row of
/// the table is used.
#[tokio::test]
async fn under_its_role_the_route_controller_works_and_uses_all_of_it() -> Result<()> {
    let options = options(false);
    let bench = bench_with(&options, 1).await?;
    let requests = a_day_of_routes(&bench, &options).await?;
    compare(&requests, &options)
}

/// REQ-APP-22
#[tokio::test]
async fn the_account_of_the_route_controller_has_its_role_and_needs_all_of_it() -> Result<()> {
    let options = options(true);
    let bench = bench_with(&options, 1).await?;
    let requests = a_day_of_routes(&bench, &options).await?;
    compare(&requests, &options)
}

/// Without `patch` on `nodes/status` routes are made, and the Node is not told.
#[tokio::test]
async fn without_its_row_routes_are_made_and_the_condition_fails_with_the_reason() -> Result<()> {
    let options = options(false);
    let bench = bench_with(&options, 1).await?;
    let role = rbac_manifest(&options);
    let less = role.replace("resources: [nodes/status]", "resources: [nodes/nothing]");
    anyhow::ensure!(role != less, "the row is not in\n{role}");
    apply(&bench.client, &less).await?;
    eventually("it is denied", SOON, || async {
        let may = may(&bench, "patch", "nodes/status").await;
        let may = may.map_err(|error| error.to_string())?;
        (!may)
            .then_some(())
            .ok_or_else(|| "it is allowed".to_owned())
    })
    .await;
    let mark = bench.api.audit_mark().await?;
    let routing = Routing::start(&bench, &options)?;
    join(&bench, "n1", "10.64.1.0/24").await?;
    eventually("the condition is denied", SOON, || async {
        let requests = bench.api.requests_since(mark).await;
        let requests = requests.map_err(|error| error.to_string())?;
        let denied = requests.iter().any(|r| {
            (r.verb.as_str(), r.resource.as_str(), r.code) == ("patch", "nodes/status", 403)
        });
        denied.then_some(()).ok_or_else(|| format!("{requests:?}"))
    })
    .await;
    assert_eq!(routing.cloud.to("n1"), ["10.64.1.0/24"]);
    let node = bench.nodes().get("n1").await?;
    assert_eq!(network(&node), None);
    // Given back, it is told at once.
    bench.api.grant_manager(&options).await?;
    bench
        .node_until("n1", "the Node is told of its route", |node| {
            network(node).is_some_and(|(status, _)| status == "False")
        })
        .await;
    routing.stop().await
}
