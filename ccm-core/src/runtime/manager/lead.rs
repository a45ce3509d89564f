//! From full caches to the end: waiting for the lease, leading, letting go.

use std::{iter, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    Cloud, ControllerName, Ending, LockOf, Manager, ManagerError, Prepared, Tasks,
    assemble::{self, Assembled},
};
use crate::{
    config::LeaderElectionSettings,
    kube::{ApiEventSink, EventRecorder, EventWorker},
    runtime::{
        Elector, ElectorParts, Ended, Fence, Identity, Leadership, LeaseName, RbacOptions,
        identity, permissions,
    },
};

/// After the controllers have ended, what is left for the last events: a little more than the
/// event worker allows itself.
const EVENTS_GRACE: Duration = Duration::from_secs(3);

/// The source of events on the Lease, and the client that writes events.
const SOURCE: &str = "cloud-controller-manager";

/// The check of the locks.
const LEADER_CHECK: &str = "leaderElection";

impl Manager {
    /// Makes the controllers, fills their caches, leads, and lets go at the end.
    pub(super) async fn work(
        &self,
        prepared: &Prepared,
        cloud: &dyn Cloud,
        shutdown: CancellationToken,
    ) -> Result<(), ManagerError> {
        let (sink, worker) = ApiEventSink::new(
            prepared.clients.client(SOURCE)?,
            self.clock.clone(),
            self.random.clone(),
            &self.registry,
        )?;
        let events = Events::start(worker);
        let mut assembled = self.assemble(prepared, cloud, Arc::clone(&sink))?;
        let _checks = self.check_permissions(prepared, &assembled)?;
        let stop = CancellationToken::new();
        let _stopped_with_us = stop.clone().drop_guard();
        let client = prepared.clients.client("shared-informers")?;
        assembled.run_informers(&stop, client, &self.random);
        let synced = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            outcome = fill_caches(&mut assembled) => Some(outcome),
        };
        let (leadership, outcome) = match synced {
            None => (Leadership::without_election(), Ok(())),
            Some(Err(error)) => (Leadership::without_election(), Err(error)),
            Some(Ok(())) => {
                self.health.gate(assemble::CACHES).open();
                let leadership = self.leadership(prepared, sink)?;
                let outcome = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => Ok(()),
                    outcome = self.lead(prepared, cloud, &mut assembled, &leadership, &stop) => outcome,
                };
                (leadership, outcome)
            }
        };
        if self.let_go(prepared, assembled, &outcome, &stop).await {
            leadership.release().await;
        } else {
            leadership.let_run_out().await;
        }
        events.finish().await;
        outcome
    }

    /// Starts the controllers of each lock once it is ours; returns only with an error.
    async fn lead(
        &self,
        prepared: &Prepared,
        cloud: &dyn Cloud,
        assembled: &mut Assembled,
        leadership: &Leadership,
        stop: &CancellationToken,
    ) -> Result<(), ManagerError> {
        let second = self.settings.leader_migration.as_ref();
        let second = second.map(|_| LockOf::Migration);
        for lock in iter::once(LockOf::Main).chain(second) {
            let acquired = leadership.acquired(lock);
            undisturbed(assembled, leadership, acquired).await?;
            if leadership.took_over() {
                prepared.took_over.set();
            }
            if lock == LockOf::Main {
                cloud.initialize();
                // Before the first controller runs: what happens from now on is told.
                assembled.release_informers();
            }
            for (name, start) in assembled.take(lock) {
                assembled.start(name, start, stop, &self.health, &prepared.running);
                let interval = self.settings.controller_start_interval;
                let pause = tokio::time::sleep(self.random.jitter(interval, 1.0));
                if !interval.is_zero() {
                    undisturbed(assembled, leadership, pause).await?;
                }
            }
        }
        undisturbed(assembled, leadership, std::future::pending()).await
    }

    /// Ends the controllers: within the grace period when the end was asked for or one of them
    /// ended, at once when the lease is lost. Whether all work has ended, so that the next replica
    /// may begin at once.
    async fn let_go(
        &self,
        prepared: &Prepared,
        assembled: Assembled,
        outcome: &Result<(), ManagerError>,
        stop: &CancellationToken,
    ) -> bool {
        match outcome {
            Ok(()) => tracing::info!("shutting down"),
            Err(error) => tracing::error!(%error, "stopping all controllers"),
        }
        let grace = match outcome {
            Err(ManagerError::LeadershipLost(_)) => Duration::ZERO,
            _ => self.settings.shutdown_grace,
        };
        self.health.gate(assemble::CACHES).close();
        stop.cancel();
        let unfinished = assembled.finish(grace).await;
        if !unfinished.is_empty() {
            tracing::warn!(tasks = ?unfinished, "work was cut off at the end of the grace period");
        }
        let own = prepared.factory.own.controllers.iter().map(|own| own.name);
        for name in ControllerName::ALL.into_iter().chain(own) {
            prepared.running.set(name, false);
        }
        unfinished.is_empty()
    }

    fn leadership(
        &self,
        prepared: &Prepared,
        sink: Arc<ApiEventSink>,
    ) -> Result<Leadership, ManagerError> {
        let Some(main) = &self.settings.leader_election else {
            return Ok(Leadership::without_election());
        };
        let client = prepared.clients.lease(main.renew_deadline)?;
        let name = identity(&self.hostname, &self.random);
        let events = EventRecorder::new(SOURCE, sink);
        let elector = |settings: LeaderElectionSettings, fence: &Fence| {
            Elector::new(ElectorParts {
                client: client.clone(),
                settings,
                identity: name.clone(),
                clock: self.clock.clone(),
                random: self.random.clone(),
                fence: fence.clone(),
                metrics: prepared.leader.clone(),
                events: events.clone(),
            })
        };
        let migration = self.settings.leader_migration.as_ref();
        let second = migration.zip(prepared.fences.migration.as_ref());
        let second = second.map(|(migration, fence)| {
            let settings = LeaderElectionSettings {
                name: migration.leader_name.clone(),
                ..main.clone()
            };
            elector(settings, fence)
        });
        let main = elector(main.clone(), &prepared.fences.main);
        let leadership = Leadership::start(main, second);
        self.health.add(LEADER_CHECK, leadership.health());
        Ok(leadership)
    }

    /// Asks, beside everything else, which permissions are missing. Dropping the tasks ends it.
    fn check_permissions(
        &self,
        prepared: &Prepared,
        assembled: &Assembled,
    ) -> Result<Tasks, ManagerError> {
        let all = permissions(&RbacOptions {
            controllers: assembled.names(),
            own: prepared.factory.own.controllers.to_vec(),
            leases: self.leases(),
            service_account_credentials: self.settings.use_service_account_credentials,
            reviews: self.settings.serving.is_some(),
        });
        let mut tasks = Tasks::new();
        let owners: std::collections::BTreeSet<_> = all.iter().map(|p| p.identity).collect();
        for owner in owners {
            let (client, name) = match owner {
                Identity::Manager => (prepared.clients.client(SOURCE)?, "the manager"),
                // Not a write of a controller: it does not wait for the lease.
                Identity::Account(name) => {
                    (prepared.clients.controller(name, Fence::open())?, name)
                }
            };
            let mine: Vec<_> = all
                .iter()
                .filter(|p| p.identity == owner)
                .cloned()
                .collect();
            let check = prepared.permissions.clone();
            tasks.spawn(name, async move {
                check.run(client, name, &mine).await;
            });
        }
        Ok(tasks)
    }

    fn leases(&self) -> Vec<LeaseName> {
        let Some(main) = &self.settings.leader_election else {
            return Vec::new();
        };
        let migration = self.settings.leader_migration.as_ref();
        let second = migration.map(|migration| migration.leader_name.clone());
        iter::once(main.name.clone())
            .chain(second)
            .map(|name| LeaseName {
                namespace: main.namespace.clone(),
                name,
            })
            .collect()
    }
}

