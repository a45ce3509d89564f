//! A Service changes, its load balancer follows.

use std::{collections::BTreeMap, time::Duration};

use ccm_cloudsim::aws::Tags;
use ccm_e2e_tests::service;
use serde_json::{Value, json};

use crate::{
    setup::{
        annotated, annotation, elbv2, hostname, published, quiet, ready, told_times, warnings,
        with_spec,
    },
    view::{View, Watch, lb_name, live, rules, rules_are, same},
};

fn port(name: &str, port: u16, node_port: u16) -> Value {
    json!({ "name": name, "port": port, "nodePort": node_port, "protocol": "TCP" })
}

fn ports(ports: &[Value]) -> Value {
    json!({ "spec": { "ports": ports } })
}

/// CASE-LB-14, REQ-AWS-NLB-16: at every moment each listener forwards to its own node
/// port and has targets.
#[tokio::test]
async fn ports_are_reordered_renamed_removed_and_added_without_a_mix_up() {
    let bench = ready(2).await;
    let (p1, p2, p3) = (
        port("p1", 80, 30001),
        port("p2", 443, 30002),
        port("p3", 9000, 30003),
    );
    let all = json!({ "ports": [p1, p2, p3] });
    let web = published(&bench, &with_spec(&service("web", &[]), all)).await;
    let (name, expected) = (
        lb_name(&web),
        BTreeMap::from([(80, 30001), (443, 30002), (9000, 30003)]),
    );
    let own = expected.clone();
    let watch = Watch::start(&bench.cloud.sim, move |state| {
        for (port, (_, group)) in View::of(state, &name)?.ports {
            if let Some(node_port) = own.get(&port) {
                same(&(port, group.port), &(port, *node_port))?;
                same(&live(&group).len(), &2)?;
            }
        }
        Ok(())
    });

    let mark = bench.cloud.sim.calls().mark();
    bench
        .patch_service("web", ports(&[p3.clone(), p1.clone(), p2.clone()]))
        .await
        .unwrap();
    told_times(&bench, "web", "EnsuredLoadBalancer", 2).await;
    let tls = port("tls", 443, 30002);
    bench
        .patch_service("web", ports(&[p3.clone(), p1, tls.clone()]))
        .await
        .unwrap();
    told_times(&bench, "web", "EnsuredLoadBalancer", 3).await;
    assert_eq!(bench.cloud.sim.calls().writes_since(mark), []);

    bench
        .patch_service("web", ports(&[p3.clone(), tls.clone()]))
        .await
        .unwrap();
    let want = BTreeMap::from([(443, 30002), (9000, 30003)]);
    View::until(&bench, &web, "port 80 is gone", |view| {
        same(&view.forwards(), &want)
    })
    .await;
    told_times(&bench, "web", "EnsuredLoadBalancer", 4).await;
    let counts = bench.cloud.sim.calls().writes_since(mark);
    let mut actions: Vec<&str> = counts.iter().map(|call| call.action.as_str()).collect();
    actions.sort_unstable();
    actions.dedup();
    assert_eq!(
        actions,
        [
            "DeleteListener",
            "DeleteTargetGroup",
            "RevokeSecurityGroupIngress"
        ]
    );
    assert!(!rules(&bench).iter().any(|rule| rule.contains("30001")));

    let ssh = port("ssh", 22, 30022);
    bench
        .patch_service("web", ports(&[p3, tls, ssh]))
        .await
        .unwrap();
    let want = BTreeMap::from([(22, 30022), (443, 30002), (9000, 30003)]);
    View::until(&bench, &web, "port 22 is there", |view| {
        same(&view.forwards(), &want)
    })
    .await;
    told_times(&bench, "web", "EnsuredLoadBalancer", 5).await;
    watch.end().await;
    assert_eq!(View::now(&bench, &web).targets(22).len(), 2);
    assert_eq!(bench.cloud.sim.aws().snapshot().target_groups.len(), 3);
    quiet(&bench, Duration::from_secs(2)).await;
}

