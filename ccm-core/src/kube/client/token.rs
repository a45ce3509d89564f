//! Bearer tokens that change: one holder for all requests that use a token.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use http::HeaderValue;
use tokio::{sync, time::Instant};
use tower::BoxError;

/// After a failed renewal none is tried for this time: an API server in trouble is not stormed.
const PAUSE: Duration = Duration::from_secs(10);

/// A token and how long it is good for.
#[derive(Clone, Debug)]
pub(super) struct Token {
    /// `Bearer …`, marked as sensitive.
    pub(super) header: HeaderValue,
    /// When a new one should be asked for.
    pub(super) renew_at: Instant,
    /// When it is worthless; `None` is not known.
    pub(super) valid_until: Option<Instant>,
}

/// The header of a token.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, String> {
    // The text of the error would not quote the token; neither do we.
    let mut header = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| "the token has characters that a header cannot have".to_owned())?;
    header.set_sensitive(true);
    Ok(header)
}

/// Where tokens come from.
#[async_trait]
pub(super) trait TokenSource: Send + Sync {
    /// Whose token it is, for the log.
    fn owner(&self) -> String;

    /// A token. Bounded in time and tries.
    async fn fetch(&self) -> Result<Token, String>;
}

/// The renewals so far; held by whoever renews.
#[derive(Default)]
struct Renewals {
    failed: Option<(Instant, String)>,
    /// The last one that a refused token caused.
    forced: Option<Instant>,
}

enum Current {
    Fresh(HeaderValue),
    /// Usable, but a new one should be asked for.
    Due(HeaderValue),
    None,
}

/// Holds the token that requests use, and renews it: at its time by one request while the others
/// go on with the old one, and at once when the API server refuses it.
pub(super) struct Tokens {
    source: Box<dyn TokenSource>,
    current: Mutex<Option<Token>>,
    renewals: sync::Mutex<Renewals>,
}

impl Tokens {
    /// A holder that asks for its first token when the first request needs it.
    pub(super) fn new(source: impl TokenSource + 'static) -> Self {
        Self {
            source: Box::new(source),
            current: Mutex::new(None),
            renewals: sync::Mutex::default(),
        }
    }

    /// The header for a request now.
    ///
    /// # Errors
    /// There is no token, or it expired, and none can be had.
    pub(super) async fn header(&self) -> Result<HeaderValue, BoxError> {
        match self.current() {
            Current::Fresh(header) => return Ok(header),
            Current::Due(old) => {
                let Ok(mut renewals) = self.renewals.try_lock() else {
                    return Ok(old);
                };
                // A failure is told by `renew`; the old token is still good.
                let _ = self.renew(&mut renewals).await;
            }
            Current::None => {
                let mut renewals = self.renewals.lock().await;
                // Another request may have renewed it meanwhile.
                if let Current::None = self.current() {
                    self.renew(&mut renewals).await?;
                }
            }
        }
        match self.current() {
            Current::Fresh(header) | Current::Due(header) => Ok(header),
            Current::None => {
                Err(format!("the token of {} has expired", self.source.owner()).into())
            }
        }
    }

    /// The API server refused this header. Tells whether there is another one to try. At most one
    /// renewal in ten seconds.
    pub(super) async fn refused(&self, used: &HeaderValue) -> bool {
        let mut renewals = self.renewals.lock().await;
        let another = |current: Current| match current {
            Current::Fresh(header) | Current::Due(header) => header != used,
            Current::None => false,
        };
        if another(self.current()) {
            return true;
        }
        if renewals.forced.is_some_and(|at| at.elapsed() < PAUSE) {
            return false;
        }
        renewals.forced = Some(Instant::now());
        let owner = self.source.owner();
        tracing::warn!(
            owner,
            "the API server refused the token, asking for a new one"
        );
        self.renew(&mut renewals).await.is_ok() && another(self.current())
    }

