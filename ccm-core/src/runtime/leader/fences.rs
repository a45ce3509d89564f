//! The fences of a process's locks.

use crate::{config::LockOf, runtime::Fence};

/// One fence for each lock; made before the electors, because the provider needs its own.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct Fences {
    /// Of the main lock; open without leader election.
    pub(in crate::runtime) main: Fence,
    /// Of the migration lock, if there is one.
    pub(in crate::runtime) migration: Option<Fence>,
}

impl Fences {
    /// Shut fences for electors, or one that is open without leader election.
    pub(in crate::runtime) fn new(election: bool, migration: bool) -> Self {
        if !election {
            return Self {
                main: Fence::open(),
                migration: None,
            };
        }
        Self {
            main: Fence::waiting(),
            migration: migration.then(Fence::waiting),
        }
    }

    /// The fence for controllers that need this lock. Those of the migration lock need both;
    /// without leader migration there is only the main lock.
    pub(in crate::runtime) fn of(&self, lock: LockOf) -> Fence {
        match (lock, &self.migration) {
            (LockOf::Elsewhere, _) => Fence::waiting(),
            (LockOf::Migration, Some(migration)) => self.main.and(migration),
            (LockOf::Main | LockOf::Migration, _) => self.main.clone(),
        }
    }

    /// For the provider, which works for all controllers: the main lock, and the migration lock
    /// from the time on when it was acquired.
    pub(in crate::runtime) fn of_cloud(&self) -> Fence {
        match &self.migration {
            Some(migration) => self.main.and(&migration.once_acquired()),
            None => self.main.clone(),
        }
    }
}
