//! What the controller would do about Nodes whose machine is gone, shut down or back, for those
//! who only want to know.

use std::sync::Arc;

use super::{
    controller::{is_ready, is_suspect},
    proofs::{self, Proofs, Verdict},
    taints::{self, Shutdown},
};
use crate::{
    cloud::{CloudError, Instances, Power, Presence},
    controllers::node::{age, taint_lines},
    kube::Node,
    runtime::Clock,
};

/// The proofs that are asked for at once: the second read is a direct one, and a further one at
/// the same moment would prove nothing more.
const MOST_PROOFS: u32 = 2;

/// What would be done about one Node.
#[derive(Debug)]
pub(crate) enum Planned {
    /// The shutdown taint comes or goes: lines of difference.
    Taint(Vec<String>),
    /// The Node is deleted: its machine is gone.
    Delete,
    /// Nothing, although its machine is not there.
    Left(&'static str),
    /// Nothing: it is not known whether the machine exists.
    Unknown(CloudError),
}

/// One round of the monitor and, for what it finds absent, the proof that follows. Answers only
/// for Nodes that something is to be said about.
pub(crate) async fn planned(
    nodes: &[Arc<Node>],
    instances: &dyn Instances,
    clock: &Clock,
    confirmations: u32,
    max_share: Option<f64>,
) -> Vec<(Arc<Node>, Planned)> {
    let suspects = nodes
        .iter()
        .filter(|node| is_suspect(node) && node.metadata.deletion_timestamp.is_none());
    let (ready, doubtful): (Vec<_>, Vec<_>) = suspects.cloned().partition(|node| is_ready(node));
    let mut found: Vec<(Arc<Node>, Planned)> = ready
        .into_iter()
        .filter_map(|node| tainted(node, Shutdown::Unmarked))
        .collect();
    let mut proofs = Proofs::new(confirmations.min(MOST_PROOFS));
    let mut asked = doubtful;
    let mut absent = 0;
    for _ in 0..MOST_PROOFS {
        let mut again = Vec::new();
        for (node, answer) in presence(&asked, instances, &proofs).await {
            match answer {
                Err(error) => found.push((node, Planned::Unknown(error))),
                Ok(Presence::Present(Power::Stopped)) => {
                    found.extend(tainted(node, Shutdown::Marked));
                }
                Ok(Presence::Present(Power::Running)) => {
                    found.extend(tainted(node, Shutdown::Unmarked));
                }
                Ok(Presence::Present(Power::Unknown)) => {}
                Ok(Presence::Absent) => {
                    let read = proofs.read(&node);
                    match proofs.absent(&node, read, age(&node, clock)) {
                        Verdict::TooYoung => found.push((
                            node,
                            Planned::Left("its machine is not visible yet, the Node is new"),
                        )),
                        Verdict::Counted => again.push(node),
                        Verdict::Proved => {
                            absent += 1;
                            found.push((node, Planned::Delete));
                        }
                    }
                }
            }
        }
        proofs.end_round();
        asked = again;
    }
    if proofs::is_mass_absence(absent, nodes.len(), max_share) {
        for (_, planned) in &mut found {
            if matches!(planned, Planned::Delete) {
                *planned = Planned::Left(
                    "its machine is gone, but so are more than --node-deletion-max-share allows",
                );
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
    found
}

fn tainted(node: Arc<Node>, to: Shutdown) -> Option<(Arc<Node>, Planned)> {
    let before = &node.spec.taints;
    let lines = taint_lines(before, &taints::change(before, to)?);
    Some((node, Planned::Taint(lines)))
}

/// Asks in slices; those with a first proof one by one.
async fn presence(
    nodes: &[Arc<Node>],
    instances: &dyn Instances,
    proofs: &Proofs,
) -> Vec<(Arc<Node>, Result<Presence, CloudError>)> {
    let mut all = Vec::with_capacity(nodes.len());
    // All have their first proof, or none has.
    let read = nodes
        .first()
        .map_or(crate::cloud::Read::Shared, |node| proofs.read(node));
    let size = match read {
        crate::cloud::Read::Shared => instances.batch_size().max(1),
        crate::cloud::Read::Direct => 1,
    };
    for slice in nodes.chunks(size) {
        let answers = instances.presence(slice, read).await;
        let missing = std::iter::repeat_with(|| {
            Err(CloudError::transient(
                "the provider gave no answer for this Node",
            ))
        });
        let answers = answers.into_iter().chain(missing);
        all.extend(slice.iter().cloned().zip(answers));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use async_trait::async_trait;
    use k8s_openapi::api::core::v1::Taint;

    use super::*;
    use crate::{
        cloud::{CloudResult, InstanceMetadata, Read},
        controllers::node_lifecycle::SHUTDOWN_TAINT,
        kube::NodeCondition,
    };

    /// Machines by Node name; `None` for one that cannot be asked about.
    struct Machines(BTreeMap<&'static str, Option<Presence>>);

    #[async_trait]
    impl Instances for Machines {
        async fn presence(&self, nodes: &[Arc<Node>], _: Read) -> Vec<CloudResult<Presence>> {
            let answer = |node: &Arc<Node>| {
                self.0[node.name()].ok_or_else(|| CloudError::transient("no answer"))
            };
            nodes.iter().map(answer).collect()
        }

        async fn metadata(&self, _: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
            Vec::new()
        }
    }

    fn node(name: &str, ready: &str, shutdown: bool) -> Arc<Node> {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.uid = Some(name.to_owned());
        node.spec.provider_id = Some(format!("sim:///{name}"));
        node.status.conditions = vec![NodeCondition {
            type_: "Ready".into(),
            status: ready.into(),
            reason: None,
        }];
        if shutdown {
            node.spec.taints = vec![Taint {
                key: SHUTDOWN_TAINT.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            }];
        }
        Arc::new(node)
    }

    async fn said(confirmations: u32, max_share: Option<f64>) -> Vec<String> {
        let running = Some(Presence::Present(Power::Running));
        let stopped = Some(Presence::Present(Power::Stopped));
        let machines = Machines(
            [
                ("asleep", stopped),
                ("dark", None),
                ("fine", running),
                ("gone", Some(Presence::Absent)),
                ("woken", running),
            ]
            .into(),
        );
        let nodes = [
            node("asleep", "Unknown", false),
            node("dark", "Unknown", false),
            node("fine", "False", false),
            node("gone", "Unknown", false),
            node("woken", "True", true),
        ];
        let clock = Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap());
        let found = planned(&nodes, &machines, &clock, confirmations, max_share).await;
        found
            .into_iter()
            .map(|(node, planned)| format!("{} {planned:?}", node.name()))
            .collect()
    }

    /// REQ-LIFE-15, REQ-LIFE-16
    #[tokio::test]
    async fn what_the_monitor_would_do_is_told_and_doubt_decides_nothing() {
        for confirmations in [1, 2, 5] {
            let said = said(confirmations, None).await;
            assert_eq!(said.len(), 4, "{said:?}");
            assert!(said[0].starts_with("asleep Taint") && said[0].contains("add"));
            assert!(said[1].starts_with("dark Unknown"), "{said:?}");
            assert_eq!(said[2], "gone Delete");
            assert!(said[3].starts_with("woken Taint") && said[3].contains("remove"));
        }
        let few = said(2, Some(0.1)).await;
        assert!(few[2].contains("--node-deletion-max-share"), "{few:?}");
    }
}
