//! One and two locks of a process, against a simulated API server, on virtual time.

use std::time::Duration;

use ccm_kubesim::Outage;
use serde_json::json;
use tokio::time::advance;
use tokio_util::sync::CancellationToken;

use super::{
    Acquired, Fences, Leadership,
    fixtures_tests::{NAME, NAMESPACE, Running, World},
};
use crate::{config::LockOf, runtime::Fence};

const SOON: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(15);
/// The default name of the second Lease.
const SECOND: &str = "cloud-provider-extraction-migration";

/// The two electors of a process under leader migration.
fn migrating(world: &mut World, identity: &str) -> (Leadership, Fences) {
    let main = world.elector(identity);
    world.settings.name = SECOND.to_owned();
    let second = world.elector(identity);
    world.settings.name = NAME.to_owned();
    let fences = Fences {
        main: main.fence(),
        migration: Some(second.fence()),
    };
    (Leadership::start(main, Some(second)), fences)
}

async fn acquired(leadership: &Leadership, lock: LockOf, limit: Duration) -> bool {
    tokio::time::timeout(limit, leadership.acquired(lock))
        .await
        .is_ok()
}

#[tokio::test(start_paused = true)]
async fn the_migration_lock_is_taken_after_the_main_lock_and_its_controllers_need_both() {
    let mut world = World::new();
    world
        .sim
        .apply_direct(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": SECOND, "namespace": NAMESPACE },
            "spec": { "holderIdentity": "kube-controller-manager", "leaseDurationSeconds": 60 },
        }))
        .unwrap();
    let (leadership, fences) = migrating(&mut world, "one");
    assert!(acquired(&leadership, LockOf::Main, SOON).await);
    assert!(!acquired(&leadership, LockOf::Migration, SOON * 50).await);
    let (main, both) = (fences.of(LockOf::Main), fences.of(LockOf::Migration));
    assert!(main.is_passable() && !both.is_passable());
    assert!(acquired(&leadership, LockOf::Migration, SOON * 15).await);
    assert!(main.is_passable() && both.is_passable());
    assert!(!acquired(&leadership, LockOf::Elsewhere, SOON * 60).await);
    assert!(!fences.of(LockOf::Elsewhere).is_passable());
    leadership.release().await;
    assert!(!main.is_passable() && !both.is_passable());
    assert_eq!(world.holder(), "");
    let lease = world.sim.get("leases", NAMESPACE, SECOND).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn losing_either_lock_is_a_loss_that_names_it() {
    for name in [NAME, SECOND] {
        let mut world = World::new();
        let (leadership, fences) = migrating(&mut world, "one");
        assert!(acquired(&leadership, LockOf::Migration, SOON).await);
        let both = fences.of(LockOf::Migration);
        let early = tokio::time::timeout(LEASE, leadership.lost()).await;
        assert!(early.is_err(), "{early:?}");
        let theft = json!({ "spec": { "holderIdentity": "thief" } });
        let sim = &world.sim;
        sim.patch_merge("leases", NAMESPACE, name, &theft).unwrap();
        let lost = leadership.lost().await.to_string();
        assert!(lost.contains(name) && lost.contains("thief"), "{lost}");
        assert!(!both.is_passable());
        leadership.release().await;
        let lease = world.sim.get("leases", NAMESPACE, name).unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], "thief");
    }
}

