//! A cloud in memory: machines with state, faults, and a record of the questions.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use ccm_core::{
    cloud::{
        Class, CloudError, CloudResult, InstanceMetadata, Instances, Power, Presence, ProviderId,
        Read,
    },
    kube::Node,
};
use k8s_openapi::api::core::v1::NodeAddress;
use tokio::time::Instant;

/// `Int 10.0.0.1, Host h` in short.
pub fn addresses(text: &str) -> Vec<NodeAddress> {
    text.split(", ")
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (kind, address) = part.split_once(' ').unwrap();
            let type_ = match kind {
                "Int" => "InternalIP",
                "Ext" => "ExternalIP",
                "Host" => "Hostname",
                other => panic!("{other}"),
            };
            NodeAddress {
                type_: type_.to_owned(),
                address: address.to_owned(),
            }
        })
        .collect()
}

#[derive(Clone, Debug)]
pub struct Machine {
    /// `None`: the provider leaves the Node alone.
    pub metadata: Option<InstanceMetadata>,
    pub power: Power,
}

impl Machine {
    /// A running machine with an id, one address, type, zone and region.
    pub fn running(id: &str) -> Self {
        Self {
            metadata: Some(InstanceMetadata {
                provider_id: Some(ProviderId::new(id).unwrap()),
                instance_type: "m6.large".to_owned(),
                addresses: addresses("Int 10.0.0.1"),
                zone: "z-1".to_owned(),
                region: "r-1".to_owned(),
                additional_labels: BTreeMap::new(),
            }),
            power: Power::Running,
        }
    }

    pub fn with(mut self, change: impl FnOnce(&mut InstanceMetadata)) -> Self {
        change(self.metadata.as_mut().unwrap());
        self
    }

    pub fn at(self, list: &str) -> Self {
        self.with(|metadata| metadata.addresses = addresses(list))
    }

    pub fn power(mut self, power: Power) -> Self {
        self.power = power;
        self
    }
}

/// One question to the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// `metadata`, `shared` or `direct`.
    pub kind: &'static str,
    pub nodes: Vec<String>,
    pub at: Instant,
}

type Hook = Arc<dyn Fn(&Question) + Send + Sync>;

struct State {
    machines: BTreeMap<String, Machine>,
    invisible_until: BTreeMap<String, Instant>,
    omitted_by_lists: BTreeSet<String>,
    failures: BTreeMap<&'static str, VecDeque<Class>>,
    failing_nodes: BTreeMap<String, Class>,
    questions: Vec<Question>,
    latency: BTreeMap<&'static str, Duration>,
    in_flight: usize,
    most_in_flight: usize,
    hook: Option<Hook>,
    batch_size: usize,
    has_provider_ids: bool,
}

pub struct FakeCloud(Mutex<State>);

impl Default for FakeCloud {
    fn default() -> Self {
        Self(Mutex::new(State {
            machines: BTreeMap::new(),
            invisible_until: BTreeMap::new(),
            omitted_by_lists: BTreeSet::new(),
            failures: BTreeMap::new(),
            failing_nodes: BTreeMap::new(),
            questions: Vec::new(),
            latency: BTreeMap::new(),
            in_flight: 0,
            most_in_flight: 0,
            hook: None,
            batch_size: 100,
            has_provider_ids: true,
        }))
    }
}

impl FakeCloud {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The machine behind the Node of that name.
    pub fn put(&self, node: &str, machine: Machine) {
        self.state().machines.insert(node.to_owned(), machine);
    }

    pub fn power(&self, node: &str, power: Power) {
        self.state().machines.get_mut(node).unwrap().power = power;
    }

    pub fn terminate(&self, node: &str) {
        self.state().machines.remove(node);
    }

    /// Eventual consistency: reads do not show the machine before this time has passed.
    pub fn hide(&self, node: &str, time: Duration) {
        self.state()
            .invisible_until
            .insert(node.to_owned(), Instant::now() + time);
    }

    /// Batch reads leave the machine out, direct reads find it.
    pub fn omit_from_lists(&self, node: &str) {
        self.state().omitted_by_lists.insert(node.to_owned());
    }

    /// The next questions of this kind fail as a whole.
    pub fn fail(&self, kind: &'static str, classes: &[Class]) {
        self.state()
            .failures
            .entry(kind)
            .or_default()
            .extend(classes);
    }

