use ccm_core::converge::Plan as _;
use proptest::prelude::*;

use super::*;
use crate::{
    api::elbv2::{HealthCheck, SubnetMapping},
    load_balancer::preflight::Port,
};

const LB_ARN: &str = "lb";

/// The cloud that runs `absorb`, makes ids, and refuses what AWS refuses.
#[derive(Clone, Default)]
struct Cloud {
    have: Have,
    ids: usize,
    strict: bool,
}

impl Cloud {
    fn id(&mut self, kind: &str) -> String {
        self.ids += 1;
        format!("{kind}-{}", self.ids)
    }

    fn run(&mut self, action: &Action) {
        self.check(action);
        let made = match action {
            Action::CreateSecurityGroup(new) => Made::SecurityGroup(SecurityGroup {
                id: self.id("sg"),
                name: new.name.clone(),
                tags: new.tags.clone(),
                ..SecurityGroup::default()
            }),
            Action::CreateLoadBalancer(new) => Made::LoadBalancer(LoadBalancer {
                arn: LB_ARN.to_owned(),
                name: new.name.clone(),
                security_groups: new.security_groups.clone(),
                vpc_id: "vpc-1".to_owned(),
                ..LoadBalancer::default()
            }),
            Action::CreateTargetGroup(new) => Made::TargetGroup(TargetGroup {
                arn: self.id("tg"),
                name: new.name.clone(),
                port: new.port,
                protocol: new.protocol.clone(),
                vpc_id: new.vpc_id.clone(),
                health: new.health.clone(),
                load_balancers: BTreeSet::new(),
            }),
            Action::CreateListener(_, spec, _) => Made::Listener(Listener {
                arn: self.id("listener"),
                spec: spec.clone(),
                ..Listener::default()
            }),
            Action::ModifyListener(arn, spec) => Made::Listener(Listener {
                arn: arn.clone(),
                spec: spec.clone(),
                ..Listener::default()
            }),
            Action::Register(..) => Made::Registered {
                refused: BTreeSet::new(),
                over_limit: BTreeSet::new(),
            },
            _ => Made::Nothing,
        };
        Nlb::absorb(&mut self.have, action, made);
    }

    /// What AWS would refuse, and what would leave a listener without targets.
    fn check(&self, action: &Action) {
        match action {
            Action::CreateListener(_, spec, _) => {
                assert!(
                    self.have
                        .listeners
                        .values()
                        .all(|l| l.spec.port != spec.port),
                    "DuplicateListener"
                );
                self.check_targets(spec);
            }
            Action::ModifyListener(_, spec) => self.check_targets(spec),
            Action::CreateTargetGroup(new) => assert!(
                self.have
                    .target_groups
                    .values()
                    .all(|g| g.group.name != new.name),
                "DuplicateTargetGroupName"
            ),
            Action::DeleteTargetGroup(arn) => {
                assert!(!is_used(&self.have, arn), "ResourceInUse");
            }
            Action::Register(_, targets) | Action::Deregister(_, targets) => {
                assert!(!targets.is_empty() && targets.len() <= TARGETS_PER_CALL);
            }
            Action::ModifyTargetGroup(_, change) => {
                assert!(change.protocol.is_none(), "InvalidConfigurationRequest");
            }
            Action::SetSecurityGroups(_, groups) => assert!(!groups.is_empty()),
            _ => {}
        }
    }

    fn check_targets(&self, spec: &ListenerSpec) {
        let group = &self.have.target_groups[&spec.target_group];
        assert!(
            !self.strict || !group.targets.is_empty(),
            "a listener without targets"
        );
    }

