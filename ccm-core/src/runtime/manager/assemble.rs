//! Which controllers there are, and the caches they stand on.

use std::{
    collections::BTreeSet,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    Cloud, ControllerName, LockOf, Manager, ManagerError, Prepared, RunningControllers, Tasks,
    lead::unasked,
};
use crate::{
    cloud::{OwnContext, fenced_load_balancers, fenced_routes},
    controllers::{
        node::NodeController,
        node_ipam::NodeIpamController,
        node_lifecycle::NodeLifecycleController,
        route::{RouteController, RouteStart},
        service::ServiceController,
    },
    kube::{ApiEventSink, Cached, Informer, Node, Service, Store},
    runtime::{Context, Fence, Health, Random},
};

/// The gate of readiness for the caches.
pub(super) const CACHES: &str = "caches";

/// How often it is said that caches are waited for.
const REMIND_EVERY: Duration = Duration::from_secs(10);

pub(super) type Start = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Why a controller ended, when it said so itself.
type Failure = Arc<Mutex<Option<ManagerError>>>;

/// Made, not yet running.
pub(super) struct Assembled {
    tasks: Tasks,
    nodes: Arc<Informer<Node>>,
    /// `None` when no controller looks at Services: then nothing is listed.
    services: Option<Arc<Informer<Service>>>,
    controllers: Vec<(ControllerName, LockOf, Start)>,
    failure: Failure,
}

/// The caches that must be full before a controller runs.
pub(super) struct Stores {
    nodes: Store<Node>,
    services: Option<Store<Service>>,
}

impl Stores {
    pub(super) async fn wait_until_synced(&self) {
        let synced = async {
            self.nodes.wait_until_synced().await;
            if let Some(services) = &self.services {
                services.wait_until_synced().await;
            }
        };
        let remind = async {
            loop {
                tokio::time::sleep(REMIND_EVERY).await;
                let services = self.services.as_ref();
                tracing::warn!(
                    nodes = self.nodes.has_synced(),
                    services = services.is_none_or(Store::has_synced),
                    "waiting for the first complete list of objects"
                );
            }
        };
        tokio::select! {
            biased;
            () = synced => {}
            () = remind => {}
        }
    }
}

impl Manager {
    /// Makes every controller that the flags ask for and the cloud can serve (REQ-APP-14), except
    /// those that leader migration gives to another component.
    pub(super) fn assemble(
        &self,
        prepared: &Prepared,
        cloud: &dyn Cloud,
        events: Arc<ApiEventSink>,
    ) -> Result<Assembled, ManagerError> {
        let mut make = Make {
            manager: self,
            prepared,
            events,
            lock: LockOf::Main,
            nodes: Arc::new(Informer::new()),
            services: None,
            controllers: Vec::new(),
            failure: Failure::default(),
        };
        for &name in &self.settings.controllers {
            let off = cloud.off_by_default().contains(&name);
            if off && !self.settings.named_controllers.contains(&name) {
                tracing::info!(controller = %name, "not started: it is off by default with this provider; name it in --controllers to start it");
                continue;
            }
            make.lock = self.lock_of(name);
            if make.lock == LockOf::Elsewhere {
                tracing::info!(controller = %name, "not started: leader migration gives it to another component");
                continue;
            }
            match name {
                ControllerName::Node => make.node(cloud)?,
                ControllerName::NodeLifecycle => make.node_lifecycle(cloud)?,
                ControllerName::Service => make.service(cloud)?,
                ControllerName::Route => make.route(cloud)?,
                ControllerName::NodeIpam => make.node_ipam(cloud)?,
                ControllerName::Own { .. } => make.own(cloud, name)?,
            }
        }
        if make.controllers.is_empty() {
            tracing::error!("no controller runs: check --controllers and what the cloud offers");
        }
        Ok(Assembled {
            tasks: Tasks::new(),
            nodes: make.nodes,
            services: make.services,
            controllers: make.controllers,
            failure: make.failure,
        })
    }

    fn lock_of(&self, name: ControllerName) -> LockOf {
        let migration = self.settings.leader_migration.as_ref();
        migration.map_or(LockOf::Main, |migration| migration.lock_of(name))
    }
}

struct Make<'a> {
    manager: &'a Manager,
    prepared: &'a Prepared,
    events: Arc<ApiEventSink>,
    /// The lock of the controller that is being made.
    lock: LockOf,
    nodes: Arc<Informer<Node>>,
    services: Option<Arc<Informer<Service>>>,
    controllers: Vec<(ControllerName, LockOf, Start)>,
    failure: Failure,
}

