//! What all handles of a simulated server share.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    sync::watch,
    time::{Duration, Instant},
};

use crate::{
    clock::Clock,
    faults::{ExpiredStyle, FaultState, Outage},
    log::Log,
    options::Options,
    state::State,
};

/// The last order to end all watches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cut {
    /// Whether the connection breaks instead of ending well.
    pub(crate) abrupt: bool,
}

#[derive(Debug)]
pub(crate) struct Inner {
    state: Mutex<State>,
    faults: Mutex<FaultState>,
    log: Mutex<Log>,
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    wake: watch::Sender<u64>,
    cut: watch::Sender<Cut>,
    /// How far each open watch has come, with the plural of its kind.
    watches: Mutex<Vec<(&'static str, Weak<AtomicU64>)>>,
}

impl Inner {
    pub(crate) fn new(options: Options) -> Self {
        let clock = Clock::new(options.start);
        Self {
            state: Mutex::new(State::new(&options, &clock)),
            faults: Mutex::default(),
            log: Mutex::default(),
            options,
            clock,
            wake: watch::Sender::new(0),
            cut: watch::Sender::new(Cut::default()),
            watches: Mutex::default(),
        }
    }

    // A panic while a lock is held can only come from a test's own closure: the data is whole.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, FaultState> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn outage(&self) -> Option<Outage> {
        self.faults().outage(Instant::now())
    }

    pub(crate) fn expired_style(&self) -> ExpiredStyle {
        self.faults().expired_style
    }

    pub(crate) fn delay(&self, plural: &str) -> Duration {
        self.faults().delay(plural)
    }

    /// Lets all watches look again.
    pub(crate) fn wake(&self) {
        self.wake.send_modify(|n| *n = n.wrapping_add(1));
    }

    pub(crate) fn subscribe_wake(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    /// Enters a watch; it stores the version up to which its client has taken everything.
    pub(crate) fn enter_watch(&self, plural: &'static str) -> Arc<AtomicU64> {
        let taken = Arc::new(AtomicU64::new(0));
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|(_, open)| open.strong_count() > 0);
        watches.push((plural, Arc::downgrade(&taken)));
        taken
    }

    /// The version up to which every open watch of a kind was taken; `None` without a watch.
    pub(crate) fn taken(&self, plural: &str) -> Option<u64> {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = watches.iter().filter(|(of, _)| *of == plural);
        of_kind
            .filter_map(|(_, open)| open.upgrade())
            .map(|taken| taken.load(Ordering::Acquire))
            .min()
    }

    /// Ends all watches.
    pub(crate) fn cut(&self, abrupt: bool) {
        self.cut.send_replace(Cut { abrupt });
    }

    pub(crate) fn subscribe_cut(&self) -> watch::Receiver<Cut> {
        self.cut.subscribe()
    }
}
