//! Routes in memory: a table with faults, latency, limits, and a record of the calls.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use ccm_core::{
    cloud::{Class, CloudError, CloudResult, Route, Routes, WantedRoute},
    kube::Node,
};
use tokio::time::Instant;

/// One call: `list`, `create` or `delete`.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub kind: &'static str,
    pub cidrs: Vec<String>,
    pub at: Instant,
}

struct State {
    table: Vec<Route>,
    wanted: Vec<WantedRoute>,
    calls: Vec<Call>,
    whole_failures: BTreeMap<&'static str, VecDeque<Class>>,
    /// By kind and range.
    failures: BTreeMap<(&'static str, String), (Class, String)>,
    latency: BTreeMap<&'static str, Duration>,
    in_flight: usize,
    most_in_flight: usize,
    writers: usize,
    refused_writers: usize,
    batch_size: usize,
    quota: usize,
    knows_addresses: bool,
    one_writer: bool,
    loses_answers: bool,
}

pub struct FakeRoutes(Mutex<State>);

impl Default for FakeRoutes {
    fn default() -> Self {
        Self(Mutex::new(State {
            table: Vec::new(),
            wanted: Vec::new(),
            calls: Vec::new(),
            whole_failures: BTreeMap::new(),
            failures: BTreeMap::new(),
            latency: BTreeMap::new(),
            in_flight: 0,
            most_in_flight: 0,
            writers: 0,
            refused_writers: 0,
            batch_size: 1,
            quota: usize::MAX,
            knows_addresses: false,
            one_writer: false,
            loses_answers: false,
        }))
    }
}

/// A route that someone made.
pub fn route(target: &str, cidr: &str) -> Route {
    Route {
        name: format!("rt-{cidr}"),
        target_node: target.to_owned(),
        destination_cidr: cidr.to_owned(),
        ..Route::default()
    }
}

pub fn blackhole(cidr: &str) -> Route {
    Route {
        blackhole: true,
        ..route("", cidr)
    }
}

impl FakeRoutes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn put(&self, route: Route) {
        self.state().table.push(route);
    }

    pub fn change(&self, f: impl FnOnce(&mut Vec<Route>)) {
        f(&mut self.state().table);
    }

    /// What `create` was asked for, in order.
    pub fn wanted(&self) -> Vec<WantedRoute> {
        self.state().wanted.clone()
    }

    pub fn table(&self) -> Vec<Route> {
        self.state().table.clone()
    }

    /// `target cidr`, sorted.
    pub fn pairs(&self) -> Vec<String> {
        let mut pairs: Vec<_> = self
            .table()
            .iter()
            .map(|r| format!("{} {}", r.target_node, r.destination_cidr))
            .collect();
        pairs.sort();
        pairs
    }

    pub fn calls(&self, kind: &str) -> Vec<Call> {
        let mut calls = self.state().calls.clone();
        calls.retain(|call| call.kind == kind);
        calls
    }

    pub fn all_calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    pub fn most_in_flight(&self) -> usize {
        self.state().most_in_flight
    }

    pub fn refused_writers(&self) -> usize {
        self.state().refused_writers
    }

    /// The next calls of this kind fail as a whole.
    pub fn fail(&self, kind: &'static str, classes: &[Class]) {
        self.state()
            .whole_failures
            .entry(kind)
            .or_default()
            .extend(classes);
    }

    /// Fails for this range until [`mend`](Self::mend).
    pub fn fail_for(&self, kind: &'static str, cidr: &str, class: Class, text: &str) {
        self.state()
            .failures
            .insert((kind, cidr.to_owned()), (class, text.to_owned()));
    }

    pub fn mend(&self) {
        self.state().failures.clear();
    }

    pub fn latency(&self, kind: &'static str, latency: Duration) {
        self.state().latency.insert(kind, latency);
    }

    pub fn batch_size(&self, size: usize) {
        self.state().batch_size = size;
    }

    pub fn quota(&self, quota: usize) {
        self.state().quota = quota;
    }

    pub fn knows_addresses(&self) {
        self.state().knows_addresses = true;
    }

