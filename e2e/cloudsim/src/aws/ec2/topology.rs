//! Zones, and where in the network an instance is.

use std::collections::BTreeMap;

use super::super::model::{Instance, Subnet};
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{Kind, Listing, filters, list, matches, one};
use crate::control::CloudError;

/// EC2's limit of ids in one DescribeInstanceTopology call.
const MAX_TOPOLOGY_IDS: usize = 100;

impl State {
    /// Three layers above the instance: region, zone, subnet. Only types for tightly coupled work have them.
    pub(crate) fn network_nodes(&self, instance_type: &str, subnet: &Subnet) -> Vec<String> {
        let family = instance_type.split('.').next().unwrap_or_default();
        let described = ["p3", "p4", "p5", "p6", "trn", "hpc"]
            .iter()
            .any(|prefix| family.starts_with(prefix));
        if !described {
            return Vec::new();
        }
        let node = |name: &str| format!("nn-0{:016x}", fnv(self.seed, name));
        vec![node(&self.region), node(&subnet.zone), node(&subnet.id)]
    }

    pub(crate) fn zone_id(&self, name: &str) -> &str {
        let zone = self.zones.iter().find(|zone| zone.name == name);
        zone.map_or("", |zone| zone.id.as_str())
    }
}

/// FNV-1a: the same name gives the same node in every run with the same seed.
fn fnv(seed: u64, text: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    text.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// DescribeInstanceTopology.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let ids = params.list("InstanceId");
    if !ids.is_empty() && params.get("MaxResults").is_some() {
        let text = "The parameter instanceIds cannot be used with the parameter maxResults";
        return Err(CloudError::new("InvalidParameterCombination", text));
    }
    if ids.len() > MAX_TOPOLOGY_IDS {
        let text = format!(
            "Too many instance ids: {}, at most {MAX_TOPOLOGY_IDS}",
            ids.len()
        );
        return Err(CloudError::new("InvalidParameterValue", text));
    }
    let field = |instance: &Instance, name: &str| match name {
        "availability-zone" => one(&instance.zone),
        "instance-type" => one(&instance.instance_type),
        "zone-id" => one(state.zone_id(&instance.zone)),
        _ => Vec::new(),
    };
    let listing = Listing {
        kind: Kind::Instance,
        ids: "InstanceId",
        filters: &["availability-zone", "instance-type", "zone-id"],
        tags: |instance: &Instance| &instance.tags,
        field: &field,
    };
    let (page, next) = list(state, params, &state.all.instances, &listing)?;
    let placed = page
        .iter()
        .filter(|instance| !instance.network_nodes.is_empty());
    xml.list("instanceSet", "item", placed, |xml, instance| {
        xml.text("instanceId", &instance.id);
        xml.text("instanceType", &instance.instance_type);
        xml.texts("networkNodeSet", "item", &instance.network_nodes);
        xml.text("availabilityZone", &instance.zone);
        xml.text("zoneId", state.zone_id(&instance.zone));
    });
    xml.opt("nextToken", next);
    Ok(())
}

/// DescribeAvailabilityZones. Only zones that the account has opted into are known here.
pub(crate) fn describe_zones(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let known = [
        "zone-name",
        "zone-id",
        "zone-type",
        "region-name",
        "state",
        "opt-in-status",
    ];
    let filters = filters(params, &known)?;
    let (names, ids) = (params.list("ZoneName"), params.list("ZoneId"));
    if let Some(name) = names
        .iter()
        .find(|name| state.zones.iter().all(|zone| zone.name != **name))
    {
        let text = format!("Invalid availability zone: [{name}]");
        return Err(CloudError::new("InvalidParameterValue", text));
    }
    let no_tags = BTreeMap::new();
    let opt_in = |kind: &str| {
        if kind == "availability-zone" {
            "opt-in-not-required"
        } else {
            "opted-in"
        }
    };
    let zones = state.zones.iter().filter(|zone| {
        (names.is_empty() || names.contains(&zone.name))
            && (ids.is_empty() || ids.contains(&zone.id))
            && matches(&filters, &no_tags, |name| match name {
                "zone-name" => one(&zone.name),
                "zone-id" => one(&zone.id),
                "zone-type" => one(&zone.kind),
                "region-name" => one(&state.region),
                "state" => one("available"),
                "opt-in-status" => one(opt_in(&zone.kind)),
                _ => Vec::new(),
            })
    });
    xml.list("availabilityZoneInfo", "item", zones, |xml, zone| {
        xml.text("zoneName", &zone.name);
        xml.text("zoneState", "available");
        xml.text("regionName", &state.region);
        xml.text("zoneId", &zone.id);
        xml.text("zoneType", &zone.kind);
        xml.text("optInStatus", opt_in(&zone.kind));
        let ordinary = zone.kind == "availability-zone";
        // Local zones form groups of their own: us-west-2-lax-1 holds us-west-2-lax-1a.
        let group = if ordinary { &state.region } else { &zone.name };
        xml.text(
            "groupName",
            group.trim_end_matches(|letter: char| letter.is_ascii_lowercase() && !ordinary),
        );
        xml.text("networkBorderGroup", &state.region);
    });
    Ok(())
}
