//! What the cloud in memory consists of, and the rules it keeps by itself.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::cloud::{Class, CloudError, CloudResult};

use crate::objects::is_of_pods;

/// The owner tag of what belongs to another cluster or to people.
pub const FOREIGN: &str = "somebody-else";

/// The name of the machine that belongs to other people.
pub const FOREIGN_MACHINE: &str = "of-somebody-else";

/// What a machine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Running.
    Running,
    /// Shut down.
    Stopped,
}

/// A machine that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The cloud's id, never used twice.
    pub id: String,
    /// Its name: that of its Node.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// Its address.
    pub ip: String,
    /// The ranges of its pods, one a family, where the cloud hands them out.
    pub ranges: Vec<String>,
}

impl Machine {
    /// The id as it stands in a Node.
    pub fn provider_id(&self) -> String {
        format!("mem:///{}", self.id)
    }
}

/// The parts of a load balancer, in the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartKind {
    /// A public address.
    Address,
    /// A rule that lets clients in.
    Firewall,
    /// The machines behind it.
    Backends,
    /// What listens on the address and hands to the machines.
    Head,
}

impl PartKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Address, Self::Firewall, Self::Backends, Self::Head];

    /// As in the names of the calls.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Firewall => "firewall",
            Self::Backends => "backends",
            Self::Head => "head",
        }
    }
}

/// One port of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Where it listens.
    pub port: i32,
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// Where it leads on each machine.
    pub node_port: i32,
}

/// What a part is made to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// An address; the cloud chooses it.
    Address {
        /// Whether it has one of the second family as well.
        dual: bool,
    },
    /// Ports and the ranges of clients.
    Firewall {
        /// The ports.
        ports: Vec<i32>,
        /// The ranges.
        ranges: Vec<String>,
    },
    /// Provider ids of the machines.
    Backends {
        /// The machines.
        members: BTreeSet<String>,
    },
    /// Ports, and the names of the address and the backends.
    Head {
        /// The ports.
        ports: Vec<Port>,
        /// The name of its address.
        address: String,
        /// The name of its backends.
        backends: String,
    },
}

impl Spec {
    /// Which kind of part it describes.
    pub const fn kind(&self) -> PartKind {
        match self {
            Self::Address { .. } => PartKind::Address,
            Self::Firewall { .. } => PartKind::Firewall,
            Self::Backends { .. } => PartKind::Backends,
            Self::Head { .. } => PartKind::Head,
        }
    }
}

/// A part that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name, unique in its kind.
    pub name: String,
    /// The UID of the Service it was made for, as its tag says; [`FOREIGN`] for other people's.
    pub owner: String,
    /// What it is.
    pub spec: Spec,
    /// The address that the cloud chose; empty for other kinds.
    pub ip: String,
    /// The address of the second family; empty without one.
    pub ip6: String,
}

impl Part {
    /// Whether the address is this part's.
    pub fn has_ip(&self, ip: &str) -> bool {
        !ip.is_empty() && [self.ip.as_str(), self.ip6.as_str()].contains(&ip)
    }
}

/// A route that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRoute {
    /// Its name, unique.
    pub name: String,
    /// From which range.
    pub cidr: String,
    /// The id of the machine it leads to.
    pub machine: String,
}

/// Everything in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// The machines by id.
    pub machines: BTreeMap<String, Machine>,
    /// The parts of load balancers by kind and name.
    pub parts: BTreeMap<(PartKind, String), Part>,
    /// The route table by name.
    pub routes: BTreeMap<String, TableRoute>,
    made: u32,
}

impl Model {
    fn number(&mut self) -> u32 {
        self.made += 1;
        self.made
    }

    /// A new running machine.
    pub fn launch(&mut self, name: &str) -> Machine {
        let number = self.number();
        let machine = Machine {
            id: format!("m-{number:04}"),
            name: name.to_owned(),
            state: State::Running,
            ip: format!("10.0.{}.{}", number / 250, number % 250 + 1),
            ranges: vec![
                format!("10.244.{}.0/24", number % 256),
                format!("fd00:10:244:{number:x}::/64"),
            ],
        };
        self.machines.insert(machine.id.clone(), machine.clone());
        machine
    }

    /// The machine of that name.
    pub fn machine_named(&self, name: &str) -> Option<&Machine> {
        self.machines.values().find(|machine| machine.name == name)
    }

    /// The machine of a provider id.
    pub fn machine_of(&self, provider_id: &str) -> Option<&Machine> {
        self.machines.get(provider_id.strip_prefix("mem:///")?)
    }

    /// The part of a name.
    pub fn part(&self, kind: PartKind, name: &str) -> Option<&Part> {
        self.parts.get(&(kind, name.to_owned()))
    }