    /// What a new process reads: the load balancer's own parts, and unattached groups found by name
    /// or by tags.
    fn observed(&self) -> Have {
        let mut have = self.have.clone();
        let used: BTreeSet<String> = have
            .listeners
            .values()
            .map(|l| l.spec.target_group.clone())
            .collect();
        for (arn, found) in &mut have.target_groups {
            found.group.load_balancers = used
                .iter()
                .filter(|a| *a == arn)
                .map(|_| LB_ARN.to_owned())
                .collect();
            found.refused.clear();
            found.limit = None;
        }
        let Have {
            target_groups,
            listeners,
            ..
        } = &have;
        let tags = have.tags.iter().filter(|(arn, _)| {
            *arn == LB_ARN || target_groups.contains_key(*arn) || listeners.contains_key(*arn)
        });
        have.tags = tags
            .map(|(arn, tags)| (arn.clone(), tags.clone()))
            .collect();
        have
    }

    /// At most `steps` actions; whether it came to an end.
    fn converge(&mut self, want: &Want, steps: usize) -> bool {
        self.strict = !want.instances.is_empty();
        self.have = self.observed();
        let mut left = steps;
        for _ in 0..64 {
            let batch = Nlb::next(want, &self.have);
            if batch.is_empty() {
                return true;
            }
            for action in batch {
                if left == 0 {
                    return false;
                }
                left -= 1;
                self.run(&action);
            }
        }
        panic!("no end: {:?}", Nlb::next(want, &self.have));
    }

    /// The state without ids.
    fn summary(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let name = |arn: &str| self.have.target_groups[arn].group.name.clone();
        let groups: Vec<_> = self
            .have
            .target_groups
            .values()
            .map(|g| {
                let mut group = g.group.clone();
                group.arn.clear();
                group.load_balancers.clear();
                (
                    group.name.clone(),
                    group,
                    g.targets.clone(),
                    g.attributes.clone(),
                )
            })
            .map(|row| format!("{row:?}"))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let listeners: BTreeSet<_> = self
            .have
            .listeners
            .values()
            .map(|l| {
                let spec = ListenerSpec {
                    target_group: name(&l.spec.target_group),
                    ..l.spec.clone()
                };
                format!("{spec:?} {:?}", self.have.tags.get(&l.arn))
            })
            .collect();
        let managed = self
            .have
            .managed_group
            .as_ref()
            .map(|g| (g.name.clone(), g.rules.clone()));
        let attached = self
            .have
            .load_balancer
            .as_ref()
            .map(|lb| lb.security_groups.len());
        (
            groups,
            listeners,
            managed,
            attached,
            self.have.attributes.clone(),
        )
    }
}

#[derive(Clone, Debug)]
struct Shape {
    ports: Vec<(i32, i32, bool)>,
    udp: bool,
    backend_tls: bool,
    policy: bool,
    local: bool,
    threshold: i32,
    instances: BTreeSet<u8>,
    many: bool,
    groups: u8,
    cross_zone: bool,
    preserve: Option<bool>,
    tag: u8,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let ports = proptest::collection::btree_map(0..4i32, (0..3i32, any::<bool>()), 1..4);
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let rest = (
        2..4i32,
        proptest::collection::btree_set(0..6u8, 0..5),
        proptest::bool::weighted(0.1),
        0..3u8,
        any::<bool>(),
        any::<Option<bool>>(),
        0..3u8,
    );
    (ports, flags, rest).prop_map(|(ports, flags, rest)| {
        let (udp, backend_tls, policy, local, _) = flags;
        let (threshold, instances, many, groups, cross_zone, preserve, tag) = rest;
        let ports = ports
            .into_iter()
            .map(|(port, (node, tls))| (80 + port, 30000 + port * 10 + node, tls))
            .collect();
        Shape {
            ports,
            udp,
            backend_tls,
            policy,
            local,
            threshold,
            instances,
            many,
            groups,
            cross_zone,
            preserve,
            tag,
        }
    })
}

/// As the computed names: what belongs to a Service differs in the last ten characters only.
fn group_name(port: i32, node_port: i32, protocol: &str, health: &HealthCheck) -> String {
    let letter = |text: &str, n| text.chars().nth(n).unwrap();
    let (protocol, check) = (letter(protocol, 1), letter(&health.protocol, 0));
    format!(
        "k8s-shop-web-{port:02}{node_port:05}{protocol}{check}{}",
        health.interval / 10
    )
}

