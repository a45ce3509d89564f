//! Which controllers there are, and the caches they stand on.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Cloud, Manager, ManagerError, Prepared, RunningControllers, Tasks};
use crate::{
    config::ControllerName,
    controllers::{
        node::NodeController, node_lifecycle::NodeLifecycleController, service::ServiceController,
    },
    kube::{ApiEventSink, Informer, Node, Service, Store},
    runtime::{Context, Health, Random},
};

/// The gate of readiness for the caches.
pub(super) const CACHES: &str = "caches";

/// How often it is said that caches are waited for.
const REMIND_EVERY: Duration = Duration::from_secs(10);

type Start = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Made, not yet running.
pub(super) struct Assembled {
    pub(super) tasks: Tasks,
    nodes: Informer<Node>,
    /// `None` when no controller looks at Services: then nothing is listed.
    services: Option<Informer<Service>>,
    controllers: Vec<(ControllerName, Start)>,
    stores: Stores,
}

/// The caches that must be full before a controller runs.
#[derive(Clone)]
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
    /// Makes every controller that the flags ask for and the cloud can serve (REQ-APP-14).
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
            nodes: Informer::new(),
            services: None,
            controllers: Vec::new(),
        };
        for name in &self.settings.controllers {
            match name {
                ControllerName::Node => make.node(cloud)?,
                ControllerName::NodeLifecycle => make.node_lifecycle(cloud)?,
                ControllerName::Service => make.service(cloud)?,
                ControllerName::Route | ControllerName::NodeIpam => tell_of_what_is_missing(*name),
            }
        }
        if make.controllers.is_empty() {
            tracing::error!("no controller runs: check --controllers and what the cloud offers");
        }
        let stores = Stores {
            nodes: make.nodes.store(),
            services: make.services.as_ref().map(Informer::store),
        };
        Ok(Assembled {
            tasks: Tasks::new(),
            nodes: make.nodes,
            services: make.services,
            controllers: make.controllers,
            stores,
        })
    }
}

fn tell_of_what_is_missing(name: ControllerName) {
    tracing::info!(controller = %name, "not in this release");
}

struct Make<'a> {
    manager: &'a Manager,
    prepared: &'a Prepared,
    events: Arc<ApiEventSink>,
    nodes: Informer<Node>,
    services: Option<Informer<Service>>,
    controllers: Vec<(ControllerName, Start)>,
}

impl Make<'_> {
    fn context(&self, client: &str) -> Result<Context, ManagerError> {
        Ok(Context {
            client: self.prepared.clients.client(client)?,
            events: Arc::clone(&self.events) as _,
            clock: self.manager.clock.clone(),
            random: self.manager.random.clone(),
            registry: self.manager.registry.clone(),
            queues: self.prepared.queues.clone(),
            loops: self.prepared.loops.clone(),
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
        let context = self.context("service-controller")?;
        let settings = self.manager.settings.service.clone();
        let services = self.services.get_or_insert_with(Informer::new);
        let controller =
            ServiceController::new(&context, services, &self.nodes, balancers, settings)?;
        self.add(ControllerName::Service, |stop| {
            Box::pin(controller.run(stop))
        });
        Ok(())
    }

    fn add(
        &mut self,
        name: ControllerName,
        start: impl FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        self.controllers.push((name, Box::new(start)));
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
        self.stores.clone()
    }

    /// Starts the watches. All listeners are there by now.
    pub(super) fn run_informers(
        &mut self,
        stop: &CancellationToken,
        client: kube::Client,
        random: &Random,
    ) {
        let nodes = std::mem::take(&mut self.nodes);
        let (own_client, own_random, own_stop) = (client.clone(), random.clone(), stop.clone());
        self.tasks.spawn("node watch", async move {
            nodes.run(own_client, own_random, own_stop).await;
        });
        if let Some(services) = self.services.take() {
            let (random, stop) = (random.clone(), stop.clone());
            self.tasks.spawn("service watch", async move {
                services.run(client, random, stop).await;
            });
        }
    }

    pub(super) fn run_controllers(
        &mut self,
        stop: &CancellationToken,
        health: &Health,
        running: &RunningControllers,
    ) {
        for (name, start) in std::mem::take(&mut self.controllers) {
            tracing::info!(controller = %name, "controller started");
            // It ends the process when it ends, so that to exist is to be alive.
            health.add(name.as_str(), || true);
            running.set(name, true);
            self.tasks.spawn(name.as_str(), start(stop.clone()));
        }
    }
}
