//! Load balancers.

use std::collections::BTreeSet;

use super::super::model::{LoadBalancer, SubnetMapping, Tags};
use super::super::query::{Params, Xml};
use super::super::state::{State, iso};
use super::placement::{eni_description, mappings};
use super::{attributes, check_name, configuration, limited, page_size, tags, validation};
use crate::clock::later;
use crate::control::CloudError;

/// The settings that make two CreateLoadBalancer requests the same.
struct Wanted {
    name: String,
    scheme: String,
    ip_address_type: String,
    subnets: Vec<SubnetMapping>,
    groups: BTreeSet<String>,
    tags: Tags,
}

/// Whether all groups exist in the VPC.
pub(crate) fn check_groups(
    state: &State,
    groups: &BTreeSet<String>,
    vpc_id: &str,
) -> Result<(), CloudError> {
    for id in groups {
        let group = state.all.security_groups.get(id);
        if group.is_none_or(|group| group.vpc_id != vpc_id) {
            let text = format!("The security group '{id}' does not exist in VPC '{vpc_id}'");
            return Err(CloudError::new("InvalidSecurityGroup", text));
        }
    }
    Ok(())
}

fn wanted(state: &State, params: &Params) -> Result<Wanted, CloudError> {
    let name = params.need("Name")?.to_owned();
    check_name("load balancer", &name)?;
    if name.starts_with("internal-") {
        return Err(validation(format!(
            "The load balancer name '{name}' cannot begin with 'internal-'"
        )));
    }
    let kind = params.get("Type").unwrap_or("application");
    if kind != "network" {
        let text = format!("Type '{kind}' is not emulated: use Type=network");
        return Err(CloudError::new("OperationNotPermitted", text));
    }
    let scheme = params.get("Scheme").unwrap_or("internet-facing").to_owned();
    if !["internet-facing", "internal"].contains(&scheme.as_str()) {
        return Err(CloudError::new(
            "InvalidScheme",
            format!("The scheme '{scheme}' is not valid"),
        ));
    }
    let ip_address_type = ip_address_type(params)?.unwrap_or_else(|| "ipv4".to_owned());
    // An address of the same load balancer is no conflict: the request may be a repetition.
    let own = state
        .all
        .load_balancers
        .values()
        .find(|lb| lb.name == name)
        .map(|lb| lb.arn.as_str());
    let subnets = mappings(state, params, &scheme, own)?;
    Ok(Wanted {
        name,
        scheme,
        ip_address_type,
        subnets,
        groups: params.members("SecurityGroups").into_iter().collect(),
        tags: tags::read(params)?,
    })
}

fn ip_address_type(params: &Params) -> Result<Option<String>, CloudError> {
    match params.get("IpAddressType") {
        None => Ok(None),
        Some(kind @ ("ipv4" | "dualstack")) => Ok(Some(kind.to_owned())),
        Some(kind) => Err(validation(format!(
            "IpAddressType '{kind}' must be ipv4 or dualstack"
        ))),
    }
}

/// CreateLoadBalancer. The same request again returns the existing load balancer.
pub(crate) fn create(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let wanted = wanted(state, params)?;
    let mut present = state.all.load_balancers.values();
    let arn = if let Some(lb) = present.find(|lb| lb.name == wanted.name) {
        let same = lb.scheme == wanted.scheme
            && lb.ip_address_type == wanted.ip_address_type
            && lb.subnets == wanted.subnets
            && lb.security_groups.clone().unwrap_or_default() == wanted.groups;
        if !same {
            let name = &wanted.name;
            let text = format!(
                "A load balancer with the same name '{name}' exists, but with different settings"
            );
            return Err(CloudError::new("DuplicateLoadBalancerName", text));
        }
        lb.arn.clone()
    } else {
        state.new_load_balancer(wanted)?
    };
    let lb = state.load_balancer(&arn)?.clone();
    xml.list("LoadBalancers", "member", [lb], |xml, lb| {
        write(xml, state, &lb);
    });
    Ok(())
}