    /// The parts made for a Service.
    pub fn parts_of<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = &'a Part> {
        self.parts.values().filter(move |part| part.owner == owner)
    }

    /// Makes a part.
    ///
    /// # Errors
    /// `Conflict` when the name is taken, `NotFound` when it refers to what is not there.
    pub fn create(&mut self, name: &str, owner: &str, spec: Spec) -> CloudResult<Part> {
        let key = (spec.kind(), name.to_owned());
        if self.parts.contains_key(&key) {
            return Err(CloudError::new(
                Class::Conflict,
                format!("{} {name} exists already", spec.kind().as_str()),
            )
            .with_code("AlreadyExists"));
        }
        self.check_references(&spec)?;
        let (mut ip, mut ip6) = (String::new(), String::new());
        if let Spec::Address { dual } = spec {
            let number = self.number();
            ip = format!("198.51.{}.{}", 100 + number / 250, number % 250 + 1);
            if dual {
                ip6 = format!("2001:db8::{number:x}");
            }
        }
        let part = Part {
            name: name.to_owned(),
            owner: owner.to_owned(),
            spec,
            ip,
            ip6,
        };
        self.parts.insert(key, part.clone());
        Ok(part)
    }

    /// Changes a part in place.
    ///
    /// # Errors
    /// `NotFound` when it, or what it refers to, is not there.
    pub fn change(&mut self, name: &str, spec: Spec) -> CloudResult<Part> {
        self.check_references(&spec)?;
        let kind = spec.kind();
        let number = self.number();
        let part = self.parts.get_mut(&(kind, name.to_owned()));
        let part = part.ok_or_else(|| not_found(kind, name))?;
        match spec {
            Spec::Address { dual: true } if part.ip6.is_empty() => {
                part.ip6 = format!("2001:db8::{number:x}");
            }
            Spec::Address { dual: false } => part.ip6.clear(),
            _ => {}
        }
        part.spec = spec;
        Ok(part.clone())
    }

    /// Deletes a part.
    ///
    /// # Errors
    /// `NotFound` when it is not there, `Conflict` while a head refers to it.
    pub fn delete(&mut self, kind: PartKind, name: &str) -> CloudResult<()> {
        let key = (kind, name.to_owned());
        if !self.parts.contains_key(&key) {
            return Err(not_found(kind, name));
        }
        let in_use = self.parts.values().any(|part| match &part.spec {
            Spec::Head {
                address, backends, ..
            } => {
                (kind == PartKind::Address && address == name)
                    || (kind == PartKind::Backends && backends == name)
            }
            _ => false,
        });
        if in_use {
            let text = format!("{} {name} is in use", kind.as_str());
            return Err(CloudError::new(Class::Conflict, text).with_code("InUse"));
        }
        self.parts.remove(&key);
        Ok(())
    }

    /// Makes a route to a Node's machine. The same route again is success, another one under the
    /// name is replaced.
    ///
    /// # Errors
    /// `NotFound` when there is no such machine, `Conflict` when the range is routed by another
    /// route.
    pub fn add_route(
        &mut self,
        name: &str,
        cidr: &str,
        node: &str,
        provider_id: Option<&str>,
    ) -> CloudResult<()> {
        let machine = match provider_id {
            Some(id) => self.machine_of(id),
            None => self.machine_named(node),
        };
        let Some(machine) = machine else {
            let text = format!("no machine for {node}");
            return Err(CloudError::new(Class::NotFound, text));
        };
        let taken = |route: &TableRoute| route.cidr == cidr && route.name != name;
        if self.routes.values().any(taken) {
            let text = format!("a route from {cidr} exists already");
            return Err(CloudError::new(Class::Conflict, text).with_code("AlreadyExists"));
        }
        let route = TableRoute {
            name: name.to_owned(),
            cidr: cidr.to_owned(),
            machine: machine.id.clone(),
        };
        self.routes.insert(name.to_owned(), route);
        Ok(())
    }

    fn check_references(&self, spec: &Spec) -> CloudResult<()> {
        match spec {
            Spec::Head {
                address, backends, ..
            } => {
                for (kind, name) in [(PartKind::Address, address), (PartKind::Backends, backends)] {
                    if self.part(kind, name).is_none() {
                        return Err(not_found(kind, name));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Everything that is not this cluster's, for comparison.
    pub fn foreign(&self) -> Vec<String> {
        let parts = self.parts.values().filter(|part| part.owner == FOREIGN);
        let routes = self
            .routes
            .values()
            .filter(|route| !is_of_pods(&route.cidr));
        parts
            .map(|part| format!("{part:?}"))
            .chain(routes.map(|route| format!("{route:?}")))
            .collect()
    }
}

fn not_found(kind: PartKind, name: &str) -> CloudError {
    let text = format!("{} {name} does not exist", kind.as_str());
    CloudError::new(Class::NotFound, text).with_code("NotFound")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_head_refers_to_must_be_there_and_stays_while_it_does() {
        let mut model = Model::default();
        let head = Spec::Head {
            ports: Vec::new(),
            address: "a".to_owned(),
            backends: "a".to_owned(),
        };
        let class = |result: CloudResult<Part>| result.map_err(|error| error.class()).err();
        assert_eq!(
            class(model.create("a", "u", head.clone())),
            Some(Class::NotFound)
        );
        let members = BTreeSet::new();
        model
            .create("a", "u", Spec::Address { dual: false })
            .unwrap();
        model.create("a", "u", Spec::Backends { members }).unwrap();
        model.create("a", "u", head.clone()).unwrap();
        assert_eq!(class(model.create("a", "u", head)), Some(Class::Conflict));
        assert!(model.delete(PartKind::Address, "a").is_err());
        model.delete(PartKind::Head, "a").unwrap();
        model.delete(PartKind::Address, "a").unwrap();
        assert_eq!(model.parts_of("u").count(), 1);
    }
}
