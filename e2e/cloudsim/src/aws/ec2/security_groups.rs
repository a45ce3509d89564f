//! Security groups.

use std::collections::BTreeMap;

use super::super::model::{Peer, Rule, SecurityGroup, Tags};
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{Kind, Listing, list, one, specified_tags, write_tags};
use crate::control::CloudError;

const FILTERS: &[&str] = &[
    "description",
    "group-id",
    "group-name",
    "ip-permission.cidr",
    "ip-permission.from-port",
    "ip-permission.group-id",
    "ip-permission.protocol",
    "ip-permission.to-port",
    "owner-id",
    "vpc-id",
];

impl State {
    pub(crate) fn group(&self, id: &str) -> Result<&SecurityGroup, CloudError> {
        Kind::Group.check(self, &self.all.security_groups, &[id.to_owned()])?;
        self.all
            .security_groups
            .get(id)
            .ok_or_else(|| Kind::Group.not_found(&[id.to_owned()]))
    }

    pub(crate) fn default_group(&self, vpc_id: &str) -> Option<String> {
        let mut groups = self.all.security_groups.values();
        groups
            .find(|group| group.vpc_id == vpc_id && group.name == "default")
            .map(|group| group.id.clone())
    }

    pub(crate) fn new_group(
        &mut self,
        vpc_id: &str,
        name: &str,
        description: &str,
        tags: Tags,
    ) -> String {
        let id = self.new_id("sg");
        let group = SecurityGroup {
            id: id.clone(),
            name: name.to_owned(),
            description: description.to_owned(),
            vpc_id: vpc_id.to_owned(),
            rules: Vec::new(),
            tags,
        };
        self.all.security_groups.insert(id.clone(), group);
        id
    }

    pub(crate) fn create_security_group(
        &mut self,
        vpc_id: &str,
        name: &str,
        description: &str,
        tags: Tags,
    ) -> Result<String, CloudError> {
        self.vpc(vpc_id)?;
        let groups = &self.all.security_groups;
        if groups
            .values()
            .any(|group| group.vpc_id == vpc_id && group.name == name)
        {
            let text = format!("The security group '{name}' already exists for VPC '{vpc_id}'");
            return Err(CloudError::new("InvalidGroup.Duplicate", text));
        }
        if groups.len() >= self.quotas.security_groups {
            let text = "The maximum number of security groups has been reached.";
            return Err(CloudError::new("SecurityGroupLimitExceeded", text));
        }
        Ok(self.new_group(vpc_id, name, description, tags))
    }

    pub(crate) fn delete_security_group(&mut self, id: &str) -> Result<(), CloudError> {
        let group = self.group(id)?;
        if group.name == "default" {
            let text = format!(
                "the specified group: \"{id}\" name: \"default\" cannot be deleted by a user"
            );
            return Err(CloudError::new("CannotDelete", text));
        }
        let attached = self
            .all
            .interfaces
            .values()
            .any(|eni| eni.groups.iter().any(|at| at == id));
        let peer = Peer::Group(id.to_owned());
        let names = |rule: &Rule| rule.key.peer == peer;
        let mut others = self
            .all
            .security_groups
            .values()
            .filter(|other| other.id != id);
        if attached || others.any(|other| other.rules.iter().any(names)) {
            let text = format!("resource {id} has a dependent object");
            return Err(CloudError::new("DependencyViolation", text));
        }
        self.all.security_groups.remove(id);
        Ok(())
    }

    pub(crate) fn group_arn(&self, id: &str) -> String {
        format!(
            "arn:{}:ec2:{}:{}:security-group/{id}",
            self.partition(),
            self.region,
            self.account
        )
    }
}

/// CreateSecurityGroup.
pub(crate) fn create(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let (vpc, name, description) = (
        params.need("VpcId")?,
        params.need("GroupName")?,
        params.need("GroupDescription")?,
    );
    if name.starts_with("sg-") || name.len() > 255 {
        let text = format!(
            "Value ({name}) for parameter groupName is invalid. Use up to 255 characters that do not begin with sg-"
        );
        return Err(CloudError::new("InvalidParameterValue", text));
    }
    let tags = specified_tags(params, "security-group");
    let id = state.create_security_group(vpc, name, description, tags.clone())?;
    xml.text("return", true);
    xml.text("groupId", &id);
    write_tags(xml, &tags);
    xml.text("securityGroupArn", state.group_arn(&id));
    Ok(())
}

/// DeleteSecurityGroup.
pub(crate) fn delete(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let id = params.need("GroupId")?;
    state.delete_security_group(id)?;
    xml.text("return", true);
    xml.text("groupId", id);
    Ok(())
}

