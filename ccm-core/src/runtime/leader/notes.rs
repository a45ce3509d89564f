//! What repeats every few seconds is said once a minute.

use std::time::Duration;

use tokio::time::Instant;

/// How often a text that stays the same is said again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The text that was said last.
#[derive(Debug, Default)]
pub(super) struct Notes(Option<(String, Instant)>);

impl Notes {
    /// Whether this text is to be said now: it is another one, or a minute has passed.
    pub(super) fn is_due(&mut self, text: &str) -> bool {
        let now = Instant::now();
        let said = self.0.as_ref().is_some_and(|(last, at)| {
            last == text && now.saturating_duration_since(*at) < AGAIN_AFTER
        });
        if !said {
            self.0 = Some((text.to_owned(), now));
        }
        !said
    }

    /// All is well again: the next text is said. Whether there was one.
    pub(super) fn clear(&mut self) -> bool {
        self.0.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_text_is_said_when_it_changes_and_once_a_minute() {
        let mut notes = Notes::default();
        assert!(notes.is_due("a"));
        assert!(!notes.is_due("a"));
        assert!(notes.is_due("b"));
        tokio::time::advance(AGAIN_AFTER).await;
        assert!(notes.is_due("b"));
        assert!(!notes.is_due("b"));
        assert!(notes.clear() && !notes.clear());
        assert!(notes.is_due("b"));
    }
}