fn want(shape: &Shape) -> Want {
    let health = HealthCheck {
        protocol: if shape.local { "HTTP" } else { "TCP" }.to_owned(),
        port: if shape.local { "32000" } else { "traffic-port" }.to_owned(),
        path: shape.local.then(|| "/healthz".to_owned()),
        interval: if shape.local { 10 } else { 30 },
        timeout: None,
        healthy: shape.threshold,
        unhealthy: shape.threshold,
    };
    let port = |(port, node_port, tls): &(i32, i32, bool)| {
        let base = if shape.udp { "UDP" } else { "TCP" };
        let tls = *tls && !shape.udp;
        let target_protocol = if tls && shape.backend_tls {
            "TLS"
        } else {
            base
        };
        WantPort {
            port: Port {
                port: *port,
                node_port: *node_port,
                listener_protocol: if tls { "TLS" } else { base },
                target_protocol,
                certificate: tls.then(|| "cert".to_owned()),
                ssl_policy: (tls && shape.policy).then(|| "policy".to_owned()),
                target_group: group_name(*port, *node_port, target_protocol, &health),
            },
            health: health.clone(),
        }
    };
    let instances: u16 = if shape.many { 250 } else { 0 };
    let tags = Tags::from([
        ("service".to_owned(), "web".to_owned()),
        (format!("k{}", shape.tag), "v".to_owned()),
    ]);
    let any_source = "0.0.0.0/0".parse().unwrap();
    Want {
        phase: Phase::Complete,
        new: NewLoadBalancer {
            name: "a1".to_owned(),
            subnets: vec![SubnetMapping::default()],
            tags: tags.clone(),
            ..NewLoadBalancer::default()
        },
        vpc_id: "vpc-1".to_owned(),
        security_groups: match shape.groups {
            0 => SecurityGroups::Keep,
            1 => SecurityGroups::Exactly(BTreeSet::from(["sg-user".to_owned()])),
            _ => SecurityGroups::Managed {
                new: NewSecurityGroup {
                    name: "managed".to_owned(),
                    ..Default::default()
                },
                rules: shape
                    .ports
                    .iter()
                    .map(|(port, ..)| Rule::port("tcp", *port, any_source))
                    .collect(),
            },
        },
        ports: shape.ports.iter().map(port).collect(),
        instances: shape
            .instances
            .iter()
            .map(|n| u16::from(*n))
            .chain(100..100 + instances)
            .map(|n| format!("i-{n:04}"))
            .collect(),
        attributes: Attributes::from([(
            "load_balancing.cross_zone.enabled".to_owned(),
            shape.cross_zone.to_string(),
        )]),
        target_group_attributes: shape
            .preserve
            .map(|value| ("preserve_client_ip.enabled".to_owned(), value.to_string()))
            .into_iter()
            .collect(),
        tags,
    }
}

fn one() -> Want {
    want(&Shape {
        ports: vec![(80, 30080, false)],
        udp: false,
        backend_tls: false,
        policy: false,
        local: false,
        threshold: 3,
        instances: BTreeSet::from([1, 2]),
        many: false,
        groups: 0,
        cross_zone: false,
        preserve: None,
        tag: 0,
    })
}

fn built(want: &Want) -> Cloud {
    let mut cloud = Cloud::default();
    assert!(cloud.converge(want, usize::MAX));
    cloud
}

/// All batches until the end.
fn batches(cloud: &mut Cloud, want: &Want) -> Vec<Vec<Action>> {
    cloud.have = cloud.observed();
    let mut all = Vec::new();
    loop {
        let batch = Nlb::next(want, &cloud.have);
        if batch.is_empty() {
            return all;
        }
        for action in &batch {
            cloud.run(action);
        }
        all.push(batch);
    }
}

fn kind(action: &Action) -> String {
    let text = format!("{action:?}");
    text.split('(').next().unwrap_or_default().to_owned()
}

fn kinds(cloud: &mut Cloud, want: &Want) -> Vec<String> {
    batches(cloud, want).iter().flatten().map(kind).collect()
}

