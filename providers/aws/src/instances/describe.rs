//! Instances by id and by name, in few calls, although ids may be dead.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_core::cloud::{Class, CloudError, CloudResult};

use super::{
    InstanceId,
    batch::{Answer, Answers, Ask, Batcher},
};
use crate::{
    api::{Ec2, Filter, Instance},
    error::is_instance_not_found,
    tags::ClusterTags,
};

/// Ids in one call. EC2 takes 1,000; half of it keeps answers small.
pub const MAX_IDS: usize = 500;
/// Values of one filter: EC2's limit.
pub const MAX_FILTER_VALUES: usize = 200;
/// All states but `terminated`: a dead instance may have left its name to a new one.
const LIVE_STATES: [&str; 5] = ["pending", "running", "shutting-down", "stopping", "stopped"];

/// What is known of one id or name: `None` when the cloud said that there is no such instance.
pub type Found = Option<Arc<Instance>>;

/// See the module documentation.
pub struct Describer {
    ec2: Arc<dyn Ec2>,
    cluster: ClusterTags,
    by_id: Batcher<InstanceId, Found>,
    by_name: Batcher<String, Found>,
}

impl Describer {
    /// Starts the batchers on the current runtime. `cluster` decides which instances a name may
    /// mean.
    pub fn new(ec2: Arc<dyn Ec2>, cluster: ClusterTags) -> Arc<Self> {
        let (ids, names) = (Arc::clone(&ec2), Arc::clone(&ec2));
        let by_id: Ask<InstanceId, Found> = Arc::new(move |keys| {
            let ec2 = Arc::clone(&ids);
            Box::pin(async move { describe_all(&*ec2, keys).await })
        });
        let tags = cluster.clone();
        let by_name: Ask<String, Found> = Arc::new(move |keys| {
            let (ec2, tags) = (Arc::clone(&names), tags.clone());
            Box::pin(async move { find_all(&*ec2, &tags, keys).await })
        });
        Arc::new(Self {
            ec2,
            cluster,
            by_id: Batcher::new(MAX_IDS, by_id),
            by_name: Batcher::new(MAX_FILTER_VALUES, by_name),
        })
    }

    /// Instances by id, joined with what others ask for at the same time.
    pub async fn by_ids(&self, ids: BTreeSet<InstanceId>) -> Answers<InstanceId, Found> {
        self.by_id.get(ids).await
    }

