use ccm_core::converge::Plan as _;
use proptest::prelude::*;

use super::*;
use crate::{
    api::elb::Listener,
    names::{PROXY_PROTOCOL_POLICY, ssl_negotiation_policy},
};

/// The cloud that runs `absorb`, makes ids, and refuses what AWS refuses.
#[derive(Clone, Default)]
struct Cloud {
    have: Have,
}

/// `subnet-<zone><n>`.
fn zone(subnet: &str) -> char {
    subnet["subnet-".len()..].chars().next().unwrap()
}

impl Cloud {
    fn lb(&self) -> &LoadBalancer {
        self.have.load_balancer.as_ref().unwrap()
    }

    fn run(&mut self, action: &Action) {
        self.check(action);
        let made = match action {
            Action::CreateSecurityGroup(new) => Made::SecurityGroup(SecurityGroup {
                id: "sg-managed".to_owned(),
                name: new.name.clone(),
                tags: new.tags.clone(),
                ..SecurityGroup::default()
            }),
            Action::CreateLoadBalancer(_) => Made::DnsName("host".to_owned()),
            Action::AttachSubnets(new) => {
                Made::Subnets(self.lb().subnets.union(new).cloned().collect())
            }
            Action::DetachSubnets(gone) => {
                Made::Subnets(self.lb().subnets.difference(gone).cloned().collect())
            }
            Action::Register(_) => Made::Refused(BTreeSet::new()),
            _ => Made::Nothing,
        };
        Clb::absorb(&mut self.have, action, made);
    }

    /// What AWS would refuse.
    fn check(&self, action: &Action) {
        match action {
            Action::CreateLoadBalancer(new) => {
                assert!(!new.subnets.is_empty() && !new.listeners.is_empty());
                assert!(!new.security_groups.is_empty());
            }
            Action::DetachSubnets(gone) => {
                assert!(gone.is_subset(&self.lb().subnets));
                assert!(*gone != self.lb().subnets, "the last subnet");
            }
            Action::AttachSubnets(new) => {
                let zones: BTreeSet<char> = self.lb().subnets.iter().map(|id| zone(id)).collect();
                assert!(new.iter().all(|id| !zones.contains(&zone(id))), "same AZ");
            }
            Action::CreateListeners(specs) => {
                let there = &self.lb().listeners;
                assert!(
                    specs.iter().all(|spec| !there.contains_key(&spec.port)),
                    "DuplicateListener"
                );
            }
            Action::CreatePolicy(policy) => {
                assert!(
                    !self.lb().policies.contains(&policy.name),
                    "DuplicatePolicyName"
                );
            }
            Action::SetBackendPolicies(_, policies) | Action::SetListenerPolicies(_, policies) => {
                assert!(policies.is_subset(&self.lb().policies), "PolicyNotFound");
            }
            Action::ApplySecurityGroups(groups) => assert!(!groups.is_empty()),
            Action::Register(ids) | Action::Deregister(ids) => assert!(!ids.is_empty()),
            _ => {}
        }
    }

    /// What a new process reads.
    fn observed(&self) -> Have {
        let mut have = self.have.clone();
        if have.load_balancer.is_some() {
            // AWS answers in upper case, and more than was set.
            have.attributes.get_or_insert_with(|| Attributes {
                access_log: Some(AccessLog::default()),
                draining: Some(Draining {
                    enabled: false,
                    timeout: Some(300),
                }),
                idle_timeout: Some(60),
                cross_zone: Some(false),
            });
        }
        if let Some(lb) = &mut have.load_balancer {
            for listener in lb.listeners.values_mut() {
                let spec = &mut listener.spec;
                spec.protocol = spec.protocol.to_uppercase();
                spec.instance_protocol = spec.instance_protocol.to_uppercase();
            }
        }
        have.refused.clear();
        have
    }

