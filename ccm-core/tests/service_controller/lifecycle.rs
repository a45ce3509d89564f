//! From a new Service to its address, and what happens when it changes.

use std::time::Duration;

use ccm_core::cloud::Note;
use ccm_kubesim::{Fault, Target, Verb};
use serde_json::json;

use crate::{
    bench::{Bench, FINALIZER, SOON, node, pass, service},
    cloud::Op,
};

/// REQ-SVC-02, REQ-SVC-03, REQ-SVC-32, TS2
#[tokio::test(start_paused = true)]
async fn a_new_service_gets_its_finalizer_then_its_load_balancer_then_its_address() {
    let bench = Bench::running();
    bench.cloud.slow(Op::Ensure, Duration::from_secs(1));
    for (name, protocol) in [("tcp", "TCP"), ("udp", "UDP"), ("sctp", "SCTP")] {
        let mut new = service(name);
        new["spec"]["ports"][0]["protocol"] = json!(protocol);
        bench.put(new);
        bench
            .until("the cloud is called", SOON, |b| {
                b.cloud.count(Op::Ensure, name) == 1
            })
            .await;
        assert!(bench.has_finalizer(name), "finalizer before the cloud call");
        bench.until_ready(name).await;
        assert_eq!(bench.targets(name), ["a", "b"]);
    }
    let requests = bench.sim.requests();
    let writes: Vec<_> = requests
        .entries
        .iter()
        .filter(|entry| entry.key.verb.is_write())
        .map(|entry| (entry.key.verb, entry.key.subresource.as_str()))
        .collect();
    assert_eq!(
        writes,
        [(Verb::Patch, "status"); 6],
        "two patches a Service"
    );
    assert_eq!(
        bench.events.reasons(),
        ["EnsuringLoadBalancer", "EnsuredLoadBalancer"].repeat(3)
    );
}

/// REQ-SVC-12, REQ-SVC-26
#[tokio::test(start_paused = true)]
async fn a_service_at_rest_costs_nothing() {
    let bench = Bench::ready().await;
    bench.cloud.forget_calls();
    let mark = bench.sim.mark();
    let events = bench.events.all().len();
    pass(600).await;
    assert!(bench.cloud.calls().is_empty());
    assert_eq!(bench.sim.count_writes_since(&mark), 0);
    assert_eq!(bench.events.all().len(), events);
}

/// TS6
#[tokio::test(start_paused = true)]
async fn a_service_that_has_the_finalizer_gets_one_patch() {
    let bench = Bench::running();
    let mut new = service("web");
    new["metadata"]["finalizers"] = json!(["example.com/other", FINALIZER]);
    bench.put(new);
    let mark = bench.sim.mark();
    bench.until_ready("web").await;
    assert_eq!(bench.sim.count_writes_since(&mark), 1);
    assert_eq!(bench.finalizers("web"), ["example.com/other", FINALIZER]);
}

/// REQ-SVC-09, REQ-SVC-11
#[tokio::test(start_paused = true)]
async fn a_changed_service_is_ensured_at_once() {
    let bench = Bench::ready().await;
    bench.patch(
        "web",
        &json!({"spec": {"ports": [{"name": "http", "port": 81}]}}),
    );
    bench
        .until("the new port is served", SOON, |b| {
            b.cloud.balancer("web").is_some_and(|lb| lb.ports == [81])
        })
        .await;
    bench.patch("web", &json!({"metadata": {"annotations": {"a": "b"}}}));
    bench
        .until("ensured again", SOON, |b| {
            b.cloud.count(Op::Ensure, "web") == 3
        })
        .await;
    bench.patch("web", &json!({"metadata": {"labels": {"a": "b"}}}));
    pass(60).await;
    assert_eq!(
        bench.cloud.count(Op::Ensure, "web"),
        3,
        "labels are not compared"
    );
}

/// A change during an ensure is not lost, and the two never overlap.
/// REQ-SVC-29
#[tokio::test(start_paused = true)]
async fn a_change_during_an_ensure_is_ensured_afterwards() {
    let bench = Bench::running();
    bench.cloud.slow(Op::Ensure, Duration::from_secs(20));
    bench.put(service("web"));
    pass(5).await;
    bench.patch(
        "web",
        &json!({"spec": {"ports": [{"name": "http", "port": 81}]}}),
    );
    pass(60).await;
    assert_eq!(bench.cloud.balancer("web").unwrap().ports, [81]);
    assert_eq!(bench.cloud.count(Op::Ensure, "web"), 2);
    assert_eq!(bench.cloud.lock().overlaps, 0);
}