/// Waits for `what`, unless the lease is lost or a task ends before.
async fn undisturbed(
    assembled: &mut Assembled,
    leadership: &Leadership,
    what: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    tokio::select! {
        biased;
        lost = leadership.lost() => Err(lost.into()),
        ended = assembled.next_ended() => Err(ended),
        () = what => Ok(()),
    }
}

async fn fill_caches(assembled: &mut Assembled) -> Result<(), ManagerError> {
    let stores = assembled.stores();
    tokio::select! {
        biased;
        ended = assembled.next_ended() => Err(ended),
        () = stores.wait_until_synced() => Ok(()),
    }
}

/// What the end of a task that nobody asked for means.
pub(super) fn unasked(ended: Ended) -> ManagerError {
    let problem = match ended.ending {
        Ending::Returned => "it returned without being asked to".to_owned(),
        Ending::Panicked(text) => format!("it panicked: {text}"),
    };
    ManagerError::ControllerEnded {
        name: ended.name,
        problem,
    }
}

/// The event worker: it outlives the controllers, so that their last events are written.
struct Events {
    stop: CancellationToken,
    tasks: Tasks,
}

impl Events {
    fn start(worker: EventWorker) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new();
        tasks.spawn("events", worker.run(stop.clone()));
        Self { stop, tasks }
    }

    async fn finish(self) {
        self.stop.cancel();
        self.tasks.finish(EVENTS_GRACE).await;
    }
}
