//! A simulated account with a cluster, and the routes of a manager in it.

use std::{collections::BTreeMap, sync::Arc};

use ccm_cloudsim::{
    CloudSim, Options,
    aws::{Cluster, Tags},
    control::{Call, Mark},
};
use ccm_core::{
    cloud::{CloudResult, ConfigFile, Route, Routes, WantedRoute},
    config::Env,
    kube::Node,
    runtime::{Clock, Fence},
};

use crate::{
    api::{Clients, Connect, Ec2, SdkEc2, SdkRoutes},
    config::CloudConfig,
    instances::Describer,
    routes::{AwsRoutes, Setup},
    tags::ClusterTags,
};

pub(super) struct Bench {
    pub sim: CloudSim,
    pub cluster: Cluster,
    pub routes: Arc<AwsRoutes>,
    pub table_id: Option<String>,
}

pub(super) fn owned() -> Tags {
    Tags::from([("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())])
}

impl Bench {
    /// A cluster `kite` of that many machines, whose main route table carries the cluster's tag.
    pub async fn new(machines: usize) -> Self {
        let bench = Self::untagged(machines, None).await;
        let aws = bench.sim.aws();
        aws.set_tags(&bench.cluster.route_table_id, &owned())
            .unwrap();
        bench
    }

    /// The same without the tag, and with `RouteTableID`.
    pub async fn untagged(machines: usize, table_id: Option<&str>) -> Self {
        let sim = CloudSim::new(Options::default());
        let cluster = sim.aws().standard_cluster("kite", machines).unwrap();
        let table_id = table_id.map(str::to_owned);
        let routes = manager(&sim, table_id.clone()).await;
        Self {
            sim,
            cluster,
            routes,
            table_id,
        }
    }

    /// The manager with everything forgotten.
    pub async fn restart(&mut self) {
        self.routes = manager(&self.sim, self.table_id.clone()).await;
    }

    pub fn machine(&self, at: usize) -> &str {
        &self.cluster.instance_ids[at]
    }

    /// The Node of a machine: `n0` of the first one.
    pub fn node(&self, at: usize, ranges: &[&str]) -> Arc<Node> {
        let mut node = Node::default();
        node.metadata.name = Some(format!("n{at}"));
        node.spec.provider_id = Some(format!("aws:///us-west-2a/{}", self.machine(at)));
        node.spec.pod_cidrs = ranges.iter().map(|range| (*range).to_owned()).collect();
        Arc::new(node)
    }

    pub async fn try_list(&self, nodes: &[Arc<Node>]) -> CloudResult<Vec<Route>> {
        self.routes.list(nodes).await
    }

    /// What is listed: range and Node.
    pub async fn list(&self, nodes: &[Arc<Node>]) -> Vec<String> {
        let routes = self.try_list(nodes).await.unwrap();
        let text = |route: Route| {
            let target = if route.blackhole {
                "blackhole"
            } else {
                &route.target_node
            };
            format!("{} {target}", route.destination_cidr)
        };
        routes.into_iter().map(text).collect()
    }

    pub async fn create(&self, node: &Node, range: &str) -> CloudResult<()> {
        let wanted = WantedRoute {
            name_hint: "uid".to_owned(),
            route: Route {
                target_node: node.name().to_owned(),
                destination_cidr: range.to_owned(),
                ..Route::default()
            },
            provider_id: node.provider_id().map(str::to_owned),
        };
        self.routes.create(&[wanted]).await.pop().unwrap()
    }

    pub async fn delete(&self, range: &str, blackhole: bool) -> CloudResult<()> {
        let route = Route {
            name: format!("kubernetes-{range}"),
            destination_cidr: range.to_owned(),
            blackhole,
            ..Route::default()
        };
        self.routes.delete(&[route]).await.pop().unwrap()
    }

    /// Puts a route into the cluster's table.
    pub fn put(&self, range: &str, target: &str) {
        let table = &self.cluster.route_table_id;
        self.sim.aws().add_route(table, range, target).unwrap();
    }

    /// The cluster's table without the routes that every VPC has.
    pub fn table(&self) -> BTreeMap<String, String> {
        self.table_of(&self.cluster.route_table_id)
    }

    pub fn table_of(&self, id: &str) -> BTreeMap<String, String> {
        let state = self.sim.aws().snapshot();
        let routes = state.route_tables[id].routes.iter();
        routes
            .filter(|route| !["local", &self.cluster.internet_gateway_id].contains(&&*route.target))
            .map(|route| (route.destination.clone(), route.target.clone()))
            .collect()
    }

    /// Whether the machine's packets are checked.
    pub fn checks(&self, at: usize) -> bool {
        self.sim.aws().snapshot().instances[self.machine(at)].source_dest_check
    }

    /// Actions of the calls made by `work`.
    pub async fn calls<T>(&self, work: impl Future<Output = T>) -> (T, Vec<String>) {
        let mark = self.sim.calls().mark();
        let answer = work.await;
        let calls = self.sim.calls().calls_since(mark);
        (answer, calls.into_iter().map(|call| call.action).collect())
    }

    pub fn writes_since(&self, mark: Mark) -> Vec<String> {
        let calls = self.sim.calls().calls_since(mark);
        let writes = calls.into_iter().filter(Call::is_write);
        writes.map(|call| call.action).collect()
    }
}

async fn manager(sim: &CloudSim, table_id: Option<String>) -> Arc<AwsRoutes> {
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
    let cluster = ClusterTags::new("", "kite").unwrap().unwrap();
    Arc::new(AwsRoutes::new(Setup {
        api: Arc::new(SdkRoutes::new(clients.ec2, clients.ec2_calls)),
        describer: Describer::new(ec2, cluster.clone()),
        cluster,
        cluster_name: "kubernetes".to_owned(),
        table_id,
    }))
}
