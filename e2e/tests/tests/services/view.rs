//! What a test sees of a Service's load balancer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    time::Duration,
};

use ccm_cloudsim::{
    CloudSim,
    aws::{Listener, LoadBalancer, Peer, Snapshot, TargetGroup},
};
use ccm_e2e_tests::Bench;
use ccm_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use tokio::task::JoinHandle;

use crate::setup::LIMIT;

/// A load balancer with its listeners, by port, and the target groups that they forward to.
#[derive(Clone, Debug)]
pub struct View {
    pub lb: LoadBalancer,
    pub ports: BTreeMap<u16, (Listener, TargetGroup)>,
}

/// `a` and the UID without dashes, cut to 32 characters.
pub fn lb_name(service: &Service) -> String {
    let mut name = format!("a{}", service.uid().unwrap().replace('-', ""));
    name.truncate(32);
    name
}

impl View {
    /// The load balancer of that name.
    pub fn of(state: &Snapshot, name: &str) -> Result<Self, String> {
        let mut named = state.load_balancers.values().filter(|lb| lb.name == name);
        let lb = named.next().cloned().ok_or("no load balancer")?;
        let mut ports = BTreeMap::new();
        for (port, listener) in state.listeners_of(&lb.arn) {
            let group = state.target_groups.get(&listener.target_group_arn);
            let group = group.ok_or("a listener without target group")?;
            ports.insert(port, (listener.clone(), group.clone()));
        }
        Ok(Self { lb, ports })
    }

    /// The load balancer of the Service.
    pub fn now(bench: &Bench, service: &Service) -> Self {
        Self::of(&bench.cloud.sim.aws().snapshot(), &lb_name(service)).unwrap()
    }

    /// Waits until the load balancer is as `check` wants it.
    pub async fn until(
        bench: &Bench,
        service: &Service,
        what: &str,
        check: impl Fn(&Self) -> Result<(), String>,
    ) -> Self {
        Self::within(bench, service, what, LIMIT, check).await
    }

    /// As [`Self::until`], with a limit that is part of the expectation.
    pub async fn within(
        bench: &Bench,
        service: &Service,
        what: &str,
        limit: Duration,
        check: impl Fn(&Self) -> Result<(), String>,
    ) -> Self {
        let name = lb_name(service);
        eventually(what, limit, || async {
            let view = Self::of(&bench.cloud.sim.aws().snapshot(), &name);
            let view = view.and_then(|view| check(&view).map(|()| view));
            view.map_err(|reason| {
                let log = bench.log();
                let tail: Vec<&str> = log.lines().rev().take(30).collect();
                format!("{reason}\n{tail:#?}")
            })
        })
        .await
    }

    /// Port → node port, as the listeners forward.
    pub fn forwards(&self) -> BTreeMap<u16, u16> {
        let ports = self.ports.iter();
        ports
            .map(|(port, (_, group))| (*port, group.port))
            .collect()
    }

    /// The target group behind a port.
    pub fn group(&self, port: u16) -> &TargetGroup {
        &self.ports[&port].1
    }

    /// The instances behind a port.
    pub fn targets(&self, port: u16) -> BTreeSet<String> {
        self.ports
            .get(&port)
            .map(|(_, group)| live(group))
            .unwrap_or_default()
    }
}

/// The registered instances, without those that are draining.
pub fn live(group: &TargetGroup) -> BTreeSet<String> {
    let targets = group.targets.iter().filter(|target| !target.draining);
    targets.map(|target| target.id.clone()).collect()
}

/// Waits until every port of the Service's load balancer has exactly these targets.
pub async fn targets_are(bench: &Bench, service: &Service, want: &[String]) {
    let want: BTreeSet<String> = want.iter().cloned().collect();
    View::until(bench, service, "the targets are those wanted", |view| {
        let all = view.ports.values().map(|(_, group)| live(group));
        all.into_iter().try_for_each(|have| same(&have, &want))
    })
    .await;
}

/// All rules of the Nodes' security group, one line each.
pub fn rules(bench: &Bench) -> BTreeSet<String> {
    rules_in(
        &bench.cloud.sim.aws().snapshot(),
        &bench.cloud.cluster.security_group_id,
    )
}

/// All rules of a security group: protocol, ports, source, description.
pub fn rules_in(state: &Snapshot, group: &str) -> BTreeSet<String> {
    let rules = state.security_groups[group].rules.iter();
    rules
        .map(|rule| {
            let source = match &rule.key.peer {
                Peer::Ipv4(net) => net.to_string(),
                other => format!("{other:?}"),
            };
            format!(
                "{} {}..{} {source} {}",
                rule.key.protocol,
                rule.key.from_port.unwrap_or_default(),
                rule.key.to_port.unwrap_or_default(),
                rule.description.as_deref().unwrap_or_default()
            )
        })
        .collect()
}

/// Waits until the rules are exactly these.
pub async fn rules_are(bench: &Bench, want: &BTreeSet<String>) {
    eventually("the rules are those wanted", LIMIT, || async {
        same(&rules(bench), want)
    })
    .await;
}

/// Both are equal, or the text of what differs.
pub fn same<T: PartialEq + Debug>(have: &T, want: &T) -> Result<(), String> {
    if have == want {
        Ok(())
    } else {
        Err(format!("have {have:?}, want {want:?}"))
    }
}

/// Looks at the cloud every few milliseconds until [`Self::end`].
pub struct Watch(JoinHandle<()>);

impl Watch {
    /// Begins. `check` answers what is wrong at that moment.
    pub fn start(
        sim: &CloudSim,
        check: impl Fn(&Snapshot) -> Result<(), String> + Send + 'static,
    ) -> Self {
        let sim = sim.clone();
        Self(tokio::spawn(async move {
            loop {
                if let Err(reason) = check(&sim.aws().snapshot()) {
                    panic!("in between: {reason}");
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }))
    }

    /// Ends; fails if something was wrong in between.
    pub async fn end(self) {
        self.0.abort();
        if let Err(error) = self.0.await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