/// REQ-SVC-39
#[tokio::test(start_paused = true)]
async fn nothing_is_asked_of_the_cloud_before_both_caches_are_full() {
    let mut bench = Bench::stopped();
    bench.put(node("a"));
    bench.put(service("web"));
    bench
        .sim
        .faults()
        .fail_next(3, Target::new(Verb::List, "nodes"), Fault::Internal);
    bench.start();
    bench
        .until(
            "the list of Nodes failed three times",
            Duration::from_secs(60),
            |b| b.sim.faults().pending() == 0,
        )
        .await;
    assert!(bench.cloud.calls().is_empty());
    bench
        .until("ensured", Duration::from_secs(60), |b| {
            b.cloud.balancer("web").is_some()
        })
        .await;
    assert_eq!(bench.targets("web"), ["a"]);
    assert!(bench.told("UnAvailableLoadBalancer").is_empty());
}

/// REQ-SVC-43
#[tokio::test(start_paused = true)]
async fn a_restart_ensures_each_service_once_in_parallel_and_writes_nothing() {
    let mut bench = Bench::running();
    for n in 0..20 {
        bench.put(service(&format!("web-{n}")));
    }
    bench
        .until("all have an address", Duration::from_secs(30), |b| {
            (0..20).all(|n| b.address(&format!("web-{n}")).is_some())
        })
        .await;
    bench.stop().await;
    bench.cloud.forget_calls();
    bench.cloud.slow(Op::Ensure, Duration::from_secs(1));
    let before = bench.cloud.balancers();
    let mark = bench.sim.mark();
    bench.start();
    pass(30).await;
    let calls = bench.cloud.calls();
    assert_eq!(calls.len(), 20, "{calls:?}");
    assert!(calls.iter().all(|call| call.op == Op::Ensure));
    assert_eq!(
        bench.cloud.lock().most_ensuring,
        4,
        "as many as there are workers"
    );
    assert_eq!(bench.cloud.balancers(), before);
    assert_eq!(bench.sim.count_writes_since(&mark), 0);
}

/// REQ-SVC-38
#[tokio::test(start_paused = true)]
async fn the_flag_says_how_many_services_are_worked_on_at_once() {
    for syncs in [1, 3] {
        let mut bench = Bench::stopped();
        bench.settings.syncs = syncs;
        bench.cloud.slow(Op::Ensure, Duration::from_secs(1));
        for n in 0..6 {
            bench.put(service(&format!("web-{n}")));
        }
        bench.start();
        pass(30).await;
        assert_eq!(bench.cloud.balancers().len(), 6);
        assert_eq!(bench.cloud.lock().most_ensuring, syncs);
        bench.stop().await;
    }
}

/// REQ-SVC-18
#[tokio::test(start_paused = true)]
async fn a_service_implemented_elsewhere_keeps_its_status_and_gets_the_finalizer() {
    let bench = Bench::running();
    bench.cloud.lock().elsewhere.insert("web".to_owned());
    bench.put(service("web"));
    pass(5).await;
    assert!(bench.has_finalizer("web"));
    let theirs = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}});
    bench.patch("web", &theirs);
    bench.patch("web", &json!({"metadata": {"annotations": {"a": "b"}}}));
    pass(60).await;
    let status = bench.service("web").unwrap()["status"]["loadBalancer"].clone();
    assert_eq!(status, json!({"ingress": [{"hostname": "lb.example"}]}));
    assert_eq!(bench.cloud.count(Op::Ensure, "web"), 2);
    assert_eq!(bench.events.reasons(), ["EnsuringLoadBalancer"; 2]);
}

