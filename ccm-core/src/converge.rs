//! The plan-apply loop that every provider shares.
//!
//! Later actions need ids made by earlier ones, so there is no grand plan: plan the next batch of
//! independent actions, run it concurrently, absorb the answers, plan again until nothing is left.
//! Order within a batch never matters; order between batches is the safety argument of the
//! planner. Three laws hold for every planner and are tested with proptest: it reaches a fixpoint,
//! on a converged state it plans nothing, and stopped after any prefix and started again from what
//! the cloud shows it ends in the same state.

use std::future::Future;

use futures::{StreamExt, stream};

/// Actions of one batch in flight at once: enough to hide latency, too few to provoke throttling.
const BATCH_CONCURRENCY: usize = 8;

/// Batches before the loop gives up: a planner that has not finished by then never will.
const MAX_ROUNDS: usize = 64;

/// What converges: a pure planner and its model.
pub trait Plan {
    /// The desired state.
    type Want;
    /// The observed state.
    type Have;
    /// One change.
    type Action: Clone + std::fmt::Debug;
    /// What the cloud answers to a change, e.g. the id of what was made.
    type Made;

    /// The next actions, all independent of each other; empty when nothing is left to do.
    fn next(want: &Self::Want, have: &Self::Have) -> Vec<Self::Action>;

    /// The observed state after a successful action. A fake cloud runs the same function.
    fn absorb(have: &mut Self::Have, action: &Self::Action, made: Self::Made);
}

/// Why convergence stopped.
#[derive(Debug, thiserror::Error)]
pub enum ConvergeError<E> {
    /// An action failed; the other actions of its batch were finished and absorbed.
    #[error(transparent)]
    Action(E),
    /// The planner still plans after [`MAX_ROUNDS`] batches.
    #[error("the plan did not come to an end after {rounds} rounds")]
    Endless {
        /// How many batches ran.
        rounds: usize,
    },
}

/// Applies batches until the planner plans nothing more. Returns the state then observed.
///
/// # Errors
/// The first failed action of a batch, in planning order.
pub async fn converge<P, E, F, Fut>(
    want: &P::Want,
    mut have: P::Have,
    apply: F,
) -> Result<P::Have, ConvergeError<E>>
where
    P: Plan,
    F: Fn(P::Action) -> Fut,
    Fut: Future<Output = Result<P::Made, E>>,
{
    for _ in 0..MAX_ROUNDS {
        let batch = P::next(want, &have);
        if batch.is_empty() {
            return Ok(have);
        }
        // Ordered, so that a run is repeatable.
        let answers: Vec<(P::Action, Result<_, E>)> = stream::iter(batch)
            .map(|action| {
                let answer = apply(action.clone());
                async move { (action, answer.await) }
            })
            .buffered(BATCH_CONCURRENCY)
            .collect()
            .await;
        let mut failed = None;
        for (action, answer) in answers {
            match answer {
                Ok(made) => P::absorb(&mut have, &action, made),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(ConvergeError::Action(error));
        }
    }
    Err(ConvergeError::Endless { rounds: MAX_ROUNDS })
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// Makes the missing numbers, two at a time.
    struct Numbers;

    impl Plan for Numbers {
        type Want = BTreeSet<u32>;
        type Have = BTreeSet<u32>;
        type Action = u32;
        type Made = ();

        fn next(want: &Self::Want, have: &Self::Have) -> Vec<u32> {
            want.difference(have).take(2).copied().collect()
        }

        fn absorb(have: &mut Self::Have, action: &u32, (): ()) {
            have.insert(*action);
        }
    }

    struct Restless;

    impl Plan for Restless {
        type Want = ();
        type Have = ();
        type Action = ();
        type Made = ();

        fn next((): &(), (): &()) -> Vec<()> {
            vec![()]
        }

        fn absorb((): &mut (), (): &(), (): ()) {}
    }

    #[tokio::test]
    async fn batches_run_until_nothing_is_planned() {
        let calls = AtomicUsize::new(0);
        let have = converge::<Numbers, String, _, _>(
            &BTreeSet::from([1, 2, 3, 4, 5]),
            BTreeSet::from([3]),
            |_| {
                calls.fetch_add(1, Ordering::Relaxed);
                async { Ok(()) }
            },
        )
        .await
        .unwrap();
        assert_eq!(have, BTreeSet::from([1, 2, 3, 4, 5]));
        assert_eq!(calls.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn a_failed_action_stops_after_its_batch() {
        let calls = AtomicUsize::new(0);
        let error = converge::<Numbers, String, _, _>(
            &BTreeSet::from([1, 2, 3, 4]),
            BTreeSet::new(),
            |n| {
                calls.fetch_add(1, Ordering::Relaxed);
                async move {
                    if n == 1 {
                        Err("one".to_owned())
                    } else {
                        Ok(())
                    }
                }
            },
        )
        .await
        .unwrap_err();
        assert!(matches!(error, ConvergeError::Action(text) if text == "one"));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn an_endless_plan_is_an_error() {
        let error = converge::<Restless, String, _, _>(&(), (), |()| async { Ok(()) })
            .await
            .unwrap_err();
        assert!(matches!(error, ConvergeError::Endless { .. }));
    }
}
