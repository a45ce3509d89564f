//! Instances as the load balancers need them: looked up by id, kept for a while
//! (specification: aws §4.6).
//!
//! The cloud is asked only for ids that are not known. An id that the cloud does not know is
//! remembered too, so that one ghost Node does not cost a call for every Service.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex as StdMutex, PoisonError},
    time::Duration,
};

use ccm_core::cloud::CloudResult;
use tokio::{sync::Mutex, time::Instant};

use super::{
    Describer, InstanceId,
    describe::{Found, copy, no_answer},
};
use crate::{api::Instance, error::is_malformed_instance_id, tags::ClusterTags};

/// How long a running instance is known. Upstream's cache time.
const KNOWN_FOR: Duration = Duration::from_mins(10);
/// How long a missing instance, or one that is not running, is left alone. Long enough for a resync
/// of many Services, short enough for a Node that has just started.
const DOUBTED_FOR: Duration = Duration::from_secs(30);
/// Entries kept: more than the largest supported cluster has Nodes.
const MAX_ENTRIES: usize = 20_000;

struct Entry {
    found: Found,
    until: Instant,
}

/// See the module documentation.
pub struct InstanceStore {
    describer: Arc<Describer>,
    cluster: ClusterTags,
    entries: StdMutex<BTreeMap<InstanceId, Entry>>,
    /// One fetch at a time: whoever waited finds what the other one fetched.
    fetching: Mutex<()>,
}

impl InstanceStore {
    /// An empty store.
    pub fn new(describer: Arc<Describer>, cluster: ClusterTags) -> Self {
        Self {
            describer,
            cluster,
            entries: StdMutex::default(),
            fetching: Mutex::new(()),
        }
    }

    /// The instances of these ids; `None` for ids that EC2 does not show or that cannot be instance
    /// ids. Absent from the answer: Fargate Nodes and instances without the cluster tag. All states
    /// are included: the caller decides with [`Instance::is_running`], at most ten minutes after the
    /// fact.
    ///
    /// # Errors
    /// The cloud could not be asked for one of them: then nothing is known of any.
    pub async fn look_up(
        &self,
        ids: &BTreeSet<InstanceId>,
    ) -> CloudResult<BTreeMap<InstanceId, Found>> {
        if !self.unknown(ids).is_empty() {
            let _one = self.fetching.lock().await;
            // Whoever was first may have fetched ours too.
            self.fetch(self.unknown(ids)).await?;
        }
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ids
            .iter()
            .filter_map(|id| Some((id.clone(), entries.get(id)?.found.clone())))
            .filter(|(_, found)| {
                found
                    .as_ref()
                    .is_none_or(|instance| self.cluster.has_cluster_tag(&instance.tags))
            })
            .collect())
    }

    /// The instance, as far as it is known without asking.
    pub fn known(&self, id: &InstanceId) -> Found {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(id).filter(|entry| entry.until > Instant::now());
        entry.and_then(|entry| entry.found.clone())
    }

    /// Forgets these ids, after the cloud showed that what is known of them is wrong.
    pub fn forget<'a>(&self, ids: impl IntoIterator<Item = &'a InstanceId>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            entries.remove(id);
        }
    }

    /// Takes over what another reader has just seen, for ids that are known already: the store
    /// grows by what load balancers ask for, not by every Node.
    pub fn refresh<'a>(&self, seen: impl IntoIterator<Item = &'a Arc<Instance>>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for instance in seen {
            if let Some(entry) = entries.get_mut(&instance.id) {
                *entry = self.entry(Some(Arc::clone(instance)));
            }
        }
    }

    fn unknown(&self, ids: &BTreeSet<InstanceId>) -> BTreeSet<InstanceId> {
        let now = Instant::now();
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        ids.iter()
            .filter(|id| !id.is_fargate())
            .filter(|id| entries.get(id).is_none_or(|entry| entry.until <= now))
            .cloned()
            .collect()
    }

    async fn fetch(&self, ids: BTreeSet<InstanceId>) -> CloudResult<()> {
        let mut answers = self.describer.by_ids(ids.clone()).await;
        let mut failed = None;
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            match answers.remove(&id) {
                Some(Ok(found)) => {
                    entries.insert(id, self.entry(found));
                }
                // One Node with such an id must not keep the others from every load balancer.
                Some(Err(error)) if is_malformed_instance_id(&error, id.as_str()) => {
                    entries.insert(id, self.entry(None));
                }
                Some(Err(error)) => failed = failed.or_else(|| Some(copy(&error))),
                None => failed = failed.or_else(|| Some(no_answer())),
            }
        }
        trim(&mut entries);
        failed.map_or(Ok(()), Err)
    }

    fn entry(&self, found: Found) -> Entry {
        let sure = found
            .as_ref()
            .is_some_and(|i| i.is_running() && self.cluster.has_cluster_tag(&i.tags));
        let keep = if sure { KNOWN_FOR } else { DOUBTED_FOR };
        Entry {
            found,
            until: Instant::now() + keep,
        }
    }
}