    /// At most `steps` actions; whether it came to an end.
    fn converge(&mut self, want: &Want, steps: usize) -> bool {
        self.have = self.observed();
        let mut left = steps;
        for _ in 0..64 {
            let batch = Clb::next(want, &self.have);
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
        panic!("no end: {:?}", Clb::next(want, &self.have));
    }
}

#[derive(Clone, Debug)]
struct Shape {
    ports: BTreeMap<i32, (i32, u8)>,
    certificate: bool,
    proxy: bool,
    policy: Option<u8>,
    local: bool,
    instances: BTreeSet<u8>,
    given: bool,
    extra: u8,
    subnets: BTreeMap<char, u8>,
    cross_zone: bool,
    draining: Option<i32>,
    range: u8,
    tag: u8,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let ports = proptest::collection::btree_map(0..4i32, (0..3i32, 0..2u8), 1..4);
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let subnets =
        proptest::collection::btree_map(prop_oneof![Just('a'), Just('b'), Just('c')], 0..2u8, 1..4);
    let rest = (
        proptest::option::of(0..2u8),
        proptest::collection::btree_set(0..6u8, 0..5),
        0..3u8,
        proptest::option::of(prop_oneof![Just(30), Just(300)]),
        0..2u8,
        0..3u8,
    );
    (ports, flags, subnets, rest).prop_map(|(ports, flags, subnets, rest)| Shape {
        ports,
        certificate: flags.0,
        proxy: flags.1,
        local: flags.2,
        given: flags.3,
        cross_zone: flags.4,
        subnets,
        policy: rest.0,
        instances: rest.1,
        extra: rest.2,
        draining: rest.3,
        range: rest.4,
        tag: rest.5,
    })
}

fn listener(port: i32, instance_port: i32, tls: bool) -> ListenerSpec {
    ListenerSpec {
        port,
        protocol: if tls { "ssl" } else { "tcp" }.to_owned(),
        instance_port,
        instance_protocol: "tcp".to_owned(),
        certificate: tls.then(|| "arn:Cert".to_owned()),
    }
}

fn proxy_policy() -> Policy {
    Policy {
        name: PROXY_PROTOCOL_POLICY.to_owned(),
        kind: "ProxyProtocolPolicyType",
        attribute: ("ProxyProtocol", "true".to_owned()),
    }
}

fn tls_policy(value: &str) -> Policy {
    Policy {
        name: ssl_negotiation_policy(value),
        kind: "SSLNegotiationPolicyType",
        attribute: ("Reference-Security-Policy", value.to_owned()),
    }
}

fn want(shape: &Shape) -> Want {
    let listeners: BTreeMap<i32, ListenerSpec> = shape
        .ports
        .iter()
        .map(|(port, (node, tls))| {
            let tls = shape.certificate && *tls == 0;
            (*port, listener(*port, 30000 + node, tls))
        })
        .collect();
    let subnets: BTreeSet<String> = shape
        .subnets
        .iter()
        .map(|(zone, n)| format!("subnet-{zone}{n}"))
        .collect();
    let user_tags: Tags = (0..shape.tag)
        .map(|n| (format!("k{n}"), "v".to_owned()))
        .collect();
    let mut tags = user_tags.clone();
    tags.insert("service".to_owned(), "shop/web".to_owned());
    let range = format!("10.{}.0.0/16", shape.range).parse().unwrap();
    let tls = listeners.values().any(is_tls);
    Want {
        phase: Phase::Complete,
        new: NewLoadBalancer {
            name: "lb".to_owned(),
            internal: false,
            subnets: subnets.clone(),
            security_groups: vec![],
            listeners: listeners.values().cloned().collect(),
            tags,
        },
        subnets: Some(subnets),
        zones: ["a0", "a1", "b0", "b1", "c0", "c1"]
            .map(|id| (format!("subnet-{id}"), id[..1].to_owned()))
            .into(),
        first_groups: if shape.given {
            FirstGroups::Given(vec!["sg-user".to_owned()])
        } else {
            FirstGroups::Managed {
                new: NewSecurityGroup {
                    name: "k8s-elb-lb".to_owned(),
                    ..NewSecurityGroup::default()
                },
                rules: shape
                    .ports
                    .keys()
                    .map(|port| Rule::port("tcp", *port, range))
                    .chain([Rule::mtu(range)])
                    .collect(),
            }
        },
        extra_groups: (0..shape.extra).map(|n| format!("sg-extra-{n}")).collect(),
        listeners,
        backend_policy: shape.proxy.then(proxy_policy),
        listener_policy: shape
            .policy
            .filter(|_| tls)
            .map(|n| tls_policy(&format!("P{n}"))),
        attributes: Attributes {
            access_log: Some(AccessLog::default()),
            draining: Some(Draining {
                enabled: shape.draining.is_some(),
                timeout: shape.draining,
            }),
            idle_timeout: Some(60),
            cross_zone: Some(shape.cross_zone),
        },
        health: HealthCheck {
            target: if shape.local {
                "HTTP:32213/healthz"
            } else {
                "TCP:30000"
            }
            .to_owned(),
            interval: 10,
            timeout: 5,
            healthy: 2,
            unhealthy: 6,
        },
        instances: shape.instances.iter().map(|n| format!("i-{n}")).collect(),
        user_tags,
    }
}

fn one() -> Want {
    want(&Shape {
        ports: [(80, (80, 0))].into(),
        certificate: false,
        proxy: false,
        policy: None,
        local: false,
        instances: [1, 2].into(),
        given: false,
        extra: 0,
        subnets: [('a', 0), ('b', 0)].into(),
        cross_zone: false,
        draining: None,
        range: 0,
        tag: 1,
    })
}

fn tls() -> Want {
    let mut want = one();
    want.listeners = [
        (443, listener(443, 30443, true)),
        (80, listener(80, 30080, false)),
    ]
    .into();
    want.new.listeners = want.listeners.values().cloned().collect();
    want
}

fn built(want: &Want) -> Cloud {
    let mut cloud = Cloud::default();
    assert!(cloud.converge(want, usize::MAX));
    cloud.have = cloud.observed();
    cloud
}

fn plan(cloud: &mut Cloud, want: &Want) -> Vec<Action> {
    let mut all = Vec::new();
    cloud.have = cloud.observed();
    for _ in 0..64 {
        let batch = Clb::next(want, &cloud.have);
        if batch.is_empty() {
            return all;
        }
        for action in &batch {
            cloud.run(action);
        }
        all.extend(batch);
    }
    panic!("no end");
}

fn kinds(cloud: &mut Cloud, want: &Want) -> Vec<String> {
    let shown = plan(cloud, want).into_iter().map(|action| {
        let text = format!("{action:?}");
        text.split('(').next().unwrap_or_default().to_owned()
    });
    shown.collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The three laws: it comes to an end, a converged state plans nothing, and a process that died
    /// after any action is continued to the same end. And what is then there is what was wanted.
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
        prop_assert_eq!(Clb::next(&after, &seen), vec![]);

        crashed.converge(&after, crash);
        prop_assert!(crashed.converge(&after, usize::MAX));
        let mut once = crashed.observed();
        if let FirstGroups::Given(_) = after.first_groups {
            // The managed group is no longer looked at.
            once.managed_group.clone_from(&seen.managed_group);
        }
        // Ports whose policies were never touched are told apart by an empty entry only.
        let clear = |mut have: Have| {
            let lb = have.load_balancer.as_mut().unwrap();
            lb.backend_policies.retain(|_, policies| !policies.is_empty());
            have
        };
        prop_assert_eq!(clear(once), clear(seen));

        let lb = cloud.lb();
        let stuck = before.new.subnets.len() == 1
            && after.new.subnets.len() == 1
            && before.new.subnets.iter().map(|id| zone(id)).eq(after.new.subnets.iter().map(|id| zone(id)));
        prop_assert!(stuck || Some(&lb.subnets) == after.subnets.as_ref());
        prop_assert_eq!(&lb.instances, &after.instances);
        prop_assert!(lb.listeners.keys().eq(after.listeners.keys()));
        let groups = after.groups(Some("sg-managed")).unwrap();
        prop_assert_eq!(lb.security_groups.iter().collect::<BTreeSet<_>>(), groups.iter().collect());
        for spec in after.listeners.values() {
            let policies = lb.backend_policies.get(&spec.instance_port);
            let proxy = policies.is_some_and(|all| all.contains(PROXY_PROTOCOL_POLICY));
            prop_assert_eq!(proxy, after.backend_policy.is_some());
        }
    }
}

