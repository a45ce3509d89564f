//! A cloud in memory: load balancers by Service UID, a call log, scripted faults, slow calls.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use ccm_core::{
    cloud::{CloudError, CloudResult, Ensured, LoadBalancers, Note, Updated},
    kube::{LoadBalancerIngress, LoadBalancerStatus, Node, Service},
};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    Get,
    Ensure,
    Update,
    Delete,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    pub at: Instant,
    pub op: Op,
    pub service: String,
    pub nodes: Vec<String>,
    pub ports: Vec<i32>,
    /// What a load balancer is made from beside its ports.
    pub wish: Wish,
}

/// What a Service asks for beside its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    pub families: Vec<String>,
    pub affinity: String,
    pub affinity_seconds: Option<i32>,
    pub protocols: Vec<Option<String>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Balancer {
    pub service: String,
    pub address: String,
    /// Name and provider id.
    pub nodes: BTreeMap<String, String>,
    pub ports: Vec<i32>,
}

type Fault = Box<dyn Fn() -> CloudError + Send>;

#[derive(Default)]
pub struct State {
    pub balancers: BTreeMap<String, Balancer>,
    pub calls: Vec<Call>,
    faults: BTreeMap<Op, VecDeque<Fault>>,
    always: BTreeMap<(Op, String), Fault>,
    pub slow: BTreeMap<Op, Duration>,
    /// Names of Services that another controller answers for.
    pub elsewhere: BTreeSet<String>,
    pub notes: Vec<Note>,
    pub ip_mode: Option<String>,
    pub labels_matter: bool,
    addresses: u8,
    mutating: BTreeSet<String>,
    /// Mutations that began while another one of the same Service was under way.
    pub overlaps: usize,
    ensuring: usize,
    /// The most ensures under way at once.
    pub most_ensuring: usize,
}

#[derive(Default)]
pub struct Cloud(Mutex<State>);

impl Cloud {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The next call of this kind fails.
    pub fn fail_next(&self, op: Op, error: impl Fn() -> CloudError + Send + 'static) {
        self.lock()
            .faults
            .entry(op)
            .or_default()
            .push_back(Box::new(error));
    }

    /// Every call of this kind for this Service fails until [`heal`](Self::heal).
    pub fn fail_always(
        &self,
        op: Op,
        service: &str,
        error: impl Fn() -> CloudError + Send + 'static,
    ) {
        self.lock()
            .always
            .insert((op, service.to_owned()), Box::new(error));
    }

    pub fn heal(&self) {
        self.lock().always.clear();
    }

