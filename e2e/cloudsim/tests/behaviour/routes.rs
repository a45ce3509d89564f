use crate::client::Client;

#[tokio::test]
async fn a_route_is_made_replaced_and_deleted_for_both_families_of_addresses() {
    let (client, cluster) = Client::with_cluster(2);
    let aws = client.sim.aws();
    let table = ("RouteTableId", cluster.route_table_id.as_str());
    let v4 = ("DestinationCidrBlock", "100.64.1.0/24");
    let v6 = ("DestinationIpv6CidrBlock", "2001:db8:1::/64");
    let first = ("InstanceId", cluster.instance_ids[0].as_str());
    let enis = aws.snapshot().interfaces;
    let of = |id: &str| {
        let mut enis = enis.values();
        let own =
            enis.find(|eni| eni.attachment.as_ref().unwrap().instance_id.as_deref() == Some(id));
        own.unwrap().id.clone()
    };
    let eni = of(&cluster.instance_ids[1]);
    let second = ("NetworkInterfaceId", eni.as_str());
    assert_eq!(
        client.ec2("CreateRoute", &[table, v4, first]).await.status,
        200
    );
    assert_eq!(
        client.ec2("CreateRoute", &[table, v6, second]).await.status,
        200
    );
    assert_eq!(
        client.ec2_error("CreateRoute", &[table, v4, second]).await,
        "RouteAlreadyExists"
    );
    // Whichever of the two a route was made with, instance and interface are shown.
    let shown = client
        .ec2("DescribeRouteTables", &[("RouteTableId.1", table.1)])
        .await;
    assert_eq!(shown.all("instanceId"), cluster.instance_ids);
    assert_eq!(
        shown.all("networkInterfaceId"),
        [of(&cluster.instance_ids[0]), eni.clone()]
    );
    assert_eq!(shown.one("destinationIpv6CidrBlock"), "2001:db8:1::/64");
    assert_eq!(
        client
            .ec2("ReplaceRoute", &[table, v4, second])
            .await
            .status,
        200
    );
    let routes = &aws.snapshot().route_tables[table.1].routes;
    let route = routes
        .iter()
        .find(|route| route.destination == v4.1)
        .unwrap();
    assert_eq!(route.target, eni);
    for route in [v4, v6] {
        assert_eq!(client.ec2("DeleteRoute", &[table, route]).await.status, 200);
        assert_eq!(
            client.ec2_error("DeleteRoute", &[table, route]).await,
            "InvalidRoute.NotFound"
        );
    }
    assert_eq!(
        client.ec2_error("ReplaceRoute", &[table, v4, first]).await,
        "InvalidParameterValue"
    );
}

#[tokio::test]
async fn routes_have_one_target_a_quota_and_leave_the_local_one_alone() {
    let (client, cluster) = Client::with_cluster(1);
    let table = ("RouteTableId", cluster.route_table_id.as_str());
    let local = ("DestinationCidrBlock", "10.20.0.0/16");
    assert_eq!(
        client.ec2_error("DeleteRoute", &[table, local]).await,
        "InvalidParameterValue"
    );
    let v4 = ("DestinationCidrBlock", "100.64.1.0/24");
    let instance = ("InstanceId", cluster.instance_ids[0].as_str());
    let gateway = ("GatewayId", cluster.internet_gateway_id.as_str());
    for targets in [vec![], vec![instance, gateway]] {
        let pairs = [vec![table, v4], targets].concat();
        assert_eq!(
            client.ec2_error("CreateRoute", &pairs).await,
            "InvalidParameterCombination"
        );
    }
    // The local route and the one to the gateway are there already.
    client
        .sim
        .aws()
        .set_quotas(|quotas| quotas.routes_per_table = 3);
    assert_eq!(
        client
            .ec2("CreateRoute", &[table, v4, instance])
            .await
            .status,
        200
    );
    let more = ("DestinationCidrBlock", "100.64.2.0/24");
    assert_eq!(
        client
            .ec2_error("CreateRoute", &[table, more, instance])
            .await,
        "RouteLimitExceeded"
    );
}

#[tokio::test]
async fn the_check_of_one_interface_is_switched_off_by_its_id() {
    let (client, cluster) = Client::with_cluster(1);
    let aws = client.sim.aws();
    let id = cluster.instance_ids[0].as_str();
    let second = aws.attach_eni(id, 1, &[]).unwrap();
    let interfaces = aws.snapshot().interfaces;
    let first = interfaces.keys().find(|eni| **eni != second).unwrap();
    let off = |eni| {
        [
            ("NetworkInterfaceId", eni),
            ("SourceDestCheck.Value", "false"),
        ]
    };
    let modify = "ModifyNetworkInterfaceAttribute";
    assert_eq!(client.ec2(modify, &off(&second)).await.status, 200);
    assert!(
        aws.instance(id).unwrap().source_dest_check,
        "not the primary one"
    );
    assert_eq!(client.ec2(modify, &off(first)).await.status, 200);
    assert!(!aws.instance(id).unwrap().source_dest_check);
    let nothing = &off(first)[..1];
    assert_eq!(
        client.ec2_error(modify, nothing).await,
        "InvalidParameterCombination"
    );
    let unknown = client.ec2_error(modify, &off("eni-0123")).await;
    assert_eq!(unknown, "InvalidNetworkInterfaceID.NotFound");
}

#[tokio::test]
async fn a_route_to_an_instance_with_two_interfaces_must_name_one_of_them() {
    let (client, cluster) = Client::with_cluster(1);
    let id = cluster.instance_ids[0].as_str();
    let second = client.sim.aws().attach_eni(id, 1, &[]).unwrap();
    let table = ("RouteTableId", cluster.route_table_id.as_str());
    let v4 = ("DestinationCidrBlock", "100.64.1.0/24");
    let error = client
        .ec2_error("CreateRoute", &[table, v4, ("InstanceId", id)])
        .await;
    assert_eq!(error, "InvalidInstanceID");
    let by_eni = [table, v4, ("NetworkInterfaceId", &*second)];
    assert_eq!(client.ec2("CreateRoute", &by_eni).await.status, 200);
    client.sim.aws().stop(id).unwrap();
    let shown = client
        .ec2("DescribeRouteTables", &[("RouteTableId.1", table.1)])
        .await;
    assert!(
        shown.all("state").contains(&"blackhole".to_owned()),
        "{}",
        shown.body
    );
}
