//! Network topology labels: who needs an answer, and when not to ask again
//! (specification: aws §3.6, "topology decision table").

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ccm_core::cloud::{CloudError, CloudResult};
use regex::Regex;
use tokio::time::Instant;

use super::{InstanceId, describe::copy};
use crate::api::Ec2;

/// The label of the outermost network node; deeper ones count up.
pub const LAYER_LABEL: &str = "topology.k8s.aws/network-node-layer-";
/// Instances in one call: EC2's limit.
const MAX_IDS: usize = 100;
/// How long "there is none" is believed.
const BELIEVED_FOR: Duration = Duration::from_hours(24);
/// Ids and types remembered; more than a cluster has types, and as many as a large one has
/// instances of the types in question.
const MAX_ENTRIES: usize = 10_000;

/// Labels of one instance, or why a Node that needs them must wait.
pub type Labels = CloudResult<BTreeMap<String, String>>;

/// See the module documentation.
pub struct Topology {
    ec2: Arc<dyn Ec2>,
    /// Types whose answer is mandatory.
    required: Regex,
    without: Mutex<Without>,
}

/// For whom there is no topology, and until when that is believed.
#[derive(Default)]
struct Without {
    region: Option<Instant>,
    types: BTreeMap<String, Instant>,
    ids: BTreeMap<InstanceId, Instant>,
}

impl Topology {
    /// `required` matches the instance types whose answer is mandatory.
    pub fn new(ec2: Arc<dyn Ec2>, required: Regex) -> Self {
        Self {
            ec2,
            required,
            without: Mutex::default(),
        }
    }

    /// The labels of each given instance, by id and type. Instances without topology have none.
    pub async fn labels(
        &self,
        wanted: &BTreeMap<InstanceId, String>,
    ) -> BTreeMap<InstanceId, Labels> {
        let mut labels: BTreeMap<InstanceId, Labels> = wanted
            .keys()
            .map(|id| (id.clone(), Ok(BTreeMap::new())))
            .collect();
        let ids: Vec<InstanceId> = {
            let without = self.without.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            wanted
                .iter()
                .filter(|(id, type_)| !type_.is_empty() && !without.covers(id, type_, now))
                .map(|(id, _)| id.clone())
                .collect()
        };
        for slice in ids.chunks(MAX_IDS) {
            labels.extend(self.ask(slice, wanted).await);
        }
        labels
    }

    async fn ask(
        &self,
        ids: &[InstanceId],
        wanted: &BTreeMap<InstanceId, String>,
    ) -> BTreeMap<InstanceId, Labels> {
        let type_of = |id| wanted.get(id).map(String::as_str).unwrap_or_default();
        let answer = self.ec2.describe_instance_topology(ids).await;
        let until = Instant::now() + BELIEVED_FOR;
        let mut without = self.without.lock().unwrap_or_else(PoisonError::into_inner);
        let mut labels = BTreeMap::new();
        match answer {
            Ok(found) => {
                for id in ids {
                    let nodes = found.get(id).map(Vec::as_slice).unwrap_or_default();
                    if nodes.is_empty() {
                        without.add(id, type_of(id), self.is_required(type_of(id)), until);
                    }
                    labels.insert(id.clone(), Ok(of_nodes(nodes)));
                }
            }
            Err(error) if is_unavailable(&error) => {
                tracing::warn!(%error, "no topology labels in this region for a day");
                without.region = Some(until);
            }
            Err(error) => {
                let some_required = ids.iter().any(|id| self.is_required(type_of(id)));
                if !some_required {
                    tracing::warn!(%error, "nodes get no topology labels");
                }
                for id in ids.iter().filter(|id| self.is_required(type_of(id))) {
                    labels.insert(id.clone(), Err(copy(&error)));
                }
            }
        }
        labels
    }

    fn is_required(&self, type_: &str) -> bool {
        self.required.is_match(type_)
    }
}

impl Without {
    fn covers(&self, id: &InstanceId, type_: &str, now: Instant) -> bool {
        self.region.is_some_and(|until| until > now)
            || self.types.get(type_).is_some_and(|until| *until > now)
            || self.ids.get(id).is_some_and(|until| *until > now)
    }

    /// Where topology is mandatory, the instance alone has none: another of its type may have.
    fn add(&mut self, id: &InstanceId, type_: &str, required: bool, until: Instant) {
        if required {
            self.ids.insert(id.clone(), until);
            trim(&mut self.ids);
        } else {
            self.types.insert(type_.to_owned(), until);
            trim(&mut self.types);
        }
    }
}

/// Drops the entry that ends soonest when there is one too many.
fn trim<K: Ord + Clone>(entries: &mut BTreeMap<K, Instant>) {
    if entries.len() > MAX_ENTRIES {
        let soonest = entries
            .iter()
            .min_by_key(|(_, until)| **until)
            .map(|(key, _)| key.clone());
        if let Some(key) = soonest {
            entries.remove(&key);
        }
    }
}

/// The region, or the account, has no such call.
fn is_unavailable(error: &CloudError) -> bool {
    matches!(
        error.code(),
        Some("UnsupportedOperation" | "UnauthorizedOperation")
    )
}

