//! Questions to the API server about callers: bounded in time, retried, counted, remembered
//! (specification: controllers §7.4).

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::Request;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::Semaphore, time::Instant};

use super::{
    answers::{Answers, Key},
    exchange::{ExchangeError, exchange},
    metrics::ReviewMetrics,
};
use crate::runtime::Random;

/// For an answer, all tries together.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Tries of one question.
const TRIES: u32 = 5;

/// Between the first two tries, then half as much again each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const WAIT_GROWS: f64 = 1.5;
const JITTER: f64 = 0.2;

/// Questions of one kind at the same time. An HTTP/2 client can send a hundred requests at once.
const AT_ONCE: usize = 16;

/// Between two log lines about reviews that fail: everybody can cause them.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// One kind of review.
pub(super) struct Reviews<V> {
    path: &'static str,
    client: kube::Client,
    random: Random,
    metrics: ReviewMetrics,
    answers: Answers<V>,
    at_once: Semaphore,
    told: Mutex<Option<Instant>>,
}

impl<V: Clone> Reviews<V> {
    pub(super) fn new(
        path: &'static str,
        client: kube::Client,
        random: Random,
        metrics: ReviewMetrics,
    ) -> Self {
        Self {
            path,
            client,
            random,
            metrics,
            answers: Answers::new(),
            at_once: Semaphore::new(AT_ONCE),
            told: Mutex::default(),
        }
    }

    /// The answer to a question, a remembered one or that of the API server as `read` understands
    /// it, with the time it holds.
    pub(super) async fn answer<Q, A>(
        &self,
        key: Key,
        question: &Q,
        read: impl FnOnce(A) -> (V, Duration),
    ) -> Result<V, ExchangeError>
    where
        Q: Serialize,
        A: DeserializeOwned,
    {
        let deadline = Instant::now() + ANSWER_WITHIN;
        let ask = async {
            let _permit = self.at_once.acquire().await.ok();
            self.tries(question, deadline).await.map(read)
        };
        // Those who wait for another one's question give up in time as well.
        let answer = tokio::time::timeout_at(deadline, self.answers.get_or_ask(key, ask))
            .await
            .unwrap_or(Err(ExchangeError::TooLate));
        if let Err(error) = &answer {
            self.tell(error);
        }
        answer
    }

    fn tell(&self, error: &ExchangeError) {
        let now = Instant::now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_some_and(|told| now < told + TELL_EVERY) {
            return;
        }
        *told = Some(now);
        tracing::warn!(
            %error,
            path = self.path,
            "callers of the secure port cannot be reviewed; the account needs the cluster role \
             system:auth-delegator"
        );
    }

    async fn tries<Q: Serialize, A: DeserializeOwned>(
        &self,
        question: &Q,
        deadline: Instant,
    ) -> Result<A, ExchangeError> {
        let body = serde_json::to_vec(question)
            .map_err(|_| ExchangeError::Unreadable("the question has no JSON form"))?;
        let mut number = 1;
        loop {
            let error = match self.ask_once(body.clone(), deadline).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let wait = self.random.jitter(wait_after(number), JITTER);
            if !error.may_pass() || number == TRIES || Instant::now() + wait >= deadline {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            number += 1;
        }
    }

    async fn ask_once<A: DeserializeOwned>(
        &self,
        body: Vec<u8>,
        deadline: Instant,
    ) -> Result<A, ExchangeError> {
        let began = Instant::now();
        let asked = exchange(&self.client, Request::post(self.path), body);
        let answer = tokio::time::timeout_at(deadline, asked)
            .await
            .unwrap_or(Err(ExchangeError::TooLate));
        let code = match &answer {
            Ok((code, _)) => code.to_string(),
            Err(error) => error.code(),
        };
        self.metrics.observe(&code, began.elapsed());
        let (_, body) = answer?;
        // A parser's text may quote the answer, which repeats the question.
        serde_json::from_slice(&body)
            .map_err(|_| ExchangeError::Unreadable("it is no review with a status"))
    }
}

fn wait_after(number: u32) -> Duration {
    let exponent = i32::try_from(number.saturating_sub(1)).unwrap_or(i32::MAX);
    FIRST_WAIT.mul_f64(WAIT_GROWS.powi(exponent.min(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_by_half() {
        let waits: Vec<_> = (1..TRIES).map(|n| wait_after(n).as_millis()).collect();
        assert_eq!(waits, [500, 750, 1125, 1687]);
    }
}
