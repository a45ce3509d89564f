//! One life of a manager's process, as its operations see it.

use std::{
    future::pending,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
};

/// One life of a process. It ends at once: after [`die`](Self::die) no operation goes on.
#[derive(Debug)]
pub struct Process {
    /// Its number in the run, from 1. No two lives have the same.
    pub number: u32,
    dead: AtomicBool,
    frozen: watch::Sender<bool>,
    main: Mutex<Option<AbortHandle>>,
    death: Arc<Notify>,
}

impl Process {
    /// A process that lives. `death` is notified when it has died.
    pub fn new(number: u32, death: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            number,
            dead: AtomicBool::new(false),
            frozen: watch::Sender::new(false),
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

    /// Stops it (`SIGSTOP`) or lets it go on: while it is stopped no operation begins.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// What every operation passes before it begins and after each wait.
    pub async fn gate(&self) {
        if self.is_dead() {
            pending::<()>().await;
        }
        // The sender is a part of us: it cannot be gone.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
        if self.is_dead() {
            pending::<()>().await;
        }
    }
}
