//! Routes. The table shows no owner, as those of some clouds: the controller must tell by the
//! range whose a route is.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_core::{
    cloud::{CloudResult, Route, Routes, WantedRoute},
    kube::Node,
};

use super::{
    model::{Model, TableRoute},
    provider::Provider,
};

fn shown(model: &Model, route: &TableRoute) -> Route {
    let machine = model.machines.get(&route.machine);
    Route {
        name: route.name.clone(),
        target_node: machine
            .map(|machine| machine.name.clone())
            .unwrap_or_default(),
        destination_cidr: route.cidr.clone(),
        blackhole: machine.is_none(),
        ..Route::default()
    }
}

/// One family a Node may have one route of: the name says which.
fn name(wanted: &WantedRoute) -> String {
    let family = if wanted.route.destination_cidr.contains(':') {
        6
    } else {
        4
    };
    format!("r{family}-{}", wanted.name_hint)
}

#[async_trait]
impl Routes for Provider {
    async fn list(&self, _: &[Arc<Node>]) -> CloudResult<Vec<Route>> {
        self.session
            .read("list-routes".to_owned(), |model| {
                let craft = self.session.craft();
                let routes = model.routes.values();
                Ok(routes
                    .map(|route| craft.shown(shown(model, route)))
                    .collect())
            })
            .await
    }

    async fn create(&self, routes: &[WantedRoute]) -> Vec<CloudResult<()>> {
        let mut answers = Vec::new();
        for wanted in routes {
            let (cidr, node) = (&wanted.route.destination_cidr, &wanted.route.target_node);
            let made = self
                .session
                .write(format!("create-route {cidr} {node}"), |model| {
                    let id = wanted.provider_id.as_deref();
                    model.add_route(&name(wanted), cidr, node, id)
                });
            answers.push(made.await);
        }
        answers
    }

    async fn delete(&self, routes: &[Route]) -> Vec<CloudResult<()>> {
        let mut answers = Vec::new();
        for route in routes {
            let what = format!("delete-route {} {}", route.destination_cidr, route.name);
            let gone = self.session.write(what, |model| {
                model.routes.remove(&route.name);
                Ok(())
            });
            answers.push(gone.await);
        }
        answers
    }
}