fn retarget(want: &mut Want, change: impl Fn(&mut WantPort)) {
    for port in &mut want.ports {
        change(port);
        let Port {
            port: number,
            node_port,
            target_protocol,
            ..
        } = &port.port;
        port.port.target_group = group_name(*number, *node_port, target_protocol, &port.health);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The three laws: it comes to an end, a converged state plans nothing, and a process that died
    /// after any action is continued to the same end.
    #[test]
    fn every_change_converges_once_and_survives_a_crash_anywhere(
        before in shapes(),
        after in shapes(),
        crash in 0..40usize,
    ) {
        let (before, after) = (want(&before), want(&after));
        let mut cloud = built(&before);
        let mut crashed = cloud.clone();

        prop_assert!(cloud.converge(&after, usize::MAX));
        let seen = cloud.observed();
        prop_assert_eq!(Nlb::next(&after, &seen), vec![]);

        crashed.converge(&after, crash);
        prop_assert!(crashed.converge(&after, usize::MAX));
        prop_assert_eq!(crashed.summary(), cloud.summary());
        prop_assert_eq!(cloud.have.target_groups.len(), after.ports.len());
        prop_assert_eq!(cloud.have.listeners.len(), after.ports.len());
    }
}

/// REQ-AWS-NLB-1
#[test]
fn a_listener_is_made_last_of_all() {
    assert_eq!(
        kinds(&mut Cloud::default(), &one()),
        [
            "CreateLoadBalancer",
            "CreateTargetGroup",
            "Register",
            "CreateListener"
        ]
    );
}

#[test]
fn the_first_phase_stops_before_the_listeners() {
    let want = Want {
        phase: Phase::Backends,
        ..one()
    };
    assert_eq!(
        kinds(&mut Cloud::default(), &want),
        ["CreateLoadBalancer", "CreateTargetGroup", "Register"]
    );
}

/// REQ-AWS-NLB-10, REQ-AWS-NLB-11, REQ-AWS-NLB-12 and CASE-LB-13, CASE-LB-25
#[test]
fn another_node_port_check_protocol_or_interval_replaces_the_target_group_behind_the_listener() {
    for change in [
        (|port: &mut WantPort| port.port.node_port = 30085) as fn(&mut WantPort),
        |port| {
            port.health.protocol = "HTTP".to_owned();
            port.health.path = Some("/".to_owned());
        },
        |port| port.health.interval = 10,
    ] {
        let mut cloud = built(&one());
        let listener = cloud.have.listeners.keys().next().cloned();
        let mut after = one();
        retarget(&mut after, change);
        assert_eq!(
            kinds(&mut cloud, &after),
            [
                "CreateTargetGroup",
                "Register",
                "ModifyListener",
                "DeleteTargetGroup"
            ]
        );
        assert_eq!(cloud.have.listeners.keys().next().cloned(), listener);
        assert_eq!(cloud.have.listeners.len(), 1);
    }
}

/// REQ-AWS-NLB-13, REQ-AWS-NLB-14, REQ-AWS-NLB-15, REQ-AWS-HCN-12
#[test]
fn thresholds_and_time_out_are_changed_in_place_and_an_equal_check_is_left_alone() {
    for (change, want) in [
        (
            (|port: &mut WantPort| port.health.healthy = 5) as fn(&mut WantPort),
            HealthChange {
                thresholds: Some((5, 3)),
                ..Default::default()
            },
        ),
        (
            |port| port.health.unhealthy = 5,
            HealthChange {
                thresholds: Some((3, 5)),
                ..Default::default()
            },
        ),
        (
            |port| port.health.timeout = Some(6),
            HealthChange {
                timeout: Some(6),
                ..Default::default()
            },
        ),
    ] {
        let mut cloud = built(&one());
        let mut after = one();
        retarget(&mut after, change);
        let plan = batches(&mut cloud, &after);
        assert_eq!(plan.len(), 1);
        assert!(matches!(&plan[0][..], [Action::ModifyTargetGroup(_, got)] if *got == want));
    }
    let mut http = one();
    retarget(&mut http, |port| {
        port.health.protocol = "HTTP".to_owned();
        port.health.path = Some("/".to_owned());
    });
    assert!(kinds(&mut built(&http), &http).is_empty());
}

/// REQ-AWS-NLB-16
#[test]
fn ports_come_and_go_with_their_target_groups() {
    let mut two = one();
    let mut second = two.ports[0].clone();
    second.port.port = 81;
    second.port.node_port = 30081;
    two.ports.push(second);
    retarget(&mut two, |_| {});
    let mut cloud = built(&one());
    assert_eq!(
        kinds(&mut cloud, &two),
        ["CreateTargetGroup", "Register", "CreateListener"]
    );
    assert_eq!(
        kinds(&mut cloud, &one()),
        ["DeleteListener", "DeleteTargetGroup"]
    );
}

/// REQ-AWS-NLB-16
#[test]
fn target_groups_that_others_attached_are_neither_deleted_nor_tagged() {
    let mut cloud = built(&one());
    for (arn, forwarded) in [
        ("weighted", true),
        ("k8s-weighted", true),
        ("former", false),
    ] {
        let name = if arn == "k8s-weighted" {
            "k8s-shop-web-0123456789"
        } else {
            arn
        };
        let group = TargetGroup {
            arn: arn.to_owned(),
            name: name.to_owned(),
            port: 9000,
            protocol: "TCP".to_owned(),
            ..TargetGroup::default()
        };
        let found = HaveTargetGroup {
            group,
            ..HaveTargetGroup::default()
        };
        cloud.have.target_groups.insert(arn.to_owned(), found);
        let owner = ("owner".to_owned(), "secops".to_owned());
        cloud.have.tags.insert(
            arn.to_owned(),
            if forwarded {
                one().tags
            } else {
                Tags::from([owner])
            },
        );
        if forwarded {
            for listener in cloud.have.listeners.values_mut() {
                listener.also_forwards_to.insert(arn.to_owned());
            }
        }
    }
    assert!(kinds(&mut cloud, &one()).is_empty());
    // Once nothing forwards to it, the one of our name goes; the others stay.
    for listener in cloud.have.listeners.values_mut() {
        listener.also_forwards_to.clear();
    }
    let plan = batches(&mut cloud, &one()).concat();
    assert_eq!(plan, [Action::DeleteTargetGroup("k8s-weighted".to_owned())]);
}

/// REQ-AWS-NLB-16
#[test]
fn a_target_group_under_another_name_that_is_tagged_as_ours_is_deleted() {
    let mut want = one();
    let ours = [
        (SERVICE_NAME.to_owned(), "shop/web".to_owned()),
        (format!("{CLUSTER_PREFIX}kite"), "owned".to_owned()),
    ];
    want.tags.extend(ours.clone());
    for (tags, deleted) in [(&ours[..], 1), (&ours[..1], 0), (&ours[1..], 0)] {
        let mut cloud = built(&want);
        let mut found = HaveTargetGroup::default();
        found.group.arn = "old".to_owned();
        found.group.name = "old".to_owned();
        cloud.have.target_groups.insert("old".to_owned(), found);
        let tags: Tags = tags.iter().cloned().collect();
        cloud.have.tags.insert("old".to_owned(), tags);
        assert_eq!(kinds(&mut cloud, &want), vec!["DeleteTargetGroup"; deleted]);
    }
}

/// REQ-AWS-NLB-17
#[test]
fn a_listener_becomes_tls_in_place() {
    let mut after = one();
    after.ports[0].port.listener_protocol = "TLS";
    after.ports[0].port.certificate = Some("cert".to_owned());
    let mut cloud = built(&one());
    let groups: Vec<String> = cloud.have.target_groups.keys().cloned().collect();
    assert_eq!(kinds(&mut cloud, &after), ["ModifyListener"]);
    assert_eq!(
        cloud.have.target_groups.keys().cloned().collect::<Vec<_>>(),
        groups
    );
}

/// REQ-AWS-NLB-7
#[test]
fn the_policy_that_aws_chose_is_left_alone() {
    let mut tls = one();
    tls.ports[0].port.listener_protocol = "TLS";
    tls.ports[0].port.certificate = Some("cert".to_owned());
    let mut cloud = built(&tls);
    let listener = cloud.have.listeners.values_mut().next().unwrap();
    assert_eq!(listener.spec.ssl_policy, None, "none is sent at creation");
    listener.spec.ssl_policy = Some("ELBSecurityPolicy-2016-08".to_owned());
    assert!(kinds(&mut cloud, &tls).is_empty());
}

/// REQ-AWS-NLB-20, REQ-AWS-NLB-21, REQ-AWS-NLB-22
#[test]
fn only_changed_attributes_are_sent_and_removed_ones_stay() {
    let mut after = one();
    after.attributes.insert(
        "load_balancing.cross_zone.enabled".to_owned(),
        "true".to_owned(),
    );
    let preserve = ("preserve_client_ip.enabled".to_owned(), "false".to_owned());
    after.target_group_attributes = Attributes::from([
        preserve.clone(),
        ("proxy_protocol_v2.enabled".to_owned(), "false".to_owned()),
    ]);
    let mut cloud = built(&one());
    let plan = batches(&mut cloud, &after);
    let [
        Action::ModifyAttributes(_, lb),
        Action::ModifyTargetGroupAttributes(_, group),
    ] = &plan[0][..]
    else {
        panic!("{plan:?}");
    };
    assert_eq!(lb.len(), 1);
    assert_eq!(*group, Attributes::from([preserve]));
    assert!(kinds(&mut cloud, &after).is_empty());
    after.target_group_attributes.clear();
    assert!(kinds(&mut cloud, &after).is_empty());
}

/// REQ-AWS-NLB-27
#[test]
fn an_unattached_group_of_the_computed_name_is_adopted() {
    let mut old = one();
    retarget(&mut old, |port| port.health.healthy = 5);
    let mut cloud = Cloud::default();
    cloud.converge(
        &Want {
            phase: Phase::Backends,
            ..old
        },
        usize::MAX,
    );
    assert_eq!(cloud.have.target_groups.len(), 1);
    assert_eq!(
        kinds(&mut cloud, &one()),
        ["ModifyTargetGroup", "CreateListener"]
    );
}

/// REQ-AWS-NLB-29
#[test]
fn target_groups_under_another_name_are_kept_when_they_fit() {
    let mut cloud = built(&one());
    for found in cloud.have.target_groups.values_mut() {
        "k8s-made-by-the-go-manager".clone_into(&mut found.group.name);
    }
    assert!(kinds(&mut cloud, &one()).is_empty());
}

/// REQ-AWS-NLB-30
#[test]
fn two_groups_of_one_node_port_are_told_apart_by_their_listeners() {
    let mut two = one();
    let mut second = two.ports[0].clone();
    second.port.port = 81;
    two.ports.push(second);
    retarget(&mut two, |_| {});
    let mut cloud = built(&two);
    assert!(kinds(&mut cloud, &two).is_empty());
    for (n, found) in cloud.have.target_groups.values_mut().enumerate() {
        found.group.name = format!("old-{n}");
    }
    assert!(kinds(&mut cloud, &two).is_empty());
}

/// REQ-AWS-NODE-9, REQ-AWS-NODE-10, REQ-AWS-NODE-12, REQ-AWS-NODE-14
#[test]
fn targets_leave_before_others_come_a_hundred_at_a_time() {
    let mut many = one();
    many.instances = (0..250).map(|n| format!("i-{n:04}")).collect();
    let sizes = |plan: &[Vec<Action>]| -> Vec<(String, usize)> {
        plan.iter()
            .flatten()
            .filter_map(|action| match action {
                Action::Register(_, t) | Action::Deregister(_, t) => Some((kind(action), t.len())),
                _ => None,
            })
            .collect()
    };
    let register = |n| ("Register".to_owned(), n);
    let mut cloud = Cloud::default();
    let plan = batches(&mut cloud, &many);
    assert_eq!(sizes(&plan), [register(100), register(100), register(50)]);

    let mut swapped = many.clone();
    swapped.instances = (1..251).map(|n| format!("i-{n:04}")).collect();
    let stray = Target {
        id: "i-0007".to_owned(),
        port: 1,
    };
    let found = cloud.have.target_groups.values_mut().next().unwrap();
    found.targets.insert(stray);
    let plan = batches(&mut cloud, &swapped);
    assert_eq!(sizes(&plan), [("Deregister".to_owned(), 2), register(1)]);
    let found = cloud.have.target_groups.values().next().unwrap();
    assert_eq!(found.targets.len(), 250);
}

/// CASE-LB-27: at the limit the choice is stable and nothing is tried again.
#[test]
fn a_full_target_group_keeps_what_it_has() {
    let mut cloud = built(&one());
    let mut more = one();
    more.instances
        .extend(["i-9998".to_owned(), "i-9999".to_owned()]);
    let have = &mut cloud.have;
    let [action] = &Nlb::next(&more, have)[..] else {
        panic!()
    };
    let Action::Register(_, targets) = action else {
        panic!()
    };
    let over_limit: BTreeSet<Target> = targets.iter().cloned().collect();
    Nlb::absorb(
        have,
        action,
        Made::Registered {
            refused: BTreeSet::new(),
            over_limit,
        },
    );
    assert_eq!(Nlb::next(&more, have), vec![]);
    // One leaves: exactly one of the others takes its place.
    more.instances.remove("i-0001");
    let [Action::Deregister(..)] = &Nlb::next(&more, have)[..] else {
        panic!()
    };
    let gone = Nlb::next(&more, have)[0].clone();
    Nlb::absorb(have, &gone, Made::Nothing);
    let [Action::Register(_, targets)] = &Nlb::next(&more, have)[..] else {
        panic!()
    };
    assert_eq!(
        targets.iter().map(|t| t.id.as_str()).collect::<Vec<_>>(),
        ["i-9998"]
    );
}

/// REQ-AWS-SG-6, REQ-AWS-SG-7
#[test]
fn managed_rules_are_granted_before_others_are_revoked() {
    let any_source = "0.0.0.0/0".parse().unwrap();
    let managed = |port| Want {
        security_groups: SecurityGroups::Managed {
            new: NewSecurityGroup::default(),
            rules: BTreeSet::from([Rule::port("tcp", port, any_source)]),
        },
        ..one()
    };
    let mut cloud = built(&managed(80));
    assert!(kinds(&mut cloud, &managed(80)).is_empty());
    assert_eq!(kinds(&mut cloud, &managed(81)), ["Authorize", "Revoke"]);
}

/// REQ-AWS-TAG-17 and CASE-LB-21
#[test]
fn tags_follow_the_annotation_and_foreign_ones_stay() {
    let mut cloud = built(&one());
    let foreign = ("owner".to_owned(), "secops".to_owned());
    for tags in cloud.have.tags.values_mut() {
        tags.extend([foreign.clone()]);
    }
    cloud.have.written_keys = one().tags.keys().cloned().collect();
    let mut after = one();
    after.tags.remove("k0");
    after.tags.insert("team".to_owned(), "green".to_owned());
    assert_eq!(
        kinds(&mut cloud, &after),
        ["Tag", "Tag", "Tag", "Untag", "Untag", "Untag"]
    );
    let mut want = after.tags.clone();
    want.extend([foreign]);
    assert_eq!(cloud.have.tags.len(), 3);
    assert!(cloud.have.tags.values().all(|tags| *tags == want));
    cloud.have.tags.clear();
    after.tags.insert("more".to_owned(), "x".to_owned());
    assert!(
        kinds(&mut cloud, &after).is_empty(),
        "tags that cannot be read are left alone"
    );
}
