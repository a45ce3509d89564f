use std::time::Duration;

use crate::client::{Client, listener};

const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/c";

#[tokio::test(start_paused = true)]
async fn a_load_balancer_becomes_active_after_a_while_and_has_an_nlb_name() {
    let (client, cluster) = Client::with_cluster(0);
    let arn = client.new_lb("front", &cluster.subnet_ids, &[]).await;
    let shown = client
        .elb("DescribeLoadBalancers", &[("Names.member.1", "front")])
        .await;
    assert_eq!(shown.one("Code"), "provisioning");
    let hash = arn.rsplit('/').next().unwrap();
    assert!(
        hash.len() == 16 && arn.ends_with(&format!(":loadbalancer/net/front/{hash}")),
        "{arn}"
    );
    assert_eq!(
        shown.one("DNSName"),
        format!("front-{hash}.elb.us-west-2.amazonaws.com")
    );
    assert_eq!(shown.one("Scheme"), "internet-facing");
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!(
        client.elb("DescribeLoadBalancers", &[]).await.one("Code"),
        "active"
    );
}

#[tokio::test]
async fn one_unknown_name_fails_the_call_and_more_than_twenty_are_refused() {
    let (client, cluster) = Client::with_cluster(0);
    client.new_lb("front", &cluster.subnet_ids, &[]).await;
    let names = [("Names.member.1", "front"), ("Names.member.2", "back")];
    assert_eq!(
        client.elb_error("DescribeLoadBalancers", &names).await,
        "LoadBalancerNotFound"
    );
    let keys: Vec<String> = (1..=21).map(|n| format!("Names.member.{n}")).collect();
    let names: Vec<_> = keys.iter().map(|key| (key.as_str(), "front")).collect();
    assert_eq!(
        client.elb_error("DescribeLoadBalancers", &names).await,
        "ValidationError"
    );
}

#[tokio::test]
async fn a_repeated_creation_is_idempotent_and_a_different_one_is_a_duplicate() {
    let (client, cluster) = Client::with_cluster(0);
    let arn = client.new_lb("front", &cluster.subnet_ids, &[]).await;
    assert_eq!(client.new_lb("front", &cluster.subnet_ids, &[]).await, arn);
    let subnet = cluster.subnet_ids[0].as_str();
    let other = [
        ("Name", "front"),
        ("Type", "network"),
        ("Subnets.member.1", subnet),
        ("Scheme", "internal"),
    ];
    assert_eq!(
        client.elb_error("CreateLoadBalancer", &other).await,
        "DuplicateLoadBalancerName"
    );
    let group = client.new_group("tg", &cluster.vpc_id, "TCP", &[]).await;
    assert_eq!(
        client.new_group("tg", &cluster.vpc_id, "TCP", &[]).await,
        group
    );
    let other = [
        ("Name", "tg"),
        ("VpcId", cluster.vpc_id.as_str()),
        ("Protocol", "TCP"),
        ("Port", "30080"),
        ("HealthyThresholdCount", "3"),
    ];
    assert_eq!(
        client.elb_error("CreateTargetGroup", &other).await,
        "DuplicateTargetGroupName"
    );
    client.sim.aws().set_quotas(|quotas| {
        quotas.load_balancers = 1;
        quotas.target_groups = 1;
    });
    let second = [
        ("Name", "second"),
        ("Type", "network"),
        ("Subnets.member.1", subnet),
    ];
    assert_eq!(
        client.elb_error("CreateLoadBalancer", &second).await,
        "TooManyLoadBalancers"
    );
    let second = [
        ("Name", "second"),
        ("VpcId", cluster.vpc_id.as_str()),
        ("Protocol", "TCP"),
        ("Port", "1"),
    ];
    assert_eq!(
        client.elb_error("CreateTargetGroup", &second).await,
        "TooManyTargetGroups"
    );
}