impl Make<'_> {
    fn fence(&self) -> Fence {
        self.prepared.fences.of(self.lock)
    }

    fn context(&self, client: &str) -> Result<Context, ManagerError> {
        Ok(Context {
            client: self.prepared.clients.controller(client, self.fence())?,
            events: Arc::clone(&self.events) as _,
            clock: self.manager.clock.clone(),
            random: self.manager.random.clone(),
            registry: self.manager.registry.clone(),
            queues: self.prepared.queues.clone(),
            loops: self.prepared.loops.clone(),
            took_over: self.prepared.took_over.clone(),
        })
    }

    fn node(&mut self, cloud: &dyn Cloud) -> Result<(), ManagerError> {
        let Some(instances) = cloud.instances() else {
            skip(ControllerName::Node, cloud, "instances");
            return Ok(());
        };
        let context = self.context("node-controller")?;
        let settings = self.manager.settings.node.clone();
        let controller = NodeController::new(&context, &self.nodes, instances, settings)?;
        self.add(ControllerName::Node, |stop| Box::pin(controller.run(stop)));
        Ok(())
    }

    fn node_lifecycle(&mut self, cloud: &dyn Cloud) -> Result<(), ManagerError> {
        let Some(instances) = cloud.instances() else {
            skip(ControllerName::NodeLifecycle, cloud, "instances");
            return Ok(());
        };
        let context = self.context("node-controller")?;
        let settings = self.manager.settings.node_lifecycle.clone();
        let controller = NodeLifecycleController::new(&context, &self.nodes, instances, settings)?;
        self.add(ControllerName::NodeLifecycle, |stop| {
            Box::pin(controller.run(stop))
        });
        Ok(())
    }

    fn service(&mut self, cloud: &dyn Cloud) -> Result<(), ManagerError> {
        let Some(balancers) = cloud.load_balancers() else {
            skip(ControllerName::Service, cloud, "load balancers");
            return Ok(());
        };
        let balancers = fenced_load_balancers(balancers, self.fence());
        let context = self.context("service-controller")?;
        let settings = self.manager.settings.service.clone();
        let services = self
            .services
            .get_or_insert_with(|| Arc::new(Informer::new()));
        let services = Arc::clone(services);
        let controller =
            ServiceController::new(&context, &services, &self.nodes, balancers, settings)?;
        // A Service that is gone still looks as if it had its finalizer.
        let fresh = self.catch_up(&services);
        self.add(ControllerName::Service, |stop| {
            Box::pin(async move {
                if fresh.is_there(&stop).await {
                    controller.run(stop).await;
                }
            })
        });
        Ok(())
    }

    fn route(&mut self, cloud: &dyn Cloud) -> Result<(), ManagerError> {
        let settings = self.manager.settings.route.clone();
        let routes = cloud.routes();
        match (RouteStart::of(&settings, routes.is_some()), routes) {
            (RouteStart::Run, Some(routes)) => {
                let routes = fenced_routes(routes, self.fence());
                let context = self.context("route-controller")?;
                let controller = RouteController::new(&context, &self.nodes, routes, settings)?;
                // A route to a Node that is not known yet looks like an orphan.
                let fresh = self.catch_up(&self.nodes);
                self.add(ControllerName::Route, |stop| {
                    Box::pin(async move {
                        if fresh.is_there(&stop).await {
                            controller.run(stop).await;
                        }
                    })
                });
            }
            (RouteStart::SwitchedOff, _) => tracing::info!(
                controller = %ControllerName::Route,
                "controller not started: --configure-cloud-routes=false"
            ),
            (RouteStart::Run | RouteStart::NoRoutes, _) => {
                skip(ControllerName::Route, cloud, "routes");
            }
        }
        Ok(())
    }

    fn node_ipam(&mut self, cloud: &dyn Cloud) -> Result<(), ManagerError> {
        let context = self.context("node-controller")?;
        let made = NodeIpamController::new(
            &context,
            &self.nodes,
            cloud.pod_cidrs(),
            cloud.node_ipam_policy(),
            &self.manager.settings.node_ipam,
        )?;
        let Some(controller) = made else {
            tracing::info!(
                controller = %ControllerName::NodeIpam,
                "controller not started: --allocate-node-cidrs=false"
            );
            return Ok(());
        };
        let failure = Arc::clone(&self.failure);
        // Two Nodes must never be given one range.
        let fresh = self.catch_up(&self.nodes);
        self.add(ControllerName::NodeIpam, |stop| {
            Box::pin(async move {
                if !fresh.is_there(&stop).await {
                    return;
                }
                if let Err(error) = controller.run(stop).await {
                    let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    *failure = Some(error.into());
                }
            })
        });
        Ok(())
    }

    /// A controller that only the provider has.
    fn own(&mut self, cloud: &dyn Cloud, name: ControllerName) -> Result<(), ManagerError> {
        let own = self.prepared.factory.own.controllers;
        let account = own
            .iter()
            .find(|own| own.name == name)
            .map(|own| own.account);
        let context = self.context(account.unwrap_or(name.as_str()))?;
        let settings = &self.manager.settings;
        let made = cloud.own_controller(
            name,
            &OwnContext {
                context: &context,
                nodes: &self.nodes,
                flags: &settings.own_flags,
                node_monitor_period: settings.node_lifecycle.monitor_period,
            },
        );
        let run = made.map_err(|problem| ManagerError::Own { name, problem })?;
        self.add(name, run);
        Ok(())
    }

    fn catch_up<K: Cached>(&self, cache: &Arc<Informer<K>>) -> CatchUp<K> {
        let elected = self.manager.settings.leader_election.is_some();
        CatchUp(Some(Arc::clone(cache)).filter(|_| elected))
    }

    fn add(
        &mut self,
        name: ControllerName,
        start: impl FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        self.controllers.push((name, self.lock, Box::new(start)));
    }
}

