//! Making and removing one route.

use std::{collections::BTreeSet, sync::Arc};

use ccm_core::cloud::{Class, CloudError, CloudResult, Route, WantedRoute};
use ipnet::IpNet;

use super::{
    AwsRoutes,
    plan::{self, Occupant, Step, next_hop, step},
    table::Seen,
};
use crate::{
    api::{
        Instance,
        routes::{NextHop, TableRoute, Target},
    },
    instances::{Found, InstanceId, copy, no_answer},
};

/// How often a route is decided about: once by what is known, once more by what the cloud shows
/// after it refused, and once for whoever came between.
const TRIES: usize = 3;

/// EC2 has a route of this destination.
const EXISTS: &str = "RouteAlreadyExists";
/// EC2 has no route of this destination.
const MISSING: &str = "InvalidRoute.NotFound";
/// What ReplaceRoute says instead of [`MISSING`]; its other parameters are of our making.
const NOTHING_TO_REPLACE: &str = "InvalidParameterValue";

impl AwsRoutes {
    /// Makes a route, if it is not there.
    pub(super) async fn make(&self, wanted: &WantedRoute) -> CloudResult<()> {
        let cidr = &wanted.route.destination_cidr;
        let to = destination(cidr)?;
        let machine = self.machine(wanted).await?;
        let hop = next_hop(&machine);
        if !plan::forwards(&machine) {
            self.let_forward(&machine.id, &hop).await?;
        }
        let mut refused = None;
        for _ in 0..TRIES {
            let seen = self.table.look(&to).await?;
            let outcome = match self.decide(&seen, &machine.id).await? {
                Step::Done => return Ok(()),
                Step::Refuse(target) => return Err(occupied(&to, &seen.table, &target)),
                // Never after `decide`.
                Step::Ask(id) => return Err(occupied(&to, &seen.table, id.as_str())),
                Step::Create => self.put(&seen, to, &hop).await,
                Step::Clear => match self.clear(&seen, to).await {
                    Ok(()) => self.put(&seen, to, &hop).await,
                    error => error,
                },
                Step::Replace => self.replace(&seen, to, &hop).await,
            };
            match outcome {
                Ok(()) => {
                    let made = route_to(&machine.id, &hop);
                    self.table.absorb(to, Some(made)).await;
                    return Ok(());
                }
                Err(error) if [Some(EXISTS), Some(MISSING)].contains(&error.code()) => {
                    self.table.doubt().await;
                    refused = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or_else(no_answer))
    }

    /// Removes a route that was listed.
    pub(super) async fn remove(&self, route: &Route) -> CloudResult<()> {
        let to = destination(&route.destination_cidr)?;
        let seen = self.table.look(&to).await?;
        match &seen.route {
            None => return Ok(()),
            Some(have) => {
                let changed =
                    matches!(have.target, Target::Other(_)) || (route.blackhole && !have.blackhole);
                if changed {
                    return Err(occupied(&to, &seen.table, &name(&have.target)));
                }
            }
        }
        let answer = self.api.delete_route(&seen.table, to).await;
        self.settle(to, answer)
            .await
            .map_err(|error| quoted("error deleting AWS route", &to, error))
    }

    /// The next step, with what is known of the machine in the way.
    async fn decide(&self, seen: &Seen, machine: &InstanceId) -> CloudResult<Step> {
        let have = seen.route.as_ref();
        let first = step(have, machine, seen.serving, Occupant::Unknown);
        let Step::Ask(other) = first else {
            return Ok(first);
        };
        let found = self.describer.by_ids(BTreeSet::from([other.clone()])).await;
        let occupant = match answer(found.into_values().next())? {
            Some(found) if !self.cluster.has_cluster_tag(&found.tags) => Occupant::Foreign,
            _ => Occupant::Removable,
        };
        Ok(step(have, machine, seen.serving, occupant))
    }

    async fn put(&self, seen: &Seen, to: IpNet, hop: &NextHop) -> CloudResult<()> {
        let answer = self.api.create_route(&seen.table, to, hop).await;
        let Err(error) = answer else { return Ok(()) };
        self.doubt_unless_refused(&error).await;
        let error = quoted("error creating AWS route", &to, error);
        Err(match error.class() {
            Class::Quota => error.map_message(|text| {
                format!(
                    "{text}; route table {} is full: raise the Amazon VPC quota \"Routes per route \
                     table\"",
                    seen.table
                )
            }),
            _ => error,
        })
    }

    async fn clear(&self, seen: &Seen, to: IpNet) -> CloudResult<()> {
        let answer = self.api.delete_route(&seen.table, to).await;
        self.settle(to, answer)
            .await
            .map_err(|error| quoted("error deleting blackholed AWS route", &to, error))
    }

    /// In one call, or in two where that one is not allowed.
    async fn replace(&self, seen: &Seen, to: IpNet, hop: &NextHop) -> CloudResult<()> {
        if self.replace.is_allowed() {
            let answer = self.api.replace_route(&seen.table, to, hop).await;
            if let Err(error) = &answer {
                self.doubt_unless_refused(error).await;
            }
            let answer = self.replace.check("ReplaceRoute", answer);
            let answer = answer.map_err(|error| match error.code() {
                Some(NOTHING_TO_REPLACE) => error.with_code(MISSING),
                _ => error,
            });
            let replaced = answer.map_err(|e| quoted("error replacing AWS route", &to, e))?;
            if replaced.is_some() {
                return Ok(());
            }
        }
        let answer = self.api.delete_route(&seen.table, to).await;
        self.settle(to, answer)
            .await
            .map_err(|error| quoted("error deleting AWS route", &to, error))?;
        self.put(seen, to, hop).await
    }

    /// What the answer to a removal means. A route that is gone counts as removed.
    async fn settle(&self, to: IpNet, answer: CloudResult<()>) -> CloudResult<()> {
        match answer {
            Err(error) if error.code() != Some(MISSING) => {
                self.doubt_unless_refused(&error).await;
                Err(error)
            }
            _ => {
                self.table.absorb(to, None).await;
                Ok(())
            }
        }
    }

    /// A call without answer may have had its effect; a table that is gone must be found anew.
    async fn doubt_unless_refused(&self, error: &CloudError) {
        if error.code().is_none() || error.is_not_found() {
            self.table.doubt().await;
        }
    }

    async fn let_forward(&self, machine: &InstanceId, hop: &NextHop) -> CloudResult<()> {
        let Err(error) = self.api.let_forward(hop).await else {
            return Ok(());
        };
        let error = error.map_message(|text| {
            format!("error configuring source-dest-check on instance {machine}: {text:?}")
        });
        Err(match (error.class(), hop) {
            (Class::Denied, NextHop::Interface(interface)) => error.map_message(|text| {
                format!(
                    "{text}; the instance has several interfaces: allow \
                     ec2:ModifyNetworkInterfaceAttribute, or switch the check of {interface} off"
                )
            }),
            _ => error,
        })
    }

    /// The machine behind the Node.
    async fn machine(&self, wanted: &WantedRoute) -> CloudResult<Arc<Instance>> {
        let node = &wanted.route.target_node;
        let id = match &wanted.provider_id {
            Some(text) => Some(InstanceId::from_provider_id(text)?),
            None => InstanceId::from_node_name(node),
        };
        let found = match id {
            Some(id) if id.is_fargate() => {
                return Err(CloudError::invalid(format!(
                    "Node {node} runs on Fargate, which has no routes"
                )));
            }
            Some(id) => {
                let found = self.describer.by_ids(BTreeSet::from([id])).await;
                answer(found.into_values().next())?
            }
            None => {
                let names = BTreeSet::from([node.clone()]);
                let found = self.describer.by_names(names).await;
                answer(found.into_values().next())?
            }
        };
        found.ok_or_else(|| {
            CloudError::new(
                Class::NotFound,
                format!("instance not found: EC2 shows none for Node {node}"),
            )
        })
    }
}

fn answer(found: Option<Result<Found, Arc<CloudError>>>) -> CloudResult<Found> {
    match found {
        Some(Ok(found)) => Ok(found),
        Some(Err(error)) => Err(copy(&error)),
        None => Err(no_answer()),
    }
}

fn destination(cidr: &str) -> CloudResult<IpNet> {
    let net: Result<IpNet, _> = cidr.parse();
    net.map(|net| net.trunc())
        .map_err(|_| CloudError::invalid(format!("{cidr:?} is not a range of addresses")))
}

fn route_to(machine: &InstanceId, hop: &NextHop) -> TableRoute {
    let interface = match hop {
        NextHop::Instance(_) => None,
        NextHop::Interface(id) => Some(id.clone()),
    };
    TableRoute {
        target: Target::Machine {
            instance: Some(machine.clone()),
            interface,
        },
        blackhole: false,
    }
}

fn name(target: &Target) -> String {
    match target {
        Target::Machine {
            instance: Some(instance),
            ..
        } => instance.to_string(),
        Target::Machine { interface, .. } => interface.clone().unwrap_or_default(),
        Target::Other(target) => target.clone(),
    }
}

/// A route in the way that is not ours to remove.
fn occupied(to: &IpNet, table: &str, target: &str) -> CloudError {
    CloudError::new(
        Class::Conflict,
        format!(
            "route {to} of table {table} leads to {target}; it is left alone: remove it, or take \
             the range out of --cluster-cidr"
        ),
    )
}

/// The words of the Go manager.
fn quoted(what: &str, to: &IpNet, error: CloudError) -> CloudError {
    error.map_message(|text| format!("{what} ({to}): {text:?}"))
}
