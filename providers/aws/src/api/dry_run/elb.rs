//! The load balancer API of 2012 for a plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use ccm_core::cloud::{CloudResult, KNOWN_AFTER_APPLY, RecordedWrite, Recorder};

use super::seen::{difference, map_difference, remember, some, tag_lines};
use crate::{
    api::{
        elb::{
            AccessLog, Attributes, Draining, ElbApi, HealthCheck, Listener, ListenerSpec,
            LoadBalancer, NewLoadBalancer, Policy,
        },
        elbv2::SCHEME_INTERNAL,
    },
    tags::Tags,
};

/// The scheme of a load balancer that the world reaches.
const SCHEME_PUBLIC: &str = "internet-facing";

/// What AWS gives a new load balancer, in seconds.
const NEW_IDLE_TIMEOUT: i32 = 60;
const NEW_DRAINING_TIMEOUT: i32 = 300;

/// What reads have shown, by name: the left side of each difference.
#[derive(Debug, Default)]
struct Seen {
    load_balancers: BTreeMap<String, LoadBalancer>,
    attributes: BTreeMap<String, Attributes>,
    tags: BTreeMap<String, Tags>,
    /// Load balancers that are only planned: AWS cannot be asked about them.
    planned: BTreeMap<String, LoadBalancer>,
}

/// See the module documentation of [`super`].
pub(super) struct RecordedElb {
    inner: Arc<dyn ElbApi>,
    recorder: Recorder,
    seen: Mutex<Seen>,
}