/// REQ-AWS-CLB-10, REQ-AWS-CLB-11
#[test]
fn a_new_one_is_made_with_all_that_it_has_and_gets_instances_last() {
    let mut want = tls();
    want.backend_policy = Some(proxy_policy());
    let plan = plan(&mut Cloud::default(), &want);
    let [
        Action::CreateSecurityGroup(_),
        Action::Authorize(..),
        Action::CreateLoadBalancer(new),
        Action::CreatePolicy(policy),
        Action::SetBackendPolicies(30080, first),
        Action::SetBackendPolicies(30443, second),
        Action::ModifyAttributes(_),
        Action::ConfigureHealthCheck(_),
        Action::Register(_),
    ] = &plan[..]
    else {
        panic!("{plan:#?}");
    };
    let made = NewLoadBalancer {
        security_groups: vec!["sg-managed".to_owned()],
        ..want.new.clone()
    };
    assert_eq!(*new, made);
    assert_eq!(*policy, proxy_policy());
    assert_eq!((first, second), (&set(&[PROXY_PROTOCOL_POLICY]), first));
}

#[test]
fn the_first_phase_stops_with_a_load_balancer_without_instances() {
    let entrance = Want {
        phase: Phase::Entrance,
        ..one()
    };
    let want = ["CreateSecurityGroup", "Authorize", "CreateLoadBalancer"];
    assert_eq!(kinds(&mut Cloud::default(), &entrance), want);
    // Of one that exists only the group is looked at.
    let mut cloud = built(&one());
    let mut other = entrance;
    other.instances.clear();
    other.listeners = tls().listeners;
    assert!(kinds(&mut cloud, &other).is_empty());
}

