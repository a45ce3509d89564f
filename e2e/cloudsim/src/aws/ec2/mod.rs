//! EC2, version 2016-11-15.

pub(crate) mod addresses;
pub(crate) mod instances;
pub(crate) mod interfaces;
pub(crate) mod launch;
pub(crate) mod network;
pub(crate) mod routes;
pub(crate) mod rules;
pub(crate) mod security_groups;
pub(crate) mod tags;
pub(crate) mod topology;

use std::collections::BTreeMap;

use super::model::Tags;
use super::query::{Params, Xml};
use super::state::State;
use super::{Handler, state::tags_of};
use crate::control::CloudError;

/// Every implemented action.
pub(crate) const ACTIONS: &[(&str, Handler)] = &[
    ("AllocateAddress", addresses::allocate),
    ("AssociateRouteTable", routes::associate),
    ("AttachInternetGateway", network::attach_gateway),
    ("AuthorizeSecurityGroupIngress", rules::authorize),
    ("CreateInternetGateway", network::create_gateway),
    ("CreateRoute", routes::create_route),
    ("CreateRouteTable", routes::create_table),
    ("CreateSecurityGroup", security_groups::create),
    ("CreateSubnet", network::create_subnet),
    ("CreateTags", tags::create),
    ("CreateVpc", network::create_vpc),
    ("DeleteRoute", routes::delete_route),
    ("DeleteSecurityGroup", security_groups::delete),
    ("DeleteTags", tags::delete),
    ("DescribeAddresses", addresses::describe),
    ("DescribeAvailabilityZones", topology::describe_zones),
    ("DescribeInstances", instances::describe),
    ("DescribeInstanceTopology", topology::describe),
    ("DescribeNetworkInterfaces", interfaces::describe),
    ("DescribeRouteTables", routes::describe),
    ("DescribeSecurityGroups", security_groups::describe),
    ("DescribeSubnets", network::describe_subnets),
    ("DescribeVpcs", network::describe_vpcs),
    ("ModifyInstanceAttribute", launch::modify_attribute),
    (
        "ModifyNetworkInterfaceAttribute",
        interfaces::modify_attribute,
    ),
    ("ReplaceRoute", routes::replace_route),
    ("RevokeSecurityGroupIngress", rules::revoke),
    ("RunInstances", launch::run_instances),
    ("StartInstances", launch::start_instances),
    ("StopInstances", launch::stop_instances),
    ("TerminateInstances", launch::terminate_instances),
    (
        "UpdateSecurityGroupRuleDescriptionsIngress",
        rules::update_descriptions,
    ),
];

/// A kind of resource, for its id form and its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Instance,
    Subnet,
    Vpc,
    Group,
    RouteTable,
    Gateway,
    Interface,
    Allocation,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Instance,
        Self::Subnet,
        Self::Vpc,
        Self::Group,
        Self::RouteTable,
        Self::Gateway,
        Self::Interface,
        Self::Allocation,
    ];

    /// Id prefix, start of the error code, noun in the error text.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Instance => ("i", "InvalidInstanceID", "instance ID"),
            Self::Subnet => ("subnet", "InvalidSubnetID", "subnet ID"),
            Self::Vpc => ("vpc", "InvalidVpcID", "vpc ID"),
            Self::Group => ("sg", "InvalidGroup", "security group"),
            Self::RouteTable => ("rtb", "InvalidRouteTableID", "routeTable ID"),
            Self::Gateway => ("igw", "InvalidInternetGatewayID", "internetGateway ID"),
            Self::Interface => ("eni", "InvalidNetworkInterfaceID", "networkInterface ID"),
            Self::Allocation => ("eipalloc", "InvalidAllocationID", "allocation ID"),
        }
    }

    /// Whether the text has the form of such an id: the prefix and up to 17 hexadecimal digits.
    pub(crate) fn well_formed(self, id: &str) -> bool {
        let digits = id
            .strip_prefix(self.words().0)
            .and_then(|rest| rest.strip_prefix('-'));
        digits.is_some_and(|digits| {
            (1..=17).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    }

    pub(crate) fn malformed(self, id: &str) -> CloudError {
        let (prefix, code, _) = self.words();
        match self {
            Self::Instance => CloudError::new(
                "InvalidInstanceID.Malformed",
                format!("Invalid id: \"{id}\""),
            ),
            Self::Group => {
                let text = format!("Invalid id: \"{id}\" (expecting \"sg-...\")");
                CloudError::new("InvalidGroupId.Malformed", text)
            }
            _ => {
                let text = format!("Invalid id: \"{id}\" (expecting \"{prefix}-...\")");
                CloudError::new(format!("{code}.Malformed"), text)
            }
        }
    }

    pub(crate) fn not_found(self, ids: &[String]) -> CloudError {
        let (_, code, noun) = self.words();
        let text = match ids {
            [id] => format!("The {noun} '{id}' does not exist"),
            _ => format!("The {noun}s '{}' do not exist", ids.join(", ")),
        };
        CloudError::new(format!("{code}.NotFound"), text)
    }

    /// Fails for malformed ids first, then for those that are missing or invisible.
    pub(crate) fn check<T>(
        self,
        state: &State,
        map: &BTreeMap<String, T>,
        ids: &[String],
    ) -> Result<(), CloudError> {
        if let Some(id) = ids.iter().find(|id| !self.well_formed(id)) {
            return Err(self.malformed(id));
        }
        let known = |id: &String| map.contains_key(id) && state.visible(id);
        let missing: Vec<String> = ids.iter().filter(|id| !known(id)).cloned().collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(self.not_found(&missing))
        }
    }
}

