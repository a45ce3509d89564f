//! What the cluster left behind in its cloud, and its removal.
//!
//! Safe beside a running manager, so no lease is taken: a leftover is by definition nothing that a
//! controller works on, and before each removal owners and cloud are read anew. Names of load
//! balancers come from UIDs, which are never used twice, so nothing that comes to be in between can
//! be met. What is young, or of unknown age, is left: it may be on its way to its owner.

mod report;
mod text;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    cloud::{Leftover, LeftoverKind, Leftovers, Owners, Removal, Writes},
    controllers::service::predicates::{has_cleanup_finalizer, is_load_balancer},
    kube::{Node, Service},
    plan::{planned_routes, route_text},
    runtime::Fence,
    session::{Inputs, ListError, Session, SessionError},
};

pub use report::{Fate, Report, Row, Verdict};

/// Calls for one removal, at the pace that the cloud asks for: a security group is in use until the
/// interfaces of its load balancer are gone, which takes a few minutes.
const REMOVE_TRIES: u32 = 60;

/// The longest wait between two of them.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether anything is removed.
    pub delete: bool,
    /// What is younger is left.
    pub min_age: Duration,
}

/// Lists what was left behind, and removes it where that is asked for.
///
/// # Errors
/// What the manager would not start with; a cloud or an API server that does not list everything;
/// a cluster that is not the cloud's. A removal that failed is part of the report.
pub async fn gc(inputs: Inputs, options: Options) -> Result<Report, SessionError> {
    let fence = if options.delete {
        Fence::open()
    } else {
        // Never extended: nothing passes.
        Fence::waiting()
    };
    let session = Session::open(inputs, Writes::Real, fence).await?;
    let name = session.cloud.name();
    let leftovers = session
        .cloud
        .leftovers()
        .ok_or(SessionError::Unsupported { name, what: "gc" })?;
    let (services, nodes) = owners(&session).await?;
    let at_home = leftovers.is_home_of(&nodes).await?;
    if options.delete && !at_home {
        return Err(SessionError::NotAtHome);
    }
    let owners = Owners {
        services: &services,
        nodes: &nodes,
    };
    let mut found = leftovers.list(owners).await?;
    found.extend(routes(&session, &nodes).await?);
    let now = SystemTime::from(session.clock.now());
    let mut report = Report {
        rows: Vec::with_capacity(found.len()),
        at_home,
    };
    for leftover in found {
        let age = leftover
            .created
            .map(|created| now.duration_since(created).unwrap_or_default());
        let fate = match judge(&leftover, age, options.min_age) {
            Some(why) => Fate::Left(why),
            None if options.delete => remove(&session, leftovers.as_ref(), &leftover).await?,
            None => Fate::Removable,
        };
        report.rows.push(Row {
            leftover,
            age,
            fate,
        });
    }
    Ok(report)
}

async fn owners(session: &Session) -> Result<(Vec<Arc<Service>>, Vec<Arc<Node>>), ListError> {
    let may_own = |service: &Service| is_load_balancer(service) || has_cleanup_finalizer(service);
    Ok((session.services(may_own).await?, session.nodes().await?))
}

/// Why the leftover is not to be removed; `None` when it is.
fn judge(leftover: &Leftover, age: Option<Duration>, min_age: Duration) -> Option<String> {
    if let Some(why) = &leftover.kept {
        return Some(why.clone());
    }
    match age {
        None => Some("its age is not known".to_owned()),
        Some(age) if age < min_age => Some("it is younger than --min-age".to_owned()),
        Some(_) => None,
    }
}

/// Removes one, with owners that were read just before each try.
async fn remove(
    session: &Session,
    leftovers: &dyn Leftovers,
    leftover: &Leftover,
) -> Result<Fate, ListError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (services, nodes) = owners(session).await?;
        let owners = Owners {
            services: &services,
            nodes: &nodes,
        };
        let error = match leftovers.remove(leftover, owners).await {
            Ok(Removal::Removed) => return Ok(Fate::Removed),
            Ok(Removal::Kept(why)) => return Ok(Fate::Left(why)),
            Err(error) => error,
        };
        let Some(wait) = error.retry_after().filter(|_| tries < REMOVE_TRIES) else {
            return Ok(Fate::Failed(error.to_string()));
        };
        tracing::info!(leftover = leftover.id, %error, "not removed yet, tried again");
        tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
    }
}

/// Routes that the route controller would remove.
async fn routes(session: &Session, nodes: &[Arc<Node>]) -> Result<Vec<Leftover>, SessionError> {
    let Some(planned) = planned_routes(session, nodes).await? else {
        return Ok(Vec::new());
    };
    let leftover = |route: &crate::cloud::Route| Leftover {
        kind: LeftoverKind::Route,
        id: route_text(route),
        name: route.name.clone(),
        made_for: Some(route.target_node.clone()).filter(|node| !node.is_empty()),
        created: None,
        reason: if nodes.iter().any(|node| node.name() == route.target_node) {
            "its Node has another range by now, or its target is gone".to_owned()
        } else {
            "no Node has this range".to_owned()
        },
        parts: Vec::new(),
        kept: Some("the route controller removes it".to_owned()),
    };
    Ok(planned.delete.iter().map(leftover).collect())
}

#[cfg(test)]
mod tests;
