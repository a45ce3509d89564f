//! A process that dies at any call, and a cloud that does what was asked but does not say so.

use std::collections::BTreeMap;

use ccm_cloudsim::control::Fault;
use ccm_core::{cloud::LoadBalancers, kube::Service};

use super::bench::{Bench, writes};
use crate::load_balancer::testing::{alb, classic, service};

/// Calls of the largest pass below are fewer.
const CALLS: u64 = 60;

async fn bench() -> Bench {
    Bench::with(2, |s| s.managed_security_groups = true).await
}

/// A Service, and the same after everything about it changed at once.
struct Change {
    before: Service,
    after: Service,
}

fn network() -> Change {
    Change {
        before: service(&[(80, 30080), (81, 30081)]),
        after: changed(service(&[(80, 30085), (443, 30443)])),
    }
}

fn classic_one() -> Change {
    let mut before = classic(&[(80, 30080), (81, 30081)]);
    alb(&mut before, "proxy-protocol", "*");
    let mut after = changed(classic(&[(80, 30085), (443, 30443)]));
    alb(&mut after, "ssl-ports", "443");
    alb(
        &mut after,
        "ssl-negotiation-policy",
        "ELBSecurityPolicy-TLS-1-2-2017-01",
    );
    Change { before, after }
}

fn changed(mut service: Service) -> Service {
    service.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
    alb(
        &mut service,
        "ssl-cert",
        "arn:aws:acm:us-west-2:123456789012:certificate/c",
    );
    alb(&mut service, "healthcheck-protocol", "http");
    alb(&mut service, "cross-zone-load-balancing-enabled", "true");
    service
}

/// What is there, without ids and times.
fn summary(bench: &Bench) -> String {
    let state = bench.state();
    let groups: Vec<String> = {
        let mut all: Vec<String> = state
            .target_groups
            .values()
            .map(|g| {
                let targets: Vec<_> = g
                    .targets
                    .iter()
                    .filter(|t| !t.draining)
                    .map(|t| (&t.id, t.port))
                    .collect();
                format!("{} {} {:?} {targets:?}", g.name, g.protocol, g.health_check)
            })
            .collect();
        all.sort();
        all
    };
    let mut listeners: Vec<String> = state
        .listeners
        .values()
        .map(|l| {
            let group = &state.target_groups[&l.target_group_arn].name;
            format!("{} {} {:?} {group}", l.port, l.protocol, l.certificates)
        })
        .collect();
    listeners.sort();
    let groups_of_all = state.security_groups.values();
    let rules: BTreeMap<_, _> = groups_of_all
        .map(|g| (g.name.clone(), super::bench::rules(&state, &g.id)))
        .collect();
    let lbs: Vec<_> = state
        .load_balancers
        .values()
        .map(|lb| (lb.name.clone(), lb.attributes.clone()))
        .collect();
    let classic: Vec<_> = state
        .classic_load_balancers
        .values()
        .map(|lb| {
            let names = lb.security_groups.iter();
            let groups: Vec<&str> = names
                .map(|id| state.security_groups[id].name.as_str())
                .collect();
            let policies: Vec<_> = lb.backend_policies.iter().collect();
            format!(
                "{:?} {:?} {:?} {policies:?} {groups:?} {:?} {:?}",
                lb.listeners, lb.health_check, lb.attributes, lb.instances, lb.tags
            )
        })
        .collect();
    // Ids are made at random.
    let mut text = format!("{groups:?} {listeners:?} {rules:?} {lbs:?} {classic:?}");
    for group in state.security_groups.values() {
        text = text.replace(&group.id, &group.name);
    }
    text
}

/// REQ-AWS-NLB-27: every prefix of a pass, continued by a new process, ends as an undisturbed one.
#[tokio::test(start_paused = true)]
async fn a_pass_cut_off_at_any_call_is_continued_to_the_same_end() {
    cut_off(&network()).await;
}

/// REQ-AWS-DEL-5, REQ-AWS-CLB-20: the same of a classic load balancer.
#[tokio::test(start_paused = true)]
async fn a_pass_of_a_classic_one_cut_off_at_any_call_is_continued_to_the_same_end() {
    cut_off(&classic_one()).await;
}

async fn cut_off(change: &Change) {
    let Change { before, after } = change;
    let undisturbed = bench().await;
    undisturbed.ensure(before).await;
    let made = summary(&undisturbed);
    undisturbed.ensure(after).await;
    let changed = summary(&undisturbed);
    let mut ended = false;
    for fault in [Fault::DropConnection, Fault::commit_then_close()] {
        for n in 1..CALLS {
            let mut bench = bench().await;
            bench.sim.faults().from_nth("*", n, fault.clone()).unwrap();
            let first = bench.try_ensure(before).await;
            bench.sim.faults().clear_all();
            bench.restart().await;
            bench.ensure(before).await;
            assert_eq!(summary(&bench), made, "call {n}");

            bench.sim.faults().from_nth("*", n, fault.clone()).unwrap();
            let second = bench.try_ensure(after).await;
            bench.sim.faults().clear_all();
            bench.restart().await;
            bench.ensure(after).await;
            assert_eq!(summary(&bench), changed, "call {n}");
            let (_, calls) = bench.calls(bench.ensure(after)).await;
            assert_eq!(writes(&calls), [""; 0]);

            bench.sim.faults().from_nth("*", n, fault.clone()).unwrap();
            let third = bench.lbs.delete(after).await;
            bench.sim.faults().clear_all();
            bench.restart().await;
            bench.delete(after).await;
            let state = bench.state();
            assert!(state.load_balancers.is_empty() && state.target_groups.is_empty());
            assert!(state.classic_load_balancers.is_empty());
            assert!(
                state
                    .security_groups
                    .values()
                    .all(|g| !g.name.starts_with("k8s-"))
            );
            assert!(bench.node_rules().is_empty());
            if first.is_ok() && second.is_ok() && third.is_ok() {
                ended = true;
                break;
            }
        }
    }
    assert!(ended, "more calls than expected");
}

/// The same process goes on after a failure: what it remembered does not mislead it.
#[tokio::test(start_paused = true)]
async fn a_failed_pass_is_repaired_by_the_next_one() {
    repaired(&network()).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_pass_of_a_classic_one_is_repaired_by_the_next_one() {
    repaired(&classic_one()).await;
}

async fn repaired(change: &Change) {
    let Change { before, after } = change;
    let undisturbed = bench().await;
    undisturbed.ensure(after).await;
    let want = summary(&undisturbed);
    for n in 1..CALLS {
        let bench = bench().await;
        bench.ensure(before).await;
        bench
            .sim
            .faults()
            .from_nth("*", n, Fault::commit_then_close())
            .unwrap();
        let answer = bench.try_ensure(after).await;
        bench.sim.faults().clear_all();
        bench.ensure(after).await;
        assert_eq!(summary(&bench), want, "call {n}");
        if answer.is_ok() {
            return;
        }
    }
    panic!("more calls than expected");
}
