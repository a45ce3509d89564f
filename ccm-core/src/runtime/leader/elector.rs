//! One candidate for one Lease.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    metrics::LeaderMetrics,
    notes::Notes,
    record::{Attempts, Seen, Terms, Verdict, Whose, held, judge, released, whose},
};
use crate::{
    config::LeaderElectionSettings,
    kube::{EventRecorder, LeaseApi, LeaseError, LeaseRecord, StoredLease},
    runtime::{Clock, Fence, Random},
};

/// A candidate waits `retry period × [1, 1 + this)` between two looks, as in the Go library.
const JITTER: f64 = 1.2;

/// Writes that giving the lease back may take: a renewal that was under way can get in between.
const RELEASE_TRIES: usize = 3;

/// Our name in the election: `<hostname>_<uuid>`, another one in every process.
pub fn identity(hostname: &str, random: &Random) -> String {
    let (high, low) = (u128::from(random.number()), u128::from(random.number()));
    let bytes = ((high << 64) | low).to_be_bytes();
    let uuid = uuid::Builder::from_random_bytes(bytes).into_uuid();
    format!("{hostname}_{uuid}")
}

/// What an [`Elector`] is made of.
#[derive(Clone)]
pub struct ElectorParts {
    /// The client with the suffix `leader-election` (specification: controllers §7.5).
    pub client: kube::Client,
    /// Which Lease, and the times.
    pub settings: LeaderElectionSettings,
    /// Unique among all processes: see [`identity`].
    pub identity: String,
    /// For the times in the Lease, which nobody judges by.
    pub clock: Clock,
    /// For the jitter between two looks.
    pub random: Random,
    /// Opened while the lease is provably ours. Must be [`Fence::waiting`] at first.
    pub fence: Fence,
    /// Shared by all electors of the process.
    pub metrics: LeaderMetrics,
    /// States events on the Lease.
    pub events: EventRecorder,
}

/// How [`Elector::acquire`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lease is ours: call [`Elector::hold`] now.
    Leading,
    /// The end was asked for.
    Stopped,
}

/// How [`Elector::hold`] ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The end was asked for; the lease is still ours until [`Elector::release`].
    #[error("the end was asked for")]
    Stopped,
    /// No renewal succeeded in time.
    #[error("it was not renewed for {within:?}: {problem}")]
    Deadline {
        /// The renew deadline.
        within: Duration,
        /// The last problem.
        problem: String,
    },
    /// Another process holds it.
    #[error("{holder} holds it now")]
    Taken {
        /// The other's identity.
        holder: String,
    },
    /// Another process renews it under our identity.
    #[error(
        "another process writes it under our identity {identity:?}; no two processes may share one"
    )]
    Namesake {
        /// The identity.
        identity: String,
    },
}

/// When we last renewed, counted from before the request was sent; `None` while we do not believe
/// to lead. Shared with the health check.
#[derive(Clone, Debug, Default)]
struct Term(Arc<Mutex<Option<Instant>>>);

impl Term {
    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, renewed: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
    }
}

/// A renewal that did not work.
enum Failure {
    /// Worth another try.
    Problem(LeaseError),
    /// There is nothing left to renew.
    Lost(Lost),
}

/// A candidate for one Lease. Makes requests only while one of its methods runs.
pub struct Elector {
    lease: LeaseApi,
    name: String,
    identity: String,
    terms: Terms,
    clock: Clock,
    random: Random,
    fence: Fence,
    metrics: LeaderMetrics,
    events: EventRecorder,
    attempts: Attempts,
    seen: Option<Seen>,
    /// Whether another process was seen to take or renew the lease.
    another_led: Arc<AtomicBool>,
    term: Term,
    /// Whether `hold` or the caller after it still has to say that we stopped leading.
    leads: bool,
    holders: Notes,
    problems: Notes,
}

