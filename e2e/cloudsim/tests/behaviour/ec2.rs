use std::collections::BTreeSet;
use std::time::Duration;

use ccm_cloudsim::aws::{InstanceState, RunInstance, Tags};
use ccm_cloudsim::{CloudSim, Options};

use crate::client::Client;

#[tokio::test]
async fn one_missing_or_malformed_id_fails_the_whole_describe_instances() {
    let (client, cluster) = Client::with_cluster(2);
    let good = cluster.instance_ids[0].as_str();
    let one = client
        .ec2(
            "DescribeInstances",
            &[("InstanceId.1", good), ("InstanceId.2", "i-0aa1")],
        )
        .await;
    assert_eq!(
        (one.status, one.one("Code").as_str()),
        (400, "InvalidInstanceID.NotFound")
    );
    assert_eq!(
        one.one("Message"),
        "The instance ID 'i-0aa1' does not exist"
    );
    let two = [
        ("InstanceId.1", "i-0aa1"),
        ("InstanceId.2", good),
        ("InstanceId.3", "i-0bb2"),
    ];
    let two = client.ec2("DescribeInstances", &two).await;
    assert_eq!(
        two.one("Message"),
        "The instance IDs 'i-0aa1, i-0bb2' do not exist"
    );
    let bad = client
        .ec2(
            "DescribeInstances",
            &[("InstanceId.1", "heron-1"), ("InstanceId.2", "i-0aa1")],
        )
        .await;
    assert_eq!(bad.one("Code"), "InvalidInstanceID.Malformed");
    assert_eq!(bad.one("Message"), "Invalid id: &quot;heron-1&quot;");
    let filter = [
        ("Filter.1.Name", "instance-id"),
        ("Filter.1.Value.1", good),
        ("Filter.1.Value.2", "i-0aa1"),
    ];
    assert_eq!(
        client
            .ec2("DescribeInstances", &filter)
            .await
            .all("instanceId"),
        [good]
    );
}

#[tokio::test]
async fn describe_instances_filters_and_pages() {
    let (client, cluster) = Client::with_cluster(12);
    client.sim.aws().stop(&cluster.instance_ids[3]).unwrap();
    let running = [
        ("Filter.1.Name", "instance-state-name"),
        ("Filter.1.Value.1", "running"),
        ("Filter.2.Name", "tag:kubernetes.io/cluster/kite"),
        ("Filter.2.Value.1", "owned"),
        ("MaxResults", "5"),
    ];
    let (mut seen, mut sizes, mut token) = (BTreeSet::new(), Vec::new(), String::new());
    loop {
        let mut pairs = running.to_vec();
        pairs.push(("NextToken", &token));
        let page = client.ec2("DescribeInstances", &pairs).await;
        let ids = page.all("instanceId");
        sizes.push(ids.len());
        seen.extend(ids);
        match page.all("nextToken").pop() {
            Some(next) => token = next,
            None => break,
        }
    }
    assert_eq!(sizes, [5, 5, 1]);
    let mut wanted: BTreeSet<String> = cluster.instance_ids.iter().cloned().collect();
    wanted.remove(&cluster.instance_ids[3]);
    assert_eq!(seen, wanted);
    let address = client.sim.aws().instance(&cluster.instance_ids[4]).unwrap();
    let name = [
        ("Filter.1.Name", "private-dns-name"),
        ("Filter.1.Value.1", address.private_dns_name.as_str()),
    ];
    assert_eq!(
        client
            .ec2("DescribeInstances", &name)
            .await
            .all("instanceId"),
        [address.id]
    );
    assert_eq!(
        client
            .ec2_error("DescribeInstances", &[("MaxResults", "4")])
            .await,
        "InvalidParameterValue"
    );
}

