use ccm_core::cloud::{Class, CloudError};

use super::*;
use crate::{
    api::InstanceState,
    config::DEFAULT_TOPOLOGY_PATTERN,
    instances::{
        fake::{FakeEc2, cluster, id, instance, interface},
        metadata::ZONE_ID_LABEL,
        topology::LAYER_LABEL,
    },
};

fn provider(ec2: &Arc<FakeEc2>) -> AwsInstances {
    with_self(ec2, None)
}

fn with_self(ec2: &Arc<FakeEc2>, self_instance: Option<Instance>) -> AwsInstances {
    let cloud = Arc::clone(ec2) as Arc<dyn Ec2>;
    let describer = Describer::new(Arc::clone(&cloud), cluster());
    AwsInstances::new(Setup {
        store: Arc::new(InstanceStore::new(Arc::clone(&describer), cluster())),
        zones: Arc::new(ZoneCache::new(Arc::clone(&cloud))),
        ec2: cloud,
        describer,
        region: "us-west-2".into(),
        vpc: "vpc-1".into(),
        families: vec![IpFamily::V4],
        topology_pattern: Regex::new(DEFAULT_TOPOLOGY_PATTERN).unwrap(),
        self_instance: self_instance.map(Arc::new),
    })
}

fn node(name: &str, provider_id: &str) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.spec.provider_id = Some(provider_id.to_owned());
    Arc::new(node)
}

fn labelled(node: &Arc<Node>, label: &str) -> Arc<Node> {
    let mut node = Node::clone(node);
    node.metadata
        .labels
        .get_or_insert_default()
        .insert(label.to_owned(), "x".to_owned());
    Arc::new(node)
}

async fn one(provider: &AwsInstances, node: &Arc<Node>, read: Read) -> CloudResult<Presence> {
    provider
        .presence(std::slice::from_ref(node), read)
        .await
        .remove(0)
}

async fn described(provider: &AwsInstances, node: &Arc<Node>) -> CloudResult<InstanceMetadata> {
    let mut all = provider.metadata(std::slice::from_ref(node)).await;
    all.remove(0).map(Option::unwrap)
}

fn code(code: &str) -> CloudError {
    FakeEc2::failure(code, 400)
}

const BOTH: [Read; 2] = [Read::Shared, Read::Direct];

/// REQ-AWS-INST-1, REQ-AWS-INST-2, REQ-AWS-INST-7, REQ-AWS-ID-8
#[tokio::test(start_paused = true)]
async fn presence_follows_the_state_of_the_instance() {
    for (state, want) in [
        (InstanceState::Running, Presence::Present(Power::Running)),
        (InstanceState::Stopped, Presence::Present(Power::Stopped)),
        (InstanceState::Stopping, Presence::Present(Power::Unknown)),
        (InstanceState::Pending, Presence::Present(Power::Unknown)),
        (
            InstanceState::ShuttingDown,
            Presence::Present(Power::Unknown),
        ),
        (InstanceState::Terminated, Presence::Absent),
    ] {
        let ec2 = FakeEc2::with([Instance {
            state: Some(state),
            ..instance("i-1")
        }]);
        let node = node(
            "ip-10-0-0-1.us-west-2.compute.internal",
            "aws:///us-west-2a/i-1",
        );
        for read in BOTH {
            assert_eq!(one(&provider(&ec2), &node, read).await.unwrap(), want);
        }
        assert_eq!(ec2.calls(), ["DescribeInstances 1", "DescribeInstances 1"]);
    }
}

/// REQ-AWS-INST-4, REQ-AWS-INST-5, REQ-AWS-INST-8
#[tokio::test(start_paused = true)]
async fn an_instance_that_ec2_does_not_know_is_absent() {
    let gone = node("n", "aws:///us-west-2a/i-1");
    let flattened = "error listing AWS instances: \"InvalidInstanceID.NotFound: gone\"";
    for read in BOTH {
        let ec2 = FakeEc2::with([]);
        assert_eq!(
            one(&provider(&ec2), &gone, read).await.unwrap(),
            Presence::Absent
        );
        let ec2 = FakeEc2::with([instance("i-1")]);
        ec2.fail_next(CloudError::transient(flattened));
        assert_eq!(
            one(&provider(&ec2), &gone, read).await.unwrap(),
            Presence::Absent
        );
    }
}

