//! The provider through the real SDK against the emulated cloud: configuration, credentials,
//! endpoints, retries, and the instances as the controllers see them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_smithy_runtime_api::client::{
    http::{
        HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
        SharedHttpConnector, http_client_fn,
    },
    orchestrator::HttpRequest,
    runtime_components::RuntimeComponents,
};
use ccm_cloudsim::{CloudSim, Cluster, Fault, Options};
use ccm_core::{
    cloud::{
        Build, BuildError, Class, Cloud, ClusterName, ConfigFile, Power, Presence, Read, Writes,
    },
    config::Env,
    kube::Node,
    runtime::{Clock, Fence, Random},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const KEYS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "AKIDTEST"),
    ("AWS_SECRET_ACCESS_KEY", "secret"),
];

/// A request as it left the SDK.
#[derive(Clone, Debug)]
struct Sent {
    url: String,
    headers: BTreeMap<String, String>,
}

impl Sent {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

type Log = Arc<Mutex<Vec<Sent>>>;

#[derive(Debug)]
struct Recorder {
    inner: SharedHttpConnector,
    log: Log,
}

impl HttpConnector for Recorder {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let headers = request.headers().iter();
        self.log.lock().unwrap().push(Sent {
            url: request.uri().to_owned(),
            headers: headers.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        });
        self.inner.call(request)
    }
}

/// A cloud, the way into it, and what a provider is built from.
struct World {
    sim: CloudSim,
    cluster: Cluster,
    log: Log,
    env: Vec<(String, String)>,
    registry: prometheus::Registry,
}

impl World {
    fn new(instances: usize) -> Self {
        let sim = CloudSim::new(Options::default());
        let cluster = sim.aws().standard_cluster("cl1", instances).unwrap();
        let env = KEYS.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        Self {
            sim,
            cluster,
            log: Log::default(),
            env,
            registry: prometheus::Registry::new(),
        }
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    fn http(&self) -> SharedHttpClient {
        let (inner, log) = (
            ccm_cloudsim::sdk::http_client(&self.sim),
            Arc::clone(&self.log),
        );
        http_client_fn(
            move |settings: &HttpConnectorSettings, parts: &RuntimeComponents| {
                let inner = inner.http_connector(settings, parts);
                SharedHttpConnector::new(Recorder {
                    inner,
                    log: Arc::clone(&log),
                })
            },
        )
    }

    async fn build(&self, config: Option<&str>) -> Result<Arc<dyn Cloud>, BuildError> {
        let build = Build {
            config: config.map(|text| ConfigFile {
                path: "aws.conf".into(),
                text: text.into(),
            }),
            cluster_name: ClusterName::new("kubernetes").unwrap(),
            env: Env::new(self.env.clone()),
            clock: Clock::anchored(Options::default().start),
            random: Random::seeded(1),
            metrics: self.registry.clone(),
            fence: Fence::open(),
            writes: Writes::Real,
            shutdown: CancellationToken::new(),
        };
        (crate::provider_with(self.http()).build)(build).await
    }

    /// Off-instance: nothing of the metadata service is needed.
    async fn off_instance(&self) -> Arc<dyn Cloud> {
        self.build(Some(&self.config(""))).await.unwrap()
    }

    fn config(&self, more: &str) -> String {
        format!(
            "[Global]\nRegion = us-west-2\nVPC = {}\nSubnetID = {}\nKubernetesClusterID = cl1\n{more}",
            self.cluster.vpc_id, self.cluster.subnet_ids[0]
        )
    }

    fn sent(&self) -> Vec<Sent> {
        self.log.lock().unwrap().clone()
    }

    fn counts(&self) -> BTreeMap<String, usize> {
        self.sim.calls().counts_since(self.sim.calls().start())
    }

    fn count(&self, action: &str) -> usize {
        let counts = self.counts();
        let is = |key: &&String| key.rsplit([':', '.']).next() == Some(action);
        counts.keys().filter(is).map(|key| counts[key]).sum()
    }

    fn series(&self) -> String {
        prometheus::TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap()
    }

    fn node(&self, index: usize) -> Arc<Node> {
        let id = &self.cluster.instance_ids[index];
        let name = self.sim.aws().instance(id).unwrap().private_dns_name;
        node(&name, &format!("aws:///us-west-2a/{id}"))
    }
}

fn node(name: &str, provider_id: &str) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.spec.provider_id = Some(provider_id.to_owned());
    Arc::new(node)
}