/// Drops what is out of date, and then what will be soonest.
fn trim(entries: &mut BTreeMap<InstanceId, Entry>) {
    if entries.len() <= MAX_ENTRIES {
        return;
    }
    let now = Instant::now();
    entries.retain(|_, entry| entry.until > now);
    let surplus = entries.len().saturating_sub(MAX_ENTRIES);
    let mut by_age: Vec<_> = entries
        .iter()
        .map(|(id, e)| (e.until, id.clone()))
        .collect();
    by_age.sort();
    for (_, id) in by_age.into_iter().take(surplus) {
        entries.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{Ec2, InstanceState},
        instances::fake::{FakeEc2, cluster, id, instance},
        tags::Tags,
    };

    fn store(ec2: &Arc<FakeEc2>) -> InstanceStore {
        let describer = Describer::new(Arc::clone(ec2) as Arc<dyn Ec2>, cluster());
        InstanceStore::new(describer, cluster())
    }

    impl InstanceStore {
        /// What there is of these ids.
        async fn target_instances(
            &self,
            ids: &BTreeSet<InstanceId>,
        ) -> CloudResult<BTreeMap<InstanceId, Arc<Instance>>> {
            let found = self.look_up(ids).await?;
            Ok(found
                .into_iter()
                .filter_map(|(id, found)| Some((id, found?)))
                .collect())
        }
    }

    fn set(ids: &[&str]) -> BTreeSet<InstanceId> {
        ids.iter().map(|i| id(i)).collect()
    }

    /// REQ-AWS-NODE-15
    #[tokio::test(start_paused = true)]
    async fn a_ghost_costs_one_lookup_for_twenty_services() {
        let ec2 = FakeEc2::with([instance("i-1"), instance("i-2")]);
        let store = store(&ec2);
        let ids = set(&["i-1", "i-2"]);
        store.target_instances(&ids).await.unwrap();
        let before = ec2.calls().len();
        let with_ghost = set(&["i-1", "i-2", "i-ghost"]);
        for _ in 0..20 {
            let found = store.target_instances(&with_ghost).await.unwrap();
            assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), ids);
        }
        assert_eq!(ec2.calls()[before..], ["DescribeInstances 1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_services_share_one_lookup() {
        let ec2 = FakeEc2::with([instance("i-1")]);
        let store = store(&ec2);
        let ids = set(&["i-1", "i-ghost"]);
        let all = futures::future::join_all((0..20).map(|_| store.target_instances(&ids))).await;
        assert!(all.iter().all(|found| found.as_ref().unwrap().len() == 1));
        assert_eq!(ec2.calls(), ["DescribeInstances 2", "DescribeInstances 1"]);
    }

    /// REQ-AWS-NODE-6
    #[tokio::test(start_paused = true)]
    async fn untagged_and_fargate_nodes_are_left_out() {
        let ec2 = FakeEc2::with([
            instance("i-1"),
            Instance {
                tags: Tags::new(),
                ..instance("i-2")
            },
        ]);
        let found = store(&ec2)
            .target_instances(&set(&["i-1", "i-2", "fargate-1"]))
            .await
            .unwrap();
        assert_eq!(found.into_keys().collect::<Vec<_>>(), [id("i-1")]);
        assert_eq!(ec2.calls(), ["DescribeInstances 2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn running_instances_are_known_for_ten_minutes_and_others_for_less() {
        let starting = Instance {
            state: Some(InstanceState::Pending),
            ..instance("i-2")
        };
        let ec2 = FakeEc2::with([instance("i-1"), starting]);
        let store = store(&ec2);
        let ids = set(&["i-1", "i-2"]);
        store.target_instances(&ids).await.unwrap();
        ec2.put(instance("i-2"));
        tokio::time::advance(DOUBTED_FOR).await;
        let found = store.target_instances(&ids).await.unwrap();
        assert!(found[&id("i-2")].is_running());
        assert_eq!(ec2.calls(), ["DescribeInstances 2", "DescribeInstances 1"]);
        tokio::time::advance(KNOWN_FOR - DOUBTED_FOR).await;
        store.target_instances(&set(&["i-1"])).await.unwrap();
        assert_eq!(ec2.calls().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_see_refreshes_what_is_known() {
        let ec2 = FakeEc2::with([instance("i-1")]);
        let store = store(&ec2);
        store.target_instances(&set(&["i-1"])).await.unwrap();
        let stopped = Instance {
            state: Some(InstanceState::Stopped),
            ..instance("i-1")
        };
        store.refresh([&Arc::new(stopped), &Arc::new(instance("i-9"))]);
        let found = store.target_instances(&set(&["i-1"])).await.unwrap();
        assert!(!found[&id("i-1")].is_running());
        assert_eq!(ec2.calls().len(), 1, "the refresh cost no call");
        store.forget([&id("i-1")]);
        store.target_instances(&set(&["i-1"])).await.unwrap();
        assert_eq!(ec2.calls().len(), 2);
    }

    /// REQ-AWS-ID-14 and CASE-NODE-10
    #[tokio::test(start_paused = true)]
    async fn a_malformed_id_does_not_keep_out_the_others_and_is_not_asked_for_again_soon() {
        let ec2 = FakeEc2::with([instance("i-1")]);
        let store = store(&ec2);
        let ids = set(&["i-1", "i-bad"]);
        for _ in 0..3 {
            let found = store.look_up(&ids).await.unwrap();
            assert!(found[&id("i-1")].is_some() && found[&id("i-bad")].is_none());
        }
        assert_eq!(ec2.calls(), ["DescribeInstances 2", "DescribeInstances 1"]);
        tokio::time::advance(DOUBTED_FOR).await;
        store.look_up(&ids).await.unwrap();
        assert_eq!(ec2.calls().len(), 3);
        let describer = Describer::new(Arc::clone(&ec2) as Arc<dyn Ec2>, cluster());
        let answers = describer.by_ids(set(&["i-bad"])).await;
        assert!(answers[&id("i-bad")].is_err(), "still an error for others");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_lookup_is_an_error_and_is_not_remembered() {
        let ec2 = FakeEc2::with([instance("i-1")]);
        let store = store(&ec2);
        ec2.fail_next(FakeEc2::throttled());
        assert!(store.target_instances(&set(&["i-1"])).await.is_err());
        assert_eq!(
            store.target_instances(&set(&["i-1"])).await.unwrap().len(),
            1
        );
    }
}
