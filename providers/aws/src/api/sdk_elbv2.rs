//! The Elastic Load Balancing API, version 2, through the SDK.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use async_trait::async_trait;
use aws_sdk_elasticloadbalancingv2::{Client, types as sdk};
use ccm_core::cloud::{CloudError, CloudResult};

use super::{
    ApiCalls,
    all_load_balancers::{AllLoadBalancers, ListedLoadBalancer},
    elbv2::{
        Attributes, Elbv2Api, HealthChange, HealthCheck, Listener, ListenerSpec, LoadBalancer,
        NewLoadBalancer, NewTargetGroup, RESOURCES_PER_CALL, SCHEME_INTERNAL, Target, TargetGroup,
    },
};
use crate::{names::TARGET_TYPE_INSTANCE, tags::Tags};

/// The page size asked for, the API's largest.
const PAGE_SIZE: i32 = 400;

/// See [`Elbv2Api`].
#[derive(Clone, Debug)]
pub struct SdkElbv2 {
    client: Client,
    calls: ApiCalls,
}

impl SdkElbv2 {
    /// Through this client.
    pub const fn new(client: Client, calls: ApiCalls) -> Self {
        Self { client, calls }
    }

    /// One call; a resource that does not exist fails it.
    async fn describe_tags(&self, arns: &[String]) -> CloudResult<BTreeMap<String, Tags>> {
        let send = self
            .client
            .describe_tags()
            .set_resource_arns(Some(arns.to_vec()))
            .send();
        let answer = self.calls.call("DescribeTags", send).await?;
        let resources = answer.tag_descriptions.unwrap_or_default().into_iter();
        Ok(resources
            .filter_map(|resource| {
                let tags = resource.tags.unwrap_or_default().into_iter();
                let tags = tags.filter_map(|t| Some((t.key?, t.value.unwrap_or_default())));
                Some((resource.resource_arn?, tags.collect()))
            })
            .collect())
    }

    async fn target_groups(
        &self,
        request: impl Fn() -> aws_sdk_elasticloadbalancingv2::operation::describe_target_groups::builders::DescribeTargetGroupsFluentBuilder
        + Send
        + Sync,
    ) -> CloudResult<Vec<TargetGroup>> {
        const OPERATION: &str = "DescribeTargetGroups";
        let request = &request;
        let read = |token| async move {
            let send = request().set_marker(token).send();
            let page = self.calls.page(OPERATION, send).await?;
            let some = page
                .target_groups
                .unwrap_or_default()
                .into_iter()
                .map(target_group);
            Ok((some.collect(), page.next_marker))
        };
        self.calls.all_pages(OPERATION, read).await
    }
}

