//! Pod address ranges: the flags that say which there are, and those that Nodes have already.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ccm_core::{
    cloud::NodeIpamPolicy,
    config::{NodeIpamSettings, Settings},
    controllers::node_ipam::NodeIpamController,
    kube::{Informer, Node, RecordedEvents},
    runtime::{Clock, Context, Loops, QueueMetrics, Random, TakeOver},
};
use http::{Method, Request, Response};
use ipnet::IpNet;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{on_virtual_time, text};

/// The flags whose values stand in the lines of a seed, in this order.
const FLAGS: [&str; 6] = [
    "cluster-cidr",
    "service-cluster-ip-range",
    "cidr-allocator-type",
    "node-cidr-mask-size",
    "node-cidr-mask-size-ipv4",
    "node-cidr-mask-size-ipv6",
];

/// Blocks of a cluster, as a power of two. The address space of 10.0.0.0/8 in blocks of /28; an
/// operator may want more and pay the memory, the fuzzer may not.
const MOST_BLOCKS: u8 = 20;

fn context(client: kube::Client) -> Option<Context> {
    let (registry, clock) = (prometheus::Registry::new(), Clock::system());
    Some(Context {
        client,
        events: Arc::new(RecordedEvents::default()),
        clock: clock.clone(),
        random: Random::seeded(1),
        queues: QueueMetrics::new(&registry).ok()?,
        registry,
        loops: Loops::new(clock),
        took_over: TakeOver::default(),
    })
}

fn is_affordable(settings: &NodeIpamSettings) -> bool {
    let mask = settings.mask_size.max(settings.mask_size_ipv4).max(24);
    settings.cluster_cidr.split(',').all(|part| {
        let cluster = part.trim().parse::<IpNet>();
        cluster.map_or(true, |cluster| {
            matches!(cluster, IpNet::V6(_))
                || mask <= i32::from(cluster.prefix_len().saturating_add(MOST_BLOCKS))
        })
    })
}

/// One line that names a flag, and with it the way out.
fn assert_helps(error: &str) {
    let names_a_flag = FLAGS
        .iter()
        .any(|flag| error.contains(&format!("--{flag}")));
    assert!(names_a_flag && !error.contains('\n'), "{error:?}");
}

/// The flags of node IPAM, the values of [`FLAGS`] a line each.
///
/// Laws: every error and every warning is one line and names a flag, of the validation as well as
/// of the controller in each provider's column; what a provider refuses, it refuses each time.
pub fn fuzz_node_ipam(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let given = FLAGS.iter().zip(text.lines());
    let given = given.filter(|(_, value)| !value.is_empty());
    let args: Vec<String> = ["cloud-provider=aws", "allocate-node-cidrs"]
        .map(|flag| format!("--{flag}"))
        .into_iter()
        .chain(given.map(|(flag, value)| format!("--{flag}={value}")))
        .collect();
    let settings = match Settings::parse(args) {
        Ok(settings) => settings,
        Err(errors) => return errors.iter().for_each(assert_helps),
    };
    for warning in &settings.warnings {
        assert_helps(warning);
    }
    if !is_affordable(&settings.node_ipam) {
        return;
    }
    on_virtual_time(async {
        for policy in [
            NodeIpamPolicy::Kubernetes,
            NodeIpamPolicy::Gcp,
            NodeIpamPolicy::Azure,
        ] {
            let first = refusal(policy, &settings.node_ipam);
            first.iter().for_each(|error| assert_helps(error));
            assert_eq!(refusal(policy, &settings.node_ipam), first);
        }
    });
}

fn refusal(policy: NodeIpamPolicy, settings: &NodeIpamSettings) -> Option<String> {
    let nobody = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>()
    });
    let context = context(kube::Client::new(nobody, "default"))?;
    let nodes = Informer::<Node>::new();
    let made = NodeIpamController::new(&context, &nodes, None, policy, settings);
    made.err().map(|error| error.to_string())
}

/// The cluster of [`fuzz_pod_ranges`]: four blocks of each family.
const CLUSTERS: [&str; 2] = ["10.64.0.0/22", "2001:db8::/62"];

/// The path of a write, and the ranges in it.
type Write = (String, Vec<String>);

/// An API server with a Node that has these ranges, and one that wants some. Keeps the writes.
#[derive(Clone, Default)]
struct Api {
    has: Vec<String>,
    writes: Arc<Mutex<Vec<Write>>>,
}

