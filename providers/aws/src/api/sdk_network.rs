//! The network side of EC2 through the SDK.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use aws_sdk_ec2::{Client, types as sdk};
use ccm_core::cloud::CloudResult;

use super::{
    ApiCalls,
    network::{
        Groups, NetworkApi, NewSecurityGroup, RouteTable, Rule, Rules, SecurityGroup, Source,
        Subnet,
    },
};
use crate::tags::Tags;

/// See [`NetworkApi`].
#[derive(Clone, Debug)]
pub struct SdkNetwork {
    client: Client,
    calls: ApiCalls,
}

impl SdkNetwork {
    /// Through this client.
    pub const fn new(client: Client, calls: ApiCalls) -> Self {
        Self { client, calls }
    }
}

#[async_trait]
impl NetworkApi for SdkNetwork {
    async fn subnets(&self, vpc: &str) -> CloudResult<Vec<Subnet>> {
        const OPERATION: &str = "DescribeSubnets";
        let read = |token| async move {
            let send = self
                .client
                .describe_subnets()
                .filters(filter("vpc-id", [vpc]))
                .set_next_token(token)
                .send();
            let page = self.calls.page(OPERATION, send).await?;
            let some = page.subnets.unwrap_or_default().into_iter().map(subnet);
            Ok((some.collect(), page.next_token))
        };
        self.calls.all_pages(OPERATION, read).await
    }

    async fn route_tables(&self, vpc: &str) -> CloudResult<Vec<RouteTable>> {
        const OPERATION: &str = "DescribeRouteTables";
        let read = |token| async move {
            let send = self
                .client
                .describe_route_tables()
                .filters(filter("vpc-id", [vpc]))
                .set_next_token(token)
                .send();
            let page = self.calls.page(OPERATION, send).await?;
            let some = page
                .route_tables
                .unwrap_or_default()
                .into_iter()
                .map(route_table);
            Ok((some.collect(), page.next_token))
        };
        self.calls.all_pages(OPERATION, read).await
    }

    async fn zone_kinds(&self) -> CloudResult<BTreeMap<String, String>> {
        let send = self.client.describe_availability_zones().send();
        let answer = self.calls.call("DescribeAvailabilityZones", send).await?;
        let zones = answer.availability_zones.unwrap_or_default().into_iter();
        Ok(zones
            .filter_map(|zone| Some((zone.zone_name?, zone.zone_type?)))
            .collect())
    }

    async fn security_groups(&self, which: &Groups<'_>) -> CloudResult<Vec<SecurityGroup>> {
        const OPERATION: &str = "DescribeSecurityGroups";
        let filters = match which {
            Groups::Tagged { vpc, keys } => vec![
                filter("vpc-id", [*vpc]),
                filter("tag-key", keys.iter().map(String::as_str)),
            ],
            Groups::Named { vpc, name } => {
                vec![filter("group-name", [*name]), filter("vpc-id", [*vpc])]
            }
            // As a filter and not as GroupIds: an id that is gone must not fail the others.
            Groups::Ids(ids) => vec![filter("group-id", ids.iter().map(String::as_str))],
            Groups::In(vpc) => vec![filter("vpc-id", [*vpc])],
        };
        let filters = &filters;
        let read = |token| async move {
            let send = self
                .client
                .describe_security_groups()
                .set_filters(Some(filters.clone()))
                .set_next_token(token)
                .send();
            let page = self.calls.page(OPERATION, send).await?;
            let some = page
                .security_groups
                .unwrap_or_default()
                .into_iter()
                .map(group);
            Ok((some.collect(), page.next_token))
        };
        self.calls.all_pages(OPERATION, read).await
    }

    async fn create_security_group(&self, new: &NewSecurityGroup) -> CloudResult<String> {
        let tags = tag_list(&new.tags);
        let specification = sdk::TagSpecification::builder()
            .resource_type(sdk::ResourceType::SecurityGroup)
            .set_tags(Some(tags.clone()))
            .build();
        let send = self
            .client
            .create_security_group()
            .group_name(&new.name)
            .description(&new.description)
            .vpc_id(&new.vpc_id)
            .set_tag_specifications((!tags.is_empty()).then(|| vec![specification]))
            .send();
        let answer = self.calls.call("CreateSecurityGroup", send).await?;
        Ok(answer.group_id.unwrap_or_default())
    }

    async fn delete_security_group(&self, id: &str) -> CloudResult<()> {
        let send = self.client.delete_security_group().group_id(id).send();
        self.calls.call("DeleteSecurityGroup", send).await.map(drop)
    }

    async fn authorize(&self, group: &str, rules: &Rules) -> CloudResult<()> {
        let send = self
            .client
            .authorize_security_group_ingress()
            .group_id(group)
            .set_ip_permissions(Some(permissions(
                rules.iter().map(|(r, t)| (r, t.as_str())),
            )))
            .send();
        self.calls
            .call("AuthorizeSecurityGroupIngress", send)
            .await
            .map(drop)
    }

