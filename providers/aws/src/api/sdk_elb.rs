//! The Elastic Load Balancing API of 2012 through the SDK.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use aws_sdk_elasticloadbalancing::{Client, types as sdk};
use aws_smithy_types::error::operation::BuildError;
use ccm_core::cloud::{CloudError, CloudResult};

use super::{
    ApiCalls,
    elb::{
        AccessLog, Attributes, Draining, ElbApi, HealthCheck, Listener, ListenerSpec, LoadBalancer,
        NewLoadBalancer, Policy,
    },
    elbv2::SCHEME_INTERNAL,
};
use crate::tags::Tags;

/// The page size asked for, the API's largest.
const PAGE_SIZE: i32 = 400;

/// See [`ElbApi`].
#[derive(Clone, Debug)]
pub struct SdkElb {
    client: Client,
    calls: ApiCalls,
}

impl SdkElb {
    /// Through this client.
    pub const fn new(client: Client, calls: ApiCalls) -> Self {
        Self { client, calls }
    }
}

#[async_trait]
impl ElbApi for SdkElb {
    async fn load_balancers(&self, names: &BTreeSet<String>) -> CloudResult<Vec<LoadBalancer>> {
        let send = self
            .client
            .describe_load_balancers()
            .set_load_balancer_names(Some(list(names)))
            .send();
        let answer = self.calls.call("DescribeLoadBalancers", send).await?;
        let found = answer.load_balancer_descriptions.unwrap_or_default();
        Ok(found.into_iter().map(load_balancer).collect())
    }

    async fn all_load_balancers(&self) -> CloudResult<Vec<LoadBalancer>> {
        const OPERATION: &str = "DescribeLoadBalancers";
        let read = |token| async move {
            let send = self
                .client
                .describe_load_balancers()
                .page_size(PAGE_SIZE)
                .set_marker(token)
                .send();
            let page = self.calls.page(OPERATION, send).await?;
            let some = page
                .load_balancer_descriptions
                .unwrap_or_default()
                .into_iter()
                .map(load_balancer);
            Ok((some.collect(), page.next_marker))
        };
        self.calls.all_pages(OPERATION, read).await
    }

    async fn create_load_balancer(&self, new: &NewLoadBalancer) -> CloudResult<String> {
        let send = self
            .client
            .create_load_balancer()
            .load_balancer_name(&new.name)
            .set_listeners(Some(listeners(&new.listeners)?))
            .set_subnets(Some(list(&new.subnets)))
            .set_security_groups(
                (!new.security_groups.is_empty()).then(|| new.security_groups.clone()),
            )
            .set_scheme(new.internal.then(|| SCHEME_INTERNAL.to_owned()))
            .set_tags((!new.tags.is_empty()).then_some(tag_list(&new.tags)?))
            .send();
        let answer = self.calls.call("CreateLoadBalancer", send).await?;
        Ok(answer.dns_name.unwrap_or_default())
    }

    async fn delete_load_balancer(&self, name: &str) -> CloudResult<()> {
        let send = self
            .client
            .delete_load_balancer()
            .load_balancer_name(name)
            .send();
        self.calls.call("DeleteLoadBalancer", send).await.map(drop)
    }

    async fn attach_subnets(
        &self,
        name: &str,
        subnets: &BTreeSet<String>,
    ) -> CloudResult<BTreeSet<String>> {
        let send = self
            .client
            .attach_load_balancer_to_subnets()
            .load_balancer_name(name)
            .set_subnets(Some(list(subnets)))
            .send();
        let answer = self.calls.call("AttachLoadBalancerToSubnets", send).await?;
        Ok(answer.subnets.unwrap_or_default().into_iter().collect())
    }