fn refusal(built: Result<Arc<dyn Cloud>, BuildError>) -> BuildError {
    built.map(|_| ()).unwrap_err()
}

async fn presence(cloud: &Arc<dyn Cloud>, nodes: &[Arc<Node>], read: Read) -> Vec<Presence> {
    let all = cloud.instances().unwrap().presence(nodes, read).await;
    all.into_iter().map(Result::unwrap).collect()
}

/// REQ-AWS-CFG-10, REQ-AWS-CFG-32
#[tokio::test(start_paused = true)]
async fn off_instance_the_metadata_service_is_never_asked() {
    let world = World::new(1).env("AWS_EC2_METADATA_DISABLED", "true");
    let cloud = world.off_instance().await;
    assert_eq!(cloud.name(), "aws");
    assert!(cloud.has_cluster_id());
    let hosts: Vec<String> = world.sent().into_iter().map(|sent| sent.url).collect();
    assert_eq!(hosts, ["https://ec2.us-west-2.amazonaws.com/"]);
}

/// REQ-AWS-CFG-1, REQ-AWS-CFG-37
#[tokio::test(start_paused = true)]
async fn without_a_file_region_instance_and_cluster_are_found_on_the_instance() {
    let world = World::new(1);
    world
        .sim
        .aws()
        .set_self_instance(Some(&world.cluster.instance_ids[0]));
    let cloud = world.build(None).await.unwrap();
    let nodes = [world.node(0)];
    assert_eq!(
        presence(&cloud, &nodes, Read::Shared).await,
        [Presence::Present(Power::Running)]
    );
    assert!(
        world
            .sent()
            .iter()
            .any(|s| s.url == "https://ec2.us-west-2.amazonaws.com/")
    );
    assert_eq!(world.count("GetIdentityDocument"), 1);
    assert_eq!(world.count("GetInstanceId"), 1);
}

/// REQ-AWS-CFG-37
#[tokio::test(start_paused = true)]
async fn without_region_and_metadata_service_the_start_waits() {
    let world = World::new(1);
    // No own instance: the metadata service answers 404.
    let BuildError::Unreachable(text) = refusal(world.build(None).await) else {
        panic!("trying again may help");
    };
    assert!(text.contains("set Region in the cloud config"), "{text}");
    let off = World::new(1).env("AWS_EC2_METADATA_DISABLED", "true");
    let BuildError::Config(text) = refusal(off.build(None).await) else {
        panic!("trying again cannot help");
    };
    assert!(text.contains("AWS_EC2_METADATA_DISABLED"), "{text}");
}

/// REQ-AWS-CFG-11
#[tokio::test(start_paused = true)]
async fn an_incomplete_off_instance_mode_needs_the_metadata_service() {
    let world = World::new(1);
    let config = format!(
        "[Global]\nRegion = us-west-2\nVPC = {}\nKubernetesClusterID = cl1",
        world.cluster.vpc_id
    );
    let error = refusal(world.build(Some(&config)).await);
    assert!(matches!(&error, BuildError::Unreachable(text) if text.contains("own instance")));
}