/// CASE-LB-13, REQ-AWS-NLB-10: wherever a listener forwards, a rule lets it.
#[tokio::test]
async fn another_node_port_moves_backend_health_check_and_rule() {
    let bench = ready(2).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let (name, group) = (lb_name(&web), bench.cloud.cluster.security_group_id.clone());
    let before = View::now(&bench, &web);
    let watch = Watch::start(&bench.cloud.sim, move |state| {
        let view = View::of(state, &name)?;
        let (_, target_group) = view.ports.get(&80).ok_or("no listener")?;
        let open = format!("tcp {0}..{0} 0.0.0.0/0", target_group.port);
        let rules = crate::view::rules_in(state, &group);
        let let_in = rules.iter().any(|rule| rule.starts_with(&open));
        same(&(let_in, live(target_group).len()), &(true, 2))
    });
    bench
        .patch_service("web", ports(&[port("p80", 80, 30085)]))
        .await
        .unwrap();
    told_times(&bench, "web", "EnsuredLoadBalancer", 2).await;
    watch.end().await;
    let view = View::now(&bench, &web);
    assert_eq!(view.forwards(), BTreeMap::from([(80, 30085)]));
    assert_eq!(view.group(80).health_check.port, "traffic-port");
    assert_eq!(
        (view.lb.arn, &view.ports[&80].0.arn),
        (before.lb.arn, &before.ports[&80].0.arn)
    );
    assert_eq!(bench.cloud.sim.aws().snapshot().target_groups.len(), 1);
    assert!(
        !rules(&bench).iter().any(|rule| rule.contains("30080")),
        "{:?}",
        rules(&bench)
    );
    assert_eq!(warnings(&bench, "web").await, []);
}

/// CASE-LB-25, CASE-LB-13, REQ-AWS-HCN-3, REQ-AWS-NLB-11, REQ-AWS-SG-20, REQ-AWS-SG-24: the health
/// check of an existing target group cannot change its protocol, so the group is replaced under
/// the listener.
#[tokio::test]
async fn the_traffic_policy_changes_to_local_and_back() {
    let bench = ready(2).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let (before, name) = (View::now(&bench, &web), lb_name(&web));
    let cluster_rules = rules(&bench);
    let watch = Watch::start(&bench.cloud.sim, move |state| {
        let view = View::of(state, &name)?;
        let (_, group) = view.ports.get(&80).ok_or("no listener")?;
        same(&live(group).len(), &2)
    });
    let mut seen = Vec::new();
    for _ in 0..2 {
        let local = json!({ "spec": { "externalTrafficPolicy": "Local" } });
        let changed = bench.patch_service("web", local).await.unwrap();
        let check_port = changed.spec.unwrap().health_check_node_port.unwrap();
        View::until(&bench, &web, "the check asks kube-proxy", |view| {
            let check = &view.group(80).health_check;
            same(
                &(
                    check.protocol.as_str(),
                    check.port.as_str(),
                    check.path.as_deref(),
                    check.interval,
                ),
                &(
                    "HTTP",
                    check_port.to_string().as_str(),
                    Some("/healthz"),
                    10,
                ),
            )
        })
        .await;
        let mut want = cluster_rules.clone();
        for net in ["10.20.0.0/20", "10.20.16.0/20", "10.20.32.0/20"] {
            let name = lb_name(&web);
            want.insert(format!(
                "tcp {check_port}..{check_port} {net} kubernetes.io/rule/nlb/health={name}"
            ));
        }
        rules_are(&bench, &want).await;
        seen.push(check_port);

        let back = json!({ "spec": { "externalTrafficPolicy": "Cluster" } });
        bench.patch_service("web", back).await.unwrap();
        View::until(&bench, &web, "the check is plain TCP", |view| {
            let check = &view.group(80).health_check;
            same(
                &(check.protocol.as_str(), check.port.as_str()),
                &("TCP", "traffic-port"),
            )
        })
        .await;
        rules_are(&bench, &cluster_rules).await;
    }
    told_times(&bench, "web", "EnsuredLoadBalancer", 5).await;
    watch.end().await;
    let after = View::now(&bench, &web);
    assert_eq!(
        (after.lb.arn, after.lb.dns_name),
        (before.lb.arn, before.lb.dns_name)
    );
    assert_eq!(after.ports[&80].0.arn, before.ports[&80].0.arn);
    assert_eq!(
        bench.cloud.sim.aws().snapshot().target_groups.len(),
        1,
        "{seen:?}"
    );
    assert_eq!(warnings(&bench, "web").await, []);
}