    async fn detach_subnets(
        &self,
        name: &str,
        subnets: &BTreeSet<String>,
    ) -> CloudResult<BTreeSet<String>> {
        let send = self
            .client
            .detach_load_balancer_from_subnets()
            .load_balancer_name(name)
            .set_subnets(Some(list(subnets)))
            .send();
        let answer = self
            .calls
            .call("DetachLoadBalancerFromSubnets", send)
            .await?;
        Ok(answer.subnets.unwrap_or_default().into_iter().collect())
    }

    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> CloudResult<()> {
        let send = self
            .client
            .apply_security_groups_to_load_balancer()
            .load_balancer_name(name)
            .set_security_groups(Some(groups.to_vec()))
            .send();
        self.calls
            .call("ApplySecurityGroupsToLoadBalancer", send)
            .await
            .map(drop)
    }

    async fn create_listeners(&self, name: &str, specs: &[ListenerSpec]) -> CloudResult<()> {
        let send = self
            .client
            .create_load_balancer_listeners()
            .load_balancer_name(name)
            .set_listeners(Some(listeners(specs)?))
            .send();
        self.calls
            .call("CreateLoadBalancerListeners", send)
            .await
            .map(drop)
    }

    async fn delete_listeners(&self, name: &str, ports: &BTreeSet<i32>) -> CloudResult<()> {
        let send = self
            .client
            .delete_load_balancer_listeners()
            .load_balancer_name(name)
            .set_load_balancer_ports(Some(ports.iter().copied().collect()))
            .send();
        self.calls
            .call("DeleteLoadBalancerListeners", send)
            .await
            .map(drop)
    }