#[async_trait]
impl Elbv2Api for SdkElbv2 {
    async fn load_balancer(&self, name: &str) -> CloudResult<Option<LoadBalancer>> {
        let send = self.client.describe_load_balancers().names(name).send();
        match self.calls.call("DescribeLoadBalancers", send).await {
            Ok(answer) => {
                let found = answer.load_balancers.unwrap_or_default().into_iter().next();
                Ok(found.map(load_balancer))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create_load_balancer(&self, new: &NewLoadBalancer) -> CloudResult<LoadBalancer> {
        let mappings = new.subnets.iter().map(|subnet| {
            sdk::SubnetMapping::builder()
                .subnet_id(&subnet.subnet_id)
                .set_allocation_id(subnet.allocation_id.clone())
                .set_private_ipv4_address(subnet.private_ipv4.clone())
                .build()
        });
        let groups: Vec<String> = new.security_groups.iter().cloned().collect();
        let send = self
            .client
            .create_load_balancer()
            .name(&new.name)
            .r#type(sdk::LoadBalancerTypeEnum::Network)
            .set_scheme(
                new.internal
                    .then_some(sdk::LoadBalancerSchemeEnum::Internal),
            )
            .set_subnet_mappings(Some(mappings.collect()))
            .set_security_groups((!groups.is_empty()).then_some(groups))
            .set_tags(tag_list(&new.tags))
            .send();
        let answer = self.calls.call("CreateLoadBalancer", send).await?;
        let made = answer.load_balancers.unwrap_or_default().into_iter().next();
        made.map(load_balancer)
            .ok_or_else(|| empty("CreateLoadBalancer"))
    }

    async fn delete_load_balancer(&self, arn: &str) -> CloudResult<()> {
        let send = self
            .client
            .delete_load_balancer()
            .load_balancer_arn(arn)
            .send();
        self.calls.call("DeleteLoadBalancer", send).await.map(drop)
    }

    async fn set_security_groups(&self, arn: &str, groups: &BTreeSet<String>) -> CloudResult<()> {
        let send = self
            .client
            .set_security_groups()
            .load_balancer_arn(arn)
            .set_security_groups(Some(groups.iter().cloned().collect()))
            .send();
        self.calls.call("SetSecurityGroups", send).await.map(drop)
    }

    async fn load_balancer_attributes(&self, arn: &str) -> CloudResult<Attributes> {
        let send = self
            .client
            .describe_load_balancer_attributes()
            .load_balancer_arn(arn)
            .send();
        let answer = self
            .calls
            .call("DescribeLoadBalancerAttributes", send)
            .await?;
        let pairs = answer.attributes.unwrap_or_default().into_iter();
        Ok(pairs
            .filter_map(|a| Some((a.key?, a.value.unwrap_or_default())))
            .collect())
    }

    async fn modify_load_balancer_attributes(
        &self,
        arn: &str,
        attributes: &Attributes,
    ) -> CloudResult<()> {
        let list = attributes.iter().map(|(key, value)| {
            sdk::LoadBalancerAttribute::builder()
                .key(key)
                .value(value)
                .build()
        });
        let send = self
            .client
            .modify_load_balancer_attributes()
            .load_balancer_arn(arn)
            .set_attributes(Some(list.collect()))
            .send();
        self.calls
            .call("ModifyLoadBalancerAttributes", send)
            .await
            .map(drop)
    }

    async fn listeners(&self, load_balancer: &str) -> CloudResult<Vec<Listener>> {
        const OPERATION: &str = "DescribeListeners";
        let read = |token| async move {
            let send = self
                .client
                .describe_listeners()
                .load_balancer_arn(load_balancer)
                .page_size(PAGE_SIZE)
                .set_marker(token)
                .send();
            let page = self.calls.page(OPERATION, send).await?;
            let some = page.listeners.unwrap_or_default().into_iter().map(listener);
            Ok((some.collect(), page.next_marker))
        };
        self.calls.all_pages(OPERATION, read).await
    }

    async fn create_listener(
        &self,
        load_balancer: &str,
        spec: &ListenerSpec,
        tags: &Tags,
    ) -> CloudResult<Listener> {
        let send = self
            .client
            .create_listener()
            .load_balancer_arn(load_balancer)
            .port(spec.port)
            .protocol(protocol(&spec.protocol))
            .set_ssl_policy(spec.ssl_policy.clone())
            .set_certificates(certificates(spec))
            .set_default_actions(forward(spec))
            .set_tags(tag_list(tags))
            .send();
        let answer = self.calls.call("CreateListener", send).await?;
        let made = answer.listeners.unwrap_or_default().into_iter().next();
        made.map(listener).ok_or_else(|| empty("CreateListener"))
    }

    async fn modify_listener(&self, arn: &str, spec: &ListenerSpec) -> CloudResult<Listener> {
        let send = self
            .client
            .modify_listener()
            .listener_arn(arn)
            .port(spec.port)
            .protocol(protocol(&spec.protocol))
            .set_ssl_policy(spec.ssl_policy.clone())
            .set_certificates(certificates(spec))
            .set_default_actions(forward(spec))
            .send();
        let answer = self.calls.call("ModifyListener", send).await?;
        let made = answer.listeners.unwrap_or_default().into_iter().next();
        made.map(listener).ok_or_else(|| empty("ModifyListener"))
    }

    async fn delete_listener(&self, arn: &str) -> CloudResult<()> {
        let send = self.client.delete_listener().listener_arn(arn).send();
        self.calls.call("DeleteListener", send).await.map(drop)
    }

    async fn target_groups_of(&self, load_balancer: &str) -> CloudResult<Vec<TargetGroup>> {
        self.target_groups(|| {
            self.client
                .describe_target_groups()
                .load_balancer_arn(load_balancer)
                .page_size(PAGE_SIZE)
        })
        .await
    }

    async fn target_group_named(&self, name: &str) -> CloudResult<Option<TargetGroup>> {
        match self
            .target_groups(|| self.client.describe_target_groups().names(name))
            .await
        {
            Ok(found) => Ok(found.into_iter().next()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn all_target_groups(&self) -> CloudResult<Vec<TargetGroup>> {
        self.target_groups(|| self.client.describe_target_groups().page_size(PAGE_SIZE))
            .await
    }

    async fn create_target_group(&self, new: &NewTargetGroup) -> CloudResult<TargetGroup> {
        let health = &new.health;
        let send = self
            .client
            .create_target_group()
            .name(&new.name)
            .port(new.port)
            .protocol(protocol(&new.protocol))
            .vpc_id(&new.vpc_id)
            .target_type(sdk::TargetTypeEnum::from(TARGET_TYPE_INSTANCE))
            .health_check_protocol(protocol(&health.protocol))
            .health_check_port(&health.port)
            .set_health_check_path(health.path.clone())
            .health_check_interval_seconds(health.interval)
            .set_health_check_timeout_seconds(health.timeout)
            .healthy_threshold_count(health.healthy)
            .unhealthy_threshold_count(health.unhealthy)
            .set_tags(tag_list(&new.tags))
            .send();
        let answer = self.calls.call("CreateTargetGroup", send).await?;
        let made = answer.target_groups.unwrap_or_default().into_iter().next();
        made.map(target_group)
            .ok_or_else(|| empty("CreateTargetGroup"))
    }

    async fn modify_target_group(&self, arn: &str, change: &HealthChange) -> CloudResult<()> {
        let send = self
            .client
            .modify_target_group()
            .target_group_arn(arn)
            .set_health_check_protocol(change.protocol.as_deref().map(protocol))
            .set_health_check_port(change.port.clone())
            .set_health_check_path(change.path.clone())
            .set_health_check_interval_seconds(change.interval)
            .set_health_check_timeout_seconds(change.timeout)
            .set_healthy_threshold_count(change.thresholds.map(|(healthy, _)| healthy))
            .set_unhealthy_threshold_count(change.thresholds.map(|(_, unhealthy)| unhealthy))
            .send();
        self.calls.call("ModifyTargetGroup", send).await.map(drop)
    }

    async fn delete_target_group(&self, arn: &str) -> CloudResult<()> {
        let send = self
            .client
            .delete_target_group()
            .target_group_arn(arn)
            .send();
        self.calls.call("DeleteTargetGroup", send).await.map(drop)
    }

    async fn targets(&self, target_group: &str) -> CloudResult<BTreeSet<Target>> {
        let send = self
            .client
            .describe_target_health()
            .target_group_arn(target_group)
            .send();
        let answer = self.calls.call("DescribeTargetHealth", send).await?;
        let leaving = |health: &sdk::TargetHealthDescription| {
            let reason = health
                .target_health
                .as_ref()
                .and_then(|h| h.reason.as_ref());
            reason == Some(&sdk::TargetHealthReasonEnum::DeregistrationInProgress)
        };
        Ok(answer
            .target_health_descriptions
            .unwrap_or_default()
            .into_iter()
            .filter(|health| !leaving(health))
            .filter_map(|health| health.target)
            .map(|target| Target {
                id: target.id.unwrap_or_default(),
                port: target.port.unwrap_or_default(),
            })
            .collect())
    }

    async fn register(&self, target_group: &str, targets: &[Target]) -> CloudResult<()> {
        let send = self
            .client
            .register_targets()
            .target_group_arn(target_group)
            .set_targets(Some(descriptions(targets)))
            .send();
        self.calls.call("RegisterTargets", send).await.map(drop)
    }

    async fn deregister(&self, target_group: &str, targets: &[Target]) -> CloudResult<()> {
        let send = self
            .client
            .deregister_targets()
            .target_group_arn(target_group)
            .set_targets(Some(descriptions(targets)))
            .send();
        self.calls.call("DeregisterTargets", send).await.map(drop)
    }

    async fn target_group_attributes(&self, arn: &str) -> CloudResult<Attributes> {
        let send = self
            .client
            .describe_target_group_attributes()
            .target_group_arn(arn)
            .send();
        let answer = self
            .calls
            .call("DescribeTargetGroupAttributes", send)
            .await?;
        let pairs = answer.attributes.unwrap_or_default().into_iter();
        Ok(pairs
            .filter_map(|a| Some((a.key?, a.value.unwrap_or_default())))
            .collect())
    }

    async fn modify_target_group_attributes(
        &self,
        arn: &str,
        attributes: &Attributes,
    ) -> CloudResult<()> {
        let list = attributes.iter().map(|(key, value)| {
            sdk::TargetGroupAttribute::builder()
                .key(key)
                .value(value)
                .build()
        });
        let send = self
            .client
            .modify_target_group_attributes()
            .target_group_arn(arn)
            .set_attributes(Some(list.collect()))
            .send();
        self.calls
            .call("ModifyTargetGroupAttributes", send)
            .await
            .map(drop)
    }

    async fn resource_tags(&self, arns: &BTreeSet<String>) -> CloudResult<BTreeMap<String, Tags>> {
        let arns: Vec<String> = arns.iter().cloned().collect();
        let mut found = BTreeMap::new();
        for slice in arns.chunks(RESOURCES_PER_CALL) {
            match self.describe_tags(slice).await {
                Ok(tags) => found.extend(tags),
                // One that is gone fails the whole call, which does not always say which.
                Err(error) if error.is_not_found() => {
                    for arn in slice {
                        match self.describe_tags(std::slice::from_ref(arn)).await {
                            Ok(tags) => found.extend(tags),
                            Err(error) if error.is_not_found() => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    async fn add_tags(&self, arn: &str, tags: &Tags) -> CloudResult<()> {
        let send = self
            .client
            .add_tags()
            .resource_arns(arn)
            .set_tags(tag_list(tags))
            .send();
        self.calls.call("AddTags", send).await.map(drop)
    }

    async fn remove_tags(&self, arn: &str, keys: &BTreeSet<String>) -> CloudResult<()> {
        let send = self
            .client
            .remove_tags()
            .resource_arns(arn)
            .set_tag_keys(Some(keys.iter().cloned().collect()))
            .send();
        self.calls.call("RemoveTags", send).await.map(drop)
    }
}

fn empty(operation: &str) -> CloudError {
    CloudError::transient(format!(
        "operation error Elastic Load Balancing v2: {operation}, the answer names nothing"
    ))
}

fn protocol(text: &str) -> sdk::ProtocolEnum {
    sdk::ProtocolEnum::from(text)
}

fn certificates(spec: &ListenerSpec) -> Option<Vec<sdk::Certificate>> {
    let arn = spec.certificate.as_ref()?;
    Some(vec![
        sdk::Certificate::builder().certificate_arn(arn).build(),
    ])
}

fn forward(spec: &ListenerSpec) -> Option<Vec<sdk::Action>> {
    let action = sdk::Action::builder()
        .r#type(sdk::ActionTypeEnum::Forward)
        .target_group_arn(&spec.target_group)
        .build();
    Some(vec![action])
}

fn descriptions(targets: &[Target]) -> Vec<sdk::TargetDescription> {
    targets
        .iter()
        .map(|target| {
            sdk::TargetDescription::builder()
                .id(&target.id)
                .port(target.port)
                .build()
        })
        .collect()
}

fn tag_list(tags: &Tags) -> Option<Vec<sdk::Tag>> {
    let list: Vec<sdk::Tag> = tags
        .iter()
        .map(|(key, value)| sdk::Tag::builder().key(key).value(value).build())
        .collect();
    (!list.is_empty()).then_some(list)
}

#[async_trait]
impl AllLoadBalancers for SdkElbv2 {
    async fn all_load_balancers(&self) -> CloudResult<Vec<ListedLoadBalancer>> {
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
                .load_balancers
                .unwrap_or_default()
                .into_iter()
                .map(listed);
            Ok((some.collect(), page.next_marker))
        };
        self.calls.all_pages(OPERATION, read).await
    }
}

fn listed(lb: sdk::LoadBalancer) -> ListedLoadBalancer {
    let created = lb.created_time;
    ListedLoadBalancer {
        created: created.and_then(|time| SystemTime::try_from(time).ok()),
        load_balancer: load_balancer(lb),
    }
}

fn load_balancer(lb: sdk::LoadBalancer) -> LoadBalancer {
    let scheme = match lb.scheme {
        Some(sdk::LoadBalancerSchemeEnum::Internal) => SCHEME_INTERNAL.to_owned(),
        Some(scheme) => scheme.as_str().to_owned(),
        None => String::new(),
    };
    LoadBalancer {
        arn: lb.load_balancer_arn.unwrap_or_default(),
        name: lb.load_balancer_name.unwrap_or_default(),
        kind: lb
            .r#type
            .map(|kind| kind.as_str().to_owned())
            .unwrap_or_default(),
        dns_name: lb.dns_name.unwrap_or_default(),
        scheme,
        state: lb
            .state
            .and_then(|state| state.code)
            .map(|code| code.as_str().to_owned())
            .unwrap_or_default(),
        vpc_id: lb.vpc_id.unwrap_or_default(),
        subnets: lb
            .availability_zones
            .unwrap_or_default()
            .into_iter()
            .filter_map(|zone| zone.subnet_id)
            .collect(),
        security_groups: lb.security_groups.unwrap_or_default().into_iter().collect(),
    }
}

fn target_group(group: sdk::TargetGroup) -> TargetGroup {
    TargetGroup {
        arn: group.target_group_arn.unwrap_or_default(),
        name: group.target_group_name.unwrap_or_default(),
        port: group.port.unwrap_or_default(),
        protocol: group
            .protocol
            .map(|p| p.as_str().to_owned())
            .unwrap_or_default(),
        vpc_id: group.vpc_id.unwrap_or_default(),
        health: HealthCheck {
            protocol: group
                .health_check_protocol
                .map(|p| p.as_str().to_owned())
                .unwrap_or_default(),
            port: group.health_check_port.unwrap_or_default(),
            path: group.health_check_path,
            interval: group.health_check_interval_seconds.unwrap_or_default(),
            timeout: group.health_check_timeout_seconds,
            healthy: group.healthy_threshold_count.unwrap_or_default(),
            unhealthy: group.unhealthy_threshold_count.unwrap_or_default(),
        },
        load_balancers: group
            .load_balancer_arns
            .unwrap_or_default()
            .into_iter()
            .collect(),
    }
}

fn listener(listener: sdk::Listener) -> Listener {
    let mut forwards = listener
        .default_actions
        .unwrap_or_default()
        .into_iter()
        .flat_map(|action| {
            // A weighted forward is shown in the long form only.
            let weighted = action.forward_config.and_then(|f| f.target_groups);
            let weighted = weighted.unwrap_or_default().into_iter();
            let weighted = weighted.filter_map(|group| group.target_group_arn);
            action.target_group_arn.into_iter().chain(weighted)
        });
    let target_group = forwards.next();
    let also_forwards_to = forwards
        .filter(|arn| Some(arn) != target_group.as_ref())
        .collect();
    Listener {
        also_forwards_to,
        arn: listener.listener_arn.unwrap_or_default(),
        spec: ListenerSpec {
            port: listener.port.unwrap_or_default(),
            protocol: listener
                .protocol
                .map(|p| p.as_str().to_owned())
                .unwrap_or_default(),
            ssl_policy: listener.ssl_policy,
            certificate: listener
                .certificates
                .unwrap_or_default()
                .into_iter()
                .find_map(|certificate| certificate.certificate_arn),
            target_group: target_group.unwrap_or_default(),
        },
    }
}
