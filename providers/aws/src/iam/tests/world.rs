//! An emulated account that asks for permissions, and days of the controllers in it.

use std::{collections::BTreeSet, sync::Arc};

use ccm_cloudsim::{Call, CloudSim, Cluster, Options, RunInstance};
use ccm_core::{
    cloud::{
        Build, Cloud, ClusterName, ConfigFile, Ensured, LoadBalancers, Read, Route, Routes,
        WantedRoute,
    },
    config::Env,
    kube::{Node, Service},
    runtime::{Clock, Fence, Random},
};
use tokio_util::sync::CancellationToken;

use crate::load_balancer::testing::{UID, alb, service};

const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/a";
const OTHER_CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/b";

pub(super) struct World {
    pub sim: CloudSim,
    pub cluster: Cluster,
    /// What went wrong so far.
    pub errors: Vec<String>,
    /// Whether a day ends with the first denied call.
    pub ends_when_denied: bool,
    on_instance: bool,
}

impl World {
    /// An account without load balancers so far, and a cluster of three machines. The process runs on the
    /// first one.
    pub fn new() -> Self {
        let sim = CloudSim::new(Options::default());
        let cluster = sim.aws().standard_cluster("kite", 3).unwrap();
        let aws = sim.aws();
        aws.configure(|settings| settings.service_linked_role = false);
        aws.set_self_instance(Some(&cluster.instance_ids[0]));
        Self {
            sim,
            cluster,
            errors: Vec::new(),
            ends_when_denied: false,
            on_instance: true,
        }
    }

    /// The same where nothing optional is needed: not the first load balancer of the account, and the
    /// cloud-config says where the cluster is.
    pub fn settled() -> Self {
        let world = Self::new();
        let aws = world.sim.aws();
        aws.configure(|settings| settings.service_linked_role = true);
        aws.set_self_instance(None);
        Self {
            on_instance: false,
            ..world
        }
    }