/// REQ-AWS-CFG-13, REQ-AWS-CFG-14
#[tokio::test(start_paused = true)]
async fn a_cluster_without_id_does_not_start() {
    let world = World::new(1);
    let own = world.cluster.instance_ids[0].clone();
    world.sim.aws().set_self_instance(Some(&own));
    world
        .sim
        .aws()
        .remove_tags(&own, &["kubernetes.io/cluster/cl1"])
        .unwrap();
    let BuildError::Config(text) = refusal(world.build(None).await) else {
        panic!("trying again cannot help");
    };
    assert!(
        text.starts_with("AWS cloud failed to find ClusterID"),
        "{text}"
    );
    let error = refusal(
        world
            .build(Some(
                "[Global]\nKubernetesClusterTag = a\nKubernetesClusterID = b",
            ))
            .await,
    );
    assert!(matches!(error, BuildError::Config(text) if text.contains("did not match")));
}

/// REQ-AWS-CFG-12, REQ-AWS-CFG-23, REQ-AWS-CFG-24
#[tokio::test(start_paused = true)]
async fn a_role_is_assumed_once_with_the_source_headers() {
    for (source, want) in [("SourceARN = x\n", Some("x")), ("", None)] {
        let world = World::new(1);
        let config = format!(
            "[Global]\nRegion = us-west-2\nVPC = {}\nKubernetesClusterTag = cl1\n\
             RoleARN = arn:aws:iam::123456789012:role/r\n{source}",
            world.cluster.vpc_id
        );
        let cloud = world.build(Some(&config)).await.unwrap();
        presence(&cloud, &[world.node(0)], Read::Direct).await;
        let sent = world.sent();
        let assume: Vec<_> = sent.iter().filter(|s| s.url.contains("//sts.")).collect();
        assert_eq!(assume.len(), 1, "cached");
        assert_eq!(assume[0].url, "https://sts.us-west-2.amazonaws.com/");
        assert_eq!(
            assume[0].header("x-amz-source-account"),
            Some("123456789012")
        );
        assert_eq!(assume[0].header("x-amz-source-arn"), want);
        let signed = assume[0].header("authorization").unwrap();
        assert!(
            signed.contains("x-amz-source-account"),
            "the header is signed: {signed}"
        );
        for ec2 in sent.iter().filter(|s| s.url.contains("//ec2.")) {
            let signed = ec2.header("authorization").unwrap();
            assert!(signed.contains("Credential=ASIA"), "{signed}");
        }
    }
}

fn service_override(service: &str, region: &str, name: &str) -> String {
    format!(
        "[ServiceOverride \"1\"]\nService = \"{service}\"\nRegion = {region}\n\
         URL = http://ec2.foo.bar/base\nSigningRegion = signing-r\nSigningName = {name}\n"
    )
}

/// REQ-AWS-CFG-18, REQ-AWS-CFG-20, REQ-AWS-CFG-21, REQ-AWS-CFG-22
#[tokio::test(start_paused = true)]
async fn an_override_moves_the_endpoint_and_the_signature() {
    for (service, name, scope) in [
        ("EC2   ", "", "/signing-r/ec2/aws4_request"),
        ("ec2", "", "/signing-r/ec2/aws4_request"),
    ] {
        let world = World::new(1).env("AWS_USE_FIPS_ENDPOINT", "true");
        let config = world.config(&service_override(service, "us-west-2", name));
        world.build(Some(&config)).await.unwrap();
        for sent in world.sent() {
            assert!(
                sent.url.starts_with("http://ec2.foo.bar/base"),
                "{}",
                sent.url
            );
            let signed = sent.header("authorization").unwrap();
            assert!(signed.contains(scope), "{signed}");
        }
    }
    let world = World::new(1);
    let config = world.config(&service_override("EC2", "us-west-2", "other"));
    // The emulated cloud tells the services apart by the signing name.
    assert!(world.build(Some(&config)).await.is_err());
    let signed = world.sent()[0].header("authorization").unwrap().to_owned();
    assert!(signed.contains("/signing-r/other/aws4_request"), "{signed}");
}

