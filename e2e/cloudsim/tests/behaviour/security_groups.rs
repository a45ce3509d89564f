use std::time::Duration;

use crate::client::Client;

fn rule<'a>(
    group: &'a str,
    protocol: &'a str,
    ports: &'a str,
    cidr: &'a str,
    text: &'a str,
) -> Vec<(&'a str, &'a str)> {
    let mut pairs = vec![
        ("GroupId", group),
        ("IpPermissions.1.IpProtocol", protocol),
        ("IpPermissions.1.FromPort", ports),
        ("IpPermissions.1.ToPort", ports),
        ("IpPermissions.1.IpRanges.1.CidrIp", cidr),
    ];
    if !text.is_empty() {
        pairs.push(("IpPermissions.1.IpRanges.1.Description", text));
    }
    pairs
}

#[tokio::test]
async fn a_rule_that_differs_only_in_its_description_is_a_duplicate_and_adds_nothing() {
    let (client, cluster) = Client::with_cluster(0);
    let sg = cluster.security_group_id.as_str();
    client
        .ec2(
            "AuthorizeSecurityGroupIngress",
            &rule(sg, "tcp", "80", "10.1.2.3/8", "one"),
        )
        .await;
    let mut again = rule(sg, "6", "80", "10.0.0.0/8", "two");
    again.push(("IpPermissions.1.IpRanges.2.CidrIp", "192.0.2.0/24"));
    assert_eq!(
        client
            .ec2_error("AuthorizeSecurityGroupIngress", &again)
            .await,
        "InvalidPermission.Duplicate"
    );
    let rules = &client.sim.aws().snapshot().security_groups[sg].rules;
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].description.as_deref(), Some("one"));
    client
        .ec2(
            "AuthorizeSecurityGroupIngress",
            &rule(sg, "tcp", "80", "192.0.2.0/24", ""),
        )
        .await;
    client
        .ec2(
            "AuthorizeSecurityGroupIngress",
            &rule(sg, "udp", "80", "192.0.2.0/24", ""),
        )
        .await;
    let shown = client
        .ec2("DescribeSecurityGroups", &[("GroupId.1", sg)])
        .await;
    let ranges = shown.one("ipRanges");
    assert!(
        ranges.contains("10.0.0.0/8") && ranges.contains("192.0.2.0/24"),
        "{ranges}"
    );
    // tcp/80, udp/80 and the egress rule.
    assert_eq!(shown.all("ipProtocol"), ["tcp", "udp", "-1"]);
}

#[tokio::test]
async fn protocols_ports_and_ranges_are_checked() {
    let (client, cluster) = Client::with_cluster(0);
    let sg = cluster.security_group_id.as_str();
    let error = async |pairs: &[(&str, &str)]| {
        client
            .ec2_error("AuthorizeSecurityGroupIngress", pairs)
            .await
    };
    assert_eq!(
        error(&rule(sg, "tls", "443", "0.0.0.0/0", "")).await,
        "InvalidParameterValue"
    );
    assert_eq!(
        error(&rule(sg, "tcp", "70000", "0.0.0.0/0", "")).await,
        "InvalidParameterValue"
    );
    assert_eq!(
        error(&rule(sg, "tcp", "80", "0.0.0.0", "")).await,
        "InvalidParameterValue"
    );
    assert_eq!(error(&[("GroupId", sg)]).await, "MissingParameter");
    assert_eq!(
        error(&rule("sg-0123", "tcp", "80", "0.0.0.0/0", "")).await,
        "InvalidGroup.NotFound"
    );
    assert_eq!(
        client
            .ec2_error(
                "RevokeSecurityGroupIngress",
                &rule(sg, "tcp", "80", "0.0.0.0/0", "")
            )
            .await,
        "InvalidPermission.NotFound"
    );
    assert!(
        client.sim.aws().snapshot().security_groups[sg]
            .rules
            .is_empty()
    );
}