#[tokio::test]
async fn names_follow_the_region_and_ids_follow_the_seed() {
    let launch = |region: &str, seed| {
        let region = region.to_owned();
        let sim = CloudSim::new(Options {
            seed,
            region,
            ..Options::default()
        });
        let cluster = sim.aws().standard_cluster("kite", 1).unwrap();
        sim.aws().instance(&cluster.instance_ids[0]).unwrap()
    };
    let (west, east) = (launch("us-west-2", 7), launch("us-east-1", 7));
    assert_eq!(
        west.private_dns_name,
        "ip-10-20-0-4.us-west-2.compute.internal"
    );
    assert_eq!(east.private_dns_name, "ip-10-20-0-4.ec2.internal");
    assert_eq!(west.id, east.id);
    assert_eq!(west.id.len(), "i-".len() + 17);
    assert_ne!(west.id, launch("us-west-2", 8).id);
}

#[tokio::test(start_paused = true)]
async fn an_instance_passes_through_its_states_and_is_purged_in_the_end() {
    let (client, cluster) = Client::with_cluster(1);
    let aws = client.sim.aws();
    let id = cluster.instance_ids[0].as_str();
    aws.configure(|settings| settings.instance_transition = Duration::from_secs(20));
    let state = async || {
        client
            .ec2("DescribeInstances", &[("InstanceId.1", id)])
            .await
            .one("name")
    };
    let stop = client.ec2("StopInstances", &[("InstanceId.1", id)]).await;
    assert_eq!(stop.all("name"), ["stopping", "running"]);
    assert_eq!(
        client
            .ec2_error("StartInstances", &[("InstanceId.1", id)])
            .await,
        "IncorrectInstanceState"
    );
    assert_eq!(state().await, "stopping");
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(state().await, "stopped");
    client
        .ec2("TerminateInstances", &[("InstanceId.1", id)])
        .await;
    assert_eq!(state().await, "shutting-down");
    tokio::time::advance(Duration::from_secs(20)).await;
    let gone = client
        .ec2("DescribeInstances", &[("InstanceId.1", id)])
        .await;
    assert_eq!(gone.one("name"), "terminated");
    assert_eq!(gone.one("privateDnsName"), "");
    assert!(gone.all("networkInterfaceId").is_empty() && gone.all("privateIpAddress").is_empty());
    assert_eq!(
        client
            .ec2_error("StartInstances", &[("InstanceId.1", id)])
            .await,
        "IncorrectInstanceState"
    );
    assert_eq!(
        client
            .ec2("TerminateInstances", &[("InstanceId.1", id)])
            .await
            .status,
        200
    );
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(
        client
            .ec2_error("DescribeInstances", &[("InstanceId.1", id)])
            .await,
        "InvalidInstanceID.NotFound"
    );
}

