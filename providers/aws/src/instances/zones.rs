//! The zones of the region, asked for once (specification: aws §3.2, §3.6).

use std::{collections::BTreeMap, sync::Arc};

use ccm_core::cloud::CloudResult;
use tokio::sync::Mutex;

use crate::api::{Ec2, Zone};

/// Zones do not change while a process runs; a name that is not known makes it look again.
pub struct ZoneCache {
    ec2: Arc<dyn Ec2>,
    zones: Mutex<BTreeMap<String, Zone>>,
}

impl ZoneCache {
    /// Knows nothing yet.
    pub fn new(ec2: Arc<dyn Ec2>) -> Self {
        Self {
            ec2,
            zones: Mutex::default(),
        }
    }

    /// Asks the cloud, whatever is known.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn refill(&self) -> CloudResult<()> {
        let mut zones = self.zones.lock().await;
        fill(&mut zones, &*self.ec2).await
    }

    /// The zone of this name; `None` when even a fresh answer does not have it. An empty name is
    /// never asked for.
    ///
    /// # Errors
    /// The cloud had to be asked and could not be.
    pub async fn get(&self, name: &str) -> CloudResult<Option<Zone>> {
        if name.is_empty() {
            return Ok(None);
        }
        // Held while asking, so that many Nodes in one new zone cost one call.
        let mut zones = self.zones.lock().await;
        if !zones.contains_key(name) {
            fill(&mut zones, &*self.ec2).await?;
        }
        Ok(zones.get(name).cloned())
    }

    /// All zones of the region by name.
    ///
    /// # Errors
    /// The cloud had to be asked and could not be.
    pub async fn all(&self) -> CloudResult<BTreeMap<String, Zone>> {
        let mut zones = self.zones.lock().await;
        if zones.is_empty() {
            fill(&mut zones, &*self.ec2).await?;
        }
        Ok(zones.clone())
    }
}

async fn fill(zones: &mut BTreeMap<String, Zone>, ec2: &dyn Ec2) -> CloudResult<()> {
    let all = ec2.describe_availability_zones().await?;
    *zones = all
        .into_iter()
        .map(|zone| (zone.name.clone(), zone))
        .collect();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::fake::FakeEc2;

    /// REQ-AWS-META-3, REQ-AWS-META-4
    #[tokio::test(start_paused = true)]
    async fn known_zones_cost_one_call_and_unknown_ones_one_more() {
        let ec2 = FakeEc2::with([]);
        let zones = ZoneCache::new(Arc::clone(&ec2) as Arc<dyn Ec2>);
        for _ in 0..100 {
            for name in ["us-west-2a", "us-west-2b"] {
                assert!(zones.get(name).await.unwrap().is_some());
            }
        }
        assert_eq!(ec2.calls(), ["DescribeAvailabilityZones"]);
        assert_eq!(zones.get("us-west-2x").await.unwrap(), None);
        assert_eq!(ec2.calls().len(), 2);
        assert_eq!(zones.get("").await.unwrap(), None);
        assert_eq!(zones.all().await.unwrap().len(), 2);
        assert_eq!(ec2.calls().len(), 2);
    }
}
