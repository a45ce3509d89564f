//! What the node controllers would do.

use std::{collections::BTreeSet, iter, sync::Arc};

use super::{Problem, Report};
use crate::{
    cloud::{CloudError, Instances, RecordedWrite},
    config::ControllerName,
    controllers::{node, node_lifecycle},
    kube::Node,
    session::{Runs, Session},
};

/// Plans every Node. Answers with the Nodes as they would be then: a Node that is about to be
/// initialised is about to be a backend as well.
pub(super) async fn plan(
    session: &Session,
    mut nodes: Vec<Arc<Node>>,
    report: &mut Report,
) -> Vec<Arc<Node>> {
    let Some(instances) = session.cloud.instances() else {
        return nodes;
    };
    let deleted = if session.runs(ControllerName::NodeLifecycle) == Runs::Yes {
        lifecycle(session, &nodes, instances.as_ref(), report).await
    } else {
        BTreeSet::new()
    };
    if session.runs(ControllerName::Node) == Runs::Yes {
        metadata(session, &mut nodes, instances.as_ref(), report).await;
    }
    report.nodes.retain(|_, plan| plan.is_worth_telling());
    nodes.retain(|node| !deleted.contains(node.name()));
    nodes
}

/// The node controller: initialisation, addresses, labels.
async fn metadata(
    session: &Session,
    nodes: &mut [Arc<Node>],
    instances: &dyn Instances,
    report: &mut Report,
) {
    let options = node::PlanOptions {
        label_refresh: session.settings.node.label_refresh,
        has_provider_ids: instances.has_provider_ids(),
    };
    for slice in nodes.chunks_mut(instances.batch_size().max(1)) {
        let answers = instances.metadata(slice).await;
        let missing = iter::repeat_with(|| {
            Err(CloudError::transient(
                "the provider gave no answer for this Node",
            ))
        });
        for (node, answer) in slice.iter_mut().zip(answers.into_iter().chain(missing)) {
            let planned = node::planned(node, answer, options);
            let plan = report.node(node.name());
            plan.api.extend(patch("patch nodes", node, planned.object));
            plan.api
                .extend(patch("patch nodes/status", node, planned.status));
            plan.notes.extend(planned.notes);
            if let Some(error) = &planned.problem {
                plan.problem = Some(Problem::from(error));
            }
            if let Some(after) = planned.after {
                *node = Arc::new(after);
            }
        }
    }
}

/// The node lifecycle controller: taints and deletions. Answers with the names of Nodes that go.
async fn lifecycle(
    session: &Session,
    nodes: &[Arc<Node>],
    instances: &dyn Instances,
    report: &mut Report,
) -> BTreeSet<String> {
    let settings = &session.settings.node_lifecycle;
    let found = node_lifecycle::planned(
        nodes,
        instances,
        &session.clock,
        settings.deletion_confirmations,
        settings.max_deletion_share,
    )
    .await;
    let mut deleted = BTreeSet::new();
    for (node, planned) in found {
        let plan = report.node(node.name());
        match planned {
            node_lifecycle::Planned::Taint(lines) => {
                plan.api.extend(patch("patch nodes", &node, lines));
            }
            node_lifecycle::Planned::Delete => {
                plan.intent = "it is deleted: its machine does not exist";
                plan.api.push(RecordedWrite::new(
                    "delete nodes",
                    format!("Node {}", node.name()),
                ));
                deleted.insert(node.name().to_owned());
            }
            node_lifecycle::Planned::Left(why) => plan.notes.push(why.to_owned()),
            node_lifecycle::Planned::Unknown(error) => {
                let error = error.context("presence of the machine is not known");
                plan.problem.get_or_insert_with(|| Problem::from(&error));
            }
        }
    }
    deleted
}

pub(super) fn patch(
    action: &'static str,
    node: &Node,
    lines: Vec<String>,
) -> Option<RecordedWrite> {
    (!lines.is_empty())
        .then(|| RecordedWrite::new(action, format!("Node {}", node.name())).with_all(lines))
}
