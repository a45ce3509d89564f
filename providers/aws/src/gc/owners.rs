//! Which Service claims what in the cloud. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::{
    cloud::Owners,
    controllers::service::predicates::{
        has_cleanup_finalizer, is_load_balancer, wants_load_balancer,
    },
    kube::Service,
};

use crate::{
    annotations::{self, Flavour},
    load_balancer::{
        preflight::{managed_group, name, own_ports, service_key},
        settings::Settings,
    },
};

/// Characters of the hash at the end of a computed name.
const HASH: usize = 10;

/// What a Service says about a load balancer that was made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The controller looks after it, or is about to remove it.
    Owns,
    /// Another controller serves the Service by now, for this reason: the load balancer may have
    /// been detached on purpose.
    Released(&'static str),
    /// Nobody does, for this reason.
    Nobody(String),
}

/// The claims of all Services.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_load_balancer: BTreeMap<String, Claim>,
    by_service: BTreeMap<String, Claim>,
    /// Beginnings of the names of security groups that are claimed.
    group_stems: BTreeSet<String>,
    /// Security groups that users gave to their Services.
    given_groups: BTreeSet<String>,
    /// Node ports and health check ports that are somebody's.
    ports: BTreeSet<i32>,
}

impl Claims {
    pub(super) fn of(owners: Owners<'_>, settings: &Settings) -> Self {
        let mut claims = Self::default();
        for service in owners.services {
            let claim = claim(service);
            if !matches!(claim, Claim::Nobody(_)) {
                let group = managed_group(service, settings);
                claims.group_stems.insert(stem(&group).to_owned());
            }
            // The ports of a Service that another controller serves are none of ours to keep open:
            // the controller's own removal closes them too.
            if claim == Claim::Owns {
                claims.ports.extend(own_ports(service));
            }
            let given = [
                &annotations::SECURITY_GROUPS,
                &annotations::EXTRA_SECURITY_GROUPS,
            ];
            for annotation in given {
                // One that cannot be read claims nothing more.
                let groups = annotation.get(service).ok().flatten().unwrap_or_default();
                claims.given_groups.extend(groups);
            }
            if let Ok(name) = name(service) {
                claims
                    .by_load_balancer
                    .insert(name.to_string(), claim.clone());
            }
            claims.by_service.insert(service_key(service), claim);
        }
        claims
    }

    /// What is said about the load balancer of that name, which was made for the Service of that
    /// key.
    pub(super) fn of_load_balancer(&self, name: &str, service: &str) -> Claim {
        match self.by_load_balancer.get(name) {
            Some(claim) => claim.clone(),
            None if self.by_service.contains_key(service) => Claim::Nobody(format!(
                "Service {service} was made anew since and has another load balancer"
            )),
            None => Claim::Nobody(format!(
                "there is no Service {service} of type LoadBalancer"
            )),
        }
    }

    /// What is said about something that is only known to be made for the Service of that key.
    pub(super) fn of_service(&self, service: &str) -> Claim {
        self.by_service.get(service).cloned().unwrap_or_else(|| {
            Claim::Nobody(format!(
                "there is no Service {service} of type LoadBalancer"
            ))
        })
    }

    /// Whether a Service has something to do with the load balancer of that name.
    pub(super) fn claims(&self, load_balancer: &str) -> bool {
        self.by_load_balancer
            .get(load_balancer)
            .is_some_and(|claim| !matches!(claim, Claim::Nobody(_)))
    }

    /// Whether a Service claims the security group of that id and name.
    pub(super) fn claims_group(&self, id: &str, name: &str) -> bool {
        self.given_groups.contains(id) || self.group_stems.contains(stem(name))
    }

    /// Whether the port on the Nodes is somebody's.
    pub(super) fn claims_port(&self, port: i32) -> bool {
        self.ports.contains(&port)
    }
}

/// A computed name without its hash: another `--cluster-name` makes another hash.
fn stem(name: &str) -> &str {
    name.get(..name.len().saturating_sub(HASH)).unwrap_or(name)
}

fn claim(service: &Service) -> Claim {
    let elsewhere = annotations::flavour(service) == Flavour::Elsewhere;
    if elsewhere && is_load_balancer(service) {
        return Claim::Released("its annotation gives the Service to another controller");
    }
    // With the finalizer the controller has still to do with it, whatever the Service is by now.
    if wants_load_balancer(service) || has_cleanup_finalizer(service) {
        return Claim::Owns;
    }
    Claim::Nobody(format!(
        "Service {} is served by another controller: its class is {:?}",
        service_key(service),
        service
            .spec
            .load_balancer_class
            .as_deref()
            .unwrap_or_default()
    ))
}