/// REQ-AWS-INST-6
#[tokio::test(start_paused = true)]
async fn uncertainty_is_an_error_and_never_absence() {
    for error in [
        "RequestLimitExceeded",
        "InternalError",
        "UnauthorizedOperation",
        "AuthFailure",
        "InvalidInstanceID.Malformed",
    ] {
        for read in BOTH {
            let ec2 = FakeEc2::with([]);
            ec2.fail_next(code(error));
            let node = node("n", "aws:///us-west-2a/i-1");
            assert!(one(&provider(&ec2), &node, read).await.is_err(), "{error}");
            assert_eq!(ec2.calls().len(), 1);
        }
    }
}

/// REQ-AWS-ID-3
#[tokio::test(start_paused = true)]
async fn a_node_of_another_cloud_costs_no_call_and_spoils_no_other() {
    let ec2 = FakeEc2::with([instance("i-1")]);
    let nodes = [
        node("a", "gce://p/z/i-1"),
        node("b", "aws:///us-west-2a/i-1"),
    ];
    for read in BOTH {
        let all = provider(&ec2).presence(&nodes, read).await;
        assert_eq!(all[0].as_ref().unwrap_err().class(), Class::Invalid);
        assert_eq!(*all[1].as_ref().unwrap(), Presence::Present(Power::Running));
    }
    assert_eq!(ec2.calls().len(), 2);
    let foreign = provider(&ec2).presence(&nodes[..1], Read::Direct).await;
    assert!(foreign[0].is_err());
    assert_eq!(ec2.calls().len(), 2);
    let error = described(&provider(&ec2), &nodes[0])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("failed to map provider ID to AWS instance ID for node a: "),
        "{error}"
    );
}

