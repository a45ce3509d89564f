//! Which answers are followed by another try, and when. Pure.
//!
//! As the Go library does, a request is repeated only if the server asks for it: 429 or 5xx with a
//! `Retry-After` in seconds, at most ten times. Three bounds are ours, so that there is never a
//! storm: a wait is at least a second, all waits of one request together are at most a minute, and
//! a write is repeated only on 429 and 503, with which the server says that it did nothing.
//! Everything else is left to the back-off of the caller's queue.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header::RETRY_AFTER};

/// Further tries of one request, as in the Go library.
const RETRIES: u32 = 10;

/// `Retry-After: 0` must not become a loop.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// All waits of one request: beyond it a worker is better used for another object.
const LONGEST_WAITS: Duration = Duration::from_secs(60);

/// How often and how long a request was repeated so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Retries {
    count: u32,
    waited: Duration,
}

impl Retries {
    /// The wait before another try; `None` when the answer is final.
    pub(super) fn next(
        &mut self,
        method: &Method,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<Duration> {
        let undone =
            status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE;
        let again = undone || (method == Method::GET && status.is_server_error());
        let wait = retry_after(headers).filter(|_| again)?.max(SHORTEST_WAIT);
        let waited = self.waited.saturating_add(wait);
        if self.count >= RETRIES || waited > LONGEST_WAITS {
            return None;
        }
        self.count += 1;
        self.waited = waited;
        Some(wait)
    }
}

/// The form in seconds; dates are ignored, as in the Go library.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    seconds.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(method: &Method, code: u16, after: Option<&'static str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        if let Some(after) = after {
            headers.insert(RETRY_AFTER, after.parse().unwrap());
        }
        let status = StatusCode::from_u16(code).unwrap();
        let wait = Retries::default().next(method, status, &headers);
        wait.map(|wait| wait.as_secs())
    }

    #[test]
    fn only_a_server_that_asks_for_it_is_asked_again() {
        for (method, code, after, want) in [
            (Method::GET, 429, Some("7"), Some(7)),
            (Method::GET, 429, None, None),
            (Method::GET, 500, Some("2"), Some(2)),
            (Method::GET, 504, Some("2"), Some(2)),
            (Method::GET, 404, Some("2"), None),
            (Method::GET, 200, Some("2"), None),
            (Method::POST, 429, Some("0"), Some(1)),
            (Method::PATCH, 503, Some("3"), Some(3)),
            // It may have been done: the caller has to look.
            (Method::POST, 504, Some("1"), None),
            (Method::DELETE, 500, Some("1"), None),
            (
                Method::GET,
                429,
                Some("Fri, 31 Dec 1999 23:59:59 GMT"),
                None,
            ),
            (Method::GET, 429, Some("-1"), None),
            (Method::GET, 429, Some("3600"), None),
        ] {
            assert_eq!(
                wait(&method, code, after),
                want,
                "{method} {code} {after:?}"
            );
        }
    }

    #[test]
    fn tries_and_waits_of_one_request_are_bounded() {
        for (after, tries) in [("1", 10), ("20", 3), ("61", 0)] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, after.parse().unwrap())]);
            let mut retries = Retries::default();
            let mut next = || retries.next(&Method::GET, StatusCode::TOO_MANY_REQUESTS, &headers);
            let count = (0..100).take_while(|_| next().is_some()).count();
            assert_eq!(count, tries, "Retry-After: {after}");
        }
    }
}
