//! What strikes an operation of a manager: the one place where faults and crashes come from.
//!
//! Every API request and every cloud call asks for its fate when it begins. A blow is aimed at the
//! operation of a number, or armed and taken by the next operation it fits.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::trace::Kind;

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The process dies; nothing was done.
    CrashBefore,
    /// It was done; the process dies before the answer arrives.
    CrashAfter,
    /// Refused: somebody else changed the object (API), or a conflict (cloud).
    Conflict,
    /// Refused with 410 (API), or a transient error (cloud).
    Gone,
    /// Refused: too many calls; come back after this time.
    Throttled(Duration),
    /// Refused with 500, or the cloud's own trouble.
    Internal,
    /// Refused: a limit of the account (cloud), or 403 (API).
    Denied,
    /// It was done; the caller gets a time-out.
    Lost,
    /// The caller gets a time-out; it is done this much later, whatever happened meanwhile. A read
    /// is lost.
    Late(Duration),
    /// The connection breaks; nothing was done.
    Broken,
    /// It was done; then the connection breaks.
    BrokenAfter,
    /// It takes this much longer to be done.
    Slow(Duration),
}

/// Which operation is struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The one of this number in the run.
    Number(u32),
    /// From now on the first, after `skip` others, that is of the kind (any if `None`) and whose
    /// text contains `part`.
    Next {
        /// The kind, any if `None`.
        kind: Option<Kind>,
        /// A part of the operation's text; empty fits all.
        part: String,
        /// How many that fit are spared.
        skip: u32,
    },
}

impl Aim {
    /// The next operation of a kind, after some that are spared.
    pub fn next(kind: Kind, skip: u32) -> Self {
        Self::Next {
            kind: Some(kind),
            part: String::new(),
            skip,
        }
    }
}

#[derive(Debug)]
struct Armed {
    aim: Aim,
    blow: Blow,
}

#[derive(Debug, Default)]
struct State {
    armed: Vec<Armed>,
    /// Until when every cloud call fails.
    cloud_away: Option<Instant>,
    /// How many effects are still to come.
    late: u32,
}

/// The blows still to fall. Clones are handles of the same list.
#[derive(Clone, Debug, Default)]
pub struct Fates(Arc<Mutex<State>>);

impl Fates {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Arms a blow.
    pub fn arm(&self, aim: Aim, blow: Blow) {
        self.with(|state| state.armed.push(Armed { aim, blow }));
    }

    /// Every cloud call that begins before then fails.
    pub fn cloud_away(&self, until: Instant) {
        self.with(|state| state.cloud_away = Some(until));
    }

    /// The blow for an operation that begins; it is used up.
    pub fn strike(&self, index: u32, kind: Kind, text: &str) -> Option<Blow> {
        self.with(|state| {
            let armed = &mut state.armed;
            let hit = armed.iter_mut().position(|armed| match &mut armed.aim {
                Aim::Number(number) => *number == index,
                Aim::Next {
                    kind: wanted,
                    part,
                    skip,
                } => {
                    let fits =
                        wanted.is_none_or(|wanted| wanted == kind) && text.contains(part.as_str());
                    let falls = fits && *skip == 0;
                    if fits {
                        *skip = skip.saturating_sub(1);
                    }
                    falls
                }
            });
            let away = state.cloud_away.is_some_and(|until| Instant::now() < until);
            match hit {
                Some(hit) => Some(armed.remove(hit).blow),
                None => (away && kind.is_cloud()).then_some(Blow::Internal),
            }
        })
    }

    /// Takes all blows away that have not fallen. What is late comes all the same.
    pub fn clear(&self) {
        self.with(|state| {
            state.armed.clear();
            state.cloud_away = None;
        });
    }

    /// Does something later, on no process's behalf: the caller was told that it failed.
    pub fn later(&self, time: Duration, what: impl Future<Output = ()> + Send + 'static) {
        self.with(|state| state.late += 1);
        let fates = self.clone();
        tokio::spawn(async move {
            sleep(time).await;
            what.await;
            fates.with(|state| state.late -= 1);
        });
    }

    /// Whether effects are still to come.
    pub fn has_late(&self) -> bool {
        self.with(|state| state.late > 0)
    }
}

/// How long operations take, from the seed of the run and the number of the operation: other
/// seeds, other interleavings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// The same for all: 2 ms for the API, 30 ms for the cloud.
    Even,
    /// From nothing to some hundred milliseconds.
    Seeded(u64),
}

impl Latency {
    /// The time of one operation, there and back.
    pub fn of(self, index: u32, kind: Kind) -> Duration {
        let Self::Seeded(seed) = self else {
            return Duration::from_millis(if kind.is_cloud() { 30 } else { 2 });
        };
        let mut rng = fastrand::Rng::with_seed(seed ^ (u64::from(index) << 32));
        let choices: &[u64] = if kind.is_cloud() {
            &[0, 5, 20, 20, 60, 300]
        } else {
            &[0, 1, 1, 3, 20]
        };
        let base = rng.choice(choices).copied().unwrap_or_default();
        Duration::from_millis(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blow_falls_once_on_the_operation_it_is_aimed_at() {
        let fates = Fates::default();
        fates.arm(Aim::Number(3), Blow::Lost);
        fates.arm(Aim::next(Kind::CloudWrite, 1), Blow::CrashAfter);
        let fall = |index, kind| fates.strike(index, kind, "x");
        assert_eq!(fall(0, Kind::CloudWrite), None);
        assert_eq!(fall(1, Kind::ApiWrite), None);
        assert_eq!(fall(2, Kind::CloudWrite), Some(Blow::CrashAfter));
        assert_eq!(fall(3, Kind::ApiRead), Some(Blow::Lost));
        assert_eq!(fall(3, Kind::CloudWrite), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_late_comes_although_all_blows_are_taken_away() {
        let fates = Fates::default();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        fates.later(Duration::from_secs(3), async {
            let _ = sender.send(Instant::now());
        });
        let start = Instant::now();
        fates.clear();
        assert!(fates.has_late());
        assert_eq!(receiver.await, Ok(start + Duration::from_secs(3)));
        tokio::task::yield_now().await;
        assert!(!fates.has_late());
    }
}
