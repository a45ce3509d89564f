use std::collections::BTreeSet;
use std::time::Duration;

use ccm_cloudsim::{ClassicLoadBalancer, Cluster};

use crate::client::Client;

const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/c";

type Pair<'a> = (&'a str, &'a str);

fn named(name: &str) -> Pair<'_> {
    ("LoadBalancerName", name)
}

/// Listener 80 → TCP 30080.
const TCP_80: [Pair<'static>; 3] = [
    ("Listeners.member.1.Protocol", "TCP"),
    ("Listeners.member.1.LoadBalancerPort", "80"),
    ("Listeners.member.1.InstancePort", "30080"),
];

fn creation<'a>(name: &'a str, subnets: &[&'a str]) -> Vec<Pair<'a>> {
    const KEYS: [&str; 3] = ["Subnets.member.1", "Subnets.member.2", "Subnets.member.3"];
    let mut pairs = vec![named(name)];
    pairs.extend(TCP_80);
    pairs.extend(KEYS.into_iter().zip(subnets.iter().copied()));
    pairs
}

/// A cluster with a load balancer `front` in its first two subnets.
async fn front(nodes: usize) -> (Client, Cluster) {
    let (client, cluster) = Client::with_cluster(nodes);
    let [a, b, _] = subnets(&cluster);
    let group = [("SecurityGroups.member.1", &*cluster.security_group_id)];
    let pairs = [creation("front", &[a, b]), group.to_vec()].concat();
    client.classic("CreateLoadBalancer", &pairs).await;
    (client, cluster)
}

fn subnets(cluster: &Cluster) -> [&str; 3] {
    [0, 1, 2].map(|at| cluster.subnet_ids[at].as_str())
}

fn stored(client: &Client) -> ClassicLoadBalancer {
    client.sim.aws().snapshot().classic_load_balancers["front"].clone()
}

async fn refused(client: &Client, action: &str, pairs: &[Pair<'_>]) -> String {
    client.classic_error(action, pairs).await.0
}

#[tokio::test]
async fn a_new_load_balancer_has_the_names_and_defaults_of_a_classic_one() {
    let (client, cluster) = front(0).await;
    let shown = client.classic("DescribeLoadBalancers", &[]).await;
    let dns = shown.one("DNSName");
    let number = dns.strip_prefix("front-").unwrap();
    let number = number.strip_suffix(".us-west-2.elb.amazonaws.com").unwrap();
    assert!(
        number.len() == 10 && number.bytes().all(|byte| byte.is_ascii_digit()),
        "{dns}"
    );
    assert_eq!(shown.one("Scheme"), "internet-facing");
    assert_eq!(shown.one("Target"), "TCP:30080");
    let check = [
        "Interval",
        "Timeout",
        "UnhealthyThreshold",
        "HealthyThreshold",
    ];
    assert_eq!(check.map(|tag| shown.one(tag)), ["30", "5", "2", "10"]);
    let lb = stored(&client);
    assert_eq!(
        lb.security_groups,
        BTreeSet::from([cluster.security_group_id.clone()])
    );
    assert_eq!(
        (lb.attributes.idle_timeout, lb.attributes.draining_timeout),
        (60, 300)
    );
    let mut internal = creation("inside", &subnets(&cluster));
    internal.push(("Scheme", "internal"));
    let dns = client
        .classic("CreateLoadBalancer", &internal)
        .await
        .one("DNSName");
    assert!(dns.starts_with("internal-inside-"), "{dns}");
    let groups = &client.sim.aws().snapshot().security_groups;
    let inside = &client.sim.aws().snapshot().classic_load_balancers["inside"];
    let names = inside
        .security_groups
        .iter()
        .map(|id| groups[id].name.as_str());
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["default"],
        "without a group the VPC's own counts"
    );
}

#[tokio::test]
async fn creation_and_deletion_may_be_repeated_and_other_settings_are_a_duplicate() {
    let (client, cluster) = front(0).await;
    let [a, b, c] = subnets(&cluster);
    let group = ("SecurityGroups.member.1", &*cluster.security_group_id);
    let before = stored(&client);
    let mut same = creation("front", &[b, a]);
    same.push(group);
    let again = client.classic("CreateLoadBalancer", &same).await;
    assert_eq!(again.one("DNSName"), before.dns_name);
    assert_eq!(stored(&client), before);
    let mut other = creation("front", &[a, c]);
    other.push(group);
    let error = client.classic_error("CreateLoadBalancer", &other).await;
    assert_eq!(error, ("DuplicateLoadBalancerName".to_owned(), 400));
    client
        .sim
        .aws()
        .set_quotas(|quotas| quotas.classic_load_balancers = 1);
    let second = creation("second", &[a]);
    assert_eq!(
        refused(&client, "CreateLoadBalancer", &second).await,
        "TooManyLoadBalancers"
    );
    client.classic("CreateLoadBalancer", &same).await;
    for _ in 0..2 {
        client
            .classic("DeleteLoadBalancer", &[named("front")])
            .await;
    }
    assert_eq!(
        client
            .classic_error(
                "DescribeLoadBalancers",
                &[("LoadBalancerNames.member.1", "front")]
            )
            .await,
        ("LoadBalancerNotFound".to_owned(), 400)
    );
    client.classic("CreateLoadBalancer", &second).await;
}

#[tokio::test]
async fn names_schemes_and_missing_parameters_are_validated() {
    let (client, cluster) = Client::with_cluster(0);
    let [a, ..] = subnets(&cluster);
    for name in ["-front", "front-", "fr_ont", &"f".repeat(33), ""] {
        let pairs = creation(name, &[a]);
        assert_eq!(
            refused(&client, "CreateLoadBalancer", &pairs).await,
            "ValidationError",
            "{name}"
        );
    }
    let bare = [named("front"), ("Subnets.member.1", a)];
    assert_eq!(
        refused(&client, "CreateLoadBalancer", &bare).await,
        "ValidationError"
    );
    assert_eq!(
        refused(&client, "CreateLoadBalancer", &creation("front", &[])).await,
        "ValidationError"
    );
    let mut outside = creation("front", &[a]);
    outside.push(("Scheme", "external"));
    assert_eq!(
        refused(&client, "CreateLoadBalancer", &outside).await,
        "InvalidScheme"
    );
    let mut group = creation("front", &[a]);
    group.push(("SecurityGroups.member.1", "sg-0123"));
    assert_eq!(
        refused(&client, "CreateLoadBalancer", &group).await,
        "InvalidSecurityGroup"
    );
    assert_eq!(
        refused(&client, "ConfigureHealthCheck", &[named("front")]).await,
        "LoadBalancerNotFound"
    );
    let snapshot = client.sim.aws().snapshot();
    assert!(snapshot.classic_load_balancers.is_empty());
    assert!(
        snapshot.interfaces.is_empty(),
        "a refused creation leaves nothing"
    );
}

#[tokio::test]
async fn a_load_balancer_is_in_one_subnet_per_zone_of_one_reachable_vpc() {
    let (client, cluster) = front(0).await;
    let aws = client.sim.aws();
    let [a, b, c] = subnets(&cluster);
    let subnet = |vpc: &str, cidr: &str, zone: &str| {
        aws.create_subnet(vpc, cidr, zone, Default::default())
            .unwrap()
    };
    let twin = subnet(&cluster.vpc_id, "10.20.64.0/20", "us-west-2a");
    let other_vpc = aws.create_vpc("10.50.0.0/16").unwrap();
    let foreign = subnet(&other_vpc, "10.50.0.0/24", "us-west-2c");
    let tiny = subnet(&cluster.vpc_id, "10.20.80.0/28", "us-west-2c");
    let attach = |id| [named("front"), ("Subnets.member.1", id)];
    for (id, code, status) in [
        ("subnet-0123", "SubnetNotFound", 400),
        (&*twin, "InvalidConfigurationRequest", 409),
        (&*foreign, "InvalidSubnet", 400),
    ] {
        let error = client
            .classic_error("AttachLoadBalancerToSubnets", &attach(id))
            .await;
        assert_eq!(error, (code.to_owned(), status), "{id}");
    }
    let lonely = creation("lonely", &[&foreign]);
    assert_eq!(
        refused(&client, "CreateLoadBalancer", &lonely).await,
        "InvalidSubnet"
    );
    // Fourteen addresses less AWS's own would do, but not with four instances in them.
    for _ in 0..4 {
        let wanted = ccm_cloudsim::RunInstance {
            subnet: tiny.clone(),
            ..Default::default()
        };
        aws.run_instance(wanted).unwrap();
    }
    let error = refused(&client, "AttachLoadBalancerToSubnets", &attach(&tiny)).await;
    assert_eq!(error, "InvalidSubnet");

    let shown = client
        .classic("AttachLoadBalancerToSubnets", &attach(c))
        .await;
    let mut all = [a, b, c].map(str::to_owned);
    all.sort();
    assert_eq!(shown.all("member"), all);
    client
        .classic("AttachLoadBalancerToSubnets", &attach(c))
        .await;
    client
        .classic("DetachLoadBalancerFromSubnets", &attach(a))
        .await;
    client
        .classic("DetachLoadBalancerFromSubnets", &attach(b))
        .await;
    let last = client
        .classic_error("DetachLoadBalancerFromSubnets", &attach(c))
        .await;
    assert_eq!(last, ("InvalidConfigurationRequest".to_owned(), 409));
    assert_eq!(stored(&client).subnets, BTreeSet::from([c.to_owned()]));
    let interfaces = aws.snapshot().interfaces;
    let own = interfaces
        .values()
        .filter(|eni| eni.description == "ELB front");
    assert_eq!(
        own.map(|eni| eni.subnet_id.as_str()).collect::<Vec<_>>(),
        [c]
    );
}

#[tokio::test(start_paused = true)]
async fn interfaces_hold_the_security_groups_until_some_time_after_deletion() {
    let (client, cluster) = front(0).await;
    let aws = client.sim.aws();
    aws.configure(|settings| settings.eni_release_delay = Duration::from_secs(30));
    let old = [("GroupId", cluster.security_group_id.as_str())];
    assert_eq!(
        client.ec2_error("DeleteSecurityGroup", &old).await,
        "DependencyViolation"
    );
    let new = aws
        .create_security_group(&cluster.vpc_id, "new", Default::default())
        .unwrap();
    let apply = [named("front"), ("SecurityGroups.member.1", &*new)];
    let shown = client
        .classic("ApplySecurityGroupsToLoadBalancer", &apply)
        .await;
    assert_eq!(shown.all("member"), [new.as_str()]);
    assert_eq!(client.ec2("DeleteSecurityGroup", &old).await.status, 200);
    for (id, code) in [
        ("sg-0123", "InvalidSecurityGroup"),
        ("", "InvalidConfigurationRequest"),
    ] {
        let pairs = match id {
            "" => vec![named("front"), ("SecurityGroups", "")],
            id => vec![named("front"), ("SecurityGroups.member.1", id)],
        };
        assert_eq!(
            refused(&client, "ApplySecurityGroupsToLoadBalancer", &pairs).await,
            code
        );
    }
    let new = [("GroupId", new.as_str())];
    client
        .classic("DeleteLoadBalancer", &[named("front")])
        .await;
    assert_eq!(
        client.ec2_error("DeleteSecurityGroup", &new).await,
        "DependencyViolation"
    );
    // The next one of that name is not mixed up with the interfaces of the old one.
    let [a, ..] = subnets(&cluster);
    client
        .classic("CreateLoadBalancer", &creation("front", &[a]))
        .await;
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(client.ec2("DeleteSecurityGroup", &new).await.status, 200);
    let interfaces = aws.snapshot().interfaces;
    let own = interfaces
        .values()
        .filter(|eni| eni.description == "ELB front");
    assert_eq!(own.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_load_balancer_stays_visible_to_reads_for_the_configured_time() {
    let (client, _) = front(0).await;
    let lag = Duration::from_secs(20);
    client
        .sim
        .aws()
        .configure(|settings| settings.lb_deletion_lag = lag);
    client
        .classic("DeleteLoadBalancer", &[named("front")])
        .await;
    let name = [("LoadBalancerNames.member.1", "front")];
    client.classic("DescribeLoadBalancers", &name).await;
    assert_eq!(
        refused(&client, "DescribeLoadBalancerAttributes", &[named("front")]).await,
        "LoadBalancerNotFound"
    );
    tokio::time::advance(lag).await;
    assert_eq!(
        refused(&client, "DescribeLoadBalancers", &name).await,
        "LoadBalancerNotFound"
    );
}

fn listener<'a>(
    protocol: &'a str,
    port: &'a str,
    back: &'a str,
    certificate: &'a str,
) -> Vec<Pair<'a>> {
    vec![
        named("front"),
        ("Listeners.member.1.Protocol", protocol),
        ("Listeners.member.1.LoadBalancerPort", port),
        ("Listeners.member.1.InstanceProtocol", back),
        ("Listeners.member.1.InstancePort", "30443"),
        ("Listeners.member.1.SSLCertificateId", certificate),
    ]
}

#[tokio::test]
async fn listeners_are_one_per_port_and_the_same_one_again_is_no_error() {
    let (client, _) = front(0).await;
    let create = "CreateLoadBalancerListeners";
    let same = [vec![named("front")], TCP_80.to_vec()].concat();
    client.classic(create, &same).await;
    let error = client
        .classic_error(create, &listener("tcp", "80", "tcp", ""))
        .await;
    assert_eq!(error, ("DuplicateListener".to_owned(), 400));
    // One bad listener keeps the good one out.
    let mut mixed = listener("tcp", "81", "tcp", "");
    mixed.extend([
        ("Listeners.member.2.Protocol", "TCP"),
        ("Listeners.member.2.LoadBalancerPort", "80"),
        ("Listeners.member.2.InstancePort", "1"),
    ]);
    assert_eq!(refused(&client, create, &mixed).await, "DuplicateListener");
    assert_eq!(stored(&client).listeners.keys().collect::<Vec<_>>(), [&80]);
    client
        .classic(create, &listener("ssl", "443", "tcp", CERTIFICATE))
        .await;
    let made = &stored(&client).listeners[&443];
    assert_eq!((&*made.protocol, &*made.instance_protocol), ("SSL", "TCP"));
    assert_eq!(made.certificate.as_deref(), Some(CERTIFICATE));
    let delete = [
        named("front"),
        ("LoadBalancerPorts.member.1", "80"),
        ("LoadBalancerPorts.member.2", "443"),
        ("LoadBalancerPorts.member.3", "8443"),
    ];
    client.classic("DeleteLoadBalancerListeners", &delete).await;
    assert!(stored(&client).listeners.is_empty());
}

#[tokio::test]
async fn protocols_ports_and_certificates_of_listeners_are_checked() {
    let (client, _) = front(0).await;
    let gone = "arn:aws:iam::123456789012:server-certificate/gone";
    client.sim.aws().remove_certificate(gone);
    for (pairs, code) in [
        (listener("udp", "53", "udp", ""), "UnsupportedProtocol"),
        (
            listener("http", "81", "tcp", ""),
            "InvalidConfigurationRequest",
        ),
        (
            listener("tcp", "81", "https", ""),
            "InvalidConfigurationRequest",
        ),
        (listener("ssl", "443", "tcp", ""), "ValidationError"),
        (
            listener("tcp", "443", "tcp", CERTIFICATE),
            "ValidationError",
        ),
        (
            listener("https", "443", "http", gone),
            "CertificateNotFound",
        ),
        (
            listener("https", "443", "http", "arn:aws:s3:::c"),
            "CertificateNotFound",
        ),
        (listener("tcp", "0", "tcp", ""), "ValidationError"),
        (listener("tcp", "65536", "tcp", ""), "ValidationError"),
        (listener("tcp", "x", "tcp", ""), "ValidationError"),
        (vec![named("front")], "ValidationError"),
    ] {
        let error = refused(&client, "CreateLoadBalancerListeners", &pairs).await;
        assert_eq!(error, code, "{pairs:?}");
    }
    client
        .classic(
            "CreateLoadBalancerListeners",
            &listener("tcp", "81", "tcp", ""),
        )
        .await;
    let encrypted = listener("ssl", "443", "ssl", CERTIFICATE);
    let error = refused(&client, "CreateLoadBalancerListeners", &encrypted).await;
    assert_eq!(
        error, "InvalidConfigurationRequest",
        "the same instance port, plain and encrypted"
    );
}

#[tokio::test]
async fn the_health_check_is_replaced_as_a_whole_and_its_ranges_are_checked() {
    let (client, _) = front(0).await;
    let check = |target, interval, timeout, unhealthy, healthy| {
        [
            named("front"),
            ("HealthCheck.Target", target),
            ("HealthCheck.Interval", interval),
            ("HealthCheck.Timeout", timeout),
            ("HealthCheck.UnhealthyThreshold", unhealthy),
            ("HealthCheck.HealthyThreshold", healthy),
        ]
    };
    let good = check("http:10256/healthz", "10", "5", "6", "2");
    let shown = client.classic("ConfigureHealthCheck", &good).await;
    assert_eq!(shown.one("Target"), "HTTP:10256/healthz");
    let before = stored(&client);
    for bad in [
        check("UDP:1", "10", "5", "6", "2"),
        check("TCP:1/x", "10", "5", "6", "2"),
        check("TCP:1", "4", "2", "6", "2"),
        check("TCP:1", "301", "5", "6", "2"),
        check("TCP:1", "10", "1", "6", "2"),
        check("TCP:1", "10", "10", "6", "2"),
        check("TCP:1", "10", "5", "1", "2"),
        check("TCP:1", "10", "5", "6", "11"),
    ] {
        let error = client.classic_error("ConfigureHealthCheck", &bad).await;
        assert_eq!(error, ("ValidationError".to_owned(), 400), "{bad:?}");
    }
    let error = refused(&client, "ConfigureHealthCheck", &good[..5]).await;
    assert_eq!(error, "ValidationError", "a part is not enough");
    assert_eq!(stored(&client), before);
}

#[tokio::test]
async fn attributes_change_part_by_part_within_their_ranges() {
    let (client, _) = front(0).await;
    let modify = async |key: &str, value: &str, more: &[Pair<'_>]| {
        let key = format!("LoadBalancerAttributes.{key}");
        let pairs = [&[named("front"), (&key, value)], more].concat();
        let reply = client
            .send("2012-06-01", "ModifyLoadBalancerAttributes", &pairs)
            .await
            .unwrap();
        (reply.status, reply.all("Code").concat(), reply.body)
    };
    let timeout = [("LoadBalancerAttributes.ConnectionDraining.Timeout", "20")];
    let (status, _, body) = modify("ConnectionDraining.Enabled", "true", &timeout).await;
    assert_eq!(status, 200);
    assert!(
        body.contains("<Timeout>20</Timeout>") && !body.contains("AccessLog"),
        "{body}"
    );
    assert_eq!(
        modify("ConnectionDraining.Enabled", "false", &[]).await.0,
        200
    );
    assert_eq!(
        modify("ConnectionSettings.IdleTimeout", "600", &[]).await.0,
        200
    );
    assert_eq!(
        modify("CrossZoneLoadBalancing.Enabled", "true", &[])
            .await
            .0,
        200
    );
    let bucket = [
        ("LoadBalancerAttributes.AccessLog.S3BucketName", "logs"),
        ("LoadBalancerAttributes.AccessLog.EmitInterval", "5"),
    ];
    assert_eq!(modify("AccessLog.Enabled", "true", &bucket).await.0, 200);
    let have = stored(&client).attributes;
    assert_eq!(
        (have.draining, have.draining_timeout, have.idle_timeout),
        (false, 20, 600)
    );
    assert_eq!(
        (have.cross_zone, have.access_log_bucket.as_deref()),
        (true, Some("logs"))
    );
    let desync = [(
        "LoadBalancerAttributes.AdditionalAttributes.member.1.Value",
        "strictest",
    )];
    let key = "AdditionalAttributes.member.1.Key";
    for (key, value, more, code) in [
        (
            "ConnectionSettings.IdleTimeout",
            "0",
            &[][..],
            "ValidationError",
        ),
        (
            "ConnectionSettings.IdleTimeout",
            "3601",
            &[],
            "ValidationError",
        ),
        ("ConnectionDraining.Timeout", "20", &[], "ValidationError"),
        (
            "AccessLog.Enabled",
            "true",
            &[],
            "InvalidConfigurationRequest",
        ),
        ("AccessLog.Enabled", "maybe", &bucket, "ValidationError"),
        (
            key,
            "elb.nonsense",
            &desync,
            "LoadBalancerAttributeNotFound",
        ),
        ("Nonsense", "1", &[], "ValidationError"),
    ] {
        assert_eq!(modify(key, value, more).await.1, code, "{key}={value}");
    }
    assert_eq!(
        modify(key, "elb.http.desyncmitigationmode", &desync)
            .await
            .0,
        200
    );
    let shown = client
        .classic("DescribeLoadBalancerAttributes", &[named("front")])
        .await;
    assert_eq!(shown.one("Value"), "strictest");
}

#[tokio::test(start_paused = true)]
async fn one_bad_instance_refuses_them_all_and_a_terminated_one_leaves_by_itself() {
    let (client, cluster) = front(3).await;
    let aws = client.sim.aws();
    aws.configure(|settings| settings.target_initial = Duration::from_secs(10));
    let ids: Vec<&str> = cluster.instance_ids.iter().map(String::as_str).collect();
    let pairs = |a, b| {
        [
            named("front"),
            ("Instances.member.1.InstanceId", a),
            ("Instances.member.2.InstanceId", b),
        ]
    };
    let register = "RegisterInstancesWithLoadBalancer";
    let foreign_vpc = aws.create_vpc("10.50.0.0/16").unwrap();
    let subnet = aws
        .create_subnet(
            &foreign_vpc,
            "10.50.0.0/24",
            "us-west-2a",
            Default::default(),
        )
        .unwrap();
    let foreign = aws
        .run_instance(ccm_cloudsim::RunInstance {
            subnet,
            ..Default::default()
        })
        .unwrap();
    for bad in ["i-0aa1", "nonsense", &foreign] {
        let error = client.classic_error(register, &pairs(ids[0], bad)).await;
        assert_eq!(error, ("InvalidInstance".to_owned(), 400), "{bad}");
        assert!(stored(&client).instances.is_empty());
    }
    let shown = client.classic(register, &pairs(ids[0], ids[1])).await;
    assert_eq!(shown.all("InstanceId").len(), 2);
    client.classic(register, &pairs(ids[0], ids[2])).await;
    let health = async || {
        let shown = client
            .classic("DescribeInstanceHealth", &[named("front")])
            .await;
        let rows = shown
            .all("InstanceId")
            .into_iter()
            .zip(shown.all("Description"));
        rows.collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(
        health().await[ids[0]],
        "Instance registration is still in progress."
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    aws.stop(ids[1]).unwrap();
    let found = health().await;
    assert_eq!(found[ids[0]], "N/A");
    assert_eq!(found[ids[1]], "Instance is in stopped state.");
    assert!(
        found[ids[2]].contains("Availability Zone"),
        "the third zone is not served"
    );
    aws.terminate(ids[1]).unwrap();
    let left = client
        .classic(
            "DeregisterInstancesFromLoadBalancer",
            &pairs(ids[0], ids[1]),
        )
        .await;
    assert_eq!(left.all("InstanceId"), [ids[2]]);
    let error = refused(
        &client,
        "DeregisterInstancesFromLoadBalancer",
        &pairs(ids[2], "i-0aa1"),
    )
    .await;
    assert_eq!(error, "InvalidInstance");
    assert_eq!(
        stored(&client).instances,
        BTreeSet::from([ids[2].to_owned()])
    );
    let asked = [named("front"), ("Instances.member.1.InstanceId", ids[0])];
    let asked = client.classic("DescribeInstanceHealth", &asked).await;
    assert_eq!(
        asked.one("Description"),
        "Instance is not currently registered with the LoadBalancer."
    );
}

fn policy<'a>(name: &'a str, kind: &'a str, key: &'a str, value: &'a str) -> [Pair<'a>; 5] {
    [
        named("front"),
        ("PolicyName", name),
        ("PolicyTypeName", kind),
        ("PolicyAttributes.member.1.AttributeName", key),
        ("PolicyAttributes.member.1.AttributeValue", value),
    ]
}

const PROXY: &str = "ProxyProtocolPolicyType";
const SSL: &str = "SSLNegotiationPolicyType";

#[tokio::test]
async fn policies_are_created_once_and_their_attributes_are_checked() {
    let (client, _) = front(0).await;
    let create = "CreateLoadBalancerPolicy";
    let proxy = policy("proxy", PROXY, "ProxyProtocol", "true");
    client.classic(create, &proxy).await;
    client.classic(create, &proxy).await;
    let reference = "Reference-Security-Policy";
    for (pairs, code) in [
        (
            policy("proxy", PROXY, "ProxyProtocol", "false"),
            "DuplicatePolicyName",
        ),
        (
            policy("other", PROXY, "ProxyProtocol", "yes"),
            "InvalidConfigurationRequest",
        ),
        (
            policy("other", PROXY, "Nonsense", "true"),
            "InvalidConfigurationRequest",
        ),
        (
            policy("tls", SSL, reference, "ELBSecurityPolicy-1999"),
            "InvalidConfigurationRequest",
        ),
        (
            policy("tls", "NoPolicyType", "A", "true"),
            "PolicyTypeNotFound",
        ),
        (
            policy("a b", PROXY, "ProxyProtocol", "true"),
            "ValidationError",
        ),
    ] {
        assert_eq!(refused(&client, create, &pairs).await, code, "{pairs:?}");
    }
    client
        .classic(
            create,
            &policy("tls", SSL, reference, "ELBSecurityPolicy-TLS-1-2-2017-01"),
        )
        .await;
    let shown = client
        .classic("DescribeLoadBalancerPolicies", &[named("front")])
        .await;
    assert_eq!(shown.all("PolicyName"), ["proxy", "tls"]);
    let missing = [named("front"), ("PolicyNames.member.1", "nope")];
    let error = client
        .classic_error("DescribeLoadBalancerPolicies", &missing)
        .await;
    assert_eq!(error, ("PolicyNotFound".to_owned(), 400));
    let general = client.classic("DescribeLoadBalancerPolicies", &[]).await;
    assert!(
        general
            .all("PolicyName")
            .contains(&"ELBSecurityPolicy-2016-08".to_owned())
    );
}

#[tokio::test]
async fn the_proxy_protocol_is_set_on_instance_ports_and_ciphers_on_secure_listeners() {
    let (client, _) = front(0).await;
    client
        .classic(
            "CreateLoadBalancerListeners",
            &listener("ssl", "443", "tcp", CERTIFICATE),
        )
        .await;
    let default = BTreeSet::from(["ELBSecurityPolicy-2016-08".to_owned()]);
    assert_eq!(stored(&client).listeners[&443].policies, default);
    let tls = policy(
        "tls",
        SSL,
        "Reference-Security-Policy",
        "ELBSecurityPolicy-2015-05",
    );
    client.classic("CreateLoadBalancerPolicy", &tls).await;
    let proxy = policy("proxy", PROXY, "ProxyProtocol", "true");
    client.classic("CreateLoadBalancerPolicy", &proxy).await;
    let of_listener = "SetLoadBalancerPoliciesOfListener";
    let on = |port, name| {
        [
            named("front"),
            ("LoadBalancerPort", port),
            ("PolicyNames.member.1", name),
        ]
    };
    client.classic(of_listener, &on("443", "tls")).await;
    assert_eq!(
        stored(&client).listeners[&443].policies,
        BTreeSet::from(["tls".to_owned()])
    );
    for (port, name, code) in [
        ("8443", "tls", "ListenerNotFound"),
        ("443", "nope", "PolicyNotFound"),
        ("443", "proxy", "InvalidConfigurationRequest"),
        ("80", "tls", "InvalidConfigurationRequest"),
    ] {
        assert_eq!(
            refused(&client, of_listener, &on(port, name)).await,
            code,
            "{port} {name}"
        );
    }
    let of_backend = "SetLoadBalancerPoliciesForBackendServer";
    let on = |port, name| {
        [
            named("front"),
            ("InstancePort", port),
            ("PolicyNames.member.1", name),
        ]
    };
    client.classic(of_backend, &on("30080", "proxy")).await;
    for (port, name, code) in [
        ("30080", "nope", "PolicyNotFound"),
        ("30080", "tls", "InvalidConfigurationRequest"),
        ("30081", "proxy", "InvalidConfigurationRequest"),
    ] {
        assert_eq!(
            refused(&client, of_backend, &on(port, name)).await,
            code,
            "{port} {name}"
        );
    }
    let delete = [named("front"), ("LoadBalancerPorts.member.1", "80")];
    client.classic("DeleteLoadBalancerListeners", &delete).await;
    let shown = client.classic("DescribeLoadBalancers", &[]).await;
    assert!(shown.body.contains("<BackendServerDescriptions><member><InstancePort>30080</InstancePort><PolicyNames><member>proxy</member>"), "{}", shown.body);
    let unset = [
        named("front"),
        ("InstancePort", "30080"),
        ("PolicyNames", ""),
    ];
    client.classic(of_backend, &unset).await;
    assert!(stored(&client).backend_policies.is_empty());
}

#[tokio::test]
async fn tags_are_bounded_and_set_on_one_load_balancer_at_a_time() {
    let (client, _) = front(0).await;
    let tag = |name, key, value| {
        [
            ("LoadBalancerNames.member.1", name),
            ("Tags.member.1.Key", key),
            ("Tags.member.1.Value", value),
        ]
    };
    client.classic("AddTags", &tag("front", "a", "1")).await;
    client.classic("AddTags", &tag("front", "a", "2")).await;
    assert_eq!(stored(&client).tags["a"], "2");
    let pairs: Vec<(String, String)> = (1..=50)
        .map(|n| (format!("Tags.member.{n}.Key"), format!("k{n}")))
        .collect();
    let mut many: Vec<Pair<'_>> = pairs
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect();
    many.push(("LoadBalancerNames.member.1", "front"));
    let error = client.classic_error("AddTags", &many).await;
    assert_eq!(error, ("TooManyTags".to_owned(), 400));
    let mut twice = tag("front", "b", "1").to_vec();
    twice.push(("Tags.member.2.Key", "b"));
    assert_eq!(
        refused(&client, "AddTags", &twice).await,
        "DuplicateTagKeys"
    );
    let mut two = tag("front", "b", "1").to_vec();
    two.push(("LoadBalancerNames.member.2", "back"));
    assert_eq!(refused(&client, "AddTags", &two).await, "ValidationError");
    assert_eq!(
        refused(&client, "AddTags", &tag("back", "b", "1")).await,
        "LoadBalancerNotFound"
    );
    client.classic("AddTags", &tag("front", "b", "1")).await;
    client
        .classic("RemoveTags", &tag("front", "a", "")[..2])
        .await;
    let shown = client
        .classic("DescribeTags", &tag("front", "", "")[..1])
        .await;
    assert_eq!(shown.all("Key"), ["b"]);
}