impl State {
    fn new_load_balancer(&mut self, wanted: Wanted) -> Result<String, CloudError> {
        if self.all.load_balancers.len() >= self.quotas.load_balancers {
            let text = "The maximum number of load balancers has been reached";
            return Err(CloudError::new("TooManyLoadBalancers", text));
        }
        let first = wanted
            .subnets
            .first()
            .map(|mapping| mapping.subnet_id.clone())
            .unwrap_or_default();
        let vpc_id = self.subnet(&first)?.vpc_id.clone();
        check_groups(self, &wanted.groups, &vpc_id)?;
        let hash = self.hex16();
        let (name, region) = (&wanted.name, &self.region);
        let arn = self.elb_arn(&format!("loadbalancer/net/{name}/{hash}"));
        let suffix = self.dns_suffix();
        let dns_name = format!("{name}-{hash}.elb.{region}.{suffix}");
        let lb = LoadBalancer {
            arn: arn.clone(),
            dns_name,
            vpc_id,
            ip_address_type: wanted.ip_address_type,
            security_groups: Some(wanted.groups).filter(|groups| !groups.is_empty()),
            attributes: attributes::load_balancer_defaults(&wanted.scheme),
            scheme: wanted.scheme,
            tags: wanted.tags,
            created: self.now,
            active_at: later(self.now, self.settings.lb_provisioning),
            ghost_until: None,
            name: wanted.name,
            subnets: Vec::new(),
        };
        self.all.load_balancers.insert(arn.clone(), lb);
        if let Err(error) = self.place(&arn, wanted.subnets) {
            self.all.load_balancers.remove(&arn);
            return Err(error);
        }
        self.settings.service_linked_role = true;
        Ok(arn)
    }

    /// Deletes a load balancer with its listeners. Reads may still show it for a time.
    fn remove_load_balancer(&mut self, arn: &str) {
        let Some(mut lb) = self.all.load_balancers.remove(arn) else {
            return;
        };
        self.all
            .listeners
            .retain(|_, listener| listener.load_balancer_arn != arn);
        let description = eni_description(arn);
        let release = later(self.now, self.settings.eni_release_delay);
        for eni in self
            .all
            .interfaces
            .values_mut()
            .filter(|eni| eni.description == description)
        {
            eni.release_at = Some(release);
        }
        for address in self.all.addresses.values_mut() {
            if address.load_balancer_arn.as_deref() == Some(arn) {
                address.load_balancer_arn = None;
            }
        }
        if !self.settings.lb_deletion_lag.is_zero() {
            lb.ghost_until = Some(later(self.now, self.settings.lb_deletion_lag));
            self.ghosts.push(lb);
        }
    }
}

/// DescribeLoadBalancers. One missing name or ARN fails the whole call.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let (names, arns) = (
        limited(params, "Names")?,
        limited(params, "LoadBalancerArns")?,
    );
    let live = |name: &String| state.all.load_balancers.values().any(|lb| lb.name == *name);
    let ghosts = state.ghosts.iter().filter(|ghost| !live(&ghost.name));
    let all = state.all.load_balancers.values().chain(ghosts);
    let seen: Vec<&LoadBalancer> = all
        .filter(|lb| state.visible(&lb.arn) && state.visible(&lb.name))
        .collect();
    let missing = |wanted: &[String], field: fn(&LoadBalancer) -> &String| {
        let lost = wanted
            .iter()
            .filter(|text| seen.iter().all(|lb| field(lb) != *text));
        lost.cloned().collect::<Vec<_>>().join(", ")
    };
    let lost = missing(&names, |lb| &lb.name);
    if !lost.is_empty() {
        return Err(CloudError::new(
            "LoadBalancerNotFound",
            format!("Load balancers '[{lost}]' not found"),
        ));
    }
    if !missing(&arns, |lb| &lb.arn).is_empty() {
        return Err(CloudError::new(
            "LoadBalancerNotFound",
            "One or more load balancers not found",
        ));
    }
    let asked = |lb: &LoadBalancer| {
        (names.is_empty() || names.contains(&lb.name))
            && (arns.is_empty() || arns.contains(&lb.arn))
    };
    let mut items: Vec<_> = seen
        .into_iter()
        .filter(|lb| asked(lb))
        .map(|lb| (lb.arn.clone(), lb))
        .collect();
    items.sort_by(|a, b| a.0.cmp(&b.0));
    let (page, next) = state.page(items, params.get("Marker"), page_size(params)?)?;
    xml.list("LoadBalancers", "member", page, |xml, lb| {
        write(xml, state, lb);
    });
    xml.opt("NextMarker", next);
    Ok(())
}

fn write(xml: &mut Xml, state: &State, lb: &LoadBalancer) {
    xml.text("LoadBalancerArn", &lb.arn);
    xml.text("DNSName", &lb.dns_name);
    xml.text("CanonicalHostedZoneId", "Z18D5FSROUN65G");
    xml.text("CreatedTime", iso(lb.created));
    xml.text("LoadBalancerName", &lb.name);
    xml.text("Scheme", &lb.scheme);
    xml.text("VpcId", &lb.vpc_id);
    let code = if state.now >= lb.active_at {
        "active"
    } else {
        "provisioning"
    };
    xml.el("State", |xml| xml.text("Code", code));
    xml.text("Type", "network");
    write_zones(xml, state, &lb.subnets);
    xml.texts(
        "SecurityGroups",
        "member",
        lb.security_groups.iter().flatten(),
    );
    xml.text("IpAddressType", &lb.ip_address_type);
    if lb.security_groups.is_some() {
        xml.text("EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic", "on");
    }
}

