//! What all load balancers read of the network, read once for all of them
//! (specification: aws §13, "shared reads").
//!
//! Each part is fetched when it is first needed, by one caller while the others wait, and again
//! when it is too old. Own writes to security groups are entered here, so that the next Service
//! sees them without another read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_core::cloud::CloudResult;
use tokio::{sync::Mutex, time::Instant};

use super::quoted;
use crate::{
    api::network::{Groups, NetworkApi, RouteTable, SecurityGroup, Subnet},
    tags::{ClusterTags, LEGACY_CLUSTER},
};

/// How long subnets, route tables and zones are believed: they change by hand, and only new load
/// balancers look at most of it.
const NETWORK_TTL: Duration = Duration::from_mins(10);

/// How old subnets and route tables may be for the choice of a new load balancer's subnets: it is
/// never changed afterwards, and whoever adds a subnet expects the next Service to use it.
const PLACEMENT_TTL: Duration = Duration::from_mins(1);

/// How long security groups are believed: others change their rules, and that is repaired.
const GROUPS_TTL: Duration = Duration::from_mins(1);

/// Untagged groups kept; clusters with single untagged Node groups have a handful.
const MAX_EXTRA_GROUPS: usize = 1_000;

/// Route tables and zone kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The VPC's route tables.
    pub tables: Vec<RouteTable>,
    /// The kind of each zone.
    pub zones: BTreeMap<String, String>,
}

/// Security groups by id.
pub type GroupMap = BTreeMap<String, SecurityGroup>;

#[derive(Debug)]
struct Aged<T> {
    value: T,
    since: Instant,
}

impl<T> Aged<T> {
    fn new(value: T) -> Self {
        Self {
            value,
            since: Instant::now(),
        }
    }

    fn fresh(slot: &Option<Self>, ttl: Duration) -> Option<&T> {
        slot.as_ref()
            .filter(|aged| aged.since.elapsed() < ttl)
            .map(|aged| &aged.value)
    }
}

#[derive(Debug, Default)]
struct State {
    subnets: Option<Aged<Arc<Vec<Subnet>>>>,
    topology: Option<Aged<Arc<Topology>>>,
    tagged: Option<Aged<Arc<GroupMap>>>,
    extra: BTreeMap<String, Aged<SecurityGroup>>,
}

/// See the module documentation.
pub struct VpcSnapshot {
    api: Arc<dyn NetworkApi>,
    vpc_id: String,
    tags: ClusterTags,
    state: Mutex<State>,
}

impl VpcSnapshot {
    /// An empty snapshot of that VPC.
    pub fn new(api: Arc<dyn NetworkApi>, vpc_id: String, tags: ClusterTags) -> Self {
        Self {
            api,
            vpc_id,
            tags,
            state: Mutex::default(),
        }
    }