fn of_nodes(nodes: &[String]) -> BTreeMap<String, String> {
    (1..)
        .zip(nodes)
        .map(|(layer, node): (u32, _)| (format!("{LAYER_LABEL}{layer}"), node.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::DEFAULT_TOPOLOGY_PATTERN,
        instances::fake::{FakeEc2, id},
    };

    fn topology(ec2: &Arc<FakeEc2>) -> Topology {
        let pattern = Regex::new(DEFAULT_TOPOLOGY_PATTERN).unwrap();
        Topology::new(Arc::clone(ec2) as Arc<dyn Ec2>, pattern)
    }

    fn one(i: &str, type_: &str) -> BTreeMap<InstanceId, String> {
        BTreeMap::from([(id(i), type_.to_owned())])
    }

    /// REQ-AWS-TOPO-1, REQ-AWS-TOPO-2
    #[test]
    fn the_default_pattern_knows_who_must_have_an_answer() {
        let pattern = Regex::new(DEFAULT_TOPOLOGY_PATTERN).unwrap();
        for type_ in [
            "hpc6a.48xlarge",
            "hpc7g.16xlarge",
            "p3dn.24xlarge",
            "p4d.24xlarge",
            "p5en.48xlarge",
            "p6e-gb200.36xlarge",
            "p6-b200.48xlarge",
            "trn1.2xlarge",
            "trn1n.32xlarge",
            "trn2u.48xlarge",
        ] {
            assert!(pattern.is_match(type_), "{type_}");
        }
        for type_ in [
            "m6g.large",
            "t3.large",
            "c3.large",
            "m5.large",
            "inf2.48xlarge",
        ] {
            assert!(!pattern.is_match(type_), "{type_}");
        }
    }

    /// REQ-AWS-META-5
    #[tokio::test(start_paused = true)]
    async fn network_nodes_become_numbered_labels() {
        let ec2 = FakeEc2::with([]);
        ec2.put_topology("i-1", &["nn-1", "nn-2", "nn-3"]);
        let labels = topology(&ec2).labels(&one("i-1", "p5.48xlarge")).await;
        let labels = labels[&id("i-1")].as_ref().unwrap();
        let want: BTreeMap<_, _> = (1..=3)
            .map(|n| (format!("{LAYER_LABEL}{n}"), format!("nn-{n}")))
            .collect();
        assert_eq!(*labels, want);
    }

    /// REQ-AWS-TOPO-3
    #[tokio::test(start_paused = true)]
    async fn without_a_type_nothing_is_asked() {
        let ec2 = FakeEc2::with([]);
        let labels = topology(&ec2).labels(&one("fargate-1", "")).await;
        assert!(labels[&id("fargate-1")].as_ref().unwrap().is_empty());
        assert!(ec2.calls().is_empty());
    }

    /// REQ-AWS-TOPO-4
    #[tokio::test(start_paused = true)]
    async fn an_ordinary_type_without_answer_is_not_asked_for_again_for_a_day() {
        let ec2 = FakeEc2::with([]);
        let topology = topology(&ec2);
        topology.labels(&one("i-1", "m5.large")).await;
        topology.labels(&one("i-2", "m5.large")).await;
        assert_eq!(ec2.calls().len(), 1);
        tokio::time::advance(BELIEVED_FOR).await;
        topology.labels(&one("i-3", "m5.large")).await;
        assert_eq!(ec2.calls().len(), 2);
    }

    /// REQ-AWS-TOPO-5
    #[tokio::test(start_paused = true)]
    async fn a_required_type_without_answer_is_remembered_by_instance() {
        let ec2 = FakeEc2::with([]);
        let topology = topology(&ec2);
        for i in ["i-1", "i-1", "i-2"] {
            let labels = topology.labels(&one(i, "p5.48xlarge")).await;
            assert!(labels[&id(i)].as_ref().unwrap().is_empty());
        }
        assert_eq!(
            ec2.calls(),
            ["DescribeInstanceTopology 1", "DescribeInstanceTopology 1"]
        );
    }

    /// REQ-AWS-TOPO-6
    #[tokio::test(start_paused = true)]
    async fn a_region_without_the_call_is_left_alone_for_a_day() {
        for code in ["UnsupportedOperation", "UnauthorizedOperation"] {
            let ec2 = FakeEc2::with([]);
            ec2.fail_next(FakeEc2::failure(code, 400));
            let topology = topology(&ec2);
            for i in ["i-1", "i-2"] {
                let labels = topology.labels(&one(i, "p5.48xlarge")).await;
                assert!(labels[&id(i)].as_ref().unwrap().is_empty());
            }
            assert_eq!(ec2.calls().len(), 1);
        }
    }

    /// REQ-AWS-TOPO-7
    #[tokio::test(start_paused = true)]
    async fn other_errors_hold_up_only_required_types() {
        let ec2 = FakeEc2::with([]);
        ec2.fail_next(FakeEc2::throttled());
        let mut wanted = one("i-1", "m5.large");
        wanted.extend(one("i-2", "p5.48xlarge"));
        let labels = topology(&ec2).labels(&wanted).await;
        assert!(labels[&id("i-1")].as_ref().unwrap().is_empty());
        assert!(labels[&id("i-2")].is_err());
        assert_eq!(ec2.calls().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_instances_are_asked_for_at_once() {
        let ec2 = FakeEc2::with([]);
        let wanted = (0..150)
            .map(|n| (id(&format!("i-{n:08}")), "p5.48xlarge".to_owned()))
            .collect();
        assert_eq!(topology(&ec2).labels(&wanted).await.len(), 150);
        assert_eq!(
            ec2.calls(),
            [
                "DescribeInstanceTopology 100",
                "DescribeInstanceTopology 50"
            ]
        );
    }
}