/// REQ-APP-29
#[tokio::test(start_paused = true)]
async fn health_watches_both_locks() {
    for hung in [SECOND, NAME] {
        let mut world = World::new();
        let mut main = world.elector("one");
        world.settings.name = SECOND.to_owned();
        let mut second = world.elector("one");
        let stop = CancellationToken::new();
        // One of them hangs: it is acquired here and never renewed.
        let is_main = hung == NAME;
        let stuck = if is_main { &mut main } else { &mut second };
        assert_eq!(stuck.acquire(&stop).await, Acquired::Leading);
        let (fine, stuck) = (main.health(), second.health());
        advance(Duration::from_secs(36)).await;
        assert_eq!((fine(), stuck()), (!is_main, is_main));
        let leadership = Leadership::start(main, Some(second));
        assert!(!leadership.health()(), "{hung}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_election_everything_is_open_and_nothing_is_lost() {
    let leadership = Leadership::without_election();
    leadership.acquired(LockOf::Main).await;
    leadership.acquired(LockOf::Migration).await;
    let fences = Fences::new(false, true);
    assert!(fences.of(LockOf::Migration).is_passable());
    assert!(leadership.health()());
    let lost = tokio::time::timeout(LEASE, leadership.lost()).await;
    assert!(lost.is_err());
    leadership.release().await;
}

/// REQ-APP-13
#[tokio::test(start_paused = true)]
async fn without_migration_one_lock_serves_all_controllers() {
    let world = World::new();
    let main = world.elector("one");
    let fences = Fences {
        main: main.fence(),
        migration: None,
    };
    let leadership = Leadership::start(main, None);
    leadership.acquired(LockOf::Migration).await;
    let fences: Vec<Fence> = [LockOf::Main, LockOf::Migration]
        .map(|lock| fences.of(lock))
        .into();
    assert!(fences.iter().all(Fence::is_passable));
    world.sim.faults().unavailable(Outage::Refused);
    let lost = leadership.lost().await.reason;
    assert!(lost.contains("not renewed"), "{lost}");
    assert!(!fences.iter().any(Fence::is_passable));
}

/// Work that was cut off may still take effect.
///
/// REQ-APP-12
#[tokio::test(start_paused = true)]
async fn a_lease_that_runs_out_is_shut_at_once_and_keeps_others_away_for_its_time() {
    let mut world = World::new();
    let (leadership, fences) = migrating(&mut world, "one");
    assert!(acquired(&leadership, LockOf::Migration, SOON).await);
    let (main, both) = (fences.of(LockOf::Main), fences.of(LockOf::Migration));
    let two = Leadership::start(world.elector("two"), None);
    assert!(!acquired(&two, LockOf::Main, LEASE * 2).await);
    leadership.let_run_out().await;
    assert!(!main.is_passable() && !both.is_passable());
    let second = world.sim.get("leases", NAMESPACE, SECOND).unwrap();
    assert_eq!(second["spec"]["holderIdentity"], "one");
    assert_eq!(world.holder(), "one");
    // The last renewal was two seconds ago at most.
    assert!(!acquired(&two, LockOf::Main, SOON * 12).await);
    assert!(acquired(&two, LockOf::Main, SOON * 8).await);
    assert_eq!(world.holder(), "two");
}

/// A holder that was never seen to renew may have been dead for days.
#[tokio::test(start_paused = true)]
async fn only_a_holder_that_was_seen_to_renew_was_at_work_until_now() {
    let left_behind = json!({ "holderIdentity": "old", "leaseDurationSeconds": 15 });
    for found in [None, Some(&left_behind)] {
        let world = World::new();
        found.into_iter().for_each(|lease| world.store(lease));
        let one = Leadership::start(world.elector("one"), None);
        assert!(acquired(&one, LockOf::Main, LEASE * 2).await);
        assert!(!one.took_over(), "{found:?}");
    }
    for (watched, gives_back) in [(true, true), (true, false), (false, true), (false, false)] {
        let world = World::new();
        let one = Running::start(world.elector("one"));
        one.until_leading(SOON).await;
        tokio::time::sleep(LEASE).await;
        let two = if watched {
            let two = Leadership::start(world.elector("two"), None);
            assert!(!acquired(&two, LockOf::Main, LEASE).await);
            Some(two)
        } else {
            None
        };
        if gives_back {
            one.release().await;
        } else {
            one.kill();
        }
        let two = two.unwrap_or_else(|| Leadership::start(world.elector("two"), None));
        assert!(acquired(&two, LockOf::Main, LEASE * 2).await);
        assert_eq!(two.took_over(), watched, "given back: {gives_back}");
    }
}