impl RecordedElb {
    pub(super) fn new(inner: Arc<dyn ElbApi>, recorder: Recorder) -> Self {
        Self {
            inner,
            recorder,
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_planned(&self, name: &str) -> bool {
        self.seen().planned.contains_key(name)
    }

    fn see(&self, found: &[LoadBalancer]) {
        let shown = found.iter().map(|lb| (lb.name.clone(), lb.clone()));
        remember(&mut self.seen().load_balancers, shown);
    }

    /// The load balancer as it was before this plan.
    fn before<T>(&self, name: &str, get: impl FnOnce(&LoadBalancer) -> T) -> Option<T> {
        self.seen().load_balancers.get(name).map(get)
    }

    fn record(&self, action: &'static str, name: &str, lines: impl IntoIterator<Item = String>) {
        self.recorder
            .record(RecordedWrite::new(action, format!("load balancer {name}")).with_all(lines));
    }
}

fn planned(new: &NewLoadBalancer) -> LoadBalancer {
    let listener = |spec: &ListenerSpec| {
        let listener = Listener {
            spec: spec.clone(),
            policies: BTreeSet::new(),
        };
        (spec.port, listener)
    };
    LoadBalancer {
        name: new.name.clone(),
        dns_name: KNOWN_AFTER_APPLY.to_owned(),
        scheme: if new.internal {
            SCHEME_INTERNAL
        } else {
            SCHEME_PUBLIC
        }
        .to_owned(),
        subnets: new.subnets.clone(),
        security_groups: new.security_groups.clone(),
        listeners: new.listeners.iter().map(listener).collect(),
        ..LoadBalancer::default()
    }
}

fn new_attributes() -> Attributes {
    Attributes {
        access_log: Some(AccessLog::default()),
        draining: Some(Draining {
            enabled: false,
            timeout: Some(NEW_DRAINING_TIMEOUT),
        }),
        idle_timeout: Some(NEW_IDLE_TIMEOUT),
        cross_zone: Some(false),
    }
}

fn listener_line(spec: &ListenerSpec) -> String {
    let certificate = spec.certificate.as_deref();
    let certificate = certificate
        .map(|arn| format!(" with certificate {arn}"))
        .unwrap_or_default();
    format!(
        "listener {} {} to {} {}{certificate}",
        spec.protocol, spec.port, spec.instance_protocol, spec.instance_port
    )
}

fn health_text(health: &HealthCheck) -> String {
    format!(
        "{} every {} s within {} s, {} to be healthy, {} to be unhealthy",
        health.target, health.interval, health.timeout, health.healthy, health.unhealthy
    )
}

/// The attributes by name, those that are ours.
fn attribute_texts(attributes: &Attributes) -> BTreeMap<String, String> {
    let Attributes {
        access_log,
        draining,
        idle_timeout,
        cross_zone,
    } = attributes;
    let log = access_log.as_ref();
    let texts = [
        ("access logs", log.map(|log| log.enabled.to_string())),
        (
            "access log interval",
            log.and_then(|log| log.emit_interval).map(|n| n.to_string()),
        ),
        ("access log bucket", log.and_then(|log| log.bucket.clone())),
        ("access log prefix", log.and_then(|log| log.prefix.clone())),
        (
            "connection draining",
            draining.map(|draining| draining.enabled.to_string()),
        ),
        (
            "connection draining timeout",
            draining.and_then(|d| d.timeout).map(|n| n.to_string()),
        ),
        ("idle timeout", idle_timeout.map(|n| n.to_string())),
        ("cross zone", cross_zone.map(|on| on.to_string())),
    ];
    let given = texts
        .into_iter()
        .filter_map(|(name, text)| Some((name.to_owned(), text?)));
    given.collect()
}

fn named(what: &str, names: &BTreeSet<String>) -> String {
    match names.is_empty() {
        true => format!("{what}: none"),
        false => some(what, names.iter().map(String::as_str)),
    }
}

#[async_trait]
impl ElbApi for RecordedElb {
    async fn load_balancers(&self, names: &BTreeSet<String>) -> CloudResult<Vec<LoadBalancer>> {
        let (mut found, asked): (Vec<LoadBalancer>, BTreeSet<String>) = {
            let seen = self.seen();
            let planned = names.iter().filter_map(|name| seen.planned.get(name));
            let asked = names
                .iter()
                .filter(|name| !seen.planned.contains_key(*name));
            (planned.cloned().collect(), asked.cloned().collect())
        };
        if !asked.is_empty() {
            let there = self.inner.load_balancers(&asked).await?;
            self.see(&there);
            found.extend(there);
        }
        Ok(found)
    }

    async fn all_load_balancers(&self) -> CloudResult<Vec<LoadBalancer>> {
        let mut found = self.inner.all_load_balancers().await?;
        self.see(&found);
        found.extend(self.seen().planned.values().cloned());
        Ok(found)
    }

    async fn create_load_balancer(&self, new: &NewLoadBalancer) -> CloudResult<String> {
        let made = planned(new);
        let lines = std::iter::once(format!("scheme: {}", made.scheme))
            .chain(new.subnets.iter().map(|id| format!("subnet: {id}")))
            .chain(
                new.security_groups
                    .iter()
                    .map(|id| format!("security group: {id}")),
            )
            .chain(new.listeners.iter().map(listener_line))
            .chain(tag_lines(&new.tags));
        self.record("CreateLoadBalancer", &new.name, lines);
        let host = made.dns_name.clone();
        self.seen().planned.insert(new.name.clone(), made);
        Ok(host)
    }

    async fn delete_load_balancer(&self, name: &str) -> CloudResult<()> {
        self.record(
            "DeleteLoadBalancer",
            name,
            ["with all its listeners".to_owned()],
        );
        self.seen().planned.remove(name);
        Ok(())
    }

    async fn attach_subnets(
        &self,
        name: &str,
        subnets: &BTreeSet<String>,
    ) -> CloudResult<BTreeSet<String>> {
        self.record(
            "AttachLoadBalancerToSubnets",
            name,
            [named("subnet", subnets)],
        );
        let before = self.before(name, |lb| lb.subnets.clone());
        let mut all = before.unwrap_or_default();
        all.extend(subnets.iter().cloned());
        Ok(all)
    }

    async fn detach_subnets(
        &self,
        name: &str,
        subnets: &BTreeSet<String>,
    ) -> CloudResult<BTreeSet<String>> {
        self.record(
            "DetachLoadBalancerFromSubnets",
            name,
            [named("subnet", subnets)],
        );
        let before = self.before(name, |lb| lb.subnets.clone());
        let mut all = before.unwrap_or_default();
        all.retain(|id| !subnets.contains(id));
        Ok(all)
    }

    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> CloudResult<()> {
        let before = self.before(name, |lb| lb.security_groups.join(", "));
        let line = difference("security groups", before.as_deref(), &groups.join(", "));
        self.record("ApplySecurityGroupsToLoadBalancer", name, line);
        Ok(())
    }

    async fn create_listeners(&self, name: &str, listeners: &[ListenerSpec]) -> CloudResult<()> {
        self.record(
            "CreateLoadBalancerListeners",
            name,
            listeners.iter().map(listener_line),
        );
        Ok(())
    }

    async fn delete_listeners(&self, name: &str, ports: &BTreeSet<i32>) -> CloudResult<()> {
        let lines: Vec<String> = ports
            .iter()
            .map(|port| {
                let spec = self.before(name, |lb| lb.listeners.get(port).map(|l| l.spec.clone()));
                let text = spec.flatten().as_ref().map(listener_line);
                text.unwrap_or_else(|| format!("listener {port}"))
            })
            .collect();
        self.record("DeleteLoadBalancerListeners", name, lines);
        Ok(())
    }

    async fn has_policy(&self, name: &str, policy: &str) -> CloudResult<bool> {
        if self.is_planned(name) {
            return Ok(false);
        }
        self.inner.has_policy(name, policy).await
    }

    async fn create_policy(&self, name: &str, policy: &Policy) -> CloudResult<()> {
        let (key, value) = &policy.attribute;
        let line = format!("policy {}: {}, {key}: {value}", policy.name, policy.kind);
        self.record("CreateLoadBalancerPolicy", name, [line]);
        Ok(())
    }

    async fn set_backend_policies(
        &self,
        name: &str,
        instance_port: i32,
        policies: &BTreeSet<String>,
    ) -> CloudResult<()> {
        let what = format!("instance port {instance_port}: ") + &named("policy", policies);
        self.record("SetLoadBalancerPoliciesForBackendServer", name, [what]);
        Ok(())
    }

    async fn set_listener_policies(
        &self,
        name: &str,
        port: i32,
        policies: &BTreeSet<String>,
    ) -> CloudResult<()> {
        let what = format!("listener {port}: ") + &named("policy", policies);
        self.record("SetLoadBalancerPoliciesOfListener", name, [what]);
        Ok(())
    }

    async fn attributes(&self, name: &str) -> CloudResult<Attributes> {
        if self.is_planned(name) {
            return Ok(new_attributes());
        }
        let found = self.inner.attributes(name).await?;
        let shown = std::iter::once((name.to_owned(), found.clone()));
        remember(&mut self.seen().attributes, shown);
        Ok(found)
    }

    async fn modify_attributes(&self, name: &str, attributes: &Attributes) -> CloudResult<()> {
        let before = self.seen().attributes.get(name).map(attribute_texts);
        let after = attribute_texts(attributes);
        let lines = map_difference("attribute", before.as_ref(), &after);
        self.record("ModifyLoadBalancerAttributes", name, lines);
        Ok(())
    }

    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> CloudResult<()> {
        let before = self.before(name, |lb| lb.health.as_ref().map(health_text));
        let line = difference(
            "health check",
            before.flatten().as_deref(),
            &health_text(check),
        );
        self.record("ConfigureHealthCheck", name, line);
        Ok(())
    }

    async fn register(&self, name: &str, instances: &[String]) -> CloudResult<()> {
        let line = some("instance", instances.iter().map(String::as_str));
        self.record("RegisterInstancesWithLoadBalancer", name, [line]);
        Ok(())
    }

    async fn deregister(&self, name: &str, instances: &[String]) -> CloudResult<()> {
        let line = some("instance", instances.iter().map(String::as_str));
        self.record("DeregisterInstancesFromLoadBalancer", name, [line]);
        Ok(())
    }

    async fn tags(&self, name: &str) -> CloudResult<Tags> {
        if self.is_planned(name) {
            return Ok(Tags::default());
        }
        let found = self.inner.tags(name).await?;
        let shown = std::iter::once((name.to_owned(), found.clone()));
        remember(&mut self.seen().tags, shown);
        Ok(found)
    }

    async fn add_tags(&self, name: &str, tags: &Tags) -> CloudResult<()> {
        let lines = map_difference("tag", self.seen().tags.get(name), tags);
        self.record("AddTags", name, lines);
        Ok(())
    }

    async fn remove_tags(&self, name: &str, keys: &BTreeSet<String>) -> CloudResult<()> {
        let lines = keys.iter().map(|key| format!("tag {key}: removed"));
        self.record("RemoveTags", name, lines);
        Ok(())
    }
}
