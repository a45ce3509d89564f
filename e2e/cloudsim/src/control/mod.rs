//! What every cloud shares: call log, faults, latency and throttling.
//!
//! A cloud module recognises a request and hands it to the pipeline together with its effect, a closure that
//! changes the state and writes the answer. The pipeline decides whether and when the effect
//! happens and whether the client hears of it.

mod faults;
mod limits;
mod log;

use std::time::Duration;

pub use faults::{Fault, Faults};
pub use limits::{Latency, Throttles};
pub use log::{Call, CallLog, Mark};

use bytes::Bytes;

use crate::clock::Clock;

/// The client sees its connection closed before an answer arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionClosed;

impl std::fmt::Display for ConnectionClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connection closed before the answer was complete")
    }
}

impl std::error::Error for ConnectionClosed {}

/// An error answer of a cloud, before it is written in that cloud's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudError {
    /// HTTP status.
    pub status: u16,
    /// The cloud's error code, such as `InvalidGroup.NotFound`.
    pub code: String,
    /// Text for people.
    pub message: String,
}

impl CloudError {
    /// An error with status 400, the usual one of AWS.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status: 400,
            code: code.into(),
            message: message.into(),
        }
    }

    /// The same error with another HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

impl std::fmt::Display for CloudError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for CloudError {}

/// A whole HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Value of the header `content-type`.
    pub content_type: &'static str,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Bytes,
    /// The cloud's error code, for the call log.
    pub code: Option<String>,
    /// The permission whose lack is the reason of the error, for the call log.
    pub denied: Option<String>,
}

/// How one API of a cloud writes the answers that the pipeline makes.
pub(crate) trait Dialect: Send + Sync {
    /// An error document. `status` replaces the status of the error.
    fn error(&self, error: &CloudError, status: u16) -> Answer;
    /// The error for a client that calls too often.
    fn throttled(&self) -> CloudError;
}

/// What a page fault does to a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageFault {
    /// The page (1-based) comes without its items.
    Empty(usize),
    /// The page (1-based) comes without the link to the next one.
    Last(usize),
}

/// The shared machinery.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) calls: CallLog,
    pub(crate) faults: Faults,
    pub(crate) latency: Latency,
    pub(crate) throttles: Throttles,
}

impl Control {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            calls: CallLog::new(clock),
            faults: Faults::default(),
            latency: Latency::default(),
            throttles: Throttles::default(),
        }
    }

    /// Takes one recognised call through log, latency, throttle and faults.
    pub(crate) async fn run(
        &self,
        call: Call,
        dialect: &dyn Dialect,
        effect: impl FnOnce(Option<PageFault>) -> Answer + Send,
    ) -> Result<Answer, ConnectionClosed> {
        let (service, action) = (call.service, call.action.clone());
        let seq = self.calls.begin(call);
        if let Some(wait) = self.latency.of(service, &action) {
            tokio::time::sleep(wait).await;
        }
        let result = if self.throttles.admits(service, &action) {
            let fault = self.faults.take(service, &action);
            with_fault(fault, dialect, effect).await
        } else {
            let error = dialect.throttled();
            Ok(dialect.error(&error, error.status))
        };
        self.calls.end(seq, &result);
        tracing::debug!(service, action, seq, ok = result.is_ok(), "Cloud call");
        result
    }
}

async fn with_fault(
    fault: Option<Fault>,
    dialect: &dyn Dialect,
    effect: impl FnOnce(Option<PageFault>) -> Answer + Send,
) -> Result<Answer, ConnectionClosed> {
    let Some(fault) = fault else {
        return Ok(effect(None));
    };
    match fault {
        Fault::Error {
            status,
            code,
            message,
        } => {
            let error = CloudError::new(code, message).with_status(status);
            Ok(dialect.error(&error, status))
        }
        Fault::OkWithErrorDocument { code, message } => {
            Ok(dialect.error(&CloudError::new(code, message), 200))
        }
        Fault::CommitThenTimeout {
            gateway_timeout_after_ms,
        } => {
            effect(None);
            let after = gateway_timeout_after_ms.ok_or(ConnectionClosed)?;
            tokio::time::sleep(Duration::from_millis(after)).await;
            Ok(Answer {
                status: 504,
                content_type: "text/html",
                headers: Vec::new(),
                body: Bytes::from_static(
                    b"<html><body><h1>504 Gateway Time-out</h1></body></html>",
                ),
                code: Some("504".to_owned()),
                denied: None,
            })
        }
        Fault::DropConnection => Err(ConnectionClosed),
        Fault::Hang { millis } => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Err(ConnectionClosed)
        }
        Fault::MalformedBody => {
            let mut answer = effect(None);
            // Half a document: well-formed headers, a body that no parser accepts.
            answer.body.truncate(answer.body.len() / 2);
            answer.code = Some("malformed body".to_owned());
            Ok(answer)
        }
        Fault::DropPage { page } => Ok(effect(Some(PageFault::Empty(page)))),
        Fault::LoseNextToken { page } => Ok(effect(Some(PageFault::Last(page)))),
    }
}

/// A selector is `*`, an action (`DescribeInstances`) or service and action (`ec2:DescribeInstances`).
fn selects(selector: &str, service: &str, action: &str) -> bool {
    if selector == "*" || selector == action {
        return true;
    }
    match selector.split_once(':') {
        Some((left, "*")) => left == service,
        Some((left, right)) => left == service && right == action,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::selects;

    #[test]
    fn a_selector_names_an_action_with_or_without_its_service() {
        assert!(selects("*", "ec2", "DescribeVpcs"));
        assert!(selects("DescribeVpcs", "ec2", "DescribeVpcs"));
        assert!(selects("ec2:DescribeVpcs", "ec2", "DescribeVpcs"));
        assert!(selects("ec2:*", "ec2", "DescribeVpcs"));
        assert!(!selects("elbv2:*", "ec2", "DescribeVpcs"));
        assert!(!selects("elbv2:DescribeVpcs", "ec2", "DescribeVpcs"));
        assert!(!selects("Describe", "ec2", "DescribeVpcs"));
    }
}