#[tokio::test]
async fn a_forgotten_instance_is_unknown_at_once() {
    let (client, cluster) = Client::with_cluster(2);
    let id = cluster.instance_ids[0].as_str();
    client.sim.aws().forget(id).unwrap();
    assert_eq!(
        client
            .ec2_error("DescribeInstances", &[("InstanceId.1", id)])
            .await,
        "InvalidInstanceID.NotFound"
    );
    assert_eq!(
        client.sim.aws().terminate(id).unwrap_err().code,
        "InvalidInstanceID.NotFound"
    );
    client
        .sim
        .aws()
        .set_state(&cluster.instance_ids[1], InstanceState::Pending)
        .unwrap();
    assert_eq!(
        client.ec2("DescribeInstances", &[]).await.all("name"),
        ["pending"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_hidden_instance_appears_after_its_time() {
    let (client, cluster) = Client::with_cluster(1);
    let id = cluster.instance_ids[0].as_str();
    client.sim.aws().hide(id, Duration::from_secs(60));
    let tag = [
        ("ResourceId.1", id),
        ("Tag.1.Key", "a"),
        ("Tag.1.Value", "b"),
    ];
    assert_eq!(
        client
            .ec2_error("DescribeInstances", &[("InstanceId.1", id)])
            .await,
        "InvalidInstanceID.NotFound"
    );
    assert_eq!(
        client.ec2_error("CreateTags", &tag).await,
        "InvalidInstanceID.NotFound"
    );
    assert!(
        client
            .ec2("DescribeInstances", &[])
            .await
            .all("instanceId")
            .is_empty()
    );
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(client.ec2("CreateTags", &tag).await.status, 200);
    assert_eq!(
        client.ec2("DescribeInstances", &[]).await.all("instanceId"),
        [id]
    );
}

#[tokio::test]
async fn interfaces_come_in_random_order_when_asked_for() {
    let client = Client::new();
    let aws = client.sim.aws();
    let vpc = aws.create_vpc("10.20.0.0/15").unwrap();
    let first = aws
        .create_subnet(&vpc, "10.20.0.0/24", "us-west-2a", Tags::new())
        .unwrap();
    aws.create_subnet(&vpc, "10.21.7.0/24", "us-west-2a", Tags::new())
        .unwrap();
    let id = aws.run_instance(RunInstance {
        subnet: first,
        id: Some("i-0aa1".to_owned()),
        private_ip: Some([10, 20, 0, 11].into()),
        ..RunInstance::default()
    });
    let id = id.unwrap();
    aws.add_addresses(&id, &[[10, 20, 0, 12].into()], &[])
        .unwrap();
    aws.attach_eni(&id, 1, &[[10, 21, 7, 5].into()]).unwrap();
    let order = async || {
        client
            .ec2("DescribeInstances", &[("InstanceId.1", "i-0aa1")])
            .await
            .all("deviceIndex")
    };
    for _ in 0..20 {
        assert_eq!(order().await, ["0", "1"]);
    }
    aws.set_enis_order_random(true);
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        seen.insert(order().await);
    }
    assert_eq!(seen.len(), 2);
    let shown = client.ec2("DescribeInstances", &[]).await;
    let addresses: BTreeSet<String> = shown.all("privateIpAddress").into_iter().collect();
    assert_eq!(
        addresses,
        BTreeSet::from(["10.20.0.11", "10.20.0.12", "10.21.7.5"].map(str::to_owned))
    );
    let error = client.ec2_error(
        "ModifyInstanceAttribute",
        &[("InstanceId", "i-0aa1"), ("SourceDestCheck.Value", "false")],
    );
    assert_eq!(error.await, "InvalidInstanceID");
}

#[tokio::test]
async fn a_route_to_a_dead_instance_is_a_black_hole() {
    let (client, cluster) = Client::with_cluster(1);
    let id = cluster.instance_ids[0].as_str();
    let route = [
        ("RouteTableId", cluster.route_table_id.as_str()),
        ("DestinationCidrBlock", "10.244.1.7/24"),
        ("InstanceId", id),
    ];
    assert_eq!(client.ec2("CreateRoute", &route).await.status, 200);
    assert_eq!(
        client.ec2_error("CreateRoute", &route).await,
        "RouteAlreadyExists"
    );
    let routes = [("RouteTableId.1", cluster.route_table_id.as_str())];
    let shown = client.ec2("DescribeRouteTables", &routes).await;
    assert_eq!(
        shown.all("destinationCidrBlock"),
        ["10.20.0.0/16", "0.0.0.0/0", "10.244.1.0/24"]
    );
    assert!(!shown.body.contains("blackhole"));
    client.sim.aws().terminate(id).unwrap();
    assert!(
        client
            .ec2("DescribeRouteTables", &routes)
            .await
            .body
            .contains("<state>blackhole</state>")
    );
}

#[tokio::test]
async fn a_route_is_replaced_and_removed_and_the_local_one_stays() {
    let (client, cluster) = Client::with_cluster(2);
    let table = ("RouteTableId", cluster.route_table_id.as_str());
    let to = ("DestinationCidrBlock", "10.244.1.0/24");
    let [a, b] = [0, 1].map(|at| ("InstanceId", cluster.instance_ids[at].as_str()));
    let missing = client.ec2_error("ReplaceRoute", &[table, to, a]).await;
    assert_eq!(missing, "InvalidParameterValue");
    assert_eq!(client.ec2("CreateRoute", &[table, to, a]).await.status, 200);
    let other = ("DestinationCidrBlock", "10.244.1.9/24");
    let answer = client.ec2("ReplaceRoute", &[table, other, b]).await;
    assert_eq!(answer.status, 200);
    let tables = [("RouteTableId.1", cluster.route_table_id.as_str())];
    let shown = client.ec2("DescribeRouteTables", &tables).await;
    assert_eq!(shown.all("instanceId"), [b.1]);
    assert!(shown.all("networkInterfaceId")[0].starts_with("eni-"));
    client.sim.aws().set_quotas(|q| q.routes_per_table = 3);
    let full = [table, ("DestinationCidrBlock", "10.244.2.0/24"), a];
    let error = client.ec2_error("CreateRoute", &full).await;
    assert_eq!(error, "RouteLimitExceeded");
    assert_eq!(client.ec2("DeleteRoute", &[table, to]).await.status, 200);
    let gone = client.ec2_error("DeleteRoute", &[table, to]).await;
    assert_eq!(gone, "InvalidRoute.NotFound");
    let local = ("DestinationCidrBlock", "10.20.0.0/16");
    let kept = client.ec2_error("DeleteRoute", &[table, local]).await;
    assert_eq!(kept, "InvalidParameterValue");
    assert_eq!(client.ec2("CreateRoute", &full).await.status, 200);
}

#[tokio::test]
async fn the_check_of_an_interface_is_switched_off_by_its_id() {
    let (client, cluster) = Client::with_cluster(1);
    let id = cluster.instance_ids[0].as_str();
    client.sim.aws().attach_eni(id, 1, &[]).unwrap();
    let primary = |client: &Client| {
        let state = client.sim.aws().snapshot();
        let mut all = state.interfaces.into_values();
        let at_zero = |eni: &ccm_cloudsim::aws::Interface| {
            eni.attachment
                .as_ref()
                .is_some_and(|at| at.instance_id.as_deref() == Some(id) && at.device_index == 0)
        };
        all.find(at_zero).unwrap()
    };
    let eni = primary(&client).id;
    let off = [
        ("NetworkInterfaceId", eni.as_str()),
        ("SourceDestCheck.Value", "false"),
    ];
    let answer = client.ec2("ModifyNetworkInterfaceAttribute", &off).await;
    assert_eq!(answer.status, 200);
    assert!(!primary(&client).source_dest_check);
    let state = client.sim.aws().snapshot();
    assert!(!state.instances[id].source_dest_check);
    assert!(state.interfaces.values().any(|eni| eni.source_dest_check));
    let none = client
        .ec2_error("ModifyNetworkInterfaceAttribute", &off[..1])
        .await;
    assert_eq!(none, "InvalidParameterCombination");
}

#[tokio::test]
async fn topology_exists_for_tightly_coupled_types_only() {
    let (client, cluster) = Client::with_cluster(1);
    let launch = |kind: &str, subnet: usize| {
        let wanted = RunInstance {
            subnet: cluster.subnet_ids[subnet].clone(),
            instance_type: kind.to_owned(),
            ..RunInstance::default()
        };
        client.sim.aws().run_instance(wanted).unwrap()
    };
    let (near, far) = (launch("p5.48xlarge", 0), launch("trn1.32xlarge", 1));
    let ids = [
        ("InstanceId.1", near.as_str()),
        ("InstanceId.2", far.as_str()),
    ];
    let topology = client.ec2("DescribeInstanceTopology", &ids).await;
    assert_eq!(topology.all("instanceId").len(), 2);
    let nodes = topology.all("networkNodeSet");
    let layers = |text: &str| text.split("</item>").map(str::to_owned).collect::<Vec<_>>();
    let (a, b) = (layers(&nodes[0]), layers(&nodes[1]));
    assert_eq!(a[0], b[0], "same region, same outermost node");
    assert_ne!(a[1], b[1], "another zone, another node");
    let plain = client
        .ec2(
            "DescribeInstanceTopology",
            &[("InstanceId.1", cluster.instance_ids[0].as_str())],
        )
        .await;
    assert_eq!((plain.status, plain.all("instanceId").len()), (200, 0));
}

#[tokio::test]
async fn a_fargate_interface_is_found_by_its_address() {
    let (client, cluster) = Client::with_cluster(1);
    client
        .sim
        .aws()
        .create_fargate_eni(&cluster.subnet_ids[0], [10, 20, 1, 9].into(), None)
        .unwrap();
    let filters = [
        ("Filter.1.Name", "attachment.status"),
        ("Filter.1.Value.1", "attached"),
        ("Filter.2.Name", "private-ip-address"),
        ("Filter.2.Value.1", "10.20.1.9"),
        ("Filter.3.Name", "vpc-id"),
        ("Filter.3.Value.1", cluster.vpc_id.as_str()),
    ];
    let found = client.ec2("DescribeNetworkInterfaces", &filters).await;
    assert_eq!(
        found.one("privateDnsName"),
        "ip-10-20-1-9.us-west-2.compute.internal"
    );
    assert!(found.all("instanceId").is_empty());
}

#[tokio::test]
async fn tags_are_set_on_all_resources_or_on_none() {
    let (client, cluster) = Client::with_cluster(1);
    let id = cluster.instance_ids[0].as_str();
    let bad = [
        ("ResourceId.1", id),
        ("ResourceId.2", "i-0aa1"),
        ("Tag.1.Key", "a"),
        ("Tag.1.Value", "1"),
    ];
    assert_eq!(
        client.ec2_error("CreateTags", &bad).await,
        "InvalidInstanceID.NotFound"
    );
    assert!(
        !client
            .sim
            .aws()
            .instance(id)
            .unwrap()
            .tags
            .contains_key("a")
    );
    let malformed = [
        ("ResourceId.1", "heron"),
        ("Tag.1.Key", "a"),
        ("Tag.1.Value", "1"),
    ];
    assert_eq!(
        client.ec2_error("CreateTags", &malformed).await,
        "InvalidID"
    );
    assert_eq!(
        client
            .ec2_error(
                "DeleteTags",
                &[("ResourceId.1", "i-0aa1"), ("Tag.1.Key", "a")]
            )
            .await,
        "InvalidInstanceID.NotFound"
    );
    client
        .ec2(
            "CreateTags",
            &[
                ("ResourceId.1", id),
                ("Tag.1.Key", "a"),
                ("Tag.1.Value", "1"),
            ],
        )
        .await;
    client
        .ec2(
            "DeleteTags",
            &[
                ("ResourceId.1", id),
                ("Tag.1.Key", "a"),
                ("Tag.1.Value", "2"),
            ],
        )
        .await;
    assert_eq!(client.sim.aws().instance(id).unwrap().tags["a"], "1");
    client
        .ec2(
            "DeleteTags",
            &[
                ("ResourceId.1", id),
                ("Tag.1.Key", "a"),
                ("Tag.1.Value", "1"),
            ],
        )
        .await;
    assert!(
        !client
            .sim
            .aws()
            .instance(id)
            .unwrap()
            .tags
            .contains_key("a")
    );
}

#[tokio::test]
async fn a_restarted_instance_has_another_public_address_and_the_same_private_one() {
    let (client, cluster) = Client::with_cluster(1);
    let aws = client.sim.aws();
    let id = cluster.instance_ids[0].as_str();
    let before = aws.instance(id).unwrap();
    aws.stop(id).unwrap();
    assert_eq!(aws.instance(id).unwrap().public_ip, None);
    aws.start(id).unwrap();
    let after = aws.instance(id).unwrap();
    assert_eq!(after.private_ip, before.private_ip);
    assert!(after.public_ip.is_some() && after.public_ip != before.public_ip);
}

#[tokio::test]
async fn five_thousand_nodes_are_made_and_listed() {
    let (client, cluster) = Client::with_cluster(5000);
    let names: BTreeSet<String> = client
        .ec2("DescribeInstances", &[])
        .await
        .all("instanceId")
        .into_iter()
        .collect();
    assert_eq!(names, cluster.instance_ids.into_iter().collect());
    let addresses: BTreeSet<_> = client
        .sim
        .aws()
        .snapshot()
        .instances
        .into_values()
        .map(|node| node.private_ip)
        .collect();
    assert_eq!(addresses.len(), 5000);
}