    fn current(&self) -> Current {
        let now = Instant::now();
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(token) if token.valid_until.is_some_and(|end| end <= now) => Current::None,
            Some(token) if token.renew_at <= now => Current::Due(token.header.clone()),
            Some(token) => Current::Fresh(token.header.clone()),
            None => Current::None,
        }
    }

    async fn renew(&self, renewals: &mut Renewals) -> Result<(), String> {
        if let Some((at, problem)) = &renewals.failed
            && at.elapsed() < PAUSE
        {
            return Err(problem.clone());
        }
        let owner = self.source.owner();
        match self.source.fetch().await {
            Ok(token) => {
                renewals.failed = None;
                tracing::debug!(owner, "token renewed");
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
                Ok(())
            }
            Err(error) => {
                if let Current::None = self.current() {
                    tracing::error!(
                        owner,
                        error,
                        "no valid token: requests of this identity fail until there is one"
                    );
                } else {
                    tracing::warn!(owner, error, "token not renewed, the old one is used on");
                }
                let problem = format!("no token for {owner}: {error}");
                renewals.failed = Some((Instant::now(), problem.clone()));
                Err(problem)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    };

    use super::*;

    /// A token of 100 seconds, to be renewed after 80.
    #[derive(Clone, Default)]
    struct Numbered {
        fetched: Arc<AtomicU64>,
        broken: Arc<AtomicBool>,
        slow: Duration,
    }

    #[async_trait]
    impl TokenSource for Numbered {
        fn owner(&self) -> String {
            "the test".to_owned()
        }

        async fn fetch(&self) -> Result<Token, String> {
            tokio::time::sleep(self.slow).await;
            let number = self.fetched.fetch_add(1, Ordering::SeqCst) + 1;
            if self.broken.load(Ordering::SeqCst) {
                return Err("out of tokens".to_owned());
            }
            let now = Instant::now();
            Ok(Token {
                header: bearer(&number.to_string())?,
                renew_at: now + Duration::from_secs(80),
                valid_until: Some(now + Duration::from_secs(100)),
            })
        }
    }

    async fn now(tokens: &Tokens) -> String {
        let header = tokens.header().await.unwrap();
        header.to_str().unwrap().to_owned()
    }

    async fn seconds(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_asked_for_at_first_use_and_renewed_at_its_time() {
        let source = Numbered::default();
        let tokens = Tokens::new(source.clone());
        assert_eq!(source.fetched.load(Ordering::SeqCst), 0);
        assert_eq!(now(&tokens).await, "Bearer 1");
        seconds(79).await;
        assert_eq!(now(&tokens).await, "Bearer 1");
        seconds(1).await;
        assert_eq!(now(&tokens).await, "Bearer 2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_renewal_keeps_the_old_token_until_it_expires() {
        let source = Numbered::default();
        let tokens = Tokens::new(source.clone());
        assert_eq!(now(&tokens).await, "Bearer 1");
        source.broken.store(true, Ordering::SeqCst);
        seconds(80).await;
        for _ in 0..5 {
            assert_eq!(now(&tokens).await, "Bearer 1");
        }
        assert_eq!(
            source.fetched.load(Ordering::SeqCst),
            2,
            "one try in ten seconds"
        );
        seconds(10).await;
        assert_eq!(now(&tokens).await, "Bearer 1");
        assert_eq!(source.fetched.load(Ordering::SeqCst), 3);
        seconds(10).await;
        let error = tokens.header().await.unwrap_err().to_string();
        assert_eq!(error, "no token for the test: out of tokens");
        source.broken.store(false, Ordering::SeqCst);
        seconds(10).await;
        assert_eq!(now(&tokens).await, "Bearer 5");
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_cause_one_renewal() {
        let source = Numbered {
            slow: Duration::from_secs(1),
            ..Numbered::default()
        };
        let tokens = Tokens::new(source.clone());
        let all = (0..20).map(|_| now(&tokens));
        assert!(
            futures::future::join_all(all)
                .await
                .iter()
                .all(|token| token == "Bearer 1")
        );
        seconds(85).await;
        let all = futures::future::join_all((0..20).map(|_| now(&tokens))).await;
        assert_eq!(source.fetched.load(Ordering::SeqCst), 2);
        assert_eq!(all.iter().filter(|token| *token == "Bearer 1").count(), 19);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_renewed_once_in_ten_seconds() {
        let source = Numbered::default();
        let tokens = Tokens::new(source.clone());
        let first = tokens.header().await.unwrap();
        assert!(tokens.refused(&first).await);
        // Others that were refused with the first one find the second one already there.
        assert!(tokens.refused(&first).await);
        let second = tokens.header().await.unwrap();
        assert_eq!(second, "Bearer 2");
        assert!(!tokens.refused(&second).await);
        assert_eq!(source.fetched.load(Ordering::SeqCst), 2);
        seconds(10).await;
        assert!(tokens.refused(&second).await);
    }

    #[test]
    fn a_token_is_trimmed_and_never_shown() {
        let header = bearer("hunter2\n").unwrap();
        assert_eq!(header, "Bearer hunter2");
        assert!(!format!("{header:?}").contains("hunter2"));
        let error = bearer("hunter2\nhunter2").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