/// REQ-AWS-CFG-18, REQ-AWS-CFG-31: both kinds of load balancers have one host and one signing name,
/// and clients of their own.
#[tokio::test(start_paused = true)]
async fn each_kind_of_load_balancer_has_its_own_endpoint() {
    let service = crate::load_balancer::testing::classic(&[(80, 30080)]);
    let env = "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING";
    for (over, env, moved) in [
        ("", None, 0),
        ("Elastic Load Balancing", None, 1),
        ("elasticloadbalancing", None, 3),
        ("", Some(env), 1),
    ] {
        let mut world = World::new(1);
        if let Some(name) = env {
            world = world.env(name, "http://ec2.foo.bar/base");
        }
        let text = match over {
            "" => String::new(),
            over => service_override(over, "us-west-2", ""),
        };
        let config = world.config(&text);
        let cloud = world.build(Some(&config)).await.unwrap();
        let found = cloud.load_balancers().unwrap().get(&service).await.unwrap();
        assert_eq!(found, None);
        let sent = world.sent();
        let elb = sent.iter().filter(|sent| {
            let signed = sent.header("authorization").unwrap_or_default();
            signed.contains("/elasticloadbalancing/aws4_request")
        });
        let (there, elsewhere): (Vec<_>, Vec<_>) =
            elb.partition(|sent| sent.url.starts_with("http://ec2.foo.bar/base"));
        assert_eq!((there.len(), elsewhere.len()), (moved, 3 - moved), "{over}");
        for sent in there {
            let signed = sent.header("authorization").unwrap();
            assert_eq!(signed.contains("/signing-r/"), !over.is_empty(), "{signed}");
        }
        for sent in elsewhere {
            assert_eq!(
                sent.url,
                "https://elasticloadbalancing.us-west-2.amazonaws.com/"
            );
        }
    }
}

/// REQ-AWS-CFG-19
#[tokio::test(start_paused = true)]
async fn an_override_for_another_region_has_no_effect() {
    let world = World::new(1);
    let config = world.config(&service_override("EC2", "eu-west-1", ""));
    world.build(Some(&config)).await.unwrap();
    let sent = world.sent();
    assert_eq!(sent[0].url, "https://ec2.us-west-2.amazonaws.com/");
    let signed = sent[0].header("authorization").unwrap();
    assert!(signed.contains("/us-west-2/ec2/aws4_request"), "{signed}");
}

/// REQ-AWS-CFG-31
#[tokio::test(start_paused = true)]
async fn endpoints_come_from_the_given_environment() {
    for (name, url) in [
        ("AWS_ENDPOINT_URL_EC2", "http://localhost:4566/"),
        ("AWS_ENDPOINT_URL", "http://localhost:4566/"),
        (
            "AWS_ENDPOINT_URL_STS",
            "https://ec2.us-west-2.amazonaws.com/",
        ),
    ] {
        let world = World::new(1).env(name, "http://localhost:4566");
        world.off_instance().await;
        assert_eq!(world.sent()[0].url, url, "{name}");
    }
    let world = World::new(1)
        .env("AWS_ENDPOINT_URL", "http://localhost:4566")
        .env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
    world.off_instance().await;
    assert_eq!(world.sent()[0].url, "https://ec2.us-west-2.amazonaws.com/");
}

