//! Ingress rules of security groups.

use super::super::model::{Peer, Rule, RuleKey};
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::Kind;
use crate::control::CloudError;

impl State {
    /// Adds all rules, or none of them.
    pub(crate) fn authorize(
        &mut self,
        group_id: &str,
        rules: Vec<(RuleKey, Option<String>)>,
    ) -> Result<Vec<Rule>, CloudError> {
        let mut present = self.group(group_id)?.rules.clone();
        let mut added = Vec::new();
        for (key, description) in rules {
            if let Peer::Group(source) = &key.peer {
                self.group(source)?;
            }
            // A description does not make it another rule.
            if present.iter().any(|rule| rule.key == key) {
                return Err(duplicate(&key));
            }
            let id = self.new_id("sgr");
            let rule = Rule {
                id,
                key,
                description,
            };
            present.push(rule.clone());
            added.push(rule);
        }
        let v4 = present
            .iter()
            .filter(|rule| !matches!(rule.key.peer, Peer::Ipv6(_)))
            .count();
        let v6 = present
            .iter()
            .filter(|rule| !matches!(rule.key.peer, Peer::Ipv4(_)))
            .count();
        if v4.max(v6) > self.quotas.rules_per_security_group {
            let text = "The maximum number of rules per security group has been reached.";
            return Err(CloudError::new("RulesPerSecurityGroupLimitExceeded", text));
        }
        if let Some(group) = self.all.security_groups.get_mut(group_id) {
            group.rules = present;
        }
        Ok(added)
    }

    /// Removes all rules, or none of them.
    pub(crate) fn revoke(
        &mut self,
        group_id: &str,
        keys: &[RuleKey],
    ) -> Result<Vec<Rule>, CloudError> {
        let mut present = self.group(group_id)?.rules.clone();
        let mut removed = Vec::new();
        for key in keys {
            let Some(at) = present.iter().position(|rule| rule.key == *key) else {
                return Err(missing_rule());
            };
            removed.push(present.remove(at));
        }
        if let Some(group) = self.all.security_groups.get_mut(group_id) {
            group.rules = present;
        }
        Ok(removed)
    }
}

fn missing_rule() -> CloudError {
    CloudError::new(
        "InvalidPermission.NotFound",
        "The specified rule does not exist in this security group.",
    )
}

fn duplicate(key: &RuleKey) -> CloudError {
    let peer = match &key.peer {
        Peer::Ipv4(cidr) => cidr.to_string(),
        Peer::Ipv6(cidr) => cidr.to_string(),
        Peer::Group(id) | Peer::PrefixList(id) => id.clone(),
    };
    let protocol = key.protocol.to_uppercase();
    let ports = match (key.from_port, key.to_port) {
        (Some(from), Some(to)) => format!(" from port: {from}, to port: {to},"),
        _ => String::new(),
    };
    let text =
        format!("the specified rule \"peer: {peer}, {protocol},{ports} ALLOW\" already exists");
    CloudError::new("InvalidPermission.Duplicate", text)
}

fn invalid(text: impl Into<String>) -> CloudError {
    CloudError::new("InvalidParameterValue", text)
}

/// The protocol as EC2 stores it.
fn protocol(text: &str) -> Result<String, CloudError> {
    let lower = text.to_ascii_lowercase();
    let name = match lower.as_str() {
        "tcp" | "6" => "tcp",
        "udp" | "17" => "udp",
        "icmp" | "1" => "icmp",
        "icmpv6" | "58" => "icmpv6",
        "-1" | "all" => "-1",
        number if number.parse::<u8>().is_ok() => number,
        _ => {
            return Err(invalid(format!(
                "Invalid value '{text}' for IP protocol. Unknown protocol."
            )));
        }
    };
    Ok(name.to_owned())
}

fn ports(protocol: &str, permission: &Params) -> Result<(Option<i32>, Option<i32>), CloudError> {
    let (from, to): (Option<i32>, Option<i32>) =
        (permission.number("FromPort")?, permission.number("ToPort")?);
    match protocol {
        "tcp" | "udp" => {
            let (Some(first), Some(last)) = (from, to) else {
                let text = "Invalid value 'Must specify both from and to ports with TCP/UDP.' for portRange.";
                return Err(invalid(text));
            };
            if !(0..=65535).contains(&first) || !(first..=65535).contains(&last) {
                return Err(invalid(format!(
                    "Invalid value '{first}-{last}' for portRange. Use 0 to 65535, from before to."
                )));
            }
            Ok((from, to))
        }
        "icmp" | "icmpv6" => Ok((from.or(Some(-1)), to.or(Some(-1)))),
        // Ports mean nothing for other protocols, and EC2 drops them.
        _ => Ok((None, None)),
    }
}

type Described = (RuleKey, Option<String>);

