//! Our leader election and the Go library's on one Lease of a real API server.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use ccm_core::{
    config::LeaderElectionSettings,
    kube::{EventRecorder, RecordedEvents},
    runtime::{
        Acquired, Clock, Elector, ElectorParts, Fence, LeaderMetrics, Lost, Random, identity,
    },
};
use ccm_envtest::{ApiServer, Process, go_leader};
use ccm_testkit::{always, eventually};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "kube-system";
const LEASE: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(400);
/// The longest time between two looks of a candidate, ours or the Go library's.
const LOOK: Duration = Duration::from_millis(880);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(1);
/// For what only has to come at all.
const SOON: Duration = Duration::from_secs(30);

/// The API server that all tests of this program share.
struct Server {
    kubeconfig: PathBuf,
    text: String,
}

fn server() -> Result<&'static Server> {
    static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
    SERVER
        .get_or_init(|| start().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|reason| anyhow!("the API server did not start: {reason}"))
}

/// The kernel ends the server with the thread that started it: that one lives as long as this
/// program.
fn start() -> Result<Server> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let run = |runtime: tokio::runtime::Runtime| {
            runtime.block_on(async {
                let server = ApiServer::start().await?;
                let started = Server {
                    kubeconfig: server.write_kubeconfig("admin")?,
                    text: server.kubeconfig("admin"),
                };
                // The test that asked is waiting.
                let _ = sender.send(Ok(started));
                std::future::pending::<Result<()>>().await
            })
        };
        if let Err(error) = runtime.map_err(Into::into).and_then(run) {
            let _ = sender.send(Err(error));
        }
    });
    receiver.recv().context("the starting thread ended")?
}

/// One Lease and those who want it.
struct Bench {
    server: &'static Server,
    client: Client,
    name: &'static str,
}

impl Bench {
    async fn new(name: &'static str) -> Result<Self> {
        let server = server()?;
        ccm_testkit::install_tls();
        let kubeconfig = Kubeconfig::from_yaml(&server.text)?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        Ok(Self {
            server,
            client: Client::try_from(config)?,
            name,
        })
    }

    fn elector(&self) -> Result<Elector> {
        let random = Random::from_system();
        Ok(Elector::new(ElectorParts {
            client: self.client.clone(),
            settings: LeaderElectionSettings {
                namespace: NAMESPACE.to_owned(),
                name: self.name.to_owned(),
                lease_duration: LEASE,
                renew_deadline: DEADLINE,
                retry_period: RETRY,
            },
            identity: identity("rust", &random),
            clock: Clock::system(),
            random,
            fence: Fence::waiting(),
            metrics: LeaderMetrics::new(&prometheus::Registry::new())?,
            events: EventRecorder::new("test", Arc::new(RecordedEvents::default())),
        }))
    }

    /// A candidate of the Go library, in a process of its own.
    fn go(&self, more: &[&str]) -> Result<Process> {
        let mut args = vec![
            format!("--kubeconfig={}", self.server.kubeconfig.display()),
            format!("--namespace={NAMESPACE}"),
            format!("--name={}", self.name),
            "--identity=go".to_owned(),
            format!("--lease-duration={}ms", LEASE.as_millis()),
            format!("--renew-deadline={}ms", DEADLINE.as_millis()),
            format!("--retry-period={}ms", RETRY.as_millis()),
        ];
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        Process::start("client-go", &go_leader()?, &args, &[], true)
    }

    async fn spec(&self) -> Result<LeaseSpec> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let lease = api.get(self.name).await?;
        lease.spec.context("no spec")
    }

    async fn holder(&self) -> Result<String> {
        Ok(self.spec().await?.holder_identity.unwrap_or_default())
    }
}

fn says(go: &Process, line: &str) -> bool {
    go.output().lines().any(|said| said == line)
}

/// Until the Go candidate has said this. How long it took.
async fn said(go: &Process, line: &str, limit: Duration) -> Duration {
    let start = Instant::now();
    eventually(&format!("client-go says {line:?}"), limit, || async {
        says(go, line).then_some(()).ok_or_else(|| go.output())
    })
    .await;
    start.elapsed()
}

/// Our elector at work.
struct Ours {
    fence: Fence,
    leading: Arc<AtomicBool>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Elector>,
}

impl Ours {
    fn start(mut elector: Elector) -> Self {
        let (fence, stop) = (elector.fence(), CancellationToken::new());
        let leading = Arc::new(AtomicBool::new(false));
        let (token, flag) = (stop.clone(), Arc::clone(&leading));
        let task = tokio::spawn(async move {
            if elector.acquire(&token).await == Acquired::Leading {
                flag.store(true, Ordering::SeqCst);
                elector.hold(&token).await;
                flag.store(false, Ordering::SeqCst);
            }
            elector
        });
        Self {
            fence,
            leading,
            stop,
            task,
        }
    }

    fn leads(&self) -> bool {
        self.leading.load(Ordering::SeqCst)
    }

    async fn until_leading(&self, limit: Duration) -> Duration {
        let start = Instant::now();
        eventually("ours leads", limit, || async {
            self.leads().then_some(()).ok_or_else(String::new)
        })
        .await;
        start.elapsed()
    }

    async fn release(self) -> Result<()> {
        self.stop.cancel();
        self.task.await?.release().await;
        Ok(())
    }
}