/// REQ-AWS-INST-17
#[tokio::test(start_paused = true)]
async fn fifty_unknown_instances_take_at_most_two_calls() {
    let ec2 = FakeEc2::with((0..50).map(|n| instance(&format!("i-live{n}"))));
    let dead = (0..50).map(|n| node("d", &format!("aws:///us-west-2a/i-dead{n}")));
    let live = (0..50).map(|n| node("l", &format!("aws:///us-west-2a/i-live{n}")));
    let nodes: Vec<_> = dead.chain(live).collect();
    let all = provider(&ec2).presence(&nodes, Read::Shared).await;
    let absent = all
        .iter()
        .filter(|p| matches!(p, Ok(Presence::Absent)))
        .count();
    let running = all
        .iter()
        .filter(|p| matches!(p, Ok(Presence::Present(Power::Running))))
        .count();
    assert_eq!((absent, running), (50, 50));
    assert_eq!(
        ec2.calls(),
        ["DescribeInstances 100", "DescribeInstances 50"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_direct_read_is_addressed_to_one_instance() {
    let ec2 = FakeEc2::with([instance("i-1"), instance("i-2")]);
    let nodes = [
        node("a", "aws:///us-west-2a/i-1"),
        node("b", "aws:///us-west-2a/i-2"),
    ];
    provider(&ec2).presence(&nodes, Read::Direct).await;
    assert_eq!(ec2.calls(), ["DescribeInstances 1", "DescribeInstances 1"]);
}

/// REQ-AWS-INST-23, REQ-AWS-INST-24, REQ-AWS-INST-25, REQ-AWS-ID-7
#[tokio::test(start_paused = true)]
async fn nodes_without_provider_id_are_found_by_name() {
    for read in BOTH {
        let ec2 = FakeEc2::with([instance("i-1")]);
        let provider = provider(&ec2);
        let name = "i-1.us-west-2.compute.internal";
        let found = one(&provider, &node(name, ""), read).await.unwrap();
        assert_eq!(found, Presence::Present(Power::Running));
        assert_eq!(
            ec2.calls(),
            ["DescribeInstances 1"],
            "the id is in the name"
        );
        for gone in ["i-9", "ip-10-0-0-9.us-west-2.compute.internal"] {
            let absent = one(&provider, &node(gone, ""), read).await.unwrap();
            assert_eq!(absent, Presence::Absent, "{gone}");
        }
        for error in ["InvalidInstanceID.Malformed", "InvalidID"] {
            ec2.fail_next(code(error));
            assert!(
                one(&provider, &node("i-9", ""), read).await.is_err(),
                "{error}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_names_are_one_call() {
    let name = |n| format!("ip-10-0-0-{n}.us-west-2.compute.internal");
    let ec2 = FakeEc2::with((0..250).map(|n| Instance {
        private_dns_name: name(n),
        ..instance(&format!("i-{n}"))
    }));
    let nodes: Vec<_> = (0..250).map(|n| node(&name(n), "")).collect();
    let all = provider(&ec2).presence(&nodes, Read::Shared).await;
    assert!(
        all.iter()
            .all(|p| matches!(p, Ok(Presence::Present(Power::Running))))
    );
    assert_eq!(ec2.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_own_name_needs_no_lookup_by_name() {
    let own = Instance {
        private_dns_name: "ip-10-0-0-1.ec2.internal".into(),
        ..instance("i-1")
    };
    let ec2 = FakeEc2::with([own.clone()]);
    let node = node("ip-10-0-0-1.ec2.internal", "");
    let metadata = described(&with_self(&ec2, Some(own)), &node).await.unwrap();
    assert_eq!(
        metadata.provider_id.unwrap().as_str(),
        "aws:///us-west-2a/i-1"
    );
    assert_eq!(ec2.calls()[0], "DescribeInstances 1");
}

/// REQ-AWS-INST-9
#[tokio::test(start_paused = true)]
async fn a_fargate_node_lives_while_its_interface_is_there() {
    let ec2 = FakeEc2::with([]);
    let fargate = node(
        "fargate-ip-10-0-0-1",
        "aws:///us-west-2a/x/fargate-10.0.0.1",
    );
    for read in BOTH {
        assert_eq!(
            one(&provider(&ec2), &fargate, read).await.unwrap(),
            Presence::Absent
        );
    }
    ec2.put_interface(interface(0, &["10.0.0.1"], &[]));
    let alive = Presence::Present(Power::Running);
    for read in BOTH {
        assert_eq!(one(&provider(&ec2), &fargate, read).await.unwrap(), alive);
    }
}

/// REQ-AWS-META-1, REQ-AWS-META-4, REQ-AWS-ID-6
#[tokio::test(start_paused = true)]
async fn a_new_node_gets_provider_id_type_zone_region_and_zone_id() {
    let ec2 = FakeEc2::with((0..100).map(|n| instance(&format!("i-{n}"))));
    let nodes: Vec<_> = (0..100).map(|n| node(&format!("i-{n}"), "")).collect();
    let provider = provider(&ec2);
    let all = provider.metadata(&nodes).await;
    let first = all[1].as_ref().unwrap().as_ref().unwrap();
    assert_eq!(
        first.provider_id.as_ref().unwrap().as_str(),
        "aws:///us-west-2a/i-1"
    );
    assert_eq!(first.instance_type, "m5.large");
    assert_eq!(
        (first.zone.as_str(), first.region.as_str()),
        ("us-west-2a", "us-west-2")
    );
    assert_eq!(first.additional_labels[ZONE_ID_LABEL], "usw2-az1");
    assert_eq!(first.addresses[0].address, "10.0.0.1");
    assert_eq!(
        ec2.calls(),
        [
            "DescribeInstances 100",
            "DescribeInstanceTopology 100",
            "DescribeAvailabilityZones"
        ]
    );
}

/// REQ-AWS-META-2, REQ-AWS-META-6
#[tokio::test(start_paused = true)]
async fn labels_that_are_there_are_not_asked_for() {
    let ec2 = FakeEc2::with([instance("i-1")]);
    let node = labelled(&node("i-1", ""), ZONE_ID_LABEL);
    let node = labelled(&node, &format!("{LAYER_LABEL}1"));
    let metadata = described(&provider(&ec2), &node).await.unwrap();
    assert!(metadata.additional_labels.is_empty());
    assert_eq!(ec2.calls(), ["DescribeInstances 1"]);
}

/// REQ-AWS-META-3
#[tokio::test(start_paused = true)]
async fn a_zone_that_the_cloud_does_not_list_holds_the_node_up() {
    let ec2 = FakeEc2::with([Instance {
        zone: "us-west-2x".into(),
        ..instance("i-1")
    }]);
    let error = described(&provider(&ec2), &node("i-1", ""))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Could not get zone ID from zone name us-west-2x"
    );
    let zone_calls = ec2.calls().iter().filter(|c| c.contains("Zones")).count();
    assert_eq!(zone_calls, 1);
}

/// REQ-AWS-META-7
#[tokio::test(start_paused = true)]
async fn a_fargate_node_without_interface_has_neither_zone_nor_addresses() {
    let ec2 = FakeEc2::with([]);
    let fargate = node("f", "aws:///us-west-2a/x/fargate-10.0.0.1");
    let error = described(&provider(&ec2), &fargate).await.unwrap_err();
    assert_eq!(error.to_string(), "Could not get zone ID from zone name ");
    let known = labelled(&fargate, ZONE_ID_LABEL);
    let metadata = described(&provider(&ec2), &known).await.unwrap();
    assert_eq!((metadata.addresses.len(), metadata.zone.as_str()), (0, ""));
}

/// REQ-AWS-META-8
#[tokio::test(start_paused = true)]
async fn a_provider_id_that_is_set_stays_as_it_is() {
    let ec2 = FakeEc2::with([instance("i-1")]);
    let node = node("n", "aws:///us-west-2c/x/i-1");
    let metadata = described(&provider(&ec2), &node).await.unwrap();
    assert_eq!(
        metadata.provider_id.unwrap().as_str(),
        "aws:///us-west-2c/x/i-1"
    );
    assert_eq!(metadata.zone, "us-west-2a");
}

/// REQ-AWS-META-9, REQ-AWS-INST-19, REQ-AWS-ID-12
#[tokio::test(start_paused = true)]
async fn metadata_of_a_missing_instance_is_a_not_found_error() {
    let untagged = Instance {
        tags: crate::tags::Tags::new(),
        ..instance("i-2")
    };
    let foreign = Instance {
        private_dns_name: "foreign".into(),
        ..untagged
    };
    let ec2 = FakeEc2::with([foreign]);
    for (node, text) in [
        (
            node("n", "aws:///us-west-2a/i-1"),
            "failed to get instance by ID i-1: instance not found",
        ),
        (node("nobody", ""), "instance not found"),
        (node("foreign", ""), "instance not found"),
    ] {
        let error = described(&provider(&ec2), &node).await.unwrap_err();
        assert_eq!(
            (error.class(), error.to_string().as_str()),
            (Class::NotFound, text)
        );
    }
    ec2.fail_next(FakeEc2::throttled());
    let error = described(&provider(&ec2), &node("n", "i-1"))
        .await
        .unwrap_err();
    assert!(matches!(error.class(), Class::Throttled { .. }));
    assert!(
        error
            .to_string()
            .starts_with("failed to get instance by ID i-1: ")
    );
}

/// REQ-AWS-TOPO-7
#[tokio::test(start_paused = true)]
async fn a_node_whose_type_needs_topology_waits_for_it() {
    let big = Instance {
        instance_type: "p5.48xlarge".into(),
        ..instance("i-1")
    };
    let ec2 = FakeEc2::with([big]);
    ec2.put_topology("i-1", &["nn-1", "nn-2"]);
    let provider = provider(&ec2);
    let node = node("i-1", "");
    let metadata = described(&provider, &node).await.unwrap();
    assert_eq!(
        metadata.additional_labels[&format!("{LAYER_LABEL}2")],
        "nn-2"
    );
    assert_eq!(
        one(&provider, &node, Read::Direct).await.unwrap(),
        Presence::Present(Power::Running)
    );
    assert_eq!(id("i-1"), instance("i-1").id);
}
