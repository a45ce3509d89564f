//! Which subnets a new load balancer gets (specification: aws §4.5). Pure.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::cloud::{CloudError, CloudResult};

use crate::{
    api::network::{RouteTable, Subnet},
    tags::{ClusterTags, ROLE_ELB, ROLE_INTERNAL_ELB, has_no_cluster_prefix_tag},
};

/// Free addresses that a load balancer wants in a subnet: among equal candidates one that has them
/// is preferred.
const COMFORTABLE_ADDRESSES: i32 = 8;

/// What discovery looks at.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// The VPC's subnets, in the API's order.
    pub subnets: &'a [Subnet],
    /// The VPC's route tables.
    pub tables: &'a [RouteTable],
    /// The kind of each zone, by name.
    pub zones: &'a BTreeMap<String, String>,
    /// The cluster's identity.
    pub tags: &'a ClusterTags,
    /// Used when every subnet is tagged for other clusters.
    pub fallback: Option<&'a str>,
    /// What the load balancer has: kept in its zone as long as it is a candidate.
    pub attached: &'a BTreeSet<String>,
}

/// One subnet a zone, zones in ascending order.
///
/// # Errors
/// A subnet without explicit association in a VPC without main route table; no subnet at all.
pub fn discover<'a>(network: Network<'a>, internal: bool) -> CloudResult<Vec<&'a Subnet>> {
    let mut best: BTreeMap<&str, (Rank<'a>, &Subnet)> = BTreeMap::new();
    for subnet in candidates(network) {
        if subnet.zone.is_empty() || subnet.id.is_empty() {
            continue;
        }
        // Looked up for internal load balancers too: the Go manager fails there as well.
        let public = is_public(network.tables, &subnet.id)?;
        if !internal && !public {
            continue;
        }
        let rank = rank(network, subnet, internal);
        match best.get(subnet.zone.as_str()) {
            Some((known, _)) if *known <= rank => {}
            _ => {
                best.insert(&subnet.zone, (rank, subnet));
            }
        }
    }
    let chosen: Vec<&Subnet> = best
        .into_iter()
        .filter(|(zone, _)| {
            network
                .zones
                .get(*zone)
                .is_none_or(|kind| kind == "availability-zone")
        })
        .map(|(_, (_, subnet))| subnet)
        .collect();
    if chosen.is_empty() {
        return Err(CloudError::new(
            ccm_core::cloud::Class::NotFound,
            "could not find any suitable subnets for creating the ELB",
        ));
    }
    Ok(chosen)
}

/// Smaller is better: attached already, role tag, cluster tag, free addresses, id.
type Rank<'a> = (bool, bool, bool, bool, &'a str);

fn rank<'a>(network: Network<'_>, subnet: &'a Subnet, internal: bool) -> Rank<'a> {
    let role = if internal {
        ROLE_INTERNAL_ELB
    } else {
        ROLE_ELB
    };
    (
        !network.attached.contains(&subnet.id),
        !subnet.tags.contains_key(role),
        !network.tags.has_cluster_tag(&subnet.tags),
        subnet.free_addresses < COMFORTABLE_ADDRESSES,
        &subnet.id,
    )
}

fn candidates(network: Network<'_>) -> Vec<&Subnet> {
    let ours: Vec<&Subnet> = network
        .subnets
        .iter()
        .filter(|s| network.tags.has_cluster_tag(&s.tags) || has_no_cluster_prefix_tag(&s.tags))
        .collect();
    if !ours.is_empty() {
        return ours;
    }
    tracing::warn!(
        subnet = network.fallback,
        "no tagged subnets found; using the current subnet"
    );
    let own = |subnet: &&Subnet| Some(subnet.id.as_str()) == network.fallback;
    network.subnets.iter().filter(own).collect()
}

fn is_public(tables: &[RouteTable], subnet: &str) -> CloudResult<bool> {
    let explicit = tables.iter().find(|table| table.subnets.contains(subnet));
    let table = explicit.or_else(|| tables.iter().find(|table| table.main));
    table.map(|table| table.public).ok_or_else(|| {
        CloudError::new(
            ccm_core::cloud::Class::NotFound,
            format!("could not locate routing table for subnet {subnet}"),
        )
    })
}