/// REQ-AWS-CLB-7, REQ-AWS-CLB-8, REQ-AWS-CLB-20
#[test]
fn what_aws_answers_in_its_own_case_is_no_change() {
    let mut cloud = built(&tls());
    let listener = &cloud.lb().listeners[&443].spec;
    assert_eq!(
        (listener.protocol.as_str(), &*listener.instance_protocol),
        ("SSL", "TCP")
    );
    let mut shouted = tls();
    for spec in shouted.listeners.values_mut() {
        spec.certificate = spec.certificate.as_deref().map(str::to_uppercase);
    }
    assert!(kinds(&mut cloud, &shouted).is_empty());
}

/// REQ-AWS-CLB-9
#[test]
fn a_listener_is_made_anew_when_anything_of_it_changes() {
    for change in [
        (|spec: &mut ListenerSpec| spec.instance_port = 30085) as fn(&mut ListenerSpec),
        |spec| spec.protocol = "http".to_owned(),
        |spec| spec.instance_protocol = "ssl".to_owned(),
        |spec| spec.certificate = Some("other".to_owned()),
    ] {
        let mut after = tls();
        change(after.listeners.get_mut(&80).unwrap());
        let spec = after.listeners[&80].clone();
        let want = [
            Action::DeleteListeners(BTreeSet::from([80])),
            Action::CreateListeners(vec![spec]),
        ];
        assert_eq!(plan(&mut built(&tls()), &after), want);
    }
    assert_eq!(
        plan(&mut built(&tls()), &one()).first(),
        Some(&Action::DeleteListeners(BTreeSet::from([443])))
    );
}

/// REQ-AWS-CLB-12, REQ-AWS-CLB-13, REQ-AWS-CLB-14
#[test]
fn the_proxy_protocol_comes_and_goes_and_stale_ports_are_cleared_once() {
    let mut proxied = one();
    proxied.backend_policy = Some(proxy_policy());
    let mut cloud = built(&proxied);
    assert!(kinds(&mut cloud, &proxied).is_empty());
    let lb = cloud.have.load_balancer.as_mut().unwrap();
    lb.policies.insert("user".to_owned());
    lb.backend_policies
        .get_mut(&30080)
        .unwrap()
        .insert("user".to_owned());
    assert!(
        kinds(&mut cloud, &proxied).is_empty(),
        "the user's own stays"
    );
    assert_eq!(
        plan(&mut cloud, &one()),
        [Action::SetBackendPolicies(30080, set(&["user"]))]
    );
    // Back on: the policy is still there.
    assert_eq!(
        plan(&mut cloud, &proxied),
        [Action::SetBackendPolicies(
            30080,
            set(&["user", PROXY_PROTOCOL_POLICY])
        )]
    );
    let mut moved = proxied;
    moved.listeners.get_mut(&80).unwrap().instance_port = 30085;
    let plan = plan(&mut cloud, &moved);
    assert_eq!(
        plan[2..],
        [
            Action::SetBackendPolicies(30080, set(&[])),
            Action::SetBackendPolicies(30085, set(&[PROXY_PROTOCOL_POLICY])),
        ]
    );
    assert!(kinds(&mut cloud, &moved).is_empty());
}