    /// Like a table that takes one write at a time.
    pub fn one_writer(&self) {
        self.state().one_writer = true;
    }

    /// The next create is done, and its answer lost.
    pub fn lose_an_answer(&self) {
        self.state().loses_answers = true;
    }

    /// Records the call, lets it last, and says whether it fails as a whole.
    async fn begin(&self, kind: &'static str, cidrs: Vec<String>) -> Option<CloudError> {
        let (latency, failure) = {
            let mut state = self.state();
            state.calls.push(Call {
                kind,
                cidrs,
                at: Instant::now(),
            });
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
            let mut failure = state
                .whole_failures
                .get_mut(kind)
                .and_then(VecDeque::pop_front);
            if kind != "list" {
                state.writers += 1;
                if state.one_writer && state.writers > 1 {
                    state.refused_writers += 1;
                    failure = Some(Class::Conflict);
                }
            }
            (state.latency.get(kind).copied(), failure)
        };
        if let Some(latency) = latency {
            tokio::time::sleep(latency).await;
        }
        let mut state = self.state();
        state.in_flight -= 1;
        if kind != "list" {
            state.writers -= 1;
        }
        failure.map(|class| CloudError::new(class, "injected"))
    }
}

impl State {
    fn failure(&self, kind: &'static str, cidr: &str) -> CloudResult<()> {
        match self.failures.get(&(kind, cidr.to_owned())) {
            Some((class, text)) => Err(CloudError::new(*class, text.clone())),
            None => Ok(()),
        }
    }

    /// "Exists" is success only after a look at what exists.
    fn create(&mut self, wanted: &WantedRoute) -> CloudResult<()> {
        self.wanted.push(wanted.clone());
        let cidr = &wanted.route.destination_cidr;
        self.failure("create", cidr)?;
        if let Some(old) = self.table.iter().find(|r| &r.destination_cidr == cidr) {
            if old.target_node == wanted.route.target_node && !old.blackhole {
                return Ok(());
            }
            let text = format!("RouteAlreadyExists: {cidr} leads elsewhere");
            return Err(CloudError::new(Class::Conflict, text));
        }
        if self.table.len() >= self.quota {
            let text = format!("RouteLimitExceeded: the table holds {}", self.quota);
            return Err(CloudError::new(Class::Quota, text));
        }
        self.table.push(Route {
            name: format!("rt-{cidr}"),
            has_node_addresses: self.knows_addresses,
            ..wanted.route.clone()
        });
        if std::mem::take(&mut self.loses_answers) {
            return Err(CloudError::transient("502 Bad Gateway"));
        }
        Ok(())
    }
}

#[async_trait]
impl Routes for FakeRoutes {
    async fn list(&self, _: &[Arc<Node>]) -> CloudResult<Vec<Route>> {
        match self.begin("list", Vec::new()).await {
            Some(error) => Err(error),
            None => Ok(self.table()),
        }
    }

    async fn create(&self, routes: &[WantedRoute]) -> Vec<CloudResult<()>> {
        let cidrs = routes.iter().map(|w| w.route.destination_cidr.clone());
        let failure = self.begin("create", cidrs.collect()).await;
        let mut state = self.state();
        routes
            .iter()
            .map(|wanted| match &failure {
                Some(error) => Err(CloudError::new(error.class(), error.to_string())),
                None => state.create(wanted),
            })
            .collect()
    }

    async fn delete(&self, routes: &[Route]) -> Vec<CloudResult<()>> {
        let cidrs = routes.iter().map(|r| r.destination_cidr.clone());
        let failure = self.begin("delete", cidrs.collect()).await;
        let mut state = self.state();
        routes
            .iter()
            .map(|route| {
                if let Some(error) = &failure {
                    return Err(CloudError::new(error.class(), error.to_string()));
                }
                state.failure("delete", &route.destination_cidr)?;
                state.table.retain(|r| r != route);
                Ok(())
            })
            .collect()
    }

    fn batch_size(&self) -> usize {
        self.state().batch_size
    }
}