fn write_zones(xml: &mut Xml, state: &State, subnets: &[SubnetMapping]) {
    xml.list("AvailabilityZones", "member", subnets, |xml, mapping| {
        xml.text("ZoneName", &mapping.zone);
        xml.text("SubnetId", &mapping.subnet_id);
        let fixed = mapping.allocation_id.is_some() || mapping.private_ip.is_some();
        xml.list(
            "LoadBalancerAddresses",
            "member",
            fixed.then_some(()),
            |xml, ()| {
                let address = mapping
                    .allocation_id
                    .as_ref()
                    .and_then(|id| state.all.addresses.get(id));
                xml.opt("IpAddress", address.map(|address| address.public_ip));
                xml.opt("AllocationId", mapping.allocation_id.as_ref());
                xml.opt("PrivateIPv4Address", mapping.private_ip);
            },
        );
    });
}

/// DeleteLoadBalancer. Deleting what does not exist succeeds.
pub(crate) fn delete(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let arn = params.need("LoadBalancerArn")?;
    let lb = match state.load_balancer(arn) {
        Ok(lb) => lb,
        Err(error) if error.code == "LoadBalancerNotFound" => return Ok(()),
        Err(error) => return Err(error),
    };
    if lb
        .attributes
        .get("deletion_protection.enabled")
        .is_some_and(|value| value == "true")
    {
        let text = format!(
            "Load balancer '{arn}' cannot be deleted because deletion protection is enabled"
        );
        return Err(CloudError::new("OperationNotPermitted", text));
    }
    state.remove_load_balancer(arn);
    Ok(())
}

/// SetSecurityGroups. A load balancer that was made without groups never gets any.
pub(crate) fn set_security_groups(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let arn = params.need("LoadBalancerArn")?;
    let groups: BTreeSet<String> = params.members("SecurityGroups").into_iter().collect();
    let lb = state.load_balancer(arn)?.clone();
    if lb.security_groups.is_none() {
        let text = "You cannot set security groups on a network load balancer that was created without security groups";
        return Err(configuration(text));
    }
    if groups.is_empty() {
        return Err(configuration(
            "You must specify at least one security group",
        ));
    }
    check_groups(state, &groups, &lb.vpc_id)?;
    let description = eni_description(arn);
    for eni in state
        .all
        .interfaces
        .values_mut()
        .filter(|eni| eni.description == description)
    {
        eni.groups = groups.iter().cloned().collect();
    }
    xml.texts("SecurityGroupIds", "member", &groups);
    xml.text("EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic", "on");
    state.load_balancer(arn)?.security_groups = Some(groups);
    Ok(())
}

/// SetSubnets replaces all subnets.
pub(crate) fn set_subnets(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let arn = params.need("LoadBalancerArn")?;
    let lb = state.load_balancer(arn)?.clone();
    let subnets = mappings(state, params, &lb.scheme, Some(arn))?;
    if subnets.iter().any(|mapping| {
        state
            .all
            .subnets
            .get(&mapping.subnet_id)
            .is_some_and(|at| at.vpc_id != lb.vpc_id)
    }) {
        let text = format!(
            "All subnets must belong to VPC '{}' of the load balancer",
            lb.vpc_id
        );
        return Err(CloudError::new("InvalidSubnet", text));
    }
    let kind = ip_address_type(params)?.unwrap_or(lb.ip_address_type);
    state.place(arn, subnets.clone())?;
    state.load_balancer(arn)?.ip_address_type.clone_from(&kind);
    write_zones(xml, state, &subnets);
    xml.text("IpAddressType", kind);
    Ok(())
}

/// SetIpAddressType. Dual-stack needs an IPv6 range in every subnet.
pub(crate) fn set_ip_address_type(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let arn = params.need("LoadBalancerArn")?;
    params.need("IpAddressType")?;
    let kind = ip_address_type(params)?.unwrap_or_default();
    let lb = state.load_balancer(arn)?.clone();
    let mut ids = lb.subnets.iter().map(|mapping| mapping.subnet_id.clone());
    let bare = |id: &String| {
        state
            .all
            .subnets
            .get(id)
            .is_none_or(|subnet| subnet.ipv6_cidr.is_none())
    };
    if let Some(id) = ids.find(|id| kind == "dualstack" && bare(id)) {
        let text =
            format!("You must specify subnets with an associated IPv6 CIDR block: '{id}' has none");
        return Err(CloudError::new("InvalidSubnet", text));
    }
    state.load_balancer(arn)?.ip_address_type.clone_from(&kind);
    xml.text("IpAddressType", kind);
    Ok(())
}
