//! Target groups that no load balancer leads to: a process that died between two calls left them.
//!
//! AWS can only list all of them. The list is shared by all Services for a while; what is deleted
//! with a Service is looked up afresh.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_core::cloud::CloudResult;
use tokio::{sync::Mutex, time::Instant};

use super::{
    desired::Want,
    observe::{Observer, is_named, stem},
};
use crate::{
    api::elbv2::{Elbv2Api, TargetGroup},
    load_balancer::quoted,
    tags::{SERVICE_NAME, Tags},
};

/// How long the list is believed: long enough for the start of a process, in which every Service is
/// read in full.
const LISTING_TTL: Duration = Duration::from_mins(1);

/// The list of all target groups of the account and region.
#[derive(Debug, Default)]
pub struct Listing(Mutex<Option<(Arc<Vec<TargetGroup>>, Instant)>>);

/// What is removed.
#[derive(Clone, Copy, Debug)]
pub struct Removed<'a> {
    /// The load balancer's name.
    pub name: &'a str,
    /// The ARN of the Service's load balancer, while there is one.
    pub load_balancer: Option<&'a str>,
    /// The ARN of a load balancer of that name that is not the Service's.
    pub foreign: Option<&'a str>,
    /// The computed name of the managed security group, whose beginning target groups share.
    pub managed_group: &'a str,
    /// The Service, as in tags.
    pub service: &'a str,
}

impl Listing {
    async fn get(&self, elb: &dyn Elbv2Api) -> CloudResult<Arc<Vec<TargetGroup>>> {
        let mut listing = self.0.lock().await;
        if let Some((all, since)) = &*listing
            && since.elapsed() < LISTING_TTL
        {
            return Ok(Arc::clone(all));
        }
        let all = elb.all_target_groups().await;
        let all = Arc::new(all.map_err(|e| quoted("error listing target groups", e))?);
        *listing = Some((Arc::clone(&all), Instant::now()));
        Ok(all)
    }

    /// Forgets the list: a pass failed, and what it left is not known.
    pub async fn doubt(&self) {
        *self.0.lock().await = None;
    }
}

impl Observer {
    /// Unattached target groups that the tags say were made for this Service, besides the known
    /// ones. None where tags cannot be read.
    pub(super) async fn orphans(
        &self,
        want: &Want,
        known: &[TargetGroup],
    ) -> CloudResult<Vec<TargetGroup>> {
        let Some(name) = want
            .ports
            .first()
            .map(|port| port.port.target_group.as_str())
        else {
            return Ok(Vec::new());
        };
        let all = self.listing.get(self.elb.as_ref()).await?;
        let candidates: Vec<TargetGroup> = all
            .iter()
            .filter(|group| {
                group.load_balancers.is_empty()
                    && group.name.starts_with(stem(name))
                    && known.iter().all(|k| k.arn != group.arn)
            })
            .cloned()
            .collect();
        let service = want
            .tags
            .get(SERVICE_NAME)
            .map(String::as_str)
            .unwrap_or_default();
        let tags = self
            .tags_of(candidates.iter().map(|group| group.arn.clone()))
            .await?;
        let ours = |group: &TargetGroup| {
            let tags = tags.as_ref().and_then(|tags| tags.get(&group.arn));
            tags.is_some_and(|tags| self.is_of_service(tags, service))
        };
        Ok(candidates.into_iter().filter(ours).collect())
    }

    /// Target groups made for the Service: those of its load balancer, and unattached ones found by
    /// name and tags. Where tags cannot be read, the given names decide. AWS may still show the
    /// load balancer in a target group when it is deleted already.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn all_target_groups(
        &self,
        removed: &Removed<'_>,
        names: &BTreeSet<String>,
    ) -> CloudResult<BTreeSet<String>> {
        let Removed {
            name,
            load_balancer,
            foreign,
            managed_group,
            service,
        } = *removed;
        let all = self.elb.all_target_groups().await.map_err(|e| {
            quoted(
                "error listing target groups before deleting load balancer",
                e,
            )
        })?;
        let (attached, others): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|group| load_balancer.is_some_and(|lb| group.load_balancers.contains(lb)));
        let mut found: BTreeSet<String> = attached.into_iter().map(|group| group.arn).collect();
        let candidates: BTreeMap<String, String> = others
            .into_iter()
            .filter(|group| {
                let is_free = |arn: &String| is_named(arn, name) && Some(arn.as_str()) != foreign;
                group.name.starts_with(stem(managed_group))
                    && group.load_balancers.iter().all(is_free)
            })
            .map(|group| (group.arn, group.name))
            .collect();
        if candidates.is_empty() {
            return Ok(found);
        }
        let tags = self.tags_of(candidates.keys().cloned()).await?;
        found.extend(candidates.into_iter().filter_map(|(arn, name)| {
            let ours = match &tags {
                Some(tags) => tags
                    .get(&arn)
                    .is_some_and(|t| self.is_of_service(t, service)),
                None => names.contains(&name),
            };
            ours.then_some(arn)
        }));
        Ok(found)
    }

    /// `None` where tags may not be read.
    async fn tags_of(
        &self,
        arns: impl Iterator<Item = String>,
    ) -> CloudResult<Option<BTreeMap<String, Tags>>> {
        let arns: BTreeSet<String> = arns.collect();
        if arns.is_empty() {
            return Ok(Some(BTreeMap::new()));
        }
        if !self.read_tags.is_allowed() {
            return Ok(None);
        }
        let answer = self.elb.resource_tags(&arns).await;
        self.read_tags.check("DescribeTags", answer)
    }
}
