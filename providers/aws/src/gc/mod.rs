//! What the cluster left behind: load balancers, target groups, security groups and rules in the
//! Nodes' security groups that carry its tags and descriptions and belong to no Service.
//!
//! | File | What it does |
//! |---|---|
//! | `owners` | which Service claims what, by names and tags. Pure |
//! | `judge` | what is a leftover, and why. Pure |
//! | here | the reads, and the removals |
//!
//! Classic load balancers have an API of their own, which is not read here yet: their leftovers are
//! not found, and what they use is not taken for unused, because only what was made for network
//! load balancers is judged.

mod judge;
mod owners;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use ccm_core::{
    cloud::{
        CloudError, CloudResult, Leftover, LeftoverKind, Leftovers, LoadBalancers, Owners, Removal,
    },
    kube::{Node, Service, ServicePort},
};

use self::{
    judge::{Shown, judge},
    owners::Claims,
};
use crate::{
    annotations,
    api::{
        all_load_balancers::AllLoadBalancers,
        elbv2::Elbv2Api,
        network::{Groups, NetworkApi, Rule},
    },
    instances::{InstanceId, InstanceStore},
    load_balancer::settings::Settings,
    tags::Tags,
};

/// The wait for something that is in use.
const IN_USE_RETRY: Duration = Duration::from_secs(5);

/// Nodes that are looked up to tell whether the cluster is at home here: one machine of it is
/// enough.
const NODES_ASKED: usize = 100;

/// The leftovers of AWS.
pub struct AwsLeftovers {
    /// Lists load balancers.
    pub all: Arc<dyn AllLoadBalancers>,
    /// Target groups and tags.
    pub elb: Arc<dyn Elbv2Api>,
    /// Security groups.
    pub network: Arc<dyn NetworkApi>,
    /// The controller's own removal.
    pub load_balancers: Arc<dyn LoadBalancers>,
    /// The machines of the Nodes.
    pub instances: Arc<InstanceStore>,
    /// Cluster, network and configuration.
    pub settings: Settings,
}

impl AwsLeftovers {
    /// Everything that could be a leftover or be used by one, read to the last page.
    async fn read(&self) -> CloudResult<Shown> {
        let load_balancers = self.all.all_load_balancers().await;
        let load_balancers =
            load_balancers.map_err(|e| e.context("error listing load balancers"))?;
        let target_groups = self.elb.all_target_groups().await;
        let target_groups = target_groups.map_err(|e| e.context("error listing target groups"))?;
        let groups = self
            .network
            .security_groups(&Groups::In(&self.settings.vpc_id))
            .await
            .map_err(|e| e.context("error listing security groups"))?;
        let mut shown = Shown {
            load_balancers,
            target_groups,
            groups,
            tags: BTreeMap::new(),
        };
        shown.tags = self.tags(&shown.candidates()).await?;
        Ok(shown)
    }

    async fn tags(&self, arns: &BTreeSet<String>) -> CloudResult<BTreeMap<String, Tags>> {
        if arns.is_empty() {
            return Ok(BTreeMap::new());
        }
        let tags = self.elb.resource_tags(arns).await;
        tags.map_err(|e| {
            e.context("error reading whose they are (allow elasticloadbalancing:DescribeTags)")
        })
    }

    /// Removes a load balancer and all that was made for it, by the controller's own removal. Once
    /// its head is gone, what is left is finished by the next call.
    async fn remove_load_balancer(
        &self,
        leftover: &Leftover,
        shown: &Shown,
        claims: &Claims,
    ) -> CloudResult<Removal> {
        let Some(made_for) = &leftover.made_for else {
            return Ok(Removal::Kept(
                "its tags do not say what it was made for".to_owned(),
            ));
        };
        let exists = |lb: &&_| {
            let lb: &&crate::api::all_load_balancers::ListedLoadBalancer = lb;
            lb.load_balancer.name == leftover.name
        };
        let same = shown.load_balancers.iter().find(exists);
        let is_leftover = judge(shown, claims, &self.settings)
            .iter()
            .any(|now| now.kind == leftover.kind && now.id == leftover.id && now.kept.is_none());
        if !is_leftover && (same.is_some() || claims.claims(&leftover.name)) {
            return Ok(Removal::Kept("it has an owner by now".to_owned()));
        }
        let ports = judge::own_ports(shown, &leftover.name, claims);
        let gone = tombstone(&leftover.name, made_for, &ports);
        self.load_balancers.delete(&gone).await?;
        Ok(Removal::Removed)
    }