#[tokio::test]
async fn names_and_subnets_are_validated() {
    let (client, cluster) = Client::with_cluster(0);
    let create = async |name: &str, subnets: &[&str]| {
        let keys: Vec<String> = (1..=subnets.len())
            .map(|n| format!("Subnets.member.{n}"))
            .collect();
        let mut pairs = vec![("Name", name), ("Type", "network")];
        pairs.extend(keys.iter().map(String::as_str).zip(subnets.iter().copied()));
        client.elb_error("CreateLoadBalancer", &pairs).await
    };
    let subnet = cluster.subnet_ids[0].as_str();
    for name in ["-front", "front-", "fr_ont", &"f".repeat(33)] {
        assert_eq!(create(name, &[subnet]).await, "ValidationError", "{name}");
    }
    assert_eq!(create("front", &["subnet-0123"]).await, "SubnetNotFound");
    let aws = client.sim.aws();
    let twin = aws
        .create_subnet(
            &cluster.vpc_id,
            "10.20.64.0/20",
            "us-west-2a",
            Default::default(),
        )
        .unwrap();
    assert_eq!(
        create("front", &[subnet, &twin]).await,
        "InvalidConfigurationRequest"
    );
    let lonely = aws.create_vpc("10.50.0.0/16").unwrap();
    let lonely = aws
        .create_subnet(&lonely, "10.50.0.0/24", "us-west-2a", Default::default())
        .unwrap();
    assert_eq!(create("front", &[&lonely]).await, "InvalidSubnet");
    assert!(aws.snapshot().load_balancers.is_empty());
}

#[tokio::test]
async fn an_elastic_address_belongs_to_one_load_balancer() {
    let (client, cluster) = Client::with_cluster(0);
    let address = client.sim.aws().allocate_address().allocation_id;
    let create = |name, allocation| {
        [
            ("Name", name),
            ("Type", "network"),
            (
                "SubnetMappings.member.1.SubnetId",
                cluster.subnet_ids[0].as_str(),
            ),
            ("SubnetMappings.member.1.AllocationId", allocation),
        ]
    };
    assert_eq!(
        client
            .elb_error("CreateLoadBalancer", &create("a", "eipalloc-0123"))
            .await,
        "AllocationIdNotFound"
    );
    let arn = client
        .elb("CreateLoadBalancer", &create("a", &address))
        .await
        .one("LoadBalancerArn");
    assert_eq!(
        client
            .elb_error("CreateLoadBalancer", &create("b", &address))
            .await,
        "ResourceInUse"
    );
    client
        .elb("DeleteLoadBalancer", &[("LoadBalancerArn", &arn)])
        .await;
    client
        .elb("CreateLoadBalancer", &create("b", &address))
        .await;
}

