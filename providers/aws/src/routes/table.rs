//! The one table of the cluster: read at the begin of a pass, kept in step with our own writes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_core::cloud::{CloudError, CloudResult};
use ipnet::IpNet;
use tokio::{sync::Mutex, time::Instant};

use crate::{
    api::routes::{RoutesApi, Table, TableRoute, Tables},
    tags::{ClusterTags, LEGACY_CLUSTER},
};

/// How long a table is known. A pass begins with a read; one that lasts longer than this reads again.
const KNOWN_FOR: Duration = Duration::from_mins(1);

struct Known {
    table: Table,
    serving: BTreeSet<IpNet>,
    until: Instant,
}

/// What is known of one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The table.
    pub table: String,
    /// The route of the destination.
    pub route: Option<TableRoute>,
    /// Whether it leads to a Node that has this range.
    pub serving: bool,
}

/// See the module documentation.
pub struct TableCache {
    api: Arc<dyn RoutesApi>,
    cluster: ClusterTags,
    cluster_name: String,
    id: Option<String>,
    /// Held while the table is read: whoever waited finds what was read.
    known: Mutex<Option<Known>>,
}

impl TableCache {
    /// Nothing is known at first.
    pub fn new(
        api: Arc<dyn RoutesApi>,
        cluster: ClusterTags,
        cluster_name: String,
        id: Option<String>,
    ) -> Self {
        Self {
            api,
            cluster,
            cluster_name,
            id,
            known: Mutex::new(None),
        }
    }

    /// The table as it is now.
    ///
    /// # Errors
    /// The cloud could not be asked, or which table is the cluster's cannot be told.
    pub async fn read(&self) -> CloudResult<Table> {
        let mut known = self.known.lock().await;
        // A read that fails leaves nothing to go by.
        *known = None;
        let table = self.find().await?;
        *known = Some(Known::new(table.clone()));
        Ok(table)
    }

    /// Remembers which destinations serve a Node that has that range.
    pub async fn set_serving(&self, serving: BTreeSet<IpNet>) {
        if let Some(known) = self.known.lock().await.as_mut() {
            known.serving = serving;
        }
    }

    /// One destination, as far as it is known; the table is read only when it is not.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn look(&self, to: &IpNet) -> CloudResult<Seen> {
        let mut known = self.known.lock().await;
        let fresh = match known.take() {
            Some(fresh) if fresh.until > Instant::now() => fresh,
            stale => Known {
                serving: stale.map(|stale| stale.serving).unwrap_or_default(),
                ..Known::new(self.find().await?)
            },
        };
        let seen = Seen {
            table: fresh.table.id.clone(),
            route: fresh.table.routes.get(to).cloned(),
            serving: fresh.serving.contains(to),
        };
        *known = Some(fresh);
        Ok(seen)
    }

    /// Takes over what we have just written: `None` removes the route.
    pub async fn absorb(&self, to: IpNet, route: Option<TableRoute>) {
        if let Some(known) = self.known.lock().await.as_mut() {
            known.serving.remove(&to);
            match route {
                Some(route) => known.table.routes.insert(to, route),
                None => known.table.routes.remove(&to),
            };
        }
    }

    /// Reads the table before it is looked at again: a write showed that what is known is wrong, or
    /// its outcome is not known.
    pub async fn doubt(&self) {
        if let Some(known) = self.known.lock().await.as_mut() {
            known.until = Instant::now();
        }
    }

    async fn find(&self) -> CloudResult<Table> {
        let keys = [self.cluster.key(), LEGACY_CLUSTER.to_owned()];
        let which = match &self.id {
            Some(id) => Tables::Id(id),
            None => Tables::Tagged(&keys),
        };
        let tables = self.api.tables(which).await?;
        let mut ours = tables
            .into_iter()
            .filter(|table| self.id.is_some() || self.cluster.has_cluster_tag(&table.tags));
        let name = &self.cluster_name;
        match (ours.next(), ours.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(CloudError::invalid(match &self.id {
                Some(id) => format!(
                    "unable to find route table for AWS cluster: {name}; RouteTableID = {id} of the \
                     cloud config names none"
                ),
                None => format!(
                    "unable to find route table for AWS cluster: {name}; give it the tag {}, or set \
                     RouteTableID in the cloud config",
                    self.cluster.key()
                ),
            })),
            (Some(one), Some(other)) => Err(CloudError::invalid(format!(
                "found multiple matching AWS route tables for AWS cluster: {name}, among them {} \
                 and {}; leave the tag {} on one of them, or set RouteTableID in the cloud config",
                one.id,
                other.id,
                self.cluster.key()
            ))),
        }
    }
}

impl Known {
    fn new(table: Table) -> Self {
        Self {
            table,
            serving: BTreeSet::new(),
            until: Instant::now() + KNOWN_FOR,
        }
    }
}