/// All rules of one `IpPermissions.N`.
fn permission(params: &Params) -> Result<Vec<Described>, CloudError> {
    let protocol = protocol(params.need("IpProtocol")?)?;
    let (from_port, to_port) = ports(&protocol, params)?;
    let mut peers: Vec<(Peer, Option<String>)> = Vec::new();
    let description = |source: &Params| {
        source
            .get("Description")
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    for range in params.structs("IpRanges") {
        peers.push((ipv4(range.need("CidrIp")?)?, description(&range)));
    }
    for range in params.structs("Ipv6Ranges") {
        peers.push((ipv6(range.need("CidrIpv6")?)?, description(&range)));
    }
    for pair in params
        .structs("Groups")
        .into_iter()
        .chain(params.structs("UserIdGroupPairs"))
    {
        let id = pair.need("GroupId")?;
        if !Kind::Group.well_formed(id) {
            return Err(Kind::Group.malformed(id));
        }
        peers.push((Peer::Group(id.to_owned()), description(&pair)));
    }
    for list in params.structs("PrefixListIds") {
        peers.push((
            Peer::PrefixList(list.need("PrefixListId")?.to_owned()),
            description(&list),
        ));
    }
    let key = |peer| RuleKey {
        protocol: protocol.clone(),
        from_port,
        to_port,
        peer,
    };
    Ok(peers
        .into_iter()
        .map(|(peer, text)| (key(peer), text))
        .collect())
}

/// EC2 clears the host bits of a range instead of refusing it.
fn ipv4(text: &str) -> Result<Peer, CloudError> {
    let cidr: ipnet::Ipv4Net = text
        .parse()
        .map_err(|_| invalid(format!("CIDR block {text} is malformed")))?;
    Ok(Peer::Ipv4(cidr.trunc()))
}

fn ipv6(text: &str) -> Result<Peer, CloudError> {
    let cidr: ipnet::Ipv6Net = text
        .parse()
        .map_err(|_| invalid(format!("CIDR block {text} is malformed")))?;
    Ok(Peer::Ipv6(cidr.trunc()))
}

/// `IpPermissions`, or the single rule of the old parameters.
fn permissions(params: &Params) -> Result<Vec<Described>, CloudError> {
    let mut rules = Vec::new();
    for each in params.structs("IpPermissions") {
        rules.extend(permission(&each)?);
    }
    if let (Some(cidr), false) = (params.get("CidrIp"), params.has("IpPermissions")) {
        let protocol = protocol(params.need("IpProtocol")?)?;
        let (from_port, to_port) = ports(&protocol, params)?;
        let peer = ipv4(cidr)?;
        let key = RuleKey {
            protocol,
            from_port,
            to_port,
            peer,
        };
        rules.push((key, None));
    }
    if rules.is_empty() {
        let text = "The request must contain the parameter ipPermissions with at least one source";
        return Err(CloudError::new("MissingParameter", text));
    }
    Ok(rules)
}

fn write_rule(xml: &mut Xml, rule: &Rule) {
    xml.text("securityGroupRuleId", &rule.id);
    xml.text("isEgress", false);
    xml.text("ipProtocol", &rule.key.protocol);
    xml.text("fromPort", rule.key.from_port.unwrap_or(-1));
    xml.text("toPort", rule.key.to_port.unwrap_or(-1));
    match &rule.key.peer {
        Peer::Ipv4(cidr) => xml.text("cidrIpv4", cidr),
        Peer::Ipv6(cidr) => xml.text("cidrIpv6", cidr),
        Peer::PrefixList(id) => xml.text("prefixListId", id),
        Peer::Group(_) => {}
    }
    xml.opt("description", rule.description.as_ref());
}

/// AuthorizeSecurityGroupIngress.
pub(crate) fn authorize(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let group = params.need("GroupId")?;
    let added = state.authorize(group, permissions(params)?)?;
    xml.text("return", true);
    xml.list("securityGroupRuleSet", "item", added, |xml, rule| {
        xml.text("groupId", group);
        xml.text("groupOwnerId", &state.account);
        write_rule(xml, &rule);
        if let Peer::Group(id) = &rule.key.peer {
            xml.el("referencedGroupInfo", |xml| {
                xml.text("groupId", id);
                xml.text("userId", &state.account);
            });
        }
    });
    Ok(())
}

/// RevokeSecurityGroupIngress, by permissions or by rule ids.
pub(crate) fn revoke(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let group = params.need("GroupId")?;
    let ids = params.list("SecurityGroupRuleId");
    let keys: Vec<RuleKey> = if ids.is_empty() {
        permissions(params)?
            .into_iter()
            .map(|(key, _)| key)
            .collect()
    } else {
        let rules = &state.group(group)?.rules;
        let find = |id: &String| {
            let rule = rules.iter().find(|rule| rule.id == *id);
            let text = format!("The security group rule ID '{id}' does not exist");
            rule.map(|rule| rule.key.clone())
                .ok_or_else(|| CloudError::new("InvalidSecurityGroupRuleId.NotFound", text))
        };
        ids.iter().map(find).collect::<Result<_, _>>()?
    };
    let removed = state.revoke(group, &keys)?;
    xml.text("return", true);
    xml.list(
        "revokedSecurityGroupRuleSet",
        "item",
        removed,
        |xml, rule| {
            xml.text("groupId", group);
            write_rule(xml, &rule);
            if let Peer::Group(id) = &rule.key.peer {
                xml.text("referencedGroupId", id);
            }
        },
    );
    Ok(())
}

/// UpdateSecurityGroupRuleDescriptionsIngress.
pub(crate) fn update_descriptions(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let group_id = params.need("GroupId")?;
    let mut rules = state.group(group_id)?.rules.clone();
    let by_id = params.structs("SecurityGroupRuleDescription");
    if by_id.is_empty() {
        for (key, text) in permissions(params)? {
            let rule = rules
                .iter_mut()
                .find(|rule| rule.key == key)
                .ok_or_else(missing_rule)?;
            rule.description = text;
        }
    }
    for update in by_id {
        let id = update.need("SecurityGroupRuleId")?;
        let rule = rules
            .iter_mut()
            .find(|rule| rule.id == id)
            .ok_or_else(missing_rule)?;
        rule.description = update.get("Description").map(str::to_owned);
    }
    if let Some(group) = state.all.security_groups.get_mut(group_id) {
        group.rules = rules;
    }
    xml.text("return", true);
    Ok(())
}