    /// The VPC's subnets.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn subnets(&self) -> CloudResult<Arc<Vec<Subnet>>> {
        let mut state = self.state.lock().await;
        if let Some(subnets) = Aged::fresh(&state.subnets, NETWORK_TTL) {
            return Ok(Arc::clone(subnets));
        }
        let subnets = self.api.subnets(&self.vpc_id).await;
        let subnets = Arc::new(subnets.map_err(|e| quoted("error describing subnets", e))?);
        state.subnets = Some(Aged::new(Arc::clone(&subnets)));
        Ok(subnets)
    }

    /// Forgets the subnets when they are not new: something that was looked for is not among them.
    /// Whether it is worth another look.
    pub async fn doubt_subnets(&self) -> bool {
        let mut state = self.state.lock().await;
        let old = state
            .subnets
            .as_ref()
            .is_some_and(|aged| aged.since.elapsed() >= GROUPS_TTL);
        if old {
            state.subnets = None;
        }
        old
    }

    /// Forgets what is too old to choose the subnets of a new load balancer by.
    pub async fn renew_for_placement(&self) {
        let mut state = self.state.lock().await;
        if Aged::fresh(&state.subnets, PLACEMENT_TTL).is_none() {
            state.subnets = None;
        }
        if Aged::fresh(&state.topology, PLACEMENT_TTL).is_none() {
            state.topology = None;
        }
    }

    /// Route tables and zones.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn topology(&self) -> CloudResult<Arc<Topology>> {
        let mut state = self.state.lock().await;
        if let Some(topology) = Aged::fresh(&state.topology, NETWORK_TTL) {
            return Ok(Arc::clone(topology));
        }
        let tables = self.api.route_tables(&self.vpc_id).await;
        let tables = tables.map_err(|e| quoted("error describe route table", e))?;
        let zones = self.api.zone_kinds().await;
        let zones = zones.map_err(|e| quoted("error get availability zone types", e))?;
        let topology = Arc::new(Topology { tables, zones });
        state.topology = Some(Aged::new(Arc::clone(&topology)));
        Ok(topology)
    }

    /// The VPC's security groups that carry the cluster tag.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn tagged_groups(&self) -> CloudResult<Arc<GroupMap>> {
        let mut state = self.state.lock().await;
        if let Some(groups) = Aged::fresh(&state.tagged, GROUPS_TTL) {
            return Ok(Arc::clone(groups));
        }
        let keys = [self.tags.key(), LEGACY_CLUSTER.to_owned()];
        let which = Groups::Tagged {
            vpc: &self.vpc_id,
            keys: &keys,
        };
        let found = self.api.security_groups(&which).await;
        let found = found.map_err(|e| quoted("error querying for tagged security groups", e))?;
        let groups: GroupMap = found
            .into_iter()
            .filter(|group| self.tags.has_cluster_tag(&group.tags))
            .map(|group| (group.id.clone(), group))
            .collect();
        let groups = Arc::new(groups);
        state.tagged = Some(Aged::new(Arc::clone(&groups)));
        Ok(groups)
    }

    /// Security groups without the cluster tag, by id; unknown ids are absent.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn other_groups(&self, ids: &BTreeSet<String>) -> CloudResult<GroupMap> {
        let mut state = self.state.lock().await;
        state
            .extra
            .retain(|_, aged| aged.since.elapsed() < GROUPS_TTL);
        let missing: BTreeSet<String> = ids
            .iter()
            .filter(|id| !state.extra.contains_key(*id))
            .cloned()
            .collect();
        if !missing.is_empty() {
            let found = self.api.security_groups(&Groups::Ids(&missing)).await;
            let found =
                found.map_err(|e| quoted("error querying for tagged security groups", e))?;
            if state.extra.len() + found.len() > MAX_EXTRA_GROUPS {
                state.extra.clear();
            }
            state
                .extra
                .extend(found.into_iter().map(|g| (g.id.clone(), Aged::new(g))));
        }
        let known = state.extra.iter().filter(|(id, _)| ids.contains(*id));
        Ok(known
            .map(|(id, aged)| (id.clone(), aged.value.clone()))
            .collect())
    }

    /// Enters an own change of a group's rules or tags.
    pub async fn change_group(&self, id: &str, change: impl FnOnce(&mut SecurityGroup)) {
        let mut state = self.state.lock().await;
        if let Some(aged) = state.extra.get_mut(id) {
            change(&mut aged.value);
        } else if let Some(aged) = &mut state.tagged
            && let Some(group) = Arc::make_mut(&mut aged.value).get_mut(id)
        {
            change(group);
        }
    }

    /// Enters a group that was just made with the cluster's tags.
    pub async fn add_group(&self, group: SecurityGroup) {
        if let Some(aged) = &mut self.state.lock().await.tagged {
            Arc::make_mut(&mut aged.value).insert(group.id.clone(), group);
        }
    }

    /// Enters that a group was deleted.
    pub async fn remove_group(&self, id: &str) {
        let mut state = self.state.lock().await;
        state.extra.remove(id);
        if let Some(aged) = &mut state.tagged {
            Arc::make_mut(&mut aged.value).remove(id);
        }
    }

    /// Forgets all security groups: a write failed, and what it did is not known.
    pub async fn doubt_groups(&self) {
        let mut state = self.state.lock().await;
        state.tagged = None;
        state.extra.clear();
    }
}