    /// Every answer about this Node is this error; `None` ends it.
    pub fn fail_for(&self, node: &str, class: Option<Class>) {
        let mut state = self.state();
        match class {
            Some(class) => state.failing_nodes.insert(node.to_owned(), class),
            None => state.failing_nodes.remove(node),
        };
    }

    pub fn latency(&self, kind: &'static str, latency: Duration) {
        self.state().latency.insert(kind, latency);
    }

    /// Is called with each question, before it is answered.
    pub fn on_question(&self, hook: impl Fn(&Question) + Send + Sync + 'static) {
        self.state().hook = Some(Arc::new(hook));
    }

    pub fn batch_size(&self, size: usize) {
        self.state().batch_size = size;
    }

    pub fn without_provider_ids(&self) {
        self.state().has_provider_ids = false;
    }

    pub fn questions(&self, kind: &str) -> Vec<Question> {
        let state = self.state();
        state
            .questions
            .iter()
            .filter(|q| q.kind == kind)
            .cloned()
            .collect()
    }

    /// How many questions there were so far.
    pub fn asked(&self) -> usize {
        self.state().questions.len()
    }

    pub fn most_in_flight(&self) -> usize {
        self.state().most_in_flight
    }

    /// Records the question, waits, and says whether it fails as a whole.
    async fn ask(&self, kind: &'static str, nodes: &[Arc<Node>]) -> Option<Class> {
        // A provider never sends a malformed id to the cloud.
        let nodes: Vec<String> = nodes
            .iter()
            .filter(|node| malformed(node).is_none())
            .map(|node| node.name().to_owned())
            .collect();
        if nodes.is_empty() {
            return None;
        }
        let question = Question {
            kind,
            nodes,
            at: Instant::now(),
        };
        let (latency, hook, failure) = {
            let mut state = self.state();
            state.questions.push(question.clone());
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
            (
                state.latency.get(kind).copied(),
                state.hook.clone(),
                state.failures.get_mut(kind).and_then(VecDeque::pop_front),
            )
        };
        if let Some(hook) = hook {
            hook(&question);
        }
        if let Some(latency) = latency {
            tokio::time::sleep(latency).await;
        }
        self.state().in_flight -= 1;
        failure
    }

    /// The machine as a read of that kind shows it.
    fn find(&self, node: &Node, kind: &str) -> CloudResult<Option<Machine>> {
        if let Some(error) = malformed(node) {
            return Err(error);
        }
        let state = self.state();
        let name = node.name();
        if let Some(class) = state.failing_nodes.get(name) {
            return Err(CloudError::new(*class, "injected for this machine"));
        }
        let hidden = state
            .invisible_until
            .get(name)
            .is_some_and(|until| Instant::now() < *until);
        if hidden || (kind == "shared" && state.omitted_by_lists.contains(name)) {
            return Ok(None);
        }
        Ok(state.machines.get(name).cloned())
    }
}

fn malformed(node: &Node) -> Option<CloudError> {
    let id = node.provider_id()?;
    let good = id
        .strip_prefix("sim://")
        .is_some_and(|rest| !rest.is_empty());
    (!good)
        .then(|| CloudError::invalid(format!("spec.providerID {id:?} is not of the form sim://…")))
}

fn failed(class: Class) -> CloudError {
    CloudError::new(class, "injected")
}

#[async_trait]
impl Instances for FakeCloud {
    async fn presence(&self, nodes: &[Arc<Node>], read: Read) -> Vec<CloudResult<Presence>> {
        let kind = match read {
            Read::Shared => "shared",
            Read::Direct => "direct",
        };
        let failure = self.ask(kind, nodes).await;
        nodes
            .iter()
            .map(|node| match failure {
                Some(class) => Err(failed(class)),
                None => Ok(match self.find(node, kind)? {
                    Some(machine) => Presence::Present(machine.power),
                    None => Presence::Absent,
                }),
            })
            .collect()
    }

    async fn metadata(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        let failure = self.ask("metadata", nodes).await;
        nodes
            .iter()
            .map(|node| match failure {
                Some(class) => Err(failed(class)),
                None => match self.find(node, "metadata")? {
                    Some(machine) => Ok(machine.metadata),
                    None => Err(CloudError::new(Class::NotFound, "instance not found")),
                },
            })
            .collect()
    }

    fn has_provider_ids(&self) -> bool {
        self.state().has_provider_ids
    }

    fn batch_size(&self) -> usize {
        self.state().batch_size
    }
}
