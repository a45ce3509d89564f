//! Many candidates, a bad network, clocks that disagree and processes that stand still: at no
//! moment two fences are open.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use ccm_kubesim::{KubeSim, Options};
use jiff::SignedDuration;
use proptest::prelude::*;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Acquired, Elector, ElectorParts, LeaderMetrics, Lost,
    fixtures_tests::{Fate, Fates, World, client},
};
use crate::{
    config::LeaderElectionSettings,
    runtime::{Clock, Fence, Random},
};

const REPLICAS: usize = 3;
const STEP: Duration = Duration::from_millis(20);

/// How bad it is, out of 100.
#[derive(Clone, Copy, Debug)]
struct Weather {
    lost: u64,
    answer_lost: u64,
    /// Milliseconds, each way; sometimes twenty times that.
    latency: u64,
    /// Every so many milliseconds on average a replica stands still…
    pause_every: u64,
    /// …for up to this long.
    pause: u64,
}

/// A future that nobody polls until then: its process is stopped.
struct Stoppable<F> {
    inner: Pin<Box<F>>,
    until: Arc<Mutex<Instant>>,
    timer: Pin<Box<Sleep>>,
}

impl<F: Future> Future for Stoppable<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let until = *this.until.lock().unwrap();
        if Instant::now() < until {
            this.timer.as_mut().reset(until);
            if this.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        this.inner.as_mut().poll(context)
    }
}

/// What one replica is seen to do.
#[derive(Default)]
struct Replica {
    fence: Mutex<Option<Fence>>,
    terms: Mutex<u64>,
    lost: Mutex<u64>,
}

impl Replica {
    fn is_open(&self) -> bool {
        let fence = self.fence.lock().unwrap();
        fence.as_ref().is_some_and(Fence::is_passable)
    }
}

struct Simulation {
    world: World,
    random: Random,
    weather: Mutex<Weather>,
}

impl Simulation {
    fn new(seed: u64, weather: Weather) -> Arc<Self> {
        let mut world = World::new();
        world.sim = KubeSim::new(Options {
            seed,
            ..Options::default()
        });
        // As tight as the flags allow: the lease outlasts the deadline by one second.
        world.settings = LeaderElectionSettings {
            lease_duration: Duration::from_secs(4),
            renew_deadline: Duration::from_secs(3),
            retry_period: Duration::from_millis(200),
            ..LeaderElectionSettings::default()
        };
        Arc::new(Self {
            world,
            random: Random::seeded(seed),
            weather: Mutex::new(weather),
        })
    }

    fn number(&self, below: u64) -> u64 {
        self.random.number() % below.max(1)
    }

    fn fate(&self) -> Fate {
        let weather = *self.weather.lock().unwrap();
        let latency = || {
            let slow = if self.number(10) == 0 { 20 } else { 1 };
            Duration::from_millis(self.number(weather.latency * slow))
        };
        Fate {
            there: latency(),
            back: latency(),
            lost: self.number(100) < weather.lost,
            answer_lost: self.number(100) < weather.answer_lost,
            broken: self.number(2) == 0,
        }
    }

    fn elector(self: &Arc<Self>, identity: &str) -> Elector {
        let simulation = Arc::clone(self);
        let fates: Fates = Arc::new(move |_| simulation.fate());
        let parts = self.world.parts(identity, client(&self.world.sim, &fates));
        let metrics = LeaderMetrics::new(&prometheus::Registry::new()).unwrap();
        let skew = SignedDuration::from_secs(i64::try_from(self.number(7_200)).unwrap() - 3_600);
        let start = self.world.sim.now().checked_add(skew).unwrap();
        Elector::new(ElectorParts {
            clock: Clock::anchored(start),
            random: Random::seeded(self.random.number()),
            metrics,
            ..parts
        })
    }

