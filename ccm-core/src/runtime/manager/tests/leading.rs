//! Replicas with leader election, over an API server that knows Leases.

use ccm_kubesim::{KubeSim, Options};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::*;
use crate::runtime::{Probe, ProbeQuery};

fn cluster() -> KubeSim {
    let sim = KubeSim::new(Options::default());
    sim.apply_direct(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-system" },
    }))
    .unwrap();
    join(&sim, "n1");
    sim.apply_direct(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n0" },
        "spec": { "providerID": "fake:///n0" },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    }))
    .unwrap();
    sim
}

fn join(sim: &KubeSim, name: &str) {
    let mut node = new_node();
    node["apiVersion"] = json!("v1");
    node["kind"] = json!("Node");
    node["metadata"] = json!({ "name": name });
    sim.apply_direct(node).unwrap();
}

/// Lists that were asked for so far.
fn lists(sim: &KubeSim) -> u64 {
    let counts = sim.since(&ccm_kubesim::Mark::default()).counts;
    let lists = counts
        .into_iter()
        .filter(|(key, _)| key.verb.as_str() == "list");
    lists.map(|(_, count)| count).sum()
}

fn replica(sim: &KubeSim, cloud: &Fake, flags: &[&str]) -> Running {
    start_with(kube::Client::new(sim.service(), "default"), cloud, flags)
}

fn holder(sim: &KubeSim, lease: &str) -> String {
    let leases = sim.list("leases.coordination.k8s.io");
    let lease = leases.iter().find(|l| l["metadata"]["name"] == lease);
    lease
        .and_then(|lease| lease["spec"]["holderIdentity"].as_str())
        .unwrap_or_default()
        .to_owned()
}

impl Running {
    async fn leading_within(&self, limit: Duration) {
        ccm_testkit::eventually("leading", limit, || async {
            let none = self.controllers().is_empty();
            (!none)
                .then_some(())
                .ok_or_else(|| "no controller runs".to_owned())
        })
        .await;
    }

    fn healthz(&self) -> String {
        let query = ProbeQuery::parse("verbose");
        self.health.report(Probe::Health, &query).text
    }

    fn crash(self) {
        self.task.abort();
    }
}

impl Fake {
    fn may_write(&self) -> bool {
        self.fence.lock().unwrap().as_ref().unwrap().is_passable()
    }
}