/// REQ-AWS-NLB-18, REQ-AWS-NLB-13, REQ-AWS-NLB-12, REQ-AWS-NLB-22, REQ-SVC-11
#[tokio::test]
async fn attributes_and_health_check_follow_their_annotations() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let group = View::now(&bench, &web).group(80).arn.clone();
    let set = |pairs: &[(&str, Option<&str>)]| {
        let mut patch = json!({ "metadata": { "annotations": {} } });
        for (key, value) in pairs {
            let one = annotation(key, *value);
            let one = one["metadata"]["annotations"].as_object().unwrap().clone();
            let all = patch["metadata"]["annotations"].as_object_mut().unwrap();
            all.extend(one);
        }
        bench.patch_service("web", patch)
    };
    let attributes = |view: &View| {
        let lb = [
            "load_balancing.cross_zone.enabled",
            "access_logs.s3.enabled",
            "access_logs.s3.bucket",
            "access_logs.s3.prefix",
        ];
        let get = |from: &BTreeMap<String, String>, key: &str| from.get(key).cloned();
        let mut all: Vec<_> = lb.iter().map(|key| get(&view.lb.attributes, key)).collect();
        let group = &view.group(80).attributes;
        all.push(get(group, "preserve_client_ip.enabled"));
        all.into_iter()
            .map(Option::unwrap_or_default)
            .collect::<Vec<String>>()
    };
    set(&[
        ("cross-zone-load-balancing-enabled", Some("true")),
        ("access-log-enabled", Some("true")),
        ("access-log-s3-bucket-name", Some("logs")),
        ("access-log-s3-bucket-prefix", Some("kite")),
        ("healthcheck-healthy-threshold", Some("5")),
        (
            "target-group-attributes",
            Some("preserve_client_ip.enabled=false"),
        ),
    ])
    .await
    .unwrap();
    View::until(&bench, &web, "all of it is there", |view| {
        let want = ["true", "true", "logs", "kite", "false"].map(str::to_owned);
        same(&attributes(view), &want.into())?;
        same(&view.group(80).health_check.healthy, &5)
    })
    .await;
    assert_eq!(View::now(&bench, &web).group(80).arn, group);

    // What the target group was once told stays; the load balancer goes back to the defaults.
    set(&[
        ("cross-zone-load-balancing-enabled", None),
        ("access-log-enabled", None),
        ("target-group-attributes", None),
    ])
    .await
    .unwrap();
    told_times(&bench, "web", "EnsuredLoadBalancer", 3).await;
    let have = attributes(&View::now(&bench, &web));
    assert_eq!(
        (&have[..2], have[4].as_str()),
        (["false".to_owned(), "false".to_owned()].as_slice(), "false")
    );

    set(&[("healthcheck-interval", Some("10"))]).await.unwrap();
    let view = View::until(&bench, &web, "the interval is another", |view| {
        same(&view.group(80).health_check.interval, &10)
    })
    .await;
    assert_ne!(
        view.group(80).arn,
        group,
        "another interval means another group"
    );
    told_times(&bench, "web", "EnsuredLoadBalancer", 4).await;
    assert_eq!(bench.cloud.sim.aws().snapshot().target_groups.len(), 1);
    quiet(&bench, Duration::from_secs(2)).await;
}

/// CASE-LB-21: ours follow the annotation, those of others stay.
#[tokio::test]
async fn extra_tags_follow_the_annotation() {
    let bench = ready(1).await;
    let key = "additional-resource-tags";
    let tagged = "team=blue,cost=17,kubernetes.io/service-name=evil";
    let web = annotated(service("web", &[(80, 30080)]), &[(key, tagged)]);
    let web = published(&bench, &web).await;
    let tags = |pairs: &[(&str, &str)]| -> Tags {
        let system = [
            ("kubernetes.io/cluster/kite", "owned"),
            ("kubernetes.io/service-name", "shop/web"),
        ];
        let all = system.iter().chain(pairs);
        all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let view = View::now(&bench, &web);
    let old = tags(&[("team", "blue"), ("cost", "17")]);
    assert_eq!((&view.lb.tags, &view.group(80).tags), (&old, &old));
    elbv2(
        &bench,
        "AddTags",
        &[
            ("ResourceArns.member.1", &view.lb.arn),
            ("Tags.member.1.Key", "owner"),
            ("Tags.member.1.Value", "secops"),
        ],
    )
    .await;
    bench
        .patch_service("web", annotation(key, Some("team=green,env=t")))
        .await
        .unwrap();
    let group = tags(&[("team", "green"), ("env", "t")]);
    let lb = tags(&[("team", "green"), ("env", "t"), ("owner", "secops")]);
    View::until(&bench, &web, "the tags are the new ones", |view| {
        same(&(&view.lb.tags, &view.group(80).tags), &(&lb, &group))
    })
    .await;
    assert_eq!(hostname(&web), Some(view.lb.dns_name));
}

/// CASE-LB-29: the scheme of a load balancer cannot change; the user is told.
#[tokio::test]
async fn a_load_balancer_that_cannot_become_internal_is_kept_with_a_warning() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let before = View::now(&bench, &web);
    bench
        .patch_service("web", annotation("internal", Some("true")))
        .await
        .unwrap();
    let told = bench.event("web", "SchemeNotChanged").await;
    assert!(told.contains("stays internet-facing"), "{told}");
    assert!(told.contains("aws-load-balancer-internal"), "{told}");
    let after = View::now(&bench, &web);
    assert_eq!(
        (after.lb.arn, after.lb.scheme.as_str()),
        (before.lb.arn, "internet-facing")
    );
    assert_eq!(bench.cloud.sim.aws().snapshot().load_balancers.len(), 1);
    assert_eq!(warnings(&bench, "web").await[0].0, "SchemeNotChanged");
}