    pub fn slow(&self, op: Op, by: Duration) {
        self.lock().slow.insert(op, by);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// How many calls of this kind there were for this Service.
    pub fn count(&self, op: Op, service: &str) -> usize {
        let calls = self.calls();
        calls
            .iter()
            .filter(|call| call.op == op && call.service == service)
            .count()
    }

    pub fn forget_calls(&self) {
        self.lock().calls.clear();
    }

    pub fn balancers(&self) -> Vec<Balancer> {
        self.lock().balancers.values().cloned().collect()
    }

    pub fn balancer(&self, service: &str) -> Option<Balancer> {
        let all = self.balancers();
        all.into_iter().find(|lb| lb.service == service)
    }

    fn begin(
        &self,
        op: Op,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> (Duration, Option<CloudError>) {
        let mut state = self.lock();
        state.calls.push(Call {
            at: Instant::now(),
            op,
            service: service.name().to_owned(),
            nodes: nodes.iter().map(|node| node.name().to_owned()).collect(),
            ports: ports(service),
            wish: wish(service),
        });
        let fault = state.faults.get_mut(&op).and_then(VecDeque::pop_front);
        let always = state.always.get(&(op, service.name().to_owned()));
        let error = fault.map(|f| f()).or_else(|| always.map(|f| f()));
        let wait = state.slow.get(&op).copied().unwrap_or_default();
        if op != Op::Get && !state.mutating.insert(service.uid().to_owned()) {
            state.overlaps += 1;
        }
        if op == Op::Ensure {
            state.ensuring += 1;
            state.most_ensuring = state.most_ensuring.max(state.ensuring);
        }
        (wait, error)
    }

    fn end(&self, op: Op, service: &Service) {
        let mut state = self.lock();
        if op != Op::Get {
            state.mutating.remove(service.uid());
        }
        if op == Op::Ensure {
            state.ensuring -= 1;
        }
    }

    async fn call(&self, op: Op, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<()> {
        let (wait, error) = self.begin(op, service, nodes);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        self.end(op, service);
        error.map_or(Ok(()), Err)
    }
}

fn ports(service: &Service) -> Vec<i32> {
    service.spec.ports.iter().map(|port| port.port).collect()
}

fn wish(service: &Service) -> Wish {
    let spec = &service.spec;
    let config = spec.session_affinity_config.as_ref();
    let client_ip = config.and_then(|config| config.client_ip.as_ref());
    Wish {
        families: spec.ip_families.clone(),
        affinity: spec.session_affinity.clone().unwrap_or_default(),
        affinity_seconds: client_ip.and_then(|client_ip| client_ip.timeout_seconds),
        protocols: spec.ports.iter().map(|p| p.app_protocol.clone()).collect(),
    }
}

fn targets(nodes: &[Arc<Node>]) -> BTreeMap<String, String> {
    let target = |node: &Arc<Node>| {
        let id = node.provider_id().unwrap_or_default();
        (node.name().to_owned(), id.to_owned())
    };
    nodes.iter().map(target).collect()
}

fn status(address: &str, mode: Option<String>) -> LoadBalancerStatus {
    LoadBalancerStatus {
        ingress: Some(vec![LoadBalancerIngress {
            ip: Some(address.to_owned()),
            ip_mode: mode,
            ..LoadBalancerIngress::default()
        }]),
    }
}

#[async_trait]
impl LoadBalancers for Cloud {
    async fn get(&self, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        self.call(Op::Get, service, &[]).await?;
        let state = self.lock();
        let found = state.balancers.get(service.uid());
        Ok(found.map(|lb| status(&lb.address, state.ip_mode.clone())))
    }

    async fn ensure(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Ensured> {
        self.call(Op::Ensure, service, nodes).await?;
        let mut state = self.lock();
        if state.elsewhere.contains(service.name()) {
            return Ok(Ensured::ImplementedElsewhere {
                notes: state.notes.clone(),
            });
        }
        let address = match state.balancers.get(service.uid()) {
            Some(lb) => lb.address.clone(),
            None => {
                state.addresses += 1;
                format!("198.51.100.{}", state.addresses)
            }
        };
        let balancer = Balancer {
            service: service.name().to_owned(),
            address: address.clone(),
            nodes: targets(nodes),
            ports: ports(service),
        };
        state.balancers.insert(service.uid().to_owned(), balancer);
        let mut status = status(&address, state.ip_mode.clone());
        if service
            .spec
            .ip_families
            .iter()
            .any(|family| family == "IPv6")
        {
            let second = address.replace("198.51.100.", "2001:db8::");
            let also = LoadBalancerIngress {
                ip: Some(second),
                ..LoadBalancerIngress::default()
            };
            status.ingress.get_or_insert_default().push(also);
        }
        Ok(Ensured::Ready {
            status,
            notes: state.notes.clone(),
        })
    }

    async fn update(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Updated> {
        self.call(Op::Update, service, nodes).await?;
        let mut state = self.lock();
        if state.elsewhere.contains(service.name()) {
            return Ok(Updated::ImplementedElsewhere {
                notes: state.notes.clone(),
            });
        }
        let Some(balancer) = state.balancers.get_mut(service.uid()) else {
            return Err(CloudError::transient("no such load balancer"));
        };
        balancer.nodes = targets(nodes);
        Ok(Updated::Done { notes: Vec::new() })
    }

    async fn delete(&self, service: &Service) -> CloudResult<()> {
        let result = self.call(Op::Delete, service, &[]).await;
        if result.is_ok() {
            self.lock().balancers.remove(service.uid());
        }
        result
    }

    fn node_labels_matter(&self, _service: &Service) -> bool {
        self.lock().labels_matter
    }
}