/// REQ-AWS-CLB-15
#[test]
fn a_tls_policy_is_set_on_tls_listeners_only_and_stays_when_the_annotation_goes() {
    let mut after = tls();
    after.listener_policy = Some(tls_policy("P"));
    let mut cloud = built(&tls());
    let name = "k8s-SSLNegotiationPolicy-P";
    assert_eq!(
        plan(&mut cloud, &after),
        [
            Action::CreatePolicy(tls_policy("P")),
            Action::SetListenerPolicies(443, set(&[name])),
        ]
    );
    assert!(kinds(&mut cloud, &after).is_empty());
    assert!(kinds(&mut cloud, &tls()).is_empty());
    // The user's cookie policy beside it is no reason to set it again.
    let lb = cloud.have.load_balancer.as_mut().unwrap();
    lb.listeners
        .get_mut(&443)
        .unwrap()
        .policies
        .insert("cookie".to_owned());
    assert!(kinds(&mut cloud, &after).is_empty());
}

/// REQ-AWS-CLB-18, REQ-AWS-CLB-19
#[test]
fn only_what_we_own_of_the_attributes_is_compared() {
    let mut cloud = built(&one());
    cloud.have.attributes = Some(Attributes {
        access_log: Some(AccessLog {
            bucket: Some("former".to_owned()),
            ..AccessLog::default()
        }),
        draining: Some(Draining {
            enabled: false,
            timeout: Some(300),
        }),
        idle_timeout: Some(60),
        cross_zone: Some(false),
    });
    assert!(kinds(&mut cloud, &one()).is_empty());
    let mut after = one();
    after.attributes = Attributes {
        access_log: Some(AccessLog {
            enabled: true,
            emit_interval: Some(5),
            bucket: Some("bucket".to_owned()),
            prefix: Some("prefix".to_owned()),
        }),
        draining: Some(Draining {
            enabled: true,
            timeout: Some(30),
        }),
        idle_timeout: Some(120),
        cross_zone: Some(true),
    };
    let all = Action::ModifyAttributes(after.attributes.clone());
    assert_eq!(plan(&mut cloud, &after), [all]);
    after.attributes.idle_timeout = Some(121);
    let part = Attributes {
        idle_timeout: Some(121),
        ..Attributes::default()
    };
    assert_eq!(plan(&mut cloud, &after), [Action::ModifyAttributes(part)]);
}

/// REQ-AWS-HCC-8, REQ-AWS-HCC-14, REQ-AWS-HCC-15
#[test]
fn the_health_check_is_replaced_when_it_differs_or_is_not_answered() {
    let mut cloud = built(&one());
    let lb = cloud.have.load_balancer.as_mut().unwrap();
    lb.health.as_mut().unwrap().target = "tcp:30000".to_owned();
    assert!(kinds(&mut cloud, &one()).is_empty());
    let lb = cloud.have.load_balancer.as_mut().unwrap();
    lb.health = None;
    let want = [Action::ConfigureHealthCheck(one().health)];
    assert_eq!(plan(&mut cloud, &one()), want);
    let lb = cloud.have.load_balancer.as_mut().unwrap();
    lb.health.as_mut().unwrap().interval = 30;
    assert_eq!(plan(&mut cloud, &one()), want);
}

/// REQ-AWS-SUB-21
#[test]
fn subnets_leave_before_others_come_unless_that_would_leave_none() {
    let with = |ids: &[&str]| Want {
        subnets: Some(set(ids)),
        ..one()
    };
    let detach = |ids: &[&str]| Action::DetachSubnets(set(ids));
    let attach = |ids: &[&str]| Action::AttachSubnets(set(ids));
    let mut cloud = built(&one());
    let after = with(&["subnet-b0", "subnet-c0"]);
    assert_eq!(
        plan(&mut cloud, &after),
        [detach(&["subnet-a0"]), attach(&["subnet-c0"])]
    );
    // Nothing stays: what has a free zone comes first, else the old ones make room.
    let after = with(&["subnet-a1", "subnet-b1"]);
    assert_eq!(
        plan(&mut cloud, &after),
        [
            attach(&["subnet-a1"]),
            detach(&["subnet-b0", "subnet-c0"]),
            attach(&["subnet-b1"])
        ]
    );
    let after = with(&["subnet-a0", "subnet-b0"]);
    assert_eq!(
        plan(&mut cloud, &after),
        [
            detach(&["subnet-a1"]),
            attach(&["subnet-a0"]),
            detach(&["subnet-b1"]),
            attach(&["subnet-b0"])
        ]
    );
    let one_zone = with(&["subnet-a0"]);
    assert_eq!(plan(&mut cloud, &one_zone), [detach(&["subnet-b0"])]);
    assert_eq!(plan(&mut cloud, &with(&["subnet-a1"])), []);
    let untouched = Want {
        subnets: None,
        ..one()
    };
    assert!(kinds(&mut cloud, &untouched).is_empty());
}