    async fn remove_rules(
        &self,
        shown: &Shown,
        now: &Leftover,
        claims: &Claims,
    ) -> CloudResult<()> {
        let Some((group, name)) = now.id.split_once('/') else {
            return Ok(());
        };
        let found = shown.groups.iter().find(|shown| shown.id == group);
        let rules: BTreeSet<Rule> = found
            .map(|group| judge::stale_rules(group, name, claims))
            .unwrap_or_default();
        if rules.is_empty() {
            return Ok(());
        }
        self.network.revoke(group, &rules).await
    }
}

/// The Service that the load balancer was made for, as far as it can be told. The name of a load
/// balancer comes from the UID, and so the UID from the name.
fn tombstone(name: &str, made_for: &str, ports: &BTreeSet<i32>) -> Service {
    let (namespace, service) = made_for.split_once('/').unwrap_or(("", made_for));
    let mut gone = Service::default();
    gone.metadata.namespace = Some(namespace.to_owned());
    gone.metadata.name = Some(service.to_owned());
    gone.metadata.uid = Some(name.chars().skip(1).collect());
    let kind = (annotations::TYPE.key.to_owned(), "nlb".to_owned());
    gone.metadata.annotations = Some(BTreeMap::from([kind]));
    gone.spec.ports = ports
        .iter()
        .map(|port| ServicePort {
            port: *port,
            node_port: Some(*port),
            ..ServicePort::default()
        })
        .collect();
    gone
}

fn gone_is_done(answer: CloudResult<()>) -> CloudResult<Removal> {
    match answer {
        Err(error) if error.is_not_found() => Ok(Removal::Removed),
        Err(error) if matches!(error.code(), Some("ResourceInUse" | "DependencyViolation")) => {
            Err(error.retry_in(IN_USE_RETRY))
        }
        Err(error) => Err(error),
        Ok(()) => Ok(Removal::Removed),
    }
}

#[async_trait]
impl Leftovers for AwsLeftovers {
    async fn list(&self, owners: Owners<'_>) -> CloudResult<Vec<Leftover>> {
        let shown = self.read().await?;
        Ok(judge(
            &shown,
            &Claims::of(owners, &self.settings),
            &self.settings,
        ))
    }

    async fn remove(&self, leftover: &Leftover, owners: Owners<'_>) -> CloudResult<Removal> {
        let shown = self.read().await?;
        let claims = Claims::of(owners, &self.settings);
        if leftover.kind == LeftoverKind::LoadBalancer {
            return self.remove_load_balancer(leftover, &shown, &claims).await;
        }
        let now = judge(&shown, &claims, &self.settings);
        let now = now
            .into_iter()
            .find(|now| now.kind == leftover.kind && now.id == leftover.id);
        let Some(now) = now else {
            return Ok(Removal::Kept("it is gone, or in use by now".to_owned()));
        };
        if let Some(why) = now.kept {
            return Ok(Removal::Kept(why));
        }
        match now.kind {
            LeftoverKind::TargetGroup => gone_is_done(self.elb.delete_target_group(&now.id).await),
            LeftoverKind::SecurityGroup => {
                gone_is_done(self.network.delete_security_group(&now.id).await)
            }
            LeftoverKind::Rule => gone_is_done(self.remove_rules(&shown, &now, &claims).await),
            LeftoverKind::LoadBalancer | LeftoverKind::Route => Err(CloudError::invalid(format!(
                "a {} is not removed here",
                now.kind.as_str()
            ))),
        }
    }

    async fn is_home_of(&self, nodes: &[Arc<Node>]) -> CloudResult<bool> {
        let ids: BTreeSet<InstanceId> = nodes
            .iter()
            .filter_map(|node| InstanceId::from_provider_id(node.provider_id()?).ok())
            .take(NODES_ASKED)
            .collect();
        // Instances without the cluster's tag are absent from the answer.
        let found = self.instances.look_up(&ids).await?;
        Ok(found.values().any(Option::is_some))
    }
}