/// REQ-AWS-RETRY-6, REQ-AWS-MET-6
#[tokio::test(start_paused = true)]
async fn an_unreachable_cloud_is_reported_with_its_cause() {
    let world = World::new(1);
    world
        .sim
        .faults()
        .always("*", Fault::DropConnection)
        .unwrap();
    let error = refusal(world.build(Some(&world.config(""))).await);
    let BuildError::Unreachable(text) = error else {
        panic!("trying again may help")
    };
    assert!(text.contains("ec2:DescribeAvailabilityZones"), "{text}");
    assert!(text.contains("request send failed"), "{text}");
    assert!(!text.ends_with("dispatch failure"), "{text}");
    assert_eq!(world.sent().len(), 3, "three attempts");
    assert!(!world.series().contains("response_status_total{"));
    world.sim.faults().clear_all();
    // The same registry again, as the manager does when it waits for the cloud.
    world.build(Some(&world.config(""))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_denied_cloud_names_the_missing_permission() {
    let world = World::new(1);
    world
        .sim
        .faults()
        .always("*", Fault::unauthorized_operation())
        .unwrap();
    let error = refusal(world.build(Some(&world.config(""))).await);
    let BuildError::Unreachable(text) = error else {
        panic!("trying again may help")
    };
    assert!(
        text.starts_with("AWS denies ec2:DescribeAvailabilityZones"),
        "{text}"
    );
    assert_eq!(world.sent().len(), 1, "not retried");
}

/// REQ-AWS-RETRY-6, REQ-AWS-MET-6
#[tokio::test(start_paused = true)]
async fn failures_that_pass_are_retried_unseen() {
    let world = World::new(1);
    let cloud = world.off_instance().await;
    let nodes = [world.node(0)];
    for fault in [Fault::DropConnection, Fault::internal_error()] {
        world
            .sim
            .faults()
            .next("DescribeInstances", 2, fault)
            .unwrap();
        let found = presence(&cloud, &nodes, Read::Direct).await;
        assert_eq!(found, [Presence::Present(Power::Running)]);
    }
    assert_eq!(world.count("DescribeInstances"), 6);
    assert!(!world.series().contains("response_status_total{"));
}

/// REQ-AWS-MET-2, REQ-AWS-MET-3, REQ-AWS-MET-4, REQ-AWS-MET-6
#[tokio::test(start_paused = true)]
async fn an_operation_that_finally_fails_is_counted_once() {
    let world = World::new(1);
    let cloud = world.off_instance().await;
    let nodes = [world.node(0)];
    world
        .sim
        .faults()
        .always("DescribeInstances", Fault::request_limit_exceeded())
        .unwrap();
    let all = cloud
        .instances()
        .unwrap()
        .presence(&nodes, Read::Direct)
        .await;
    let error = all.into_iter().next().unwrap().unwrap_err();
    assert!(matches!(error.class(), Class::Throttled { .. }));
    assert!(
        error
            .to_string()
            .contains("api error RequestLimitExceeded: Request limit exceeded."),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("operation error EC2: DescribeInstances"),
        "{error}"
    );
    assert_eq!(world.count("DescribeInstances"), 3);
    let series = world.series();
    for line in [
        "cloudprovider_aws_api_response_status_total{operation=\"DescribeInstances\",service=\"EC2\",status_code=\"503\"} 1",
        "cloudprovider_aws_api_throttled_requests_total{operation_name=\"DescribeInstances\"} 1",
        "cloudprovider_aws_api_request_errors{request=\"describe_instance\"} 1",
    ] {
        assert!(series.contains(line), "{line}\n{series}");
    }
}

/// REQ-AWS-RETRY-8
#[tokio::test(start_paused = true)]
async fn a_silent_cloud_costs_thirty_seconds_an_attempt() {
    let world = World::new(1).env("AWS_MAX_ATTEMPTS", "2");
    let cloud = world.off_instance().await;
    world
        .sim
        .faults()
        .always("*", Fault::Hang { millis: 3_600_000 })
        .unwrap();
    let start = Instant::now();
    let all = cloud
        .instances()
        .unwrap()
        .presence(&[world.node(0)], Read::Direct)
        .await;
    assert_eq!(all[0].as_ref().unwrap_err().class(), Class::Transient);
    let took = start.elapsed();
    assert!(
        took >= Duration::from_secs(60) && took < Duration::from_secs(90),
        "{took:?}"
    );
}

/// REQ-AWS-INST-17, REQ-AWS-INST-21
#[tokio::test(start_paused = true)]
async fn dead_instances_among_live_ones_take_two_calls() {
    let world = World::new(50);
    let cloud = world.off_instance().await;
    let live = (0..50).map(|index| world.node(index));
    let dead = (0..50).map(|n| node("d", &format!("aws:///us-west-2a/i-{n:017x}")));
    let nodes: Vec<_> = live.chain(dead).collect();
    let mark = world.sim.calls().mark();
    let found = presence(&cloud, &nodes, Read::Shared).await;
    assert_eq!(found[..50], [Presence::Present(Power::Running); 50]);
    assert_eq!(found[50..], [Presence::Absent; 50]);
    let calls = world.sim.calls().calls_since(mark);
    assert_eq!(calls.len(), 2);
    assert!(
        calls
            .iter()
            .all(|call| !call.params.contains_key("MaxResults"))
    );
}

/// REQ-AWS-INST-1, REQ-AWS-INST-2, REQ-AWS-INST-7
#[tokio::test(start_paused = true)]
async fn states_come_through_the_sdk() {
    let world = World::new(3);
    let cloud = world.off_instance().await;
    let nodes: Vec<_> = (0..3).map(|index| world.node(index)).collect();
    let aws = world.sim.aws();
    aws.configure(|settings| settings.instance_transition = Duration::from_secs(60));
    aws.stop(&world.cluster.instance_ids[1]).unwrap();
    aws.terminate(&world.cluster.instance_ids[2]).unwrap();
    let on_the_way = presence(&cloud, &nodes, Read::Shared).await;
    let unknown = Presence::Present(Power::Unknown);
    let running = Presence::Present(Power::Running);
    assert_eq!(on_the_way, [running, unknown, unknown]);
    tokio::time::advance(Duration::from_secs(600)).await;
    let arrived = presence(&cloud, &nodes, Read::Direct).await;
    assert_eq!(
        arrived,
        [running, Presence::Present(Power::Stopped), Presence::Absent]
    );
}

/// REQ-AWS-INST-20, REQ-AWS-MET-1, REQ-AWS-ID-9
#[tokio::test(start_paused = true)]
async fn a_lookup_by_name_follows_all_pages() {
    let world = World::new(5);
    let cloud = world.off_instance().await;
    world
        .sim
        .aws()
        .configure(|settings| settings.page_cap = Some(2));
    let names = (0..5).map(|index| node(world.node(index).name(), ""));
    let nodes: Vec<_> = names.collect();
    let mark = world.sim.calls().mark();
    let found = presence(&cloud, &nodes, Read::Shared).await;
    assert_eq!(found, [Presence::Present(Power::Running); 5]);
    let calls = world.sim.calls().calls_since(mark);
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.params["MaxResults"] == "1000"));
    let line = "request_duration_seconds_count{request=\"describe_instance\"} 1";
    assert!(world.series().contains(line));
}