/// REQ-AWS-NODE-13
#[test]
fn instances_come_before_others_leave_and_refused_ones_are_not_tried_again() {
    let mut cloud = built(&one());
    let mut after = one();
    after.instances = set(&["i-2", "i-3"]);
    assert_eq!(
        plan(&mut cloud, &after),
        [
            Action::Register(set(&["i-3"])),
            Action::Deregister(set(&["i-1"]))
        ]
    );
    after.instances.insert("i-9".to_owned());
    let action = Clb::next(&after, &cloud.have).remove(0);
    let refused = Made::Refused(set(&["i-9"]));
    Clb::absorb(&mut cloud.have, &action, refused);
    assert!(!cloud.lb().instances.contains("i-9"));
    assert_eq!(Clb::next(&after, &cloud.have), vec![]);
}

/// REQ-AWS-SG-6, REQ-AWS-SG-7
#[test]
fn rules_of_the_managed_group_are_granted_before_others_are_revoked() {
    let mut cloud = built(&one());
    let mut after = one();
    let FirstGroups::Managed { rules, .. } = &mut after.first_groups else {
        panic!();
    };
    *rules = BTreeSet::from([Rule::port("tcp", 80, "0.0.0.0/0".parse().unwrap())]);
    assert_eq!(kinds(&mut cloud, &after), ["Authorize", "Revoke"]);
}

/// REQ-AWS-SG-3, REQ-AWS-SG-30
#[test]
fn other_groups_are_applied_in_one_call_and_their_order_is_no_change() {
    let mut cloud = built(&one());
    let mut after = one();
    after.first_groups = FirstGroups::Given(vec!["sg-2".to_owned(), "sg-1".to_owned()]);
    let groups = ["sg-2", "sg-1"].map(str::to_owned).to_vec();
    assert_eq!(
        plan(&mut cloud, &after),
        [Action::ApplySecurityGroups(groups)]
    );
    let lb = cloud.have.load_balancer.as_mut().unwrap();
    lb.security_groups.reverse();
    assert!(kinds(&mut cloud, &after).is_empty());
}

/// REQ-AWS-CLB-22, REQ-AWS-TAG-21 and CASE-LB-21
#[test]
fn tags_follow_the_annotation_and_foreign_ones_stay() {
    let mut cloud = built(&one());
    let tags = cloud.have.tags.as_mut().unwrap();
    tags.insert("owner".to_owned(), "secops".to_owned());
    cloud.have.written_keys = one().new.tags.keys().cloned().collect();
    assert!(kinds(&mut cloud, &one()).is_empty());
    let mut after = one();
    let team = Tags::from([("team".to_owned(), "green".to_owned())]);
    after.new.tags.remove("k0");
    after.new.tags.extend(team.clone());
    after.user_tags.clone_from(&team);
    let want = [Action::Tag(team.clone()), Action::Untag(set(&["k0"]))];
    assert_eq!(plan(&mut cloud, &after), want);
    // Where they cannot be read the user's are written once.
    cloud.have.tags = None;
    assert_eq!(plan(&mut cloud, &after), [Action::Tag(team)]);
    cloud.have.tags = None;
    assert!(kinds(&mut cloud, &after).is_empty());
}

#[test]
fn one_that_someone_made_in_between_is_taken_over() {
    let mut have = Have::default();
    let want = one();
    let found = LoadBalancer {
        name: "lb".to_owned(),
        listeners: [(81, Listener::default())].into(),
        ..LoadBalancer::default()
    };
    let create = Action::CreateLoadBalancer(want.new.clone());
    Clb::absorb(&mut have, &create, Made::Found(Box::new(found.clone())));
    assert_eq!((have.load_balancer, have.attributes), (Some(found), None));
}