/// DescribeSecurityGroups.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let field = |group: &SecurityGroup, name: &str| field(state, group, name);
    let listing = Listing {
        kind: Kind::Group,
        ids: "GroupId",
        filters: FILTERS,
        tags: |group: &SecurityGroup| &group.tags,
        field: &field,
    };
    let (page, next) = list(state, params, &state.all.security_groups, &listing)?;
    xml.list("securityGroupInfo", "item", &page, |xml, group| {
        write(xml, state, group);
    });
    xml.opt("nextToken", next);
    Ok(())
}

fn field(state: &State, group: &SecurityGroup, name: &str) -> Vec<String> {
    let rules = group.rules.iter();
    match name {
        "description" => one(&group.description),
        "group-id" => one(&group.id),
        "group-name" => one(&group.name),
        "owner-id" => one(&state.account),
        "vpc-id" => one(&group.vpc_id),
        "ip-permission.protocol" => rules.map(|rule| rule.key.protocol.clone()).collect(),
        "ip-permission.from-port" => rules
            .filter_map(|rule| rule.key.from_port)
            .map(|port| port.to_string())
            .collect(),
        "ip-permission.to-port" => rules
            .filter_map(|rule| rule.key.to_port)
            .map(|port| port.to_string())
            .collect(),
        "ip-permission.cidr" => {
            let cidr = |rule: &Rule| match &rule.key.peer {
                Peer::Ipv4(cidr) => Some(cidr.to_string()),
                _ => None,
            };
            rules.filter_map(cidr).collect()
        }
        "ip-permission.group-id" => {
            let source = |rule: &Rule| match &rule.key.peer {
                Peer::Group(id) => Some(id.clone()),
                _ => None,
            };
            rules.filter_map(source).collect()
        }
        _ => Vec::new(),
    }
}

fn write(xml: &mut Xml, state: &State, group: &SecurityGroup) {
    xml.text("ownerId", &state.account);
    xml.text("groupId", &group.id);
    xml.text("groupName", &group.name);
    xml.text("groupDescription", &group.description);
    xml.text("vpcId", &group.vpc_id);
    xml.text("securityGroupArn", state.group_arn(&group.id));
    write_permissions(xml, state, "ipPermissions", &group.rules);
    // Every group of a VPC starts with this rule, and nothing here changes it.
    xml.list("ipPermissionsEgress", "item", [()], |xml, ()| {
        xml.text("ipProtocol", "-1");
        for empty in ["groups", "ipv6Ranges", "prefixListIds"] {
            xml.list(empty, "item", [(); 0], |_, ()| {});
        }
        xml.list("ipRanges", "item", ["0.0.0.0/0"], |xml, cidr| {
            xml.text("cidrIp", cidr);
        });
    });
    write_tags(xml, &group.tags);
}

/// Rules with the same protocol and ports are one permission with several sources, as EC2 shows them.
pub(crate) fn write_permissions(xml: &mut Xml, state: &State, tag: &str, rules: &[Rule]) {
    let mut permissions: BTreeMap<_, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        let key = (&rule.key.protocol, rule.key.from_port, rule.key.to_port);
        permissions.entry(key).or_default().push(rule);
    }
    xml.list(
        tag,
        "item",
        permissions,
        |xml, ((protocol, from, to), rules)| {
            xml.text("ipProtocol", protocol);
            xml.opt("fromPort", from);
            xml.opt("toPort", to);
            let sources = |kind: fn(&Peer) -> Option<String>| {
                let found = rules.iter().filter_map(move |rule| {
                    kind(&rule.key.peer).map(|peer| (peer, &rule.description))
                });
                found.collect::<Vec<_>>()
            };
            let groups = sources(|peer| match peer {
                Peer::Group(id) => Some(id.clone()),
                _ => None,
            });
            xml.list("groups", "item", groups, |xml, (id, description)| {
                xml.text("userId", &state.account);
                xml.text("groupId", id);
                xml.opt("description", description.as_ref());
            });
            let v4 = sources(|peer| match peer {
                Peer::Ipv4(cidr) => Some(cidr.to_string()),
                _ => None,
            });
            let v6 = sources(|peer| match peer {
                Peer::Ipv6(cidr) => Some(cidr.to_string()),
                _ => None,
            });
            let lists = sources(|peer| match peer {
                Peer::PrefixList(id) => Some(id.clone()),
                _ => None,
            });
            let flat = [
                ("ipRanges", "cidrIp", v4),
                ("ipv6Ranges", "cidrIpv6", v6),
                ("prefixListIds", "prefixListId", lists),
            ];
            for (list, tag, items) in flat {
                xml.list(list, "item", items, |xml, (text, description)| {
                    xml.text(tag, text);
                    xml.opt("description", description.as_ref());
                });
            }
        },
    );
}