impl Api {
    fn node(name: &str, ranges: &[String]) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1" },
            "spec": { "podCIDRs": ranges },
        })
    }

    /// What the Node that wants some was given, which no other was.
    fn given(&self) -> Option<Vec<String>> {
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writes = writes.iter();
        let (path, ranges) = writes.next()?;
        assert_eq!(path, "/api/v1/nodes/wants", "{ranges:?}");
        assert_eq!(writes.next(), None, "after {ranges:?}");
        Some(ranges.clone())
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let uri = request.uri().clone();
        let answer = if request.method() == Method::PATCH {
            let body = request.into_body().collect_bytes().await?;
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let ranges = body.pointer("/spec/podCIDRs").cloned();
            let ranges = ranges.and_then(|ranges| serde_json::from_value(ranges).ok());
            let ranges: Vec<String> = ranges.unwrap_or_default();
            let answer = Self::node("wants", &ranges);
            let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
            writes.push((uri.path().to_owned(), ranges));
            answer
        } else if uri.query().unwrap_or_default().contains("watch=true") {
            return std::future::pending().await;
        } else {
            json!({
                "apiVersion": "v1", "kind": "NodeList", "metadata": { "resourceVersion": "1" },
                "items": [Self::node("has", &self.has), Self::node("wants", &[])],
            })
        };
        Ok(Response::new(Body::from(answer.to_string().into_bytes())))
    }
}

/// What a Node says of its ranges, one a line.
///
/// Laws: ranges that do not fit end the controller with the Node's name and the way out; else the
/// next Node gets a block of each family that touches none of them, or none where none is left.
pub fn fuzz_pod_ranges(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let has: Vec<String> = text.lines().map(str::to_owned).collect();
    // It has none: then it wants some as well.
    if has.is_empty() {
        return;
    }
    let api = Api {
        has,
        ..Api::default()
    };
    on_virtual_time(async {
        let service = {
            let api = api.clone();
            tower::service_fn(move |request: Request<Body>| api.clone().answer(request))
        };
        let client = kube::Client::new(service, "default");
        let Some(context) = context(client.clone()) else {
            return;
        };
        let nodes = Informer::<Node>::new();
        let settings = NodeIpamSettings {
            allocate: true,
            cluster_cidr: CLUSTERS.join(","),
            ..NodeIpamSettings::default()
        };
        let policy = NodeIpamPolicy::Kubernetes;
        let made = NodeIpamController::new(&context, &nodes, None, policy, &settings);
        let Ok(Some(controller)) = made else { return };
        let stop = CancellationToken::new();
        let work = async {
            tokio::select! {
                biased;
                ended = controller.run(stop.clone()) => ended.err(),
                () = nodes.run(client, Random::seeded(1), stop.clone()) => None,
            }
        };
        match tokio::time::timeout(Duration::from_secs(5), work).await {
            Ok(error) => {
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                assert!(
                    error.starts_with("Node has: ")
                        && error.contains("--cluster-cidr")
                        && !error.contains('\n'),
                    "{error:?}"
                );
                assert_eq!(api.given(), None);
            }
            Err(_) => assert_apart(&api.has, api.given()),
        }
    });
}

fn assert_apart(has: &[String], given: Option<Vec<String>>) {
    let range = |text: &String| text.parse::<IpNet>();
    let read: Vec<IpNet> = has.iter().flat_map(range).collect();
    assert_eq!(
        read.len(),
        has.len(),
        "unreadable ranges were taken: {has:?}"
    );
    let has = read;
    let clusters: Vec<IpNet> = CLUSTERS.iter().flat_map(|text| text.parse()).collect();
    let Some(given) = given else {
        // Two ranges that fill four blocks: one of them fills two at least.
        let is_wide = |one: &IpNet| {
            let of = clusters
                .iter()
                .filter(|of| one.contains(*of) || of.contains(one));
            of.into_iter()
                .any(|of| one.prefix_len() <= of.prefix_len() + 1)
        };
        assert!(
            has.iter().any(is_wide),
            "no block for the next Node: {has:?}"
        );
        return;
    };
    let given: Vec<IpNet> = given.iter().flat_map(range).collect();
    assert_eq!(given.len(), clusters.len(), "{given:?}");
    for (block, (cluster, size)) in given.iter().zip(clusters.iter().zip([24, 64])) {
        assert!(
            cluster.contains(block) && block.prefix_len() == size,
            "{block}"
        );
        for taken in &has {
            assert!(
                !taken.contains(block) && !block.contains(taken),
                "{block} overlaps {taken}"
            );
        }
    }
}