/// REQ-AWS-META-1, REQ-AWS-ADDR-1, REQ-AWS-META-5
#[tokio::test(start_paused = true)]
async fn metadata_comes_through_the_sdk() {
    let world = World::new(2);
    let cloud = world.off_instance().await;
    world
        .sim
        .aws()
        .set_instance_type(&world.cluster.instance_ids[1], "p5.48xlarge")
        .unwrap();
    let instance = world
        .sim
        .aws()
        .instance(&world.cluster.instance_ids[1])
        .unwrap();
    let node = node(&instance.private_dns_name, "");
    let mut all = cloud.instances().unwrap().metadata(&[node]).await;
    let metadata = all.remove(0).unwrap().unwrap();
    let id = format!("aws:///{}/{}", instance.zone, instance.id);
    assert_eq!(metadata.provider_id.unwrap().as_str(), id);
    assert_eq!(metadata.instance_type, "p5.48xlarge");
    assert_eq!(
        (metadata.zone, metadata.region),
        (instance.zone.clone(), "us-west-2".to_owned())
    );
    assert!(metadata.additional_labels["topology.k8s.aws/zone-id"].starts_with("usw2-az"));
    let addresses: Vec<_> = metadata
        .addresses
        .iter()
        .map(|a| (a.type_.as_str(), a.address.clone()))
        .collect();
    let (private, public) = (instance.private_ip.unwrap(), instance.public_ip.unwrap());
    let types: Vec<_> = addresses.iter().map(|(type_, _)| *type_).collect();
    assert_eq!(
        types[..4],
        ["InternalIP", "ExternalIP", "InternalDNS", "Hostname"]
    );
    assert_eq!(addresses[0].1, private.to_string());
    assert_eq!(addresses[1].1, public.to_string());
    assert_eq!(addresses[3].1, instance.private_dns_name);
}