    async fn revoke(&self, group: &str, rules: &BTreeSet<Rule>) -> CloudResult<()> {
        let send = self
            .client
            .revoke_security_group_ingress()
            .group_id(group)
            .set_ip_permissions(Some(permissions(rules.iter().map(|rule| (rule, "")))))
            .send();
        self.calls
            .call("RevokeSecurityGroupIngress", send)
            .await
            .map(drop)
    }

    async fn describe_rules(&self, group: &str, rules: &Rules) -> CloudResult<()> {
        let send = self
            .client
            .update_security_group_rule_descriptions_ingress()
            .group_id(group)
            .set_ip_permissions(Some(permissions(
                rules.iter().map(|(r, t)| (r, t.as_str())),
            )))
            .send();
        self.calls
            .call("UpdateSecurityGroupRuleDescriptionsIngress", send)
            .await
            .map(drop)
    }

    async fn tag_resource(&self, id: &str, tags: &Tags) -> CloudResult<()> {
        let send = self
            .client
            .create_tags()
            .resources(id)
            .set_tags(Some(tag_list(tags)))
            .send();
        self.calls.call("CreateTags", send).await.map(drop)
    }
}

/// A filter on one name.
pub(super) fn filter<'a>(name: &str, values: impl IntoIterator<Item = &'a str>) -> sdk::Filter {
    let values = values.into_iter().map(str::to_owned).collect();
    sdk::Filter::builder()
        .name(name)
        .set_values(Some(values))
        .build()
}

/// Tags as EC2 takes them.
pub(super) fn tag_list(tags: &Tags) -> Vec<sdk::Tag> {
    tags.iter()
        .map(|(key, value)| sdk::Tag::builder().key(key).value(value).build())
        .collect()
}

fn tags(list: Option<Vec<sdk::Tag>>) -> Tags {
    let list = list.unwrap_or_default().into_iter();
    list.filter_map(|tag| Some((tag.key?, tag.value.unwrap_or_default())))
        .collect()
}

fn subnet(subnet: sdk::Subnet) -> Subnet {
    Subnet {
        id: subnet.subnet_id.unwrap_or_default(),
        zone: subnet.availability_zone.unwrap_or_default(),
        cidr: subnet.cidr_block.and_then(|cidr| cidr.parse().ok()),
        free_addresses: subnet.available_ip_address_count.unwrap_or_default(),
        tags: tags(subnet.tags),
    }
}

fn route_table(table: sdk::RouteTable) -> RouteTable {
    let associations = table.associations.unwrap_or_default();
    RouteTable {
        main: associations
            .iter()
            .any(|association| association.main == Some(true)),
        subnets: associations
            .into_iter()
            .filter_map(|a| a.subnet_id)
            .collect(),
        public: table.routes.unwrap_or_default().iter().any(|route| {
            route
                .gateway_id
                .as_deref()
                .is_some_and(|id| id.starts_with("igw"))
        }),
    }
}

fn group(group: sdk::SecurityGroup) -> SecurityGroup {
    SecurityGroup {
        id: group.group_id.unwrap_or_default(),
        name: group.group_name.unwrap_or_default(),
        description: group.description.unwrap_or_default(),
        vpc_id: group.vpc_id.unwrap_or_default(),
        tags: tags(group.tags),
        rules: group
            .ip_permissions
            .unwrap_or_default()
            .into_iter()
            .flat_map(rules)
            .collect(),
    }
}

/// Takes apart what EC2 shows grouped.
fn rules(permission: sdk::IpPermission) -> Vec<(Rule, String)> {
    let protocol = permission.ip_protocol.unwrap_or_default();
    let rule = |source| Rule {
        protocol: protocol.clone(),
        from: permission.from_port,
        to: permission.to_port,
        source,
    };
    let ranges = permission
        .ip_ranges
        .unwrap_or_default()
        .into_iter()
        .filter_map(|range| {
            let cidr = range.cidr_ip?.parse().ok()?;
            Some((
                rule(Source::Cidr(cidr)),
                range.description.unwrap_or_default(),
            ))
        });
    let groups = permission
        .user_id_group_pairs
        .unwrap_or_default()
        .into_iter()
        .filter_map(|pair| {
            let source = Source::Group {
                id: pair.group_id?,
                account: pair.user_id,
            };
            Some((rule(source), pair.description.unwrap_or_default()))
        });
    ranges.chain(groups).collect()
}

/// One permission a rule: never grouped, so that each is exact.
fn permissions<'a>(rules: impl Iterator<Item = (&'a Rule, &'a str)>) -> Vec<sdk::IpPermission> {
    rules
        .map(|(rule, text)| {
            let text = (!text.is_empty()).then(|| text.to_owned());
            let permission = sdk::IpPermission::builder()
                .ip_protocol(&rule.protocol)
                .set_from_port(rule.from)
                .set_to_port(rule.to);
            match &rule.source {
                Source::Cidr(cidr) => {
                    let range = sdk::IpRange::builder().cidr_ip(cidr.to_string());
                    permission
                        .ip_ranges(range.set_description(text).build())
                        .build()
                }
                Source::Group { id, account } => {
                    let pair = sdk::UserIdGroupPair::builder()
                        .group_id(id)
                        .set_user_id(account.clone())
                        .set_description(text);
                    permission.user_id_group_pairs(pair.build()).build()
                }
            }
        })
        .collect()
}