/// REQ-SVC-19
#[tokio::test(start_paused = true)]
async fn a_service_implemented_elsewhere_is_updated_silently_and_let_go() {
    let bench = Bench::running();
    bench.cloud.lock().elsewhere.insert("web".to_owned());
    bench.put(service("web"));
    pass(5).await;
    bench.put_node("c");
    pass(5).await;
    assert_eq!(bench.cloud.count(Op::Update, "web"), 1);
    assert_eq!(bench.events.reasons(), ["EnsuringLoadBalancer"]);
    bench.delete("web");
    pass(5).await;
    assert!(bench.service("web").is_none(), "the finalizer is removed");
    assert!(bench.told("SyncLoadBalancerFailed").is_empty());
}

/// REQ-AWS-DIV-4: what another controller's Service is warned about.
#[tokio::test(start_paused = true)]
async fn warnings_of_a_service_implemented_elsewhere_are_told_once_while_they_stand() {
    let bench = Bench::running();
    let note = |message: &str| Note {
        reason: "LoadBalancerReleased",
        message: message.to_owned(),
    };
    {
        let mut cloud = bench.cloud.lock();
        cloud.elsewhere.insert("web".to_owned());
        cloud.notes = vec![note("it stays")];
    }
    bench.put(service("web"));
    pass(5).await;
    assert_eq!(
        bench.events.reasons(),
        ["EnsuringLoadBalancer", "LoadBalancerReleased"]
    );
    bench.put_node("c");
    pass(5).await;
    bench.put_node("d");
    // Verifications.
    pass(60 * 3600).await;
    assert_eq!(bench.cloud.count(Op::Update, "web"), 2);
    assert!(bench.cloud.count(Op::Ensure, "web") > 1);
    assert_eq!(bench.told("LoadBalancerReleased").len(), 1);
    bench.cloud.lock().notes = vec![note("it still stays")];
    bench.put_node("e");
    pass(5).await;
    let told = bench.told("LoadBalancerReleased");
    assert_eq!(told.len(), 2);
    assert_eq!(told[1].message, "it still stays");
}

/// CASE-LB-17, REQ-SVC-14
#[tokio::test(start_paused = true)]
async fn the_default_mode_of_an_address_causes_no_writes() {
    let bench = Bench::ready().await;
    let mode = |bench: &Bench| {
        let service = bench.service("web").unwrap();
        service["status"]["loadBalancer"]["ingress"][0]["ipMode"].clone()
    };
    assert_eq!(mode(&bench), "VIP", "the API server fills it in");
    let mark = bench.sim.mark();
    for n in 0..20 {
        bench.patch(
            "web",
            &json!({"metadata": {"annotations": {"a": n.to_string()}}}),
        );
        pass(2).await;
    }
    assert_eq!(bench.cloud.count(Op::Ensure, "web"), 21);
    assert_eq!(bench.sim.count_writes_since(&mark), 0);
    bench.cloud.lock().ip_mode = Some("Proxy".to_owned());
    for n in 0..3 {
        bench.patch(
            "web",
            &json!({"metadata": {"annotations": {"b": n.to_string()}}}),
        );
        pass(2).await;
        assert_eq!(mode(&bench), "Proxy");
    }
    assert_eq!(bench.sim.count_writes_since(&mark), 1);
}

/// REQ-SVC-31
#[tokio::test(start_paused = true)]
async fn a_service_replaced_under_its_name_gets_its_own_load_balancer() {
    let bench = Bench::ready().await;
    bench
        .sim
        .faults()
        .delay_watches(None, Duration::from_secs(5));
    bench.patch("web", &json!({"metadata": {"finalizers": null}}));
    bench.delete("web");
    bench.put(service("web"));
    bench.sim.faults().delay_watches(None, Duration::ZERO);
    bench
        .until("the new one is served", Duration::from_secs(60), |b| {
            b.address("web").as_deref() == Some("198.51.100.2")
        })
        .await;
    assert_eq!(bench.cloud.balancers().len(), 1, "the old one is gone");
    let order: Vec<_> = bench.cloud.calls().iter().map(|call| call.op).collect();
    assert_eq!(order, [Op::Ensure, Op::Delete, Op::Ensure]);
    assert_eq!(bench.told("DeletedLoadBalancer").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_warning_of_the_provider_becomes_an_event_of_each_ensure() {
    let bench = Bench::running();
    bench.cloud.lock().notes = vec![Note {
        reason: "PortIgnored",
        message: "port a has no node port".to_owned(),
    }];
    bench.put(service("web"));
    bench.until_ready("web").await;
    let told = bench.told("PortIgnored");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].type_, ccm_core::kube::EventType::Warning);
    assert_eq!(told[0].message, "port a has no node port");
}