/// The subnets named by the annotation, by id or Name tag, in the annotation's order.
///
/// # Errors
/// An empty list; a name that means no subnet or several, an id twice.
pub fn named<'a>(subnets: &'a [Subnet], names: &[String]) -> CloudResult<Vec<&'a Subnet>> {
    if names.is_empty() {
        return Err(CloudError::invalid("unable to resolve empty subnet slice"));
    }
    let mut found: Vec<&Subnet> = Vec::new();
    for name in names {
        let hits = subnets.iter().filter(|subnet| {
            if name.starts_with("subnet-") {
                subnet.id == *name
            } else {
                subnet.tags.get("Name") == Some(name)
            }
        });
        for hit in hits {
            if !found.iter().any(|known| known.id == hit.id) {
                found.push(hit);
            }
        }
    }
    if found.len() != names.len() {
        return Err(CloudError::invalid(format!(
            "expected to find {}, but found {} subnets",
            names.len(),
            found.len()
        )));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "kubernetes.io/cluster/cl1";
    const OTHER: &str = "kubernetes.io/cluster/other";

    fn subnet(id: &str, zone: &str, tags: &[&str]) -> Subnet {
        Subnet {
            id: format!("subnet-{id}"),
            zone: zone.to_owned(),
            cidr: None,
            free_addresses: 100,
            tags: tags
                .iter()
                .map(|key| ((*key).to_owned(), "1".to_owned()))
                .collect(),
        }
    }

    fn a1() -> Subnet {
        subnet("a0000001", "2a", &[ROLE_ELB])
    }
    fn a2() -> Subnet {
        subnet("a0000002", "2a", &[ROLE_ELB])
    }
    fn a3() -> Subnet {
        subnet("a0000003", "2a", &[OURS, ROLE_INTERNAL_ELB])
    }
    fn b1() -> Subnet {
        subnet("b0000001", "2b", &[OURS, ROLE_ELB])
    }
    fn b2() -> Subnet {
        subnet("b0000002", "2b", &[OURS, ROLE_INTERNAL_ELB])
    }
    fn c1() -> Subnet {
        subnet("c0000001", "2c", &[OURS, ROLE_INTERNAL_ELB])
    }
    fn plain() -> Subnet {
        subnet("c0000000", "2c", &[])
    }
    fn other() -> Subnet {
        subnet("c000000x", "2c", &[OTHER])
    }

    fn main_table(public: bool) -> Vec<RouteTable> {
        vec![RouteTable {
            main: true,
            subnets: BTreeSet::new(),
            public,
        }]
    }

    fn pick(
        subnets: &[Subnet],
        tables: &[RouteTable],
        internal: bool,
    ) -> Result<Vec<String>, String> {
        pick_beside(subnets, tables, internal, &[])
    }

    fn pick_beside(
        subnets: &[Subnet],
        tables: &[RouteTable],
        internal: bool,
        attached: &[&str],
    ) -> Result<Vec<String>, String> {
        let zones = ["2a", "2b", "2c"]
            .into_iter()
            .map(|z| (z.to_owned(), "availability-zone".to_owned()))
            .chain([("lax-1a".to_owned(), "local-zone".to_owned())])
            .chain([("wl1".to_owned(), "wavelength-zone".to_owned())])
            .collect();
        let tags = ClusterTags::new("", "cl1").unwrap().unwrap();
        let network = Network {
            subnets,
            tables,
            zones: &zones,
            tags: &tags,
            fallback: Some("subnet-c000000x"),
            attached: &attached.iter().map(|id| format!("subnet-{id}")).collect(),
        };
        discover(network, internal)
            .map(|found| {
                found
                    .iter()
                    .map(|s| s.id["subnet-".len()..].to_owned())
                    .collect()
            })
            .map_err(|error| error.to_string())
    }

    /// REQ-AWS-SUB-2, REQ-AWS-SUB-4, REQ-AWS-SUB-5, REQ-AWS-SUB-6, REQ-AWS-SUB-7, REQ-AWS-SUB-9,
    /// REQ-AWS-SUB-10, REQ-AWS-SUB-11, REQ-AWS-SUB-12, REQ-AWS-SUB-13
    #[test]
    fn each_zone_gets_its_best_public_subnet() {
        let local = subnet("l0000001", "lax-1a", &[ROLE_ELB]);
        let wavelength = subnet("w0000001", "wl1", &[ROLE_ELB]);
        let unknown = subnet("u0000001", "new-zone", &[ROLE_ELB]);
        for (subnets, want) in [
            (vec![a1()], vec!["a0000001"]),
            (vec![a3(), a1()], vec!["a0000001"]),
            (vec![plain(), c1()], vec!["c0000001"]),
            (vec![a1(), plain()], vec!["a0000001", "c0000000"]),
            (vec![b1(), other()], vec!["b0000001"]),
            (vec![a2(), a1()], vec!["a0000001"]),
            (
                vec![a1(), a2(), b1(), b2(), c1(), plain(), other()],
                vec!["a0000001", "b0000001", "c0000001"],
            ),
            (
                vec![a1(), b1(), c1(), local, wavelength],
                vec!["a0000001", "b0000001", "c0000001"],
            ),
            (vec![a1(), unknown], vec!["a0000001", "u0000001"]),
            (vec![other()], vec!["c000000x"]),
        ] {
            assert_eq!(pick(&subnets, &main_table(true), false).unwrap(), want);
        }
    }

    #[test]
    fn among_equal_subnets_one_with_free_addresses_is_taken() {
        let mut full = a1();
        full.free_addresses = 3;
        assert_eq!(
            pick(&[full, a2()], &main_table(true), false).unwrap(),
            ["a0000002"]
        );
    }

    /// REQ-AWS-SUB-1, REQ-AWS-SUB-3, REQ-AWS-SUB-14
    #[test]
    fn an_internet_facing_load_balancer_needs_a_public_subnet() {
        let none = "could not find any suitable subnets for creating the ELB";
        assert_eq!(pick(&[], &main_table(true), false).unwrap_err(), none);
        assert_eq!(pick(&[a1()], &main_table(false), false).unwrap_err(), none);
        let mut tables = main_table(true);
        tables.push(RouteTable {
            main: false,
            subnets: BTreeSet::from(["subnet-a0000001".to_owned()]),
            public: false,
        });
        assert_eq!(pick(&[a1()], &tables, false).unwrap_err(), none);
    }

    /// CASE-LB-26
    #[test]
    fn what_is_attached_stays_in_its_zone_while_it_is_a_candidate() {
        let all = [a1(), a3(), b1(), plain(), other()];
        let main = main_table(true);
        let pick = |attached: &[&str]| pick_beside(&all, &main, false, attached).unwrap();
        assert_eq!(pick(&["a0000003"]), ["a0000003", "b0000001", "c0000000"]);
        assert_eq!(pick(&["c000000x"]), ["a0000001", "b0000001", "c0000000"]);
        let gone = pick_beside(&all, &main_table(false), false, &["a0000003"]);
        assert!(gone.is_err(), "a private one is no candidate");
    }

    /// REQ-AWS-SUB-8
    #[test]
    fn an_internal_load_balancer_prefers_the_internal_role() {
        assert_eq!(
            pick(&[b1(), b2()], &main_table(false), true).unwrap(),
            ["b0000002"]
        );
    }

    /// REQ-AWS-SUB-15, REQ-AWS-SUB-25
    #[test]
    fn a_subnet_without_route_table_fails_the_discovery() {
        for internal in [false, true] {
            assert_eq!(
                pick(&[a1()], &[], internal).unwrap_err(),
                "could not locate routing table for subnet subnet-a0000001"
            );
        }
    }

    /// REQ-AWS-SUB-16, REQ-AWS-SUB-17, REQ-AWS-SUB-18, REQ-AWS-SUB-19, REQ-AWS-SUB-20,
    /// REQ-AWS-SUB-24
    #[test]
    fn named_subnets_keep_the_order_of_the_annotation() {
        let mut one = a1();
        one.tags.insert("Name".to_owned(), "My Subnet 1".to_owned());
        let all = [one, b1(), c1()];
        let pick = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            named(&all, &names)
                .map(|found| found.iter().map(|s| s.id.clone()).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            pick(&["subnet-b0000001", "My Subnet 1"]).unwrap(),
            ["subnet-b0000001", "subnet-a0000001"]
        );
        assert_eq!(
            pick(&[]).unwrap_err(),
            "unable to resolve empty subnet slice"
        );
        assert_eq!(
            pick(&["My Subnet 1", "x", "y"]).unwrap_err(),
            "expected to find 3, but found 1 subnets"
        );
        assert_eq!(
            pick(&["subnet-b0000001", "subnet-elsewhere"]).unwrap_err(),
            "expected to find 2, but found 1 subnets"
        );
    }
}
