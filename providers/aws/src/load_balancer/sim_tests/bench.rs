//! A simulated account with a cluster, and the load balancers of a manager in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_cloudsim::{
    CloudSim, Options,
    aws::{Cluster, Snapshot},
    control::Call,
};
use ccm_core::{
    cloud::{CloudError, ConfigFile, Ensured, LoadBalancers, Note},
    config::Env,
    kube::{LoadBalancerStatus, Node, Service},
    runtime::{Clock, Fence},
};

use crate::{
    api::{Clients, Connect, Ec2, SdkEc2, SdkElb, SdkElbv2, SdkNetwork},
    config::CloudConfig,
    instances::{Describer, InstanceStore},
    load_balancer::{
        AwsLoadBalancers,
        settings::Settings,
        testing::{self, LB},
    },
};

pub(super) struct Bench {
    pub sim: CloudSim,
    pub cluster: Cluster,
    pub lbs: AwsLoadBalancers,
    pub settings: Settings,
}

impl Bench {
    /// A cluster `kite` of that many Nodes.
    pub async fn new(nodes: usize) -> Self {
        Self::with(nodes, |_| {}).await
    }

    /// The same with other settings.
    pub async fn with(nodes: usize, change: impl FnOnce(&mut Settings)) -> Self {
        let sim = CloudSim::new(Options::default());
        let cluster = sim.aws().standard_cluster("kite", nodes).unwrap();
        let mut settings = testing::settings();
        settings.vpc_id.clone_from(&cluster.vpc_id);
        change(&mut settings);
        let lbs = manager(&sim, settings.clone()).await;
        Self {
            sim,
            cluster,
            lbs,
            settings,
        }
    }

    /// The manager with everything forgotten.
    pub async fn restart(&mut self) {
        self.lbs = manager(&self.sim, self.settings.clone()).await;
    }

    pub async fn reconfigure(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
        self.restart().await;
    }

    pub fn nodes(&self) -> Vec<Arc<Node>> {
        nodes(&self.cluster.instance_ids)
    }

    pub async fn try_ensure(
        &self,
        service: &Service,
    ) -> Result<(LoadBalancerStatus, Vec<Note>), CloudError> {
        self.ensure_on(service, &self.nodes()).await
    }

    pub async fn ensure_on(
        &self,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(LoadBalancerStatus, Vec<Note>), CloudError> {
        match self.lbs.ensure(service, nodes).await? {
            Ensured::Ready { status, notes } => Ok((status, notes)),
            other => panic!("{other:?}"),
        }
    }

    /// A pass that must succeed without warnings.
    pub async fn ensure(&self, service: &Service) -> LoadBalancerStatus {
        let (status, notes) = self.try_ensure(service).await.unwrap();
        assert_eq!(notes, vec![]);
        status
    }

    /// Calls of the service controller until nothing is left.
    pub async fn delete(&self, service: &Service) {
        for _ in 0..3 {
            if self.lbs.get(service).await.unwrap().is_none() {
                return;
            }
            self.lbs.delete(service).await.unwrap();
        }
        panic!("something is left: {:?}", self.state());
    }

    pub fn state(&self) -> Snapshot {
        self.sim.aws().snapshot()
    }

    /// Actions of the calls made by `work`.
    pub async fn calls<T>(&self, work: impl Future<Output = T>) -> (T, Vec<Call>) {
        let mark = self.sim.calls().mark();
        let answer = work.await;
        (answer, self.sim.calls().calls_since(mark))
    }

    /// The listener's target group of that port.
    pub fn target_group(&self, port: u16) -> ccm_cloudsim::aws::TargetGroup {
        let state = self.state();
        let lb = state.load_balancer(LB).unwrap();
        let listener = state.listeners_of(&lb.arn)[&port].clone();
        state.target_groups[&listener.target_group_arn].clone()
    }

    /// Ids of the targets of that port that are not leaving.
    pub fn targets(&self, port: u16) -> BTreeSet<String> {
        let group = self.target_group(port);
        group
            .targets
            .into_iter()
            .filter(|t| !t.draining)
            .map(|t| t.id)
            .collect()
    }

    /// The Node group's rules as text, with their descriptions.
    pub fn rules(&self, group: &str) -> BTreeMap<String, String> {
        rules(&self.state(), group)
    }

    pub fn node_rules(&self) -> BTreeMap<String, String> {
        self.rules(&self.cluster.security_group_id)
    }

    /// The load balancer's security groups.
    pub fn attached(&self) -> BTreeSet<String> {
        let state = self.state();
        state
            .load_balancer(LB)
            .unwrap()
            .security_groups
            .clone()
            .unwrap_or_default()
    }
}

async fn manager(sim: &CloudSim, settings: Settings) -> AwsLoadBalancers {
    let env = Env::new(
        [
            ("AWS_ACCESS_KEY_ID", "AKIA"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let file: Option<&ConfigFile> = None;
    let config = CloudConfig::load(file).unwrap();
    let clients = Clients::connect(Connect {
        config: &config,
        env: &env,
        region: "us-west-2",
        http: ccm_cloudsim::sdk::http_client(sim),
        clock: Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap()),
        registry: &prometheus::Registry::new(),
        fence: Fence::open(),
    })
    .await
    .unwrap();
    let ec2: Arc<dyn Ec2> = Arc::new(SdkEc2::new(&clients));
    let describer = Describer::new(ec2, settings.tags.clone());
    let store = Arc::new(InstanceStore::new(describer, settings.tags.clone()));
    let elb = SdkElbv2::new(clients.elbv2.clone(), clients.elbv2_calls.clone());
    let classic = SdkElb::new(clients.elb.clone(), clients.elb_calls.clone());
    let network = SdkNetwork::new(clients.ec2.clone(), clients.ec2_calls.clone());
    AwsLoadBalancers::new(
        Arc::new(elb),
        Arc::new(classic),
        Arc::new(network),
        store,
        settings,
    )
}

pub(super) fn nodes(instances: &[String]) -> Vec<Arc<Node>> {
    instances.iter().map(|id| testing::node(id)).collect()
}

pub(super) fn rules(state: &Snapshot, group: &str) -> BTreeMap<String, String> {
    use ccm_cloudsim::aws::Peer;
    state.security_groups[group]
        .rules
        .iter()
        .map(|rule| {
            let key = &rule.key;
            let peer = match &key.peer {
                Peer::Ipv4(cidr) => cidr.to_string(),
                other => format!("{other:?}"),
            };
            let from = key.from_port.unwrap_or(-1);
            let to = key.to_port.unwrap_or(-1);
            let text = if from == to {
                format!("{} {from} {peer}", key.protocol)
            } else {
                format!("{} {from}-{to} {peer}", key.protocol)
            };
            (text, rule.description.clone().unwrap_or_default())
        })
        .collect()
}

/// The actions that change something, in order.
pub(super) fn writes(calls: &[Call]) -> Vec<&str> {
    calls
        .iter()
        .filter(|call| call.is_write())
        .map(|call| call.action.as_str())
        .collect()
}

/// The status' host name.
pub(super) fn host(status: &LoadBalancerStatus) -> Option<&str> {
    status.ingress.as_ref()?.first()?.hostname.as_deref()
}

/// A second Service with its own node port.
pub(super) fn other_service(name: &str, node_port: i32) -> Service {
    let mut service = testing::service(&[(80, node_port)]);
    service.metadata.name = Some(name.to_owned());
    service.metadata.uid = Some(format!("{node_port:08}-0000-0000-0000-000000000000"));
    service
}