/// A filter of a Describe call. Values may hold `*` and `?`.
#[derive(Debug)]
pub(crate) struct Filter {
    name: String,
    values: Vec<String>,
}

/// Reads `Filter.N`; names outside of `known` (and `tag:…`, `tag-key`, `tag-value`) are refused.
pub(crate) fn filters(params: &Params, known: &[&str]) -> Result<Vec<Filter>, CloudError> {
    let mut filters = Vec::new();
    for filter in params.structs("Filter") {
        let name = filter.get("Name").unwrap_or_default().to_owned();
        let general = name.starts_with("tag:") || name == "tag-key" || name == "tag-value";
        if !general && !known.contains(&name.as_str()) {
            let text = format!("The filter '{name}' is invalid");
            return Err(CloudError::new("InvalidParameterValue", text));
        }
        let values = filter.list("Value");
        filters.push(Filter { name, values });
    }
    Ok(filters)
}

/// Whether every filter has a value that one of the resource's values matches.
pub(crate) fn matches(
    filters: &[Filter],
    tags: &Tags,
    field: impl Fn(&str) -> Vec<String>,
) -> bool {
    filters.iter().all(|filter| {
        let have: Vec<String> = match filter.name.as_str() {
            "tag-key" => tags.keys().cloned().collect(),
            "tag-value" => tags.values().cloned().collect(),
            name => match name.strip_prefix("tag:") {
                Some(key) => tags.get(key).cloned().into_iter().collect(),
                None => field(name),
            },
        };
        have.iter()
            .any(|have| filter.values.iter().any(|pattern| glob(pattern, have)))
    })
}

/// `*` stands for any text, `?` for one byte.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || Some(byte) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|byte| *byte == b'*')
}

/// How one kind of resource is listed.
pub(crate) struct Listing<'a, T> {
    pub(crate) kind: Kind,
    /// Name of the parameter with ids.
    pub(crate) ids: &'a str,
    /// Known filters.
    pub(crate) filters: &'a [&'a str],
    pub(crate) tags: fn(&T) -> &Tags,
    /// Values of a filter.
    pub(crate) field: &'a dyn Fn(&T, &str) -> Vec<String>,
}

/// The resources of one page and the token of the next.
pub(crate) type Page<T> = (Vec<T>, Option<String>);

/// Ids, filters and paging of a Describe call.
pub(crate) fn list<T: Clone>(
    state: &State,
    params: &Params,
    map: &BTreeMap<String, T>,
    listing: &Listing<'_, T>,
) -> Result<Page<T>, CloudError> {
    let ids = params.list(listing.ids);
    let filters = filters(params, listing.filters)?;
    listing.kind.check(state, map, &ids)?;
    let size = page_size(params)?;
    let wanted = |id: &String| (ids.is_empty() || ids.contains(id)) && state.visible(id);
    let found = map.iter().filter(|(id, _)| wanted(id));
    let found = found.filter(|(_, item)| {
        matches(&filters, (listing.tags)(item), |name| {
            (listing.field)(item, name)
        })
    });
    let found: Vec<(String, &T)> = found.map(|(id, item)| (id.clone(), item)).collect();
    let (page, next) = state.page(found, params.get("NextToken"), size)?;
    Ok((page.into_iter().cloned().collect(), next))
}

/// `MaxResults`, from 5 to 1000.
pub(crate) fn page_size(params: &Params) -> Result<Option<usize>, CloudError> {
    let size = params.number("MaxResults")?;
    match size {
        Some(size @ (..5 | 1001..)) => {
            let text = format!(
                "Value ( {size} ) for parameter maxResults is invalid. Expecting a value from 5 to 1000."
            );
            Err(CloudError::new("InvalidParameterValue", text))
        }
        size => Ok(size),
    }
}

/// The tags of `TagSpecification.N` for this resource type.
pub(crate) fn specified_tags(params: &Params, kind: &str) -> Tags {
    let specifications = params.structs("TagSpecification").into_iter();
    let own =
        specifications.filter(|specification| specification.get("ResourceType") == Some(kind));
    own.flat_map(|specification| tags_of(&specification, "Tag"))
        .collect()
}

pub(crate) fn write_tags(xml: &mut Xml, tags: &Tags) {
    xml.list("tagSet", "item", tags, |xml, (key, value)| {
        xml.text("key", key);
        xml.text("value", value);
    });
}

pub(crate) fn write_groups(xml: &mut Xml, state: &State, groups: &[String]) {
    xml.list("groupSet", "item", groups, |xml, id| {
        xml.text("groupId", id);
        let name = state.all.security_groups.get(id).map(|group| &group.name);
        xml.text("groupName", name.map_or("", String::as_str));
    });
}

/// The values of a filter over a single text.
pub(crate) fn one<T: ToString + ?Sized>(value: &T) -> Vec<String> {
    vec![value.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_values_may_hold_wildcards() {
        assert!(glob("ip-10-*.internal", "ip-10-20-0-4.internal"));
        assert!(glob("a?c*", "abc"));
        assert!(glob("*", ""));
        assert!(!glob("a?c", "ac"));
        assert!(!glob("", "a"));
        assert!(glob("*a*b", "xaybab"));
    }

    #[test]
    fn ids_are_checked_for_their_form() {
        assert!(Kind::Instance.well_formed("i-0aa1"));
        assert!(!Kind::Instance.well_formed("i-"));
        assert!(!Kind::Instance.well_formed("i-xyz"));
        assert!(!Kind::Instance.well_formed("master-dummy"));
    }
}