/// A cache that has to show the last writes of whoever led before: its watch may be behind.
struct CatchUp<K>(Option<Arc<Informer<K>>>);

impl<K: Cached> CatchUp<K> {
    /// Waits until it does; `false` when the end came first.
    async fn is_there(&self, stop: &CancellationToken) -> bool {
        let Some(cache) = &self.0 else { return true };
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            () = cache.refresh() => true,
        }
    }
}

fn skip(name: ControllerName, cloud: &dyn Cloud, missing: &str) {
    tracing::warn!(
        controller = %name,
        provider = cloud.name(),
        missing,
        "controller not started: the provider does not support it"
    );
}

impl Assembled {
    pub(super) fn stores(&self) -> Stores {
        Stores {
            nodes: self.nodes.store(),
            services: self.services.as_ref().map(|services| services.store()),
        }
    }

    /// The controllers that were made.
    pub(super) fn names(&self) -> BTreeSet<ControllerName> {
        self.controllers.iter().map(|(name, ..)| *name).collect()
    }

    /// Starts the watches. All listeners are there by now; they are told nothing before
    /// [`release_informers`](Self::release_informers).
    pub(super) fn run_informers(
        &mut self,
        stop: &CancellationToken,
        client: kube::Client,
        random: &Random,
    ) {
        let nodes = Arc::clone(&self.nodes);
        nodes.hold();
        let (own_client, own_random, own_stop) = (client.clone(), random.clone(), stop.clone());
        self.tasks.spawn("node watch", async move {
            nodes.run(own_client, own_random, own_stop).await;
        });
        if let Some(services) = self.services.clone() {
            services.hold();
            let (random, stop) = (random.clone(), stop.clone());
            self.tasks.spawn("service watch", async move {
                services.run(client, random, stop).await;
            });
        }
    }

    /// Tells the listeners of every object and from now on of every change.
    pub(super) fn release_informers(&self) {
        self.nodes.release();
        if let Some(services) = &self.services {
            services.release();
        }
    }

    /// The controllers of a lock.
    pub(super) fn take(&mut self, lock: LockOf) -> Vec<(ControllerName, Start)> {
        let (of_lock, others) = mem::take(&mut self.controllers)
            .into_iter()
            .partition(|(_, needs, _)| *needs == lock);
        self.controllers = others;
        let of_lock: Vec<_> = of_lock;
        of_lock
            .into_iter()
            .map(|(name, _, start)| (name, start))
            .collect()
    }

    pub(super) fn start(
        &mut self,
        name: ControllerName,
        start: Start,
        stop: &CancellationToken,
        health: &Health,
        running: &RunningControllers,
    ) {
        tracing::info!(controller = %name, "controller started");
        // It ends the process when it ends, so that to exist is to be alive.
        health.add(name.as_str(), || true);
        running.set(name, true);
        self.tasks.spawn(name.as_str(), start(stop.clone()));
    }

    /// Why a task ended that nobody asked to end.
    pub(super) async fn next_ended(&mut self) -> ManagerError {
        let ended = self.tasks.next_ended().await;
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take().unwrap_or_else(|| unasked(ended))
    }

    /// Waits for all tasks, at most for `grace`; then ends the rest and names it.
    pub(super) async fn finish(self, grace: Duration) -> Vec<&'static str> {
        self.tasks.finish(grace).await
    }
}