/// REQ-AWS-INST-9, REQ-AWS-INST-10, REQ-AWS-ADDR-13
#[tokio::test(start_paused = true)]
async fn fargate_nodes_come_through_the_sdk() {
    let world = World::new(0);
    let cloud = world.off_instance().await;
    let address = "10.20.0.77".parse().unwrap();
    world
        .sim
        .aws()
        .create_fargate_eni(&world.cluster.subnet_ids[0], address, None)
        .unwrap();
    let fargate = node(
        "fargate-ip-10-20-0-77.us-west-2.compute.internal",
        "aws:///us-west-2a/x/fargate-ip-10-20-0-77.us-west-2.compute.internal",
    );
    let nodes = [fargate];
    assert_eq!(
        presence(&cloud, &nodes, Read::Direct).await,
        [Presence::Present(Power::Running)]
    );
    let mut all = cloud.instances().unwrap().metadata(&nodes).await;
    let metadata = all.remove(0).unwrap().unwrap();
    assert_eq!(metadata.addresses[0].address, "10.20.0.77");
    assert_eq!(metadata.zone, "us-west-2a");
}

/// REQ-AWS-INST-22
#[tokio::test(start_paused = true)]
async fn a_lookup_of_nothing_is_refused_without_a_call() {
    use crate::api::{Clients, Connect, Ec2, SdkEc2};
    let world = World::new(1);
    let config = crate::config::CloudConfig::load(None).unwrap();
    let clients = Clients::connect(Connect {
        config: &config,
        env: &Env::new(world.env.clone()),
        region: "us-west-2",
        http: world.http(),
        clock: Clock::anchored(Options::default().start),
        registry: &world.registry,
        fence: Fence::open(),
    })
    .await
    .unwrap();
    let error = SdkEc2::new(&clients)
        .describe_instances(&[])
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected at least one instance ID, found 0"
    );
    assert!(world.sent().is_empty());
}

/// The fence is closed: reads go on, what changes something is not sent, at no attempt.
#[tokio::test(start_paused = true)]
async fn without_the_lease_reads_go_on_and_nothing_that_changes_the_cloud_is_sent() {
    use crate::api::{Clients, Connect, Ec2, SdkEc2};
    let world = World::new(1);
    let config = crate::config::CloudConfig::load(None).unwrap();
    let fence = Fence::waiting();
    let clients = Clients::connect(Connect {
        config: &config,
        env: &Env::new(world.env.clone()),
        region: "us-west-2",
        http: world.http(),
        clock: Clock::anchored(Options::default().start),
        registry: &world.registry,
        fence: fence.clone(),
    })
    .await
    .unwrap();
    let id = world.cluster.instance_ids[0].clone();
    let start = world.sim.calls().start();
    let tag = || {
        let tag = aws_sdk_ec2::types::Tag::builder()
            .key("a")
            .value("b")
            .build();
        clients.ec2.create_tags().resources(&id).tags(tag).send()
    };
    let ids = [crate::instances::InstanceId::from_cloud(id.clone())];
    let found = SdkEc2::new(&clients)
        .describe_instances(&ids)
        .await
        .unwrap();
    assert_eq!(found.len(), 1);
    let error = tag().await.unwrap_err();
    let text = format!("{:?}", aws_sdk_ec2::error::DisplayErrorContext(&error));
    assert!(
        text.contains("does not hold the leader election lease"),
        "{text}"
    );
    assert_eq!(world.sim.calls().writes_since(start).len(), 0);
    fence.extend(Instant::now() + Duration::from_secs(10));
    tag().await.unwrap();
    assert_eq!(world.sim.calls().writes_since(start).len(), 1);
    tokio::time::advance(Duration::from_secs(10)).await;
    tag().await.unwrap_err();
    assert_eq!(world.sim.calls().writes_since(start).len(), 1);
}