/// The addresses in the status.
fn addresses(bench: &Bench) -> Vec<String> {
    let service = bench.service("web").unwrap();
    let ingress = service.pointer("/status/loadBalancer/ingress").cloned();
    let ingress: Vec<serde_json::Value> =
        serde_json::from_value(ingress.unwrap_or_default()).unwrap_or_default();
    let ips = ingress.iter().filter_map(|one| one["ip"].as_str());
    ips.map(str::to_owned).collect()
}

/// The last thing that the cloud was asked for.
fn last_wish(bench: &Bench) -> crate::cloud::Wish {
    let calls = bench.cloud.calls();
    let mut ensures = calls.iter().filter(|call| call.op == Op::Ensure);
    ensures.next_back().unwrap().wish.clone()
}

/// CASE-LB-11; REQ-SVC-09: what the second family is made of is the provider's.
#[tokio::test(start_paused = true)]
async fn a_second_family_is_asked_for_and_taken_back_and_the_first_address_stays() {
    let bench = Bench::ready().await;
    let first = addresses(&bench);
    assert_eq!(first.len(), 1);
    assert_eq!(last_wish(&bench).families, ["IPv4"]);
    let both = [first[0].clone(), "2001:db8::1".to_owned()];
    for (families, policy, want, ensures) in [
        (&["IPv4", "IPv6"][..], "PreferDualStack", &both[..], 2),
        (&["IPv4"], "SingleStack", &first, 3),
    ] {
        let spec = json!({ "ipFamilyPolicy": policy, "ipFamilies": families });
        bench.patch("web", &json!({ "spec": spec }));
        bench
            .until("the status tells of it", SOON, |b| addresses(b) == want)
            .await;
        assert_eq!(last_wish(&bench).families, families);
        let mark = bench.sim.mark();
        pass(600).await;
        assert_eq!(bench.cloud.count(Op::Ensure, "web"), ensures, "once");
        assert_eq!(bench.sim.count_writes_since(&mark), 0);
    }
    assert_eq!(bench.cloud.count(Op::Delete, "web"), 0);
}

/// CASE-LB-12; REQ-SVC-09: each is handed to the provider once, in place.
#[tokio::test(start_paused = true)]
async fn a_change_of_an_attribute_alone_is_handed_to_the_provider_once() {
    let bench = Bench::ready().await;
    let address = addresses(&bench);
    let port = |protocol: &str| json!([{ "name": "http", "port": 80, "protocol": "TCP", "appProtocol": protocol }]);
    let timeout = |seconds: i32| json!({ "clientIP": { "timeoutSeconds": seconds } });
    bench.patch("web", &json!({ "spec": { "ports": port("tcp") } }));
    pass(60).await;
    type Check = fn(&crate::cloud::Wish) -> bool;
    let steps: [(serde_json::Value, Check); 3] = [
        (
            json!({ "sessionAffinity": "ClientIP", "sessionAffinityConfig": timeout(600) }),
            |wish| wish.affinity == "ClientIP" && wish.affinity_seconds == Some(600),
        ),
        (json!({ "sessionAffinityConfig": timeout(60) }), |wish| {
            wish.affinity_seconds == Some(60)
        }),
        (json!({ "ports": port("http") }), |wish| {
            wish.protocols == [Some("http".to_owned())]
        }),
    ];
    for (number, (spec, check)) in steps.into_iter().enumerate() {
        assert!(!check(&last_wish(&bench)), "{spec}");
        let mark = bench.sim.mark();
        bench.patch("web", &json!({ "spec": spec }));
        pass(3).await;
        assert!(check(&last_wish(&bench)), "{spec}: {:?}", last_wish(&bench));
        pass(600).await;
        assert_eq!(bench.cloud.count(Op::Ensure, "web"), 3 + number, "{spec}");
        assert_eq!(bench.cloud.count(Op::Delete, "web"), 0);
        assert_eq!(addresses(&bench), address);
        assert_eq!(
            bench.sim.count_writes_since(&mark),
            0,
            "the status is the same"
        );
    }
}