#[tokio::test]
async fn the_rule_quota_refuses_the_sixty_first_rule() {
    let (client, cluster) = Client::with_cluster(0);
    let sg = cluster.security_group_id.as_str();
    for port in 1..=60 {
        let port = port.to_string();
        assert_eq!(
            client
                .ec2(
                    "AuthorizeSecurityGroupIngress",
                    &rule(sg, "tcp", &port, "0.0.0.0/0", "")
                )
                .await
                .status,
            200
        );
    }
    let error = client
        .ec2_error(
            "AuthorizeSecurityGroupIngress",
            &rule(sg, "tcp", "61", "0.0.0.0/0", ""),
        )
        .await;
    assert_eq!(error, "RulesPerSecurityGroupLimitExceeded");
    assert_eq!(
        client.sim.aws().snapshot().security_groups[sg].rules.len(),
        60
    );
    client
        .sim
        .aws()
        .set_quotas(|quotas| quotas.security_groups = 2);
    let group = [
        ("VpcId", cluster.vpc_id.as_str()),
        ("GroupName", "more"),
        ("GroupDescription", "d"),
    ];
    assert_eq!(
        client.ec2_error("CreateSecurityGroup", &group).await,
        "SecurityGroupLimitExceeded"
    );
}

#[tokio::test]
async fn a_group_in_use_or_referenced_cannot_be_deleted() {
    let (client, cluster) = Client::with_cluster(1);
    let (nodes, aws) = (cluster.security_group_id.as_str(), client.sim.aws());
    assert_eq!(
        client
            .ec2_error("DeleteSecurityGroup", &[("GroupId", nodes)])
            .await,
        "DependencyViolation"
    );
    let other = aws
        .create_security_group(&cluster.vpc_id, "other", Default::default())
        .unwrap();
    let pair = [
        ("GroupId", nodes),
        ("IpPermissions.1.IpProtocol", "-1"),
        ("IpPermissions.1.Groups.1.GroupId", other.as_str()),
    ];
    client.ec2("AuthorizeSecurityGroupIngress", &pair).await;
    let by_source = [
        ("Filter.1.Name", "ip-permission.group-id"),
        ("Filter.1.Value.1", other.as_str()),
    ];
    let holders = client.ec2("DescribeSecurityGroups", &by_source).await;
    assert_eq!(holders.one("groupId"), nodes);
    assert_eq!(
        client
            .ec2_error("DeleteSecurityGroup", &[("GroupId", &other)])
            .await,
        "DependencyViolation"
    );
    client.ec2("RevokeSecurityGroupIngress", &pair).await;
    assert_eq!(
        client
            .ec2("DeleteSecurityGroup", &[("GroupId", &other)])
            .await
            .status,
        200
    );
    assert_eq!(
        client
            .ec2_error("DeleteSecurityGroup", &[("GroupId", &other)])
            .await,
        "InvalidGroup.NotFound"
    );
    aws.terminate(&cluster.instance_ids[0]).unwrap();
    assert_eq!(
        client
            .ec2("DeleteSecurityGroup", &[("GroupId", nodes)])
            .await
            .status,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_load_balancer_holds_its_groups_until_its_interfaces_are_released() {
    let (client, cluster) = Client::with_cluster(0);
    let aws = client.sim.aws();
    aws.configure(|settings| settings.eni_release_delay = Duration::from_secs(90));
    let sg = aws
        .create_security_group(&cluster.vpc_id, "front", Default::default())
        .unwrap();
    let lb = client
        .new_lb(
            "front",
            &cluster.subnet_ids,
            &[("SecurityGroups.member.1", &sg)],
        )
        .await;
    assert_eq!(
        client
            .ec2_error("DeleteSecurityGroup", &[("GroupId", &sg)])
            .await,
        "DependencyViolation"
    );
    client
        .elb("DeleteLoadBalancer", &[("LoadBalancerArn", &lb)])
        .await;
    assert_eq!(
        client
            .ec2_error("DeleteSecurityGroup", &[("GroupId", &sg)])
            .await,
        "DependencyViolation"
    );
    tokio::time::advance(Duration::from_secs(90)).await;
    assert_eq!(
        client
            .ec2("DeleteSecurityGroup", &[("GroupId", &sg)])
            .await
            .status,
        200
    );
}
