//! The managers of a world: one life after the other in each place.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use ccm_core::{
    cloud::Registry,
    config::{Env, LowArgs, Settings},
    runtime::{Clock, Manager, ManagerError, Random},
};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::{
    task::{JoinHandle, yield_now},
    time::{Instant, advance, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::World;
use crate::{
    cloud::{factory, provider},
    judge::{
        Rule,
        lease::{self, LEASE},
    },
    process::Process,
    steps::Who,
    tap::Tap,
};

/// While a name is waited for, how often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// More tasks than a request passes within a manager.
const HOPS: usize = 32;

/// One place where a manager runs, with one life after the other.
pub(super) struct Replica {
    pub(super) life: Option<Life>,
    pub(super) restart_at: Instant,
    pub(super) frozen_until: Option<Instant>,
}

impl Replica {
    /// Its life, unless that is about to end.
    pub(super) fn living(&self) -> Option<&Life> {
        let life = self.life.as_ref();
        life.filter(|life| !life.process.is_dead() && !life.stop.is_cancelled())
    }
}

pub(super) struct Life {
    pub(super) process: Arc<Process>,
    task: JoinHandle<Result<(), ManagerError>>,
    stop: CancellationToken,
}

impl World {
    fn start_manager(&mut self) -> Result<Life> {
        self.lives += 1;
        let number = self.lives;
        let process = Process::new(number, Arc::clone(&self.death));
        let mut args = vec![
            format!("--cloud-provider={}", provider::NAME),
            "--cluster-name=kite".to_owned(),
            format!("--leader-elect={}", self.options.replicas > 1),
            "--secure-port=0".to_owned(),
            "--health-bind-address=".to_owned(),
        ];
        args.extend(self.options.network.flags());
        args.extend(self.options.flags.iter().cloned());
        let low = LowArgs::parse(args).map_err(|errors| anyhow!("{errors:?}"))?;
        let settings = Settings::from_args(&low).map_err(|errors| anyhow!("{errors:?}"))?;
        let cloud = factory(
            self.cloud.clone(),
            self.lines.clone(),
            Arc::clone(&process),
            Arc::clone(&self.plant.craft),
            self.options.network.policy(),
        );
        let tap = Tap::new(
            self.kube.clone(),
            self.lines.clone(),
            Arc::clone(&process),
            self.plant.wiretap.clone(),
        );
        let manager = Manager::new(
            settings,
            Registry::new(vec![cloud])?,
            Env::new([]),
            self.clock(),
            Random::seeded(self.options.seed ^ (u64::from(number) << 40)),
        )
        .with_client(kube::Client::new(tap, "default"));
        let stop = CancellationToken::new();
        self.lines.trace.world(format!("manager p{number} starts"));
        let (told, run) = (Arc::clone(&self.death), manager.run(stop.clone()));
        let main = Arc::clone(&process);
        let task = tokio::spawn(async move {
            let ended = main.main(run).await;
            told.notify_one();
            ended
        });
        process.runs_as(task.abort_handle());
        Ok(Life {
            process,
            task,
            stop,
        })
    }

    /// The wall clock of a manager's machine.
    fn clock(&self) -> Clock {
        let (kube, skew) = (self.kube.clone(), Arc::clone(&self.skew));
        Clock::from_fn(move || {
            let skew = SignedDuration::from_secs(skew.load(Ordering::Relaxed));
            let now = kube.now();
            now.checked_add(skew).unwrap_or(now)
        })
    }

    /// The place of the manager that leads; the first one where none does.
    pub(super) fn leader(&self) -> usize {
        let leads = |replica: &Replica| {
            let life = replica.life.as_ref();
            life.is_some_and(|life| self.lines.judge.leads(life.process.number))
        };
        self.replicas.iter().position(leads).unwrap_or_default()
    }

    /// The process of the manager that leads, or of one that stands by.
    pub(super) fn process(&self, who: Who) -> Option<&Process> {
        let leader = self.leader();
        let index = match who {
            Who::Standby if self.replicas.len() > 1 => (0..).find(|index| *index != leader)?,
            Who::Leader | Who::Standby => leader,
        };
        let life = self.replicas.get(index)?.life.as_ref()?;
        Some(&life.process)
    }

    /// All managers stop, and the clock jumps.
    pub(super) async fn suspend(&self, time: Duration) {
        // What was handed on within a manager has no time between two machines: it goes out first.
        for _ in 0..HOPS {
            yield_now().await;
        }
        let (resource, namespace, name) = LEASE;
        let lease = self.kube.get(resource, namespace, name);
        if let Some(mut lease) = lease.filter(|lease| lease::duration(lease) <= time)
            && let Some(spec) = lease.pointer_mut("/spec").and_then(Value::as_object_mut)
        {
            self.lines.trace.world("another manager takes the lease");
            spec.insert("holderIdentity".to_owned(), json!("another"));
            if let Err(error) = self.kube.apply_direct(lease) {
                self.lines.trace.world(format!("refused: {error:?}"));
            }
        }
        advance(time).await;
    }

    /// Kills the manager that leads.
    pub fn crash(&mut self) {
        let leader = self.leader();
        if let Some(life) = self.replicas.get(leader).and_then(|at| at.life.as_ref()) {
            self.lines
                .trace
                .world(format!("manager p{} dies", life.process.number));
            life.process.kill();
        }
    }

    /// The manager that leads is told to end (`SIGTERM`).
    pub(super) fn shut_down(&self) {
        let leader = self.leader();
        if let Some(life) = self.replicas.get(leader).and_then(|at| at.life.as_ref()) {
            life.stop.cancel();
        }
    }

    /// Lets time pass; managers that died start again meanwhile.
    ///
    /// # Errors
    /// A manager cannot be made.
    pub async fn pass(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.tend_managers().await?;
            self.tend_services();
            self.tend_machines();
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            let mut next = end;
            for replica in &self.replicas {
                if replica.life.is_none() {
                    next = next.min(replica.restart_at);
                }
                next = replica.frozen_until.map_or(next, |thaw| next.min(thaw));
            }
            if !self.waiting.is_empty() {
                next = next.min(now + LOOK_EVERY);
            }
            next = self.booting.values().copied().fold(next, Instant::min);
            tokio::select! {
                biased;
                () = self.death.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    async fn tend_managers(&mut self) -> Result<()> {
        let now = Instant::now();
        for index in 0..self.replicas.len() {
            let Some(replica) = self.replicas.get_mut(index) else {
                continue;
            };
            if let Some(life) = replica.life.take_if(|life| life.process.is_dead()) {
                self.lines.judge.manager_died();
                // It was aborted; what is left of it ends now.
                let _ = life.task.await;
                replica.restart_at = now + self.options.restart_after;
                replica.frozen_until = None;
            }
            if let Some(life) = replica.life.take_if(|life| life.task.is_finished()) {
                // The process has ended: so has whatever it left running.
                life.process.kill();
                let ended = life.task.await;
                let number = life.process.number;
                if life.stop.is_cancelled() && matches!(ended, Ok(Ok(()))) {
                    self.lines
                        .trace
                        .world(format!("manager p{number} has shut down"));
                    self.lines.judge.manager_died();
                // Who loses the lease has to end (REQ-APP-12).
                } else if !self.is_quiet
                    && matches!(ended, Ok(Err(ManagerError::LeadershipLost(_))))
                {
                    self.lines
                        .trace
                        .world(format!("manager p{number} steps down"));
                    self.lines.judge.manager_died();
                } else {
                    let text = format!("process {number} ended: {ended:?}");
                    self.lines.judge.violated(Rule::Alive, text);
                }
                replica.restart_at = now + self.options.restart_after;
                replica.frozen_until = None;
            }
            if replica.frozen_until.is_some_and(|thaw| thaw <= now) {
                replica.frozen_until = None;
                if let Some(life) = &replica.life {
                    life.process.freeze(false);
                }
            }
            if replica.life.is_none() && replica.restart_at <= now {
                let life = self.start_manager()?;
                if let Some(replica) = self.replicas.get_mut(index) {
                    replica.life = Some(life);
                }
            }
        }
        Ok(())
    }

    /// Ends the managers in order.
    ///
    /// # Errors
    /// One ends with an error.
    pub async fn stop(&mut self) -> Result<()> {
        for replica in &mut self.replicas {
            if let Some(life) = replica.life.take() {
                life.stop.cancel();
                life.task.await.context("the manager was killed")??;
            }
        }
        Ok(())
    }

    /// What is still to come by itself: a Service waits for its name, a machine boots, a manager
    /// starts or is elected.
    pub fn awaits(&self) -> Option<&'static str> {
        let leads = |replica: &Replica| {
            let life = replica.living();
            life.is_some_and(|life| self.lines.judge.leads(life.process.number))
        };
        if !self.waiting.is_empty() {
            Some("a Service waits for its name")
        } else if !self.booting.is_empty() {
            Some("a machine boots")
        } else if self
            .replicas
            .iter()
            .any(|replica| replica.living().is_none())
        {
            Some("a manager is dead")
        } else if self.lines.fates.has_late() {
            Some("an effect is to come")
        } else if self.replicas.len() > 1 && !self.replicas.iter().any(leads) {
            Some("no manager leads")
        } else {
            None
        }
    }
}
