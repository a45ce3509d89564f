use bytes::Bytes;
use http::Request;
use http_body_util::Full;

use crate::client::Client;

fn allow(actions: &str) -> String {
    format!(
        r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Action": [{actions}], "Resource": "*"}}]}}"#
    )
}

#[tokio::test]
async fn without_a_policy_everything_is_allowed_and_with_one_only_what_it_says() {
    let (client, cluster) = Client::with_cluster(1);
    let iam = client.sim.iam();
    assert_eq!(client.ec2("DescribeVpcs", &[]).await.status, 200);
    iam.attach("reader", &allow(r#""ec2:Describe*""#)).unwrap();
    assert_eq!(client.ec2("DescribeVpcs", &[]).await.status, 200);
    let mark = client.sim.calls().mark();
    let delete = [("GroupId", cluster.security_group_id.as_str())];
    let denied = client.ec2("DeleteSecurityGroup", &delete).await;
    assert_eq!(
        (denied.status, &*denied.one("Code")),
        (403, "UnauthorizedOperation")
    );
    assert!(
        denied.one("Message").contains("ec2:DeleteSecurityGroup"),
        "{}",
        denied.body
    );
    for (version, action) in [
        ("2015-12-01", "DescribeLoadBalancers"),
        ("2012-06-01", "DescribeLoadBalancers"),
        ("2011-06-15", "AssumeRole"),
    ] {
        let role = [
            ("RoleArn", "arn:aws:iam::1:role/r"),
            ("RoleSessionName", "s"),
        ];
        let denied = client.send(version, action, &role).await.unwrap();
        assert_eq!(
            (denied.status, &*denied.one("Code")),
            (403, "AccessDenied"),
            "{version}"
        );
    }
    let open = client
        .send("2011-06-15", "GetCallerIdentity", &[])
        .await
        .unwrap();
    assert_eq!(open.status, 200, "the own identity needs no permission");
    let calls = client.sim.calls().calls_since(mark);
    let missing: Vec<_> = calls.iter().map(|call| call.denied.as_deref()).collect();
    let lbs = Some("elasticloadbalancing:DescribeLoadBalancers");
    let delete_group = Some("ec2:DeleteSecurityGroup");
    assert_eq!(
        missing,
        [delete_group, lbs, lbs, Some("sts:AssumeRole"), None]
    );
    assert_eq!(calls[0].status, Some(403));
    let groups = client.sim.aws().snapshot().security_groups;
    assert!(
        groups.contains_key(&cluster.security_group_id),
        "a denied call changes nothing"
    );
    iam.detach("reader");
    assert_eq!(
        client.ec2("DeleteSecurityGroup", &delete).await.one("Code"),
        "DependencyViolation"
    );
}

#[tokio::test]
async fn policies_add_up_and_a_deny_in_one_of_them_wins() {
    let (client, _) = Client::with_cluster(0);
    let iam = client.sim.iam();
    iam.attach("vpcs", &allow(r#""ec2:DescribeVpcs""#)).unwrap();
    iam.attach("subnets", &allow(r#""ec2:DescribeSubnets""#))
        .unwrap();
    for action in ["DescribeVpcs", "DescribeSubnets"] {
        assert_eq!(client.ec2(action, &[]).await.status, 200, "{action}");
    }
    iam.attach("no", &allow(r#""ec2:*""#).replace("Allow", "Deny"))
        .unwrap();
    assert_eq!(
        client.ec2_error("DescribeVpcs", &[]).await,
        "UnauthorizedOperation"
    );
    let text = client.ec2("DescribeVpcs", &[]).await.one("Message");
    assert!(text.contains("explicit deny"), "{text}");
    iam.clear();
    for n in 0..10 {
        iam.attach(&format!("p{n}"), &allow(r#""ec2:*""#)).unwrap();
    }
    iam.attach("p9", &allow(r#""ec2:*""#)).unwrap();
    assert_eq!(
        iam.attach("p10", &allow(r#""ec2:*""#)).unwrap_err().code,
        "LimitExceeded"
    );
    let long = format!(r#""ec2:{}""#, "x".repeat(6144));
    assert_eq!(
        iam.attach("p0", &allow(&long)).unwrap_err().code,
        "LimitExceeded"
    );
}

#[tokio::test]
async fn tags_at_creation_need_the_permission_to_tag() {
    let (client, cluster) = Client::with_cluster(0);
    let iam = client.sim.iam();
    let create = r#""ec2:CreateSecurityGroup", "elasticloadbalancing:Create*""#;
    iam.attach("p", &allow(create)).unwrap();
    let plain = [
        ("VpcId", cluster.vpc_id.as_str()),
        ("GroupName", "a"),
        ("GroupDescription", "d"),
    ];
    assert_eq!(client.ec2("CreateSecurityGroup", &plain).await.status, 200);
    let mut tagged = plain.to_vec();
    tagged[1].1 = "b";
    tagged.extend([
        ("TagSpecification.1.ResourceType", "security-group"),
        ("TagSpecification.1.Tag.1.Key", "team"),
        ("TagSpecification.1.Tag.1.Value", "red"),
    ]);
    assert_eq!(
        client.ec2_error("CreateSecurityGroup", &tagged).await,
        "UnauthorizedOperation"
    );
    let calls = client.sim.calls().calls_since(client.sim.calls().start());
    assert_eq!(
        calls.last().unwrap().denied.as_deref(),
        Some("ec2:CreateTags")
    );
    assert!(client.sim.aws().snapshot().security_group("b").is_none());
    let tag = r#"{"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "arn:aws:ec2:*:*:security-group/*",
         "Condition": {"StringEquals": {"ec2:CreateAction": "CreateSecurityGroup", "aws:RequestTag/team": "red"}}}]}"#;
    iam.attach("tag", tag).unwrap();
    assert_eq!(client.ec2("CreateSecurityGroup", &tagged).await.status, 200);
    let id = client
        .sim
        .aws()
        .snapshot()
        .security_group("b")
        .unwrap()
        .id
        .clone();
    let later = [
        ("ResourceId.1", &*id),
        ("Tag.1.Key", "team"),
        ("Tag.1.Value", "red"),
    ];
    assert_eq!(
        client.ec2_error("CreateTags", &later).await,
        "UnauthorizedOperation",
        "the condition is about tags at creation"
    );
    let lb = [
        ("Name", "front"),
        ("Type", "network"),
        ("Subnets.member.1", &*cluster.subnet_ids[0]),
    ];
    let tags = [
        ("Tags.member.1.Key", "team"),
        ("Tags.member.1.Value", "red"),
    ];
    let tagged = [&lb[..], &tags].concat();
    assert_eq!(
        client.elb_error("CreateLoadBalancer", &tagged).await,
        "AccessDenied"
    );
    client.elb("CreateLoadBalancer", &lb).await;
}

#[tokio::test]
async fn the_first_load_balancer_of_an_account_needs_its_service_role() {
    let (client, cluster) = Client::with_cluster(0);
    let (iam, aws) = (client.sim.iam(), client.sim.aws());
    aws.configure(|settings| settings.service_linked_role = false);
    let create = r#""elasticloadbalancing:Create*""#;
    iam.attach("p", &allow(create)).unwrap();
    let [first, second] = ["a", "b"].map(|name| {
        [
            ("LoadBalancerName", name),
            ("Subnets.member.1", &*cluster.subnet_ids[0]),
            ("Listeners.member.1.Protocol", "TCP"),
            ("Listeners.member.1.LoadBalancerPort", "80"),
            ("Listeners.member.1.InstancePort", "30080"),
        ]
    });
    let denied = client.classic_error("CreateLoadBalancer", &first).await;
    assert_eq!(denied, ("AccessDenied".to_owned(), 403));
    let role = r#"{"Version": "2012-10-17", "Statement": {
        "Effect": "Allow", "Action": "iam:CreateServiceLinkedRole", "Resource": "arn:aws:iam::*:role/aws-service-role/*",
        "Condition": {"StringEquals": {"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}}}}"#;
    iam.attach("role", role).unwrap();
    client.classic("CreateLoadBalancer", &first).await;
    iam.detach("role");
    client.classic("CreateLoadBalancer", &second).await;
}

#[tokio::test]
async fn a_condition_on_the_tags_of_a_resource_divides_the_resources() {
    let (client, cluster) = Client::with_cluster(0);
    let iam = client.sim.iam();
    let aws = client.sim.aws();
    let owned = [("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())].into();
    let ours = aws
        .create_security_group(&cluster.vpc_id, "ours", owned)
        .unwrap();
    let foreign = aws
        .create_security_group(&cluster.vpc_id, "foreign", Default::default())
        .unwrap();
    let policy = r#"{"Version": "2012-10-17", "Statement": {
        "Effect": "Allow", "Action": "ec2:DeleteSecurityGroup", "Resource": "arn:aws:ec2:*:*:security-group/*",
        "Condition": {"StringEquals": {"aws:ResourceTag/kubernetes.io/cluster/kite": "owned"}}}}"#;
    iam.attach("p", policy).unwrap();
    let delete = "DeleteSecurityGroup";
    assert_eq!(
        client.ec2_error(delete, &[("GroupId", &foreign)]).await,
        "UnauthorizedOperation"
    );
    let dry = [("GroupId", &*ours), ("DryRun", "true")];
    assert_eq!(client.ec2_error(delete, &dry).await, "DryRunOperation");
    let dry = [("GroupId", &*foreign), ("DryRun", "true")];
    assert_eq!(
        client.ec2_error(delete, &dry).await,
        "UnauthorizedOperation"
    );
    assert_eq!(client.ec2(delete, &[("GroupId", &ours)]).await.status, 200);
}

#[tokio::test]
async fn policies_can_be_loaded_over_http() {
    let client = Client::new();
    let call = async |method: &str, path: &str, body: String| {
        let request = Request::builder().method(method).uri(path);
        let reply = client
            .http(request.body(Full::<Bytes>::from(body)).unwrap())
            .await
            .unwrap();
        let value: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
        (reply.status, value)
    };
    let (status, shown) = call("PUT", "/_sim/iam/reader", allow(r#""ec2:DescribeVpcs""#)).await;
    assert_eq!(status, 200);
    assert_eq!(
        shown["reader"]["Statement"][0]["Action"][0],
        "ec2:DescribeVpcs"
    );
    assert_eq!(client.ec2("DescribeVpcs", &[]).await.status, 200);
    assert_eq!(
        client.ec2_error("DescribeSubnets", &[]).await,
        "UnauthorizedOperation"
    );
    let (status, error) = call("PUT", "/_sim/iam/bad", "{}".to_owned()).await;
    assert_eq!(
        (status, error["code"].as_str()),
        (400, Some("MalformedPolicyDocument"))
    );
    assert_eq!(call("GET", "/_sim/iam", String::new()).await.1, shown);
    assert_eq!(
        call("DELETE", "/_sim/iam/reader", String::new()).await.1,
        serde_json::json!({})
    );
    assert_eq!(client.ec2("DescribeSubnets", &[]).await.status, 200);
    call("PUT", "/_sim/iam/reader", allow(r#""ec2:DescribeVpcs""#)).await;
    assert_eq!(
        call("DELETE", "/_sim/iam", String::new()).await.1,
        serde_json::json!({})
    );
}
