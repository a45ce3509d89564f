//! One life of a manager's process, as its operations see it.
//!
//! A process can be stopped (`SIGSTOP`). There is one virtual clock and one scheduler for all
//! processes of a run, and they belong to the runtime: it cannot be kept from polling the tasks that
//! a manager spawned, nor its timers from firing, while another manager goes on. What is modelled
//! instead, in two ways that complement each other:
//!
//! - [`freeze`](Process::freeze): only this process stops, the others go on and take over. Its main
//!   task is not polled, so it neither ends nor ends its controllers; no operation begins, no
//!   answer and no event of a watch reaches it before it wakes up; what was on its way to a server
//!   takes effect. What its other tasks would send meanwhile is not sent: a stopped process sends
//!   nothing. Not modelled: its timers do fire, so a task of it may know that time has passed.
//! - [`Trouble::Suspend`](crate::steps::Trouble::Suspend): all processes stop, and the clock jumps.
//!   Nothing of any of them is polled in between: who wakes up first meets a clock that has jumped,
//!   and a lease that somebody else took meanwhile. Not modelled: the others go on.
//!
//! `e2e/tests/tests/replicas/paused.rs` stops a real process in the middle of a call, with a real
//! clock, while a real other one takes over, and wakes it up.

use std::{
    collections::BTreeMap,
    future::pending,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{Instant, sleep_until},
};

/// How the watches of one process are disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hush {
    /// Nothing arrives for a time; then everything, in order. What the process knows of the
    /// resource is old meanwhile, and it hears of other resources first.
    Late,
    /// Nothing arrives for a time; then the connection breaks, and what was under way is lost.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    until: Instant,
    hush: Hush,
}

/// One life of a process. It ends at once: after [`die`](Self::die) no operation goes on.
#[derive(Debug)]
pub struct Process {
    /// Its number in the run, from 1. No two lives have the same.
    pub number: u32,
    dead: AtomicBool,
    frozen: AtomicBool,
    /// Wakes operations when the process goes on. All waiting is first in, first out: a run must be
    /// the same each time.
    thawed: Notify,
    /// Wakes the main task when the process is stopped or goes on.
    main_thawed: Notify,
    /// By resource.
    holds: Mutex<BTreeMap<&'static str, Hold>>,
    heard: Notify,
    main: Mutex<Option<AbortHandle>>,
    death: Arc<Notify>,
}

impl Process {
    /// A process that lives. `death` is notified when it has died.
    pub fn new(number: u32, death: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            number,
            dead: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            thawed: Notify::new(),
            main_thawed: Notify::new(),
            holds: Mutex::default(),
            heard: Notify::new(),
            main: Mutex::new(None),
            death,
        })
    }

    /// Names the task that ends with the process.
    pub fn runs_as(&self, main: AbortHandle) {
        *self.main.lock().unwrap_or_else(PoisonError::into_inner) = Some(main);
    }

    /// Ends the process: its task, and every operation that is under way or still comes.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
        let main = self.main.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(main) = main.as_ref() {
            main.abort();
        }
        self.death.notify_one();
    }

    /// Ends the process from within one of its operations, which gets no answer.
    pub async fn die(&self) -> ! {
        self.kill();
        pending().await
    }

    /// Whether it has died.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Stops it (`SIGSTOP`) or lets it go on; see the [module](self). Whoever waits for an answer
    /// goes on before the main task can end it: the order that harms most.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Relaxed);
        if !frozen {
            self.thawed.notify_waiters();
        }
        self.main_thawed.notify_waiters();
    }

    /// Whether it is stopped.
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }

    /// The process's main task: not polled while the process is stopped.
    pub async fn main<T>(&self, main: impl Future<Output = T>) -> T {
        let mut main = pin!(main);
        loop {
            let mut changed = pin!(self.main_thawed.notified());
            changed.as_mut().enable();
            if self.is_frozen() {
                changed.await;
                continue;
            }
            tokio::select! {
                biased;
                () = changed => {}
                ended = &mut main => return ended,
            }
        }
    }

    fn holds(&self) -> MutexGuard<'_, BTreeMap<&'static str, Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Disturbs its watches of a resource until then.
    pub fn hush(&self, resource: &'static str, until: Instant, hush: Hush) {
        self.holds().insert(resource, Hold { until, hush });
    }

    /// Ends all disturbance of watches: what was held arrives.
    pub fn hear(&self) {
        self.holds().clear();
        self.heard.notify_waiters();
    }

    /// What every event of a watch passes. Whether it arrives; if not, the connection is broken.
    pub async fn hears(&self, resource: &str) -> bool {
        loop {
            let mut heard = pin!(self.heard.notified());
            heard.as_mut().enable();
            let hold = self.holds().get(resource).copied();
            let Some(hold) = hold.filter(|hold| Instant::now() < hold.until) else {
                return true;
            };
            tokio::select! {
                biased;
                () = heard => {}
                () = sleep_until(hold.until) => return hold.hush == Hush::Late,
            }
        }
    }

    /// What every operation passes before it begins and after each wait.
    pub async fn gate(&self) {
        if self.is_dead() {
            pending::<()>().await;
        }
        loop {
            let mut thawed = pin!(self.thawed.notified());
            thawed.as_mut().enable();
            if !self.is_frozen() {
                break;
            }
            thawed.await;
        }
        if self.is_dead() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stopped_process_does_not_end_before_it_wakes_up() {
        let process = Process::new(1, Arc::default());
        process.freeze(true);
        let main = process.main(sleep(Duration::from_secs(1)));
        let thaw = async {
            sleep(Duration::from_secs(5)).await;
            process.freeze(false);
        };
        let start = Instant::now();
        tokio::join!(main, thaw);
        // The timer begins with the first poll.
        assert!(start.elapsed() >= Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hushed_watch_is_late_or_breaks() {
        let process = Process::new(1, Arc::default());
        let start = Instant::now();
        let until = start + Duration::from_secs(3);
        process.hush("nodes", until, Hush::Late);
        process.hush("services", until, Hush::Lost);
        assert!(process.hears("leases").await);
        assert_eq!(start.elapsed(), Duration::ZERO);
        let (nodes, services) = tokio::join!(process.hears("nodes"), process.hears("services"));
        assert!(nodes && !services);
        assert_eq!(start.elapsed(), Duration::from_secs(3));
        assert!(process.hears("services").await);
        process.hush("services", until + Duration::from_secs(60), Hush::Lost);
        let released = async {
            sleep(Duration::from_secs(1)).await;
            process.hear();
        };
        assert!(tokio::join!(process.hears("services"), released).0);
    }
}