impl Elector {
    /// A candidate that has done nothing yet.
    pub fn new(parts: ElectorParts) -> Self {
        let ElectorParts {
            client,
            settings,
            identity,
            clock,
            random,
            fence,
            metrics,
            events,
        } = parts;
        let terms = Terms::from(&settings);
        metrics.leads(&settings.name, false);
        Self {
            lease: LeaseApi::new(client, &settings.namespace, &settings.name, terms.request),
            name: settings.name,
            identity,
            terms,
            clock,
            random,
            fence,
            metrics,
            events,
            attempts: Attempts::default(),
            seen: None,
            another_led: Arc::default(),
            term: Term::default(),
            leads: false,
            holders: Notes::default(),
            problems: Notes::default(),
        }
    }

    /// The Lease as `namespace/name`.
    pub fn lease(&self) -> String {
        self.lease.to_string()
    }

    /// The fence that this elector opens and shuts.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// The check `leaderElection`: false only while we believe to lead and have not renewed for
    /// the lease and 20 seconds (REQ-APP-10).
    pub fn health(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let (term, limit) = (self.term.clone(), self.terms.unhealthy_after);
        move || term.get().is_none_or(|renewed| renewed.elapsed() <= limit)
    }

    /// Whether another process was seen to take or renew the lease while this one waited.
    pub(super) fn another_led(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.another_led)
    }

    /// Tries until the lease is ours. Never gives up: every problem is logged and tried again.
    pub async fn acquire(&mut self, stop: &CancellationToken) -> Acquired {
        tracing::info!(lease = %self.lease, identity = self.identity, "waiting for the lease");
        loop {
            let taken = tokio::select! {
                biased;
                () = stop.cancelled() => return Acquired::Stopped,
                taken = self.try_to_take() => taken,
            };
            let expiry = match taken {
                Ok(sent) => {
                    self.begin_term(sent);
                    return Acquired::Leading;
                }
                Err(expiry) => expiry,
            };
            let next = Instant::now() + self.random.jitter(self.terms.retry, JITTER);
            // Not later than need be, where the Go library sleeps through the expiry.
            let next = expiry.map_or(next, |expiry| next.min(expiry));
            tokio::select! {
                biased;
                () = stop.cancelled() => return Acquired::Stopped,
                () = sleep_until(next) => {}
            }
        }
    }

    /// One look and at most one write. `Ok`: the lease is ours, the request was sent then. `Err`:
    /// it is not, and before this time it will not be.
    async fn try_to_take(&mut self) -> Result<Instant, Option<Instant>> {
        let is_there = match self.lease.read().await {
            Ok(Some(lease)) => {
                self.see(lease);
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.complain(&error);
                return Err(None);
            }
        };
        let whose = |record: &LeaseRecord| whose(record, &self.identity, &self.attempts);
        let now = Instant::now();
        let verdict = judge(self.seen.as_ref(), is_there, whose, &self.terms, now);
        let written = match verdict {
            Verdict::Wait(expiry) => {
                self.name_the_holder(is_there);
                return Err(expiry);
            }
            Verdict::Create => self.write(None, false).await,
            Verdict::Take => self.write(self.stored(), false).await,
            Verdict::Confirm => self.write(self.stored(), true).await,
        };
        match written {
            // After a long pause of the process the answer is good, but too old to rely on.
            Ok(sent) if sent.elapsed() < self.terms.renew_deadline => Ok(sent),
            Ok(_) => Err(None),
            Err(error) if error.is_conflict() => {
                tracing::debug!(lease = %self.lease, %error, "another candidate was faster");
                Err(None)
            }
            Err(error) => {
                self.complain(&error);
                Err(None)
            }
        }
    }

    /// Renews until the lease is lost or `stop`. The fence is shut when this returns.
    pub async fn hold(&mut self, stop: &CancellationToken) -> Lost {
        let lost = self.renew_until(stop).await;
        self.end_term();
        match &lost {
            Lost::Stopped => {}
            Lost::Namesake { identity } => tracing::error!(
                lease = %self.lease,
                identity,
                "lost the lease: another process writes it under our identity; make sure that \
                 every replica makes its own and that nothing else writes this Lease, or give the \
                 managers different names with --leader-elect-resource-name"
            ),
            lost => tracing::error!(lease = %self.lease, reason = %lost, "lost the lease"),
        }
        lost
    }

    async fn renew_until(&mut self, stop: &CancellationToken) -> Lost {
        let mut problem = "this process was held up".to_owned();
        loop {
            let within = self.terms.renew_deadline;
            let Some(deadline) = self.term.get().map(|renewed| renewed + within) else {
                let problem = "it was never acquired".to_owned();
                return Lost::Deadline { within, problem };
            };
            let next = (Instant::now() + self.terms.retry).min(deadline);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Lost::Stopped,
                () = sleep_until(next) => {}
            }
            // Nothing is sent once another may hold it.
            if Instant::now() >= deadline {
                return Lost::Deadline { within, problem };
            }
            let renewed = tokio::select! {
                biased;
                () = stop.cancelled() => return Lost::Stopped,
                renewed = timeout_at(deadline, self.renew()) => renewed,
            };
            match renewed {
                Ok(Ok(sent)) => self.renewed(sent),
                Ok(Err(Failure::Lost(lost))) => return lost,
                Ok(Err(Failure::Problem(error))) => {
                    problem = error.to_string();
                    let left = deadline.saturating_duration_since(Instant::now());
                    tracing::warn!(
                        lease = %self.lease,
                        error = problem,
                        seconds_left = left.as_secs(),
                        "the lease could not be renewed"
                    );
                }
                Err(_) => {
                    problem = "no answer from the API server".to_owned();
                }
            }
        }
    }

    /// Writes over what we wrote last; when that does not work, looks first. `Ok`: when the
    /// request was sent.
    async fn renew(&mut self) -> Result<Instant, Failure> {
        match self.write(self.stored(), true).await {
            Ok(sent) => return Ok(sent),
            Err(error) => tracing::debug!(lease = %self.lease, %error, "reading the lease first"),
        }
        let Some(lease) = self.lease.read().await.map_err(Failure::Problem)? else {
            return self.write(None, false).await.map_err(Failure::Problem);
        };
        let owner = whose(&lease.record, &self.identity, &self.attempts);
        let holder = lease.record.holder.clone();
        self.see(lease);
        let lost = match owner {
            Whose::Ours => {
                self.metrics.took_slow_path(&self.name);
                let written = self.write(self.stored(), true).await;
                return written.map_err(Failure::Problem);
            }
            Whose::Namesakes => Lost::Namesake { identity: holder },
            Whose::Others => Lost::Taken { holder },
            Whose::Nobodys => Lost::Taken {
                holder: "nobody".to_owned(),
            },
        };
        Err(Failure::Lost(lost))
    }

    /// Gives the lease back, so that another replica takes it at once. Shuts the fence first. To
    /// be called when nothing works on behalf of the lease any more. Takes no longer than one
    /// request may; a failure is logged and costs the successor the rest of the lease.
    pub async fn release(&mut self) {
        self.end_term();
        if !self.attempts.is_empty() {
            match timeout(self.terms.request, self.give_back()).await {
                Ok(Ok(true)) => tracing::info!(lease = %self.lease, "gave the lease back"),
                Ok(Ok(false)) => tracing::debug!(lease = %self.lease, "the lease is not ours"),
                Ok(Err(error)) => self.not_released(&error.to_string()),
                Err(_) => self.not_released("no answer from the API server"),
            }
        }
        self.term.set(None);
    }

    /// Ends the term without giving the lease back: it is another's only when its time is over.
    pub fn let_run_out(&mut self) {
        self.end_term();
        self.term.set(None);
    }

    /// Whether there was something to give back.
    async fn give_back(&mut self) -> Result<bool, LeaseError> {
        let is_ours =
            |record: &LeaseRecord| whose(record, &self.identity, &self.attempts) == Whose::Ours;
        let mut known = self.stored().filter(|lease| is_ours(&lease.record));
        let mut last = None;
        for _ in 0..RELEASE_TRIES {
            let lease = match known.take() {
                Some(lease) => lease,
                None => match self.lease.read().await? {
                    Some(lease) if is_ours(&lease.record) => lease,
                    _ => return Ok(false),
                },
            };
            let record = released(&lease.record, self.clock.now());
            match self.lease.replace(&lease, &record).await {
                Ok(_) => return Ok(true),
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(false), Err)
    }

    fn not_released(&self, problem: &str) {
        tracing::warn!(
            lease = %self.lease,
            error = problem,
            "the lease was not given back; a successor waits until it expires"
        );
    }

    fn stored(&self) -> Option<StoredLease> {
        self.seen.as_ref().map(|seen| seen.lease.clone())
    }

    /// Writes us as the holder: over this version, or a new Lease. `Ok`: when it was sent.
    async fn write(&mut self, old: Option<StoredLease>, kept: bool) -> Result<Instant, LeaseError> {
        let time = self.attempts.next(self.clock.now());
        let record = old.as_ref().map(|old| &old.record);
        let record = held(&self.identity, record, kept, time, &self.terms);
        let sent = Instant::now();
        let lease = match &old {
            Some(old) => self.lease.replace(old, &record).await?,
            None => self.lease.create(&record).await?,
        };
        self.see(lease);
        Ok(sent)
    }

    fn see(&mut self, lease: StoredLease) {
        let changed = self.seen.as_ref().is_some_and(|seen| !seen.says(&lease));
        let is_held = !lease.record.holder.is_empty();
        if changed && is_held && whose(&lease.record, &self.identity, &self.attempts) != Whose::Ours
        {
            self.another_led.store(true, Ordering::Release);
        }
        self.seen = Some(Seen::after(self.seen.take(), lease, Instant::now()));
    }

    fn begin_term(&mut self, sent: Instant) {
        self.holders.clear();
        self.problems.clear();
        self.leads = true;
        self.renewed(sent);
        self.metrics.leads(&self.name, true);
        self.state("became leader");
        tracing::info!(lease = %self.lease, identity = self.identity, "leading");
    }

    fn renewed(&mut self, sent: Instant) {
        self.term.set(Some(sent));
        self.fence.extend(sent + self.terms.renew_deadline);
    }

    /// The health check goes on: a process that lost its lease and does not end is not healthy.
    fn end_term(&mut self) {
        self.fence.close();
        if std::mem::take(&mut self.leads) {
            self.metrics.leads(&self.name, false);
            self.state("stopped leading");
        }
    }

    fn state(&self, what: &str) {
        if let Some(seen) = &self.seen {
            let message = format!("{} {what}", self.identity);
            self.events.normal(&seen.lease, "LeaderElection", message);
        }
    }

    fn complain(&mut self, error: &LeaseError) {
        let error = error.to_string();
        if self.problems.is_due(&error) {
            tracing::warn!(lease = %self.lease, error, "cannot take the lease, trying again");
        }
    }

    /// Says who holds the lease, and what is wrong with it.
    fn name_the_holder(&mut self, is_there: bool) {
        if self.problems.clear() {
            tracing::info!(lease = %self.lease, "the lease can be read again");
        }
        let Some(seen) = &self.seen else { return };
        let (record, oddities) = (&seen.lease.record, seen.lease.oddities.join(", "));
        let text = format!("{} {is_there} {oddities}", record.holder);
        if !self.holders.is_due(&text) {
            return;
        }
        let (lease, holder) = (&self.lease, &record.holder);
        if !is_there {
            tracing::warn!(%lease, holder, "the Lease was deleted; its holder may not know yet");
        } else if *holder == self.identity {
            tracing::warn!(
                %lease,
                holder,
                "another process holds the lease under our identity; make sure that every replica \
                 makes its own (<hostname>_<uuid>)"
            );
        } else if oddities.is_empty() {
            let seconds = record.duration_seconds.unwrap_or_default();
            tracing::info!(%lease, holder, seconds, "waiting: another replica leads");
        } else {
            tracing::warn!(
                %lease,
                holder,
                oddities,
                "the Lease is broken; it is taken over unless its holder renews it"
            );
        }
    }
}