    /// A replica that is started again whenever it ended, with another identity.
    async fn replica(self: Arc<Self>, number: usize, seen: Arc<Replica>) {
        for life in 0.. {
            let mut elector = self.elector(&format!("replica{number}_{life}"));
            *seen.fence.lock().unwrap() = Some(elector.fence());
            let stop = CancellationToken::new();
            // Sometimes it is asked to end.
            let patience = Duration::from_millis(self.number(60_000));
            let ended = timeout(patience, async {
                if elector.acquire(&stop).await == Acquired::Leading {
                    *seen.terms.lock().unwrap() += 1;
                    if elector.hold(&stop).await != Lost::Stopped {
                        *seen.lost.lock().unwrap() += 1;
                    }
                }
            })
            .await;
            // It gives back, or is killed.
            if ended.is_err() && self.number(2) == 0 {
                elector.release().await;
            }
            drop(elector);
            sleep(Duration::from_millis(self.number(2_000))).await;
        }
    }
}

/// Runs for a minute; returns terms and losses.
async fn run(seed: u64, weather: Weather) -> (u64, u64) {
    let simulation = Simulation::new(seed, weather);
    let mut replicas = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..REPLICAS {
        let seen = Arc::new(Replica::default());
        let until = Arc::new(Mutex::new(Instant::now()));
        let replica = Arc::clone(&simulation).replica(number, Arc::clone(&seen));
        tasks.spawn(Stoppable {
            inner: Box::pin(replica),
            until: Arc::clone(&until),
            timer: Box::pin(sleep(Duration::ZERO)),
        });
        replicas.push((seen, until));
    }
    let check = || {
        let open = replicas.iter().filter(|(seen, _)| seen.is_open()).count();
        assert!(
            open <= 1,
            "{open} replicas may change the cloud, seed {seed}"
        );
        open == 1
    };
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        for (_, until) in &replicas {
            let every = weather.pause_every / u64::try_from(STEP.as_millis()).unwrap();
            if simulation.number(every) == 0 {
                let pause = Duration::from_millis(simulation.number(weather.pause));
                *until.lock().unwrap() = Instant::now() + pause;
            }
        }
        check();
        sleep(STEP).await;
    }
    // When the weather clears, somebody leads before long.
    *simulation.weather.lock().unwrap() = Weather {
        lost: 0,
        answer_lost: 0,
        latency: 10,
        pause_every: u64::MAX,
        pause: 0,
    };
    let clear = Instant::now();
    while !check() {
        assert!(
            clear.elapsed() < Duration::from_secs(30),
            "nobody leads, seed {seed}"
        );
        sleep(STEP).await;
    }
    let sum = |pick: fn(&Replica) -> u64| replicas.iter().map(|(seen, _)| pick(seen)).sum();
    (
        sum(|seen| *seen.terms.lock().unwrap()),
        sum(|seen| *seen.lost.lock().unwrap()),
    )
}

fn on_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

/// The storm of the property below is one: terms begin and are lost.
#[test]
fn the_simulated_storm_changes_leaders_and_makes_them_lose_the_lease() {
    let storm = Weather {
        lost: 15,
        answer_lost: 15,
        latency: 50,
        pause_every: 6_000,
        pause: 12_000,
    };
    let (mut terms, mut lost) = (0, 0);
    for seed in 0..3 {
        let seen = on_virtual_time(run(seed, storm));
        terms += seen.0;
        lost += seen.1;
    }
    assert!(terms >= 9 && lost >= 4, "{terms} {lost}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// REQ-APP-13, CASE-OPS-02
    #[test]
    fn never_two_replicas_may_change_the_cloud(
        seed in any::<u64>(),
        lost in 0..30_u64,
        answer_lost in 0..30_u64,
        latency in 1..200_u64,
        pause_every in 2_000..30_000_u64,
        pause in 1..20_000_u64,
    ) {
        let weather = Weather { lost, answer_lost, latency, pause_every, pause };
        on_virtual_time(run(seed, weather));
    }
}
