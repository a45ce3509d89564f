//! What the route controller would do.

use std::sync::Arc;

use super::{Report, nodes::patch};
use crate::{
    cloud::{RecordedWrite, Route},
    config::ControllerName,
    controllers::route::{self, ClusterCidrs, RouteStart},
    kube::Node,
    runtime::ManagerError,
    session::{Runs, Session, SessionError},
};

/// Plans all routes, where there are any and the flags ask for them.
pub(super) async fn plan(
    session: &Session,
    nodes: &[Arc<Node>],
    report: &mut Report,
) -> Result<(), SessionError> {
    let Some(planned) = planned(session, nodes).await? else {
        return Ok(());
    };
    let removed = planned.delete.iter().map(|route| {
        RecordedWrite::new("delete route", route_text(route)).with(
            if route.target_node.is_empty() {
                "no Node is its target".to_owned()
            } else {
                format!("leads to {}", route.target_node)
            },
        )
    });
    report.cloud.extend(removed);
    for (range, node) in planned.create {
        let write = RecordedWrite::new("create route", range);
        report.cloud.push(write.with(format!("leads to {node}")));
    }
    for (node, line) in planned.conditions {
        let write = patch("patch nodes/status", &node, vec![line]);
        report.node(node.name()).api.extend(write);
    }
    Ok(())
}

/// What a pass of the route controller would change; `None` where it does not run.
pub(crate) async fn planned(
    session: &Session,
    nodes: &[Arc<Node>],
) -> Result<Option<route::Planned>, SessionError> {
    let settings = &session.settings.route;
    let routes = session.cloud.routes();
    if session.runs(ControllerName::Route) != Runs::Yes
        || RouteStart::of(settings, routes.is_some()) != RouteStart::Run
    {
        return Ok(None);
    }
    let Some(routes) = routes else {
        return Ok(None);
    };
    let cidrs = ClusterCidrs::parse(&settings.cluster_cidr).map_err(ManagerError::from)?;
    let listed = routes.list(nodes).await;
    let listed = listed.map_err(|error| error.context("list routes"))?;
    Ok(Some(route::planned(nodes, &listed, &cidrs)))
}

/// The route for people.
pub(crate) fn route_text(route: &Route) -> String {
    match route.name.as_str() {
        "" => route.destination_cidr.clone(),
        name => format!("{} ({name})", route.destination_cidr),
    }
}