#[tokio::test]
async fn deletion_takes_the_listeners_obeys_protection_and_may_be_repeated() {
    let (client, cluster) = Client::with_cluster(0);
    let aws = client.sim.aws();
    let lb = client.new_lb("front", &cluster.subnet_ids, &[]).await;
    let group = client.new_group("tg", &cluster.vpc_id, "TCP", &[]).await;
    client.new_listener(&lb, &group, "TCP", "80").await;
    assert_eq!(
        client
            .elb_error("DeleteTargetGroup", &[("TargetGroupArn", &group)])
            .await,
        "ResourceInUse"
    );
    aws.set_deletion_protection(&lb, true).unwrap();
    assert_eq!(
        client
            .elb_error("DeleteLoadBalancer", &[("LoadBalancerArn", &lb)])
            .await,
        "OperationNotPermitted"
    );
    aws.set_deletion_protection(&lb, false).unwrap();
    client
        .elb("DeleteLoadBalancer", &[("LoadBalancerArn", &lb)])
        .await;
    client
        .elb("DeleteLoadBalancer", &[("LoadBalancerArn", &lb)])
        .await;
    assert!(aws.snapshot().listeners.is_empty());
    client
        .elb("DeleteTargetGroup", &[("TargetGroupArn", &group)])
        .await;
    client
        .elb("DeleteTargetGroup", &[("TargetGroupArn", &group)])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_load_balancer_stays_visible_to_reads_for_the_configured_time() {
    let (client, cluster) = Client::with_cluster(0);
    client
        .sim
        .aws()
        .configure(|settings| settings.lb_deletion_lag = Duration::from_secs(20));
    let lb = client.new_lb("front", &cluster.subnet_ids, &[]).await;
    client
        .elb("DeleteLoadBalancer", &[("LoadBalancerArn", &lb)])
        .await;
    let name = [("Names.member.1", "front")];
    assert_eq!(
        client
            .elb("DescribeLoadBalancers", &name)
            .await
            .one("LoadBalancerArn"),
        lb
    );
    assert_eq!(
        client
            .elb_error("DescribeListeners", &[("LoadBalancerArn", &lb)])
            .await,
        "LoadBalancerNotFound"
    );
    let next = client.new_lb("front", &cluster.subnet_ids, &[]).await;
    assert_eq!(
        client
            .elb("DescribeLoadBalancers", &name)
            .await
            .all("LoadBalancerArn"),
        std::slice::from_ref(&next)
    );
    client
        .elb("DeleteLoadBalancer", &[("LoadBalancerArn", &next)])
        .await;
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(
        client.elb_error("DescribeLoadBalancers", &name).await,
        "LoadBalancerNotFound"
    );
}

#[tokio::test]
async fn a_load_balancer_without_groups_never_gets_any() {
    let (client, cluster) = Client::with_cluster(0);
    let sg = cluster.security_group_id.as_str();
    let bare = client.new_lb("bare", &cluster.subnet_ids, &[]).await;
    let set = [
        ("LoadBalancerArn", bare.as_str()),
        ("SecurityGroups.member.1", sg),
    ];
    assert_eq!(
        client.elb_error("SetSecurityGroups", &set).await,
        "InvalidConfigurationRequest"
    );
    let with = client
        .new_lb(
            "with",
            &cluster.subnet_ids,
            &[("SecurityGroups.member.1", sg)],
        )
        .await;
    let other = client
        .sim
        .aws()
        .create_security_group(&cluster.vpc_id, "other", Default::default())
        .unwrap();
    client
        .elb(
            "SetSecurityGroups",
            &[
                ("LoadBalancerArn", &with),
                ("SecurityGroups.member.1", &other),
            ],
        )
        .await;
    assert_eq!(
        client
            .ec2("DeleteSecurityGroup", &[("GroupId", sg)])
            .await
            .status,
        200
    );
    assert_eq!(
        client
            .ec2_error("DeleteSecurityGroup", &[("GroupId", &other)])
            .await,
        "DependencyViolation"
    );
}

#[tokio::test]
async fn listeners_are_one_per_port_and_fit_their_target_groups() {
    let (client, cluster) = Client::with_cluster(0);
    let lb = client.new_lb("front", &cluster.subnet_ids, &[]).await;
    let tcp = client.new_group("tcp", &cluster.vpc_id, "TCP", &[]).await;
    let udp = client.new_group("udp", &cluster.vpc_id, "UDP", &[]).await;
    let arn = client.new_listener(&lb, &tcp, "TCP", "53").await;
    assert_eq!(
        client
            .elb_error("CreateListener", &listener(&lb, &udp, "UDP", "53"))
            .await,
        "DuplicateListener"
    );
    assert_eq!(
        client
            .elb_error("CreateListener", &listener(&lb, &udp, "TCP", "54"))
            .await,
        "IncompatibleProtocols"
    );
    assert_eq!(
        client
            .elb_error("CreateListener", &listener(&lb, &tcp, "HTTP", "54"))
            .await,
        "UnsupportedProtocol"
    );
    let second = client.new_lb("second", &cluster.subnet_ids, &[]).await;
    assert_eq!(
        client
            .elb_error("CreateListener", &listener(&second, &tcp, "TCP", "53"))
            .await,
        "TargetGroupAssociationLimit"
    );
    // A switch of protocol and target group in place, and the target groups of the load balancer follow.
    let [_, protocol, port, kind, action] = listener(&lb, &udp, "UDP", "53");
    client
        .elb(
            "ModifyListener",
            &[("ListenerArn", &arn), protocol, port, kind, action],
        )
        .await;
    assert_eq!(
        client
            .elb("DescribeTargetGroups", &[("LoadBalancerArn", &lb)])
            .await
            .all("TargetGroupArn"),
        [udp]
    );
    assert_eq!(
        client
            .elb("DescribeTargetGroups", &[("LoadBalancerArn", &second)])
            .await
            .all("TargetGroupArn")
            .len(),
        0
    );
    client
        .sim
        .aws()
        .set_quotas(|quotas| quotas.listeners_per_load_balancer = 1);
    assert_eq!(
        client
            .elb_error("CreateListener", &listener(&lb, &tcp, "TCP", "80"))
            .await,
        "TooManyListeners"
    );
    client.elb("DeleteListener", &[("ListenerArn", &arn)]).await;
    assert_eq!(
        client
            .elb_error("DeleteListener", &[("ListenerArn", &arn)])
            .await,
        "ListenerNotFound"
    );
}

#[tokio::test]
async fn only_tls_listeners_have_certificates_and_a_policy() {
    let (client, cluster) = Client::with_cluster(0);
    let lb = client.new_lb("front", &cluster.subnet_ids, &[]).await;
    let group = client.new_group("tcp", &cluster.vpc_id, "TCP", &[]).await;
    let plain = client
        .elb("CreateListener", &listener(&lb, &group, "TCP", "80"))
        .await;
    assert!(plain.all("SslPolicy").is_empty());
    let mut tls = listener(&lb, &group, "TLS", "443").to_vec();
    assert_eq!(
        client.elb_error("CreateListener", &tls).await,
        "ValidationError"
    );
    tls.push(("Certificates.member.1.CertificateArn", "arn:aws:nothing"));
    assert_eq!(
        client.elb_error("CreateListener", &tls).await,
        "CertificateNotFound"
    );
    tls[5].1 = CERTIFICATE;
    client
        .sim
        .aws()
        .remove_certificate("arn:aws:acm:us-west-2:123456789012:certificate/other");
    let made = client.elb("CreateListener", &tls).await;
    assert_eq!(made.one("SslPolicy"), "ELBSecurityPolicy-2016-08");
    let arn = made.one("ListenerArn");
    let policy = [("ListenerArn", arn.as_str()), ("SslPolicy", "mine")];
    assert_eq!(
        client.elb_error("ModifyListener", &policy).await,
        "SSLPolicyNotFound"
    );
    let changed = client
        .elb(
            "ModifyListener",
            &[("ListenerArn", &arn), ("Protocol", "TCP")],
        )
        .await;
    assert!(changed.all("SslPolicy").is_empty() && changed.all("CertificateArn").is_empty());
}

#[tokio::test]
async fn the_health_check_protocol_of_a_target_group_is_fixed_unless_switched_off() {
    let (client, cluster) = Client::with_cluster(0);
    let arn = client
        .new_group(
            "tcp",
            &cluster.vpc_id,
            "TCP",
            &[("HealthCheckIntervalSeconds", "5")],
        )
        .await;
    let shown = client.elb("DescribeTargetGroups", &[]).await;
    let values = [
        "HealthCheckProtocol",
        "HealthCheckPort",
        "HealthCheckTimeoutSeconds",
        "HealthyThresholdCount",
        "UnhealthyThresholdCount",
    ];
    assert_eq!(
        values.map(|tag| shown.one(tag)),
        ["TCP", "traffic-port", "5", "5", "2"]
    );
    let http = [
        ("TargetGroupArn", arn.as_str()),
        ("HealthCheckProtocol", "HTTP"),
        ("HealthCheckPath", "/healthz"),
    ];
    assert_eq!(
        client.elb_error("ModifyTargetGroup", &http).await,
        "InvalidConfigurationRequest"
    );
    client
        .sim
        .aws()
        .configure(|settings| settings.strict_health_check_change = false);
    let changed = client.elb("ModifyTargetGroup", &http).await;
    assert_eq!(
        (changed.one("HealthCheckPath"), changed.one("HttpCode")),
        ("/healthz".to_owned(), "200-399".to_owned())
    );
    for bad in [
        ("HealthCheckIntervalSeconds", "4"),
        ("HealthyThresholdCount", "11"),
        ("HealthCheckPort", "http"),
        ("HealthCheckPath", "x"),
    ] {
        assert_eq!(
            client
                .elb_error("ModifyTargetGroup", &[("TargetGroupArn", &arn), bad])
                .await,
            "ValidationError",
            "{bad:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn targets_are_keyed_by_id_and_port_and_drain_before_they_go() {
    let (client, cluster) = Client::with_cluster(2);
    let lb = client.new_lb("front", &cluster.subnet_ids, &[]).await;
    let group = client.new_group("tcp", &cluster.vpc_id, "TCP", &[]).await;
    let health = async || {
        client
            .elb("DescribeTargetHealth", &[("TargetGroupArn", &group)])
            .await
    };
    let target = |id, port| {
        [
            ("TargetGroupArn", group.as_str()),
            ("Targets.member.1.Id", id),
            ("Targets.member.1.Port", port),
        ]
    };
    let (a, b) = (
        cluster.instance_ids[0].as_str(),
        cluster.instance_ids[1].as_str(),
    );
    client.elb("RegisterTargets", &target(a, "30080")).await;
    assert_eq!(health().await.one("Reason"), "Target.NotInUse");
    client.new_listener(&lb, &group, "TCP", "80").await;
    client.elb("RegisterTargets", &target(a, "30080")).await;
    client.elb("RegisterTargets", &target(a, "30081")).await;
    client.elb("RegisterTargets", &target(b, "30080")).await;
    assert_eq!(health().await.all("State"), ["healthy"; 3]);
    client.sim.aws().stop(b).unwrap();
    assert_eq!(health().await.one("Reason"), "Target.InvalidState");
    client.elb("DeregisterTargets", &target(a, "30081")).await;
    client
        .elb("DeregisterTargets", &target("i-0aa1", "30081"))
        .await;
    assert!(
        health()
            .await
            .all("Reason")
            .contains(&"Target.DeregistrationInProgress".to_owned())
    );
    tokio::time::advance(Duration::from_secs(299)).await;
    assert_eq!(health().await.all("Id").len(), 3);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(health().await.all("Id").len(), 2);
    client.elb("DeregisterTargets", &target(a, "30080")).await;
    client.elb("RegisterTargets", &target(a, "30080")).await;
    assert!(!health().await.body.contains("draining"));
}

#[tokio::test]
async fn bad_targets_and_too_many_targets_are_refused() {
    let (client, cluster) = Client::with_cluster(3);
    let group = client.new_group("tcp", &cluster.vpc_id, "TCP", &[]).await;
    let ids: Vec<&str> = cluster.instance_ids.iter().map(String::as_str).collect();
    client.sim.aws().stop(ids[1]).unwrap();
    let stopped = [
        ("TargetGroupArn", group.as_str()),
        ("Targets.member.1.Id", ids[0]),
        ("Targets.member.2.Id", ids[1]),
    ];
    let reply = client
        .send("2015-12-01", "RegisterTargets", &stopped)
        .await
        .unwrap();
    assert_eq!(reply.one("Code"), "InvalidTarget");
    let text = format!(
        "The following targets are not in a running state and cannot be registered: '{}'",
        ids[1]
    );
    assert_eq!(reply.one("Message"), text);
    assert!(
        client.sim.aws().snapshot().target_groups[&group]
            .targets
            .is_empty()
    );
    let register = |id| {
        [
            ("TargetGroupArn", group.as_str()),
            ("Targets.member.1.Id", id),
        ]
    };
    assert_eq!(
        client
            .elb_error("RegisterTargets", &register("i-0aa1"))
            .await,
        "InvalidTarget"
    );
    client
        .sim
        .aws()
        .set_quotas(|quotas| quotas.targets_per_target_group = 1);
    client.elb("RegisterTargets", &register(ids[0])).await;
    assert_eq!(
        client.elb_error("RegisterTargets", &register(ids[2])).await,
        "TooManyTargets"
    );
    client.elb("DeregisterTargets", &register(ids[0])).await;
    client.elb("RegisterTargets", &register(ids[2])).await;
    client.sim.aws().terminate(ids[2]).unwrap();
    assert_eq!(
        client.sim.aws().snapshot().target_groups[&group]
            .targets
            .len(),
        1,
        "terminated targets do not vanish"
    );
}

#[tokio::test]
async fn attributes_have_the_defaults_of_network_load_balancers() {
    let (client, cluster) = Client::with_cluster(0);
    let group = client.new_group("udp", &cluster.vpc_id, "UDP", &[]).await;
    let attribute = |key, value| {
        [
            ("TargetGroupArn", group.as_str()),
            ("Attributes.member.1.Key", key),
            ("Attributes.member.1.Value", value),
        ]
    };
    let defaults = &client.sim.aws().snapshot().target_groups[&group].attributes;
    assert_eq!(defaults["preserve_client_ip.enabled"], "true");
    assert_eq!(defaults["proxy_protocol_v2.enabled"], "false");
    assert_eq!(defaults["deregistration_delay.timeout_seconds"], "300");
    let modify = "ModifyTargetGroupAttributes";
    assert_eq!(
        client.elb_error(modify, &attribute("x.y", "1")).await,
        "InvalidConfigurationRequest"
    );
    assert_eq!(
        client
            .elb_error(modify, &attribute("preserve_client_ip.enabled", "false"))
            .await,
        "InvalidConfigurationRequest"
    );
    assert_eq!(
        client
            .elb_error(
                modify,
                &attribute("deregistration_delay.timeout_seconds", "3601")
            )
            .await,
        "ValidationError"
    );
    client
        .elb(
            modify,
            &attribute("deregistration_delay.timeout_seconds", "30"),
        )
        .await;
    assert_eq!(
        client.sim.aws().snapshot().target_groups[&group].attributes["deregistration_delay.timeout_seconds"],
        "30"
    );
    let lb = client.new_lb("front", &cluster.subnet_ids, &[]).await;
    let logs = [
        ("LoadBalancerArn", lb.as_str()),
        ("Attributes.member.1.Key", "access_logs.s3.enabled"),
        ("Attributes.member.1.Value", "true"),
    ];
    assert_eq!(
        client
            .elb_error("ModifyLoadBalancerAttributes", &logs)
            .await,
        "InvalidConfigurationRequest"
    );
}

#[tokio::test]
async fn tags_of_up_to_twenty_resources_are_described_at_once() {
    let (client, cluster) = Client::with_cluster(0);
    let tags = [("Tags.member.1.Key", "a"), ("Tags.member.1.Value", "1")];
    let arn = client.new_group("tcp", &cluster.vpc_id, "TCP", &tags).await;
    let keys: Vec<String> = (1..=21)
        .map(|n| format!("ResourceArns.member.{n}"))
        .collect();
    let many: Vec<_> = keys
        .iter()
        .map(|key| (key.as_str(), arn.as_str()))
        .collect();
    assert_eq!(
        client.elb("DescribeTags", &many[..20]).await.all("Value"),
        ["1"; 20]
    );
    assert_eq!(
        client.elb_error("DescribeTags", &many).await,
        "ValidationError"
    );
    let twice = [
        many[0],
        tags[0],
        tags[1],
        ("Tags.member.2.Key", "a"),
        ("Tags.member.2.Value", "2"),
    ];
    assert_eq!(
        client.elb_error("AddTags", &twice).await,
        "DuplicateTagKeys"
    );
    for (action, what) in [
        ("AddTags", tags[0]),
        ("RemoveTags", ("TagKeys.member.1", "a")),
    ] {
        let both = [many[0], many[1], what];
        assert_eq!(client.elb_error(action, &both).await, "ValidationError");
        client.elb(action, &[many[0], what]).await;
    }
    let gone = arn.replace("targetgroup/tcp", "targetgroup/other");
    assert_eq!(
        client
            .elb_error("DescribeTags", &[("ResourceArns.member.1", &gone)])
            .await,
        "TargetGroupNotFound"
    );
}