/// REQ-APP-16, REQ-APP-09
#[tokio::test(start_paused = true)]
async fn a_standby_is_ready_and_warm_and_does_nothing_until_it_leads() {
    let (sim, first, second) = (cluster(), Fake::complete(), Fake::complete());
    let leader = replica(&sim, &first, &[]);
    leader.leading_within(Duration::from_secs(10)).await;
    assert_eq!(first.initialized.load(Ordering::SeqCst), 1);
    assert!(first.may_write());
    let standby = replica(&sim, &second, &[]);
    standby.ready_within(Duration::from_secs(10)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    join(&sim, "n2");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(second.initialized.load(Ordering::SeqCst), 0);
    assert_eq!(second.asked.load(Ordering::SeqCst), 0);
    assert!(!second.may_write());
    assert!(standby.controllers().is_empty());
    assert_eq!(
        standby.healthz(),
        "[+]leaderElection ok\nhealthz check passed\n"
    );
    assert_eq!(
        leader.healthz().lines().collect::<Vec<_>>(),
        [
            "[+]leaderElection ok",
            "[+]cloud-node-controller ok",
            "[+]cloud-node-lifecycle-controller ok",
            "[+]service-lb-controller ok",
            "healthz check passed"
        ]
    );

    // The leader dies; the other one takes over within a lease and finds its caches full.
    let before = lists(&sim);
    leader.crash();
    let start = Instant::now();
    standby.leading_within(Duration::from_secs(30)).await;
    assert!(
        start.elapsed() <= Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(second.initialized.load(Ordering::SeqCst), 1);
    assert_eq!(
        second.asked.load(Ordering::SeqCst),
        2,
        "the two Nodes that wait, and not the one that is initialised"
    );
    assert_eq!(lists(&sim), before + 1, "only the Services are listed anew");
    standby.stop().await.unwrap();
}

/// REQ-APP-12
#[tokio::test(start_paused = true)]
async fn a_lost_lease_ends_the_process() {
    let (sim, cloud) = (cluster(), Fake::complete());
    let leader = replica(&sim, &cloud, &[]);
    leader.leading_within(Duration::from_secs(10)).await;
    let health = leader.health.clone();
    // Somebody writes another name into the Lease.
    let mut leases = sim.list("leases.coordination.k8s.io");
    let mut lease = leases.remove(0);
    lease["spec"]["holderIdentity"] = json!("somebody-else");
    sim.apply_direct(lease).unwrap();
    let start = Instant::now();
    let error = leader.error().await;
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(matches!(error, ManagerError::LeadershipLost(_)) && !error.is_fatal());
    assert!(
        error
            .to_string()
            .starts_with("lost the leader election lease kube-system/cloud-controller-manager"),
        "{error}"
    );
    assert!(!cloud.may_write());
    assert!(!health.is_ready());
    assert_eq!(holder(&sim, "cloud-controller-manager"), "somebody-else");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_given_back_at_the_end_so_that_the_next_one_need_not_wait() {
    let (sim, first, second) = (cluster(), Fake::complete(), Fake::complete());
    let leader = replica(&sim, &first, &[]);
    leader.leading_within(Duration::from_secs(10)).await;
    let standby = replica(&sim, &second, &[]);
    standby.ready_within(Duration::from_secs(10)).await;
    leader.stop().await.unwrap();
    assert_eq!(holder(&sim, "cloud-controller-manager"), "");
    assert!(!first.may_write());
    let start = Instant::now();
    standby.leading_within(Duration::from_secs(30)).await;
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    standby.stop().await.unwrap();
}

/// REQ-APP-21, REQ-APP-29
#[tokio::test(start_paused = true)]
async fn with_leader_migration_each_controller_waits_for_its_own_lock() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let config = json!({
        "kind": "LeaderMigrationConfiguration",
        "apiVersion": "controllermanager.config.k8s.io/v1",
        "leaderName": "cloud-provider-extraction-migration",
        "controllerLeaders": [
            { "name": "cloud-node-lifecycle-controller", "component": "*" },
            { "name": "service-lb-controller", "component": "kube-controller-manager" },
        ],
    });
    std::fs::write(file.path(), config.to_string()).unwrap();
    let flag = format!("--leader-migration-config={}", file.path().display());
    let flags = ["--enable-leader-migration", flag.as_str()];
    let sim = cluster();
    // A kube-controller-manager that has not been migrated yet holds the second lock.
    let lock = "cloud-provider-extraction-migration";
    sim.apply_direct(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": lock, "namespace": "kube-system" },
        "spec": {
            "holderIdentity": "kube-controller-manager", "leaseDurationSeconds": 60,
            "renewTime": "2026-01-01T00:00:00.000000Z", "acquireTime": "2026-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        },
    }))
    .unwrap();
    let cloud = Fake::complete();
    let running = replica(&sim, &cloud, &flags);
    running.leading_within(Duration::from_secs(10)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(running.controllers(), ["cloud-node"]);
    assert!(cloud.may_write());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        running.controllers(),
        ["cloud-node", "cloud-node-lifecycle"]
    );
    assert!(holder(&sim, lock).starts_with("unknown_"));
    assert!(running.healthz().starts_with("[+]leaderElection ok\n"));

    // The second lock is lost: the whole process ends, and before that nothing is changed.
    let leases = sim.list("leases.coordination.k8s.io");
    let mut lease = leases
        .into_iter()
        .find(|lease| lease["metadata"]["name"] == lock)
        .unwrap();
    lease["spec"]["holderIdentity"] = json!("somebody-else");
    sim.apply_direct(lease).unwrap();
    let error = running.error().await;
    assert!(error.to_string().contains(lock), "{error}");
    assert!(!cloud.may_write());
}

#[tokio::test(start_paused = true)]
async fn controllers_start_one_after_the_other_when_a_pause_is_asked_for() {
    let (sim, cloud) = (cluster(), Fake::complete());
    let running = replica(&sim, &cloud, &["--controller-start-interval=10s"]);
    running.leading_within(Duration::from_secs(10)).await;
    assert_eq!(running.controllers(), ["cloud-node"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        running.controllers(),
        ["cloud-node", "cloud-node-lifecycle", "service"]
    );
    running.stop().await.unwrap();
}

/// REQ-IPAM-02: the leader before may have given a range away that our watch has not told of.
#[tokio::test(start_paused = true)]
async fn before_ranges_are_allocated_the_nodes_are_listed_anew() {
    let (sim, cloud) = (cluster(), Fake::complete());
    let flags = ["--allocate-node-cidrs", "--cluster-cidr=10.64.0.0/22"];
    let first = replica(&sim, &cloud, &flags);
    first.leading_within(Duration::from_secs(10)).await;
    let second = replica(&sim, &cloud, &flags);
    second.ready_within(Duration::from_secs(10)).await;
    let before = lists(&sim);
    first.stop().await.unwrap();
    second.leading_within(Duration::from_secs(30)).await;
    assert_eq!(lists(&sim), before + 2, "Nodes and Services");
    assert!(second.controllers().contains(&"nodeipam".to_owned()));
    second.stop().await.unwrap();
}

/// Work that was cut off may still take effect: the rest of the lease keeps the next one from it.
#[tokio::test(start_paused = true)]
async fn a_lease_is_not_given_back_when_work_was_cut_off() {
    let (sim, second) = (cluster(), Fake::complete());
    let first = Fake {
        hangs: true,
        ..Fake::complete()
    };
    let leader = replica(&sim, &first, &[]);
    leader.leading_within(Duration::from_secs(10)).await;
    let standby = replica(&sim, &second, &[]);
    standby.ready_within(Duration::from_secs(10)).await;
    sim.apply_direct(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": "kube-system", "name": "web" },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
    }))
    .unwrap();
    ccm_testkit::eventually(
        "a load balancer is made",
        Duration::from_secs(10),
        || async {
            let begun = first.ensured.load(Ordering::SeqCst);
            (begun > 0).then_some(()).ok_or_else(String::new)
        },
    )
    .await;

    let start = Instant::now();
    leader.stop().await.unwrap();
    let grace = start.elapsed();
    assert!(grace >= Duration::from_secs(10), "{grace:?}");
    assert!(grace < Duration::from_secs(15), "{grace:?}");
    assert_ne!(holder(&sim, "cloud-controller-manager"), "");
    assert!(!first.may_write());
    assert_eq!(second.ensured.load(Ordering::SeqCst), 0);
    let start = Instant::now();
    standby.leading_within(Duration::from_secs(30)).await;
    let waited = start.elapsed();
    // It was renewed until the end of the grace period.
    assert!(waited >= Duration::from_secs(12), "{waited:?}");
    assert!(waited <= Duration::from_secs(20), "{waited:?}");
    standby.stop().await.unwrap();
}