    async fn has_policy(&self, name: &str, policy: &str) -> CloudResult<bool> {
        let send = self
            .client
            .describe_load_balancer_policies()
            .load_balancer_name(name)
            .policy_names(policy)
            .send();
        match self.calls.call("DescribeLoadBalancerPolicies", send).await {
            Ok(answer) => Ok(!answer.policy_descriptions.unwrap_or_default().is_empty()),
            Err(error) if error.code() == Some("PolicyNotFound") => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn create_policy(&self, name: &str, policy: &Policy) -> CloudResult<()> {
        let (key, value) = &policy.attribute;
        let attribute = sdk::PolicyAttribute::builder()
            .attribute_name(*key)
            .attribute_value(value)
            .build();
        let send = self
            .client
            .create_load_balancer_policy()
            .load_balancer_name(name)
            .policy_name(&policy.name)
            .policy_type_name(policy.kind)
            .policy_attributes(attribute)
            .send();
        self.calls
            .call("CreateLoadBalancerPolicy", send)
            .await
            .map(drop)
    }

    async fn set_backend_policies(
        &self,
        name: &str,
        instance_port: i32,
        policies: &BTreeSet<String>,
    ) -> CloudResult<()> {
        let send = self
            .client
            .set_load_balancer_policies_for_backend_server()
            .load_balancer_name(name)
            .instance_port(instance_port)
            // An empty list takes all of them away.
            .set_policy_names(Some(list(policies)))
            .send();
        self.calls
            .call("SetLoadBalancerPoliciesForBackendServer", send)
            .await
            .map(drop)
    }

    async fn set_listener_policies(
        &self,
        name: &str,
        port: i32,
        policies: &BTreeSet<String>,
    ) -> CloudResult<()> {
        let send = self
            .client
            .set_load_balancer_policies_of_listener()
            .load_balancer_name(name)
            .load_balancer_port(port)
            .set_policy_names(Some(list(policies)))
            .send();
        self.calls
            .call("SetLoadBalancerPoliciesOfListener", send)
            .await
            .map(drop)
    }

    async fn attributes(&self, name: &str) -> CloudResult<Attributes> {
        let send = self
            .client
            .describe_load_balancer_attributes()
            .load_balancer_name(name)
            .send();
        let answer = self
            .calls
            .call("DescribeLoadBalancerAttributes", send)
            .await?;
        Ok(answer
            .load_balancer_attributes
            .map(attributes)
            .unwrap_or_default())
    }

    async fn modify_attributes(&self, name: &str, changed: &Attributes) -> CloudResult<()> {
        let send = self
            .client
            .modify_load_balancer_attributes()
            .load_balancer_name(name)
            .load_balancer_attributes(sdk_attributes(changed)?)
            .send();
        self.calls
            .call("ModifyLoadBalancerAttributes", send)
            .await
            .map(drop)
    }

    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> CloudResult<()> {
        let check = sdk::HealthCheck::builder()
            .target(&check.target)
            .interval(check.interval)
            .timeout(check.timeout)
            .healthy_threshold(check.healthy)
            .unhealthy_threshold(check.unhealthy)
            .build()
            .map_err(incomplete)?;
        let send = self
            .client
            .configure_health_check()
            .load_balancer_name(name)
            .health_check(check)
            .send();
        self.calls
            .call("ConfigureHealthCheck", send)
            .await
            .map(drop)
    }

    async fn register(&self, name: &str, ids: &[String]) -> CloudResult<()> {
        let send = self
            .client
            .register_instances_with_load_balancer()
            .load_balancer_name(name)
            .set_instances(Some(instances(ids)))
            .send();
        self.calls
            .call("RegisterInstancesWithLoadBalancer", send)
            .await
            .map(drop)
    }

    async fn deregister(&self, name: &str, ids: &[String]) -> CloudResult<()> {
        let send = self
            .client
            .deregister_instances_from_load_balancer()
            .load_balancer_name(name)
            .set_instances(Some(instances(ids)))
            .send();
        self.calls
            .call("DeregisterInstancesFromLoadBalancer", send)
            .await
            .map(drop)
    }

    async fn tags(&self, name: &str) -> CloudResult<Tags> {
        let send = self.client.describe_tags().load_balancer_names(name).send();
        let answer = self.calls.call("DescribeTags", send).await?;
        let all = answer.tag_descriptions.unwrap_or_default().into_iter();
        let own = all.filter(|one| one.load_balancer_name.as_deref() == Some(name));
        Ok(own
            .flat_map(|one| one.tags.unwrap_or_default())
            .map(|tag| (tag.key, tag.value.unwrap_or_default()))
            .collect())
    }

    async fn add_tags(&self, name: &str, tags: &Tags) -> CloudResult<()> {
        let send = self
            .client
            .add_tags()
            .load_balancer_names(name)
            .set_tags(Some(tag_list(tags)?))
            .send();
        self.calls.call("AddTags", send).await.map(drop)
    }

    async fn remove_tags(&self, name: &str, keys: &BTreeSet<String>) -> CloudResult<()> {
        let keys = keys
            .iter()
            .map(|key| sdk::TagKeyOnly::builder().key(key).build());
        let send = self
            .client
            .remove_tags()
            .load_balancer_names(name)
            .set_tags(Some(keys.collect()))
            .send();
        self.calls.call("RemoveTags", send).await.map(drop)
    }
}

fn list(names: &BTreeSet<String>) -> Vec<String> {
    names.iter().cloned().collect()
}

fn instances(ids: &[String]) -> Vec<sdk::Instance> {
    ids.iter()
        .map(|id| sdk::Instance::builder().instance_id(id).build())
        .collect()
}

/// A field that the API requires is not set. All of them are: this is never seen.
fn incomplete(error: BuildError) -> CloudError {
    CloudError::invalid(format!("request could not be built: {error}")).with_source(error)
}

fn tag_list(tags: &Tags) -> CloudResult<Vec<sdk::Tag>> {
    tags.iter()
        .map(|(key, value)| {
            let tag = sdk::Tag::builder().key(key).value(value).build();
            tag.map_err(incomplete)
        })
        .collect()
}

fn listeners(specs: &[ListenerSpec]) -> CloudResult<Vec<sdk::Listener>> {
    specs
        .iter()
        .map(|spec| {
            sdk::Listener::builder()
                .load_balancer_port(spec.port)
                .protocol(&spec.protocol)
                .instance_port(spec.instance_port)
                .instance_protocol(&spec.instance_protocol)
                .set_ssl_certificate_id(spec.certificate.clone())
                .build()
                .map_err(incomplete)
        })
        .collect()
}

fn load_balancer(lb: sdk::LoadBalancerDescription) -> LoadBalancer {
    let names = |list: Option<Vec<String>>| list.unwrap_or_default().into_iter().collect();
    let backends = lb.backend_server_descriptions.unwrap_or_default();
    let ids = lb.instances.unwrap_or_default().into_iter();
    LoadBalancer {
        name: lb.load_balancer_name.unwrap_or_default(),
        dns_name: lb.dns_name.unwrap_or_default(),
        scheme: lb.scheme.unwrap_or_default(),
        subnets: names(lb.subnets),
        security_groups: lb.security_groups.unwrap_or_default(),
        listeners: lb
            .listener_descriptions
            .unwrap_or_default()
            .into_iter()
            .filter_map(listener)
            .map(|listener| (listener.spec.port, listener))
            .collect(),
        backend_policies: backends
            .into_iter()
            .filter_map(|backend| Some((backend.instance_port?, names(backend.policy_names))))
            .collect::<BTreeMap<_, _>>(),
        policies: lb
            .policies
            .map(|policies| names(policies.other_policies))
            .unwrap_or_default(),
        instances: ids.filter_map(|instance| instance.instance_id).collect(),
        health: lb.health_check.map(|check| HealthCheck {
            target: check.target,
            interval: check.interval,
            timeout: check.timeout,
            healthy: check.healthy_threshold,
            unhealthy: check.unhealthy_threshold,
        }),
    }
}

fn listener(description: sdk::ListenerDescription) -> Option<Listener> {
    let spec = description.listener?;
    // AWS leaves the protocol towards the instances out where it is the listener's.
    let instance_protocol = spec
        .instance_protocol
        .unwrap_or_else(|| spec.protocol.clone());
    Some(Listener {
        spec: ListenerSpec {
            port: spec.load_balancer_port,
            protocol: spec.protocol,
            instance_port: spec.instance_port,
            instance_protocol,
            certificate: spec.ssl_certificate_id.filter(|arn| !arn.is_empty()),
        },
        policies: description
            .policy_names
            .unwrap_or_default()
            .into_iter()
            .collect(),
    })
}

fn attributes(found: sdk::LoadBalancerAttributes) -> Attributes {
    Attributes {
        access_log: found.access_log.map(|log| AccessLog {
            enabled: log.enabled,
            emit_interval: log.emit_interval,
            bucket: log.s3_bucket_name,
            prefix: log.s3_bucket_prefix,
        }),
        draining: found.connection_draining.map(|draining| Draining {
            enabled: draining.enabled,
            timeout: draining.timeout,
        }),
        idle_timeout: found
            .connection_settings
            .map(|settings| settings.idle_timeout),
        cross_zone: found.cross_zone_load_balancing.map(|zones| zones.enabled),
    }
}

fn sdk_attributes(changed: &Attributes) -> CloudResult<sdk::LoadBalancerAttributes> {
    let log = changed.access_log.as_ref().map(|log| {
        sdk::AccessLog::builder()
            .enabled(log.enabled)
            .set_emit_interval(log.emit_interval)
            .set_s3_bucket_name(log.bucket.clone())
            .set_s3_bucket_prefix(log.prefix.clone())
            .build()
    });
    let draining = changed.draining.map(|draining| {
        sdk::ConnectionDraining::builder()
            .enabled(draining.enabled)
            .set_timeout(draining.timeout)
            .build()
    });
    let idle = changed.idle_timeout.map(|seconds| {
        let settings = sdk::ConnectionSettings::builder().idle_timeout(seconds);
        settings.build().map_err(incomplete)
    });
    let zones = changed.cross_zone.map(|enabled| {
        sdk::CrossZoneLoadBalancing::builder()
            .enabled(enabled)
            .build()
    });
    Ok(sdk::LoadBalancerAttributes::builder()
        .set_access_log(log)
        .set_connection_draining(draining)
        .set_connection_settings(idle.transpose()?)
        .set_cross_zone_load_balancing(zones)
        .build())
}
