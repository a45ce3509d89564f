//! A simulated account with the cluster `kite`, for tests that look at it from several sides.

use std::sync::Arc;

use ccm_cloudsim::{
    CloudSim, Options,
    aws::{Cluster, Snapshot},
    control::Call,
};
use ccm_core::{
    cloud::{ConfigFile, Owners, Writes},
    config::Env,
    kube::{Node, Service},
    runtime::{Clock, Fence},
};

use crate::{
    api::{
        Clients, Connect, Ec2, SdkEc2, SdkElb, SdkElbv2, SdkNetwork, dry_run, elb::ElbApi,
        elbv2::Elbv2Api, network::NetworkApi,
    },
    config::CloudConfig,
    gc::AwsLeftovers,
    instances::{Describer, InstanceStore},
    load_balancer::{
        AwsLoadBalancers,
        settings::Settings,
        testing::{self, node},
    },
};

/// The account.
pub(crate) struct SimWorld {
    pub(crate) sim: CloudSim,
    pub(crate) cluster: Cluster,
    pub(crate) settings: Settings,
}

/// One process's view of it.
pub(crate) struct View {
    pub(crate) elb: Arc<dyn Elbv2Api>,
    pub(crate) classic: Arc<dyn ElbApi>,
    pub(crate) load_balancers: Arc<AwsLoadBalancers>,
    pub(crate) leftovers: AwsLeftovers,
}

impl SimWorld {
    /// With so many machines.
    pub(crate) fn new(machines: usize, change: impl FnOnce(&mut Settings)) -> Self {
        let sim = CloudSim::new(Options::default());
        let cluster = sim.aws().standard_cluster("kite", machines).unwrap();
        let mut settings = testing::settings();
        settings.vpc_id.clone_from(&cluster.vpc_id);
        change(&mut settings);
        Self {
            sim,
            cluster,
            settings,
        }
    }

    /// A process that has just started. With recorded writes its fence is shut.
    pub(crate) async fn view(&self, writes: &Writes) -> View {
        let fence = match writes {
            Writes::Real => Fence::open(),
            Writes::Recorded(_) => Fence::waiting(),
        };
        let keys = [
            ("AWS_ACCESS_KEY_ID", "AKIA"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let env = Env::new(keys.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let file: Option<&ConfigFile> = None;
        let clients = Box::pin(Clients::connect(Connect {
            config: &CloudConfig::load(file).unwrap(),
            env: &env,
            region: "us-west-2",
            http: ccm_cloudsim::sdk::http_client(&self.sim),
            clock: Clock::anchored(Options::default().start),
            registry: &prometheus::Registry::new(),
            fence,
        }))
        .await
        .unwrap();
        let settings = self.settings.clone();
        let ec2: Arc<dyn Ec2> = Arc::new(SdkEc2::new(&clients));
        let describer = Describer::new(ec2, settings.tags.clone());
        let store = Arc::new(InstanceStore::new(describer, settings.tags.clone()));
        let sdk = Arc::new(SdkElbv2::new(clients.elbv2, clients.elbv2_calls));
        let elb = dry_run::elbv2(Arc::clone(&sdk) as _, writes, &settings.vpc_id);
        let classic: Arc<dyn ElbApi> = Arc::new(SdkElb::new(clients.elb, clients.elb_calls));
        let classic = dry_run::elb(classic, writes);
        let network: Arc<dyn NetworkApi> =
            Arc::new(SdkNetwork::new(clients.ec2, clients.ec2_calls));
        let network = dry_run::network(network, writes);
        let load_balancers = Arc::new(AwsLoadBalancers::new(
            Arc::clone(&elb),
            Arc::clone(&classic),
            Arc::clone(&network),
            Arc::clone(&store),
            settings.clone(),
        ));
        let leftovers = AwsLeftovers {
            all: sdk,
            elb: Arc::clone(&elb),
            network,
            load_balancers: Arc::clone(&load_balancers) as _,
            instances: store,
            settings,
        };
        View {
            elb,
            classic,
            load_balancers,
            leftovers,
        }
    }

    /// The Nodes of all machines.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.cluster
            .instance_ids
            .iter()
            .map(|id| node(id))
            .collect()
    }

    pub(crate) fn state(&self) -> Snapshot {
        self.sim.aws().snapshot()
    }

    /// Does some work and answers with the calls that it made.
    pub(crate) async fn calls<T>(&self, work: impl Future<Output = T>) -> (T, Vec<Call>) {
        let mark = self.sim.calls().mark();
        let answer = work.await;
        (answer, self.sim.calls().calls_since(mark))
    }
}

/// These Services, and no Node.
pub(crate) fn owners(services: &[Arc<Service>]) -> Owners<'_> {
    Owners {
        services,
        nodes: &[],
    }
}