    /// A process that starts, and what it knows then. `None` if it does not come so far.
    pub async fn start(&mut self) -> Option<Arc<dyn Cloud>> {
        if self.has_ended() {
            return None;
        }
        let mut text = "[Global]\nRegion = us-west-2\nNLBSecurityGroupMode = Managed\n\
                        ClusterServiceLoadBalancerHealthProbeMode = Shared\n"
            .to_owned();
        if !self.on_instance {
            text.push_str(&format!(
                "VPC = {}\nSubnetID = {}\nKubernetesClusterID = kite\n",
                self.cluster.vpc_id, self.cluster.subnet_ids[0]
            ));
        }
        let keys = [
            ("AWS_ACCESS_KEY_ID", "AKIDTEST"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let build = Build {
            config: Some(ConfigFile {
                path: "aws.conf".into(),
                text,
            }),
            cluster_name: ClusterName::new("kubernetes").unwrap(),
            env: Env::new(keys.map(|(key, value)| (key.to_owned(), value.to_owned()))),
            clock: Clock::anchored(Options::default().start),
            random: Random::seeded(1),
            metrics: prometheus::Registry::new(),
            fence: Fence::open(),
            writes: ccm_core::cloud::Writes::Real,
            shutdown: CancellationToken::new(),
        };
        let http = ccm_cloudsim::sdk::http_client(&self.sim);
        let built = (crate::provider_with(http).build)(build).await;
        self.noted("start", built)
    }

    /// The answer, or a note of its failure.
    fn noted<T, E: std::fmt::Display>(&mut self, what: &str, answer: Result<T, E>) -> Option<T> {
        let noted = |error: E| self.errors.push(format!("{what}: {error}"));
        answer.map_err(noted).ok()
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        let ids = &self.cluster.instance_ids;
        ids.iter().map(|id| self.node(id)).collect()
    }

    fn node(&self, id: &str) -> Arc<Node> {
        let instance = self.sim.aws().instance(id).unwrap();
        named(
            &instance.private_dns_name,
            &format!("aws:///{}/{id}", instance.zone),
        )
    }

    /// New Nodes of each kind are initialised and looked after.
    pub async fn day_of_nodes(&mut self) {
        let Some(cloud) = self.start().await else {
            return;
        };
        let aws = self.sim.aws();
        let subnet = self.cluster.subnet_ids[0].clone();
        let wanted = RunInstance {
            subnet: subnet.clone(),
            instance_type: "p5.48xlarge".to_owned(),
            ..RunInstance::default()
        };
        let tight = aws.run_instance(wanted).unwrap();
        let address = "10.20.0.77".parse().unwrap();
        aws.create_fargate_eni(&subnet, address, None).unwrap();
        let fargate = "fargate-ip-10-20-0-77.us-west-2.compute.internal";
        let mut nodes = self.nodes();
        nodes.push(self.node(&tight));
        nodes.push(named(fargate, &format!("aws:///us-west-2a/x/{fargate}")));
        let instances = cloud.instances().unwrap();
        for answer in instances.metadata(&nodes).await {
            self.noted("metadata", answer);
        }
        for answer in instances.presence(&nodes, Read::Direct).await {
            self.noted("presence", answer);
        }
    }

    /// Two Services with network load balancers: made, changed in every way, left to a restarted process and
    /// removed.
    pub async fn day_of_network_load_balancers(&mut self) {
        let Some(cloud) = self.start().await else {
            return;
        };
        let lbs = cloud.load_balancers().unwrap();
        let mut web = service(&[(80, 30080), (443, 30443)]);
        // A run of the past made the group of this Service, and was interrupted before it tagged it.
        let name = crate::names::nlb_security_group("kubernetes", "shop", "web", UID);
        let untagged = crate::tags::Tags::new();
        let vpc = &self.cluster.vpc_id;
        let aws = self.sim.aws();
        aws.create_security_group(vpc, &name, untagged).unwrap();
        alb(&mut web, "ssl-cert", CERTIFICATE);
        alb(&mut web, "ssl-ports", "443");
        alb(&mut web, "cross-zone-load-balancing-enabled", "true");
        alb(&mut web, "additional-resource-tags", "team=blue,cost=17");
        alb(
            &mut web,
            "target-group-attributes",
            "proxy_protocol_v2.enabled=true",
        );
        self.ensure(&*lbs, &web).await;
        let second = other(&web);
        self.ensure(&*lbs, &second).await;
        alb(&mut web, "additional-resource-tags", "team=green");
        self.ensure(&*lbs, &web).await;
        alb(&mut web, "ssl-cert", OTHER_CERTIFICATE);
        self.ensure(&*lbs, &web).await;
        web.spec.ports.remove(0);
        self.ensure(&*lbs, &web).await;
        alb(&mut web, "healthcheck-unhealthy-threshold", "5");
        self.ensure(&*lbs, &web).await;
        web.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
        self.ensure(&*lbs, &web).await;
        let fewer = self.nodes()[1..].to_vec();
        let answer = lbs.update(&web, &fewer).await;
        self.noted("update", answer);
        let own = self.cluster.security_group_id.clone();
        alb(&mut web, "security-groups", &own);
        self.ensure(&*lbs, &web).await;
        let Some(cloud) = self.start().await else {
            return;
        };
        let lbs = cloud.load_balancers().unwrap();
        self.ensure(&*lbs, &web).await;
        self.ensure(&*lbs, &second).await;
        self.remove(&*lbs, &web).await;
        self.remove(&*lbs, &second).await;
    }

    /// A Service with nothing but a port comes, gets a Node less and goes.
    pub async fn day_of_a_plain_network_load_balancer(&mut self) {
        let Some(cloud) = self.start().await else {
            return;
        };
        let lbs = cloud.load_balancers().unwrap();
        let plain = service(&[(80, 30080)]);
        self.ensure(&*lbs, &plain).await;
        let fewer = self.nodes()[1..].to_vec();
        let answer = lbs.update(&plain, &fewer).await;
        self.noted("update", answer);
        self.remove(&*lbs, &plain).await;
    }

    fn has_ended(&self) -> bool {
        self.ends_when_denied && !self.denied().is_empty()
    }

    /// Pod ranges of Nodes get routes, one of them in place of a former machine's, another one through the second
    /// of two interfaces; then a Node goes.
    pub async fn day_of_routes(&mut self) {
        let Some(cloud) = self.start().await else {
            return;
        };
        let routes = cloud.routes().unwrap();
        let table = self.cluster.route_table_id.clone();
        let former = self.cluster.instance_ids[2].clone();
        let [a, b, c] = ["10.64.1.0/24", "10.64.2.0/24", "10.64.3.0/24"];
        let aws = self.sim.aws();
        aws.attach_eni(&self.cluster.instance_ids[1], 1, &[])
            .unwrap();
        let owned = [("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())];
        aws.set_tags(&table, &owned.into()).unwrap();
        let nodes = self.nodes();
        let listed = routes.list(&nodes).await;
        self.noted("list", listed);
        // It comes after the table was read, as when another process is at work.
        let put = self.sim.aws().add_route(&table, a, &former);
        put.unwrap();
        self.create_route(&*routes, &nodes[0], a).await;
        self.create_route(&*routes, &nodes[1], b).await;
        self.create_route(&*routes, &nodes[2], c).await;
        let listed = routes.list(&nodes).await;
        for route in self.noted("list", listed).unwrap_or_default() {
            if self.has_ended() {
                return;
            }
            for answer in routes.delete(&[route]).await {
                self.noted("delete", answer);
            }
        }
    }

    async fn create_route(&mut self, routes: &dyn Routes, node: &Node, range: &str) {
        if self.has_ended() {
            return;
        }
        let wanted = WantedRoute {
            name_hint: "uid".to_owned(),
            route: Route {
                target_node: node.name().to_owned(),
                destination_cidr: range.to_owned(),
                ..Route::default()
            },
            provider_id: node.provider_id().map(str::to_owned),
        };
        for answer in routes.create(&[wanted]).await {
            self.noted("create", answer);
        }
    }

    async fn ensure(&mut self, lbs: &dyn LoadBalancers, service: &Service) {
        if self.has_ended() {
            return;
        }
        match lbs.ensure(service, &self.nodes()).await {
            Ok(Ensured::Ready { .. }) => {}
            Ok(other) => self.errors.push(format!("ensure: {other:?}")),
            Err(error) => self.errors.push(format!("ensure: {error}")),
        }
    }

    /// As the service controller does it: until nothing is left.
    async fn remove(&mut self, lbs: &dyn LoadBalancers, service: &Service) {
        for _ in 0..3 {
            if self.has_ended() {
                return;
            }
            let left = lbs.get(service).await;
            match self.noted("get", left) {
                Some(Some(_)) => {}
                Some(None) => return,
                None => break,
            }
            let answer = lbs.delete(service).await;
            self.noted("delete", answer);
        }
        self.errors.push("something is left".to_owned());
    }

    fn calls(&self) -> Vec<Call> {
        self.sim.calls().calls_since(self.sim.calls().start())
    }

    /// The actions that were called, as IAM names them.
    pub fn called(&self) -> BTreeSet<String> {
        let service = |call: &Call| match call.service {
            "elb" | "elbv2" => "elasticloadbalancing",
            other => other,
        };
        let calls = self.calls();
        let real = calls.iter().filter(|call| call.service != "imds");
        real.map(|call| format!("{}:{}", service(call), call.action))
            .collect()
    }

    /// The permissions that were missing.
    pub fn denied(&self) -> BTreeSet<String> {
        self.calls()
            .into_iter()
            .filter_map(|call| call.denied)
            .collect()
    }
}

fn named(name: &str, provider_id: &str) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.spec.provider_id = Some(provider_id.to_owned());
    Arc::new(node)
}

/// A second Service with node ports of its own.
fn other(first: &Service) -> Service {
    let mut second = first.clone();
    second.metadata.name = Some("second".to_owned());
    second.metadata.uid = Some("22222222-1234-1234-1234-123456789abc".to_owned());
    for port in &mut second.spec.ports {
        port.node_port = port.node_port.map(|port| port + 1);
    }
    second
}