/// REQ-APP-13
#[tokio::test]
async fn while_go_holds_the_lease_ours_waits_and_takes_over_one_lease_after_its_death() -> Result<()>
{
    let bench = Bench::new("go-dies").await?;
    let mut go = bench.go(&[])?;
    said(&go, "leading", SOON).await;
    let ours = Ours::start(bench.elector()?);
    always("ours waits", LEASE * 3, || async {
        let waits = !ours.leads() && !ours.fence.is_passable();
        waits.then_some(()).ok_or_else(|| go.output())
    })
    .await;
    let before = bench.spec().await?;
    go.kill().await?;
    let took = ours.until_leading(SOON).await;
    assert!(took >= LEASE - RETRY - SLACK / 2, "{took:?}");
    assert!(took <= LEASE + LOOK + SLACK, "{took:?}");
    let after = bench.spec().await?;
    assert_eq!(
        after.lease_transitions,
        before.lease_transitions.map(|n| n + 1)
    );
    assert_eq!(after.lease_duration_seconds, before.lease_duration_seconds);
    assert!(after.acquire_time > before.acquire_time);
    ours.release().await
}

/// REQ-APP-13
#[tokio::test]
async fn while_ours_holds_the_lease_go_waits_and_leads_soon_after_its_release() -> Result<()> {
    let bench = Bench::new("ours-releases").await?;
    let ours = Ours::start(bench.elector()?);
    ours.until_leading(SOON).await;
    let go = bench.go(&[])?;
    let holder = bench.holder().await?;
    assert!(holder.starts_with("rust_"), "{holder}");
    said(&go, &format!("new leader {holder}"), SOON).await;
    always("client-go waits", LEASE * 3, || async {
        let waits = ours.leads() && ours.fence.is_passable() && !says(&go, "leading");
        waits.then_some(()).ok_or_else(|| go.output())
    })
    .await;
    let fence = ours.fence.clone();
    ours.release().await?;
    assert!(!fence.is_passable());
    let took = said(&go, "leading", SOON).await;
    assert!(took <= LOOK + SLACK, "{took:?}");
    assert_eq!(bench.spec().await?.lease_transitions, Some(1));
    Ok(())
}

/// REQ-APP-13
#[tokio::test]
async fn a_lease_that_go_releases_is_ours_with_the_next_look() -> Result<()> {
    let bench = Bench::new("go-releases").await?;
    let mut go = bench.go(&["--release-on-cancel"])?;
    said(&go, "leading", SOON).await;
    let ours = Ours::start(bench.elector()?);
    sleep(LEASE).await;
    assert!(!ours.leads());
    go.signal("TERM").await?;
    go.wait(SOON).await?;
    assert!(says(&go, "lost"));
    let took = ours.until_leading(SOON).await;
    assert!(took <= LOOK + SLACK, "{took:?}");
    assert!(ours.fence.is_passable());
    ours.release().await?;
    assert_eq!(bench.holder().await?, "");
    Ok(())
}

/// REQ-APP-13, CASE-OPS-02
#[tokio::test]
async fn when_ours_stalls_its_fence_is_shut_before_go_takes_over() -> Result<()> {
    let bench = Bench::new("ours-stalls").await?;
    let mut elector = bench.elector()?;
    let (fence, stop) = (elector.fence(), CancellationToken::new());
    assert_eq!(elector.acquire(&stop).await, Acquired::Leading);
    let go = bench.go(&[])?;
    {
        let mut hold = std::pin::pin!(elector.hold(&stop));
        if let Ok(lost) = timeout(LEASE * 2, hold.as_mut()).await {
            panic!("{lost}");
        }
        assert!(fence.is_passable() && !says(&go, "leading"));
        // Nobody polls it from here on: the process stands still.
        let start = Instant::now();
        while !says(&go, "leading") {
            assert!(start.elapsed() < SOON, "{}", go.output());
            sleep(Duration::from_millis(5)).await;
            assert!(!(fence.is_passable() && says(&go, "leading")));
        }
        let took = start.elapsed();
        assert!(took >= DEADLINE, "{took:?}");
        assert!(!fence.is_passable());
        let lost = hold.await;
        assert!(matches!(lost, Lost::Deadline { .. }), "{lost}");
    }
    elector.release().await;
    assert_eq!(bench.holder().await?, "go");
    Ok(())
}

/// REQ-APP-13
#[tokio::test]
async fn a_lease_that_go_took_meanwhile_is_lost() -> Result<()> {
    let bench = Bench::new("go-takes").await?;
    let ours = Ours::start(bench.elector()?);
    ours.until_leading(SOON).await;
    // As a person who wants another leader now.
    let api: Api<Lease> = Api::namespaced(bench.client.clone(), NAMESPACE);
    let patch = serde_json::json!({ "spec": { "holderIdentity": "" } });
    let patch = kube::api::Patch::Merge(&patch);
    api.patch(bench.name, &Default::default(), &patch).await?;
    let go = bench.go(&[])?;
    eventually("ours is lost", RETRY + LOOK + SLACK, || async {
        let lost = !ours.leads() && !ours.fence.is_passable();
        lost.then_some(()).ok_or_else(|| go.output())
    })
    .await;
    said(&go, "leading", SOON).await;
    ours.release().await?;
    assert_eq!(bench.holder().await?, "go");
    Ok(())
}