    /// One instance by id, in a call of its own.
    ///
    /// # Errors
    /// The cloud refused or gave no answer; an id that EC2 does not know is `None`.
    pub async fn by_id_alone(&self, id: &InstanceId) -> CloudResult<Found> {
        match self.ec2.describe_instances(std::slice::from_ref(id)).await {
            Ok(all) => Ok(all
                .into_iter()
                .find(|instance| instance.id == *id)
                .map(Arc::new)),
            Err(error) if is_instance_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Instances of the cluster by private DNS name, joined with what others ask for at the same
    /// time.
    pub async fn by_names(&self, names: BTreeSet<String>) -> Answers<String, Found> {
        self.by_name.get(names).await
    }

    /// One instance of the cluster by private DNS name, in a call of its own.
    ///
    /// # Errors
    /// The cloud refused, or two instances have the name.
    pub async fn by_name_alone(&self, name: &str) -> CloudResult<Found> {
        let names = BTreeSet::from([name.to_owned()]);
        let answer = find_all(&*self.ec2, &self.cluster, names)
            .await
            .remove(name);
        answer.map_or_else(|| Err(no_answer()), |answer| answer.map_err(|e| copy(&e)))
    }
}

/// A copy of an error that several callers share. Its cause stays with the original.
pub fn copy(error: &CloudError) -> CloudError {
    let mut copy = CloudError::new(error.class(), error.to_string());
    if let Some(code) = error.code() {
        copy = copy.with_code(code);
    }
    match error.retry_after() {
        Some(after) if !matches!(error.class(), Class::Throttled { .. }) => copy.retry_in(after),
        _ => copy,
    }
}

/// For a key without answer.
pub fn no_answer() -> CloudError {
    CloudError::transient("the look-up was given up because the provider is shutting down")
}

async fn describe_all(ec2: &dyn Ec2, ids: BTreeSet<InstanceId>) -> Answers<InstanceId, Found> {
    let ids: Vec<InstanceId> = ids.into_iter().collect();
    let mut answers = BTreeMap::new();
    for slice in ids.chunks(MAX_IDS) {
        answers.extend(describe_slice(ec2, slice).await);
    }
    answers
}

/// EC2 refuses a whole call for one bad id. The ids that it names are taken out and the rest is
/// asked for once more; should that fail too, a filter, which tolerates everything, has the last
/// word. A call that failed for another reason is not repeated id by id: that would make a
/// throttled account worse.
async fn describe_slice(ec2: &dyn Ec2, ids: &[InstanceId]) -> Answers<InstanceId, Found> {
    let mut answers = BTreeMap::new();
    let mut left: Vec<InstanceId> = ids.to_vec();
    for _ in 0..2 {
        if left.is_empty() {
            return answers;
        }
        let error = match ec2.describe_instances(&left).await {
            Ok(found) => {
                answers.extend(by_id(&left, found));
                return answers;
            }
            Err(error) => error,
        };
        let named = named_in(&left, &error);
        if named.is_empty() {
            answers.extend(failed(left, error));
            return answers;
        }
        left.retain(|id| !named.contains(id));
        let answer: Answer<Found> = if is_instance_not_found(&error) {
            Ok(None)
        } else {
            Err(Arc::new(error))
        };
        answers.extend(named.into_iter().map(|id| (id, answer.clone())));
    }
    for slice in left.chunks(MAX_FILTER_VALUES) {
        let filter = Filter::new("instance-id", slice.iter().map(InstanceId::as_str));
        match ec2.find_instances(&[filter]).await {
            Ok(found) => answers.extend(by_id(slice, found)),
            Err(error) => answers.extend(failed(slice.to_vec(), error)),
        }
    }
    answers
}

fn by_id(ids: &[InstanceId], found: Vec<Instance>) -> Answers<InstanceId, Found> {
    let mut answers: Answers<_, Found> = ids.iter().map(|id| (id.clone(), Ok(None))).collect();
    for instance in found {
        if let Some(answer) = answers.get_mut(&instance.id) {
            *answer = Ok(Some(Arc::new(instance)));
        }
    }
    answers
}

fn failed(ids: Vec<InstanceId>, error: CloudError) -> Answers<InstanceId, Found> {
    let error = Arc::new(error);
    ids.into_iter()
        .map(|id| (id, Err(Arc::clone(&error))))
        .collect()
}

/// The ids that an "unknown id" or "malformed id" error names. Empty for every other error.
fn named_in(ids: &[InstanceId], error: &CloudError) -> BTreeSet<InstanceId> {
    let not_found = is_instance_not_found(error);
    let malformed = ["InvalidInstanceID.Malformed", "InvalidID"];
    if !not_found && !error.code().is_some_and(|code| malformed.contains(&code)) {
        return BTreeSet::new();
    }
    let text = error.to_string();
    let words: BTreeSet<&str> = text
        .split(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.')))
        .collect();
    let named: BTreeSet<InstanceId> = ids
        .iter()
        .filter(|id| words.contains(id.as_str()))
        .cloned()
        .collect();
    match ids {
        // Whatever the text says: it can only mean this one.
        [only] => BTreeSet::from([only.clone()]),
        _ => named,
    }
}

async fn find_all(
    ec2: &dyn Ec2,
    cluster: &ClusterTags,
    names: BTreeSet<String>,
) -> Answers<String, Found> {
    let names: Vec<String> = names.into_iter().collect();
    let mut answers = BTreeMap::new();
    for slice in names.chunks(MAX_FILTER_VALUES) {
        let filters = [
            Filter::new("private-dns-name", slice.iter().cloned()),
            Filter::new("instance-state-name", LIVE_STATES),
        ];
        match ec2.find_instances(&filters).await {
            Ok(found) => answers.extend(by_name(slice, cluster, found)),
            Err(error) => {
                let error = Arc::new(error);
                answers.extend(slice.iter().map(|n| (n.clone(), Err(Arc::clone(&error)))));
            }
        }
    }
    answers
}

fn by_name(
    names: &[String],
    cluster: &ClusterTags,
    found: Vec<Instance>,
) -> Answers<String, Found> {
    let mut answers: Answers<String, Found> =
        names.iter().map(|name| (name.clone(), Ok(None))).collect();
    for instance in found
        .into_iter()
        .filter(|instance| cluster.has_cluster_tag(&instance.tags))
    {
        let Some(answer) = answers.get_mut(&instance.private_dns_name) else {
            continue;
        };
        *answer = match answer {
            Ok(None) => Ok(Some(Arc::new(instance))),
            _ => Err(Arc::new(CloudError::new(
                Class::Conflict,
                format!(
                    "multiple instances found for name: {}",
                    instance.private_dns_name
                ),
            ))),
        };
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::fake::{FakeEc2, cluster, id, instance};

    fn describer(ec2: &Arc<FakeEc2>) -> Arc<Describer> {
        Describer::new(Arc::clone(ec2) as Arc<dyn Ec2>, cluster())
    }

    fn set(ids: &[&str]) -> BTreeSet<InstanceId> {
        ids.iter().map(|i| id(i)).collect()
    }

    /// REQ-AWS-INST-17
    #[tokio::test(start_paused = true)]
    async fn one_dead_id_does_not_spoil_the_batch() {
        let ec2 = FakeEc2::with([instance("i-1"), instance("i-2")]);
        let answers = describer(&ec2).by_ids(set(&["i-1", "i-2", "i-dead"])).await;
        assert!(matches!(answers[&id("i-1")], Ok(Some(_))));
        assert!(matches!(answers[&id("i-2")], Ok(Some(_))));
        assert!(matches!(answers[&id("i-dead")], Ok(None)));
        assert_eq!(ec2.calls(), ["DescribeInstances 3", "DescribeInstances 2"]);
    }

    /// REQ-AWS-INST-17, REQ-AWS-INST-19
    #[tokio::test(start_paused = true)]
    async fn fifty_dead_ids_take_one_call() {
        let ec2 = FakeEc2::with([]);
        let dead: BTreeSet<_> = (0..50).map(|n| id(&format!("i-{n:08}"))).collect();
        let answers = describer(&ec2).by_ids(dead).await;
        assert_eq!(answers.len(), 50);
        assert!(answers.values().all(|answer| matches!(answer, Ok(None))));
        assert_eq!(ec2.calls(), ["DescribeInstances 50"]);
    }

    /// REQ-AWS-INST-25
    #[tokio::test(start_paused = true)]
    async fn a_malformed_id_is_an_error_for_that_id_only() {
        let ec2 = FakeEc2::with([instance("i-1")]);
        let answers = describer(&ec2).by_ids(set(&["i-1", "i-bad"])).await;
        assert!(matches!(answers[&id("i-1")], Ok(Some(_))));
        let error = answers[&id("i-bad")].as_ref().unwrap_err();
        assert_eq!(error.code(), Some("InvalidInstanceID.Malformed"));
    }

    /// An id that dies between the two calls is found out by the filter.
    #[tokio::test(start_paused = true)]
    async fn an_id_that_vanishes_between_the_calls_is_missing() {
        let ec2 = FakeEc2::with([instance("i-1"), instance("i-2")]);
        ec2.remove_after_next_call("i-2");
        let answers = describer(&ec2).by_ids(set(&["i-1", "i-2", "i-dead"])).await;
        assert!(matches!(answers[&id("i-1")], Ok(Some(_))));
        assert!(matches!(answers[&id("i-2")], Ok(None)));
        assert_eq!(ec2.calls().len(), 3);
    }

    /// REQ-AWS-INST-18, REQ-AWS-INST-26
    #[tokio::test(start_paused = true)]
    async fn a_throttled_batch_is_not_repeated_one_by_one() {
        let ec2 = FakeEc2::with([instance("i-1"), instance("i-2"), instance("i-3")]);
        ec2.fail_next(FakeEc2::throttled());
        let answers = describer(&ec2).by_ids(set(&["i-1", "i-2", "i-3"])).await;
        for answer in answers.values() {
            let error = answer.as_ref().unwrap_err();
            assert!(matches!(error.class(), Class::Throttled { .. }));
        }
        assert_eq!(answers.len(), 3);
        assert_eq!(ec2.calls().len(), 1);
    }

    /// REQ-AWS-INST-14
    #[tokio::test(start_paused = true)]
    async fn no_call_carries_more_than_500_ids() {
        let ec2 = FakeEc2::with((0..1200).map(|n| instance(&format!("i-{n:08}"))));
        let ids = (0..1200).map(|n| id(&format!("i-{n:08}"))).collect();
        let answers = describer(&ec2).by_ids(ids).await;
        assert_eq!(answers.len(), 1200);
        assert_eq!(
            ec2.calls(),
            [
                "DescribeInstances 500",
                "DescribeInstances 500",
                "DescribeInstances 200"
            ]
        );
    }

    /// REQ-AWS-ID-9, REQ-AWS-ID-10, REQ-AWS-ID-11, REQ-AWS-ID-12
    #[tokio::test(start_paused = true)]
    async fn names_mean_live_instances_of_the_cluster() {
        let named = |i: &str, name: &str| Instance {
            private_dns_name: name.to_owned(),
            ..instance(i)
        };
        let ec2 = FakeEc2::with([
            named("i-1", "ip-1"),
            named("i-2", "twice"),
            named("i-3", "twice"),
            Instance {
                tags: crate::tags::Tags::new(),
                ..named("i-4", "foreign")
            },
            Instance {
                state: Some(crate::api::InstanceState::Terminated),
                ..named("i-5", "ip-1")
            },
        ]);
        let names = ["ip-1", "twice", "foreign", "nobody"]
            .map(str::to_owned)
            .into();
        let answers = describer(&ec2).by_names(names).await;
        let found = answers["ip-1"].as_ref().unwrap().as_ref().unwrap();
        assert_eq!(found.id, id("i-1"));
        let error = answers["twice"].as_ref().unwrap_err();
        assert_eq!(
            error.to_string(),
            "multiple instances found for name: twice"
        );
        assert!(matches!(answers["foreign"], Ok(None)));
        assert!(matches!(answers["nobody"], Ok(None)));
        assert_eq!(
            ec2.calls(),
            [
                "DescribeInstances private-dns-name=foreign,ip-1,nobody,twice \
              instance-state-name=pending,running,shutting-down,stopping,stopped"
            ]
        );
    }
}
