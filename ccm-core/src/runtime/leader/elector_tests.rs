//! One and two candidates against a simulated API server, on virtual time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use ccm_kubesim::{Fault, Outage, Target, Verb};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    Acquired, Elector, Lost,
    fixtures_tests::{Fate, NAME, NAMESPACE, Running, World},
    identity,
};
use crate::runtime::Random;

const SOON: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
/// The longest time between two looks of a candidate.
const LOOK: Duration = Duration::from_millis(4_400);

const LEASES: &str = "leases.coordination.k8s.io";

fn puts(world: &World) -> u64 {
    world.sim.requests().count(Verb::Update, LEASES)
}

fn gets(world: &World) -> u64 {
    world.sim.requests().count(Verb::Get, LEASES)
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn the_lease_is_written_as_the_go_library_writes_it() {
    let world = World::new();
    let one = Running::start(world.elector("one_1"));
    one.until_leading(SOON).await;
    let start = world.spec();
    assert_eq!(start["holderIdentity"], "one_1");
    assert_eq!(start["leaseDurationSeconds"], 15);
    assert_eq!(start["leaseTransitions"], 0);
    assert_eq!(start["acquireTime"], start["renewTime"]);
    let time = start["renewTime"].as_str().unwrap();
    assert!(time.ends_with('Z') && time.len() == "2026-01-01T00:00:00.000000Z".len());
    sleep(LEASE * 4).await;
    let later = world.spec();
    assert_eq!(later["acquireTime"], start["acquireTime"]);
    assert_eq!(later["leaseTransitions"], 0);
    assert_ne!(later["renewTime"], start["renewTime"]);
    assert!(one.fence.is_passable() && (one.healthy)());
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn a_renewal_is_one_put_every_retry_period_and_no_get() {
    let world = World::new();
    let one = Running::start(world.elector("one"));
    one.until_leading(SOON).await;
    let (before, looks) = (puts(&world), gets(&world));
    sleep(Duration::from_secs(61)).await;
    assert_eq!(puts(&world) - before, 30);
    assert_eq!(gets(&world), looks);
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn a_second_candidate_waits_healthy_and_shut_while_the_first_renews() {
    let world = World::new();
    let one = Running::start(world.elector("one"));
    one.until_leading(SOON).await;
    let two = Running::start(world.elector("two"));
    for _ in 0..300 {
        sleep(SOON).await;
        assert!(one.leads() && !two.leads());
        assert!(!two.fence.is_passable() && (two.healthy)());
    }
    let looks = gets(&world);
    assert!((300 / 5..=300 / 2).contains(&looks), "{looks}");
}

/// REQ-APP-13, CASE-LEAD-01
#[tokio::test(start_paused = true)]
async fn a_silent_holder_is_taken_over_after_one_lease_duration() {
    for part in 0..6_u64 {
        let world = World::new();
        let one = Running::start(world.elector("one"));
        one.until_leading(SOON).await;
        let two = Running::start(world.elector(&format!("two{part}")));
        sleep(Duration::from_millis(20_000 + 317 * part)).await;
        let fence = one.fence.clone();
        one.kill();
        let took = two.until_leading(LEASE + LOOK).await;
        assert!(took <= Duration::from_secs(20), "{took:?}");
        assert!(took >= LEASE - RETRY, "{took:?}");
        assert!(!fence.is_passable() && two.fence.is_passable());
        assert_eq!(world.spec()["leaseTransitions"], 1);
        two.kill();
    }
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_with_the_next_look() {
    let world = World::new();
    let one = Running::start(world.elector("one"));
    one.until_leading(SOON).await;
    let two = Running::start(world.elector("two"));
    sleep(LEASE * 2).await;
    let fence = one.fence.clone();
    one.release().await;
    assert!(!fence.is_passable());
    let spec = world.spec();
    assert_eq!(spec["holderIdentity"], "");
    assert_eq!(spec["leaseDurationSeconds"], 1);
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
    assert!(two.until_leading(LOOK).await <= LOOK);
    assert_eq!(world.spec()["leaseTransitions"], 1);
    assert_eq!(
        world.messages(),
        [
            "one became leader",
            "one stopped leading",
            "two became leader"
        ]
    );
}

/// REQ-MET-03
#[tokio::test(start_paused = true)]
async fn events_and_metrics_tell_who_leads() {
    let world = World::new();
    world.store(&json!({ "holderIdentity": "", "leaseDurationSeconds": 1 }));
    let one = Running::start(world.elector("one"));
    assert!(world.series("leader_election_master_status") < 0.5);
    one.until_leading(SOON).await;
    assert!(world.series("leader_election_master_status") > 0.5);
    let event = &world.events.all()[0];
    assert_eq!(event.source, "cloud-controller-manager");
    assert_eq!(event.type_.as_str(), "Normal");
    assert_eq!(event.reason, "LeaderElection");
    let about = &event.object;
    assert_eq!(
        (about.api_version, about.kind, about.namespace.as_str()),
        ("coordination.k8s.io/v1", "Lease", NAMESPACE)
    );
    assert!(!about.uid.is_empty() && !about.resource_version.is_empty());
    one.release().await;
    assert!(world.series("leader_election_master_status") < 0.5);
    assert_eq!(
        world.messages(),
        ["one became leader", "one stopped leading"]
    );
}

/// CASE-OPS-02
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_is_shut_and_lost_at_the_deadline() {
    let world = World::new();
    for outage in [Outage::Refused, Outage::Status503] {
        let one = Running::start(world.elector("one"));
        one.until_leading(SOON * 60).await;
        sleep(Duration::from_millis(900)).await;
        let start = Instant::now();
        world.sim.faults().unavailable(outage);
        let (lost, at) = one.until_lost(LEASE).await;
        let after = at - start;
        assert!(
            after <= DEADLINE && after >= DEADLINE - RETRY,
            "{after:?} {lost}"
        );
        assert!(
            matches!(&lost, Lost::Deadline { problem, .. } if problem.contains("update leases") || problem.contains("get leases")),
            "{lost}"
        );
        assert!(!one.fence.is_passable());
        world.sim.faults().available();
    }
    assert_eq!(
        world.messages().last().map(String::as_str),
        Some("one stopped leading")
    );
}

/// A leader whose requests are lost from the time on when the switch is set.
async fn leader_that_may_hang(world: &World) -> (Running, Arc<AtomicBool>) {
    let hangs = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&hangs);
    let one = Running::start(world.elector_over("one", move |_| Fate {
        lost: switch.load(Ordering::SeqCst),
        ..Fate::default()
    }));
    one.until_leading(SOON).await;
    (one, hangs)
}

/// CASE-OPS-02
#[tokio::test(start_paused = true)]
async fn the_fence_is_shut_at_the_deadline_even_while_a_request_hangs() {
    let world = World::new();
    let (one, hangs) = leader_that_may_hang(&world).await;
    sleep(RETRY * 5 + SOON).await;
    hangs.store(true, Ordering::SeqCst);
    sleep(DEADLINE - SOON - SOON / 10).await;
    assert!(one.fence.is_passable(), "the last renewal was a second ago");
    sleep(SOON / 5).await;
    assert!(!one.fence.is_passable());
    assert!(matches!(
        one.until_lost(SOON).await.0,
        Lost::Deadline { .. }
    ));
}

/// CASE-OPS-02
#[tokio::test(start_paused = true)]
async fn the_fence_counts_from_before_a_renewal_was_sent() {
    let world = World::new();
    let slow = Duration::from_secs(4);
    let sent = Arc::new(Mutex::new(None));
    let last = Arc::clone(&sent);
    // The first renewal is applied at once and answered late, all after it is lost.
    let one = Running::start(world.elector_over("one", move |parts| {
        let mut sent = last.lock().unwrap();
        let is_first = parts.method == Method::PUT && sent.is_none();
        let lost = sent.is_some();
        if is_first {
            *sent = Some(Instant::now());
        }
        Fate {
            back: if is_first { slow } else { Duration::ZERO },
            lost,
            ..Fate::default()
        }
    }));
    one.until_leading(SOON).await;
    sleep(RETRY + slow + SOON).await;
    let sent = sent.lock().unwrap().unwrap();
    let answered = Instant::now();
    assert!(answered > sent + slow && one.fence.is_passable());
    let margin = Duration::from_millis(5);
    sleep((DEADLINE - margin).saturating_sub(answered - sent)).await;
    assert!(one.fence.is_passable(), "the answer counts");
    sleep(margin).await;
    assert!(!one.fence.is_passable(), "but from when it was asked for");
}

/// CASE-OPS-02
#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_nothing() {
    let world = World::new();
    let one = Running::start(world.elector("one"));
    one.until_leading(SOON).await;
    for _ in 0..10 {
        world.sim.faults().unavailable(Outage::Refused);
        sleep(Duration::from_secs(7)).await;
        world.sim.faults().available();
        sleep(Duration::from_secs(5)).await;
        assert!(one.leads() && one.fence.is_passable());
    }
    assert_eq!(world.spec()["leaseTransitions"], 0);
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_renewal_is_found_out_by_the_slow_path() {
    let world = World::new();
    let one = Running::start(world.elector("one"));
    one.until_leading(SOON).await;
    for fault in [Fault::DropWithEffect, Fault::TimeoutWithEffect] {
        let target = Target::new(Verb::Update, "leases");
        world.sim.faults().fail_next(1, target, fault);
        sleep(LEASE * 2).await;
        assert!(one.leads() && one.fence.is_passable(), "{fault:?}");
    }
    assert_eq!(world.sim.faults().pending(), 0);
    assert!(world.series("leader_election_slowpath_total") > 1.5);
    assert_eq!(world.spec()["leaseTransitions"], 0);
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_the_first_write_neither_leads_nor_waits_for_ourselves() {
    for (lease_is_there, verb) in [(false, Verb::Create), (true, Verb::Update)] {
        let world = World::new();
        if lease_is_there {
            world.store(&json!({}));
        }
        let target = Target::new(verb, "leases");
        let faults = world.sim.faults();
        faults.fail_next(1, target, Fault::DropWithEffect);
        let one = Running::start(world.elector("one"));
        sleep(RETRY / 2).await;
        assert_eq!(world.holder(), "one", "the write took effect");
        let acquired = world.spec()["acquireTime"].clone();
        assert!(!one.leads() && !one.fence.is_passable());
        one.until_leading(LOOK).await;
        assert_eq!(world.spec()["acquireTime"], acquired);
        let transitions = u8::from(lease_is_there);
        assert_eq!(world.spec()["leaseTransitions"], transitions);
    }
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn a_lease_that_another_took_is_lost_at_the_next_renewal() {
    let world = World::new();
    let one = Running::start(world.elector("one"));
    one.until_leading(SOON).await;
    let mut spec = world.spec();
    spec["holderIdentity"] = json!("two");
    world.store(&spec);
    let (lost, _) = one.until_lost(RETRY + SOON).await;
    assert_eq!(
        lost,
        Lost::Taken {
            holder: "two".to_owned()
        }
    );
    assert!(!one.fence.is_passable());
    one.release().await;
    assert_eq!(world.holder(), "two", "what is another's is not given back");
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn changed_labels_and_a_changed_duration_do_not_end_the_term_and_labels_stay() {
    let world = World::new();
    let one = Running::start(world.elector("one"));
    one.until_leading(SOON).await;
    let change = json!({
        "metadata": { "labels": { "team": "a" }, "annotations": { "note": "b" } },
        "spec": { "leaseDurationSeconds": 3 },
    });
    let sim = &world.sim;
    sim.patch_merge("leases", NAMESPACE, NAME, &change).unwrap();
    sleep(LEASE).await;
    assert!(one.leads());
    let lease = sim.get("leases", NAMESPACE, NAME).unwrap();
    assert_eq!(lease["metadata"]["labels"]["team"], "a");
    assert_eq!(lease["metadata"]["annotations"]["note"], "b");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_between_two_candidates_gives_one_leader() {
    let world = World::new();
    let all: Vec<_> = (0..5)
        .map(|n| Running::start(world.elector(&format!("candidate{n}"))))
        .collect();
    sleep(LEASE).await;
    assert_eq!(all.iter().filter(|one| one.leads()).count(), 1);
    assert_eq!(all.iter().filter(|one| one.fence.is_passable()).count(), 1);
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn expiry_is_judged_by_what_we_saw_and_not_by_the_times_in_the_lease() {
    for times in ["1970-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z"] {
        let world = World::new();
        world.store(&json!({
            "holderIdentity": "old", "leaseDurationSeconds": 30,
            "acquireTime": times, "renewTime": times, "leaseTransitions": 7,
        }));
        let one = Running::start(world.elector("one"));
        sleep(Duration::from_secs(29)).await;
        assert!(!one.leads());
        one.until_leading(SOON * 2).await;
        assert_eq!(world.spec()["leaseTransitions"], 8);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_holder_is_free_and_a_broken_one_after_observation() {
    for free in [json!({}), json!({ "holderIdentity": "" }), Value::Null] {
        let world = World::new();
        world.store(&free);
        let one = Running::start(world.elector("one"));
        one.until_leading(SOON).await;
    }
    for broken in [
        json!({ "holderIdentity": "old" }),
        json!({ "holderIdentity": "old", "renewTime": "1970-01-01T00:00:00.000000Z" }),
    ] {
        let world = World::new();
        world.store(&broken);
        let one = Running::start(world.elector("one"));
        sleep(LEASE - SOON).await;
        assert!(!one.leads(), "{broken}");
        one.until_leading(SOON * 2).await;
    }
}

/// An answer that no real API server gives, changed on its way.
#[tokio::test(start_paused = true)]
async fn fields_that_cannot_be_read_are_taken_over_after_observation_too() {
    let world = World::new();
    world.store(&json!({ "holderIdentity": "old", "leaseDurationSeconds": 3600 }));
    let sim = world.sim.service();
    let garbled = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let sim = sim.clone();
        async move {
            let is_get = request.method() == Method::GET;
            let answer = tower::ServiceExt::oneshot(sim, request).await?;
            let (parts, body) = answer.into_parts();
            let body = http_body_util::BodyExt::collect(body).await?.to_bytes();
            let mut text = String::from_utf8(body.to_vec())?;
            if is_get {
                text = text.replace(
                    "\"leaseDurationSeconds\":3600",
                    "\"leaseDurationSeconds\":\"x\",\"renewTime\":\"never\",\"acquireTime\":[]",
                );
            }
            let body = http_body_util::Full::new(bytes::Bytes::from(text));
            Ok::<_, tower::BoxError>(http::Response::from_parts(parts, body))
        }
    });
    let client = kube::Client::new(garbled, NAMESPACE);
    let one = Running::start(Elector::new(world.parts("one", client)));
    sleep(LEASE - SOON).await;
    assert!(!one.leads());
    one.until_leading(SOON * 2).await;
}

/// Nothing in the Lease tells it from a lost answer but what we sent.
#[tokio::test(start_paused = true)]
async fn our_identity_in_a_lease_that_we_did_not_write_is_anothers() {
    let world = World::new();
    let twin = Running::start(world.elector("same"));
    twin.until_leading(SOON).await;
    let one = Running::start(world.elector("same"));
    sleep(LEASE * 4).await;
    assert!(twin.leads() && !one.leads() && !one.fence.is_passable());
    twin.kill();
    one.until_leading(LEASE + LOOK).await;
    // And the other way round: a twin that writes over ours ends our term.
    let mut spec = world.spec();
    spec["renewTime"] = json!("2026-06-01T00:00:00.000000Z");
    world.store(&spec);
    let (lost, _) = one.until_lost(RETRY + SOON).await;
    assert!(matches!(lost, Lost::Namesake { .. }), "{lost}");
    assert!(!one.fence.is_passable());
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_again_by_its_holder_and_not_taken_before_its_time() {
    let world = World::new();
    let one = Running::start(world.elector("one"));
    one.until_leading(SOON).await;
    let two = Running::start(world.elector("two"));
    sleep(LEASE).await;
    for _ in 0..20 {
        world.sim.delete_direct("leases", NAMESPACE, NAME).unwrap();
        sleep(Duration::from_millis(3_300)).await;
        assert!(one.leads() && !two.leads());
        assert_eq!(world.holder(), "one");
    }
    one.kill();
    sleep(RETRY).await;
    world.sim.delete_direct("leases", NAMESPACE, NAME).unwrap();
    two.until_leading(LEASE + LOOK).await;
}

/// REQ-APP-10
#[tokio::test(start_paused = true)]
async fn a_leader_is_unhealthy_when_it_has_not_renewed_for_the_lease_and_twenty_seconds() {
    let world = World::new();
    let mut elector = world.elector("one");
    let healthy = elector.health();
    let stop = CancellationToken::new();
    assert!(healthy());
    assert_eq!(elector.acquire(&stop).await, Acquired::Leading);
    // Nobody polls it: a process that hangs.
    advance(Duration::from_secs(35)).await;
    assert!(healthy());
    advance(SOON).await;
    assert!(!healthy());
    elector.release().await;
    assert!(healthy());
}

/// CASE-OPS-02
#[tokio::test(start_paused = true)]
async fn after_a_long_pause_of_the_process_nothing_is_sent_and_the_fence_is_shut() {
    let world = World::new();
    let mut elector = world.elector("one");
    let (stop, fence) = (CancellationToken::new(), elector.fence());
    assert_eq!(elector.acquire(&stop).await, Acquired::Leading);
    assert!(fence.is_passable());
    let requests = world.sim.requests().sum(|_| true);
    assert!(requests > 0);
    advance(DEADLINE).await;
    assert!(!fence.is_passable(), "at once, without anybody's help");
    let lost = elector.hold(&stop).await;
    assert!(matches!(lost, Lost::Deadline { .. }), "{lost}");
    assert_eq!(world.sim.requests().sum(|_| true), requests);
}

/// The answer was under way while the process stood still: it proves nothing any more.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_does_not_make_a_leader() {
    let world = World::new();
    let slow = Arc::new(AtomicU64::new(0));
    let sent = Arc::clone(&slow);
    let mut elector = world.elector_over("one", move |parts| {
        if parts.method == Method::POST {
            sent.store(1, Ordering::SeqCst);
        }
        Fate::default()
    });
    let fence = elector.fence();
    let stop = CancellationToken::new();
    {
        let acquire = elector.acquire(&stop);
        let mut acquire = std::pin::pin!(acquire);
        while slow.load(Ordering::SeqCst) == 0 {
            assert!(futures::poll!(acquire.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.holder(), "one", "the answer waits to be read");
        advance(LEASE * 2).await;
        assert!(futures::poll!(acquire.as_mut()).is_pending());
        assert!(!fence.is_passable());
        assert_eq!(acquire.await, Acquired::Leading);
    }
    assert!(fence.is_passable(), "after a second look");
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_waiting_at_once_and_what_was_written_meanwhile_is_given_back() {
    let world = World::new();
    // The write arrives, its answer takes long.
    let mut elector = world.elector_over("one", |parts| Fate {
        back: match parts.method {
            Method::POST => SOON * 3,
            _ => Duration::ZERO,
        },
        ..Fate::default()
    });
    let stop = CancellationToken::new();
    let end = stop.clone();
    tokio::spawn(async move {
        sleep(SOON).await;
        end.cancel();
    });
    let start = Instant::now();
    assert_eq!(elector.acquire(&stop).await, Acquired::Stopped);
    assert_eq!(start.elapsed(), SOON);
    assert_eq!(world.holder(), "one");
    elector.release().await;
    assert_eq!(world.holder(), "");
    assert!(world.messages().is_empty(), "it never led");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_given_back_also_when_a_renewal_gets_in_between() {
    let world = World::new();
    let one = Running::start(world.elector("one"));
    one.until_leading(SOON).await;
    let change = json!({ "metadata": { "labels": { "moved": "on" } } });
    let sim = &world.sim;
    sim.patch_merge("leases", NAMESPACE, NAME, &change).unwrap();
    one.release().await;
    assert_eq!(world.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn giving_back_takes_a_bounded_time() {
    let world = World::new();
    let (one, hangs) = leader_that_may_hang(&world).await;
    hangs.store(true, Ordering::SeqCst);
    let (start, fence) = (Instant::now(), one.fence.clone());
    one.release().await;
    assert_eq!(start.elapsed(), DEADLINE / 2);
    assert!(!fence.is_passable());
}

#[tokio::test(start_paused = true)]
async fn a_candidate_without_rights_keeps_trying_and_leads_once_it_has_them() {
    let world = World::new();
    let target = Target::new(Verb::Create, "leases");
    world.sim.faults().fail_next(5, target, Fault::Forbidden);
    let one = Running::start(world.elector("one"));
    sleep(RETRY).await;
    assert!(!one.leads());
    one.until_leading(LOOK * 6).await;
    assert_eq!(world.sim.faults().pending(), 0);
}

#[test]
fn identities_name_the_host_and_differ() {
    let random = Random::seeded(1);
    let (one, two) = (identity("host", &random), identity("host", &random));
    assert_ne!(one, two);
    let (host, uuid) = one.split_once('_').unwrap();
    assert_eq!(host, "host");
    assert_eq!(uuid::Uuid::parse_str(uuid).unwrap().get_version_num(), 4);
}
