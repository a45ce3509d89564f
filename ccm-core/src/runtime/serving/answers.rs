//! Answers that are kept for a while. Equal questions at the same time are asked once.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// Questions remembered at once: some scrapers and operators. A flood of made-up tokens must not
/// take our memory.
const KEPT: usize = 1024;

/// The digest of a question. The question itself may be a secret and is not kept.
pub(super) type Key = [u8; 32];

/// The digest of these bytes.
pub(super) fn key_of(bytes: &[u8]) -> Key {
    Sha256::digest(bytes).into()
}

struct Kept<V> {
    value: V,
    until: Instant,
}

/// Locked while its question is being asked.
type Slot<V> = Arc<tokio::sync::Mutex<Option<Kept<V>>>>;

/// Answers by the digest of their question.
pub(super) struct Answers<V>(Mutex<BTreeMap<Key, Slot<V>>>);

impl<V: Clone> Answers<V> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// The kept answer, or that of `ask` with the time it holds. A failure is not kept.
    pub(super) async fn get_or_ask<E>(
        &self,
        key: Key,
        ask: impl Future<Output = Result<(V, Duration), E>>,
    ) -> Result<V, E> {
        let slot = self.slot(key);
        let mut kept = slot.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.until > Instant::now()) {
            return Ok(kept.value.clone());
        }
        let (value, holds) = ask.await?;
        *kept = Some(Kept {
            value: value.clone(),
            until: Instant::now() + holds,
        });
        Ok(value)
    }

    fn slot(&self, key: Key) -> Slot<V> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        if slots.len() >= KEPT {
            let now = Instant::now();
            slots.retain(|_, slot| in_use(slot, now));
        }
        if slots.len() >= KEPT {
            // Digests are evenly spread: the first one is any one.
            slots.pop_first();
        }
        let slot = Slot::default();
        slots.insert(key, Arc::clone(&slot));
        slot
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn in_use<V>(slot: &Slot<V>, now: Instant) -> bool {
    // Locked: it is being asked right now.
    slot.try_lock().map_or(true, |kept| {
        kept.as_ref().is_some_and(|kept| kept.until > now)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const HOLDS: Duration = Duration::from_secs(10);

    async fn ask(
        answers: &Answers<u64>,
        key: &str,
        asked: &AtomicU64,
    ) -> Result<u64, &'static str> {
        let ask = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok((asked.fetch_add(1, Ordering::SeqCst), HOLDS))
        };
        answers.get_or_ask(key_of(key.as_bytes()), ask).await
    }

    #[tokio::test(start_paused = true)]
    async fn equal_questions_at_the_same_time_are_asked_once_and_the_answer_expires() {
        let (answers, asked) = (Answers::new(), AtomicU64::new(0));
        let both = tokio::join!(ask(&answers, "a", &asked), ask(&answers, "a", &asked));
        assert_eq!(both, (Ok(0), Ok(0)));
        assert_eq!(ask(&answers, "b", &asked).await, Ok(1));
        tokio::time::advance(HOLDS).await;
        assert_eq!(ask(&answers, "a", &asked).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_not_kept_and_one_who_gives_up_holds_nobody_up() {
        let (answers, asked) = (Answers::new(), AtomicU64::new(0));
        let fails = answers.get_or_ask(key_of(b"a"), async { Err::<(u64, _), _>("away") });
        assert_eq!(fails.await, Err("away"));
        let impatient = ask(&answers, "a", &asked);
        let impatient = tokio::time::timeout(Duration::from_millis(10), impatient);
        assert!(impatient.await.is_err());
        assert_eq!(ask(&answers, "a", &asked).await, Ok(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_questions_is_bounded() {
        let (answers, asked) = (Answers::new(), AtomicU64::new(0));
        for number in 0..KEPT + 100 {
            let at_once = async { Ok::<_, ()>((asked.fetch_add(1, Ordering::SeqCst), HOLDS)) };
            let key = key_of(number.to_string().as_bytes());
            answers.get_or_ask(key, at_once).await.unwrap();
        }
        assert_eq!(answers.len(), KEPT);
        tokio::time::advance(HOLDS).await;
        assert_eq!(
            ask(&answers, "one more", &asked).await,
            Ok(KEPT as u64 + 100)
        );
        assert_eq!(answers.len(), 1);
    }
}