/// A client whose watches tell nothing: its lists are answered.
fn behind(sim: &KubeSim) -> kube::Client {
    let sim = sim.service();
    let service = tower::service_fn(move |request: Request<Body>| {
        let sim = sim.clone();
        async move {
            let query = request.uri().query().unwrap_or_default();
            if query.contains("watch=true") {
                let silence = stream::pending();
                return Ok(Response::new(AnyBody::new(StreamBody::new(silence))));
            }
            let (head, body) = sim.oneshot(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            let body = AnyBody::new(http_body_util::Full::new(body));
            Ok::<_, tower::BoxError>(Response::from_parts(head, body))
        }
    });
    kube::Client::new(service, "default")
}

fn pod_ranges(sim: &KubeSim) -> Vec<String> {
    let ranges = |node: &Value| node["spec"]["podCIDR"].as_str().map(str::to_owned);
    sim.list("nodes").iter().filter_map(ranges).collect()
}

/// REQ-IPAM-02, CASE-IPAM-02: a standby whose watch is behind gives away nothing that its
/// predecessor gave away.
#[tokio::test(start_paused = true)]
async fn a_range_that_the_leader_before_gave_away_is_not_given_again() {
    let flags = [
        "--allocate-node-cidrs",
        "--cluster-cidr=10.64.0.0/21",
        "--controllers=node-ipam-controller",
    ];
    for gives_back in [true, false] {
        let (sim, cloud) = (cluster(), Fake::complete());
        let leader = replica(&sim, &cloud, &flags);
        leader.leading_within(Duration::from_secs(10)).await;
        let given = async |count: usize| {
            let limit = Duration::from_secs(60);
            ccm_testkit::eventually("ranges are given", limit, || async {
                let ranges = pod_ranges(&sim);
                (ranges.len() == count)
                    .then_some(())
                    .ok_or_else(|| format!("{ranges:?}"))
            })
            .await;
        };
        given(2).await;
        let standby = start_with(behind(&sim), &cloud, &flags);
        standby.ready_within(Duration::from_secs(10)).await;
        // All that follows happens behind the standby's back.
        for name in ["n2", "n3", "n4"] {
            join(&sim, name);
        }
        given(5).await;
        if gives_back {
            leader.stop().await.unwrap();
        } else {
            leader.crash();
        }
        join(&sim, "n5");
        join(&sim, "n6");
        standby.leading_within(Duration::from_secs(30)).await;
        given(7).await;
        let ranges = pod_ranges(&sim);
        let different: std::collections::BTreeSet<_> = ranges.iter().collect();
        assert_eq!(different.len(), 7, "{ranges:?}");
        standby.stop().await.unwrap();
    }
}
