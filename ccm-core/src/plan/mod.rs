//! What the manager would change, and nothing of it is changed: the migration check.
//!
//! The cloud's side is the provider's own code with [`Writes::Recorded`](crate::cloud::Writes): it
//! reads, decides and "writes" to its end. The API's side is what the controllers' pure decisions
//! say. Two fences stand behind that and are shut for the whole run: that of the API client, and
//! that of the provider's calls.
//!
//! | File | What it plans |
//! |---|---|
//! | `services` | load balancers, finalizers, statuses |
//! | `nodes` | initialisation, addresses, labels, shutdown taints, deletions |
//! | `routes` | routes and the condition that follows them |
//! | `report` | what was found, as a structure and as JSON |
//! | `text` | the same for people |

mod nodes;
mod report;
mod routes;
mod services;
mod text;

use crate::{
    cloud::{Recorder, Writes},
    config::ControllerName,
    runtime::Fence,
    session::{Inputs, Runs, Session, SessionError},
};

pub use report::{Counts, NotPlanned, ObjectPlan, Problem, Report, Verdict};
pub(crate) use routes::{planned as planned_routes, route_text};

/// Plans everything that the manager's controllers would do if it started now.
///
/// # Errors
/// What the manager would not start with; a cloud or an API server that does not answer. A Service
/// or Node that cannot be planned is part of the report.
pub async fn plan(inputs: Inputs) -> Result<Report, SessionError> {
    let recorder = Recorder::default();
    let writes = Writes::Recorded(recorder.clone());
    // Never extended: nothing passes.
    let session = Session::open(inputs, writes, Fence::waiting()).await?;
    let cloud = &session.cloud;
    if !cloud.records_writes() {
        return Err(SessionError::Unsupported {
            name: cloud.name(),
            what: "plan: it cannot say what it would change",
        });
    }
    let mut report = Report::default();
    let nodes = session.nodes().await?;
    report.looked_at.nodes = nodes.len();
    let nodes = nodes::plan(&session, nodes, &mut report).await;
    services::plan(&session, &recorder, &nodes, &mut report).await?;
    routes::plan(&session, &nodes, &mut report).await?;
    if session.runs(ControllerName::NodeIpam) == Runs::Yes && session.settings.node_ipam.allocate {
        report.not_planned.push(NotPlanned {
            controller: ControllerName::NodeIpam.as_str(),
            reason: "the ranges that it would hand out are not worked out",
        });
    }
    report.cloud.extend(recorder.take_unattributed());
    Ok(report)
}

#[cfg(test)]
mod tests;
