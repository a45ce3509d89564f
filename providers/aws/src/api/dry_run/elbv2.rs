//! The load balancer API, version 2, for a plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use ccm_core::cloud::{CloudResult, KNOWN_AFTER_APPLY, RecordedWrite, Recorder};

use super::seen::{
    Seen, difference, health_text, label, listener_difference, listener_text, map_difference,
    remember, some, tag_lines,
};
use crate::{
    api::elbv2::{
        Attributes, Elbv2Api, HealthChange, HealthCheck, Listener, ListenerSpec, LoadBalancer,
        NewLoadBalancer, NewTargetGroup, SCHEME_INTERNAL, Target, TargetGroup,
    },
    load_balancer::nlb::desired::KIND,
    tags::Tags,
};

/// The end of every invented ARN.
const INVENTED: &str = "known-after-apply";

/// The scheme of a load balancer that the world reaches.
const SCHEME_PUBLIC: &str = "internet-facing";

/// See the module documentation.
pub(super) struct RecordedElbv2 {
    inner: Arc<dyn Elbv2Api>,
    recorder: Recorder,
    vpc_id: String,
    seen: Mutex<Seen>,
}

impl RecordedElbv2 {
    pub(super) fn new(inner: Arc<dyn Elbv2Api>, recorder: Recorder, vpc_id: String) -> Self {
        Self {
            inner,
            recorder,
            vpc_id,
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see_target_groups<'a>(&self, groups: impl IntoIterator<Item = &'a TargetGroup>) {
        let shown = groups.into_iter().map(|g| (g.arn.clone(), g.clone()));
        remember(&mut self.seen().target_groups, shown);
    }

    fn record(&self, write: RecordedWrite) -> CloudResult<()> {
        self.recorder.record(write);
        Ok(())
    }
}

fn invented(path: &str) -> String {
    format!("arn:aws:elasticloadbalancing:::{path}/{INVENTED}")
}

fn invented_listener(load_balancer: &str, spec: &ListenerSpec) -> String {
    let of = label(load_balancer);
    let name = of.rsplit(' ').next().unwrap_or_default();
    let listener = format!("listener/net/{name}/{}-{}", spec.protocol, spec.port);
    invented(&listener)
}

fn new_load_balancer(new: &NewLoadBalancer, vpc_id: &str) -> LoadBalancer {
    LoadBalancer {
        arn: invented(&format!("loadbalancer/net/{}", new.name)),
        name: new.name.clone(),
        kind: KIND.to_owned(),
        dns_name: KNOWN_AFTER_APPLY.to_owned(),
        scheme: if new.internal {
            SCHEME_INTERNAL
        } else {
            SCHEME_PUBLIC
        }
        .to_owned(),
        state: "provisioning".to_owned(),
        vpc_id: vpc_id.to_owned(),
        subnets: new.subnets.iter().map(|s| s.subnet_id.clone()).collect(),
        security_groups: new.security_groups.clone(),
    }
}

fn new_target_group(new: &NewTargetGroup) -> TargetGroup {
    TargetGroup {
        arn: invented(&format!("targetgroup/{}", new.name)),
        name: new.name.clone(),
        port: new.port,
        protocol: new.protocol.clone(),
        vpc_id: new.vpc_id.clone(),
        health: new.health.clone(),
        load_balancers: BTreeSet::new(),
    }
}

fn joined(ids: &BTreeSet<String>) -> String {
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    ids.join(", ")
}

fn health_difference(before: Option<&HealthCheck>, change: &HealthChange) -> Vec<String> {
    let number = |n: i32| n.to_string();
    let line = |what: &str, before: Option<String>, after: Option<String>| {
        after.and_then(|after| difference(what, before.as_deref(), &after))
    };
    let old = |get: fn(&HealthCheck) -> String| before.map(get);
    [
        line(
            "health check protocol",
            old(|h| h.protocol.clone()),
            change.protocol.clone(),
        ),
        line(
            "health check port",
            old(|h| h.port.clone()),
            change.port.clone(),
        ),
        line(
            "health check path",
            old(|h| h.path.clone().unwrap_or_default()),
            change.path.clone(),
        ),
        line(
            "health check interval",
            old(|h| h.interval.to_string()),
            change.interval.map(number),
        ),
        line(
            "health check timeout",
            old(|h| h.timeout.map(|n| n.to_string()).unwrap_or_default()),
            change.timeout.map(number),
        ),
        line(
            "healthy threshold",
            old(|h| h.healthy.to_string()),
            change.thresholds.map(|(healthy, _)| number(healthy)),
        ),
        line(
            "unhealthy threshold",
            old(|h| h.unhealthy.to_string()),
            change.thresholds.map(|(_, unhealthy)| number(unhealthy)),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[async_trait]
impl Elbv2Api for RecordedElbv2 {
    async fn load_balancer(&self, name: &str) -> CloudResult<Option<LoadBalancer>> {
        let found = self.inner.load_balancer(name).await?;
        let shown = found.iter().map(|lb| (lb.arn.clone(), lb.clone()));
        remember(&mut self.seen().load_balancers, shown);
        Ok(found)
    }

    async fn create_load_balancer(&self, new: &NewLoadBalancer) -> CloudResult<LoadBalancer> {
        let made = new_load_balancer(new, &self.vpc_id);
        let subnets = new.subnets.iter().map(|mapping| {
            let address = [&mapping.allocation_id, &mapping.private_ipv4];
            let address = address.into_iter().flatten().next();
            let address = address.map(|a| format!(" with {a}")).unwrap_or_default();
            format!("subnet: {}{address}", mapping.subnet_id)
        });
        let write = RecordedWrite::new("CreateLoadBalancer", label(&made.arn))
            .with(format!("scheme: {}", made.scheme))
            .with_all(subnets)
            .with_all(
                new.security_groups
                    .iter()
                    .map(|id| format!("security group: {id}")),
            )
            .with_all(tag_lines(&new.tags));
        self.record(write)?;
        Ok(made)
    }

    async fn delete_load_balancer(&self, arn: &str) -> CloudResult<()> {
        self.record(
            RecordedWrite::new("DeleteLoadBalancer", label(arn)).with("with all its listeners"),
        )
    }

    async fn set_security_groups(&self, arn: &str, groups: &BTreeSet<String>) -> CloudResult<()> {
        let before = self
            .seen()
            .load_balancers
            .get(arn)
            .map(|lb| joined(&lb.security_groups));
        let line = difference("security groups", before.as_deref(), &joined(groups));
        self.record(RecordedWrite::new("SetSecurityGroups", label(arn)).with_all(line))
    }

    async fn load_balancer_attributes(&self, arn: &str) -> CloudResult<Attributes> {
        let found = self.inner.load_balancer_attributes(arn).await?;
        let shown = (arn.to_owned(), found.clone());
        remember(&mut self.seen().attributes, std::iter::once(shown));
        Ok(found)
    }

    async fn modify_load_balancer_attributes(
        &self,
        arn: &str,
        attributes: &Attributes,
    ) -> CloudResult<()> {
        let lines = map_difference("attribute", self.seen().attributes.get(arn), attributes);
        self.record(RecordedWrite::new("ModifyLoadBalancerAttributes", label(arn)).with_all(lines))
    }

    async fn listeners(&self, load_balancer: &str) -> CloudResult<Vec<Listener>> {
        let found = self.inner.listeners(load_balancer).await?;
        let shown = found.iter().map(|l| (l.arn.clone(), l.clone()));
        remember(&mut self.seen().listeners, shown);
        Ok(found)
    }

    async fn create_listener(
        &self,
        load_balancer: &str,
        spec: &ListenerSpec,
        tags: &Tags,
    ) -> CloudResult<Listener> {
        let object = listener_text(spec, &label(load_balancer));
        let mut lines = listener_difference(None, spec);
        lines.retain(|line| !line.starts_with("protocol: "));
        self.record(
            RecordedWrite::new("CreateListener", object)
                .with_all(lines)
                .with_all(tag_lines(tags)),
        )?;
        Ok(Listener {
            arn: invented_listener(load_balancer, spec),
            spec: spec.clone(),
            also_forwards_to: BTreeSet::new(),
        })
    }

    async fn modify_listener(&self, arn: &str, spec: &ListenerSpec) -> CloudResult<Listener> {
        let write = {
            let seen = self.seen();
            let before = seen.listeners.get(arn).map(|listener| &listener.spec);
            RecordedWrite::new("ModifyListener", seen.listener(arn))
                .with_all(listener_difference(before, spec))
        };
        self.record(write)?;
        Ok(Listener {
            arn: arn.to_owned(),
            spec: spec.clone(),
            also_forwards_to: BTreeSet::new(),
        })
    }

    async fn delete_listener(&self, arn: &str) -> CloudResult<()> {
        let object = self.seen().listener(arn);
        self.record(RecordedWrite::new("DeleteListener", object))
    }

    async fn target_groups_of(&self, load_balancer: &str) -> CloudResult<Vec<TargetGroup>> {
        let found = self.inner.target_groups_of(load_balancer).await?;
        self.see_target_groups(&found);
        Ok(found)
    }

    async fn target_group_named(&self, name: &str) -> CloudResult<Option<TargetGroup>> {
        let found = self.inner.target_group_named(name).await?;
        self.see_target_groups(&found);
        Ok(found)
    }

    async fn all_target_groups(&self) -> CloudResult<Vec<TargetGroup>> {
        self.inner.all_target_groups().await
    }

    async fn create_target_group(&self, new: &NewTargetGroup) -> CloudResult<TargetGroup> {
        let made = new_target_group(new);
        let write = RecordedWrite::new("CreateTargetGroup", label(&made.arn))
            .with(format!("forwards {} to port {}", new.protocol, new.port))
            .with(health_text(&new.health))
            .with_all(tag_lines(&new.tags));
        self.record(write)?;
        Ok(made)
    }

    async fn modify_target_group(&self, arn: &str, change: &HealthChange) -> CloudResult<()> {
        let lines = {
            let seen = self.seen();
            health_difference(seen.target_groups.get(arn).map(|g| &g.health), change)
        };
        self.record(RecordedWrite::new("ModifyTargetGroup", label(arn)).with_all(lines))
    }

    async fn delete_target_group(&self, arn: &str) -> CloudResult<()> {
        self.record(RecordedWrite::new("DeleteTargetGroup", label(arn)))
    }

    async fn targets(&self, target_group: &str) -> CloudResult<BTreeSet<Target>> {
        self.inner.targets(target_group).await
    }

    async fn register(&self, target_group: &str, targets: &[Target]) -> CloudResult<()> {
        let line = some("target", targets.iter().map(|target| target.id.as_str()));
        self.record(RecordedWrite::new("RegisterTargets", label(target_group)).with(line))
    }

    async fn deregister(&self, target_group: &str, targets: &[Target]) -> CloudResult<()> {
        let line = some("target", targets.iter().map(|target| target.id.as_str()));
        self.record(RecordedWrite::new("DeregisterTargets", label(target_group)).with(line))
    }

    async fn target_group_attributes(&self, arn: &str) -> CloudResult<Attributes> {
        let found = self.inner.target_group_attributes(arn).await?;
        let shown = (arn.to_owned(), found.clone());
        remember(&mut self.seen().attributes, std::iter::once(shown));
        Ok(found)
    }

    async fn modify_target_group_attributes(
        &self,
        arn: &str,
        attributes: &Attributes,
    ) -> CloudResult<()> {
        let lines = map_difference("attribute", self.seen().attributes.get(arn), attributes);
        self.record(RecordedWrite::new("ModifyTargetGroupAttributes", label(arn)).with_all(lines))
    }

    async fn resource_tags(&self, arns: &BTreeSet<String>) -> CloudResult<BTreeMap<String, Tags>> {
        let found = self.inner.resource_tags(arns).await?;
        let shown = found.iter().map(|(arn, tags)| (arn.clone(), tags.clone()));
        remember(&mut self.seen().tags, shown);
        Ok(found)
    }

    async fn add_tags(&self, arn: &str, tags: &Tags) -> CloudResult<()> {
        let write = {
            let seen = self.seen();
            RecordedWrite::new("AddTags", seen.listener(arn)).with_all(map_difference(
                "tag",
                seen.tags.get(arn),
                tags,
            ))
        };
        self.record(write)
    }

    async fn remove_tags(&self, arn: &str, keys: &BTreeSet<String>) -> CloudResult<()> {
        let object = self.seen().listener(arn);
        let lines = keys.iter().map(|key| format!("tag {key}: removed"));
        self.record(RecordedWrite::new("RemoveTags", object).with_all(lines))
    }
}