/// CASE-LB-26, REQ-AWS-SUB-7, REQ-AWS-SUB-9, REQ-AWS-SUB-10, REQ-AWS-SUB-17, REQ-AWS-SUB-22: a subnet that is added later changes nothing of what there is; a new
/// Service takes the best one of each zone.
#[tokio::test]
async fn subnets_that_are_added_later_serve_new_load_balancers_only() {
    let mut bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let (aws, cluster) = (bench.cloud.sim.aws(), bench.cloud.cluster.clone());
    let zone = aws.snapshot().subnets[&cluster.subnet_ids[0]].zone.clone();
    let mut tags = aws.snapshot().subnets[&cluster.subnet_ids[0]].tags.clone();
    // Ids are random: one of some is the smallest of its zone.
    let mut added: Vec<String> = (3..8)
        .map(|n| {
            let cidr = format!("10.20.{}.0/20", n * 16);
            aws.create_subnet(&cluster.vpc_id, &cidr, &zone, tags.clone())
                .unwrap()
        })
        .collect();
    // Of another cluster, hence never ours.
    tags.remove("kubernetes.io/cluster/kite");
    tags.insert("kubernetes.io/cluster/other".to_owned(), "owned".to_owned());
    aws.create_subnet(&cluster.vpc_id, "10.20.128.0/20", &zone, tags)
        .unwrap();

    // The manager has no old picture of the subnets after a restart.
    bench.stop_manager().await.unwrap();
    let mark = bench.cloud.sim.calls().mark();
    bench.start_manager(&[]).await.unwrap();
    bench
        .patch_service(
            "web",
            annotation("healthcheck-healthy-threshold", Some("4")),
        )
        .await
        .unwrap();
    let view = View::until(&bench, &web, "a later change succeeds", |view| {
        same(&view.group(80).health_check.healthy, &4)
    })
    .await;
    let subnets = |view: &View| -> Vec<String> {
        view.lb
            .subnets
            .iter()
            .map(|subnet| subnet.subnet_id.clone())
            .collect()
    };
    assert_eq!(subnets(&view), cluster.subnet_ids);
    let counts = bench.cloud.sim.calls().counts_since(mark);
    assert!(!counts.contains_key("SetSubnets"), "{counts:?}");

    let new = published(&bench, &service("new", &[(80, 30090)])).await;
    added.push(cluster.subnet_ids[0].clone());
    let smallest = added.iter().min().unwrap().clone();
    let want = [
        smallest,
        cluster.subnet_ids[1].clone(),
        cluster.subnet_ids[2].clone(),
    ];
    assert_eq!(subnets(&View::now(&bench, &new)), want);

    let named = cluster.subnet_ids[1].as_str();
    let named = annotated(service("named", &[(80, 30091)]), &[("subnets", named)]);
    let named = published(&bench, &named).await;
    assert_eq!(
        subnets(&View::now(&bench, &named)),
        [cluster.subnet_ids[1].clone()]
    );
}

/// REQ-AWS-SG-23, REQ-AWS-SG-24: ranges are narrowed and widened, and no rule of others is touched.
#[tokio::test]
async fn rules_follow_the_source_ranges() {
    let bench = ready(1).await;
    let web = published(&bench, &service("web", &[(80, 30080)])).await;
    let other = published(&bench, &service("other", &[(80, 30090)])).await;
    let open = rules(&bench);
    let narrow = json!({ "spec": { "loadBalancerSourceRanges": ["10.0.0.0/8"] } });
    bench.patch_service("web", narrow).await.unwrap();
    let (name, other) = (lb_name(&web), lb_name(&other));
    let mut want: std::collections::BTreeSet<String> = [
        format!("tcp 30090..30090 0.0.0.0/0 kubernetes.io/rule/nlb/client={other}"),
        format!("tcp 30080..30080 10.0.0.0/8 kubernetes.io/rule/nlb/client={name}"),
        "icmp 3..4 0.0.0.0/0 kubernetes.io/rule/nlb/mtu".to_owned(),
        "icmp 3..4 10.0.0.0/8 kubernetes.io/rule/nlb/mtu".to_owned(),
    ]
    .into();
    for net in ["10.20.0.0/20", "10.20.16.0/20", "10.20.32.0/20"] {
        want.insert(format!(
            "tcp 30080..30080 {net} kubernetes.io/rule/nlb/health={name}"
        ));
    }
    rules_are(&bench, &want).await;
    let wide = json!({ "spec": { "loadBalancerSourceRanges": null } });
    bench.patch_service("web", wide).await.unwrap();
    rules_are(&bench, &open).await;
}
